"""output_head: the output head, of which every token reads all rows.

After the ternary weights it is most of what decode reads, so it can be stored smaller than in the file: int8 rows with
a float32 scale per row, "native" (exactly the values of the file, as half or float), or "two-stage": the int8 rows in
bit planes (see bit_planes), of which a token that needs few winners reads little more than half.  An int8 head
that several vectors ask for winners answers most of them from half of the products (see winners).

A file whose rows are ternary with a scale per 128 weights (Q2_0, PQ2_0 and PQ2_0_R64) has a head of two
bits: "auto" uses it directly, as a projection ("ternary").

A file whose rows are Q8_0 has a head of eight bits already, with a scale per 32 weights: "auto" uses it directly from
the map ("q8_0"), and nothing is made; other files get "int8".  "two-stage" with such a file gives the same logits, bit
for bit: the six upper bits of each code are stored in addition, made a part at a time after the first answers, so that
a short run does not wait for them.

Making the int8 rows of a large vocabulary takes longer than reading a short prompt, mostly because of the memory they
are written to.  So the first answer makes each row in the processor's cache, uses it and drops it; from the second
answer on they are kept, as rows or as bit planes.

"none" has no rows: instead of logits it gives the hidden vectors after the final norm, for embeddings.
"""

cdef enum head_kind:
    HEAD_INT8, HEAD_Q8_0, HEAD_TERNARY, HEAD_F16, HEAD_F32, HEAD_BIT_PLANES, HEAD_NONE

cdef enum:
    LINE = 16       # logits per cache line: threads never write the same
    ROW_TILE = 16       # rows that stay in the cache while several vectors pass
    GROUP_ROWS = 512    # rows of a ternary head for several vectors at a time
    CHUNK = 1 << 20 # bytes of stored rows that are read before they are let go
    PLANE_PATIENCE = 32       # answers before the bit planes of Q8_0 rows are begun,
    PLANE_PARTS = 64          # and over which they are made

#: types of rows that a ternary head is made of
TERNARY_ROWS = tuple(type for type, (_, _, levels, _) in ROW_TYPES.items() if levels > 2)

#: kind -> (id, bits per weight); two-stage over Q8_0 rows: HEAD_Q8_0
KINDS = {
    "int8": (HEAD_INT8, 8), "two-stage": (HEAD_BIT_PLANES, 8), "ternary": (HEAD_TERNARY, 2), "q8_0": (HEAD_Q8_0, 8),
    "f16": (HEAD_F16, 16), "f32": (HEAD_F32, 32), "none": (HEAD_NONE, 0),
}


cdef inline bint only_winners(int64_t n_token, const answer *a) noexcept nogil:
    cdef int64_t t
    for t in range(n_token):
        if a[t].top == 0:
            return False
    return True


cdef int64_t room_of(int64_t k) noexcept nogil:
    """Bytes of a row as floats and as codes."""
    return 4 * padded_codes(k) + padded_codes(k) + 64


#: what a head over stored rows will be: "auto" and "native" resolved, the bytes of its rows, whether they lie in the
#: file's map, the bytes of its working memory, those allocated for rows or bit planes, and those of a copy of the
#: map (a ternary head is moved as projections are)
Placement = namedtuple("Placement", "kind nbytes mapped scratch allocated copied")


