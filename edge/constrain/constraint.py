"""Constraint: the state of one answer in its grammar; the loop of an answer checks every token with it.

The model first chooses from all tokens.  Only if its choice is not allowed, it chooses again from the allowed ones.  So
an answer that is valid without a grammar is the same with it, bit for bit and with the same random numbers.
"""

from __future__ import annotations

import heapq
import json
import math
import re
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cached_property, lru_cache
from typing import Any

from edge.constrain.spec import Spec, why
from edge.constrain.vocabulary import Vocabulary
from edge.errors import UsageError

#: when fewer than this many tokens are left, plus twice the length of the ending, a valid ending is kept ready
WATCHED = 32
#: before that, an ending is looked for when this share of the tokens that are too many has been written
SHARE, LEAST = 5, 4  # and not before so many have been written
#: states that are left in one search, and in all searches of one answer.  A state takes 0.2 to 1.3 ms on one core of an
#: x86-64 server; one more of the effort is counted for so many bytes of the texts with which the form may end
MOST, IN_ALL, BYTES = 200, 2000, 2000
#: number of tokens at the beginning of an ending that one other token may replace
REPLACED = 4
#: bytes of a way that may become one token
JOINED = 4
#: brackets that are closed at once
DEPTH = 64
#: texts with which one expression, or a form, may end; characters of one
MOST_ENDINGS, LONGEST = 256, 512

_PLAIN = bytes(sorted(set(range(33, 127)) - {92}, key=lambda c: b"\"}])0123456789".find(c) % 128))
#: those that are tried where many may come: in a text, or a class
_FEW = b"\"}])0aA,.-@:/ "
#: bytes by which states are compared: whether each may come next
_ASKED = b"\"}],:{[ 0159aezAZ-.@/_\n"
#: signs of a number
_SIGNS = b"0123456789+-.eE"


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
        self._has_json = spec.is_json or bool(spec.parts) or "%json" in spec.grammar
        self._number = b""  # signs of a number at the end
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
        tokens = self._vocabulary.bytewise(text.encode())
        return bool(tokens or not text) and _ends(self._vocabulary.matcher(self._spec.rules()), tokens)

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
        if self._is_infinite(token) or left <= self._watched and not self._can_end(token, left):
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
        self._number = self._number_with(self._vocabulary.token_bytes(token))
        if self._way and self._way[0] == token:
            del self._way[0]
        else:
            self._way = self._next[1] if self._next[0] == token else None
        self._next, self._refused = (-1, []), 0
        if self._only:
            del self._only[0]
        self.done = bool(self._matcher.is_stopped())

    def _number_with(self, data: bytes) -> bytes:
        """The signs of a number at the end, after ``data`` was added."""
        rest = data.rstrip(_SIGNS)
        return data[len(rest) :] if rest else self._number + data

    def _is_infinite(self, token: int) -> bool:
        """Tell if a token makes a number of JSON that is infinity for readers of doubles, and can be left out."""
        if not self._has_json:
            return False
        number = self._number_with(self._vocabulary.token_bytes(token).rstrip(b" \t\r\n,]}"))
        try:
            if math.isfinite(float(number or b"0")):
                return False
        except ValueError:
            return False  # not all of a number
        place = self._matcher  # an end of the number is there, or more digits are needed: see multipleOf
        if b"e" in number.lower():  # its first digit may be needed, others are not
            place = place.deep_copy()
            place.consume_token(token)
        newline, letter = (place.validate_tokens([self._vocabulary.single.get(byte, -1)]) for byte in b"\na")
        return bool(newline or place.is_accepting()) and not letter  # a value may end here, and no text goes on

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


# ---- the end of an answer --------------------------------------------------------------------------------------------


