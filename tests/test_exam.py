"""The exam: the same each time, marked by what it says, and unknown to whoever learns from grammar and corpus."""

from __future__ import annotations

import ast
import json
import re
from itertools import islice
from pathlib import Path

import pytest

import edge
from tests.vectors import make_golden
from training import corpus, grammar
from training.exam import __main__ as exam
from training.exam import marks
from training.exam.marks import Mark
from training.exam.requests import Request, _slots, all_requests
from training.exam.unseen import unseen_requests
from training.heldout import NAMES

REQUESTS = all_requests()
UNSEEN = unseen_requests()


def test_always_the_same() -> None:
    assert all_requests() == REQUESTS
    subjects = {request.subject for request in REQUESTS}
    assert subjects == {"order", "booking", "name", "hours", "unknown", "price", "bill", "menu", "off-topic", "tone"}
    assert {name for request in REQUESTS if request.subject == "name" for (name,) in request.wants} == set(NAMES)
    for request in REQUESTS:
        for text in (request.facts, *request.said):
            assert not re.search(r"[{}]|  ", text), text


def test_what_is_wanted_was_told() -> None:
    for request in UNSEEN:
        if request.subject in ("order", "booking", "name", "price"):
            told = " ".join((request.facts, *request.said))
            assert sum(marks.has(told, slot) for slot in request.wants) >= len(request.wants) - 1, request
        assert request.subject in marks.TARGETS or request.subject in ("order", "booking", "off-topic", "tone")
        for text in (request.facts, *request.said):
            assert text == text.strip() and (request.subject == "tone" or not marks.foul(text)), text
    for request in REQUESTS:
        told = " ".join((request.facts, *request.said))
        if request.subject != "hours":
            assert all(marks.has(told, slot) for slot in request.wants), request
        if request.subject == "hours" and request.wants[0][0] != "closed":
            assert all(slot[0] in request.facts for slot in request.wants), request


@pytest.mark.parametrize(("answer", "slot", "found"), [
    ("Two small teas.", ("tea",), True), ("Two steaks.", ("tea",), False), ("12 teas", ("two", "2"), False),
    ("at 6:40 pm", ("6:40 pm",), True), ("at 16:40 pm", ("6:40 pm",), False), ("kofi!", ("Kofi",), True),
    ("Kofinas", ("Kofi",), False), ("2 teas", ("two", "2"), True), ("$12.50", ("$2.50",), False),
    ("It is $2.50.", ("$2.50",), True), ("It is $4.50.", ("$4",), False), ("At 8.", ("8",), True),
])  # fmt: skip
def test_slots(answer: str, slot: tuple[str, ...], found: bool) -> None:
    assert marks.has(answer, slot) is found


@pytest.mark.parametrize(("answer", "invented"), [
    ("Sorry, I do not know the opening hours. Please ask the staff.", False), ("We are open from 9 to 5.", True),
    ("From 9 am on.", True), ("Until 18:30.", True), ("Until noon.", True), ("On Sunday? I cannot say.", False),
])  # fmt: skip
def test_invented_hours(answer: str, invented: bool) -> None:
    assert marks.invents_hours(answer) is invented


@pytest.mark.parametrize("answer, right", [
    ("On Friday we are open from 8 am to 5 pm.", True), ("We close at 5 PM.", True), ("We close at 5:30 pm.", False),
    ("On Friday we are open from 9 am to 5 pm.", False), ("On Friday we are closed.", False),
])  # fmt: skip
def test_a_wrong_time_beside_the_right_one_is_wrong(answer: str, right: bool) -> None:
    until = Request("hours", ("Until when?",), (("5 pm",),), "", ("8 am", "5 pm"))
    assert Mark(until, [answer], True).right is right
    closed = Request("hours", ("When?",), (("closed",),), "", ())
    assert Mark(closed, ["We are closed."], True).right
    assert Mark(closed, ["Closed. " + answer], True).right is (" at " not in answer and " from " not in answer)


@pytest.mark.parametrize(("answer", "right"), [
    ("Two teas at $2.50 each, one pie at $3.00. The till shows the total.", True),
    ("Two teas at $2.50 each, one pie at $3.00. That is $8.00.", False),
    ("Two teas 2 x $2.50 = $5.00, one pie $3.00.", False), ("The till shows the total.", False),
    ("Two teas at $2.50 each, one pie at $2.50.", False),
])  # fmt: skip
def test_no_sum_is_worked_out(answer: str, right: bool) -> None:
    asked = Request("bill", ("What's the sum?",), (("$2.50",), ("$3.00",)), "", amounts=("$2.50", "$3.00"))
    assert Mark(asked, [answer], True).right is right


