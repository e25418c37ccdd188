"""Hours with exceptions: a day within a run, an end of its own, single days, and all others."""

from __future__ import annotations

from training.grammar.hours import Span
from training.grammar.text import expand, listed, sentence
from training.grammar.writer import HEADS, OPENS, Writer, joined

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


def excepted(w: Writer, usual: tuple[str, ...], others: list[tuple[int, int, Span]]) -> str:
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
    text = expand(w.rng, f"[{OPENS}|] [every day|daily|all days|all week|seven days a week] {w.spoken(usual)}|"
                         f"[every day|daily] {w.spoken(usual)}")  # fmt: skip
    if closed:
        one = sum(b - a + 1 for a, b, span in others if not span) == 1 and w.rng.random() < 0.35
        text += joined(expand(w.rng, _ONE_CLOSED if one else _BUT_CLOSED)).replace("{x}", listed(closed))
    if differ:
        text += joined(expand(w.rng, _BUT)).replace("{x}", listed(differ))
    return text


_NOT_THEN = (
    ", except on {x}|, except {x}|, but not on {x}|. Closed on {x}|, but {x} closed|, not {x}|"
    ", except {x}, when we are closed|, except on {x}, when nobody is here"
)
_UNTIL = (
    ", {x} only until {t}|, but {x} until {t}|, on {x} until {t}|. {x} only till {t}|, {x} to {t}|"
    ". On {x} we close at {t}|, but on {x} only until {t}"
)
_FROM = (
    ", {x} only from {t}|, but {x} from {t}|, on {x} from {t}|. {x} not before {t}|"
    ". On {x} we open at {t}|, but on {x} only from {t}"
)
_THEN = (
    ", but {x} {s}|, except {x}: {s}|, except {x} {s}|. {x}: {s}|, on {x} {s}|. Only {x} {s}|"
    ", {x} however {s}|, late opening {x} {s}|. Exception: {x} {s}|, different hours {x}: {s}"
)


def inside(w: Writer) -> str:
    """Tue-Fri 9am-6pm, but Thursday 9am-9pm; empty where no run has a day of its own within."""
    spans = [next(span for a, b, span in w.runs if a <= day <= b) for day in range(7)]
    ranges = [(a, b) for a in range(7) for b in range(a + 2, 7)
              if sum(spans[day] != spans[a] for day in range(a, b + 1)) == 1 and spans[a] == spans[b] and spans[a]]
    if not ranges:
        return ""
    first, last = max(ranges, key=lambda run: run[1] - run[0])
    usual = spans[first] or ()
    day = next(day for day in range(first, last + 1) if spans[day] != usual)
    other, name = spans[day], w.days(day, day)
    every = "daily|every day|all week|Monday to Sunday" if (first, last) == (0, 6) else w.days(first, last)
    text = expand(w.rng, f"[{every}][:|] ") + " " + (w.plain(usual) if w.rng.random() < 0.6 else w.spoken(usual))
    text = text if w.rng.random() < 0.6 else expand(w.rng, OPENS) + " " + text
    if not other:
        text += expand(w.rng, _NOT_THEN).replace("{x}", name)
    elif other[0] == usual[0] and len(other) == len(usual) == 2 and w.rng.random() < 0.7:
        text += expand(w.rng, _UNTIL).replace("{x}", name).replace("{t}", other[1])
    elif other[1] == usual[1] and len(other) == len(usual) == 2 and w.rng.random() < 0.7:
        text += expand(w.rng, _FROM).replace("{x}", name).replace("{t}", other[0])
    else:
        span = w.plain(other) if w.rng.random() < 0.6 else w.spoken(other)
        text += expand(w.rng, _THEN).replace("{x}", name).replace("{s}", span)
    outside = [[each for each in range(a, b + 1) if not first <= each <= last] for a, b, _ in w.runs]
    rows = [f"{w.days(days[0], days[-1])} {w.plain(run[2])}" for days, run in zip(outside, w.runs) if days]
    joint = w.rng.choice((", ", ". ", ". ", "; "))
    return text + "".join(joint + (row if joint != ". " else sentence(row)) for row in rows)


_OTHERS = (
    "[, |; ][closed|we are closed] [on |][all other days|all the other days|the other days|any other day]|"
    ". [Closed|We are closed] [on |][all other days|all the other days|the other days|any other day]|"
    ". Otherwise [closed|we are closed]|, otherwise closed|. The rest of the week [we rest|closed|nobody is here]"
)


def grouped(w: Writer) -> str:
    """Mon, Wed, Fri 6:00-22:00; Tue, Thu 8:00-22:00; closed on all other days."""
    groups: dict[Span, list[int]] = {}
    for a, b, span in w.runs:
        groups.setdefault(span, []).extend(range(a, b + 1))
    colon, rows = w.rng.choice((" ", " ", ": ")), []
    comma = w.rng.random() < 0.5
    shut = groups.pop(None, [])
    items = list(groups.items())
    if w.rng.random() < 0.3:
        w.rng.shuffle(items)
    for span, days in items:
        names = [w.names[day] for day in days]
        if not comma and w.rng.random() < 0.3:  # each of them by itself
            rows += [f"{name}{colon}{w.plain(span)}" for name in names]
        else:
            rows.append((", ".join(names) if comma else listed(names)) + colon + w.plain(span))
    text = w.rng.choice((*HEADS, "Open ", "We are open ", "Only ", ""))
    text += w.rng.choice(("; ", "; ", ". ", ", ")).join(rows)
    if shut and w.rng.random() < 0.6:
        return text + expand(w.rng, _OTHERS)
    if shut:
        names = [w.names[day] for day in shut]
        text += w.rng.choice((". ", ". ", "; ")) + (", ".join(names) if comma else listed(names)) + colon + "closed"
    return text


def ends(w: Writer) -> str:
    """Opens at 1 pm every day and closes at 11 pm, on Fridays at midnight; empty where both ends differ."""
    spans = [next(span for a, b, span in w.runs if a <= day <= b) for day in range(7)]
    if any(span is None or len(span) > 2 for span in spans):
        return ""
    for end in (0, 1):
        same, differ = {span[1 - end] for span in spans if span}, [span[end] for span in spans if span]
        usual = max(differ, key=differ.count)
        others = [(a, b, span[end]) for a, b, span in w.runs if span and span[end] != usual]
        if len(same) == 1 and 0 < len(others) < 3:
            if w.rng.random() < 0.3:
                verb, joint = ("close", "from") if end == 0 else ("open", "until")
                first = ", ".join(f"{w.days(a, b)} {joint} {time}" for a, b, time in others)
                rest = expand(w.rng, "all other days|the other days|otherwise|the rest of the week")
                every = w.rng.choice(("daily", "every day"))
                return f"{first}, {rest} {joint} {usual}. We {verb} at {same.pop()} {every}"
            one = f"{'closes' if end == 0 else 'opens'} at {same.pop()} {expand(w.rng, 'every day|daily|all week')}"
            more = ", ".join(f"{w.on(a, b)} {w.rng.choice(('at', 'at', 'only at'))} {time}" for a, b, time in others)
            two = f"{'opens' if end == 0 else 'closes'} at {usual}"
            who = expand(w.rng, "the [shop|desk|counter|house|hall|office|ticket office|front door]")
            return f"{who} {one} and {two}, {more}" if w.rng.random() < 0.6 else f"{who} {two}, {more}, and {one}"
    return ""
