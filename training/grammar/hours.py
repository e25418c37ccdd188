"""Opening hours: asked for in many ways and answered in one (training.grammar.notice has how they are stated)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from training.grammar import values
from training.grammar.text import Voice, babble, sentence
from training.grammar.values import DAYS

Span = tuple[str, str] | None  # from, to, as written in the facts; None: closed

@dataclass
class Hours:
    """Runs of neighbouring days that share their hours: (first day, last day, span), Monday to Sunday."""

    runs: list[tuple[int, int, Span]]

    def of(self, day: int) -> Span:
        """The span of one day, 0 is Monday."""
        return next(span for first, last, span in self.runs if first <= day <= last)


def _clock(rng: Random) -> Callable[[int, int], str]:
    """One shop's notation of the time of day."""
    style = rng.choices(("am", "24", "24h", "bare"), (66, 24, 6, 4))[0]
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


def draw(rng: Random) -> Hours:
    """Hours of some shop: one to seven runs of days, some of them closed."""
    clock = _clock(rng)

    def span() -> Span:
        minutes = (0, 0, 0, 30, 30, 15, 45)
        late = 24 if rng.random() < 0.04 else rng.randint(14, 23)
        return clock(rng.randint(5, 13), rng.choice(minutes)), clock(late, 0 if late == 24 else rng.choice(minutes))

    kind = rng.random()
    if kind < 0.16:
        return Hours([(0, 6, span())])
    if kind < 0.28:  # one day is different
        day, usual, other = rng.randrange(7), span(), span() if rng.random() < 0.4 else None
        runs = [(0, day - 1, usual), (day, day, other), (day + 1, 6, usual)]
        return Hours([run for run in runs if run[0] <= run[1]])
    cuts = [5, 7] if kind < 0.45 else [5, 6, 7] if kind < 0.64 else [6, 7] if kind < 0.68 else list(range(1, 8))
    if 0.68 <= kind < 0.82:
        cuts = sorted({*rng.sample(range(1, 7), rng.randint(1, 3)), 7})
    runs, first = [], 0
    for cut in cuts:
        closed = 0.45 if cut == 7 and first == 6 else 0.22 if cut - first <= 2 else 0.04
        runs.append((first, cut - 1, None if rng.random() < closed else span()))
        first = cut
    if all(each[2] is None for each in runs):
        runs[0] = (runs[0][0], runs[0][1], span())
    merged = [runs[0]]  # neighbours with the same hours are one run: both closed
    for each in runs[1:]:
        if each[2] == merged[-1][2]:
            merged[-1] = (merged[-1][0], each[1], each[2])
        else:
            merged.append(each)
    return Hours(merged)


def _run_name(first: int, last: int) -> str:
    """Monday, Monday and Tuesday, Monday to Friday."""
    if first == last:
        return DAYS[first]
    return f"{DAYS[first]} {'and' if last == first + 1 else 'to'} {DAYS[last]}"


# ---- questions -------------------------------------------------------------------------------------------------------

