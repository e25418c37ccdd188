"""What a draft of a line does to the order: it is added, changes a line, takes it away, or takes its place."""

from __future__ import annotations

import re
from dataclasses import astuple, replace

from edge.kiosk.changes import plainer
from edge.kiosk.details import NO_I_MEAN, Details
from edge.kiosk.drafts import Draft
from edge.kiosk.mentions import Mention
from edge.kiosk.operations import Add, Change, Remove
from edge.kiosk.phrases import phrases
from edge.kiosk.state import missing
from edge.kiosk.words import NUMBERS, Word, folded
from edge.kiosk.words import number as number_word

#: what corrects the count before it: "no, three flat whites", "no, I said a large latte"
_NOT_THAT = re.compile(
    rf"(?:(?:oh|ah|um|uh|sorry)[,.!]? )*(?:no|nope|nah)\b[,.!;:]?(?: (?:i|we) (?:said|meant|wanted|want|asked for)"
    rf"|(?: it'?s|,? that'?s))?,? (?:just |only )?(?:an?|\d+|{'|'.join(NUMBERS)})\b"
)
#: "one of us is ill, so five teas"
_SO_MANY = re.compile(rf"(?:^|, )so (?:that'?s |it'?s |we'?re |now |only |just )*(?:\d+|{'|'.join(NUMBERS)})\b")
#: "for both of us" tells who it is for, not what
_FOR_ALL = re.compile(r"\bfor (?:both|each|all|every)\b")
_SAME_EXTRAS = re.compile(r"\bsame (?:things?|stuff|fillings?|toppings?|extras?|bits)\b")
_FOR_ANOTHER = re.compile(r"\b(?:swap|replace|change|switch|exchange)\b.*\b(?:for|with|to)\b")
#: how many of a line become another item: "change one to a muffin"
SOME = re.compile(
    rf"\b(\d+|{'|'.join(NUMBERS)}) (?:of (?:them|those|these)\b|(?:should|can|could|to) be\b|(?:to|for|into)\b)"
)
#: what is wanted again
BACK = re.compile(r"\b(?:back|again|keep|leave|still (?:want|need|like|take|have))\b")
WRONG = re.compile(r"\b(?:is|was|are|were) (?:wrong|a mistake|not right|incorrect)\b")
MAKE_IT = re.compile(
    r"\bmake (?:it|that|this|them|those|mine|one|that one)\b(?! (?:to|with|without)\b)|\bwould be better\b"
    r"|\b(?:one|two|three) (?:of (?:them|those|these) )?(?:should|can|could|to) be\b"
)
_ONLY = re.compile(r"\b(?:only|just|back to)\b")
_FOR_WHOM = re.compile(
    r"\bno \w+ for (?:me|him|her|my \w+|the (?:\w+ )?(?:person|child|kid|boy|girl|baby|little one|lady|man))\b"
)
#: who has one of several: "she'd like a tea instead of the coffee"
_ONE_PERSON = re.compile(
    r"\b(?:he|she|my (?!\w+s\b)\w+|i)(?:'?d|'?ll| would| will|'?s)? (?:(?:says|said|thinks) (?:he|she)(?:'?d|'?ll)? )?"
    r"(?:now |only |just |also )?(?:rather |prefer|want|wants|take|takes|have|has|get|gets|like|likes|need|needs)\b"
    r"|\bof (?:his|her|my|mine|hers)\b|\bfor (?:me|him|her|my (?!\w+s\b)\w+)\b|\b(?:mine|his|hers)\b"
)
_INTO = re.compile(r"\b(?:make|turn|swap|change|switch|replace|exchange)\b|\b(?:should|can|could|must|to) be\b")


