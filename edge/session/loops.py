"""loops: detects an answer whose end only repeats itself, word for word.

Small models, and greedy sampling, can fall into loops: the same words again and again, until ``max_tokens``.  A loop is
found if the latest REPEATED tokens repeat the text directly before them, at least TIMES times in all.  Lists, tables
and rulers of a few lines are shorter.
"""

from __future__ import annotations

from array import array

#: the answer is tested once per this many tokens, which takes a few microseconds
EVERY = 32
#: number of tokens that must be a repetition; least number of repetitions; most tokens of the repeated part
REPEATED, TIMES, LONGEST = 160, 4, 256
_KEY = 16  # latest tokens that are looked for before themselves


def loops(tokens: array[int], n: int) -> int:
    """The number of tokens at the end of ``tokens``, whose last ``n`` are the answer, that only repeat the text before
    them; 0 if that is no loop yet.
    """
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