ASK_DAY = [
    "[when|what time|at what time] [are you|is it|are you guys|is this place|is the shop] open on {day}?",
    "[what are|tell me|could you tell me|do you know|can you tell me|i need] [the|your] [opening |]hours [on|for] "
    "{day}[, please|]?",
    "[how about|what about|and on|and|and how about] {day}?",
    "[when|what time] can i [come|visit|drop by|come in|stop by] on {day}?",
    "opening [hours|times] [on|for|] {day}[, please|]?",
    "[what time|when] do you open and close on {day}?",
    "[from when to when|how long|until when] are you open on {day}?",
    "{day} [opening hours|opening times|hours]?",
    "i [want to|would like to|plan to|might] come on {day}, when are you open?",
    "[is anyone|is somebody|will someone be] here on {day}, and when?",
    "[please|] tell me when you are open on {day}.",
    "[what|which] hours [do you have|do you keep|are you open] on {day}?",
]
ASK_DAY += [
    "[from|between] when [to|and|till|until] when [on |]{day}?",
    "[on |]{day}[,|:] from [when|what time|what hour] [to|till|until] [when|what time|what hour]?",
    "[i mean|how about|and on|then|now|on] {day}, [from when till when|from what time until what time|from when to "
    "when exactly]?",
    "[open|here|at work] from when [to|until|till] when on {day}?",
    "from when [are you there|do you work|can i come] on {day}, and until when?",
    "[i'm|we're] [coming|arriving|passing by|in town] on {day}, [when are you open|what are your hours|which hours]?",
    "[from what time to what time|between which hours|at which times] [are you open |]on {day}?",
    "how does {day} look?",
    "[tell me|give me|i need to know] the [hours|times|opening times] [on|for] {day}[, please|]",
    "{day} hours[, please|]?",
    "[opening|business|working|shop] hours [on |]{day}[?|, please]", "what are the times on {day}?", "{day}?",
    "do you know [when|how long] [this place|the shop|the counter] is open on {day}?",
    "your schedule [on|for] {day}?",
]  # fmt: skip
ASK_IF = [
    "are you [open|also open|here|open at all] on {day}?",
    "[is it|is this place|is the shop|is the store|is everything] open on {day}?",
    "do you [open|work|have open] on {day}?",
    "can i [come|visit you|drop by|stop by|come in|shop here] on {day}?",
    "[are you closed|is it closed|do you close|are you shut] on {day}?",
    "you are open on {day}, [right|aren't you|correct|yes]?",
    "[will you be|are you going to be] open on {day}?",
    "would {day} [work|be ok|be possible]?",
    "[open|anyone here|someone there] on {day}?",
    "so [are you|is it|will it be] open {day}?",
]
ASK_IF += [
    "[is|would] {day} [ok|fine|possible|a good day] for [a visit|shopping|coming by]?",
    "do you [rest|have a day off] on {day}?",
    "will i find [you|someone|anybody] here on {day}?", "[does the shop|do you guys] work on {day}?", "open {day}?",
]  # fmt: skip
ASK_OPEN = [
    "[when|what time|at what time|how early] do you open on {day}?",
    "[when|what time] does it open on {day}?",
    "[when|how early|what time] can i come in on {day} [morning|at the earliest|]?",
    "what's your opening time on {day}?",
    "[from when|since when|from what time] are you open on {day}?",
    "[when|at what time] do [the doors|you guys] open on {day}?",
    "how early [can i come|do you start|do you begin] on {day}?",
]
ASK_OPEN += [
    "[when|what time] [do you start|does it start|do you begin|can i show up|can we show up] on {day}?",
    "[earliest time|opening time|start] on {day}?", "when is the [first|earliest] [possible |]time on {day}?",
    "how early [is somebody|are you|is anyone] [here|there] on {day}?", "from [when|what hour] on {day}?",
]  # fmt: skip
ASK_CLOSE = [
    "[when|what time|at what time|how late] do you close on {day}?",
    "[until when|how long|till when|until what time|how late] are you open on {day}?",
    "[what's|what is] your closing time on {day}?",
    "[when|what time] does it [close|shut] on {day}?",
    "[how late|how long|until when] can i [come|stay|shop|order] on {day}?",
    "when do you [shut|lock up|finish|shut down] on {day}?",
    "what is the latest i can come on {day}?",
]
ASK_CLOSE += [
    "[when|what time] do you [end|stop|go home|call it a day] on {day}?", "[latest time|closing time|end] on {day}?",
    "when is [last order|the last call|the last entry] on {day}?", "how [late|long] can [i|we] be here on {day}?",
    "until [when|what hour] on {day}?", "how long do i have on {day}?",
]  # fmt: skip
ASK_DAY += [
    "[if|suppose|say] i come on {day}, [when is it open|which hours are there|when would that be possible|what are "
    "the times]?",
    "[my|our] [visit|trip|day off] is on {day}, [when can i come|what are the hours|when do you serve]?",
    "[i might|maybe i|perhaps i|i'd love to] [look in|pop in|come over|shop] on {day}. [when are you there|when "
    "does it work|what times are good]?",
    "[how|what] [are|is] [the|your] [opening|business|working] [hours|times|time] [on|for] {day}?",
    "on {day}, [from when to when|what times|when]?",
    "[free|available|reachable|in service] on {day}, [and when|from when to when|at what times]?",
    "{day}: [when|hours|times|from when to when]?",
    "[between what times|in which hours|at which times|when exactly] [can we shop|may i come|can i buy something|"
    "do you serve] on {day}?",
    "[talk to me about|and now|next question:|then] {day}",
    "[what's the plan|how is it|what applies|what do you have] [for|on] {day}?",
]  # fmt: skip
ASK_IF += [
    "on {day}, [is somebody there|are you open|do you work|is there service|anyone]?",
    "{day}, [open or closed|yes or no|open|closed]?",
    "[is|will] [anybody|somebody|someone] [be |][here|in|working|around] on {day}?",
    "[any service|business as usual|normal day] on {day}?",
    "[do|can] [guests|people|we] [come|get in|visit] on {day}?",
    "[is {day}|would {day} be] [a day off|a rest day|free|an open day]?",
]  # fmt: skip
ASK_OPEN += [
    "[how early|what time|when] [can we get in|does somebody arrive|is the first service|does the day begin] on "
    "{day}?",
    "[the|your] [first|earliest] [hour|time|moment] on {day}?",
    "on {day}, [when do you begin|what time do you open|how early are you there]?",
    "[from when|starting when|as of when] [can i|may i|can we] [buy|get|order] [something|things] on {day}?",
    "[opening|start] on {day} is at?",
    "[when|what time] [do the doors|does the door|does the gate] open on {day}?",
    "{day}, [the earliest|opening time|from when|when do you start]?",
    "[i get up early|early bird here], when do you [open|begin|start] on {day}?",
]  # fmt: skip
ASK_CLOSE += [
    "[how late|what time|when] [is the last order|does everybody leave|does the day end|do the lights go out] on "
    "{day}?",
    "[the|your] [last|latest] [hour|time|moment|chance] on {day}?",
    "on {day}, [when do you finish|what time do you close|how late are you there]?",
    "[up to when|up to what time|how late] [can i|may i|can we] [buy|order|come for] [something|things] on {day}?",
    "[closing|end] on {day} is at?",
    "[when|what time] [do the doors|does the door|does the gate] [close|shut] on {day}?",
    "{day}, [the latest|closing time|until when|when do you stop]?",
    "[i work late|i'm always late], [when do you close|how late is it open|until when can i come] on {day}?",
]  # fmt: skip
#: what tells the three questions apart, whatever stands around it
CUES = {
    "day": ["hours", "opening hours", "times", "opening times", "schedule", "when open", "from when to when",
            "when are you there", "from when until when", "from when till when", "from what time to what time",
            "business hours", "when can i come", "what times", "open from to",
            "when is service"],
    "open": ["opening time", "when do you open", "earliest", "start", "begin", "open from when", "doors open when",
             "how early", "what time do you start", "first hour", "in the morning from when", "as of when"],
    "close": ["closing time", "when do you close", "latest", "end", "until when", "how late", "till when",
              "last hour", "what time do you stop", "in the evening till when", "up to when", "when do you leave"],
}  # fmt: skip
ASK_ALL = [
    "[what are|tell me|can you tell me|could you tell me|do you know|i'd like to know] [your|the] [opening |"
    "]hours[, please|]?",
    "when are you open[, please|]?", "[opening |]hours[, please|]?", "what are your opening times?",
    "[when|on which days|what days] are you open?", "[when|at what times] can i come?", "what hours do you keep?",
    "are you open [every day|all week|seven days a week|daily]?", "what time do you open and close?",
    "[please|] give me [your|the] opening [hours|times].", "[when|which days] are you closed?",
    "how about your [opening |]hours?", "[what|which] days are you open?", "do you have fixed [opening |]hours?",
    "can you [list|read me|show me] the [opening |]hours?",
]  # fmt: skip
ASK_WEEKEND = [
    "are you open [on|at|over] the weekend?", "what about [the weekend|weekends]?",
    "[when|what time] are you open on weekends?",
    "do you open [on|at] weekends?", "what are your weekend hours?",
    "[can i come|is it open|are you here] on the weekend?",
    "[opening |]hours [on|for] the weekend?", "and on [weekends|the weekend]?",
]  # fmt: skip
ASK_TODAY = [
    "are you [still |]open [today|now|right now|tonight|this evening|at the moment]?",
    "[when|what time] do you close [today|tonight]?", "how long are you open [today|tonight]?",
    "[until when|how late] are you open [today|tonight|this evening]?", "are you open tomorrow?",
    "[when|what time] do you open tomorrow?", "what are [your|the] hours [today|tomorrow]?",
]  # fmt: skip

