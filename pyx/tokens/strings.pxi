"""strings: the ends of the texts in a stored list; a vocabulary of 128 thousand tokens has four hundred thousand texts.
"""


def text_ends(data, int64_t start, int64_t count):
    """Find the ends of ``count`` texts from byte ``start`` of a buffer, each a little-endian uint64 length and its
    bytes (GGUF).

    Returns those of complete texts as array("q"): fewer than ``count`` if the buffer ends before.
    """
    cdef Py_buffer buffer
    cdef int64_t pos = start, n = 0
    cdef uint64_t length
    cdef int64_t[::1] out
    PyObject_GetBuffer(data, &buffer, PyBUF_SIMPLE)
    try:
        if not 0 <= start <= buffer.len or not 0 <= count <= (buffer.len - start) // 8:
            raise ValueError(f"{count} texts from byte {start} on cannot be in {buffer.len} bytes")
        found = array.array("q", [0]) * count  # not of bytes, which would be written twice
        out = found
        while n < count and buffer.len - pos >= 8:
            memcpy(&length, <const char *>buffer.buf + pos, 8)
            if length > <uint64_t>(buffer.len - pos - 8):
                break
            pos += 8 + <int64_t>length
            out[n] = pos
            n += 1
    finally:
        PyBuffer_Release(&buffer)
    return found if n == count else found[:n]


def texts_starting(data, int64_t start, stops, bytes prefix not None):
    """Indices of those of the texts that :func:`text_ends` has found that begin with these bytes: a list."""
    cdef Py_buffer buffer
    cdef const int64_t[::1] stop = stops
    cdef int64_t at = start, i, size = len(prefix)
    cdef const char *wanted = prefix
    cdef list found = []
    PyObject_GetBuffer(data, &buffer, PyBUF_SIMPLE)
    try:
        for i in range(stop.shape[0]):
            if not 0 <= at <= stop[i] - 8 <= buffer.len - 8:
                raise ValueError(f"text {i} ends at {stop[i]}, outside the data")
            if stop[i] - at - 8 >= size and memcmp(<const char *>buffer.buf + at + 8, wanted, size) == 0:
                found.append(i)
            at = stop[i]
    finally:
        PyBuffer_Release(&buffer)
    return found
