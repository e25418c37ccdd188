"""The lines that a clause speaks of: which item, how many, what size, with and without what."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace

from edge.kiosk.mentions import Mention
from edge.kiosk.operations import MAX_COUNT
from edge.kiosk.senses import Senses
from edge.kiosk.unlisted import places, thing_at
from edge.kiosk.words import Word, folded, number, words

DEFINITE = frozenset({"the", "that", "my", "those", "this", "these", "our", "his", "her", "both", "all", "each"})
_NEGATION = frozenset(
    {"no", "without", "minus", "hold", "skip", "not", "w/o", "less", "never", "non", "neither", "nor"}
)
_PLACES = frozenset({"to", "on", "in", "onto", "into", "for", "of", "from", "off", "with", "at", "out"})

#: what follows a "no" that corrects
_HESITANT = frozenset(
    ", . ! wait sorry actually make hang hold i just only the a an my we he she they it those these that's thats it's "
    "its".split()
)
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
_FOR_ONE = re.compile(r"for (?:me|him|her|myself|(?:the|my|our|his|her) [a-z]+(?<!s)|[a-z]+)(?: [,&.+]|$| and\b)")


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
    part_of_name: bool = False  # "carrot" for "Carrot cake"
    sized: bool = False  # all of them are of the size said before: "two large lattes"
    text: str = ""


def negated(between: list[str], still: bool) -> bool:
    """Whether the words before a mention negate it; ``still``: the one before was negated, and both are extras."""
    between = [  # "no, oat milk" and "no wait, oat milk" correct, they do not negate
        word for at, word in enumerate(between)
        if not (word in ("no", "nope", "nah") and between[at + 1 : at + 2] and between[at + 1] in _HESITANT)
    ]  # fmt: skip
    between = [  # "not for me the croissant" tells whose it is
        word for at, word in enumerate(between)
        if not (word == "not" and between[at + 1 : at + 2] == ["for"] and between[at + 2 : at + 3] != ["the"])
    ]  # fmt: skip
    for at in range(len(between) - 1, 0, -1):  # "not too hot, and an americano"
        if between[at] in (",", "and", ".") and {"a", "an"} & {*between[at + 1 :]}:
            between = between[at + 1 :]
            break
    last = next((word for word in reversed(between) if word in _NEGATION or word in ("with", "add", "plus", "w")), "")
    near = " ".join(between[-5:])
    if _AGAINST.search(near):
        return True
    if last in _NEGATION or re.search(r"n't (?:want|need|add|put|have|like|drink|eat|take)|\bdont\b", near):
        return True
    return still and not set(between) - {"or", "and", "any", "the", "&"}


def _merged(drafts: list[Draft]) -> list[Draft]:
    """The drafts, with parts that are told apart by nothing in one: "two soups, one for my wife"."""
    found: list[Draft] = []
    for draft in drafts:
        if draft.counted and found and replace(draft, count=found[-1].count, counted=found[-1].counted) == found[-1]:
            found[-1] = replace(draft, count=found[-1].count + draft.count)
        else:
            found.append(draft)
    return found


@dataclass
class _Clause:
    """A clause while it is read."""

    turn: list[Word]
    mentions: list[Mention]
    drafts: list[Draft] = field(default_factory=list)
    loose: Draft = field(default_factory=lambda: Draft(()))
    pending: Draft = field(default_factory=lambda: Draft(()))  # what was said of an item that is not named yet
    waiting: list[Draft] = field(default_factory=list)  # "one large and" of "one large and one small latte"
    several: Draft | None = None  # whose sizes are being listed: "four shoes: 38, 38, 40, 44"
    base: Draft | None = None  # of which parts are being told apart
    negative: bool = False
    shared: bool = False  # what is said is said of all of them
    read: int = -1  # the place of a word that has been read

    @property
    def last(self) -> Draft:
        """The draft that is being read."""
        return self.drafts[-1]

    def like_last(self) -> Draft:
        """Another draft of the same item and size, as many as were counted last."""
        return Draft(self.last.values, self.pending.count, True, self.last.size, text=self.last.text)


class Drafts(Senses):
    """Drafts of lines, out of what a clause mentions."""

    def drafts(self, turn: list[Word], mentions: list[Mention]) -> tuple[list[Draft], Draft]:
        """The lines that a clause speaks of, and what it says of none of them."""
        c = _Clause(turn, mentions)
        for at in range(len(mentions)):
            self._read(c, at)
        self._end(c)
        return _merged([draft for draft in c.drafts if draft.count > 0]), c.loose

    def _read(self, c: _Clause, at: int) -> None:
        """Read mention ``at``: what all kinds have in common, then what its kind needs."""
        turn, mentions, mention = c.turn, c.mentions, c.mentions[at]
        start = mentions[at - 1].last if at else 0
        between = [word.fold for word in turn[start : mention.first]]
        c.negative = negated(between, c.negative and mention.kind == "extra" and mentions[at - 1].kind == "extra")
        if mention.kind in ("extra", "item"):  # "nuts off, cream on", "brownie out, croissant in"
            ending = [word.fold for word in turn[mention.last : mention.last + 2]]
            ends = not ending[1:] or ending[1] in (",", "and", ".", "please")
            ends = ends or ending[0] == "off" and ending[1] in ("both", "all", "them", "it", "that")
            if ending and ends:
                c.negative = {"off": True, "out": True, "on": False, "in": False}.get(ending[0], c.negative)
        if mention.kind in ("size", "choice") and c.negative and _AGAINST.search(" ".join(between)):
            return  # "cans, not bottles", "the whole one instead of a slice"
        if mention.kind == "number" and c.drafts and between[-1:] == ["not"]:
            return  # "two packs, not one"
        every = {"both", "all", "each"} & {word.fold for word in turn[max(0, mention.first - 3) : mention.first]}
        behind = " ".join(word.fold for word in turn[mention.last : mention.last + 4])
        c.shared = bool(every and _EVERY.search(" ".join(word.fold for word in turn[: mention.first]))) or (
            c.shared and mention.kind in ("size", "extra")
        )
        c.shared = c.shared or len(c.drafts) > 1 and bool(_ON_EVERY.match(behind))
        other = c.base is not None and between[-3:-1] == ["the", "other"] or between[-2:] == ["the", "other"]
        person = mention.kind == "extra" and bool(_FOR_ONE.match(behind))
        if c.drafts and mention.kind != "item" and not c.shared and (
            c.base is not None and other or person and (c.base is not None or c.last.count > 1)
        ):  # "one with lime, the other with cheese"
            c.base = self.split(c.drafts, c.base, Draft((), count=c.base.count if c.base and other else 1)) or c.base
        if c.drafts and mention.kind in ("size", "extra") and c.shared:
            if c.pending.counted:  # "all three gift wrapped"
                c.pending = Draft(())
            for draft in c.drafts:
                if mention.kind == "size":
                    size = self.size_for(draft.values, mention.values)
                    draft.size = size or draft.size
                    if not size:  # "a latte and a croissant, both large"
                        self.found.unnoted.append(f"{turn[mention.first].text} {draft.text}")
                else:
                    (draft.without if c.negative else draft.extras).append(mention.value)
        else:
            kinds = {"item": self._item, "number": self._number, "size": self._size, "extra": self._extra}
            if mention.kind in kinds:
                kinds[mention.kind](c, at, between)

    def _item(self, c: _Clause, at: int, between: list[str]) -> None:
        """An item: a draft, with what was said before it."""
        turn, mentions, mention = c.turn, c.mentions, c.mentions[at]
        following = mentions[at + 1 :]
        if c.pending.counted and {":", "a", "an"} & set(between):
            c.pending = replace(c.pending, count=1, counted=False)  # "we are three: my son wants a juice"
        values = self.fitting(mention.values, c.pending, following, turn)
        text = " ".join(w.text for w in turn[mention.first : mention.last])
        draft = replace(c.pending, values=values, part_of_name=not mention.exact, text=text)
        draft.extras, draft.without, draft.sized = list(c.pending.extras), list(c.pending.without), bool(draft.size)
        back = [word.fold for word in turn[max(0, mention.first - 4) : mention.first]]
        near = between[-3:] if at else back
        draft.definite = not c.pending.part and (c.pending.definite or bool(DEFINITE & set(near[-2:])))
        draft.more = c.pending.more or bool({"another", "more", "additional", "second"} & set(near))
        draft.removed = c.negative
        for each in c.waiting:
            c.drafts.append(replace(each, values=values, text=draft.text))
        c.drafts.append(draft)
        c.base, c.pending, c.waiting, c.negative, c.several = None, Draft(()), [], False, None

    def _number(self, c: _Clause, at: int, between: list[str]) -> None:
        """A number: of an item that follows, of the one before, or of a part of it."""
        turn, mentions, mention = c.turn, c.mentions, c.mentions[at]
        following = mentions[at + 1 :]
        if mention.first == c.read:
            return  # the "one" of "a small one"
        if between[-1:] == ["in"] and {"cut", "split", "sliced", "halved"} & {w.fold for w in turn[: mention.first]}:
            return  # "cut in two, and a juice"
        if thing_at(turn, mention.first, places(mentions)):
            return  # the "two" of "two scones and a soup" in a house without scones
        if (following and following[0].kind == "number" and turn[following[0].first].fold == turn[mention.first].fold):
            return
        like = c.last.size if c.drafts and turn[mention.last : mention.last + 1] and (
            turn[mention.last].fold == "for"
        ) else ""  # "day tickets for kids and two for adults"
        onto = c.pending if c.pending.definite else Draft(())  # "chilli on one of the fries"
        c.pending = Draft((), count=min(int(mention.value), MAX_COUNT) or 1, counted=True, size=like)
        c.pending.extras, c.pending.without = onto.extras, onto.without
        c.pending.more = bool({"another", "additional"} & set(between[-2:])) or (
            mention.last < len(turn) and turn[mention.last].fold == "more"
        )
        after = [word.fold for word in turn[mention.last : mention.last + 2]]
        c.pending.definite = bool({"the", "those", "these", "all", "both"} & set(between[-1:]))
        c.pending.part = after in (["of", "the"], ["of", "my"], ["of", "those"], ["of", "our"])
        if c.drafts and between in (["x"], ["×"]) and not c.last.counted:
            c.last.count, c.last.counted, c.pending = c.pending.count, True, Draft(())
        elif c.drafts and self._counts_before(c.last, mentions, at, turn):
            c.last.count, c.last.counted, c.pending = c.pending.count, True, Draft(())  # "the muffins, two"
        elif c.drafts and c.last.extras and c.base is None and "and" in between and (
            turn[mention.last : mention.last + 1] and turn[mention.last].fold == "with"
        ):  # "two tubs with vanilla and one with strawberry"
            c.drafts.append(c.like_last())
            c.pending = Draft(())
        elif c.drafts and c.last.sized and "and" in between and self._sized_next(c, following, mention):
            c.drafts.append(Draft(c.last.values, c.pending.count, True, text=c.last.text))
            c.pending = Draft(())  # "two large lattes and one small"
        elif c.drafts and not self.item_follows(following, turn, mention.last):
            c.base = self.split(c.drafts, c.base, c.pending)
            c.pending = Draft(()) if c.base is not None else c.pending
        elif not c.drafts and not any(m.kind == "item" for m in following):
            c.loose.count, c.loose.counted, c.loose.more = c.pending.count, True, c.pending.more

    def _sized_next(self, c: _Clause, following: list[Mention], count: Mention) -> bool:
        """Whether another size of the item read last comes right after a count, and no item after it."""
        size = following[0] if following and following[0].kind == "size" and following[0].first == count.last else None
        if size is None or self.item_follows(following[1:], c.turn, size.last):
            return False
        return self.size_for(c.last.values, size.values) not in ("", c.last.size)

    def _size(self, c: _Clause, at: int, between: list[str]) -> None:
        """A size: of the item before or behind it, or of one of several."""
        turn, mentions, mention = c.turn, c.mentions, c.mentions[at]
        following = mentions[at + 1 :]
        breaks = bool(set(between) & {",", "and", "with", ".", "in", "for", "but", "plus", "then", "also"})
        size = mention.values
        item_next = self.item_follows(following, turn, mention.last)
        if not c.drafts and self._item_of_both(following, turn, mention.last):
            c.waiting.append(replace(c.pending, size="|".join(size)))
            c.pending = Draft(())
            return
        one = not item_next and self.one_behind(turn, mention.last)
        if one and between[-1:] == ["the"] and between[-2:-1] != ["of"]:
            told = [draft for draft in c.drafts if draft.size and draft.size in size]
            if len(told) == 1 and len(c.drafts) > 1:  # "one large, one small, the small one decaf"
                c.drafts = [*(draft for draft in c.drafts if draft is not told[0]), told[0]]
                c.base, c.pending, c.read = None, Draft(()), mention.last
                return
        apart = set(between) & {",", "and", "a", "another", "plus"} or c.pending.counted
        if c.drafts and apart and not item_next and self.one_behind(turn, mention.last) and (
            c.last.size or c.last.extras and ("and" in between or turn[-1].fold == "without")
        ):  # "a large one with oat milk, a small one without"
            count = c.pending.count if c.pending.counted else 1
            if c.last.count > count and c.last.counted and c.pending.counted and not c.last.sized:
                c.last.count -= count
            own = Draft(c.last.values, count, c.pending.counted, text=c.last.text)
            own.size = self.size_for(own.values, size)
            c.drafts.append(own)
            c.base, c.pending, c.read = None, Draft(()), mention.last
            return
        if len(c.drafts) > 1 and not item_next and between[-1:] == ["for"]:
            c.loose.size = "|".join(size)
        elif c.drafts and not (item_next and (breaks or c.pending.counted or {"a", "an"} & set(between))) and (
            not item_next or not c.last.size
        ) and not (item_next and not breaks and "one" in between):  # fmt: skip
            chosen = self.size_for(c.last.values, size)
            if c.last.size and c.base is not None and c.base.count >= c.pending.count:
                c.base = self.split(c.drafts, c.base, c.pending)  # "... and the other one small"
                c.last.size = chosen
                c.pending = Draft(())
            elif c.last.size and chosen and not item_next and not set(between) & _HESITANT_SIZE:
                c.several = c.several or c.last
                part = Draft(c.several.values, c.pending.count, True, chosen, text=c.several.text)
                if c.several.counted and c.several.count > part.count:
                    c.several.count -= part.count
                c.drafts.append(part)
                c.pending = Draft(())
            else:
                before = turn[mentions[at - 1].first - 1].fold if c.pending.counted else ""
                if before == "for" and chosen and not (c.last.counted or c.last.size):
                    c.last.count, c.pending = c.pending.count, Draft(())
                c.last.size = chosen or c.last.size
        elif item_next or c.drafts and between[-1:] != ["for"]:
            c.pending.size = size[0] if len(size) == 1 else "|".join(size)
            c.pending.definite = c.pending.definite or bool(DEFINITE & set(between[-1:]))
        else:
            c.loose.size = "|".join(size)

    def _extra(self, c: _Clause, at: int, between: list[str]) -> None:
        """An extra: of the item before or behind it, or of none that is named."""
        turn, mentions, mention = c.turn, c.mentions, c.mentions[at]
        following = mentions[at + 1 :]
        target = c.loose
        if between[-1:] == ["less"] or between == ["or"] and not c.negative and mentions[at - 1].kind == "extra":
            first = mention.first - 1
            if between == ["or"]:
                first, one = mentions[at - 1].first, mentions[at - 1].value
                for draft in (c.loose, c.pending, *c.drafts[-1:]):
                    draft.extras = [extra for extra in draft.extras if extra != one]
            self.found.unnoted.append(" ".join(word.text for word in turn[first : mention.last]))
            return  # "less sugar", "oat or soy milk"
        if c.drafts and (some := self._for_some(following, turn, mention.last)):
            c.base = self.split(c.drafts, c.base, Draft((), count=some))
            c.read = following[0].first
        item_next = self.item_follows(following, turn, mention.last)
        glued = item_next and not (
            following and {w.fold for w in turn[mention.last : following[0].first]} - {"and", "&", "-"}
        )
        if glued and following[0].kind == "extra":
            glued = self._glued(mentions, at, turn)
        joined = [word.fold for word in turn[mention.last : mention.last + 2]] == ["and", "the"]
        own = bool(c.drafts) and between == ["with"] and joined  # "the latte with oat milk and the tea with lemon"
        onto = not own and self._onto(following, turn, mention.last)
        if onto and self._supports(following, mention):
            target = c.pending
            c.pending.definite = True
        elif (glued and (not c.drafts or not (set(between) & {"with", "plus"})) and self._supports(following, mention)):
            target = c.pending
            c.pending.definite = c.pending.definite or bool(DEFINITE & set(between[-2:]))
            c.pending.more = c.pending.more or "another" in between
        elif c.drafts:
            target = c.last
        (target.without if c.negative else target.extras).extend(mention.values[:1])

    def _end(self, c: _Clause) -> None:
        """What only the end of the clause tells."""
        turn, mentions = c.turn, c.mentions
        last = next((word.fold for word in reversed(turn) if word.fold.isalpha()), "")
        if len(c.drafts) > 1 and last == "without" and not c.last.extras and c.last.values == c.drafts[-2].values:
            c.last.without = list(c.drafts[-2].extras)  # "one with lemon and one without"
        if (times := _TIMES.search(folded(self.text))) and not any(draft.counted for draft in c.drafts):
            for draft in c.drafts:
                draft.count, draft.counted = {"twice": 2, "three": 3, "four": 4}[times[1]], True
        if c.drafts and c.pending.counted and _BARE.search(turn[-1].fold if turn[-1].fold.isalpha() else turn[-2].fold):
            if c.last.counted and c.last.count > c.pending.count:
                c.last.count -= c.pending.count
            c.drafts.append(c.like_last())
            c.last.without = list(c.drafts[-2].extras) if last == "without" else []
        elif c.pending.counted or c.pending.size or c.pending.extras:
            if not c.drafts:
                if c.pending.counted:
                    c.loose.count, c.loose.counted = c.pending.count, True
                c.loose.size = c.loose.size or c.pending.size
                c.loose.extras += c.pending.extras
                c.loose.without += c.pending.without
        if len(c.drafts) > 1 and mentions[-1].kind == "size" and all(draft.definite for draft in c.drafts) and not any(
            draft.size or draft.extras for draft in c.drafts[:-1]
        ):  # "the latte and the cappuccino large"
            c.loose.size = c.loose.size or c.last.size
        for draft in c.drafts:
            draft.size = draft.size or c.loose.size  # "half day for the pad", "two adults and a kid for half a day"
            if draft.size:
                draft.size = self.size_for(draft.values, tuple(draft.size.split("|")))
            self.numbered_size(draft)

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
                return sized and not between - {"of"}  # "one cup and one bowl of soup"
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
                onto = set(between[:1]) & {"on", "onto", "in"} and {"a", "an"} & set(between)  # "an egg on a burger"
                return bool(onto or set(between) & DEFINITE) and not (
                    set(between) - DEFINITE - _PLACES - {"one", "and", "&", "large"} - ({"a", "an"} if onto else set())
                )  # fmt: skip
            if mention.kind not in ("extra", "size", "number") or set(between) - DEFINITE - _PLACES - {"and", "&", ","}:
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
            rest = [name for name in rest if sizes & set(self.sizes_of(name))] or rest
        held = [line.item for line in self.state.lines if line.item in rest]
        return tuple(dict.fromkeys(held)) if held else tuple(rest)

    def numbered_size(self, draft: Draft) -> None:
        """ "8 gyoza" of an item that is sold by 4 or eight pieces is one portion of 8."""
        if draft.counted and draft.count > 1 and not draft.size:
            for size in self.sizes_of(draft.values[0]):
                if number(words(size)[0].fold) == draft.count:
                    draft.size, draft.count, draft.counted = size, 1, False

    def fit(self, draft: Draft, number: int) -> int:
        """How much of what a draft says line ``number`` has."""
        line = self.state.lines[number - 1]
        return 2 * (bool(draft.size) and line.size == draft.size) + sum(e in line.extras for e in draft.extras)

    def lines_of(self, draft: Draft) -> list[int]:
        """Numbers of the lines that a draft may speak of, the best first."""
        found = []
        for at, line in enumerate(self.state.lines, 1):
            if line.item in draft.values:
                found.append((-self.fit(draft, at), at))
        if not found and draft.definite:  # "the bun" is the cinnamon bun that was ordered, whatever else a bun may be
            stems = {word.stem for word in words(draft.text)}
            found = [
                (0, at) for at, line in enumerate(self.state.lines, 1)
                if stems and stems <= {word.stem for word in words(line.item)}
            ]  # fmt: skip
        return [at for _, at in sorted(found)]
