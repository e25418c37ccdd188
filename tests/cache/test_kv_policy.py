"""Policies by name and budgets out of files: what is asked for is what the cache keeps; wrong files stay out."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import edge
from edge.cache.planning import cache_plan
from edge.cache.policy import read_budget
from edge.errors import EdgeError, InvalidFile, UsageError
from edge.options import Options, parse_layers
from edge.registry.shapes import find
from edge.sampling import Sampling

SHAPE = find("2b-4t")  # 30 layers of 5 KV heads
GREEDY = Sampling(temperature=0.0)


def write(path: Path, **changes) -> str:
    facts = {"version": 1, "n_layer": 30, "n_kv_head": 5, "sinks": 4, "keep": [[100, 64, 1, 4096, 32]] * 30}
    path.write_text(json.dumps({**facts, **changes}))
    return str(path)


def test_a_budget_is_planned_and_allocated_exactly(tmp_path):
    path = write(tmp_path / "plan.json", by="calibrate", fingerprint="f")
    budget = read_budget(path, SHAPE)
    assert budget.keep[29] == (100, 64, 1, 4096, 32) and budget.sinks == 4 and budget.fingerprint == "f"
    plan = cache_plan(SHAPE, Options(ctx=1024, kv_budget=path))
    assert (plan.window, plan.sinks, plan.spare) == (1020, 4, 0)
    page, open_page = 2 * 32 * 128 + 128, 2 * 2 * 32 * 128
    # 96 -> 3 sealed pages, 60 -> 2, 1 -> none and no sinks, 1020 -> 32, 28 -> 1; sinks and the open page are floats
    assert plan.kv_bytes == 30 * ((3 + 2 + 0 + 32 + 1) * page + (4 + 5) * open_page)
    assert any("budgets of 1 to 4096" in line for line in plan.lines())
    whole = cache_plan(SHAPE, Options(ctx=1024, kv_budget=path, overflow="stop", sinks=0))
    assert whole.window == whole.sinks == 0 and whole.kv_bytes < cache_plan(SHAPE, Options(ctx=1024)).kv_bytes


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"version": 2}, "version 1"),
        ({"n_layer": 24}, "n_layer is 24, that of the model 30"),
        ({"n_kv_head": "five\x1b[2J"}, "n_kv_head"),
        ({"keep": None}, "keep"),
        ({"keep": [[1] * 5] * 29}, "keep"),
        ({"keep": [[1] * 4] * 30}, "keep"),
        ({"keep": [[1, 1, 1, 1, 0]] * 30}, "keep"),
        ({"keep": [[1, 1, 1, 1, True]] * 30}, "keep"),
        ({"keep": [[1, 1, 1, 1, 1 << 40]] * 30}, "keep"),
        ({"sinks": -1}, "sinks"),
        ({"sinks": 1.5}, "sinks"),
        ({"fingerprint": 3}, "fingerprint"),
    ],
)
def test_wrong_budgets_are_refused(tmp_path, changes, message):
    path = write(tmp_path / "plan.json", **changes)
    with pytest.raises(InvalidFile, match=message) as caught:
        cache_plan(SHAPE, Options(kv_budget=path))
    assert path in str(caught.value) and str(caught.value).isprintable()


@pytest.mark.parametrize("text", [b"", b"[" * 100_000, b"\xff\xfe", b"[]", b"9" * 5_000_000])
def test_what_is_no_budget_at_all(tmp_path, text):
    (tmp_path / "x").write_bytes(text)
    with pytest.raises(InvalidFile):
        read_budget(str(tmp_path / "x"), SHAPE)
    with pytest.raises(UsageError, match="cannot read"):
        read_budget(str(tmp_path / "none"), SHAPE)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"kv_policy": "best"}, "recent, quarter"),
        ({"kv_drop_layers": "0;3"}, "such as 0,3"),
        ({"kv_drop_layers": [-1]}, "such as 0,3"),
        ({"kv_drop_layers": True}, "such as 0,3"),
        ({"kv_drop_layers": "30"}, "no layer 30"),
    ],
)
def test_wishes_that_cannot_be(arguments, message):
    with pytest.raises(UsageError, match=message):
        cache_plan(SHAPE, Options(**arguments))


def test_layers():
    assert parse_layers("3,0, 3") == parse_layers([3, 0]) == (0, 3) and parse_layers("") == ()
    assert parse_layers(0) == (0,)  # as eval reads kv_drop_layers=0


# ---- the whole engine ------------------------------------------------------------------------------------------------

MODES = {
    "window": {"window": 40, "sinks": 4},
    "quarter": {"kv_policy": "quarter"},
    "dropped": {"kv_drop_layers": "1"},
    "budget": {},
}


@pytest.mark.parametrize("mode", MODES)
def test_a_conversation_in_every_mode(tmp_path, bundled_model, mode):
    """Beyond the window; 1 thread as 3; saved and loaded it goes on; a file of another mode is refused."""
    arguments = dict(MODES[mode])
    if mode == "budget":
        with edge.load(ctx=128) as engine:
            c = engine.config
            rows = [[16 + 30 * (layer + head) for head in range(c.n_kv_head)] for layer in range(c.n_layer)]
            facts = {"n_layer": c.n_layer, "n_kv_head": c.n_kv_head, "keep": rows, "fingerprint": engine.fingerprint}
        arguments["kv_budget"] = write(tmp_path / "budget.json", **facts)
    words = "the quick brown fox jumps over the lazy dog and " * 9
    answers, logits = [], []
    for threads in (1, 3):
        with edge.load(ctx=128, threads=threads, **arguments) as engine:
            session = engine.session()
            raw = engine.model.encode_raw  # ids: of a text so long only the beginning and the end would be read
            answer = "".join(piece.text for piece in session.complete(raw(words), sampling=GREEDY, max_tokens=60))
            assert session.state.evicted > 0 or mode == "dropped" and session.state.n_tokens < 124
            session.save(tmp_path / f"{threads}.bes")
            again = engine.load_session(tmp_path / f"{threads}.bes")
            for each in (session, again):
                more = [piece.text for piece in each.complete(raw(words + answer), sampling=GREEDY, max_tokens=9)]
                answers.append([answer, *more])
                logits.append(each.state.logits.tobytes())
            assert session.state.nbytes == engine.plan.kv_bytes
    assert len({json.dumps(each) for each in answers}) == 1 and len(set(logits)) == 1
    with edge.load(ctx=128) as plain:  # what was written is known, and read again
        said: list[str] = []
        again, fresh = plain.load_session(tmp_path / "1.bes", said.append), plain.session()
        assert "another KV cache" in said[0] and again.state.n_tokens == 0
        more = [each.complete(raw(words + answer), sampling=GREEDY, max_tokens=9).text for each in (again, fresh)]
        assert more[0] == more[1]


def test_a_budget_of_another_model_is_refused(tmp_path, bundled_model):
    with edge.load(ctx=64) as engine:
        c = engine.config
    facts = {"n_layer": c.n_layer, "n_kv_head": c.n_kv_head, "keep": [[9] * c.n_kv_head] * c.n_layer}
    path = write(tmp_path / "budget.json", **facts, fingerprint="0" * 64)
    with pytest.raises(InvalidFile, match="another model"):
        edge.load(kv_budget=path)
    assert issubclass(InvalidFile, EdgeError)