ASK_AT = [
    "are you [still |already |]open at {time} on {day}?", "can i [come|visit|drop by] [on |]{day} at {time}?",
    "[is it|is the shop|is this place|will you be] open [on |]{day} at {time}?",
    "i want to come on {day} at {time}, [ok|possible]?",
    "would {time} on {day} [be ok|work|be too late|be too early]?", "is anyone [here|there] at {time} on {day}?",
    "do you [open|close] at {time} on {day}?", "you close at {time} on {day}, right?",
    "is {day} at {time} too [late|early]?",
]  # fmt: skip

UNKNOWN = "Sorry, I do not know the opening hours. Please ask the staff."


def answer_day(hours: Hours, day: int, kind: str) -> str:
    """The one answer to a question about one day; kind: "day", "if", "open" or "close"."""
    span = hours.of(day)
    if span is None:
        return f"We are closed on {DAYS[day]}."
    a, b = span
    if kind == "open":
        return f"On {DAYS[day]} we open at {a.rstrip('.')}."
    if kind == "close":
        return f"On {DAYS[day]} we close at {b.rstrip('.')}."
    return f"On {DAYS[day]} we are open from {a} to {b.rstrip('.')}."


def answer_all(hours: Hours) -> str:
    """All hours in one fixed form."""
    if len(hours.runs) == 1:
        a, b = hours.runs[0][2] or ("", "")
        return f"We are open every day from {a} to {b.rstrip('.')}."
    parts = [f"{_run_name(first, last)} " + (f"from {span[0]} to {span[1]}" if span else "closed")
             for first, last, span in hours.runs]  # fmt: skip
    return "Our hours: " + ", ".join(parts).rstrip(".") + "."


