"""draft: what may come next, looked up in the tokens that are there, and how far it pays to believe it.

Prompt lookup (A. Saxena 2023, github.com/apoorvumang/prompt-lookup-decoding): the latest place where the last tokens
stood before is looked for, and what followed there is evaluated in one step together with the token at hand.  A step
of a few tokens reads the weights once, so where memory is the bound it costs little more than a step of one.  Tokens
are still chosen one after the other, each from the logits behind the one before it and with a random number of its own;
where the choice is what was drafted, its logits are there already.  Since a step of several tokens gives the same bits
as steps of one, drafts change no token, however they are chosen: greedy or drawn.

How many tokens are drafted is decided from what was measured: the time of a step by its tokens, and how often drafts
came true, by the length of the match.  Drafts are looked up even where they do not pay, so that the latter is known;
but not where the products are the bound, and nothing could be gained.
Until a step of so many tokens has been measured, one more is believed to cost half of what it costs in a prompt: the
other half is done while the memory is waited for.
"""

import array

from libc.stdint cimport int32_t, int64_t

cdef enum:
    MOST = 7            # most tokens drafted: with the one at hand, as many vectors as the output head takes at once
    LONGEST = 4         # tokens of the longest match
    LOOK_BACK = 8192    # tokens searched: some microseconds

cdef double HITS = 1.0 / 12     # weight of the latest draft among those before it
cdef double FASTER = 1.0 / 4    # weight of the latest step among those before it, if it took less time than they did
cdef double SLOWER = 1.0 / 32   # and if it took more: other work may have been in its way
cdef double AGAIN = 1.0 / 512   # how fast it is forgotten that a step was slower than expected
cdef double DEAR = 1.0 / 3      # where a token of a prompt costs so much of a step, nothing is looked up
cdef int64_t SOME = 8           # steps of one token after which that is known
cdef double GAIN = 1.1          # a draft promises so much more speed, or nothing is drafted

MOST_DRAFT = MOST

#: share of drafts that come true, by the length of the match, before any was seen; low, since a wrong guess costs
FIRST_HITS = (0, 0.1, 0.2, 0.3, 0.4)


cdef class Draft:
    """Looks up at most ``most`` <= 7 tokens at a time; ``always``: wherever there is a match, not only where it pays.

    Raises ValueError for another ``most``.
    """

    cdef readonly int64_t most
    cdef readonly bint always
    cdef readonly object ids        # array("i") [most + 1]: a token and those drafted behind it
    cdef readonly int64_t drafted, accepted
    cdef readonly bint idle         # drafts cannot pay here
    cdef int32_t[::1] batch
    cdef int64_t n, at              # tokens drafted; rows of them that are used up
    cdef int64_t length             # of the match
    cdef int64_t awaited            # the token that comes next if the draft is right, -1: none
    cdef double hit[LONGEST + 1]    # share of drafts that came true, by the length of the match
    cdef double seconds[MOST + 2]   # of a step, by its tokens; 0: not measured yet
    cdef int64_t steps              # of one token, measured
    cdef double each                # seconds of a token of a prompt; 0: not measured yet

    def __cinit__(self, int64_t most, bint always=False):
        cdef int64_t i
        if not 1 <= most <= MOST:
            raise ValueError(f"drafts of {most} tokens are out of range")
        self.most, self.always, self.awaited = most, always, -1
        self.ids = array.array("i", bytes(4 * (most + 1)))
        self.batch = self.ids
        for i in range(1, LONGEST + 1):
            self.hit[i] = FIRST_HITS[i]

    def begin(self):
        """Another answer: count from zero."""
        self.drafted = self.accepted = 0
        self.awaited = -1
        self.idle = False

    def propose(self, const int32_t[::1] tokens not None, int32_t token, int64_t limit):
        """How many tokens to evaluate behind ``token``, which stands behind ``tokens``: 0 to ``limit``; see ``ids``."""
        cdef int64_t place
        self.batch[0] = token
        self.n = self.at = 0
        self.awaited = -1
        place = self._find(tokens, token)
        if place >= 0:
            self._copy(tokens, place)
            self.awaited = self.batch[1]
            limit = max(<int64_t>0, min(limit, self.most))
            self.n = limit if self.always else self._worth(limit)
            self.drafted += self.n
        return self.n

    def give(self, int32_t token, forced, int64_t limit):
        """The same for tokens that are known to come next (a grammar leaves no other): the first ``limit`` of them."""
        cdef int64_t i
        self.batch[0] = token
        self.at = self.length = 0
        self.n = max(<int64_t>0, min(limit, self.most, <int64_t>len(forced)))
        for i in range(self.n):
            self.batch[i + 1] = forced[i]
        self.awaited = self.batch[1] if self.n else -1
        self.drafted += self.n
        return self.n

    def took(self, int64_t n, double seconds):
        """A step of n tokens, of an answer or of a prompt, took so long."""
        cdef double known
        if n > MOST + 1:
            self.each = seconds / n
        elif n >= 1:
            known = self.seconds[n] if self.seconds[n] > 0 else seconds
            self.seconds[n] = known + (min(seconds, 2 * known) - known) * (FASTER if seconds < known else SLOWER)
            self.steps += n == 1
            if self.steps >= SOME:
                self.idle = not self.always and self.each > DEAR * self.seconds[1]

    def follow(self, int32_t token):
        """The next token is chosen: the number of its row in the last step, -1 if it was not evaluated there."""
        cdef bint right = token == self.awaited
        if self.awaited < 0:
            return -1
        self.hit[self.length] += (right - self.hit[self.length]) * HITS
        self.awaited = -1
        if not right or self.at == self.n:
            return -1
        self.at += 1
        self.accepted += 1
        if self.at < self.n:
            self.awaited = self.batch[self.at + 1]
        return self.at

    def stop(self):
        """What was drafted and not used will not be."""
        self.awaited = -1

    cdef int64_t _find(self, const int32_t[::1] tokens, int32_t token) noexcept:
        """Where the token stood last behind most of the tokens that it stands behind now; -1: nowhere."""
        cdef int64_t n = tokens.shape[0], i, j, place = -1
        self.length = 0
        for i in range(n - 1, max(<int64_t>0, n - LOOK_BACK) - 1, -1):
            if tokens[i] == token:
                j = 1
                while j < LONGEST and j <= i and tokens[i - j] == tokens[n - j]:
                    j += 1
                if j > self.length:
                    self.length, place = j, i
                    if j == LONGEST:
                        break
        return place

    cdef void _copy(self, const int32_t[::1] tokens, int64_t place) noexcept:
        """What followed there; where the text ends it goes on with the draft itself."""
        cdef int64_t i, n = tokens.shape[0]
        for i in range(1, self.most + 1):
            self.batch[i] = tokens[place + i] if place + i < n else self.batch[place + i - n]

    cdef int64_t _worth(self, int64_t limit) noexcept:
        """The number of drafted tokens, at most ``limit``, that promises most tokens a second."""
        cdef double p = self.hit[self.length], chance = 1, tokens = 1, best, one = self.seconds[1], time = one
        cdef int64_t k, most = 0
        if one <= 0 or self.each <= 0:
            return 0
        best = GAIN / one
        for k in range(1, limit + 1):
            chance *= p
            tokens += chance
            time = max(one, self.seconds[k + 1] if self.seconds[k + 1] > 0 else time + self.each / 2)
            if tokens / time > best:
                best, most = tokens / time, k
        if most == 0:
            for k in range(2, self.most + 2):
                time = one + (k - 1) * self.each / 2
                if self.seconds[k] > time:
                    self.seconds[k] += (time - self.seconds[k]) * AGAIN
        return most
