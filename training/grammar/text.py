"""Patterns, and the voice of one guest: how the same words are typed, spoken or misspelt."""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from random import Random
from typing import Any

ONES = "zero one two three four five six seven eight nine ten eleven twelve".split()


def number(n: int) -> str:
    """How the assistant writes a count: in words up to twelve."""
    return ONES[n] if n < len(ONES) else str(n)


_TEENS = "thirteen fourteen fifteen sixteen seventeen eighteen nineteen".split()
_TENS = "twenty thirty forty fifty sixty seventy eighty ninety".split()


def spelled(n: int, joint: str = "-") -> str:
    """A count up to 999 in words: twenty-five, three hundred; digits beyond."""
    if n < 20:
        return (ONES + _TEENS)[n]
    if n < 100:
        return _TENS[n // 10 - 2] + (joint + ONES[n % 10] if n % 10 else "")
    if n < 1000:
        return ONES[n // 100] + " hundred" + (f" and {spelled(n % 100, joint)}" if n % 100 else "")
    return str(n)


def listed(parts: Sequence[str], last: str = "and") -> str:
    """a, b and c."""
    return parts[0] if len(parts) == 1 else ", ".join(parts[:-1]) + f" {last} " + parts[-1]


def sentence(text: str) -> str:
    """With a capital first letter."""
    return text[:1].upper() + text[1:]


#: what follows the thing itself: the corner table by the window
TAIL = " (?:with|by|from|in|on|near|under) "


def plural(item: str) -> str:
    """latte -> lattes, slice of cake -> slices of cake, sandwich -> sandwiches; fries stay fries."""
    head, joint, rest = re.match(rf"(.*?)( of |{TAIL}|$)(.*)", item, re.DOTALL).groups()  # type: ignore[union-attr]
    if re.search(r"[^s]s$", head):
        return item
    if re.search(r"(?:ss|ch|sh|x|z)$", head):
        head += "es"
    elif head.endswith("loaf"):
        head = head[:-1] + "ves"
    elif re.search(r"[^aeiou]y$", head):
        head = head[:-1] + "ies"
    else:
        head += "s"
    return head + joint + rest


# ---- patterns --------------------------------------------------------------------------------------------------------


@functools.lru_cache(1 << 14)  # patterns that hold a value already come once
def _parse(pattern: str) -> Any:
    """A pattern as a tuple of alternatives, each a list of parts; a part is text or again such a tuple."""
    tokens = re.split(r"([][|])", pattern)

    def alternatives(at: int, closed: bool) -> tuple[tuple[Any, ...], int]:
        found: list[list[Any]] = [[]]
        while at < len(tokens):
            token = tokens[at]
            at += 1
            if token == "[":
                inner, at = alternatives(at, True)
                found[-1].append(inner)
            elif token == "|":
                found.append([])
            elif token == "]" and closed:
                return tuple(found), at
            elif token:
                found[-1].append(token)
        assert not closed, f"unclosed [ in {pattern!r}"
        return tuple(found), at

    return alternatives(0, False)[0]


def expand(rng: Random, pattern: str) -> str:
    """One reading of a pattern: ``[a|b]`` is a choice, may be nested and may be empty; so is a|b as a whole."""

    def walk(alternatives: Any) -> str:
        chosen = alternatives[int(rng.random() * len(alternatives))]
        return "".join(part if isinstance(part, str) else walk(part) for part in chosen)

    return re.sub(r" +([,.?!;])", r"\1", re.sub(r"  +", " ", walk(_parse(pattern)))).strip()


# ---- voices ----------------------------------------------------------------------------------------------------------

_OPEN, _SHUT = "\ue000", "\ue001"  # around values, which no misspelling touches
_FILLERS = "um|uh|er|hmm|well|so|ok|okay|hey|hi|hello|alright|right|yeah|please|excuse me|let's see|ah|oh".split("|")
_NEAR = {"a": "s", "e": "r", "i": "o", "o": "p", "t": "r", "n": "m", "s": "d", "l": "k", "r": "e", "h": "j", "d": "f"}


#: what guests say around the matter, and what changes nothing
_BEFORE = """
hi there|hello|hey|good day|excuse me|sorry to bother you|a quick question|one question|just one thing|i'm new here|
listen|this is my first time here|nice place|what a lovely shop|a friend told me about you|i've been here before|
i'm in a hurry|we don't have much time|my bus leaves soon|i walked a long way|it's so hot today|what a day|
let me think|look|great|oh dear|you know what|i finally decided|we talked it over|my kids are waiting|
i forgot my glasses|i can't read the sign|fine|lovely|it's loud in here|i hope you can help|all right then|now|
tell you what|well well|how nice|i have been waiting|the queue is long|my turn|it's my turn now|i was thinking|
my wife says|my doctor says i should eat more|it smells great|at last|finally|good|so many choices|hard to choose|
i don't have much money on me|we are tourists|we come from far away|i work next door
""".replace("\n", "").split("|")
_AFTER = """
if possible|if that's ok|when you have a moment|i'm in a hurry|we're a bit late|no rush|thanks|thank you|
thanks a lot|for now|thank you so much|you're very kind|that would be great|that would be lovely|it's for my mother|
they are for my friends|it's for the office|we're very hungry|it smells good here|i hope that's fine|as usual|
right away|as soon as you can|dear|my friend is waiting outside|i can wait|if you can|my friend|buddy|sir|my dear|
then|i guess|i think|maybe|of course|ok|right|you know|today|this time|for a change|and quickly|before i forget|
while i'm here|just to be sure|if it's no trouble
""".replace("\n", "").split("|")


#: words that mean nothing to a kiosk; sentences of them teach to hear what does
_EMPTY = """
so well just then there here really very quite also even still maybe perhaps actually basically anyway though
because since while as if that this it he she they we you i me him us them my our your his her their some any every
all both other such own same whole is was be been being are were has had have having do does did doing done can
could may might must shall should would will make makes made take takes took get gets got go goes went come comes
came see sees saw know knows knew think thinks thought say says said feel feels felt find finds found keep keeps
kept seem seems seemed try tries tried hope hopes hoped love loves like likes wish wishes mean means meant guess bet
suppose believe remember forget wonder uncle aunt cousin grandma grandpa brother colleague teacher guest crowd
family people everybody someone nobody team class morning lunch party trip walk garden office school park street
corner train bus summer winter rain sun music work game nice good fine great lovely happy lucky tired busy early
late soon again always often sometimes usually finally already away around back down over under through between
without within about after before during until upon among across
""".split()


def babble(rng: Random, most: int) -> str:
    """Up to ``most`` words without meaning."""
    return " ".join(rng.choice(_EMPTY) for _ in range(rng.randint(0, most)))


class Voice:
    """One guest's way of writing, the same through a dialogue."""

    def __init__(self, rng: Random) -> None:
        self.rng = rng
        #: careful: sentences. lower: no capitals. spoken: neither capitals nor punctuation, as speech recognition
        self.kind = rng.choices(("careful", "lower", "spoken"), (58, 14, 28))[0]
        self.typos = rng.random() < 0.12
        self.chatty = rng.choice((0.0, 0.05, 0.15, 0.3))  # how often something is said around the matter
        self.small_names = self.kind != "careful" and rng.random() < 0.45

    def form(self, value: str) -> str:
        """A name or title as this guest writes it; the assistant repeats this form."""
        return value.lower() if self.small_names else value

    def small(self, text: str) -> str:
        """A day or another common word: small letters unless the guest writes carefully."""
        return text if self.kind == "careful" else text.lower()

    def says(self, pattern: str, **values: str) -> str:
        """One reading of a pattern in this voice; ``{name}`` stands for a value."""
        rng = self.rng
        text = expand(rng, pattern)
        for key, value in values.items():
            text = text.replace("{" + key + "}", _OPEN + value + _SHUT)
        assert "{" not in text, text
        if rng.random() < 0.07:
            text = rng.choice(_FILLERS) + (", " if rng.random() < 0.6 else " ") + text
        if rng.random() < self.chatty:
            text = rng.choice(_BEFORE) + rng.choice((". ", ", ", ". ", ": ", "... ", "! ")) + text
        if rng.random() < self.chatty:
            ending = re.search(r"[.?!]?$", text)[0]  # type: ignore[index]
            text = text[: len(text) - len(ending)] + ", " + rng.choice(_AFTER) + ending
        pieces = re.split(f"({_OPEN}.*?{_SHUT})", text)
        for i, piece in enumerate(pieces):
            if not piece.startswith(_OPEN):
                kept = re.match(r"(?:'s\b)?", piece)[0]  # type: ignore[index]  # without it a name would end elsewhere
                pieces[i] = kept + self._styled(piece[len(kept) :])
        text = "".join(pieces)
        if self.kind == "careful" and not text.startswith(_OPEN):
            text = sentence(text)
            if text[-1] not in ".?!" and rng.random() < 0.75:
                text += "."
        text = text.replace(_OPEN, "").replace(_SHUT, "")
        if self.kind == "careful":
            text = re.sub(r"\bi\b(?=['m ])", "I", text)
            text = re.sub(r"([.?!] )([a-z])", lambda m: m[1] + m[2].upper(), text)
        return re.sub(r"  +", " ", text).strip()

    def _styled(self, text: str) -> str:
        if self.kind != "careful":
            text = text.lower()
        if self.kind == "spoken":
            text = re.sub(r"[,.?!;:]", "", text)
            if self.rng.random() < 0.3:
                text = text.replace("'", "")
        if self.typos and self.rng.random() < 0.6:
            text = self._misspelt(text)
        return text

    def _misspelt(self, text: str) -> str:
        words = text.split(" ")
        long = [i for i, word in enumerate(words) if len(word) > 3 and word.isalpha() and word.lower() != "please"]
        if not long:
            return text
        i, rng = self.rng.choice(long), self.rng
        word = words[i]
        at = rng.randrange(1, len(word) - 1)
        kind = rng.random()
        if kind < 0.4:
            word = word[:at] + word[at + 1] + word[at] + word[at + 2 :]
        elif kind < 0.7:
            word = word[:at] + word[at + 1 :]
        elif kind < 0.85:
            word = word[:at] + word[at] + word[at:]
        else:
            word = word[:at] + _NEAR.get(word[at], word[at]) + word[at + 1 :]
        words[i] = word
        return " ".join(words)


def kindly(asked: str) -> str:
    """The assistant's answer to "please"."""
    return "Certainly. " if "please" in asked.lower() else ""
