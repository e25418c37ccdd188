"""Exercises: say it again, spell it, what was the second; look it up in the facts, day by day, row by row."""

from __future__ import annotations

from random import Random

from training.grammar import (
    booking,
    correction,
    desks,
    facts,
    menu,
    names,
    notes,
    off_topic,
    order_words,
    plans,
    rude,
    values,
    words,
)
from training.grammar import hours as opening
from training.grammar import shop as shops
from training.grammar.counter import Counter
from training.grammar.house import rule
from training.grammar.names import ASK_NAME
from training.grammar.notes import NOTES
from training.grammar.shop import Shop
from training.grammar.talk import say
from training.grammar.text import Voice, listed, number, plural, sentence

Turns = list[tuple[str, str]]


def _thing(rng: Random, split: str) -> str:
    """Something to be repeated: a name, a made-up word, a code, a time, a few words."""
    kind = rng.random()
    if kind < 0.30:
        return values.full_name(rng, split)
    if kind < 0.48:
        return values.pick(rng, split, lambda: values.coined(rng))
    if kind < 0.58:
        return values.title(rng, split)
    if kind < 0.68:
        return values.code(rng)
    if kind < 0.74:
        return values.place(rng, split)
    if kind < 0.82:
        return values.time(rng)
    if kind < 0.9:
        return " ".join(words.word(rng) for _ in range(rng.randint(2, 5)))
    return " ".join(values.pick(rng, split, lambda: values.coined(rng)) for _ in range(rng.randint(2, 4)))


REPEAT = (
    "[please |]repeat[:| after me:|] {x}|say {x}|say[:|] {x}|[please |]say the [word|words] {x}|"
    "[can|could] you [say|repeat] {x}[?|]|repeat after me, {x}|write {x}|echo {x}|"
    "{x}, [repeat that|say that again|can you repeat that][, please|]|copy this: {x}|read this[:|] {x}"
)
SPELL = (
    "[please |]spell {x}|how do you spell {x}[?|]|[can|could] you spell {x}[?|]|spell [the name|the word] {x}|"
    "{x}, letter by letter[, please|]|spell it out: {x}|how is {x} spelled[?|]"
)
SPELLED = (
    "my name is spelled {x}|[it's|that's|it is] spelled {x}|the name is {x}|[i spell it|i'll spell it:|spelled] {x}"
)
TOLD = (
    "my name is {name}|i'm {name}|i am {name}|they call me {name}|it's {name}|the name's {name}|call me {name}|"
    "this is {name}"
)
ASK = "what's my name?|what is my name?|who am i?|do you know my name?|can you say my name?|say my name"
READ = "[repeat|list|read back|read|say] my order[ again|][, please|]|what did i order[?|]|what do i have[?|]"
LOOK_UP = (
    "[what's|what is|tell me] the {t} of {k}[?|]|[which|what] {t} does {k} have[?|]|[what|which] {t} is for {k}[?|]|"
    "{k}'s {t}[, please|][?|]"
)
NTH = ("first", "second", "third", "fourth", "fifth")


def _repeat(rng: Random, voice: Voice, split: str) -> Turns:
    thing = voice.form(_thing(rng, split))
    return [(say(rng, voice, REPEAT, x=thing), thing)]


def _spell(rng: Random, voice: Voice, split: str) -> Turns:
    name = values.pick(rng, split, lambda: values.coined(rng).capitalize())
    return [(say(rng, voice, SPELL, x=voice.form(name)), "-".join(name.upper()))]


def _spelled(rng: Random, voice: Voice, split: str) -> Turns:
    """The other way: letters in, a name out."""
    name = values.pick(rng, split, lambda: values.coined(rng).capitalize())
    return [(say(rng, voice, SPELLED, x="-".join(name.upper())), f"Your name is {name}.")]


def _name(rng: Random, voice: Voice, split: str) -> Turns:
    name = voice.form(values.full_name(rng, split))
    if rng.random() < 0.4:
        joint = rng.choice((". ", ". ", ", "))
        return [(voice.says(f"[{TOLD}]{joint}[{ASK}]", name=name), f"Your name is {name}.")]
    turns = names.introduction(rng, voice, split)
    name = turns[0][1].removeprefix("Hello, ").partition("!")[0]
    if rng.random() < 0.3:
        turns.append(_repeat(rng, voice, split)[0])
    turns.append((say(rng, voice, ASK_NAME), f"Your name is {name}."))
    return turns


