"""Hours that are no plain week: by season or month, and those of several things under one roof."""

from __future__ import annotations

from random import Random

from training.grammar import ask_hours as ask
from training.grammar import hours as opening
from training.grammar import notice
from training.grammar.hours import Hours, Span, fromto, told
from training.grammar.text import Voice, expand, listed, sentence
from training.grammar.values import DAYS, MONTHS, coined

Turn = tuple[str, str]
#: from and to as months, 0 is January; may run over the end of the year
Part = tuple[int, int, Span]
_SEASONS = {"summer": (4, 5, 8, 9), "winter": (10, 11, 2, 3), "spring": (2, 3, 4, 5), "autumn": (8, 9, 10, 11)}


_PLAIN = [pattern for pattern in ask.ASK_MONTH if "{day}" not in pattern]
_WITH_DAY = [pattern for pattern in ask.ASK_MONTH if "{day}" in pattern]
_CLOSED_THEN = (
    "closed on {day}s in {when}|on {day}s in {when} we are closed|{day}s in {when}: closed|in {when} not on {day}|"
    "in {when} [we are |]closed on {day}s|no service on {day}s in {when}"
)


class Seasons:
    """Hours by months; the same on all days."""

    def __init__(self, rng: Random) -> None:
        span, kind = opening.spans_of(rng), rng.random()
        self.named = ""
        if kind < 0.45:  # summer and the rest
            self.named = rng.choice(("summer", "summer", "winter"))
            a, b, c, d = _SEASONS[self.named]
            first, last = rng.choice((a, b)), rng.choice((c, d))
            cuts = [first, (last + 1) % 12]
        else:
            cuts = sorted(rng.sample(range(12), rng.choice((2, 2, 2, 3))))
        spans: list[Span] = [span() for _ in cuts]
        if rng.random() < 0.4:
            spans[-1] = None
        ends = [*cuts[1:], cuts[0]]
        self.parts: list[Part] = [(a, (b - 1) % 12, each) for a, b, each in zip(cuts, ends, spans)]
        #: a day of the week on which one part is closed
        self.shut: tuple[Part, int] | None = None
        if rng.random() < 0.3:
            self.shut = rng.choice([part for part in self.parts if part[2]]), rng.randrange(7)

    def of(self, month: int) -> Span:
        """The hours in a month, 0 is January."""
        return next(span for a, b, span in self.parts if (month - a) % 12 <= (b - a) % 12)

    def label(self, part: Part) -> str:
        """April to September"""
        a, b, _ = part
        return MONTHS[a] if a == b else f"{MONTHS[a]} to {MONTHS[b]}"

    def written(self, rng: Random) -> str:
        """As a shop may write it; months by name, the last part perhaps as the rest."""
        through = rng.choice((" to ", " to ", " to ", " until ", " through ", "-", " - ", "–"))
        between = rng.choice(("-", "-", " - ", " to ", " to ", " till ", "–", " until "))
        names = [name[:3] for name in MONTHS] if rng.random() < 0.2 else MONTHS
        days = rng.random() < 0.12
        lead, colon = rng.choice(("", "", "from ", "in ")), rng.choice((": ", ": ", " ", ", ", " = "))
        daily = rng.choice(("", "", "", " daily", " every day", "daily ", "every day ", "open "))
        rows = []
        for i, (a, b, span) in enumerate(self.parts):
            months = names[a] if a == b else names[a] + through + names[b]
            if days:
                months = f"1 {names[a]}{through}{30 if b in (3, 5, 8, 10) else 28 if b == 1 else 31} {names[b]}"
            if i == 0 and self.named and rng.random() < 0.85:
                months = expand(rng, f"{self.named} ({months})|in {self.named} ({months})|{self.named}: {months}|"
                                     f"{self.named}, {months}")  # fmt: skip
            elif i + 1 == len(self.parts) and rng.random() < (0.5 if span else 0.6):
                rest = "[the |]rest of the year|otherwise|all other months|the other months|outside these months"
                months = expand(rng, rest if span else f"{rest}|in between|out of season")
            else:
                months = lead + months
            text = between.join(span[:2]) if span else expand(rng, "closed|closed|we are closed|shut|nobody is here")
            if span and len(span) > 2:
                text += " and " + between.join(span[2:])
            if span and daily:
                text = text + daily if daily[0] == " " else daily + text
            rows.append(f"{months}{colon}{text}")
        if self.shut:
            part, day = self.shut
            when = self.named if part == self.parts[0] and self.named else self.label(part)
            rows.append(expand(rng, _CLOSED_THEN).replace("{day}", DAYS[day]).replace("{when}", when))
        joint = rng.choice((". ", ". ", ". ", "; ", ", ", "\n"))
        rows = [sentence(row) if joint in (". ", "\n") else row for row in rows]
        return rng.choice(("", "", "", "Hours: ", "Opening hours: ", "Open: ")) + joint.join(rows).replace("..", ".")

    def every(self) -> str:
        """All that is known, in one fixed form."""
        rows = [f"{self.label(part)} {fromto(part[2]) if part[2] else 'closed'}" for part in self.parts]
        if self.shut:
            rows.append(f"{DAYS[self.shut[1]]} in {self.label(self.shut[0])} closed")
        return "Our hours: " + ", ".join(rows).rstrip(".") + "."

    def _on(self, rng: Random, voice: Voice, pattern: str, month: int) -> Turn:
        """A day of the week in a month, often the one that is closed then."""
        a, b, _ = self.shut[0] if self.shut else self.parts[0]
        day = rng.randrange(7)
        if self.shut and rng.random() < 0.7:
            day, month = self.shut[1], (a + rng.randrange((b - a) % 12 + 1)) % 12
        asked = voice.says(pattern, month=voice.small(MONTHS[month]), day=voice.small(DAYS[day]))
        shut = self.shut and day == self.shut[1] and (month - a) % 12 <= (b - a) % 12
        hours = "closed" if shut else told(self.of(month))
        return asked, f"On {DAYS[day]} in {MONTHS[month]} we are {hours}".rstrip(".") + "."

    def turn(self, rng: Random, voice: Voice, after: bool = False) -> Turn:
        """A question about a month or a season; without either all is told."""
        kind, month = rng.random(), rng.randrange(12)
        if kind < 0.14:
            return voice.says(rng.choice(ask.ASK_ALL)), self.every()
        if kind < 0.20:
            return opening.ask_day(rng, voice, rng.randrange(7)), self.every()
        if kind < 0.36 and self.named:
            name = rng.choice(("summer", "winter"))
            a, b, c, d = _SEASONS[name]
            held = self.of((a + ((c - a) % 12) // 2 + 1) % 12)
            asked = voice.says(rng.choice(_PLAIN), month=name)
            return asked, f"In {name} we are {told(held)}".rstrip(".") + "."
        name = voice.small(MONTHS[month])
        if kind < (0.62 if self.shut else 0.46):
            return self._on(rng, voice, rng.choice(_WITH_DAY), month)
        pattern = "[and|what about|how about|] [in |]{month}?" if after and kind > 0.85 else rng.choice(_PLAIN)
        if rng.random() < 0.15:
            name = expand(rng, f"[early|late|mid|the end of|the middle of|the first week of] {name}")
        asked = voice.says(pattern, month=name)
        return asked, f"In {MONTHS[month]} we are {told(self.of(month))}".rstrip(".") + "."


_ROOFS = """
lunch,dinner|breakfast,lunch,dinner|kitchen,bar|shop,cafe|box office,bar|museum,cafe|pool,sauna|desk,gym|shop,workshop|
counter,phone line|garden,house|lunch,supper|brunch,dinner|terrace,dining room|library,reading room|
ticket desk,gift shop|ground floor,roof|gallery,garden|reception,restaurant|market,bakery|breakfast,bar|
office,warehouse|arcade,snack bar|public skating,hockey|early swim,lane swim|story time,chess club|
drive-in,restaurant|pharmacy,night counter
""".replace("\n", "").split("|")
_LAST = """
last entry|last orders|last admission|last wash|last tour|last boat|last call|last rental|last bus|last show|first tour|
first boat|happy hour|feeding time|last game|last ride|last bookings|first show|last train|tea time|check-in|
checkout
""".replace("\n", "").split("|")


class Sittings:
    """Hours of several things: lunch and dinner, kitchen and bar, shop and last entry."""

    def __init__(self, rng: Random) -> None:
        names = rng.choice(_ROOFS).split(",")
        if rng.random() < 0.25:
            names[rng.randrange(len(names))] = coined(rng)
        span = opening.spans_of(rng)
        shut = rng.choice(([], [], [6], [0], [0, 1], [5, 6], [rng.randrange(7)]))
        self.shared = rng.random() < 0.6
        self.shut, self.each, self.last = shut, dict[str, Hours](), dict[str, str]()
        for name in dict.fromkeys(names):
            one, other = span(), span()
            week: list[Span] = [None if day in shut else one for day in range(7)]
            if not self.shared and rng.random() < 0.5:
                week[5:] = [other, rng.choice((other, None))]
            self.each[name] = opening.merged(week)
        for name in rng.sample(_LAST, rng.choices((0, 1, 2), (60, 30, 10))[0]):
            self.last[name] = span()[rng.randrange(2)]

    def written(self, rng: Random) -> str:
        """As a house may write it."""
        texts = []
        if self.shared:
            between = rng.choice(("-", "-", " - ", " to ", " till ", "–", " until "))
            colon = rng.choice((" ", " ", ": ", " from ", " is from ")) if between != "-" else rng.choice((" ", ": "))
            rows = []
            for name, week in self.each.items():
                span = next(span for _, _, span in week.runs if span)
                halves = (between.join(span[at : at + 2]) for at in range(0, len(span), 2))
                rows.append(name + colon + " and ".join(halves))
            text = listed(rows) if rng.random() < 0.3 else rng.choice((", ", ", ", "; ")).join(rows)
            runs = next(iter(self.each.values())).runs
            open_days = [opening.run_name(a, b) for a, b, span in runs if span]
            if not self.shut:
                text += rng.choice((", daily", " every day", ", seven days a week", "", ", all week"))
            elif rng.random() < 0.5:
                text += ", " + listed(open_days)
            if self.shut:
                closed = listed([DAYS[day] for day in self.shut])
                text += expand(rng, ". Closed [on |]{x}|. {x} closed|, closed on {x}|. On {x} we are closed").replace(
                    "{x}", closed)  # fmt: skip
            texts.append(text)
        else:
            for name, week in self.each.items():
                plain = Hours(week.runs)
                texts.append(f"{sentence(name)}{rng.choice((': ', ': ', ' '))}{notice.listed_week(rng, plain)}")
        texts += [expand(rng, f"{name}[:| at|] ") + " " + time for name, time in self.last.items()]
        joint = rng.choice((". ", ". ", ". ", "; "))
        return joint.join(sentence(text) if joint == ". " else text for text in texts).replace("..", ".")

    def one(self, name: str, day: int) -> str:
        """from 12:00 to 14:30, of a thing on a day"""
        span = self.each[name].of(day)
        return fromto(span) if span else "closed"

    def week(self, name: str) -> str:
        """All hours of one thing."""
        return f"{sentence(name)}: " + opening.by_runs(self.each[name], "every day").rstrip(".") + "."

    def every(self) -> str:
        """All hours."""
        return " ".join(self.week(name) for name in self.each)

    def turn(self, rng: Random, voice: Voice, after: bool = False) -> Turn:
        """A question about one of the things, or all of a day."""
        kind, day, name = rng.random(), rng.randrange(7), rng.choice(list(self.each))
        if self.shut and rng.random() < 0.2:
            day = rng.choice(self.shut)
        if self.last and kind < 0.3:
            name = rng.choice(list(self.last))
            time = self.last[name].rstrip(".")
            return voice.says(rng.choice(ask.ASK_LAST), x=name), f"The {name} is at {time}."
        if kind < 0.68:
            asked = voice.says(rng.choice(ask.ASK_SITTING), x=name, day=voice.small(DAYS[day]))
            return asked, f"{sentence(name)} on {DAYS[day]}: {self.one(name, day)}".rstrip(".") + "."
        if kind < 0.80:
            return voice.says(rng.choice(ask.ASK_SITTINGS), x=name), self.week(name)
        if kind < 0.86:
            return voice.says(rng.choice(ask.ASK_ALL)), self.every()
        rows = [f"{name} {self.one(name, day)}" for name in self.each]
        if all(week.of(day) is None for week in self.each.values()):
            return opening.ask_day(rng, voice, day, after), f"On {DAYS[day]} we are closed."
        return opening.ask_day(rng, voice, day, after), f"On {DAYS[day]}: {', '.join(rows)}".rstrip(".") + "."


Plan = Seasons | Sittings


def draw(rng: Random) -> Hours | Plan:
    """The hours of some house: mostly a week, sometimes by season or by what is served."""
    kind = rng.random()
    return Seasons(rng) if kind < 0.08 else Sittings(rng) if kind < 0.16 else opening.draw(rng)


def written(rng: Random, hours: Hours | Plan) -> str:
    """As the house writes them."""
    return notice.written(rng, hours) if isinstance(hours, Hours) else hours.written(rng)


def turns(rng: Random, voice: Voice, hours: Hours | Plan | None, today: int | None = None) -> list[Turn]:
    """One to three questions on opening hours."""
    if hours is None and rng.random() < 0.3:
        return _unknown(rng, voice, 1)
    if hours is None or isinstance(hours, Hours):
        return opening.turns(rng, voice, hours, today)
    found: list[Turn] = []
    for _ in range(rng.choices((1, 2, 3), (60, 28, 12))[0]):
        found.append(hours.turn(rng, voice, bool(found)))
    return found


def _unknown(rng: Random, voice: Voice, n: int) -> list[Turn]:
    """Questions about a month, lunch or the last entry where no hours are given."""
    found: list[Turn] = []
    for _ in range(n):
        asked, _ = (Seasons if rng.random() < 0.5 else Sittings)(rng).turn(rng, voice, bool(found))
        found.append((asked, opening.UNKNOWN))
    return found


def drill(rng: Random, voice: Voice, hours: Hours | Plan | None) -> list[Turn]:
    """One question after the other."""
    if hours is None and rng.random() < 0.35:
        return _unknown(rng, voice, rng.randint(1, 3))
    if hours is None or isinstance(hours, Hours):
        return opening.drill(rng, voice, hours)
    return [hours.turn(rng, voice, i > 0) for i in range(rng.randint(3, 7))]
