"""ternary: packed ternary matrices: pack, unpack, encode.

In memory a matrix is rows of 2-bit codes (code = weight + 1) in blocks of 128 codes = 32 bytes, the official I2_S
layout, K padded with code 1.  An official I2_S tensor with K % 128 == 0 is used where it lies; other packings are
repacked once (BitNet b1.58, arXiv 2402.17764).
"""

import array
import math
import struct

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from libc.math cimport fabsf
from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy, memset

from pyx.cpu cimport TERNARY_BLOCK, TERNARY_BLOCK_BYTES, active, kernels
from pyx.memory cimport Arena
from pyx.projection cimport ROW_TILE, activations, project
from pyx.table cimport Table

cdef extern from "kernels.h" nogil:
    void repack_i2s_128(const uint8_t *, int64_t, int64_t, uint8_t *)
    void repack_i2s_64(const uint8_t *, int64_t, int64_t, uint8_t *)
    void repack_i2s_1x4(const uint8_t *, int64_t, int64_t, uint8_t *)
    void repack_hf(const uint8_t *, int64_t, int64_t, uint8_t *)
    void repack_tq1_0(const uint8_t *, int64_t, int64_t, uint8_t *, float *)
    void repack_tq2_0(const uint8_t *, int64_t, int64_t, uint8_t *, float *)
    void repack_i8(const int8_t *, int64_t, int64_t, uint8_t *)
    void unpack_i8(const uint8_t *, int64_t, int64_t, int8_t *)
    float absmean(const float *, int64_t, int64_t, uint8_t *)

#: largest relative spread of magnitudes that still is "one magnitude": one unit in the last place of bfloat16
cdef double ONE_MAGNITUDE = 1.0 / 128


