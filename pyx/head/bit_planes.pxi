"""bit_planes: an int8 head in bit planes, and the exact largest logits from few of them.

The codes w of a row are those of the int8 head.  u = w + 128 is stored as nibbles (bits 7-4) and four bit planes (bit 3
of all codes of a row, bit 2, 1, 0), together as many bytes as the int8 rows.  A token that only needs
the ``top`` largest logits reads the nibbles of every row and, of the bit planes, the rows that can still win.

Why that is exact.  Let x be the hidden vector as the int8 head has it (int16), so that a logit is
fl(fl(T) * f) with the integer T = sum (u - 128) x and f = fl(scale / s) >= 0.  After the upper p bits of u have been
read, u = 2^(8-p) q + c + r with the middle c = (2^(8-p) - 1) / 2 of what is unread and |r| <= c in every element:

    T = 2^(8-p) sum q x + (c - 128) sum x + sum r x

Some vector m, the anchor, splits x into a m + y for a number a (any would do; a = xm / mm makes y short), so that

    |sum r x - a sum r m| = |sum r y| <= |r| |y|                                        (Cauchy and Schwarz)

|r| and sum r m are stored for each row and p = 4, 5, 6, |r| rounded up.  For the bits 3 and 2, x is read as 64 x8 + e,
one vector of bytes instead of two: sum b x = 64 sum b x8 + sum e / 2 + sum (b - 1/2) e, of which the last is at most
sum |e| / 2 (Hoelder).  So a U >= T is known, and since rounding and multiplying by f >= 0 keep order, the logit is at
most fl(fl(U) * f).

Rounding: sums over codes are integers below 2^53, exact in double with their halves.  sum r m is stored as float: off
by 2^-24 of at most |r| |m|, so the |y| used is larger than the true one by 2^-23 |a m|.  What is left is the rounding
of a few additions, 2^-52 of numbers up to 510 |r| |x| (an r is at least half a code, a code at most 255), against
2^-24 |r| |x|, the least that the bound has been raised: |x| <= |a m| + |y|, and products are taken 2^-20 too large.

A limit that at least ``top`` logits reach is needed: it is the smallest of the exact logits of the ``top`` rows with
the largest estimates.  A row whose upper bound is below it is not among the ``top`` largest, ties included; of every
other row more is read, and in the end it is computed exactly.  A bound that is NaN excludes no row.  Finally, logits
below the ``top``-th largest exact one become -inf, so that the answer does not depend on the bounds, the anchor or the
number of threads.

A head whose rows are stored as Q8_0 keeps them: only six bits of each code are made, of the row as int8 codes with one
scale, and what can win is computed from the stored rows, as the whole head computes it.  Then the codes only stand for
numbers near the row w: w / scale = 2^(8-p) q + c - 128 + r with an r that holds the rounding to codes, too, so that all
that is said above is true of it, |r| and r m = wm / scale - ... being computed from w.  Rounding: the products of a row
with x and with m are float sums of its blocks, each rounded by n = k / 512 + 9 operations at most, so they are off by
n 2^-23 |w||x|, with |w| <= 127 scale sqrt k; near_most works in double and allows for the last rounding.

The anchor is the mean direction of recent hidden vectors, since those of one text have much in common.  How many rows
remain depends on the model: the bound of Cauchy and Schwarz is 50 times the typical error (root of k), so the largest
of 128256 random logits, 4.4 standard deviations, is only separated from 5 bits on; logits of trained models have larger
steps.
"""

cdef enum:
    HEAD_TOKENS = 8        # most hidden vectors in one call
    MOST_WINNERS = 256         # most winners that can be requested
    BOUND_STAGES = 3        # bounds: after four, five and six bits

# One hidden vector x, as the bounds need it.
cdef struct question:
    const int16_t *x            # [k]
    float s                     # HEAD_XMAX / max|x|
    int64_t sum                 # sum of x
    double share                # a in x = a m + y
    double reach                # norm of y, from above
    double mid[BOUND_STAGES]    # contribution of the middle of the unread bits and of the rounding of x
    double slack[BOUND_STAGES]  # most that the rounding of x can change

# A request for logits.
cdef struct answer:
    const float *h      # [k]  the residual vector
    float *out          # [n_row]
    int64_t top         # number of largest logits needed; 0: all

