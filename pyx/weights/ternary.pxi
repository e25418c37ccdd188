"""ternary: packed ternary matrices: pack, unpack, encode.

In memory a matrix is rows of 2-bit codes (code = weight + 1) in blocks of 128 codes = 32 bytes, the official I2_S
layout, with K padded with code 1.  An official I2_S tensor with K % 128 == 0 is used directly from the file's map;
other packings are repacked once (BitNet b1.58, arXiv 2402.17764).

A matrix with a scale per 128 weights along K is rows of groups: the scale as half float, then 128 codes.  These are the
blocks of Q2_0 (in pairs) and PQ2_0, which are used directly; other packings with such scales become PQ2_0.  A copy of
such a matrix consists of panels of 64 rows (pyx/kernels/panels.h), which are read up to twice as fast; tensors of type
PQ2_0_R64 are stored as panels and used directly.

A matrix of other numbers can be the sum of up to four ternary ones, its planes, each with a scale per 32, 64 or 128
weights along K (PTQTP, arXiv 2509.16989).  It is stored as panels whose groups of all planes lie side by side, as
types TP32_R64, TP64_R64 and PQ2_0_R64.
"""

# repack_*: (stored bytes, n_row, k, codes [n_row][n_block * 32], block scales as kernels.h says)
cdef extern from "kernels.h" nogil:
    void repack_i2s_128(const uint8_t *, int64_t, int64_t, uint8_t *)
    void repack_i2s_64(const uint8_t *, int64_t, int64_t, uint8_t *)
    void repack_i2s_1x4(const uint8_t *, int64_t, int64_t, uint8_t *)
    void repack_hf(const uint8_t *, int64_t, int64_t, uint8_t *)
    struct ternary_type:
        const char *name
        int span
        int bytes
        int before_row
        int together
        void (*repack)(const uint8_t *, int64_t, int64_t, uint8_t *, float *)
    const ternary_type *ternary_types
    int group_faults(const uint8_t *, int, int64_t)
    int panel_faults(const uint8_t *, int, int64_t)
    int repack_q1_0(const uint8_t *, int block, int64_t, uint8_t *)
    void repack_q2_0(const uint8_t *, int64_t, int64_t, uint8_t *)
    void repack_groups(const uint8_t *, int64_t, int64_t, const float *, int64_t, int64_t, uint8_t *)
    void pack_panels(const uint8_t *, int, int64_t, int64_t, uint8_t *)
    void unpack_groups(const uint8_t *, int, int64_t, int64_t, int8_t *, float *)
    void pack_plane_panels(const int8_t *, const float *, int, int64_t, int64_t, int, uint8_t *)
    void unpack_plane_panels(const uint8_t *, int, int64_t, int64_t, int, int8_t *, float *)
    void repack_i8(const int8_t *, int64_t, int64_t, uint8_t *)
    void unpack_i8(const uint8_t *, int64_t, int64_t, int8_t *)
    float absmean(const float *, int64_t, int64_t, uint8_t *)

#: largest relative difference of magnitudes that count as one: a unit in the last place of bfloat16
cdef double ONE_MAGNITUDE = 1.0 / 128


#: longest row: 254 (code 2, x -127 to 127) times this is the largest sum, and it fits an int32
MOST_K = 1 << 23


cdef check_groups(const uint8_t *rows, int group_bytes, int64_t n, int panels=0):
    """Raise ValueError unless n groups have finite scales, one for each 128 weights. rows: [n][group_bytes], or with
    panels, the weights of their groups, [n][PANEL_BYTES(panels)], each the groups of 64 rows.
    """
    cdef int faults
    with nogil:
        faults = panel_faults(rows, panels, n) if panels else group_faults(rows, group_bytes, n)
    if faults == 2:
        raise ValueError("a block scale is not a finite number of 16 bits")
    if faults == 1:
        raise ValueError("its blocks of 64 weights have scales of their own; those of 128 are supported")


cdef Arena room_for(int64_t nbytes):
    """Memory for codes: in 2 MiB pages where it fills one, since a step reads all of it."""
    return Arena(nbytes, huge=nbytes >= (2 << 20))


def binary_groups(data, int block=GROUP):
    """The bytes of weights -1 and +1 with a scale for each ``block`` of them, 128 (Q1_0) or 32 (early Q1_0), as those
    of a PQ2_0 tensor: an Arena.

    Raises ValueError if they are not whole groups of 128, or a group has more than one scale.
    """
    cdef const unsigned char[::1] stored = data
    cdef int64_t size = GROUP // block * (2 + block // 8), n = stored.shape[0] // size
    cdef bint differ
    if block not in (32, GROUP):
        raise ValueError(f"blocks of {block} weights are not supported")
    if n == 0 or stored.shape[0] % size:
        raise ValueError(f"{stored.shape[0]} bytes do not fill whole groups of 128 weights, {size} bytes")
    cdef Arena arena = room_for(n * GROUP_WHOLE)
    with nogil:
        differ = repack_q1_0(&stored[0], block, n, arena.data)
    if differ:
        raise ValueError(f"its blocks of {block} weights have scales of their own; those of 128 are supported")
    return arena


