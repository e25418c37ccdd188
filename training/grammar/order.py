"""Ordering at a counter: items, sizes, quantities, corrections, the total, the name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from random import Random

from training.grammar import correction, menu, talk, values, words
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


BABBLED = 0.24  # share of wishes in words without meaning around the goods
#: between two things of one wish
JOINTS = """
and|and|and|and|and|and|and|plus|and also|and then|&|followed by|and on top|and besides|besides that|and finally|next|
and for my friend|and for her|and for him|for me and|for my wife and|for my neighbor and|and for the little one|
in addition|and in addition|and after it|and later|or rather and|and not to forget|moreover|alongside|combined with|
with an extra|accompanied by|, to be followed by|, next|, also|, likewise|; also|, and for us|, and for the others|
for the boys and|for the girls,|on one tray with|and at the end|also|as the second thing|, secondly|. And|. Also|. Then
""".replace("\n", "").split("|")

#: a wish that depends on something; the thing itself comes after it
CONDITIONS = [
    "if [there is|there's] [one|any|some] left", "if you [still |][have|got] [it|any|one|some]", "if [possible|i may]",
    "if [it is|that is|it's] [not too late|fine|no trouble|still there|in the house]", "if nobody [took|wants] it",
    "[should there be|provided there is] [one|any][ left|]", "should you have [it|one]", "if the kitchen has it",
]  # fmt: skip
#: where a thing may be: part of what is ordered
WHERE = ("by the", "from the", "in the", "on the", "near the", "under the")

# ---- what guests say -------------------------------------------------------------------------------------------------

WANT = [
    "[i'd|i would] like {items}[, please| please|]", "[can|could|may] i [get|have|order] {items}[, please| please|]?",
    "{items}[, please| please|]", "{items}[, please| please|]",
    "[i'll|i will] [have|take|get|try] {items}[, please| please|]",
    "i want {items}[ please|]", "[give me|get me|gimme] {items}[, please| please|]",
    "[we'd|we would] like {items}[, please|]",
    "[can|could] you [give|get|make|bring] me {items}[, please| please|]?", "i'd [love|go for] {items}[, please|]",
    "i'm going to [have|get|take] {items}", "let me [get|have|try] {items}[, please| please|]",
    "make it {items}[, please|]",
    "i need {items}[, please| please|]", "{items} for me[, please|]", "just {items}[, please| please|]",
    "[one order of|order:] {items}",
    "[could we|can we|we'll] [get|have|order] {items}[, please|]", "i [think i'll|guess i'll] [have|take] {items}",
    "[hi|hello|hey][,|] {items}[, please| please|]",
    "[hi|hello|good morning|hey there][,|] [i'd like|can i get|i want] {items}[, please| please|]",
    "put me down for {items}", "[is it possible to get|would it be possible to have] {items}?",
    "i was hoping to get {items}",
    "[i'm here for|i came for|i feel like] {items}", "how about {items}[, please|]", "my order is {items}",
    "order {items}[, please|]",
    "please [give me|bring me|make me] {items}", "[we need|we want|we take|i take] {items}[, please| please|]",
    "[do me|pour me|hand me] {items}[, please|]",
]  # fmt: skip
WANT += [
    "[right|okay|well], [so|then] {items}[, please|]", "[i|we] [came|come|dropped in] [for|to get|to buy] {items}",
    "[i|we] [would enjoy|would appreciate|wouldn't mind|wouldn't say no to|can't resist] {items}",
    "[you could|you might|would you kindly|be so kind and] [bring|hand|fix|make] [me|us] {items}[, please|]",
    "[are there|is there|do you still have] {items}[ left| for us| for me|]?",
    "[off we go|here goes|first of all]: {items}",
    "[my order|the order|our order|our list] [would be|will be|today is|goes like this:|contains] {items}",
    "{items} [will do|would be nice|sounds good|looks tasty|should do|is what i need|is my choice][, thanks|]",
    "{items}, [if you have it|if there is any|to begin|for a start|for the road|that is what i want|nothing fancy]",
    "[my|our] [colleagues|children|guests|parents|teammates|neighbors] [want|sent me for|are waiting for|need] "
    "{items}",
    "[to start|starting] with {items}[, please|]", "[yesterday i had tea, now|like last week,|once more] {items}",
    "[i feel|i'm] [like having|in need of|dreaming of|happy with] {items}",
    "[we|i] [shall have|are having|am having] {items}",
    "[let us|let's] [get|order|take|go for|try] {items}", "[i|we] [pick|prefer|want to try|wish for|ask for] {items}",
    "[what about|how about|why not] {items} [for me|for us|today|]?",
    "[here's what i want|this is my order|listen]: {items}",
    "[tonight|this morning|at noon|after work] [i|we] [want|need|have] {items}", "[time|ready] for {items}",
    "[is|would] {items} [possible|available|okay]?", "[please|] [charge me for|ring up|reserve|prepare] {items}",
    "[i could use|i could do with|i'm in the mood for|i'm craving|we are here for] {items}[, please|]",
    "[bring|fetch|pass|sell|serve|prepare|pack|wrap up] [me|us] {items}[, please| please|]",
    "my [wife|son|boss|dad|friend|sister|neighbor] [wants|would like|needs|is having|asked for] {items}[, please|]",
    "[we decided on|we settled on|i've decided on|i've chosen|we picked|i choose|we choose] {items}",
    "[today|this time|for now|for a start|for breakfast|for dinner] [i'll take|i'd like|give me|we take] {items}",
    "[would you have|may i ask for|may we ask for|could you do|can you do|do you have] {items}?",
    "[it's|that's|it'll be|that'll be|it will be|that makes] {items}[ for us| for the table| for me|]",
    "[the order is|here is my order:|my list:|note down|write down|put down|please note] {items}",
    "[i was told to get|i have to bring home|i promised my kids|i need to buy|i'm buying] {items}",
    "[get us|send us|set aside|keep for me] {items}[, please|]",
    "[what i'd like is|all i want is|what we need is|my choice is|my pick is] {items}",
]  # fmt: skip
MORE = [
    "[and|also|plus] {items}[, please| please|]",
    "[i'd also like|i also want|can i also get|could i also have|also] {items}[, please| please|]",
    "add {items}[, please| please|]", "{items} [too|as well][, please| please|]",
    "[yes|yeah|yep][,|] {items}[, please| please|]",
    "[yes|yeah][,|] [and|also|add] {items}[, please|]", "[can|could] you add {items}[, please|]?",
    "oh and {items}[, please| please|]",
    "[i'll|i will|let me] [also|] [take|get|have] {items}[, please| please|]", "and then {items}[, please|]",
    "another thing, {items}[, please|]",
    "[can we|could we] [add|get] {items} [too|as well|]?", "throw in {items}[, please|]",
    "and [maybe|perhaps] {items}", "{items}[, please| please|]",
    "[what about|how about] {items}[, please|]?", "one more thing: {items}",
    "and to [eat|drink|finish][,|] {items}[, please|]",
]  # fmt: skip
MORE += [
    "[i forgot|we forgot|almost forgot], {items}[, please|]",
    "[i'm still hungry|still thirsty|one more wish][,|:] {items}",
    "[put|note|write] {items} [on it|on top|on the list][ too|][, please|]",
    "[next|second|then|furthermore][,|:] {items}",
    "[the others|the kids|my mother|everyone] [also |][want|wants|get|gets] {items}",
    "[i'll|we'll] [complete|finish] it with {items}",
    "[on top of that|in addition|additionally|besides that] {items}[, please|]",
    "[don't forget|not to forget] {items}",
    "[my friend|my son|she|he] [also |][takes|wants|would like] {items}[, please|]", "[ah|wait], [and|also] {items}",
    "[we also need|i also need|i'd add|let's add] {items}[, please|]",
    "[and for her|and for him|for my friend] {items}",
]  # fmt: skip
DONE = [
    "[that's|that is|that'll be|that will be] [all|it|everything|all for now|it for today][, thanks| thank you| "
    "please|]", "no[,|] that's [all|it|everything][, thanks|]",
    "no[,|] thank you", "no[,|] thanks", "nothing else[, thanks| thank you|]",
    "[i'm|we're|i am] [done|good|all set|fine][, thanks|]",
    "no", "nope", "nope[,|] [that's it|that's all]", "[just that|only that|that would be all][, thanks|]",
    "that's all [i need|for me|we need|for us]",
    "no more[, thanks|]", "[it's fine|that's enough|enough][, thanks|]", "nothing more[, thank you|]",
    "no[,|] i'm [good|fine|okay]",
    "that completes my order", "finished", "done", "[we are|i am] ready to pay", "[ok|okay][,|] that's [it|all]",
    "i think that's [all|it|everything]",
]  # fmt: skip
TELL_NAME = [
    "{name}", "{name}", "{name}[, please| please]", "[my name is|my name's|the name is|it's|i'm|i am|this is] {name}",
    "for {name}[, please|]", "{name} is my name",
    "[put it under|under|it's for|make it out to|write] {name}[, please|]",
    "[you can|just|please] [call me|write|put] {name}", "my name is {name}[, thanks| thank you|]",
    "[the name's|name's|name is|name:] {name}",
    "[it is|that's|that is] {name}", "[they|people|friends] call me {name}", "[on|to] {name}[, please|]",
    "{name} [here|speaking]",
]  # fmt: skip
TELL_NAME += [
    "[please |][note|mark|print|put|stick|type|add|sign] {name} on [the|my|our|its|every] {thing}[, please|]",
    "[the|my|our] {thing} [is for|says|belongs to|goes to|should say|should be on|runs on] {name}",
    "[you may|just|simply|please|] [note|print|mark|scribble|type] {name} [on it|on the lid|on the box|down|there|"
    "on the receipt]",
    "[make|file|book|keep|store] it [under|for|as] {name}[, please|]", "[let's|we] [use|say|take] {name}",
    "{name} [is fine|will do|it is]",
    "[ask|call|shout|look] for {name}", "{name} [picks it up|is waiting|is paying|ordered]",
    "[order|box|bill] [for|of|to] {name}[, please|]",
    "[the order|it|this one] [belongs to|is for|goes to|is from] {name}", "[i'd say|i guess|then] {name}",
    "[it should say|that would be|i go by|i am called|my first name is|they named me] {name}", "{name}, that's me",
    "{name}'s the name", "[everyone|everybody|my family] [knows me as|calls me] {name}",
    "[sure|gladly|of course][,|] {name}",
    "[note|type|enter|make it|use] {name}[, please|]", "[well|ok|hmm][,|] {name}",
]  # fmt: skip
WITH_NAME = [
    "[,|,|.| and] [please |][note|mark|print|put|stick|type|add|sign|write] {name} on [the|my|our|its|every] "
    "{thing}[, please|]",
    "[,|,|.| and] [the|my|our] {thing} [is for|says|belongs to|goes to|should say] {name}",
    ", [my|our|the] name [is|would be|reads] {name}", ", [call me|they call me|i am called|known as|named] {name}",
    " for {name}", " for {name}", ", my name is {name}", " under the name {name}", ", name {name}",
    ", it's for {name}",
    ", the name is {name}", ", {name} is my name", ", i'm {name}", ", put {name} on it", ". write {name} on the box",
    ", the name on the [lid|box|receipt] is {name}", ". please [note|mark|print] {name} on the [lid|parcel|tray]",
    ", and [label|mark] it {name}", ". {name} [will get it|picks it up|is the name|pays]", ", to {name}",
    ", from {name}",
    ", [call|shout] {name} when it's ready", ", on behalf of {name}", ", {name} [sent me|is asking]",
    " in the name of {name}",
    ", and put {name} down [for it|as the name|]", ", [i am|this is] {name} [by the way|as you know|]",
    ". name's {name}",
    ", to be picked up by {name}", " and my name is {name}",
]  # fmt: skip
TO_GO = ["to go", "to go", "for here", "to take away"]
ASK_TOTAL = [
    "how much is [that|it|everything|my order]?", "what's the total?", "[what|how much] do i owe you?",
    "how much does [that|it] [make|come to|cost]?",
    "[what|how much] is [that|it] [all together|in total|altogether]?",
    "[can|could] [i|you] [have|tell me] the total[, please|]?", "the [bill|check][, please|]",
    "what does [that|it all|everything] cost?", "[total|the total][, please|]?",
    "how much is it [all together|in all|so far]?", "so how much?",
    "what's the price [altogether|of all that]?", "and how much do i pay?", "what will that be?",
    "how much money is that?",
]  # fmt: skip
READ_BACK = [
    "[can|could] you [repeat|read back|read me|tell me] my order[, please|]?",
    "what [do i have|did i order|have i ordered|is my order][ so far|]?",
    "[please |]repeat my order[, please|]", "what's [in|on] my order?", "list my order[, please|]",
    "[what was|what's] my order again?",
    "did you get [all that|everything|that]?", "[let me hear|say] my order [again|back]",
    "[sorry|wait][,|] what [did i order|do i have]?",
    "my order[, please|]?", "can we go over my order?", "[read|say] it back to me[, please|]", "is my order right?",
]  # fmt: skip

#: {items}: in plural, without a count, which makes it a question and not a wish
ASK_STOCK = [
    "do you [have|sell|make|offer|serve|keep] [any |some |]{items}[ here| today| too|]?",
    "[are there|got] any {items}[ left|]?",
    "have you [got |]any {items}?", "any {items}[ left| today| here|]?", "is it possible to get {items} here?",
    "do you still have {items}?", "[and |]what about {items}, do you have [them|any|those]?",
    "are {items} on the menu?",
    "you don't [have|sell] {items}, do you?", "[i see no|i can't see any] {items}, do you have [any|some]?",
    "[can|could] one [get|buy] {items} here?", "are you selling {items}[ too|]?",
]  # fmt: skip


def spoken(rng: Random, voice: Voice, line: Line, shown_size: bool = True) -> str:
    """A line as a guest says it: 2 large lattes with oat milk."""
    article = "an" if ((line.size if shown_size else "") or line.item)[0].lower() in "aeiou" else "a"
    if line.n == 1:
        count = rng.choice((article, article, article, "one", "1", "one", ""))
        if any(f" {where} " in line.item for where in WHERE) and rng.random() < 0.6:
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
        if patterns is WANT and self.rng.random() < BABBLED:
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
        if not menu and rng.random() < 0.05:
            item += f" {rng.choice(WHERE)} {rng.choice(words.THINGS)}"
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
        items = self.joined([spoken(rng, self.voice, line) for line in new])
        if not order.tail and rng.random() < 0.1:
            order.tail = rng.choice(TO_GO)
            items += " " + order.tail
        named = not order.name and rng.random() < 0.13
        if named:
            order.name = self.voice.form(values.first_name(rng, self.split))
            with_name = expand(rng, rng.choice(WITH_NAME)).replace("{thing}", words.word(rng))
            items += with_name if with_name[0] in ",." else " " + with_name
            self.turns.append(self._named(patterns, items))
        else:
            self.say(patterns, f"{self.whole()}. {self.follow_up()}", items=items)
        while any(line.loose for line in order.lines):
            self._sized()

    def joined(self, parts: list[str]) -> str:
        """Things in a row, between the last two one of many words, or words that say nothing."""
        if len(parts) < 2:
            return parts[0]
        joint = babble(self.rng, 4) if self.rng.random() < 0.35 else self.rng.choice(JOINTS)
        last = parts[-1]
        if self.rng.random() < 0.1:
            last = f", {expand(self.rng, self.rng.choice(CONDITIONS))}, {last}"
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

    def correct(self) -> None:
        """No, make that two; a tea instead of the coffee; no muffin after all; large, not small."""
        if self.order.lines:
            correction.turn(self)

    def not_sold(self) -> None:
        """Something that is not on the menu."""
        item = shops.item_of(self.rng, self.split, self.shop.kind, 0.4)
        if not self.shop.prices or any(item in each or each in item for each in self.shop.prices):
            return
        line = Line(item, self.rng.choice((1, 1, 2)))
        noun = plural(item) if line.n > 1 else item
        asked = self.voice.says(self.rng.choice(WANT), items=spoken(self.rng, self.voice, line))
        self.turns.append((asked, f"Sorry, we do not have {plural(noun) if line.n == 1 else noun}. "
                                  f"We have {listed(list(self.shop.prices))}."))  # fmt: skip

    def bill(self) -> str:
        """Two lattes 2 x $3.50 = $7.00, one scone $2.50. That is $9.50."""
        lines = self.order.lines
        return menu.bill(self.shop, [(line.n, line.text(), line.item) for line in lines])

    def read_back(self) -> None:
        """What did I order?"""
        if self.order.lines:
            self.say(READ_BACK, f"You have {self.whole()}. {self.follow_up()}")

    def total(self) -> None:
        """How much is that?"""
        if self.order.lines:
            reply = self.bill() if self.shop.prices else "I do not know the prices. Please pay at the desk."
            self.say(ASK_TOTAL, f"{reply} {self.follow_up()}")

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
            reply = f"Yes, the {item} is {self.shop.money(menu[item])}."
        self.turns.append((self.voice.says(self.rng.choice(ASK_STOCK), items=plural(self.voice.form(item))), reply))

    def after(self, aside: Callable[[], Turns]) -> None:
        """When all is ordered: what was it, a question, one thing more."""
        rng, name = self.rng, self.order.name or self.guest
        kind = rng.random()
        if kind < 0.07:
            self.turns += talk.recall(rng, self.voice, name)
        elif kind < 0.20:
            self.say(READ_BACK, f"You have {self.whole()}.")
        elif kind < 0.27:
            self.turns += talk.who(rng, self.voice, name)
        elif kind < 0.33:
            self.turns += aside()
            self.say(READ_BACK, f"You have {self.whole()}.")
        elif kind < 0.40:
            self.add(MORE)
            self.finish(aside)

    def finish(self, aside: Callable[[], Turns]) -> None:
        """That is all; the bill; the name; coming up."""
        rng, order = self.rng, self.order
        if not order.lines:
            return
        bill = sentence(self.bill()) + " " if self.shop.prices else ""
        if order.name or self.guest:
            self.say(DONE, f"{bill}Thank you, {order.name or self.guest}. {sentence(order.text())}, coming up.")
            return
        self.say(DONE, f"{bill}What name is it for?")
        if rng.random() < 0.12:
            self.turns += aside()
        order.name = self.voice.form(values.full_name(rng, self.split))
        asked = self.voice.says(rng.choice(TELL_NAME), name=order.name, thing=words.word(rng))
        self.turns.append((asked, f"Thank you, {order.name}. {sentence(order.text())}, coming up."))


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
        counter.say(READ_BACK[:-2], "You have not ordered anything yet. What would you like?")
    if rng.random() < 0.08:
        counter.ask_stock()
    counter.add(WANT)
    if rng.random() < 0.12:
        counter.turns += aside()
    for _ in range(rng.choices((0, 1, 2, 3), (30, 38, 22, 10))[0]):
        kind = rng.random()
        if kind < 0.34:
            counter.add(MORE)
        elif kind < 0.72:
            counter.correct()
        elif kind < 0.83:
            counter.read_back()
        elif kind < 0.92:
            counter.total()
        elif kind < 0.96:
            counter.ask_stock()
        else:
            counter.not_sold()
    if whole or rng.random() < 0.8:
        counter.finish(aside)
        if counter.order.lines:
            counter.after(aside)
    return counter.turns
