# tensors: the vectors and matrices that a model is built from.
from libc.stdint cimport int64_t

from pyx.weights.projection cimport matrix

# Copy of a float32 buffer [n]; owners will hold it.  Raises ValueError for another length and numbers that are not
# finite.
cdef const float *copy_vector(values, int64_t n, str name, list owners) except NULL

cdef class LayerTensors:
    cdef dict given         # tensors by GGUF name without the prefix
    cdef readonly str prefix    # "blk.3"
    cdef list owners        # of everything taken
    cdef int group          # values of an activation that share a scale; 0: all do
    # The vector with this name, float32 [n].
    cdef const float *vector(self, str key, int64_t n) except NULL
    # The same; NULL if the layer has none.
    cdef const float *optional(self, str key, int64_t n) except? NULL
    cdef const matrix *matrix(self, str key, int64_t n_row, int64_t k) except NULL
