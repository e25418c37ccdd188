"""tensors: the vectors and matrices that a model is built from, by name and with their shapes checked."""


cdef const float *copy_vector(values, int64_t n, str name, list owners) except NULL:
    """Copy of a float32 buffer [n]; owners will hold it.  Raises ValueError for another length and numbers that are not
    finite.
    """
    cdef Arena arena = Arena(4 * n)
    if len(values) != n:
        raise ValueError(f"{name} holds {len(values)} numbers, not {n}")
    cdef const float *x = <const float *>arena.data     # [n]
    cdef int64_t i
    memoryview(arena).cast("f")[:n] = memoryview(array.array("f", values))
    for i in range(n):
        if not isfinite(x[i]):
            raise ValueError(f"{name} holds a number that is not finite")
    owners.append(arena)
    return <const float *>arena.data


cdef class LayerTensors:
    """The tensors of one layer, by GGUF name without the prefix: float32 buffers and TernaryMatrix.

    Its methods raise ValueError that names the tensor that does not fit.
    """

    cdef dict given         # tensors by GGUF name without the prefix
    cdef readonly str prefix    # "blk.3"
    cdef list owners        # of everything taken
    cdef int group          # values of an activation that share a scale; 0: all do

    def __cinit__(self, given, str prefix, list owners, int group):
        self.given, self.prefix, self.owners, self.group = dict(given), prefix, owners, group

    cdef const float *vector(self, str key, int64_t n) except NULL:
        """The vector with this name, float32 [n]."""
        return copy_vector(self.given[key], n, f"{self.prefix}.{key}", self.owners)

    cdef const float *optional(self, str key, int64_t n) except? NULL:
        """The same; NULL if the layer has none."""
        if self.given.get(key) is None:
            return NULL
        return self.vector(key, n)

    cdef const matrix *matrix(self, str key, int64_t n_row, int64_t k) except NULL:
        cdef TernaryMatrix w = self.given[key]
        cdef str name = f"{self.prefix}.{key}"
        if w.m.n_row != n_row or w.m.k != k:
            raise ValueError(f"{name} is {w.m.n_row} x {w.m.k}, not {n_row} x {k}")
        cdef int group = w.m.group if w.m.group_bytes else 0, needed = self.group
        if not w.is_dense and group != needed and (needed or group != GROUP):
            raise ValueError(
                f"{name} has no scales per {needed} weights, as activations of kind int8-{needed} need" if needed else
                f"{name} has scales per {group} weights, which activations of kind int8 do not fit")
        self.owners.append(w)
        return &w.m
