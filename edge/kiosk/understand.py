"""What a turn means, as far as code can tell: understand(house, state, text) -> operations.

A turn is cut into clauses; each clause orders, corrects, books, asks or is small talk.  Names of the house come from
edge.kiosk.mentions, days and numbers from edge.kiosk.slots, statements that answer questions from edge.kiosk.facts.
Operations are applied on the way, so that a later clause sees the order as an earlier one left it.
"""

from __future__ import annotations

import re

from edge.kiosk import facts
from edge.kiosk.accounts import certain, lost
from edge.kiosk.bookings import Bookings
from edge.kiosk.certainty import sure
from edge.kiosk.details import MAKE
from edge.kiosk.house import House, Item
from edge.kiosk.mentions import Mention
from edge.kiosk.operations import (
    CONFIRM,
    DENY,
    DONE,
    MAX_COUNT,
    RESTART,
    UNDO,
    UNKNOWN,
    Add,
    Answer,
    Cancel,
    Change,
    Remove,
    Talk,
)
from edge.kiosk.orders import Orders
from edge.kiosk.phrases import kinds, paired, phrases
from edge.kiosk.questions import Questions
from edge.kiosk.reading import Understood, asks, clauses, inquires
from edge.kiosk.rewording import reworded
from edge.kiosk.state import State, missing
from edge.kiosk.unlisted import ordered_alone, places
from edge.kiosk.wishes import unnoted
from edge.kiosk.words import COMMON, NUMBERS, Word, folded, number, words

__all__ = ["Understood", "understand"]


def understand(house: House, state: State, text: str) -> Understood:
    """The operations that ``text``, a guest's turn, means to a house where ``state`` stands.

    All of them can be applied in order.  Never empty: what means nothing here is [UNKNOWN].
    """
    return _Turn(house, state, reworded(house, text)).read()


_ONE = re.compile(
    r"\b(?:of (?:them|'?em|those|these)|(?<=\ba )one|(?<=\bsmall )one|(?<=\blarge )one|(?<=have )(?:one|it|that)"
    r"|(?<=take )(?:one|it|that)|(?<=\badd )(?:one|it|that)|(?<=like )(?:one|it|that)|(?<=get )(?:one|it|that)"
    r"|^one\b(?!.*\bof\b))\b",
    re.IGNORECASE,
)
_OF_EACH = re.compile(rf"(?:(\d|{'|'.join(NUMBERS)}) (?:of )?each|both)(?: size)?(?:,? (?:please|thanks))*")
#: words of who a guest tells of
_SUBJECTS = frozenset("i he she they we it you my his her our their".split())
#: a clause that takes back what was said before it
_WAIT = re.compile(r"(?:(?:oh|ah|um|no|sorry)[, ]+)*(?:wait|hang on|hold on|i mean|i meant)(?: a (?:sec|minute))?")
_WISHED = rf"(?:an?|some|\d\d?|{'|'.join(NUMBERS)}) .+"  # what is wished for beside something else
_NO_MORE_OF = re.compile(r"(?:(?:oh|ok|no)[, ]+)*no more [\w' ]+")
#: "something hot to drink"
_SOMETHING = re.compile(r"\b(?:some|any)thing (?:\w+ ){0,2}to (?:drink|eat)\b", re.IGNORECASE)
_NO_MORE = re.compile(r"(?:oh |h?u?m+ |uh )?(?:no|nope|nah)(?: please)?")
#: what ends a visit after "Anything else?"
_SETTLES = re.compile(
    r"(?:(?:yes|yeah|yep|ok|okay),? )?(?:that'?s |all )?(?:correct|right|perfect|great|good|fine)|(?:book|do) it"
    r"|confirm(?:ed)?(?: it)?(?: please)?|ok|okay|alright|all right"
)


