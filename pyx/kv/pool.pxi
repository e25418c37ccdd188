"""pool: pages that the caches of one plan share: slabs, reference counts, copy on write.

Every cache brings a slab with room for all pages of its plan, so a page is always available and nothing is allocated
while tokens are generated.  The place of a page in a slab follows from its KV head and its turn in the ring, in
whichever slab it is: consecutive pages of a head are adjacent, and if a shared page (of a fork) occupies a place, the
same place of another slab is free.  Untouched places take no memory, so a hundred sessions that share a long prefix
take its memory once, and the memory of what each has of its own.

A page that one block table refers to may be written; one that several refer to is copied first.  Counts are atomic:
sessions may take and return pages in their own threads.  Slabs are added and removed under the GIL only.
"""

cdef extern from "refs.h" nogil:
    bint ref_take(int32_t *ref)
    int32_t ref_get(const int32_t *ref)
    void ref_set(int32_t *ref, int32_t n)
    int32_t ref_add(int32_t *ref, int32_t n)
    int64_t count_get(const int64_t *count)
    void count_set(int64_t *count, int64_t n)
    int64_t count_add(int64_t *count, int64_t n)

cdef extern from "<sys/mman.h>" nogil:
    int madvise(void *, size_t, int)
    int MADV_DONTNEED

cdef extern from "<unistd.h>" nogil:
    long sysconf(int)
    int _SC_PAGESIZE

#: smaller slabs do not gain from 2 MiB pages
cdef int64_t HUGE_SLAB = 8 << 20


cdef int32_t references(const slabs *pool, int32_t id) noexcept nogil:
    """Number of block tables that refer to the page."""
    return ref_get(&pool.refs[id >> pool.shift][id & ((<int64_t>1 << pool.shift) - 1)])


cdef int32_t take_page(slabs *pool, int64_t own, int64_t first, int64_t n, int64_t hint) noexcept nogil:
    """Id of a free page among places [first, first + n), now named once; place first + hint of slab `own` where that is
    free.  -1 if none is.
    """
    cdef int64_t i, j, slab, place
    for i in range(-1, count_get(&pool.n_slab)):
        slab = own if i < 0 else i
        for j in range(n):
            place = first + (hint + j) % n
            if ref_take(&pool.refs[slab][place]):
                count_add(&pool.float_used if place < pool.n_float else &pool.ring_used, 1)
                if not pool.touched[slab][place]:
                    pool.touched[slab][place] = 1
                    count_add(&pool.float_touched if place < pool.n_float else &pool.ring_touched, 1)
                return <int32_t>(slab << pool.shift | place)
    return -1


cdef void share_page(slabs *pool, int32_t id) noexcept nogil:
    """Another block table refers to the page."""
    ref_add(&pool.refs[id >> pool.shift][id & ((<int64_t>1 << pool.shift) - 1)], 1)


cdef void release_page(slabs *pool, int32_t id) noexcept nogil:
    """A block table no longer refers to the page; the last one frees it."""
    cdef int64_t place = id & ((<int64_t>1 << pool.shift) - 1)
    if ref_add(&pool.refs[id >> pool.shift][place], -1) == 0:
        count_add(&pool.float_used if place < pool.n_float else &pool.ring_used, -1)


