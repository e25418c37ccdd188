"""Questions about prices: by name, by part of it, by what is needed; and the one answer."""

from __future__ import annotations

from random import Random

from training.grammar import words
from training.grammar.shop import Shop
from training.grammar.tariff import UNITS, names_of
from training.grammar.text import expand, plural, sentence

ASK = [
    "how much is {x}?", "how much for {x}?", "what does {x} cost?", "what's the price of {x}?",
    "what do you [charge|ask|want|take] for {x}?", "{x}, how much?", "how much would {x} be?",
    "what's the damage for {x}?", "{x}, what's the [price|cost]?", "then {x} [makes|make] what?",
    "what [are you asking|do i pay|must i pay|would i pay|will you take] for {x}?",
    "how [dear|pricey|cheap|steep] [is|are] {x}?",
    "do you charge extra for {x}? how much?", "there is no [tag|price|sticker] on {x}. what is it?",
    "what'll {x} [cost me|run me|set us back]?", "{x} [please|], what is that?",
    "my [brother|sister|friend|son|daughter|mother|boss|wife|husband|little one] wants {x}, what's that?",
    "if i [add|take|get|choose] {x}, what is that?", "[i need|i want|we need] {x}. how much is that?",
    "[i lost|i broke|i forgot] mine. what would {x} be?", "how many [dollars|euros|bucks] would {x} be?",
    "how much [must|do] i [put down|hand over|bring|have to pay] for {x}?",
    "[price|cost] [for|of] {x}[, please|?|]", "could you look up {x} for me? the price, i mean.",
    "what would {x} cost [me|us|today|here]?", "i was wondering what {x} [costs|cost|would cost].",
    "do you know what {x} [costs|would be|comes to]?", "{x}. price?", "what's {x}?", "what is {x} [here|at yours]?",
    "tell me what you take for {x}[, please|].", "so what [is|would be] the price for {x}?",
    "i only have a little cash. what is {x}?", "is {x} under ten [dollars|euros]? what is it?",
    "can i afford {x}? how much?", "the price [tag|list] is too small for me. {x}?",
    "what would you take off me for {x}?", "what sort of money are we talking for {x}?", "{x}, quanto costa? how much?",
    "what do i owe you for {x}?", "how much do you sell {x} for?", "what's the going rate for {x}?",
    "my {t} is [dying|broken|gone|wet|empty|too small|lost|dirty]. how much is {x}?",
    "do you [have|sell|do] {x}, and for how much?", "i [came|am here] [only |just |]for {x}. what [do i pay|is it]?",
    "[we|i] have [no|a] {t}, so [how much is|what would be|what's] {x}?", "{x} for my {t}, how much is [it|that]?",
    "[with|without] {t} or not, what does {x} cost?", "[the {t} looks nice but|never mind the {t},] how much is {x}?",
]  # fmt: skip
AND = ["[and|what about|how about|and what about|then] {x}?", "{x}?", "and {x}, [how much|what price]?"]
UNIT = [
    "what would {x} come to {u}?", "how much is {x} {u}?", "{x} {u}, how much?", "what is the rate {u} for {x}?",
    "what do you charge {u} for {x}?", "{x} for {v}, what is that?",
]  # fmt: skip
DO = [
    "i need my {x} {done}. what's that?", "how much to [get|have] my {x} {done}?",
    "i [only |just |]want my {x} {done}, what is that?", "what does it cost to have my {x} {done}?",
    "can i get my {x} {done}, and how much is it?", "my {x} [should be|must be|has to be] {done}. how much?",
    "what's the damage for getting my {x} {done}?", "i'd like my {x} {done}. what do you charge?",
    "could you get my {x} {done}? what would it cost?", "what do you take for a {x} to be {done}?",
    "want my {x} {done}, how much is that", "how much would you want if my {x} gets {done}?",
]  # fmt: skip
WHO = [
    "must i pay for my {x}, and how much?", "what does [a|my|one] {x} pay?", "how much for [a|one|my] {x}?",
    "how much is it for [a|one|my|the] {x}?", "is it extra for my {x}? how much?", "i have my {x} with me. how much?",
    "what do you charge for [a|one|my] {x}?", "price for [a|one] {x}[, please|?]", "the {x}, what's the price?",
    "what does it cost for [a|my] {x}?", "does my {x} [go|come|get in] free, or what is the price?",
    "what would a {x} have to pay?", "one {x}, how much is that?", "how much for [a|one] {x} ticket?",
    "what do {xs} pay?", "how much are {xs}?", "is there a price for {xs}? what is it?",
    "i'm here with my {x}. do we pay, and how much?",
]  # fmt: skip
HIRE = [
    "i forgot my {x}. how much would it be to [hire|rent|borrow] one?", "can i [rent|hire|borrow] a {x}? how much?",
    "what does it cost to [rent|hire|borrow] a {x}?", "how much to [hire|rent] a {x}?",
    "i don't have a {x} with me. how much is one here?", "i left my {x} at home, what would one be?",
    "we need a {x}. what do you charge?", "how much is a {x} to [hire|rent|borrow]?", "a {x} for us, what's that?",
    "do you [lend|rent out|hire out] {xs}, and for how much?", "my {x} is [broken|gone|at home], what's one here?",
]  # fmt: skip


def ask(rng: Random, shop: Shop, label: str, after: bool = False) -> tuple[str, dict[str, str]]:
    """A pattern and what fills it: one way to ask for a thing of the list; ``after`` another it may be short."""
    call = rng.choice(shop.calls.get(label) or names_of(label))
    if call[0] == "+":
        thing, _, done = call[1:].partition("|")
        return rng.choice(DO), {"x": thing, "done": done}
    if call[0] in "~%":
        pattern, x = expand(rng, rng.choice(WHO if call[0] == "~" else HIRE)), call[1:]
        if x[0] in "aeiou":
            pattern = pattern.replace("a {x}", "an {x}")
        if x.startswith("pair of") or not x.endswith("s"):
            return pattern, {"x": x, "xs": plural(x)}
        return pattern.replace("a {x}", "{x}"), {"x": x, "xs": x}
    unit = next((each for each in UNITS if shop.prices[label].endswith(" " + each)), "")
    if unit and rng.random() < 0.25:
        return rng.choice(UNIT), {"x": call, "u": unit, "v": unit.removeprefix("per ").removeprefix("for ")}
    pattern = rng.choice(AND if after and rng.random() < 0.3 else ASK)
    listed = " ".join(shop.prices).lower()
    other = rng.choice([word for word in words.THINGS if word not in listed])
    return pattern, {"x": call, **({"t": other} if "{t}" in pattern else {})}


def answer(shop: Shop, label: str) -> str:
    """Large popcorn: $7.25. Both as the facts write them."""
    return f"{sentence(label)}: {shop.prices[label].rstrip('.')}."