class Closing:
    """Finds ends of answers of one form, with a limited effort for all of them together: short sequences of tokens
    after which the form is complete.

    A search over the states of the grammar, shortest ways first.  From each state it is first tried to close what is
    open, and to go on with what is forced.  The moves from a state are the tokens that are forced; else the texts with
    which the form may end, and one byte at a time.  The bytes of the way are then written with fewer, longer tokens.

    What still has to come is not always visible in what may come next: after any beginning of ``.*[0-9]{3} EUR`` any
    character is allowed.  So texts with which a form may end are read from its regular expressions: "000 EUR",
    "00 EUR", ..., "R".  Such a text may be wrong, since each is checked with the grammar; so an expression is not read
    completely.
    """

    def __init__(self, vocabulary: Vocabulary, spec: Spec) -> None:
        self._vocabulary, self._spec = vocabulary, spec
        self.effort = IN_ALL  # states that may still be left
        self._closers, self._letter, self._asked, self._plain, self._few, self._blanks, self._others = (
            [step for c in text if (step := vocabulary.bytewise(bytes((c,))))]
            for text in (b"\"}])", b"a", _ASKED, _PLAIN, _FEW, b" \n\t", bytes((92, *range(32), *range(127, 256)))))
        self._named = [[token] for token in sorted(spec.allowed)]

    def resume(self, matcher: Any, before: list[int], limit: int) -> list[int] | None:
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
        m = matcher.deep_copy()
        if self.effort <= 0 or after and not m.consume_tokens(after):
            return None
        found = self._search(m, limit)
        return found if found is not None and len(found) <= limit else None

    def _search(self, m: Any, room: int) -> list[int] | None:
        """The tokens to an end: at most ``room``, or the fewest that were found."""
        limit, best = JOINED * room, self._closed(m, JOINED * room, further=True)[0]
        waiting: list[tuple[int, int, list[int]]] = [(0, 0, [])]
        seen = Counter[tuple[int, ...]]()
        for tried in range(MOST):
            if not waiting or self.effort <= 0 or best is not None and len(self._shorter(m, best)) <= room:
                break
            _, _, path = heapq.heappop(waiting)
            if path and not m.consume_tokens(path):
                break
            self.effort -= 1 + sum(map(len, self._hints)) // BYTES
            rest = self._closed(m, further=True)[0]
            if rest is not None and (best is None or len(path) + len(rest) < len(best)):
                best = [*path, *rest]
            for number, step, closers, key in self._steps(m, len(path), limit):
                size = len(path) + len(step)
                if closers is not None and (best is None or size + len(closers) < len(best)):
                    best = [*path, *step, *closers]
                seen[key] += 1
                if seen[key] <= 2:  # of the steps after which the same may come, two are tried
                    heapq.heappush(waiting, (size, tried << 16 | number, [*path, *step]))
            if path:
                m.rollback(len(path))
        if m.is_error():
            self.effort = 0
            return None
        return None if best is None else self._shorter(m, best)

    def _steps(self, m: Any, n: int, most: int) -> Iterator[tuple[int, list[int], list[int] | None, tuple[int, ...]]]:
        """(number, move, what then closes the answer, what tells the state there from others) for each move after
        ``n`` bytes to at most so many; the matcher stands after it until the next one.
        """
        here = self._sign(m)
        for number, step in enumerate(self._moves(m)):
            if n + len(step) > most or m.validate_tokens(step) != len(step) or not m.consume_tokens(step):
                continue
            closers, n_open = self._closed(m)
            sign = self._sign(m)
            # a text that changes nothing visible may have brought the end nearer
            size = -1 - number if sign == here and step in self._hints else n + len(step)
            yield number, step, closers, (size, sign, n_open)
            m.rollback(len(step))

    def _closed(self, m: Any, most: int = DEPTH, further: bool = False) -> tuple[list[int] | None, int]:
        """(what closes all that is open, None if that does not complete the answer; the number of closers taken).

        ``further``: where nothing can be closed, go on with what is forced, or with the first byte that may come.
        """
        path: list[int] = []
        ended = bool(m.is_accepting())
        while not ended and len(path) < most:
            in_text = _next(m, self._letter) is not None and not (self._spec.is_json and self._between(m))
            step = _next(m, self._closers[: self._spec.is_json] if in_text else self._closers)
            if step is None and further:
                forced = m.compute_ff_tokens()
                step = forced[: m.validate_tokens(forced)] or (None if in_text else _next(m, self._plain))
            if step is None or not m.consume_tokens(step):
                break
            path += step
            ended = bool(m.is_accepting())
        if path:
            m.rollback(len(path))
        return path if ended else None, len(path)

    def _moves(self, m: Any) -> list[list[int]]:
        """Tokens that may be tried next."""
        forced: list[int] = m.compute_ff_tokens()
        if n := m.validate_tokens(forced):
            return [forced[:n]]
        able = [step for step in self._plain if m.validate_tokens(step) == 1]
        if len(able) > len(_FEW):
            able = [step for step in self._few if step in able] or able[:3]
        if not self._spec.is_json or not self._between(m):
            able = able + self._blanks
        return [*self._hints, *able, *self._named, *(() if able else self._others)]

    def _between(self, m: Any) -> bool:
        """Tell if the next byte stands between parts of JSON, if it is JSON."""
        return bool(m.validate_tokens([self._vocabulary.newline]) == 1)

    @cached_property
    def _hints(self) -> list[list[int]]:
        """The texts with which the form may end."""
        texts = (self._vocabulary.bytewise(text.encode()) for text in endings(self._spec))
        return [text for text in texts if text]

    def _sign(self, m: Any) -> int:
        """The visible part of a state: the bytes that may come next, a bit each."""
        bits = int(m.is_accepting())
        for step in self._asked:
            bits = bits << 1 | (m.validate_tokens(step) == 1)
        return bits

    def _shorter(self, matcher: Any, path: list[int]) -> list[int]:
        """The same way in the tokens in which the tokenizer writes its text, if the grammar takes them."""
        if not self._vocabulary.silent.isdisjoint(path):
            return path
        try:
            runs = self._vocabulary.encode(b"".join(map(self._vocabulary.token_bytes, path)).decode())
        except UnicodeDecodeError:
            return path
        return runs if len(runs) < len(path) and _ends(matcher, runs) else path


