"""head: the output head, all of whose rows are read for every token.

It is what decode reads most of after the ternary weights, so it may be stored smaller than the file has it: int8 rows
with a float32 scale per row (default), half, float, or "native" (exactly the values of the file).
"""

from cython.parallel cimport parallel, prange, threadid
from libc.stdint cimport int8_t, int16_t, int64_t, uint8_t, uint16_t

from pyx.cpu cimport active, kernels
from pyx.memory cimport Arena
from pyx.table cimport TABLE_F16, Table


cdef class Head:
    """The output head over a table: kind "int8", "f16", "f32" or "native".

    ``mapped`` tells that the rows are used where the file's map holds them ("native" or the same type as asked for).
    """

    def __cinit__(self, Table table not None, str kind="int8", int n_threads=1):
        self.n_row, self.k = table.n_row, table.k
        if kind == "native":
            kind = "f16" if table.type == "F16" else "f32"
        if kind not in ("int8", "f16", "f32"):
            raise ValueError(f"output head {kind!r} is not known (int8, f16, f32, native)")
        self.kind = kind
        self.kind_id = {"int8": HEAD_INT8, "f16": HEAD_F16, "f32": HEAD_F32}[kind]
        aligned = (<size_t>table.data) % 4 == 0
        if (kind == "f16" and table.type == "F16" or kind == "f32" and table.type == "F32") and aligned:
            self.owner, self.rows, self.mapped = table, table.data, True
        else:
            self._build(table, n_threads)

    cdef _build(self, Table table, int n_threads):
        cdef int64_t row, n_row = self.n_row, k = self.k
        cdef const kernels *kernel = active()
        cdef int width = {"int8": 1, "f16": 2, "f32": 4}[self.kind]
        cdef head_kind kind = self.kind_id
        cdef int64_t some = max(<int64_t>1, (1 << 20) // table.row_bytes)  # rows read before they are let go
        cdef Arena scratch_arena = Arena(n_threads * (4 * k + 64))
        cdef char *scratch = <char *>scratch_arena.data
        cdef float *row_floats
        cdef uint8_t *out
        cdef float *scale = NULL
        # Read in one long stream per token: huge pages pay most here.
        self.weights = Arena(n_row * k * width, huge=n_row * k * width >= (8 << 20))
        out = self.weights.data
        self.rows = out
        if kind == HEAD_INT8:
            self.scale_arena = Arena(4 * n_row)
            scale = <float *>self.scale_arena.data
            self.scale = scale
        with nogil, parallel(num_threads=n_threads):
            row_floats = <float *>(scratch + threadid() * (4 * k + 64))
            for row in prange(n_row, schedule="static"):
                if kind == HEAD_F32:
                    table.row_into(row, <float *>out + row * k)
                else:
                    if table.type_id == TABLE_F16:
                        kernel.half_to_float(<const uint16_t *>(table.data + row * table.row_bytes), k, row_floats)
                    else:
                        table.row_into(row, row_floats)
                    if kind == HEAD_INT8:
                        kernel.quantize_row_i8(row_floats, k, <int8_t *>out + row * k, scale + row)
                    else:
                        kernel.float_to_half(row_floats, k, <uint16_t *>out + row * k)
                if row % some == some - 1:
                    table.let_go(row - some + 1, row + 1)

    cdef void logits(
        self, const kernels *kernel, int64_t row0, int64_t row1, const float *x, const int16_t *x16, float s,
        float *out) noexcept nogil:
        cdef int64_t n_row = row1 - row0
        if n_row <= 0:
            return
        if self.kind_id == HEAD_INT8:
            kernel.head_i8(
                <const int8_t *>self.rows + row0 * self.k, self.scale + row0, n_row, self.k, x16, s, out + row0)
        elif self.kind_id == HEAD_F16:
            kernel.head_f16(<const uint16_t *>self.rows + row0 * self.k, n_row, self.k, x, out + row0)
        else:
            kernel.head_f32(<const float *>self.rows + row0 * self.k, n_row, self.k, x, out + row0)

    @property
    def nbytes(self):
        """Bytes read per token."""
        return self.n_row * (self.k * {"int8": 1, "f16": 2, "f32": 4}[self.kind] + (4 if self.kind == "int8" else 0))

    @property
    def allocated(self):
        """Bytes allocated beside the map."""
        return 0 if self.mapped else self.nbytes
