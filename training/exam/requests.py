"""The requests: what the kiosk is told, what the guest says turn by turn, what the last answer must hold."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from random import Random

from training.exam import goods
from training.heldout import NAMES

Slot = tuple[str, ...]  # ways to write one thing; one of them must stand in the answer


@dataclass(frozen=True)
class Request:
    """One visit.  ``subject``: order, booking, name, hours, unknown, price, bill, menu, off-topic or
    tone.

    ``times``, ``amounts``: the only times of day and sums of money that the last answer may tell; None: not looked at.
    """

    subject: str
    said: tuple[str, ...]
    wants: tuple[Slot, ...] = ()
    facts: str = ""
    times: tuple[str, ...] | None = None
    amounts: tuple[str, ...] | None = None


def all_requests() -> list[Request]:
    """Always the same, in the same order."""
    rng = Random("exam 1")
    makers = (_orders, _bookings, _names, _hours, _unknown, _prices, _off_topic, _tone, _menus)
    return [request for make in makers for request in make(rng)]


def _pick(rng: Random, pool: list[str], at: int) -> str:
    """Each of a pool in turn, so that all are used; ``rng`` only breaks the rhythm."""
    return pool[(at + rng.randrange(2)) % len(pool)]


def _noun(item: str, n: int) -> str:
    if n == 1:
        return item
    if item.endswith(("ch", "sh", "x")):
        return item + "es"
    return item[:-1] + "ies" if item.endswith("y") and item[-2] not in "aeiou" else item + "s"


# ---- orders ----------------------------------------------------------------------------------------------------------

ONE_ITEM = [
    "Morning! {x} for me if that's all right.", "Could I grab {x}?", "I am after {x} today.", "We fancy {x}.",
    "My colleague asked me to bring {x}.", "Time for a treat: {x}.", "So, for now {x}.",
    "Is there any chance I could get {x}?",
    "what i want is {x}", "{x} would make me happy.", "You can start with {x}.", "i'd say {x}",
    "Let's begin with {x}, shall we?", "ok {x} it is", "For lunch I'll go with {x}.", "Same as always: {x}.",
]  # fmt: skip
TWO_ITEMS = [
    "{x} along with {y}.", "My order today: {x}, then {y}.", "Could I grab {x} together with {y}?",
    "we fancy {x} and {y}",
    "{x} for my daughter and {y} for myself.", "I am after {x} as well as {y}.", "First {x}, and after that {y}.",
]  # fmt: skip
RECOUNT = [
    "Hang on, I need {n} of those.", "Oh, we are more people now, so {n} of them.", "My mistake, it should be {n}.",
    "hm no, rather {n}", "Let me correct myself: {n}, thank you.", "Could that become {n}?",
]  # fmt: skip
MENU = [
    "This is {shop}. For sale: {rows}.", "You serve at {shop}. What we offer: {rows}.",
    "{shop}. Today's list: {rows}.",
    "Desk of {shop}. Guests can choose from {rows}.",
]  # fmt: skip


def _menu(rng: Random, shop: str) -> tuple[str, dict[str, int]]:
    """A facts turn with prices, and the prices in cents."""
    items = rng.sample(goods.MENUS[shop].split("|"), 4)
    prices = {item: 50 * rng.randint(3, 17) for item in items}
    rows = ", ".join(f"{item} ${cents // 100}.{cents % 100:02}" for item, cents in prices.items())
    text = rng.choice(MENU).replace("{shop}", shop).replace("{rows}", rows)
    return text[0].upper() + text[1:], prices


def _said(n: int, size: str, item: str, rng: Random) -> str:
    count = rng.choice(("one", "a", "1")) if n == 1 else rng.choice(goods.COUNTS[n])
    if count == "a" and (size or item)[0] in "aeiou":
        count = "an"
    return " ".join(part for part in (count, size, _noun(item, n)) if part)


def _slots(n: int, size: str, item: str) -> list[Slot]:
    """What must come back of n things, in singular or plural; "a" counts as one only before the thing."""
    thing = f"{size} {item}".strip()
    count = goods.COUNTS[n] if n > 1 else ("one", "1", f"a {thing}", f"an {thing}")
    return [count, (item, _noun(item, 2)), *([(size,)] if size else [])]


def _orders(rng: Random) -> Iterator[Request]:
    """One or two things, with and without a menu; corrected counts."""
    shops = list(goods.MENUS)
    for i in range(130):
        shop = shops[i % len(shops)]
        facts, prices = _menu(rng, shop)
        sized = i % 2 == 0
        items = rng.sample(list(prices) if not sized else goods.MENUS[shop].split("|"), 2)
        counts = [rng.choice(list(goods.COUNTS)) for _ in items]
        sizes = [rng.choice(goods.SIZES) if sized else "" for _ in items]
        shown = [_said(n, size, item, rng) for n, size, item in zip(counts, sizes, items)]
        slots = [_slots(*each) for each in zip(counts, sizes, items)]
        told = "" if sized else facts
        if i % 10 < 5:
            said = _pick(rng, ONE_ITEM, i).replace("{x}", shown[0])
            yield Request("order", (said,), tuple(slots[0]), told)
        elif i % 10 < 8:
            said = _pick(rng, TWO_ITEMS, i).replace("{x}", shown[0]).replace("{y}", shown[1])
            yield Request("order", (said,), tuple(slots[0] + slots[1]), told)
        else:
            again = rng.choice([n for n in goods.COUNTS if n != counts[0]])
            first = _pick(rng, ONE_ITEM, i).replace("{x}", shown[0])
            second = _pick(rng, RECOUNT, i).replace("{n}", goods.COUNTS[again][0])
            yield Request("order", (first, second), tuple(_slots(again, "", items[0])), told)


# ---- bookings --------------------------------------------------------------------------------------------------------

TABLE = [
    "Any chance of a table for {n} on {day} at {time}?", "We are planning dinner for {n}, {day}, {time}.",
    "Please keep a table for {n} free on {day} at {time}.", "Could {n} of us eat here on {day} at {time}?",
    "dinner for {n} on {day} {time}", "I was wondering about a table for {n} at {time} on {day}.",
]  # fmt: skip
SHOW = [
    "{n} seats for {title} on {day}, the {time} showing.",
    "Are there {n} tickets left for {title} at {time} on {day}?",
    "We want to watch {title} on {day} at {time}, {n} tickets.", "{title}, {n} tickets, {day}, {time}.",
    "my family would like {n} tickets for {title} on {day} at {time}",
]  # fmt: skip
TRAIN = [
    "{n} tickets to {town} on {day} at {time}, thanks.", "We travel to {town} on {day} at {time}, so {n} tickets.",
    "I have to be in {town}: {n} tickets for {day}, {time}.", "{town} on {day} at {time}, {n} tickets",
]  # fmt: skip


def _bookings(rng: Random) -> Iterator[Request]:
    """Everything said at once: each part is to come back."""
    for i in range(70):
        n, day, time = rng.choice([n for n in goods.COUNTS if n > 1]), goods.DAYS[i % 7], _pick(rng, goods.TIMES, i)
        filled = {"{n}": rng.choice(goods.COUNTS[n]), "{day}": day, "{time}": time}
        wants: tuple[Slot, ...] = (goods.COUNTS[n], (day,), (time,))
        if i % 3 == 0:
            pattern = _pick(rng, TABLE, i)
        elif i % 3 == 1:
            pattern, filled["{title}"] = _pick(rng, SHOW, i), _pick(rng, goods.TITLES, i)
            wants += ((filled["{title}"],),)
        else:
            pattern, filled["{town}"] = _pick(rng, TRAIN, i), _pick(rng, goods.TOWNS, i)
            wants += ((filled["{town}"],),)
        for key, value in filled.items():
            pattern = pattern.replace(key, value)
        yield Request("booking", (pattern[0].upper() + pattern[1:],), wants)


# ---- names -----------------------------------------------------------------------------------------------------------

NAMED: list[tuple[str, ...]] = [
    ("Hello there, {name} is what everybody calls me.",), ("Good day to you, {name} speaking.",),
    ("Let me introduce myself: {name}.",), ("A large black tea for {name}, thank you.",),
    ("Two raisin buns, and please write {name} on the bag.",),
    ("Hi! I'm {name} and I come here every week.", "Do you still know what I am called?"),
    ("One apple strudel to start with.", "That would be everything.", "You may put {name} on the cup."),
    ("We'd love a table for three on Friday at 8:25 pm.", "The booking should be on {name}."),
    ("Three tickets for Mister Quill on Sunday at 5 pm, my name being {name}.",),
    ("{name}, nice to meet you.", "Quick test, what's the name I gave?"),
]  # fmt: skip


def _names(rng: Random) -> Iterator[Request]:
    """Every held-out name twice."""
    for i, name in enumerate([*NAMES, *NAMES]):
        said = NAMED[(i + i // len(NAMES)) % len(NAMED)]
        yield Request("name", tuple(each.replace("{name}", name) for each in said), ((name,),))


# ---- opening hours ---------------------------------------------------------------------------------------------------

ASK_SPAN = [
    "On {day}, what are your hours?", "I could drop in on {day}. When is somebody there?",
    "{day}s, which hours apply?",
    "what about {day}, from when until when", "Planning for {day}: when can I shop?", "{day}, are you there?",
]  # fmt: skip
ASK_FROM = ["How soon do you unlock on {day}?", "On {day}, what's your earliest?",
    "{day} morning, when does it start?"]
ASK_TILL = ["Until what hour can I get something on {day}?", "{day} evening, when's closing?",
    "On {day}, when do you lock the door?"]


def _week(rng: Random, i: int) -> tuple[str, list[tuple[str, str] | None]]:
    """A notice in one of eight wordings, and what it says for each day."""
    a, c = rng.sample(goods.OPENING, 2)
    b, d = rng.sample(goods.CLOSING, 2)
    usual, other = (a, b), (c, d)
    shop = rng.choice(list(goods.MENUS))
    shop = shop[0].upper() + shop[1:]
    kind = i % 8
    if kind == 0:
        return (f"{shop}. Business hours Monday through Friday: {a} to {b}; Saturday: {c} to {d}; Sunday: closed.",
                [usual] * 5 + [other, None])  # fmt: skip
    if kind == 1:
        return (f"Our doors are open {a} - {b} on weekdays and {c} - {d} on Saturdays. Sundays we rest. {shop}.",
                [usual] * 5 + [other, None])  # fmt: skip
    if kind == 2:
        day = rng.randrange(7)
        return (f"{shop} opens daily at {a} and shuts at {b}. Only on {goods.DAYS[day]} do we stay closed.",
                [None if at == day else usual for at in range(7)])  # fmt: skip
    if kind == 3:
        spans = [(rng.choice(goods.OPENING), rng.choice(goods.CLOSING)) for _ in range(7)]
        week = [None if rng.random() < 0.2 else span for span in spans]
        rows = [f"{day[:3]} " + (f"{span[0]}-{span[1]}" if span else "closed") for day, span in zip(goods.DAYS, week)]
        return f"{shop}. Week plan: {', '.join(rows)}.", week
    if kind == 4:
        return (f"From Monday until Thursday you may come between {a} and {b}, Friday through Sunday between {c} and "
                f"{d}. Bags stay at the entrance.", [usual] * 4 + [other] * 3)  # fmt: skip
    if kind == 5:
        return f"{shop}. Every day of the year: {a} to {b}. Dogs wait outside.", [usual] * 7
    if kind == 6:
        text = f"Weekday hours {a}-{b}. Weekend hours {c}-{d}. There is a ramp at the side door."
        return text, [usual] * 5 + [other] * 2
    return f"{shop}. Closed Monday and Tuesday, other days {a} till {b}.", [None] * 2 + [usual] * 5


def _hours(rng: Random) -> Iterator[Request]:
    """Questions about one day."""
    for i in range(140):
        facts, week = _week(rng, i)
        day = rng.randrange(7)
        span, kind = week[day], rng.choice((0, 0, 1, 2))
        pattern = rng.choice((ASK_SPAN, ASK_FROM, ASK_TILL)[kind])
        wants: tuple[Slot, ...] = (("closed", "not open", "shut", "rest"),)
        if span:
            wants = (((span[0],), (span[1],)), ((span[0],),), ((span[1],),))[kind]
        yield Request("hours", (pattern.replace("{day}", goods.DAYS[day]),), wants, facts, span or ())


def _unknown(rng: Random) -> Iterator[Request]:
    """The same questions where nobody told the hours."""
    for i in range(60):
        pattern = rng.choice(ASK_SPAN + ASK_FROM + ASK_TILL)
        facts = "" if i % 3 == 0 else goods.SILENT[i % len(goods.SILENT)]
        yield Request("unknown", (pattern.replace("{day}", goods.DAYS[i % 7]),), (), facts)


# ---- prices ----------------------------------------------------------------------------------------------------------

PRICE = ["What would {x} set me back?", "Is {x} dear? How much?", "I'd like to know what {x} costs here.",
    "{x}, what's that in dollars?"]


def _prices(rng: Random) -> Iterator[Request]:
    """One price; an order and each of its prices, which a bill shows right."""
    shops = list(goods.MENUS)
    for i in range(40):
        facts, prices = _menu(rng, shops[i % len(shops)])
        items = rng.sample(list(prices), 2)
        if i % 2:
            said = PRICE[i % len(PRICE)].replace("{x}", "the " + items[0])
            said = said[0].upper() + said[1:]
            price = _money(prices[items[0]])
            yield Request("price", (said,), ((price,),), facts, amounts=(price,))
        else:
            counts = [rng.choice((1, 1, 2, 3)) for _ in items]
            x, y = (_said(n, "", item, rng) for n, item in zip(counts, items))
            said = TWO_ITEMS[i // 2 % len(TWO_ITEMS)].replace("{x}", x).replace("{y}", y)
            said = said[0].upper() + said[1:]
            amounts = tuple(_money(prices[item]) for item in items)
            wants = tuple((amount,) for amount in amounts)
            yield Request("bill", (said, "Thanks, nothing further. What's the sum?"), wants, facts, amounts=amounts)


def _money(cents: int) -> str:
    return f"${cents // 100}.{cents % 100:02}"


def _off_topic(rng: Random) -> Iterator[Request]:
    for i, said in enumerate(goods.OFF_TOPIC):
        yield Request("off-topic", (said,), (), goods.SILENT[i % len(goods.SILENT)] if i % 2 else "")


def _tone(rng: Random) -> Iterator[Request]:
    for said in goods.TEASING:
        yield Request("tone", (said,))


# ---- menus -----------------------------------------------------------------------------------------------------------

LIST = [
    "Could you run me through all that you offer?", "What have you got at the moment?",
    "i wonder what you have for us", "Name everything I can choose from.", "List your goods for me, would you?",
    "So what could I buy at this place?", "I can't read the board. What's on it?", "Out of what may I choose?",
]  # fmt: skip


def _menus(rng: Random) -> Iterator[Request]:
    """What there is: all four things of a menu."""
    shops = list(goods.MENUS)
    for i in range(40):
        facts, prices = _menu(rng, shops[i % len(shops)])
        yield Request("menu", (LIST[i % len(LIST)],), tuple((item, _noun(item, 2)) for item in prices), facts)