class Placing(Details):
    """Drafts of lines, put into the order."""

    def put(self, low: str, draft: Draft, text: str) -> bool:
        """Add a draft to the order, or change the line it speaks of."""
        if _NOT_THAT.match(folded(self.text)) and re.search(rf"\ban? {re.escape(folded(draft.text))}\b", low):
            draft = replace(draft, counted=True)  # "no, a flat white" where there were two
        meant = draft.definite or bool(NO_I_MEAN.search(low))
        lines = [line for line in self.lines_of(draft) if line <= len(self.before.lines) or meant]
        not_that = bool(_NOT_THAT.match(folded(self.text)))
        correcting = not_that or bool(phrases("correct").search(low) or _ONLY.search(low))
        correcting = correcting or bool(NO_I_MEAN.search(low)) or draft.counted and bool(_SO_MANY.search(low))
        correcting = correcting or bool(lines and set(draft.without) & set(self.state.lines[lines[0] - 1].extras))
        adding = (
            draft.more
            or bool(re.search(r"\b(?:another|as well|too|also|add)\b", low))
            and not re.search(r"\bonly (?:one|two|\d)\b", low)
            and not (draft.definite and (draft.size or draft.extras or draft.without))
            and not (draft.extras and re.search(r"\b(?:to|on|in|for) (?:the|my|that|both|all)\b", low))
        )
        recount = not_that and draft.counted  # "no, two large lattes" is all of them, not two of the three
        if not adding and not (recount and lines) and (done := self.filled(draft)) is not None:
            return done
        if draft.part and lines and (draft.size or draft.extras or draft.without):
            return self.divide(lines[0], draft.count, draft)  # "one of the teas without lemon"
        if lines and not adding and (correcting or (draft.definite and (draft.extras or draft.without or draft.size))):
            number = lines[0]
            line = self.state.lines[number - 1]
            targets = [number]
            if re.search(r"\b(?:both|all|each|every)\b", low) and not draft.counted:
                targets = lines
            if len(lines) > 1 and draft.counted and not (draft.extras or draft.without or draft.size):
                total = sum(self.state.lines[each - 1].count for each in lines)
                if draft.count == total:
                    return self.emit(Change(number, line.count))  # "so two hot chocolates", one and one without cream
                if line.count < draft.count < total:  # "only two", where there are one and two: fewer, but of which?
                    self.found.unnoted.append(self.text.strip(" ,."))
                    return True
            count = draft.count if draft.counted and draft.count != line.count and not draft.definite else 0
            if draft.counted and not count and not (draft.extras or draft.without or draft.size):
                return self.emit(Change(number, draft.count))  # as it is
            part = draft.counted and count and count < line.count
            part = part and not (recount and set(draft.extras) <= set(line.extras) and not draft.without)
            if part and (draft.size not in ("", line.size) or draft.extras or draft.without):
                return self.divide(number, count, draft)
            done = False
            for target in sorted(targets, reverse=True):
                done = self.emit(self.change(target, draft, count)) or done
            self.last = number
            return done
        if (
            lines
            and draft.definite
            and draft.counted
            and not adding
            and not (draft.extras or draft.without or draft.size)
        ):
            return self.emit(Change(lines[0], draft.count))
        if lines and re.search(rf"\bthe same {re.escape(folded(draft.text))}\b", low):
            return self.emit(Add(*astuple(replace(self.state.lines[lines[0] - 1], count=draft.count))))
        if lines and (draft.part or draft.definite and not draft.counted) and not (
            draft.extras or draft.without or draft.size
        ):  # fmt: skip
            self.last = lines[0]
            return True  # spoken of, nothing said
        every = re.search(r"\b(?:of each|each|of every|every|of both|both|all the)\b", _FOR_ALL.sub("", low))
        if len(draft.values) > 1 and every:
            return max([self.put("", replace(draft, values=(value,), definite=False), text) for value in draft.values])
        if len(draft.values) > 1:
            self.found.unclear.append((draft.text, draft.values))
            return False
        if back := self.taken(draft, low):
            return self.emit(back)
        item = self.house.item(draft.values[0])
        assert item is not None
        extras = [extra for extra in plainer(draft.extras) if extra in item.extras]
        without = [extra for extra in dict.fromkeys(draft.without) if extra in item.extras and extra not in extras]
        size = draft.size if draft.size in item.sizes else ""
        self.unoffered(draft, item.extras)
        if draft.more and lines and not (extras or without or size):
            like = self.state.lines[lines[0] - 1]
            done = self.emit(Add(like.item, draft.count, like.size, like.extras, like.without))
        else:
            done = self.emit(Add(item.name, draft.count, size, tuple(extras), tuple(without)))
        if done:
            self.last = max((n for n, line in enumerate(self.state.lines, 1) if line.item == item.name), default=0)
        return done

    def taken(self, draft: Draft, low: str) -> Add | None:
        """What was taken away and is wanted after all: "put the rope back"."""
        if not (draft.definite or BACK.search(low)) or draft.extras or draft.size or draft.without:
            return None
        gone = next((line for line in reversed(self.before.gone) if line.item in draft.values), None)
        return Add(gone.item, draft.count if draft.counted else gone.count, *astuple(gone)[2:]) if gone else None

    def filled(self, draft: Draft) -> bool | None:
        """ "A small latte" where a latte waits for its size is that latte; None where it is another one."""
        if not draft.size or draft.definite or re.match(r"(?:and|also|plus)\b", folded(self.text)):
            return None
        open_ = {name for name, key in missing(self.house, self.before) if key == "size"}
        for number, line in enumerate(self.state.lines, 1):
            if line.item in draft.values and line.item in open_ and not line.size:
                if draft.counted and draft.count < line.count:
                    return self.divide(number, draft.count, draft)
                if not draft.counted or draft.count == line.count:
                    self.last = number
                    return self.emit(self.change(number, draft))
        return None

    def remove(self, low: str, draft: Draft, mentions: list[Mention]) -> bool:
        """Take a line away, some of it, or an extra of it."""
        lines = self.lines_of(draft)
        if not lines:
            if self.before.lines:
                self.found.absent.append(draft.values[0] if len(draft.values) == 1 else draft.text)
            return bool(self.before.lines)
        plain = [n for n in lines if not self.state.lines[n - 1].extras]
        if plain and len(plain) < len(lines) and re.search(r"\b(?:plain|ordinary|normal)\b", low):
            lines = plain  # "forget the plain croissant"
        number = lines[0]
        line = self.state.lines[number - 1]
        if re.search(r"\b(?:it|that|them) (?:back )?(?:out of|off|from) (?:the|my|that)\b", low):  # an extra of it
            return len(line.extras) == 1 and self.emit(Change(number, without=line.extras))
        said = [mention for mention in mentions if mention.kind in ("item", "extra")]
        extras = [*draft.without, *draft.extras]
        apart = bool(re.search(r"\b(?:from|off|on|in|out of|for|of|to) (?:the|my|that|those|both|all|one)\b", low)) or (
            said[0].kind == "item" and bool(extras) and not re.search(r"\bwith\b", low)
        )
        if _FOR_WHOM.search(low) and sum(self.state.lines[n - 1].count for n in lines) > 1:
            return self.doubted(low)  # "no coffee for the fourth person": which of the coffees goes?
        if extras and (draft.without or apart or not any(e in line.extras for e in extras)) and apart:
            gone = tuple(extra for extra in dict.fromkeys(extras))
            return self.emit(self.change(number, Draft(draft.values, without=list(gone))))
        if draft.without and not draft.extras and re.search(r"\b(?:without|no)\b", low) and said[0].kind == "item":
            return self.emit(self.change(number, Draft(draft.values, without=list(draft.without))))
        if re.search(r"\b(?:all|both|every)\b", low):
            done = False
            for each in sorted(lines, reverse=True):
                done = self.emit(Remove(each)) or done
            return done
        alike = [each for each in lines if self.fit(draft, each) == self.fit(draft, number)]
        if len(alike) > 1 and re.search(r"\b(?:last|other|first|second)\b", low):
            return self.emit(Remove(min(alike) if "first" in low else max(alike)))
        if re.search(r"\b(?:another|second|extra|more)\b", low) and line.count > 1 and not draft.counted:
            return self.emit(Remove(number, 1))
        single = re.search(rf"\ban? (?:\w+ )?{re.escape(folded(draft.text))}\b", low)
        if len(alike) > 1:  # "remove one latte" where they differ is unclear
            doubt = draft.counted or single
            return self.doubted(low) if doubt else all(self.emit(Remove(n)) for n in sorted(alike, reverse=True))
        if single and line.count > 1 and not draft.counted:
            return self.emit(Remove(number, 1))  # "she doesn't want a tea after all"
        fewer = re.search(r"\b\w+ (?:less|fewer) of\b", low)  # "one less of the normal coke"
        if draft.counted and (not draft.definite or fewer) or re.search(r"\bone of\b", low):
            return self.emit(Remove(number, draft.count if draft.counted else 1))
        return self.emit(Remove(number))

    def restated(self, drafts: list[Draft]) -> bool:
        """ "Make that one with butter and one with jam": the drafts are all of what was ordered of one item."""
        held = [number for number, line in enumerate(self.state.lines, 1) if line.item in drafts[0].values]
        lines = [self.state.lines[number - 1] for number in held]
        if len({draft.values for draft in drafts}) > 1 or len({line.item for line in lines}) != 1:
            return False
        if not all(draft.counted for draft in drafts) or sum(e.count for e in lines) != sum(e.count for e in drafts):
            return False
        for number in reversed(held):
            self.emit(Remove(number))
        for draft in drafts:
            self.put("", replace(draft, values=(lines[0].item,), size=draft.size or lines[0].size, definite=False), "")
        return True

    def replaced(self, low: str, drafts: list[Draft], turn: list[Word], mentions: list[Mention]) -> bool:
        """One item for another: "the bagel instead of the soup", "swap the tea for a latte"."""
        old: Draft | None = None
        new: Draft | None = None
        here = [draft for draft in drafts if [n for n in self.lines_of(draft) if n <= len(self.before.lines)]]
        if len(drafts) == 1:
            only = drafts[0]
            if any(isinstance(each, Remove) for each in self.found.operations) and not here:
                return self.put(low.replace("instead", "as well"), only, low)
            if here or not self.state.lines:
                return self.put(low + " actually", only, low)
            if len(only.values) > 1:
                self.found.unclear.append((only.text, only.values))
                return False
            like = self.like(only)  # "make it white"
            old_line = like[-1] if like else self.last or len(self.state.lines)
            line = self.state.lines[old_line - 1]
            if (some := SOME.search(low)) and line.count > (count := number_word(some[1]) or 1):
                old = Draft((line.item,), count, True)
                return self.exchange(low, old, only, old_line)
            if line.count > 1 and re.search(r"\b(?:mine|his|hers)\b", low):
                return self.exchange(low, Draft((line.item,), 1, True), only, old_line)  # "change mine to a muffin"
            return self.emit(self.change(old_line, only, only.count if only.counted else 0, only.values[0]))
        if len(drafts) > 2 and here == drafts[:-1] and _FOR_ANOTHER.search(low):
            for other in here[1:]:  # "swap the tea and the cake for a latte"
                self.remove("", other, mentions)
            drafts = [drafts[0], drafts[-1]]
        marker = re.search(r"\b(?:instead of|rather than|in place of|not|than|over)\b", low)
        starts = {
            id(draft): at for draft, at in zip(drafts, [turn[m.first].start for m in mentions if m.kind == "item"])
        }
        if marker and not re.search(r"\b(?:swap|replace|change|switch|exchange)\b", low):
            after = [d for d in drafts if starts.get(id(d), 0) > marker.start()]
            first = [d for d in drafts if d not in after]
            old = after[0] if after else None
            new = first[-1] if first else (after[1] if len(after) > 1 else None)
        else:
            old, new = drafts[0], drafts[1]
            if WRONG.search(low) and old not in here:
                self.found.absent.append(old.values[0] if len(old.values) == 1 else old.text)
            elif old not in here and new in here and re.search(r"\b(?:replace|substitute)\b.*\bwith\b", low) is None:
                old, new = new, old
        if old is None or new is None:
            return max(self.put(low, draft, low) for draft in [*drafts])
        lines = self.lines_of(old)
        if not lines and old.definite and _FOR_ANOTHER.search(low) and self.state.lines:
            self.found.absent.append(old.values[0] if len(old.values) == 1 else old.text)  # "swap the latte for a tea"
            return True
        if not lines:
            return self.put(low, new, low)
        others = [draft for draft in drafts if draft is not old and draft is not new and draft.values != new.values]
        if set(self.lines_of(new)) and re.search(rf"\b(?:only|just) (?:the )?{re.escape(folded(new.text))}\b", low):
            return self.emit(Remove(lines[0]))  # "the green one is wrong, only black"
        if len(new.values) > 1:
            self.found.unclear.append((new.text, new.values))
            return False
        number = lines[0]
        if old.size and not new.size and old.size != self.state.lines[number - 1].size:
            new = replace(new, size=old.size)  # "a juice instead of the coffee, large"
        name = re.escape(folded(old.text))
        if _ONE_PERSON.search(low) and not old.counted and not re.search(rf"\b{name}s\b|\b(?:both|all)\b", low):
            old = replace(old, count=1, counted=True)
        if re.search(rf"\b(?:swap|replace|change|switch|exchange|turn|make) an? {name}\b", low):
            old = replace(old, count=1, counted=True)  # "swap a croissant for a brownie"
        elif len(lines) > 1 and re.search(rf"\b(?:all|both|every) (?:of )?(?:the |my )?{name}\b", low):
            return all(self.exchange(low, old, new, each) for each in sorted(lines, reverse=True))
        if set(new.values) & set(old.values):  # the same item, in another form
            return self.emit(self.change(number, new, new.count if new.counted else 0))
        done = self.exchange(low, old, new, number)
        for draft in others:
            self.put(low, draft, low)
        return done

    def turned(self, low: str, drafts: list[Draft], turn: list[Word], mentions: list[Mention]) -> bool:
        """ "Make the double an americano", "one of the large ones should be a latte": told by a size or an extra."""
        others = [n for n in self.like(drafts[0]) if n not in self.lines_of(drafts[0])]
        if (some := SOME.search(low)) and len(others) == 1 and self.lines_of(drafts[0]) and not drafts[0].part:
            part = Draft((), number_word(some[1]) or 1, True)  # "make two of them black" of green and black ones
            return self.exchange(low, part, replace(drafts[0], counted=False), others[0])
        named = [at for at, mention in enumerate(mentions) if mention.kind == "item"]
        if len(named) != 1 or not _INTO.search(low) or self.lines_of(drafts[0]) and not drafts[0].size:
            return False
        told, item = mentions[: named[0]], mentions[named[0]]
        of = next((mention for mention in told if mention.kind in ("size", "extra")), None)
        if of is None or not of.first or turn[of.first - 1].fold != "the":
            return False
        between = {word.fold for word in turn[of.last : item.first]}
        if not between & {"a", "an", "to", "into", "for", "be"} or between & {"and", ",", "of"} or (
            of.kind == "extra" and not between & {"one", "ones"}):  # fmt: skip
            return False
        lines = [n for n, line in enumerate(self.state.lines, 1) if {line.size, *line.extras} & set(of.values)]
        fresh, _ = self.drafts(turn, [m for m in mentions[named[0] :] if m.kind != "number"])
        if len(lines) != 1 or len(fresh[0].values) > 1:
            return self.doubted(low)
        counts = [int(mention.value) for mention in told[: told.index(of)] if mention.kind == "number"]
        old = Draft((), counts[0] if counts else 0, bool(counts))
        return self.exchange(low, old, replace(fresh[0], counted=False), lines[0])

    def exchange(self, low: str, old: Draft, new: Draft, number: int) -> bool:
        """Put another item in the place of a line, or of some of it."""
        line = self.state.lines[number - 1]
        part = old.counted and old.count < line.count  # "make one of the cods a plaice"
        bare = self.house.item(new.values[0])
        assert bare is not None
        count = new.count if new.counted else old.count if part else line.count
        old_item = self.house.item(line.item)
        alike = old_item and 2 * len({*old_item.extras} & {*bare.extras}) >= len(old_item.extras)  # no soup for a tea
        same = line.extras if alike and not new.extras and not new.without or _SAME_EXTRAS.search(low) else ()
        extras = tuple(e for e in (*same, *new.extras) if e in bare.extras)
        without = tuple(e for e in new.without if e in bare.extras)
        size = new.size or (line.size if line.size in bare.sizes else "")
        done = self.emit(Remove(number, old.count if part else 0))
        return done and self.emit(Add(bare.name, count, size, extras, without))
