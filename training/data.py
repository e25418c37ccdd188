"""From dialogues to batches: drawing, tokenising, packing into rows, weighing.

A batch depends on the seed, its number and the phase only, so a resumed run sees what an uninterrupted one would have
seen.  Steps go in blocks: with each block the printed sources start over from a new seed, so going on means to begin
one block again and skip within it.  A run always has ``SHARDS`` streams of rows, however many processes share them.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import torch
from tokenizers import Tokenizer
from torch import Tensor

from training import corpus
from training.schedule import Phase, phase

Dialogue = Sequence[tuple[str, str]]  # (role, text): system, user or assistant

BOS, EOT, END = 0, 1, 2  # ids; END stands between two dialogues of a row and fills its rest
SHARDS = 2
_STEPS = 32  # of a block
_PENDING = 48  # dialogues to choose from when a row is filled


def seed_of(*parts: object) -> int:
    """A number of 63 bits from anything printable, the same on every machine."""
    return int.from_bytes(hashlib.sha256(repr(parts).encode()).digest()[:8], "big") >> 1


@dataclass
class Encoded:
    """One dialogue as tokens, with the weight of each in the loss."""

    ids: list[int]
    weight: list[float]


def encode(tokenizer: Tokenizer, dialogue: Dialogue, weights: Mapping[str, float]) -> Encoded:
    """Tokens as edge.prompt.template makes them, without BOS; text and end of a turn count by its role's weight."""
    ids, weight = [], []
    headers = [f"{role.capitalize()}:" for role, _ in dialogue]
    texts = [f"{header} {text.strip()}" for header, (_, text) in zip(headers, dialogue)]
    encoded = zip(tokenizer.encode_batch_fast(headers), tokenizer.encode_batch_fast(texts))
    for (role, _), (head, turn) in zip(dialogue, encoded):
        given = len(head.ids)  # the template writes these
        ids += [*turn.ids, EOT]
        weight += [weights["user"]] * given + [weights[role]] * (len(turn.ids) + 1 - given)
    return Encoded(ids, weight)


def load_tokenizer(path: str) -> Tokenizer:
    """Read tokenizer.json; control tokens count only where this file writes them."""
    tokenizer = Tokenizer.from_file(path)
    tokenizer.encode_special_tokens = True
    return tokenizer


class Shuffled:
    """A corpus source without end: each epoch in an order of its own, one share of it per shard."""

    def __init__(self, source: str, split: str, seed: int, shard: int) -> None:
        self.texts = list(corpus.dialogues(source, split, seed))[shard::SHARDS]
        self.seed = seed_of(seed, source, shard)
        self.epoch, self.order = -1, [0]

    def __getitem__(self, index: int) -> Dialogue:
        epoch, at = divmod(index, len(self.texts))
        if epoch != self.epoch:
            self.epoch, self.order = epoch, random.Random(seed_of(self.seed, epoch)).sample(range(len(self.texts)),
                                                                                           len(self.texts))  # fmt: skip
        return self.texts[self.order[at]]


@dataclass
class Position:
    """The beginning of a block: its number, the progress of the run, how much of each corpus source had been drawn."""

    block: int = -1
    progress: float = 0.0
    drawn: dict[str, int] = field(default_factory=dict)


class Shard:
    """One stream of rows."""

    def __init__(self, tokenizer: Tokenizer, seed: int, shard: int, split: str = "train",
                 phases: Callable[[float], Phase] = phase) -> None:  # fmt: skip
        self.tokenizer, self.seed, self.shard, self.split, self.phases = tokenizer, seed, shard, split, phases
        self.texts: dict[str, Shuffled] = {}
        self.start = Position()  # of the present block
        self.drawn: dict[str, int] = {}
        self.rows: Iterator[tuple[list[int], list[float]]] = iter(())
        self.step, self.phase = -1, phases(0)

    def batch(self, step: int, tokens: int, progress: float) -> tuple[Tensor, Tensor, Tensor]:
        """ids, targets int64 and weights float32 [row, phase.tokens], about ``tokens`` together, at least one row.

        Steps are asked for in ascending order.  The phase is that of the block's beginning.
        """
        block = step // _STEPS
        if block != self.start.block:
            self.begin(Position(block, progress, dict(self.drawn)))
        rows = max(1, tokens // self.phase.tokens)
        while self.step < step:
            self.step += 1
            taken = [next(self.rows) for _ in range(rows)]
        ids = torch.tensor([ids for ids, _ in taken])
        weight = torch.tensor([weight for _, weight in taken])
        return ids[:, :-1].contiguous(), ids[:, 1:].contiguous(), weight[:, 1:].contiguous()

    def begin(self, position: Position) -> None:
        """Go to the beginning of a block."""
        self.start, self.drawn, self.phase = position, dict(position.drawn), self.phases(position.progress)
        self.step = position.block * _STEPS - 1
        self.rows = self._rows(random.Random(seed_of(self.seed, self.shard, position.block)))

    def _dialogues(self) -> Iterator[Encoded]:
        """Endless: always from the source that is furthest behind its share of the tokens."""
        seed = seed_of(self.seed, self.shard, self.start.block)
        printed = {name: corpus.dialogues(name, self.split, seed_of(seed, name)) for name in corpus.PRINTED}
        tokens = dict.fromkeys(self.phase.mixture, 0)
        while True:
            name = min(tokens, key=lambda name: tokens[name] / self.phase.mixture[name])
            if name in printed:
                dialogue = next(printed[name])
            else:
                if name not in self.texts:
                    self.texts[name] = Shuffled(name, self.split, self.seed, self.shard)
                index = self.drawn.get(name, 0)
                self.drawn[name] = index + 1
                dialogue = self.texts[name][index]
            encoded = encode(self.tokenizer, dialogue, self.phase.weights_of(name))
            tokens[name] += len(encoded.ids)
            yield encoded

    def _rows(self, rng: random.Random) -> Iterator[tuple[list[int], list[float]]]:
        """Rows of BOS, dialogue, END, dialogue, END ...: the oldest waiting dialogue, then the longest that fit."""
        length = self.phase.tokens + 1  # the last token is only a target
        between = self.phase.weights["user"]
        dialogues = self._dialogues()
        pending = [next(dialogues) for _ in range(_PENDING)]
        while True:
            ids, weight = [BOS], [0.0]
            chosen: int | None = 0
            while chosen is not None:
                one = pending.pop(chosen)
                pending.append(next(dialogues))
                if len(one.ids) >= length:
                    one = _cut(one, length - 1, rng)
                ids += [*one.ids, END]
                weight += [*one.weight, between]
                free = length - len(ids)
                fitting = [i for i, other in enumerate(pending) if len(other.ids) <= free]
                chosen = max(fitting, key=lambda i: len(pending[i].ids), default=None)
            rest = length - len(ids)
            yield ids[:length] + [END] * rest, weight[:length] + [0.0] * rest


def _cut(one: Encoded, length: int, rng: random.Random) -> Encoded:
    """A long dialogue's beginning or, as often, its end from the start of a turn."""
    if rng.random() < 0.5:
        return Encoded(one.ids[:length], one.weight[:length])
    starts = [i + 1 for i, token in enumerate(one.ids[:-1]) if token == EOT and len(one.ids) - i - 1 <= length]
    start = starts[0] if starts else len(one.ids) - length
    return Encoded(one.ids[start:], one.weight[start:])