def placement(str kind not None, str type not None, int64_t n_row, int64_t k, int n_threads):
    """The :class:`Placement` of a head over rows of a type.  Raises ValueError for an unknown kind."""
    if kind == "auto":
        kind = "q8_0" if type == "Q8_0" else "ternary" if type in TERNARY_ROWS and k % GROUP == 0 else "int8"
    elif kind == "native":
        kind = "f16" if type == "F16" else "f32"
    if kind not in KINDS or kind == "q8_0" != type.lower() or kind == "ternary" and type not in TERNARY_ROWS:
        raise ValueError(f"output head {kind!r} is not known ({', '.join(KINDS)}, native, auto)")
    id, bits = KINDS[kind]
    staged = id == HEAD_BIT_PLANES and type == "Q8_0"
    if id == HEAD_NONE:
        return Placement(kind, 0, False, 0, 0, 0)
    nbytes, scratch, staged_bytes, copied = n_row * k * bits // 8, 2 * HEAD_TOKENS * k, 0, 0
    if id == HEAD_INT8:
        nbytes += 4 * n_row
        scratch += winners_scratch(n_row, k, n_threads)
    elif id == HEAD_Q8_0 or staged:
        nbytes += n_row * (k // 32) * 2
        if staged:
            staged_bytes, more = sizes(n_row, k, True, n_threads)
            scratch += more
    elif id == HEAD_TERNARY:
        span, size, _, together = ROW_TYPES[type]
        nbytes = copied = (n_row + together - 1) // together * together * (k // span) * size
        if together == 1:
            copied = (n_row + PANEL_ROWS - 1) // PANEL_ROWS * (k // GROUP) * PANEL_BYTES(GROUP)
        scratch += 2 * 4 * HEAD_TOKENS * (k // GROUP) + n_threads * (GROUP_WORK + 4 * HEAD_TOKENS * GROUP_ROWS)
    elif id == HEAD_BIT_PLANES:
        nbytes, more = sizes(n_row, k, False, n_threads)
        scratch += more
    mapped = kind == type.lower() or id == HEAD_TERNARY or staged
    return Placement(kind, nbytes, mapped, scratch, staged_bytes if mapped else nbytes, copied)


cdef class Head:
    """The output head over stored rows.  kind: one of KINDS, "native" or "auto"; of rows for "none", only their length
    matters.

    ``mapped``: the rows are used directly from the file's map (they have the requested type).
    Raises ValueError for a kind that is not known or does not fit the rows.
    """

    cdef readonly str kind
    cdef readonly int64_t n_row, k
    cdef bint as_stored             # the stored rows are used directly
    cdef readonly TernaryMatrix matrix  # ternary only
    cdef readonly int n_threads     # most threads in a call
    cdef head_kind kind_id
    cdef object owner, placement
    cdef int64_t waits              # answers until the bit planes of Q8_0 rows are made
    cdef int64_t made, making       # rows for which they are made now, and after this answer
    cdef StoredRows source          # from which the rows are made; None once they are made
    cdef bint fresh                 # no logits were requested yet
    cdef Arena weights, scale_arena, query_arena    # own rows, scale, x16
    cdef Arena row_arena            # [n_threads] a row as floats and as codes, until the rows are made
    cdef int64_t row_room
    cdef int64_t row_bytes          # Q8_0 only
    cdef Arena work                 # [n_threads] GROUP_WORK, then float [HEAD_TOKENS][GROUP_ROWS]; ternary only
    cdef const void *rows           # int8, half or float [n_row][k], or Q8_0 [n_row][k/32]
    cdef float *scale               # [n_row], int8 only
    cdef readonly BitPlanes bit_planes  # HEAD_BIT_PLANES, or of Q8_0 rows, or None
    cdef readonly Winners winners   # of int8 heads, or None
    # [HEAD_TOKENS][k], for heads with integer products; ternary: int8, then float and int32 [HEAD_TOKENS][k/128]
    cdef int16_t *x16
    cdef int64_t basis              # block of the basis in which the rows are stored (change_basis); 0: none
    cdef const float *signs         # [k] of that basis, or NULL
    cdef object signs_owner
    cdef float s[HEAD_TOKENS]       # HEAD_XMAX / max|x| of each vector
    cdef team team

    def __cinit__(self, StoredRows stored not None, str kind="int8", int n_threads=1):
        if not 1 <= n_threads <= 1024:
            raise ValueError(f"{n_threads} threads are out of range")
        self.n_row, self.k, self.n_threads = stored.n_row, stored.k, n_threads
        self.placement = placement(kind, stored.type, self.n_row, self.k, n_threads)
        self.kind = self.placement.kind
        self.kind_id = KINDS[self.kind][0]
        if self.kind_id == HEAD_NONE:
            self.n_row = self.k
            return
        if self.kind_id == HEAD_BIT_PLANES and self.placement.mapped:
            self.kind_id, self.waits = HEAD_Q8_0, PLANE_PATIENCE
            self.bit_planes = BitPlanes(self.n_row, self.k, n_threads, stored)
            self.row_room = room_of(self.k)
            self.row_arena = Arena(n_threads * self.row_room)
        self.query_arena = Arena(2 * HEAD_TOKENS * (self.k + 4 * (self.k // GROUP)))
        self.x16 = <int16_t *>self.query_arena.data
        if self.kind_id == HEAD_TERNARY:
            if self.k % GROUP:
                raise ValueError(f"rows of {self.k} do not fill whole groups of {GROUP} weights")
            self.work = Arena(n_threads * (GROUP_WORK + 4 * HEAD_TOKENS * GROUP_ROWS))
            self.matrix = TernaryMatrix.pack(stored.type, stored.owner, self.n_row, self.k)
            return
        if self.placement.mapped and (self.kind_id == HEAD_Q8_0 or (<size_t>stored.data) % 4 == 0):
            self.owner, self.rows, self.row_bytes, self.as_stored = stored, stored.data, stored.row_bytes, True
            return
        self.allocate()
        self.source, self.fresh = stored, True
        if KINDS[self.kind][1] != 8:
            self.make()

    def in_basis(self, int64_t block, signs=None):
        """The rows are stored in a rotated basis, see TernaryMatrix.in_basis.  Not for "none", which has no rows."""
        if self.kind_id == HEAD_NONE:
            raise ValueError("a head without rows has no basis")
        self.signs = basis_signs(block, signs, self.k)
        self.basis, self.signs_owner = block, signs

    @property
    def usable(self):
        """The first of the rows at the end that are never among the winners."""
        if self.winners is not None:
            return self.winners.usable
        return self.n_row if self.bit_planes is None else self.bit_planes.usable

    @usable.setter
    def usable(self, int64_t row):
        if not 0 < row <= self.n_row:
            raise ValueError(f"{row} of {self.n_row} rows")
        if self.bit_planes is not None:
            self.bit_planes.usable = row
        if self.winners is not None:
            self.winners.usable = row

    cdef allocate(self):
        """Allocate memory for the rows; pages that are not written yet take none."""
        cdef int64_t nbytes
        self.row_room = room_of(self.k)
        self.row_arena = Arena(self.n_threads * self.row_room)
        if self.kind_id == HEAD_BIT_PLANES:
            self.bit_planes = BitPlanes(self.n_row, self.k, self.n_threads)
        else:
            nbytes = self.n_row * self.k * KINDS[self.kind][1] // 8
            # Read in one long stream per token: huge pages pay most here.
            self.weights = Arena(nbytes, huge=nbytes >= (8 << 20))
            self.rows = self.weights.data
        if self.kind_id == HEAD_INT8:
            self.scale_arena = Arena(4 * self.n_row)
            self.scale = <float *>self.scale_arena.data
            self.winners = Winners(self.n_row, self.k, self.n_threads)

    cdef expect(self, int64_t n_token):
        """Prepare for an answer to n_token vectors: make the rows if they do not exist and will be read more than once.
        """
        if self.kind_id == HEAD_Q8_0 and self.bit_planes is not None and self.made < self.n_row:
            self.made = self.making
            if self.made == self.n_row:
                self.row_arena = None
            elif self.waits > 0:
                self.waits -= 1
            else:
                self.making = min(self.n_row, self.made + (self.n_row + PLANE_PARTS - 1) // PLANE_PARTS)
        if self.source is not None and (not self.fresh or n_token > HEAD_TOKENS):
            self.make()
        self.fresh = False

    cdef void go_on(self, const kernels *kernel, int tid, int n_thread) noexcept nogil:
        """Every thread of the team, after an answer: its share of the bit planes that are to be made."""
        cdef float *floats = NULL  # [k_pad], then its codes
        cdef int64_t row, n = self.making - self.made
        if n > 0:
            floats = <float *>(self.row_arena.data + tid * self.row_room)
        for row in range(self.made + share(n, 1, tid, n_thread), self.made + share(n, 1, tid + 1, n_thread)):
            self.bit_planes.rows.row_into(row, floats)
            self.bit_planes.put(kernel, row, floats, <uint8_t *>(floats + padded_codes(self.k)))

    cdef bint staged(self, int64_t n_token, const answer *a) noexcept nogil:
        """The bit planes answer all of n_token vectors."""
        if self.kind_id == HEAD_BIT_PLANES:
            return True
        return self.bit_planes is not None and self.made == self.n_row and only_winners(n_token, a)

    cdef bint by_winners(self, const kernels *kernel, int64_t n_token, const answer *a) noexcept nogil:
        """Only the winners of n_token vectors are found."""
        return (self.winners is not None and self.n_row * self.k >= self.winners.least_codes
                and 0 < kernel.byte_vectors <= n_token and only_winners(n_token, a))

    cdef make(self):
        """Make all rows and release the stored ones."""
        cdef int64_t row, n_row = self.n_row, k = self.k
        cdef StoredRows stored = self.source
        cdef const kernels *kernel = active()
        cdef head_kind kind = self.kind_id
        cdef int64_t some = max(<int64_t>1, CHUNK // stored.row_bytes)
        cdef float *row_floats  # [k_pad]
        cdef uint8_t *codes     # [k_pad]
        cdef uint8_t *out = <uint8_t *>self.rows    # [n_row][k] of the head's type
        cdef BitPlanes bit_planes = self.bit_planes
        cdef Winners winners = self.winners
        cdef int n_threads = claim(self.n_threads)
        with nogil, parallel(num_threads=n_threads):
            row_floats = <float *>(self.row_arena.data + threadid() * self.row_room)
            codes = <uint8_t *>(row_floats + padded_codes(k))
            # handed out: another thread may need one of the cores for the tokenizer meanwhile
            for row in prange(n_row, schedule="dynamic", chunksize=some):
                if row % some == 0:
                    stored.bring(row, row + some)
                if kind == HEAD_F32:
                    stored.row_into(row, <float *>out + row * k)
                else:
                    self.floats(kernel, stored, row, row_floats)
                    if kind == HEAD_INT8:
                        kernel.quantize_row_i8(row_floats, k, <int8_t *>out + row * k, self.scale + row)
                        if winners is not None:
                            winners.put(kernel, row, <const int8_t *>out + row * k)
                    elif kind == HEAD_BIT_PLANES:
                        bit_planes.put(kernel, row, row_floats, codes)
                    else:
                        kernel.float_to_half(row_floats, k, <uint16_t *>out + row * k)
                if row % some == some - 1:
                    stored.let_go(max(<int64_t>0, row - 4 * some), row + 1)  # reading maps pages in front again
        stored.let_go(0, n_row)  # pages that two threads shared
        self.source = self.row_arena = None

    cdef void floats(self, const kernels *kernel, StoredRows stored, int64_t row, float *out) noexcept nogil:
        """A stored row as floats, out [k]."""
        if stored.halves:
            kernel.half_to_float(<const uint16_t *>(stored.data + row * stored.row_bytes), self.k, out)
        else:
            stored.row_into(row, out)

    cdef void discard(
        self, const kernels *kernel, StoredRows stored, int64_t n_token, const answer *a, int64_t row0, int64_t row1,
        int tid) noexcept nogil:
        """The logits a[t].out[row], t < n_token, of rows that are made for this use only."""
        cdef int64_t row, t, k = self.k, some = max(<int64_t>1, CHUNK // stored.row_bytes), begun = row0
        cdef float *row_floats = <float *>(self.row_arena.data + tid * self.row_room)   # [k_pad]
        cdef int8_t *codes = <int8_t *>(row_floats + padded_codes(k))                         # [k_pad]
        cdef float scale
        cdef float *out[HEAD_TOKENS]    # [n_token] -> one logit
        for row in range(row0, row1):
            self.floats(kernel, stored, row, row_floats)
            kernel.quantize_row_i8(row_floats, k, codes, &scale)
            for t in range(n_token):
                out[t] = a[t].out + row
            kernel.head_i8(codes, &scale, 1, k, self.x16, n_token, self.s, out)
            if row + 1 - begun == some or row + 1 == row1:
                stored.let_go(max(row0, begun - 4 * some), row + 1)  # reading maps pages in front again
                begun = row + 1

    cdef void run(
        self, const kernels *kernel, int64_t n, const answer *a, const float *norm, float eps, float *x,
        stage_clock *clock, int tid, int n_thread) noexcept nogil:
        """The end of a step, by every thread of the team: final norm (norm [k]) and the logits a [n] of n residual
        vectors; x [n][k] is scratch.  clock: the thread's, or NULL.
        """
        cdef int64_t t = 0, some, i, k = self.k
        while t < n:
            some = min(<int64_t>HEAD_TOKENS, n - t)
            for i in range(share(some, 1, tid, n_thread), share(some, 1, tid + 1, n_thread)):
                kernel.rmsnorm(a[t + i].h, norm, eps, k, x + i * k)
                if self.basis:
                    kernel.change_basis(x + i * k, self.signs, NULL, k, self.basis, x + i * k)
                self.prepare_query(kernel, i, x + i * k)
            lap(clock, NORM)
            team_barrier(&self.team, n_thread)
            lap(clock, WAIT)
            self.logits(
                kernel, some, a + t, x, share(self.n_row, self.unit(), tid, n_thread),
                share(self.n_row, self.unit(), tid + 1, n_thread), tid, n_thread)
            t += some
            lap(clock, HEAD)
            if t < n:  # the next vectors take their place
                team_barrier(&self.team, n_thread)
                lap(clock, WAIT)
        self.go_on(kernel, tid, n_thread)
        lap(clock, HEAD)

    cdef void prepare_query(self, const kernels *kernel, int64_t t, const float *x) noexcept nogil:
        """Prepare hidden vector x [k] as number t of the next call of logits."""
        cdef int64_t n
        cdef float *d   # [HEAD_TOKENS][k / GROUP] scales, then as many sums
        if self.kind_id == HEAD_INT8 or self.kind_id == HEAD_Q8_0 or self.kind_id == HEAD_BIT_PLANES:
            self.s[t] = kernel.quantize_i16(x, self.k, self.x16 + t * self.k)
        if self.kind_id == HEAD_TERNARY:
            n = self.k // GROUP
            d = <float *>(self.x16 + HEAD_TOKENS * self.k)
            kernel.quantize_groups(
                x, self.k, GROUP, <int8_t *>self.x16 + t * self.k, d + t * n, <int32_t *>(d + HEAD_TOKENS * n) + t * n)
        if self.kind_id == HEAD_BIT_PLANES or self.bit_planes is not None and self.made == self.n_row:
            self.bit_planes.prepare_query(t, self.x16 + t * self.k, self.s[t])
        if self.winners is not None and self.n_row * self.k >= self.winners.least_codes:
            self.winners.prepare_query(t, self.x16 + t * self.k, self.s[t])

    cdef void logits(
        self, const kernels *kernel, int64_t n_token, const answer *a, const float *x, int64_t row0, int64_t row1,
        int tid, int n_thread) noexcept nogil:
        """a[t].out[row] for rows row0 <= row < row1 of n_token <= HEAD_TOKENS vectors, which prepare_query has
        prepared; x: the same, [n_token][k].  Called by every thread of the team with its own rows.  A two-stage head
        with top > 0 gives the top largest of a vector and -inf for the others, once its bit planes are made; so does a
        large int8 head with top > 0 for every one of several vectors.  Other heads give all.
        """
        cdef int64_t row, n, t, k = self.k, tile = row1 - row0 if n_token == 1 else ROW_TILE
        cdef float *out[HEAD_TOKENS]    # [n_token] -> [row1 - row0]
        if self.kind_id == HEAD_TERNARY:
            self.ternary(kernel, n_token, a, row0, row1, tid)
            return
        if self.source is not None:
            self.discard(kernel, self.source, n_token, a, row0, row1, tid)
            return
        if self.staged(n_token, a):
            self.bit_planes.logits(kernel, n_token, a, row0, row1, tid, n_thread)
            return
        if self.kind_id == HEAD_NONE:
            for t in range(n_token):
                memcpy(a[t].out + row0, x + t * k + row0, (row1 - row0) * sizeof(float))
            return
        for t in range(n_token):
            out[t] = a[t].out + row0
        if self.by_winners(kernel, n_token, a):
            self.winners.logits(
                kernel, <const int8_t *>self.rows, self.scale, n_token, a, row0, row1, tid, n_thread)
            return
        if self.kind_id == HEAD_INT8:
            kernel.head_i8(
                <const int8_t *>self.rows + row0 * k, self.scale + row0, row1 - row0, k, self.x16, n_token, self.s, out)
            return
        if self.kind_id == HEAD_Q8_0:
            kernel.head_q8_0(
                <const uint8_t *>self.rows + row0 * self.row_bytes, row1 - row0, k, self.x16, n_token, self.s, out)
            return
        row = row0
        while row < row1:
            n = min(tile, row1 - row)
            for t in range(n_token):
                if self.kind_id == HEAD_F16:
                    kernel.head_f16(<const uint16_t *>self.rows + row * k, n, k, x + t * k, a[t].out + row)
                else:
                    kernel.head_f32(<const float *>self.rows + row * k, n, k, x + t * k, a[t].out + row)
            row += n

    cdef void ternary(
        self, const kernels *kernel, int64_t n_token, const answer *a, int64_t row0, int64_t row1,
        int tid) noexcept nogil:
        """Logits of a ternary head."""
        cdef int64_t n_group = self.k // GROUP, n = row1 - row0, row = row0, t
        cdef const float *d = <const float *>(self.x16 + HEAD_TOKENS * self.k)          # [n_token][n_group]
        cdef const int32_t *sum = <const int32_t *>(d + HEAD_TOKENS * n_group)          # [n_token][n_group]
        cdef uint8_t *work = self.work.data + tid * (GROUP_WORK + 4 * HEAD_TOKENS * GROUP_ROWS)
        cdef float *some = <float *>(work + GROUP_WORK)  # [n_token][n], then to where each token wants it
        while row < row1:
            if n_token > 1:
                n = min(<int64_t>GROUP_ROWS, row1 - row)
            group_rows(
                kernel, &self.matrix.m, <const int8_t *>self.x16, d, sum, n_token, row, row + n, False,
                a[0].out + row if n_token == 1 else some, n, work)
            if n_token > 1:
                for t in range(n_token):
                    memcpy(a[t].out + row, some + t * n, n * sizeof(float))
            row += n

    def apply(self, x, int64_t top=0, int n_threads=1):
        """Logits as array("f") [n][n_row] of n <= 8 hidden vectors x (float32 buffer [n][k]), the same as in a step."""
        cdef const float[::1] vectors = x   # [n * k]
        cdef const kernels *kernel = active()
        cdef int64_t n = vectors.shape[0] // self.k, t, n_row = self.n_row
        cdef float[::1] out     # [n * n_row]
        cdef answer answers[HEAD_TOKENS]
        cdef int tid, team
        if n * self.k != vectors.shape[0] or not 1 <= n <= HEAD_TOKENS or not 0 <= top <= MOST_WINNERS:
            raise ValueError(f"{vectors.shape[0]} numbers, {top} winners are out of range")
        if not 1 <= n_threads <= self.n_threads:
            raise ValueError(f"{n_threads} threads asked of a head made for {self.n_threads}")
        out = array.array("f", bytes(4 * n * n_row))
        self.expect(n)
        for t in range(n):
            answers[t].h, answers[t].out, answers[t].top = NULL, &out[t * n_row], top
            self.prepare_query(kernel, t, &vectors[t * self.k])
        n_threads = claim(n_threads)
        with nogil, parallel(num_threads=n_threads):
            tid, team = threadid(), omp_get_num_threads()
            self.logits(
                kernel, n, answers, &vectors[0], share(n_row, self.unit(), tid, team),
                share(n_row, self.unit(), tid + 1, team), tid, team)
            self.go_on(kernel, tid, team)
        return out.base

    def prepare(self):
        """Make the rows, or the bit planes of Q8_0 rows, now rather than after the first answers."""
        if self.source is not None:
            self.make()
        self.fresh = False
        if self.kind_id == HEAD_Q8_0 and self.bit_planes is not None and self.made < self.n_row:
            self.making = self.n_row
            self.go_on(active(), 0, 1)
            self.made, self.row_arena = self.n_row, None

    cdef int64_t unit(self) noexcept nogil:
        """Number of rows that a thread processes at a time."""
        return PANEL_ROWS if self.kind_id == HEAD_TERNARY else LINE

    @property
    def mapped(self):
        """The rows are used where the file's map holds them."""
        return self.as_stored if self.matrix is None else self.matrix.mapped

    @property
    def nbytes(self):
        """Bytes of the rows; a token reads all of them, unless the head is two-stage."""
        return self.placement.nbytes if self.matrix is None else self.matrix.code_bytes

    @property
    def least_bytes(self):
        """Bytes of the rows that every answer reads: of a two-stage head the upper four bits."""
        if self.bit_planes is None or self.kind_id == HEAD_Q8_0 and self.made < self.n_row:
            return self.nbytes
        return self.n_row * self.bit_planes.k_pad // 2

    @property
    def more_bytes(self):
        """Bytes that answers have read in addition so far: of rows of a two-stage head that could still win."""
        if self.bit_planes is None:
            return 0
        third, fourth, whole = self.bit_planes.rows_read
        cdef int64_t bit_plane = self.bit_planes.k_pad // 8
        rest = self.row_bytes if self.kind_id == HEAD_Q8_0 else 2 * bit_plane
        return (third + fourth) * bit_plane + whole * rest

    @property
    def allocated(self):
        """Bytes allocated in addition to the map, for rows or bit planes."""
        return self.placement.allocated if self.mapped else self.nbytes

    @property
    def copied(self):
        """Bytes in memory besides the file's map, once everything that can be copied is copied."""
        return self.allocated if self.matrix is None else self.matrix.room

    @property
    def scratch(self):
        """Bytes of working memory."""
        return self.placement.scratch
