"""The end of a constrained answer: a short sequence of tokens after which the form is complete.

A search over the states of the grammar, shortest ways first, until one is found that fits.  From each state it is first
tried to close what is open, and to go on with what is forced.  The moves from a state are the tokens that are forced;
else the texts with which the form may end (:mod:`edge.constrain.endings`), and one byte at a time.  Of the bytes after
which the same may come, two are tried.  The bytes of the way are then written with fewer, longer tokens.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from typing import Any

from edge.constrain.endings import endings
from edge.constrain.spec import Spec
from edge.constrain.vocabulary import Vocabulary

#: states that are left in one search, and in all searches of one answer.  A state takes 0.2 to 1.3 ms on one core of an
#: x86-64 server
MOST, IN_ALL = 500, 4000
#: in one search where the answer can be ended otherwise, or for a large form
BEHIND = 64
#: characters of a form that is compiled a second time for the search; of a larger one this would take too much memory
SMALL = 1 << 10
#: number of tokens at the beginning of an ending that one other token may replace
REPLACED = 4
#: bytes of a way that may become one token
JOINED = 4
#: brackets that are closed at once
DEPTH = 64

_FIRST = b"\"}])0123456789"
_PLAIN = _FIRST + bytes(c for c in range(33, 127) if c not in _FIRST and c != 92)
_BLANKS = b" \n\t"
_WORDS = b"0123456789", b"abcdefghijklmnopqrstuvwxyz", b"ABCDEFGHIJKLMNOPQRSTUVWXYZ"
_KINDS = (*(bytes((c,)) for c in _PLAIN if not bytes((c,)).isalnum()), *_WORDS)
#: those that are tried where most bytes may come: in a text
_FEW = b"\"}])0aA,.-@:/ "
#: bytes by which states are compared: whether each may come next
_ASKED = b"\"}],:{[ 0159aezAZ-.@/_\n"


class Closing:
    """Finds ends of answers of one form, with a limited effort for all of them together."""

    def __init__(self, vocabulary: Vocabulary, spec: Spec, lead: str = "") -> None:
        single = vocabulary.single
        self._vocabulary, self._spec, self._rules = vocabulary, spec, spec.rules(lead)
        self._own: Any = vocabulary.matcher(self._rules, ahead=True) if len(self._rules) <= SMALL else None
        self.effort = IN_ALL  # states that may still be left
        self._closers = [[single[c]] for c in b"\"}])" if c in single]
        self._letter = [single.get(97, -1)]
        self._asked = [[single[c]] for c in _ASKED if c in single]
        self._plain = [[single[c]] for c in _PLAIN if c in single]
        #: digits, letters, and each other byte alone
        self._kinds = [frozenset(single[c] for c in kind if c in single) for kind in _KINDS]
        self._few = [[single[c]] for c in _FEW if c in single]
        self._blanks = [[single[c]] for c in _BLANKS if c in single]
        self._others = [[token] for c, token in single.items() if c > 126 or c == 92 or c < 32]
        self._named = [[token] for token in sorted(spec.allowed)]
        self._texts: list[list[int]] | None = None

    def accept(self, token: int) -> None:
        """Follow the answer."""
        if self._own is not None and not self._own.consume_token(token):
            self._give_up()

    def again(self, matcher: Any, before: list[int], limit: int) -> list[int] | None:
        """The rest of the way that was found one token ago; None if it is not valid any more.

        Inside a string it remains valid: a new search would take a hundred times as long.
        """
        for start in range(min(REPLACED, len(before)) + 1):
            rest = before[start:]
            if len(rest) <= limit and _ends(matcher, rest):
                return rest
        return None

    def way(self, matcher: Any, limit: int, after: Sequence[int] = ()) -> list[int] | None:
        """At most ``limit`` tokens that end the answer validly, if it goes on with ``after``; None if none were found.

        The matcher of the answer is left unchanged.
        """
        if self.effort <= 0:
            return None
        m = (self._own or matcher).deep_copy()
        if after and not m.consume_tokens(after):
            return None
        found = self._search(m, limit, BEHIND if after or self._own is None else MOST)
        if m.is_error():
            self._give_up()
        if found is None:
            return None
        m = matcher.deep_copy()
        if after and not m.consume_tokens(after):
            return None
        found = self._shorter(m, found)
        return found if len(found) <= limit else None

    def _give_up(self) -> None:
        self.effort, self._own = 0, None
        self._vocabulary.forget(self._rules, ahead=True)

    def _search(self, m: Any, room: int, most: int) -> list[int] | None:
        """The tokens to an end, single bytes for the most part: at most ``room``, or the fewest that were found."""
        limit = JOINED * room
        waiting: list[tuple[int, int, list[int]]] = [(0, 0, [])]
        seen: set[tuple[int, ...]] = set()
        best: list[int] | None = self._closed(m, limit, further=True)[0]
        if best is not None and len(self._shorter(m, best)) <= room:
            return best
        tried = n = 0
        while waiting and tried < most and self.effort > 0:
            size, _, path = heapq.heappop(waiting)
            if best is not None and len(best) <= max(room, size + 1):
                break
            if path and not m.consume_tokens(path):
                break
            tried += 1
            self.effort -= 1
            if path and (rest := self._closed(m, further=True)[0]) and (best is None or size + len(rest) < len(best)):
                best = [*path, *rest]
            here = self._sign(m)
            groups: dict[tuple[int, ...], int] = {}
            for hint, step in self._moves(m):
                size = len(path) + len(step)
                if size > limit or m.validate_tokens(step) != len(step) or not m.consume_tokens(step):
                    continue
                sign = self._sign(m)
                if hint < 0:
                    groups[sign] = groups.get(sign, 0) + 1
                # a text that changes nothing visible may have brought the end nearer
                key = (hint, *sign) if hint >= 0 and sign == here else (size, groups.get(sign, 0), *sign)
                if key not in seen and groups.get(sign, 0) <= 2:
                    seen.add(key)
                    closers, _ = self._closed(m)
                    if closers is not None and (best is None or size + len(closers) < len(best)):
                        best = [*path, *step, *closers]
                    n += 1
                    heapq.heappush(waiting, (size, n, [*path, *step]))
                m.rollback(len(step))
            if m.is_error():
                break
            if path:
                m.rollback(len(path))
        return best if best is not None and len(best) <= limit else None

    def _closed(self, m: Any, most: int = DEPTH, further: bool = False) -> tuple[list[int] | None, int]:
        """(what closes all that is open, None if that does not complete the answer; the number of closers taken).

        ``further``: where nothing can be closed, go on with what is forced, or with the first byte that may come.
        """
        path: list[int] = []
        newline = self._vocabulary.newline
        ended = bool(m.is_accepting())
        while not ended and len(path) < most:
            in_text = m.validate_tokens(self._letter) == 1
            if self._spec.is_json:
                in_text = in_text and m.validate_tokens([newline]) != 1
                able = self._closers[:1] if in_text else self._closers
            else:
                able = [] if in_text else self._closers
            step = next((step for step in able if m.validate_tokens(step) == 1), None)
            if step is None and further:
                forced = m.compute_ff_tokens()
                step = forced[: m.validate_tokens(forced)] or None
                if step is None and not in_text:
                    step = next((step for step in self._plain if m.validate_tokens(step) == 1), None)
            if step is None or not m.consume_tokens(step):
                break
            path += step
            ended = bool(m.is_accepting())
        if path:
            m.rollback(len(path))
        return path if ended else None, len(path)

    def _moves(self, m: Any) -> list[tuple[int, Sequence[int]]]:
        """(number of the text or -1, tokens) that may be tried next."""
        forced = m.compute_ff_tokens()
        if n := m.validate_tokens(forced):
            return [(-1, forced[:n])]
        moves: list[tuple[int, Sequence[int]]] = list(enumerate(self._hints()))
        able: list[Sequence[int]] = [step for step in self._plain if m.validate_tokens(step) == 1]
        if 2 * len(able) > len(self._plain):
            able = [*self._few]
        else:
            able = [step for kind in self._kinds for step in _few_of([each for each in able if each[0] in kind])]
        spaced = self._spec.is_json or self._spec.spaced
        if not spaced or m.validate_tokens([self._vocabulary.newline]) != 1:  # else between parts of JSON
            able += self._blanks
        able += self._named
        return [*moves, *((-1, step) for step in (*able, *(() if able and able[0] in self._plain else self._others)))]

    def _hints(self) -> list[list[int]]:
        if self._texts is None:
            single = self._vocabulary.single
            texts = (text.encode() for text in endings(self._spec))
            self._texts = [[single[c] for c in text] for text in texts if all(c in single for c in text)]
        return self._texts

    def _sign(self, m: Any) -> tuple[int, int]:
        """What is visible of a state: which bytes may come next, a bit each, and how much is open."""
        bits = int(m.is_accepting())
        for step in self._asked:
            bits = bits << 1 | (m.validate_tokens(step) == 1)
        return bits, self._closed(m)[1]

    def _shorter(self, matcher: Any, path: list[int]) -> list[int]:
        """The same way in the tokens in which the tokenizer writes its text, if the grammar takes them."""
        runs: list[int] = []
        text = b""
        silent = self._vocabulary.silent
        for token in [*path, -1]:
            if token >= 0 and token not in silent:
                text += self._vocabulary.token_bytes(token)
                continue
            try:
                runs += self._vocabulary.encode(text.decode()) if text else ()
            except UnicodeDecodeError:
                return path
            text = b""
            if token >= 0:
                runs.append(token)
        return runs if len(runs) < len(path) and _ends(matcher, runs) else path


def _few_of(steps: list[Sequence[int]]) -> list[Sequence[int]]:
    """Some of several that are alike."""
    return [*steps[:2], *steps[2:][-1:]]


def _ends(matcher: Any, tokens: list[int]) -> bool:
    """Whether the form is complete after these tokens."""
    if matcher.validate_tokens(tokens) != len(tokens):
        return False
    end = matcher.deep_copy()
    return bool(end.consume_tokens(tokens) and end.is_accepting())
