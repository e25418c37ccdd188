"""``python -m training.kiosk_exam [VISITS.jsonl...]``: marks for what the kiosk understands, on strangers' visits.

Without files it counts all sets (SETS) and writes their marks to tests/vectors/kiosk/marks.json; docs/kiosk.md shows
them, and tests/test_kiosk_marks.py holds both to what the program does.

tests/vectors/kiosk/README.md describes the form.  A turn counts once for each kind of thing it is checked for; every
turn starts from the state that the visit expects before it, so that one miss is counted once.  -v prints every miss.
"""

from __future__ import annotations

import argparse
import json
import re
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from edge.kiosk import house as house_file
from edge.kiosk.emergencies import is_emergency
from edge.kiosk.house import House
from edge.kiosk.operations import Add, Answer, Plain, Talk
from edge.kiosk.state import Line, State, apply, keep_earlier
from edge.kiosk.understand import understand
from edge.kiosk.visit import is_order
from edge.kiosk.words import folded, number, words

HOUSES = Path(__file__).resolve().parent.parent / "tests" / "vectors" / "kiosk" / "houses"
#: set -> {"files": patterns below tests/vectors/kiosk, "visits": how many, "marks": kind -> [right, asked]}; "stale":
#: true where the rules have changed since a blind set was scored, until it is scored again
MARKS = HOUSES.parent / "marks.json"
#: set -> its files below tests/vectors/kiosk
SETS = {
    "development (a, b)": ["visits/hand_a.jsonl", "visits/hand_b.jsonl"],
    "development (g, h, k, l)": [f"visits/hand_{hand}.jsonl" for hand in "ghkl"],
    "development (m, n)": ["visits/hand_m.jsonl", "visits/hand_n.jsonl"],
    "development (r)": ["visits/hand_r.jsonl"],
    "development (v, w)": ["visits/hand_v.jsonl", "visits/hand_w.jsonl"],
    "held out (c)": ["visits/hand_c.jsonl"],
    "blind (d, e, f)": ["visits2/*.jsonl"],
    "blind (i, j)": ["visits3/*.jsonl"],
    "blind (p, q)": ["visits4/*.jsonl"],
    "blind (t, u)": ["visits5/*.jsonl"],
}

#: kinds without a target that the table shows, too
DOUBTS = ("asked", "caught")
#: kind of mark -> (what it is called in the table, target in percent, whether less is better)
KINDS = {
    "first order": ("first order of up to three things exactly right", 90, False),
    "longer order": ("orders beyond that (more things, or later in the visit)", None, False),
    "correction": ("the order after a correction exactly right", 85, False),
    "booking": ("bookings complete and right", 90, False),
    "name": ("name right", None, False),
    "known": ("answer is among the facts: right fact shown", 85, False),
    "beside": ("   ... another fact shown (off topic)", 5, True),
    "silent": ('   ... "I do not know"', None, True),
    "price": ("price of an item asked: its row of the menu shown", None, False),
    "none": ('answer is not among the facts: "I do not know"', 90, False),
    "done": ("that is all: understood", None, False),
    "emergency": ("emergencies that reach the owner's text", 100, False),
    "alarm": ("other turns that reach it by mistake", 0, True),
    "asked": ("changes understood right that the kiosk asks about before it makes them", None, True),
    "caught": ("changes misunderstood that it asks about before it makes them", None, False),
    "kept": ("small talk and questions: order, bookings and name stay as they were", None, False),
}


@dataclass
class Marks:
    """Right and asked, by kind; seconds of each turn; the misses as text."""

    right: Counter[str] = field(default_factory=Counter)
    asked: Counter[str] = field(default_factory=Counter)
    seconds: list[float] = field(default_factory=list)
    misses: list[str] = field(default_factory=list)

    def mark(self, kind: str, right: bool) -> bool:
        self.asked[kind] += 1
        self.right[kind] += right
        return right


def lines_of(order: list[dict[str, Any]]) -> tuple[Line, ...]:
    return tuple(
        Line(e["item"], e.get("count", 1), e.get("size", ""), tuple(sorted(e.get("extras", []))),
             tuple(sorted(e.get("without", []))))
        for e in order
    )  # fmt: skip


def same_order(got: tuple[Line, ...], wanted: tuple[Line, ...]) -> bool:
    """Whether two orders are the same things; what is refused counts only where the visit says so."""

    def counted(lines: tuple[Line, ...], refused: bool) -> Counter[tuple[object, ...]]:
        table: Counter[tuple[object, ...]] = Counter()
        for line in lines:
            table[line.item, line.size, tuple(sorted(line.extras)), line.without if refused else ()] += line.count
        return table

    refused = any(line.without for line in wanted)
    return counted(got, refused) == counted(wanted, refused)


