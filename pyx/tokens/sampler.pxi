"""sampler: one row of logits -> one token id.

What a call does, in this order (the order and the meaning of the filters are those of llama.cpp's default chain):

0. the logits of unused rows become -inf, in place; with a mask, those of tokens that it does not allow, too;
1. penalties, in place, for every id of ``recent`` (once per distinct id, ``count`` = how often it occurs there):
   ``l = l * repeat if l <= 0 else l / repeat``, then ``l -= count * frequency + presence``;
2. ``temp <= 0``: the first arg-max, and no random number is used;
3. rank by logit, highest first, the lower id first among equals;
   top-k keeps the first k ranks (0 or >= n_vocab: all);
   top-p keeps the shortest prefix whose probability, renormalised over what top-k left, is >= top_p (>= 1: all;
   at least one); min-p keeps what has at least min_p times the probability of the best (0: all);
4. temperature last: weights exp((l - max) / temp) over what is left, and one uniform picks among them.

The pick walks the candidates in rank order when top-k or top-p is in force, otherwise in id order (a full sort of the
vocabulary would buy nothing).  Logits are float32; every exponential and sum is double.

NaN and -inf logits are never chosen; +inf counts as the largest float.  A row without a single usable logit raises
ValueError: then the model or a kernel is broken, and an arbitrary token would hide it.

Random numbers: xoshiro256** (Blackman and Vigna, https://prng.di.unimi.it), seeded through splitmix64 from 64 bits;
uniform = (next >> 11) * 2**-53.  A drawn token uses exactly one, whatever the filters leave.

Nothing is allocated after construction, and the GIL is released while a row is read.  One thread at a time.
"""

# The filters of a call; the numbers that turn one off are named above.
cdef struct Filter:
    double temp     # above 0
    int64_t top_k
    double top_p    # 0 to 1
    double min_p    # 0 to 1


# ---- random numbers -------------------------------------------------------------------------------------------------


cdef inline uint64_t splitmix64(uint64_t *x) noexcept nogil:
    """The next number of the sequence that starts at x [1]: spreads a seed over all bits."""
    cdef uint64_t z
    x[0] += <uint64_t>0x9E3779B97F4A7C15
    z = x[0]
    z = (z ^ (z >> 30)) * <uint64_t>0xBF58476D1CE4E5B9
    z = (z ^ (z >> 27)) * <uint64_t>0x94D049BB133111EB
    return z ^ (z >> 31)


cdef inline uint64_t rotl(uint64_t x, int k) noexcept nogil:
    return (x << k) | (x >> (64 - k))


cdef inline double next_uniform(uint64_t *s) noexcept nogil:
    """The next number of xoshiro256**, state s [4]: its top 53 bits -> [0, 1)."""
    cdef uint64_t result = rotl(s[1] * 5, 7) * 9
    cdef uint64_t t = s[1] << 17
    s[2] ^= s[0]
    s[3] ^= s[1]
    s[1] ^= s[2]
    s[0] ^= s[3]
    s[2] ^= t
    s[3] = rotl(s[3], 45)
    return <double>(result >> 11) * (1.0 / 9007199254740992.0)


# ---- ranking --------------------------------------------------------------------------------------------------------


cdef int64_t collect(const float *logits, int64_t n, double cutoff, Candidate *out) noexcept nogil:
    """Collect every usable logit >= cutoff of logits [n] in out [n], in id order.  Returns their number."""
    cdef int64_t i, m = 0
    cdef float l
    for i in range(n):
        l = logits[i]
        if <double>l >= cutoff and l > -INFINITY:
            out[m].logit = l
            out[m].id = <int32_t>i
            m += 1
    return m


cdef int64_t best(const float *logits, int64_t n, int64_t k, Candidate *heap) noexcept nogil:
    """Collect the k best of logits [n] in heap [k], best first.  Returns their number.

    The worst is at the root of the heap, so that almost every logit costs one comparison.
    """
    cdef int64_t i, m = 0
    for i in range(n):
        m = offer(heap, m, k, logits[i], <int32_t>i)
    if m < k:
        heapify(heap, m)
    sort_heap(heap, m)
    return m


# ---- one row --------------------------------------------------------------------------------------------------------


cdef void penalise(float *logits, int64_t n_vocab, const int *recent, int64_t n, double repeat, double presence,
                   double frequency, int32_t *count) noexcept nogil:
    """Penalise logits [n_vocab] of the ids recent [n]; count [n_vocab] is all zero before and after."""
    cdef int64_t i
    cdef int32_t times
    cdef int id
    cdef double l
    for i in range(n):
        if 0 <= recent[i] < n_vocab:
            count[recent[i]] += 1
    for i in range(n):
        id = recent[i]
        if not 0 <= id < n_vocab:
            continue
        times = count[id]
        if times:
            count[id] = 0
            l = logits[id]
            l = l * repeat if l <= 0 else l / repeat
            logits[id] = <float>(l - (times * frequency + presence))


