"""stored_rows: the rows of a matrix of a float type, as its file stores them: the embedding, of which one row is
decoded per token.

It stays in the file.  A row read through the map would bring its neighbours into the process: the system maps up to
64 KB around a page that it holds already (94 KB of growth per row measured with a 2B-4T file, with MADV_RANDOM just as
much), so after a few thousand different words the whole embedding would count as memory of this process.  Therefore
rows are read from the file itself, which takes less time (3 us per row against 6) and no memory.
"""

cdef extern from "<sys/mman.h>" nogil:
    int madvise(void *, size_t, int)
    int MADV_DONTNEED

cdef enum:
    PAGE = 65536                # the largest page of any system we run on
    MADV_POPULATE_READ = 22     # Linux 5.14; newer than the headers this may be built with

cdef extern from "<unistd.h>" nogil:
    ssize_t pread(int, void *, size_t, int64_t)

#: type -> values and bytes of a block, values that a code can have (0: floats), rows that are stored side by side
ROW_TYPES = {}
cdef const row_type *row_entry = row_types
while row_entry.name != NULL:
    ROW_TYPES[row_entry.name.decode()] = row_entry.span, row_entry.bytes, row_entry.levels, row_entry.together
    row_entry += 1


cdef const row_type *find(str type) except NULL:
    """The row of the table.  Raises ValueError if the type is unknown."""
    for i, name in enumerate(ROW_TYPES):
        if name == type:
            return &row_types[i]
    raise ValueError(f"type {type} is not a type of floats")


cdef int64_t step_of(int64_t unit_bytes):
    """Bytes of a thread's buffer: threads never write the same cache line."""
    return (unit_bytes + 63) // 64 * 64


def buffer_bytes(str type not None, int64_t k, int n_threads):
    """Bytes of the buffers in which ``n_threads`` threads read rows [k] of a type from a file; 0 for other types."""
    if type not in ROW_TYPES:
        return 0
    span, nbytes, _, together = ROW_TYPES[type]
    return n_threads * step_of(0 if k % span else together * (k // span) * nbytes)


cdef class StoredRows:
    """Stored rows [n_row][k] of one float type, decoded one at a time.

    Raises ValueError if the type is unknown, k does not fit its block, or the bytes do not fit the shape.
    """

    def __cinit__(self, str type not None, data, int64_t n_row, int64_t k):
        cdef Py_buffer buffer
        self.decoded = find(type)
        if n_row < 1 or k < 1 or n_row > (1 << 31) or k > (1 << 24):
            raise ValueError(f"a matrix of {n_row} x {k} is out of range")
        if k % self.decoded.span:
            raise ValueError(f"rows of {k} do not fill whole {type} blocks")
        self.type, self.n_row, self.k = type, n_row, k
        self.row_bytes = k // self.decoded.span * self.decoded.bytes
        self.together = self.decoded.together
        self.unit_bytes = self.together * self.row_bytes
        PyObject_GetBuffer(data, &buffer, PyBUF_SIMPLE)
        try:
            if buffer.len != self.nbytes:
                raise ValueError(f"{buffer.len} bytes, but a {type} matrix of {n_row} x {k} takes {self.nbytes}")
            self.data = <const uint8_t *>buffer.buf
        finally:
            PyBuffer_Release(&buffer)
        self.halves = type == "F16" and <size_t>self.data % 2 == 0
        self.owner = memoryview(data)
        self.fd, self.n_threads = -1, 1024

    def read_from(self, source, int fd, int n_threads, int64_t start=0):
        """From now on read rows from the file ``fd``, not from ``source``, a map of its bytes from ``start`` on.

        The caller keeps the file open.  ``n_threads``: how many may read at once.  Raises ValueError when the rows are
        not inside the map.
        """
        cdef Py_buffer buffer
        if not 1 <= n_threads <= 1024:
            raise ValueError(f"{n_threads} threads are out of range")
        PyObject_GetBuffer(source, &buffer, PyBUF_SIMPLE)
        self.offset = self.data - <const uint8_t *>buffer.buf
        room = buffer.len
        PyBuffer_Release(&buffer)
        if not 0 <= self.offset <= room - self.nbytes:
            raise ValueError("the rows are not inside this map")
        self.offset += start
        self.row_step = step_of(self.unit_bytes)
        self.rows, self.n_threads = Arena(n_threads * self.row_step), n_threads
        self.fd = fd

    cdef void bring(self, int64_t first, int64_t stop) noexcept nogil:
        self.advise(first, min(stop, self.n_row), MADV_POPULATE_READ)

    cdef void let_go(self, int64_t first, int64_t stop) noexcept nogil:
        self.advise(first, stop, MADV_DONTNEED)  # what is read again comes back

    cdef void advise(self, int64_t first, int64_t stop, int advice) noexcept nogil:
        """Advice about rows of the map, from the page on in which the first one begins, and only whole pages of it."""
        cdef size_t start = <size_t>(self.data + first * self.row_bytes) // PAGE * PAGE
        cdef size_t end = <size_t>(self.data + stop * self.row_bytes) // PAGE * PAGE
        start = max(start, (<size_t>self.data + PAGE - 1) // PAGE * PAGE)
        if self.fd >= 0 and start < end:  # without a file, memory that is nobody's copy would be lost
            madvise(<void *>start, end - start, advice)

    cdef void read_row(self, int64_t row, int tid, float *out) noexcept nogil:
        cdef uint8_t *stored    # [unit_bytes]
        if self.fd >= 0:
            stored = self.rows.data + tid * self.row_step
            if pread(self.fd, stored, self.unit_bytes, self.offset + self.unit(row)) == self.unit_bytes:
                self.decoded.decode(stored, row % self.together, self.k, out)
                return
        self.row_into(row, out)  # a file that cannot be read ends as its map does

    cdef void row_into(self, int64_t row, float *out) noexcept nogil:
        self.decoded.decode(self.data + self.unit(row), row % self.together, self.k, out)

    cdef int64_t unit(self, int64_t row) noexcept nogil:
        return row // self.together * self.unit_bytes

    def row(self, int64_t index):
        """Row ``index`` as array("f") [k].  Raises IndexError."""
        if not 0 <= index < self.n_row:
            raise IndexError(f"row {index} of {self.n_row}")
        cdef float[::1] out = array.array("f", bytes(4 * self.k))
        self.row_into(index, &out[0])
        return out.base

    @property
    def buffer(self):
        """Bytes of the buffers for rows of the file, see buffer_bytes; 0 if rows are read from the map."""
        return 0 if self.rows is None else self.rows.nbytes

    @property
    def nbytes(self):
        """Bytes of all rows as stored."""
        return (self.n_row + self.together - 1) // self.together * self.unit_bytes