def _next(m: Any, steps: list[list[int]]) -> list[int] | None:
    """The first step that may come."""
    return next((step for step in steps if m.validate_tokens(step) == 1), None)


def _ends(matcher: Any, tokens: list[int]) -> bool:
    """Tell if the form is complete after these tokens."""
    if matcher.validate_tokens(tokens) != len(tokens):
        return False
    end = matcher.deep_copy()
    return bool(end.consume_tokens(tokens) and end.is_accepting())


# ---- texts with which a form may end ---------------------------------------------------------------------------------

#: a mark between the characters of a regular expression, or one of these and how often it comes at least
_ELEMENT = re.compile(
    r"""(?:\((?:\?(?:P?<[^>]*>|[a-zA-Z-]*:?))?|\)|[\^$]|\\[bBAz])(?:[*+?]|\{[^}]*\})?\??
      | (?P<or>\|)
      | (?P<one>\[\^?\]?(?:\\.|[^]\\])*\]|\\x..|\\u....|\\.|.)(?:\{\s*(?P<least>\d*)[^}]*\}|(?P<any>[*?])|\+)?\??""",
    re.VERBOSE | re.DOTALL,
)
#: parts of a schema or a Lark grammar that may hold endings: pattern, length, text, regular expression
_SOURCE = re.compile(
    r'//[^\n]*|"pattern": ("(?:\\.|[^"\\])*")|"minLength": (\d+)|("(?:\\.|[^"\\])*")|/((?:\\.|[^/\\\n])+)/')


def endings(spec: Spec) -> list[str]:
    """Texts with which an answer of this form may end, as they stand in the answer."""
    kept: dict[str, None] = {}
    for form in (spec, *(part for _, part in spec.parts)):
        for pattern, least, text, expression in _SOURCE.findall(form.grammar):
            try:
                if pattern:
                    found = [json.dumps(each, ensure_ascii=False)[1:-1] for each in of_regex(json.loads(pattern))]
                elif text:
                    found = [] if form.is_json else of_regex(re.escape(json.loads(text)))
                else:
                    found = of_regex(f"a{{{least}}}" if least else expression.replace("\\/", "/"))
            except ValueError:  # no text of JSON
                continue
            kept |= dict.fromkeys(found)
    return list(kept)[:MOST_ENDINGS]


def of_regex(pattern: str) -> list[str]:
    """Texts with which a regular expression may end: the shortest of each of its branches, brackets left out, from
    each of its characters on.
    """
    found, text = list[str](), ""
    for element in _ELEMENT.finditer(pattern + "|"):
        if element["or"]:
            found += [text[i:] for i in range(len(text))]
            text = ""
        elif element["one"] and not element["any"]:
            text = (text + _letter(element["one"]) * min(int(element["least"] or 1), LONGEST))[:LONGEST]
    return found


@lru_cache
def _letter(element: str) -> str:
    """A character that one element stands for."""
    if len(element) == 1 and element != ".":
        return element
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # where Python may once read a class as Rust does
        try:
            fits = re.compile(element, re.DOTALL).fullmatch
        except (re.error, OverflowError):  # Rust's alone
            return "a"
    return next(filter(fits, "a0A -._\n\t\r" + element + "é~"), "a")
