# attention: softmax attention straight over KV pages.
from libc.stdint cimport int8_t, int64_t, uint8_t

from pyx.cpu cimport kernels
from pyx.kv cimport page_kind, pages

cdef enum:
    CHUNK_PAGES = 8         # pages per work item: fixed, so that any thread count gives the same bits
    QUERY_TILE = 8          # tokens whose queries share the load of a page in prefill

# The queries of one run of tokens inside one page, positions pos0, pos0+1, ...
cdef struct queries:
    int64_t n_token
    int64_t pos0
    int64_t n_head
    const float *q          # [n_token][n_head][head_dim], rotated, times 1/sqrt(head_dim)
    const int8_t *q8        # [n_token][n_head][head_dim], NULL for an f16 cache
    const float *qs         # [n_token][n_head]
    float *out              # [n_token][n_head][head_dim]

# Write one key and value vector [head_dim] as token `slot` of a float page.
cdef void store(
    const kernels *kernel, page_kind kind, uint8_t *page, int64_t head_dim, int64_t slot,
    const float *k, const float *v) noexcept nogil
# Number of chunks the query at pos attends.
cdef int64_t n_chunk(const pages *p, int64_t pos) noexcept nogil
# Floats of one partial result: m, l and o for the query heads of one KV head.
cdef int64_t partial_floats(int64_t group, int64_t head_dim) noexcept nogil
# One chunk of one KV head for tokens token0 .. token0+n-1 into partial [n][partial_floats].
cdef void attend_chunk(
    const kernels *kernel, const pages *p, const queries *q, int64_t layer, int64_t head, int64_t chunk,
    int64_t token0, int64_t n, float *partial) noexcept nogil
# Fold partial results, in ascending chunk order, into one state; start with reset_state.
cdef void reset_state(float *state, int64_t group, int64_t head_dim) noexcept nogil
cdef void merge(float *state, const float *partial, int64_t group, int64_t head_dim) noexcept nogil
# Divide by the softmax sum and write the heads of one token.
cdef void finish(const float *state, int64_t group, int64_t head_dim, float *out) noexcept nogil
