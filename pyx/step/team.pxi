"""team: the threads of a step: how they share work and wait for each other, the cores on which they stay, and the clock
that measures its stages.
"""

cdef extern from "barrier.h" nogil:
    # all zero before the first barrier
    ctypedef struct team "struct team":
        pass
    # Each of the n threads calls it, and returns when all have called it.
    void team_barrier(team *, int n)

cdef extern from "hold.h" nogil:
    enum:
        MOST_CORES
    ctypedef struct core_set "cpu_set_t":
        pass
    # Some of the cores; all zero: any.
    ctypedef struct cores "struct cores":
        pass
    void cores_add(cores *, int core)
    # A worker of a step stays on the cores.
    void keep_on(const cores *)
    # Move the caller's thread there; if it was elsewhere, its mask must be restored after the step.
    int move_to(const cores *, core_set *before)
    void give_back(const core_set *before)

# The stages of a step, by which a thread's time is counted.
cdef enum stage:
    EMBED, NORM, QKV, ROPE, ATTEND, OUT, ROUTE, GATE_UP, DOWN, HEAD, WAIT, N_STAGE

# One thread's clock: nanoseconds in each stage, and when the last one ended; two cache lines.
cdef struct stage_clock:
    int64_t spent[N_STAGE]
    int64_t last
    int64_t unused[15 - N_STAGE]


cdef inline void lap(stage_clock *clock, stage which) noexcept nogil:
    """The time since the last call belongs to this stage; NULL: not measured."""
    cdef int64_t now
    if clock != NULL:
        now = now_ns()
        clock.spent[<int>which] += now - clock.last
        clock.last = now


cdef inline int64_t share(int64_t n, int64_t unit, int tid, int n_thread) noexcept nogil:
    """First of n items that belongs to thread tid; shares are whole units."""
    return min(n, (n + unit - 1) // unit * tid // n_thread * unit)
