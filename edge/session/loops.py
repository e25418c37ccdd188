"""loops: detects an answer whose end only repeats itself, word for word or with small variations.

Small models, and greedy sampling, can fall into loops: the same words again and again, until ``max_tokens``.  A loop is
found if the latest REPEATED tokens repeat the text directly before them word for word, at least TIMES times in all.
Lists, tables and rulers of a few lines are shorter.

A loop with variations says the same phrases in another order or number.  It is found in prose, if in its latest VARIED
tokens hardly any three in a row are new to the answer, and most times eight in a row have been there twice before.
Songs with a refrain and lists stay far from that, since each verse or line brings words that were not there; code and
tables may come near it, but are no prose.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Callable

#: the answer is tested once per this many tokens, which takes a few microseconds
EVERY = 32
#: number of tokens that must be a repetition; least number of repetitions; most tokens of the repeated part
REPEATED, TIMES, LONGEST = 160, 4, 256
_KEY = 16  # latest tokens that are looked for in front of themselves
#: the same for variations: tokens that must bring nothing new, and most of those before them that are looked at;
#: most new groups of SHORT tokens in them, least groups of LONG tokens that are known from TWO other places; least
#: different tokens (fewer are drawings, whose few characters soon stand in any order)
VARIED, LOOKED_AT = 192, 1024
SHORT, MOST_NEW = 3, VARIED // 20
LONG, LEAST_KNOWN, TWO = 8, VARIED * 7 // 10, 2
LEAST_DIFFERENT = 8
#: characters of prose, and their least share
_PROSE, LEAST_PROSE = re.compile(r"[^\W\d_]|[\s.,;:!?'’\"“”-]"), 0.98


def loops(tokens: array[int], n: int, decode: Callable[[array[int]], str]) -> int:
    """The number of tokens at the end of ``tokens``, whose last ``n`` are the answer, that only repeat what is before
    them; 0 if that is no loop yet.  ``decode``: tokens -> their text.
    """
    return _exact(tokens, n) or _varied(tokens[-min(n, LOOKED_AT) :], decode)


def _exact(tokens: array[int], n: int) -> int:
    """The same for words that are repeated as they are."""
    size = tokens.itemsize
    tail = tokens[-min(n, TIMES * LONGEST) :].tobytes()
    key = tail[-_KEY * size :]
    at = tail.rfind(key, 0, len(tail) - size)
    while at > 0 and at % size:  # between two tokens
        at = tail.rfind(key, 0, at + len(key) - 1)
    if at < 0:
        return 0
    period = len(tail) - len(key) - at
    repeated = max(REPEATED * size, (TIMES - 1) * period)
    if len(tail) < repeated + period or tail[-repeated:] != tail[-repeated - period : -period]:
        return 0
    while len(tail) >= repeated + period + size and tail[-repeated - size : -repeated] == tail[
            -repeated - period - size : -repeated - period]:
        repeated += size
    return repeated // size


def _varied(tail: array[int], decode: Callable[[array[int]], str]) -> int:
    """The same for variations; ``tail`` is the end of the answer."""
    if len(tail) < VARIED * 3 // 2 or len(set(tail[-VARIED:])) < LEAST_DIFFERENT:
        return 0
    new = [not times for times in _known(tail, SHORT)]
    if sum(new[-VARIED:]) > MOST_NEW or sum(times >= TWO for times in _known(tail, LONG)[-VARIED:]) < LEAST_KNOWN:
        return 0
    text = decode(tail[-VARIED:])
    if len(_PROSE.findall(text)) < LEAST_PROSE * len(text):
        return 0
    first = len(new) - VARIED
    while first and not new[first - 1]:
        first -= 1
    return len(new) - first


def _known(tail: array[int], size: int) -> list[int]:
    """For each group of ``size`` tokens in a row how often it has been in ``tail`` before."""
    seen: dict[tuple[int, ...], int] = {}
    known = []
    for group in zip(*(tail[at:] for at in range(size)), strict=False):
        known.append(seen.get(group, 0))
        seen[group] = known[-1] + 1
    return known
