"""Let a model sit the exam: ``python -m training.exam [MODEL] [--unseen] [--json FILE] [--failed N]``."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import edge
from training.exam import marks
from training.exam.marks import TARGETS, Mark
from training.exam.requests import Request, all_requests
from training.exam.unseen import unseen_requests

if TYPE_CHECKING:
    from edge import Engine

MAX_TOKENS = 96
SAMPLES = 500


def sit(engine: Engine, requests: Sequence[Request]) -> list[Mark]:
    """Every request in a session of its own, at temperature 0."""
    greedy = edge.Sampling(temp=0.0)
    found = []
    for request in requests:
        answers, stopped = _visit(engine, request, greedy)
        found.append(Mark(request, answers, stopped))
    return found


def _visit(engine: Engine, request: Request, sampling: Any) -> tuple[list[str], bool]:
    with engine.session(system=request.facts or None) as session:
        answers, stopped = [], True
        for said in request.said:
            pieces = session.ask(said, sampling=sampling, max_tokens=MAX_TOKENS)
            answers.append("".join(piece.text for piece in pieces))
            stopped = stopped and session.finish_reason == "stop"
        return answers, stopped


def sample(engine: Engine, requests: Sequence[Request], n: int = SAMPLES) -> list[str]:
    """n answers at temperature 0.8, to the last words of requests in turn, the teasing ones more often."""
    teasing = [request for request in requests if request.subject in ("tone", "off-topic")]
    pool = [teasing[i // 2 % len(teasing)] if i % 2 else requests[i * 7 % len(requests)] for i in range(n)]
    found = []
    for i, request in enumerate(pool):
        warm = edge.Sampling(temp=0.8, seed=1 + i)
        found.append(_visit(engine, Request(request.subject, request.said[-1:], (), request.facts), warm)[0][0])
    return found


def report(found: Sequence[Mark], sampled: Sequence[str]) -> dict[str, Any]:
    """Shares and counts of each row of ``TARGETS``."""

    def of(*subjects: str) -> list[Mark]:
        return [mark for mark in found if mark.request.subject in subjects]

    slots = [marks.repeated(mark.request, mark.answers[-1]) for mark in of("order", "booking")]
    counts = {
        "order and booking": (sum(a for a, _ in slots), sum(b for _, b in slots)),
        "refused": _share(of("off-topic")),
        "stops": (sum(mark.stopped for mark in found), len(found)),
        "clean": (sum(not marks.foul(answer) for answer in sampled), len(sampled)),
        **{name: _share(of(name)) for name in ("name", "hours", "unknown", "price", "bill", "menu")},
    }
    return {
        name: {"what": what, "right": counts[name][0], "of": counts[name][1], "target": target,
               "share": round(counts[name][0] / max(1, counts[name][1]), 4)}
        for name, (what, target) in TARGETS.items()
    }  # fmt: skip


def _share(found: Sequence[Mark]) -> tuple[int, int]:
    return sum(mark.right for mark in found), len(found)


def table(rows: dict[str, Any]) -> str:
    """The report as lines of text."""
    lines = [f"{'':42}{'right':>11}{'share':>9}{'target':>9}"]
    for row in filter(lambda row: row["of"], rows.values()):
        target = "" if row["target"] is None else f"{row['target']:.0%}"
        missed = " missed" if row["target"] is not None and row["share"] < row["target"] else ""
        lines.append(f"{row['what']:42}{row['right']:5} /{row['of']:4}{row['share']:9.1%}{target:>9}{missed}")
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table; exit 0 where every target is reached, else 1."""
    parser = argparse.ArgumentParser(prog="python -m training.exam", description=__doc__)
    parser.add_argument("model", nargs="?", help="model file or folder; the bundled one if left out")
    parser.add_argument("--unseen", action="store_true", help="the second exam, by somebody who had not seen the first")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the figures and every answer")
    parser.add_argument("--failed", type=int, default=0, metavar="N", help="show N wrong answers of each subject")
    parser.add_argument("--samples", type=int, default=SAMPLES, metavar="N", help="answers sampled for their tone")
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args(arguments)
    requests = unseen_requests() if options.unseen else all_requests()
    with edge.load(options.model, threads=options.threads) as engine:
        found = sit(engine, requests)
        sampled = sample(engine, requests, options.samples)
        rows = report(found, sampled)
    print(table(rows))
    shown: dict[str, int] = {}
    for mark in found:
        subject = mark.request.subject
        if not mark.right and shown.setdefault(subject, 0) < options.failed:
            shown[subject] += 1
            print(f"\n[{subject}] {mark.request.facts}")
            for said, answer in zip(mark.request.said, mark.answers):
                print(f"  > {said}\n    {answer}")
            if mark.request.wants:
                print(f"  wanted: {', '.join(slot[0] for slot in mark.request.wants)}")
    if options.json:
        answers = [{"subject": mark.request.subject, "facts": mark.request.facts, "said": mark.request.said,
                    "answers": mark.answers, "right": mark.right} for mark in found]  # fmt: skip
        options.json.write_text(json.dumps({"rows": rows, "answers": answers, "sampled": sampled}, indent=1) + "\n")
    return 0 if all(row["target"] is None or row["share"] >= row["target"] for row in rows.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
