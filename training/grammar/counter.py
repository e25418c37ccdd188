"""The counter: one guest who fills an order turn by turn."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from random import Random

from training.grammar import goods, menu, names, values, words
from training.grammar import order_words as said
from training.grammar import shop as shops
from training.grammar.line import Line, Order, spoken
from training.grammar.shop import Shop
from training.grammar.text import Voice, babble, expand, kindly, listed, number, plural, sentence

Turns = list[tuple[str, str]]

CLEARED = "All right, nothing is ordered. What would you like?"


class Counter:
    """One guest ordering; collects turns."""

    def __init__(self, rng: Random, voice: Voice, shop: Shop, split: str, guest: str) -> None:
        self.rng, self.voice, self.shop, self.split, self.guest = rng, voice, shop, split, guest
        self.order = Order()
        self.turns: Turns = []

    def say(self, patterns: list[str], reply: str, **slots: str) -> None:
        """A turn; the reply is led in by "Certainly." where the guest said please."""
        pattern = expand(self.rng, self.rng.choice(patterns))
        if patterns is said.WANT or patterns is said.MORE:
            pattern = self.around(patterns, pattern)
        if "items" in slots:
            slots["items"] = self.written(slots["items"], pattern.startswith("{items}"))
        asked = self.voice.says(pattern, **slots)
        self.turns.append((asked, kindly(asked) + sentence(reply)))

    def ends_open(self) -> bool:
        """Whether words after the goods could be meant as part of what is to be done with them."""
        return any(line.extra for line in self.order.lines[-4:])

    def around(self, patterns: list[str], pattern: str) -> str:
        """A wish among words: some without meaning, others for whom it is and why."""
        rng = self.rng
        if patterns is said.WANT and not self.ends_open() and rng.random() < said.BABBLED:
            return f"{babble(rng, 6)} {{items}} {babble(rng, 4)}"
        if rng.random() < 0.2:
            before = expand(rng, rng.choice(said.WHY))
            pattern = before + (", so " if rng.random() < 0.4 else rng.choice((". ", ", ", ": ", "! "))) + pattern
        if rng.random() < 0.2:
            end = "" if pattern[-1] in ".?!" else rng.choice((",", ".", "!", ","))
            pattern = f"{pattern}{end} {expand(rng, rng.choice(said.AFTERWARDS))}"
        return pattern

    def written(self, items: str, first: bool) -> str:
        """The goods as this guest writes: a capital at the beginning, no punctuation in speech."""
        if self.voice.kind == "spoken":
            return re.sub(r"[,;:.!?](?= |$)", "", items)
        return sentence(items) if first and self.voice.kind == "careful" and self.rng.random() < 0.7 else items

    def line(self) -> Line | None:
        """A new line, of the menu where there is one; None when that has no more."""
        rng, kind, menu = self.rng, self.shop.kind, self.shop.prices
        taken = {line.row or line.item for line in self.order.lines}
        free = [item for item in menu if item not in taken]
        if menu and not free:
            return None
        if not menu and kind in goods.MEASURED and rng.random() < 0.2:
            item = expand(rng, goods.MEASURED[kind])
            if rng.random() < 0.4:
                item = f"{item.partition(' of ')[0]} of {shops.coined_item(rng, self.split)}"
            n = rng.randint(1, 18) * 50 if item.startswith("gram") else rng.randint(1, 15)
            return Line(item, n) if item not in taken else None
        row = rng.choice(free) if menu else ""
        if menu and rng.random() < 0.16:
            return self.short(row)
        for item, sizes in self.shop.sizes.items():
            if row.removesuffix(f" {item}") in sizes:
                if any(line.item == item and line.loose for line in self.order.lines):
                    return None
                loose = rng.random() < 0.15
                n = rng.choice((1, 1, 1, 2, 2, 3, 4, 5, 8))
                return Line(item, n, "" if loose else row.removesuffix(f" {item}"), self.wish(item), loose, row)
        item = row or self.voice.form(self.shelved())
        if not menu and rng.random() < 0.04:
            item += f" {rng.choice(said.WHERE)} {rng.choice(words.THINGS)}"
        if item in taken:
            return None
        n = rng.choices((1, 2, 3, 4, 5, 6, rng.randint(7, 12), rng.randint(13, 100)), (34, 17, 12, 9, 6, 7, 15, 3))[0]
        size, loose = "", False
        if not menu and kind in shops.SIZED and item not in shops.NOT_SIZED and item in shops.GOODS_OF[kind]:
            size = self.combined(shops.SIZES[kind], item)
            loose = not size or rng.random() < 0.25
        elif rng.random() < (0.15 if menu else 0.32):
            size = self.combined([goods.before(rng) for _ in range(4)], item)
        return Line(item, n, "" if loose or size in item else size, self.wish(item), loose)

    def shelved(self) -> str:
        """Something to order where no price list says what there is."""
        rng, shelf = self.rng, self.shop.shelf
        if shelf and rng.random() < 0.6:
            return rng.choice(shelf)
        if rng.random() > 0.06:
            return shops.item_of(rng, self.split, self.shop.kind)
        name = rng.choice(values.DAYS) if rng.random() < 0.2 else values.coined(rng).capitalize()
        return expand(rng, f"{name} [{'|'.join(shops.TAILS)}|paper|magazine]|[bag|box|pot|pack|glass] of [the |]{name}")

    def short(self, row: str) -> Line | None:
        """A thing of the price list by the last of its words, or a bottle of it."""
        rng, last = self.rng, row.split()[-1]
        n = rng.choice((1, 1, 2, 3, 4, 5, 6, 8))
        if " of " in row or row in (f"{size} {item}" for item, sizes in self.shop.sizes.items() for size in sizes):
            return None
        if rng.random() < 0.5 and last != row and sum(last in other for other in self.shop.prices) == 1:
            return Line(last, n, row=row)
        holder = rng.choice(shops.HOLDERS)
        held = plural(row) if holder in shops.HOLDS_MANY else row
        return Line(f"{holder} of {held}", n, extra=self.wish(row), row=row)

    def wish(self, item: str) -> str:
        """What is to be done with a thing, or nothing."""
        if self.rng.random() > (0.42 if self.shop.kind in goods.DONE_WITH else 0.25):
            return ""
        return self.combined([goods.done_with(self.rng, self.shop.kind) for _ in range(4)], item)

    def kinds(self, line: Line) -> Line:
        """Six donuts, two plain and four filled: of which kinds they are, as was said."""
        rng = self.rng
        pool = rng.choice(goods.BEFORE) if rng.random() < 0.7 else words.THINGS
        one, other = rng.sample(pool, 2)
        k = rng.randint(1, line.n - 1)
        kinds = [f"{number(m)} {kind}" for m, kind in ((k, one), (line.n - k, other))]
        return replace(line, extra=f", {listed(kinds)}")

    def sizes(self, line: Line) -> list[str]:
        """The sizes of a thing: of the price list, or of such a counter."""
        return self.shop.sizes.get(line.item) or shops.SIZES[self.shop.kind]

    def word(self) -> str:
        """Any word of the split."""
        return values.pick(self.rng, self.split, lambda: words.word(self.rng))

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
                return f"Which size for the {line.short()}: {listed(self.sizes(line), 'or')}?"
        return "Anything else?"

    def add(self, patterns: list[str]) -> None:
        """One to three new lines, then their sizes where these were left open."""
        rng, order = self.rng, self.order
        new: list[Line] = []
        for _ in range(rng.choices((1, 2, 3, 4), (46, 37, 14, 3))[0]):
            line = self.line()
            bare = line and not (self.shop.prices or line.extra or line.size or line.loose)
            if line and bare and 1 < line.n < 41 and rng.random() < 0.12:
                line = self.kinds(line)
            if line:
                new.append(line)
                order.lines.append(line)
        if not new:
            return
        missing = self.missing() if rng.random() < 0.08 else ""
        parts = [spoken(rng, self.voice, line) for line in new]
        last, ending = new[-1], ""
        if last.extra and last.extra[0] != "," and rng.random() < 0.2:
            parts[-1] = spoken(rng, self.voice, replace(last, extra=""))
            ending = expand(rng, rng.choice(said.MAKE_IT)).replace("{extra}", last.extra)
            it, they = ("it", "it") if last.n == 1 else ("them", "they")
            ending = ending.replace("{it}", it).replace("{they}", they)
        if missing:
            parts.insert(rng.randint(0, len(parts) - 1), spoken(rng, self.voice, Line(missing, rng.choice((1, 1, 2)))))
            missing = f" Sorry, we do not have {plural(missing)}."
        shared = len(parts) > 1 and rng.random() < 0.15
        items = self.shared(parts) if shared else self.joined(parts)
        items += ending
        if not order.tail and not ending and rng.random() < 0.1:
            order.tail = rng.choice(said.TO_GO)
            items += " " + order.tail
        named = not order.name and not missing and not shared and not ending and rng.random() < 0.24
        if named:
            order.name = self.voice.form(values.first_name(rng, self.split))
            with_name = expand(rng, rng.choice(said.WITH_NAME)).replace("{thing}", words.word(rng))
            items += with_name if with_name[0] in ",." else " " + with_name
            self.turns.append(self._named(patterns, items))
        else:
            wish = said.SHARED if shared else said.OPENED if ending else patterns
            self.say(wish, f"{self.whole()}.{missing} {self.follow_up()}", items=items)
        while any(line.loose for line in order.lines):
            self._sized()

    def joined(self, parts: list[str]) -> str:
        """Things in a row, between the last two one of many words, or words that say nothing, or a comma alone."""
        rng = self.rng
        parts = [f"{expand(rng, said.SLIP)} {part}" if rng.random() < 0.03 else part for part in parts]
        if len(parts) < 2:
            return parts[0]
        if rng.random() < 0.1:
            return rng.choice((", ", "; ", ", ", " + ", ". ", " and ", " - ")).join(parts)
        empty = not self.ends_open() and rng.random() < 0.35
        joint = babble(rng, 4) if empty else expand(rng, rng.choice(said.JOINTS))
        last = parts[-1]
        if rng.random() < 0.1:
            last = f", {expand(rng, rng.choice(said.CONDITIONS))}, {last}"
        return f"{', '.join(parts[:-1])} {joint or 'and'} {last}".replace(" ,", ",").replace(" ;", ";").replace(
            " .", ".")

    def shared(self, parts: list[str]) -> str:
        """Each thing with the one who wants it: my wife would like a tea and i'll have a latte."""
        rng = self.rng
        wishes = []
        for who, part in zip(rng.sample(said.WHO, len(parts)), parts):
            wish = rng.choice(said.WISHES if who != "i" else said.OWN_WISHES)
            wishes.append(expand(rng, wish.replace("{who}", who)).replace("{thing}", part))
        return listed(wishes, rng.choice(("and", "and", ", and", "but", "while", "&"))).replace(" ,", ",")

    def _named(self, patterns: list[str], items: str) -> tuple[str, str]:
        order, rng = self.order, self.rng
        before, _, after = items.partition("{name}")
        pattern = self.around([], expand(rng, rng.choice(patterns)))
        asked = self.voice.says(pattern, items=self.written(before, False) + order.name + after)
        return asked, kindly(asked) + sentence(f"{order.text()} for {order.name}. {self.follow_up()}")

    def whole(self) -> str:
        """The order with its name, if given."""
        return self.order.text() + (f" for {self.order.name}" if self.order.name else "")

    def _sized(self) -> None:
        order = self.order
        at = next(i for i, line in enumerate(order.lines) if line.loose)
        line = order.lines[at]
        size = self.combined(self.sizes(line), line.item) or self.sizes(line)[0]
        order.lines[at] = replace(line, size=size, loose=False, row=f"{size} {line.item}" if line.row else "")
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
            self.turns.append((asked, f"Sorry, we do not have {plural(item)}. {menu.whole(self.shop)}"))

    def bill(self) -> str:
        """Two lattes at $3.50 each, one scone at $2.50. The till shows the total."""
        return menu.bill(self.shop, [(line.n, line.text(), line.row or line.item) for line in self.order.lines])

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
        prices = self.shop.prices
        if self.shop.shelf:
            items = plural(self.rng.choice(self.shop.shelf))
            self.turns.append((self.voice.says(self.rng.choice(said.ASK_STOCK), items=items), f"Yes, we have {items}."))
            return
        held = prices and self.rng.random() < 0.5
        item = self.rng.choice(list(prices)) if held else shops.item_of(self.rng, self.split, self.shop.kind, 0.5)
        if not held and any(item in each or each in item for each in prices):
            return
        reply = "I have no menu here. Tell me what you would like."
        if prices:
            reply = f"Sorry, we do not have {plural(item)}. {menu.whole(self.shop)}"
        if held:
            reply = f"Yes, the {item} is {prices[item]}."
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

    def clear(self) -> None:
        """All of it is taken back."""
        self.order.lines.clear()
        self.order.tail = ""
        self.turns.append((self.voice.says(self.rng.choice(said.CLEAR)), CLEARED))

    def finish(self, aside: Callable[[], Turns], change: Callable[[], None] | None = None) -> None:
        """That is all; the bill; the name; coming up.  ``change``: what may come instead of the name."""
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
        elif change and rng.random() < 0.09:
            change()
            self.finish(aside)
            return
        order.name = self.voice.form(values.full_name(rng, self.split))
        asked = self.voice.says(rng.choice(said.TELL_NAME), name=order.name, thing=words.word(rng))
        self.turns.append((asked, f"Thank you, {order.name}. {sentence(order.text())}, coming up."))
