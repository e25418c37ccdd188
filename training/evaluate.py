"""``python -m training.evaluate MODEL``: nats per token and bits per byte on held-out dialogues, source by source.

MODEL is a run's folder or a Hugging Face directory with float32 weights.  Every dialogue stands alone behind one BOS.
Counted are all tokens of its user and assistant turns, what the template writes included; bytes are those of the turns'
own text.  A system turn is given and not counted.
"""

from __future__ import annotations

import argparse
import math
import random
import sys
from collections.abc import Iterator, Sequence
from dataclasses import astuple, dataclass
from pathlib import Path

import torch
from torch.nn import functional as F

from training import corpus
from training.checkpoint import Run
from training.data import BOS, Dialogue, encode, load_tokenizer
from training.export import read_master
from training.model import Model

SOURCES = ("third-party", "task", "small", "free", "faq", "kiosk")
THIRD_PARTY = ("task", "small", "free")
LONGEST = 1024  # tokens of a dialogue that are looked at
_TOGETHER = 4096  # tokens of a batch

#: what encode() writes as weight, to tell the turns apart
_ROLES = {"system": 0.0, "user": 1.0, "assistant": 2.0}


@dataclass
class Score:
    """Sums over dialogues."""

    nats: float = 0.0
    tokens: int = 0
    n_byte: int = 0
    answer_nats: float = 0.0  # of assistant turns with their end, without the header
    answer_tokens: int = 0

    def __add__(self, other: Score) -> Score:
        return Score(*(a + b for a, b in zip(astuple(self), astuple(other))))

    @property
    def bits_per_byte(self) -> float:
        return self.nats / math.log(2) / self.n_byte

    def row(self, name: str) -> str:
        """A line of a Markdown table."""
        return (f"| {name} | {self.nats / self.tokens:.3f} | {self.bits_per_byte:.3f} "
                f"| {self.answer_nats / self.answer_tokens:.3f} | {self.tokens} |")  # fmt: skip


HEADER = "| source | nats/token | bits/byte | assistant turns, nats/token | tokens |\n|---|---|---|---|---|"


def held_out(source: str, n: int = 150, split: str = "test", seed: int = 0) -> list[Dialogue]:
    """``n`` dialogues of a source, or of all that are not ours ("third-party")."""
    if source in corpus.PRINTED:
        stream: Iterator[Dialogue] = corpus.dialogues(source, split, seed)
        return [next(stream) for _ in range(n)]
    names = THIRD_PARTY if source == "third-party" else (source,)
    every = [dialogue for name in names for dialogue in corpus.dialogues(name, split, seed)]
    return random.Random(seed).sample(every, min(n, len(every)))


def without_style(dialogue: Dialogue) -> Dialogue:
    """Without the system turn that names a third-party source, which the pilots do not know."""
    return [turn for turn in dialogue if turn[0] != "system" or not turn[1].startswith("Style: ")]


@torch.no_grad()
def score(model: Model, tokenizer: str, dialogues: Sequence[Dialogue]) -> Score:
    """How well a model predicts dialogues, in float32 as the engine computes."""
    bpe = load_tokenizer(tokenizer)
    rows, n_byte = [], []
    for dialogue in dialogues:
        one = encode(bpe, dialogue, _ROLES)
        system = sum(len(encode(bpe, [turn], _ROLES).ids) for turn in dialogue if turn[0] == "system")
        kind = [-1.0] * (1 + system) + one.weight[system:]
        rows.append(([BOS, *one.ids][:LONGEST], kind[:LONGEST]))
        n_byte.append(_bytes(bpe, dialogue, LONGEST - 1))
    total = Score(n_byte=sum(n_byte))
    for batch in _batches(rows):
        length = max(len(ids) for ids, _ in batch)
        ids = torch.tensor([ids + [0] * (length - len(ids)) for ids, _ in batch])
        kind = torch.tensor([kind + [-1.0] * (length - len(kind)) for _, kind in batch])[:, 1:]
        logits = model(ids)[:, :-1]
        nats = F.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten(), reduction="none").view_as(kind).double()
        total.nats += nats[kind >= 0].sum().item()
        total.tokens += int((kind >= 0).sum())
        total.answer_nats += nats[kind == _ROLES["assistant"]].sum().item()
        total.answer_tokens += int((kind == _ROLES["assistant"]).sum())
    return total


def _bytes(bpe: object, dialogue: Dialogue, most: int) -> int:
    """Bytes of the user's and the assistant's text within the first ``most`` tokens, turns cut in proportion."""
    used, n_byte = 0, 0.0
    for turn in dialogue:
        n = len(encode(bpe, [turn], _ROLES).ids)  # type: ignore[arg-type]
        if turn[0] != "system":
            n_byte += len(turn[1].strip().encode()) * max(0, min(n, most - used)) / n
        used += n
    return round(n_byte)


def _batches(rows: list[tuple[list[int], list[float]]]) -> Iterator[list[tuple[list[int], list[float]]]]:
    """Rows of like length together."""
    batch: list[tuple[list[int], list[float]]] = []
    for row in sorted(rows, key=lambda row: len(row[0])):
        if batch and (len(batch) + 1) * len(row[0]) > _TOGETHER:
            yield batch
            batch = []
        batch.append(row)
    if batch:
        yield batch


def load(folder: str, checkpoint: str = "last.pt") -> tuple[Model, str]:
    """The model and its tokenizer.json, of a run or of a Hugging Face directory."""
    run = Run(folder)
    model = run.model(checkpoint) if run.settings else read_master(Path(folder))
    return model.eval(), run.tokenizer


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model")
    parser.add_argument("sources", nargs="*", default=SOURCES)
    parser.add_argument("--checkpoint", default="last.pt")
    parser.add_argument("--dialogues", type=int, default=150, help="of each source")
    parser.add_argument("--split", default="test")
    parser.add_argument("--no-style", action="store_true", help="third-party dialogues without their style line")
    given = parser.parse_args()
    model, tokenizer = load(given.model, given.checkpoint)
    print(HEADER)
    for source in given.sources:
        dialogues = held_out(source, given.dialogues, given.split)
        if given.no_style:
            dialogues = [without_style(dialogue) for dialogue in dialogues]
        print(score(model, tokenizer, dialogues).row(source))
        sys.stdout.flush()


if __name__ == "__main__":
    main()
