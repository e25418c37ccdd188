# team: the threads of one step, which wait for each other between its stages, the cores on which they stay, and the
# clock that measures the stages.
from libc.stdint cimport int64_t

cdef extern from "barrier.h" nogil:
    # all zero before the first barrier
    ctypedef struct team "struct team":
        pass
    # Each of the n threads calls it, and returns when all have called it.
    void team_barrier(team *, int n)

# The number of threads, at most n, for the next parallel region of the calling thread, which must take as many.
cdef int claim(int n) noexcept

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

cdef extern from "clock.h" nogil:
    # nanoseconds of a clock that only increases
    int64_t now_ns()
    # nanoseconds that the calling thread has had a core
    int64_t core_ns()

# What a thread does while a step runs.
cdef enum stage:
    EMBED, NORM, QKV, ROPE, ATTEND, OUT, ROUTE, GATE_UP, DOWN, HEAD, WAIT, N_STAGE

# One thread's clock: nanoseconds in each stage, and when the last one ended; two cache lines.
cdef struct stage_clock:
    int64_t spent[N_STAGE]
    int64_t last
    int64_t unused[15 - N_STAGE]

# The time since the last call belongs to this stage; NULL: not measured.
cdef inline void lap(stage_clock *clock, stage which) noexcept nogil:
    cdef int64_t now
    if clock != NULL:
        now = now_ns()
        clock.spent[<int>which] += now - clock.last
        clock.last = now
