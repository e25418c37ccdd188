# kv: the KV cache of one session.
from libc.stdint cimport int64_t

from pyx.machine.memory cimport Arena
from pyx.kv.policy cimport pages, stream
from pyx.kv.pool cimport PagePool
from pyx.kv.recurrent cimport Recurrence
from pyx.kv.spill cimport Spill

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
    cdef int check(self) except -1
    cdef int64_t advance(self, int64_t n) except -1
    # Before n more tokens: is there room for their pages, and `others` bytes of pages that other caches will take in
    # the same step?  Returns how many bytes that will be with those of this cache, 0 where the pool has no limit.
    cdef int64_t prepare(self, int64_t n, int64_t others) except -1
    cdef int64_t _crop_pages(self, int64_t kept) except -1
    cdef void _forget(self, int64_t first)
    cdef int64_t _wanted(self, int64_t n)
    cdef stream *_stream(self, int64_t layer, int64_t head) except NULL
