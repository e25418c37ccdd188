"""Opening hours in the dialogues the bundled model learns from: what is written, what is asked, what is answered."""

from __future__ import annotations

import re
from collections import Counter
from itertools import islice
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from training import grammar
from training.grammar import ask_hours, hours, notice, plans, writer
from training.grammar.hours import Hours
from training.grammar.text import Voice
from training.grammar.values import DAYS, MONTHS

A, B, C = ("8 am", "6 pm"), ("9 am", "noon"), ("8 am", "7 pm")
TIME = r"noon|midnight|\d[\d:.h]*(?: ?[apAP]\.?[mM])?\.?"
SPAN = re.compile(rf"On ({'|'.join(DAYS)}) we are (?:open from ({TIME}) to ({TIME})|closed)\.")
SEED = 8


def weeks(n: int) -> list[tuple[Hours, str]]:
    """Weeks without holidays, and their notices."""
    rng = Random(SEED)
    drawn = (Hours(hours.draw(rng).runs) for _ in range(n))
    return [(week, notice.written(rng, week)) for week in drawn]


WEEKS = weeks(2000)


# ---- the truth -------------------------------------------------------------------------------------------------------


def test_by_hand() -> None:
    week = Hours([(0, 4, A), (5, 5, B), (6, 6, None)])
    assert hours.answer_day(week, 2) == "On Wednesday we are open from 8 am to 6 pm."
    assert hours.answer_day(week, 5) == "On Saturday we are open from 9 am to noon."
    assert hours.answer_day(week, 6) == "On Sunday we are closed."
    assert hours.answer_day(Hours([(0, 6, ("8 a.m.", "6 p.m."))]), 0) == "On Monday we are open from 8 a.m. to 6 p.m."
    assert hours.answer_all(week) == (
        "Our hours: Monday to Friday from 8 am to 6 pm, Saturday from 9 am to noon, Sunday closed.")  # fmt: skip
    assert hours.merged([A, A, A, A, A, B, None]) == week


@given(st.lists(st.sampled_from([A, B, C, None]), min_size=7, max_size=7))
def test_runs_are_the_week(week: list[hours.Span]) -> None:
    found = hours.merged(week)
    assert [found.of(day) for day in range(7)] == week
    assert all(one[2] != other[2] and one[1] + 1 == other[0] for one, other in zip(found.runs, found.runs[1:]))


def test_weeks_of_all_kinds() -> None:
    """Seven rows, groups, exceptions; closed days in more than half of the weeks, never all."""
    drawn = [week for week, _ in WEEKS]
    assert all(any(week.of(day) for day in range(7)) for week in drawn)
    shut = Counter(sum(week.of(day) is None for day in range(7)) for week in drawn)
    assert 0.3 < shut[0] / 2000 < 0.5 and shut[1] > 300 and shut[2] > 200
    runs = Counter(len(week.runs) for week in drawn)
    assert set(runs) == {1, 2, 3, 4, 5, 6, 7} and runs[1] < 400 and runs[5] + runs[6] + runs[7] > 200
    ends = [[span[0] for _, _, span in week.runs if span] for week in drawn if len(week.runs) > 4]
    assert sum(len(set(each)) < len(each) for each in ends) > len(ends) / 3  # the time does not tell the day


# ---- as it is written ------------------------------------------------------------------------------------------------


def test_each_span_is_stated() -> None:
    for week, written in WEEKS:
        for _, _, span in week.runs:
            assert all(end in written for end in span or ()), written
        assert not re.search(r"\band,|,,|  |\.\.|:[.,;]", written), written


LABEL = re.compile(rf"\b(?:(?:{'|'.join(DAYS)})s?|(?:mon|tues?|wed|thu|thurs|fri|sat|sun))\b", re.I)


def rows(written: str) -> list[str]:
    """What stands behind each day, where each has a row of its own that begins with it; else nothing."""
    text = written.removeprefix(max((head for head in writer.HEADS if written.startswith(head)), key=len))
    cuts = [found.start() for found in LABEL.finditer(text)] + [len(text)]
    found = [text[a:b] for a, b in zip(cuts, cuts[1:])] if len(cuts) == 8 and cuts[0] == 0 else []
    return found if all(re.search(r"\d|noon|closed|shut|not open|no service", row) for row in found) else []


def test_a_row_for_each_day_can_be_read() -> None:
    """A reader that knows nothing of the writer finds each day's own span in its own row."""
    read = 0
    for week, written in WEEKS:
        for row in rows(written):
            read += 1
            day = next(at for at, name in enumerate(DAYS) if name[:2].lower() == row[:2].lower())
            times = [time.rstrip(".") for time in re.findall(TIME, row)]
            span = week.of(day)
            assert sorted(times) == sorted(end.rstrip(".") for end in span or ()), written
    assert read > 1000


