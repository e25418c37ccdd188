"""How shops write down their opening hours: as a list, in sentences, with exceptions, in any notation of time."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from training.grammar.hours import Hours, Span
from training.grammar.text import expand, listed, sentence
from training.grammar.values import DAYS

_SHORT = [
    "Mon Tue Wed Thu Fri Sat Sun".split(), "Mon. Tue. Wed. Thu. Fri. Sat. Sun.".split(), "Mo Tu We Th Fr Sa Su".split(),
    "MON TUE WED THU FRI SAT SUN".split(), "mon tue wed thu fri sat sun".split(),
    "Mon Tues Wed Thurs Fri Sat Sun".split(),
]  # fmt: skip
_CLOSED = "closed|closed|closed|shut|not open|no service|closed all day"


class _Writer:
    """One shop's habits of writing days and spans."""

    def __init__(self, rng: Random, hours: Hours) -> None:
        self.rng, self.runs = rng, list(hours.runs)
        label = rng.random()
        self.names = DAYS if label < 0.55 else [day + "s" for day in DAYS] if label < 0.72 else rng.choice(_SHORT)
        self.through = rng.choice((" to ", " to ", "-", " - ", " through ", " till ", "–", " until ", "/"))
        if self.through == "/" and self.names is not DAYS:
            self.through = "-"
        self.between = rng.choice(("-", "-", " - ", " to ", " to ", " till ", "–", " – ", " until "))
        #: Monday to Friday and the weekend by other names
        weeks = ("weekdays", "weekdays", "weekday", "working days", "the week", "workdays")
        self.week = rng.choice(weeks) if rng.random() < 0.65 else ""
        ends = ("weekends", "weekends", "the weekend", "weekend", "weekend days", "Saturday and Sunday")
        self.end = rng.choice(ends) if self.week else ""

    def days(self, first: int, last: int) -> str:
        """The days of a run."""
        if (first, last) == (0, 4) and self.week:
            return self.week
        if (first, last) == (5, 6) and self.end:
            return self.end
        if first == last:
            return self.names[first]
        if last == first + 1 and self.rng.random() < 0.6:
            return f"{self.names[first]} and {self.names[last]}"
        through = " to " if self.through == "/" and last > first + 1 else self.through
        return self.names[first] + through + self.names[last]

    def on(self, first: int, last: int) -> str:
        """... with the word that a sentence wants before them."""
        name, ranged = self.days(first, last), last > first + 1
        if name == "the week":
            return "during the week"
        if ranged and name[0].isupper():
            return self.rng.choice(("", "", "from ", "on ")) + name
        return ("at " if name == "the weekend" and self.rng.random() < 0.5 else "on ") + name

    def edges(self) -> bool:
        """Whether the closed days are few, and the first or the last of the week."""
        shut = [(first, last) for first, last, span in self.runs if not span]
        return all(0 in run or 6 in run for run in shut) and sum(last - first + 1 for first, last in shut) < 4

    def plain(self, span: Span) -> str:
        """8 am-6 pm; closed"""
        return span[0] + self.between + span[1] if span else self.rng.choice(_CLOSED.split("|"))

    def spoken(self, span: tuple[str, str]) -> str:
        """from 8 am to 6 pm"""
        a, b = span
        if self.rng.random() < 0.25:
            return a + self.between + b
        return expand(self.rng, f"from {a} to {b}|from {a} until {b}|{a} to {b}|from {a} till {b}|between {a} and {b}|"
                                f"{a} until {b}|{a} through {b}|from {a} - {b}")  # fmt: skip


_HEADS = [
    "Opening hours: ", "Hours: ", "Open: ", "Opening times: ", "Times: ", "Our hours: ", "", "", "Hours ",
    "Hours of business: ", "We are open as follows: ", "Timetable: ", "When: ", "Open ", "Schedule: ", "This week: ",
    "Days and hours: ", "The week: ", "Service hours: ", "Service: ", "Counter hours: ", "Day by day: ",
]  # fmt: skip


_NOUNS = ("times", "opening times", "opening", "service", "schedule", "openings", "timetable", "shift")


def _labels(w: _Writer) -> str:
    """Weekday times 8 am-6 pm, Saturday times 9 am-noon."""
    noun, colon = w.rng.choice(_NOUNS), w.rng.choice((": ", " ", " ", " = ", " - "))
    w.week, w.end = w.rng.choice((("weekday", "weekend"), ("weekday", ""), ("working day", "weekend"), ("", "")))
    rows = [f"{w.days(a, b)} {noun}{colon}{w.plain(span)}" for a, b, span in w.runs]
    if w.rng.random() < 0.5:
        rows = [sentence(row) for row in rows]
    return w.rng.choice((". ", ". ", ", ", "; ", "\n", " / ")).join(rows)