#: ternary types with scales in blocks or in front of rows -> weights and bytes of a block, bytes in front of the blocks
#: of a row, rows that are stored side by side
BLOCKS = {}
cdef const ternary_type *entry = ternary_types
while entry.name != NULL:
    BLOCKS[entry.name.decode()] = entry.span, entry.bytes, entry.before_row, entry.together
    entry += 1

#: types of floats whose values may be ternary
FLOATS = tuple(type for type, (_, _, levels, _) in ROW_TYPES.items() if levels == 0)


cdef void whole_ends(float *w, int64_t k) noexcept nogil:
    """A row of Q4_0 [k]: blocks of 32 whose magnitudes 0, 8 d and 7 d were made from ternary weights, because codes go
    from -8 to 7; 7 d is replaced by 8 d.
    """
    cdef int64_t start, i
    cdef float most, magnitude
    for start in range(0, k, 32):
        most = 0
        for i in range(start, start + 32):
            most = max(most, fabsf(w[i]))
        for i in range(start, start + 32):
            magnitude = fabsf(w[i])
            if magnitude != 0 and magnitude != most and magnitude != 0.875 * most:
                break
        else:
            for i in range(start, start + 32):
                if w[i] != 0:
                    w[i] = most if w[i] > 0 else -most


#: types that consist of panels -> weights of a group
PANEL_GROUPS = {"PQ2_0_R64": GROUP, "TP64_R64": 64, "TP32_R64": 32}


cdef check_planes(int64_t n_plane, int64_t n_row, int64_t k, int64_t group):
    if not 1 <= n_plane <= MOST_PLANES:
        raise ValueError(f"{n_plane} planes; a matrix has 1 to {MOST_PLANES}")
    if n_row < 1 or k < 1 or n_row > (1 << 31) or k > MOST_K:
        raise ValueError(f"a matrix of {n_row} x {k} is out of range")
    if group not in PANEL_GROUPS.values():
        raise ValueError(f"groups of {group} weights; planes have groups of 32, 64 or 128")
    if k % group:
        raise ValueError(f"K = {k} is not a multiple of {group}, the weights that share a scale")