def test_exceptions_name_the_days_that_differ() -> None:
    """Every day from 8 to 6 except on Monday: the days by name are those with other hours; else those not closed."""
    found = shut = 0
    last = r"\b(?:closed|rest|nobody is here)\b.*\bother days?$|\botherwise (?:we are )?closed$"
    for week, written in WEEKS:
        if not re.search(r"\b(?:daily|every day|other days?|all days|otherwise|remaining)\b", written, re.I):
            continue
        spans = [week.of(day) for day in range(7)]
        usual = max((span for span in spans if span), key=spans.count)
        others = {DAYS[day][:2].lower() for day in range(7) if spans[day] != usual}
        rest = re.sub(rf"{re.escape(usual[0])}.{{1,9}}{re.escape(usual[-1])}", "", written)
        named = {label[:2].lower() for label in LABEL.findall(rest)}
        if re.search(last, written, re.I):
            shut += 1
            assert not any(DAYS[day][:2].lower() in named for day in range(7) if spans[day] is None), written
        elif named and not re.search(r" to |through|till|until|[-–/]|week", rest):
            found += 1
            assert named == others, written
    assert found > 80 and shut > 20


def test_holidays_are_told_and_answered() -> None:
    """Of a holiday that is told the answer bears its own hours; of any other nothing is known."""
    rng = Random(SEED)
    drawn = [week for week in (hours.draw(rng) for _ in range(1500)) if week.special]
    assert len(drawn) > 150
    for week in drawn:
        told = notice.holidays(rng, week)
        for holiday, span in week.special.items():
            assert all(word in told.lower() for word in holiday.lower().split()), told
            answer = hours.answer_special(week, holiday)
            if span:
                assert answer == f"On {holiday} we are open {hours.fromto(span)}".rstrip(".") + "."
                assert all(end.rstrip(".").lower() in told.lower() for end in span)
            else:
                assert answer == f"On {holiday} we are closed."
                assert len(week.special) > 1 or not re.search(r"\d", told) or holiday[0].isdigit(), told
        free = next(each for each in hours.HOLIDAYS if each not in week.special)
        assert hours.answer_special(week, free) == f"Sorry, I do not know the hours on {free}. Please ask the staff."


# ---- asked and answered ----------------------------------------------------------------------------------------------


def test_questions_vary() -> None:
    rng = Random(SEED)
    asked = [hours.ask_day(rng, Voice(rng), i % 7, i % 2 == 1) for i in range(3000)]
    assert len(set(asked)) > 2400
    assert not [said for said in asked if re.search(r"[{}\[\]|]|  ", said)]
    for i, said in enumerate(asked):
        assert DAYS[i % 7].lower() in said.lower(), said
    assert all("{q}" in frame and "{day}" in frame for frame in re.split(r"\|(?![^\[]*\])", ask_hours.FRAMES))


@pytest.mark.parametrize("stream", [grammar.dialogues, grammar.echoes])
def test_hours_are_those_of_the_facts(stream: object) -> None:
    """A reply about a day names a span that stands in the facts; without facts nothing is told."""
    told = refused = shut = 0
    for dialogue in islice(stream(3, "train"), 1500):  # type: ignore[operator]
        facts = dialogue[0][1] if dialogue[0][0] == "system" else ""
        for _, answer in dialogue:
            for found in SPAN.finditer(answer):
                told += 1
                shut += found[2] is None
                assert all(part in facts for part in found.groups()[1:] if part), (facts, answer)
            if answer == hours.UNKNOWN:
                refused += 1
                for line in re.split(r"[.;\n]", re.sub(r"\d+ minutes", "", facts)):  # one time may be a concert's
                    assert len(re.findall(r"\d ?(?:am|pm|h)\b|\d:\d\d", line)) < 2, facts
    assert told > 220 and refused > 50 and shut > told / 8


def test_same_day_same_answer() -> None:
    """Whatever is asked of a day: what is said of it does not change within a dialogue."""
    again = 0
    for dialogue in islice(grammar.echoes(4), 1200):
        said: dict[str, str] = {}
        for _, answer in dialogue:
            for found in SPAN.finditer(answer):
                again += found[1] in said
                assert said.setdefault(found[1], found[0]) == found[0]
    assert again > 80


# ---- other plans than a week -----------------------------------------------------------------------------------------


