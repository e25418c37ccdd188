"""pace: how many threads the next step takes, so that a busy machine does not slow it down.

The threads of a step wait for each other at least 25 times a token.  When another program takes one of their cores,
the thread that ran there stops for milliseconds, and the others wait for it: while one busy loop ran the bundled model
wrote 180 tokens/s on two threads and 7,000 on one (benchmarks/log#busy).  So the number follows the machine:

* All threads, as long as the caller's thread keeps its core.  On an idle machine nothing else happens.
* If the caller's thread was without a core for more than an eighth of the time (asleep at a barrier, or put aside), try
  fewer threads for some milliseconds; keep them if they are faster.
* While fewer run, try more every 0.75 s; keep them if they are faster, or as fast and undisturbed.
* A trial changes the number by one; after a lost one, the next changes it by two, then by four.
* A clear result ends a trial early, but one step of a large model, which is longer than a trial, is not clear enough.
  What a lost one cost decides how soon the next may come: 2 % of the time.

How many threads there are at most, on an idle machine, is not decided here but by edge/machine/cores.py.

A step is compared with recent steps of about as many rows.  The answer is the same bits on any number of threads.
"""

cdef enum:
    N_KIND = 16     # steps of 1, 2, 3-4, 5-8 ... rows are compared with their own kind only

# Time of the steps of one kind: a moving average.
cdef struct mean:
    double ns
    double steps

# Consecutive steps: their time, and how much of it the caller's thread was without a core.
cdef struct stretch:
    double ns
    double away
    double steps

#: nanoseconds: steps are watched for WINDOW before anything follows; a trial lasts from TRIAL to LONG_TRIAL, or until
#: it has lost LOSS; INTERVAL lies between two trials; a mean reaches back to about MEMORY
cdef double WINDOW = 10e6, TRIAL = 12e6, LONG_TRIAL = 48e6, LOSS = 4e6, INTERVAL = 750e6, MEMORY = 50e6
#: share of the time without a core from which on steps count as disturbed
cdef double DISTURBED = 0.125
#: shares of the expected time: below WIN a long trial has won, below CLEAR_WIN any, and below EQUAL more threads that
#: are not disturbed; above CLEAR_LOSS it has lost
cdef double WIN = 0.93, CLEAR_WIN = 0.7, EQUAL = 1.02, CLEAR_LOSS = 1.5
#: after a lost trial, the next one may come after this many times what it cost; sooner where steps are disturbed anyhow
cdef double PATIENCE = 50, PATIENCE_DISTURBED = 8, SOON = 50e6


cdef int kind_of(int64_t n_row):
    cdef int kind = 0
    while (<int64_t>1 << kind) < n_row and kind < N_KIND - 1:
        kind += 1
    return kind


cdef void note(mean *m, double ns):
    if m.ns > MEMORY and m.steps > 8:
        m.ns /= 2
        m.steps /= 2
    m.ns += ns
    m.steps += 1


cdef void add(stretch *s, double ns, double away):
    s.ns += ns
    s.away += away
    s.steps += 1


def disturbed(double ns, double core):
    """True if other programs took the caller's core for a noticeable part of ``ns`` nanoseconds, of which it had the
    core for ``core``.
    """
    return ns - core > DISTURBED * ns


cdef bint quiet(const stretch *s):
    return s.away <= DISTURBED * s.ns


cdef class Pace:
    """The number of threads of the steps of one model: 1 to ``most``.  Read ``threads`` before a step, call ``took``
    after it.
    """

    cdef readonly int most          # largest number of threads
    cdef readonly int settled       # threads of a step, except in trials
    cdef readonly int trial         # threads on trial; 0: none
    cdef int more, fewer            # change of the number in the next trial
    cdef bint disturbed             # in the last window
    cdef mean known[N_KIND]         # with `settled` threads
    cdef mean tried[N_KIND]         # with those on trial
    cdef stretch window
    cdef stretch trying             # the trial's
    cdef double took_ns, expected_ns            # of its steps whose kind is known
    cdef int64_t next_more, next_fewer          # no trial of more, of fewer threads before

    def __cinit__(self, int most):
        self.most = self.settled = most
        self.more = self.fewer = 1

    cpdef int threads(self):
        """Number of threads of the next step."""
        return self.trial or self.settled

    cpdef took(self, int64_t n_row, int64_t begun, int64_t now, int64_t core):
        """Record a step of n_row rows from ``begun`` to ``now``, during which the caller's thread had a core for
        ``core``.

        All in nanoseconds, of any clock that only increases.
        """
        cdef double ns = now - begun, away = max(<int64_t>0, now - begun - core)
        cdef int kind = kind_of(n_row)
        if self.trial:
            note(&self.tried[kind], ns)
            add(&self.trying, ns, away)
            if self.known[kind].steps:
                self.took_ns += ns
                self.expected_ns += self.known[kind].ns / self.known[kind].steps
            self.judge(now)
        else:
            note(&self.known[kind], ns)
            add(&self.window, ns, away)
            if self.window.ns >= WINDOW:
                self.watch(now)

    cdef watch(self, int64_t now):
        """After a window of steps: decide whether to begin a trial."""
        cdef bint disturbed = not quiet(&self.window)
        memset(&self.window, 0, sizeof(self.window))
        if self.settled > 1 and disturbed != self.disturbed:
            self.disturbed = disturbed
            memset(self.known, 0, sizeof(self.known))  # the steps before were of another time
        elif disturbed and self.settled > 1 and now >= self.next_fewer:
            self.begin(max(1, self.settled - self.fewer))
        elif self.settled < self.most and now >= self.next_more:
            self.begin(min(self.most, self.settled + self.more))

    cdef begin(self, int n):
        self.trial = n
        self.took_ns = self.expected_ns = 0
        memset(&self.trying, 0, sizeof(self.trying))
        memset(self.tried, 0, sizeof(self.tried))

    cdef judge(self, int64_t now):
        """Decide the trial, if its result is clear."""
        cdef bint upwards = self.trial > self.settled, undisturbed = quiet(&self.trying), won, is_long
        cdef double lost = self.took_ns - self.expected_ns, share
        share = self.took_ns / self.expected_ns if self.expected_ns else 1
        is_long = self.trying.ns >= LONG_TRIAL and self.trying.steps >= (8 if upwards else 3)
        if lost > LOSS and share > CLEAR_LOSS:
            won = False
        elif self.trying.ns < TRIAL:
            return
        elif share < CLEAR_WIN and self.trying.steps >= 3:
            won = True
        elif upwards and undisturbed and share < EQUAL and self.trying.steps >= 2:
            won = True
        elif is_long or share > 1 and (upwards or self.trying.steps >= 3):
            won = share < WIN
        else:
            return
        if won:
            self.settled = self.trial
            self.disturbed = not undisturbed
            memcpy(self.known, self.tried, sizeof(self.known))
            self.next_fewer = now
            self.next_more = now if upwards else now + <int64_t>INTERVAL
            self.more = self.fewer = 1
        elif upwards:
            self.next_more = now + <int64_t>max(INTERVAL, PATIENCE * lost)
            self.more = self.more * 2 if self.settled + self.more < self.most else 1
        else:
            self.next_fewer = now + <int64_t>max(SOON, PATIENCE_DISTURBED * lost)
            self.fewer = self.fewer * 2 if self.fewer < self.settled - 1 else 1
        self.trial = 0
        memset(&self.window, 0, sizeof(self.window))
