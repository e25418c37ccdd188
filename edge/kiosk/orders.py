"""Ordering and correcting: drafts of lines -> add, change, remove."""

from __future__ import annotations

import re
from dataclasses import astuple, replace

from edge.kiosk.details import NO_I_MEAN
from edge.kiosk.drafts import Draft
from edge.kiosk.mentions import Mention
from edge.kiosk.operations import MAX_COUNT, Add, Change, Remove
from edge.kiosk.phrases import phrases
from edge.kiosk.placing import BACK, MAKE_IT, SOME, WRONG, Placing
from edge.kiosk.unlisted import missed, no_count
from edge.kiosk.wishes import replaced_kind
from edge.kiosk.words import NUMBERS, Word, folded, number, words

#: what is kept where the rest goes: "remove everything but the soup", "keep only the soup"
_EXCEPT = re.compile(
    r"\b(?:everything|all|the lot)(?: else)?,? (?:except|but|apart from|other than|besides)\b"
    r"|(?:\bkeep |^(?:(?:on second thoughts?|actually|no|sorry|wait),? )*)(?:only|just) (?=the (?!one|two|three|\d))"
)
_RATHER = re.compile(
    r"\brather (?:have|take|get)\b|\bchanged (?:his|her|their|my|our) minds?\b|^(?!and ).* instead$"
)
#: "no, I said instead of the americano", of what was ordered before
_ADDED_INSTEAD = re.compile(
    r"(?:(?:no|oh|sorry|but|i said|i meant|i mean|it'?s|that'?s)[, ]+)*(?:instead|in place) of\b"
)
#: "my friend wants the same but with black tea"
_SAME_BUT = re.compile(r"\bthe same,? (?:thing,? )?(?:but|except|only)\b")
#: what says things again that were ordered: "no, ...", "I said ...", "... that's all", "not two", "just one"
_SAID_AGAIN = re.compile(
    r"^(?:(?:oh|argh|ugh|um|er|wait|sorry|for)\b[\s,.!]*)*(?:no|nope|nah)\b(?! (?:more|problem))"
    r"|\bi (?:said|meant|mean)\b|\bthat(?:'?s| is) (?:it|all|everything)\b|\bnot (?:two|three|four|\d)\b"
    r"|\bin (?:total|all)\b|\baltogether\b"
)
_LOUD = re.compile(r"\b(?:ONE|TWO|THREE|FOUR|JUST|ONLY)\b")
_MORE = re.compile(
    r"\b(?:another|more|too|also|add|as well|extra|again|plus|second|third|instead)\b|^(?:no,? )?(?:and|also)\b"
)
_AND = re.compile(r"(?:oh |ok |okay )*(?:and|also|plus|add|another|then)\b")
_OR = re.compile(rf"\b(?:\d+|{'|'.join(NUMBERS)}) or (?:\d+|{'|'.join(NUMBERS)}) ")
_ALL_INTO = re.compile(
    r"(?:(?:please|actually|sorry|can you|could you),? )*(?:(?:replace|swap|change|switch|exchange|make|turn) )?"
    r"(?:everything|(?:all|both) of (?:it|them|those|that)|both|them (?:all|both)|the lot|the whole order) "
    r"(?:(?:with|for|to|into|should be|as) )?"
    r"(?:an? |\w+ )?(?!with\b|without\b|but\b|except\b)\w"
)


def _named(draft: Draft) -> bool:
    """Whether a draft was said in words of the item's name, not in words that are like them, "Sunday" for "sundae"."""
    stems = {word.stem for value in draft.values for word in words(value)}
    return {word.stem for word in words(draft.text)} <= stems


