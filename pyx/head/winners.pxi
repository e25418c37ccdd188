"""winners: the largest logits of an int8 head for several vectors at once, from the upper bytes of the vectors first.

A logit is fl(fl(T) * f) with the integer T = sum w x of a row's codes w and a hidden vector x of 14 bits, and
f = fl(scale / s) >= 0.  Kernels multiply x as two bytes, x = 64 high + low.  For one vector, reading the rows takes
longer than that; for several the products do.  An answer that needs only the ``top`` largest logits of each vector
needs the second half of a product where the first leaves open whether the row can win:

    T <= 64 sum w high + |w| |low|                                                          (Cauchy and Schwarz)

with |w| stored for each row, rounded up.  Rounding and multiplying by f >= 0 keep order, so a row cannot win if the
logit of this bound is below ``top`` logits that are known.  A bound that is NaN excludes no row.  Of a trained model's
rows a few percent are left (benchmarks/log#upper-bytes).  Where the bounds of a panel of rows leave many, all of it is
multiplied by the lower bytes, too: single products take several times as long.

Finally, logits below the ``top``-th largest of all threads become -inf, so that the answer does not depend on bounds,
the order of rows or the number of threads.
"""

cdef enum:
    PANEL = 64              # rows of a kernel call, which stay in the cache for all vectors and both halves
    PAIRS = HEAD_TOKENS    # where a cell counts pairs
    LEAST_CODES = 4 << 20   # with fewer, bounds and heaps take longer than the products they save
    VECTORS = 4                # vectors that kernels take at a time; more are multiplied as if there were HEAD_TOKENS
    ALL_FROM = 4            # a panel is multiplied whole if more than a fourth of its pairs are left


def winners_scratch(int64_t n_row, int64_t k, int n_threads):
    """Bytes that :class:`Winners` allocates."""
    return 4 * n_row + 64 + 2 * HEAD_TOKENS * k + 64 + n_threads * (
        HEAD_TOKENS * MOST_WINNERS * sizeof(Candidate) + CELL * 8)


