"""Perplexity and the quality of KV caches: against NumPy in float64, and against what must be so."""

from __future__ import annotations

import json
import math
import re
from array import array
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

import edge
from edge.errors import EdgeError, MemoryRefused, UsageError
from lab import evaluate
from lab.commands import lab
from pyx.step.transformer import Segment
from pyx.tokens import compare
from tests.oracles.softmax import log_softmax

# ---- rows of logits --------------------------------------------------------------------------------------------------


@given(st.integers(0, 2**32 - 1), st.integers(1, 5), st.integers(1, 300), st.sampled_from([1e-3, 1.0, 30.0, 3e4]))
def test_rows_agree_with_numpy(seed, n, n_vocab, size):
    rng = np.random.default_rng(seed)
    p, q = (rng.normal(0, size, (n, n_vocab)).astype(np.float32) for _ in range(2))
    tokens = array("i", rng.integers(0, n_vocab, n).tolist())
    log_p, log_q = log_softmax(p), log_softmax(q)
    expected = np.where(np.exp(log_p) > 0, np.exp(log_p) * (log_p - log_q), 0).sum(axis=1)
    kl, likelihood, same = compare.divergences(p.ravel(), q.ravel(), tokens, n_vocab)
    np.testing.assert_allclose(kl, expected, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(likelihood, log_q[range(n), tokens], rtol=1e-12, atol=1e-12)
    assert list(same) == (p.argmax(axis=1) == q.argmax(axis=1)).tolist()
    assert list(compare.log_likelihoods(q.ravel(), tokens, n_vocab)) == list(likelihood)
    kl, _, same = compare.divergences(p.ravel(), p.ravel(), tokens, n_vocab)
    assert set(kl) == {0.0} and set(same) == {1}


def test_tiny_divergences_are_not_lost_in_rounding():
    rng = np.random.default_rng(1)
    p = rng.normal(0, 5, (1, 128256)).astype(np.float32)
    q = p + rng.normal(0, 1e-4, p.shape).astype(np.float32)
    log_p, log_q = log_softmax(p.astype(np.longdouble)), log_softmax(q.astype(np.longdouble))
    expected = float((np.exp(log_p) * (log_p - log_q)).sum())
    assert 1e-10 < expected < 1e-7
    assert compare.divergences(p.ravel(), q.ravel(), array("i", [0]), p.shape[1])[0][0] == pytest.approx(expected, 1e-4)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_logits_that_are_not_finite(bad):
    good, broken = array("f", [0.0, 1.0, 2.0]), array("f", [0.0, bad, 2.0])
    for p, q in ((good, broken), (broken, good), (broken, broken)):
        with pytest.raises(ValueError, match="not finite"):
            compare.divergences(p, q, array("i", [0]), 3)
    with pytest.raises(ValueError, match="row 1 holds"):
        compare.log_likelihoods(good + broken, array("i", [0, 0]), 3)


@pytest.mark.parametrize(
    ("n", "tokens", "n_vocab"), [(6, [0], 3), (6, [0, 3], 3), (6, [-1, 0], 3), (0, [0], 3), (6, [0, 0], 0)]
)
def test_rows_that_do_not_fit(n, tokens, n_vocab):
    with pytest.raises(ValueError):
        compare.log_likelihoods(array("f", [0.0] * n), array("i", tokens), n_vocab)


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


def test_the_dialogues_that_ship(bundled_model):
    """Conversations of our own, long enough for one segment of 2048; written as the model's template writes them."""
    with edge.load(ctx=64) as engine:
        ids = evaluate.read(engine)
        assert len(ids) > 2048
        text = engine.tokenizer.decode(ids)
    lines = evaluate.DIALOGUES.read_text().splitlines()
    first = json.loads(lines[0])["messages"]
    assert [m["role"] for m in first] == ["user", "assistant"] * (len(first) // 2)
    assert text.count("User: ") == sum(line.count('"user"') for line in lines)


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
    kv = engine.space.new_cache(plan)
    rows = []
    for token in piece[:-1]:
        row = array("f", bytes(4 * engine.config.n_vocab))
        engine.model.transformer.step([Segment(kv, array("i", [token]), row)])
        rows.append(np.array(row))
    return np.array(rows)


def test_perplexity_is_that_of_numpy(engine, tokens):
    nats = []
    for piece in evaluate.segments(engine, tokens, 96):
        rows = log_softmax(logits_one_by_one(engine, piece))
        nats += (-rows[range(len(piece) - 1), piece[1:]]).tolist()
    result = evaluate.perplexity(engine, tokens)
    assert result.tokens == len(nats) == 250 and result.context == 96
    assert result.nats == pytest.approx(np.mean(nats), rel=1e-9)
    assert result.perplexity == pytest.approx(math.exp(np.mean(nats)), rel=1e-9)
    n_byte = sum(len(engine.tokenizer.token_bytes(token)) for token in tokens)
    assert result.bits_per_byte == pytest.approx(sum(nats) / math.log(2) / n_byte, rel=1e-9)


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
        row = evaluate.kv_quality(engine, tokens, [mode]).rows[1]
        assert row.kl_mean == pytest.approx(np.mean(expected_kl), rel=1e-9)
        assert row.kl_max == pytest.approx(max(expected_kl), rel=1e-9) and row.kl_p999 == row.kl_max
        assert row.top1 == pytest.approx(np.mean(expected_same))
        assert row.change == pytest.approx(math.expm1(np.mean(more)), rel=1e-9)
        assert row.error == pytest.approx(1.96 * np.std(more, ddof=1) / 250**0.5 * (1 + row.change), rel=1e-9)


def test_what_must_be_so(engine, tokens):
    modes = ["f32", "f16", "int8", "f32 window=92 sinks=4", "f32 window=16 sinks=0"]
    report = evaluate.kv_quality(engine, tokens, [evaluate.Mode.parse(mode) for mode in modes])
    reference, f32, f16, int8, whole, short = report.rows
    for row in (reference, f32, whole):  # a window as long as the text forgets nothing
        assert (row.kl_max, row.top1, row.change, row.error) == (0, 1, 0, 0)
        assert row.mass == pytest.approx(1, abs=1e-12)
        assert row.perplexity == pytest.approx(evaluate.perplexity(engine, tokens).perplexity, rel=1e-12)
    assert f16.mass == pytest.approx(1, abs=1e-12) and 0 < short.mass < 0.9
    assert 0 < f16.kl_mean < int8.kl_mean < short.kl_mean
    for row in report.rows:
        assert row.kl_mean <= row.kl_p999 <= row.kl_max and row.tokens_per_second > 0
        assert row.bytes_per_token * 96 == row.kv_bytes
    assert int8.kv_bytes == engine.space.new_cache(evaluate.Mode.parse("int8").plan(engine, 96)).nbytes
    assert json.loads(json.dumps(report.to_dict()))["rows"][3]["mode"] == "int8"
    assert len({len(line) for line in list(report.lines())[2 : 3 + len(modes)]}) == 1  # columns stand


def test_another_reference(engine, tokens):
    """What is compared changes, what is measured of each mode does not."""
    modes = [evaluate.Mode.parse(mode) for mode in ("f16", "int8")]
    report = evaluate.kv_quality(engine, tokens, modes, against=modes[0])
    usual = evaluate.kv_quality(engine, tokens, modes)
    assert report.header["reference"] == "f16" and usual.header["reference"] == "f32"
    assert [row.kl_max for row in report.rows[:2]] == [0, 0] < [usual.rows[1].kl_max, 1]
    assert [row.perplexity for row in report.rows[1:]] == [row.perplexity for row in usual.rows[1:]]
    assert "against f16;" in next(report.lines())


def test_default_modes(engine):
    names = [mode.name for mode in evaluate.default_modes(1024)]
    assert names[:2] == ["f16", "int8"] and "int8 window=252 sinks=4" in names and "f32" not in names
    assert evaluate.default_modes(4)


@pytest.mark.parametrize(
    "text", ["", "  ", "int9", "int8 window", "int8 window=x", "int8 memory=5", "int8 window=-4", "int8 f16", "kv=int8"]
)
def test_modes_that_mean_nothing(text):
    with pytest.raises(UsageError):
        evaluate.Mode.parse(text)


def test_caches_that_do_not_fit_together(engine, tokens, monkeypatch):
    monkeypatch.setattr(evaluate, "available_memory", lambda: 1000)
    with pytest.raises(MemoryRefused, match="fewer modes"):
        evaluate.kv_quality(engine, tokens)


def test_a_damaged_model_is_no_surprise(engine, tokens, monkeypatch):
    def broken(*_):
        raise ValueError("row 3 holds a logit that is not finite")

    monkeypatch.setattr(compare, "divergences", broken)
    with pytest.raises(EdgeError, match="may be damaged"):
        evaluate.kv_quality(engine, tokens, [evaluate.Mode.parse("f16")])


def test_percentile():
    assert evaluate.percentile([1.0], 0.999) == 1.0
    assert evaluate.percentile(list(range(1000)), 0.999) == 998
    assert evaluate.percentile(list(range(1001)), 0.999) == 999
    assert evaluate.percentile([5.0, 6.0], 0.0) == 5.0


# ---- the command -----------------------------------------------------------------------------------------------------


@pytest.fixture
def talk(tmp_path: Path) -> str:
    path = tmp_path / "talk.jsonl"
    turns = [{"role": "user", "content": "Hello!"}, {"role": "assistant", "content": "Good morning. Coffee or tea?"}]
    path.write_text((json.dumps({"messages": turns}) + "\n") * 12)
    return str(path)


def invoke(*arguments: str):
    return CliRunner().invoke(lab, arguments)


def test_commands(bundled_model, talk):
    done = invoke("kv", "-f", talk, "-c", "128", "--mode", "f16", "--mode", "int8 window=20")
    assert done.exit_code == 0, done.output
    lines = done.output.splitlines()
    assert [line[: len("int8 window=20")].strip() for line in lines[3:6]] == ["f32", "f16", "int8 window=20"]
    assert talk in lines[0] and lines[6] == ""
    explained = {name.strip() for line in lines[7:] for name in re.findall(r"(?:^|[,;] )([^,;:]+)(?=:|, KL)", line)}
    assert {"mode", "KV MB", "B/token", "ppl", "change", "+-", "KL", "top-1", "mass", "t/s"} <= explained
    facts = json.loads(invoke("kv", "-f", talk, "-c", "64", "--mode", "int8", "--json").output)
    assert facts["context"] == 64 and facts["rows"][0]["kl_mean"] == 0
    assert json.loads(invoke("ppl", "-f", talk, "--json").output)["perplexity"] > 1
    said = invoke("ppl", "-f", talk).output
    assert ": perplexity " in said and talk in said
    assert "bundled/dialogues.jsonl" in invoke("ppl", "-c", "2048").output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["kv", "--mode", "int8 windw=3"], "windw=3"),
        (["kv", "--against", "int9"], "int9"),
        (["kv", "-f", "none.txt"], "none.txt"),
        (["ppl", "-f", "none.txt"], "none.txt"),
        (["kv", "-c", "64", "--mode", "int8 ctx=32"], "ctx"),
    ],
)
def test_commands_refuse_in_one_line(bundled_model, arguments, message):
    done = invoke(*arguments)
    assert done.exit_code == 2 and message in done.output and len(done.output.splitlines()) == 1
