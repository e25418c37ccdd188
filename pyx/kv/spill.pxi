"""spill: pages that have left a window, in a file, so that ``crop`` can restore them instead of reading text again.

Each cache has one file, unnamed from its creation on: no other process can open it, and it disappears with this
process, however that ends.  It has room for the latest pages of every KV head.  Each page is written once, when it
leaves, into the system's file cache, and read only by a ``crop`` that needs it.  After any failure (a full disk, a page
that has changed) the cache works without the file, and ``error`` is the reason.
"""

cdef extern from "<unistd.h>" nogil:
    ssize_t pwrite(int, const void *, size_t, long)
    ssize_t pread(int, void *, size_t, long)


cdef uint64_t digest(const uint8_t *page, int64_t n) noexcept nogil:
    """FNV-1a over words of 8 bytes: detects damage, not forgery. n is a multiple of 8."""
    cdef const uint64_t *word = <const uint64_t *>page
    cdef uint64_t sum = 0xCBF29CE484222325ull
    cdef int64_t i
    for i in range(n // 8):
        sum = (sum ^ word[i]) * 0x100000001B3ull
    return sum ^ sum >> 32


cdef void write_page(spill *f, int64_t stream, int64_t number, const uint8_t *page) noexcept nogil:
    """Page `number` of a stream leaves the window."""
    cdef int64_t slot = number % f.slots * f.n_stream + stream, done = 0
    cdef ssize_t n
    if f.fd < 0 or count_get(&f.broken):
        return
    if f.next[stream] != number:
        f.first[stream] = number
    f.next[stream] = number + 1
    f.first[stream] = max(f.first[stream], number + 1 - f.slots)
    f.sums[slot] = digest(page, f.page_bytes)
    while done < f.page_bytes:
        n = pwrite(f.fd, page + done, f.page_bytes - done, slot * f.page_bytes + done)
        if n > 0:
            done += n
        elif n == 0 or errno != EINTR:
            count_set(&f.broken, errno if n < 0 else EIO)
            return
    count_add(&f.written, done)


cdef bint read_back(spill *f, int64_t stream, int64_t number, uint8_t *page) noexcept nogil:
    """Restore the page; False if it is not in the file or has changed there."""
    cdef int64_t slot = number % f.slots * f.n_stream + stream, done = 0
    cdef ssize_t n
    while done < f.page_bytes:
        n = pread(f.fd, page + done, f.page_bytes - done, slot * f.page_bytes + done)
        if n > 0:
            done += n
        elif n == 0 or errno != EINTR:
            count_set(&f.broken, errno if n < 0 else EIO)
            return False
    if digest(page, f.page_bytes) != f.sums[slot]:
        count_set(&f.broken, EIO)
        return False
    count_add(&f.read, done)
    return True


cdef int64_t reaches(const spill *f, int64_t stream, int64_t number) noexcept nogil:
    """First page of a stream from which all before `number` can be read back; `number` if there is none."""
    return f.first[stream] if f.fd >= 0 and not f.broken and f.next[stream] == number else number


cdef void outdate(spill *f, int64_t stream, int64_t number) noexcept nogil:
    """Pages from `number` on will be replaced."""
    f.next[stream] = min(f.next[stream], number)
    f.first[stream] = min(f.first[stream], f.next[stream])


cdef class Spill:
    """The file of one cache of ``n_stream`` KV heads, in ``folder``, of at most ``max_bytes``.

    Raises ValueError if these cannot hold one page of each head.  The file is made when it is first needed.  ``error``:
    why there is none, or no longer, in one line for people; None if all is well.
    """

    def __cinit__(self, str folder, int64_t max_bytes, int64_t n_stream, int64_t page_bytes):
        cdef Arena arena
        self.s.fd = -1
        self.folder = folder
        self.s.n_stream, self.s.page_bytes = n_stream, page_bytes
        self.s.slots = max_bytes // (n_stream * page_bytes)
        if self.s.slots < 1:
            raise ValueError(f"a page of every KV head takes {n_stream * page_bytes} bytes, more than {max_bytes}")
        arena = self.arena = Arena(8 * n_stream * (2 + self.s.slots))
        self.s.first = <int64_t *>arena.data
        self.s.next = self.s.first + n_stream
        self.s.sums = <uint64_t *>(self.s.next + n_stream)

    cdef open(self):
        from tempfile import TemporaryFile

        if self.s.broken:
            return
        try:
            self.file = TemporaryFile(dir=self.folder, buffering=0)
            self.s.fd = self.file.fileno()
        except OSError as error:
            self.s.broken = error.errno or EIO

    @property
    def descriptor(self):
        """Descriptor of the file; -1 if there is none."""
        return self.s.fd

    @property
    def max_bytes(self):
        """Largest size of the file in bytes."""
        return self.s.slots * self.s.n_stream * self.s.page_bytes

    @property
    def written(self):
        """Bytes of pages written so far."""
        return count_get(&self.s.written)

    @property
    def read(self):
        """Bytes of pages restored so far."""
        return count_get(&self.s.read)

    @property
    def error(self):
        if not count_get(&self.s.broken):
            return None
        return (
            f"KV pages can no longer be kept in {self.folder} ({os.strerror(count_get(&self.s.broken))}): where they "
            "are needed, text is read again")
