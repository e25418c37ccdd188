# budget: what each KV head of a cache keeps.
from libc.stdint cimport int64_t

from pyx.machine.cpu cimport KV_PAGE
from pyx.kv.page cimport page_format

# The page formats of a KV type.  Raises ValueError for an unknown type or head_dim.
cdef int formats(str kv_type, int64_t head_dim, page_format *sealed, page_format *unsealed) except -1

# Number of pages that n tokens take.
cdef inline int64_t pages_of(int64_t n) noexcept nogil:
    return (n + KV_PAGE - 1) // KV_PAGE