def _who(rng: Random, voice: Voice, split: str) -> Turns:
    """I am, you are, who am I, who are you, mixed: only who says it of himself has told a name."""
    turns: Turns = []
    name = ""
    for _ in range(rng.randint(2, 5)):
        kind = rng.random()
        if kind < 0.35:
            turns += rude.turns(rng, voice, split)
        elif kind < 0.7 or not turns:
            turns += names.who(rng, voice, name)
        elif not name:
            turns += names.introduction(rng, voice, split)
            name = turns[-1][1].removeprefix("Hello, ").partition("!")[0]
    return turns


def _names(rng: Random, voice: Voice, split: str) -> Turns:
    """Several people at one table, and who is the second."""
    names = [voice.form(values.first_name(rng, split)) for _ in range(rng.randint(2, 4))]
    shown = listed(names)
    told = "[we are|here are|the guests are|the names are|it's|please note] {x}[, please|]"
    turns = [(voice.says(told, x=shown), f"Hello, {shown}!")]
    for _ in range(rng.randint(1, 2)):
        at = rng.randrange(len(names))
        which = NTH[at] if rng.random() < 0.7 or at + 1 < len(names) else "last"
        asked = voice.says("[what's|what is|tell me|say|which is] the {n} name[?|]", n=which)
        turns.append((asked, f"The {which} name is {names[at]}."))
    return turns


def _words(rng: Random, voice: Voice, split: str) -> Turns:
    """A list of words to remember."""
    words = [_short(rng, split) for _ in range(rng.randint(2, 5))]
    shown = ", ".join(words)
    told = voice.says("[remember|please remember|note|keep in mind|the words are][:|] {x}", x=shown)
    turns = [(told, f"I have noted: {shown}.")]
    for _ in range(rng.randint(1, 2)):
        at = rng.randrange(len(words))
        if rng.random() < 0.6:
            asked = voice.says("[what's|what is|tell me|say|what was] the {n} [word|one][?|]", n=NTH[at])
            turns.append((asked, f"The {NTH[at]} one is {words[at]}."))
        else:
            asked = voice.says("[read|say|repeat] [the list|them|all of them|my list][ again| back|][, please|]")
            turns.append((asked, f"Your list: {shown}."))
    return turns


LIST = "[please |][repeat|say|read back|read out|copy][:|] {x}|{x}, [repeat that|say it again][, please|]"
AGAIN = "again|[once more|one more time|again|repeat that|say that again|the same again][, please|]|and again"


def _list(rng: Random, voice: Voice, split: str) -> Turns:
    """A long list said back, and again: hardly a word of it can be guessed, each can be copied."""
    draw = rng.choice((values.first_name, values.first_name, _any, _any, _thing, _good, _good))
    things = [voice.form(draw(rng, split)) for _ in range(rng.randint(4, 12))]
    shown = rng.choice((", ", ", ", " ")).join(things)
    turns = [(say(rng, voice, LIST, x=shown), shown)]
    for _ in range(rng.choice((0, 1, 1, 2))):
        turns.append((say(rng, voice, AGAIN), shown))
    return turns


def _any(rng: Random, split: str) -> str:
    """A word of the tokenizer's own, in small letters or with a capital: each copies once it has been copied."""
    word = rng.choice(words.STARTS)
    return word.capitalize() if rng.random() < 0.35 else word


def _good(rng: Random, split: str) -> str:
    """Something that may be on a menu, as it is written there."""
    return shops.item_of(rng, split, rng.choice(list(shops.GOODS_OF)), 0.5)


def _short(rng: Random, split: str) -> str:
    return words.word(rng) if rng.random() < 0.5 else values.pick(rng, split, lambda: values.coined(rng))


