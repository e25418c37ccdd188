"""recurrent: the states of one session's gated delta layers, and snapshots of them.

A state has a fixed size and cannot be cropped, so earlier ones are kept as snapshots.  States exist at multiples of
DELTA_CHUNK tokens only (kernels.h, delta_chunk), as pages of the KV cache do; within the open chunk, going back costs
nothing, so that tokens that were evaluated and not chosen are simply forgotten.

A state is written once, when the token after its chunk comes, and never changed: a snapshot and a fork share it.  The
state before the latest one is always kept, since its memory takes the next one.
"""

cdef enum:
    SPARE = 16      # a prompt that goes on differently may part from this one so many tokens before its end


cdef delta_shape shaped(shape) except *:
    """Raises ValueError for impossible numbers (n_layer, n_k, n_v, dk, dv)."""
    cdef delta_shape s
    s.n_layer, s.n_k, s.n_v, s.dk, s.dv = shape
    if not (0 < s.n_layer <= 4096 and 0 < s.n_k <= 4096 and 0 < s.n_v <= 4096) or s.n_v % s.n_k:
        raise ValueError(f"{s.n_layer} gated delta layers of {s.n_k} key and {s.n_v} value heads are out of range")
    if s.dk % DELTA_STRIP or s.dv % DELTA_STRIP or not (0 < s.dk <= MAX_DELTA_DIM and 0 < s.dv <= MAX_DELTA_DIM):
        raise ValueError(f"states of {s.dk} x {s.dv} are out of range")
    s.channels = 2 * s.n_k * s.dk + s.n_v * s.dv
    s.state_floats = s.n_v * s.dk * s.dv + (CONV_TAPS - 1) * s.channels
    s.open_floats = DELTA_CHUNK * (s.channels + s.n_k * s.dk + s.n_v * s.dv + 2 * s.n_v)
    return s


def recurrent_bytes(shape, int64_t most):
    """Bytes of the states of one session with ``most`` snapshots: those and the latest two, and the open chunks."""
    cdef delta_shape s = shaped(shape)
    return 4 * s.n_layer * ((most + 2) * s.state_floats + s.open_floats)


@cython.no_gc  # no part of a cycle; and __dealloc__ needs the pool as it was
cdef class Slab(Arena):
    """The states of all layers at one place of a text, or their open chunk."""

    def __dealloc__(self):
        if self.pool is not None:
            self.pool.states -= self.nbytes


cdef Slab slab_of(PagePool pool, int64_t nbytes):
    """Zeroed memory."""
    cdef Slab slab = Slab(nbytes, nbytes >= HUGE_SLAB)
    slab.pool = pool
    pool.states += nbytes
    return slab


@cython.no_gc  # no part of a cycle; and __dealloc__ needs the slab as it was
cdef class Snapshot:
    """States that a session can go back to."""

    cdef Slab slab          # [n_layer][state_floats]
    cdef readonly int64_t base  # tokens before it
    cdef readonly bint kept     # not dropped before those that are not

    def __cinit__(self, Slab slab not None, int64_t base, bint kept=False):
        self.slab, self.base, self.kept = slab, base, kept
        slab.users += 1

    def __dealloc__(self):
        if self.slab is not None:
            self.slab.users -= 1


