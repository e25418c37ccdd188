# policy: which pages each KV head holds, which of their tokens a query sees, and when a page is dropped.
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t

from pyx.machine.cpu cimport kernels
from pyx.kv.page cimport page_format
from pyx.kv.pool cimport slabs
from pyx.kv.spill cimport spill

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
    bint broken             # no page was free in a step: its contents are invalid
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
# First page (after the sink pages) that the query at pos sees.
cdef int64_t first_page(const pages *kv, const stream *s, int64_t pos) noexcept nogil
# Tokens among the n read that the next query does not see.
cdef int64_t unseen(const pages *kv, const stream *s, int64_t n) noexcept nogil

# The page to write tokens of page number `page` to, NULL in a broken cache: begun if it is new, copied first if another
# cache holds it too.
cdef uint8_t *writable_page(pages *kv, stream *s, int64_t page) noexcept nogil
# The page just written is full: quantise it, once.
cdef void seal_newest(const kernels *kernel, pages *kv, stream *s) noexcept nogil
# Add a page after those held, of the ring or of floats; False, and the cache is broken, if none is free.
cdef bint hold(pages *kv, stream *s, int32_t number, bint ring) noexcept nogil
# Return all pages from number `first` on.
cdef void forget(pages *kv, stream *s, int64_t first) noexcept nogil
# After `forget`: make every head hold what the query at position `kept` sees and, if pages must be read back, as much
# of the ring as possible; False if something is lost, or takes more than `room` bytes.  most: tokens there were at
# most, from which the pages held follow.
cdef bint reach(pages *kv, int64_t kept, int64_t *most, int64_t room) noexcept nogil
# Room for the block table of one head, in entries.
cdef int64_t block_table_size(const pages *kv, const stream *s) noexcept nogil
