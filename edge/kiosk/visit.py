"""Visit: one guest at one house: each turn is guarded, understood, applied and answered.  No terminal code, no model
needed.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from edge.errors import EdgeError
from edge.kiosk import facts, say
from edge.kiosk.certainty import ordinary
from edge.kiosk.guards import LONGEST, guard, is_foreign
from edge.kiosk.house import House
from edge.kiosk.mentions import vocabulary
from edge.kiosk.operations import (
    CONFIRM,
    DENY,
    DONE,
    RESTART,
    UNDO,
    UNKNOWN,
    Add,
    Answer,
    Operation,
    Remove,
    Talk,
    write,
)
from edge.kiosk.phrases import phrases
from edge.kiosk.reading import asks
from edge.kiosk.state import State, apply, as_dict, keep_earlier, line_price, total
from edge.kiosk.understand import Understood, understand
from edge.kiosk.words import NUMBERS, folded, number, words

#: number of turns about something else after which an open question is dropped
ASIDES = 3
#: what a guest is told who wants to change or cancel an order that has been delivered
SENT = "Your order has been sent. Please ask at the counter."
#: what a guest is told whose turn was not meant as it was understood
NOT_MEANT = "All right, nothing has changed. Please say it in other words."
#: what a guest is told who goes on without an answer to a doubt
NOT_DONE = "I have not made the change that I asked about."
#: "no" to a doubt, and not to a thing: "no brownie"
_DENIES = re.compile(
    r"\s*(?:(?:oh|um|er|argh|ugh|sorry)[ ,.!]+)*(?:no|nope|nah)\b"
    rf"(?=\W*$|[,.!]| (?:no|thanks|thank|sorry|just|only|i|\d+|{'|'.join(NUMBERS)})\b)"
    r"(?:[ ,.!]+(?:no|thanks|thank you|sorry)\b)*[ ,.!]*", re.IGNORECASE)  # fmt: skip
#: what stands between the things of a turn
_JOINT = re.compile(r"[,.;!?&]|\b(?:and|plus)\b", re.IGNORECASE)

#: the answer "one of each" to the question which of several names is meant
_EACH = re.compile(
    rf"(?:(?:oh|um|well|i'?ll (?:have|take)|i'?d like|can i have|please)[, ]+)*(?:(\d|{'|'.join(NUMBERS)}) (?:of )?)?"
    r"(?:each|both|all of them|both of them)(?: of (?:them|those))?,?(?: please| thanks| thank you)*", re.IGNORECASE)
_NOT_THIS = re.compile(r"\b(?:not|don'?t|doesn'?t|without|never)\b|\bno (?!\W)(?!the\b|just\b|only\b|i\b|an?\b)")
_NO = re.compile(r"^(?:no|nope|nah)\b(?: thanks?| thank you)?[,.! ]*", re.IGNORECASE)
_YES = re.compile(r"^(?:yes|yeah|yep|yup|sure|ok|okay)\b(?: please| thanks)?[,.! ]*", re.IGNORECASE)
#: the count of a thing that is ordered
_ARTICLE = re.compile(r"\b(?:an?|the)\b|\W")
_COUNTED = re.compile(rf"\b(?:\d\d?|{'|'.join(NUMBERS)}|an?|some|any) ", re.IGNORECASE)

Reads = Callable[[House, State, str], Understood]


#: a part of a turn, a word of it, and the names that it may be: ("2 teas", "teas", ("Green tea", "Black tea"))
Doubt = tuple[str, str, tuple[str, ...]]


@dataclass(frozen=True)
class Turn:
    """The result of one turn.  ``guard``: the kind of the fixed text, if one was given; ``unsure``: the guest is asked
    before the operations are done; ``order``: the finished order, if any.
    """

    say: str
    operations: tuple[Operation, ...] = ()
    guard: str = ""
    unsure: bool = False
    order: dict[str, Any] | None = None


@dataclass
class Visit:
    """One guest.  ``reads``: the function that understands turns, by code by default, else by an instruct model.

    ``deliver`` is called with each finished order before the guest is thanked.  If it raises, the guest is told, and
    the order stays open.
    """

    house: House
    deliver: Callable[[dict[str, Any]], object] = lambda order: None
    reads: Reads = understand
    state: State = field(default_factory=State)
    _doubts: list[Doubt] = field(default_factory=list)
    _asked: tuple[Operation, ...] = ()  # what is done if the guest says that it was meant
    _asides: int = 0  # turns since a doubt was raised or settled
    _sent: bool = False  # an order has been delivered, and no other begun

    def greet(self) -> Turn:
        """The greeting.  The facts are read now, so that the first question is answered as fast as the others."""
        facts.read(self.house)
        return Turn(self.house.texts["greeting"])

    def turn(self, text: str) -> Turn:
        """Reply to what the guest said."""
        house, before = self.house, self.state
        fixed = guard(house, text)
        if fixed and not (fixed[0] == "emergency" and is_order(house, before, text)):
            self._asked = ()  # "yes" is then no answer to a doubt
            return Turn(fixed[1], guard=fixed[0])
        if is_foreign(text):
            return Turn(house.texts["language"], (UNKNOWN,), "language")
        asked, self._asked = self._asked, ()
        if asked and (no := _DENIES.match(text)):
            if not re.search(r"\w", text[no.end() :]):
                return Turn(NOT_MEANT, (DENY,))
            if corrected := self._corrected(asked, f"no, {text[no.end() :]}"):
                return corrected
            text = text[no.end() :]  # nothing was done that "no" could correct
        meant = text if asked else self._meant(text)
        understood = self.reads(house, before, meant)
        if asked and (CONFIRM in understood.operations or phrases("yes").match(folded(text))):
            meant_then = _applied(house, before, asked)
            understood = self.reads(house, meant_then, meant)
            rest = [each for each in understood.operations if each != CONFIRM or meant_then.done]
            understood = replace(understood, operations=[*asked, *rest], unsure=False)
        elif asked and understood.operations == [DENY]:
            return Turn(NOT_MEANT, (DENY,))
        elif asked and not understood.unsure:
            return self._put_off(asked, text)
        operations = understood.operations
        after = _applied(house, before, operations)
        if understood.unsure and meant == text:
            return self._ask(after, understood)
        if sum(isinstance(each, Answer) and each.number > len(house.facts) for each in operations) > 1:
            after = replace(after, offered="")  # "a large one" of several things would be a guess
        elif operations and isinstance(operations[-1], Answer) and not after.offered:
            after = replace(after, offered=understood.offered)
        if meant != text:  # what could not be noted of the earlier turn has been said
            said_now = folded(text)
            understood = replace(understood, missed=[each for each in understood.missed if folded(each) in said_now],
                                 unnoted=[each for each in understood.unnoted if folded(each) in said_now])  # fmt: skip
        open_doubts = self._doubted(meant, text, understood)
        if (open_doubts or understood.unclear) and (after.done or DONE in operations):  # nothing is dropped in silence
            after = replace(after, done=False, confirmed=False)
            understood = replace(understood, operations=[o for o in operations if o not in (DONE, CONFIRM)])
        said = say.reply(house, before, after, understood, open_doubts)
        self._sent = self._sent and after.empty and Talk("goodbye") not in operations
        if self._sent and _of_the_order(text, operations):
            said = SENT
        order = None
        if after.confirmed and not after.empty:
            order = {"id": secrets.token_hex(8), "house": house.name, **as_dict(house, after)}
            try:
                self.deliver(order)
            except (OSError, EdgeError):
                self.state = before
                return Turn(f"Your order could not be passed on. {house.texts['unknown']}", tuple(operations))
            after, self._sent = State(), True
        elif after.empty and (after.done or Talk("goodbye") in operations):
            after = State()  # the guest leaves without an order: the next turn is of a new visit
        elif UNDO not in operations:
            after = keep_earlier(before, after)
        self.state = after
        return Turn(said, tuple(operations), order=order)

    def _ask(self, after: State, understood: Understood) -> Turn:
        """Ask whether the change to ``after`` is meant, before it is made; questions are answered at once."""
        kept: list[Operation] = [each for each in understood.operations if isinstance(each, Answer | Talk)]
        self._asked = tuple(each for each in understood.operations if each not in (*kept, DENY, UNKNOWN))
        said = say.proposal(self.house, self.state, after)
        if understood.remarks or any(isinstance(each, Answer) for each in kept):
            others = replace(understood, operations=kept or [UNKNOWN])
            said = f"{say.reply(self.house, self.state, replace(self.state, done=False), others)} {said}"
        return Turn(said, tuple(understood.operations), unsure=True)

    def _corrected(self, asked: tuple[Operation, ...], text: str) -> Turn | None:
        """Ask about what was asked before once more, as "no, just one" corrects it; None where it corrects nothing."""
        proposed = _applied(self.house, self.state, asked)
        fresh = {line.item for line in {*proposed.lines} - {*self.state.lines}}
        named = {value for m in vocabulary(self.house).mentions(words(text)) if m.kind == "item" for value in m.values}
        if named and not named & fresh:
            return None  # "no, a croissant"
        understood = self.reads(self.house, proposed, text)
        after = _applied(self.house, proposed, understood.operations)
        if (after.lines, after.bookings) == (proposed.lines, proposed.bookings) or UNDO in understood.operations:
            return None
        if (after.lines, after.bookings) == (self.state.lines, self.state.bookings):
            return Turn(NOT_MEANT, (DENY,))
        return self._ask(after, replace(understood, operations=[*asked, *understood.operations]))

    def _put_off(self, asked: tuple[Operation, ...], text: str) -> Turn:
        """Reply to a turn that is neither yes nor no to what was asked: that is not done, or asked again."""
        before = self.state
        turn = self.turn(text)
        if self.state != before or self._asked:
            return replace(turn, say=f"{NOT_DONE} {turn.say}")
        self._asked = asked
        proposal = say.proposal(self.house, before, _applied(self.house, before, asked))
        return replace(turn, say=f"{turn.say} {proposal}")

    def _doubted(self, meant: str, text: str, understood: Understood) -> list[tuple[str, tuple[str, ...]]]:
        """Keep the questions that are still open, beside those of this turn.  Returns those to ask again."""
        operations = understood.operations
        ordered = {getattr(each, "item", "") for each in operations}
        if meant != text:
            self._doubts, self._asides = self._doubts[1:], 0
        elif self._doubts and len(self._doubts[0][2]) == 1 and (
            phrases("no").match(folded(text))
            or _NOT_THIS.search(folded(text)) and folded(self._doubts[0][2][0]) in folded(text)
        ):  # fmt: skip
            self._doubts = self._doubts[1:]
        elif Talk("goodbye") in operations or DENY in operations or RESTART in operations or (
            phrases("remove").search(folded(text)) and not any(isinstance(each, Remove | Add) for each in operations)
        ):  # fmt: skip
            self._doubts = []
        # an offer ("Do you want ...?") stands for one turn; a choice is asked for again
        self._doubts = [each for each in self._doubts if len(each[2]) > 1 and not ordered & set(each[2])]
        self._asides += 1
        again = [doubt[1:] for doubt in self._doubts] if self._asides <= ASIDES or DONE in operations else []
        if understood.unclear:
            self._doubts += [(self._part(meant, word), word, names) for word, names in understood.unclear]
            self._asides = 0
        return again

    def _part(self, turn: str, word: str) -> str:
        """The part of a turn that orders ``word``, without what is ordered beside it."""
        at = turn.find(word)
        if at < 0:
            return turn
        items = [m for m in vocabulary(self.house).mentions(words(turn)) if m.kind == "item"]
        starts = [start for m in items if (start := words(turn)[m.first].start) > at]
        start = max((joint.end() for joint in _JOINT.finditer(turn, 0, at)), default=0)
        end = max((joint.start() for joint in _JOINT.finditer(turn, at, min(starts))), default=len(turn)) if (
            starts) else len(turn)  # fmt: skip
        return turn[start:end].strip()

    def _meant(self, text: str) -> str:
        """``text``; if it only chooses a name for a turn before, that turn with the name: "3 teas" and then "green"."""
        for at, each in enumerate(self._doubts):
            if (meant := self._settled(each, text)) != text:
                self._doubts = [each, *self._doubts[:at], *self._doubts[at + 1 :]]
                return meant
        return text

    def _settled(self, doubt: Doubt, text: str) -> str:
        """``text``, or the turn that raised ``doubt`` with the name that ``text`` chooses."""
        turn, word, names = doubt
        turn_words = words(text)
        if len(names) == 1 and phrases("yes").match(folded(text)):
            rest = _YES.sub("", text)
            mentions = vocabulary(self.house).mentions(words(rest))
            if any(mention.kind == "item" and mention.value not in names for mention in mentions):
                return text  # "ok just a black tea"
            return turn.replace(word, names[0], 1) + f". {rest}" * bool(mentions)  # "yes. cheese on that please"
        if len(names) == 1 and (rest := _NO.sub("", text)):
            return rest
        if each := _EACH.fullmatch(text.strip(" .!,")):
            one = f"{each[1] or 'one'} "
            return " and ".join(_COUNTED.sub(one, turn.replace(word, name, 1), count=1) for name in names)
        parts = {name: self._parts(name) for name in names}
        others = {name: {stem for n in names if n != name for stem in parts[n]} for name in names}
        said = {each.stem for each in turn_words}
        fitting = [name for name in names if said & (parts[name] - others[name])]
        if fitting and _NOT_THIS.search(folded(text)):
            return text  # "not the carrot cake"
        if len(fitting) > 1 and word in turn:
            if any((number(each.fold) or 1) > 1 for each in words(turn)):
                return f"{turn}, {text}"  # "two teas" and then "one green, one black"
            for at in reversed(turn_words):  # "a tea" and then "one green one black"
                kind = next((name for name in fitting if at.stem in parts[name] - others[name]), "")
                text = f"{text[: at.start]}{kind}{text[at.end :]}" if kind else text
            return text
        if len(fitting) != 1 or word not in turn or phrases("wh").match(folded(text)):
            return text
        last = max(at for at, each in enumerate(turn_words) if each.stem in parts[fitting[0]] | {"one"})
        own = parts[fitting[0]] - others[fitting[0]]
        first = next(at for at, each in enumerate(turn_words) if each.stem in own)
        opened = _ARTICLE.sub("", phrases("filler").sub("", folded(text[: turn_words[first].start])))
        if not opened and not asks(folded(text)):  # "hm no, still for me", "black please, and a cake"
            while turn_words[first + 1 :] and turn_words[first + 1].stem in parts[fitting[0]] | {"one"}:
                first += 1
            return turn.replace(word, fitting[0] + self._beside(text[turn_words[first].end :], fitting[0]), 1)
        rest = text[turn_words[last].end :].strip(" .!")
        if len(said) > 4 and (last > 3 or not re.match(r"(?:with|without|no)\b", rest, re.IGNORECASE)):
            return text
        return turn.replace(word, f"{fitting[0]} {rest}".strip(), 1)

    def _parts(self, name: str) -> set[str]:
        """The stems of all names of an item or an extra, but for those of extras: "milk" chooses no "milk coffee"."""
        item = self.house.item(name)
        other = {each.stem for called in (item.others if item else ()) for each in words(called)}
        extras = {each.stem for extra in self.house.extras for each in words(extra)}
        return {each.stem for each in words(name)} | (other - extras)

    def _beside(self, text: str, chosen: str) -> str:
        """What is kept of the words behind a name that was chosen: what it comes with, and what is ordered, too."""
        mentions = [each for each in vocabulary(self.house).mentions(words(text)) if chosen not in each.values]
        joint = _JOINT.search(text)
        end, start = joint.span() if joint else (len(text), len(text))
        near = text[:end] if re.match(r" (?:with|without|no)\b", text, re.IGNORECASE) else ""
        if near and all(mention.kind == "extra" for mention in mentions):
            return text.rstrip(" .!")  # "with lemon and sugar"
        return near + (f". {text[start:]}" if text[start:] and mentions else "")

    def shown(self) -> dict[str, Any]:
        """The order for a screen: texts and amounts."""
        house, state = self.house, self.state
        lines = []
        for line in state.lines:
            cents = line_price(house, line)
            lines.append({"text": say.line_text(line), "amount": "" if cents is None else house.money(cents)})
        lines += [{"text": say.booking_text(name, fields), "amount": ""} for name, fields in state.bookings.items()]
        cents = total(house, state)
        return {"lines": lines, "total": house.money(cents) if state.lines and cents is not None else "",
                "name": state.name}

    def suggestions(self) -> list[str]:
        """Likely next replies, for buttons."""
        asks = say.question(self.house, self.state)
        if self._asked or self.state.done and not asks:
            return ["Yes", "No"]
        if not self.state.empty:
            return ["That is all", "Start again"]
        return ["What do you have?"] if self.house.items else []


def is_order(house: House, state: State, text: str) -> bool:
    """Whether a turn that sounds like an emergency is an order or a booking, word for word: by the rules, also where a
    model reads the turns, so that the emergency text never waits for it.
    """
    return len(text) <= LONGEST and ordinary(house, text, understand(house, state, text))


def _applied(house: House, state: State, operations: Iterable[Operation]) -> State:
    """The state after all operations."""
    for operation in operations:
        state = apply(house, state, operation)
    return state


def _of_the_order(text: str, operations: list[Operation]) -> bool:
    """Whether a turn that orders and asks nothing wants to change, cancel or hear the order."""
    changing = any(phrases(name).search(folded(text)) for name in ("remove", "correct", "replace"))
    return Talk("order") in operations or changing and {*operations} <= {UNKNOWN, Answer(0), DENY, RESTART}


def event(visit: Visit, turn: Turn) -> dict[str, Any]:
    """A turn as one JSON object: the operations, the state, the reply, the finished order."""
    return {
        "ev": "turn",
        "say": turn.say,
        "operations": [write(operation) for operation in turn.operations],
        **({"guard": turn.guard} if turn.guard else {}),
        **({"unsure": True} if turn.unsure else {}),
        "state": as_dict(visit.house, visit.state),
        **({"order": turn.order} if turn.order else {}),
    }
