"""memory: aligned arenas, the only owner of bytes; advice about mapped files, and their guard.

An arena is an anonymous mapping: zeroed, page aligned, returned to the system as a whole; untouched pages take no
memory.  ``huge`` asks for 2 MiB pages (madvise, no privilege needed): fewer TLB misses in long reads.  An arena of less
than a page (a scale, a norm) comes from the heap, because hundreds of them would take a page each.
"""

cdef extern from "<sys/mman.h>" nogil:
    void *mmap(void *, size_t, int, int, int, long)
    int munmap(void *, size_t)
    int madvise(void *, size_t, int)
    void *MAP_FAILED
    int PROT_READ, PROT_WRITE, MAP_PRIVATE, MAP_ANONYMOUS, MADV_HUGEPAGE, MADV_DONTNEED

cdef extern from "<stdlib.h>" nogil:
    void *aligned_alloc(size_t, size_t)

cdef extern from *:
    """
    #include <stdlib.h>
    #ifdef __GLIBC__
    #include <malloc.h>
    #define give_back_heap() malloc_trim(0)
    #else
    #define give_back_heap() 0
    #endif
    """
    int give_back_heap() nogil

cdef enum:
    LINE = 64
    PAGE = 4096

cdef size_t HUGE = 2 << 20

# Newer than the headers this may be built with (Linux 5.14 and 6.1).
cdef enum:
    MADV_POPULATE_READ = 22
    MADV_COLLAPSE = 25


cdef class Arena:
    """``nbytes`` zeroed bytes, 64-byte aligned (2 MiB with ``huge``).  Supports the buffer protocol, writable.

    Raises MemoryError that names the size if the system refuses.
    """

    def __cinit__(self, size_t nbytes, bint huge=False):
        cdef size_t granule = os.sysconf("SC_PAGE_SIZE"), base
        cdef size_t need = (max(nbytes, <size_t>1) + granule - 1) // granule * granule
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
        self.mapped = need + (HUGE if huge else 0)
        where = mmap(NULL, self.mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)
        if where == MAP_FAILED:
            self.data, self.mapped = NULL, 0
            raise MemoryError(f"the system refused {nbytes / 1e6:.0f} MB")
        base = <size_t>where
        if huge:  # what is too much goes back on both sides: the last part of a huge page would be taken whole
            base = (base + HUGE - 1) // HUGE * HUGE
            munmap(where, base - <size_t>where) if base > <size_t>where else 0
            munmap(<void *>(base + need), <size_t>where + self.mapped - base - need)
            self.mapped = need
            madvise(<void *>base, self.mapped, MADV_HUGEPAGE)
        self.data = <unsigned char *>base

    def __dealloc__(self):
        if self.mapped:
            munmap(self.data, self.mapped)
        else:
            free(self.data)

    def __getbuffer__(self, Py_buffer *buffer, int flags):
        self.shape[0], self.strides[0] = self.nbytes, 1
        buffer.buf = self.data
        buffer.obj = self
        buffer.len = self.nbytes
        buffer.itemsize = 1
        buffer.readonly = False
        buffer.ndim = 1
        buffer.format = b"B"
        buffer.shape = self.shape
        buffer.strides = self.strides
        buffer.suboffsets = NULL
        buffer.internal = NULL

    @property
    def view(self):
        """memoryview of all bytes, format "B", writable."""
        return memoryview(self)


def advise(data, str advice not None, until=None):
    """Give the system advice about the whole pages inside ``data``, a buffer of a mapped file.  Returns True if it was
    accepted.

    ``until``: a later buffer of the same map; the advice is then for all bytes from the start of one to the end of the
    other.

    "huge": hold them in 2 MiB pages when they are read into the cache (CONFIG_READ_ONLY_THP_FOR_FS, or a file system
    with large folios: XFS, ext4 since Linux 6.16). "collapse": make 2 MiB pages of them now (Linux 6.1; same
    conditions, and tmpfs). "read": map them into this process now. "release": they no longer count as this process's
    memory, and return when they are read.  For maps only: other memory would lose its contents.
    """
    cdef int kind = {
        "huge": MADV_HUGEPAGE, "collapse": MADV_COLLAPSE, "read": MADV_POPULATE_READ, "release": MADV_DONTNEED}[advice]
    cdef size_t page = HUGE if advice in ("huge", "collapse") else os.sysconf("SC_PAGE_SIZE")
    cdef size_t start, end
    cdef int failed
    start, end = whole_pages(data, page, data if until is None else until)
    if start == end:
        return False
    with nogil:
        failed = madvise(<void *>start, end - start, kind)
    return failed == 0


def huge_share(data):
    """Share of the whole 2 MiB pages inside ``data`` that this process has mapped as such; 0.0 if unknown.

    Counts the maps that contain ``data`` as a whole, so it is a sample if they are larger.
    """
    cdef size_t start, end
    start, end = whole_pages(data, HUGE, data)
    inside = False
    resident = huge = 0
    try:
        with open("/proc/self/smaps") as file:
            for line in file:
                key, _, rest = line.partition(" ")
                if not key.endswith(":"):
                    first, _, last = key.partition("-")
                    inside = int(first, 16) < end and start < int(last, 16)
                elif inside and key == "Rss:":
                    resident += int(rest.split()[0])
                elif inside and key in ("AnonHugePages:", "ShmemPmdMapped:", "FilePmdMapped:"):
                    huge += int(rest.split()[0])
    except OSError:
        return 0.0
    return huge / resident if resident else 0.0


def offset(part, whole):
    """Byte of one buffer at which another begins.  Raises ValueError if it is not inside."""
    cdef Py_buffer inner, outer
    cdef size_t at, room
    PyObject_GetBuffer(part, &inner, PyBUF_SIMPLE)
    PyObject_GetBuffer(whole, &outer, PyBUF_SIMPLE)
    at, room = <size_t>inner.buf - <size_t>outer.buf, outer.len - inner.len
    PyBuffer_Release(&inner)
    PyBuffer_Release(&outer)
    if at > room:
        raise ValueError("one buffer is not inside the other")
    return at


cdef (size_t, size_t) whole_pages(first, size_t page, last):
    """Addresses of the first whole page in one buffer and after the last one in another; equal if there is none."""
    cdef Py_buffer buffer
    cdef size_t start, end
    PyObject_GetBuffer(first, &buffer, PyBUF_SIMPLE)
    start = (<size_t>buffer.buf + page - 1) // page * page
    PyBuffer_Release(&buffer)
    PyObject_GetBuffer(last, &buffer, PyBUF_SIMPLE)
    end = (<size_t>buffer.buf + <size_t>buffer.len) // page * page
    PyBuffer_Release(&buffer)
    return start, max(start, end)


def trim():
    """Return free memory of the heap to the system, so that only what is in use counts as resident."""
    with nogil:
        give_back_heap()
