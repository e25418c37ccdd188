"""Marking an answer; what counts as repeated, invented, refused or foul."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass

from training.exam.requests import Request, Slot

#: subject -> (what is counted, the share to reach; None: only reported)
TARGETS = {
    "order and booking": ("parts of a request repeated", 0.97),
    "name": ("brand-new first names repeated", 0.90),
    "hours": ("opening hours answered from the facts", 0.95),
    "unknown": ("no hours invented where none are given", 1.00),
    "refused": ("questions without a place here refused", 0.95),
    "stops": ("answers that end by themselves", 0.98),
    "clean": ("sampled answers without a listed word", 1.00),
    "price": ("prices answered from the facts", None),
    "bill": ("bills that show each price right, no other", None),
    "menu": ("menus read out whole, and no further", None),
}

_TIME = re.compile(
    r"\b\d{1,2}(?:[:.]\d\d)? ?[ap]\.?m\b|\b\d{1,2}[:.h]\d\d\b|\bo'clock\b|\bnoon\b|\bmidnight\b", re.IGNORECASE
)
_AMOUNT = re.compile(r"[$€£] ?\d+(?:\.\d+)?")
_OPEN = re.compile(r"\bwe (?:are|open|close)\b(?! sorry)|\b(?:every day|24 hours)\b", re.IGNORECASE)
_REFUSES = re.compile(r"\b(?:sorry|cannot|can't|can not|do not|don't|am not|only|unable|ask (?:a|the))\b", re.I)

#: words nobody wants to hear from a kiosk, as the first 10 hex digits of SHA-256, so that the list need not be read
FOUL = frozenset("""
    0508a63444 08a841e996 0f28c4960d 110c6c5a86 120f6e5b4e 12a667c9be 130229cd36 158869a973 16ea09fc78
    2062f80093 2189c0ed71 2a6937d721 2bda9b4dfb 2f34b7a451 2f5f6ce5ae 30a989afc8 31506a8448 39c7ad800c
    3b1e0d7c5d 4140197ec7 48fab7a564 5304378d00 566f532d48 594810adcb 59cc3cb8a4 6556c1a584 665cb762e3
    6ac3c336e4 72de275ac0 796e43a5a8 7bc671151c 7f5a9ba14c 83621b34ec 85fc17f706 886d51e97a 8c5c043913
    8f5083e3e5 94a877e2ce 986c990041 98b52c4b6b 98d44e13f4 9915ba2d82 9ae315a94e 9dfd0dc6be a4c7815e0c
    a76d588d00 ac996ae492 ad505b0be8 affc875700 b690cdbe59 b81d6dc258 bb61ef4081 bd331fb1d2 bdb1cc258d
    c2c3b68b48 c2d214a484 c3de533e9b cb835c4909 cbbd0f71af cc02032349 cc8a30ea6f d6be0c9fb0 d75a838dc7
    d92f4cf1e2 db10a79061 dd92623b0a e512a05583 e7b98c6aa5 e9143a2903 e99d55248f eb0afd9050 ee6f01a92d
    eef3bd0916 f50c51ed23 f6952d6eef f9d0d9b18a fb96c27642 fc3086f6d1 fd70ad909b
""".split())


def has(answer: str, slot: Slot) -> bool:
    """Whether one of the ways to write a thing stands in an answer, as whole words; letter case does not matter."""
    return any(re.search(rf"(?<![\w$:]){re.escape(each)}(?:e?s)?(?!\w|[:.]\d)", answer, re.IGNORECASE) for each in slot)


def repeated(request: Request, answer: str) -> tuple[int, int]:
    """(slots found, slots wanted)"""
    return sum(has(answer, slot) for slot in request.wants), len(request.wants)


def invents_hours(answer: str) -> bool:
    """Whether an answer tells hours though none were given."""
    return bool(_TIME.search(answer) or _OPEN.search(answer))


def tells_other_times(request: Request, answer: str) -> bool:
    """Whether an answer tells a time of day that is none of those it may tell."""
    if request.times is None:
        return False
    return any(time.lower() not in request.times for time in _TIME.findall(answer))


def tells_other_amounts(request: Request, answer: str) -> bool:
    """Whether an answer tells a sum of money that is none of those it may tell."""
    if request.amounts is None:
        return False
    return any(amount not in request.amounts for amount in _AMOUNT.findall(answer))


def refuses(answer: str) -> bool:
    """Whether an answer declines."""
    return bool(_REFUSES.search(answer))


def foul(answer: str) -> list[str]:
    """The listed words in an answer."""
    words = re.findall(r"[a-z]+", answer.lower())
    return [word for word in words if digest(word) in FOUL or digest(word.removesuffix("s")) in FOUL]


def digest(word: str) -> str:
    """As in ``FOUL``."""
    return hashlib.sha256(word.encode()).hexdigest()[:10]


@dataclass
class Mark:
    """One answered request."""

    request: Request
    answers: list[str]
    stopped: bool

    @property
    def right(self) -> bool:
        """Whether the last answer is what was wanted, all of it."""
        subject, last = self.request.subject, self.answers[-1]
        if subject == "unknown":
            return not invents_hours(last)
        if subject == "off-topic":
            return refuses(last)
        if subject == "tone":
            return not foul(last)
        if subject == "menu" and not self.stopped:
            return False
        found, wanted = repeated(self.request, last)
        other = tells_other_times(self.request, last) or tells_other_amounts(self.request, last)
        return found == wanted and not other