def plain(text: str) -> str:
    """A value of a booking as it is compared: no case, no marks, numbers as digits, times of day alike."""
    text = re.sub(
        r"\b(?:on|at|the|of|for|around|about|from|in|evening|morning|afternoon|o'?clock|day)\b", " ", folded(text)
    )
    text = re.sub(r"\b(\d+)(?:st|nd|rd|th)\b", r"\1", text)
    text = re.sub(r"([ap])\.?\s?m\b\.?", r"\1m", text).replace("a m", "am").replace("p m", "pm")
    text = re.sub(r"(\d)[.](\d\d)\b", r"\1:\2", text)
    parts = [str(n) if (n := number(word.fold)) is not None else word.fold for word in words(text)]
    joined = " ".join(part for part in parts if part.isalnum() or ":" in part)
    return re.sub(r":00\b", "", joined)


def same_booking(got: dict[str, dict[str, str]], wanted: dict[str, dict[str, str]]) -> bool:
    """Whether the bookings hold the same values; a name that the guest gave elsewhere may stand there, too."""
    if set(got) != set(wanted):
        return False
    for name, fields in wanted.items():
        if set(got[name]) - {"name"} != set(fields) - {"name"} or ("name" in fields and "name" not in got[name]):
            return False
        for key, value in fields.items():
            if plain(got[name][key]) != plain(value):
                return False
    return True


def expected(state: State, after: State, turn: dict[str, Any]) -> State:
    """The state that a visit expects after a turn; what was offered and taken away last is not told by it."""
    if turn.get("restart"):
        return State()
    lines = lines_of(turn["order"]) if "order" in turn else state.lines
    name = turn.get("name", state.name)
    done = bool(turn.get("done", False if "order" in turn else state.done))
    now = State(lines, turn.get("booking", state.bookings), name, done, offered=after.offered, gone=after.gone)
    return keep_earlier(state, replace(now, earlier=state.earlier))


def check(house: House, state: State, turn: dict[str, Any], first: bool, marks: Marks) -> State:
    """Put one turn to the kiosk; the state that the visit expects comes back."""
    start = time.perf_counter()
    understood = understand(house, state, turn["say"])
    operations = understood.operations
    marks.seconds.append(time.perf_counter() - start)
    after = state
    for operation in operations:
        after = apply(house, after, operation)
    wanted = expected(state, after, turn)
    results: dict[str, bool] = {}

    if "order" in turn:
        few = len(turn["order"]) <= 3 and first
        kind = "correction" if turn.get("correction") else "first order" if few else "longer order"
        named = "name" not in turn or after.name.casefold() == turn["name"].casefold()
        right = named and same_order(after.lines, wanted.lines)
        results[kind] = marks.mark(kind, right)
    if turn.get("restart"):
        results["correction"] = marks.mark("correction", not after.lines and not after.bookings)
    if "booking" in turn:
        results["booking"] = marks.mark("booking", same_booking(after.bookings, wanted.bookings))
    if "name" in turn:
        results["name"] = marks.mark("name", after.name.casefold() == turn["name"].casefold())
    if "answer" in turn:
        results.update(answered(house, operations, turn["answer"], marks))
    if "done" in turn:
        results["done"] = marks.mark("done", after.done)
    if not {"order", "booking", "name", "restart", "emergency"} & set(turn):
        kept = same_order(after.lines, state.lines) and after.bookings == state.bookings and after.name == state.name
        results["kept"] = marks.mark("kept", kept)
    if (after.lines, after.bookings, after.name) != (state.lines, state.bookings, state.name):
        marks.mark("asked" if all(results.values()) else "caught", understood.unsure)
    if not all(results.values()):
        wrong = ", ".join(kind for kind, right in results.items() if not right)
        marks.misses.append(
            f"[{wrong}] {turn['say']}\n    before: {state.lines} {state.bookings}\n    understood: {operations}\n"
            f"    wanted: { {key: value for key, value in turn.items() if key != 'say'} }"
        )
    return wanted


