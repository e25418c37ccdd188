"""What is said of lines that are there, or of none by name: sizes, extras, "it", "one more", "the large one"."""

from __future__ import annotations

import re
from dataclasses import astuple, replace

from edge.kiosk.drafts import DEFINITE, Draft, Drafts
from edge.kiosk.mentions import Mention
from edge.kiosk.operations import DENY, MAX_COUNT, Add, Cancel, Change, Remove
from edge.kiosk.phrases import phrases
from edge.kiosk.words import NUMBERS, Word, folded, words
from edge.kiosk.words import number as number_word

#: "no, oat milk" and "I meant oat milk"
NO_I_MEAN = re.compile(
    r"^(?:(?:oh|ah|wait|um|oops|sorry|hang on)[, ]+)*"
    r"(?:no[, ]+(?![, ]*(?:more|thanks?|and)\b)|(?:sorry[, ]+)?i (?:meant|mean|said|say) )"
    r"(?!.*\b(?:also|too|as well|add|more|another)\b)"
)
_SWAP = re.compile(r"\b(?:swap|replace|change|switch|exchange|substitute)\b")
#: one thing is there, and goes
_CANCEL_IT = re.compile(
    r"^(?:(?:and|oh|no|ok|please|actually|sorry|tbh|you know what|hm+|well|right),? )*"
    r"(?:cancel|forget|delete|remove|scrap) (?:it|that|this)\b"
)
_ONCE_MORE = re.compile(
    r"\b(?:another|one more|(?:the )?same again|again|a (?:second|third|fourth|fifth) one|same for (?:my )?\w+)\b"
)
_EVERY_ONE = re.compile(r"\b(?:both|all|each|everything|anything|every|either|any)\b|\b(?<!of )(?:them|those)\b")
#: what is added behind a comma: "both without, he's being silly"
_CLAUSE_END = re.compile(r",[^,]*$")
#: what stands before a count that corrects another: "no wait, two"
_HESITANT = re.compile(r"^(?:(?:no|nope|nah|wait|hang on|hold on|sorry|oops|oh|um|it'?s)\b[, ]*)+")
#: "one of the strawberry ones should be mint"
_BECOMES = re.compile(
    r"\b(?:change|swap|switch|make|turn)\b.*\b(?:to|for|with|into)\b|\b(?:should|must|can|could) be\b"
)
#: "can you make that caramel", where it was vanilla syrup
_MADE = re.compile(r"(?:(?:oh|ok|actually|please|sorry|can you|could you|let's),? )*make (?:it|that|mine) (?!with\b)")
#: what is named beside what is taken away stays
_KEEPS = re.compile(r"\b(?:instead|and|with|just|only)\b")
_NOTHING_IN = re.compile(r"\b(?:both|them|all) without\W*$|\bwithout (?:it|that)\b|^without(?: please)?$")
_USUAL = re.compile(r"\b(?:regular|normal|ordinary|usual|standard|plain|cow'?s) (\w+)\b")
_ALL_OF_THEM = re.compile(
    r"\b(?:both|all) (?:of )?(?:them|those|these|that)\b"
    r"|\b(?:take|cancel|remove|drop|scrap|forget|delete) (?:both|all)\b"
)
#: extras of which a line has one
_DEGREES = frozenset({"mild", "medium", "spicy", "hot", "extra hot", "extra spicy"})


def _instead(one: str, other: str) -> bool:
    """Whether one extra takes the place of the other."""
    degrees = {folded(one), folded(other)} <= _DEGREES
    return one != other and (degrees or folded(one).endswith(" milk") and folded(other).endswith(" milk"))


