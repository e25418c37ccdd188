"""One shop's habits of writing days and hours."""

from __future__ import annotations

from random import Random

from training.grammar.hours import Hours, Span
from training.grammar.text import expand
from training.grammar.values import DAYS

_SHORT = [
    "Mon Tue Wed Thu Fri Sat Sun".split(), "Mon. Tue. Wed. Thu. Fri. Sat. Sun.".split(), "Mo Tu We Th Fr Sa Su".split(),
    "MON TUE WED THU FRI SAT SUN".split(), "mon tue wed thu fri sat sun".split(),
    "Mon Tues Wed Thurs Fri Sat Sun".split(),
]  # fmt: skip
_CLOSED = "closed|closed|closed|shut|not open|no service|closed all day"


class Writer:
    """One shop's habits of writing days and spans."""

    def __init__(self, rng: Random, hours: Hours) -> None:
        self.rng, self.runs = rng, list(hours.runs)
        label = rng.random()
        self.names = DAYS if label < 0.55 else [day + "s" for day in DAYS] if label < 0.72 else rng.choice(_SHORT)
        self.through = rng.choice((" to ", " to ", "-", " - ", " through ", " till ", "–", " until ", "/"))
        if self.through == "/" and self.names is not DAYS:
            self.through = "-"
        self.between = rng.choice(("-", "-", " - ", " to ", " to ", " till ", "–", " – ", " until "))
        #: between the two halves of a day with a break
        self.again = rng.choice((" and ", " and ", " and ", ", ", " & ", " + ", " / "))
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
        if last == (first + 1) % 7 and self.rng.random() < 0.6:
            return f"{self.names[first]} and {self.names[last]}"
        through = " to " if self.through == "/" and last != first + 1 else self.through
        return self.names[first] + through + self.names[last]

    def on(self, first: int, last: int) -> str:
        """... with the word that a sentence wants before them."""
        name, ranged = self.days(first, last), (last - first) % 7 > 1
        if name == "the week":
            return "during the week"
        if ranged and name[0].isupper():
            return self.rng.choice(("", "", "from ", "on ")) + name
        return ("at " if name == "the weekend" and self.rng.random() < 0.5 else "on ") + name

    def edges(self) -> bool:
        """Whether the closed days are few, and the first or the last of the week."""
        shut = [(first, last) for first, last, span in self.runs if not span]
        return all(0 in run or 6 in run for run in shut) and sum((last - first) % 7 + 1 for first, last in shut) < 4

    def plain(self, span: Span) -> str:
        """8 am-6 pm; 8:00-12:00 and 14:00-18:00; closed"""
        if not span:
            return self.rng.choice(_CLOSED.split("|"))
        if len(span) == 1:
            return span[0]
        return self.again.join(a + self.between + b for a, b in zip(span[::2], span[1::2]))

    def spoken(self, span: tuple[str, ...]) -> str:
        """from 8 am to 6 pm"""
        if len(span) == 1:
            return span[0]
        if len(span) > 2:
            again = " and again " if self.rng.random() < 0.2 else self.again
            return again.join(self.spoken(span[at : at + 2]) for at in (0, 2))
        a, b = span
        if self.rng.random() < 0.25:
            return a + self.between + b
        return expand(self.rng, f"from {a} to {b}|from {a} until {b}|{a} to {b}|from {a} till {b}|between {a} and {b}|"
                                f"{a} until {b}|{a} through {b}|from {a} - {b}")  # fmt: skip


HEADS = [
    "Opening hours: ", "Hours: ", "Open: ", "Opening times: ", "Times: ", "Our hours: ", "", "", "Hours ",
    "Hours of business: ", "We are open as follows: ", "Timetable: ", "When: ", "Open ", "Schedule: ", "This week: ",
    "Days and hours: ", "The week: ", "Service hours: ", "Service: ", "Counter hours: ", "Day by day: ",
    "Served ", "Staffed ", "Visits: ", "Public hours ", "Doors: ", "Desk: ",
]  # fmt: skip

OPENS = (
    "the [ticket desk|front desk|counter|window] is [staffed|open|manned]|served|"
    "our gate is open|guests can come|somebody serves you|visit us|we work|come|you may visit|the shutters are up|"
    "we are open|we're open|open|the [shop|house|place|desk|counter] is open|opening hours are|"
    "our [opening |]hours are|you can [visit|find|reach] us|the doors are open|we open|"
    "staff are here|the hours are|it is open|we welcome you|"
    "we [serve|work|are here]|somebody is here|you can come"
)


def joined(text: str) -> str:
    """With a blank in front of a word, none in front of punctuation."""
    return text if text[0] in ",.;" else " " + text
