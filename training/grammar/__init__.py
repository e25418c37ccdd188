"""The kiosk's own dialogues, printed fresh from a seed: no two epochs see the same.

The guest's side is varied as far as the patterns go; the assistant's side is a function of what is visible (the facts
turn and what was said), so that a model can learn it to a low loss.  The assistant repeats what it heard, letter by
letter, asks for one thing at a time, answers from the facts, and says so where it does not know.
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

from training.grammar import booking, echo, order, shop, talk
from training.grammar import hours as opening
from training.grammar.text import Voice
from training.heldout import clean

Dialogue = list[tuple[str, str]]  # (role, text); role: system, user, assistant

__all__ = ["Dialogue", "dialogues", "echoes"]


def dialogues(seed: int, split: str = "train") -> Iterator[Dialogue]:
    """Endless kiosk dialogues; ``split``: train, valid or test, which share no names, titles and combinations."""
    rng = Random(f"kiosk {split} {seed}")
    while True:
        dialogue = _kiosk(rng, split)
        if clean(" ".join(text for _, text in dialogue)):
            yield dialogue


def echoes(seed: int, split: str = "train") -> Iterator[Dialogue]:
    """Endless copy exercises."""
    rng = Random(f"echo {split} {seed}")
    while True:
        facts, turns = echo.draw(rng, split)
        dialogue = _written(facts, turns)
        if clean(" ".join(text for _, text in dialogue)):
            yield dialogue


def _written(facts: str, turns: list[tuple[str, str]]) -> Dialogue:
    found: Dialogue = [("system", facts)] if facts else []
    for asked, reply in turns:
        found += [("user", asked), ("assistant", reply)]
    return found


def _kiosk(rng: Random, split: str) -> Dialogue:
    """One visit: a greeting, questions, an order or a booking, asides, thanks; each part may be missing."""
    voice = Voice(rng)
    kind = rng.choice(list(shop.NAMES_OF))
    if rng.random() < 0.45:
        kind = rng.choice(list(shop.GOODS_OF))
    here = shop.draw(rng, split, kind)
    parts: list[list[tuple[str, str]]] = []
    if rng.random() < 0.22:
        parts.append(talk.greeting(rng, voice, here))
    name = ""
    if rng.random() < 0.08:
        parts.append(talk.introduction(rng, voice, split))
        name = parts[-1][0][1].removeprefix("Hello, ").partition("!")[0]

    def question() -> list[tuple[str, str]]:
        asks = rng.random()
        if asks < 0.42:
            return opening.turns(rng, voice, here.hours, here.today)
        if asks < 0.58:
            return shop.note_turns(rng, voice, here)
        if asks < 0.70:
            return talk.off_topic(rng, voice, split)
        if asks < 0.80:
            return talk.aside(rng, voice)
        if asks < 0.83:
            return talk.joke(rng, voice)
        if asks < 0.86 and not name:
            return talk.recall(rng, voice, "")
        if kind not in shop.GOODS_OF:
            return opening.turns(rng, voice, here.hours, here.today)
        if asks < 0.93:
            return shop.price_turns(rng, voice, here, split)
        return shop.allergy_turns(rng, voice, here, split)

    for _ in range(rng.choices((0, 1, 2, 3), (30, 40, 20, 10))[0]):
        parts.append(question())
    if rng.random() < 0.62 or not parts:
        if kind in shop.GOODS_OF:
            parts.append(order.turns(rng, voice, here, split, name))
        else:
            parts.append(booking.turns(rng, voice, here, split, name))
    if name and rng.random() < 0.5:
        parts.append(talk.recall(rng, voice, name))
    if rng.random() < 0.2:
        parts.append(question())
    if rng.random() < 0.25:
        parts.append(talk.farewell(rng, voice))
    return _written(here.facts, [turn for part in parts for turn in part])
