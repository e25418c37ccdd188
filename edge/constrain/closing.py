"""The end of a constrained answer: a short sequence of tokens after which the grammar is satisfied."""

from __future__ import annotations

from typing import Any

from edge.constrain.spec import Spec
from edge.constrain.vocabulary import Vocabulary

LOOKED_AT = 12  # tokens tried at one place


#: number of tokens at the beginning of an ending that one other token may replace
REPLACED = 4


def again(matcher: Any, before: list[int], limit: int) -> list[int] | None:
    """The rest of the ending that was found one token ago; None if it is not valid any more.

    Inside a string it remains valid: a new search would take a hundred times as long.
    """
    for start in range(min(REPLACED, len(before)) + 1):
        rest = before[start:]
        if len(rest) <= limit and matcher.validate_tokens(rest) == len(rest):
            end = matcher.deep_copy()
            if end.consume_tokens(rest) and end.is_accepting():
                return rest
    return None


def way(matcher: Any, vocabulary: Vocabulary, spec: Spec, limit: int) -> list[int] | None:
    """At most ``limit`` tokens that end the answer validly; None if none were found.  The matcher is left unchanged.

    Where only one token is allowed, it is taken; else a quotation mark if many are allowed (inside a string), or a
    closing bracket if few are; else the token after which the fewest are allowed.
    """
    m, path = matcher.deep_copy(), list[int]()
    few = vocabulary.n_vocab // 8
    while not m.is_accepting():
        room = limit - len(path)
        if room <= 0:
            return None
        forced = m.compute_ff_tokens()[:room]
        taken = m.try_consume_tokens(forced) if forced else 0
        path += forced[:taken]
        if taken:
            continue
        bits = vocabulary.allowed(m, spec)
        if not bits:
            return None
        token = _choose(m, vocabulary, spec, bits, bits.bit_count() > few)
        if not m.consume_token(token):
            return None
        path.append(token)
    return path


def _choose(m: Any, vocabulary: Vocabulary, spec: Spec, bits: int, free: bool) -> int:
    for token in (vocabulary.quote,) if free else vocabulary.ends:
        if token >= 0 and bits >> token & 1:
            return token
    best, token = vocabulary.n_vocab + 1, (bits & -bits).bit_length() - 1
    now = bits.bit_count()
    candidates = [each for each in vocabulary.closers if bits >> each & 1]
    while bits and len(candidates) < LOOKED_AT:
        candidates.append((bits & -bits).bit_length() - 1)
        bits &= bits - 1
    for each in candidates:
        if not m.consume_token(each):
            break
        if m.is_accepting():
            left = 0
        else:
            left = vocabulary.allowed(m, spec).bit_count()
            left = vocabulary.n_vocab if left in (0, now) else left  # no nearer, as far as one can see
        m.rollback(1)
        if left < best:
            best, token = left, each
    return token
