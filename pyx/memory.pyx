"""memory: aligned arenas and mapped files, the only owner of bytes.

An arena is an anonymous mapping: zeroed, page aligned, given back to the system as a whole, and untouched pages cost
nothing.  ``huge`` asks for 2 MiB pages (madvise, no privilege needed): fewer TLB misses on long streams.  An arena of
less than a page (a scale, a norm) comes from the heap, or hundreds of them would take a page each.
"""

import os

from cpython.buffer cimport PyBUF_WRITABLE
from libc.stdlib cimport free
from libc.string cimport memset

cdef extern from "<sys/mman.h>" nogil:
    void *mmap(void *, size_t, int, int, int, long)
    int munmap(void *, size_t)
    int madvise(void *, size_t, int)
    void *MAP_FAILED
    int PROT_READ, PROT_WRITE, MAP_PRIVATE, MAP_ANONYMOUS, MADV_HUGEPAGE, MADV_WILLNEED

cdef extern from "<stdlib.h>" nogil:
    void *aligned_alloc(size_t, size_t)

cdef enum:
    LINE = 64
    PAGE = 4096

cdef size_t HUGE = 2 << 20


cdef class Arena:
    """``nbytes`` zeroed bytes, 64-byte aligned (2 MiB with ``huge``).  Supports the buffer protocol, writable.

    Raises MemoryError naming the size when the system refuses.
    """

    def __cinit__(self, size_t nbytes, bint huge=False):
        cdef size_t page = HUGE if huge else PAGE
        cdef size_t base
        cdef void *where
        self.nbytes = nbytes
        if nbytes < PAGE and not huge:
            self.mapped, base = 0, (max(nbytes, 1) + LINE - 1) // LINE * LINE
            self.data = <unsigned char *>aligned_alloc(LINE, base)
            if self.data == NULL:
                raise MemoryError(f"the system refused {nbytes} bytes")
            memset(self.data, 0, base)
            return
        # one huge page more than needed, so that the start can be aligned to it
        self.mapped = (max(nbytes, 1) + page - 1) // page * page + (HUGE if huge else 0)
        where = mmap(NULL, self.mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)
        if where == MAP_FAILED:
            self.data, self.mapped = NULL, 0
            raise MemoryError(f"the system refused {nbytes / 1e6:.0f} MB")
        base = <size_t>where
        if huge:
            base = (base + HUGE - 1) // HUGE * HUGE
            munmap(where, base - <size_t>where) if base > <size_t>where else 0
            self.mapped -= base - <size_t>where
            madvise(<void *>base, self.mapped, MADV_HUGEPAGE)
        self.data = <unsigned char *>base

    def __dealloc__(self):
        if self.mapped:
            munmap(self.data, self.mapped)
        else:
            free(self.data)

    def __getbuffer__(self, Py_buffer *buffer, int flags):
        fill(buffer, self, self.data, self.nbytes, self.shape, self.strides, False)

    @property
    def view(self):
        """memoryview of all bytes, format "B", writable."""
        return memoryview(self)


cdef class MappedFile:
    """A file mapped read-only, shared with every other process that maps it.  ``view`` is a memoryview of its bytes.

    The mapping lives until the last view of it is gone.  Raises OSError when the file cannot be opened or mapped.
    """

    def __cinit__(self, path):
        cdef int fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        cdef void *where
        try:
            self.size = os.fstat(fd).st_size
            self.data = NULL
            if self.size:
                where = mmap(NULL, self.size, PROT_READ, MAP_PRIVATE, fd, 0)
                if where == MAP_FAILED:
                    raise OSError(f"{path}: cannot be mapped into memory")
                self.data = <const unsigned char *>where
        finally:
            os.close(fd)

    def __dealloc__(self):
        if self.data != NULL:
            munmap(<void *>self.data, self.size)

    def __getbuffer__(self, Py_buffer *buffer, int flags):
        if flags & PyBUF_WRITABLE:
            raise BufferError("a mapped file is read-only")
        fill(buffer, self, <unsigned char *>self.data, self.size, self.shape, self.strides, True)

    @property
    def view(self):
        """memoryview of all bytes, format "B", read-only."""
        return memoryview(self)

    def will_need(self):
        """Ask the system to read the file ahead into the page cache."""
        if self.data != NULL:
            madvise(<void *>self.data, self.size, MADV_WILLNEED)


cdef void fill(
    Py_buffer *buffer, object owner, unsigned char *data, size_t n, Py_ssize_t *shape, Py_ssize_t *strides,
    bint readonly
):
    """Fill a one-dimensional byte buffer."""
    shape[0] = n
    strides[0] = 1
    buffer.buf = data
    buffer.obj = owner
    buffer.len = n
    buffer.itemsize = 1
    buffer.readonly = readonly
    buffer.ndim = 1
    buffer.format = b"B"
    buffer.shape = shape
    buffer.strides = strides
    buffer.suboffsets = NULL
    buffer.internal = NULL


def rss():
    """Resident bytes of this process: {"rss", "anon", "file"} from /proc/self/status (RssAnon, RssFile + RssShmem)."""
    kib = {}
    with open("/proc/self/status") as status:
        for line in status:
            key, _, rest = line.partition(":")
            if key.startswith(("VmRSS", "Rss")):
                kib[key] = int(rest.split()[0]) * 1024
    return {
        "rss": kib.get("VmRSS", 0),
        "anon": kib.get("RssAnon", 0),
        "file": kib.get("RssFile", 0) + kib.get("RssShmem", 0),
    }
