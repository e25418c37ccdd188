"""Draws every picture of README and docs from its data: python docs/make_pictures.py (or make docs)

The data lies in benchmarks/results, each file with the command that made it.  With --record kiosk plan the real program
runs these sessions in a terminal first; --record alone: all.  A model that a session names lies in the current folder
(2b-4t.gguf: benchmarks/README.md).  tests/test_docs.py fails when a picture is not what this
makes.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from docs import terminal  # noqa: E402
from edge.kv import table as kv_table  # noqa: E402
from edge.model import shapes  # noqa: E402
from edge.tools import pictures, plot  # noqa: E402
from edge.tools.plot import GREY, Bar, Column  # noqa: E402

PICTURES = ROOT / "docs" / "pictures"
RESULTS = ROOT / "benchmarks" / "results"
SHELL = r"\$ $"
#: name -> title, description, and what is typed when (see terminal.record)
SESSIONS: dict[str, tuple[str, str, list[tuple[str, str]]]] = {
    "kiosk": (
        "bitnet-edge kiosk",
        "A terminal. A guest orders at the example kiosk, asks about dogs, changes the order and makes a wish.",
        [
            (SHELL, "bitnet-edge kiosk"),
            (r"> $", "two large lattes with oat milk and a croissant please"),
            (r"Anything else\?.*> $", "are dogs allowed?"),
            (r"> $", "make one of the lattes small, and a brownie without nuts"),
            (r"> $", "that is all"),
            (r"Is that right\?.*> $", ""),
        ],
    ),
    "bench": (
        "bitnet-edge bench",
        "A terminal. The speed of a model in the shape of BitNet b1.58 2B-4T with one thread and with two.",
        [(SHELL, "bitnet-edge bench -m 2b-4t.gguf -t 1,2 -d 128"), (r"generation uses.*" + SHELL, "")],
    ),
    "plan": (
        "bitnet-edge kv plan",
        "A terminal. The memory of the KV cache of bonsai-1.7b for three types, before anything is downloaded.",
        [(SHELL, "bitnet-edge kv plan bonsai-1.7b --kv f16,int8,int4 -c 2048,8192,32768"), (r"gain.*" + SHELL, "")],
    ),
}


def facts(name: str) -> Any:
    """A file of benchmarks/results."""
    return json.loads((RESULTS / name).read_text(encoding="utf-8"))


def session(name: str) -> str:
    """A recorded terminal."""
    title, description, _ = SESSIONS[name]
    return terminal.picture(RESULTS / f"{name}.cast", title, description)


def kv_memory() -> str:
    """Memory by context and KV type, of a published shape."""
    config = shapes.find("2b-4t")
    assert config is not None
    return pictures.of_plan(kv_table.table(config, types=("f16", "int8", "int4"), windows=(1020,)))


def kv_quality() -> str:
    """Quality over memory, of the bundled model."""
    return pictures.of_quality(facts("kv_quality.json")["types"])


def step() -> str:
    """What bounds the time of a token."""
    about = facts("bench-amd-epyc-zen4-2-vcpu.json")
    return pictures.of_bench({**about, "model": "BitNet b1.58 2B-4T (its shape, random weights)"})


def together() -> str:
    """Speed of several answers at once."""
    about = facts("step-amd-epyc-zen4-2-vcpu.json")
    rows = about["rows"]
    numbers = [row["parallel"] for row in rows]

    def speed(row: dict[str, Any], share: int) -> list[Bar]:
        value, *spread = (row[key] / share for key in ("tokens_per_second", "low", "high"))
        return [Bar(value, f"{value:.1f}", 0, (spread[0], spread[1]))]

    return plot.bars(
        [f"{n} at once" if n > 1 else "1 answer" for n in numbers],
        [
            Column("all answers together, tokens/s", [speed(row, 1) for row in rows]),
            Column("each of them, tokens/s", [speed(row, row["parallel"]) for row in rows]),
        ],
        "Several answers at once: the weights are read once for all",
        f"Shape of BitNet b1.58 2B-4T with random weights, {about['cpu']}, {about['threads']} threads, {about['head']} "
        f"head, {about['kv']} KV, depth {rows[0]['depth']}; medians, with half of all steps between the marks.",
    )


def peers() -> str:
    """Speed beside other engines."""
    about = facts("peers-amd-epyc-zen4-2-vcpu.json")

    def cell(figures: Sequence[float] | None, ours: bool) -> list[Bar]:
        if figures is None:
            return []
        value, low, high = figures
        return [Bar(value, f"{value:.1f}", 0 if ours else GREY, (low, high))]

    return plot.bars(
        [row["engine"] for row in about["rows"]],
        [
            Column(title, [cell(row[key], row["ours"]) for row in about["rows"]])
            for key, title in about["columns"].items()
        ],
        "Speed beside other engines, in tokens per second",
        about["about"],
    )


DRAWN: dict[str, Callable[[], str]] = {
    **{name: lambda name=name: session(name) for name in SESSIONS},  # type: ignore[misc]
    "kv_memory": kv_memory,
    "kv_quality": kv_quality,
    "peers": peers,
    "step": step,
    "together": together,
}


def record(name: str) -> None:
    """Play a session again, in an empty home."""
    columns, rows = 112, 40
    with tempfile.TemporaryDirectory() as folder:
        launcher = Path(folder, "bin", "bitnet-edge")
        launcher.parent.mkdir()
        launcher.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m edge "$@"\n')
        launcher.chmod(0o755)
        env = {"PATH": f"{launcher.parent}:/usr/bin:/bin", "HOME": folder, "PYTHONPATH": str(ROOT), "LANG": "C.UTF-8"}
        was = os.getcwd()
        for model in Path().glob("*.gguf"):  # what is typed may name it
            Path(folder, model.name).symlink_to(model.resolve())
        os.chdir(folder)
        try:
            events = terminal.record(SESSIONS[name][2], env, columns, rows)
        finally:
            os.chdir(was)
    terminal.save(RESULTS / f"{name}.cast", events, f"python docs/make_pictures.py --record {name}", columns, rows)


def main() -> None:
    """Record what is named, draw all."""
    if sys.argv[1:2] == ["--record"]:
        for name in sys.argv[2:] or SESSIONS:
            record(name)
    for name, draw in DRAWN.items():
        (PICTURES / f"{name}.svg").write_text(draw(), encoding="utf-8")


if __name__ == "__main__":
    main()
