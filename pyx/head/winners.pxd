# winners: the largest logits of an int8 head for several vectors at once, from the upper bytes of the vectors first.
from libc.stdint cimport int8_t, int16_t, int32_t, int64_t

from pyx.head.bit_planes cimport HEAD_TOKENS, answer
from pyx.machine.cpu cimport kernels
from pyx.machine.memory cimport Arena
from pyx.tokens.rank cimport Candidate
from pyx.machine.team cimport team

cdef class Winners:
    cdef readonly int64_t n_row, k
    cdef readonly int n_threads
    cdef public int64_t least_codes # of all rows, from which on a head uses this
    cdef int64_t usable             # rows from here on are never among the largest
    cdef Arena arena                # owns the arrays below
    cdef float *norm                # [n_row]   |w|, from above
    cdef int8_t *high               # [HEAD_TOKENS][k] x / 64, rounded
    cdef int8_t *low                # [HEAD_TOKENS][k] what that leaves: x = 64 high + low
    cdef float reach[HEAD_TOKENS]  # |low|, from above
    cdef float s[HEAD_TOKENS]      # HEAD_XMAX / max|x|
    cdef Candidate *heaps           # [n_threads][HEAD_TOKENS][MOST_WINNERS]
    cdef int64_t *held              # [n_threads][CELL] candidates in each heap, then products needed whole
    cdef float limit[HEAD_TOKENS]  # the a[t].top-th largest logit of all threads
    cdef team team
    # Row `row` of the head has the codes w [k].
    cdef void put(self, const kernels *kernel, int64_t row, const int8_t *w) noexcept nogil
    # Vector t for the next call of logits; x16 [k] and s from quantize_i16.
    cdef void prepare_query(self, int64_t t, const int16_t *x16, float s) noexcept nogil
    # rows [n_row][k] and scale [n_row] of an int8 head; a [n_token].  a[t].out[row]: the logit that head_i8 gives if it
    # is among the a[t].top > 0 largest of its vector, ties included, else -inf.  Executed by every thread of the team,
    # each with its own rows.
    cdef void logits(
        self, const kernels *kernel, const int8_t *rows, const float *scale, int64_t n_token, const answer *a,
        int64_t row0, int64_t row1, int tid, int n_thread) noexcept nogil
    cdef void answer_panel(
        self, const kernels *kernel, const int8_t *rows, const float *scale, int64_t n_token, const answer *a,
        int64_t row, int64_t n, Candidate *heaps, int64_t *held) noexcept nogil
    cdef void share_limits(
        self, int64_t n_token, const answer *a, int tid, int n_thread) noexcept nogil
