"""Read again: how many tokens of a prompt were read although they had been read before, and why.

It is found once per prompt, between taking its beginning from the cache and reading the rest: what is still known of
earlier prompts is compared with it.  Text is only made of tokens when somebody asks for it.
"""

from __future__ import annotations

from array import array
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from edge.amounts import count
from edge.cache.plan import PAGE
from edge.cache.state import common

if TYPE_CHECKING:
    from edge.prompt.tokenizer import Tokenizer

RUN = 8  # equal tokens in a row that count as the same text; fewer are in any two texts
BEFORE, AFTER = 8, 4  # tokens that are shown around a difference

#: reason -> what is said of it
REASONS = {
    "system": "the system prompt changed",
    "message": "message {message} changed",
    "history": "older messages were left out",
    "evicted": "the KV cache no longer had them",
    "edited": "the question was edited while it was written",
    "file": "what the disk has of them is of another model, KV type or version, or came too slowly",
    "new": "nothing that is known begins like this",
}


@dataclass(frozen=True)
class Again:
    """``tokens``: read again; with the reason "new" read for the first time.  ``reason``: one of REASONS.  ``message``:
    the first one that differs, numbered from 0; None where it is not known.  ``after``: its tokens that did not change.
    """

    tokens: int
    reason: str
    message: int | None = None
    after: int | None = None
    around: array[int] = field(default_factory=lambda: array("i"), repr=False)  # tokens of the prompt

    @property
    def facts(self) -> dict[str, Any]:
        """For programs: numbers and the reason, nothing of the text."""
        every = {"tokens": self.tokens, "reason": self.reason, "message": self.message, "after": self.after}
        return {key: value for key, value in every.items() if value is not None}

    def line(self, tokenizer: Tokenizer | None = None) -> str:
        """For people; with a ``tokenizer`` it quotes the text where the difference is."""
        changed = self.reason == "message" and self.message is None
        why = "the prompt changed" if changed else REASONS[self.reason].format(message=self.message)
        if self.after is not None:
            why += f" after {count(self.after, 'token')}"
        text = tokenizer.decode(self.around) if tokenizer is not None else ""
        text = " ".join("".join(char if char.isprintable() else " " for char in text).split()).replace("\ufffd", "")
        read = "read" if self.reason == "new" else "read again"
        tokens = "1 token" if self.tokens == 1 else f"{self.tokens:,} tokens"
        return f"{tokens} {read}: {why}" + (f', at "...{text}"' if text else "")


def repeated(old: array[int], new: array[int]) -> int:
    """The number of tokens of ``new`` in runs of RUN or more that ``old`` has, too."""
    if len(old) < RUN or len(new) < RUN:
        return 0
    a, b, size = old.tobytes(), new.tobytes(), old.itemsize
    known = {a[at : at + RUN * size] for at in range(0, len(a) - (RUN - 1) * size, size)}
    found = end = 0
    for i in range(len(new) - RUN + 1):
        if b[i * size : (i + RUN) * size] in known:
            found += i + RUN - max(i, end)
            end = i + RUN
    return found


def read_again(
    known: array[int], ids: array[int], held: int, messages: int, forgotten: int, system: bool, ends: Collection[int],
    stored: bool = False,
) -> Again | None:
    """Why tokens of the prompt ``ids`` that are among ``known`` are read again; None if none are.

    ``held``: tokens that the cache has of ``ids``; ``messages``: number of messages that end in it, and of the
    ``forgotten`` ones between the system prompt and these; ``system``: the first is a system prompt; ``ends``: tokens
    with which messages end; ``stored``: ``known`` is of the store, which gives no less than half of an entry on disk.
    """
    same = common(known, ids)
    behind = repeated(known[same:], ids[max(held, same) :])
    if same - held < PAGE and not behind:
        return None  # a cache goes back by whole pages: that is no reason to look for
    tokens = behind + max(0, same - held)
    if same == len(known) or same - held >= PAGE and not stored:
        return Again(tokens, "evicted")
    places = [i for i, token in enumerate(ids) if token in ends]
    later = [i for i in places if i >= same]
    begin = places[-len(later) - 1] + 1 if len(later) < len(places) else 0  # of the message, without later ones
    around = ids[max(begin, same - BEFORE) : same + AFTER]
    if not later or len(places) + forgotten - messages not in (0, 1):  # this template writes them in another way
        return Again(tokens, "message", None, same, around)
    number = messages - len(later)
    if number < system:
        return Again(tokens, "system", max(number, 0), same - begin, around)
    if forgotten or _has(known[begin + 1 :], ids[begin : later[0] + 1]):
        return Again(tokens, "history")
    return Again(tokens, "message", number, same - begin, around)


def _has(tokens: array[int], part: array[int]) -> bool:
    whole, wanted, at = tokens.tobytes(), part.tobytes(), -1
    while (at := whole.find(wanted, at + 1)) >= 0:
        if not at % tokens.itemsize:
            return True
    return False
