"""What dialogues are about: names, titles, goods, days, times; and which of them belong to which split.

A tenth of all values and of all combinations (size and item, side and dish) is met in the test split only, another
tenth in the valid split only, by the hash of the text.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable, Sequence
from random import Random

from training.grammar import words
from training.grammar.text import ONES
from training.heldout import NAMES as HELD_OUT

SPLITS = ("train", "valid", "test")
_HELD_OUT = {name.lower() for name in HELD_OUT}


@functools.lru_cache(1 << 16)
def split_of(text: str) -> str:
    """The split in which a value may be met: 80 % train, 10 % valid, 10 % test."""
    first = hashlib.sha256(text.lower().encode()).digest()[0]
    return "test" if first < 26 else "valid" if first < 52 else "train"


def pick(rng: Random, split: str, draw: Callable[[], str], loose: float = 0.0) -> str:
    """Draw until a value belongs to the split; outside of train ``loose`` is the share that may be of train."""
    if split != "train" and loose and rng.random() < loose:
        split = "train"
    for _ in range(400):
        value = draw()
        if split_of(value) == split:
            return value
    raise ValueError(f"no value of the split {split}; the last tried was {value!r}")


# ---- names -----------------------------------------------------------------------------------------------------------

FIRST_NAMES = """
Aaron Abby Adam Adele Agnes Ahmed Aisha Alan Albert Alex Alice Alina Amina Amir Amy Ana Andre Andrea Andrew Angela
Anita Ann Anna Anton Arthur Asha Astrid Ava Barbara Beatrice Ben Benjamin Bernard Beth Bianca Bill Bob Boris Brenda
Brian Bruno Camille Carl Carla Carlos Carmen Carol Caroline Catherine Cecilia Charles Charlie Charlotte Chloe Chris
Christina Claire Clara Colin Connor Craig Dan Daniel Daniela David Dean Debbie Deborah Denise Dennis Diana Diego
Dimitri Dominic Donna Dora Doris Dorothy Doug Duncan Dylan Eddie Edith Eduardo Edward Elaine Elena Elias Elif Eliza
Ella Ellen Elliot Elsa Emil Emily Emma Enzo Eric Erik Erin Esther Ethan Eva Eve Evelyn Fatima Felix Fiona Florian
Fran Frances Frank Fred Freya Gabriel Gary Gavin George Georgia Gerald Gina Giulia Glen Gloria Gordon Grace Graham
Greg Greta Guy Hanna Hannah Harold Harriet Harry Hassan Hazel Heather Helen Henry Hiroshi Holly Howard Hugo Ian
Ibrahim Igor Ines Ingrid Irene Iris Isaac Isabel Ivan Ivy Jack Jackie Jacob Jacques Jake James Jamie Jan Jane Janet
Jasmine Jason Javier Jean Jenny Jeremy Jerry Jesse Jessica Jill Jim Joan Joanna Joe Joel Johan John Jonas Jordan
Jorge Jose Joseph Josh Joy Joyce Juan Judith Judy Julia Julian Julie June Justin Kai Karen Karim Karl Kate Katie
Keith Kelly Ken Kenji Kevin Kim Kira Kurt Kyle Lara Larry Laura Lauren Layla Lea Lena Leo Leon Leonie Lewis Liam
Lily Linda Lisa Liz Lois Lola Lorenzo Louis Louise Luca Lucas Lucia Lucy Luis Luke Lydia Lynn Magda Malik Marco
Margaret Maria Marie Mario Marion Mark Marta Martha Martin Mary Mateo Matilda Matt Max Maya Mei Melissa Mia Michael
Miguel Mike Mila Milan Milo Miriam Mohammed Molly Monica Morgan Muhammad Nadia Nancy Naomi Natalie Nathan Neil Nick
Nicole Nikita Nina Noah Noel Nora Olaf Olga Oliver Olivia Omar Oscar Otto Owen Pablo Pam Patricia Patrick Paul Paula
Pauline Pedro Penny Peter Petra Phil Philip Phoebe Pierre Polly Priya Rachel Raj Ralph Ramon Rania Raul Ray Rebecca
Regina Renata Rhys Ricardo Richard Rita Rob Robert Robin Roger Roland Roman Ron Rosa Rose Ross Roy Ruby Rudy Russell
Ruth Ryan Sabine Sally Sam Samantha Samir Samuel Sandra Sanjay Sara Sarah Scott Sean Sebastian Selma Serena Sergio
Sharon Sheila Shirley Silvia Simon Sofia Sonia Sophie Stan Stella Stefan Stephanie Steve Stuart Sue Susan Suzanne
Sven Sylvia Tamara Tanya Tara Ted Teresa Terry Theo Thomas Tiffany Tim Tina Toby Todd Tom Tomas Toni Tony Tracy
Trevor Troy Ursula Valerie Vanessa Vera Veronica Victor Victoria Vincent Viola Vivian Vladimir Walter Wanda Wayne
Wendy Will William Willow Xavier Yasmin Yolanda Yuki Yusuf Yvonne Zac Zara Zoe
""".split()
SURNAMES = """
Smith Jones Taylor Brown Wilson Evans Thomas Roberts Walker Wright Hall Green Wood Clarke Hughes Edwards Turner Hill
Cooper Ward Morris King Baker Parker Morgan Bell Cook Bailey Carter Gray Cox Fox Webb Stone Marsh Rossi Garcia Lopez
Silva Costa Weber Schmidt Fischer Dubois Moreau Laurent Novak Kowalski Ivanov Petrov Nilsen Larsen Berg Lund Okafor
Mensah Diallo Haddad Nasser Khan Patel Singh Gupta Chen Wang Li Kim Park Tanaka Sato Nguyen Tran Santos Cruz Reyes
""".split()

TITLES = "Mrs Mr Ms Miss Dr Mrs Mr Ms Dr Professor Doctor Captain Sister Brother Coach Uncle Aunt Madame Sir".split()

#: onsets, vowels, endings: flavours of made-up names
_FLAVOURS = [
    ("b d f g k l m n p r s t v z br dr fl gr tr".split(), "a e i o u ai ei".split(), "n l r s t x th nd m".split()),
    ("ch sh k t m n h y r s w j z ts".split(), "a i u e o".split(), ["", "", "n", "ko", "mi", "ta", "ki", "ru"]),
    ("w th br gw ll m n d c r g h".split(), "a e y o u ae wy".split(), "n th dd r s nn l wen yth".split()),
    ("v z d m n k s t b p str kr dm yar bog".split(), "a e i o u ya".split(), "mir slav n k sha ta ra v r ska".split()),
    ("x tl c qu m n t p h y z".split(), "a e i o ua".split(), "l tl n c tli x ca".split()),
    ("n k ch m b d t j w ad ol f".split(), "a e i o u".split(), ["", "a", "we", "bi", "di", "ma", "la", "ni", "ka",
        "ye"]),
    ("j qu f gl sn kl sw pl v th ph rh".split(), "a e i o u oo ee ou".split(), "rk lf mp zz x ck ng sk ft".split()),
    ("l m n r s d c b al el il".split(), "a e i o ia ea".split(), ["", "na", "ra", "lla", "tte", "ne", "s", "n",
        "lia"]),
]  # fmt: skip


def coined(rng: Random) -> str:
    """A made-up word of 3 to 12 letters, small letters: syllables of one flavour, sometimes letters at random."""
    while True:
        kind = rng.random()
        if kind < 0.03:
            word = "".join(rng.choice("abcdefghijklmnopqrstuvwxyz") for _ in range(rng.randint(3, 8)))
        elif kind < 0.12:
            vowels, others = "aeiouy", "bcdfghjklmnpqrstvwxz"
            start = rng.random() < 0.5
            word = "".join(rng.choice(vowels if (i + start) % 2 else others) for i in range(rng.randint(3, 9)))
        elif kind < 0.28:  # a known name with letters changed
            letters = list(rng.choice(FIRST_NAMES).lower())
            for _ in range(rng.randint(1, 2)):
                letters[rng.randrange(len(letters))] = rng.choice("abcdefghijklmnopqrstuvwxyz")
            word = "".join(letters) + rng.choice(["", "", "o", "a", "ie", "us", "en"])
        elif kind < 0.36:
            word = words.spliced(rng)
        elif kind < 0.60:
            word = words.pieced(rng)
        elif kind < 0.68:  # halves of two known names
            first, second = rng.choice(FIRST_NAMES).lower(), rng.choice(FIRST_NAMES + SURNAMES).lower()
            word = first[: rng.randint(2, 4)] + second[-rng.randint(2, 5) :]
        else:
            onsets, vowels, endings = rng.choice(_FLAVOURS)
            word = "".join(rng.choice(onsets) + rng.choice(vowels) for _ in range(rng.choices((1, 2, 3), (3, 5, 2))[0]))
            word += rng.choice(endings)
        if 3 <= len(word) <= 12 and word not in _HELD_OUT:
            return word


def _first_name(rng: Random) -> str:
    kind = rng.random()
    if kind < 0.30:
        return rng.choice(FIRST_NAMES)
    name = coined(rng).capitalize()
    if kind > 0.95:
        return _joined_name(rng, name)
    if kind > 0.935:
        at = rng.randrange(len(name))
        accent = {"a": "á", "e": "é", "i": "í", "o": "ö", "u": "ü", "n": "ñ", "c": "ç", "s": "š"}.get(name[at])
        return name[:at] + accent + name[at + 1 :] if accent else name
    return name


def _joined_name(rng: Random, name: str) -> str:
    """A name with a hyphen, an apostrophe, an initial, a second name or capitals of its own."""
    other = coined(rng).capitalize() if rng.random() < 0.6 else rng.choice(FIRST_NAMES)
    initial, kind = rng.choice("ABCDEFGHIJKLMNOPRSTVWYZ"), rng.random()
    if kind < 0.30:
        return f"{name}-{other}"
    if kind < 0.42:
        return rng.choice(("O'", "O'", "D'", "N'", "M'", "T'")) + name
    if kind < 0.52:
        return name[: rng.randint(2, len(name) - 1)].rstrip("'") + "'" + rng.choice(("el", "ra", "na", "thi", "or"))
    if kind < 0.64:
        return f"{initial}. {name}"
    if kind < 0.70:
        return f"{initial}{rng.choice('BCDJKLPRST')}"
    if kind < 0.82:
        return rng.choice(("Mc", "Mac", "La", "De", "Le", "Van", "Di", "Fitz")) + name
    if kind < 0.87:
        return name.upper()
    return f"{name} {other}"


def first_name(rng: Random, split: str) -> str:
    """A first name, most often one that nobody has."""
    return pick(rng, split, lambda: _first_name(rng))


def full_name(rng: Random, split: str) -> str:
    """A first name, sometimes with a title or a surname."""
    name, kind = first_name(rng, split), rng.random()
    last = rng.choice(SURNAMES) if rng.random() < 0.4 else coined(rng).capitalize()
    if kind < 0.08:
        return f"{name} {last}"
    if kind < 0.13:
        return rng.choice(TITLES) + " " + pick(rng, split, lambda: coined(rng).capitalize())
    return name


# ---- goods -----------------------------------------------------------------------------------------------------------

ADJECTIVES = """
frozen golden silent little broken hidden last green red blue silver secret lonely wild dark bright lost old young
crooked hungry honest gentle clever empty distant broad velvet paper iron wooden glass midnight summer winter northern
southern eastern western burning sleeping dancing laughing flying singing crystal copper amber scarlet violet stormy
quiet dusty brave lazy early late sunny misty salty sweet bitter happy sad long short tall tiny giant royal
""".split()
NOUNS = """
lighthouse train garden river kettle mountain window bridge island forest harbor castle letter captain teacher doctor
queen king thief baker painter sailor robot dragon tiger fox owl whale horse raven wolf rabbit candle mirror clock
piano violin trumpet map key door lamp boat wagon bicycle rocket planet moon star comet cloud storm shadow echo promise
journey holiday wedding dinner breakfast orchard valley meadow village market station tower library museum theater
""".split()


def _big(rng: Random, few: Sequence[str], many: Sequence[str]) -> str:
    """A word with a capital letter, of either list or any."""
    kind = rng.random()
    return rng.choice(few if kind < 0.3 else many if kind < 0.72 else words.STARTS).capitalize()


def title(rng: Random, split: str) -> str:
    """The title of a film or book."""

    def draw() -> str:
        a, n = _big(rng, ADJECTIVES, words.LIKE), _big(rng, NOUNS, words.THINGS)
        kind = rng.random() * 1.45
        if kind < 0.18:
            return f"The {a} {n}"
        if kind < 0.24:
            return f"{a} {n}"
        if kind < 0.32:
            return f"The {n} of {coined(rng).capitalize()}"
        if kind < 0.40:
            return coined(rng).capitalize()
        if kind < 0.46:
            return f"{coined(rng).capitalize()} and the {n}"
        if kind < 0.52:
            return f"{n} {rng.randint(2, 9)}"
        if kind < 0.59:
            return f"The {a} {coined(rng).capitalize()}"
        if kind < 0.64:
            return f"My {a} {n}"
        if kind < 0.70:
            return f"{coined(rng).capitalize()} {coined(rng).capitalize()}"
        # little words within a title, which must not end it
        m, count = _big(rng, NOUNS, words.THINGS), rng.choice(ONES[2:]).capitalize()
        joint = rng.choice("of for at in on with from to by against without after before beyond near".split())
        form = rng.choice((
            "{n} {joint} {m}", "{n} {joint} the {m}", "The {n} {joint} {m}", "{a} {n} {joint} {x}", "{n} {joint} {x}",
            "{count} {n}s", "{n}s {joint} {x}", "{joint} the {n}", "{joint} {a} {m}s", "A {n} {joint} {count}",
            "{n}, {m} and {x}", "No {n} {joint} {m}", "Mrs {x}", "Doctor {x}", "Captain {x} {joint} {m}",
            "{do} the {n}", "{do} {joint} {x}", "The {do} {n}", "{count} {a} {n}s", "I {do} {joint} {m}",
            "{n}s {joint} {count}", "{n} {joint} {place}", "{do} {joint} {place}", "{a} {n}s {joint} {place}",
            "{n}s for {count}", "{do} for {count}", "{n} on {place}", "{m} at {place}", "{count} to {place}",
            "{count} {joint} {m}", "{n}, {n} and {m}",
            "{count} {m}s", "{count} {a} {m}s", "{m}s for {count}", "{m} to {place} and Back", "At {place}",
            "The {n} at {count}",
        ))  # fmt: skip
        filled = form.replace("{count}", count).replace("{joint}", joint).replace("{n}", n).replace("{m}", m)
        filled = filled.replace("{place}", _place(rng)).replace("{a}", a).replace("{x}", coined(rng).capitalize())
        filled = filled.replace("{do}", rng.choice(words.DO).capitalize())
        return filled[0].upper() + filled[1:]

    return pick(rng, split, draw)


def _place(rng: Random) -> str:
    word = coined(rng).capitalize()
    return word + rng.choice(["", "", "", "ton", "ford", "burg", "ville", " Park", " Hill", " Central", " North",
        " Falls", " Bay", "haven", "field", "bridge"])


def place(rng: Random, split: str) -> str:
    """A town or a station."""
    return pick(rng, split, lambda: _place(rng))


def code(rng: Random) -> str:
    """A booking code, a password, a number."""
    kind = rng.random()
    if kind < 0.3:
        return str(rng.randint(10, 99999))
    if kind < 0.6:
        letters = "".join(rng.choice("ABCDEFGHJKLMNPRSTUVWXYZ") for _ in range(rng.randint(1, 3)))
        return letters + str(rng.randint(1, 999))
    if kind < 0.8:
        return coined(rng) + str(rng.randint(1, 99))
    return coined(rng)


# ---- days and times --------------------------------------------------------------------------------------------------

DAYS = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split()
MONTHS = "January February March April May June July August September October November December".split()


def day(rng: Random) -> tuple[str, str]:
    """A day as (spoken, repeated): ("this friday", "this Friday")."""
    kind = rng.random()
    if kind < 0.6:
        text = rng.choice(("", "", "", "this ", "next ")) + rng.choice(DAYS)
    elif kind < 0.78:
        return (text := rng.choice(("today", "tomorrow", "tonight"))), text
    else:
        text = rng.choice(MONTHS) + " " + str(rng.randint(1, 28))
    return text, text


def time(rng: Random) -> str:
    """A time of day as a guest says it; the assistant repeats it letter by letter."""
    hour, kind = rng.randint(1, 12), rng.random()
    minute = rng.choice(("00", "15", "30", "45", "30", f"{rng.randrange(0, 60, 5):02}", f"{rng.randrange(60):02}"))
    half = rng.choice(("am", "pm", "pm"))
    if kind < 0.25:
        return f"{hour} {half}"
    if kind < 0.55:
        return f"{hour}:{minute} {half}"
    if kind < 0.65:
        return f"{hour}{half}"
    if kind < 0.78:
        return f"{rng.randint(7, 23)}:{minute}"
    if kind < 0.81:
        return rng.choice(("noon", "midday"))
    word = rng.choice("one two three four five six seven eight nine ten eleven twelve".split())
    if kind < 0.87:
        return rng.choice(("half past ", "quarter past ", "quarter to ")) + word
    if kind < 0.90:
        return f"{hour} o'clock"
    if kind < 0.93:
        return f"{rng.choice((word, str(hour)))} in the {rng.choice(('morning', 'afternoon', 'evening'))}"
    return f"{word}{rng.choice(('', '', ' thirty', ' fifteen', ' forty five'))} {half}"


def on(day_text: str) -> str:
    """on Friday, but tomorrow."""
    return day_text if day_text.split()[0] in ("today", "tomorrow", "tonight", "this", "next") else "on " + day_text


def joined(rng: Random, pool: Sequence[str], n: int) -> list[str]:
    """n different ones in random order."""
    return rng.sample(list(pool), n)
