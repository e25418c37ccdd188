"""Opening hours: asked for in many ways and answered in one (training.grammar.notice has how they are stated)."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

from training.grammar import ask_hours as ask
from training.grammar import values
from training.grammar.text import ONES, Voice, babble, expand, sentence
from training.grammar.values import DAYS, MONTHS

#: from, to, as written in the facts, and after a break from, to again; alone: 24 hours; None: closed
Span = tuple[str, ...] | None


@dataclass
class Hours:
    """Runs of neighbouring days that share their hours: (first day, last day, span), Monday to Sunday."""

    runs: list[tuple[int, int, Span]]
    special: dict[str, Span] = field(default_factory=dict)  # holiday or date -> its hours
    away: tuple[int, int, str] | None = None  # closed from this to that day of a month

    def of(self, day: int) -> Span:
        """The span of one day, 0 is Monday."""
        return next(span for first, last, span in self.runs if first <= day <= last)


def told(span: Span) -> str:
    """open from 8:00 to 12:00 and from 14:00 to 17:30; closed"""
    return "open " + fromto(span) if span else "closed"


def fromto(span: tuple[str, ...]) -> str:
    """from 8:00 to 12:00 and from 14:00 to 17:30; 24 hours"""
    if len(span) == 1:
        return span[0]
    return " and ".join(f"from {a} to {b}" for a, b in zip(span[::2], span[1::2]))


def clock_of(rng: Random) -> Callable[[int, int], str]:
    """One shop's notation of the time of day; hours from 25 on are those of the next day."""
    style = rng.choices(("am", "24", "24h", "bare", "twelve", "words"), (66, 20, 3, 3, 3, 5))[0]
    am = rng.choice((" am", " am", " am", " am", "am", "am", "am", " AM", "AM", " a.m."))
    pm = am.replace("a", "p").replace("A", "P")
    colon, pad, words = rng.random() < 0.2, rng.choice((1, 2)), rng.random() < 0.3
    point = "." if rng.random() < 0.12 else ":"

    def clock(hour: int, minute: int) -> str:
        twelve, past = (hour - 1) % 12 + 1, f"{point}{minute:02}" if minute or colon else ""
        hour -= 24 * (hour > 24)
        if style == "bare":
            return str(hour)
        if style == "24h":
            return f"{hour}h{f'{minute:02}' if minute else ''}"
        if style == "24":
            return f"{hour:0{pad}}{point}{minute:02}"
        if style == "words" and minute in (0, 15, 30, 45) and hour != 24:
            before = {0: "", 15: "quarter past ", 30: "half past ", 45: "quarter to "}[minute]
            return before + ("noon" if hour == 12 and not minute else ONES[twelve % 12 + 1 if minute == 45 else twelve])
        if words and minute == 0 and hour in (12, 24):
            return "noon" if hour == 12 else "midnight"
        return f"{twelve}{past}" + ("" if style == "twelve" else am if hour % 24 < 12 else pm)

    return clock


HOLIDAYS = """
Christmas Day|Christmas Eve|New Year's Day|New Year's Eve|Easter Monday|Good Friday|public holidays|Labor Day|
Independence Day|Thanksgiving|Boxing Day|May Day|Mother's Day|Halloween|Easter Sunday|market days|Midsummer Day
""".replace("\n", "").split("|")


def spans_of(rng: Random) -> Callable[[], tuple[str, ...]]:
    """The hours of one shop on some day, in its notation: with a break, past midnight, 12-6 pm."""
    clock = clock_of(rng)
    minutes = rng.choice(((0, 0, 0, 30, 30, 15, 45), (0, 0, 0, 30, 30, 15, 45), (0,), (0, 30), (5, 10, 20, 40, 50, 55)))
    breaks, night, short = rng.random() < 0.08, rng.random() < 0.06, rng.random() < 0.06

    def at(first: int, last: int) -> str:
        hour = 24 if last > 22 and rng.random() < 0.04 else rng.randint(first, last)
        return clock(hour, 0 if hour == 24 else rng.choice(minutes))

    #: where the same few times come back on other days, only the day tells which of them belong together
    few = [(at(5, 13), at(14, 23)) for _ in range(3)] if rng.random() < 0.35 else []
    mornings = rng.random() < 0.25  # some days end before two

    def span() -> tuple[str, ...]:
        if breaks and rng.random() < 0.7:
            return at(6, 10), at(11, 13), at(14, 16), at(17, 22)
        if night and rng.random() < 0.7:
            return at(16, 21), at(25, 30) if rng.random() < 0.5 else at(25, 27)
        if mornings and rng.random() < 0.5:
            return at(5, 10), at(11, 13)
        a, b = (rng.choice(few)[0], rng.choice(few)[1]) if few else (at(5, 13), at(14, 23))
        if short and re.fullmatch(r"(?:12|1)(?:[:.]\d\d)? ?pm", a) and b.endswith("pm"):
            a = a.removesuffix("pm").strip()
        return a, b

    return span


