# attention: softmax attention directly over KV pages.
from libc.stdint cimport int8_t, int64_t

from pyx.machine.cpu cimport kernels
from pyx.machine.memory cimport Arena
from pyx.kv.policy cimport pages
from pyx.kv.recurrent cimport recurrence
from pyx.machine.team cimport team

cdef enum:
    QUERY_TILE = 8          # tokens whose queries share the load of a page in prefill
    SHARED_FLOATS = 3       # tokens from which on a page of F16 is first made one of F32 for all of them

# The tokens of a step that go to one cache, at its positions pos0, pos0 + 1, ...
cdef struct segment:
    pages *kv               # its cache
    recurrence *delta       # the states of its gated delta layers, NULL if there are none
    int64_t first           # its first token among those of the step
    int64_t n_token
    int64_t pos0            # position of that token
    float *parts            # [n_kv_head][max_chunks][partial_floats]  partial results, if it is one token
    int64_t max_chunks      # most chunks of a KV head

# The tokens of a step in one layer, one segment after the other, shared by the team of threads.
cdef struct attention_plan:
    const kernels *kernel
    team *team              # all threads of the step
    const segment *segments # [n_segment], of different caches
    int64_t n_segment
    int64_t n_token         # of all segments
    int64_t n_head, n_kv_head, head_dim
    const float *q          # [n_token][n_head][head_dim], rotated, times 1/sqrt(head_dim)
    const int8_t *q8        # [n_token][n_head][head_dim]  q as int8, for quantised pages
    const float *qs         # [n_token][n_head]  scales of q8
    const float *k          # [n_token][n_kv_head][head_dim], rotated
    const float *v          # [n_token][n_kv_head][head_dim]
    float *out              # [n_token][n_head][head_dim]
    float *state            # [n_thread][thread_state_floats]  working memory

# First of n items that belongs to thread tid; shares are whole units.
cdef inline int64_t share(int64_t n, int64_t unit, int tid, int n_thread) noexcept nogil:
    return min(n, (n + unit - 1) // unit * tid // n_thread * unit)

# Every segment is one token: number n of the step goes to cache n.
cdef bint all_single(const attention_plan *p) noexcept nogil
# Append, attend and seal: every thread of a team calls it.  It needs those (token, KV head) pairs ready that are
# its share where all segments are single tokens, all pairs otherwise; p.out is ready for all on return.
cdef void attend(const attention_plan *p, int64_t layer, int tid, int n_thread) noexcept nogil
# Floats of one partial result of group query heads, which share a KV head: m [group] (largest score), l [group] (sum of
# exp(score - m)), o [group][head_dim] (sum of exp(score - m) * value).
cdef int64_t partial_floats(int64_t group, int64_t head_dim) noexcept nogil
# Floats of working memory per thread: state [QUERY_TILE] and part [QUERY_TILE] partial results, page_scratch, then a
# page of F32.
cdef int64_t thread_state_floats(int64_t group, int64_t head_dim) noexcept nogil

cdef class Workspace:
    cdef Arena arena        # parts of every segment
    cdef Arena batch        # what `room` returns
    # Point segments [n] to memory for their parts; it grows to the largest size seen.
    cdef aim(self, segment *segments, int64_t n, int64_t n_head)
    # nbytes of memory for the batch, the same from call to call unless it must grow.
    cdef void *room(self, int64_t nbytes) except NULL
