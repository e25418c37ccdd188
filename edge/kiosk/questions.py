"""Questions about the menu and the house: prices, what there is, and the facts."""

from __future__ import annotations

import re

from edge.kiosk import facts
from edge.kiosk.mentions import Mention
from edge.kiosk.operations import Answer, Talk
from edge.kiosk.phrases import listed, paired, phrases
from edge.kiosk.reading import Reading, asks, inquires
from edge.kiosk.wishes import unnoted
from edge.kiosk.words import Word, folded, words

#: most rows of the menu in one answer
MOST_ROWS = 12
#: a wish that is put as a question
_REQUEST = re.compile(
    r"(?:can|could|would|will) you\b(?! (?:get|do|recommend|tell)\b)"
    r"|(?:can|could|may) (?:i|we|he|she) (?:have|get) (?:it|that|this|them|those|mine)\b"
)
#: what stands for what was named before
_IT = re.compile(
    r"\b(is|are|does|do|has|have) (?:it|they|that|this|those|these)\b(?! (?:a|any|the|some)\b)", re.IGNORECASE
)
#: a question for something to have
_HAVE = re.compile(r"(?:do|have) you (?:have|got|do|sell|serve|offer)?\b|(?:is|are) there\b|(?:got )?any\b")
_THING = re.compile(r"(?:and |also |or |so )?(?:an?|one|two|three|some|another|the) ")
#: what is asked of a thing
_TELLS_OF = re.compile(r"\b(?:is|are|was|would be|will be|has|have|contains?|comes?)\b")
#: what makes a question of a statement: "I can still get a cake, right?"
_TAG = re.compile(r", (?:right|correct|is that right|isn'?t it|aren'?t they|don'?t you|can'?t i)$")
#: "what about the carrot cake, has that got walnuts?"
_HAS_IT = re.compile(r", (?:has|have|does|do|is|are) (?:that|it|they|those|these|this)\b")
_POLITE_CHANGE = re.compile(
    r"(?:(?:oh|and|also|so|actually|sorry|ok|well),? )*"
    r"(?:(?:can|could|would|will) (?:you|it|that|i|we|they|both|all|everything)\b"
    r"|(?:can|could) (?:the|my|that) .*\bbe\b)"
)


