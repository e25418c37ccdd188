"""The sampler in NumPy float64 with full sorts: slow and obvious.

Written from the description in the docstring of pyx/tokens/sampler.pxi and from llama.cpp's behaviour, not from
its code.
"""

from __future__ import annotations

import numpy as np

MASK = (1 << 64) - 1


def penalise(logits, recent, repeat=1.0, presence=0.0, frequency=0.0):
    """float32 [n] -> float32 [n]; each id of recent once, arithmetic in double, stored as float32."""
    out = np.array(logits, np.float32)
    ids, counts = np.unique([i for i in recent if 0 <= i < len(out)], return_counts=True)
    for i, count in zip(ids.astype(int), counts):
        value = float(out[i])
        value = value * repeat if value <= 0 else value / repeat
        out[i] = np.float32(value - (float(count) * frequency + presence))
    return out


def candidates(logits, temp=1.0, top_k=0, top_p=1.0, min_p=0.0):
    """(ids, probabilities) in walking order, or None where no logit is usable.

    The third value is how near top-p came to a tie: |mass - top_p| at the nearest prefix; a test may excuse a
    different cut when it is of the order of one rounding.
    """
    x = np.array(logits, np.float64)
    x[np.isnan(x)] = -np.inf
    x[x == np.inf] = np.finfo(np.float32).max
    n = len(x)
    if x.max() == -np.inf:
        return None
    ids = np.arange(n)
    if temp <= 0:
        return [int(np.flatnonzero(x == x.max())[0])], [1.0], np.inf
    order = np.lexsort((ids, -x))
    order = order[x[order] > -np.inf]
    if 0 < top_k < n:
        order = order[:top_k]
    nearness = np.inf
    keep = len(order)
    if top_p < 1:
        weight = np.exp(x[order] - x.max())
        mass = np.cumsum(weight) / weight.sum()
        nearness = float(np.abs(mass - top_p).min())
        keep = int(np.argmax(mass >= top_p)) + 1 if (mass >= top_p).any() else len(order)
    if min_p > 0:
        keep = min(keep, int((x[order] >= x.max() + np.log(min_p)).sum()))
    order = order[: max(1, keep)]
    if not 0 < top_k < n and top_p >= 1:
        order = np.sort(order)
    weight = np.exp((x[order] - x.max()) / temp)
    return order.tolist(), (weight / weight.sum()).tolist(), nearness


def pick(ids, probabilities, uniform):
    """The id on which a uniform falls, walking in order."""
    total = 0.0
    for i, p in zip(ids, probabilities):
        total += p
        if total > uniform:
            return i
    return next(i for i, p in zip(reversed(ids), reversed(probabilities)) if p > 0)


class Xoshiro:
    """xoshiro256** seeded through splitmix64, in Python integers."""

    def __init__(self, seed):
        self.s = []
        x = seed & MASK
        for _ in range(4):
            x = (x + 0x9E3779B97F4A7C15) & MASK
            z = x
            z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
            z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
            self.s.append(z ^ (z >> 31))

    def next(self):
        def rotl(x, k):
            return ((x << k) | (x >> (64 - k))) & MASK

        s = self.s
        result = (rotl((s[1] * 5) & MASK, 7) * 9) & MASK
        t = (s[1] << 17) & MASK
        s[2] ^= s[0]
        s[3] ^= s[1]
        s[1] ^= s[2]
        s[0] ^= s[3]
        s[2] ^= t
        s[3] = rotl(s[3], 45)
        return result

    def uniform(self):
        return (self.next() >> 11) * 2.0**-53
