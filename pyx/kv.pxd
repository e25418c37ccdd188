# kv: the KV cache of a session, and what a step does with its pages.
from libc.stdint cimport int8_t, int32_t, int64_t, uint8_t, uint32_t, uint64_t

from pyx.machine cimport DELTA_CHUNK, Arena, kernels

# Layouts in kernels.h.
cdef enum element_type:
    F32
    F16
    INT8
    INT4        # a scale per token and group
    INT4C       # a scale per channel of the page
    FP8
    BINARY

# How the pages of one kind hold 32 tokens of one KV head: a block of keys, then a block of values.
cdef struct page_format:
    element_type k_type
    element_type v_type
    int64_t head_dim
    int64_t v_at        # the values' block; a multiple of 64
    int64_t bytes       # of the page; a multiple of 64
    bint integer_k      # keys are scored with int8 queries

# Floats of working memory that attend_page and score_page need for n_q queries, whatever the format.
cdef int64_t page_scratch(int64_t head_dim, int64_t n_q) noexcept nogil
# A page of F16 keys and values as one of F32, out [2 * KV_PAGE * head_dim], and its format.
cdef void page_as_floats(
    const kernels *kernel, const page_format *f, const void *page, page_format *floats, float *out) noexcept nogil

# Store k, v [head_dim] as token t of a page of open format.
cdef void store_token(
    const kernels *kernel, const page_format *f, void *page, int64_t t, const float *k, const float *v) noexcept nogil
# s [n_q][32] = scores of queries q [n_q][head_dim] (q8, qs: the same as int8, needed if integer_k).
# next: the page that will be read after this one, to be fetched meanwhile; this page itself if there is none.
cdef void score_page(
    const kernels *kernel, const page_format *f, const void *page, const void *next, int64_t n_q, const float *q,
    const int8_t *q8, const float *qs, float *s, float *scratch) noexcept nogil
# One step of online softmax: the tokens of `valid` (not 0) join m, l [n_q] and o [n_q][head_dim].
cdef void attend_page(
    const kernels *kernel, const page_format *f, const void *page, const void *next, int64_t n_q, uint32_t valid,
    const float *q, const int8_t *q8, const float *qs, float *m, float *l, float *o, float *scratch) noexcept nogil
# The Hadamard rotation of kernels.h, in place: of every key and query, if the cache uses it.
cdef void rotate_hadamard(float *x, int64_t head_dim) noexcept nogil

cdef enum:
    MAX_SLABS = 4096

# A page's id is slab << shift | place.  Places [0, n_float) of a slab hold float pages, [n_float, n_place) ring pages.
cdef struct slabs:
    int64_t n_float
    int64_t n_place
    int64_t float_bytes         # of one page
    int64_t ring_bytes
    int shift
    int64_t n_slab              # slabs ever mapped; those given back have no data
    int64_t float_used          # pages in use, of each kind
    int64_t ring_used
    int64_t float_touched       # pages in use, and those whose memory was not given back after use
    int64_t ring_touched
    uint8_t *data[MAX_SLABS]    # float pages, then ring pages
    int32_t *refs[MAX_SLABS]    # [n_place] block tables that refer to the page; 0: it is free
    uint8_t *touched[MAX_SLABS] # [n_place] it takes memory

# Address of a page.
cdef inline uint8_t *page_at(const slabs *pool, int32_t id) noexcept nogil:
    cdef int64_t place = id & ((<int64_t>1 << pool.shift) - 1)
    cdef uint8_t *data = pool.data[id >> pool.shift]
    if place < pool.n_float:
        return data + place * pool.float_bytes
    return data + pool.n_float * pool.float_bytes + (place - pool.n_float) * pool.ring_bytes

# It is a page of the ring.
cdef inline bint is_ring(const slabs *pool, int32_t id) noexcept nogil:
    return (id & ((<int64_t>1 << pool.shift) - 1)) >= pool.n_float

