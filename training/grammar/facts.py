"""The "facts" turn: what the assistant is told of the shop before anybody speaks."""

from __future__ import annotations

from random import Random

from training.grammar import catalogue, menu, offers, plans, tariff, values
from training.grammar import hours as opening
from training.grammar.house import rule
from training.grammar.notes import NOTES
from training.grammar.shop import GOODS_OF, NAMES_OF, Shop, house_name
from training.grammar.text import expand, sentence


def draw(rng: Random, split: str, kind: str, told: float = 0.62) -> Shop:
    """A shop of a kind; ``told``: the chance that the assistant is given any facts at all."""
    shop = Shop(kind)
    if rng.random() > told:
        return shop
    shop.sign = rng.choices(("$", "€", "£"), (70, 18, 12))[0]
    parts: list[str] = []
    front = ""
    if rng.random() < 0.62:
        shop.hours = plans.draw(rng)
        text = plans.written(rng, shop.hours)
        if rng.random() < 0.25 and isinstance(shop.hours, opening.Hours):
            shop.today = rng.randrange(7)
            today = expand(rng, f"[today is|today is|it is|the day is|today:] {values.DAYS[shop.today]}")
            kind_of = rng.random()
            if kind_of < 0.4:
                front = sentence(today)
            else:
                text = f"{today}. {sentence(text)}" if kind_of < 0.7 else f"{text}. {sentence(today)}"
        parts.append(text)
    listed = rng.random()
    if listed < (0.16 if kind in GOODS_OF else 0.45):
        parts.append(tariff.written(rng, split, shop))
    elif kind in offers.TRADES and listed < 0.8:
        parts.append(catalogue.written(rng, split, shop))
    elif kind in GOODS_OF and listed < 0.72:
        parts.append(menu.written(rng, split, shop))
        if rng.random() < 0.4:
            parts.append(menu.contents(rng, shop))
    elif kind in GOODS_OF and listed < 0.84:
        parts.append(menu.shelf(rng, split, shop))
    for topic in rng.sample(list(NOTES), rng.choices((0, 1, 2, 3), (35, 30, 22, 13))[0]):
        text, shop.notes[topic] = NOTES[topic][0](rng, split)
        parts.append(text)
    if rng.random() < 0.3:
        parts += [rule(rng, shop) for _ in range(rng.choice((1, 1, 2)))]
    rng.shuffle(parts)
    named = rng.random()
    house = expand(rng, "[" + NAMES_OF[kind] + "]")
    a_house = ("an " if house[0] in "aeiou" else "a ") + house
    if named < 0.55:
        shop.name = house_name(rng, split)
        intro = expand(
            rng,
            f"you are the [kiosk|assistant|order desk|helper|voice] [of|at|in] [the |]{shop.name}[, {a_house}|]|"
            f"you work at {shop.name}[, {a_house}|]|{shop.name}, {house}|welcome to {shop.name}|"
            f"facts about {shop.name}|this is {shop.name}[, {a_house}|]|kiosk of {shop.name}|{house} {shop.name}",
        )
    elif named < 0.85:
        intro = expand(
            rng,
            f"you are the [kiosk|assistant|helper|order desk] [of|in|at] {a_house}|kiosk of {a_house}|"
            f"you work in {a_house}|{house}|this is {a_house}|facts",
        )
    else:
        intro = ""
    if intro == house and not parts:
        intro = f"you work in {a_house}"  # a house alone is no fact of anything
    if intro:
        parts.insert(0, intro)
    if front:
        parts.insert(0, front)
    joint = rng.choices((". ", "\n", "; "), (80, 12, 8))[0]
    if joint == "; ":
        parts = [part.replace("; ", ", ") for part in parts]
    shop.facts = joint.join(sentence(part) if joint != "; " else part for part in parts)
    if shop.facts and joint != "\n" and shop.facts[-1] not in ".?!":
        shop.facts += "."
    shop.facts = sentence(shop.facts.replace("..", "."))
    return shop