def turns(rng: Random, voice: Voice, hours: Hours | None, today: int | None = None) -> list[tuple[str, str]]:
    """One to three questions on opening hours, answered from the hours or, where none are given, not at all."""
    found: list[tuple[str, str]] = []
    for _ in range(rng.choices((1, 2, 3), (60, 28, 12))[0]):
        day, kind = rng.randrange(7), rng.random()
        shut = [at for at in range(7) if hours and hours.of(at) is None]
        if shut and rng.random() < 0.25:  # else a closed day is asked for too seldom to be learned
            day = rng.choice(shut)
        form = rng.choices(("{}", "{}s", "this {}", "next {}", "a {}"), (80, 8, 5, 4, 3))[0]
        name = form.format(voice.small(DAYS[day]))
        if kind < 0.05:
            other = (day + rng.randint(1, 6)) % 7
            both = f"{voice.small(DAYS[day])} and {voice.small(DAYS[other])}"
            asked = voice.says(rng.choice(ASK_DAY + ASK_IF), day=both)
            reply = f"{answer_day(hours, day, 'day')} {answer_day(hours, other, 'day')}" if hours else UNKNOWN
        elif kind < 0.76:
            way, asks = rng.choices((("day", ASK_DAY), ("if", ASK_IF), ("open", ASK_OPEN), ("close", ASK_CLOSE)),
                                    (30, 24, 22, 24))[0]  # fmt: skip
            pattern = rng.choice(asks)
            if way != "if" and rng.random() < 0.25:
                parts = ["{day}", rng.choice(CUES[way])]
                rng.shuffle(parts)
                pattern = f"{babble(rng, 3)} {parts[0]} {babble(rng, 2)} {parts[1]} {babble(rng, 2)}?"
            asked = voice.says(pattern, day=name)
            reply = answer_day(hours, day, way) if hours else UNKNOWN
        elif kind < 0.86:
            asked, reply = voice.says(rng.choice(ASK_ALL)), answer_all(hours) if hours else UNKNOWN
        elif kind < 0.91:
            asked = voice.says(rng.choice(ASK_AT), day=name, time=values.time(rng))
            reply = answer_day(hours, day, "day") if hours else UNKNOWN
        elif kind < 0.95:
            asked = voice.says(rng.choice(ASK_WEEKEND))
            reply = f"{answer_day(hours, 5, 'day')} {answer_day(hours, 6, 'day')}" if hours else UNKNOWN
        else:
            asked = voice.says(rng.choice(ASK_TODAY))
            if hours is None:
                reply = UNKNOWN
            elif today is None:
                reply = "I do not know what day it is. " + answer_all(hours)
            else:
                day = (today + ("tomorrow" in asked.lower())) % 7
                way = "if"
                reply = answer_day(hours, day, way)
        found.append((asked, sentence(reply)))
    return found
