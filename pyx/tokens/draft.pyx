"""draft: likely next tokens, looked up in the tokens so far, and how many of them are worth evaluating.

Prompt lookup (A. Saxena 2023, github.com/apoorvumang/prompt-lookup-decoding): the latest earlier occurrence of the last
tokens is looked up, and the tokens that followed there are evaluated in one step together with the current token.  A
step of a few tokens reads the weights once, so if memory is the limit it takes little longer than a step of one.
Tokens are still chosen one after the other, each from the logits after the one before it and with its own random
number.  If the choice is the drafted token, its logits are there already.  Since a step of several tokens gives the
same bits as steps of one, drafts change no token, with greedy choice or sampling.

The number of drafted tokens follows measurements: the time of a step by its number of tokens, and how often drafts were
right, by the length of the match.  Drafts are also looked up when they are not worth evaluating, to measure how often
they would be right, except where arithmetic is the limit and nothing could be gained.  Until a step of so many tokens
has been measured, each further token is assumed to cost half of what it costs in a prompt: the other half is done while
waiting for memory.
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
    """Looks up at most ``most`` <= 7 tokens at a time.  ``always``: wherever there is a match, not only where it is
    faster.

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
        """Begin another answer: reset the counts."""
        self.drafted = self.accepted = 0
        self.awaited = -1
        self.idle = False

    def propose(self, const int32_t[::1] tokens not None, int32_t token, int64_t limit):
        """The number of tokens to evaluate after ``token``, which follows ``tokens``: 0 to ``limit``; the tokens are
        ``ids``.
        """
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
        """The same for tokens that are certain to come next (a grammar allows no other): the first ``limit`` of them.
        """
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
        """Record the duration of a step of n tokens, of an answer or of a prompt."""
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
        """The next token is chosen: return the number of its row in the last step, -1 if it was not evaluated there."""
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
        """Discard drafts that were not used."""
        self.awaited = -1

    cdef int64_t _find(self, const int32_t[::1] tokens, int32_t token) noexcept:
        """The place where the token occurred before, after the longest run of the tokens that it follows now; -1: none.
        """
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
        """Copy the tokens that followed there; at the end of the text it continues with the draft itself."""
        cdef int64_t i, n = tokens.shape[0]
        for i in range(1, self.most + 1):
            self.batch[i] = tokens[place + i] if place + i < n else self.batch[place + i - n]

    cdef int64_t _worth(self, int64_t limit) noexcept:
        """The number of drafted tokens, at most ``limit``, that is expected to give most tokens per second."""
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
