"""Constraint: the state of one answer in its grammar; the loop of an answer checks every token with it.

The model first chooses from all tokens.  Only if its choice is not allowed, it chooses again from the allowed ones.  So
an answer that is valid without a grammar is the same with it, bit for bit and with the same random numbers.
"""

from __future__ import annotations

from collections.abc import Sequence

from edge.constrain.closing import Closing
from edge.constrain.spec import Spec, why
from edge.constrain.vocabulary import Vocabulary
from edge.errors import UsageError

#: when fewer than this many tokens are left, plus twice the length of the ending, a valid ending is kept ready
WATCHED = 32
#: before that, an ending is looked for when this share of the tokens that are too many has been written
SHARE, LEAST = 5, 4  # and not before so many have been written


class Constraint:
    """``allows`` and ``mask``: what may come next.  ``accept`` takes a token.  ``done``: nothing may follow.

    ``lead``: white space that the model may write before the answer and that is not part of it.  ``most``: the largest
    number of tokens.
    """

    def __init__(
        self, vocabulary: Vocabulary, spec: Spec, lead: str = "", most: int = 1 << 30, ends: bool = True
    ) -> None:
        self.done = False
        self._vocabulary, self._spec = vocabulary, spec
        self._stop_ids = vocabulary.stop_ids if ends else frozenset()
        self._stops = vocabulary.stops if ends else 0
        self._rules = spec.rules(lead)
        self._matcher = vocabulary.matcher(self._rules)
        self._styles = [vocabulary.matcher(spec.rules(lead, style)) for style in spec.styles]
        self._only: list[int] = []  # tokens that end the answer: nothing else may come
        self._closing = Closing(vocabulary, spec)
        self._must_stop = False
        self._refused = 0  # tokens that the grammar takes and we do not, a bit each
        self._next: tuple[int, list[int]] = (-1, [])  # a token, and the way after it
        self._way: list[int] | None = None  # from here to a valid end, None if not known
        self._known: list[int] = []  # the latest of them, from wherever it was
        self._watched = 0  # tokens left from which the way is kept
        self._look = -1  # tokens left at which a way is looked for again: it may have become longer
        self._find_way(most)

    @property
    def satisfied(self) -> bool:
        """True if the tokens so far are a complete answer."""
        return bool(self._matcher.is_accepting())

    def has_form(self, text: str) -> bool:
        """Tell if a text of the answer, which a stop text has cut, is a complete answer all the same."""
        if self._spec.parts:
            return self.satisfied
        matcher, tokens = self._vocabulary.matcher(self._spec.rules()), self._vocabulary.bytewise(text.encode())
        return bool(tokens or not text) and bool(matcher.consume_tokens(tokens) and matcher.is_accepting())

    def allows(self, token: int, left: int) -> bool:
        """Tell if ``token`` may come next; ``left`` tokens may still be written, including this one."""
        if self._only:
            return token == self._only[0]
        if token in self._stop_ids:
            return self.satisfied
        if token in self._vocabulary.silent and token not in self._spec.allowed:
            return False
        if self._matcher.validate_tokens([token]) != 1:
            return False
        if left <= self._look:
            self._find_way(left)
        if left <= self._watched and not self._can_end(token, left):
            self._refused |= 1 << token
            return False
        return True

    def mask(self) -> bytes:
        """The tokens that may come next: one bit each, lowest bit of a byte first.  Raises UsageError if there is none.

        The chosen token must still be checked with :meth:`allows`, which is more exact.
        """
        vocabulary = self._vocabulary
        if self._only:
            bits = 1 << self._only[0]
        elif self._must_stop:
            bits = self._stops
        else:
            bits = vocabulary.allowed(self._matcher, self._spec) & ~self._refused
            if self._matcher.is_error():
                raise self._failure()
            if self.satisfied:
                bits |= self._stops
        if not bits:
            raise UsageError(f"the form of the answer allows no token of this model: {why(self._matcher)}")
        return bits.to_bytes((vocabulary.n_vocab + 8) // 8, "little")

    def accept(self, token: int) -> None:
        """Add the token that was chosen; :meth:`allows` must have allowed it."""
        if not self._matcher.consume_token(token):
            raise self._failure()
        self._styles = [each for each in self._styles if each.try_consume_tokens([token]) == 1]
        if self._way and self._way[0] == token:
            del self._way[0]
        else:
            self._way = self._next[1] if self._next[0] == token else None
        self._next, self._refused = (-1, []), 0
        if self._only:
            del self._only[0]
        self.done = bool(self._matcher.is_stopped())

    def forced(self) -> Sequence[int]:
        """Tokens that certainly come next, or usually: where JSON can be written in several ways, the usual one."""
        if self._only:
            return self._only
        forced: list[int] = self._matcher.compute_ff_tokens()
        for style in self._styles:
            if forced:
                break
            forced = style.compute_ff_tokens()
        return forced

    def _failure(self) -> UsageError:
        """The error of a grammar that proves too large only while an answer is written."""
        self._vocabulary.forget(self._rules)
        return UsageError(f"the form of the answer is too large or too ambiguous: {why(self._matcher)}")

    def _find_way(self, left: int) -> None:
        """Look for an end within ``left`` tokens, and choose when to look again, or to keep it."""
        self._way = self._closing.resume(self._matcher, self._known, left)
        if self._way is None:
            self._way = self._closing.way(self._matcher, left)
        self._look = -1
        if self._way is not None:
            self._known = list(self._way)
            self._watched = max(self._watched, 2 * len(self._way) + WATCHED)
            if left > self._watched:
                self._look = left - max(LEAST, (left - self._watched) // SHARE)

    def _can_end(self, token: int, left: int) -> bool:
        """Tell if the answer can still be ended after ``token`` in ``left`` tokens; if not, it is ended now by the
        known ending.
        """
        if self._way and self._way[0] == token:
            return True
        after = self._matcher.deep_copy()
        if after.consume_token(token):
            way = self._closing.resume(after, self._known, left - 1)
            if way is None:
                way = self._closing.way(self._matcher, left - 1, [token])
            if way is not None:
                self._next = (token, way)
                self._known = list(way)
                return True
        if self._way is None:
            self._way = self._closing.resume(self._matcher, self._known, left) or self._closing.way(self._matcher, left)
        if self._way is None:
            return True  # no end is near enough: the limit will cut the answer
        self._only = list(self._way)
        self._must_stop = not self._only and bool(self._stops)
        return not self._only and not self._stops