def _table(rng: Random, voice: Voice, split: str) -> tuple[str, Turns]:
    """Facts of random words: whose is what."""
    keys = [values.pick(rng, split, lambda: values.coined(rng).capitalize()) for _ in range(rng.randint(2, 5))]
    kind = rng.choice(("room", "code", "table", "locker", "price", "color", "person"))
    held = {}
    for key in keys:
        held[key] = {
            "room": str(rng.randint(1, 400)),
            "table": str(rng.randint(1, 60)),
            "locker": str(rng.randint(1, 99)),
            "price": f"${rng.randint(1, 30)}.{rng.choice(('00', '50'))}",
            "person": values.first_name(rng, split),
            "color": rng.choice("red green blue yellow white black pink brown orange gray".split()),
        }.get(kind) or values.code(rng)
    styles = ("{k} has {t} {v}", "{k}: {t} {v}", "{k} - {v}", "the {t} of {k} is {v}", "{t} {v} is for {k}")
    style = rng.choice(styles)
    rows = [style.replace("{k}", k).replace("{t}", kind).replace("{v}", v) for k, v in held.items()]
    turns = []
    for key in rng.sample(keys, rng.randint(1, min(3, len(keys)))):
        shown = voice.form(key)
        turns.append((say(rng, voice, LOOK_UP, t=kind, k=shown), f"The {kind} of {shown} is {held[key]}."))
    return sentence(rng.choice((". ", ", ", "; ")).join(rows)) + ".", turns


def _hours(rng: Random, voice: Voice, split: str) -> tuple[str, Turns]:
    """Opening hours, alone or among other facts, asked for day by day; seldom all but the hours."""
    week = plans.draw(rng) if rng.random() < 0.66 else None
    today = rng.randrange(7) if isinstance(week, opening.Hours) and rng.random() < 0.25 else None
    other = [make(rng, split)[0] for make, _ in rng.sample(list(NOTES.values()), 2)]
    if rng.random() < 0.5:  # what nobody has told of a house before says nothing about its hours either
        other = [_anything(rng, split) for _ in other]
    if week:
        parts = [plans.written(rng, week), *other[: rng.choices((0, 1, 2), (70, 22, 8))[0]]]
    else:
        parts = other[: rng.randint(1, 2)]
    if rng.random() < 0.2:
        rng.shuffle(parts)
    if rng.random() < 0.4 or not week and rng.random() < 0.7:
        parts.insert(0, shops.house_name(rng, split))
    if today is not None:
        parts.insert(rng.choice((0, 0, len(parts))), f"today is {values.DAYS[today]}")
    special = isinstance(week, opening.Hours) and (week.special or week.away)
    if (rng.random() < 0.65 and today is None and not special) or not week:
        found = plans.drill(rng, voice, week)
    else:
        found = [turn for _ in range(rng.randint(2, 4)) for turn in plans.turns(rng, voice, week, today)]
    if not week and rng.random() < 0.25:
        return "", found
    return ". ".join(sentence(part).rstrip(".") for part in parts) + ".", found


def _anything(rng: Random, split: str) -> str:
    """A line of words without meaning, or of goods."""
    if rng.random() < 0.4:
        return listed([plural(shops.coined_item(rng, split)) for _ in range(rng.randint(2, 4))])
    return " ".join(words.word(rng) for _ in range(rng.randint(3, 7)))


def _menu(rng: Random, voice: Voice, split: str) -> tuple[str, Turns]:
    """A price list and nothing else: what things cost, what is in them."""
    kinds = list(shops.GOODS_OF if rng.random() < 0.55 else shops.NAMES_OF)
    here = facts.draw(rng, split, rng.choice(kinds), told=1.0)
    while not here.prices:
        here = facts.draw(rng, split, here.kind, told=1.0)
    if rng.random() < 0.7:
        return here.facts, menu.price_drill(rng, voice, here)
    return here.facts, [turn for _ in range(rng.randint(2, 5)) for turn in menu.price_turns(rng, voice, here, split)]


def _order(rng: Random, voice: Voice, split: str) -> Turns:
    """An order of things nobody sells, read back."""
    lines, spoken = [], []
    for _ in range(rng.randint(1, 4)):
        n = rng.choices(range(1, 10), (30, 20, 14, 10, 8, 6, 4, 4, 4))[0]
        item, size = shops.coined_item(rng, split), rng.choice(("", "", "small ", "medium ", "large "))
        noun = size + (item if n == 1 else plural(item))
        lines.append(f"{number(n)} {noun}")
        count = number(n) if rng.random() < 0.6 else str(n)
        if n == 1 and rng.random() < 0.6:
            count = "an" if noun[0] in "aeiou" else "a"
        spoken.append(f"{count} {noun}")
    asked = voice.says("[i'd like|can i get|give me|i want|we need|i'll take|could i have|] {x}", x=listed(spoken))
    turns = [(asked, sentence(listed(lines)) + ". Anything else?")]
    if rng.random() < 0.5:
        turns.append((say(rng, voice, READ), f"You have {listed(lines)}. Anything else?"))
    return turns