class Details(Drafts):
    """Changes of lines of the order."""

    def joined(self, item: str) -> int:
        """Of the last line, how many a clause before this one has added to those of an earlier turn; else 0."""
        added = self.found.operations[-1] if self.found.operations else None
        if not isinstance(added, Add) or added.item != item or not 1 <= self.last <= len(self.state.lines):
            return 0
        return added.count if added.count < self.state.lines[self.last - 1].count else 0

    def change(self, number: int, draft: Draft, count: int = 0, item: str = "") -> Change:
        """The change of a line that a draft describes, held to what the item offers."""
        known = self.house.item(item or self.state.lines[number - 1].item)
        offered = known.extras if known else ()
        self.unoffered(draft, offered)
        size = self.size_for((known.name,), tuple(draft.size.split("|"))) if known and draft.size else ""
        extras = tuple(extra for extra in dict.fromkeys(draft.extras) if extra in offered)
        without = tuple(extra for extra in dict.fromkeys(draft.without) if extra in offered and extra not in extras)
        if not item and len(extras) == 1:  # "mild" where it was spicy, another milk
            held = self.state.lines[number - 1].extras
            without += tuple(e for e in held if _instead(e, extras[0]) and e not in (*extras, *without))
        return Change(number, count, size, item, extras, without)

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

    def like(self, draft: Draft) -> list[int]:
        """Of the lines, those whose item shares a word with that of a draft."""
        stems = {word.stem for value in draft.values[:1] for word in words(value)}
        return [n for n, line in enumerate(self.state.lines, 1) if stems & {word.stem for word in words(line.item)}]

    def detail(self, low: str, loose: Draft, turn: list[Word], mentions: list[Mention], removing: bool) -> bool:
        """A size, a number or an extra without an item: of the line that lacks it, or the last one."""
        if not self.state.lines:
            return False
        lines = list(range(1, len(self.state.lines) + 1))
        if number := self.ordinal(low):  # "no egg on the second one"
            self.last, lines = number, [number]
        elif chosen := self.described(turn, mentions, removing):
            number, rest = chosen
            if removing and all(mention.kind == "number" for mention in rest):
                return self.emit(Remove(number, int(rest[0].value) if rest else 0))
            drafts, loose = self.drafts(turn, rest)
            self.last, lines, said, mentions = number, [number], mentions, rest
            line = self.state.lines[number - 1]
            if (
                loose.extras
                and not loose.without
                and _BECOMES.search(low)
            ):
                spoken = {m.value for m in said if m.kind == "extra" and m not in rest}
                loose.without = [
                    e for e in line.extras
                    if (e in spoken or e.split()[-1] == loose.extras[0].split()[-1]) and e not in loose.extras
                ]  # fmt: skip
        named_sizes = [mention for mention in mentions if mention.kind == "size"]
        unsized = [n for n in lines if not self.state.lines[n - 1].size and self._sizes(self.state.lines[n - 1].item)]
        if len(named_sizes) > 1 and unsized and all(m.kind in ("size", "number") for m in mentions):
            parts = [Draft((), size="|".join(mention.values)) for mention in named_sizes]
            for part, at in zip(parts, [mentions.index(mention) for mention in named_sizes]):
                if at and mentions[at - 1].kind == "number":
                    part.count, part.counted = int(mentions[at - 1].value), True
            if len(parts) == len(unsized) and not any(part.counted for part in parts):
                found = [self.change(n, part) for n, part in zip(unsized, parts)]
                if all(each.size for each in found):  # "small and large", in the order of the lines
                    return all(self.emit(each) for each in found)
            n = unsized[0]
            whole = sum(part.count for part in parts) == self.state.lines[n - 1].count
            if len(unsized) == 1 and whole and all(self.change(n, part).size for part in parts):
                for part in parts[1:]:  # "one small and two large"
                    self.divide(n, part.count, part)
                return self.emit(self.change(n, parts[0]))
        if self.portioned(turn, mentions):
            return True
        again = re.search(r"(?<!just two )(?<!both )(?<!all )\bthe same\b", low) or (loose.counted and loose.more)
        if again and (loose.extras or loose.without or loose.size):
            number = min(self.last, len(self.state.lines)) or len(self.state.lines)
            line = self.state.lines[number - 1]
            more = self.change(number, loose)  # "the same but without cheese", "two more with butter"
            kept = tuple(dict.fromkeys(e for e in (*line.extras, *more.extras) if e not in more.without))
            refused = (*line.without, *(e for e in more.without if e not in line.extras))
            count = loose.count if loose.counted else 1
            return self.emit(
                Add(line.item, count, more.size or line.size, kept, tuple(e for e in refused if e not in more.extras)))
        if not loose.extras and self.as_usual(low):
            return True
        every = bool(_EVERY_ONE.search(low))
        if removing or loose.without:
            gone = list(dict.fromkeys([*loose.without, *(loose.extras if removing and not loose.without else [])]))
            if removing and loose.without and loose.extras and not _KEEPS.search(low):
                gone += loose.extras
            keep = [extra for extra in loose.extras if extra not in gone]
            having = [n for n in lines if set(gone) & set(self.state.lines[n - 1].extras)]
            can = [
                n
                for n in lines
                if (item := self.house.item(self.state.lines[n - 1].item)) and set(gone) & set(item.extras)
            ]
            targets = having or (can if every else can[-1:])
            if not every and len(having) > 1:
                targets = [self.last] if self.last in having else having[-1:]
            less = replace(loose, extras=keep, without=gone)
            if targets == [self.last] and (added := self.joined(self.state.lines[self.last - 1].item)):
                return self.divide(self.last, added, less, new=True)  # "another one but no cheese on that"
            if loose.counted and not every and targets and loose.count < self.state.lines[targets[-1] - 1].count:
                return self.divide(targets[-1], loose.count, less)  # "one without lemon"
            done = False
            for n in sorted(targets, reverse=True):
                done = self.emit(self.change(n, less)) or done
            return done
        if len(loose.extras) == 2 and _SWAP.search(low):  # "swap the soy for oat"
            old, new = loose.extras
            having = [n for n in lines if {old, new} & set(self.state.lines[n - 1].extras)]
            if not having:
                return False
            if old not in self.state.lines[having[-1] - 1].extras:
                old, new = new, old
            return self.emit(self.change(having[-1], replace(loose, extras=[new], without=[old])))
        if loose.extras and self.recounted(low, turn, mentions):
            return True
        if loose.extras:
            swapped = re.search(r"\b(?:instead of|rather than|not)\b", low)
            if swapped and len(loose.extras) > 1:
                extras = [mention for mention in mentions if mention.kind == "extra"]
                gone = [m.value for m in extras if turn[m.first].start > swapped.start()]
                loose = replace(loose, extras=[e for e in loose.extras if e not in gone], without=gone)
            can = [
                n
                for n in lines
                if (item := self.house.item(self.state.lines[n - 1].item)) and set(loose.extras) & set(item.extras)
            ]
            if not can:
                return False
            targets = can if every else [self.last if self.last in can else can[-1]]
            lacking = [n for n in can if not set(loose.extras) <= set(self.state.lines[n - 1].extras)]
            if len(lacking) == 1 and re.search(r"\bthe others?\b", low):
                targets = lacking  # "oat milk in the other one, too"
            line = self.state.lines[targets[-1] - 1]
            corrected = bool(NO_I_MEAN.search(low))  # "no wait, oat milk"
            instead = re.search(r"\binstead\b(?! of)", low) or _SWAP.search(low)
            swap = (corrected or instead) and not loose.without and len(loose.extras) == 1
            first = self.found.operations[-1] if self.found.operations else None
            meant: list[str] = []
            if corrected and isinstance(first, Add) and first.extras and self.last > len(self.before.lines):
                swap, meant = False, [e for e in first.extras[-1:] if e not in loose.extras]  # "pork no wait beef"
            fresh = loose.counted and isinstance(first, Add) and first.item == line.item and loose.count >= line.count
            if fresh and re.match(rf"(?:and |,)*(?:{'|'.join(NUMBERS)}|\d+)\b", low):  # "One w/ ham. One w/ cheese"
                return self.emit(Add(line.item, loose.count, line.size, tuple(loose.extras), tuple(loose.without)))
            if loose.counted and (not every or "one of" in low) and loose.count < line.count:
                return self.divide(targets[-1], loose.count, loose)
            if targets == [self.last] and not swap and (added := self.joined(line.item)):
                return self.divide(self.last, added, loose, new=True)  # "another one, with cheese on that"
            alike_all = every and re.search(r"\bbe\b", low)  # "can all three be vanilla": like the one that is
            model = next((self.state.lines[n - 1] for n in targets
                          if alike_all and {*loose.extras} <= {*self.state.lines[n - 1].extras}), None)  # fmt: skip
            done = False
            for n in sorted(targets, reverse=True):
                held = self.state.lines[n - 1].extras
                if model and model.item == self.state.lines[n - 1].item:
                    done = self.emit(self.change(n, replace(loose, without=[e for e in held if e not in model.extras])))
                    continue
                alike = [e for e in held if e.split()[-1] == loose.extras[0].split()[-1]]
                if swap and not alike and (not corrected or n > len(self.before.lines)):
                    alike = list(held)  # "soy instead", "vanilla, no, strawberry"
                gone = [*loose.without, *(e for e in meant if e in held)]
                if (swap or _MADE.match(low)) and len(alike) == 1:
                    gone = alike
                dropped = [e for e in gone if e not in loose.extras]
                done = self.emit(self.change(n, replace(loose, without=dropped))) or done
            return done
        if loose.size:
            sizes = tuple(loose.size.split("|"))
            can = [n for n in lines if set(sizes) & set(self._sizes(self.state.lines[n - 1].item))]
            if not can:
                return False
            sized = [n for n in can if self.state.lines[n - 1].size in sizes]
            if loose.counted and sized and re.search(r"\b(?:only|just)\b", low):
                return self.emit(Change(sized[-1], loose.count))  # "only one in 33"
            unsized = [n for n in can if not self.state.lines[n - 1].size]
            targets = (
                (can if not unsized else unsized)
                if every
                else (unsized[:1] or [self.last if self.last in can else can[-1]])
            )
            line = self.state.lines[targets[-1] - 1]
            if loose.counted and loose.count < line.count and (not every or "one of" in low):
                return self.divide(targets[-1], loose.count, loose)
            done = False
            for n in sorted(targets, reverse=True):  # lines that become alike are joined
                done = self.emit(self.change(n, replace(loose, size=loose.size))) or done
            return done
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

    def described(
        self, turn: list[Word], mentions: list[Mention], removing: bool
    ) -> tuple[int, list[Mention]] | None:
        """The line that "the large one" or "the one with soy" is, and what else is mentioned."""
        plain = [number for number, line in enumerate(self.state.lines, 1) if not line.extras]
        if plain and re.search(r"\bthe (?:plain|ordinary|normal) ones?\b", folded(self.text)):
            return plain[-1], mentions
        for at, mention in enumerate(mentions):
            after = turn[mention.last].fold if mention.last < len(turn) else ""
            before = [word.fold for word in turn[max(0, mention.first - 3) : mention.first]]
            of_size = [number for number, line in enumerate(self.state.lines, 1) if line.size in mention.values]
            rest = mentions[:at] + mentions[at + 1 :]
            if mention.kind == "size" and before[-1:] == ["the"] and of_size and (
                removing or any(m.kind != "number" for m in rest)
            ):
                return of_size[-1], rest  # "lemon in the cup", "the 39 should be a 38", "one of the mediums"
            if mention.kind == "extra" and before[-2:-1] == ["of"] and number_word(before[0]):  # "one of the vanillas"
                for number, line in enumerate(self.state.lines, 1):
                    if mention.value in line.extras:
                        return number, rest
            if (
                (after in ("one", "ones") and set(before[-2:]) & DEFINITE)
                or before[-2:] == ["one", "with"]
                and "the" in before
            ):
                for number, line in enumerate(self.state.lines, 1):
                    if {line.size, *line.extras} & set(mention.values):
                        return number, [m for m in rest if m.kind != "number"]
        return None

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
            if one.size not in self._sizes(two.item) or two.size not in self._sizes(one.item):
                return False
            return self.emit(Change(first, size=two.size)) and self.emit(Change(second, size=one.size))
        if "size" in low and not alike or one.count == two.count and alike:
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

    def ordinal(self, low: str) -> int:
        """The line that "the second one" is; 0 where none is meant."""
        found = re.search(r"\b(?:the|my) (first|second|third|fourth|last) (?:ones?|of them)\b", low)
        order = ["first", "second", "third", "fourth"]
        number = 0 if not found else order.index(found[1]) + 1 if found[1] in order else len(self.state.lines)
        return number if number <= len(self.state.lines) else 0

    def pronoun(self, low: str, mentions: list[Mention]) -> bool:
        """ "make it two", "another one", "cancel that": about the last line."""
        if not self.state.lines:
            alone = list(self.state.bookings) if len(self.state.bookings) == 1 else []
            if alone and _CANCEL_IT.search(low):
                return self.emit(Cancel(alone[0]))
            return False
        if self.as_usual(low):
            return True
        number = self.last if 1 <= self.last <= len(self.state.lines) else len(self.state.lines)
        number = self.ordinal(low) or number
        numbers = [int(mention.value) for mention in mentions if mention.kind == "number"]
        plain = [n for n, line in enumerate(self.state.lines, 1) if not line.extras]
        if plain and re.search(r"\bplain\b", low):
            number = plain[-1]
        line = self.state.lines[number - 1]
        if re.search(r"\bdouble (?:it|that|those|them|the order)\b", low):
            return self.emit(Change(number, min(2 * line.count, MAX_COUNT)))
        if re.search(r"\bone (?:(?:less|fewer) of each|of each (?:less|fewer))\b", low):
            return all(self.emit(Remove(each, 1)) for each in range(len(self.state.lines), 0, -1))
        if found := re.search(r"\b(\w+) (?:less|fewer)\b", low):
            return self.emit(Remove(number, NUMBERS.get(found[1], 1)))
        taken = any(
            isinstance(each, Remove) or (isinstance(each, Change) and each.without) for each in self.found.operations
        )
        if taken and phrases("remove").search(low) and re.search(r"\b(?:it|that|them|those)\b", low):
            return True  # "no bacon, take it off"
        spoken = self.found.operations[-1] if self.found.operations else None
        if phrases("remove").search(low) and isinstance(spoken, Change) and spoken.extras:
            return self.emit(Change(spoken.line, without=spoken.extras))  # "found my socks! Take them off"
        if phrases("remove").search(low) and _ALL_OF_THEM.search(low):
            for each in range(len(self.state.lines), 0 if "all" in low else max(0, len(self.state.lines) - 2), -1):
                self.emit(Remove(each))
            return True
        enough = re.search(r"\b(?:will do|(?:is|are) (?:enough|plenty))\b", low)  # "that's too many, four will do"
        it = re.search(r"\b(?:that|it|this|them|em|those|last|one|never ?mind)\b", low)
        if (ending := re.search(r"\bthe last (two|three)\b", low)) and phrases("remove").search(low):
            count = min(NUMBERS[ending[1]], len(self.state.lines))
            return all(self.emit(Remove(len(self.state.lines))) for _ in range(count))
        some = numbers and re.search(r"\b(?:take|remove|drop|cancel|lose|delete|scrap)\b", low)
        if not enough and phrases("remove").search(low) and (it or some):
            if re.fullmatch(r"(?:oh |ah |ok |okay |no,? |actually,? )*never ?mind(?: that| it)?", low):
                return self.emit(DENY)
            single = re.search(r"\b(?:one of|of one$|one$|one plain|take one (?:off|away|out|back))\b", low)
            if single and not re.search(r"\b(?:that|this|last) one\b", low) and not self.ordinal(low):
                return self.emit(Remove(number, 1))
            return self.emit(Remove(number, numbers[0] if numbers else 0))  # "drop two of them"
        own = re.sub(r"\bfor (?:my|our|the|his|her) \w+|\bfor (?:me|him|her|us|them)\b", "", low)
        if numbers and re.search(r"\w again\b", low) and not re.search(r"\b(?:same|more|another)\b", low):
            return self.emit(Change(number, min(numbers[0], MAX_COUNT)))  # "three again"
        bare = _NOTHING_IN.search(_CLAUSE_END.sub("", low))
        if bare and (with_extras := [n for n, each in enumerate(self.state.lines, 1) if each.extras]):
            return self.emit(Change(with_extras[-1], without=self.state.lines[with_extras[-1] - 1].extras))
        if _ONCE_MORE.search(low) and len(own.split()) < 8:
            if re.search(r"\bsame\b", low) and not re.search(r"\b(?:one|another)\b", low) and not numbers:
                same_again = [Add(*astuple(each)) for each in self.state.lines]
                return all(list(map(self.emit, same_again)))
            return self.emit(
                Add(line.item, numbers[0] if numbers and numbers[0] > 1 else 1, line.size, line.extras, line.without)
            )
        if numbers and re.search(r"\bmore\b", low) and len(low.split()) < 8:
            return self.emit(Add(line.item, min(numbers[0], MAX_COUNT), line.size, line.extras, line.without))
        only = _HESITANT.sub("", low)
        if numbers and 0 < numbers[0] <= MAX_COUNT and (
            phrases("count").search(low)
            or len([w for w in phrases("filler").sub(" ", only).split() if number_word(w) is None]) == 0
        ):  # fmt: skip
            return self.emit(Change(number, numbers[-1] if re.search(r"\bso \w+\W*$", low) else numbers[0]))
        return False