cdef class TernaryMatrix:
    """A matrix [n_row][k] of -1, 0, +1 with scales.  Make one with :meth:`pack`.

    ``mapped`` tells that the codes are used where the file's map holds them.
    """

    def __cinit__(self):
        memset(&self.m, 0, sizeof(matrix))

    @staticmethod
    def pack(str type not None, data, int64_t n_row, int64_t k, float scale=1.0, str layout="128", bint quantize=True):
        """Pack stored bytes of any supported type.

        type: "I2_S" (layout "128", "64" or "1x4"), "TQ1_0", "TQ2_0", "HF_U8" (four rows a byte, a quarter of the
        matrix apart), "I8" (weights -1, 0, +1), or "F32", "F16", "BF16": ternarised here, see :meth:`_from_floats`.
        scale multiplies whatever scale the bytes hold.  data: a contiguous buffer of exactly the stored bytes.
        quantize: whether latent float weights may be quantised (absmean); already ternary ones always are accepted.

        Raises ValueError with one line when sizes do not fit, the scale is not finite and positive, or floats are
        neither ternary nor to be quantised.
        """
        cdef TernaryMatrix self = TernaryMatrix.__new__(TernaryMatrix)
        cdef Py_buffer buffer
        if n_row < 1 or k < 1 or n_row > (1 << 31) or k > (1 << 24):
            raise ValueError(f"a matrix of {n_row} x {k} is out of range")
        if not (math.isfinite(scale) and scale > 0):
            raise ValueError(f"scale {scale} is not a positive number")
        self.m.n_row, self.m.k = n_row, k
        self.m.n_block = (k + TERNARY_BLOCK - 1) // TERNARY_BLOCK
        self.m.n_group = 1
        PyObject_GetBuffer(data, &buffer, PyBUF_SIMPLE)
        try:
            self._fill(type, data, <const uint8_t *>buffer.buf, buffer.len, scale, layout, quantize)
        finally:
            PyBuffer_Release(&buffer)
        return self

    cdef _fill(self, str type, data, const uint8_t *src, Py_ssize_t n_byte, float scale, str layout, bint quantize):
        cdef int64_t n = self.m.n_row * self.m.k
        cdef int64_t k = self.m.k, n_row = self.m.n_row
        cdef float stored
        if type == "I2_S":
            if n % TERNARY_BLOCK:
                raise ValueError(f"{n_row} x {k} weights do not fill whole I2_S blocks of 128: the file cut some off")
            self._expect(n_byte, n // 4 + 32, type)
            stored = struct.unpack_from("<f", data, n // 4)[0]
            if not (math.isfinite(stored) and stored > 0):
                raise ValueError(f"its scale is {stored}, not a positive number")
            self._set_scales([stored * scale], 0, 1)
            if layout == "128" and k % TERNARY_BLOCK == 0:
                # Where it lies: the owner keeps the mapping alive.
                self.owner, self.mapped, self.m.codes = memoryview(data), True, src
                return
            if layout == "1x4" and n_row % 4:
                raise ValueError(f"layout 1x4 needs a number of rows divisible by 4, not {n_row}")
            if layout == "128":
                repack_i2s_128(src, n_row, k, self._new_codes())
            elif layout == "64":
                repack_i2s_64(src, n_row, k, self._new_codes())
            elif layout == "1x4":
                repack_i2s_1x4(src, n_row, k, self._new_codes())
            else:
                raise ValueError(f"I2_S layout {layout!r} is not known (128, 64, 1x4)")
        elif type == "HF_U8":
            if n_row % 4:
                raise ValueError(f"{n_row} rows cannot be packed four to a byte")
            self._expect(n_byte, n // 4, type)
            repack_hf(src, n_row, k, self._new_codes())
            self._set_scales([scale], 0, 1)
        elif type in ("TQ1_0", "TQ2_0"):
            self._from_tq(type, src, n_byte, scale)
        elif type == "I8":
            self._expect(n_byte, n, type)
            repack_i8(<const int8_t *>src, n_row, k, self._new_codes())
            self._set_scales([scale], 0, 1)
        elif type in ("F32", "F16", "BF16"):
            self._expect(n_byte, n * (4 if type == "F32" else 2), type)
            self._from_floats(type, data, scale, quantize)
        else:
            raise ValueError(f"type {type} does not hold ternary weights")

    cdef _expect(self, Py_ssize_t got, int64_t want, str type):
        if got != want:
            raise ValueError(f"{got} bytes, but a {type} matrix of {self.m.n_row} x {self.m.k} takes {want}")

    cdef uint8_t *_new_codes(self) except NULL:
        cdef Arena arena = Arena(self.m.n_row * self.m.n_block * TERNARY_BLOCK_BYTES)
        self.owner, self.mapped, self.m.codes = arena, False, arena.data
        return arena.data

    cdef _set_scales(self, scales, int64_t step, int64_t n_group):
        """scales: n_group values per row, or one row of them with step 0."""
        self.scale_arena = Arena(4 * len(scales))
        memoryview(self.scale_arena).cast("f")[:] = array.array("f", scales)
        self.m.scale = <const float *>self.scale_arena.data
        self.m.scale_step, self.m.n_group = step, n_group

    cdef _from_tq(self, str type, const uint8_t *src, Py_ssize_t n_byte, float scale):
        """TQ1_0 / TQ2_0: a half scale per 256 weights; one scale for all when they agree, else one per group."""
        cdef int64_t n_row = self.m.n_row, k = self.m.k, n_group, i
        cdef Arena d
        cdef float *values
        cdef float common = 0
        cdef bint uniform = True
        if k % 256:
            raise ValueError(f"K = {k} is no multiple of 256, which {type} needs")
        n_group = k // 256
        self._expect(n_byte, n_row * n_group * (54 if type == "TQ1_0" else 66), type)
        d = Arena(4 * n_row * n_group)
        values = <float *>d.data
        if type == "TQ1_0":
            repack_tq1_0(src, n_row, k, self._new_codes(), values)
        else:
            repack_tq2_0(src, n_row, k, self._new_codes(), values)
        for i in range(n_row * n_group):
            if not values[i] * 0 == 0 or values[i] < 0:
                raise ValueError("a block scale is not a positive number")
            if values[i] != 0:  # an all-zero block has scale 0 and agrees with any
                uniform = uniform and (common == 0 or values[i] == common)
                common = values[i]
            values[i] = values[i] * scale
        if uniform:
            self._set_scales([(common or 1.0) * scale], 0, 1)
        else:
            self.scale_arena = d
            self.m.scale = values
            self.m.scale_step = self.m.n_group = n_group
            self.m.group_blocks = 2

    cdef _from_floats(self, str type, data, float scale, bint quantize):
        """Ternarise floats: already ternary ones first (one magnitude per matrix, per block of rows, or per group of
        128 or 256 along K), then absmean over latent weights.  Taking the absmean of weights that are ternary already
        would shrink the scale by their density."""
        cdef int64_t n_row = self.m.n_row, k = self.m.k, row, i, block, n_block = self.m.n_block
        cdef Table table = Table(type, data, n_row, k)
        cdef Arena floats = Arena(4 * n_row * k)
        cdef Arena low_arena = Arena(4 * n_row * n_block), high_arena = Arena(4 * n_row * n_block)
        cdef float *w = <float *>floats.data
        cdef float *low = <float *>low_arena.data    # [n_row][n_block] least non-zero magnitude, 0 if all zero
        cdef float *high = <float *>high_arena.data  # [n_row][n_block] largest magnitude
        cdef float magnitude
        cdef bint finite = True
        with nogil:
            for row in range(n_row):
                table.row_into(row, w + row * k)
                for i in range(k):
                    magnitude = fabsf(w[row * k + i])
                    if not magnitude * 0 == 0:
                        finite = False
                    block = row * n_block + i // TERNARY_BLOCK
                    if magnitude != 0:
                        if high[block] < magnitude:
                            high[block] = magnitude
                        if low[block] == 0 or low[block] > magnitude:
                            low[block] = magnitude
        if not finite:
            raise ValueError("holds weights that are not finite numbers")
        for parts in (1, 2, 3, 4, 6, 8):
            if n_row % parts == 0:
                scales = self._block_scales(low, high, n_row // parts * n_block)
                if scales is not None:
                    if parts == 1:
                        self._set_scales([scales[0] * scale], 0, 1)
                    else:
                        rows = [s * scale for s in scales for _ in range(n_row // parts)]
                        self._set_scales(rows, 1, 1)
                    self._sign_codes(w)
                    return
        for blocks in (2, 1):
            if n_block % blocks == 0 and k % TERNARY_BLOCK == 0:
                scales = self._block_scales(low, high, blocks)
                if scales is not None:
                    self._set_scales([s * scale for s in scales], n_block // blocks, n_block // blocks)
                    self.m.group_blocks = blocks
                    self._sign_codes(w)
                    return
        if not quantize:
            raise ValueError("holds dense weights, not ternary ones")
        magnitude = absmean(w, n_row, k, self._new_codes())
        self._set_scales([magnitude * scale], 0, 1)

    cdef _block_scales(self, const float *low, const float *high, int64_t length):
        """The magnitude of each run of ``length`` blocks, or None if one of them holds more than one magnitude."""
        cdef int64_t start, i, n = self.m.n_row * self.m.n_block
        cdef float least, most
        scales = []
        for start in range(0, n, length):
            least = most = 0
            for i in range(start, start + length):
                if high[i] > most:
                    most = high[i]
                if low[i] != 0 and (least == 0 or low[i] < least):
                    least = low[i]
            if most != 0 and most - least > ONE_MAGNITUDE * most:
                return None
            scales.append(most if most != 0 else 1.0)
        return scales

    cdef _sign_codes(self, const float *w):
        cdef int64_t i, n = self.m.n_row * self.m.k
        cdef Arena signs = Arena(n)
        cdef int8_t *sign = <int8_t *>signs.data
        for i in range(n):
            sign[i] = (w[i] > 0) - (w[i] < 0)
        repack_i8(sign, self.m.n_row, self.m.k, self._new_codes())

    @staticmethod
    def dense(str type not None, data, int64_t n_row, int64_t k, float scale=1.0):
        """A float projection that its maker left unquantised; kept as float32 rows."""
        cdef TernaryMatrix self = TernaryMatrix.__new__(TernaryMatrix)
        cdef Table table = Table(type, data, n_row, k)
        cdef Arena floats = Arena(4 * n_row * k)
        cdef float *w = <float *>floats.data
        cdef int64_t row, i
        for row in range(n_row):
            table.row_into(row, w + row * k)
        for i in range(n_row * k):
            w[i] *= scale
        self.m.n_row, self.m.k, self.m.n_group, self.m.dense = n_row, k, 1, w
        self.m.n_block = (k + TERNARY_BLOCK - 1) // TERNARY_BLOCK
        self.scale_arena = floats
        return self

    @property
    def code_bytes(self):
        """Bytes of codes, 0 for a dense matrix; a multiple of 32."""
        return 0 if self.is_dense else self.m.n_row * self.m.n_block * TERNARY_BLOCK_BYTES

    @property
    def stored(self):
        """The tensor's bytes, while the codes are used where the file's map holds them; else None."""
        return self.owner if self.mapped else None

    def move_to(self, Arena arena not None, size_t offset):
        """Copy the codes into an arena from byte ``offset`` on and use them there (large pages: fewer TLB misses).

        Raises ValueError when they do not fit.
        """
        cdef size_t n = self.code_bytes
        if offset + n > arena.nbytes or self.is_dense:
            raise ValueError(f"{n} bytes at {offset} do not fit an arena of {arena.nbytes}")
        with nogil:
            memcpy(arena.data + offset, self.m.codes, n)
        self.owner, self.mapped, self.m.codes = arena, False, arena.data + offset

    @property
    def n_row(self):
        return self.m.n_row

    @property
    def k(self):
        return self.m.k

    @property
    def is_dense(self):
        return self.m.dense != NULL

    @property
    def nbytes(self):
        """Bytes read for one product: codes (or dense rows) and scales."""
        return self.code_bytes + (self.scale_arena.nbytes if self.scale_arena is not None else 0)

    @property
    def scales(self):
        """All scales as a list of floats: one, one per row, or n_group per row."""
        if self.is_dense:
            return [1.0]
        return memoryview(self.scale_arena).cast("f").tolist()

    def unpack(self):
        """The weights -1, 0, +1 as an array("b") of [n_row][k]."""
        if self.is_dense:
            raise ValueError("a dense matrix has no ternary weights")
        cdef signed char[::1] out = array.array("b", bytes(self.m.n_row * self.m.k))
        unpack_i8(self.m.codes, self.m.n_row, self.m.k, <int8_t *>&out[0])
        return out.base

    @property
    def zero_fraction(self):
        """Share of zero weights; 0.3 to 0.5 in BitNet models, near 0 when never ternarised."""
        return self.unpack().count(0) / (self.m.n_row * self.m.k)

    def encode(self):
        """The bytes of an I2_S tensor, layout 128: flat code stream, float32 scale, 28 zero bytes.

        Raises ValueError when there is more than one scale, which I2_S cannot hold.
        """
        scales = set(self.scales)
        if self.is_dense or len(scales) != 1:
            raise ValueError("I2_S holds one scale per matrix; this one has more")
        if self.m.n_row * self.m.k % TERNARY_BLOCK:
            raise ValueError(f"{self.m.n_row} x {self.m.k} weights do not fill whole I2_S blocks of 128")
        cdef bytes flat
        if self.m.k % TERNARY_BLOCK == 0:
            flat = (<const char *>self.m.codes)[: self.m.n_row * self.m.n_block * TERNARY_BLOCK_BYTES]
        else:
            # blocks run over row ends in the file: pack the whole stream as one row
            weights = self.unpack()
            flat = TernaryMatrix.pack("I8", weights, 1, len(weights))._stream()
        return flat + struct.pack("<f", scales.pop()) + bytes(28)

    def _stream(self):
        return (<const char *>self.m.codes)[: self.m.n_row * self.m.n_block * TERNARY_BLOCK_BYTES]

    def accumulate(self, x):
        """Exact integers sum_k w[r][k] * x[k] for x int8 [k] in +-127; array("i") [n_row]."""
        cdef const signed char[::1] given = x
        cdef int64_t k_pad = self.m.n_block * TERNARY_BLOCK, i, total = 0
        if self.is_dense or given.shape[0] != self.m.k:
            raise ValueError(f"{given.shape[0]} activations for {self.m.k} columns")
        cdef Arena padded = Arena(k_pad)
        cdef int32_t[::1] out = array.array("i", bytes(4 * self.m.n_row))
        memcpy(padded.data, &given[0], self.m.k)
        for i in range(self.m.k):
            total += given[i]
        active().ternary_matvec(self.m.codes, self.m.n_row, self.m.n_block, <const int8_t *>padded.data, &out[0])
        for i in range(self.m.n_row):
            out[i] -= total
        return out.base

    def matvec(self, x):
        """y = W x for float32 x [k], quantised per vector as BitNet does; array("f") [n_row]."""
        cdef const float[::1] given = x
        cdef int64_t k_pad = self.m.n_block * TERNARY_BLOCK
        cdef const kernels *kernel = active()
        cdef activations a
        cdef float s
        cdef int32_t total
        if given.shape[0] != self.m.k:
            raise ValueError(f"{given.shape[0]} activations for {self.m.k} columns")
        cdef Arena x8 = Arena(k_pad)
        cdef Arena acc = Arena(4 * max(<int64_t>ROW_TILE, 2 * self.m.n_block))
        cdef float[::1] out = array.array("f", bytes(4 * self.m.n_row))
        s = kernel.quantize_i8(&given[0], self.m.k, <int8_t *>x8.data, k_pad, &total)
        a = activations(1, <const int8_t *>x8.data, k_pad, &s, &total, &given[0], self.m.k)
        with nogil:
            project(kernel, &self.m, &a, 0, self.m.n_row, False, <int32_t *>acc.data, &out[0], self.m.n_row)
        return out.base
