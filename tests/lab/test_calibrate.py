"""Where heads look, against NumPy; budgets as files; plans that add up and really are what a cache keeps."""

from __future__ import annotations

import json
from array import array

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

import edge
from edge.cache.config import KVConfig
from edge.cache.policy import read_budget
from edge.cli.group import cli
from edge.errors import UsageError
from lab import calibrate, heads
from lab.__main__ import main
from lab.evaluate import segments
from pyx.kv import KVCache
from pyx.step import Segment, attention, attention_kept, attention_rows
from tests.oracles.softmax import softmax


@pytest.fixture(scope="module")
def engine(tiny_model):
    with edge.load(tiny_model, ctx=256, kv="f32", overflow="stop", threads=1) as engine:
        yield engine


@pytest.fixture(scope="module")
def tokens(engine):
    rng = np.random.default_rng(3)
    return array("i", rng.integers(0, engine.tokenizer.n_vocab - 8, 1000).tolist())


# ---- the probe -------------------------------------------------------------------------------------------------------

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


def test_int8_pages_show_nearly_the_same() -> None:
    exact, _, queries = filled(100, kv_type="f32")
    rounded, _, _ = filled(100, kv_type="int8")
    a, b = (np.array(attention_rows(cache, 1, queries)) for cache in (exact, rounded))
    assert 0 < np.abs(a - b).max() < 0.02


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


def test_impossible_rows_are_refused() -> None:
    cache, _, queries = filled(5, kv_type="f32")
    for arguments in ((cache, 2, queries), (cache, -1, queries), (cache, 0, queries.ravel()[:-1])):
        with pytest.raises(ValueError):
            attention_rows(*arguments)
    with pytest.raises(ValueError):
        attention_rows(KVCache(2, 2, 64, 64, "f32"), 0, queries)
    for layer, head, n in ((0, 2, 5), (2, 0, 5), (0, 0, 4)):
        with pytest.raises(ValueError):
            attention_kept(cache, layer, head, array("d", [0.25] * n))


# ---- heads -----------------------------------------------------------------------------------------------------------


def test_classes_are_those_of_the_last_queries(engine, tokens) -> None:
    """Read token by token: entropies of the last queries of each whole piece, averaged."""
    looks = heads.classes(engine, tokens, [100, 12])
    assert [row["tokens"] for row in looks["classes"]] == [12, 100] and len(looks["heads"]) == 2 * 2 * 4
    for row in looks["classes"]:
        assert sum(row[kind] for kind in heads.CLASSES) == pytest.approx(1)
        bits = [head["bits"] for head in looks["heads"] if head["tokens"] == row["tokens"]]
        assert (row["mean_bits"], row["std_bits"]) == pytest.approx((np.mean(bits), np.std(bits)))
        assert (row["least"], row["most"]) == (min(bits), max(bits))
        assert row["variation"] == pytest.approx(np.std(bits) / np.mean(bits))
    config, queries = engine.config, engine.model.transformer.keep_queries()
    seen: dict[tuple[int, int], list[float]] = {}
    pieces = [piece for piece in segments(engine, tokens, 100) if len(piece) == 100][: heads.PIECES]
    for piece in pieces:
        cache = engine.space.new_cache()
        for t, token in enumerate(piece):
            engine.model.transformer.step([Segment(cache, array("i", [token]))])
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
            heads.classes(engine, tokens, [length])
    with pytest.raises(UsageError, match="60 tokens"):
        heads.classes(engine, tokens[:60], [100])


def test_what_budgets_by_entropy_save(engine) -> None:
    """Two layers of two KV heads; a query head of each has the mean, twice as much, much less, much more."""
    bits = np.array([[2.0, 1.0, 4.0, 0.0], [0.1, 0.0, 5.9, 3.0]])
    assert bits.mean() == 2
    half, _, tenth = heads.saved(engine, bits)
    assert half["own_of_cache"] == pytest.approx(1 - (0.5 + 1 + 0.15 + 1) / 4)
    assert half["flat_of_cache"] == pytest.approx(0), "in both layers a head needs all"
    assert tenth["own_of_cache"] == pytest.approx(1 - (0.1 + 0.2 + 0.03 + 0.25) / 4)
    assert tenth["flat_of_cache"] == pytest.approx(1 - (0.2 + 0.25) / 2)
    assert 0 < tenth["flat_of_memory"] < tenth["own_of_memory"] < tenth["own_of_cache"]


def test_support_is_the_fewest_tokens_with_most_of_the_attention() -> None:
    assert [heads.support(np.array(row)) for row in ([1.0], [0.05, 0.95], [0.5, 0.25, 0.25], [0.05] * 20)] == [
        1, 1, 3, 19]
    assert heads.entropy(np.array([[1.0, 0, 0, 0], [0.25] * 4])) == pytest.approx([0, 2])


def test_what_is_measured(engine, tokens) -> None:
    facts = heads.measure(engine, tokens[:500])
    assert [(each.layer, each.head) for each in facts] == [(0, 0), (0, 1), (1, 0), (1, 1)]
    for each in facts:
        assert 0 < each.entropy <= each.entropy_max <= 8  # 256 tokens
        assert 0 < each.sink_mass < 1 and 1 <= each.support <= 256
    with pytest.raises(UsageError, match="too short"):
        heads.measure(engine, tokens[:20])


# ---- budgets ---------------------------------------------------------------------------------------------------------


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=20), st.integers(1, 40), st.integers(0, 10**6))
def test_shares_add_up(weights, most, wanted) -> None:
    total = len(weights) + wanted % (len(weights) * (most - 1) + 1)
    pages = calibrate.share(weights, total, most)
    assert sum(pages) == total and all(1 <= n <= most for n in pages)
    for i, a in enumerate(weights):
        for j, b in enumerate(weights):
            if a > b:
                assert pages[i] >= pages[j] - 1, (weights, pages)


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


def test_every_method_keeps_the_same(engine, tokens) -> None:
    facts = heads.measure(engine, tokens[:500])
    budgets = {method: calibrate.budget(engine, facts, 0.25, method, 4) for method in calibrate.METHODS}
    sizes = {KVConfig(256, "int8", overflow="stop", kv_budget=each).plan(engine.config).kv_bytes
             for each in budgets.values()}
    assert len(sizes) == 1 and {each.mean for each in budgets.values()} == {4 + 2 * 32 + 1}
    assert len(set(sum(budgets["uniform"].keep, ()))) == 1
    by_support = sorted(zip((each.support for each in facts), sum(budgets["support"].keep, ())))
    assert [n for _, n in by_support] == sorted(n for _, n in by_support)
    for keep in (0, -1, 1.5, float("nan")):
        with pytest.raises(UsageError, match="share to keep"):
            calibrate.budget(engine, facts, keep, "support", 4)


def test_compare_reads_one_half_and_judges_on_the_other(engine, tokens) -> None:
    report = calibrate.compare(engine, tokens, 0.25)
    assert report["tokens"] == 500 and [row["mode"] for row in report["rows"]] == [
        "f32", "int8 all", *(f"int8 {method}" for method in calibrate.METHODS)]
    assert report["rows"][1]["kl_mean"] < min(row["kl_mean"] for row in report["rows"][2:])


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
    assert main(["heads", "--lengths", "32,256", "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["heads"]) == 2 * 6 * 4
    for arguments, said in ((["calibrate", "--compare", "-o", str(path)], "-o and --compare"),
                            (["heads", "--lengths", "8"], "length 8 "),
                            (["calibrate", "-c", "256", "--keep-share", "2"], "share to keep")):
        assert main(arguments) == 2 and said in capsys.readouterr().err