def _named(rng: Random, voice: Voice, split: str) -> Turns:
    """An order that tells a name with it, and whose it is."""
    while True:
        counter = Counter(rng, voice, Shop(rng.choice(list(shops.GOODS_OF))), split, "")
        counter.add(order_words.WANT)
        if counter.order.name:
            break
    if rng.random() < 0.5:
        counter.turns += names.recall(rng, voice, counter.order.name)
    return counter.turns


def _change(rng: Random, voice: Voice, split: str) -> Turns:
    """An order and nothing but changes of it: which line is meant."""
    counter = Counter(rng, voice, Shop(rng.choice(list(shops.GOODS_OF))), split, "")
    counter.add(order_words.WANT)
    for _ in range(rng.randint(1, 4)):
        correction.turn(counter)
    return counter.turns


def _booked(rng: Random, voice: Voice, split: str) -> Turns:
    """Tables, films and trips, all in one sentence: where a title ends, what is a number of people, what a time."""
    desk = booking.Desk(rng, voice, Shop(rng.choice(desks.COMMON)), split)
    desk.terse()
    for _ in range(rng.choice((0, 0, 1, 1, 2))):
        desk.correct()
    return desk.turns


def _house(rng: Random, voice: Voice, split: str) -> tuple[str, Turns]:
    """Facts of the house, and questions that they answer or do not."""
    here = Shop("snacks")
    parts = []
    for topic in rng.sample(list(NOTES), rng.randint(1, 5)):
        text, here.notes[topic] = NOTES[topic][0](rng, split)
        parts.append(sentence(text).rstrip("."))
    parts += [sentence(rule(rng, here)) for _ in range(rng.choice((0, 1, 2, 3)))]
    rng.shuffle(parts)
    turns = [turn for _ in range(rng.randint(2, 5)) for turn in notes.note_turns(rng, voice, here)]
    return rng.choice((". ", ". ", "\n")).join(parts) + ".", turns


def _pairs(rng: Random, voice: Voice, split: str) -> Turns:
    """An order and a wish that begins like one and is none, about the same things."""
    counter = Counter(rng, voice, Shop(rng.choice(list(shops.GOODS_OF))), split, "")
    for _ in range(rng.randint(2, 4)):
        lines = counter.order.lines
        if rng.random() < 0.5:
            counter.add(order_words.MORE if lines else order_words.WANT)
        else:
            item = lines[-1].item if lines and rng.random() < 0.6 else ""
            counter.turns.append(off_topic.errand(rng, voice, split, item))
    return counter.turns


def _refused(rng: Random, voice: Voice, split: str) -> Turns:
    """One after the other what has no place here, and remarks that are none of ours."""
    turns: Turns = []
    for _ in range(rng.randint(3, 6)):
        turns += (rude if rng.random() < 0.2 else off_topic).turns(rng, voice, split)
    return turns


#: exercises with facts, and the rest; tables take the more tokens the longer they are
_WITH_FACTS = {_hours: 52, _table: 4, _menu: 19, _house: 6}
_WITHOUT = {_list: 7, _repeat: 6, _spell: 1, _spelled: 1, _name: 20, _names: 3, _words: 3, _order: 12, _named: 9,
            _who: 10, _change: 8, _booked: 9, _pairs: 9, _refused: 11}  # fmt: skip


def draw(rng: Random, split: str) -> tuple[str, Turns]:
    """One exercise: the facts turn, empty for most, and the turns."""
    voice = Voice(rng)
    kinds = [*_WITH_FACTS, *_WITHOUT]
    drill = rng.choices(kinds, [*_WITH_FACTS.values(), *_WITHOUT.values()])[0]
    if drill in _WITH_FACTS:
        return drill(rng, voice, split)  # type: ignore[return-value]
    voice.chatty = 0.0  # nothing beside what is to be repeated
    return "", drill(rng, voice, split)  # type: ignore[return-value]
