"""Draws every picture of README and docs from its data: python docs/make_pictures.py (or make docs)

The data lies in benchmarks/results, each file with the command that made it.  tests/project/test_docs.py fails when a
picture does not show its data.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from edge.registry import shapes  # noqa: E402
from edge.tools import kv_table, pictures  # noqa: E402
from edge.tools.pictures import GREY, SERIES, Bar, Column  # noqa: E402
from lab.pictures import of_quality  # noqa: E402

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PICTURES = ROOT / "docs" / "pictures"
RESULTS = ROOT / "benchmarks" / "results"


def facts(name: str) -> Any:
    """A file of benchmarks/results."""
    return json.loads((RESULTS / name).read_text(encoding="utf-8"))


def kv_memory() -> Figure:
    """Memory by context and KV type, of a published shape."""
    config = shapes.find("2b-4t")
    assert config is not None
    return pictures.of_plan(kv_table.table(config, types=("f16", "int8", "int4"), windows=(1020,)))


def kv_quality() -> Figure:
    """Quality over memory, of the demo model."""
    return of_quality(facts("kv_quality.json")["types"])


def first_word() -> Figure:
    """What the first word waits for."""
    return pictures.of_first_word(facts("first-word-amd-epyc-zen4-2-vcpu.json"))


def step() -> Figure:
    """What bounds the time of a token."""
    about = facts("bench-amd-epyc-zen4-2-vcpu.json")
    return pictures.of_bench({**about, "model": "BitNet b1.58 2B-4T (its shape, random weights)"})


def together() -> Figure:
    """Speed of several answers at once."""
    about = facts("step-amd-epyc-zen4-2-vcpu.json")
    rows = about["rows"]
    numbers = [row["parallel"] for row in rows]

    def speed(row: dict[str, Any], share: int) -> list[Bar]:
        value, *spread = (row[key] / share for key in ("tokens_per_second", "low", "high"))
        return [Bar(value, f"{value:.1f}", spread=(spread[0], spread[1]))]

    return pictures.bars(
        [f"{n} at once" if n > 1 else "1 answer" for n in numbers],
        [
            Column("all answers together, tokens/s", [speed(row, 1) for row in rows]),
            Column("each of them, tokens/s", [speed(row, row["parallel"]) for row in rows]),
        ],
        "Several answers at once: the weights are read once for all",
        f"Shape of BitNet b1.58 2B-4T with random weights, {about['cpu']}, {about['threads']} threads, {about['head']} "
        f"head, {about['kv']} KV, depth {rows[0]['depth']}; medians, with half of all steps between the marks.",
    )


def peers() -> Figure:
    """Speed, compared with other engines."""
    about = facts("peers-amd-epyc-zen4-2-vcpu.json")

    def cell(figures: Sequence[float] | None, ours: bool) -> list[Bar]:
        if figures is None:
            return []
        value, low, high = figures
        return [Bar(value, f"{value:.1f}", SERIES[0] if ours else GREY, (low, high))]

    return pictures.bars(
        [row["engine"] for row in about["rows"]],
        [
            Column(title, [cell(row[key], row["ours"]) for row in about["rows"]])
            for key, title in about["columns"].items()
        ],
        "Speed of several engines, in tokens per second",
        about["about"],
    )


DRAWN: dict[str, Callable[[], Figure]] = {
    "first_word": first_word,
    "kv_memory": kv_memory,
    "kv_quality": kv_quality,
    "peers": peers,
    "step": step,
    "together": together,
}


def main() -> None:
    """Draw all."""
    for name, draw in DRAWN.items():
        (PICTURES / f"{name}.svg").write_text(pictures.svg(draw()), encoding="utf-8")


if __name__ == "__main__":
    main()
