"""The kiosk's own dialogues, printed fresh from a seed: no two epochs see the same.

The guest's side is varied as far as the patterns go; the assistant's side is a function of what is visible (the facts
turn and what was said), so that a model can learn it to a low loss.  The assistant repeats what it heard, letter by
letter, asks for one thing at a time, answers from the facts, and says so where it does not know.
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

from training.grammar import (
    booking,
    desks,
    echo,
    facts,
    menu,
    names,
    notes,
    off_topic,
    offers,
    order,
    plans,
    rude,
    shop,
    talk,
)
from training.grammar.text import Voice
from training.heldout import clean

Dialogue = list[tuple[str, str]]  # (role, text); role: system, user, assistant
Turns = list[tuple[str, str]]  # (what the guest says, what the assistant answers)

__all__ = ["Dialogue", "dialogues", "echoes"]


def dialogues(seed: int, split: str = "train", visits: int | None = None) -> Iterator[Dialogue]:
    """Endless kiosk dialogues; ``split``: train, valid or test, which share no names, titles and combinations.

    ``visits``: how many guests come one after the other in one dialogue, each some 120 tokens; None: mostly one.
    """
    rng = Random(f"kiosk {split} {seed} {visits}")
    while True:
        dialogue = _kiosk(rng, split, visits or rng.choices((1, 2, 3), (90, 7, 3))[0])
        if dialogue[1:] and clean(" ".join(text for _, text in dialogue)):
            yield dialogue


def echoes(seed: int, split: str = "train") -> Iterator[Dialogue]:
    """Endless copy exercises."""
    rng = Random(f"echo {split} {seed}")
    while True:
        facts, turns = echo.draw(rng, split)
        dialogue = _written(facts, turns)
        if turns and clean(" ".join(text for _, text in dialogue)):
            yield dialogue


def _written(facts: str, turns: list[tuple[str, str]]) -> Dialogue:
    found: Dialogue = [("system", facts)] if facts else []
    for asked, reply in turns:
        found += [("user", asked), ("assistant", reply)]
    return found


def _kiosk(rng: Random, split: str, visits: int) -> Dialogue:
    """Guests, one after the other, at the same kiosk."""
    kinds = rng.choices((shop.GOODS_OF, desks.COMMON, shop.NAMES_OF, offers.TRADES), (38, 20, 19, 23))[0]
    kind = rng.choice(list(kinds))
    here = facts.draw(rng, split, kind, told=0.72 if visits == 1 else 0.95)
    turns: Turns = []
    for _ in range(visits):
        turns += _visit(rng, split, here, whole=visits > 1)
    return _written(here.facts, turns)


def _visit(rng: Random, split: str, here: shop.Shop, whole: bool) -> Turns:
    """A greeting, questions, an order or a booking, thanks; each may be missing; ``whole``: nothing is broken off."""
    voice, name = Voice(rng), ""
    parts: list[Turns] = []
    if rng.random() < 0.22:
        parts.append(talk.greeting(rng, voice, here))
    if rng.random() < 0.23:
        parts.append(names.introduction(rng, voice, split))
        name = parts[-1][0][1].removeprefix("Hello, ").partition("!")[0]
        if rng.random() < 0.3:
            parts.append(names.who(rng, voice, name) if rng.random() < 0.7 else rude.turns(rng, voice, split))

    dealing = False  # a name may have been given

    def question() -> Turns:
        if rng.random() < (0.46 if here.hours else 0.27):
            return plans.turns(rng, voice, here.hours, here.today)
        if rng.random() < (0.34 if here.prices else 0.08):
            return menu.price_turns(rng, voice, here, split)
        asks = rng.random()
        if asks < 0.27:
            return notes.note_turns(rng, voice, here)
        if asks < 0.57:
            return off_topic.turns(rng, voice, split)
        if asks < 0.71:
            return rude.turns(rng, voice, split)
        if asks < 0.81:
            return talk.aside(rng, voice)
        if asks < 0.84:
            return talk.joke(rng, voice)
        if asks < 0.90 and not (name or whole or dealing):
            return names.recall(rng, voice, "")
        if here.kind in shop.GOODS_OF:
            return menu.allergy_turns(rng, voice, here, split)
        return notes.note_turns(rng, voice, here)

    for _ in range(rng.choices((0, 1, 2, 3), (30, 40, 20, 10))[0]):
        parts.append(question())
    if here.prices and not here.orders and here.kind in shop.GOODS_OF:
        parts.append(menu.price_drill(rng, voice, here))
    elif rng.random() < 0.62 or not parts:
        dealing = True
        deal = order.turns if here.kind in shop.GOODS_OF else booking.turns
        parts.append(deal(rng, voice, here, split, question, name, whole))
    if name and rng.random() < 0.5:
        parts.append(names.recall(rng, voice, name))
    if rng.random() < 0.2 and not (whole and name):
        parts.append(question())
    if rng.random() < 0.25:
        parts.append(talk.farewell(rng, voice))
    return [turn for part in parts for turn in part]