@cython.no_gc  # no part of a cycle; a collector that empties its lists first would take caches their pages
cdef class PagePool:
    """Pages of any number of caches, all of the same plan.

    limit: bytes of pages in use at which a step is refused with MemoryError; None: limited only by each cache. Pages
    that are free but take memory are given back before those in use and they exceed it. huge: 2 MiB pages for the first
    slab; a fork's own pages are far apart, so its slab never has them.
    """

    def __cinit__(self, limit=None, bint huge=False):
        self.arenas, self.owned, self.huge, self.limit = [], [], huge, limit

    cdef int64_t admit(self, int64_t n_float, int64_t n_ring, int64_t float_bytes, int64_t ring_bytes) except -1:
        """Number of a slab for one more cache: an unused one, or a new one."""
        cdef slabs *s = &self.s
        cdef int64_t slab, i, nbytes = n_float * float_bytes + n_ring * ring_bytes
        cdef Arena data, refs
        if not self.arenas:
            if n_float + n_ring >= <int64_t>1 << 30:
                raise ValueError(f"{n_float + n_ring} pages are more than a pool can number")
            s.n_float, s.n_place, s.float_bytes, s.ring_bytes = n_float, n_float + n_ring, float_bytes, ring_bytes
            s.shift = (n_float + n_ring).bit_length()
        elif (n_float, n_float + n_ring, float_bytes, ring_bytes) != (
                s.n_float, s.n_place, s.float_bytes, s.ring_bytes):
            raise ValueError("a pool holds caches of one plan only")
        slab = next((i for i, owned in enumerate(self.owned) if not owned), len(self.owned))
        if slab == min(<int64_t>MAX_SLABS, <int64_t>1 << (31 - s.shift)):
            raise MemoryError(f"a pool holds no more than {slab} caches of this size")
        if slab == len(self.owned):
            data = Arena(nbytes, huge=self.huge and slab == 0 and nbytes >= HUGE_SLAB)
            refs = Arena(5 * s.n_place)
            self.arenas.append([data, refs])
            self.owned.append(False)
            s.data[slab], s.refs[slab] = data.data, <int32_t *>refs.data
            s.touched[slab] = refs.data + 4 * s.n_place
            count_set(&s.n_slab, slab + 1)  # after the pointers: other threads may be looking for a page
        elif self.arenas[slab][0] is None:
            data = self.arenas[slab][0] = Arena(nbytes)
            s.data[slab] = data.data
            for i in range(s.n_place):
                ref_set(&s.refs[slab][i], 0)
        self.owned[slab] = True
        return slab

    cdef leave(self, int64_t slab):
        """Release the slab of a cache that is gone; memory that no other cache refers to returns to the system."""
        self.owned[slab] = False
        for slab in range(self.s.n_slab):  # pages of other caches may have been the last in a slab left before
            if not self.owned[slab] and self.arenas[slab][0] is not None:
                self._give_back(slab)

    cpdef trim(self):
        """Return the memory of all free pages to the system."""
        cdef int64_t slab
        for slab in range(self.s.n_slab):
            if self.arenas[slab][0] is not None:
                self._give_back(slab)

    def _untouch(self, int64_t slab, int64_t first, int64_t last):
        cdef slabs *s = &self.s
        cdef int64_t place
        for place in range(first, last):
            if s.touched[slab][place]:
                s.touched[slab][place] = 0
                count_add(&s.float_touched if place < s.n_float else &s.ring_touched, -1)

    def _give_back(self, int64_t slab):
        """Return the memory of a slab without a cache, or of its free pages.  They are taken first, so that no step can
        get them meanwhile.
        """
        cdef slabs *s = &self.s
        cdef int64_t place = 0, begin, first, last, granule = sysconf(_SC_PAGESIZE)
        cdef bytearray taken = bytearray(s.n_place)
        cdef bint ours
        for place in range(s.n_place):
            ours = ref_take(&s.refs[slab][place])
            taken[place] = ours  # in two steps: Cython evaluates what it puts into a bytearray three times
        if 0 not in taken and not self.owned[slab]:  # the counts stay: nothing can be taken before there are pages
            self._untouch(slab, 0, s.n_place)
            s.data[slab] = NULL
            self.arenas[slab][0] = None
            return
        place = 0
        while place < s.n_place:
            begin = place
            while place < s.n_place and taken[place]:
                place += 1
            first = (<int64_t>self._where(slab, begin) + granule - 1) // granule * granule
            last = <int64_t>self._where(slab, place) // granule * granule
            if first < last:
                madvise(<void *>first, last - first, MADV_DONTNEED)
            self._untouch(slab, begin, place)
            while begin < place:
                ref_set(&s.refs[slab][begin], 0)
                begin += 1
            place += 1

    cdef uint8_t *_where(self, int64_t slab, int64_t place):
        """Address of a place; for the place after the last, the end of the slab."""
        cdef slabs *s = &self.s
        return s.data[slab] + min(place, s.n_float) * s.float_bytes + max(<int64_t>0, place - s.n_float) * s.ring_bytes

    def view(self, int64_t id, int64_t n):
        """The writable bytes of n consecutive pages."""
        cdef int64_t start = page_at(&self.s, <int32_t>id) - self.s.data[id >> self.s.shift]
        size = self.s.ring_bytes if is_ring(&self.s, <int32_t>id) else self.s.float_bytes
        return self.arenas[id >> self.s.shift][0].view[start : start + n * size]

    @property
    def nbytes(self):
        """Bytes that all slabs have room for; unused places take no memory."""
        return sum(data.nbytes for data, _ in self.arenas if data is not None)

    @property
    def used(self):
        """Bytes of the pages in use, and of states; what is shared counts once."""
        return self.states + (
            count_get(&self.s.float_used) * self.s.float_bytes + count_get(&self.s.ring_used) * self.s.ring_bytes)

    @property
    def touched(self):
        """Bytes of the pages that take memory: those in use, and free ones that were used; and of states."""
        return self.states + (
            count_get(&self.s.float_touched) * self.s.float_bytes + count_get(&self.s.ring_touched) * self.s.ring_bytes)

    @property
    def references(self):
        """Number of block tables that refer to each page, place by place: one list per slab, for tests and tools."""
        cdef int64_t slab, place
        found = []
        for slab in range(self.s.n_slab):
            counts = [ref_get(&self.s.refs[slab][place]) for place in range(self.s.n_place)]
            found.append(counts if self.arenas[slab][0] is not None else [0] * self.s.n_place)
        return found