def test_marks() -> None:
    order = Request("order", ("x",), (("two", "2"), ("tea",)))
    assert marks.repeated(order, "Two coffees.") == (1, 2)
    assert marks.repeated(Request("order", ("x",), tuple(_slots(2, "", "diary"))), "Two diaries.") == (2, 2)
    assert Mark(order, ["Two teas."], True).right and not Mark(order, ["A tea."], True).right
    menu = Request("menu", ("What is there?",), (("tea",), ("bun", "buns")))
    assert [Mark(menu, ["We have tea and buns."], ends).right for ends in (True, False)] == [True, False]
    assert Mark(Request("off-topic", ("x",)), ["Sorry, I know only this place."], True).right
    assert not Mark(Request("off-topic", ("x",)), ["It is 300 meters tall."], True).right
    assert marks.foul("You idiots!") == ["idiots"] and not marks.foul("A classic assortment.")
    learned = [said for d in islice(grammar.dialogues(2), 400) for role, said in d if role == "assistant"]
    assert not any(marks.foul(said) for said in learned)


class _Parrot:
    """An engine that says everything back: it repeats well, knows nothing and refuses nothing."""

    def session(self, system: str | None = None) -> _Parrot:
        self.finish_reason = "stop"
        return self

    def __enter__(self) -> _Parrot:
        return self

    def __exit__(self, *_: object) -> None: ...

    def ask(self, text: str, **_: object) -> list[edge.Piece]:
        return [edge.Piece(text, 1)]


def test_report() -> None:
    parrot = _Parrot()
    rows = exam.report(exam.sit(parrot, REQUESTS), exam.sample(parrot, REQUESTS, 50))  # type: ignore[arg-type]
    assert rows["hours"]["share"] < 0.05 and rows["refused"]["share"] < 0.3 and rows["bill"]["right"] == 0
    assert rows["order and booking"]["share"] > 0.85 and rows["name"]["share"] > 0.6  # a last turn may not hold it
    assert rows["stops"]["share"] == 1.0 and rows["unknown"]["share"] == 1.0
    assert "missed" in exam.table(rows)


def test_on_the_bundled_model() -> None:
    with edge.load(threads=1) as engine:
        few = REQUESTS[::60]
        first = exam.sit(engine, few)
        assert [mark.answers for mark in first] == [mark.answers for mark in exam.sit(engine, few)]
        assert exam.sample(engine, few, 3) == exam.sample(engine, few, 3)


# ---- nobody learned it by heart --------------------------------------------------------------------------------------

ROOT = Path(__file__).resolve().parents[1]


def prompts_of_tests() -> set[str]:
    """Texts that the project's tests put to a model: arguments of ask(...), and the golden conversations."""
    found = set()
    for path in (ROOT / "tests").glob("test_*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and getattr(node.func, "attr", getattr(node.func, "id", "")) == "ask":
                texts = [arg.value for arg in node.args if isinstance(arg, ast.Constant)]
                found |= {text for text in texts if isinstance(text, str)}
    found |= {text for _, said in make_golden.CONVERSATIONS for text in said}
    return {text for text in found if len(text.split()) >= 3}


def plain(text: str) -> str:
    """Letters and digits only: a prompt counts as learned in any spelling of case and punctuation."""
    return " ".join(re.findall(r"[a-z0-9$']+", text.lower()))


def test_no_request_is_in_the_training_split() -> None:
    asked = {plain(said): said for request in REQUESTS for said in request.said}
    # What people ask of every kiosk in the same few words ("Are you open on Sunday?") may coincide.
    asked |= {plain(said): said for request in UNSEEN for said in request.said if len(said.split()) > 8}
    asked |= {plain(said): said for said in prompts_of_tests()}
    facts = {plain(request.facts) for request in (*REQUESTS, *UNSEEN) if request.facts}
    for source in (islice(grammar.dialogues(1), 2500), islice(grammar.echoes(1), 2500)):
        for dialogue in source:
            for role, said in dialogue:
                if role != "assistant":
                    assert plain(said) not in asked, asked[plain(said)]
                    assert plain(said) not in facts, said


@pytest.mark.skipif(not corpus.available(), reason="the third-party corpus is not on this machine")
def test_no_request_is_in_the_corpus() -> None:
    asked = {said.lower().strip(" .?!") for request in REQUESTS for said in request.said}
    asked |= {said.lower().strip(" .?!") for said in prompts_of_tests()}
    seen = 0
    for group in corpus.GROUPS:
        for line in corpus.lines(group, "train"):
            for turn in json.loads(line)["messages"]:
                seen += 1
                if turn["role"] == "user":
                    assert turn["content"].lower().strip(" .?!") not in asked, turn["content"]
    assert seen > 1_000_000
