"""What is said of lines that are there, or of none by name: sizes, extras, "it", "one more", "the large one"."""

from __future__ import annotations

import re
from dataclasses import astuple, replace

from edge.kiosk.changes import Changes
from edge.kiosk.drafts import DEFINITE, Draft
from edge.kiosk.mentions import Mention
from edge.kiosk.operations import DENY, MAX_COUNT, UNKNOWN, Add, Cancel, Change, Remove
from edge.kiosk.phrases import phrases
from edge.kiosk.unlisted import sized_thing
from edge.kiosk.words import NUMBERS, Word, folded, words
from edge.kiosk.words import number as number_word

#: "no, oat milk" and "I meant oat milk"
NO_I_MEAN = re.compile(
    r"^(?:(?:oh|ah|ugh|argh|er|hm+|wait|um|oops|sorry|hang on)[, ]+)*"
    r"(?:no[, ]+(?![, ]*(?:more|thanks?|and)\b)|(?:sorry[, ]+)?i (?:meant|mean|said|say) )"
    r"(?!.*\b(?:also|too|as well|add|more|another|still)\b)"
)
_SWAP = re.compile(r"\b(?:swap|replace|change|switch|exchange|substitute)\b")
#: one thing is there, and goes
_CANCEL_IT = re.compile(
    r"^(?:(?:and|oh|no|ok|please|actually|sorry|tbh|you know what|hm+|well|right),? )*"
    r"(?:cancel|forget|delete|remove|scrap) (?:it|that|this)\b"
)
_ONCE_MORE = re.compile(
    r"\b(?:another|one more|(?:the )?same again|again|a (?:second|third|fourth|fifth) one|same for (?:my )?\w+"
    r"|(?:gets|takes|wants|has|have|take|get|want|like) one (?:too|as well|also))\b"
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
#: "mine with soy milk", "oat milk in his": one of several
_OWN = re.compile(
    r"^(?:(?:and|oh|ok|so|well|no|sorry|actually|but)[, ]+)*(?:mine|his|hers)\b|\b(?:in|on) (?:mine|his|hers)\W*$"
)
#: what one of the guests wants, who may have any of the lines
_HIS = re.compile(
    r"(?:(?:oh|no|sorry|and|ok|wait|actually)[, ]+)*(?:he|she|my \w+) (?:wants|wanted|would like|needs|has)\b"
)
#: "one for my friend without cream", where there is one
_FOR_FRIEND = re.compile(r"(?:and |also |oh )*(?:one|two) for (?:my \w+|him|her)\b")
_HAS_THE = re.compile(r"(?:(?:and|so|well|oh),? )*(?:he|she|i|we|they|my \w+)(?:'s| has| have|'ve| takes?| gets?) ")
#: what tells of a size or an extra, and wants nothing: "she hates purple"
_DISLIKES = re.compile(r"\b(?:hates?|hated|loathes?|can'?t stand|detests?)\b")
#: "my husband wants a red one too"
_ONE_TOO = re.compile(r"\ban? (?:[\w']+ )+one (?:too|as well)\b|^(?:and|also|plus) an? (?:[\w']+ )+one\b(?! of\b)")
#: "can you just add a large one"
_ADD_ONE = re.compile(r"\badd (?:an?|one|another) (?!.*\b(?:to|on|in|with)\b)")
#: "not the pink one after all", "and no purple ones"
_NOT_THE_ONE = re.compile(
    r"(?:(?:and|oh|ok|but|no|sorry|wait|actually)[, ]+)*(?:not (?:the|that|my)|no(?! the\b)) (?:[\w']+ )+ones?\b"
)
_ONLY_SOME = re.compile(rf"\b(?:only|just) (\d+|{'|'.join(NUMBERS)})\b")
MAKE = re.compile(r"\bmake (?:it|that|them)\b")
_OTHERS = re.compile(r"\bthe (?:others|rest|other ones)\b")
#: what is named beside what is taken away stays
_KEEPS = re.compile(r"\b(?:instead|and|with|just|only)\b")
_AGE = re.compile(
    rf"\b(?:he|she|my \w+)(?:'s| is| was|'ll be) (?:only |just |nearly |almost |about )?(?:\d+|{'|'.join(NUMBERS)})\b"
)
_NOTHING_IN = re.compile(r"\b(?:both|them|all) without\W*$|\bwithout (?:it|that)\b|^without(?: please)?$")
_ALL_OF_THEM = re.compile(
    r"\b(?:both|all) (?:of )?(?:them|those|these|that)\b"
    r"|\b(?:take|cancel|remove|drop|scrap|forget|delete) (?:both|all)\b"
)


class Details(Changes):
    """Changes of lines of the order."""

    def like(self, draft: Draft) -> list[int]:
        """Of the lines, those whose item shares a word with that of a draft."""
        stems = {word.stem for value in draft.values[:1] for word in words(value)}
        return [n for n, line in enumerate(self.state.lines, 1) if stems & {word.stem for word in words(line.item)}]

    def detail(self, low: str, loose: Draft, turn: list[Word], mentions: list[Mention], removing: bool) -> bool:
        """A size, a number or an extra without an item: of the line that lacks it, or the last one."""
        if not self.state.lines:
            return False
        if self.told_of_each(turn, mentions):
            return True
        held = {line.size for line in self.state.lines}
        if _HAS_THE.match(low) and mentions and all(
            m.kind == "size" and turn[m.first - 1].fold == "the" and held & {*m.values} for m in mentions
        ):  # fmt: skip
            return True  # "he has the bowl, I have the cup"
        hates = _DISLIKES.search(low)
        if hates and not removing and all(turn[mention.first].start > hates.start() for mention in mentions):
            return True
        lines = list(range(1, len(self.state.lines) + 1))
        removing = removing or bool(re.search(r"\bfrom (?:the|my|it|that|them)\b", low))
        if _OTHERS.search(low) and len(lines) > 2 and not loose.counted:
            return self.doubted(low)
        named = [mention for mention in mentions if mention.kind != "number"]
        if _NOT_THE_ONE.match(low) and [mention.kind for mention in named] == ["size"]:
            alike = [n for n in lines if self.state.lines[n - 1].size in named[0].values]
            return self.emit(Remove(alike[0])) if len(alike) == 1 else self.doubted(low)
        chosen = None
        if number := self.ordinal(low):  # "no egg on the second one"
            self.last, lines = number, [number]
            if self.state.lines[number - 1].count > 1 and not loose.counted and "ones" not in low:
                loose.count, loose.counted = 1, True
        elif chosen := self.described(turn, mentions, removing):
            number, rest = chosen
            if removing and all(mention.kind == "number" for mention in rest):
                spoken = {value for mention in mentions if mention not in rest for value in mention.values}
                alike = [n for n in lines if spoken & {self.state.lines[n - 1].size, *self.state.lines[n - 1].extras}]
                if len(alike) > 1:  # "the large one" where there are several
                    return self.doubted(low)
                return self.emit(Remove(number, int(rest[0].value) if rest else 0))
            if rest and all(mention.kind == "number" for mention in rest) and MAKE.search(low):
                return self.emit(Change(number, int(rest[0].value)))
            _, loose = self.drafts(turn, rest)
            self.last, lines, said, mentions = number, [number], mentions, rest
            if loose.extras and not loose.without and _BECOMES.search(low):
                spoken = {m.value for m in said if m.kind == "extra" and m not in rest}
                loose.without = [
                    e for e in self.state.lines[number - 1].extras
                    if (e in spoken or e.split()[-1] == loose.extras[0].split()[-1]) and e not in loose.extras
                ]  # fmt: skip
        if self.sizes_listed(low, lines, mentions) or self.portioned(turn, mentions):
            return True
        if thing := sized_thing(turn, mentions):
            if not self.found.unclear:
                self.found.missed.append(thing)  # "a small hot milk"
            return True
        if [mention.kind for mention in mentions].count("size") > 1 and loose.counted and not chosen:
            return self.doubted(low)  # "2 large and 1 small", where there are others
        if removing and loose.size and not (loose.extras or loose.without):
            sizes = set(loose.size.split("|"))
            alike = [n for n in lines if self.state.lines[n - 1].size in sizes]
            if len(alike) != 1:
                return self.doubted(low) if alike else False
            return self.emit(Remove(alike[0], loose.count))  # "remove a large one", "one bowl too many"
        again = re.search(r"(?<!just two )(?<!both )(?<!all )\bthe same\b", low) or (loose.counted and loose.more)
        again = again or bool(re.match(r"(?:and |also |oh |, )*another\b", low)) and not loose.without
        if loose.size and (_ADD_ONE.search(low) or _ONE_TOO.search(low)) and self.another(loose):
            return True
        again = again or bool(_FOR_FRIEND.match(low)) and all(line.count == 1 for line in self.state.lines)
        if again and (loose.extras or loose.without or loose.size):
            return self.same_but(loose)
        if not loose.extras and self.as_usual(low):
            return True
        every = bool(_EVERY_ONE.search(low))
        if removing or loose.without:
            return self.without_extras(low, loose, lines, removing, every)
        if len(loose.extras) == 2 and _SWAP.search(low):  # "swap the soy for oat"
            old, new = loose.extras
            having = [n for n in lines if {old, new} & set(self.state.lines[n - 1].extras)]
            if not having:
                return False
            if old not in self.state.lines[having[-1] - 1].extras:
                old, new = new, old
            return self.emit(self.change(having[-1], replace(loose, extras=[new], without=[old])))
        if loose.extras:
            return self.recounted(low, turn, mentions) or self.with_extras(low, loose, lines, turn, mentions, every)
        return bool(loose.size) and self.resized(low, loose, lines, every) or bool(self.found.unnoted)

    def doubted(self, low: str) -> bool:
        """Say that it was not noted, where it is unclear which line is meant."""
        self.found.unnoted.append(low)
        return True

    def told_of_each(self, turn: list[Word], mentions: list[Mention]) -> bool:
        """ "The large one with soy and the small one with oat": each of the lines of these sizes gets its own."""
        pairs = list(zip(mentions[::2], mentions[1::2]))
        if len(pairs) < 2 or len(mentions) % 2 or any((a.kind, b.kind) != ("size", "extra") for a, b in pairs):
            return False
        sized = [[n for n, line in enumerate(self.state.lines, 1) if line.size in size.values] for size, _ in pairs]
        if any(len(each) != 1 or turn[a.first - 1].fold != "the" for each, (a, _) in zip(sized, pairs)):
            return False
        return all(self.emit(self.change(n, Draft((), extras=[e.value]))) for (n,), (_, e) in zip(sized, pairs))

    def sizes_listed(self, low: str, lines: list[int], mentions: list[Mention]) -> bool:
        """ "Small and large", "one small and two large", "half small, half large": the sizes of lines that lack one, or
        of parts of one line; with "actually" and the like, of a line that has one.
        """
        sizes = [mention for mention in mentions if mention.kind == "size"]
        unsized = [n for n in lines if not self.state.lines[n - 1].size and self.sizes_of(self.state.lines[n - 1].item)]
        if phrases("correct").search(low) and len(sizes) > 1:
            unsized = unsized or [n for n in lines if all(
                self.size_for((self.state.lines[n - 1].item,), mention.values) for mention in sizes)]  # fmt: skip
        if len(sizes) < 2 or not unsized or not all(m.kind in ("size", "number") for m in mentions):
            return False
        parts = [Draft((), size="|".join(mention.values)) for mention in sizes]
        for part, at in zip(parts, [mentions.index(mention) for mention in sizes]):
            if at and mentions[at - 1].kind == "number":
                part.count, part.counted = int(mentions[at - 1].value), True
        half, odd = divmod(self.state.lines[unsized[0] - 1].count, 2)
        if re.fullmatch(r"half \w.*\bhalf \w.*", low) and len(parts) == 2 and not odd:
            for part in parts:
                part.count, part.counted = half, True
        if len(parts) == len(unsized) and not any(part.counted for part in parts):
            found = [self.change(n, part) for n, part in zip(unsized, parts)]
            if all(each.size for each in found):  # in the order of the lines
                return all(self.emit(each) for each in found)
        n = unsized[0]
        whole = sum(part.count for part in parts) == self.state.lines[n - 1].count
        if len(unsized) > 1 or not whole or not all(self.change(n, part).size for part in parts):
            return False
        size = self.state.lines[n - 1].size
        parts.sort(key=lambda part: size not in part.size.split("|"))  # what stays as it is, first
        for part in parts[1:]:
            self.divide(n, part.count, part)
        return self.emit(self.change(n, parts[0]))

    def same_but(self, loose: Draft) -> bool:
        """ "The same but without cheese", "two more with butter": the last line again, with what is different."""
        number = min(self.last, len(self.state.lines)) or len(self.state.lines)
        line, more = self.state.lines[number - 1], self.change(number, loose)
        kept = tuple(dict.fromkeys(e for e in (*line.extras, *more.extras) if e not in more.without))
        refused = (*line.without, *(e for e in more.without if e not in line.extras))
        without = tuple(e for e in refused if e not in more.extras)
        return self.emit(Add(line.item, loose.count if loose.counted else 1, more.size or line.size, kept, without))

    def another(self, loose: Draft) -> bool:
        """ "And a medium one": one more of the item that was spoken of last and has that size."""
        sizes = tuple(loose.size.split("|"))
        fits = [line for line in self.state.lines if self.size_for((line.item,), sizes)]
        last = self.state.lines[self.last - 1] if 0 < self.last <= len(self.state.lines) else None
        line = last if last in fits else fits[-1] if fits else None
        item = self.house.item(line.item) if line else None
        if line is None or item is None or not line.size:
            return False
        extras, without = ([e for e in each if e in item.extras] for each in (loose.extras, loose.without))
        count = loose.count if loose.counted else 1
        return self.emit(Add(item.name, count, self.size_for((item.name,), sizes), tuple(extras), tuple(without)))

    def without_extras(self, low: str, loose: Draft, lines: list[int], removing: bool, every: bool) -> bool:
        """Take extras away: of all lines that have them, of the last one, or of some of it."""
        gone = list(dict.fromkeys([*loose.without, *(loose.extras if removing and not loose.without else [])]))
        if removing and loose.without and loose.extras and not _KEEPS.search(low):
            gone += loose.extras
        having = [n for n in lines if set(gone) & set(self.state.lines[n - 1].extras)]
        can = self.offering(gone, lines)
        targets = having or (can if every else can[-1:])
        if removing and not having and re.search(r"\b(?:remove|take|delete|drop|cancel)\b", low) and all(
            self.house.extras[extra].price for extra in gone
        ):  # what costs is in an item only where it was ordered
            self.found.absent += gone
            return True
        if not every and len(having) > 1 and not re.search(r"\b(?:remove|take|delete|drop)\b", low):
            targets = [self.last] if self.last in having else having[-1:]
        less = replace(loose, extras=[extra for extra in loose.extras if extra not in gone], without=gone)
        if targets == [self.last] and (added := self.joined(self.state.lines[self.last - 1].item)):
            return self.divide(self.last, added, less, new=True)  # "another one but no cheese on that"
        if loose.counted and not every and targets and loose.count < self.state.lines[targets[-1] - 1].count:
            return self.divide(targets[-1], loose.count, less)  # "one without lemon"
        return self.change_each(targets, less)

    def with_extras(
        self, low: str, loose: Draft, lines: list[int], turn: list[Word], mentions: list[Mention], every: bool
    ) -> bool:
        """Add extras, or put them in the place of others: to all lines, the last one, or some of it."""
        swapped = re.search(r"\b(?:instead of|rather than|not)\b", low)
        if swapped and len(loose.extras) > 1:
            extras = [mention for mention in mentions if mention.kind == "extra"]
            gone = [m.value for m in extras if turn[m.first].start > swapped.start()]
            loose = replace(loose, extras=[e for e in loose.extras if e not in gone], without=gone)
        can = self.offering(loose.extras, lines)
        if not can:
            return False
        targets = can if every else [self.last if self.last in can else can[-1]]
        lacking = [n for n in can if not set(loose.extras) <= set(self.state.lines[n - 1].extras)]
        if lacking and re.search(r"\bthe others?\b", low):  # "oat milk in the other one, too": the plainest
            targets = [max(lacking, key=lambda n: (-len(self.state.lines[n - 1].extras), n))]
        line = self.state.lines[targets[-1] - 1]
        corrected = bool(NO_I_MEAN.search(low))  # "no wait, oat milk"
        instead = re.search(r"\binstead\b(?! of)", low) or _SWAP.search(low)
        swap = (corrected or instead) and not loose.without and len(loose.extras) == 1
        first = self.found.operations[-1] if self.found.operations else None
        meant: list[str] = []
        if corrected and isinstance(first, Add) and first.extras and self.last > len(self.before.lines):
            swap, meant = False, [e for e in first.extras[-1:] if e not in loose.extras]  # "pork no wait beef"
        if own := _OWN.search(low):  # "mine with soy milk", "he wants oat milk in his": one of two
            loose = loose if loose.counted or every else replace(loose, count=1, counted=True)
            if lacking and not own[0].startswith("mine"):
                targets = [max(lacking, key=lambda n: (-len(self.state.lines[n - 1].extras), n))]
            line = self.state.lines[targets[-1] - 1]
        only = _ONLY_SOME.search(low)
        some = (number_word(only[1]) or 0) if only else 0
        if 0 < some < line.count and set(loose.extras) <= set(line.extras):
            rest = Draft((), without=loose.extras)
            return self.divide(targets[-1], line.count - some, rest)  # "only one of the two has oat milk"
        fresh = loose.counted and isinstance(first, Add) and first.item == line.item and loose.count >= line.count
        if fresh and re.match(rf"(?:and |,)*(?:{'|'.join(NUMBERS)}|\d+)\b", low):  # "One w/ ham. One w/ cheese"
            return self.emit(Add(line.item, loose.count, line.size, tuple(loose.extras), tuple(loose.without)))
        if loose.counted and (not every or "one of" in low) and loose.count < line.count:
            return self.divide(targets[-1], loose.count, loose)
        recount = re.search(rf"\bmake (?:it|that)\b|^(?:yes|yeah|ok|okay),? (?:\d+|{'|'.join(NUMBERS)}),", low)
        if loose.counted and loose.count > line.count and len(targets) == 1 and recount:
            return self.emit(self.change(targets[0], loose, loose.count))  # "make it two with oat milk"
        if targets == [self.last] and not swap and (added := self.joined(line.item)):
            return self.divide(self.last, added, loose, new=True)  # "another one, with cheese on that"
        alike_all = every and re.search(r"\bbe\b|^both (?!with\b)", low)  # "can all be vanilla": like the one that is
        model = next((self.state.lines[n - 1] for n in targets
                      if alike_all and {*loose.extras} <= {*self.state.lines[n - 1].extras}), None)  # fmt: skip
        done = False
        for n in sorted(targets, reverse=True):
            held = self.state.lines[n - 1].extras
            alike = [e for e in held if e.split()[-1] == loose.extras[0].split()[-1]]
            if swap and not alike and (not corrected or n > len(self.before.lines)):
                alike = list(held)  # "soy instead", "vanilla, no, strawberry"
            gone = [*loose.without, *(e for e in meant if e in held)]
            if model and model.item == self.state.lines[n - 1].item:
                gone = [e for e in held if e not in model.extras]
            elif (swap or _MADE.match(low)) and len(alike) == 1:
                gone = alike
            done = self.emit(self.change(n, replace(loose, without=[e for e in gone if e not in loose.extras]))) or done
        return done

    def resized(self, low: str, loose: Draft, lines: list[int], every: bool) -> bool:
        """Give a size to the line that lacks one, or another size to the last line, to all, or to some of it."""
        sizes = set(loose.size.split("|"))
        can = [n for n in lines if sizes & set(self.sizes_of(self.state.lines[n - 1].item))]
        if not can:
            return False
        sized = [n for n in can if self.state.lines[n - 1].size in sizes]
        other = re.search(r"\bthe others?\b", low)
        if other and not any(not self.state.lines[n - 1].size for n in can):
            others = [n for n in can if n != self.last]
            count = sum(self.state.lines[n - 1].count for n in others)
            if not others or loose.counted and loose.count != count or not loose.counted and len(others) > 1:
                return self.doubted(low)
            return self.change_each(others, loose)  # "and the other two small"
        if (_HIS.match(low) or _OWN.search(low)) and len({self.state.lines[n - 1].item for n in can}) > 1:
            return self.doubted(low)  # "he wants a small one": which is his?
        if loose.counted and sized and re.search(r"\b(?:only|just)\b", low):
            return self.emit(Change(sized[-1], loose.count))  # "only one in 33"
        unsized = [n for n in can if not self.state.lines[n - 1].size]
        targets = (unsized or can) if every else unsized[:1] or [self.last if self.last in can else can[-1]]
        if loose.counted and loose.count < self.state.lines[targets[-1] - 1].count and (not every or "one of" in low):
            return self.divide(targets[-1], loose.count, loose)
        if targets == [self.last] and not every and (added := self.joined(self.state.lines[self.last - 1].item)):
            return self.divide(self.last, added, loose, new=True)  # "the same again but large"
        return self.change_each(targets, loose)

    def described(self, turn: list[Word], mentions: list[Mention], removing: bool) -> tuple[int, list[Mention]] | None:
        """The line that "the large one" or "the one with soy" is, and what else is mentioned."""
        plain = [number for number, line in enumerate(self.state.lines, 1) if not line.extras]
        if plain and (found := re.search(r"\bthe (?:plain|ordinary|normal) (?:([\w']+) )?ones?\b", folded(self.text))):
            sized = [m for m in mentions if m.kind == "size" and turn[m.first].fold == found[1]]
            of_size = [n for n in plain if not sized or self.state.lines[n - 1].size in sized[0].values]
            if of_size and (sized or not found[1]):
                return of_size[-1], [mention for mention in mentions if mention not in sized]
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
            if before[-1:] == ["the"] and before[-3:-1] in (["one", "with"], ["ones", "with"]):
                before = ["the", *before[-3:-1]]  # "the one with the ribbon"
            if (
                (after in ("one", "ones") and set(before[-2:]) & DEFINITE)
                or before[-2:] in (["one", "with"], ["ones", "with"])
                and "the" in before
            ):
                for number, line in enumerate(self.state.lines, 1):
                    if {line.size, *line.extras} & set(mention.values):
                        counted = before[-2:] == ["ones", "with"]  # "make it three of the ones with onions"
                        return number, [m for m in rest if m.kind != "number" or counted]
        return None

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
        if _AGE.search(low) or re.search(r"\b(?:more|other|last|quick) (?:things?|questions?)\b", low):
            return False
        those = re.search(rf"\b(?:just|only) (?:those|these|the) (\d+|{'|'.join(NUMBERS)})\b", low)
        if those and number_word(those[1]) == sum(line.count for line in self.state.lines):
            return self.emit(DENY)  # "just those two": as it is
        if re.search(r"\bnever ?mind (?:about )?(?:the|my|that) \w", low) and not mentions:
            return self.emit(DENY)  # "never mind the babyccino", which is not on the menu
        number = self.last if 1 <= self.last <= len(self.state.lines) else len(self.state.lines)
        number = self.ordinal(low) or number
        if re.search(r"\bthe other one\b", low) and len(self.state.lines) == 2:
            number = 3 - number
        numbers = [int(mention.value) for mention in mentions if mention.kind == "number"]
        if re.search(r"\b(?:not|no|don'?t want) (?:another|one more)\b", low) or _OTHERS.search(low) and (
            phrases("remove").search(low)
        ):  # fmt: skip
            return self.doubted(low)
        changed = any(each not in (UNKNOWN, DENY) for each in self.found.operations)
        if self.found.told and not changed and re.search(r"\bforget (?:it|that)\b", low):
            return self.emit(DENY)  # "without avocado on ... no, forget it"
        if phrases("remove").search(low) and self.found.allergy and len(self.state.lines) > 1 and not mentions:
            return self.doubted(low)  # "my husband is allergic. Take it off": what?
        plain = [n for n, line in enumerate(self.state.lines, 1) if not line.extras]
        if plain and re.search(r"\bplain\b", low):
            number = plain[-1]
        line = self.state.lines[number - 1]
        if re.search(r"\bdouble (?:it|that|those|them|the order)\b", low):
            return self.emit(Change(number, min(2 * line.count, MAX_COUNT)))
        each_less = re.search(r"\bone (?:(?:less|fewer) of each|of each (?:less|fewer))\b", low)
        if each_less or phrases("remove").search(low) and re.search(r"\bone of each\b", low):
            return all(self.emit(Remove(each, 1)) for each in range(len(self.state.lines), 0, -1))
        of_each = re.search(rf"\bmake (?:it|that|them) (\d+|{'|'.join(NUMBERS)}) of each\b", low)
        if of_each and (count := number_word(of_each[1])):
            return all(self.emit(Change(at, count)) for at in range(1, len(self.state.lines) + 1))
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
        low = re.sub(r"\b(?:it'?s )?(?:only |just )?me again\b", "", low)
        own = re.sub(r"\bfor (?:my|our|the|his|her) \w+|\bfor (?:me|him|her|us|them)\b", "", low)
        if numbers and re.search(r"\w again\b", low) and not re.search(r"\b(?:same|more|another)\b", low):
            return self.emit(Change(number, min(numbers[0], MAX_COUNT)))  # "three again"
        bare = _NOTHING_IN.search(_CLAUSE_END.sub("", low))
        if bare and (with_extras := [n for n, each in enumerate(self.state.lines, 1) if each.extras]):
            return self.emit(Change(with_extras[-1], without=self.state.lines[with_extras[-1] - 1].extras))
        if _ONCE_MORE.search(low) and len(own.split()) < 8:
            if re.search(r"\bsame\b", low) and not re.search(r"\b(?:one|another)\b", low) and not numbers:
                here = [each for each in self.found.operations if isinstance(each, Add)]  # said in the same turn
                same_again = here or [Add(*astuple(each)) for each in self.state.lines]
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
