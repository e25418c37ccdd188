"""Perplexity and the quality of KV caches: against NumPy in float64, and against what must be so."""

from __future__ import annotations

import json
import math
from array import array
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import edge
from edge.errors import EdgeError, MemoryRefused, UsageError
from lab import evaluate
from lab.__main__ import main
from pyx.step import Segment
from pyx.tokens import log_likelihoods
from tests.oracles.softmax import log_softmax

F32 = evaluate.Mode.parse("f32")

# ---- rows of logits --------------------------------------------------------------------------------------------------


@given(st.integers(0, 2**32 - 1), st.integers(1, 5), st.integers(1, 300), st.sampled_from([1e-3, 1.0, 30.0, 3e4]))
def test_rows_agree_with_numpy(seed, n, n_vocab, size):
    rng = np.random.default_rng(seed)
    rows = rng.normal(0, size, (n, n_vocab)).astype(np.float32)
    tokens = array("i", rng.integers(0, n_vocab, n).tolist())
    found = log_likelihoods(rows.ravel(), tokens, n_vocab)
    np.testing.assert_allclose(found, log_softmax(rows)[range(n), tokens], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_logits_that_are_not_finite(bad):
    good, broken = array("f", [0.0, 1.0, 2.0]), array("f", [0.0, bad, 2.0])
    with pytest.raises(ValueError, match="row 1 holds"):
        log_likelihoods(good + broken, array("i", [0, 0]), 3)


@pytest.mark.parametrize(
    ("n", "tokens", "n_vocab"), [(6, [0], 3), (6, [0, 3], 3), (6, [-1, 0], 3), (0, [0], 3), (6, [0, 0], 0)]
)
def test_rows_that_do_not_fit(n, tokens, n_vocab):
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
    monkeypatch.setattr(evaluate.Run, "step", lambda self, ids: np.full((len(ids), 8), np.nan, np.float32))
    with pytest.raises(EdgeError, match="may be damaged"):
        evaluate.kv_quality(engine, tokens, [evaluate.Mode.parse("f16")])


# ---- the command -----------------------------------------------------------------------------------------------------


@pytest.fixture
def talk(tmp_path: Path) -> str:
    path = tmp_path / "talk.jsonl"
    turns = [{"role": "user", "content": "Hello!"}, {"role": "assistant", "content": "Good morning. Coffee or tea?"}]
    path.write_text((json.dumps({"messages": turns}) + "\n") * 12)
    return str(path)


def test_commands(bundled_model, talk, capsys):
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
