"""python -m lab, against NumPy in float64: perplexity, the quality of KV caches, where heads look, budgets."""

from __future__ import annotations

import json
import math
from array import array
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

import edge
from edge.cache.planning import cache_plan
from edge.cache.policy import read_budget
from edge.cli.group import cli
from edge.errors import UsageError
from edge.options import Options
from lab import calibrate, evaluate, heads
from lab.__main__ import main
from pyx.kv import KVCache
from pyx.step import Segment, attention, attention_kept, attention_rows
from pyx.tokens import log_likelihoods
from tests.oracles.attention import log_softmax, softmax
from tests.streams import run

F32 = evaluate.Mode.parse("f32")

# ---- rows of logits --------------------------------------------------------------------------------------------------


@given(st.integers(0, 2**32 - 1), st.integers(1, 5), st.integers(1, 300), st.sampled_from([1e-3, 1.0, 30.0, 3e4]))
def test_rows_agree_with_numpy(seed, n, n_vocab, size):
    rng = np.random.default_rng(seed)
    rows = rng.normal(0, size, (n, n_vocab)).astype(np.float32)
    tokens = array("i", rng.integers(0, n_vocab, n).tolist())
    found = log_likelihoods(rows.ravel(), tokens, n_vocab)
    np.testing.assert_allclose(found, log_softmax(rows)[range(n), tokens], rtol=1e-12, atol=1e-12)


def test_rows_that_are_refused():
    good, broken = array("f", [0.0, 1.0, 2.0]), array("f", [0.0, math.nan, 2.0])
    with pytest.raises(ValueError, match="row 1 holds"):
        log_likelihoods(good + broken, array("i", [0, 0]), 3)
    for n, tokens, n_vocab in ((6, [0], 3), (6, [0, 3], 3), (6, [-1, 0], 3), (0, [0], 3), (6, [0, 0], 0)):
        with pytest.raises(ValueError):
            log_likelihoods(array("f", [0.0] * n), array("i", tokens), n_vocab)


# ---- the text --------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def engine(tiny_model):
    with edge.load(tiny_model, ctx=96, kv="f32", overflow="stop", threads=1) as engine:
        yield engine


@pytest.fixture(scope="module")
def tokens(engine):
    rng = np.random.default_rng(3)
    return array("i", rng.integers(0, engine.tokenizer.n_vocab - 8, 250).tolist())


def test_segments(engine):
    bos = engine.tokenizer.bos_id
    pieces = evaluate.segments(engine, array("i", range(10)), 5)
    assert [list(piece) for piece in pieces] == [[bos, 0, 1, 2, 3], [bos, 4, 5, 6, 7], [bos, 8, 9]]
    assert [list(piece) for piece in evaluate.segments(engine, array("i", range(5)), 5)] == [[bos, 0, 1, 2, 3]]
    with pytest.raises(UsageError, match="less than two"):
        evaluate.segments(engine, array("i", [7]), 5)
    with pytest.raises(UsageError, match="too few"):
        evaluate.segments(engine, array("i", range(5)), 2)


def test_text_files(engine, tmp_path):
    page = tmp_path / "page.txt"
    page.write_text("hello there")
    assert list(evaluate.read(engine, str(page))) == engine.tokenizer.encode("hello there")
    page.write_bytes(b"\xff\xfe")
    with pytest.raises(UsageError, match="not UTF-8"):
        evaluate.read(engine, str(page))
    with pytest.raises(UsageError, match="cannot read"):
        evaluate.read(engine, str(tmp_path / "none.txt"))
    talk = tmp_path / "talk.jsonl"
    for line in ("{}", "[1]", "nonsense", '{"messages": [{"role": "pirate"}]}', '{"messages": 3}'):
        talk.write_text('{"messages": [{"role": "user", "content": "hi"}]}\n\n' + line + "\n")
        with pytest.raises(UsageError, match="line 2 is not a conversation"):
            evaluate.read(engine, str(talk))


# ---- perplexity ------------------------------------------------------------------------------------------------------


def logits_one_by_one(engine, piece, plan=None):
    """Logits [n - 1][n_vocab] of a segment, a token a step."""
    return run(engine.model.transformer, engine.space.new_cache(plan), piece[:-1], 1)


