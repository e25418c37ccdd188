# pace: how many threads the next step takes, so that a busy machine does not slow it down.
from libc.stdint cimport int64_t

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

cdef class Pace:
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
    cpdef int threads(self)
    cpdef took(self, int64_t n_row, int64_t begun, int64_t now, int64_t core)
    cdef watch(self, int64_t now)
    cdef begin(self, int n)
    cdef judge(self, int64_t now)