ALWAYS = ("24 hours", "24 hours", "around the clock", "round the clock", "day and night", "24 hours a day", "24/7")


def draw(rng: Random) -> Hours:
    """Hours of some shop: one to seven runs of days, some of them closed; sometimes those of holidays."""
    span = spans_of(rng)
    hours = merged(_week(rng, span) if rng.random() > 0.02 else [(rng.choice(ALWAYS),)] * 7)
    if rng.random() < 0.14:
        for special in rng.sample(HOLIDAYS, rng.choice((1, 1, 2))) if rng.random() < 0.6 else _dates(rng):
            hours.special[special] = None if rng.random() < 0.55 else span()
    elif rng.random() < 0.05:
        first = rng.randint(1, 24)
        hours.away = first, first + rng.choice((6, 13, 20) if first < 8 else (2, 4, 6)), rng.choice(MONTHS)
    return hours


def _dates(rng: Random) -> list[str]:
    month, first = rng.choice(MONTHS), rng.randint(1, 27)
    return [f"{first + more} {month}" for more in range(rng.choice((1, 2)))]


def _week(rng: Random, span: Callable[[], tuple[str, ...]]) -> list[Span]:
    """Spans of seven days."""
    kind, usual = rng.random(), span()
    week: list[Span] = [usual] * 7
    if rng.random() < 0.24:
        return _special_week(rng, span)
    if kind < 0.08:
        return week
    if kind < 0.38:  # one day is different, or some are closed
        first, n = rng.randrange(7), 1 if kind < 0.23 else rng.choice((2, 2, 2, 3))
        together, other = rng.random() < 0.7, span() if kind < 0.23 and rng.random() < 0.25 else None
        for day in [(first + i) % 7 for i in range(n)] if together else rng.sample(range(7), n):
            week[day] = other
        return week
    cuts = [5, 7] if kind < 0.55 else [5, 6, 7] if kind < 0.66 else [6, 7] if kind < 0.69 else list(range(1, 8))
    if 0.69 <= kind < 0.80:
        cuts = sorted({*rng.sample(range(1, 7), rng.choice((1, 1, 1, 2, 3))), 7})
    first = 0
    for cut in cuts:
        closed = 0.4 if cut == 7 and first == 6 else 0.25 if cut - first <= 2 else 0.04
        week[first:cut] = [None if rng.random() < closed else span()] * (cut - first)
        first = cut
    if not any(week):
        week[: cuts[0]] = [usual] * cuts[0]
    return week


def _special_week(rng: Random, span: Callable[[], tuple[str, ...]]) -> list[Span]:
    """A day of its own within a run; single open days; runs around the end of the week."""
    kind, usual, more = rng.random(), span(), span()
    week: list[Span] = [None] * 7
    if kind < 0.42:
        first, last = rng.choice(((0, 4), (0, 4), (1, 5), (0, 5), (1, 4), (0, 6), (2, 6)))
        week[first : last + 1] = [usual] * (last - first + 1)
        other: Span = None if rng.random() < 0.25 else more
        if other and len(other) == len(usual) == 2 and rng.random() < 0.7:
            other = (usual[0], other[1]) if rng.random() < 0.6 else (other[0], usual[1])
        week[rng.randint(first, last)] = other
        if last < 6 and rng.random() < 0.5:
            week[last + 1 :] = [span()] * (6 - last) if rng.random() < 0.7 else [span(), *week[last + 2 :]]
    elif kind < 0.72:
        for day in rng.sample(range(7), rng.choice((1, 2, 2, 3, 3, 4, 5))):
            week[day] = usual if rng.random() < 0.6 else more
    else:
        cuts = sorted(rng.sample(range(7), rng.choice((2, 2, 3))))
        for first, cut in zip(cuts, [*cuts[1:], cuts[0] + 7]):
            one: Span = None if rng.random() < 0.25 and cut - first < 4 else span()
            for day in range(first, cut):
                week[day % 7] = one
    return week if any(week) else [usual] * 7


