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
from edge.errors import EdgeError, UsageError
from lab import calibrate, heads
from lab.commands import lab
from lab.evaluate import segments
from pyx.kv.cache import KVCache
from pyx.layers.attention import attention
from pyx.step import probe
from pyx.step.transformer import Segment
from tests.oracles.softmax import softmax

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
        got = np.array(probe.rows(cache, layer, queries)).reshape(4, n)
        for head in range(4):
            scores = keys[layer, seen, head // 2].astype(np.float64) @ queries[layer, head].astype(np.float64)
            expected = np.zeros(n)
            expected[seen] = softmax(scores)
            np.testing.assert_allclose(got[head], expected, rtol=1e-5, atol=1e-9)


def test_int8_pages_show_nearly_the_same() -> None:
    exact, _, queries = filled(100, kv_type="f32")
    rounded, _, _ = filled(100, kv_type="int8")
    a, b = (np.array(probe.rows(cache, 1, queries)) for cache in (exact, rounded))
    assert 0 < np.abs(a - b).max() < 0.02


def test_mass_kept_is_that_of_the_tokens_in_sight() -> None:
    whole, _, queries = filled(150, kv_type="f32")
    short, _, _ = filled(150, kv_type="int8", window=40, sinks=5)
    for layer in range(2):
        rows = np.array(probe.rows(whole, layer, queries)).reshape(4, 150)
        for head in range(2):
            seen = [t for t in range(150) if t < 5 or t >= 110]
            row = array("d", rows[2 * head])
            assert probe.kept(short, layer, head, row) == pytest.approx(rows[2 * head][seen].sum())
            assert probe.kept(whole, layer, head, row) == pytest.approx(1)


def test_a_transformer_leaves_what_it_asked(tiny_model) -> None:
    """The same attention whether the last token came alone or at the end of a chunk, in any number of threads."""
    found = []
    for threads, parts in ((1, [50]), (2, [49, 1]), (3, [20, 30])):
        with edge.load(tiny_model, ctx=64, kv="f32", overflow="stop", threads=threads) as engine:
            queries, cache, at = engine.model.transformer.keep_queries(), engine.space.new_cache(), 0
            for n in parts:
                engine.model.transformer.step([Segment(cache, array("i", range(at, at + n)))])
                at += n
            found.append([probe.rows(cache, layer, queries) for layer in range(2)])
    assert found[0] == found[1] == found[2]


def test_impossible_rows_are_refused() -> None:
    cache, _, queries = filled(5, kv_type="f32")
    for arguments in ((cache, 2, queries), (cache, -1, queries), (cache, 0, queries.ravel()[:-1])):
        with pytest.raises(ValueError):
            probe.rows(*arguments)
    with pytest.raises(ValueError):
        probe.rows(KVCache(2, 2, 64, 64, "f32"), 0, queries)
    for layer, head, n in ((0, 2, 5), (2, 0, 5), (0, 0, 4)):
        with pytest.raises(ValueError):
            probe.kept(cache, layer, head, array("d", [0.25] * n))


@given(st.lists(st.floats(0, 1), min_size=1, max_size=60), st.integers(0, 8))
def test_describe(values, sinks) -> None:
    p = np.array(values) + 1e-6
    p /= p.sum()
    entropy, sunk, support, recency = probe.describe(array("d", p), sinks, 0.9)
    assert entropy == pytest.approx(-(p * np.log2(p)).sum(), abs=1e-9)
    assert sunk == pytest.approx(p[:sinks].sum())
    largest = np.sort(p)[::-1].cumsum()
    assert support == len(p) or largest[support - 1] >= 0.9 - 1e-9
    assert support == 1 or largest[support - 2] < 0.9 + 1e-9
    with_newest = [p[:sinks].sum() + p[max(sinks, len(p) - n) :].sum() for n in range(len(p) + 1)]
    assert with_newest[recency] >= 0.9 - 1e-9 and (recency == 0 or with_newest[recency - 1] < 0.9 + 1e-9)


# ---- classes ---------------------------------------------------------------------------------------------------------


def test_classes_are_those_of_the_last_queries(engine, tokens) -> None:
    """Read token by token: entropies of the last queries of each whole piece, averaged."""
    looks = heads.classes(engine, tokens, [100, 12])
    assert looks.lengths == [12, 100] and len(looks.rows) == 2 * 2 * 4
    config, queries = engine.config, engine.model.transformer.keep_queries()
    seen: dict[tuple[int, int], list[float]] = {}
    pieces = [piece for piece in segments(engine, tokens, 100) if len(piece) == 100][: heads.PIECES]
    for piece in pieces:
        cache = engine.space.new_cache()
        for t, token in enumerate(piece):
            engine.model.transformer.step([Segment(cache, array("i", [token]))])
            for layer in range(2 if t >= 100 - heads.LOOKS else 0):
                rows = np.array(probe.rows(cache, layer, queries)).reshape(config.n_head, t + 1)
                for head, row in enumerate(rows):
                    seen.setdefault((layer, head), []).append(-(row * np.log2(row)).sum())
    for row in looks.rows:
        if row.length == 100:
            assert row.entropy == pytest.approx(np.mean(seen[row.layer, row.head]), rel=1e-6)
            assert len(seen[row.layer, row.head]) == heads.LOOKS * len(pieces)


def test_names_of_classes() -> None:
    limits = ((0.0, "sink"), (0.5, "focused"), (1.5, "moderate"), (2.5, "mixed"), (3.5, "diffuse"), (9, "diffuse"))
    for bits, kind in limits:
        assert heads.Look(0, 0, 32, bits, 0.1, 3).kind == kind
    looks = heads.Looks("m", tuple(heads.Look(0, i, 32, bits, 0.1, 3) for i, bits in enumerate((0.1, 0.2, 2.0, 4.0))))
    assert [looks.share(kind, 32) for kind in heads.CLASSES] == [0.5, 0, 0.25, 0, 0.25]
    assert json.loads(json.dumps(looks.to_dict()))["classes"]["32"]["sink"] == 0.5


@pytest.mark.parametrize("length", [heads.LOOKS, 257])
def test_impossible_lengths_are_refused(engine, tokens, length) -> None:
    with pytest.raises(UsageError, match=f"{length}"):
        heads.classes(engine, tokens, [length])
    with pytest.raises(UsageError, match="60 tokens"):
        heads.classes(engine, tokens[:60], [100])


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


# ---- calibration -----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def engine(tiny_model):
    with edge.load(tiny_model, ctx=256, kv="f32", overflow="stop", threads=1) as engine:
        yield engine


@pytest.fixture(scope="module")
def tokens(engine):
    rng = np.random.default_rng(3)
    return array("i", rng.integers(0, engine.tokenizer.n_vocab - 8, 1000).tolist())


@pytest.fixture(scope="module")
def facts(engine, tokens):
    return heads.measure(engine, tokens[:500])


def test_a_plan_is_a_file_for_kv_budget(engine, tokens, facts, tmp_path) -> None:
    plan = calibrate.calibrate(engine, tokens, 0.25, facts=facts)
    path = tmp_path / "plan.json"
    path.write_text(plan.to_json())
    assert read_budget(str(path), engine.config) == plan.budget
    said = json.loads(path.read_text())
    assert said["method"] == "support" and said["context"] == 256 and len(said["heads"]) == 4


def test_what_is_measured(facts) -> None:
    assert [(each.layer, each.head) for each in facts] == [(0, 0), (0, 1), (1, 0), (1, 1)]
    for each in facts:
        assert 0 < each.entropy <= each.entropy_max <= 8  # 256 tokens
        assert 0 < each.sink_mass < 1 and 1 <= each.support <= 256 and 0 <= each.recency <= 256


def size(engine, plan) -> int:
    return KVConfig(256, plan.kv, overflow="stop", kv_budget=plan.budget).plan(engine.config).kv_bytes


def test_every_method_keeps_the_same(engine, tokens, facts) -> None:
    plans = {m: calibrate.calibrate(engine, tokens[:500], 0.25, m, facts=facts) for m in calibrate.METHODS}
    joint = plans.pop("joint")
    sizes = {size(engine, plan) for plan in plans.values()}
    assert len(sizes) == 1 and {plan.budget.mean for plan in plans.values()} == {4 + 2 * 32 + 1}
    # the same bytes, which smaller types fill with more tokens
    assert size(engine, joint) <= sizes.pop() and (joint.kv == "int8" or joint.budget.mean > 4 + 2 * 32 + 1)
    plans["joint"] = joint
    assert len(set(sum(plans["uniform"].budget.keep, ()))) == 1
    by_support = sorted(zip((each.support for each in facts), sum(plans["support"].budget.keep, ())))
    assert [n for _, n in by_support] == sorted(n for _, n in by_support)
    assert all(plan.budget.fingerprint == engine.fingerprint and plan.method == name for name, plan in plans.items())


def test_the_published_rule() -> None:
    """clamp(H / mean H, 0.3, 2.5) of the largest entropy, and the same turned round."""
    seen = [heads.HeadFacts(0, i, 0.0, h, 0.0, 10.0 * (i + 1), 1.0) for i, h in enumerate([0.1, 4.0, 7.9])]
    assert calibrate.weights("entropy", seen) == pytest.approx([0.3, 1.0, 1.975])
    assert calibrate.weights("inverse", seen) == pytest.approx([1 / 0.3, 1.0, 1 / 1.975])
    assert calibrate.weights("support", seen) == [10, 20, 30] and calibrate.weights("uniform", seen) == [1, 1, 1]


@given(st.lists(st.lists(st.floats(0, 10), min_size=2, max_size=2), min_size=1, max_size=6), st.integers(0, 10**6))
def test_greedy_spends_all(curves, wanted) -> None:
    costs = calibrate.Costs((1, 4, 9), tuple((*curve, 0.0) for curve in curves))
    total = len(curves) + wanted % (8 * len(curves) + 1)
    pages = calibrate.greedy(costs, total)
    assert sum(pages) == total and all(1 <= n <= 9 for n in pages)


def test_greedy_spends_where_it_helps() -> None:
    """A head that costs nothing when short stays at one page; what is steepest comes first, steps of no use last."""
    flat, steep = (0.0, 0.0, 0.0), (1.0, 0.5, 0.0)
    assert calibrate.greedy(calibrate.Costs((1, 4, 16), (flat, steep)), 12) == [1, 11]
    assert calibrate.greedy(calibrate.Costs((1, 4, 16), (flat, steep)), 20) == [4, 16]
    late = (1.0, 1.0, 0.0)  # helps when whole only
    assert calibrate.greedy(calibrate.Costs((1, 4, 16), (late, (0.1, 0.0, 0.0))), 17) == [16, 1]
    assert calibrate.greedy(calibrate.Costs((1, 4, 16), (late, (0.1, 0.0, 0.0))), 20) == [16, 4]
    for total in (1, 33):
        with pytest.raises(UsageError):
            calibrate.greedy(calibrate.Costs((1, 4, 16), (flat, steep)), total)


def test_costs_between_those_measured() -> None:
    costs = calibrate.Costs((1, 4, 16), ((1.0, 0.4, 0.0),))
    assert [costs.at(0, n) for n in (1, 2, 4, 10, 16)] == pytest.approx([1.0, 0.8, 0.4, 0.2, 0.0])


def test_joint_keeps_as_many_bytes(engine, tokens, facts) -> None:
    """Whatever type it takes; and what it takes is nearest on this text among all that it may."""
    costs = calibrate.forgetting(engine, tokens[:500], "f16")
    assert all(curve[-1] == 0 and min(curve) >= 0 for curve in costs.kl)
    given = calibrate.calibrate(engine, tokens, 0.25, facts=facts).budget
    limit = KVConfig(256, "f16", overflow="stop", kv_budget=given).plan(engine.config).kv_bytes
    plan = calibrate.calibrate(engine, tokens[:500], 0.25, "joint", "f16", facts=facts, costs=costs)
    assert plan.kv != "f16"  # half the tokens, hardly nearer
    assert KVConfig(256, plan.kv, overflow="stop", kv_budget=plan.budget).plan(engine.config).kv_bytes < 1.2 * limit
    assert plan.budget.mean > 4 + 2 * 32 + 1 and json.loads(plan.to_json())["kv"] == plan.kv


def test_compare_reads_one_half_and_judges_on_the_other(engine, tokens) -> None:
    report, plans = calibrate.compare(engine, tokens, 0.25, ["uniform", "support"])
    assert report.header["tokens"] == 500 and [row.mode for row in report.rows] == [
        "f32", "int8 all", "int8 uniform", "int8 support"]
    assert report.rows[1].kl_mean < min(row.kl_mean for row in report.rows[2:])
    assert len(plans) == 2 and plans[1].heads


@pytest.mark.parametrize("keep", [0, -1, 1.5, float("nan")])
def test_impossible_shares_are_refused(engine, tokens, keep) -> None:
    with pytest.raises(UsageError, match="share to keep"):
        calibrate.calibrate(engine, tokens, keep)


def test_methods_and_texts_that_are_refused(engine, tokens) -> None:
    with pytest.raises(UsageError, match="not known"):
        calibrate.calibrate(engine, tokens, method="magic")
    with pytest.raises(UsageError, match="too short"):
        heads.measure(engine, tokens[:20])


# ---- the command -----------------------------------------------------------------------------------------------------


def test_the_command(bundled_model, tmp_path) -> None:
    def invoke(command: str, *arguments: str):
        context = ["-c", "256"] if command == "calibrate" else []
        return CliRunner().invoke(lab, [command, *context, "-t", "1", *arguments])

    path = tmp_path / "plan.json"
    done = invoke("calibrate", "-o", str(path))
    assert done.exit_code == 0, done.output
    plan = json.loads(path.read_text())
    first, _, names, *rows, _ = lines = done.output.partition("\n\nentropy:")[0].splitlines() + [""]
    assert "bundled/dialogues.jsonl" in first and lines[-1] == ""
    assert names.split() == ["layer", "head", "entropy", "sinks", "support", "recency", "keep"]
    assert [int(line.split()[-1]) for line in rows] == [n for row in plan["keep"] for n in row]
    for name in names.split()[2:]:
        assert f"{name}: " in done.output  # each column is explained
    assert "bundled/dialogues.jsonl" in invoke("heads", "--lengths", "32").output
    looks = json.loads(invoke("heads", "--lengths", "32,256", "--json").output)
    assert sum(looks["classes"]["256"].values()) == pytest.approx(1) and len(looks["heads"]) == 2 * 6 * 4
    used = CliRunner().invoke(cli, ["run", "hello", "-n", "2", "--kv-budget", str(path), "--overflow", "stop", "-v"])
    assert used.exit_code == 0 and "budgets of" in used.stderr
    for arguments, message in (
        (["calibrate", "--compare", "-o", str(path)], "-o cannot be used with"),
        (["heads", "--lengths", "8"], "length 8 "),
        (["heads", "--lengths", ""], "--lengths needs"),
        (["calibrate", "--keep-share", "2"], "share to keep"),
        (["calibrate", "-o", str(tmp_path)], "directory"),
    ):
        failed = invoke(*arguments)
        assert failed.exit_code == 2 and message in failed.output, failed.output
    failed = invoke("calibrate", "-o", str(tmp_path / "none" / "plan.json"))
    assert failed.exit_code == EdgeError.exit_code and "cannot write" in failed.output
