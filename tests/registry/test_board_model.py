"""benchmarks/board_model.py and mca.py: the loops are found, the figures are possible, the assumptions are printed."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import pytest

from benchmarks import board_model, mca
from tests.kernel_builds import flags_of, kept_objects

LOOP = """
outer:
	mov	x0, 0
.L2:
	mov	x1, 0
.L3:
	ldr	q1, [x2], 16
	cbz	x3, .L4
	sdot	v0.4s, v1.16b, v2.16b
.L4:
	cmp	x0, x1
	bne	.L3
	add	x0, x0, 1
	b.lt	.L2
	ret
	.size	outer, .-outer
outer.constprop.0:
.L9:
	smlal	v0.8h, v1.8b, v2.8b
	cbnz	x0, .L9
"""

#: most products a cycle of instructions that multiply: two SIMD pipes
PEAK = {"neon": 16, "dotprod": 32, "i8mm": 64}


@pytest.fixture(scope="module")
def cycles(once: Any) -> list[mca.Cycles]:
    """Every loop on every processor, of kernels compiled once, analysed once; skips where a tool is missing."""
    try:
        mca.compiler(), mca.analyser()
    except mca.Missing as missing:
        pytest.skip(str(missing))

    def analyse(folder: Path) -> None:
        built = kept_objects("aarch64")
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(mca, "assembly", lambda row, _: built[f"{row}.c"].with_suffix(".s").read_text())
            (folder / "cycles").write_bytes(pickle.dumps(mca.everything()))

    return pickle.loads((once("cycles", analyse) / "cycles").read_bytes())


def test_inner_loops_are_those_without_another_inside() -> None:
    bodies = list(mca.inner_loops(mca.functions(LOOP)["outer"]))
    assert [[line.split()[0] for line in body] for body in bodies] == [
        ["ldr", "cbz", "sdot", "cmp", "bne"],
        ["smlal", "cbnz"],
    ]


@pytest.mark.parametrize(
    ("instruction", "expected"),
    [
        ("smmla\tv0.4s, v1.16b, v2.16b", 32), ("usdot\tv0.4s, v1.16b, v2.16b", 16),
        ("smlal2\tv0.8h, v1.16b, v2.16b", 8), ("smlal\tv0.4s, v1.4h, v2.4h", 4), ("smull\tv0.8h, v1.8b, v2.8b", 8),
        ("add\tv0.4s, v1.4s, v2.4s", 0),
    ],
)
def test_products(instruction: str, expected: int) -> None:
    assert mca.products(instruction) == expected


def test_flags_are_those_of_the_build() -> None:
    assert {"-O3", "-ffp-contract=off", "-march=armv8-a"} <= set(mca.flags("neon"))
    assert "-march=armv8.2-a+dotprod" in mca.flags("dotprod")
    assert "-march=armv8.2-a+dotprod+i8mm" in mca.flags("i8mm")
    assert all(mca.flags(target) == flags_of("aarch64", f"{target}.c") for target in mca.TARGETS)


def test_missing_tools_are_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("LLVM_MCA", "BITNET_EDGE_AARCH64_CC"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(mca.Missing, match="llvm-mca is not installed"):
        mca.analyser()
    assert board_model.main([]) == 1
    assert "gcc is not installed" in capsys.readouterr().err


def test_every_loop_is_found(cycles: list[mca.Cycles]) -> None:
    found = {(each.target, each.loop) for each in cycles}
    needed = {name for name in mca.LOOPS if name != "attend_i8 values"}
    for target in mca.TARGETS:
        parts = {name for name in mca.PARTS if name.startswith(mca.PARTS_OF[target])}
        lacking = (needed | parts) - {loop for each, loop in found if each == target}
        assert lacking == mca.WITHOUT.get(target, set()), target
    assert {each.cpu for each in cycles} == set(mca.DECODE)


def test_loops_are_the_full_tiles(cycles: list[mca.Cycles]) -> None:
    """Four rows of 128 weights in a matvec, four rows of 16 in the head; no tail."""
    for each in cycles:
        if each.loop == "ternary_matvec":
            assert each.weights in (256, 512), each
        if each.loop == "head_i8":
            assert each.weights % 64 == 0, each
        if each.loop in ("lookup rows", "pack products"):
            assert each.weights == 1024, each


def test_cycles_are_possible(cycles: list[mca.Cycles]) -> None:
    for each in cycles:
        if each.loop in mca.LOOPS or each.loop == "pack products":
            assert 1 / PEAK[each.target] <= each.per_weight * 1.001, each
            assert each.per_weight < (0.7 if each.cpu == "cortex-a53" else 0.5), each
        assert each.instructions / each.cycles <= mca.DECODE[each.cpu] + 0.01, each


def test_prefill_loops_are_worth_their_trouble(cycles: list[mca.Cycles]) -> None:
    """Look-ups cost about half a multiplication and less; packed products fill the pipes."""
    for each in cycles:
        tiled = next(
            other.per_weight
            for other in cycles
            if (other.target, other.cpu, other.loop) == (each.target, each.cpu, "ternary_matmul")
        )
        if each.loop == "lookup rows":
            assert each.per_weight < tiled * (0.55 if each.cpu == "cortex-a53" else 0.4), each
        if each.loop == "pack products" and each.cpu in ("neoverse-n1", "neoverse-n2"):
            assert each.per_weight * PEAK[each.target] < 1.01, each


def test_cycles_of_a_block() -> None:
    tiles = {"ternary_matmul": 0.125}
    assert board_model.block_cycles(tiles, 640, 16) == 128 * 640 * 16 * 0.125
    parts = {"rows": 0.04, "table": 2.0, "lanes": 1.0, "offsets": 0.2, "flush": 1.2}
    lookups = {**tiles, **{f"lookup {name}": cost for name, cost in parts.items()}}
    assert board_model.block_cycles(lookups, board_model.LOOKUP_LEAST_ROWS - 1, 16) == 128 * 127 * 16 * 0.125
    # 32 tables of 81 entries, written once for 8 tokens; 3456 rows are two passes, which write them twice
    once = 2 * 32 * 81 * 2.0 + 16 * 128 * 1.0
    assert board_model.block_cycles(lookups, 1728, 16) == pytest.approx(
        128 * 1728 * 16 * 0.04 + 1728 * 128 * 0.2 + 1728 * 16 * 0.12 + once
    )
    assert board_model.block_cycles(lookups, 3456, 16) == pytest.approx(2 * board_model.block_cycles(lookups, 1728, 16))
    packs = {**tiles, "pack products": 0.03, "pack codes": 0.1, "pack tokens": 0.05}
    assert board_model.block_cycles(packs, 640, 16) == pytest.approx(128 * (640 * 16 * 0.03 + 640 * 0.1 + 16 * 0.05))


def test_decode_loops_keep_up_with_the_pi(cycles: list[mca.Cycles]) -> None:
    """Issue: Cortex-A76 at or under the cycles per weight at which the memory of a Pi 5 is the bound."""
    found = {(each.board, each.loop): each for each in board_model.breaks(cycles)}
    assert found["Pi 5", "ternary_matvec"].needed == pytest.approx((2.4 / 13.2, 2.4 / 11.6))
    assert found["Pi 4", "ternary_matvec"].needed == pytest.approx((0.36, 0.45))
    for board in ("Pi 4", "Pi 5"):
        assert found[board, "ternary_matvec"].keeps_up and found[board, "head_i8"].keeps_up


def test_bytes_of_a_token() -> None:
    one = board_model.token(board_model.SHAPES["2b-4t"], 32)
    assert one.ternary_weights == pytest.approx(2.084e9, rel=1e-3)
    assert one.ternary_bytes * 4 == one.ternary_weights
    assert one.head_bytes == 128256 * 2564
    assert one.kv_bytes == 30 * 5 * (2 * 32 * 128 + 4 * 32)
    assert one.attention_products == 30 * 20 * 128 * 32
    assert board_model.token(board_model.SHAPES["2b-4t"], 0).kv_bytes == 0


def test_bounds_are_the_lesser(cycles: list[mca.Cycles]) -> None:
    for each in board_model.bounds(cycles, 512):
        low, high = each.expected
        assert low <= high <= min(each.memory[1], each.compute)
        assert each.bound == "memory" or each.compute < each.memory[1]
        if each.model in board_model.MODELS:
            assert each.prefill > each.tiled * 1.1


def test_the_first_word_is_later_the_less_is_known(cycles: list[mca.Cycles]) -> None:
    for each in board_model.first_word(cycles):
        card, nvme = (each.second[name] for name, _ in board_model.DISKS)
        assert each.file == 32 * 30 * 5 * (2 * 32 * 128 + 4 * 32)  # of 1,000 tokens, whole pages
        assert card[0] - nvme[0] == pytest.approx(each.file / 90e6 - each.file / 450e6)
        assert each.typed[0] < nvme[0] < card[0] < each.cold[0] and each.cold[0] <= each.cold[1]
        assert each.weights["SD card"] == pytest.approx(870e6 / 90e6, rel=0.05)


def test_scales_per_group_read_a_ninth_more_and_their_head() -> None:
    shape = board_model.SHAPES["bonsai-1.7b"]
    plain, one = board_model.token(shape, 32), board_model.grouped(shape, 32)
    assert one.ternary_weights == plain.ternary_weights + shape.n_vocab * shape.hidden and one.head_bytes == 0
    assert one.ternary_bytes * 128 == one.ternary_weights * 34 and one.kv_bytes == plain.kv_bytes


def test_floats_of_panels_are_a_small_part(cycles: list[mca.Cycles]) -> None:
    """What a group costs besides its products: something, and less than 0.4 of them."""
    for target in mca.TARGETS:
        for cpu in mca.DECODE:
            cost = {each.loop: each for each in cycles if (each.target, each.cpu) == (target, cpu)}
            if cost:
                assert cost["panel floats"].weights == 8192 and cost["panel floats"].instructions > 64
                assert 0 < cost["panel floats"].per_weight < 0.4 * cost["panel_matmul"].per_weight, (target, cpu)


def test_planes_read_their_groups_and_their_head(cycles: list[mca.Cycles]) -> None:
    """The bytes of a file of that shape, and no more than 2.2 times the cycles of groups of 128 for each weight."""
    shape = board_model.SHAPES["smollm2-135m"]
    one = board_model.planes(shape, 32, 3)
    matrices = 30 * (2 * 576 * 576 + 2 * 192 * 576 + 3 * 576 * 1536)
    assert one.ternary_weights == 3 * matrices and one.ternary_bytes == matrices * 30 // 32
    assert one.head_bytes == 49152 * 576 // 32 * 34
    for target in mca.TARGETS:
        for cpu in mca.DECODE:
            cost = {each.loop: each.per_weight for each in cycles if (each.target, each.cpu) == (target, cpu)}
            if cost:
                wide = cost["panel_matmul"] + cost["panel floats"]
                assert 0.9 * wide < cost["planes of 32"] < 2.2 * wide, (target, cpu)


def test_several_at_once_are_bound_like_one(cycles: list[mca.Cycles]) -> None:
    found = {(each.board, each.parallel): each for each in board_model.together(cycles, 512)}
    assert len(found) == len(board_model.BOARDS) * len(board_model.TOGETHER)
    for board in board_model.BOARDS:
        assert found[board.name, 1].gain == (1.0, 1.0)
        for n in board_model.TOGETHER:
            each = found[board.name, n]
            assert all(1.0 <= gain <= n for gain in each.gain) and each.memory[0] <= each.memory[1]
    assert min(found["Pi 5", 4].gain) >= 2.5


def test_the_table_names_its_assumptions(cycles: list[mca.Cycles]) -> None:
    text = board_model.markdown(cycles, 512)
    for sentence in (*board_model.ASSUMPTIONS, *board_model.SOURCES, *(board.source for board in board_model.BOARDS)):
        assert sentence in text
    models = (*board_model.MODELS, *board_model.GROUPED, *board_model.PLANES)
    for word in ("Pi 4", "Pi 5", "ARM laptop", *models, "cycles per weight", "keeps up with memory"):
        assert word in text


def test_a_slow_loop_is_called_slow() -> None:
    slow = board_model.Break("Pi 5", "dotprod", "cortex-a76", "ternary_matvec", 0.3, (0.2, 0.24), False)
    assert "IS SLOWER than the memory:" in board_model.verdict(slow)
    between = board_model.Break("Pi 5", "dotprod", "cortex-a76", "ternary_matvec", 0.22, (0.2, 0.24), False)
    assert "not at its low one" in board_model.verdict(between)


def test_report_is_plain_data(cycles: list[mca.Cycles]) -> None:
    data = json.loads(json.dumps(board_model.report(cycles, 512)))
    assert data["assumptions"] == list(board_model.ASSUMPTIONS)
    assert len(data["bounds"]) == len(board_model.BOARDS) * len(
        (*board_model.MODELS, *board_model.GROUPED, *board_model.PLANES, *board_model.EXPERTS))
    assert all(each["per_weight"] > 0 for each in data["loops"])
