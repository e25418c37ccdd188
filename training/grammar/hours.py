"""Opening hours: asked for in many ways and answered in one (training.grammar.notice has how they are stated)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

from training.grammar import ask_hours as ask
from training.grammar import values
from training.grammar.text import Voice, babble, expand, sentence
from training.grammar.values import DAYS

Span = tuple[str, str] | None  # from, to, as written in the facts; None: closed


@dataclass
class Hours:
    """Runs of neighbouring days that share their hours: (first day, last day, span), Monday to Sunday."""

    runs: list[tuple[int, int, Span]]
    special: dict[str, Span] = field(default_factory=dict)  # holiday -> its hours

    def of(self, day: int) -> Span:
        """The span of one day, 0 is Monday."""
        return next(span for first, last, span in self.runs if first <= day <= last)


def _clock(rng: Random) -> Callable[[int, int], str]:
    """One shop's notation of the time of day."""
    style = rng.choices(("am", "24", "24h", "bare"), (72, 21, 4, 3))[0]
    am = rng.choice((" am", " am", " am", " am", "am", "am", "am", " AM", "AM", " a.m."))
    pm = am.replace("a", "p").replace("A", "P")
    colon, pad, words = rng.random() < 0.2, rng.choice((1, 2)), rng.random() < 0.3
    point = "." if rng.random() < 0.06 else ":"

    def clock(hour: int, minute: int) -> str:
        if style == "bare":
            return str(hour)
        if style == "24h":
            return f"{hour}h{f'{minute:02}' if minute else ''}"
        if style == "24":
            return f"{hour:0{pad}}{point}{minute:02}"
        if words and minute == 0 and hour in (0, 12, 24):
            return "noon" if hour == 12 else "midnight"
        minutes = f"{point}{minute:02}" if minute or colon else ""
        return f"{(hour - 1) % 12 + 1}{minutes}{am if hour % 24 < 12 else pm}"

    return clock


HOLIDAYS = """
Christmas Day|Christmas Eve|New Year's Day|New Year's Eve|Easter Monday|Good Friday|public holidays|Labor Day|
Independence Day|Thanksgiving|Boxing Day|May Day|Mother's Day|Halloween|Easter Sunday|market days|Midsummer Day
""".replace("\n", "").split("|")


def draw(rng: Random) -> Hours:
    """Hours of some shop: one to seven runs of days, some of them closed; sometimes those of holidays."""
    clock = _clock(rng)
    minutes = (0, 0, 0, 30, 30, 15, 45)

    def opening() -> str:
        return clock(rng.randint(5, 13), rng.choice(minutes))

    def closing() -> str:
        late = 24 if rng.random() < 0.04 else rng.randint(14, 23)
        return clock(late, 0 if late == 24 else rng.choice(minutes))

    #: where the same few times come back on other days, only the day tells which of them belong together
    few = [(opening(), closing()) for _ in range(3)] if rng.random() < 0.35 else []

    def span() -> Span:
        return (rng.choice(few)[0], rng.choice(few)[1]) if few else (opening(), closing())

    hours = merged(_week(rng, span))
    if rng.random() < 0.18:
        for holiday in rng.sample(HOLIDAYS, rng.choice((1, 1, 2))):
            hours.special[holiday] = None if rng.random() < 0.55 else span()
    return hours


def _week(rng: Random, span: Callable[[], Span]) -> list[Span]:
    """Spans of seven days."""
    kind, usual = rng.random(), span()
    week = [usual] * 7
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


def merged(week: list[Span]) -> Hours:
    """Seven spans as runs: neighbours with the same hours are one."""
    runs: list[tuple[int, int, Span]] = []
    for day, span in enumerate(week):
        if runs and runs[-1][2] == span:
            runs[-1] = (runs[-1][0], day, span)
        else:
            runs.append((day, day, span))
    return Hours(runs)


def _run_name(first: int, last: int) -> str:
    """Monday, Monday and Tuesday, Monday to Friday."""
    if first == last:
        return DAYS[first]
    return f"{DAYS[first]} {'and' if last == first + 1 else 'to'} {DAYS[last]}"


UNKNOWN = "Sorry, I do not know the opening hours. Please ask the staff."