cdef extern from "kernels.h" nogil:
    enum:
        HEAD_XMAX
    void split_bits(uint8_t *, int64_t, int64_t, uint8_t *, uint8_t *, int64_t, float *)
    void split_bits_near(
        const float *, float, uint8_t *, int64_t, int64_t, uint8_t *, uint8_t *, int64_t, float *)

cdef enum:
    NIBBLE_ROWS = 64               # rows of nibbles per kernel call
    BATCH = 1024            # rows that are narrowed down together
    OF_CODES = 4            # bit planes below the nibbles, which give the codes;
    OF_ROWS = 2             # of Q8_0 rows, which give the logits themselves
    CELL = 16               # int64 per thread in `held`: two cache lines, so that threads never write the same
    MOST_K = 16384          # 15 * 8191 * k fits an int32
    FIRST_ANCHOR = 8        # vectors seen before the first anchor is set, which costs about two passes
    LONGEST_REST = 256      # vectors between two anchors in the end

    QUERY_BYTES = 3 * HEAD_TOKENS + 2 + 2 + 8              # of questions, anchor (twice) and mean, per element
    THREAD_BYTES = MOST_WINNERS * sizeof(Candidate) + CELL * 8

#: rows are padded to so many codes
CODE_BLOCK = BIT_BLOCK

cdef double PAST = 0.98   # weight of the vectors seen before, per vector
cdef double UP = 1 + 1e-6