class Questions(Reading):
    """What a clause asks, answered with a fact or with rows of the menu."""

    def question(self, text: str, low: str, mentions: list[Mention], ordering: bool, menu: bool) -> bool:
        """Whether the clause is a question, answered now, and not a polite order."""
        items = [mention for mention in mentions if mention.kind == "item"]
        if menu and _TAG.search(low) and not self.found.operations:
            chosen = facts.choose(self.house, text, True)
            return self.emit(Answer(chosen) if chosen or not self.state.lines else Talk("order"))
        wh = bool(phrases("wh").search(low))
        if phrases("price").search(low) and not (
            ordering and not wh and menu and not re.search(r"\bhow much|price|cost", low)
        ):
            best = facts.choose(self.house, text, True)
            rows = [] if best and facts.certain(self.house, text, best) else self.priced(mentions)
            return self.answer(rows or [best])
        named = {mention.kind for mention in mentions} & {"item", "extra"}
        if self.state.lines and not named and _REQUEST.match(phrases("opener").sub("", low)):
            wishes = unnoted(self.house, text, words(text), mentions)
            if wishes:  # "can you put that in my own cup"
                self.found.unnoted += wishes
                chosen = facts.choose(self.house, text, True)
                return not chosen or self.emit(Answer(chosen))
        if menu and ordering and not (wh or _HAS_IT.search(low) or _HAVE.match(phrases("opener").sub("", low))):
            return False
        if items and self.state.offered and low.startswith("and ") and len(items[0].values) == 1:
            return self.emit(Answer(self.row(items[0].value)))  # "How much are the tacos?" "And the soup?"
        if menu and not wh and _THING.match(low) and not _TELLS_OF.search(low):
            return False  # "a latte?", not "the muffin would be all right for him?"
        polite = not wh and not inquires(low)
        if menu and self.state.lines and not inquires(low) and _POLITE_CHANGE.match(low):
            return False
        if items and polite and re.match(r"^(?:\w+[, ]+)?(?:can|could|would|will|may) (?:you|u|i|we)\b", low):
            first = _words_before(text, items[0])
            if first & {"a", "an", "some", "another", "our", "me", "us"} or any(m.kind == "number" for m in mentions):
                return False
        chosen = facts.choose(self.house, self.resolved(text, mentions), True)
        extras = [mention for mention in mentions if mention.kind == "extra"]
        if extras and not (chosen or items) and _HAVE.match(phrases("opener").sub("", low)):
            stems = {word.stem for mention in extras for word in words(text)[mention.first : mention.last]}
            if facts.content(text) <= stems and not re.search(r"\b(?:no|without)\b", low):
                return self.answer(self.priced(extras))  # "do you have sugar"
        if (
            not chosen
            and items
            and not wh
            and (not asks(low) or re.search(r"\b(?:have|got|sell|serve|do|does|offer|make|there|any)\b", low))
        ):
            said = facts.content(text)
            stems = {word.stem for word in words(text)[items[0].first : items[0].last]}
            if said <= stems and (items[0].exact or len(items[0].values) > 1):  # "do you have tea"
                return self.answer([self.row(value) for value in items[0].values])
        self.emit(Answer(chosen))
        self.offered = items[0].value if items else ""
        return True

    def resolved(self, text: str, mentions: list[Mention]) -> str:
        """A question about a diet of "it", with the name of what was ordered or asked about last: "is it vegan"."""
        last = self.offered or (self.state.lines[-1].item if self.state.lines else "")
        diet = any(said.search(folded(text)) for said, _ in paired("diets"))
        if not (last and diet) or any(mention.kind in ("item", "booking") for mention in mentions):
            return text
        return _IT.sub(rf"\1 the {last}", text, count=1)

    def listing(self, low: str) -> bool:
        """Answer "which teas do you have" and "what sizes are there" with rows of the menu, "what drinks" with all."""
        found = phrases("listing").search(low)
        if not found and not phrases("sizes").search(low):
            return False
        turn = words(found["thing"]) if found else []
        spoken = [value for m in self.names.mentions(words(low)) if m.kind == "item" for value in m.values]
        if not turn or turn[-1].fold in ("size", "sizes"):
            spoken = spoken or [self.offered] * bool(self.offered) or [line.item for line in self.state.lines]
            names = [item.name for item in self.house.items if item.sizes and (not spoken or item.name in spoken)]
            numbers = [self.row(name) for name in names]
        else:
            items = [item for item in self.house.items if any(_ends(name, turn) for name in (item.name, *item.others))]
            extras = [name for name in self.house.extras if turn[-1].stem == "extra" or _ends(name, turn)]
            numbers = [self.row(item.name) for item in items] or [self.extra_row(name) for name in extras]
        if numbers and len(numbers) <= MOST_ROWS:
            return self.answer(numbers)
        return bool(numbers or turn and turn[-1].fold in listed("menu words")) and self.emit(Talk("help"))

    def priced(self, mentions: list[Mention]) -> list[int]:
        """The rows of the menu with the prices of all items and extras that a clause names."""
        rows = []
        for mention in mentions:
            held = [line.item for line in self.state.lines if line.item in mention.values]
            if mention.kind == "item":
                rows += [self.row(value) for value in (held if len(mention.values) > 1 and held else mention.values)]
            elif mention.kind == "extra":
                rows.append(self.extra_row(mention.value))
        return list(dict.fromkeys(rows))

    def told(self, text: str) -> int:
        """The number of the fact that a statement is answered with; 0 for none.

        The fact must hold a word of the statement, and the statement no item, unless it hides a question or tells of
        the guest.
        """
        chosen = facts.choose(self.house, text, False)
        shared = chosen and facts.content(text) & facts.content(self.house.facts[chosen - 1])
        ordered = any(mention.kind == "item" and mention.exact for mention in self.names.mentions(words(text)))
        return chosen if shared and not ordered or phrases("half asked").search(folded(text)) else 0

    def answer(self, numbers: list[int]) -> bool:
        """Answer with statements of the house; the last of them is what "one" means then."""
        items = [item.name for item in self.house.items if self.row(item.name) in numbers]
        self.offered = items[-1] if items else ""
        for number in numbers:
            self.emit(Answer(number))
        return bool(numbers)

    def row(self, item: str) -> int:
        """The number of the statement that holds an item's prices."""
        names = [each.name for each in self.house.items]
        return len(self.house.facts) + names.index(item) + 1

    def extra_row(self, extra: str) -> int:
        return len(self.house.facts) + len(self.house.items) + list(self.house.extras).index(extra) + 1


def _ends(name: str, thing: list[Word]) -> bool:
    """Whether a name is one of the things that "teas" or "milk shakes" is."""
    return [word.stem for word in words(name)][-len(thing) :] == [word.stem for word in thing]


def _words_before(text: str, mention: Mention) -> set[str]:
    """The folded words of a text before a mention."""
    return {word.fold for word in words(text)[: mention.first]}