def answer_day(hours: Hours, day: int) -> str:
    """The one answer to any question about a day: the day first, then all that the facts say of it."""
    span = hours.of(day)
    return f"On {DAYS[day]} we are " + (f"open from {span[0]} to {span[1].rstrip('.')}." if span else "closed.")


def answer_special(hours: Hours, holiday: str) -> str:
    """Of a holiday: what the facts say of it, or that they do not."""
    if holiday not in hours.special:
        return f"Sorry, I do not know the hours on {holiday}. Please ask the staff."
    span = hours.special[holiday]
    return f"On {holiday} we are " + (f"open from {span[0]} to {span[1].rstrip('.')}." if span else "closed.")


def answer_all(hours: Hours) -> str:
    """All hours in one fixed form."""
    if len(hours.runs) == 1:
        a, b = hours.runs[0][2] or ("", "")
        return f"We are open every day from {a} to {b.rstrip('.')}."
    parts = [f"{_run_name(first, last)} " + (f"from {span[0]} to {span[1]}" if span else "closed")
             for first, last, span in hours.runs]  # fmt: skip
    return "Our hours: " + ", ".join(parts).rstrip(".") + "."


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
    if shut and len(shut) < 5:  # the closed days and their neighbours first
        days.sort(key=lambda day: rng.random() + min(abs(day - at) > 1 for at in shut))
    for day in days[: rng.randint(3, 7) if hours and len(hours.runs) > 1 else 2]:
        for _ in range(rng.choice((1, 1, 1, 1, 2))):
            found.append((ask_day(rng, voice, day, bool(found)), answer_day(hours, day) if hours else UNKNOWN))
    return found


def turns(rng: Random, voice: Voice, hours: Hours | None, today: int | None = None) -> list[tuple[str, str]]:
    """One to three questions on opening hours, answered from the hours or, where none are given, not at all."""
    found: list[tuple[str, str]] = []
    for _ in range(rng.choices((1, 2, 3), (60, 28, 12))[0]):
        day, kind = rng.randrange(7), rng.random()
        shut = [at for at in range(7) if hours and hours.of(at) is None]
        if shut and rng.random() < 0.25:  # else a closed day is asked for too seldom to be learned
            day = rng.choice(shut)
        if kind < (0.15 if hours and hours.special else 0.01):
            special = list(hours.special) if hours else []
            holiday = rng.choice(special if special and rng.random() < 0.75 else HOLIDAYS)
            asked = voice.says(rng.choice(ask.ASK_DAY + ask.ASK_IF + ask.ASK_ON), day=voice.small(holiday))
            reply = answer_special(hours, holiday) if hours else UNKNOWN
        elif kind < 0.05:
            other = (day + rng.randint(1, 6)) % 7
            both = f"{voice.small(DAYS[day])} and {voice.small(DAYS[other])}"
            asked = voice.says(rng.choice(ask.ASK_DAY + ask.ASK_IF), day=both)
            reply = f"{answer_day(hours, day)} {answer_day(hours, other)}" if hours else UNKNOWN
        elif kind < 0.78:
            asked = ask_day(rng, voice, day, bool(found))
            reply = answer_day(hours, day) if hours else UNKNOWN
        elif kind < 0.87:
            asked, reply = voice.says(rng.choice(ask.ASK_ALL)), answer_all(hours) if hours else UNKNOWN
        elif kind < 0.91:
            asked = voice.says(rng.choice(ask.ASK_AT), day=voice.small(DAYS[day]), time=values.time(rng))
            reply = answer_day(hours, day) if hours else UNKNOWN
        elif kind < 0.95:
            asked = voice.says(rng.choice(ask.ASK_WEEKEND))
            reply = f"{answer_day(hours, 5)} {answer_day(hours, 6)}" if hours else UNKNOWN
        else:
            asked = voice.says(rng.choice(ask.ASK_TODAY))
            if hours is None:
                reply = UNKNOWN
            elif today is None:
                reply = "I do not know what day it is. " + answer_all(hours)
            else:
                reply = answer_day(hours, (today + ("tomorrow" in asked.lower())) % 7)
        found.append((asked, sentence(reply)))
    return found
