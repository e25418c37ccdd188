"""Price lists of any house: goods in sizes, tickets, hire, repairs, by the day and by the kilo, to the cent."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from training.grammar import values, words
from training.grammar.shop import GOODS_OF, Shop, coined_item, item_of
from training.grammar.text import ONES, listed, plural, sentence

Row = tuple[str, str, list[str]]  # as the answer names it, as the facts do, what guests call it

# ---- amounts ---------------------------------------------------------------------------------------------------------

#: one list's habit: the cents, and whether whole amounts are written without them
_CENTS: list[Callable[[Random], int]] = [
    lambda rng: 0, lambda rng: rng.choice((0, 50)), lambda rng: rng.choice((0, 50, 50, 25, 75)),
    lambda rng: rng.randrange(0, 100, 10), lambda rng: rng.randrange(0, 100, 5), lambda rng: rng.randrange(100),
    lambda rng: rng.choice((90, 95, 99, 49, 80)),
]  # fmt: skip


def amounts(rng: Random, sign: str) -> Callable[[], str]:
    """How one list writes its prices: $3.50, $4, $0.80, $134, €12.90, 12.90 €; each call draws one."""
    cents = rng.choices(_CENTS, (10, 8, 8, 22, 26, 18, 8))[0]
    bare, behind = rng.random() < 0.6, rng.random() < 0.05
    scale = rng.choices((0, 1, 2, 3), (52, 28, 5, 15))[0]

    def amount() -> str:
        size = scale if scale < 3 else rng.randrange(3)
        whole = (rng.randint(0 if rng.random() < 0.3 else 1, 9), rng.randint(10, 99), rng.randint(100, 480))[size]
        part = cents(rng)
        if whole == 0 and part < 5:
            part = rng.choice((20, 35, 40, 60, 80, 85, 90, 95))
        text = str(whole) if bare and part == 0 else f"{whole}.{part:02}"
        return f"{text} {sign}" if behind else sign + text

    return amount


# ---- what is on the list ---------------------------------------------------------------------------------------------

_THINGS = """
umbrella|helmet|locker|racket|life jacket|wetsuit|stroller|wheelchair|audio guide|deck chair|parasol|sledge|snorkel|
kayak|canoe|paddle board|scooter|trailer|child seat|tent|sleeping bag|projector|microphone|ladder|trolley|blanket|
swim cap|pair of goggles|yoga mat|pair of skates|pair of skis|bowling shoes|costume|map|torch|lamp|pump|bathrobe|
picnic basket|fishing rod|golf club|ball|bike lock|rucksack|power bank|adapter|cot|fan|heater|hair dryer|iron
""".replace("\n", "").split("|")
_ACTS = {
    "repair": "repaired|fixed|mended", "cleaning": "cleaned", "wash": "washed", "polish": "polished", "trim": "trimmed",
    "check": "checked|looked at", "service": "serviced", "sharpening": "sharpened", "ironing": "ironed",
    "dyeing": "dyed", "shortening": "shortened|made shorter", "replacement": "replaced|changed", "framing": "framed",
    "delivery": "delivered", "engraving": "engraved", "wrapping": "wrapped", "storage": "stored|kept safe",
    "painting": "painted", "copying": "copied", "cut": "cut",
}  # fmt: skip
_DONE_TO = """
beard|hair|zipper|heel|sole|watch|battery|screen|phone|laptop|bike|chain|brake|tire|jacket|coat|suit|shirt|dress|carpet|
curtain|skirt|knife|key|ring|car|window|picture|dog|cat|parcel|suitcase|gift|document|door|lock|chair|table|boot|shoe|
saddle|wheel|camera|lens|guitar|piano|necklace|rug|sofa|blanket|sail|lawn|hedge|tent|ski|nail|eyebrow|moustache|poster
""".replace("\n", "").split("|")
_PEOPLE = """
adult|child|student|senior|family|group|baby|teenager|dog|bicycle|car|suitcase|camper|local|member|pupil|pensioner|
infant|companion|motorbike|wheelchair user|visitor|resident|cat|pram
""".replace("\n", "").split("|")
UNITS = """
a day|an hour|per hour|a night|per person|each|a kilo|a dozen|a bunch|a bag|a pound|a slice|a box|a week|a month|
per player|per group|per page|a pair|a bottle|half a day|per day|a piece|a glass|per night|for two|for four|a jar|
per head|a liter|a meter|a go|per ride|per game|the pair|a stem|a pot|per bag|per item|a pack
""".replace("\n", "").split("|")
_ROOMS = """
single room|double room|twin room|family room|breakfast|parking space|sauna|late checkout|extra bed|suite|dormitory bed|
half board|pitch|cabin|meeting room|court|lane|table|studio|boat|rowing boat|pedal boat|electric bike|city bike|
road bike|van|minibus|lesson|course|class|massage|facial|manicure|haircut|shave|perm|colour|highlights|blow dry|
day pass|season ticket|guided tour|boat trip|ferry crossing|evening show|matinee|workshop|membership|library card|
photo print|passport photo|stamp|small parcel|large parcel|letter abroad|card|key copy|spare key|phone case|charger
""".replace("\n", "").split("|")
_GOODS = """
eggs|butter|milk|honey|cheese|potatoes|carrots|strawberries|cherries|walnuts|jam|flour|olive oil|vinegar|salt|rice|
coffee beans|tea leaves|candles|matches|soap|shampoo|toothbrush|sunscreen|plasters|cough drops|nail file|hand cream|
dog food|cat litter|bird seed|fish flakes|hay|dog bowl|dog brush|chew bone|hamster wheel|pen|ruler|envelopes|glue|
wrapping paper|birthday card|balloons|paper cups|screwdriver|nails|paint|rope|bucket|light bulb|batteries|
extension lead|seeds|compost|flower bulbs|watering can|gloves|wool|buttons|thread|ribbons|fabric|magazine|
crossword book|lighter|spaghetti|lasagna|risotto|soup of the day|schnitzel|steak|fish and chips|curry|dal|
pad thai|spring rolls|burrito|quesadilla|falafel plate|hummus|kebab|paella|goulash|
dumplings|tiramisu|crepe|fruit strudel|house wine|draft beer
""".replace("\n", "").split("|")
_SIZES = ["small|medium|large", "small|large", "small|regular|large", "half|full", "mini|maxi", "regular|king size",
          "short|tall", "thin|thick", "light|dark", "hot|iced", "single|double"]  # fmt: skip
_TRIPS = ["single|return", "single|return", "one-way|round trip", "adult|child", "adult|child|senior"]
_COUNTED = "scoop|hour|night|game|ride|ticket|person|piece|pancake|oyster|round|lesson|visit|wash|slice|taco|session"


def names_of(label: str) -> list[str]:
    """the latte, a latte, one latte, lattes"""
    article = "an" if label[0] in "aeio" else "a"
    if label.endswith("s") and not label.endswith("ss"):
        return [f"the {label}", label, f"your {label}", f"some {label}", f"those {label}"]
    return [f"the {label}", f"the {label}", f"{article} {label}", f"{article} {label}", f"one {label}", label,
            f"your {label}", f"that {label}", f"a single {label}", plural(label), f"the {plural(label)}"]  # fmt: skip


def _sized(rng: Random, split: str) -> list[Row]:
    """Popcorn: small $4, large $7.25; two to four goods in the same sizes."""
    sizes = rng.choice(_SIZES).split("|")
    kind = rng.choice(list(GOODS_OF))
    rows: list[Row] = []
    heads = {_item(rng, split, kind) for _ in range(rng.randint(1, 3))}
    for head in sorted(heads):
        for size in sizes:
            label = f"{size} {head}"
            rows.append((label, f"{head}|{size}", [*names_of(label), f"the {head}, {size}", f"{head} in {size}",
                                                    f"the {head} in {size}", f"the {size} {head}"]))  # fmt: skip
    return rows


def _trips(rng: Random, split: str) -> list[Row]:
    """Zorvin: single $9.60, return $15.40."""
    fares = rng.choice(_TRIPS).split("|")
    rows: list[Row] = []
    for town in dict.fromkeys(values.place(rng, split) for _ in range(rng.randint(1, 3))):
        for fare in fares:
            calls = [f"a {fare} to {town}", f"the {fare} to {town}", f"a {fare} ticket to {town}", f"{fare} to {town}",
                     f"{town} {fare}", f"{town}, {fare}", f"one {fare} to {town}", f"the {town} {fare}"]  # fmt: skip
            rows.append((f"{fare} to {town}", f"{town}|{fare}", [_article(each) for each in calls]))
    return rows


def _article(text: str) -> str:
    return text.replace("a adult", "an adult").replace("a infant", "an infant")


def _counted(rng: Random, split: str) -> list[Row]:
    """One scoop $2.85, two scoops $4.95."""
    thing = rng.choice(_COUNTED.split("|"))
    if rng.random() < 0.3:
        thing = item_of(rng, split, rng.choice(list(GOODS_OF)), 0.7)
    many = plural(thing) if thing != "person" else "people"
    rows: list[Row] = []
    for n in sorted(rng.sample(range(1, 7), rng.randint(2, 4))):
        label = f"{ONES[n]} {thing if n == 1 else many}"
        digits = f"{n} {thing if n == 1 else many}"
        rows.append((label, label if rng.random() < 0.8 else digits, [label, label, digits, f"the {label}",
                                                                       f"just {label}"]))  # fmt: skip
    form = rng.random() < 0.8  # the same in all rows, and the answer as in the facts
    return [(label if form else calls[2], label if form else calls[2], calls) for label, _, calls in rows]


def _people(rng: Random, split: str) -> list[Row]:
    """Adult $18.50, child $9.25, dog $2."""
    return [(who, who, [f"~{who}"]) for who in rng.sample(_PEOPLE, rng.randint(2, 4))]


def _hired(rng: Random, split: str) -> list[Row]:
    """Towel hire $2.25, locker $1 a day."""
    how = rng.choice((" hire", " rental", "", "", " loan"))
    return [(thing + how, thing + how, [f"%{thing}", *(names_of(thing) if not how else [f"the {thing}{how}"])])
            for thing in rng.sample(_THINGS, rng.randint(2, 4))]  # fmt: skip


def _done(rng: Random, split: str) -> list[Row]:
    """Beard trim $11, zipper repair $8.90."""
    rows: dict[str, Row] = {}
    act = rng.choice(list(_ACTS))
    for _ in range(rng.randint(2, 5)):
        act = act if rng.random() < 0.4 else rng.choice(list(_ACTS))
        thing = rng.choice(_DONE_TO if rng.random() < 0.8 else words.THINGS)
        label = f"{thing} {act}"
        calls = [f"+{thing}|{done}" for done in _ACTS[act].split("|")]
        rows.setdefault(thing, (label, label, [*calls, *calls, *calls, *names_of(label)[:3]]))
    return list(rows.values())


def _item(rng: Random, split: str, kind: str) -> str:
    if rng.random() < 0.4:
        return rng.choice(_GOODS)
    return item_of(rng, split, kind, 0.5)


def _flat(rng: Random, split: str) -> list[Row]:
    """Things of all kinds, each named by all its words or by one that no other row has."""
    kind = rng.choice(list(GOODS_OF))
    pool = rng.choice((_ROOMS, _GOODS, None, None))
    n = rng.randint(2, 6)
    labels: dict[str, str] = {}
    shared = coined_item(rng, split).split()[-1] if rng.random() < 0.2 else ""  # Kenya beans, Peru beans
    while len(labels) < n:
        item = rng.choice(pool) if pool and rng.random() < 0.85 else _item(rng, split, kind)
        if shared and len(labels) < 3:
            item = f"{values.pick(rng, split, lambda: values.coined(rng))} {shared}"
        if rng.random() < 0.08:
            item = rng.choice(("extra ", "spare ", "new ", "replacement ")) + item.removeprefix("extra ")
        if rng.random() < 0.1:
            item = values.title(rng, split)  # rooms, shows and games have names
        if not any(item.lower() in other.lower() or other.lower() in item.lower() for other in labels):
            labels[item] = item
    rows: list[Row] = []
    noun = rng.choice(words.THINGS) if rng.random() < 0.2 and n < 5 else ""  # Peru, for Peru beans
    for label in labels:
        calls = names_of(label) if label[0].islower() else [label, f"the {label.removeprefix('The ')}", label]
        for part in (label.split()[-1], label.split()[0]):
            known = sum(part.rstrip("s") in other for other in labels)
            if " " in label and known == 1 and len(part) > 3 and label[0].islower() and " of " not in label:
                calls += names_of(part)[:3] * 2 if part == label.split()[-1] else [f"the {part}", f"the {part} one"]
        if noun and noun not in label:
            calls += [f"the {label} {noun}", f"your {label} {plural(noun)}", f"{label} {plural(noun)}"] * 2
        rows.append((label, label, calls))
    return rows


_LISTS = ((_flat, 40), (_sized, 16), (_trips, 8), (_counted, 7), (_people, 8), (_hired, 9), (_done, 12))


# ---- as it is written ------------------------------------------------------------------------------------------------

_HEADS = ("", "", "", "Prices: ", "Price list: ", "Our prices: ", "Rates: ", "Fares: ", "Charges: ", "We charge: ",
          "What it costs: ", "Tickets: ", "Menu: ", "Per piece: ", "Counter: ", "On offer: ")  # fmt: skip


def written(rng: Random, split: str, shop: Shop) -> str:
    """A list of one or two kinds; ``shop`` knows then what each thing costs and what it may be called."""
    makers = rng.choices([make for make, _ in _LISTS], [n for _, n in _LISTS], k=rng.choice((1, 1, 1, 2)))
    amount = amounts(rng, shop.sign)
    unit, units = "", rng.random()
    blocks: list[str] = []
    shop.orders = False
    for make in dict.fromkeys(makers):
        if units < 0.35:
            unit = " " + rng.choice(UNITS)
        grouped: dict[str, list[str]] = {}
        for label, key, calls in make(rng, split):
            if any(label.lower() in other.lower() or other.lower() in label.lower() for other in shop.prices):
                continue
            if 0.25 < units < 0.35:
                unit = rng.choice(("", " " + rng.choice(UNITS)))
            price = amount() + (unit if make not in (_sized, _trips, _counted, _people) else "")
            shop.prices[label], shop.calls[label] = price, calls
            head, _, variant = key.partition("|")
            grouped.setdefault(head, []).append(f"{variant} {price}" if variant else price)
        if grouped:
            blocks.append(_block(rng, grouped, any("|" in key for key in grouped) or make in (_sized, _trips)))
    return ". ".join(blocks)


def _block(rng: Random, grouped: dict[str, list[str]], variants: bool) -> str:
    if variants:
        colon, joint = rng.choice((": ", ": ", " ", " - ")), rng.choice((", ", ", ", " / ", " and "))
        form = rng.random() < 0.3
        rows = [sentence(f"{head} ({joint.join(each)})" if form else head + colon + joint.join(each))
                for head, each in grouped.items()]  # fmt: skip
        return rng.choice((". ", ". ", "; ", "\n")).join(rows)
    styles = ("{} {}", "{} {}", "{} {}", "{}: {}", "{} for {}", "{} - {}", "{} costs {}", "{} is {}")
    style = rng.choice(styles[: 6 if any(head.endswith("s") for head in grouped) else 8])
    rows = [style.format(head, each[0]) for head, each in grouped.items()]
    head = rng.choice(_HEADS)
    text = listed(rows) if rng.random() < 0.4 else rng.choice((", ", ", ", "; ")).join(rows)
    if rng.random() < 0.1:
        text = "\n".join(rows)
    return head + text if head else sentence(text)