def _list(w: _Writer) -> str:
    """Mon-Fri 8:00-18:00, Sat 9-12, Sun closed"""
    colon, first = w.rng.choice((": ", " ", " ", ", ", " = ")), w.rng.random() < 0.85
    joint = w.rng.choice((", ", "; ", ". ", ", ", " / ", "\n"))
    colon = " " if colon == joint else colon
    parts = []
    for a, b, span in w.runs:
        parts.append(w.days(a, b) + colon + w.plain(span) if first else f"{w.plain(span)} {w.days(a, b)}")
    return w.rng.choice(_HEADS) + joint.join(parts)


_OPENS = (
    "our gate is open|guests can come|somebody serves you|visit us|we work|come|you may visit|the shutters are up|"
    "we are open|we're open|open|the [shop|house|place|desk|counter] is open|opening hours are|"
    "our [opening |]hours are|you can [visit|find|reach] us|the doors are open|we open|"
    "staff are here|the hours are|it is open|we welcome you|"
    "we [serve|work|are here]|somebody is here|you can come"
)
_SHUTS = (
    "[,|.|. we are|, and|. it is|;|. we stay|. always|, but] closed|. we do not open|. there is nobody here|, not|"
    ". we rest|. there is no service|. no one is here|. the doors stay shut|. we take a break|. we stay at home|. "
    "we sleep|. free day|"
    ". no business|. nobody works|. days off:|. the shop rests|. our rest days:|. free:|, never"
)


def _sentence(w: _Writer) -> str:
    """We are open Monday to Friday from 8 am to 6 pm and on Saturday 9 am to noon. Closed on Sunday."""
    parts, shut = [], []
    for a, b, span in w.runs:
        if not span:
            shut.append(w.days(a, b))
        elif w.rng.random() < 0.7:
            parts.append(f"{w.on(a, b)} {w.spoken(span)}")
        else:
            parts.append(f"{w.spoken(span)} {w.on(a, b)}")
    text = expand(w.rng, _OPENS) + " " + listed(parts)
    if shut and w.rng.random() < 0.2:
        return expand(w.rng, f"[closed|we are closed|not open|we rest|free] [on |]{listed(shut)}"
                             f"[, open|. open|; we are open|, but open|.] {listed(parts)}")  # fmt: skip
    if shut and not (w.edges() and w.rng.random() < 0.08):  # days left out at the edge of a week are closed, too
        text += _joined(expand(w.rng, _SHUTS)) + w.rng.choice((" on ", " on ", " on ", " "))
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


def _sentences(w: _Writer) -> str:
    """On weekdays we open at 8 am and close at 6 pm. On Saturday ..."""
    found = []
    for a, b, span in w.runs:
        when = w.on(a, b)
        if not span:
            found.append(expand(w.rng, _OFF.replace("{when}", when)))
            continue
        pattern = _DAY.replace("{when}", when).replace("{c}", span[0]).replace("{d}", span[1])
        found.append(expand(w.rng, pattern.replace("{span}", w.spoken(span))))
    return w.rng.choice((". ", ". ", "; ", ", ")).join(sentence(text) if i else text for i, text in enumerate(found))


_EVERY = (
    "every day|daily|seven days a week|all week|Monday to Sunday|every day of the week|from Monday to Sunday|"
    "7 days a week|all days|Mon-Sun"
)
_LABELS = "[[opening |]hours|open|times|opening times][:|]"


def _daily(w: _Writer) -> str:
    """Every day from 8 am to 6 pm, where all days are alike."""
    span = w.runs[0][2] or ("", "")
    every = f"[{_EVERY}] {w.spoken(span)}"
    return expand(w.rng, f"[{_OPENS}|] {every}|{w.spoken(span)} [{_EVERY}]|[{_LABELS}] {every}|[{_LABELS}] {every}|"
                         f"we open at {span[0]} and close at {span[1]} [{_EVERY}]")  # fmt: skip