def pack_planes(codes, scales, int64_t n_plane, int64_t n_row, int64_t k, int64_t group):
    """The bytes of a tensor that is the sum of n_plane ternary matrices, of the type of PANEL_GROUPS with this group.

    codes: int8 buffer [n_plane][n_row][k] of -1, 0, +1. scales: float32 buffer [n_plane][n_row][k / group], not
    negative; they are rounded to float16.  Raises ValueError with one line for anything else.
    """
    check_planes(n_plane, n_row, k, group)
    cdef int64_t i, n = n_plane * n_row * k, n_scale = n // group
    codes, scales = memoryview(codes), memoryview(scales)
    if codes.format != "b" or codes.nbytes != n or scales.format != "f" or scales.nbytes != 4 * n_scale:
        raise ValueError(f"{n_plane} planes of {n_row} x {k} are {n} int8 codes and {n_scale} float32 scales")
    cdef const int8_t[::1] w = codes.cast("B").cast("b")        # [n_plane][n_row][k]
    cdef const float[::1] d = scales.cast("B").cast("f")        # [n_plane][n_row][k / group]
    for i in range(n):
        if not -1 <= w[i] <= 1:
            raise ValueError(f"code {w[i]}; those of ternary weights are -1, 0 and 1")
    for i in range(n_scale):
        if not 0 <= d[i] < 65520:  # what rounds to a finite float16
            raise ValueError(f"scale {d[i]} is not a number from 0 to 65504")
    cdef object out = bytearray((n_row + PANEL_ROWS - 1) // PANEL_ROWS * (k // group) * n_plane * PANEL_BYTES(group))
    cdef uint8_t[::1] panels = out
    with nogil:
        pack_plane_panels(&w[0], &d[0], <int>n_plane, n_row, k, <int>group, &panels[0])
    return bytes(out)


cdef class TernaryMatrix:
    """A matrix [n_row][k] of -1, 0, +1 with scales, or a sum of some.  Made by :meth:`pack`, or of floats by
    :meth:`dense`.

    ``mapped``: the codes are used directly from the file's map.
    """

    def __cinit__(self):
        memset(&self.m, 0, sizeof(matrix))
        self.m.group, self.m.n_plane = GROUP, 1

    @staticmethod
    def pack(
        str type not None, data, int64_t n_row, int64_t k, float scale=1.0, str layout="128", bint quantize=True,
        bint groups=False, int64_t planes=1, bint check=True):
        """Pack stored bytes of any supported type.

        type: "I2_S" (layout "128", "64" or "1x4"), "TQ1_0", "TQ2_0", "HF_U8" (four rows per byte, a quarter of the
        matrix apart), "I8" (weights -1, 0, +1), "Q2_0" (groups of 64), "PQ2_0" (groups of 128, under any of its names),
        "PQ2_0_R64" (the same in panels of 64 rows, the last one padded), "TP64_R64" or "TP32_R64" (smaller groups in
        such panels), or one of FLOATS, which are ternarised here, see :meth:`_from_floats`. scale: multiplies the
        scales in the bytes. data: a contiguous buffer of exactly the stored bytes. quantize: float master
        weights may be quantised (absmean); floats that are ternary already are always accepted. groups: always store a
        scale (as half float) per 128 weights along k, as activations of kind "int8-128" need. planes: of panels, how
        many matrices their groups belong to, whose sum is meant. check: look at the scales of groups; without that, no
        byte of a matrix that is used where it lies is read.

        Raises ValueError with one line if sizes do not fit, the scale is not finite and positive, floats are neither
        ternary nor to be quantised, or 128 weights of Q2_0 have two scales.
        """
        cdef TernaryMatrix self = TernaryMatrix.__new__(TernaryMatrix)
        cdef Py_buffer buffer
        if n_row < 1 or k < 1 or n_row > (1 << 31) or k > MOST_K:
            raise ValueError(f"a matrix of {n_row} x {k} is out of range")
        if not (math.isfinite(scale) and scale > 0):
            raise ValueError(f"scale {scale} is not a positive number")
        self.m.n_row, self.m.k = n_row, k
        self.m.n_block = (k + TERNARY_BLOCK - 1) // TERNARY_BLOCK
        if planes != 1 and type not in PANEL_GROUPS:
            raise ValueError(f"type {type} holds no planes ({', '.join(PANEL_GROUPS)} do)")
        if type in PANEL_GROUPS:
            check_planes(planes, n_row, k, PANEL_GROUPS[type])
            self.m.n_plane = <int>planes
        PyObject_GetBuffer(data, &buffer, PyBUF_SIMPLE)
        try:
            self._fill(type, data, <const uint8_t *>buffer.buf, buffer.len, scale, layout, quantize, check)
        finally:
            PyBuffer_Release(&buffer)
        if groups and self.m.group_bytes == 0:
            self._regroup(self.m.scale, self.m.scale_step, self.m.n_block)
        return self

    cdef _fill(
        self, str type, data, const uint8_t *src, Py_ssize_t n_byte, float scale, str layout, bint quantize,
        bint check):
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
            self._set_scales([stored * scale], 0)
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
            self._set_scales([scale], 0)
        elif type in ("Q2_0", "PQ2_0"):
            self._from_q2(type, data, src, n_byte, scale, check)
        elif type in PANEL_GROUPS:
            self._from_panels(type, data, src, n_byte, scale, check)
        elif type in BLOCKS:
            self._from_blocks(type, src, n_byte, scale)
        elif type == "I8":
            self._expect(n_byte, n, type)
            repack_i8(<const int8_t *>src, n_row, k, self._new_codes())
            self._set_scales([scale], 0)
        elif type in FLOATS:
            self._from_floats(type, data, scale, quantize)
        else:
            raise ValueError(f"type {type} does not hold ternary weights")

    def _expect(self, Py_ssize_t got, int64_t want, str type):
        if got != want:
            raise ValueError(f"{got} bytes, but a {type} matrix of {self.m.n_row} x {self.m.k} takes {want}")

    cdef uint8_t *_new_codes(self) except NULL:
        cdef Arena arena = room_for(self.m.n_row * self.m.n_block * TERNARY_BLOCK_BYTES)
        self.owner, self.mapped, self.m.codes = arena, False, arena.data
        return arena.data

    def _set_scales(self, scales, int64_t step):
        """scales: a sequence of floats, [n_row] with step 1, or [1] with step 0."""
        self.scale_arena = Arena(4 * len(scales))
        memoryview(self.scale_arena).cast("f")[:] = array.array("f", scales)
        self.m.scale = <const float *>self.scale_arena.data
        self.m.scale_step = step

    cdef _regroup(self, const float *scales, int64_t step, int64_t share):
        """Turn rows of blocks into rows of groups.

        scales: [n_row or 1][n_block / share], one for each ``share`` blocks; step: floats from row to row, 0 if all
        rows have the same.
        """
        cdef Arena arena = room_for(self.m.n_row * self.m.n_block * GROUP_WHOLE)
        repack_groups(self.m.codes, self.m.n_row, self.m.n_block, scales, step, share, arena.data)
        self._own_groups(arena)

    def _own_groups(self, Arena arena):
        """Use the groups in arena [n_row][n_block][GROUP_WHOLE] from now on."""
        check_groups(arena.data, GROUP_WHOLE, self.m.n_row * self.m.n_block)
        self.owner, self.mapped, self.m.codes, self.m.group_bytes = arena, False, arena.data, GROUP_WHOLE
        self.scale_arena, self.m.scale = None, NULL  # the groups have the scales
        self.m.panels = False

    cdef _from_q2(self, str type, data, const uint8_t *src, Py_ssize_t n_byte, float scale, bint check):
        """Q2_0 and PQ2_0: rows of groups without a copy, if k is a multiple of 128."""
        cdef int64_t n_row = self.m.n_row, k = self.m.k, n = n_row * self.m.n_block
        cdef int64_t block = ROW_TYPES[type][0], size = ROW_TYPES[type][1]
        cdef int group_bytes = <int>(GROUP // block * size)
        cdef Arena arena
        if k % block:
            raise ValueError(f"K = {k} is not a multiple of {block}, which {type} needs")
        self._expect(n_byte, n_row * (k // block) * size, type)
        if k % GROUP:
            arena = room_for(n * GROUP_WHOLE)
            repack_q2_0(src, n_row, k, arena.data)
            self._own_groups(arena)
        else:
            if check:
                check_groups(src, group_bytes, n)
            self.owner, self.mapped, self.m.codes, self.m.group_bytes = memoryview(data), True, src, group_bytes
        self._multiply(scale)

    cdef _from_panels(self, str type, data, const uint8_t *src, Py_ssize_t n_byte, float scale, bint check):
        """Panels, without a copy."""
        cdef int group = PANEL_GROUPS[type]
        self.m.group, self.m.n_block = group, self.m.k // group
        self.m.panels, self.m.group_bytes = True, 2 + group // 4
        self._expect(n_byte, self.room, type)
        if check:
            check_groups(src, 0, n_byte // (PANEL_ROWS * self.m.group_bytes), group)
        self.owner, self.mapped, self.m.codes = memoryview(data), True, src
        self._multiply(scale)

    def _multiply(self, float scale):
        """Multiply the scales of groups by ``scale``, in a copy: a map is not written to."""
        cdef int64_t n_row = self.m.n_row, k = self.m.k
        cdef float[::1] scales          # [n_plane][n_row][n_block]
        cdef const signed char[::1] codes   # [n_plane][n_row][k]
        cdef Arena panels
        cdef int64_t n_panel
        if scale == 1:
            return
        if self.m.panels:
            weights, d = self.unpack_planes()
            codes, scales = weights, array.array("f", [each * scale for each in d])
            n_panel = (n_row + PANEL_ROWS - 1) // PANEL_ROWS * self.m.n_block * self.m.n_plane
            panels = room_for(n_panel * PANEL_BYTES(self.m.group))
            pack_plane_panels(
                <const int8_t *>&codes[0], &scales[0], self.m.n_plane, n_row, k, self.m.group, panels.data)
            check_groups(panels.data, 0, n_panel, self.m.group)
            self.owner, self.mapped, self.m.codes = panels, False, panels.data
            return
        weights, d = self._unpack_groups()
        repack_i8(<const int8_t *><size_t>weights.buffer_info()[0], n_row, k, self._new_codes())
        self._set_scales([each * scale for each in d], self.m.n_block)
        self._regroup(self.m.scale, self.m.n_block, 1)

    cdef _from_blocks(self, str type, const uint8_t *src, Py_ssize_t n_byte, float scale):
        """A scale per block or per row; a single scale if all are equal, else one per group or row."""
        cdef const ternary_type *stored = &ternary_types[list(BLOCKS).index(type)]
        cdef int64_t n_row = self.m.n_row, k = self.m.k, i
        cdef int64_t n_block = k // stored.span, n_scale = 1 if stored.before_row else n_block
        cdef Arena d
        cdef float *values      # [n_row][n_scale]
        cdef float common = 0   # the scale so far
        cdef bint uniform = True
        if k % stored.span:
            raise ValueError(f"K = {k} is not a multiple of {stored.span}, which {type} needs")
        if n_row % stored.together:
            raise ValueError(f"{n_row} rows are not a multiple of {stored.together}, which {type} needs")
        self._expect(n_byte, n_row * (stored.before_row + n_block * stored.bytes), type)
        d = Arena(4 * n_row * n_scale)
        values = <float *>d.data
        stored.repack(src, n_row, k, self._new_codes(), values)
        for i in range(n_row * n_scale):
            if not values[i] * 0 == 0 or values[i] < 0 or stored.before_row and values[i] == 0:
                raise ValueError(f"a scale of a {'row' if stored.before_row else 'block'} is not a positive number")
            if values[i] != 0:  # an all-zero block has scale 0 and agrees with any
                uniform = uniform and (common == 0 or values[i] == common)
                common = values[i]
            values[i] = values[i] * scale
        if uniform:
            self._set_scales([(common or 1.0) * scale], 0)
        elif stored.before_row:
            self._set_scales([values[i] for i in range(n_row)], 1)
        else:
            self._regroup(values, n_block, stored.span // TERNARY_BLOCK)

    cdef _from_floats(self, str type, data, float scale, bint quantize):
        """Ternarise floats: first test for ternary ones (one magnitude per matrix, per block of rows, or per group of
        128 or 256 along K), then use absmean for master weights.  The absmean of weights that are ternary already would
        shrink the scale by their density.
        """
        cdef int64_t n_row = self.m.n_row, k = self.m.k, row, i, block, n_block = self.m.n_block
        cdef StoredRows stored = StoredRows(type, data, n_row, k)
        cdef Arena floats = Arena(4 * n_row * k)
        cdef Arena low_arena = Arena(4 * n_row * n_block), high_arena = Arena(4 * n_row * n_block)
        cdef float *w = <float *>floats.data         # [n_row][k]
        cdef float *low = <float *>low_arena.data    # [n_row][n_block] least non-zero magnitude, 0 if all zero
        cdef float *high = <float *>high_arena.data  # [n_row][n_block] largest magnitude
        cdef float magnitude
        cdef bint finite = True, four_bits = type == "Q4_0"
        with nogil:
            for row in range(n_row):
                stored.row_into(row, w + row * k)
                if four_bits:
                    whole_ends(w + row * k, k)
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
                        self._set_scales([scales[0] * scale], 0)
                    else:
                        rows = [s * scale for s in scales for _ in range(n_row // parts)]
                        self._set_scales(rows, 1)
                    self._sign_codes(w)
                    return
        for blocks in (2, 1):
            if n_block % blocks == 0 and k % TERNARY_BLOCK == 0:
                scales = self._block_scales(low, high, blocks)
                if scales is not None:
                    self._set_scales([s * scale for s in scales], n_block // blocks)
                    self._sign_codes(w)
                    self._regroup(self.m.scale, n_block // blocks, blocks)
                    return
        if not quantize:
            raise ValueError("holds dense weights, not ternary ones")
        magnitude = absmean(w, n_row, k, self._new_codes())
        self._set_scales([magnitude * scale], 0)

    cdef _block_scales(self, const float *low, const float *high, int64_t length):
        """The magnitude of each run of ``length`` blocks, [n_row * n_block / length]; None if a run has several.

        low, high: [n_row][n_block], the least magnitude that is not zero, and the largest; 0 if all are zero.
        """
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
        """Take the signs of w [n_row][k] as codes."""
        cdef int64_t i, n = self.m.n_row * self.m.k
        cdef Arena signs = Arena(n)
        cdef int8_t *sign = <int8_t *>signs.data    # [n_row][k]
        for i in range(n):
            sign[i] = (w[i] > 0) - (w[i] < 0)
        repack_i8(sign, self.m.n_row, self.m.k, self._new_codes())

    @staticmethod
    def dense(str type not None, data, int64_t n_row, int64_t k, float scale=1.0):
        """Keep a projection whose maker left it unquantised, as float32 rows [n_row][k] times ``scale``.

        Raises ValueError for a type that is not in FLOATS, if sizes do not fit, or for a number that is not finite.
        """
        cdef TernaryMatrix self = TernaryMatrix.__new__(TernaryMatrix)
        cdef StoredRows stored = StoredRows(type, data, n_row, k)
        cdef Arena floats = Arena(4 * n_row * k)
        cdef float *w = <float *>floats.data    # [n_row][k]
        cdef int64_t row, i
        for row in range(n_row):
            stored.row_into(row, w + row * k)
        for i in range(n_row * k):
            w[i] *= scale
            if not w[i] * 0 == 0:
                raise ValueError("it holds a number that is not finite")
        self.m.n_row, self.m.k, self.m.dense = n_row, k, w
        self.m.n_block = (k + TERNARY_BLOCK - 1) // TERNARY_BLOCK
        self.scale_arena = floats
        return self

    @staticmethod
    def stack(matrices):
        """Matrices of the same kind one below the other, copied: the experts of a layer.

        Raises ValueError if they have different numbers of columns, or some are dense or have groups and others not.
        """
        cdef TernaryMatrix self = TernaryMatrix.__new__(TernaryMatrix), part, first = matrices[0]
        cdef int64_t row, at = 0, size
        cdef Arena arena
        self.m = first.m
        self.m.n_row = sum([each.n_row for each in matrices])
        kind = (first.m.k, first.is_dense, first.m.group_bytes > 0)
        for part in matrices:
            if (part.m.k, part.is_dense, part.m.group_bytes > 0) != kind:
                raise ValueError("its experts are of different kinds")
        if first.is_dense:
            self.scale_arena = Arena(4 * self.m.n_row * self.m.k)
            self.m.dense = <const float *>self.scale_arena.data
            for part in matrices:
                memcpy(self.scale_arena.data + at, part.m.dense, 4 * part.m.n_row * part.m.k)
                at += 4 * part.m.n_row * part.m.k
            return self
        size = self.m.n_block * (GROUP_WHOLE if first.m.group_bytes else TERNARY_BLOCK_BYTES)
        arena = room_for(self.m.n_row * size)
        scales = []
        for part in matrices:
            if first.m.group_bytes:
                data = part.encode_groups() if part.m.group_bytes != GROUP_WHOLE or part.m.panels else None
                memcpy(
                    arena.data + at, part.m.codes if data is None else <const uint8_t *><char *>data,
                    part.m.n_row * size)
            else:
                memcpy(arena.data + at, part.m.codes, part.m.n_row * size)
                scales += [part.m.scale[row * part.m.scale_step] for row in range(part.m.n_row)]
            at += part.m.n_row * size
        self.owner, self.mapped, self.m.codes = arena, False, arena.data
        self.m.panels = False
        if first.m.group_bytes:
            self.m.group_bytes = GROUP_WHOLE
        else:
            self._set_scales(scales, 1)
        return self

    def in_basis(self, int64_t block, signs=None):
        """The rows are stored in a rotated basis (kernels.h, change_basis): blocks of ``block``; signs: +-1, float32
        [k], or None.  Raises ValueError if that does not fit.
        """
        self.m.signs = basis_signs(block, signs, self.m.k)
        self.m.basis, self.signs = block, signs

    @property
    def code_bytes(self):
        """Bytes of codes, including scales between them; 0 for a dense matrix."""
        if self.m.panels:
            return self.room
        return 0 if self.is_dense else self.m.n_row * self.m.n_block * (self.m.group_bytes or TERNARY_BLOCK_BYTES)

    @property
    def room(self):
        """Bytes that :meth:`move_to` needs."""
        if self.m.group_bytes:
            return ((self.m.n_row + PANEL_ROWS - 1) // PANEL_ROWS * self.m.n_block * self.m.n_plane
                    * PANEL_BYTES(self.m.group))
        return self.code_bytes

    @property
    def stored(self):
        """The tensor's bytes while the codes are used directly from the file's map; else None."""
        return self.owner if self.mapped else None

    def move_to(self, Arena arena not None, size_t offset):
        """Copy the codes (:attr:`room` bytes) into an arena from byte ``offset`` on and use them there; groups become
        panels.  An arena has large pages, which cause fewer TLB misses.

        Raises ValueError if they do not fit, or for a dense matrix.
        """
        cdef size_t n = self.room
        if offset + n > arena.nbytes or self.is_dense:
            raise ValueError(f"{n} bytes at {offset} do not fit an arena of {arena.nbytes}")
        with nogil:
            if self.m.group_bytes and not self.m.panels:
                pack_panels(self.m.codes, self.m.group_bytes, self.m.n_row, self.m.n_block, arena.data + offset)
            else:
                memcpy(arena.data + offset, self.m.codes, n)
        self.owner, self.mapped, self.m.codes = arena, False, arena.data + offset
        if self.m.group_bytes and not self.m.panels:
            self.m.panels, self.m.group_bytes = True, 2 + self.m.group // 4

    @property
    def n_row(self):
        """Number of rows: outputs."""
        return self.m.n_row

    @property
    def k(self):
        """Number of columns: inputs."""
        return self.m.k

    @property
    def n_plane(self):
        """Number of ternary matrices whose sum it is."""
        return self.m.n_plane

    @property
    def group(self):
        """Number of weights along k that share a scale between the codes; 0 if the scales lie elsewhere."""
        return self.m.group if self.m.group_bytes else 0

    @property
    def is_dense(self):
        """It consists of float32 rows, see :meth:`dense`."""
        return self.m.dense != NULL

    @property
    def nbytes(self):
        """Bytes read for one product: codes (or dense rows) and scales."""
        return self.code_bytes + (self.scale_arena.nbytes if self.scale_arena is not None else 0)

    @property
    def scales(self):
        """All scales as a list of floats: [1], [n_row], or [n_row][k / 256] or [n_row][k / 128] flat, or those of all
        planes, [n_plane][n_row][k / group].
        """
        if self.is_dense:
            return [1.0]
        if self.m.group_bytes:
            found = self._unpack_groups()[1].tolist()
            if self.m.n_plane > 1 or self.m.group != GROUP:
                return found
            return found[::2] if self.m.n_block % 2 == 0 and found[::2] == found[1::2] else found
        return memoryview(self.scale_arena).cast("f").tolist()

    def unpack(self):
        """The weights -1, 0, +1 as array("b") [n_row][k].  Raises ValueError for a dense matrix and for a sum."""
        if self.is_dense or self.m.n_plane > 1:
            raise ValueError("a dense matrix, or a sum of several, has no ternary weights")
        if self.m.group_bytes:
            return self._unpack_groups()[0]
        cdef signed char[::1] out = array.array("b", bytes(self.m.n_row * self.m.k))
        unpack_i8(self.m.codes, self.m.n_row, self.m.k, <int8_t *>&out[0])
        return out.base

    def unpack_planes(self):
        """The weights -1, 0, +1 of all planes as array("b") [n_plane][n_row][k], and their scales as array("f")
        [n_plane][n_row][n_block].  Raises ValueError for a matrix that does not consist of panels.
        """
        if not self.m.panels:
            raise ValueError("only panels hold planes")
        cdef int64_t n = self.m.n_plane * self.m.n_row
        cdef signed char[::1] out = array.array("b", bytes(n * self.m.k))
        cdef float[::1] d = array.array("f", bytes(4 * n * self.m.n_block))
        with nogil:
            unpack_plane_panels(
                self.m.codes, self.m.n_plane, self.m.n_row, self.m.k, self.m.group, <int8_t *>&out[0], &d[0])
        return out.base, d.base

    def sum_planes(self):
        """The sum of all planes as array("f") [n_row][k].  Raises ValueError as :meth:`unpack_planes` does."""
        weights, scales = self.unpack_planes()
        cdef const signed char[::1] w = weights     # [n_plane][n_row][k]
        cdef const float[::1] d = scales            # [n_plane][n_row][k / group]
        cdef int64_t i, n = self.m.n_row * self.m.k, group = self.m.group
        cdef float[::1] out = array.array("f", bytes(4 * n))
        for i in range(self.m.n_plane * n):
            out[i % n] += w[i] * d[i // group]
        return out.base

    def _unpack_groups(self):
        """Weights as array("b") [n_row][k] and scales as array("f") [n_row][n_block]."""
        if self.m.panels:
            return self.unpack_planes()
        cdef signed char[::1] out = array.array("b", bytes(self.m.n_row * self.m.k))
        cdef float[::1] d = array.array("f", bytes(4 * self.m.n_row * self.m.n_block))
        unpack_groups(self.m.codes, self.m.group_bytes, self.m.n_row, self.m.k, <int8_t *>&out[0], &d[0])
        return out.base, d.base

    def encode(self):
        """The bytes of an I2_S tensor, layout 128: codes [n_row * k / 4] without padding, float32 scale, 28 zero bytes.

        Raises ValueError if there is more than one scale, which I2_S cannot store, or if the codes do not fill whole
        blocks.
        """
        scales = set(self.scales)
        if self.is_dense or self.m.group_bytes or len(scales) != 1:
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

    def encode_groups(self):
        """The bytes of a PQ2_0 tensor.  Raises ValueError for a matrix without a scale per 128 weights of a row."""
        cdef int64_t i, n = self.m.n_row * self.m.n_block
        cdef TernaryMatrix rows
        if self.m.group_bytes == 0 or self.m.k % GROUP or self.m.group != GROUP or self.m.n_plane > 1:
            raise ValueError("PQ2_0 holds a scale for each 128 weights of a row; this matrix has none")
        if self.m.panels:
            weights, scales = self.unpack_planes()
            rows = TernaryMatrix.pack("I8", weights, self.m.n_row, self.m.k)
            rows._set_scales(scales, self.m.n_block)
            rows._regroup(rows.m.scale, self.m.n_block, 1)
            return rows.encode_groups()
        cdef bytes stored = (<const char *>self.m.codes)[: n * self.m.group_bytes]
        if self.m.group_bytes == GROUP_WHOLE:
            return stored
        cdef object whole = bytearray(n * GROUP_WHOLE)  # of a pair the second scale, equal to the first, is left out
        for i in range(GROUP_WHOLE):
            whole[i::GROUP_WHOLE] = stored[i if i < GROUP_PAIR // 2 else i + 2 :: GROUP_PAIR]
        return bytes(whole)

    def encode_panels(self):
        """The bytes of a PQ2_0_R64 tensor, or of one of smaller groups.  Raises ValueError for a matrix without scales
        per group of a row.
        """
        if self.m.group_bytes == 0 or self.m.k % self.m.group:
            raise ValueError("PQ2_0_R64 holds a scale for each 128 weights of a row; this matrix has none")
        cdef int64_t n = self.room
        cdef Arena panels
        if self.m.panels:
            return (<const char *>self.m.codes)[:n]
        panels = Arena(n)
        with nogil:
            pack_panels(self.m.codes, self.m.group_bytes, self.m.n_row, self.m.n_block, panels.data)
        return (<const char *>panels.data)[:n]

    def _stream(self):
        """The codes as bytes, [n_row][n_block * 32]."""
        return (<const char *>self.m.codes)[: self.m.n_row * self.m.n_block * TERNARY_BLOCK_BYTES]

    def accumulate(self, x):
        """The exact integers sum_k w[r][k] * x[k] as array("i") [n_row]. x: int8 [k], -127 to 127.

        Raises ValueError for a wrong length, and for a dense matrix or one with scales per group.
        """
        cdef const signed char[::1] given = x   # [k]
        cdef int64_t k_pad = self.m.n_block * TERNARY_BLOCK, i, total = 0
        if self.is_dense or self.m.group_bytes or given.shape[0] != self.m.k:
            raise ValueError(f"{given.shape[0]} activations for {self.m.k} columns, or scales per group")
        cdef Arena padded = Arena(k_pad)
        cdef int32_t[::1] out = array.array("i", bytes(4 * self.m.n_row))
        memcpy(padded.data, &given[0], self.m.k)
        for i in range(self.m.k):
            total += given[i]
        active().ternary_matvec(self.m.codes, self.m.n_row, self.m.n_block, <const int8_t *>padded.data, &out[0])
        for i in range(self.m.n_row):
            out[i] -= total
        return out.base

    def matvec(self, x, bint groups=False):
        """y = W x as array("f") [n][n_row], for float32 x [n][k].

        Each vector is rounded to int8 with one scale, as in BitNet; with ``groups``, which needs a matrix with groups
        or a dense one, with a scale for each group of values (128 of a dense one).  Raises ValueError if sizes do not
        fit.
        """
        cdef const float[::1] given = x     # [n][k]
        cdef int64_t k = self.m.k, n_group = self.m.n_block, k_pad = n_group * self.m.group, t
        cdef int64_t n = given.shape[0] // k, each = n_group if groups else 1
        cdef const kernels *kernel = active()
        cdef activations a
        if n == 0 or n * k != given.shape[0]:
            raise ValueError(f"{given.shape[0]} activations for {k} columns")
        if groups and not self.m.group_bytes and not self.is_dense:
            raise ValueError("a matrix without scales per group takes vectors rounded as a whole")
        if not groups and self.m.group != GROUP:
            raise ValueError(f"a matrix with a scale per {self.m.group} weights takes vectors rounded in such groups")
        cdef Arena x8 = Arena(n * k_pad)                                        # int8 [n][k_pad]
        cdef Arena s = Arena(4 * n * each), total = Arena(4 * n * each)         # float, int32 [n][each]
        cdef Arena acc = Arena(4 * max(accumulators(n, self.m.n_row), k_pad // 4 + 2 * n_group))
        cdef float[::1] out = array.array("f", bytes(4 * n * self.m.n_row))
        a = activations(
            n, self.m.group if groups else 0, <const int8_t *>x8.data, k_pad, <const float *>s.data,
            <const int32_t *>total.data, &given[0], k, &given[0])
        for t in range(n):
            if groups:
                kernel.quantize_groups(
                    &given[t * k], k, self.m.group, <int8_t *>x8.data + t * k_pad, <float *>s.data + t * n_group,
                    <int32_t *>total.data + t * n_group)
            else:
                (<float *>s.data)[t] = kernel.quantize_i8(
                    &given[t * k], k, <int8_t *>x8.data + t * k_pad, k_pad, <int32_t *>total.data + t)
        with nogil:
            project(kernel, &self.m, &a, 0, self.m.n_row, False, <int32_t *>acc.data, &out[0], self.m.n_row)
        return out.base
