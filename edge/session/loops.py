"""loops: detects an answer whose end only repeats itself.

Small models, and greedy sampling, can fall into loops: the same words again and again, until ``max_tokens``.  A loop is
found if the latest REPEATED tokens repeat the text directly before them word for word, at least TIMES times in all.
Lists, tables and rulers of a few lines are shorter.
"""

from __future__ import annotations

from array import array

#: the answer is tested once per this many tokens, which takes a few microseconds
EVERY = 32
#: number of tokens that must be a repetition; least number of repetitions; most tokens of the repeated part
REPEATED, TIMES, LONGEST = 160, 4, 256
_KEY = 16  # latest tokens that are looked for in front of themselves


def loops(tokens: array[int], n: int) -> bool:
    """Whether the end of ``tokens``, whose last ``n`` are the answer, only repeats what is before it."""
    size = tokens.itemsize
    tail = tokens[-min(n, TIMES * LONGEST) :].tobytes()
    key = tail[-_KEY * size :]
    at = tail.rfind(key, 0, len(tail) - size)
    while at > 0 and at % size:  # between two tokens
        at = tail.rfind(key, 0, at + len(key) - 1)
    if at < 0:
        return False
    period = len(tail) - len(key) - at
    repeated = max(REPEATED * size, (TIMES - 1) * period)
    return len(tail) >= repeated + period and tail[-repeated:] == tail[-repeated - period : -period]
