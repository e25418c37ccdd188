# bit_planes: an int8 head in bit planes, and the exact largest logits from few of them.
from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t

from pyx.machine.cpu cimport kernels
from pyx.machine.memory cimport Arena
from pyx.tokens.rank cimport Candidate
from pyx.weights.stored_rows cimport StoredRows
from pyx.machine.team cimport team

cdef enum:
    HEAD_TOKENS = 8        # most hidden vectors in one call
    MOST_WINNERS = 256         # most winners that can be requested
    BOUND_STAGES = 3        # bounds: after four, five and six bits

# One hidden vector x, as the bounds need it.
cdef struct question:
    const int16_t *x            # [k]
    float s                     # HEAD_XMAX / max|x|
    int64_t sum                 # sum of x
    double share                # a in x = a m + y
    double reach                # norm of y, from above
    double mid[BOUND_STAGES]    # contribution of the middle of the unread bits and of the rounding of x
    double slack[BOUND_STAGES]  # most that the rounding of x can change

# A request for logits.
cdef struct answer:
    const float *h      # [k]  the residual vector
    float *out          # [n_row]
    int64_t top         # number of largest logits needed; 0: all

cdef class BitPlanes:
    cdef readonly int64_t n_row, k, k_pad
    cdef readonly int n_threads, n_bit_plane
    cdef int64_t usable             # rows from here on are never among the largest
    cdef Arena weights, row_arena, query_arena, heap_arena  # own the arrays below
    cdef uint8_t *nibbles           # [n_row][k_pad / 2]      bits 7-4 of code + 128
    cdef uint8_t *bits              # [n_bit_plane][n_row][k_pad / 8]   bits 3, 2, 1, 0
    cdef float *scale               # [n_row]
    cdef float *norm                # [BOUND_STAGES][n_row]   norms of the bits below, about their middle
    cdef float *along               # [BOUND_STAGES][n_row]   their products with the anchor m
    cdef int8_t *x                  # [HEAD_TOKENS][2][k_pad] low and high bytes of x
    cdef int8_t *x8                 # [HEAD_TOKENS][k_pad]   x / 64, rounded
    cdef int8_t *anchor             # [2][k_pad]              low and high bytes of m
    cdef double *mean               # [k]  running sum of x / |x|
    cdef int64_t anchor_sum, anchor_square, seen, due
    cdef question questions[HEAD_TOKENS]
    cdef Candidate *heaps           # [n_threads][MOST_WINNERS]
    cdef int64_t *held              # [n_threads][CELL] candidates in each heap, then rows read per stage
    cdef float limit
    cdef StoredRows rows            # Q8_0 rows from which logits are computed; None: from all bits
    cdef int16_t *anchor16          # [k]  m, for these
    cdef team team
    # Row `row` from its floats w [k]; u [k_pad], its codes + 128, is scratch.
    cdef void put(self, const kernels *kernel, int64_t row, const float *w, uint8_t *u) noexcept nogil
    # Vector t for the next call of logits; x16 [k] and s from quantize_i16.
    cdef void prepare_query(self, int64_t t, const int16_t *x16, float s) noexcept nogil
    # a [n_token]; a[t].out[row]: the exact logit of an int8 head, or of the rows given, if it is among the a[t].top
    # largest of its vector, ties included, else -inf; all exact with top = 0.  Executed by every thread of the team,
    # each with its own rows.
    cdef void logits(
        self, const kernels *kernel, int64_t n_token, const answer *a, int64_t row0, int64_t row1, int tid,
        int n_thread) noexcept nogil
    cdef void answer_vector(
        self, const kernels *kernel, int64_t t, int64_t top, int64_t row0, int64_t row1, int tid, int n_thread,
        float *out) noexcept nogil
    cdef void narrow(
        self, const kernels *kernel, int64_t t, int64_t top, float limit, int64_t row0, int64_t row1, int tid,
        float *out) noexcept nogil
    cdef void estimate(
        self, const kernels *kernel, int64_t t, int64_t top, int64_t row0, int64_t row1, int tid,
        const int32_t *upper) noexcept nogil
    cdef void bounds(
        self, const question *q, int64_t stage, const int32_t *rows, int64_t n, const double *sums,
        float *out) noexcept nogil
    cdef void exact_of_rows(
        self, const kernels *kernel, const question *q, const int32_t *list, int64_t n, float *out) noexcept nogil
    cdef void first_bounds(
        self, const question *q, int64_t first, int64_t n, const int32_t *upper, float *out) noexcept nogil
    cdef void exact(
        self, const kernels *kernel, int64_t t, const int32_t *rows, const int32_t *upper, int64_t n,
        float *out) noexcept nogil
    cdef float share_limit(self, int64_t top, int tid, int n_thread) noexcept nogil
    cdef void learn(self, int64_t n_token) noexcept nogil
    cdef void along_rows(self, const kernels *kernel, int64_t row0, int64_t row1) noexcept nogil
    cdef void move_anchor(self, const kernels *kernel, int64_t row0, int64_t row1) noexcept nogil