class Orders(Placing):
    """What a clause does to the order."""

    def order(self, text: str, low: str, turn: list[Word], mentions: list[Mention]) -> bool:
        """A clause that names items, sizes or extras of the menu; whether it was read, or is asked back."""
        for item in [mention for mention in mentions if mention.kind == "item"]:
            if kind := replaced_kind(self.house, turn, mentions, item):
                self.found.unclear.append((kind, item.values))
                mentions = [each for each in mentions if each is not item]
        if self.found.unclear and not mentions:
            return True
        return self.ordered(text, low, turn, mentions) or bool(self.found.unclear)

    def ordered(self, text: str, low: str, turn: list[Word], mentions: list[Mention]) -> bool:
        """What a clause does to the order."""
        if re.search(r"\bdouble (?:it|that|those|them|the order)\b", low):
            return self.pronoun(low, mentions)
        if no_count(text, turn, mentions):
            self.found.no_count = True
            return True
        if _OR.search(low) and any(mention.kind == "item" for mention in mentions):
            return self.doubted(low)  # "two or three brownies"
        drafts, loose = self.drafts(turn, mentions)
        some = re.search(rf"(?<!it )(?<!that )\b(\d+|{'|'.join(NUMBERS)}) of (?:them|those|these)\b", low)
        if some and drafts and any(turn[m.first].start < some.start() for m in mentions if m.kind == "item"):
            some = None  # "white roses instead, three of them"
        if some and (number(some[1]) or 0) > sum(line.count for line in self.state.lines) and self.state.lines:
            return self.doubted(low)  # "make two of them black" where there is one
        if len(drafts) == 1 and self.state.lines and _SAME_BUT.search(low):
            return self.same_with(low, drafts[0])
        if len(drafts) == 1 and self.state.lines and (
            self.turned(low, drafts, turn, mentions) or self.all_replaced(low, drafts[0])
        ):
            return True
        gone = len(drafts) == 1 and drafts[0].removed and re.match(r"(?:oh,? )?no (?!\W)", low)
        if gone and not self.like(drafts[0]):
            return False  # "no tea" where none was ordered
        if len(drafts) == 1 and WRONG.search(low):
            return self.remove(low, drafts[0], mentions)  # "the green one is wrong"
        if drafts and not phrases("replace").search(low) and all(
            draft.removed and not (self.lines_of(draft) or self.like(draft)) and _named(draft) for draft in drafts
        ):  # fmt: skip
            if not self.state.lines:
                return False
            self.found.absent += [draft.values[0] if len(draft.values) == 1 else draft.text for draft in drafts]
            self.found.missed += missed(turn, mentions)  # "not a hot chocolate, a cookie"
            return True  # "no, no toastie!" where none was ordered
        refused = folded(drafts[0].text) if len(drafts) > 1 and drafts[0].removed else ""
        if refused and re.match(rf"(?:\w+,? ){{0,2}}no {re.escape(refused)}\b", low) and not self.lines_of(drafts[0]):
            drafts = drafts[1:]  # "no cake then, she'd like a muffin instead"
            low = low.partition(",")[2].strip().replace("instead", "too") or low
        if len(drafts) == 1 and len(self.state.lines) > 1 and _ADDED_INSTEAD.match(low) and self.lines_of(drafts[0]):
            return self.emit(Remove(self.lines_of(drafts[0])[0]))
        if len(drafts) == 2 and drafts[1].removed and self.moved(low, drafts, mentions):
            return True
        drafts = [
            draft for at, draft in enumerate(drafts) if draft.removed or draft.counted or not any(
                each.removed and each.values == draft.values for each in drafts[:at])
        ]  # "no soup, it's too warm for soup"
        removing = bool(phrases("remove").search(low))
        if removing and BACK.search(low) and not any(self.lines_of(draft) for draft in drafts):
            removing = not any(self.taken(draft, low) for draft in drafts)  # "put back the rope"
        if re.search(r"\bnot\b", low) and any(draft.removed for draft in drafts) and not removing and len(drafts) > 1:
            return self.replaced(low, drafts, turn, mentions)
        if len(drafts) == 1 and not drafts[0].more and self.state.lines and (
            MAKE_IT.search(low) or (NO_I_MEAN.search(low) and len(low.split()) < 8)
            or phrases("correct").search(low) and re.search(rf"\b{re.escape(folded(drafts[0].text))} ones?\b", low)
        ) and not (
            self.lines_of(drafts[0]) or self.taken(drafts[0], low)
        ):
            return self.replaced(low, drafts, turn, mentions)  # "make it a latte"
        rather = len(drafts) == 1 and _RATHER.search(low)
        if rather and self.state.lines and not self.lines_of(drafts[0]):
            units = self.like(drafts[0]) or [n for n, line in enumerate(self.state.lines, 1) for _ in range(line.count)]
            if len(units) == 1:
                return self.replaced(low, drafts, turn, mentions)  # "I'd rather have still water"
            if not any(isinstance(each, Remove) for each in self.found.operations):
                return self.doubted(low)
        if len(drafts) > 1 and (MAKE_IT.search(low) or NO_I_MEAN.search(low)) and self.restated(drafts):
            return True
        items = [mention for mention in mentions if mention.kind == "item"]
        two = len(drafts) == 2 == len(items) and (drafts[0].definite or drafts[0].part)
        if two and not drafts[1].definite and self.lines_of(drafts[0]):
            first, second = items
            between = {word.fold for word in turn[first.last : second.first]}
            turned = between & {"a", "an", "into", "be"} and not between & {"and", ",", "with", "plus"}
            if turned and re.search(r"\bmake\b|\b(?:should|can|could|must) be\b", low):
                return self.replaced(low, drafts, turn, mentions)  # "make the tea a latte"
        alone = len(drafts) == 1 and drafts[0].part_of_name and re.sub(r" please$", "", low) == folded(drafts[0].text)
        if alone and (last := len(self.state.lines)) in self.lines_of(drafts[0]):
            return self.emit(Change(last, self.state.lines[-1].count))  # "a cake", and then "carrot"
        if drafts and not removing and not loose.extras and self.said_again(low, drafts):
            return True
        twice = re.search(r"\bdouble (?:the|my|that)\b", low)
        if twice and len(drafts) == 1 and (lines := self.lines_of(drafts[0])):
            return self.emit(Change(lines[0], min(2 * self.state.lines[lines[0] - 1].count, MAX_COUNT)))
        if len(drafts) == 1 and (loose.extras and not drafts[0].extras) and (lines := self.lines_of(drafts[0])):
            line, part = self.state.lines[lines[0] - 1], drafts[0].count
            if drafts[0].counted and part < line.count and re.search(r"\b(?:on|in|to|for)\b", low):
                if set(loose.extras) <= set(line.extras):  # "cream on just one scone": not on the others
                    return self.divide(lines[0], line.count - part, Draft(drafts[0].values, without=loose.extras))
                return self.divide(lines[0], part, Draft(drafts[0].values, extras=loose.extras))
        if drafts and (kept := _EXCEPT.search(low)) and (removing or kept[0].endswith(("only ", "just "))):
            spoken = {at for draft in drafts for at in self.lines_of(draft)}
            whole = removing or kept[0].startswith("keep") or low == folded(self.text).strip(" ,.!?") and not any(
                draft.size or draft.extras or draft.without for draft in drafts)  # fmt: skip
            if spoken and whole:  # "remove everything except the brownie"
                others = [at for at in range(len(self.state.lines), 0, -1) if at not in spoken]
                return max([self.emit(Remove(at)) for at in others], default=False)
        if (
            drafts
            and phrases("replace").search(low)
            and (
                len(drafts) > 1
                or re.search(r"\binstead\b|\b(?:it|that|them|this|those|mine) (?:for|to|with|into|out for)\b", low)
                or SOME.search(low)
            )
        ):
            return self.replaced(low, drafts, turn, mentions)
        if not drafts:
            return self.detail(low, loose, turn, mentions, removing)
        if NO_I_MEAN.search(low) and loose.extras:  # "no, strawberry, and a tea"
            self.detail(low, loose, turn, [m for m in mentions if m.value in loose.extras], removing)
        if removing and len(drafts) > 1:  # "with the pass I don't need the ticket": what comes before is only spoken of
            at = phrases("remove").search(low)
            starts = [turn[m.first].start for m in mentions if m.kind == "item"]
            if at and re.match(r".*\bwith\b", low[: at.start()]) and len(starts) == len(drafts):
                drafts = [draft for draft, start in zip(drafts, starts) if start > at.start()] or drafts
        removing = removing and self._removes(low, drafts, turn, mentions)
        rather = len(drafts) > 1 and re.search(r"\b(?:have|wants?|get|like|take|instead|rather)\b", low)
        done = False
        if removing:  # "one muffin less, Ben doesn't like blueberries" speaks of the muffins twice
            drafts = [
                draft for at, draft in enumerate(drafts)
                if draft.counted or draft.definite or draft.values not in [each.values for each in drafts[:at]]
            ]  # fmt: skip
        for draft in drafts:
            # "scrap the lemonade, she'd rather have a tea"
            wanted = removing and rather and not self.lines_of(draft) and not draft.definite
            back = self.taken(draft, low) if removing and BACK.search(low) and not self.lines_of(draft) else None
            if back:  # "keep the brownie in, it's the shake I don't want"
                done = self.emit(back) or done
            elif (removing and not wanted) or (draft.removed and self.lines_of(draft)):
                done = self.remove(low, draft, mentions) or done
            else:
                done = self.put(low, draft, text) or done
        if done and not removing:
            split = {"plain"} if len(drafts) > 1 else set()  # "4 rolls, 2 with butter, 2 plain"
            asked = {text for text, _ in self.found.unclear}
            self.found.missed += [each for each in missed(turn, mentions) if each not in split | asked]
        return done

    def same_with(self, low: str, new: Draft) -> bool:
        """ "The same but with black tea": the whole order once more, with one item in the place of its like."""
        like = self.like(new)
        item = self.house.item(new.values[0])
        if len(like) != 1 or len(new.values) > 1 or item is None or new.removed:
            return self.doubted(low)
        for at, line in enumerate(self.state.lines, 1):
            if at == like[0]:
                extras = [extra for extra in new.extras if extra in item.extras]
                self.emit(Add(item.name, line.count, new.size, tuple(extras)))
            else:
                self.emit(Add(*astuple(line)))
        return True

    def said_again(self, low: str, drafts: list[Draft]) -> bool:
        """ "No, one single espresso, one croissant", "a large cocoa, a small juice, that is all": what is in the order,
        said again; counts, sizes and extras are set, nothing is added.
        """
        again = _SAID_AGAIN.search(folded(self.text)) or _LOUD.search(self.text)
        if not again or _MORE.search(folded(self.text)) or self.state.lines != self.before.lines:
            return False
        if any(draft.removed or len(draft.values) > 1 for draft in drafts):
            return False
        changes: list[Change] = []
        for name in dict.fromkeys(draft.values[0] for draft in drafts):
            told = [draft for draft in drafts if draft.values[0] == name]
            held = [n for n, line in enumerate(self.before.lines, 1) if line.item == name]
            lines = [self.before.lines[n - 1] for n in held]
            if not held:
                return False
            if len(held) == len(told) == 1:
                single = re.search(rf"\ban? (?:\w+ )?{re.escape(folded(told[0].text))}\b", low)
                count = told[0].count if told[0].counted else 1 if single else 0
                if count < lines[0].count and {*told[0].extras} - {*lines[0].extras}:
                    return False  # "no, one with butter" of two
                changes.append(self.change(held[0], told[0], count))
            elif sum(draft.count for draft in told) != sum(line.count for line in lines) or not all(
                any(draft.size in ("", line.size) and {*draft.extras} <= {*line.extras} for line in lines)
                for draft in told
            ):  # fmt: skip
                return False
        spoken = changes or [Change(1, self.before.lines[0].count)]
        for change in sorted(spoken, key=lambda each: -each.line):
            self.emit(change)
        return True

    def moved(self, low: str, drafts: list[Draft], mentions: list[Mention]) -> bool:
        """ "The mustard on the pastrami, not the salt beef": an extra of one line that belongs to another."""
        extras = [mention.value for mention in mentions if mention.kind == "extra"]
        to, held = self.lines_of(drafts[0]), self.lines_of(drafts[1])
        if len(extras) != 1 or not to or not held or not re.search(r"\b(?:on|in|to|for|with) (?:the|my)\b", low):
            return False
        if extras[0] not in self.state.lines[held[0] - 1].extras or not self.offering(extras, to):
            return False
        self.emit(Change(to[0], extras=tuple(extras)))
        return self.emit(Change(held[0], without=tuple(extras)))

    def all_replaced(self, low: str, new: Draft) -> bool:
        """ "Replace everything with a muffin", "all of them orange juice", "make both black" of two teas."""
        if not _ALL_INTO.match(low) or len(new.values) > 1:
            return False
        count = sum(line.count for line in self.state.lines)
        head = words(new.values[0])[-1].stem
        if head not in {word.stem for word in words(new.text)} and (like := self.like(new)):
            if re.search(r"\bboth\b", low) and sum(self.state.lines[n - 1].count for n in like) != 2:
                return self.doubted(low)
            return all(self.exchange(low, Draft(()), new, n) for n in reversed(like))
        if re.search(r"\bboth\b", low) and count != 2:
            return self.doubted(low)
        single = new.counted or re.search(rf"\ban? (?:\w+ )?{re.escape(folded(new.text))}\b", low)
        for at in range(len(self.state.lines), 0, -1):
            self.emit(Remove(at))
        return self.put("", replace(new, count=new.count if single else min(count, MAX_COUNT)), low)

    def _removes(self, low: str, drafts: list[Draft], turn: list[Word], mentions: list[Mention]) -> bool:
        """Whether what is negated is the item, not an extra of an item that is being ordered."""
        first = phrases("remove").search(low)
        assert first is not None
        at = next((m for m in mentions if m.kind in ("item", "extra")), None)
        if first[0].split()[0] in ("without", "no", "minus", "less", "w/o", "hold", "skip") and at:
            if first[0] in ("less", "fewer") and turn[at.last - 1].start < first.start():
                return True  # "one coffee less"
            return first.start() < turn[at.first].start and at.kind == "item"
        if drafts and any(draft.without for draft in drafts) and not any(self.lines_of(d) for d in drafts):
            return False
        return True