# Pages [first, next) of a stream are in the file; a page has one place there, which later ones reuse.
cdef struct spill:
    int64_t broken          # 0, or what went wrong, an errno: nothing is written or read from then on
    int64_t n_stream
    int64_t slots           # pages of one stream that the file has room for
    int64_t page_bytes
    int64_t written         # bytes, in all
    int64_t read
    int64_t *first          # [n_stream]
    int64_t *next           # [n_stream]
    uint64_t *sums          # [slots][n_stream] of the pages as they were written
    int fd                  # -1: no file yet

cdef enum:
    CHUNK_PAGES = 8         # pages per work item of attention: fixed, so that any thread count gives the same bits

# The block table of one KV head in one layer: the pages it holds, oldest first.
cdef struct stream:
    int64_t window          # tokens seen after the sinks
    int64_t sinks           # first tokens that are always seen
    int64_t sink_pages      # pages that hold them, pinned, never quantised
    int64_t ring_pages      # most pages held after those; the open page of a quantised cache is not counted
    int64_t float_first     # its places in a slab: sink pages [and the open page]
    int64_t ring_first      # pages of the ring
    int32_t n_page          # pages held
    int32_t n_run
    int32_t *id             # [n_page] in the pool
    int32_t *number         # [n_page] position of the first token // 32, ascending
    int32_t *run            # [n_run + 1] pages run[i] .. run[i+1]-1 are one work item

# Everything attention needs of a cache, without Python objects.
cdef struct pages:
    int64_t n_layer         # with attention: others have no streams
    int64_t n_kv_head
    int64_t head_dim
    page_format unsealed    # sink pages and the open page: floats
    page_format sealed      # pages of the ring
    bint hadamard           # keys and queries are rotated (page.rotate_hadamard): keys of INT4
    bint quantised          # a full page is sealed once; the open page is separate
    bint quarter            # policy quarter: a window of a quarter of what was read, at most `window`
    int64_t max_pages       # most pages any head holds
    slabs *pool
    int64_t slab            # the cache's own
    spill *spilled          # for pages that leave the window; NULL: they are lost
    stream *streams         # [n_layer][n_kv_head]

# Bit t set: token 32*page + t is seen by the query at position pos.
cdef uint32_t attended(const pages *kv, const stream *s, int64_t page, int64_t pos) noexcept nogil
# The page to write tokens of page number `page` to: begun if it is new, copied first if another cache holds it too.
cdef uint8_t *writable_page(pages *kv, stream *s, int64_t page) noexcept nogil
# The page just written is full: quantise it, once.
cdef void seal_newest(const kernels *kernel, pages *kv, stream *s) noexcept nogil

# Of all gated delta layers of a model; their convolutions have CONV_TAPS taps.
cdef struct delta_shape:
    int64_t n_layer
    int64_t n_k, n_v        # key heads (as many query heads) and value heads
    int64_t dk, dv          # dimensions of each
    int64_t channels        # of the convolution: queries, keys, values
    int64_t state_floats    # of a layer: states [n_v][dv/16][dk][16], last inputs [CONV_TAPS - 1][channels]
    int64_t open_floats     # of a layer, in the order of the functions below

# The states that a step reads and writes.  A chunk of DELTA_CHUNK tokens is open: the state in front of it is not written, and
# what its tokens add is kept with it; when the token after the chunk comes, a new state is made of both.
cdef struct recurrence:
    delta_shape shape
    int64_t base            # tokens in front of the open chunk, a multiple of DELTA_CHUNK
    const float *state      # [n_layer][state_floats] in front of the open chunk
    float *even             # [n_layer][state_floats] where the first, third, .. state that a step makes is written
    float *odd              # and the second, fourth, ..
    float *open             # [n_layer][open_floats]

# Of a layer's open chunk: inputs of the convolution [DELTA_CHUNK][channels]
cdef inline float *open_inputs(const recurrence *r, int64_t layer) noexcept nogil:
    return r.open + layer * r.shape.open_floats

