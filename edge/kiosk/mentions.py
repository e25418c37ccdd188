"""Finds the names of the house in a turn: items, sizes, extras, things to book and their choices, numbers.

Names are compared word by word: plural or singular, written together or apart, with small typing errors, in full or in
part ("sourdough" for "Sourdough loaf" if nothing else of the house is a sourdough).  The longest match wins.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache

from edge.kiosk import vectors
from edge.kiosk.house import House
from edge.kiosk.phrases import listed
from edge.kiosk.words import COMMON, Word, distance, folded, number, stem, words

#: what guests call a size -> what houses call it, in order of preference
SIZES = {
    "large": ("large", "big", "grande", "bowl", "whole", "full", "double", "bottle"),
    "big": ("large", "big", "bowl", "whole", "full", "bottle"),
    "larg": ("large", "big"),
    "lrg": ("large", "big"),
    "lge": ("large", "big"),
    "sml": ("small",),
    "med": ("medium", "regular"),
    "grande": ("large",),
    "huge": ("large",),
    "small": ("small", "cup", "slice", "travel", "single", "can"),
    "little": ("small", "travel"),
    "tiny": ("small",),
    "mini": ("small", "travel"),
    "medium": ("medium", "regular"),
    "normal": ("regular", "medium"),
    "standard": ("regular", "medium"),
    "usual": ("regular",),
    "regular": ("regular", "medium"),
    "smaller": ("small",),
    "larger": ("large",),
    "bigger": ("large",),
    "piece": ("slice",),
}
#: sign of a currency -> stems of what guests call it
_COINS = {"£": ("pound", "quid"), "€": ("euro",), "$": ("dollar", "buck")}
#: words that do not tell which item is meant
_WEAK = frozenset(
    """of and with the a an in on set pack pot glass bottle plate full price extra double single hot cold iced fresh big
    small large black green white red still sparkling plain whole day side set soft""".split()
)


@dataclass(frozen=True)
class Mention:
    """A name in the words ``first`` to ``last`` (exclusive) of a turn.

    ``kind``: item, size, extra, booking, choice, number.  ``values``: the names of the house that it may mean, several
    if it is ambiguous.  ``exact``: the whole name was said, not a part; ``verbatim``: letter by letter.  ``other``:
    another meaning of the same words ("slice": a size of one item, an extra of another).
    """

    kind: str
    values: tuple[str, ...]
    first: int
    last: int
    exact: bool = True
    verbatim: bool = False
    other: Mention | None = None

    @property
    def value(self) -> str:
        return self.values[0]


@dataclass(frozen=True)
class _Entry:
    kind: str
    value: str
    stems: tuple[str, ...]
    folds: tuple[str, ...]


class Vocabulary:
    """The names of one house, prepared for searching."""

    def __init__(self, house: House) -> None:
        self.house = house
        self.entries: list[_Entry] = []
        for item in house.items:
            for name in (item.name, *item.others):
                self._add("item", item.name, name)
            for size in item.sizes:
                self._add("size", size, size)
        for extra in house.extras.values():
            for name in (extra.name, *extra.others):
                self._add("extra", extra.name, name)
        for booking in house.bookings:
            for name in (booking.name, *booking.others):
                self._add("booking", booking.name, name)
                if (done := re.sub(r"(?:y|ation|ing)$", "ed", name)) != name and " " not in name:
                    self._add("booking", booking.name, done)  # "I'd like it delivered" for "delivery"
            for kind in booking.fields.values():
                for choice in kind if isinstance(kind, tuple) else ():
                    self._add("choice", choice, choice)
            if len(booking_words := words(booking.name)) > 1:  # "the party" for "birthday party"
                head = booking_words[-1].fold
                if sum(words(other.name)[-1].fold == head for other in house.bookings) == 1:
                    self._add("booking", booking.name, head)
        begins = [words(booking.name)[0].fold for booking in house.bookings]
        for booking, fold in zip(house.bookings, begins):  # "the beginners thing" for "beginners' course"
            if len(words(booking.name)) > 1 and begins.count(fold) == 1 and stem(fold) not in _WEAK | COMMON:
                self._add("booking", booking.name, fold)
        self.entries = list(dict.fromkeys(self.entries))
        #: stem -> the items whose names contain it; ``forms``: these words as they are written; ``heads``: last words
        self.parts: dict[str, dict[str, None]] = {}
        self.forms: set[str] = set()
        self.heads = {entry.stems[-1] for entry in self.entries if entry.kind == "item"}
        own = {folded(item.name) for item in house.items}
        for entry in self.entries:
            whole = " ".join(entry.folds) in own
            for part, form in zip(entry.stems, entry.folds) if entry.kind == "item" else ():
                if part not in _WEAK and len(part) > 2 and (part == entry.stems[-1] or whole):
                    self.parts.setdefault(part, {})[entry.value] = None
                    self.forms.add(form)
        #: stem -> the only extra with it as first or last word of its name
        first: dict[str, set[str]] = {}
        for entry in self.entries:
            if entry.kind == "extra" and len(entry.stems) > 1 and entry.stems[0] not in _WEAK | COMMON:
                first.setdefault(entry.stems[0], set()).add(entry.value)
        last: dict[str, set[str]] = {}
        for entry in self.entries:
            if entry.kind == "extra" and len(entry.stems) > 1 and entry.stems[-1] not in _WEAK | COMMON:
                last.setdefault(entry.stems[-1], set()).add(entry.value)
        for part, values in last.items():
            first.setdefault(part, set()).update(values)
        self.extra_parts = {part: min(values) for part, values in first.items() if len(values) == 1}
        self.pairs = any("pair" in entry.stems for entry in self.entries)  # sold by the pair: a pair is one
        self.sizes = {entry.value for entry in self.entries if entry.kind == "size"}
        # a turn is searched several times
        self._beginning_with = lru_cache(4096)(self._find_beginning)
        self._owners = lru_cache(4096)(self._find_owners)

    def _add(self, kind: str, value: str, name: str) -> None:
        parts = [word for word in words(name) if word.fold[0].isalnum() or word.fold in "£$€"]
        if parts:
            self.entries.append(_Entry(kind, value, tuple(w.stem for w in parts), tuple(w.fold for w in parts)))
            if parts[0].fold in _COINS and len(parts) == 2:  # "£50": "50 pounds", "fifty quid"
                for coin in _COINS[parts[0].fold]:
                    self.entries.append(_Entry(kind, value, (parts[1].stem, coin), (parts[1].fold, coin)))

    def mentions(self, turn: list[Word]) -> list[Mention]:
        """The names in the turn, from left to right, without overlaps."""
        found = [*self._full(turn), *self._partial(turn), *_numbers(turn, self.pairs)]
        order = {"item": 0, "extra": 1, "choice": 2, "booking": 3, "size": 4, "number": 5}
        found.sort(key=lambda m: (-(m.last - m.first) - 0.5 * m.exact - 0.25 * m.verbatim, order[m.kind], m.first))
        taken: set[int] = set()
        chosen: list[Mention] = []
        for mention in found:
            span = set(range(mention.first, mention.last))
            same = [m for m in chosen if (m.first, m.last, m.kind) == (mention.first, mention.last, mention.kind)]
            if same and mention.exact == same[0].exact:  # one text, two meanings
                chosen.remove(same[0])
                values = tuple(dict.fromkeys((*same[0].values, *mention.values)))
                chosen.append(Mention(mention.kind, values, mention.first, mention.last, mention.exact))
            elif twin := next((m for m in chosen if (m.first, m.last) == (mention.first, mention.last)), None):
                chosen[chosen.index(twin)] = replace(twin, other=twin.other or mention)
            elif not span & taken:
                chosen.append(mention)
                taken |= span
        chosen.sort(key=lambda m: m.first)
        return [
            one for one, two in zip(chosen, [*chosen[1:], None])
            if not two or one.exact or (one.kind, two.kind) != ("item", "item") or one.last != two.first
        ]  # the "chocolate" of "a chocolate brownie" is not a hot chocolate

    def _full(self, turn: list[Word]) -> Iterator[Mention]:
        for at, word in enumerate(turn):
            if not word.fold[0].isalnum() and word.fold not in "£$€":
                continue
            for entry in self._beginning_with(word.fold, word.stem):
                if end := _matches(turn, at, entry.stems):
                    verbatim = entry.folds == tuple(w.fold for w in turn[at:end])
                    yield Mention(entry.kind, (entry.value,), at, end, verbatim=verbatim)
            for size in SIZES.get(self._size_word(word), ()):
                if size in self.sizes and word.fold not in self.sizes:
                    yield Mention("size", (size,), at, at + 1)

    def _find_beginning(self, fold: str, stem: str) -> tuple[_Entry, ...]:
        """The entries whose names a word may begin, as _matches() reads it: all others need not be tried."""

        def may_begin(stems: tuple[str, ...]) -> bool:
            if stems[0].isdecimal():
                return str(number(fold)) == stems[0]
            return _is_close(fold, stem, stems[0]) or stems[0].startswith(fold) or "".join(stems) == stem

        return tuple(entry for entry in self.entries if may_begin(entry.stems))

    @staticmethod
    def _size_word(word: Word) -> str:
        """The word of SIZES that a word is, or a slip of the pen for ("lage", "smal")."""
        if word.fold in SIZES or len(word.fold) < 4 or word.fold in vectors.table()[0] or word.stem in COMMON:
            return word.fold
        return next((size for size in ("small", "large", "medium", "regular") if distance(word.fold, size, 1) == 1), "")

    def _partial(self, turn: list[Word]) -> Iterator[Mention]:
        """Runs of words that are parts of the names of items, with the items that share most of them."""
        for at, word in enumerate(turn):
            if word.stem in self.extra_parts and word.stem not in self.parts:
                yield Mention("extra", (self.extra_parts[word.stem],), at, at + 1, exact=False)
            owners = self._owners(word.fold, word.stem)
            if not owners:
                continue
            if (word.stem not in self.heads and not self._alone(turn, at)) or _part_of_another(turn, at):
                continue
            end = at + 1
            best = owners
            while end < len(turn):
                also = self._owners(turn[end].fold, turn[end].stem)
                if not (more := {owner: None for owner in also if owner in best}):
                    break
                best, end = more, end + 1
            yield Mention("item", tuple(best), at, end, exact=False)

    def _alone(self, turn: list[Word], at: int) -> bool:
        """Whether a word that is a part of a name stands for the whole name, because it describes nothing else."""
        before = {word.fold for word in turn[max(0, at - 2) : at]}
        after = turn[at + 1] if at + 1 < len(turn) else None
        return not before & {"with", "no", "without", "extra", "some", "more"} and (
            after is None or not after.fold[0].isalpha() or after.stem in COMMON or after.stem in self.parts
            or after.fold in ("one", "ones", "with", "for", "in", "instead")
        )  # fmt: skip

    def _find_owners(self, fold: str, stem: str) -> dict[str, None]:
        """The items whose names a word may be a part of."""
        if fold.endswith(("ed", "ing")) and fold not in self.forms:
            return {}  # "toasted" is not a toast
        if stem in self.parts:
            return self.parts[stem]
        return next((owners for part, owners in self.parts.items() if _is_close(fold, stem, part)), {})


def close(word: Word, part: str) -> bool:
    """Whether a word of a guest is stem ``part`` of the house, or a slip of the pen for it: no other English word."""
    return _is_close(word.fold, word.stem, part)


@lru_cache(1 << 16)  # a turn is searched several times
def _is_close(fold: str, stem: str, part: str) -> bool:
    if stem == part:
        return True
    if part[0] not in (fold[0], stem[:1]):
        return False
    if fold == part + "s" or (
        re.sub("[iy]$", "", stem) == re.sub("[iy]$", "", part)
        and (part[-1] not in "iy" or re.search("(?:y|ie?)s?$", fold))
    ):
        return True  # the last: "brownies", "brownie"; not "brown", "toasted"
    shorter = min(len(stem), len(part))
    unknown = re.sub("'s$", "", fold) not in vectors.table()[0]  # "lates" is no word, though "late" is
    unknown = unknown and (stem in COMMON or fold.removesuffix("s") not in vectors.table()[0])  # "cokes" is
    common = stem in COMMON and not (unknown and fold.endswith("s") and fold not in listed("common"))
    if fold[0] != part[0] or min(shorter + 1, len(fold)) < 5 or common:
        return False
    if distance(stem, part, 2) > (1 if shorter < 7 else 2):
        return False
    return unknown


def _part_of_another(turn: list[Word], at: int) -> bool:
    """Whether a word belongs to what was named before: "with chocolate", "a shot of espresso"."""
    before = [word.fold for word in turn[max(0, at - 2) : at]]
    measure = {"pump", "pumps", "shot", "shots", "splash", "dash", "bit", "drop", "touch", "squirt"}
    return before[-1:] in (["with"], ["extra"], ["without"]) or (before[-1:] == ["of"] and before[0] in measure)


def _matches(turn: list[Word], at: int, stems: tuple[str, ...]) -> int:
    """The index after the name that begins at word ``at``, 0 if there is none; the words may be joined or split."""
    here = at
    for position, part in enumerate(stems):
        while position and here < len(turn) and (turn[here].fold in "-&.'" or turn[here - 1].fold == "half" and (
            turn[here].fold == "a"
        )):  # "half a day"
            here += 1
        if here >= len(turn):
            return 0
        word = turn[here]
        if part.isdecimal():
            if str(number(word.fold)) != part:
                return 0
        elif not close(word, part):
            rest = "".join(stems[position:])
            if len(rest) > 5 and len(stems) - position > 1 and word.stem == rest:
                return here + 1
            two = here + 1 < len(turn) and len(part) > 5 and word.fold + turn[here + 1].stem == part
            if not two:
                return 0
            here += 1
        here += 1
    return here


_POINTING = frozenset("that this which little other last first latter former every no any each".split())


def _numbers(turn: list[Word], pairs: bool) -> Iterator[Mention]:
    """Numbers in a turn; ``pairs``: a pair is one thing.  "Two pairs" is two in any house."""
    at = 0
    while at < len(turn):
        fold = turn[at].fold
        if turn[at].stem == "pair" and (pairs or at and number(turn[at - 1].fold) is not None):
            at += 1
            continue
        value = number(fold) if [word.fold for word in turn[at + 1 : at + 2]] != ["%"] else None
        if fold == "one" and at and turn[at - 1].fold in _POINTING and (
            turn[at - 1].fold != "that" or at + 1 == len(turn) or not turn[at + 1].fold.isalpha()
            or turn[at + 1].stem in COMMON
        ):  # fmt: skip
            value = None  # "that one", "the little one" is no number; "make that one coke" has one
        end = at + 1
        if value is None:
            if fold == "half" and [word.fold for word in turn[at + 1 : at + 3]] == ["a", "dozen"]:
                value, end = 6, at + 3
            else:
                at += 1
                continue
        elif value in range(20, 100, 10) and not fold.isdecimal():  # twenty five, twenty-five
            skip = end + (end < len(turn) and turn[end].fold == "-")
            if skip < len(turn) and 0 < (number(turn[skip].fold) or 0) < 10 and not turn[skip].fold.isdecimal():
                value, end = value + (number(turn[skip].fold) or 0), skip + 1
        yield Mention("number", (str(value),), at, end)
        at = end


def vocabulary(house: House) -> Vocabulary:
    """The vocabulary of a house, cached."""
    if id(house) not in _VOCABULARIES:
        _VOCABULARIES[id(house)] = house, Vocabulary(house)
    return _VOCABULARIES[id(house)][1]


_VOCABULARIES: dict[int, tuple[House, Vocabulary]] = {}