def test_breaks_past_midnight_and_words() -> None:
    assert hours.fromto(("8:00", "12:00", "14:00", "17:30")) == "from 8:00 to 12:00 and from 14:00 to 17:30"
    week = Hours([(0, 6, ("nine", "noon", "half past one", "six"))])
    assert hours.answer_day(week, 1) == "On Tuesday we are open from nine to noon and from half past one to six."
    spans = [span for week, _ in WEEKS for _, _, span in week.runs if span]
    assert sum(len(span) == 4 for span in spans) > 150
    assert {"1 am", "half past nine", "quarter to six", "12"} <= {end for span in spans for end in span}


def test_a_day_of_its_own_within_a_run() -> None:
    """Tue-Fri 9-6, but Thursday 9-9: the answer for Thursday holds what stands behind its name."""
    found = 0
    for week, written in WEEKS:
        for said in re.finditer(rf"(?:but|except|[Oo]nly|[Ee]xception:)(?: on)? ({'|'.join(DAYS)})s?:? (?:only )?"
                                rf"(until|from|({TIME}) ?(?:-|–|to|till|until) ?)({TIME})(?! ?(?:-|–|to|till|until))",
                                written):  # fmt: skip
            span = week.of(DAYS.index(said[1]))
            found += 1
            assert span and said[4].rstrip(".") in [end.rstrip(".") for end in span], written
    assert found > 15


def test_seasons() -> None:
    """An answer about a month tells the hours of the part it belongs to, and these stand in the notice."""
    closed = named = off = 0
    for seed in range(400):
        rng = Random(seed)
        plan = plans.Seasons(rng)
        written = plan.written(rng)
        for first, last, span in plan.parts:
            assert plan.of(first) == plan.of(last) == span
            assert all(end in written for end in span or ())
        asked, reply = plan.turn(rng, Voice(rng))
        if found := re.match(r"In (\w+) we are ", reply):
            if found[1] in MONTHS:
                told = hours.told(plan.of(MONTHS.index(found[1])))
                assert reply.removesuffix(".") == f"In {found[1]} we are {told}".rstrip(".")
            named += found[1] in ("summer", "winter")
            closed += reply.endswith("closed.")
        elif found := re.match(r"On (\w+) in (\w+) we are ", reply):
            first, last, _ = plan.shut[0] if plan.shut else plan.parts[0]
            month = MONTHS.index(found[2])
            within = (month - first) % 12 <= (last - first) % 12
            rest = plan.shut and DAYS.index(found[1]) == plan.shut[1] and within
            told = "closed" if rest else hours.told(plan.of(month))
            assert reply.removesuffix(".") == f"{found[0]}{told}".rstrip(".") and found[1].lower() in asked.lower()
            off += bool(rest)
        else:
            assert reply == plan.every()
    assert closed > 40 and named > 15 and off > 10


def test_sittings() -> None:
    """Lunch, dinner, last entry: the answer bears the name that was asked for and its own hours."""
    single = 0
    for seed in range(400):
        rng = Random(seed)
        plan = plans.Sittings(rng)
        written = plan.written(rng)
        for week in plan.each.values():
            assert all(end.rstrip(".") in written for _, _, span in week.runs for end in span or ())
        assert all(f"{name}" in written.lower() and time.rstrip(".") in written for name, time in plan.last.items())
        asked, reply = plan.turn(rng, Voice(rng))
        if single_time := re.fullmatch(r"The (.+) is at (.+)\.", reply):
            single += 1
            assert single_time[2] == plan.last[single_time[1]].rstrip(".")
        elif found := re.fullmatch(r"(.+) on (\w+): (.*)\.", reply):
            assert found[3].rstrip(".") == plan.one(found[1].lower(), DAYS.index(found[2])).rstrip(".")
    assert single > 30


def test_today_and_dates() -> None:
    """Tomorrow is the day after today; a date is told as the facts say, or not known."""
    week = Hours([(0, 4, A), (5, 5, B), (6, 6, None)], {"25 December": None, "24 December": B}, None)
    seen = set()
    for seed in range(600):
        rng = Random(seed)
        for asked, reply in hours.turns(rng, Voice(rng), week, 5):
            if re.search(r"\btomorrow\b", asked) and "holiday" not in asked:
                assert reply == "On Sunday we are closed.", asked
                seen.add(reply)
            if found := re.search(r"On (\d+ \w+) we are (.*)\.", reply):
                assert found[2] == hours.told(week.special[found[1]]) and found[1].split()[0] in asked
                seen.add(found[1])
    assert {"On Sunday we are closed.", "24 December", "25 December"} <= seen
    away = Hours([(0, 6, A)], {}, (3, 17, "May"))
    asked, reply = hours._special(Random(4), Voice(Random(4)), away)
    assert re.fullmatch(r"On (?:[3-9]|1[0-7]) May we are closed\.", reply)