class _Turn(Orders, Bookings, Questions):
    """One turn: its clauses one after the other, after what is booked in it."""

    def read(self) -> Understood:
        rest = self.text
        parts = self.apart_by_booking(rest)
        if len(parts) > 1:
            rest = " ".join(map(self.booking, parts))
        elif self.state.bookings:  # sentence by sentence: a question beside a value is not about the booking
            rest = " ".join(self.booking(each) for each in re.split(r"(?<=[^\W\d]{2}[.!?;])\s+", rest))
        else:
            rest = self.booking(rest)
        booked, rest = rest.split() != self.text.split(), self.naming(self.telephone(rest))
        self.unnamed = self.text if booked else rest
        before = ""
        for clause, ends in clauses(rest):
            if _WAIT.fullmatch(folded(clause)):
                before = f"{clause}, "  # "a latte. No wait. A cappuccino."
                continue
            self.clause(self.spoken(before + clause), ends)
            before = ""
        self.whole()
        if self.before.done and not self.state.done and self.state.lines and self.corrected():
            self.emit(DONE)  # "Is that right?" "No, two please": asked again
        self.found.unnoted = list(dict.fromkeys(self.found.unnoted))
        self.found.offered = self.offered
        if not self.found.operations and not self.found.unclear:
            self.found.operations = [UNKNOWN]  # also where all that was ordered is not on the menu
        if {*self.found.operations} <= {UNKNOWN, Answer(0)}:
            self.found.unread = []  # that is said of the whole turn
        self.found.unsure = not self.found.unclear and not sure(
            self.house, self.before, self.state, self.text, self.found
        )
        return self.found

    def spoken(self, clause: str) -> str:
        """A clause that orders "one" or "a pot, with milk" of the item asked about last, with the name of that item."""
        low = folded(clause)
        item = self.house.item(self.offered)
        if item is None or asks(low) and not phrases("ordering").search(low) or phrases("done").search(low):
            return clause
        if MAKE.search(low) and any(line.item == item.name for line in self.state.lines):
            return clause  # "does the latte come with soy milk?" "make it soy then"
        turn = words(clause)
        mentions = self.names.mentions(turn)
        if not any(m.kind == "item" for m in mentions) and (found := _ONE.search(clause)):
            return f"{clause[: found.start()]}{self.offered}{clause[found.end() :]}"
        if not mentions or any(word.fold.isalpha() and word.stem not in COMMON for word in turn[: mentions[0].first]):
            return clause
        held = any(line.item == item.name for line in self.state.lines)
        the = mentions[0].first and turn[mentions[0].first - 1].fold == "the"
        if held and (mentions[0].kind == "extra" or mentions[0].kind == "size" and the):
            return clause  # "and some lemon in it", "he has the bowl"
        first, end = mentions[0], turn[mentions[0].last - 1].end
        of_item = mentions[1:] and mentions[1].kind == "item" and not self.apart(mentions, turn)
        of_item = of_item or self.item_follows(mentions[1:], turn, first.last)  # "two large cappuccinos"
        before = phrases("filler").sub("", phrases("ordering").sub(" ", folded(clause[: turn[first.first].start])))
        if first.kind == "number" and before.strip():
            return clause  # "do we have to be nine"
        if first.kind == "number" and not of_item:
            return f"{clause[:end]} {self.offered}{clause[end:]}"
        fits = set(first.values) & set(item.sizes if first.kind == "size" else item.extras)
        if first.kind in ("size", "extra") and fits and not self.item_follows(mentions[1:], turn, first.last):
            return f"{self.offered}, {clause[turn[first.first].start :]}"
        return clause

    @staticmethod
    def apart(mentions: list[Mention], turn: list[Word]) -> bool:
        """Whether something stands between the first two things a clause names: "one, and a cake"."""
        return bool({word.fold for word in turn[mentions[0].last : mentions[1].first]} & {",", "and", "with", "for"})

    def corrected(self) -> bool:
        """Whether the turn only changes what was ordered."""
        return all(isinstance(each, (Cancel, Change, Remove)) for each in self.found.operations)

    def whole(self) -> None:
        """Where no clause was understood or answered, the turn as a whole may be a question."""
        operations, open_ = self.found.operations, (UNKNOWN, Answer(0))
        if not any(number(word.fold) is None and word.fold[0].isalpha() for word in words(self.text)):
            return  # "two", "12345"
        rest = [each for each in operations if each not in open_]
        if self.found.remarks or self.found.allergy:
            return
        if any(not isinstance(each, Talk) for each in rest) or (rest and rest == operations):
            return
        asking = any(ends or asks(folded(clause)) for clause, ends in clauses(self.text))
        asked = self.resolved(self.text, self.names.mentions(words(self.text)))
        if chosen := facts.choose(self.house, asked) if asking else self.told(self.text):
            self.found.operations = [*rest, Answer(chosen)]

    def clause(self, text: str, ends: bool) -> None:
        """Read one clause, and name what of it came to nothing."""
        before, start, told = self.state, len(self.found.operations), len(self.found.told)
        self.story = False
        turn = words(text)
        mentions = self.told_apart(self.names.mentions(turn), turn)
        self.meaning(text, ends)
        operations = [each for each in self.found.operations[start:] if each != UNKNOWN]
        ordered = any(isinstance(each, Add | Change) for each in self.found.operations[:start])
        if not operations and ordered and phrases("condition").match(folded(text)):
            self.found.unnoted.append(text.strip(" ,.!?"))  # "but only if it's not spicy"
        if not operations and len(self.found.told) == told and not self.story:
            spoken = any(mention.kind in ("item", "extra") and certain(mention, turn) for mention in mentions)
            self.found.unread += [text.strip(" ,.!?")] * spoken
        if not self.found.allergy and not self.found.no_count:
            remarks = " ".join(self.found.told)
            left = lost(turn, mentions, operations, before, self.state)
            self.found.unnoted += [each for each in left if each not in remarks and not any(
                f"{each} {thing}" in text for thing in self.found.missed)]  # the "two" of "two cokes"
        for wish in self.found.unnoted if len(self.found.told) > told and not self.found.allergy else []:
            if (refused := re.match(r"(?:without|no) (.+)", folded(wish))) and any(
                diet.search(refused[1]) for diet, _ in paired("diets")
            ):  # "without nuts": what the house says of nuts
                chosen = facts.choose(self.house, f"does it contain {refused[1]}?", True)
                if chosen:
                    self.emit(Answer(chosen))

    def meaning(self, text: str, ends: bool) -> None:
        low = folded(text).strip(" ,.!?")
        if not re.search(r"\w", low):
            return
        if self.sized(low):
            return
        turn = words(text)
        mentions = self.told_apart(self.names.mentions(turn), turn)
        named = {mention.kind for mention in mentions}
        asking = bool(ends or asks(low))
        ordering = bool(phrases("ordering").search(low)) and not inquires(low)
        menu = bool(named & {"item"}) or (bool(named & {"extra", "size"}) and bool(self.state.lines))
        if phrases("allergy").search(low):
            self.found.allergy = True  # a fact may help, but only a person can promise anything
            chosen = facts.choose(self.house, self.text, True)
            self.found.operations += [Answer(chosen), Answer(0)] if chosen else [Answer(0)]
            taking = phrases("remove").search(low) or re.search(r"\bnot (?:the|that|my|an?)\b", low)
            if not (menu and (ordering or taking and self.state.lines)):
                wish = re.search(rf", ?({_WISHED})", text)
                if wish and not asking and any(m.kind == "item" for m in self.names.mentions(words(wish[1]))):
                    self.found.unnoted.append(wish[1])  # "I'm allergic to soy, a latte with soy milk"
                return
        self.found.unnoted += [found[0] for found in _SOMETHING.finditer(text) if menu and not asking]
        if self.state.lines and _NO_MORE_OF.fullmatch(low):
            self.emit(DENY)  # "no more tea!"
            return
        if phrases("undo").search(low):
            if not self.emit(UNDO):
                self.emit(Talk("order"))
            return
        if phrases("as before").search(low) and self.held_before(mentions) and self.emit(UNDO):
            return
        if self.swapped(low) or self.listing(low):
            return
        if phrases("restart").search(low):
            self.emit(RESTART)
            return
        if (
            phrases("remove").search(low)
            and phrases("all").search(low)
            and "item" not in named
            and not self.before.empty
        ):
            self.emit(RESTART)
            return
        if phrases("all").search(low) and phrases("remove").search(low) and not named and not asking:
            self.emit(Talk("order"))  # nothing is there that could be cancelled
            return
        if low in ("order", "order now", "my order", "place order", "place the order", "place my order"):
            self.emit(Talk("help") if self.state.empty else CONFIRM if self.state.done else DONE)
            return
        if (phrases("can do").search(low) or _SOMETHING.search(low) and not asking) and not named & {"item", "extra"}:
            if not self.found.allergy:
                self.emit(Talk("help"))
            return
        whole = bool(self.state.lines) and bool(phrases("whole total").search(low))
        it = phrases("price").search(low) and re.search(r"\b(?:it|that|they|those|one)\b", low) and not whole
        if it and not named and self.house.item(self.offered):
            self.answer([self.row(self.offered)])  # "is the soup vegan, and how much is it"
            return
        costs = self.state.lines and (whole or not self.state.offered) and not named and phrases("total").search(low)
        if costs or phrases("read back").search(low) and (
            not menu or re.search(r"^how many\b|\b(?:did|have) you\b|\bin \w+\b", low) and not self.state.empty
        ):
            sizes = [line.item for line in self.state.lines if not line.size and self.sizes_of(line.item)]
            if costs or phrases("price").search(low) or phrases("total").search(low):
                self.answer([self.row(name) for name in dict.fromkeys(sizes)])  # no total is known yet
            self.emit(Talk("order"))
            return
        greeting = kinds("talk")["greeting"].search(low)
        beside = low[: greeting.start()] + low[greeting.end() :].strip(" ,") if greeting else ""
        asked = asks(beside) and not kinds("talk")["greeting"].search(beside)  # "hi, whats the wifi password"
        asked = asked or bool(re.search(r"\b(?:till|until|open|hours)\b", low))
        leaving = not self.before.empty and kinds("talk")["goodbye"].search(low)  # "good day to you"
        if greeting and not menu and not asked and not leaving and len(low.split()) <= 4:
            self.emit(Talk("greeting"))
            return
        more = named == {"number"} and re.search(r"\bmore\b", low)
        if ordering and more and self.pronoun(low, mentions):
            return  # "can we have 2 more"
        if asking and not phrases("filler").sub("", low).strip():
            return  # "no?"
        polite = asking and self.state.lines and "item" not in named and phrases("polite wish").match(low)
        if polite and (wish := phrases("diet").search(low)):  # "can I have it extra hot"
            self.found.unnoted.append(wish[0])
            chosen = facts.choose(self.house, text, True)
            if chosen and facts.certain(self.house, text, chosen):
                self.emit(Answer(chosen))
            return
        if asking and self.question(text, low, mentions, ordering, menu):
            return
        if menu and not ordering and phrases("praise").search(low):
            self.emit(Talk("other"))
            return
        if menu and not ordering and self.tells(low, turn, mentions):
            menu, self.story = False, True
        if menu and self.order(text, low, turn, mentions):
            if not (self.found.allergy or self.found.no_count):
                self.found.unnoted += unnoted(self.house, text, turn, mentions)
            return
        if self.state.lines and not asking and self.wishes(text, low, turn, mentions):
            return
        if (
            not menu
            and self.offered
            and (phrases("ordering").search(low) or re.search(r"\badd (?:them|those)\b", low))
            and re.search(r"\b(?:one|it|that|them|those|two)\b", low)
        ):
            numbers = [int(mention.value) for mention in mentions if mention.kind == "number"]
            if not numbers and re.search(r"\b(?:them|those)\b", low):
                self.found.unnoted.append(text.strip(" ,.!?"))  # "how much are three brownies" "yeah add them"
                return
            count = numbers[0] if numbers else 1
            self.emit(Add(self.offered, max(1, min(count, MAX_COUNT))))
            return
        if not menu and self.pronoun(low, mentions):
            return
        if self.small(low, asking):
            return
        thing = "" if asking else ordered_alone(turn)
        if self.found.operations and not (asking or thing) and len(words(text)) < 4:
            self.found.unnoted += unnoted(self.house, text, turn, mentions)  # "yes. takeaway though"
            return
        chosen = 0
        wanting = bool(
            ordering and named & {"extra", "size", "number"} or not asking and phrases("correct").search(low)
        )
        wanting = wanting or named == {"number"} and len(turn) < 4  # "two of us"
        if not (asking or thing) and any(isinstance(each, Answer) for each in self.found.operations):
            return  # what a guest tells beside a question
        wanting = wanting or not re.search(r"[^\W\d_]", low)  # "12345"
        if not wanting or phrases("wh").search(low):
            chosen = facts.choose(self.house, text, True) if asking else self.told(text)
        if chosen or asking:
            if not asking and (wish := re.match(rf"(?:and|also|plus|with) ({_WISHED})", low)):
                self.found.unnoted.append(wish[1])  # "and a high chair"
            self.emit(Answer(chosen))
        elif thing and {w.stem for w in words(thing)} & {w.stem for i in self.house.items for w in words(i.name)}:
            self.found.unread.append(text.strip(" ,.!?"))  # "one black"
        elif thing:
            self.found.missed.append(thing)  # "and a cookie"
        elif not self.found.operations:
            self.emit(UNKNOWN)

    def tells(self, low: str, turn: list[Word], mentions: list[Mention]) -> bool:
        """Whether a clause tells of something with a word that is a part of a name: "he swells up from a peanut"."""
        if any(m.exact or m.kind not in ("item", "number") for m in mentions) or self.state.lines and (
            phrases("correct").search(low) or phrases("remove").search(low) or re.match(r"(?:\w+,? )?no (?!\W)", low)
        ):  # fmt: skip
            return False
        taken = places(mentions)
        other = [w for at, w in enumerate(turn) if at not in taken and w.fold[0].isalpha() and w.stem not in COMMON]
        asked = any(isinstance(each, Answer) for each in self.found.operations)
        subject = _SUBJECTS & {word.fold for word in turn}
        return asked or bool(subject) and len([w for w in other if number(w.fold) is None]) > 1

    def held_before(self, mentions: list[Mention]) -> bool:
        """Whether what is named was ordered before the last change, and is not now: "no, six was right"."""
        if not mentions or self.before.earlier is None:
            return False
        held = set(self.before.earlier.lines) - set(self.before.lines)
        told = {str(each) for line in held for each in (line.item, line.count, line.size, *line.extras)}
        return all(set(mention.values) & told for mention in mentions)

    def sized(self, low: str) -> bool:
        """A clause that is the size that was asked for, and nothing else: "can", "8" for "8 pieces"."""
        if not self.asked or self.asked[0][1] != "size":
            return False
        said = re.sub(r"^(?:the|a|an)\s+|\s*\b(?:please|pls|thanks|thank you|(?<!^)one)\b", "", low).strip(" ,.!")
        each = _OF_EACH.fullmatch(low)
        for at, line in enumerate(self.state.lines, 1):
            if line.item == self.asked[0][0] and not line.size:
                sizes, count = self.sizes_of(line.item), number(each[1] or "one") or 1 if each else 0
                if each and (line.count == count * len(sizes) or line.count == 1 and "each" in low):  # "one of each"
                    return self.emit(Change(at, count, sizes[0])) and all(
                        self.emit(Add(line.item, count, size, line.extras, line.without)) for size in sizes[1:])
                fits = [s for s in self.sizes_of(line.item) if said in (folded(s), folded(s).split()[0])]
                item = self.house.item(line.item)
                if not fits and item and (size := relative(item, said)):
                    fits = [size]
                return len(fits) == 1 and self.emit(Change(at, size=fits[0]))
        return False

    def wishes(self, text: str, low: str, turn: list[Word], mentions: list[Mention]) -> bool:
        """Whether a clause that names no item only wishes for what the order has no place for."""
        if any(mention.kind in ("item", "booking", "choice") for mention in mentions) or phrases("done").search(low):
            return False
        wishing = re.match(r"(?:no|with|without|add)\b", low)
        if len(low.split()) > 5 and not wishing:
            return False  # "my mum walks with a stick"
        extras = [mention.value for mention in mentions if mention.kind == "extra" and wishing]
        found = unnoted(self.house, text, turn, mentions)
        self.found.unnoted += [*found, *extras]
        return bool(found or extras)

    def small(self, low: str, asking: bool) -> bool:
        """Yes, no, that is all, and small talk."""
        ready = self.state.done or bool(self.state.bookings) and not missing(self.house, self.state)
        if phrases("done").search(low) and not asking:
            if self.state.done and phrases("yes").match(low):
                return self.emit(CONFIRM)  # "yes, that's it" to "Is that right?"
            if phrases("no").match(low) or not self.state.empty or not phrases("yes").match(low):
                return self.emit(DONE)
        settled = not self.before.empty and not self.before.done and not missing(self.house, self.before)
        if kinds("talk")["goodbye"].search(low) and not asking:
            if self.state.done and (phrases("yes").match(low) or phrases("agreed").search(low)):
                return self.emit(CONFIRM)
            leaves = self.state.empty or self.before.done
            return self.emit(Talk("goodbye") if leaves else DONE)  # nobody leaves without knowing what was ordered
        alone = not phrases("filler").sub("", folded(self.text).replace(low, " ", 1)).strip()
        if settled and not self.found.operations and _NO_MORE.fullmatch(low):
            return self.emit(DONE) if alone else True  # "Anything else?"
        if phrases("no").match(low) and len(low.split()) <= 5 and not re.search(r"\b(?:make|change|swap)\b", low):
            if re.match(r"(?:no|nope|nah),? ?(?:thanks?|thank you|that'?s|cheers|i'?m)", low) and not self.state.empty:
                return self.emit(DONE if not self.state.done else DENY)
            return self.emit(DENY)
        whole = low == folded(self.unnamed).strip(" ,.!?")
        if settled and whole and _SETTLES.fullmatch(low):
            return self.emit(DONE)
        if phrases("yes").match(low) and (len(low.split()) <= 5 or ready):
            return self.emit(DONE if settled and whole and not self.state.lines else CONFIRM)
        if phrases("agreed").search(low) and not asking and not phrases("remove").search(low):
            return self.emit(CONFIRM)
        for kind, pattern in kinds("talk").items():
            if pattern.search(low) and (not asking or kind in ("other", "help", "greeting")):
                rest = pattern.sub(" ", low)
                corrects = any(phrases(name).search(rest) for name in ("correct", "remove", "replace"))
                named = {m.kind for m in self.names.mentions(words(low))} & {"item", "extra", "size"}
                if corrects or kind == "apology" and named:
                    continue  # "sorry make both black", "sorry, the bowl"
                if asking and kind == "help" and facts.choose(self.house, low, True):
                    continue
                return self.emit(Talk(kind))
        return not phrases("filler").sub("", low).strip()


def relative(item: Item, said: str) -> str:
    """The size of an item that "big", "small" or "whatever" is, by the prices; "" where ``said`` is none of these."""
    if phrases("any size").fullmatch(said):
        return item.sizes[0]
    by_price = sorted(item.sizes, key=lambda size: item.price[size])
    if phrases("largest").fullmatch(said):
        return by_price[-1]
    return by_price[0] if phrases("smallest").fullmatch(said) else ""
