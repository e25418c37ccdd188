"""From dialogues in JSON lines to rows of tokens.

A line is ``{"messages": [{"role": "user", "content": "Hello"}, {"role": "assistant", ...}, ...]}``; roles are system,
user and assistant.  Turns are written as the chat template "bitnet-edge" writes them: ``User: Hello<|eot_id|>``.
"""

from __future__ import annotations

import itertools
import json
from array import array
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import torch
from tokenizers import Tokenizer
from torch import Tensor

Dialogue = Sequence[tuple[str, str]]  # (role, text)

#: how much a token counts in the loss, by who says it: answers are to be learned
WEIGHT = {"assistant": 1.0, "user": 0.3, "system": 0.1}
BOS, EOT, END = 0, 1, 2  # ids of training.tokenizer.CONTROL
_TOGETHER = 1000  # dialogues that are tokenised together, on all cores


def read(paths: Iterable[Path]) -> Iterator[Dialogue]:
    """The dialogues of some files.  Raises OSError, and ValueError with file and line for one that has another form."""
    for path in paths:
        with path.open(encoding="utf-8") as file:
            for number, line in enumerate(file, 1):
                try:
                    dialogue = [(message["role"], message["content"]) for message in json.loads(line)["messages"]]
                    if not dialogue or not all(role in WEIGHT and isinstance(text, str) for role, text in dialogue):
                        raise ValueError
                except (ValueError, LookupError, TypeError):
                    raise ValueError(f'{path}, line {number}: not {{"messages": [{{"role": "user", "content": "..."}}, '
                                     f'...]}} with the roles {", ".join(WEIGHT)}') from None
                yield dialogue


def turns(dialogue: Dialogue) -> list[str]:
    """Its turns as the template writes them, without the token that ends each."""
    return [f"{role.capitalize()}: {text.strip()}" for role, text in dialogue]


def encode(tokenizer: Tokenizer, *dialogues: Dialogue) -> tuple[array[int], array[float], list[int]]:
    """Tokens of all dialogues, their weights in the loss, and the length of each dialogue."""
    ids, weight, lengths = array("i"), array("f"), []
    encoded = iter(tokenizer.encode_batch_fast([turn for dialogue in dialogues for turn in turns(dialogue)]))
    for dialogue in dialogues:
        begin = len(ids)
        for (role, _), turn in zip(dialogue, encoded):
            ids.extend([*turn.ids, EOT])
            weight.extend([WEIGHT[role]] * (len(turn.ids) + 1))
        lengths.append(len(ids) - begin)
    return ids, weight, lengths


class Rows:
    """Dialogues in memory as tokens, and rows of them without end.

    A row is BOS, then dialogues, END after each, until it is full; the last one is cut.  So each begins as at
    inference: with the beginning of a dialogue after the only BOS.  Each epoch has an order of its own, given by the
    seed: the next row depends on nothing but ``drawn``, the number of dialogues taken so far.  Set it to go on from
    there.
    """

    def __init__(self, tokenizer: Tokenizer, dialogues: Iterable[Dialogue], seed: int) -> None:
        ids, weight, ends = array("i"), array("f"), [0]
        dialogues = iter(dialogues)
        while group := list(itertools.islice(dialogues, _TOGETHER)):
            more, theirs, lengths = encode(tokenizer, *group)
            ids += more
            weight += theirs
            ends += itertools.accumulate(lengths, initial=ends.pop())
        if not ids:
            raise ValueError("the text has no dialogue")
        self.ids = torch.frombuffer(ids, dtype=torch.int32)  # [token] of all dialogues
        self.weight = torch.frombuffer(weight, dtype=torch.float32)  # [token]
        self.ends = ends  # dialogue i is ids[ends[i]:ends[i + 1]]
        self.seed, self.drawn = seed, 0
        self.epoch, self.order = -1, torch.empty(0)

    def __len__(self) -> int:
        return len(self.ends) - 1

    def next_dialogue(self) -> tuple[int, int]:
        """Where its tokens begin and end."""
        epoch, index = divmod(self.drawn, len(self))
        if epoch != self.epoch:
            generator = torch.Generator().manual_seed(self.seed * 1_000_003 + epoch)
            self.epoch, self.order = epoch, torch.randperm(len(self), generator=generator)
        self.drawn += 1
        chosen = int(self.order[index])
        return self.ends[chosen], self.ends[chosen + 1]

    def batch(self, n_row: int, length: int) -> tuple[Tensor, Tensor, Tensor]:
        """The next rows: ids and targets int64, each target's weight float32; all [n_row, length]."""
        ids = torch.full((n_row, length + 1), END)
        weight = torch.full((n_row, length + 1), WEIGHT["user"])
        ids[:, 0] = BOS
        for row in range(n_row):
            at = 1
            while at <= length:
                begin, end = self.next_dialogue()
                end = min(end, begin + length + 1 - at)
                ids[row, at : at + end - begin] = self.ids[begin:end]
                weight[row, at : at + end - begin] = self.weight[begin:end]
                at += end - begin + 1  # END stands after it
        return ids[:, :-1], ids[:, 1:], weight[:, 1:]
