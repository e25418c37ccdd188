"""What a word means where it stands: size or extra, "the sixty" of "60 m", the "strawberry" of "a strawberry one"."""

from __future__ import annotations

import re
from dataclasses import replace

from edge.kiosk.mentions import Mention
from edge.kiosk.phrases import phrases
from edge.kiosk.reading import Reading
from edge.kiosk.words import Word, folded, number, words

_CONTRAST = re.compile(
    r"\b(?:instead of|rather than|not|make (?:it|that|this|both|all|them|\w+ of (?:them|those))"
    r"|(?:should|can|could|must) be)\b"
)


class Senses(Reading):
    """Mentions, by the items and the order that they stand with."""

    def told_apart(self, mentions: list[Mention], turn: list[Word]) -> list[Mention]:
        """Words that name a size or an extra are what the items that are spoken of have."""
        spoken = {value for mention in mentions if mention.kind == "item" for value in mention.values}
        sizes = {size for name in spoken or {line.item for line in self.state.lines} for size in self.sizes_of(name)}
        if phrases("remove").search(folded(self.text)):  # "take the ship off": what is there, not what is for sale
            held = {extra for line in self.state.lines for extra in line.extras}
            items = {line.item for line in self.state.lines}
            mentions = [
                replace(mention, kind="extra", values=(extra,))
                if mention.kind == "item" and not mention.exact and not items & set(mention.values)
                and (extra := self.names.extra_parts.get(turn[mention.first].stem, "")) in held
                else mention
                for mention in mentions
            ]  # fmt: skip
        mentions = self._siblings(mentions, spoken, turn)
        offered = {e for name in spoken or {line.item for line in self.state.lines} if (item := self.house.item(name))
                   for e in item.extras}  # fmt: skip
        fitting = any(mention.kind == "size" and sizes & set(mention.values) for mention in mentions)
        numbered = {words(size)[0].fold: (size,) for size in sizes if size[0].isdecimal()}
        told: list[Mention] = []
        for at, mention in enumerate(mentions):
            before = turn[mention.first - 1].fold if mention.first else ""
            there = before == "the" and any(line.size in mention.values for line in self.state.lines)
            if mention.kind == "size" and mention.other and not sizes & set(mention.values) and not there and (
                mention.other.kind != "extra" or set(mention.other.values) & offered
            ):  # fmt: skip
                mention = mention.other
            if mention.kind == "extra" and mention.other and mention.other.kind == "size":  # sourdough, of a tuna melt
                near = [m for m in mentions[:at] if m.kind == "item"][-1:]
                names = near[0].values if near else tuple(line.item for line in self.state.lines)
                these = [item for name in names if (item := self.house.item(name))]
                if any(set(mention.other.values) & set(item.sizes) for item in these) and not any(
                    set(mention.values) & set(item.extras) for item in these
                ):  # fmt: skip
                    mention = mention.other
            if mention.kind == "size" and fitting and not sizes & set(mention.values):
                continue  # "a 38, these run big"
            if mention.kind == "size" and mention.first > 2 and turn[mention.first].fold == "half" and (
                [word.fold for word in turn[mention.first - 2 : mention.first]] == ["and", "a"]
                and number(turn[mention.first - 3].fold) is not None
                and [word.fold for word in turn[mention.last : mention.last + 1]] != ["of"]
            ):  # fmt: skip
                continue  # "she's two and a half"
            if mention.kind == "number" and before in ("a", "an", "the") and mention.value in numbered:
                mention = replace(mention, kind="size", values=numbered[mention.value])  # "the sixty" of "60 m"
            if mention.kind == "item" and self._told_behind(mention, mentions[at + 1 :], turn):
                continue  # the tickets of "day tickets for two adults"
            told.append(mention)
            if mention.kind == "size" and (before in ("a", "an") or number(before) is not None):
                owners = [item.name for item in self.house.items if mention.value in item.sizes]
                held = {line.item for line in self.state.lines}
                alone = not self.item_follows(mentions[at + 1 :], turn, mention.last)
                if len(owners) == 1 and alone and owners[0] not in spoken and (spoken or owners[0] not in held):
                    # "a pint" is a lager where only that has pints
                    told.append(Mention("item", tuple(owners), mention.first, mention.last, exact=False))
        return sorted([*told, *self._half(turn, told, spoken)], key=lambda mention: mention.first)

    def _half(self, turn: list[Word], told: list[Mention], spoken: set[str]) -> list[Mention]:
        """The "half" of "make that a half", where what is spoken of comes as "pint" or "half pint"."""
        taken = {at for mention in told for at in range(mention.first, mention.last)}
        sizes = {size for name in spoken or {line.item for line in self.state.lines} for size in self.sizes_of(name)}
        begins = [(words(size)[0].fold, size) for size in sizes if len(words(size)) > 1]
        firsts = {word: size for word, size in begins if [each for each, _ in begins].count(word) == 1}
        found = []
        for at, word in enumerate(turn):
            behind = turn[at + 1].fold if at + 1 < len(turn) else ""
            if at and word.fold in firsts and at not in taken and turn[at - 1].fold in ("a", "the") and (
                behind in ("", ",", ".", "please", "instead", "then", "too")
            ):  # fmt: skip
                found.append(Mention("size", (firsts[word.fold],), at, at + 1))
        return found

    def _siblings(self, mentions: list[Mention], spoken: set[str], turn: list[Word]) -> list[Mention]:
        """The mentions, with the items that "a strawberry one" and "black, not green" are beside their like."""
        held = {line.item for line in self.state.lines}
        heads = {words(name)[-1].stem for name in spoken or held}
        taken = {at: mention for mention in mentions for at in range(mention.first, mention.last)}
        contrast = _CONTRAST.search(folded(self.text))
        for at, word in enumerate(turn):
            mention = taken.get(at)
            kind = contrast or self.one_behind(turn, at + 1) or heads and self._elliptic(turn, at)
            if not kind or mention and mention.kind != "extra":
                continue
            if mention and any(set(mention.values) & set(line.extras) for line in self.state.lines):
                continue
            names = [[part.stem for part in words(item.name)] for item in self.house.items]
            found = [item.name for item, name in zip(self.house.items, names)
                     if (name[-1] in heads or not heads) and word.stem in name[:-1]]  # fmt: skip
            if len(found) == 1 and found[0] not in spoken and (contrast or found[0] not in held):
                mentions = [each for each in mentions if each is not mention]
                mentions.append(Mention("item", (found[0],), at, at + 1, exact=False))
        return sorted(mentions, key=lambda mention: mention.first)

    @staticmethod
    def _elliptic(turn: list[Word], at: int) -> bool:
        """Whether a word stands like a thing that is counted: "a green and a black"."""
        ahead = turn[at - 1].fold if at else ""
        behind = turn[at + 1].fold if at + 1 < len(turn) else ""
        counted = ahead in ("a", "an") or number(ahead) is not None
        return counted and (behind in ("", ",", "and", "for", "please", "too") or number(behind) is not None)

    @staticmethod
    def _told_behind(item: Mention, following: list[Mention], turn: list[Word]) -> bool:
        """Whether "for" and names behind an item that may be several tell which it is."""
        rest = [word.fold for word in turn[item.last : item.last + 1]]
        named = next((mention for mention in following if mention.kind == "item"), None)
        between = {word.fold for word in turn[item.last : named.first]} if named else set()
        return bool(
            named and rest == ["for"] and set(named.values) < set(item.values)
            and all(word in ("for", "a", "an", "the", "my") or number(word) is not None for word in between)
        )  # fmt: skip

    @staticmethod
    def one_behind(turn: list[Word], at: int) -> bool:
        """Whether the word behind a size is "one": "a small one"."""
        return [word.fold for word in turn[at : at + 1]] in (["one"], ["ones"])

    @staticmethod
    def item_follows(following: list[Mention], turn: list[Word], at: int) -> bool:
        """Whether an item comes before anything that would end its description."""
        for mention in following:
            between = {word.fold for word in turn[at : mention.first]}
            if between & {",", "with", ".", "but", "without"} and not (mention.kind == "item" and between <= {","}):
                return False
            if mention.kind == "size" and between & {"a", "an", "another", "the"}:
                return False
            if mention.kind == "item":  # "half a chilli" is a half chilli
                half = between == {"a"} and turn[at - 1].fold == "half"
                return half or not (between & {"and", "a", "an", ",", "plus", "another", "the"})
            if mention.kind == "number":
                return False
            at = mention.last
        return False

    def sizes_of(self, name: str) -> tuple[str, ...]:
        item = self.house.item(name)
        return item.sizes if item else ()

    def size_for(self, values: tuple[str, ...], sizes: tuple[str, ...]) -> str:
        for size in sizes:
            if any(size in self.sizes_of(value) for value in values):
                return size
        return ""