_BUT_CLOSED = (
    ". [just|only|solely] on {x} we [are closed|do not open|have a break|rest|take a day off]|"
    ". [just|only|solely] on {x} [do we [close|rest|sleep|keep the door shut|stay away]|are we [closed|off|away|shut]|"
    "is [the shop|the door|the place|the counter] [closed|shut]|does nobody come]|. we are off on {x}|. not {x}|"
    "[,|] except [on |]{x}|[,|] but not on {x}|, {x} closed|. Closed on {x}|, closed {x}|. We are closed on {x}|"
    ", [apart from|other than] {x}|, {x} off|, with {x} off|. On {x} [nobody is here|the shop stays shut|we rest]|"
    ", save for {x}|[,|.] no service on {x}|. {x}: closed|, never on {x}|. But on {x} the door stays shut|"
    "; {x} [closed|we rest|no service|free]|. Free on {x}|. But [we are closed|we rest|it is shut] on {x}|, not on {x}"
)
_ONE_CLOSED = (
    ". {x} is [our|the] [day off|rest day|free day|only closed day|day of rest|one day without service]|"
    ". [Closing day|Day off|Rest day|Closed]: {x}|, {x} being [our day off|the one closed day]|"
    ". The [one|only] day we are closed is {x}|. Just {x} is free|. Only {x} we are [shut|away|not here]"
)
_BUT = ", [but|only|however] {x}|; {x}|. Exception: {x}|. But {x}|, {x}"


def _except(w: _Writer, usual: tuple[str, str], others: list[tuple[int, int, Span]]) -> str:
    """Every day from 8 am to 6 pm except on Monday."""
    closed = [w.days(a, b) for a, b, span in others if not span]
    differ = [f"{w.on(a, b)} {w.spoken(span)}" for a, b, span in others if span]
    if closed and not differ and w.rng.random() < 0.5:
        rest = ("[other days|all other days|on all other days|the rest of the week|otherwise|the other days|else|"
                "every other day|any other day|on the others|the remaining days|apart from that]")  # fmt: skip
        shut = "[closed|we are closed|shut|not open|off|no service|we rest|we do not open|nobody is here] [on |]{x}"
        shut = f"[{shut}|{{x}} [closed|off|shut|we rest|no service]|days off: {{x}}]"
        joint = w.rng.choice((", ", "; ", ". ", ": ", " - ")) if w.rng.random() < 0.9 else ", and "
        return expand(w.rng, shut.replace("{x}", listed(closed)) + joint + f"{rest}[:|,|] [we are open |open |]"
                      + w.spoken(usual)).replace("::", ":")  # fmt: skip
    text = expand(w.rng, f"[{_OPENS}|] [every day|daily|all days|all week|seven days a week] {w.spoken(usual)}|"
                         f"[every day|daily] {w.spoken(usual)}")  # fmt: skip
    if closed:
        one = sum(b - a + 1 for a, b, span in others if not span) == 1 and w.rng.random() < 0.35
        text += _joined(expand(w.rng, _ONE_CLOSED if one else _BUT_CLOSED)).replace("{x}", listed(closed))
    if differ:
        text += _joined(expand(w.rng, _BUT)).replace("{x}", listed(differ))
    return text


def _joined(text: str) -> str:
    """With a blank in front of a word, none in front of punctuation."""
    return text if text[0] in ",.;" else " " + text


_SPECIAL = (
    "[on |]{x}[:|] [{span}|open {span}|we are open {span}|only {span}]|[open|hours] on {x}[:|] {span}|"
    "[special|holiday] hours: {x} {span}|{span} on {x}|{x}, {span}|{x} = {span}"
)
_SPECIAL_OFF = (
    "closed on {x}|{x}[:|] closed|on {x} [we are closed|we do not open|nobody is here|the doors stay shut]|"
    "[no service|not open|we rest] on {x}|{x}: [shut|no service|not open]|we are off on {x}"
)


def holidays(rng: Random, hours: Hours) -> str:
    """What differs on some days of the year; empty where nothing does."""
    w = _Writer(rng, hours)
    rows = [(_SPECIAL.replace("{span}", w.spoken(span)) if span else _SPECIAL_OFF).replace("{x}", holiday)
            for holiday, span in hours.special.items()]  # fmt: skip
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
    w = _Writer(rng, hours)
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
    if excepted:
        return _except(w, usual, others).replace("..", ".")
    if rng.random() < 0.22:  # a row for each day, alike or not
        w.runs = [(day, day, span) for day, span in enumerate(spans)]
        return rng.choices((_list, _sentences), (8, 2))[0](w).replace("..", ".")
    if rng.random() < 0.12:
        rng.shuffle(w.runs)
    long = len(w.runs) > 5
    forms: tuple[Callable[[_Writer], str], ...] = (_list, _labels, _sentence, _sentences)
    return rng.choices(forms, (50, 4, 20, 26) if long else (25, 25, 30, 20))[0](w).replace("..", ".")