def test_perplexity_is_that_of_numpy(engine, tokens):
    nats = []
    for piece in evaluate.segments(engine, tokens, 96):
        rows = log_softmax(logits_one_by_one(engine, piece))
        nats += (-rows[range(len(piece) - 1), piece[1:]]).tolist()
    result = evaluate.perplexity(engine, tokens, F32)
    assert result["tokens"] == len(nats) == 250 and result["context"] == 96
    assert result["nats"] == pytest.approx(np.mean(nats), rel=1e-9)
    assert result["perplexity"] == pytest.approx(math.exp(np.mean(nats)), rel=1e-9)
    n_byte = sum(len(engine.tokenizer.token_bytes(token)) for token in tokens)
    assert result["bits_per_byte"] == pytest.approx(sum(nats) / math.log(2) / n_byte, rel=1e-9)


# ---- modes -----------------------------------------------------------------------------------------------------------


def test_modes_are_compared_as_numpy_would(engine, tokens, monkeypatch):
    """Also with blocks of logits of a few tokens, as a large vocabulary has them."""
    mode = evaluate.Mode.parse("int8 window=40 sinks=3")
    expected_kl, expected_same, more = [], [], []
    for piece in evaluate.segments(engine, tokens, 96):
        p = log_softmax(logits_one_by_one(engine, piece))
        q = log_softmax(logits_one_by_one(engine, piece, mode.plan(engine, 96)))
        expected_kl += (np.exp(p) * (p - q)).sum(axis=1).tolist()
        expected_same += (p.argmax(axis=1) == q.argmax(axis=1)).tolist()
        more += (p - q)[range(len(piece) - 1), piece[1:]].tolist()
    for block in (evaluate.LOGIT_BYTES, 5 * 4 * engine.config.n_vocab):
        monkeypatch.setattr(evaluate, "LOGIT_BYTES", block)
        row = evaluate.kv_quality(engine, tokens, [mode])["rows"][1]
        assert row["kl_mean"] == pytest.approx(np.mean(expected_kl), rel=1e-9)
        assert row["kl_p999"] == pytest.approx(max(expected_kl), rel=1e-9)
        assert row["top1"] == pytest.approx(np.mean(expected_same))
        assert row["change"] == pytest.approx(math.expm1(np.mean(more)), rel=1e-9)
        assert row["error"] == pytest.approx(1.96 * np.std(more, ddof=1) / 250**0.5 * (1 + row["change"]), rel=1e-9)


def test_what_must_be_so(engine, tokens):
    modes = ["f32", "f16", "int8", "f32 window=92 sinks=4", "f32 window=16 sinks=0"]
    report = evaluate.kv_quality(engine, tokens, [evaluate.Mode.parse(mode) for mode in modes])
    reference, f32, f16, int8, whole, short = report["rows"]
    for row in (reference, f32, whole):  # a window as long as the text forgets nothing
        assert (row["kl_p999"], row["top1"], row["change"], row["error"]) == (0, 1, 0, 0)
        assert row["mass"] == pytest.approx(1, abs=1e-12)
        assert row["perplexity"] == pytest.approx(evaluate.perplexity(engine, tokens, F32)["perplexity"], rel=1e-12)
    assert f16["mass"] == pytest.approx(1, abs=1e-12) and 0 < short["mass"] < 0.9
    assert 0 < f16["kl_mean"] < int8["kl_mean"] < short["kl_mean"]
    assert all(row["kl_mean"] <= row["kl_p999"] for row in report["rows"])
    assert int8["kv_bytes"] == engine.space.new_cache(evaluate.Mode.parse("int8").plan(engine, 96)).nbytes
    other = evaluate.kv_quality(engine, tokens, [evaluate.Mode.parse("int8")], evaluate.Mode.parse("f16"))
    assert other["reference"] == "f16" and other["rows"][0]["kl_mean"] == 0 < other["rows"][1]["kl_mean"]
    assert other["rows"][1]["perplexity"] == int8["perplexity"]


@pytest.mark.parametrize(
    "text", ["", "  ", "int9", "int8 window", "int8 window=x", "int8 memory=5", "int8 window=-4", "int8 f16", "kv=int8"]
)
def test_modes_that_mean_nothing(text):
    with pytest.raises(UsageError):
        evaluate.Mode.parse(text)


# ---- the command -----------------------------------------------------------------------------------------------------