# keys [n_k][DELTA_CHUNK][dk]
cdef inline float *open_keys(const recurrence *r, int64_t layer) noexcept nogil:
    return open_inputs(r, layer) + DELTA_CHUNK * r.shape.channels

# what tokens add [n_v][dv/16][DELTA_CHUNK][16]
cdef inline float *open_added(const recurrence *r, int64_t layer) noexcept nogil:
    return open_keys(r, layer) + DELTA_CHUNK * r.shape.n_k * r.shape.dk

# sums of the logarithms of g [n_v][DELTA_CHUNK]
cdef inline double *open_decays(const recurrence *r, int64_t layer) noexcept nogil:
    return <double *>(open_added(r, layer) + DELTA_CHUNK * r.shape.n_v * r.shape.dv)

cdef class PagePool:
    cdef slabs s
    cdef list arenas            # one [data, refs] per slab; data None for those given back
    cdef list owned             # a cache uses the slab
    cdef bint huge
    cdef public object limit    # most bytes of pages in use, None: no limit
    cdef int64_t states         # bytes of the states of gated delta layers, which count as pages do
    cdef int64_t admit(self, int64_t n_float, int64_t n_ring, int64_t float_bytes, int64_t ring_bytes) except -1
    cdef leave(self, int64_t slab)
    cpdef trim(self)
    cdef uint8_t *_where(self, int64_t slab, int64_t place)

cdef class Spill:
    cdef spill s
    cdef readonly str folder
    cdef object file, arena
    cdef open(self)

# Memory that counts in the pool of the session's pages.
cdef class Slab(Arena):
    cdef PagePool pool
    cdef int64_t users      # snapshots that hold it

cdef class Recurrence:
    cdef recurrence r
    cdef list snapshots     # of ascending base; the last is the one in front of the open chunk
    cdef Slab open          # [n_layer][open_floats]
    cdef PagePool pool
    cdef object coming      # snapshots that the step at hand makes: [even, odd], or None
    cdef int64_t most       # snapshots other than the latest two
    # Number of states that n more tokens after n_tokens make.
    cdef int64_t sealed(self, int64_t n_tokens, int64_t n) noexcept
    # Before a step with n more tokens.
    cdef prepare(self, int64_t n_tokens, int64_t n)
    # After it.
    cdef advance(self, int64_t n_tokens, int64_t n)
    # The largest number of tokens, at most n of n_tokens, to which it can go back.
    cdef int64_t reachable(self, int64_t n_tokens, int64_t n) noexcept
    cdef crop(self, int64_t n)
    cdef mark(self, int64_t n_tokens)
    # Bytes of states that a step with n more tokens takes at most, without those that it gives up.
    cdef int64_t wanted(self, int64_t n_tokens, int64_t n) noexcept
    # Drop a snapshot; False if there is none to drop.
    cdef bint give_up(self)
    # Take over the state of another one of the same shape.
    cdef share(self, Recurrence other)

cdef class KVCache:
    cdef pages p
    cdef readonly PagePool pool
    cdef readonly Spill spill   # None: pages that leave the window are lost
    cdef int64_t spills_from    # number of tokens above which pages leave the window
    cdef Arena block_tables     # streams, their block tables
    cdef readonly Recurrence recurrent  # the states of gated delta layers, None if there are none
    cdef dict plan              # the arguments it was made with
    cdef readonly int64_t n_ctx, n_tokens
    cdef readonly str kv_type, policy
    cdef readonly object windows    # tokens that each layer sees at most, 0: all; None: all layers see all
    cdef int64_t most           # most tokens it held since it was empty
    cdef bint endless           # old pages are replaced; else n_ctx is the limit
    cdef int64_t advance(self, int64_t n) except -1
    # Before n more tokens: is there room for their pages, and `others` bytes of pages that other caches will take in
    # the same step?  Returns how many bytes that will be with those of this cache, 0 where the pool has no limit.
    cdef int64_t prepare(self, int64_t n, int64_t others) except -1
    cdef void _forget(self, int64_t first)
    cdef stream *_stream(self, int64_t layer, int64_t head) except NULL
