"""Days and times as guests of a desk say them; the assistant repeats them letter by letter."""

from __future__ import annotations

from random import Random

from training.grammar import values
from training.grammar.text import ONES

_ORDINALS = {1: "st", 2: "nd", 3: "rd", 21: "st", 22: "nd", 23: "rd", 31: "st"}
_PARTS = ("morning", "afternoon", "evening")


def ordinal(n: int) -> str:
    """1st, 2nd, 11th."""
    return f"{n}{_ORDINALS.get(n, 'th')}"


def day(rng: Random, part: str = "") -> str:
    """A day, or a part of one where ``part`` is given: Monday, next Monday, the 14th of May, Saturday morning."""
    if part:
        whole = rng.choice(values.DAYS)
        return rng.choice((f"this {part}", f"tomorrow {part}", f"{whole} {part}", f"{whole} {part}", f"next {whole} "
            f"{part}"))  # fmt: skip
    kind, number = rng.random(), rng.randint(1, 28)
    if kind < 0.62:
        return values.day(rng)[0]
    weekday, month = rng.choice(values.DAYS), rng.choice(values.MONTHS)
    return rng.choice((
        f"the {ordinal(number)} of {month}", f"{number} {month}", f"{month} {ordinal(number)}",
        f"the {ordinal(number)}",
        f"{weekday} the {ordinal(number)}", f"{weekday}, {month} {number}",
        f"{weekday} the {ordinal(number)} of {month}",
        f"next {weekday}", f"this {weekday}",
    ))  # fmt: skip


def time(rng: Random, part: str = "") -> str:
    """A time of day with the word before it as it is repeated: at 8:15, at half past three, from 2 till 4."""
    kind = rng.random()
    hour = rng.randint(1, 12)
    if part:
        hour = rng.choice({"morning": (7, 8, 9, 10, 11), "afternoon": (1, 2, 3, 4, 5)}.get(part, (6, 7, 8, 9)))
    word = ONES[hour]
    if kind < 0.12:
        end, joint = ONES.index(word) % 12 + rng.choice((1, 1, 2)), rng.choice(("till", "until", "to"))
        end = end if end <= 12 else end - 12
        half = "" if part or rng.random() < 0.6 else rng.choice((" am", " pm"))
        first, last = (ONES[hour], ONES[end]) if rng.random() < 0.3 else (str(hour), str(end))
        return f"from {first} {joint} {last}{half}" if rng.random() < 0.8 else f"between {first} and {last}{half}"
    start = "from " if kind < 0.18 else "at "
    if kind < 0.36:
        return start + rng.choice((str(hour), str(hour), word))
    if kind < 0.50:
        return start + rng.choice(("half past ", "quarter past ", "quarter to ", "a quarter past ", "half ")) + word
    if kind < 0.58 and not part:
        return start + f"{rng.choice((word, str(hour)))} in the {rng.choice(_PARTS)}"
    if part:
        return start + rng.choice((f"{hour}:{rng.randrange(0, 60, 5):02}", f"{hour} o'clock", f"{word} thirty"))
    return start + values.time(rng)


def moment(rng: Random) -> tuple[str, str]:
    """A day and a time that belong together."""
    part = rng.choice(_PARTS) if rng.random() < 0.2 else ""
    return day(rng, part), time(rng, part)
