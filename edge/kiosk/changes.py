"""Changes of lines of the order: of all or some of a line, and of two lines that change places."""

from __future__ import annotations

import re

from edge.kiosk.drafts import Draft, Drafts
from edge.kiosk.mentions import Mention
from edge.kiosk.operations import Add, Change, Remove
from edge.kiosk.phrases import phrases
from edge.kiosk.words import Word, folded

#: extras of which a line has one
_DEGREES = frozenset({"mild", "medium", "spicy", "hot", "extra hot", "extra spicy"})
_USUAL = re.compile(r"\b(?:regular|normal|ordinary|usual|standard|plain|cow'?s) (\w+)\b")


def _instead(one: str, other: str) -> bool:
    """Whether one extra takes the place of the other."""
    degrees = {folded(one), folded(other)} <= _DEGREES
    return one != other and (degrees or folded(one).split()[-1] == folded(other).split()[-1] == "milk")


def plainer(extras: list[str]) -> list[str]:
    """Extras without repetition, and without those that others of them are a kind of: milk beside oat milk."""
    return [one for one in dict.fromkeys(extras) if not any(o != one and o.split()[-1] == one for o in extras)]


class Changes(Drafts):
    """What becomes of the lines of the order."""

    def change(self, number: int, draft: Draft, count: int = 0, item: str = "") -> Change:
        """The change of a line that a draft describes, held to what the item offers."""
        known = self.house.item(item or self.state.lines[number - 1].item)
        offered = known.extras if known else ()
        self.unoffered(draft, offered)
        size = self.size_for((known.name,), tuple(draft.size.split("|"))) if known and draft.size else ""
        extras = tuple(extra for extra in plainer(draft.extras) if extra in offered)
        without = tuple(extra for extra in dict.fromkeys(draft.without) if extra in offered and extra not in extras)
        if not item and len(extras) == 1:  # "mild" where it was spicy, another milk
            held = self.state.lines[number - 1].extras
            without += tuple(e for e in held if _instead(e, extras[0]) and e not in (*extras, *without))
        return Change(number, count, size, item, extras, without)

    def change_each(self, numbers: list[int], draft: Draft) -> bool:
        """Make the same change of several lines, the last first, as lines that become alike are joined."""
        return max([self.emit(self.change(number, draft)) for number in sorted(numbers, reverse=True)], default=False)

    def offering(self, extras: list[str], numbers: list[int]) -> list[int]:
        """Of the lines ``numbers``, those whose item comes with one of ``extras``."""
        items = {number: self.house.item(self.state.lines[number - 1].item) for number in numbers}
        return [number for number, item in items.items() if item and set(extras) & set(item.extras)]

    def unoffered(self, draft: Draft, offered: tuple[str, ...]) -> None:
        """Note the extras of a draft that the item does not come with."""
        self.found.unnoted += [f"with {extra}" for extra in draft.extras if extra not in offered]
        self.found.unnoted += [f"without {extra}" for extra in draft.without if extra not in offered]

    def divide(self, number: int, count: int, draft: Draft, new: bool = False) -> bool:
        """Change ``count`` of a line only; ``new``: these are being ordered, so that what they lack is refused."""
        line = self.state.lines[number - 1]
        change = self.change(number, draft)
        extras = tuple(e for e in (*line.extras, *change.extras) if e not in change.without)
        without = tuple(e for e in (*line.without, *change.without) if e not in change.extras)
        kept = tuple(e for e in without if new or e not in line.extras)
        return self.emit(Remove(number, count)) and self.emit(
            Add(line.item, count, change.size or line.size, tuple(dict.fromkeys(extras)), kept)
        )

    def joined(self, item: str) -> int:
        """Of the last line, how many a clause before this one has added to those of an earlier turn; else 0."""
        added = self.found.operations[-1] if self.found.operations else None
        if not isinstance(added, Add) or added.item != item or not 1 <= self.last <= len(self.state.lines):
            return 0
        return added.count if added.count < self.state.lines[self.last - 1].count else 0

    def swapped(self, low: str) -> bool:
        """ "Swap the sizes", "the other way round": the two lines that differ in it change places."""
        found = phrases("swapped").search(low)
        lines = [(at, line) for at, line in enumerate(self.state.lines, 1) if line.size or not found or not found[1]]
        if not found or len(lines) != 2:
            return False
        (first, one), (second, two) = lines
        alike = (one.item, one.extras, one.without) == (two.item, two.extras, two.without)
        of_sizes = "size" in low or found[1] is None and one.size != two.size
        if of_sizes and one.size and two.size and not alike:
            if one.size not in self.sizes_of(two.item) or two.size not in self.sizes_of(one.item):
                return False
            return self.emit(Change(first, size=two.size)) and self.emit(Change(second, size=one.size))
        if "size" in low and not alike or one.count == two.count:
            return False
        return self.emit(Change(first, two.count)) and self.emit(Change(second, one.count))

    def as_usual(self, low: str) -> bool:
        """ "Regular milk is fine": the other milk that was chosen goes."""
        usual = _USUAL.search(low)
        for number in range(len(self.state.lines), 0, -1) if usual else ():
            held = self.state.lines[number - 1].extras
            if chosen := tuple(extra for extra in held if usual and folded(extra).endswith(f" {usual[1]}")):
                return self.emit(Change(number, without=chosen))
        return False

    def portioned(self, turn: list[Word], mentions: list[Mention]) -> bool:
        """ "One with soy milk, one with oat milk" of two that are in one line: each part becomes a line."""
        starts = [at for at, mention in enumerate(mentions) if mention.kind == "number"]
        groups = [mentions[start:end] for start, end in zip(starts, [*starts[1:], len(mentions)])]
        if len(groups) < 2 or starts[0] or any([m.kind for m in group[1:]] != ["extra"] for group in groups):
            return False
        counts = [int(group[0].value) for group in groups]
        having = [n for n, line in enumerate(self.state.lines, 1) if line.count == sum(counts)]
        if not having or any({"no", "without"} & {w.fold for w in turn[g[0].last : g[1].first]} for g in groups):
            return False
        number = self.last if self.last in having else having[-1]
        parts = [Draft((), extras=[group[1].value]) for group in groups]
        for part, count in list(zip(parts, counts))[1:]:
            self.divide(number, count, part)
        return self.emit(self.change(number, parts[0]))

    def recounted(self, low: str, turn: list[Word], mentions: list[Mention]) -> bool:
        """ "Four chicken ones and four veggie ones", "one fish only": how many of the lines that have these extras."""
        pairs = [
            (int(count.value), extra) for count, extra in zip(mentions, mentions[1:])
            if count.kind == "number" and extra.kind == "extra" and count.last == extra.first
        ]  # fmt: skip
        only = re.search(r"\b(?:only|just|correction|should be)\b", low)
        ones = [extra for _, extra in pairs if {w.fold for w in turn[extra.last : extra.last + 1]} & {"one", "ones"}]
        found = {}
        for count, extra in pairs:
            having = [n for n, line in enumerate(self.state.lines, 1) if extra.value in line.extras]
            if len(having) != 1 or not (only or len(ones) > 1):
                return False
            found[having[0]] = count
        return bool(found) and all(list(map(self.emit, map(Change, found.keys(), found.values()))))
