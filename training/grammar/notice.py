"""How shops write down their opening hours: as a list, in sentences, with exceptions, in any notation of time."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from training.grammar import exceptions
from training.grammar.hours import Hours
from training.grammar.text import expand, listed, sentence
from training.grammar.writer import HEADS, OPENS, Writer, joined

_NOUNS = ("times", "opening times", "opening", "service", "schedule", "openings", "timetable", "shift")


def _labels(w: Writer) -> str:
    """Weekday times 8 am-6 pm, Saturday times 9 am-noon."""
    noun, colon = w.rng.choice(_NOUNS), w.rng.choice((": ", " ", " ", " = ", " - "))
    w.week, w.end = w.rng.choice((("weekday", "weekend"), ("weekday", ""), ("working day", "weekend"), ("", "")))
    rows = [f"{w.days(a, b)} {noun}{colon}{w.plain(span)}" for a, b, span in w.runs]
    if w.rng.random() < 0.5:
        rows = [sentence(row) for row in rows]
    return w.rng.choice((". ", ". ", ", ", "; ", "\n", " / ")).join(rows)


def _list(w: Writer) -> str:
    """Mon-Fri 8:00-18:00, Sat 9-12, Sun closed"""
    colon, first = w.rng.choice((": ", " ", " ", ", ", " = ")), w.rng.random() < 0.85
    joint = w.rng.choice((", ", "; ", ". ", ", ", " / ", "\n"))
    colon = " " if colon == joint else colon
    parts = []
    for a, b, span in w.runs:
        parts.append(w.days(a, b) + colon + w.plain(span) if first else f"{w.plain(span)} {w.days(a, b)}")
    return w.rng.choice(HEADS) + joint.join(parts)


def listed_week(rng: Random, hours: Hours) -> str:
    """Mon-Fri 8:00-18:00, Sat 9-12; a week of equal days: daily 8:00-18:00."""
    w = Writer(rng, hours)
    if len(w.runs) == 1:
        return rng.choice(("daily ", "every day ", "all week ")) + w.plain(w.runs[0][2])
    return ", ".join(f"{w.days(a, b)} {w.plain(span)}" for a, b, span in w.runs)


_SHUTS = (
    "[,|.|. we are|, and|. it is|;|. we stay|. always|, but] closed|. we do not open|. there is nobody here|, not|"
    ". we rest|. there is no service|. no one is here|. the doors stay shut|. we take a break|. we stay at home|. "
    "we sleep|. free day|"
    ". no business|. nobody works|. days off:|. the shop rests|. our rest days:|. free:|, never"
)


def _sentence(w: Writer) -> str:
    """We are open Monday to Friday from 8 am to 6 pm and on Saturday 9 am to noon. Closed on Sunday."""
    parts, shut = [], []
    for a, b, span in w.runs:
        if not span:
            shut.append(w.days(a, b))
        elif w.rng.random() < 0.7:
            parts.append(f"{w.on(a, b)} {w.spoken(span)}")
        else:
            parts.append(f"{w.spoken(span)} {w.on(a, b)}")
    text = expand(w.rng, OPENS) + " " + listed(parts)
    if shut and w.rng.random() < 0.2:
        return expand(w.rng, f"[closed|we are closed|not open|we rest|free] [on |]{listed(shut)}"
                             f"[, open|. open|; we are open|, but open|.] {listed(parts)}")  # fmt: skip
    if shut and not (w.edges() and w.rng.random() < 0.08):  # days left out at the edge of a week are closed, too
        text += joined(expand(w.rng, _SHUTS)) + w.rng.choice((" on ", " on ", " on ", " "))
        text = text.removesuffix(": on ") + ": " if text.endswith(": on ") else text
        text += listed(shut, w.rng.choice(("and", "or")))
    return text


_DAY = (
    "{when} we open at {c} and close at {d}|we open at {c} and close at {d} {when}|{when} open {span}|"
    "{when} it is {span}|"
    "{when} the doors open at {c} and close at {d}|opens {when} at {c}, closes at {d}|{when} we are here {span}|"
    "{when}: {span}|{when} opening at {c}, closing at {d}|{when} you find us here {span}|"
    "{when} we start at {c} and finish at {d}|{when} [doors|] open {c}, close {d}|"
    "{when} opening time is {c} and closing time is {d}|{when} the shop is open {span}|{when} somebody is in {span}|"
    "{when} service starts at {c} and ends at {d}|{when} you can shop {span}|{when} from {c}, until {d}|"
    "{when} [the gate|the counter] opens at {c} and [closes|shuts] at {d}|{when} we close at {d} and open at {c}|"
    "{when}, {c} to {d}|{when} between {c} and {d}"
)
_OFF = (
    "{when} we are closed|we are closed {when}|{when} we do not open|closed {when}|{when}: closed|"
    "{when} the doors stay shut|nobody is here {when}|we are off {when}|{when} we rest|{when} the house sleeps|"
    "{when} no service|{when} nothing is open|we rest {when}|{when} we take a break"
)


def _sentences(w: Writer) -> str:
    """On weekdays we open at 8 am and close at 6 pm. On Saturday ..."""
    found = []
    for a, b, span in w.runs:
        when = w.on(a, b)
        if not span:
            found.append(expand(w.rng, _OFF.replace("{when}", when)))
            continue
        if len(span) > 2:
            found.append(expand(w.rng, f"{when} [we are open|open|the shop is open|] {w.spoken(span)}"))
            continue
        pattern = _DAY.replace("{when}", when).replace("{c}", span[0]).replace("{d}", span[1])
        found.append(expand(w.rng, pattern.replace("{span}", w.spoken(span))))
    return w.rng.choice((". ", ". ", "; ", ", ")).join(sentence(text) if i else text for i, text in enumerate(found))


_EVERY = (
    "every day|daily|seven days a week|all week|Monday to Sunday|every day of the week|from Monday to Sunday|"
    "7 days a week|all days|Mon-Sun"
)
_LABELS = "[[opening |]hours|open|times|opening times][:|]"


def _daily(w: Writer) -> str:
    """Every day from 8 am to 6 pm, where all days are alike."""
    span = w.runs[0][2] or ("", "")
    every = f"[{_EVERY}] {w.spoken(span)}"
    if len(span) != 2:
        return expand(w.rng, f"[{OPENS}|] {every}|{w.spoken(span)} [{_EVERY}]|[{_LABELS}] {every}")
    return expand(w.rng, f"[{OPENS}|] {every}|{w.spoken(span)} [{_EVERY}]|[{_LABELS}] {every}|[{_LABELS}] {every}|"
                         f"we open at {span[0]} and close at {span[1]} [{_EVERY}]|"
                         f"doors open [at |]{span[0]}, doors close [at |]{span[1]}, [{_EVERY}]")  # fmt: skip


_SPECIAL = (
    "[on |]{x}[:|] [{span}|open {span}|we are open {span}|only {span}]|[open|hours] on {x}[:|] {span}|"
    "[special|holiday] hours: {x} {span}|{span} on {x}|{x}, {span}|{x} = {span}"
)
_SPECIAL_OFF = (
    "closed on {x}|{x}[:|] closed|on {x} [we are closed|we do not open|nobody is here|the doors stay shut]|"
    "[no service|not open|we rest] on {x}|{x}: [shut|no service|not open]|we are off on {x}"
)


_AWAY = (
    "closed [from |]{x}|[holiday|summer|winter] [closure|break][:|] {x}|"
    "[from |]{x} [we are closed|we are on holiday|closed]|"
    "no service [from |]{x}|we are away {x}|[holiday closure|works]: closed {x}"
)


def holidays(rng: Random, hours: Hours) -> str:
    """What differs on some days of the year; empty where nothing does."""
    w = Writer(rng, hours)
    special = hours.special
    dates = list(special)
    if len(dates) == 2 and dates[0][0].isdigit() and special[dates[0]] == special[dates[1]]:  # 25 and 26 December
        special = {f"{dates[0].split()[0]} and {dates[1]}": special[dates[0]]}
    rows = [(_SPECIAL.replace("{span}", w.spoken(span)) if span else _SPECIAL_OFF).replace("{x}", holiday)
            for holiday, span in special.items()]  # fmt: skip
    if hours.away:
        a, b, month = hours.away
        rows.append(_AWAY.replace("{x}", f"{a} to {b} {month}" if rng.random() < 0.7 else f"{month} {a} to {b}"))
    return w.rng.choice((". ", ". ", "; ")).join(sentence(expand(rng, row)) for row in rows)


def written(rng: Random, hours: Hours) -> str:
    """The hours as some shop might write them; every day can be read from it."""
    regular, special = _regular(rng, hours), holidays(rng, hours)
    if not special:
        return regular
    first, last = (special, sentence(regular)) if rng.random() < 0.2 else (regular, special)
    return f"{first}. {last}".replace("..", ".")


def _regular(rng: Random, hours: Hours) -> str:
    """Those of the seven days."""
    w = Writer(rng, hours)
    if len(w.runs) == 1:
        return _daily(w)
    spans = [hours.of(day) for day in range(7)]
    usual = max((span for span in spans if span), key=spans.count)
    shut = spans.count(None)
    others = [run for run in w.runs if run[2] != usual]
    parted = sum(run[2] == usual for run in w.runs) > 1  # the usual days are no single run
    alike = spans.count(usual)
    if alike + shut == 7 and 0 < shut < 4:
        excepted = rng.random() < (0.85 if parted else 0.45)
    else:
        excepted = (alike >= 5 and parted) or (alike == 6 and rng.random() < 0.35)
    for form, chance in ((exceptions.inside, 0.6), (exceptions.ends, 0.4)):
        if rng.random() < chance and (text := form(w)):
            return text.replace("..", ".")
    if (parted or shut > 3 or (shut > 1 and len(w.runs) > 3)) and alike < 6 and rng.random() < 0.4:
        return exceptions.grouped(w).replace("..", ".")
    if excepted:
        return exceptions.excepted(w, usual, others).replace("..", ".")
    if rng.random() < 0.22:  # a row for each day, alike or not
        w.runs = [(day, day, span) for day, span in enumerate(spans)]
        return rng.choices((_list, _sentences), (8, 2))[0](w).replace("..", ".")
    first, last = w.runs[0], w.runs[-1]
    if first[2] == last[2] and len(w.runs) > 2 and rng.random() < 0.7:  # Sun-Wed
        w.runs = [(last[0], first[1], first[2]), *w.runs[1:-1]]
    elif last[:2] == (6, 6) and rng.random() < 0.12:  # the week begins with Sunday
        w.runs = [last, *w.runs[:-1]]
    if rng.random() < 0.12:
        rng.shuffle(w.runs)
    long = len(w.runs) > 5
    forms: tuple[Callable[[Writer], str], ...] = (_list, _labels, _sentence, _sentences)
    return rng.choices(forms, (50, 4, 20, 26) if long else (25, 25, 30, 20))[0](w).replace("..", ".")
