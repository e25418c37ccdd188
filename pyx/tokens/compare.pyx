"""compare: two rows of logits for the same next token: likelihood, divergence, first choice.

All sums are in double, in the order of the vocabulary; a row of 128 k logits has an error of about 1e-14.  Rows must be
finite: in an average, a logit that is not would not be noticed.
"""

import array

from libc.math cimport exp, isfinite, log
from libc.stdint cimport int32_t, int64_t


cdef double log_sum(const float *row, int64_t n, int64_t *best) noexcept nogil:
    """log(sum(exp(row))) of row [n] without overflow; NaN if a logit is not finite. best [1]: the first arg-max."""
    cdef int64_t i, top = 0
    cdef double total = 0
    for i in range(n):
        if not isfinite(row[i]):
            return <double>0.0 / <double>0.0
        if row[i] > row[top]:
            top = i
    for i in range(n):
        total += exp(<double>row[i] - row[top])
    best[0] = top
    return row[top] + log(total)


cdef double divergence(const float *p, double p_sum, const float *q, double q_sum, int64_t n) noexcept nogil:
    """Kullback-Leibler divergence of softmax(q) from softmax(p), in nats. p, q: [n]; p_sum, q_sum: their log_sum."""
    cdef int64_t i
    cdef double log_p, total = 0
    for i in range(n):
        log_p = p[i] - p_sum
        total += exp(log_p) * (log_p - (q[i] - q_sum))
    return max(total, 0.0)  # rounding can leave -1e-16 of nothing


def log_likelihoods(logits, tokens, int64_t n_vocab):
    """log p(token) of each row, in nats: array("d") [n]. logits: float32 [n][n_vocab] flat; tokens: int32 [n].

    Raises ValueError if sizes do not fit, a token is not in the vocabulary or a logit is not finite.
    """
    cdef const float[::1] rows = logits         # [n][n_vocab]
    cdef const int32_t[::1] wanted = tokens    # [n]
    cdef int64_t n = wanted.shape[0], i, best = 0
    check(rows, wanted, n_vocab)
    cdef double[::1] out = array.array("d", bytes(8 * n))
    with nogil:
        for i in range(n):
            out[i] = rows[i * n_vocab + wanted[i]] - log_sum(&rows[i * n_vocab], n_vocab, &best)
    check_finite(out)
    return out.base


def divergences(reference, other, tokens, int64_t n_vocab):
    """For each row: (KL of ``other`` from ``reference`` in nats, log p(token) by ``other``, same first choice).

    reference, other: float32 [n][n_vocab] flat; tokens: int32 [n].  Returns array("d") [n] twice and array("b") [n] of
    0 and 1.  Raises ValueError as log_likelihoods does.
    """
    cdef const float[::1] p = reference, q = other  # [n][n_vocab]
    cdef const int32_t[::1] wanted = tokens        # [n]
    cdef int64_t n = wanted.shape[0], i, p_best = 0, q_best = 0
    cdef double p_sum, q_sum
    check(p, wanted, n_vocab)
    check(q, wanted, n_vocab)
    cdef double[::1] kl = array.array("d", bytes(8 * n)), likelihood = array.array("d", bytes(8 * n))
    cdef signed char[::1] same = array.array("b", bytes(n))
    with nogil:
        for i in range(n):
            p_sum = log_sum(&p[i * n_vocab], n_vocab, &p_best)
            q_sum = log_sum(&q[i * n_vocab], n_vocab, &q_best)
            kl[i] = divergence(&p[i * n_vocab], p_sum, &q[i * n_vocab], q_sum, n_vocab)
            if p_sum != p_sum:
                kl[i] = p_sum  # NaN: max() in divergence may hide it
            likelihood[i] = q[i * n_vocab + wanted[i]] - q_sum
            same[i] = p_best == q_best
    check_finite(kl)
    check_finite(likelihood)
    return kl.base, likelihood.base, same.base


cdef check(const float[::1] rows, const int32_t[::1] wanted, int64_t n_vocab):
    """Raise ValueError unless rows is [n][n_vocab] and wanted [n] has ids of the vocabulary."""
    cdef int64_t i
    if n_vocab < 1 or rows.shape[0] != wanted.shape[0] * n_vocab:
        raise ValueError(f"{rows.shape[0]} logits are not {wanted.shape[0]} rows of {n_vocab}")
    for i in range(wanted.shape[0]):
        if not 0 <= wanted[i] < n_vocab:
            raise ValueError(f"token {wanted[i]} is not one of the {n_vocab} of the vocabulary")


cdef check_finite(const double[::1] values):
    """Raise ValueError unless each of values [n], one per row, is finite."""
    cdef int64_t i
    for i in range(values.shape[0]):
        if not isfinite(values[i]):
            raise ValueError(f"row {i} holds a logit that is not finite")
