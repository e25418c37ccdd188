"""compare: how likely rows of logits make given tokens.

All sums are in double, in the order of the vocabulary; a row of 128 k logits has an error of about 1e-14.  Rows must be
finite: in an average, a logit that is not would not be noticed.
"""


cdef double log_sum(const float *row, int64_t n) noexcept nogil:
    """log(sum(exp(row))) of row [n] without overflow; NaN if a logit is not finite."""
    cdef int64_t i, top = 0
    cdef double total = 0
    for i in range(n):
        if not isfinite(row[i]):
            return <double>0.0 / <double>0.0
        if row[i] > row[top]:
            top = i
    for i in range(n):
        total += exp(<double>row[i] - row[top])
    return row[top] + log(total)


def log_likelihoods(logits, tokens, int64_t n_vocab):
    """log p(token) of each row, in nats: array("d") [n]. logits: float32 [n][n_vocab] flat; tokens: int32 [n].

    Raises ValueError if sizes do not fit, a token is not in the vocabulary or a logit is not finite.
    """
    cdef const float[::1] rows = logits         # [n][n_vocab]
    cdef const int32_t[::1] wanted = tokens    # [n]
    cdef int64_t n = wanted.shape[0], i
    if n_vocab < 1 or rows.shape[0] != n * n_vocab:
        raise ValueError(f"{rows.shape[0]} logits are not {n} rows of {n_vocab}")
    for i in range(n):
        if not 0 <= wanted[i] < n_vocab:
            raise ValueError(f"token {wanted[i]} is not one of the {n_vocab} of the vocabulary")
    cdef double[::1] out = array.array("d", bytes(8 * n))
    with nogil:
        for i in range(n):
            out[i] = rows[i * n_vocab + wanted[i]] - log_sum(&rows[i * n_vocab], n_vocab)
    for i in range(n):
        if not isfinite(out[i]):
            raise ValueError(f"row {i} holds a logit that is not finite")
    return out.base