@cython.wraparound(True)
cdef class Recurrence:
    """The states of a session.  shape: (layers, key heads, value heads, dk, dv); most: snapshots besides the latest
    two states; pool: where they count.  Raises ValueError for impossible shapes, MemoryError if the system refuses
    memory.
    """

    def __cinit__(self, shape, int64_t most, PagePool pool not None):
        self.r.shape = shaped(shape)
        self.snapshots, self.most, self.coming, self.pool = [], max(<int64_t>0, most), None, pool
        self.open = slab_of(pool, 4 * self.r.shape.n_layer * self.r.shape.open_floats)
        self.r.open = <float *>self.open.data

    @property
    def nbytes(self):
        """Bytes held now, those that it shares included."""
        return self.open.nbytes + sum((<Snapshot>each).slab.nbytes for each in self.snapshots)

    @property
    def bases(self):
        """[(tokens, kept)] of every snapshot, ascending; the last is in front of the open chunk."""
        return [((<Snapshot>each).base, (<Snapshot>each).kept) for each in self.snapshots]

    def _slab(self):
        return slab_of(self.pool, 4 * self.r.shape.n_layer * self.r.shape.state_floats)

    def _latest(self):
        cdef Snapshot last
        if self.snapshots:
            last = self.snapshots[-1]
            self.r.base, self.r.state = last.base, <const float *>last.slab.data
        else:
            self.r.base, self.r.state = 0, NULL

    cdef int64_t sealed(self, int64_t n_tokens, int64_t n) noexcept:
        return 0 if n < 1 else (n_tokens + n - 1) // DELTA_CHUNK - self.r.base // DELTA_CHUNK

    cdef prepare(self, int64_t n_tokens, int64_t n):
        cdef int64_t made = self.sealed(n_tokens, n)
        cdef Snapshot last
        cdef Slab even, odd
        self.coming = None
        if not self.snapshots:
            self.snapshots.append(Snapshot(self._slab(), 0))
            self._latest()
        if made < 1:
            return
        even = self._unused()
        last = self.snapshots[-1]
        odd = even
        if made > 1:  # the latest state is read before it is written again, head by head
            odd = last.slab if last.slab.users == 1 and not last.kept else self._unused()
        self.r.even, self.r.odd = <float *>even.data, <float *>odd.data
        self.coming = (even, odd)

    def _unused(self):
        """Memory for a state: that of the state before the latest one, if nothing needs it, else new."""
        cdef Snapshot before
        cdef Slab slab
        if len(self.snapshots) > 1:
            before = self.snapshots[-2]
            if not before.kept and before.slab.users == 1:
                slab = before.slab
                del self.snapshots[-2]
                return slab
        return self._slab()

    cdef advance(self, int64_t n_tokens, int64_t n):
        cdef int64_t made = self.sealed(n_tokens, n), base = self.r.base + DELTA_CHUNK * made
        cdef Snapshot last
        cdef Slab newest
        if made < 1:
            return
        newest = self.coming[(made - 1) % 2]
        if made > 1:
            last = self.snapshots[-1]
            if not last.kept:
                self.snapshots.pop()
            self.snapshots.append(Snapshot(self.coming[made % 2], base - DELTA_CHUNK))
        self.snapshots.append(Snapshot(newest, base))
        self.coming = None
        self._latest()
        self._tidy()

    cdef int64_t wanted(self, int64_t n_tokens, int64_t n) noexcept:
        cdef int64_t made = min(<int64_t>2, self.sealed(n_tokens, n)) + (not self.snapshots)
        cdef Snapshot each
        for each in self.snapshots[-2:] if made > 0 else ():
            made -= not each.kept and each.slab.users == 1 and (each.base < self.r.base or made > 1)
        return max(<int64_t>0, made) * 4 * self.r.shape.n_layer * self.r.shape.state_floats

    cdef bint give_up(self):
        cdef Snapshot each
        cdef int64_t i
        for i in range(len(self.snapshots) - 1):
            each = self.snapshots[i]
            if each.kept:
                del self.snapshots[i]
                return True
        return False

    cdef mark(self, int64_t n_tokens):
        """Keep the latest state, and the one before if the text is hardly longer than the latest one."""
        cdef Snapshot each
        for each in self.snapshots[-2:]:
            each.kept = each.base > 0 and (
                each.kept or each.base == self.r.base or n_tokens - self.r.base < SPARE)
        self._tidy()

    def _tidy(self):
        """Drop what is neither kept nor one of the latest two; of too many kept ones the oldest, but not the first:
        that is the beginning which conversations share.
        """
        cdef Snapshot each
        self.snapshots = [each for each in self.snapshots[:-2] if each.kept] + self.snapshots[-2:]
        while len(self.snapshots) > self.most + 2:
            del self.snapshots[1 if self.most > 1 else 0]

    cdef int64_t reachable(self, int64_t n_tokens, int64_t n) noexcept:
        cdef Snapshot each
        cdef int64_t best = 0
        if n >= n_tokens or n >= self.r.base and self.snapshots:
            return min(n, n_tokens)
        for each in self.snapshots:
            if each.base <= n:
                best = each.base
        return best

    cdef crop(self, int64_t n):
        """To a reachable number of tokens."""
        if n < 1:
            self.snapshots = []
        while self.snapshots and (<Snapshot>self.snapshots[-1]).base > n:
            self.snapshots.pop()
        self._latest()

    cdef share(self, Recurrence other):
        cdef Snapshot each
        self.snapshots = [Snapshot(each.slab, each.base, each.kept) for each in other.snapshots]
        memcpy(self.open.data, other.open.data, other.open.nbytes)
        self._latest()

    def pieces(self):
        """Writable views of everything held: every snapshot, then the open chunk."""
        return [*((<Snapshot>each).slab.view for each in self.snapshots), self.open.view]

    def dump_bytes(self, int64_t n_tokens, bases):
        """Bytes of `pieces` with these snapshots [(tokens, kept)] of n_tokens.  Raises ValueError for impossible ones.
        """
        cdef int64_t n = len(bases), before = -1
        for base, kept in bases:
            if not before < base or base % DELTA_CHUNK:
                raise ValueError(f"no session has states after {base} tokens and, before them, after {before}")
            before = base
        if n > self.most + 2 or n_tokens > 0 and not (n and 0 <= n_tokens - before <= DELTA_CHUNK):
            raise ValueError(f"no session of this plan has such states of {n_tokens} tokens")
        return n * 4 * self.r.shape.n_layer * self.r.shape.state_floats + self.open.nbytes

    def hold(self, bases):
        """Hold empty snapshots [(tokens, kept)], to be filled."""
        self.snapshots = [Snapshot(self._slab(), base, kept) for base, kept in bases]
        self._latest()
