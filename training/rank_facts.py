"""``python -m training.rank_facts KNOWLEDGE.json``: weights of edge.kiosk.facts, fitted to strangers' questions.

KNOWLEDGE.json is the knowledge of DSTC9 Track 1 (Apache-2.0, alexa/alexa-with-dstc9-track1-dataset @ 7ebb4c7,
data_eval/knowledge.json): a dozen or more question-and-answer pairs for each of 670 hotels, restaurants and sights.
The other answers of the same house are the near misses.  Every second question is asked of a house without its answer,
so that "none" is learned, too.  Kinds of houses are held out, not only houses.
"""

from __future__ import annotations

import argparse
import json
import random
from pathlib import Path

import numpy as np

from edge.kiosk import facts

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


def examples(houses: list[list[tuple[str, str]]], n: int, seed: int) -> list[tuple[np.ndarray, int]]:
    """``n`` questions: features [statements, features] and which statement is right, -1 for none."""
    draw = random.Random(seed)
    found = []
    for _ in range(n):
        pairs = draw.choice(houses)
        question, answer = draw.choice(pairs)
        others = [body for _, body in pairs if body != answer]
        draw.shuffle(others)
        statements = others[: draw.randint(10, 24)]
        right = -1
        if draw.random() < 0.5:
            right = draw.randint(0, len(statements))
            statements.insert(right, answer)
        table = tuple(statements)
        found.append((np.array(facts.features(question, table)), right))
    return found


def written(path: Path) -> list[tuple[str, tuple[str, ...], int]]:
    """The questions of questions.txt: (question, facts of the house, which is right or -1)."""
    found = []
    for block in path.read_text().split("\n= ")[1:]:
        lines = block.splitlines()[1:]
        table = tuple(line for line in lines if line[:2] not in ("? ", "- "))
        at = -1
        for line in lines:
            if line.startswith("? "):
                found.append((line[2:], table, at))
            elif line.startswith("- "):
                found.append((line[2:], table, -1))
            else:
                at += 1
    return found


def fit(data: list[tuple[np.ndarray, int]], steps: int = 400, rate: float = 1.0, decay: float = 1e-4) -> np.ndarray:
    """Weights [features]: choose among the statements and "none", whose score is 0; by likelihood."""
    weights = np.array(facts.WEIGHTS)
    momentum = np.zeros_like(weights)
    for step in range(steps):
        slope = decay * weights
        for x, right in data:
            logits = np.append(x @ weights, 0.0)
            p = np.exp(logits - logits.max())
            p /= p.sum()
            p[right] -= 1.0  # -1 is "none", the last
            slope += p[:-1] @ x / len(data)
        momentum = 0.9 * momentum + slope
        weights = weights - rate * (1 - step / steps) * momentum
    return weights


def table(data: list[tuple[np.ndarray, int]], weights: np.ndarray, least: float) -> dict[str, float]:
    """Shares: right shown, beside the point, "I do not know" where it is right to."""
    right = beside = known = silent = unknown = 0
    for x, answer in data:
        scores = x @ weights
        best = int(scores.argmax()) if scores.max() >= least else -1
        if answer >= 0:
            known += 1
            right += best == answer
            beside += best not in (answer, -1)
        else:
            unknown += 1
            silent += best == -1
    return {"right": right / known, "beside": beside / known, "none": silent / unknown}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("knowledge", type=Path)
    parser.add_argument("--held-out", default="attraction")
    parser.add_argument("-n", type=int, default=3000)
    args = parser.parse_args()
    kinds = houses(args.knowledge)
    print({kind: len(entries) for kind, entries in kinds.items()})
    train = examples([each for kind, es in kinds.items() if kind != args.held_out for each in es], args.n, 1)
    test = examples(kinds[args.held_out], args.n // 3, 2)
    before = np.array(facts.WEIGHTS)
    own = [(np.array(facts.features(q, t)), right) for q, t, right in written(QUESTIONS)]
    half = len(own) // 2
    print("questions.txt, both halves: fitted on one, tried on the other")
    for a, b in ((own[:half], own[half:]), (own[half:], own[:half])):
        weights = fit(train + 3 * a)
        for least in (-1.0, -0.5, 0.0):
            print(least, {key: f"{value:.1%}" for key, value in table(b, weights, least).items()})
    after = fit(train + 3 * own)
    print("weights", tuple(round(float(w), 2) for w in after))
    for name, weights in (("as they stand", before), ("fitted", after)):
        for least in (-1.0, -0.5, 0.0, 0.5):
            shares = table(test, weights, least)
            print(f"{name:14} least {least:4}  " + "  ".join(f"{key} {value:.1%}" for key, value in shares.items()))


if __name__ == "__main__":
    main()
