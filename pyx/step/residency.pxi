"""residency: experts that are read from a file's map, within a bound of memory.

The experts of a model may be larger than the memory; a token reads few of them.  Those of a step are asked for before
they are read, all at once, because a page that is missed is waited for by itself.  When the process has more of its
files in memory than it may, layers are released, the one that was read last first: it is needed again only after all
others.  Released pages are not lost: they come back from the system's cache, or from the disk.

What is in memory is measured (/proc/self/statm), because a fault also maps pages around the missing one: a whole folio,
of up to 2 MiB.
"""

cdef enum:
    PARTS = 3   # stacked matrices of a layer: gate, up, down

# A stacked matrix: experts of nbytes each, one after the other.
cdef struct stack:
    const uint8_t *data
    int64_t nbytes

cdef struct residency:
    int64_t n_layer, n_expert
    stack *stacks       # [n_layer][PARTS]
    uint8_t *asked      # [n_layer][n_expert] whether the system was asked for an expert since its layer was released
    int64_t ceiling     # bytes of files that the process may have in memory
    int statm           # an open file: /proc/self/statm

cdef extern from "<sys/mman.h>" nogil:
    int madvise(void *, size_t, int)
    int MADV_DONTNEED, MADV_WILLNEED

cdef extern from "<unistd.h>" nogil:
    ssize_t pread(int, void *, size_t, int64_t)
    long sysconf(int)
    int _SC_PAGESIZE


cdef void advise(const uint8_t *data, int64_t nbytes, int advice) noexcept nogil:
    """Advice about the pages of some bytes: to release, those that hold nothing else."""
    cdef size_t page = sysconf(_SC_PAGESIZE), start = <size_t>data, end = start + nbytes
    if advice == MADV_DONTNEED:
        start, end = (start + page - 1) // page * page, end // page * page
    else:
        start = start // page * page
    if start < end:
        madvise(<void *>start, end - start, advice)


cdef int64_t in_memory(const residency *r) noexcept nogil:
    """Bytes of files that the process has in memory: the third number of statm, in pages; 0 if it cannot be read."""
    cdef char text[128]
    cdef int64_t i, n = pread(r.statm, text, sizeof(text), 0), field = 0, pages = 0
    for i in range(n):
        if text[i] == b" ":
            field += 1
        elif field == 2:
            pages = 10 * pages + text[i] - 48
    return pages * sysconf(_SC_PAGESIZE)


cdef void bring(residency *r, int64_t layer, const int64_t *first) noexcept nogil:
    """The experts of a layer of which first [n_expert + 1] differs from the next number will be read now: release
    others while too much is in memory, and ask the system for them. One thread calls it while none reads experts.
    """
    cdef stack *stacks = &r.stacks[layer * PARTS]
    cdef uint8_t *asked = r.asked + layer * r.n_expert
    cdef int64_t e, i, j, before, coming = 0
    for e in range(r.n_expert):
        if first[e + 1] > first[e] and not asked[e]:
            for j in range(PARTS):
                coming += stacks[j].nbytes
    for i in range(1, r.n_layer):
        if in_memory(r) + coming <= r.ceiling:
            break
        before = (layer - i + r.n_layer) % r.n_layer
        for j in range(before * PARTS, (before + 1) * PARTS):
            advise(r.stacks[j].data, r.n_expert * r.stacks[j].nbytes, MADV_DONTNEED)
        memset(r.asked + before * r.n_expert, 0, r.n_expert)
    for e in range(r.n_expert):
        if first[e + 1] > first[e] and not asked[e]:
            asked[e] = True
            for j in range(PARTS):
                advise(stacks[j].data + e * stacks[j].nbytes, stacks[j].nbytes, MADV_WILLNEED)


cdef class Residency:
    """The experts of a model, read while the process has at most ``ceiling`` bytes of files in memory.

    layers: for each layer with experts its stacked matrices gate, up and down (TernaryMatrix), used directly from the
    file's map.  Raises ValueError for others.
    """

    cdef residency r
    cdef list owners

    def __cinit__(self, layers, int64_t n_expert, int64_t ceiling):
        cdef TernaryMatrix matrix
        cdef int64_t i, j
        self.r.statm = -1
        if not layers or n_expert < 1 or ceiling < 0:
            raise ValueError(f"{len(layers)} layers of {n_expert} experts within {ceiling} bytes")
        self.owners = [matrix for given in layers for matrix in given]
        self.r.n_layer, self.r.n_expert, self.r.ceiling = len(layers), n_expert, ceiling
        self.r.stacks = <stack *>calloc(len(layers) * PARTS, sizeof(stack))
        self.r.asked = <uint8_t *>calloc(len(layers), n_expert)
        if self.r.stacks == NULL or self.r.asked == NULL:
            raise MemoryError()
        for i, given in enumerate(layers):
            for j, each in enumerate(given):
                matrix = each
                if j >= PARTS or not matrix.mapped or matrix.code_bytes % n_expert:
                    raise ValueError("its experts are not used directly from the file's map")
                self.r.stacks[i * PARTS + j].data = matrix.m.codes
                self.r.stacks[i * PARTS + j].nbytes = matrix.code_bytes // n_expert
        try:
            self.r.statm = os.open("/proc/self/statm", os.O_RDONLY | os.O_CLOEXEC)
        except OSError:  # then nothing is released; the system does it when it needs the memory
            pass

    def __dealloc__(self):
        free(self.r.stacks)
        free(self.r.asked)
        if self.r.statm >= 0:
            os.close(self.r.statm)
