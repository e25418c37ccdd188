"""``python -m training.copying RUN``: does the model look at what it has to copy?

A guest says a name, the answer repeats it.  For every token of the name in the answer (teacher forced, so that one slip
does not spoil the next): is it the arg-max, and how much attention does each head put on the token's first occurrence
from the place that predicts it?  Reported are the strongest head over all tokens, its mean mass where the copy is right
and where it is wrong, by the place of the token in the name and by the number of tokens the name is cut into.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any
from unittest import mock

import torch
from torch import Tensor

from training import model as models
from training.checkpoint import Run
from training.data import BOS, encode, load_tokenizer
from training.heldout import NAMES

FRAMES = [
    ("My name is {name}.", "Hello, {name}! What can I do for you?"),
    ("Hello, I'm {name}.", "Hello, {name}! What can I do for you?"),
]
_EVEN = {"system": 1.0, "user": 1.0, "assistant": 1.0}


def watched(model: models.Model, ids: Sequence[int]) -> tuple[Tensor, Tensor]:
    """Logits [T, n_vocab] and attention weights [n_layer * n_head, T, T] of one row."""
    seen: list[Tensor] = []
    plain = models.attention

    def attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        keys = k.repeat_interleave(q.shape[1] // k.shape[1], 1)
        score = (q @ keys.mT).float() / q.shape[-1] ** 0.5
        seen.append(score.masked_fill(torch.ones_like(score).triu(1).bool(), -torch.inf).softmax(-1)[0])
        return plain(q, k, v)

    with torch.no_grad(), mock.patch.object(models, "attention", attention):
        logits = model(torch.tensor([list(ids)]))[0]
    return logits, torch.cat(seen)


def find(ids: Sequence[int], part: Sequence[int], start: int = 0) -> int:
    """Where ``part`` stands in ``ids``; -1 if nowhere."""
    return next((i for i in range(start, len(ids) - len(part) + 1) if list(ids[i : i + len(part)]) == list(part)), -1)


def tokens_of(run: Run, names: Sequence[str]) -> Iterator[dict[str, Any]]:
    """One record for each token to be copied: right, place, n_tokens, and ``mass`` [heads] on its first occurrence."""
    model, tokenizer = run.model().eval(), load_tokenizer(run.tokenizer)
    for name in names:
        part = tokenizer.encode(" " + name).ids
        for said, answer in FRAMES:
            turns = [("user", said.replace("{name}", name)), ("assistant", answer.replace("{name}", name))]
            ids = [BOS, *encode(tokenizer, turns, _EVEN).ids]
            source = find(ids, part)
            copy = find(ids, part, source + len(part))
            if source < 0 or copy < 0:  # cut differently in its two places
                continue
            logits, mass = watched(model, ids)
            for i, token in enumerate(part):
                at = copy + i - 1  # predicts the token at copy + i
                yield {"name": name, "right": bool(logits[at].argmax() == token), "place": i, "n_tokens": len(part),
                       "mass": mass[:, at, source + i]}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run")
    found = list(tokens_of(Run(parser.parse_args().run), NAMES))
    strongest = torch.stack([each["mass"] for each in found]).mean(0)
    head = int(strongest.argmax())
    best = ", ".join(f"{int(i)}: {float(strongest[i]):.2f}" for i in strongest.argsort(descending=True)[:4])
    print(f"heads by mean mass on the token to copy: {best} (of {len(strongest)})")
    groups: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for each in found:
        groups["all"].append(each)
        groups["first token" if each["place"] == 0 else "second token" if each["place"] == 1 else "later"].append(each)
        groups[f"name of {each['n_tokens']} tokens"].append(each)
    print(f"\n| tokens | n | right | mass of head {head} where right | where wrong |\n|---|---|---|---|---|")
    names = sorted(key for key in groups if key.startswith("name"))
    for name in ("all", "first token", "second token", "later", *names):
        group = groups[name]
        means = []
        for right in (True, False):
            masses = [float(each["mass"][head]) for each in group if each["right"] is right]
            means.append(f"{sum(masses) / len(masses):.2f}" if masses else "-")
        share = sum(each["right"] for each in group) / len(group)
        print(f"| {name} | {len(group)} | {share:.1%} | {means[0]} | {means[1]} |")


if __name__ == "__main__":
    main()
