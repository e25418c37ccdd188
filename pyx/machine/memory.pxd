# memory: the only owner of bytes.
cdef class Arena:
    cdef unsigned char *data   # [nbytes], 64-byte aligned, zeroed
    cdef readonly size_t nbytes
    cdef size_t mapped         # bytes of its mapping; 0: it is from the heap
    cdef Py_ssize_t shape[1]
    cdef Py_ssize_t strides[1]
