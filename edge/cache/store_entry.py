"""Store entry: a known beginning of prompts: its tokens, and its KV cache or the file that has it."""

from __future__ import annotations

from array import array
from typing import Any

from edge.cache import state
from edge.cache.state import ConversationState


class Entry:
    """A beginning: its tokens, and its KV cache unless that is in a file of ``folder``, an
    :class:`edge.cache.store_folder.Folder`, with the name ``file``.

    ``key``: the tokens as bytes.  ``sampled``: the last token of an answer if it is not in the cache.  ``talk``: of a
    conversation, its messages, and how many of the oldest are not among the tokens; else None.  ``extra_bytes``: what
    it takes apart from its pages.
    """

    def __init__(self, tokens: array[int], sampled: array[int], talk: ConversationState | None, kv: Any = None,
                 folder: Any = None) -> None:
        self.key = tokens.tobytes()
        self.n = len(tokens)
        self.sampled = sampled
        self.talk = talk
        self.kv = kv
        self.folder = folder
        self.file = ""
        self.nbytes: int = 0 if kv is None else kv.stats["bytes"]
        self.extra_bytes: int = len(self.key) + (0 if kv is None else kv.extra_bytes)

    @property
    def tokens(self) -> array[int]:
        """The tokens."""
        return array("i", self.key)

    def with_cache(self, kv: Any) -> Entry:
        """The same with its KV cache."""
        return Entry(self.tokens, self.sampled, self.talk, kv)

    def continues(self, other: Entry) -> bool:
        """Whether this entry holds all of another one, and more."""
        return self.n > other.n and self.key.startswith(other.key)

    def first(self, n: int, kv: Any) -> Entry:
        """The first ``n`` tokens, and no more than this cache can go back to, for a session that takes them over."""
        n = kv.crop(n)
        return Entry(self.tokens[:n], self.sampled if n == self.n else array("i"), self.talk, kv)


def common(key: bytes, want: bytes, likely: int) -> int:
    """Length of the common beginning of two token lists, given as bytes; found at once if it is ``likely``.

    Many entries part at the same token, behind their system prompt.
    """
    at = 4 * likely
    if key[at : at + 4] != want[at : at + 4] and key.startswith(want[:at]):
        return likely
    return state.common(array("i", key), array("i", want))