cdef void forbid(float *logits, int64_t n, const uint8_t *mask) noexcept nogil:
    """Set logits [n] to -inf for every id whose bit is 0 in mask [(n + 7) / 8], the lowest bit of a byte first."""
    cdef int64_t at, i
    cdef uint8_t bits
    for at in range((n + 7) // 8):
        bits = mask[at]
        if bits != 0xFF:
            for i in range(8 * at, min(8 * at + 8, n)):
                if not bits >> (i & 7) & 1:
                    logits[i] = -INFINITY


cdef int64_t argmax(float *logits, int64_t n) noexcept nogil:
    """The first arg-max of logits [n], -1 if nothing is above -inf.

    +inf becomes the largest float, so that differences stay finite.
    """
    cdef int64_t i, at = -1
    cdef float highest = -INFINITY
    for i in range(n):
        if logits[i] > highest:
            highest = logits[i]
            at = i
    if at >= 0 and highest > FLT_MAX:
        for i in range(n):
            if logits[i] > FLT_MAX:
                logits[i] = FLT_MAX
    return at


cdef int64_t survivors(const float *logits, int64_t n, double highest, Filter f, Candidate *out) noexcept nogil:
    """Apply top-k, top-p and min-p to logits [n].  Returns the number of candidates in out [n], at least one."""
    cdef double cutoff = highest + log(f.min_p) if f.min_p > 0 else -INFINITY
    cdef double total = 0, sum = 0, edge
    cdef int64_t i, m
    cdef bint ranked = 0 < f.top_k < n
    if not ranked and f.top_p >= 1:
        return collect(logits, n, cutoff, out)
    if ranked:
        m = best(logits, n, f.top_k, out)
        if f.top_p < 1:
            for i in range(m):
                total += exp(<double>out[i].logit - highest)
    else:
        for i in range(n):
            if logits[i] > -INFINITY:
                total += exp(<double>logits[i] - highest)
        # Candidates below (1 - top_p) / n of the total together miss less than 1 - top_p of it, so the prefix that
        # top-p keeps ends before them and they need not be ranked.  The margin absorbs rounding.
        edge = highest + log((1 - f.top_p) * total / n) - 0.001 if f.top_p > 0 else highest
        m = collect(logits, n, edge if edge > cutoff else cutoff, out)
        heapify(out, m)
        sort_heap(out, m)
    if f.top_p < 1:
        for i in range(m):
            sum += exp(<double>out[i].logit - highest)
            if sum >= f.top_p * total:
                m = i + 1
                break
    while m > 1 and <double>out[m - 1].logit < cutoff:
        m -= 1
    return m


cdef int64_t draw(const Candidate *c, int64_t m, double highest, double temp, double u) noexcept nogil:
    """The one of the candidates c [m] that the uniform number u, from [0, 1), selects."""
    cdef double total = 0, sum = 0, weight
    cdef int64_t i, last = 0
    for i in range(m):
        total += exp((<double>c[i].logit - highest) / temp)
    for i in range(m):
        weight = exp((<double>c[i].logit - highest) / temp)
        sum += weight
        if sum > u * total:
            return i
        if weight > 0:
            last = i
    return last


cdef class Sampler:
    """Turns rows of ``n_vocab`` logits into token ids.  Holds the random state and the working memory.

    unused: int32 [n], ids that are never chosen.  Raises ValueError for one outside the vocabulary.
    """

    cdef readonly int64_t n_vocab
    cdef uint64_t s[4]          # the random state
    cdef Candidate *candidate   # [n_vocab]; only as many of its pages are touched as there are candidates
    cdef int32_t *count         # [n_vocab], zero between calls
    cdef const int[::1] unused  # [n_unused]
    cdef int64_t n_unused

    def __cinit__(self, int64_t n_vocab, seed=0, const int[::1] unused=None):
        if not 1 <= n_vocab <= 0x7FFFFFFF:
            raise ValueError(f"n_vocab is {n_vocab}")
        self.n_vocab, self.unused = n_vocab, unused
        self.n_unused = 0 if unused is None else unused.shape[0]
        for i in range(self.n_unused):
            if not 0 <= unused[i] < n_vocab:
                raise ValueError(f"unused token {unused[i]} of a vocabulary of {n_vocab}")
        self.candidate = <Candidate *>malloc(n_vocab * sizeof(Candidate))
        self.count = <int32_t *>calloc(n_vocab, sizeof(int32_t))
        if self.candidate == NULL or self.count == NULL:
            raise MemoryError(f"no memory to rank {n_vocab} logits")
        self.reseed(seed)

    def __dealloc__(self):
        free(self.candidate)
        free(self.count)

    def reseed(self, seed):
        """Start the random sequence of a seed (any integer, of which the low 64 bits are used)."""
        cdef uint64_t x = <uint64_t>(int(seed) & 0xFFFFFFFFFFFFFFFF)
        cdef int i
        for i in range(4):
            self.s[i] = splitmix64(&x)

    @property
    def state(self):
        """The random state as four 64-bit integers; assign it to repeat the numbers that followed it."""
        return (self.s[0], self.s[1], self.s[2], self.s[3])

    @state.setter
    def state(self, value):
        words = tuple(value)
        if len(words) != 4 or not any(words) or not all(0 <= word < 1 << 64 for word in words):
            raise ValueError("a random state is four 64-bit integers, not all zero")
        cdef int i
        for i in range(4):
            self.s[i] = words[i]

    cdef void strike(self, float *logits) noexcept nogil:
        """Set logits [n_vocab] to -inf for all unused rows."""
        cdef int64_t i
        for i in range(self.n_unused):
            logits[self.unused[i]] = -INFINITY

    def uniform(self):
        """The next random number, uniform in [0, 1), as used by ``sample``."""
        return next_uniform(self.s)

    def sample(self, float[::1] logits not None, double temp=0.0, int64_t top_k=0, double top_p=1.0,
               double min_p=0.0, double repeat_penalty=1.0, double presence_penalty=0.0,
               double frequency_penalty=0.0, const int[::1] recent=None, const uint8_t[::1] mask=None):
        """Choose one id.  Raises ValueError for sizes that do not fit, or if no logit is usable.

        logits: float32 [n_vocab], changed in place by mask and penalties. recent: int32 [n], the ids that the penalties
        count. mask: at least [(n_vocab + 7) // 8] bytes, one bit per token, the lowest bit of a byte first; tokens with
        0 are never chosen.
        """
        cdef int64_t at, m
        cdef Filter f
        if mask is not None and mask.shape[0] < (self.n_vocab + 7) // 8:
            raise ValueError(f"a mask of {mask.shape[0]} bytes for a vocabulary of {self.n_vocab}")
        at = self.highest(logits, repeat_penalty, presence_penalty, frequency_penalty, recent, mask)
        f.temp, f.top_k, f.top_p, f.min_p = temp, top_k, top_p, min_p
        with nogil:
            if temp > 0:
                m = survivors(&logits[0], self.n_vocab, logits[at], f, self.candidate)
                at = self.candidate[draw(self.candidate, m, logits[at], temp, next_uniform(self.s))].id
        return at

    cdef int64_t highest(
        self, float[::1] logits, double repeat, double presence, double frequency, const int[::1] recent,
        const uint8_t[::1] mask) except -1:
        """The first arg-max after mask and penalties.  Raises ValueError if there is none."""
        cdef int64_t n = self.n_vocab, at
        cdef float *row     # [n]
        if logits.shape[0] != n:
            raise ValueError(f"{logits.shape[0]} logits for a vocabulary of {n}")
        row = &logits[0]
        with nogil:
            self.strike(row)
            if mask is not None:
                forbid(row, n, &mask[0])
            if recent is not None and recent.shape[0] > 0:
                penalise(row, n, &recent[0], recent.shape[0], repeat, presence, frequency, self.count)
            at = argmax(row, n)
        if at < 0:
            raise ValueError("no usable logit: every one is NaN or -inf")
        return at

    def candidates(self, float[::1] logits not None, double temp=1.0, int64_t top_k=0, double top_p=1.0,
                   double min_p=0.0, double repeat_penalty=1.0, double presence_penalty=0.0,
                   double frequency_penalty=0.0, const int[::1] recent=None):
        """The m candidates from which ``sample`` would choose, in its order: (ids, int32 [m]; probabilities, float64
        [m]).

        Takes the same arguments, and changes logits in the same way; no random number is used.
        """
        cdef int64_t at, m, i
        cdef double total = 0, highest
        cdef Filter f
        f.temp, f.top_k, f.top_p, f.min_p = temp, top_k, top_p, min_p
        at = self.highest(logits, repeat_penalty, presence_penalty, frequency_penalty, recent, None)
        if not temp > 0:
            return array.array("i", [at]), array.array("d", [1.0])
        highest = logits[at]
        m = survivors(&logits[0], self.n_vocab, highest, f, self.candidate)
        weights = [exp((<double>self.candidate[i].logit - highest) / temp) for i in range(m)]
        for w in weights:
            total += w
        ids = array.array("i", [self.candidate[i].id for i in range(m)])
        return ids, array.array("d", [w / total for w in weights])
