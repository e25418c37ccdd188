"""``python -m training.copying RUN``: does the model look at what it has to copy?

A guest says a name or orders a thing, the answer repeats it.  For every token of it in the answer (teacher forced, so
that one slip does not spoil the next): is it the arg-max, and how much attention does each head put on its first
occurrence from the place that predicts it?  Reported are the strongest head over all tokens, its mean mass where the
copy is right and where it is wrong, by the place of the token and by the number of tokens that the name or thing is
cut into, and what is copied wrong.  Names and things are those of the exam, which nobody learned.
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
from training.exam.goods import MENUS
from training.grammar.text import plural
from training.heldout import NAMES

#: what is copied -> the frames it is copied in
FRAMES = {
    "name": [
        ("My name is {x}.", "Hello, {x}! What can I do for you?"),
        ("Hello, I'm {x}.", "Hello, {x}! What can I do for you?"),
    ],
    "thing": [
        ("I'd like one {x}.", "One {x}. Anything else?"),
        ("Can I get one tea and one {x}?", "One tea and one {x}. Anything else?"),
    ],
    "plural": [
        ("I'd like two {x}.", "Two {x}. Anything else?"),
        ("Can I get one tea and 3 medium {x}?", "One tea and three medium {x}. Anything else?"),
    ],
}
_THINGS = [item for items in MENUS.values() for item in items.split("|")]
VALUES = {"name": NAMES, "thing": _THINGS, "plural": [plural(item) for item in _THINGS]}
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


def tokens_of(run: Run, kind: str, values: Sequence[str]) -> Iterator[dict[str, Any]]:
    """One record for each token to be copied: right, place, n_tokens, and ``mass`` [heads] on its first occurrence."""
    model, tokenizer = run.model().eval(), load_tokenizer(run.tokenizer)
    for value in values:
        part = tokenizer.encode(" " + value).ids
        for said, answer in FRAMES[kind]:
            turns = [("user", said.replace("{x}", value)), ("assistant", answer.replace("{x}", value))]
            ids = [BOS, *encode(tokenizer, turns, _EVEN).ids]
            source = find(ids, part)
            copy = find(ids, part, source + len(part))
            if source < 0 or copy < 0:  # cut differently in its two places
                continue
            logits, mass = watched(model, ids)
            for i, token in enumerate(part):
                at = copy + i - 1  # predicts the token at copy + i
                yield {"value": value, "right": bool(logits[at].argmax() == token), "place": i, "n_tokens": len(part),
                       "mass": mass[:, at, source + i]}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run")
    run = Run(parser.parse_args().run)
    for kind, values in VALUES.items():
        _report(kind, list(tokens_of(run, kind, values)))


def _report(kind: str, found: Sequence[dict[str, Any]]) -> None:
    """The table of one kind."""
    strongest = torch.stack([each["mass"] for each in found]).mean(0)
    head = int(strongest.argmax())
    best = ", ".join(f"{int(i)}: {float(strongest[i]):.2f}" for i in strongest.argsort(descending=True)[:4])
    print(f"heads by mean mass on the token to copy: {best} (of {len(strongest)})")
    groups: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for each in found:
        groups["all"].append(each)
        groups["first token" if each["place"] == 0 else "second token" if each["place"] == 1 else "later"].append(each)
        groups[f"{kind} of {each['n_tokens']} tokens"].append(each)
    print(f"\n| tokens | n | right | mass of head {head} where right | where wrong |\n|---|---|---|---|---|")
    lengths = sorted((key for key in groups if key.startswith(kind)), key=lambda key: int(key.split()[2]))
    for name in ("all", "first token", "second token", "later", *lengths):
        group = groups[name]
        if not group:
            continue
        means = []
        for right in (True, False):
            masses = [float(each["mass"][head]) for each in group if each["right"] is right]
            means.append(f"{sum(masses) / len(masses):.2f}" if masses else "-")
        share = sum(each["right"] for each in group) / len(group)
        print(f"| {name} | {len(group)} | {share:.1%} | {means[0]} | {means[1]} |")
    wrong = sorted({each["value"] for each in found if not each["right"]})
    print(f"\nwith a token wrong: {', '.join(wrong) or 'none'}\n")


if __name__ == "__main__":
    main()
