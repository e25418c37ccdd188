"""Ordering at a counter: one guest's visit from the first wish to the name."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from training.grammar import correction
from training.grammar import order_words as said
from training.grammar.counter import Counter, Turns
from training.grammar.shop import Shop
from training.grammar.text import Voice


def turns(
    rng: Random, voice: Voice, shop: Shop, split: str, aside: Callable[[], Turns], guest: str = "", whole: bool = False
) -> Turns:
    """One guest's order, from the first wish to the name.

    ``aside``: makes a question in between; ``guest``: a name given before; ``whole``: never broken off.
    """
    counter = Counter(rng, voice, shop, split, guest)
    if rng.random() < 0.06:
        counter.not_sold()
    if not whole and rng.random() < 0.03:
        asked = voice.says(rng.choice(said.READ_BACK[:-2]))
        counter.turns.append((asked, "You have not ordered anything yet. What would you like?"))
    if rng.random() < 0.08:
        counter.ask_stock()
    counter.add(said.WANT)
    if rng.random() < 0.12:
        counter.turns += aside()
    def change() -> None:
        correction.turn(counter)

    for _ in range(rng.choices((0, 1, 2, 3), (30, 38, 22, 10))[0]):
        kind = rng.random()
        if kind < 0.34:
            counter.add(said.MORE)
        elif kind < 0.72:
            correction.turn(counter)
        elif kind < 0.83:
            counter.read_back()
        elif kind < 0.92:
            counter.total()
        elif kind < 0.96:
            counter.ask_stock()
        elif kind < 0.98:
            counter.not_sold()
        elif counter.order.lines:
            counter.clear()
            counter.add(said.WANT)
    if whole or rng.random() < 0.66:
        counter.finish(aside, change)
        if counter.order.lines and rng.random() < 0.1:
            before = len(counter.turns)
            change()
            if len(counter.turns) > before:
                counter.finish(aside)
        if counter.order.lines:
            counter.after(aside)
    return counter.turns