def sizes(int64_t n_row, int64_t k, bint of_rows, int n_threads):
    """(bytes of nibbles, bit planes and what is kept per row, bytes of working memory); of_rows: of Q8_0 rows."""
    nbytes = n_row * (padded_codes(k) // 8 * (4 + (OF_ROWS if of_rows else OF_CODES)) + 4 * (1 + 2 * BOUND_STAGES))
    return nbytes, padded_codes(k) * QUERY_BYTES + n_threads * THREAD_BYTES


cdef inline int64_t padded_codes(int64_t k) noexcept nogil:
    return (k + BIT_BLOCK - 1) // BIT_BLOCK * BIT_BLOCK


cdef class BitPlanes:
    """Room for n_row rows of k codes.  Raises ValueError for rows that are too long, MemoryError.

    rows: Q8_0 rows from which the logits come; the codes only show which of its rows can win.
    """

    cdef readonly int64_t n_row, k, k_pad
    cdef readonly int n_threads, n_bit_plane
    cdef int64_t usable             # rows from here on are never among the largest
    cdef Arena weights, row_arena, query_arena, heap_arena  # own the arrays below
    cdef uint8_t *nibbles           # [n_row][k_pad / 2]      bits 7-4 of code + 128
    cdef uint8_t *bits              # [n_bit_plane][n_row][k_pad / 8]   bits 3, 2, 1, 0
    cdef float *scale               # [n_row]
    cdef float *norm                # [BOUND_STAGES][n_row]   norms of the bits below, about their middle
    cdef float *along               # [BOUND_STAGES][n_row]   their products with the anchor m
    cdef int8_t *x                  # [HEAD_TOKENS][2][k_pad] low and high bytes of x
    cdef int8_t *x8                 # [HEAD_TOKENS][k_pad]   x / 64, rounded
    cdef int8_t *anchor             # [2][k_pad]              low and high bytes of m
    cdef double *mean               # [k]  running sum of x / |x|
    cdef int64_t anchor_sum, anchor_square, seen, due
    cdef question questions[HEAD_TOKENS]
    cdef Candidate *heaps           # [n_threads][MOST_WINNERS]
    cdef int64_t *held              # [n_threads][CELL] candidates in each heap, then rows read per stage
    cdef float limit
    cdef StoredRows rows            # Q8_0 rows from which logits are computed; None: from all bits
    cdef int16_t *anchor16          # [k]  m, for these
    cdef team team

    def __cinit__(self, int64_t n_row, int64_t k, int n_threads, StoredRows rows=None):
        cdef int64_t rest, nbytes
        if not 1 <= n_threads <= 1024:
            raise ValueError(f"{n_threads} threads are out of range")
        if k > MOST_K:
            raise ValueError(f"a two-stage head has rows of up to {MOST_K}, not {k}")
        self.n_row, self.k, self.k_pad, self.n_threads = n_row, k, padded_codes(k), n_threads
        self.usable = n_row
        self.rows = rows
        self.n_bit_plane = OF_CODES if rows is None else OF_ROWS
        rest, nbytes = n_row * self.k_pad // 2, n_row * (self.k_pad // 8 * (4 + self.n_bit_plane))
        # Read in one long stream per token: huge pages pay most here.
        self.weights = Arena(nbytes, huge=nbytes >= (8 << 20))
        self.nibbles, self.bits = self.weights.data, self.weights.data + rest
        self.row_arena = Arena(4 * n_row * (1 + 2 * BOUND_STAGES))
        self.scale = <float *>self.row_arena.data
        self.norm = self.scale + n_row
        self.along = self.norm + BOUND_STAGES * n_row
        self.query_arena = Arena(self.k_pad * QUERY_BYTES)
        self.mean = <double *>self.query_arena.data
        self.anchor16 = <int16_t *>(self.mean + self.k_pad)
        self.x = <int8_t *>(self.anchor16 + self.k_pad)
        self.x8 = self.x + 2 * HEAD_TOKENS * self.k_pad
        self.anchor = self.x8 + HEAD_TOKENS * self.k_pad
        self.due = FIRST_ANCHOR
        self.heap_arena = Arena(n_threads * THREAD_BYTES)
        self.held = <int64_t *>self.heap_arena.data
        self.heaps = <Candidate *>(self.held + n_threads * CELL)

    cdef void put(self, const kernels *kernel, int64_t row, const float *w, uint8_t *u) noexcept nogil:
        """Row `row` from its floats w [k]; u [k_pad], its codes + 128, is scratch."""
        cdef float norm[BOUND_STAGES]   # of this row: self.norm[..][row]
        cdef int64_t stage
        cdef uint8_t *nibbles = self.nibbles + row * (self.k_pad // 2)  # [k_pad / 2]
        cdef uint8_t *bits = self.bits + row * (self.k_pad // 8)        # [n_bit_plane], stride apart: [k_pad / 8]
        cdef int64_t stride = self.n_row * (self.k_pad // 8)
        kernel.quantize_row_i8(w, self.k, <int8_t *>u, self.scale + row)
        if self.rows is not None:
            split_bits_near(w, self.scale[row], u, self.k, self.k_pad, nibbles, bits, stride, norm)
        else:
            split_bits(u, self.k, self.k_pad, nibbles, bits, stride, norm)
        for stage in range(BOUND_STAGES):
            self.norm[stage * self.n_row + row] = norm[stage]

    cdef void prepare_query(self, int64_t t, const int16_t *x16, float s) noexcept nogil:
        """Vector t for the next call of logits; x16 [k] and s from quantize_i16."""
        cdef question *q = &self.questions[t]
        cdef int8_t *low = self.x + 2 * t * self.k_pad  # [k_pad]
        cdef int8_t *high = low + self.k_pad            # [k_pad]
        cdef int8_t *x8 = self.x8 + t * self.k_pad      # [k_pad]
        cdef int64_t i, sum = 0, product = 0, lost = 0, lost_abs = 0, squares = 0
        cdef double y, square = 0, rounding
        cdef int e
        for i in range(self.k):
            low[i] = <int8_t>(x16[i] & 0xff)
            high[i] = <int8_t>((x16[i] - low[i]) >> 8)
            x8[i] = <int8_t>min((x16[i] + 32) >> 6, 127)
            e = x16[i] - 64 * x8[i]
            lost += e
            lost_abs += e if e >= 0 else -e
            sum += x16[i]
            squares += x16[i] * x16[i]
            product += x16[i] * anchored(self, i)
        q.x, q.s, q.sum = x16, s, sum
        q.share = <double>product / self.anchor_square if self.anchor_square else 0
        for i in range(self.k):
            y = x16[i] - q.share * anchored(self, i)
            square += y * y
        q.reach = sqrt(square) * UP + fabs(q.share) * sqrt(<double>self.anchor_square) * 2.0 ** -23
        # unread 4, 3, 2 bits; the bits of weight 8 and of weight 4 were read with x rounded
        q.mid[0], q.slack[0] = (7.5 - 128) * sum, 0
        q.mid[1], q.slack[1] = (3.5 - 128) * sum + 4.0 * lost, 4.0 * lost_abs
        q.mid[2], q.slack[2] = (1.5 - 128) * sum + 6.0 * lost, 6.0 * lost_abs
        if self.rows is not None:
            rounding = (self.k / 512.0 + 16) * 2.0 ** -23 * 128 * sqrt(<double>self.k) * (
                sqrt(<double>squares) + fabs(q.share) * sqrt(<double>self.anchor_square))
            for i in range(BOUND_STAGES):
                q.slack[i] += rounding

    cdef void logits(
        self, const kernels *kernel, int64_t n_token, const answer *a, int64_t row0, int64_t row1, int tid,
        int n_thread) noexcept nogil:
        """a[t].out[row], t < n_token: the exact logit of an int8 head, or of the rows given, if it is among the
        a[t].top largest of its vector, ties included, else -inf; all exact with top = 0.  Executed by every thread of
        the team, each with its own rows.
        """
        cdef bint learning = False
        cdef int32_t acc[2 * HEAD_TOKENS * NIBBLE_ROWS]   # [n_token][low, high bytes of x][NIBBLE_ROWS]
        cdef int64_t row = row0, r, t, n
        cdef int32_t *upper     # [n]
        while row < row1:
            n = min(<int64_t>NIBBLE_ROWS, row1 - row)
            kernel.nibble_dots(
                self.nibbles + row * (self.k_pad // 2), n, self.k_pad, self.x, 2 * n_token, acc, NIBBLE_ROWS)
            for t in range(n_token):
                upper = <int32_t *>a[t].out + row  # kept in the place of the logit until it is known
                for r in range(n):
                    upper[r] = acc[2 * t * NIBBLE_ROWS + r] + 256 * acc[(2 * t + 1) * NIBBLE_ROWS + r]
            row += NIBBLE_ROWS
        for t in range(n_token):
            self.answer_vector(kernel, t, a[t].top, row0, row1, tid, n_thread, a[t].out)
            learning |= a[t].top > 0
        if learning:
            if tid == 0:
                self.learn(n_token)
            team_barrier(&self.team, n_thread)
            if self.seen == 0 and self.rows is not None:
                self.along_rows(kernel, row0, row1)
            elif self.seen == 0:
                self.move_anchor(kernel, row0, row1)

    cdef void answer_vector(
        self, const kernels *kernel, int64_t t, int64_t top, int64_t row0, int64_t row1, int tid, int n_thread,
        float *out) noexcept nogil:
        """From the sums of the nibbles, which are in out [n_row] as integers, compute the logits of one vector."""
        cdef int64_t row, end = row1
        cdef float limit = -INFINITY
        if top > 0:
            row1 = max(row0, min(row1, self.usable))
            self.estimate(kernel, t, top, row0, row1, tid, <const int32_t *>out)
            limit = self.share_limit(top, tid, n_thread)
        self.narrow(kernel, t, top, limit, row0, row1, tid, out)
        for row in range(row1, end):
            out[row] = -INFINITY
        if top > 0:
            limit = self.share_limit(top, tid, n_thread)
            for row in range(row0, row1):
                if out[row] < limit:
                    out[row] = -INFINITY

    cdef void estimate(
        self, const kernels *kernel, int64_t t, int64_t top, int64_t row0, int64_t row1, int tid,
        const int32_t *upper) noexcept nogil:
        """Compute the exact logits of the rows with the best estimates by their nibbles (upper [n_row]), into the
        thread's heap.
        """
        cdef const question *q = &self.questions[t]
        cdef Candidate *heap = self.heaps + tid * MOST_WINNERS     # [MOST_WINNERS]
        cdef int64_t first = row0, row, n, i, held = 0
        cdef float guess[BATCH]     # of neighbours, then of the rows in the heap
        cdef int32_t rows[BATCH]    # [held]
        cdef int32_t sums[BATCH]    # [held] of their nibbles
        while first < row1:
            n = min(<int64_t>BATCH, row1 - first)
            for i in range(n):
                row = first + i
                guess[i] = (
                    <float>(16.0 * upper[row] + q.mid[0] + q.share * self.along[row]) * (self.scale[row] / q.s))
            for i in range(n):
                held = offer(heap, held, top, guess[i], <int32_t>(first + i))
            first += BATCH
        for i in range(held):
            rows[i], sums[i] = heap[i].id, upper[heap[i].id]
        self.exact(kernel, t, rows, sums, held, guess)
        for i in range(held):
            heap[i].logit = guess[i]
        self.held[tid * CELL] = held

    cdef void narrow(
        self, const kernels *kernel, int64_t t, int64_t top, float limit, int64_t row0, int64_t row1, int tid,
        float *out) noexcept nogil:
        """out [n_row]: exact logits of the rows that can reach the limit, -inf for the others; the best into the
        thread's heap."""
        cdef const question *q = &self.questions[t]
        cdef Candidate *heap = self.heaps + tid * MOST_WINNERS     # [MOST_WINNERS]
        cdef int64_t *cell = self.held + tid * CELL             # [CELL]
        cdef int64_t first = row0, n, i, stage, kept, held = 0
        # the rows that are left, [n]
        cdef int32_t rows[BATCH]
        cdef int32_t upper[BATCH]   # sums of their nibbles
        cdef double sums[BATCH]     # of the bits read so far, times their weight
        cdef int32_t dots[BATCH]    # of one bit plane with x8
        cdef float bound[BATCH]     # in the end the logits
        while first < row1:
            n = min(<int64_t>BATCH, row1 - first)
            self.first_bounds(q, first, n, <const int32_t *>out + first, bound)
            kept = 0
            for i in range(n):
                rows[kept], upper[kept] = <int32_t>(first + i), (<const int32_t *>out)[first + i]
                kept += not bound[i] < limit
            for i in range(n):
                out[first + i] = -INFINITY
            n = kept
            for i in range(n):
                sums[i] = 16.0 * upper[i]
            for stage in range(1, BOUND_STAGES if limit > -INFINITY else 0):
                kernel.bit_dots(
                    self.bits + (stage - 1) * self.n_row * (self.k_pad // 8), rows, n, self.k_pad,
                    self.x8 + t * self.k_pad, 1, dots, BATCH)
                cell[stage] += n
                for i in range(n):
                    sums[i] += (64 * (16 >> stage)) * <double>dots[i]
                self.bounds(q, stage, rows, n, sums, bound)
                kept = 0
                for i in range(n):
                    rows[kept], upper[kept], sums[kept] = rows[i], upper[i], sums[i]
                    kept += not bound[i] < limit
                n = kept
            cell[BOUND_STAGES] += n
            self.exact(kernel, t, rows, upper, n, bound)
            for i in range(n):
                out[rows[i]] = bound[i]
                if top > 0:
                    held = offer(heap, held, top, bound[i], rows[i])
            first += BATCH
        cell[0] = held

    cdef void bounds(
        self, const question *q, int64_t stage, const int32_t *rows, int64_t n, const double *sums,
        float *out) noexcept nogil:
        """out [n]: upper bounds of the logits of rows [n], by sums [n] of the bits read so far."""
        cdef const float *norm = self.norm + stage * self.n_row     # [n_row]
        cdef const float *along = self.along + stage * self.n_row   # [n_row]
        cdef int64_t i
        if self.rows is not None:
            for i in range(n):
                out[i] = near_most(q, stage, sums[i], norm[rows[i]], along[rows[i]], self.scale[rows[i]])
            return
        for i in range(n):
            out[i] = at_most(q, stage, sums[i], norm[rows[i]], along[rows[i]], self.scale[rows[i]])

    cdef void first_bounds(
        self, const question *q, int64_t first, int64_t n, const int32_t *upper, float *out) noexcept nogil:
        """The same from the nibbles alone (upper [n]), for n adjacent rows: this loop is vectorised."""
        cdef const float *norm = self.norm + first      # [n]
        cdef const float *along = self.along + first    # [n]
        cdef const float *scale = self.scale + first    # [n]
        cdef int64_t i
        if self.rows is not None:
            for i in range(n):
                out[i] = near_most(q, 0, 16.0 * upper[i], norm[i], along[i], scale[i])
            return
        for i in range(n):
            out[i] = at_most(q, 0, 16.0 * upper[i], norm[i], along[i], scale[i])

    cdef float share_limit(self, int64_t top, int tid, int n_thread) noexcept nogil:
        """The top-th largest logit in all heaps, -inf if they hold fewer; the same for every thread."""
        cdef int64_t held = 0, i, other
        cdef Candidate c
        team_barrier(&self.team, n_thread)
        if tid == 0:
            # Into the first heap, whose own entries are read before they are overwritten.
            for other in range(n_thread):
                for i in range(self.held[other * CELL]):
                    c = self.heaps[other * MOST_WINNERS + i]
                    held = offer(self.heaps, held, top, c.logit, c.id)
            self.limit = self.heaps[0].logit if held == top else -INFINITY
        team_barrier(&self.team, n_thread)
        return self.limit

    cdef void exact(
        self, const kernels *kernel, int64_t t, const int32_t *rows, const int32_t *upper, int64_t n,
        float *out) noexcept nogil:
        """out[i]: the logit of rows[i], bit for bit that of the whole head; upper[i]: the sum of its nibbles; i < n."""
        cdef const question *q = &self.questions[t]
        cdef int32_t acc[2 * BATCH]     # [low, high bytes of x][BATCH]
        cdef int64_t total[BATCH]       # [n] sum (u - 128) x
        cdef int64_t bit_plane, i
        if self.rows is not None:
            self.exact_of_rows(kernel, q, rows, n, out)
            return
        for i in range(n):
            total[i] = 16 * <int64_t>upper[i] - 128 * q.sum
        for bit_plane in range(self.n_bit_plane):
            kernel.bit_dots(
                self.bits + bit_plane * self.n_row * (self.k_pad // 8), rows, n, self.k_pad,
                self.x + 2 * t * self.k_pad, 2, acc, BATCH)
            for i in range(n):
                total[i] += (8 >> bit_plane) * (acc[i] + 256 * <int64_t>acc[BATCH + i])
        for i in range(n):
            out[i] = <float>total[i] * (self.scale[rows[i]] / q.s)

    cdef void exact_of_rows(
        self, const kernels *kernel, const question *q, const int32_t *list, int64_t n, float *out) noexcept nogil:
        """out [n]: the logits of the rows given that list [n] names, as the head that reads all of them has them."""
        cdef int64_t i = 0, some
        cdef float *to
        while i < n:
            some = 1
            while i + some < n and list[i + some] == list[i] + some:
                some += 1
            to = out + i
            kernel.head_q8_0(
                self.rows.data + list[i] * self.rows.row_bytes, some, self.k, q.x, 1, &q.s, &to)
            i += some

    cdef void learn(self, int64_t n_token) noexcept nogil:
        """Add the vectors to the mean; when it is time, make it the anchor (then ``seen`` is 0)."""
        cdef const int8_t *low      # [2][k_pad] low and high bytes of one vector
        cdef double square, most = 0
        cdef int64_t t, i, m
        for t in range(n_token):
            low, square = self.x + 2 * t * self.k_pad, 0
            for i in range(self.k):
                square += wide(low, i, self.k_pad) ** 2
            for i in range(self.k):
                self.mean[i] = PAST * self.mean[i] + (wide(low, i, self.k_pad) / sqrt(square) if square > 0 else 0)
        self.seen += n_token
        if self.seen < self.due:
            return
        for i in range(self.k):
            most = max(most, fabs(self.mean[i]))
        self.anchor_sum = self.anchor_square = 0
        for i in range(self.k):
            m = <int64_t>rint(self.mean[i] * (HEAD_XMAX / most)) if most > 0 else 0
            self.anchor[i] = <int8_t>(m & 0xff)
            self.anchor[self.k_pad + i] = <int8_t>((m - self.anchor[i]) >> 8)
            self.anchor16[i] = <int16_t>m
            self.anchor_sum += m
            self.anchor_square += m * m
        self.seen, self.due = 0, min(8 * self.due, <int64_t>LONGEST_REST)

    cdef void move_anchor(self, const kernels *kernel, int64_t row0, int64_t row1) noexcept nogil:
        """Products of the unread bits of rows with the anchor; reads all their bits."""
        cdef int32_t rows[BATCH]        # [n]
        cdef int32_t acc[2 * BATCH]     # [low, high bytes of m][BATCH]
        cdef double product[BATCH]      # [n]
        cdef int64_t first = row0, n, i, bit_plane
        while first < row1:
            n = min(<int64_t>BATCH, row1 - first)
            for i in range(n):
                rows[i], product[i] = <int32_t>(first + i), 0
            for bit_plane in range(self.n_bit_plane - 1, -1, -1):  # from the lowest bit on
                kernel.bit_dots(
                    self.bits + bit_plane * self.n_row * (self.k_pad // 8), rows, n, self.k_pad, self.anchor, 2, acc,
                    BATCH)
                for i in range(n):
                    product[i] += (8 >> bit_plane) * (acc[i] + 256.0 * acc[BATCH + i])
                    if bit_plane < BOUND_STAGES:  # unread are this bit plane and those after it
                        self.along[bit_plane * self.n_row + first + i] = <float>(
                            product[i] - 0.5 * ((16 >> bit_plane) - 1) * self.anchor_sum)
            first += BATCH

    cdef void along_rows(self, const kernels *kernel, int64_t row0, int64_t row1) noexcept nogil:
        """The same for rows of the table: what they are beyond the codes of the read bits, in units of the scale."""
        cdef int32_t rows[NIBBLE_ROWS]         # [n]
        cdef int32_t acc[2 * NIBBLE_ROWS]      # [low, high bytes of m][NIBBLE_ROWS]
        cdef float product[NIBBLE_ROWS]        # [n] of the rows given with m
        cdef double rest[NIBBLE_ROWS]          # [n] of what the codes read so far leave of them
        cdef float one = 1
        cdef float *out = product
        cdef int64_t first = row0, n, i, stage
        while first < row1:
            n = min(<int64_t>NIBBLE_ROWS, row1 - first)
            kernel.head_q8_0(
                self.rows.data + first * self.rows.row_bytes, n, self.k, self.anchor16, 1, &one, &out)
            kernel.nibble_dots(
                self.nibbles + first * (self.k_pad // 2), n, self.k_pad, self.anchor, 2, acc, NIBBLE_ROWS)
            for i in range(n):
                rows[i] = <int32_t>(first + i)
                rest[i] = (
                    product[i] / <double>self.scale[first + i] - 16 * (acc[i] + 256.0 * acc[NIBBLE_ROWS + i])
                    if self.scale[first + i] else 0)
            for stage in range(BOUND_STAGES):
                if stage > 0:
                    kernel.bit_dots(
                        self.bits + (stage - 1) * self.n_row * (self.k_pad // 8), rows, n, self.k_pad, self.anchor, 2,
                        acc, NIBBLE_ROWS)
                    for i in range(n):
                        rest[i] -= (16 >> stage) * (acc[i] + 256.0 * acc[NIBBLE_ROWS + i])
                for i in range(n):
                    self.along[stage * self.n_row + first + i] = <float>(
                        rest[i] - (0.5 * ((16 >> stage) - 1) - 128) * self.anchor_sum)
            first += NIBBLE_ROWS

    @property
    def rows_read(self):
        """Number of rows of which bit 3, bit 2, and everything was read, over all tokens since the head was made."""
        return tuple(
            sum(self.held[i * CELL + stage] for i in range(self.n_threads)) for stage in range(1, BOUND_STAGES + 1))


cdef inline int64_t wide(const int8_t *low, int64_t i, int64_t k) noexcept nogil:
    """Element i of a vector stored as k low and k high bytes."""
    return low[i] + 256 * <int64_t>low[k + i]


cdef inline int64_t anchored(BitPlanes p, int64_t i) noexcept nogil:
    return wide(p.anchor, i, p.k_pad)


cdef inline float at_most(
    const question *q, int64_t stage, double sum, float norm, float along, float scale) noexcept nogil:
    return <float>(
        sum + q.mid[stage] + q.share * along + (norm * q.reach + q.slack[stage]) * UP) * (scale / q.s)


cdef inline float near_most(
    const question *q, int64_t stage, double sum, float norm, float along, float scale) noexcept nogil:
    """The same for rows of the table, whose logits are rounded in another order."""
    cdef double most = (sum + q.mid[stage] + q.share * along + (norm * q.reach + q.slack[stage]) * UP) * scale / q.s
    return <float>(most + fabs(most) * 2.0 ** -22 + 1e-44)
