"""The lines that a clause speaks of: which item, how many, what size, with and without what."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace

from edge.kiosk.mentions import Mention
from edge.kiosk.operations import MAX_COUNT
from edge.kiosk.phrases import phrases
from edge.kiosk.reading import Reading
from edge.kiosk.words import Word, folded, number, words

DEFINITE = frozenset({"the", "that", "my", "those", "this", "these", "our", "his", "her", "both", "all", "each"})
_NEGATION = frozenset(
    {"no", "without", "minus", "hold", "skip", "not", "w/o", "less", "never", "non", "neither", "nor"}
)
_PLACES = frozenset({"to", "on", "in", "onto", "into", "for", "of", "from", "off", "with", "at", "out"})


#: what follows a "no" that corrects
_HESITANT = frozenset({",", ".", "!", "wait", "sorry", "actually", "make", "hang", "hold", "i"})
#: what stands between two sizes of which the second is meant
_HESITANT_SIZE = frozenset("no wait sorry actually rather make or mean to should instead".split())
_BARE = re.compile(r"^(?:without|plain|nothing|none|not)$")
_AGAINST = re.compile(r"\b(?:not|instead of|rather than|in place of)(?: an?| the| my)?$")
_TIMES = re.compile(r"\b(twice|three(?= times\b)|four(?= times\b))")
#: how many of what was ordered an extra is for: "no ketchup on one of them"
_FOR_SOME = frozenset({"on", "in", "for", "with", "to", "just", "only"})
_EVERY = re.compile(
    r"\b(?:both|all|each)(?: of (?:them|those|these)| two| three| four| 2| 3| 4)?(?: w(?:ith)?(?: /)?)?$"
)
#: "sour cream on both", "chicken for him, beef for me"
_ON_EVERY = re.compile(r"(?:on|in|for|to|with) (?:both|all|each|everything)\b")
_FOR_ONE = re.compile(r"for (?:me|him|her|myself|(?:the|my|our|his|her) [a-z]+|[a-z]+)(?: [,&.+]|$| and\b)")


#: where the name of a thing ends
ENDS = frozenset(
    "and or but with without for to from on in at of by if so that then as too also plus no not instead please thanks "
    "is are would will can could & , . ; ! ? ( )".split()
)
#: what follows "and a" without being a thing to order
_NO_THING = frozenset(
    "bit moment minute second table few couple lot little half more one ones quick question day friend word bag box "
    "cup place seat size large small medium big regular other another different extra".split()
)


def places(mentions: list[Mention]) -> set[int]:
    """Where the words of a turn stand that name something of the house."""
    return {at for mention in mentions if mention.kind != "number" for at in range(mention.first, mention.last)}


def thing_at(turn: list[Word], start: int, taken: set[int]) -> str:
    """The thing that "a scone" or "two hot scones" names at ``start``, or "".  ``taken``: places of known words."""
    if start + 1 >= len(turn):
        return ""
    if turn[start].fold not in ("a", "an", "another", "some") and number(turn[start].fold) is None:
        return ""
    end = start + 1
    while end < len(turn) and turn[end].fold not in ENDS and end - start <= 3:
        end += 1
    name = turn[start + 1 : end]
    if not name or {name[0].fold, name[0].stem} & _NO_THING or not name[0].fold.isalpha():
        return ""
    if set(range(start, end + 1)) & taken or [word.fold for word in turn[end : end + 1]] == ["of"]:  # "a bottle of ..."
        return ""
    return " ".join(word.text for word in name)


@dataclass
class Draft:
    """A line that is being read: what has been said of it so far."""

    values: tuple[str, ...]
    count: int = 1
    counted: bool = False
    size: str = ""
    extras: list[str] = field(default_factory=list)
    without: list[str] = field(default_factory=list)
    definite: bool = False
    more: bool = False
    removed: bool = False
    part: bool = False  # "one of the curries"
    text: str = ""


def negated(between: list[str], still: bool) -> bool:
    """Whether the words before a mention negate it; ``still``: the one before was negated, and both are extras."""
    between = [  # "no, oat milk" and "no wait, oat milk" correct, they do not negate
        word for at, word in enumerate(between)
        if not (word in ("no", "nope", "nah") and between[at + 1 : at + 2] and between[at + 1] in _HESITANT)
    ]  # fmt: skip
    last = next((word for word in reversed(between) if word in _NEGATION or word in ("with", "add", "plus", "w")), "")
    near = " ".join(between[-5:])
    if _AGAINST.search(near):
        return True
    if last in _NEGATION or re.search(r"n't (?:want|need|add|put|have|like)|\bdont\b", near):
        return True
    return still and not set(between) - {"or", "and", "any", "the", "&"}


class Drafts(Reading):
    """Drafts of lines, out of what a clause mentions."""

    def told_apart(self, mentions: list[Mention], turn: list[Word]) -> list[Mention]:
        """Words that name a size or an extra are what the items that are spoken of have."""
        spoken = {value for mention in mentions if mention.kind == "item" for value in mention.values}
        sizes = {size for name in spoken or {line.item for line in self.state.lines} for size in self._sizes(name)}
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
        fitting = any(mention.kind == "size" and sizes & set(mention.values) for mention in mentions)
        numbered = {words(size)[0].fold: (size,) for size in sizes if size[0].isdecimal()}
        told: list[Mention] = []
        for at, mention in enumerate(mentions):
            if mention.kind == "size" and mention.other and not sizes & set(mention.values):
                mention = mention.other
            before = turn[mention.first - 1].fold if mention.first else ""
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
                alone = not self._item_next(mentions[at + 1 :], turn, mention.last)
                if len(owners) == 1 and alone and owners[0] not in spoken and (spoken or owners[0] not in held):
                    # "a pint" is a lager where only that has pints
                    told.append(Mention("item", tuple(owners), mention.first, mention.last, exact=False))
        return told

    def _siblings(self, mentions: list[Mention], spoken: set[str], turn: list[Word]) -> list[Mention]:
        """The mentions, with the items that "a strawberry one" and "black, not green" are beside their like."""
        held = {line.item for line in self.state.lines}
        heads = {words(name)[-1].stem for name in spoken or held}
        taken = {at: mention for mention in mentions for at in range(mention.first, mention.last)}
        contrast = re.search(r"\b(?:instead of|rather than|not)\b", folded(self.text))
        for at, word in enumerate(turn):
            mention = taken.get(at)
            if not contrast and not self._one_behind(turn, at + 1) or mention and mention.kind != "extra":
                continue
            if mention and any(set(mention.values) & set(line.extras) for line in self.state.lines):
                continue
            names = [[part.stem for part in words(item.name)] for item in self.house.items]
            found = [item.name for item, name in zip(self.house.items, names)
                     if name[-1] in heads and word.stem in name[:-1]]  # fmt: skip
            if len(found) == 1 and (contrast or found[0] not in held):
                mentions = [each for each in mentions if each is not mention]
                mentions.append(Mention("item", (found[0],), at, at + 1, exact=False))
        return sorted(mentions, key=lambda mention: mention.first)

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

    def drafts(self, turn: list[Word], mentions: list[Mention]) -> tuple[list[Draft], Draft]:
        """The lines that a clause speaks of, and what it says of none of them."""
        drafts: list[Draft] = []
        loose = Draft(())
        pending = Draft(())
        waiting: list[Draft] = []  # "one large and" of "one large and one small latte"
        several: Draft | None = None  # whose sizes are being listed: "four shoes: 38, 38, 40, 44"
        negative = shared = False  # shared: what is said is said of all of them
        base: Draft | None = None
        read = -1
        for at, mention in enumerate(mentions):
            start = mentions[at - 1].last if at else 0
            between = [word.fold for word in turn[start : mention.first]]
            breaks = bool(set(between) & {",", "and", "with", ".", "in", "for", "but", "plus", "then", "also"})
            negative = negated(between, negative and mention.kind == "extra" and mentions[at - 1].kind == "extra")
            following = mentions[at + 1 :]
            if mention.kind in ("extra", "item"):  # "nuts off, cream on", "brownie out, croissant in"
                ending = [word.fold for word in turn[mention.last : mention.last + 2]]
                ends = not ending[1:] or ending[1] in (",", "and", ".", "please")
                if ending and ends:
                    negative = {"off": True, "out": True, "on": False, "in": False}.get(ending[0], negative)
            if mention.kind in ("size", "choice") and negative and _AGAINST.search(" ".join(between)):
                continue  # "cans, not bottles", "the whole one instead of a slice"
            if mention.kind == "number" and drafts and between[-1:] == ["not"]:
                continue  # "two packs, not one"
            every = {"both", "all", "each"} & {word.fold for word in turn[max(0, mention.first - 3) : mention.first]}
            behind = " ".join(word.fold for word in turn[mention.last : mention.last + 4])
            shared = bool(every and _EVERY.search(" ".join(word.fold for word in turn[: mention.first]))) or (
                shared and mention.kind in ("size", "extra")
            )
            shared = shared or len(drafts) > 1 and bool(_ON_EVERY.match(behind))
            other = base is not None and between[-3:-1] == ["the", "other"] or between[-2:] == ["the", "other"]
            person = mention.kind == "extra" and bool(_FOR_ONE.match(behind))
            if drafts and mention.kind != "item" and not shared and (
                base is not None and other or person and (base is not None or drafts[-1].count > 1)
            ):  # "one with lime, the other with cheese"
                base = self.split(drafts, base, Draft((), count=base.count if base and other else 1)) or base
            if drafts and mention.kind in ("size", "extra") and shared:
                if pending.counted:  # "all three gift wrapped"
                    pending = Draft(())
                for draft in drafts:
                    if mention.kind == "size":
                        draft.size = self.size_for(draft.values, mention.values) or draft.size
                    else:
                        (draft.without if negative else draft.extras).append(mention.value)
            elif mention.kind == "item":
                if pending.counted and {":", "a", "an"} & set(between):
                    pending = replace(pending, count=1, counted=False)  # "we are three: my son wants a juice"
                values = self.fitting(mention.values, pending, following, turn)
                draft = replace(
                    pending, values=values, text=" ".join(w.text for w in turn[mention.first : mention.last])
                )
                draft.extras, draft.without = list(pending.extras), list(pending.without)
                back = [word.fold for word in turn[max(0, mention.first - 4) : mention.first]]
                near = between[-3:] if at else back
                draft.definite = not pending.part and (pending.definite or bool(DEFINITE & set(near[-2:])))
                draft.more = pending.more or bool({"another", "more", "additional", "second"} & set(near))
                draft.removed = negative
                for each in waiting:
                    drafts.append(replace(each, values=values, text=draft.text))
                drafts.append(draft)
                base, pending, waiting, negative, several = None, Draft(()), [], False, None
            elif mention.kind == "number":
                if mention.first == read:
                    continue  # the "one" of "a small one"
                if thing_at(turn, mention.first, places(mentions)):
                    continue  # the "two" of "two scones and a soup" in a house without scones
                if (
                    following
                    and following[0].kind == "number"
                    and turn[following[0].first].fold == turn[mention.first].fold
                ):
                    continue
                like = drafts[-1].size if drafts and turn[mention.last : mention.last + 1] and (
                    turn[mention.last].fold == "for"
                ) else ""  # "day tickets for kids and two for adults"
                pending = Draft((), count=min(int(mention.value), MAX_COUNT) or 1, counted=True, size=like)
                pending.more = bool({"another", "additional"} & set(between[-2:])) or (
                    mention.last < len(turn) and turn[mention.last].fold == "more"
                )
                after = [word.fold for word in turn[mention.last : mention.last + 2]]
                pending.definite = bool({"the", "those", "these", "all", "both"} & set(between[-1:]))
                pending.part = after in (["of", "the"], ["of", "my"], ["of", "those"], ["of", "our"])
                if drafts and between in (["x"], ["×"]) and not drafts[-1].counted:
                    drafts[-1].count, drafts[-1].counted, pending = pending.count, True, Draft(())
                elif drafts and self._counts_before(drafts[-1], mentions, at, turn):
                    drafts[-1].count, drafts[-1].counted, pending = pending.count, True, Draft(())  # "the muffins, two"
                elif drafts and drafts[-1].extras and base is None and "and" in between and (
                    turn[mention.last : mention.last + 1] and turn[mention.last].fold == "with"
                ):  # "two tubs with vanilla and one with strawberry"
                    drafts.append(Draft(drafts[-1].values, pending.count, True, drafts[-1].size, text=drafts[-1].text))
                    pending = Draft(())
                elif drafts and not self._item_next(following, turn, mention.last):
                    base = self.split(drafts, base, pending)
                    pending = Draft(()) if base is not None else pending
                elif not drafts and not any(m.kind == "item" for m in following):
                    loose.count, loose.counted, loose.more = pending.count, True, pending.more
            elif mention.kind == "size":
                size = mention.values
                item_next = self._item_next(following, turn, mention.last)
                if not drafts and self._item_of_both(following, turn, mention.last):
                    waiting.append(replace(pending, size="|".join(size)))
                    pending = Draft(())
                    continue
                apart = set(between) & {",", "and", "a", "another", "plus"} or pending.counted
                if drafts and apart and not item_next and self._one_behind(turn, mention.last) and (
                    drafts[-1].size or drafts[-1].extras and ("and" in between or turn[-1].fold == "without")
                ):  # "a large one with oat milk, a small one without"
                    count = pending.count if pending.counted else 1
                    if drafts[-1].count > count and drafts[-1].counted and pending.counted:
                        drafts[-1].count -= count
                    own = Draft(drafts[-1].values, count, pending.counted, text=drafts[-1].text)
                    own.size = self.size_for(own.values, size)
                    drafts.append(own)
                    base, pending, read = None, Draft(()), mention.last
                    continue
                if len(drafts) > 1 and not item_next and between[-1:] == ["for"]:
                    loose.size = "|".join(size)
                elif drafts and not (item_next and (breaks or pending.counted or {"a", "an"} & set(between))) and (
                    not item_next or not drafts[-1].size
                ) and not (item_next and not breaks and "one" in between):  # fmt: skip
                    chosen = self.size_for(drafts[-1].values, size)
                    if drafts[-1].size and base is not None and base.count >= pending.count:
                        base = self.split(drafts, base, pending)  # "... and the other one small"
                        drafts[-1].size = chosen
                        pending = Draft(())
                    elif drafts[-1].size and chosen and not item_next and not set(between) & _HESITANT_SIZE:
                        several = several or drafts[-1]
                        part = Draft(several.values, pending.count, True, chosen, text=several.text)
                        if several.counted and several.count > part.count:
                            several.count -= part.count
                        drafts.append(part)
                        pending = Draft(())
                    else:
                        before = turn[mentions[at - 1].first - 1].fold if pending.counted else ""
                        if before == "for" and chosen and not (drafts[-1].counted or drafts[-1].size):
                            drafts[-1].count, pending = pending.count, Draft(())
                        drafts[-1].size = chosen or drafts[-1].size
                elif item_next or drafts and between[-1:] != ["for"]:
                    pending.size = size[0] if len(size) == 1 else "|".join(size)
                    pending.definite = pending.definite or bool(DEFINITE & set(between[-1:]))
                else:
                    loose.size = "|".join(size)
            elif mention.kind == "extra":
                target = loose
                if drafts and (some := self._for_some(following, turn, mention.last)):
                    base = self.split(drafts, base, Draft((), count=some))
                    read = following[0].first
                item_next = self._item_next(following, turn, mention.last)
                glued = item_next and not (
                    following and {w.fold for w in turn[mention.last : following[0].first]} - {"and", "&", "-"}
                )
                if glued and following[0].kind == "extra":
                    glued = self._glued(mentions, at, turn)
                onto = self._onto(following, turn, mention.last)
                if onto and self._supports(following, mention):
                    target = pending
                    pending.definite = True
                elif (
                    glued
                    and (not drafts or not (set(between) & {"with", "plus"}))
                    and self._supports(following, mention)
                ):
                    target = pending
                    pending.definite = pending.definite or bool(DEFINITE & set(between[-2:]))
                    pending.more = pending.more or "another" in between
                elif drafts:
                    target = drafts[-1]
                (target.without if negative else target.extras).extend(mention.values[:1])
        last = next((word.fold for word in reversed(turn) if word.fold.isalpha()), "")
        if len(drafts) > 1 and last == "without" and not drafts[-1].extras and drafts[-1].values == drafts[-2].values:
            drafts[-1].without = list(drafts[-2].extras)  # "one with lemon and one without"
        if (times := _TIMES.search(folded(self.text))) and not any(draft.counted for draft in drafts):
            for draft in drafts:
                draft.count, draft.counted = {"twice": 2, "three": 3, "four": 4}[times[1]], True
        if drafts and pending.counted and _BARE.search(turn[-1].fold if turn[-1].fold.isalpha() else turn[-2].fold):
            rest = drafts[-1].count - pending.count if drafts[-1].counted and drafts[-1].count > pending.count else 0
            drafts[-1].count = rest or drafts[-1].count
            drafts.append(Draft(drafts[-1].values, pending.count, True, drafts[-1].size, text=drafts[-1].text))
            drafts[-1].without = list(drafts[-2].extras) if last == "without" else []
        elif pending.counted or pending.size or pending.extras:
            if not drafts:
                loose.count, loose.counted = (pending.count, True) if pending.counted else (loose.count, loose.counted)
                loose.size = loose.size or pending.size
                loose.extras += pending.extras
                loose.without += pending.without
        if len(drafts) > 1 and mentions[-1].kind == "size" and all(draft.definite for draft in drafts) and not any(
            draft.size or draft.extras for draft in drafts[:-1]
        ):  # "the latte and the cappuccino large"
            loose.size = loose.size or drafts[-1].size
        for draft in drafts:
            draft.size = draft.size or loose.size  # "half day for the pad", "two adults and a kid for half a day"
            if draft.size:
                draft.size = self.size_for(draft.values, tuple(draft.size.split("|")))
            self.numbered_size(draft)
        return [draft for draft in drafts if draft.count > 0], loose

    @staticmethod
    def _one_behind(turn: list[Word], at: int) -> bool:
        """Whether the word behind a size is "one": "a small one"."""
        return [word.fold for word in turn[at : at + 1]] in (["one"], ["ones"])

    @staticmethod
    def _item_next(following: list[Mention], turn: list[Word], at: int) -> bool:
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

    @staticmethod
    def _counts_before(draft: Draft, mentions: list[Mention], at: int, turn: list[Word]) -> bool:
        """Whether the number ``at`` counts the one item before it: "the muffins, two", "G&Ts instead, two doubles"."""
        item = [mention for mention in mentions[:at] if mention.kind == "item"][-1]
        single = item.first and turn[item.first - 1].fold in ("a", "an")
        sized = [m.kind for m in mentions[at + 1 :]] == ["size"] and mentions[at + 1].first == mentions[at].last
        return not draft.counted and not single and (sized or not mentions[at + 1 :])

    @staticmethod
    def _for_some(following: list[Mention], turn: list[Word], at: int) -> int:
        """How many an extra is for, where the words behind it tell: "on one of them"; else 0."""
        if not following or following[0].kind != "number" or any(m.kind == "item" for m in following[:2]):
            return 0
        between = {word.fold for word in turn[at : following[0].first]}
        return int(following[0].value) if between and between <= _FOR_SOME else 0

    @staticmethod
    def _item_of_both(following: list[Mention], turn: list[Word], at: int) -> bool:
        """Whether "and one small latte" follows a size: the item is that of both."""
        joined = sized = False
        for mention in following:
            between = {word.fold for word in turn[at : mention.first]}
            if mention.kind == "item":
                return sized and not between
            if between - {"and", "&", ",", "a", "plus"} or mention.kind not in ("number", "size"):
                return False
            joined = joined or bool(between & {"and", "&", ",", "plus"}) or mention.kind == "number"
            if not joined:
                return False
            sized = mention.kind == "size"
            at = mention.last
        return False

    @staticmethod
    def _onto(following: list[Mention], turn: list[Word], at: int) -> bool:
        """Whether an extra goes to an item that is named next: "sugar in the tea", "slice the loaf"."""
        for mention in following:
            between = [word.fold for word in turn[at : mention.first]]
            if mention.kind == "item":
                return bool(set(between) & DEFINITE) and not set(between) - DEFINITE - _PLACES - {
                    "one",
                    "and",
                    "&",
                    "large",
                }
            if mention.kind not in ("extra", "size", "number") or set(between) - DEFINITE - _PLACES - {
                "and",
                "&",
                ",",
            }:
                return False
            at = mention.last
        return False

    @staticmethod
    def _glued(mentions: list[Mention], at: int, turn: list[Word]) -> bool:
        """Extras that run on to an item: "ham and cheese croissant"."""
        while at + 1 < len(mentions):
            between = {word.fold for word in turn[mentions[at].last : mentions[at + 1].first]}
            if between - {"and", "&", "-"}:
                return False
            if mentions[at + 1].kind == "item":
                return not between & {"and", "&"} or False
            if mentions[at + 1].kind != "extra":
                return False
            at += 1
        return False

    def _supports(self, following: list[Mention], extra: Mention) -> bool:
        item = next((mention for mention in following if mention.kind == "item"), None)
        if item is None:
            return False
        known = [self.house.item(value) for value in item.values]
        return any(each and extra.value in each.extras for each in known)

    def split(self, drafts: list[Draft], base: Draft | None, part: Draft) -> Draft | None:
        """ "two lattes, one large": one of the lattes becomes a line of its own."""
        whole = base or drafts[-1]
        if whole.count <= 0 or part.count > whole.count or (base is None and whole.count < 2):
            return None
        if part.count == whole.count and base is None:
            return None
        own = replace(whole, count=part.count, counted=True)
        own.extras, own.without = list(whole.extras), list(whole.without)
        if base is not None:
            own.size, own.extras, own.without = base.size, list(base.extras), list(base.without)
        whole.count -= part.count
        drafts.append(own)
        return whole

    def fitting(
        self, values: tuple[str, ...], pending: Draft, following: list[Mention], turn: list[Word]
    ) -> tuple[str, ...]:
        """The items, of those that may be meant, that have what is said with them, or are ordered already."""
        if len(values) < 2:
            return values
        wanted = list(pending.extras)
        for mention in following:
            if mention.kind in ("item", "number"):
                break
            if mention.kind == "extra":
                wanted += mention.values[:1]
        items = [item for value in values if (item := self.house.item(value))]
        rest = [item.name for item in items if all(extra in item.extras for extra in wanted)] or list(values)
        if pending.size:
            sizes = set(pending.size.split("|"))
            rest = [name for name in rest if sizes & set(self._sizes(name))] or rest
        held = [line.item for line in self.state.lines if line.item in rest]
        return tuple(dict.fromkeys(held)) if held else tuple(rest)

    def _sizes(self, name: str) -> tuple[str, ...]:
        item = self.house.item(name)
        return item.sizes if item else ()

    def numbered_size(self, draft: Draft) -> None:
        """ "8 gyoza" of an item that is sold by 4 or eight pieces is one portion of 8."""
        if draft.counted and draft.count > 1 and not draft.size:
            for size in self._sizes(draft.values[0]):
                if number(words(size)[0].fold) == draft.count:
                    draft.size, draft.count, draft.counted = size, 1, False

    def size_for(self, values: tuple[str, ...], sizes: tuple[str, ...]) -> str:
        for size in sizes:
            if any(size in self._sizes(value) for value in values):
                return size
        return ""

    def lines_of(self, draft: Draft) -> list[int]:
        """Numbers of the lines that a draft may speak of, the best first."""
        found = []
        for at, line in enumerate(self.state.lines, 1):
            if line.item in draft.values:
                score = 2 * (bool(draft.size) and line.size == draft.size) + sum(e in line.extras for e in draft.extras)
                found.append((-score, at))
        if not found and draft.definite:  # "the bun" is the cinnamon bun that was ordered, whatever else a bun may be
            stems = {word.stem for word in words(draft.text)}
            found = [
                (0, at) for at, line in enumerate(self.state.lines, 1)
                if stems and stems <= {word.stem for word in words(line.item)}
            ]  # fmt: skip
        return [at for _, at in sorted(found)]
