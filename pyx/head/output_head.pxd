# head: the output head.
from libc.stdint cimport int8_t, int16_t, int64_t, uint8_t, uint16_t

from pyx.machine.cpu cimport kernels
from pyx.machine.memory cimport Arena
from pyx.head.bit_planes cimport HEAD_TOKENS, MOST_WINNERS, BitPlanes, answer
from pyx.weights.stored_rows cimport StoredRows
from pyx.machine.team cimport stage_clock, team
from pyx.weights.ternary cimport TernaryMatrix
from pyx.head.winners cimport Winners

cdef enum head_kind:
    HEAD_INT8, HEAD_Q8_0, HEAD_TERNARY, HEAD_F16, HEAD_F32, HEAD_BIT_PLANES, HEAD_NONE

cdef class Head:
    cdef readonly str kind
    cdef readonly int64_t n_row, k
    cdef bint as_stored             # the stored rows are used directly
    cdef readonly TernaryMatrix matrix  # ternary only
    cdef readonly int n_threads     # most threads in a call
    cdef head_kind kind_id
    cdef object owner, placement
    cdef int64_t waits              # answers until the bit planes of Q8_0 rows are made
    cdef int64_t made, making       # rows for which they are made now, and after this answer
    cdef StoredRows source          # from which the rows are made; None once they are made
    cdef bint fresh                 # no logits were requested yet
    cdef Arena weights, scale_arena, query_arena    # own rows, scale, x16
    cdef Arena row_arena            # [n_threads] a row as floats and as codes, until the rows are made
    cdef int64_t row_room
    cdef int64_t row_bytes          # Q8_0 only
    cdef Arena work                 # [n_threads] GROUP_WORK, then float [HEAD_TOKENS][GROUP_ROWS]; ternary only
    cdef const void *rows           # int8, half or float [n_row][k], or Q8_0 [n_row][k/32]
    cdef float *scale               # [n_row], int8 only
    cdef readonly BitPlanes bit_planes  # HEAD_BIT_PLANES, or of Q8_0 rows, or None
    cdef readonly Winners winners   # of int8 heads, or None
    # [HEAD_TOKENS][k], for heads with integer products; ternary: int8, then float and int32 [HEAD_TOKENS][k/128]
    cdef int16_t *x16
    cdef int64_t basis              # block of the basis in which the rows are stored (change_basis); 0: none
    cdef const float *signs         # [k] of that basis, or NULL
    cdef object signs_owner
    cdef float s[HEAD_TOKENS]       # HEAD_XMAX / max|x| of each vector
    cdef team team
    cdef allocate(self)
    cdef make(self)
    cdef int64_t unit(self) noexcept nogil
    # To be called, with the GIL, before answers to n_token vectors.
    cdef expect(self, int64_t n_token)
    # A stored row as floats, out [k].
    cdef void floats(self, const kernels *kernel, StoredRows stored, int64_t row, float *out) noexcept nogil
    # Every thread of the team, after an answer: its share of the bit planes that are to be made.
    cdef void go_on(self, const kernels *kernel, int tid, int n_thread) noexcept nogil
    # Whether the bit planes answer all of n_token vectors.
    cdef bint staged(self, int64_t n_token, const answer *a) noexcept nogil
    # Whether only the winners of n_token vectors are found.
    cdef bint by_winners(self, const kernels *kernel, int64_t n_token, const answer *a) noexcept nogil
    # The logits a[t].out[row] for rows row0 <= row < row1, each row made for this call only.
    cdef void discard(
        self, const kernels *kernel, StoredRows stored, int64_t n_token, const answer *a, int64_t row0, int64_t row1,
        int tid) noexcept nogil
    # The end of a step, by every thread of the team: final norm (norm [k]) and the logits a [n] of n residual vectors;
    # x [n][k] is scratch.  clock: the thread's, or NULL.
    cdef void run(
        self, const kernels *kernel, int64_t n, const answer *a, const float *norm, float eps, float *x,
        stage_clock *clock, int tid, int n_thread) noexcept nogil
    # logits of a ternary head
    cdef void ternary(
        self, const kernels *kernel, int64_t n_token, const answer *a, int64_t row0, int64_t row1,
        int tid) noexcept nogil
    # Prepare hidden vector x [k] as number t of the next call of logits.
    cdef void prepare_query(self, const kernels *kernel, int64_t t, const float *x) noexcept nogil
    # a[t].out[row] for rows row0 <= row < row1 of n_token <= HEAD_TOKENS vectors, which prepare_query has prepared;
    # x: the same, [n_token][k].  Called by every thread of the team with its own rows.  A two-stage head with top > 0
    # gives the top largest of a vector and -inf for the others, once its bit planes are made; so does a large int8 head
    # with top > 0 for every one of several vectors.  Other heads give all.
    cdef void logits(
        self, const kernels *kernel, int64_t n_token, const answer *a, const float *x, int64_t row0, int64_t row1,
        int tid, int n_thread) noexcept nogil