def merged(week: list[Span]) -> Hours:
    """Seven spans as runs: neighbours with the same hours are one."""
    runs: list[tuple[int, int, Span]] = []
    for day, span in enumerate(week):
        if runs and runs[-1][2] == span:
            runs[-1] = (runs[-1][0], day, span)
        else:
            runs.append((day, day, span))
    return Hours(runs)


def run_name(first: int, last: int) -> str:
    """Monday, Monday and Tuesday, Monday to Friday."""
    if first == last:
        return DAYS[first]
    return f"{DAYS[first]} {'and' if last == first + 1 else 'to'} {DAYS[last]}"


UNKNOWN = "Sorry, I do not know the opening hours. Please ask the staff."


def answer_day(hours: Hours, day: int) -> str:
    """The one answer to any question about a day: the day first, then all that the facts say of it."""
    return f"On {DAYS[day]} we are {told(hours.of(day))}".rstrip(".") + "."


def answer_special(hours: Hours, holiday: str) -> str:
    """Of a holiday: what the facts say of it, or that they do not."""
    if holiday not in hours.special:
        return f"Sorry, I do not know the hours on {holiday}. Please ask the staff."
    return f"On {holiday} we are {told(hours.special[holiday])}".rstrip(".") + "."


def answer_all(hours: Hours) -> str:
    """All hours in one fixed form."""
    if len(hours.runs) == 1:
        return f"We are open every day {fromto(hours.runs[0][2] or ())}".rstrip(".") + "."
    return f"Our hours: {by_runs(hours)}".rstrip(".") + "."


def by_runs(hours: Hours, whole: str = "") -> str:
    """Monday to Friday from 8 am to 6 pm, Saturday and Sunday closed; ``whole`` names a week of equal days."""
    if whole and len(hours.runs) == 1:
        return f"{whole} {fromto(hours.runs[0][2] or ())}"
    return ", ".join(f"{run_name(first, last)} {fromto(span) if span else 'closed'}"
                     for first, last, span in hours.runs)  # fmt: skip


def answer_weekdays(hours: Hours) -> str:
    """Monday to Friday where they are alike; else the whole week."""
    if any(hours.of(day) != hours.of(0) for day in range(5)):
        return answer_all(hours)
    return f"On weekdays we are {told(hours.of(0))}".rstrip(".") + "."


#: what stands for the day in a question
_NAMED = ("{}", "{}s", "this {}", "next {}", "a {}", "the {}")
_AND = "[and|what about|how about|and on|and what about|then|and how about|now|] {day}[?|]"


def ask_day(rng: Random, voice: Voice, day: int, after: bool = False) -> str:
    """One question about a day; ``after`` another of its kind, it may be short."""
    name = rng.choices(_NAMED, (74, 13, 5, 3, 3, 2))[0].format(voice.small(DAYS[day]))
    kind = rng.random()
    if after and kind < 0.3:
        return voice.says(_AND, day=name)
    if kind < 0.62:
        asks = rng.choices((ask.ASK_DAY, ask.ASK_IF, ask.ASK_OPEN, ask.ASK_CLOSE), (30, 24, 23, 23))[0]
        return voice.says(rng.choice(asks), day=name)
    if kind < 0.82:
        return voice.says(expand(rng, ask.FRAMES).replace("{q}", f"[{ask.ASKED}]"), day=name)
    parts = ["{day}", rng.choice(ask.CUES)]
    rng.shuffle(parts)
    return voice.says(f"{babble(rng, 3)} {parts[0]} {babble(rng, 2)} {parts[1]} {babble(rng, 2)}?", day=name)