def test_commands(bundled_model, tmp_path, capsys):
    talk = str(tmp_path / "talk.jsonl")
    turns = [{"role": "user", "content": "Hello!"}, {"role": "assistant", "content": "Good morning. Coffee or tea?"}]
    Path(talk).write_text((json.dumps({"messages": turns}) + "\n") * 12)

    def shown(*arguments: str) -> str:
        assert main(arguments) == 0
        return capsys.readouterr().out

    lines = shown("kv", "-f", talk, "-c", "128", "--mode", "f16", "--mode", "int8 window=20").splitlines()
    assert f"text: {talk}" in lines
    assert [line[: len("int8 window=20")].strip() for line in lines[-4:]] == ["mode", "f32", "f16", "int8 window=20"]
    facts = json.loads(shown("kv", "-f", talk, "-c", "64", "--segments", "2", "--mode", "int8", "--json"))
    assert facts["context"] == 64 and facts["rows"][0]["kl_mean"] == 0 and 64 < facts["tokens"] <= 128
    assert json.loads(shown("ppl", "-f", talk, "--json"))["perplexity"] > 1
    for arguments, code, said in ((["kv", "--mode", "int8 windw=3"], 2, "windw=3"),
                                  (["kv", "--against", "int9"], 2, "int9"), (["ppl", "-f", "none.txt"], 2, "none.txt"),
                                  (["kv", "-c", "64", "--mode", "int8 ctx=32"], 2, "ctx")):
        assert main(arguments) == code
        error = capsys.readouterr().err
        assert said in error and error.count("\n") == 1


# ---- where heads look ------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def calibrating(tiny_model):
    with edge.load(tiny_model, ctx=256, kv="f32", overflow="stop", threads=1) as engine:
        yield engine


@pytest.fixture(scope="module")
def text(calibrating):
    rng = np.random.default_rng(3)
    return array("i", rng.integers(0, calibrating.tokenizer.n_vocab - 8, 1000).tolist())


def filled(n: int, seed: int = 1, **plan):
    """A cache that has read n random tokens; its keys [n_layer][n][n_kv_head][head_dim]; the last queries."""
    rng = np.random.default_rng(seed)
    cache = KVCache(2, 2, 64, 512, **plan)
    keys = rng.normal(0, 1, (2, n, 2, 64)).astype(np.float32)
    queries = rng.normal(0, 0.4, (2, n, 4, 64)).astype(np.float32)
    for t in range(n):
        for layer in range(2):
            attention(
                cache, layer, queries[layer, t].ravel(), keys[layer, t].ravel(), keys[layer, t].ravel(), 1, layer == 1
            )
    return cache, keys, np.ascontiguousarray(queries[:, -1])


