"""What a desk offers, as its facts tell: Single kayak $20, double kayak $32; terrace and indoor tables."""

from __future__ import annotations

from random import Random

from training.grammar import offers, tariff
from training.grammar.shop import Shop
from training.grammar.text import expand, listed, sentence

_UNITS = {
    "visit": ("", "", "", " for 30 minutes", " per visit"), "course": (" a lesson", " per person", "", " a term"),
    "hire": (" a day", " an hour", " per hour", " half a day", " a week"), "room": (" a night", " per night", ""),
    "table": (" per person", "", " each"), "ticket": ("", "", " each"), "hold": (" a week", "", " each"),
}  # fmt: skip
_ALSO = [
    "by appointment only", "please book ahead", "bookings here", "members book first", "helmets included",
    "groups up to [ten|twelve|fifteen|twenty]", "seats can be reserved free of charge", "students welcome",
    "life jackets on board", "cash or card", "dogs welcome", "please be here ten minutes early", "book at this desk",
    "at most [two|three] hours a day", "please bring a towel", "[parking|towels|shoes|tea] included", "ask for groups",
]
_HEADS = ("", "", "", "Prices: ", "We offer ", "On offer: ", "Book here: ", "Our desk: ", "We have ", "Services: ")


def written(rng: Random, split: str, shop: Shop) -> str:
    """Two to five things of the desk's trade, most often with prices, which ``shop`` knows then."""
    trade = offers.TRADES[shop.kind]
    amount, unit = tariff.amounts(rng, shop.sign), rng.choice(_UNITS[trade.form])
    priced = rng.random() < 0.65
    rows: list[str] = []
    labels: list[str] = []
    for _ in range(rng.randint(2, 5)):
        before, head = offers.thing(rng, split, trade)
        label = f"{before} {head}".strip()
        if any(label in other or other in label for other in labels):
            continue
        labels.append(label)
        if trade.form != "hold":
            shop.offers.append((before, head))
        if priced:
            shop.prices[label] = amount() + unit
            rows.append(f"{label} {shop.prices[label]}")
        else:
            rows.append(offers.children(2, label) if trade.form in ("hire", "room", "ticket") else label)
    head = rng.choice(_HEADS)
    text = listed(rows) if rng.random() < 0.4 else ", ".join(rows)
    text = head + text if head else sentence(text)
    return text + (f". {sentence(expand(rng, rng.choice(_ALSO)))}" if rng.random() < 0.4 else "")