def drill(rng: Random, voice: Voice, hours: Hours | None) -> list[tuple[str, str]]:
    """The week looked up day by day, some days twice in other words; without hours nothing is found."""
    found: list[tuple[str, str]] = []
    days = rng.sample(range(7), 7)
    shut = [at for at in days if hours and hours.of(at) is None]
    if shut and len(shut) < 5 and rng.random() < 0.4:  # the closed days and their neighbours first
        days.sort(key=lambda day: rng.random() + min(abs(day - at) > 1 for at in shut))
    for day in days[: rng.randint(3, 7) if hours and len(hours.runs) > 1 else rng.randint(2, 4)]:
        for _ in range(rng.choice((1, 1, 1, 1, 2))):
            found.append((ask_day(rng, voice, day, bool(found)), answer_day(hours, day) if hours else UNKNOWN))
    return found


def turns(rng: Random, voice: Voice, hours: Hours | None, today: int | None = None) -> list[tuple[str, str]]:
    """One to three questions on opening hours, answered from the hours or, where none are given, not at all."""
    found: list[tuple[str, str]] = []
    for _ in range(rng.choices((1, 2, 3), (60, 28, 12))[0]):
        asked, reply = _turn(rng, voice, hours, today, bool(found))
        found.append((asked, sentence(reply) if hours else UNKNOWN))
    return found


def _turn(rng: Random, voice: Voice, hours: Hours | None, today: int | None, after: bool) -> tuple[str, str]:
    """One question; without hours the reply is not to be used."""
    day, kind = rng.randrange(7), rng.random()
    week = hours or Hours([(0, 6, None)])
    shut = [at for at in range(7) if week.of(at) is None]
    if shut and rng.random() < 0.10:  # else a closed day is asked for too seldom to be learned
        day = rng.choice(shut)
    if rng.random() < (0.45 if today is not None else 0.06):
        asked = expand(rng, rng.choice(ask.ASK_TODAY))
        reply = "I do not know what day it is. " + answer_all(week)
        if today is not None:
            reply = answer_day(week, (today + ("tomorrow" in asked)) % 7)
        return voice.says(asked), reply
    if kind < (0.30 if week.special or week.away else 0.012):
        return _special(rng, voice, week)
    if kind < 0.04:
        other = (day + rng.randint(1, 6)) % 7
        both = f"{voice.small(DAYS[day])} and {voice.small(DAYS[other])}"
        asked = voice.says(rng.choice(ask.ASK_DAY + ask.ASK_IF), day=both)
        return asked, f"{answer_day(week, day)} {answer_day(week, other)}"
    if kind < 0.72:
        return ask_day(rng, voice, day, after), answer_day(week, day)
    if kind < 0.83:
        return voice.says(rng.choice(ask.ASK_ALL)), answer_all(week)
    if kind < 0.89:
        asked = voice.says(rng.choice(ask.ASK_AT), day=voice.small(DAYS[day]), time=values.time(rng))
        return asked, answer_day(week, day)
    if kind < 0.94:
        return voice.says(rng.choice(ask.ASK_WEEKDAYS)), answer_weekdays(week)
    return voice.says(rng.choice(ask.ASK_WEEKEND)), f"{answer_day(week, 5)} {answer_day(week, 6)}"


def _special(rng: Random, voice: Voice, hours: Hours) -> tuple[str, str]:
    """Holidays and dates: those that the facts tell of, others, and those on which all are away."""
    special = rng.choice(list(hours.special) if hours.special and rng.random() < 0.78 else HOLIDAYS + _dates(rng))
    if hours.away and rng.random() < 0.8:
        a, b, month = hours.away
        special = f"{rng.randint(a, b)} {month}"
        reply = f"On {special} we are closed."
    else:
        reply = answer_special(hours, special)
    if special in _MANY and rng.random() < 0.5:
        asked = voice.says(rng.choice(ask.ASK_HOLIDAY), day=special.removesuffix("s"))
    else:
        asked = voice.says(rng.choice(ask.ASK_DAY + ask.ASK_IF + ask.ASK_ON), day=voice.small(_date(rng, special)))
    return asked, reply


_MANY = ("public holidays", "market days")


def _date(rng: Random, special: str) -> str:
    """25 December as guests say it."""
    n, _, month = special.partition(" ")
    if not n.isdigit():
        return special
    ending = "th" if n[:-1] == "1" else {"1": "st", "2": "nd", "3": "rd"}.get(n[-1], "th")
    return rng.choice((special, f"{month} {n}", f"the {n}{ending} of {month}", f"{month} {n}{ending}", special))