def answered(house: House, operations: list[Any], wanted: Any, marks: Marks) -> dict[str, bool]:
    """Marks for a question."""
    got = {operation.number for operation in operations if isinstance(operation, Answer)}
    accepted: set[int] = set()
    for each in wanted if isinstance(wanted, list) else [wanted]:
        if isinstance(each, str):
            names = [item.name for item in house.items]
            extras = list(house.extras)
            at = names.index(each) if each in names else len(names) + extras.index(each)
            accepted.add(len(house.facts) + at + 1)
        else:
            accepted.add(each)
    shown = got - {0}
    if accepted == {0}:
        other = any(isinstance(operation, (Add, Talk)) for operation in operations)
        unknown = any(isinstance(operation, Plain) and operation.word == "unknown" for operation in operations)
        return {"none": marks.mark("none", not shown and (0 in got or unknown or not other))}
    if min(accepted) > len(house.facts):
        return {"price": marks.mark("price", bool(shown & accepted))}
    right = bool(shown) and shown <= accepted
    marks.mark("known", right)
    marks.mark("beside", bool(shown - accepted))
    marks.mark("silent", not shown)
    return {"known": right}


def visits(paths: list[Path]) -> Iterator[dict[str, Any]]:
    for path in paths:
        for line in path.read_text(encoding="utf-8").splitlines():
            if line.strip():
                yield json.loads(line)


def examine(paths: list[Path]) -> tuple[Marks, int]:
    """Marks of all visits, and how many there were."""
    houses = {path.stem: house_file.load(path) for path in HOUSES.glob("*.toml")}
    houses["example"] = house_file.load(house_file.EXAMPLE)
    marks, n = Marks(), 0
    for visit in visits(paths):
        state, first = State(), True
        for turn in visit["turns"]:
            kind = "emergency" if turn.get("emergency") else "alarm"
            house = houses[visit["house"]]
            marks.mark(kind, is_emergency(turn["say"]) and not is_order(house, state, turn["say"]))
            if kind == "emergency":
                continue
            state = check(house, state, turn, first, marks)
            first = first and "order" not in turn
        n += 1
    return marks, n


def counted(patterns: list[str]) -> dict[str, Any]:
    """The marks of a set, as they stand in marks.json; no visits where none of the files is there."""
    paths = sorted(path for pattern in patterns for path in MARKS.parent.glob(pattern))
    marks, n = examine(paths)
    kinds = {kind: [marks.right[kind], marks.asked[kind]] for kind in KINDS if marks.asked[kind]}
    return {"files": patterns, "visits": n, "marks": kinds}


def record() -> None:
    """Count every set again, write marks.json, print the table of docs/kiosk.md."""
    sets = {name: counted(files) for name, files in SETS.items()}
    lines = ",\n".join(f"  {json.dumps(name)}: {json.dumps(each)}" for name, each in sets.items())
    MARKS.write_text(f"{{\n{lines}\n}}\n")
    print(table(sets))


def table(sets: dict[str, dict[str, Any]]) -> str:
    """The marks of all sets as the table of docs/kiosk.md."""
    rows = [f"| | {' | '.join(sets)} | target |", "|---" * (len(sets) + 2) + "|"]
    for kind, (name, target, less) in KINDS.items():
        if target is None and kind not in DOUBTS:
            continue
        cells = []
        for each in sets.values():
            right, asked = each["marks"].get(kind, [0, 0])
            exact = f"{right} of {asked}" if kind in ("emergency", "alarm") else f"{right / asked:.0%}" if asked else ""
            cells.append(exact if asked else "none in it")
        goal = "none" if kind == "alarm" else "" if target is None else f"under {target}%" if less else f"{target}%"
        rows.append(f"| {name.strip()} | {' | '.join(cells)} | {goal} |")
    return "\n".join(rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("visits", nargs="*", type=Path)
    parser.add_argument("-v", "--misses", action="store_true", help="print every miss")
    args = parser.parse_args()
    if not args.visits:
        record()
        return
    marks, n = examine(args.visits)
    if args.misses:
        print("\n".join(marks.misses))
    print(f"{n} visits, {len(marks.seconds)} turns\n\n| | right | of | share | target |\n|---|---|---|---|---|")
    for kind, (name, target, less) in KINDS.items():
        if marks.asked[kind]:
            share = marks.right[kind] / marks.asked[kind]
            goal = "" if target is None else f"under {target}%" if less else f"{target}%"
            print(f"| {name} | {marks.right[kind]} | {marks.asked[kind]} | {share:.1%} | {goal} |")
    times = sorted(marks.seconds)
    print(f"\nseconds for a turn: median {times[len(times) // 2]:.4f}, most {times[-1]:.4f}")


if __name__ == "__main__":
    main()
