"""Writes the tables of benchmarks/SPEED.md that come from benchmarks/results: python packaging/docs/make_speed.py

The text of the page stays; what lies between two markers is replaced.  tests/project/test_docs.py fails when a table is
not what this makes, or when another row has a figure that the entry of the logbook it leads to does not have.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from edge.amounts import count, median  # noqa: E402
from make_models import filled  # noqa: E402

PAGE = ROOT / "benchmarks" / "SPEED.md"
RESULTS = ROOT / "benchmarks" / "results"
#: models that were compared with other engines -> their names
PEERS = {"2b-4t": "BitNet 2B-4T", "bonsai-1.7b": "Bonsai 1.7B"}


def one() -> str:
    """One answer: every file of a machine, each number of threads."""
    lines = ["| machine, date | model | threads | head | prompt, t/s | answer, t/s | GB/s | reached |",
             "|---|---|--:|---|--:|--:|--:|--:|"]
    for path in sorted(RESULTS.glob("one-*.json")):
        content = json.loads(path.read_text(encoding="utf-8"))
        lines += [
            f"| {content['cpu']}, {content['date']} | `{content['model'].rpartition(' ')[2]}` | "
            f"{row['threads']} | {row['head']} | {row['pp']:.1f} | {row['tg']:.1f} | {row['read_rate'] / 1e9:.1f} | "
            f"{row['of_memory']:.0%} |"
            for row in content["rows"]
        ]
    return "\n".join(lines)


def several() -> str:
    """Several answers at once."""
    lines = ["| machine, date | threads | at once | tokens/s: median [least, most] | over one |",
             "|---|--:|--:|--:|--:|"]
    for path in sorted(RESULTS.glob("step-*.json")):
        content = json.loads(path.read_text(encoding="utf-8"))
        single = content["rows"][0]["tokens_per_second"]
        lines += [
            f"| {content['cpu']}, {content['isa']}, {content['date']} | {content['threads']} | {row['parallel']} | "
            f"{row['tokens_per_second']:.1f} [{row['low']:.1f}, {row['high']:.1f}] | "
            f"{row['tokens_per_second'] / single:.2f} |"
            for row in content["rows"]
        ]
    return "\n".join(lines)


def engines(model: str) -> tuple[dict[str, Any], dict[str, dict[str, list[float]]]]:
    """The output of benchmarks/against_peers.py, and its speeds: engine -> test and threads -> speeds in order."""
    content: dict[str, Any] = json.loads((RESULTS / f"peers-{model}.json").read_text(encoding="utf-8"))
    rows: dict[str, dict[str, list[float]]] = {}
    for series in sorted(content["series"], key=lambda each: each["engine"] not in content["ours"]):
        test = "generation" if series["test"][:2] == "tg" else f"prompt of {series['test'][2:]}"
        name = f"{test}, {count(series['threads'], 'thread')}"
        rows.setdefault(series["engine"], {})[name] = sorted(series["speeds"])
    return content, rows


def peers() -> str:
    """Every engine that was measured in turn, for each model."""
    parts = []
    for model, title in PEERS.items():
        content, rows = engines(model)
        columns = sorted({name for row in rows.values() for name in row})
        parts += [f"{title}, {content['processor']}, {content['date']}:", ""]
        parts += [f"| engine | {' | '.join(columns)} |", "|---" + "|--:" * len(columns) + "|"]
        for engine, row in rows.items():
            cells = (f"{median(row[name]):.1f} [{row[name][0]:.1f}, {row[name][-1]:.1f}]" if name in row else "-"
                     for name in columns)
            parts.append(f"| {engine} | {' | '.join(cells)} |")
        parts.append("")
    return "\n".join(parts[:-1])


def page(text: str) -> str:
    """``text`` of the page with its tables made again."""
    return filled(text, {"one": one(), "peers": peers(), "several": several()})


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
