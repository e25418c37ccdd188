"""The counter: an order and its lines, and one guest who fills it turn by turn."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from random import Random

from training.grammar import menu, names, values, words
from training.grammar import order_words as said
from training.grammar import shop as shops
from training.grammar.shop import Shop
from training.grammar.text import Voice, babble, expand, kindly, listed, number, plural, sentence

Turns = list[tuple[str, str]]

EXTRAS = {
    "coffee": "oat milk|soy milk|almond milk|extra milk|no sugar|two sugars|whipped cream|caramel|vanilla syrup|no "
    "foam|honey|cinnamon|an extra shot|ice",
    "pizza":
    "mushrooms|extra cheese|olives|onions|no onions|peppers|thin crust|ham|bacon|spinach|no garlic|corn|chili",
    "burgers": "extra cheese|no onions|bacon|ketchup|no pickles|mustard|mayonnaise|no tomato|hot sauce|extra pickles",
    "ice cream": "sprinkles|chocolate sauce|whipped cream|nuts|strawberry sauce|no cream|caramel",
    "sandwiches": "mustard|no mayonnaise|extra cheese|tomatoes|no onions|pickles|butter|lettuce",
    "sushi": "extra ginger|no wasabi|soy sauce|an egg|chili oil|no onions|sesame",
    "juice": "ice|no ice|ginger|honey|mint|protein",
    "bakery": "butter|jam|cream cheese|icing|no sugar|honey",
}  # fmt: skip
EXTRAS_OF = {kind: text.split("|") for kind, text in EXTRAS.items()}

OTHER_SIZES = ["small", "medium", "large", "big", "extra large", "mini", "regular", "double"]


@dataclass(frozen=True)
class Line:
    """One line of an order."""

    item: str
    n: int = 1
    size: str = ""
    extra: str = ""
    loose: bool = False  # a size is still to be asked for

    def text(self) -> str:
        """two large lattes with oat milk"""
        noun = self.item if self.n == 1 else plural(self.item)
        joint = " without " if self.extra.startswith("no ") else " with "
        extra = joint + self.extra.removeprefix("no ") if self.extra else ""
        return " ".join(part for part in (number(self.n), self.size, noun) if part) + extra

    def short(self) -> str:
        """lattes, to ask for their size"""
        return self.item if self.n == 1 else plural(self.item)


@dataclass
class Order:
    """What the guest has ordered so far; ``tail`` is "to go" or "for here" once said."""

    lines: list[Line] = field(default_factory=list)
    name: str = ""
    tail: str = ""

    def text(self) -> str:
        return listed([line.text() for line in self.lines]) + (f" {self.tail}" if self.tail else "")


def spoken(rng: Random, voice: Voice, line: Line, shown_size: bool = True) -> str:
    """A line as a guest says it: 2 large lattes with oat milk."""
    article = "an" if ((line.size if shown_size else "") or line.item)[0].lower() in "aeiou" else "a"
    if line.n == 1:
        count = rng.choice((article, article, article, "one", "1", "one", ""))
        if any(f" {where} " in line.item for where in said.WHERE) and rng.random() < 0.6:
            count = "the"
    elif line.n == 2 and rng.random() < 0.1:
        count = "a couple of"
    else:
        count = number(line.n) if rng.random() < 0.62 else str(line.n)
    size, noun = (line.size if shown_size else ""), voice.form(line.item)
    if line.n > 1:
        noun = plural(noun)
    text = " ".join(part for part in (count, size, noun) if part)
    if line.extra:
        joint = " without " if line.extra.startswith("no ") and rng.random() < 0.5 else " with "
        text += joint + (line.extra.removeprefix("no ") if joint == " without " else line.extra)
    return text


class Counter:
    """One guest ordering; collects turns."""

    def __init__(self, rng: Random, voice: Voice, shop: Shop, split: str, guest: str) -> None:
        self.rng, self.voice, self.shop, self.split, self.guest = rng, voice, shop, split, guest
        self.order = Order()
        self.turns: Turns = []

    def say(self, patterns: list[str], reply: str, **slots: str) -> None:
        """A turn; the reply is led in by "Certainly." where the guest said please."""
        pattern = self.rng.choice(patterns)
        if patterns is said.WANT and self.rng.random() < said.BABBLED:
            pattern = f"{babble(self.rng, 6)} {{items}} {babble(self.rng, 4)}"
        asked = self.voice.says(pattern, **slots)
        self.turns.append((asked, kindly(asked) + sentence(reply)))

    def line(self) -> Line | None:
        """A new line, of the menu where there is one; None when that has no more."""
        rng, kind, menu = self.rng, self.shop.kind, self.shop.prices
        taken = {line.item for line in self.order.lines}
        free = [item for item in menu if item not in taken]
        if menu and not free:
            return None
        item = rng.choice(free) if menu else shops.item_of(rng, self.split, kind)
        if not menu and rng.random() < 0.04:
            item += f" {rng.choice(said.WHERE)} {rng.choice(words.THINGS)}"
        if item in taken:
            return None
        n = rng.choices((1, 2, 3, 4, 5, 6, rng.randint(7, 12), rng.randint(13, 40)), (34, 18, 12, 9, 6, 5, 16, 1))[0]
        size, loose = "", False
        if not menu and kind in shops.SIZED and item not in shops.NOT_SIZED and item in shops.GOODS_OF[kind]:
            size = self.combined(shops.SIZES[kind], item)
            loose = not size or rng.random() < 0.28
        elif rng.random() < (0.12 if menu else 0.3):
            size = self.combined(OTHER_SIZES, item)
        extra = self.combined(EXTRAS_OF[kind], item) if kind in EXTRAS_OF and rng.random() < 0.2 else ""
        if rng.random() < (0.25 if extra else 0.02):  # what nobody puts on it
            extra = rng.choice(("", "no ", "extra ")) + shops.coined_item(rng, self.split)
        return Line(item, n, "" if loose else size, extra, loose)

    def combined(self, pool: list[str], item: str) -> str:
        """A size or an extra whose combination with the item belongs to the split; "" where there is none."""
        fitting = [each for each in pool if values.split_of(f"{each} {item}") == self.split]
        if not fitting and self.split != "train":  # few have one: others are met in train too
            fitting = [each for each in pool if values.split_of(f"{each} {item}") == "train"]
        return self.rng.choice(fitting) if fitting else ""

    def follow_up(self) -> str:
        """What the assistant asks after a change of the order: a missing size, or whether there is more."""
        for line in self.order.lines:
            if line.loose:
                return f"Which size for the {line.short()}: {listed(shops.SIZES[self.shop.kind], 'or')}?"
        return "Anything else?"

    def add(self, patterns: list[str]) -> None:
        """One to three new lines, then their sizes where these were left open."""
        rng, order = self.rng, self.order
        new: list[Line] = []
        for _ in range(rng.choices((1, 2, 3), (55, 35, 10))[0]):
            line = self.line()
            if line:
                new.append(line)
                order.lines.append(line)
        if not new:
            return
        missing = self.missing() if rng.random() < 0.08 else ""
        parts = [spoken(rng, self.voice, line) for line in new]
        if missing:
            parts.insert(rng.randint(0, len(parts)), spoken(rng, self.voice, Line(missing, rng.choice((1, 1, 2)))))
            missing = f" Sorry, we do not have {plural(missing)}."
        items = self.joined(parts)
        if not order.tail and rng.random() < 0.1:
            order.tail = rng.choice(said.TO_GO)
            items += " " + order.tail
        named = not order.name and not missing and rng.random() < 0.18
        if named:
            order.name = self.voice.form(values.first_name(rng, self.split))
            with_name = expand(rng, rng.choice(said.WITH_NAME)).replace("{thing}", words.word(rng))
            items += with_name if with_name[0] in ",." else " " + with_name
            self.turns.append(self._named(patterns, items))
        else:
            self.say(patterns, f"{self.whole()}.{missing} {self.follow_up()}", items=items)
        while any(line.loose for line in order.lines):
            self._sized()

    def joined(self, parts: list[str]) -> str:
        """Things in a row, between the last two one of many words, or words that say nothing."""
        if len(parts) < 2:
            return parts[0]
        joint = babble(self.rng, 4) if self.rng.random() < 0.35 else self.rng.choice(said.JOINTS)
        last = parts[-1]
        if self.rng.random() < 0.1:
            last = f", {expand(self.rng, self.rng.choice(said.CONDITIONS))}, {last}"
        return f"{', '.join(parts[:-1])} {joint or 'and'} {last}".replace(" ,", ",").replace(" ;", ";").replace(
            " .", ".")

    def _named(self, patterns: list[str], items: str) -> tuple[str, str]:
        order, rng = self.order, self.rng
        before, _, after = items.partition("{name}")
        asked = self.voice.says(rng.choice(patterns), items=before + order.name + after)
        return asked, kindly(asked) + sentence(f"{order.text()} for {order.name}. {self.follow_up()}")

    def whole(self) -> str:
        """The order with its name, if given."""
        return self.order.text() + (f" for {self.order.name}" if self.order.name else "")

    def _sized(self) -> None:
        order = self.order
        at = next(i for i, line in enumerate(order.lines) if line.loose)
        size = self.combined(shops.SIZES[self.shop.kind], order.lines[at].item) or shops.SIZES[self.shop.kind][0]
        order.lines[at] = replace(order.lines[at], size=size, loose=False)
        self.say(["{size}[, please| please|]", "{size}", "a {size} one[, please|]",
            "[make it|i'd like|i'll take|let's do] {size}[, please|]",
                  "the {size} one[, please|]", "{size} size[, please|]", "{size} is [fine|good|ok]",
                  "{size} ones[, please|]", "{size} i think",
                  "i want [it|them] {size}", "{size} would be [great|good|fine]"],
                 f"{self.whole()}. {self.follow_up()}", size=size)  # fmt: skip

    def change(self, patterns: list[str], **slots: str) -> None:
        """A turn after which the whole order is repeated."""
        self.say(patterns, f"{self.whole()}. {self.follow_up()}", **slots)

    def missing(self) -> str:
        """Something that is not on the menu; empty where there is no menu."""
        item = shops.item_of(self.rng, self.split, self.shop.kind, 0.4)
        held = [*self.shop.prices, *(line.item for line in self.order.lines)]
        return "" if not self.shop.prices or any(item in each or each in item for each in held) else item

    def not_sold(self) -> None:
        """A wish for something that is not on the menu."""
        if item := self.missing():
            line = Line(item, self.rng.choice((1, 1, 2)))
            asked = self.voice.says(self.rng.choice(said.WANT), items=spoken(self.rng, self.voice, line))
            menu = listed(list(self.shop.prices))
            self.turns.append((asked, f"Sorry, we do not have {plural(item)}. We have {menu}."))

    def bill(self) -> str:
        """Two lattes at $3.50 each, one scone at $2.50. The till shows the total."""
        return menu.bill(self.shop, [(line.n, line.text(), line.item) for line in self.order.lines])

    def read_back(self) -> None:
        """What did I order?"""
        if self.order.lines:
            self.say(said.READ_BACK, f"You have {self.whole()}. {self.follow_up()}")

    def total(self) -> None:
        """How much is that?"""
        if self.order.lines:
            reply = self.bill() if self.shop.prices else "I do not know the prices. Please pay at the desk."
            self.say(said.ASK_TOTAL, f"{reply} {self.follow_up()}")

    def ask_stock(self) -> None:
        """Do you have lattes?"""
        menu = self.shop.prices
        held = menu and self.rng.random() < 0.5
        item = self.rng.choice(list(menu)) if held else shops.item_of(self.rng, self.split, self.shop.kind, 0.5)
        if not held and any(item in each or each in item for each in menu):
            return
        reply = "I have no menu here. Tell me what you would like."
        if menu:
            reply = f"Sorry, we do not have {plural(item)}. We have {listed(list(menu))}."
        if held:
            reply = f"Yes, the {item} is {menu[item]}."
        asked = self.voice.says(self.rng.choice(said.ASK_STOCK), items=plural(self.voice.form(item)))
        self.turns.append((asked, reply))

    def after(self, aside: Callable[[], Turns]) -> None:
        """When all is ordered: what was it, a question, one thing more."""
        rng, name = self.rng, self.order.name or self.guest
        kind = rng.random()
        if kind < 0.07:
            self.turns += names.recall(rng, self.voice, name)
        elif kind < 0.20:
            self.say(said.READ_BACK, f"You have {self.whole()}.")
        elif kind < 0.27:
            self.turns += names.who(rng, self.voice, name)
        elif kind < 0.33:
            self.turns += aside()
            self.say(said.READ_BACK, f"You have {self.whole()}.")
        elif kind < 0.40:
            before = len(self.turns)
            self.add(said.MORE)
            if len(self.turns) > before:
                self.finish(aside)

    def finish(self, aside: Callable[[], Turns]) -> None:
        """That is all; the bill; the name; coming up."""
        rng, order = self.rng, self.order
        if not order.lines:
            return
        bill = sentence(self.bill()) + " " if self.shop.prices else ""
        if order.name or self.guest:
            self.say(said.DONE, f"{bill}Thank you, {order.name or self.guest}. {sentence(order.text())}, coming up.")
            return
        self.say(said.DONE, f"{bill}What name is it for?")
        if rng.random() < 0.12:
            self.turns += aside()
        order.name = self.voice.form(values.full_name(rng, self.split))
        asked = self.voice.says(rng.choice(said.TELL_NAME), name=order.name, thing=words.word(rng))
        self.turns.append((asked, f"Thank you, {order.name}. {sentence(order.text())}, coming up."))
