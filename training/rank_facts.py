"""``python -m training.rank_facts KNOWLEDGE.json``: weights of edge.kiosk.facts, fitted to strangers' questions.

KNOWLEDGE.json is the knowledge of DSTC9 Track 1 (Apache-2.0, alexa/alexa-with-dstc9-track1-dataset @ 7ebb4c7,
data_eval/knowledge.json): a dozen or more question-and-answer pairs for each of 670 hotels, restaurants and sights.
The other answers of the same house are the near misses.  Every second question is asked of a house without its answer,
so that "none" is learned, too.  Beside them: questions.txt, and the questions of hands a and b of the visits
(tests/vectors/kiosk).  Hand c is only counted.
"""

from __future__ import annotations

import argparse
import json
import random
from pathlib import Path

import numpy as np

from edge.kiosk import facts
from edge.kiosk import house as house_file
from training.kiosk_exam import HOUSES, visits

#: question, statements of the house, which of them are right: none for "none"
Question = tuple[str, tuple[str, ...], tuple[int, ...]]

QUESTIONS = Path(__file__).with_name("questions.txt")


def houses(path: Path) -> dict[str, list[list[tuple[str, str]]]]:
    """Kind of house -> houses -> (question, answer) pairs."""
    knowledge = json.loads(path.read_text())
    kinds: dict[str, list[list[tuple[str, str]]]] = {}
    for kind, entities in knowledge.items():
        for entity in entities.values():
            docs = [(doc["title"], doc["body"]) for doc in entity["docs"].values()]
            pairs = list({body: (title, body) for title, body in docs}.values())
            if len(pairs) >= 5:
                kinds.setdefault(kind, []).append(pairs)
    return kinds


def examples(houses: list[list[tuple[str, str]]], n: int, seed: int) -> list[Question]:
    """``n`` questions to houses, every second to one without the answer."""
    draw = random.Random(seed)
    found = []
    for _ in range(n):
        pairs = draw.choice(houses)
        question, answer = draw.choice(pairs)
        others = [body for _, body in pairs if body != answer]
        draw.shuffle(others)
        statements = others[: draw.randint(10, 24)]
        right: tuple[int, ...] = ()
        if draw.random() < 0.5:
            right = (draw.randint(0, len(statements)),)
            statements.insert(right[0], answer)
        found.append((question, tuple(statements), right))
    return found


def written(path: Path) -> list[Question]:
    """The questions of questions.txt."""
    found = []
    for block in path.read_text().split("\n= ")[1:]:
        lines = block.splitlines()[1:]
        table = tuple(line for line in lines if line[:2] not in ("? ", "- "))
        at = -1
        for line in lines:
            if line.startswith("? "):
                found.append((line[2:], table, (at,)))
            elif line.startswith("- "):
                found.append((line[2:], table, ()))
            else:
                at += 1
    return found


def visited(hand: str) -> list[Question]:
    """The questions of a hand of the visits."""
    houses = {path.stem: house_file.load(path) for path in HOUSES.glob("*.toml")}
    houses["example"] = house_file.load(house_file.EXAMPLE)
    found = []
    for visit in visits([HOUSES.parent / "visits" / f"hand_{hand}.jsonl"]):
        for turn in visit["turns"]:
            wanted = turn.get("answer", "")
            answers = wanted if isinstance(wanted, list) else [wanted]
            if not any(isinstance(each, str) for each in answers):  # a name: the price of an item was asked
                right = tuple(each - 1 for each in answers if each)
                found.append((turn["say"], houses[visit["house"]].facts, right))
    return found


Example = tuple[np.ndarray, tuple[int, ...], float]


def fit(data: list[Example], steps: int = 1500, rate: float = 0.3, decay: float = 1e-4) -> np.ndarray:
    """Weights [features]: choose among the statements and "none", whose score is 0; by likelihood."""
    weights = np.array(facts.WEIGHTS)
    momentum = np.zeros_like(weights)
    total = sum(share for _, _, share in data)
    for step in range(steps):
        slope = decay * weights
        for x, right, share in data:
            logits = np.append(x @ weights, 0.0)
            p = np.exp(logits - logits.max())
            p /= p.sum()
            goal = np.zeros_like(p)
            goal[list(right) or [-1]] = p[list(right) or [-1]]  # any of the right ones; "none" is the last
            slope += share / total * ((p - goal / goal.sum())[:-1] @ x)
        momentum = 0.9 * momentum + slope
        weights = weights - rate * (1 - step / steps) * momentum
    return weights


def table(data: list[Example], weights: np.ndarray, least: float) -> str:
    """Shares: right shown, beside the point, "I do not know" where it is right to."""
    right = beside = known = silent = unknown = 0
    for x, answers, _ in data:
        scores = x @ weights
        best = int(scores.argmax()) if scores.max() >= least else -1
        if answers:
            known += 1
            right += best in answers
            beside += best not in (*answers, -1)
        else:
            unknown += 1
            silent += best == -1
    return f"right {right / known:.1%}  beside {beside / known:.1%}  none {silent / unknown:.1%}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("knowledge", type=Path)
    parser.add_argument("--held-out", default="attraction", help="a kind of house of DSTC9")
    args = parser.parse_args()
    kinds, n = houses(args.knowledge), 1500

    def prepared(questions: list[Question], share: float) -> list[Example]:
        return [(np.array(facts.features(text, statements)), right, share) for text, statements, right in questions]

    seen = [each for kind, entries in kinds.items() if kind != args.held_out for each in entries]
    train = {
        "DSTC9": prepared(examples(seen, n, 1), 0.15),
        "questions.txt": prepared(written(QUESTIONS), 1.5),
        "hand a": prepared(visited("a"), 0.7),
        "hand b": prepared(visited("b"), 0.7),
    }
    test = {
        f"DSTC9 {args.held_out}": prepared(examples(kinds[args.held_out], n // 3, 2), 1.0),
        "hand c": prepared(visited("c"), 1.0),
    }
    weights = fit([each for part in train.values() for each in part])
    print("weights", tuple(round(float(w), 2) for w in weights))
    for name, data in (*train.items(), *((f"held out: {name}", data) for name, data in test.items())):
        for least in (0.0, facts.LEAST):
            print(f"{name:28} least {least:4}  {table(data, weights, least)}")


if __name__ == "__main__":
    main()
