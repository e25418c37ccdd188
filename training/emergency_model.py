"""``python -m training.emergency_model``: edge/kiosk/emergencies.bin, by which the kiosk recognises an emergency.

Logistic regression over the features of edge.kiosk.emergencies.  It learns from emergencies.jsonl (emergencies, and
turns that only sound like one), the development visits, questions.jsonl and orders of turns.py.

Before that, each list of a stranger is left out once, with two hands of the visits: the models that learn from the rest
set the least score, and tell what to expect of people whose words were not learned from.
"""

from __future__ import annotations

import argparse
import json
from array import array
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from torch import Tensor
from torch.nn import functional as F

from edge.kiosk import emergencies
from training import turns
from training.kiosk_exam import HOUSES, visits

HERE = Path(__file__).resolve().parent
#: list of a stranger in emergencies.jsonl -> the hands of the visits that are left out with it
FOLDS = {"r1": "ab", "s1": "gh", "s2": "kl", "s3": "mn"}
#: how much a text counts that is no emergency
WEIGHTS = {"list": 1.0, "visit": 3.0, "question": 0.25, "order": 0.5}
#: number of orders of turns.py
ORDERS = 2000
#: share of the visits' other turns that may be taken for an emergency while they are left out
ALARMS = 0.01
#: how much words and pairs count, and letters; how much weights may grow
SCALES, GROWTH = (3.0, 2.0), 4.0


@dataclass(frozen=True)
class Text:
    """A turn: whether it is an emergency, where it is from (a key of WEIGHTS), whose hand it is, its features."""

    say: str
    emergency: bool
    kind: str
    hand: str
    found: tuple[list[int], list[int]]


def texts() -> list[Text]:
    """All that is learned from."""
    found: list[Text] = []

    def add(say: str, emergency: bool, kind: str, hand: str = "") -> None:
        found.append(Text(say, emergency, kind, hand, emergencies.features(emergencies.words_of(say))))

    for line in (HERE / "emergencies.jsonl").read_text(encoding="utf-8").splitlines():
        entry = json.loads(line)
        add(entry["text"], entry["emergency"], "list", entry["hand"])
    for hand in "".join(FOLDS.values()):
        for visit in visits([HOUSES.parent / "visits" / f"hand_{hand}.jsonl"]):
            for turn in visit["turns"]:
                add(turn["say"], bool(turn.get("emergency")), "visit", hand)
    for line in (HERE / "questions.jsonl").read_text(encoding="utf-8").splitlines():
        entry = json.loads(line)
        for question in chain(entry["none"], *(fact["questions"] for fact in entry["facts"])):
            add(question, False, "question")
    orders: dict[str, None] = {}
    for _, (_, said), *_ in turns.dialogues(1):
        orders[said] = None
        if len(orders) == ORDERS:
            break
    for said in orders:
        add(said, False, "order")
    return found


def learned(known: Sequence[Text]) -> tuple[Tensor, Tensor, float]:
    """The weights of both kinds of features, and the bias."""
    rows, values = [], []
    for text in known:
        numbers = [*text.found[0], *(emergencies.SIZES[0] + at for at in text.found[1])]
        rows.append(torch.tensor(numbers))
        values.append(torch.tensor([s / len(kind) ** 0.5 for s, kind in zip(SCALES, text.found) for _ in kind]))
    starts = torch.tensor([0, *map(len, rows)]).cumsum(0)[:-1]
    numbers, scales = torch.cat(rows), torch.cat(values).double()
    signs = torch.tensor([1.0 if text.emergency else -1.0 for text in known]).double()
    counts = torch.tensor([1.0 if text.emergency else WEIGHTS[text.kind] for text in known]).double()
    weights = torch.zeros(sum(emergencies.SIZES), 1, dtype=torch.double, requires_grad=True)
    bias = torch.zeros(1, dtype=torch.double, requires_grad=True)
    optimizer = torch.optim.LBFGS([weights, bias], max_iter=200, line_search_fn="strong_wolfe")

    def loss() -> Tensor:
        optimizer.zero_grad()
        sums = F.embedding_bag(numbers, weights, starts, mode="sum", per_sample_weights=scales)[:, 0] + bias
        value = GROWTH * (counts * F.softplus(-signs * sums)).sum() + (weights.square().sum() + bias.square().sum()) / 2
        value.backward()
        return value.detach()

    step: Callable[[Callable[[], Tensor]], Tensor] = optimizer.step
    step(loss)
    first, second = weights.detach()[:, 0].split(emergencies.SIZES)
    return SCALES[0] * first, SCALES[1] * second, float(bias.detach())


def file(model: tuple[Tensor, Tensor, float], least: float) -> bytes:
    """A model as emergencies.bin; ``least``, the least score of an emergency, becomes 0."""
    steps = [float(f"{float(weights.abs().max()) / 127:.4g}") for weights in model[:2]]
    head = json.dumps({"steps": steps, "bias": round(model[2] - least, 4)})
    body = array("b", (round(x / step) for weights, step in zip(model, steps) for x in weights.tolist()))
    return head.encode() + b"\n" + body.tobytes()


def scores(content: bytes, of: Iterable[Text]) -> list[float]:
    """What edge.kiosk.emergencies makes of texts with this file."""
    with TemporaryDirectory() as folder:
        shipped, emergencies.PATH = emergencies.PATH, str(Path(folder, "emergencies.bin"))
        Path(emergencies.PATH).write_bytes(content)
        emergencies.table.cache_clear()
        found = [emergencies.score(text.say) for text in of]
        emergencies.PATH = shipped
        emergencies.table.cache_clear()
    return found


def left_out(known: Sequence[Text]) -> float:
    """Leave each stranger out once; print what is found then.  The least score comes back."""
    found: list[tuple[float, Text]] = []
    asked = [text for text in known if text.kind == "question"]
    for at, (hand, visited) in enumerate(FOLDS.items()):
        out = [text for text in known if text.hand and text.hand in (hand, *visited)] + asked[at :: len(FOLDS)]
        away = set(map(id, out))
        model = learned([text for text in known if id(text) not in away])
        found += zip(scores(file(model, 0.0), out), out)
    ordinary = sorted((score for score, text in found if text.kind == "visit" and not text.emergency), reverse=True)
    least = ordinary[int(ALARMS * len(ordinary))]
    print(f"least score {least:.3f}; counts of what was left out")
    for kind, hand in (*(("list", hand) for hand in FOLDS), ("visit", ""), ("question", "")):
        some = [
            (score > least, text.emergency) for score, text in found if text.kind == kind and hand in ("", text.hand)
        ]
        right, wrong = ([taken for taken, emergency in some if emergency == each] for each in (True, False))
        print(f"{kind:8} {hand:2}  emergencies {sum(right)} of {len(right)}, other turns {sum(wrong)} of {len(wrong)}")
    return least


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path(emergencies.PATH))
    args = parser.parse_args()
    torch.set_num_threads(1)
    known = texts()
    content = file(learned(known), left_out(known))
    args.out.write_bytes(content)
    wrong = sum((score > 0) != text.emergency for score, text in zip(scores(content, known), known))
    print(f"learned from {len(known)} texts, of which {wrong} are still taken wrongly; {len(content)} bytes")


if __name__ == "__main__":
    main()