@pytest.mark.parametrize("n", [1, 31, 32, 33, 100])
@pytest.mark.parametrize("plan", [{"kv_type": "f32"}, {"kv_type": "f32", "window": 40, "sinks": 5}])
def test_rows_are_the_softmax_over_what_is_in_sight(n: int, plan) -> None:
    cache, keys, queries = filled(n, **plan)
    seen = np.arange(n)
    if "window" in plan:
        seen = seen[(seen < 5) | (seen >= n - 40)]
    for layer in range(2):
        got = np.array(attention_rows(cache, layer, queries)).reshape(4, n)
        for head in range(4):
            scores = keys[layer, seen, head // 2].astype(np.float64) @ queries[layer, head].astype(np.float64)
            expected = np.zeros(n)
            expected[seen] = softmax(scores)
            np.testing.assert_allclose(got[head], expected, rtol=1e-5, atol=1e-9)


def test_mass_kept_is_that_of_the_tokens_in_sight() -> None:
    whole, _, queries = filled(150, kv_type="f32")
    short, _, _ = filled(150, kv_type="int8", window=40, sinks=5)
    for layer in range(2):
        rows = np.array(attention_rows(whole, layer, queries)).reshape(4, 150)
        for head in range(2):
            seen = [t for t in range(150) if t < 5 or t >= 110]
            row = array("d", rows[2 * head])
            assert attention_kept(short, layer, head, row) == pytest.approx(rows[2 * head][seen].sum())
            assert attention_kept(whole, layer, head, row) == pytest.approx(1)


def test_impossible_rows_are_refused() -> None:
    cache, _, queries = filled(5, kv_type="f32")
    for arguments in ((cache, 2, queries), (cache, -1, queries), (cache, 0, queries.ravel()[:-1]),
                      (KVCache(2, 2, 64, 64, "f32"), 0, queries)):
        with pytest.raises(ValueError):
            attention_rows(*arguments)
    for layer, head, n in ((0, 2, 5), (2, 0, 5), (0, 0, 4)):
        with pytest.raises(ValueError):
            attention_kept(cache, layer, head, array("d", [0.25] * n))


def test_a_transformer_leaves_what_it_asked(tiny_model) -> None:
    """The same attention whether the last token came alone or at the end of a chunk, in any number of threads."""
    found = []
    for threads, parts in ((1, [50]), (2, [49, 1]), (3, [20, 30])):
        with edge.load(tiny_model, ctx=64, kv="f32", overflow="stop", threads=threads) as engine:
            queries, cache, at = engine.model.transformer.keep_queries(), engine.space.new_cache(), 0
            for n in parts:
                engine.model.transformer.step([Segment(cache, array("i", range(at, at + n)))])
                at += n
            found.append([attention_rows(cache, layer, queries) for layer in range(2)])
    assert found[0] == found[1] == found[2]


# ---- heads -----------------------------------------------------------------------------------------------------------


def test_classes_are_those_of_the_last_queries(calibrating, text) -> None:
    """Read token by token: entropies of the last queries of each whole piece, averaged."""
    looks = heads.classes(calibrating, text, [100, 12])
    assert [row["tokens"] for row in looks["classes"]] == [12, 100] and len(looks["heads"]) == 2 * 2 * 4
    for row in looks["classes"]:
        assert sum(row[kind] for kind in heads.CLASSES) == pytest.approx(1)
        bits = [head["bits"] for head in looks["heads"] if head["tokens"] == row["tokens"]]
        assert (row["mean_bits"], row["std_bits"]) == pytest.approx((np.mean(bits), np.std(bits)))
        assert (row["least"], row["most"]) == (min(bits), max(bits))
        assert row["variation"] == pytest.approx(np.std(bits) / np.mean(bits))
    config, queries = calibrating.config, calibrating.model.transformer.keep_queries()
    seen: dict[tuple[int, int], list[float]] = {}
    pieces = [piece for piece in evaluate.segments(calibrating, text, 100) if len(piece) == 100][: heads.PIECES]
    for piece in pieces:
        cache = calibrating.space.new_cache()
        for t, token in enumerate(piece):
            calibrating.model.transformer.step([Segment(cache, array("i", [token]))])
            for layer in range(2 if t >= 100 - heads.LOOKS else 0):
                rows = np.array(attention_rows(cache, layer, queries)).reshape(config.n_head, t + 1)
                for head, row in enumerate(rows):
                    seen.setdefault((layer, head), []).append(-(row * np.log2(row)).sum())
    for row in looks["heads"]:
        if row["tokens"] == 100:
            bits = np.mean(seen[row["layer"], row["head"]])
            assert row["bits"] == pytest.approx(bits, rel=1e-6) and bits < heads.CLASSES[row["class"]]
            assert len(seen[row["layer"], row["head"]]) == heads.LOOKS * len(pieces)
    for length in (heads.LOOKS, 257):
        with pytest.raises(UsageError, match=f"{length}"):
            heads.classes(calibrating, text, [length])
    with pytest.raises(UsageError, match="60 tokens"):
        heads.classes(calibrating, text[:60], [100])


def test_budgets_by_entropy_save(calibrating) -> None:
    """Two layers of two KV heads; a query head of each has the mean, twice as much, much less, much more."""
    bits = np.array([[2.0, 1.0, 4.0, 0.0], [0.1, 0.0, 5.9, 3.0]])
    assert bits.mean() == 2
    half, _, tenth = heads.saved(calibrating, bits)
    assert half["own_of_cache"] == pytest.approx(1 - (0.5 + 1 + 0.15 + 1) / 4)
    assert half["flat_of_cache"] == pytest.approx(0), "in both layers a head needs all"
    assert tenth["own_of_cache"] == pytest.approx(1 - (0.1 + 0.2 + 0.03 + 0.25) / 4)
    assert tenth["flat_of_cache"] == pytest.approx(1 - (0.2 + 0.25) / 2)
    assert 0 < tenth["flat_of_memory"] < tenth["own_of_memory"] < tenth["own_of_cache"]


def test_support_is_the_fewest_tokens_with_most_of_the_attention() -> None:
    assert [heads.support(np.array(row)) for row in ([1.0], [0.05, 0.95], [0.5, 0.25, 0.25], [0.05] * 20)] == [
        1, 1, 3, 19]
    assert heads.entropy(np.array([[1.0, 0, 0, 0], [0.25] * 4])) == pytest.approx([0, 2])


def test_what_is_measured(calibrating, text) -> None:
    facts = heads.measure(calibrating, text[:500])
    assert [(each.layer, each.head) for each in facts] == [(0, 0), (0, 1), (1, 0), (1, 1)]
    for each in facts:
        assert 0 < each.entropy <= each.entropy_max <= 8  # 256 tokens
        assert 0 < each.sink_mass < 1 and 1 <= each.support <= 256
    with pytest.raises(UsageError, match="too short"):
        heads.measure(calibrating, text[:20])


# ---- budgets ---------------------------------------------------------------------------------------------------------


def test_shares_are_in_proportion() -> None:
    assert calibrate.share([1, 1, 2], 40, 100) == [10, 10, 20]
    assert calibrate.share([1, 1, 2], 40, 15) == [12, 13, 15] or calibrate.share([1, 1, 2], 40, 15) == [13, 12, 15]
    assert calibrate.share([0, 5], 10, 100) == [1, 9]
    assert calibrate.share([0, 0], 4, 100) == [2, 2]
    for total, most in ((1, 5), (11, 5)):
        with pytest.raises(UsageError):
            calibrate.share([1, 1], total, most)


def test_the_published_rule() -> None:
    """clamp(H / mean H, 0.3, 2.5) of the largest entropy, and the same turned round."""
    seen = [heads.HeadFacts(0, i, 0.0, h, 0.0, 10.0 * (i + 1)) for i, h in enumerate([0.1, 4.0, 7.9])]
    assert calibrate.weights("entropy", seen) == pytest.approx([0.3, 1.0, 1.975])
    assert calibrate.weights("inverse", seen) == pytest.approx([1 / 0.3, 1.0, 1 / 1.975])
    assert calibrate.weights("support", seen) == [10, 20, 30] and calibrate.weights("uniform", seen) == [1, 1, 1]


def test_every_method_keeps_the_same(calibrating, text) -> None:
    facts = heads.measure(calibrating, text[:500])
    budgets = {method: calibrate.budget(calibrating, facts, 0.25, method, 4) for method in calibrate.METHODS}
    sizes = {cache_plan(calibrating.config, Options(256, "int8", overflow="stop", kv_budget=each)).kv_bytes
             for each in budgets.values()}
    means = {np.mean(each.keep) for each in budgets.values()}
    assert len(sizes) == 1 and means == {4 + 2 * 32 + 1}
    assert len(set(sum(budgets["uniform"].keep, ()))) == 1
    by_support = sorted(zip((each.support for each in facts), sum(budgets["support"].keep, ())))
    assert [n for _, n in by_support] == sorted(n for _, n in by_support)
    for keep in (0, -1, 1.5, float("nan")):
        with pytest.raises(UsageError, match="share to keep"):
            calibrate.budget(calibrating, facts, keep, "support", 4)


def test_the_commands(bundled_model, tmp_path, capsys: pytest.CaptureFixture[str]) -> None:
    """A plan is a file for kv_budget, with which run answers."""
    path = tmp_path / "plan.json"
    assert main(["calibrate", "-c", "256", "-t", "1", "-o", str(path)]) == 0
    shown = capsys.readouterr().out
    assert "text: bundled/dialogues.jsonl" in shown and "entropy_max" in shown
    plan = json.loads(path.read_text())
    with edge.load(ctx=64) as demo:
        assert [list(row) for row in read_budget(str(path), demo.config).keep] == plan["keep"]
    used = CliRunner().invoke(cli, ["run", "hello", "-n", "2", "--set", f"kv_budget={path}", "--set",
                                    "overflow=stop", "-v"])
    assert used.exit_code == 0 and "budgets of" in used.stderr
    for arguments, said in ((["calibrate", "--compare", "-o", str(path)], "-o and --compare"),
                            (["heads", "--lengths", "8"], "length 8 "),
                            (["calibrate", "-c", "256", "--keep-share", "2"], "share to keep")):
        assert main(arguments) == 2 and said in capsys.readouterr().err