cdef class Winners:
    """Norms of n_row rows of k codes, and room for n_threads threads.  Raises MemoryError."""

    cdef readonly int64_t n_row, k
    cdef readonly int n_threads
    cdef public int64_t least_codes # of all rows, from which on a head uses this
    cdef int64_t usable             # rows from here on are never among the largest
    cdef Arena arena                # owns the arrays below
    cdef float *norm                # [n_row]   |w|, from above
    cdef int8_t *high               # [HEAD_TOKENS][k] x / 64, rounded
    cdef int8_t *low                # [HEAD_TOKENS][k] what that leaves: x = 64 high + low
    cdef float reach[HEAD_TOKENS]  # |low|, from above
    cdef float s[HEAD_TOKENS]      # HEAD_XMAX / max|x|
    cdef Candidate *heaps           # [n_threads][HEAD_TOKENS][MOST_WINNERS]
    cdef int64_t *held              # [n_threads][CELL] candidates in each heap, then products needed whole
    cdef float limit[HEAD_TOKENS]  # the a[t].top-th largest logit of all threads
    cdef team team

    def __cinit__(self, int64_t n_row, int64_t k, int n_threads):
        cdef int64_t norms = (4 * n_row + 63) // 64 * 64, vectors = (2 * HEAD_TOKENS * k + 63) // 64 * 64
        self.n_row, self.k, self.n_threads, self.usable = n_row, k, n_threads, n_row
        self.least_codes = LEAST_CODES
        self.arena = Arena(winners_scratch(n_row, k, n_threads))
        self.norm = <float *>self.arena.data
        self.high = <int8_t *>self.arena.data + norms
        self.low = self.high + HEAD_TOKENS * k
        self.held = <int64_t *>(self.arena.data + norms + vectors)
        self.heaps = <Candidate *>(self.held + n_threads * CELL)

    cdef void put(self, const kernels *kernel, int64_t row, const int8_t *w) noexcept nogil:
        """Row `row` of the head has the codes w [k]."""
        cdef int32_t square
        cdef int32_t *to = &square
        kernel.byte_dots(w, 1, self.k, w, 1, &to)
        self.norm[row] = <float>(sqrt(<double>square) * UP)

    cdef void prepare_query(self, int64_t t, const int16_t *x16, float s) noexcept nogil:
        """Vector t for the next call of logits; x16 [k] and s from quantize_i16."""
        cdef int8_t *high = self.high + t * self.k  # [k]
        cdef int8_t *low = self.low + t * self.k    # [k]
        cdef int64_t i, square = 0
        for i in range(self.k):
            high[i] = <int8_t>max(min((x16[i] + 32) >> 6, 127), -127)
            low[i] = <int8_t>(x16[i] - 64 * high[i])
            square += low[i] * low[i]
        # the second term: the bound is taken in float, four roundings of at most |w| 64 |high|
        self.reach[t] = <float>((sqrt(<double>square) + 64 * 127 * sqrt(<double>self.k) * 2.0 ** -21) * UP)
        self.s[t] = s

    cdef void logits(
        self, const kernels *kernel, const int8_t *rows, const float *scale, int64_t n_token, const answer *a,
        int64_t row0, int64_t row1, int tid, int n_thread) noexcept nogil:
        """rows [n_row][k] and scale [n_row] of an int8 head.  a[t].out[row], t < n_token: the logit that head_i8 gives
        if it is among the a[t].top > 0 largest of its vector, ties included, else -inf.  Executed by every thread of
        the team, each with its own rows.
        """
        cdef Candidate *heaps = self.heaps + tid * HEAD_TOKENS * MOST_WINNERS     # [HEAD_TOKENS][MOST_WINNERS]
        cdef int64_t *held = self.held + tid * CELL                             # [n_token]
        cdef int64_t row = row0, end = max(row0, min(row1, self.usable)), t, n
        cdef float limit
        cdef float *out
        for t in range(n_token):
            held[t] = 0
        while row < end:
            n = min(<int64_t>PANEL, end - row)
            self.answer_panel(kernel, rows + row * self.k, scale + row, n_token, a, row, n, heaps, held)
            row += n
        self.share_limits(n_token, a, tid, n_thread)
        for t in range(n_token):
            out, limit = a[t].out, self.limit[t]
            for row in range(row0, end):
                out[row] = -INFINITY if out[row] < limit else out[row]
            for row in range(end, row1):
                out[row] = -INFINITY

    cdef void answer_panel(
        self, const kernels *kernel, const int8_t *rows, const float *scale, int64_t n_token, const answer *a,
        int64_t row, int64_t n, Candidate *heaps, int64_t *held) noexcept nogil:
        """Logits of rows row .. row + n, which `rows` and `scale` begin with, into a[t].out; -inf for those below as
        many known ones as are asked for.  The best into the thread's heaps."""
        cdef int32_t upper[HEAD_TOKENS][PANEL]     # products with the upper bytes
        cdef int32_t lower[HEAD_TOKENS][PANEL]
        cdef int32_t *uppers[HEAD_TOKENS]
        cdef int32_t *lowers[HEAD_TOKENS]
        cdef int32_t left[HEAD_TOKENS][PANEL]      # [n_left[t]] rows of the panel that can win
        cdef int64_t n_left[HEAD_TOKENS]
        cdef float bound[PANEL]
        cdef float limit
        cdef const float *norm = self.norm + row    # [n]
        cdef Candidate *heap                        # [MOST_WINNERS]
        cdef float *out                             # [n]
        cdef float logit, s, reach
        cdef int64_t t, i, r, all_left = 0, n_x = n_token if n_token <= VECTORS else HEAD_TOKENS
        cdef bint whole
        for t in range(n_x):
            uppers[t], lowers[t] = upper[t], lower[t]
        kernel.byte_dots(rows, n, self.k, self.high, n_x, uppers)
        for t in range(n_token):
            heap, reach, s = heaps + t * MOST_WINNERS, self.reach[t], self.s[t]
            limit = heap[0].logit if held[t] == a[t].top else -INFINITY
            i = 0
            for r in range(n):
                bound[r] = (64 * <float>upper[t][r] + norm[r] * reach) * (scale[r] / s)
                i += not bound[r] < limit
            n_left[t] = i
            all_left += i
            if i == 0:  # of most panels
                continue
            i = 0
            for r in range(n):
                left[t][i] = <int32_t>r
                i += not bound[r] < limit
        held[PAIRS] += all_left
        whole = ALL_FROM * all_left > n_token * n
        if whole:
            kernel.byte_dots(rows, n, self.k, self.low, n_x, lowers)
        for t in range(n_token):
            heap, out, s = heaps + t * MOST_WINNERS, a[t].out + row, self.s[t]
            for r in range(n):
                out[r] = -INFINITY
            for i in range(n_left[t]):
                r = left[t][i]
                if not whole:
                    lowers[0] = &lower[t][r]
                    kernel.byte_dots(rows + r * self.k, 1, self.k, self.low + t * self.k, 1, lowers)
                logit = <float>(64 * <int64_t>upper[t][r] + lower[t][r]) * (scale[r] / s)
                out[r] = logit
                held[t] = offer(heap, held[t], a[t].top, logit, <int32_t>(row + r))

    cdef void share_limits(self, int64_t n_token, const answer *a, int tid, int n_thread) noexcept nogil:
        """The a[t].top-th largest logit in all heaps, -inf if they hold fewer; the same for every thread."""
        cdef Candidate best[MOST_WINNERS]
        cdef const Candidate *heap
        cdef int64_t t, i, n
        cdef int other
        team_barrier(&self.team, n_thread)
        for t in range(n_token):
            if t % n_thread != tid:
                continue
            n = 0
            for other in range(n_thread):
                heap = self.heaps + (other * HEAD_TOKENS + t) * MOST_WINNERS
                for i in range(self.held[other * CELL + t]):
                    n = offer(best, n, a[t].top, heap[i].logit, heap[i].id)
            self.limit[t] = best[0].logit if n == a[t].top else -INFINITY
        team_barrier(&self.team, n_thread)

    @property
    def pairs(self):
        """How many products of a row and a vector were needed whole since the head was made."""
        return sum(self.held[i * CELL + PAIRS] for i in range(self.n_threads))
