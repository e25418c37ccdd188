"""cpu: which kernels this processor can run.

The target is chosen once, on first use: the best the processor supports, or the one named by ``BITNET_EDGE_ISA``.
"""

cdef extern from "kernels.h" nogil:
    const kernels *const *kernels_all(int *n)
    int kernels_supported(const kernels *target)
    const kernels *kernels_best()
    const kernels *kernels_named(const char *name)
    int kernels_known(const char *name)
    kernels_choices kernels_chosen
    void kernels_choose(kernels_choices choices)

cdef const kernels *chosen = NULL

#: how the next weights are fetched, as kernels.h numbers the ways: in the order of memory, into the first-level cache;
#: the same, but to be replaced first, as they are used once; into the second level; or row by row, into the second
#: level
FETCHES = ("L1", "once", "L2", "rows")


cdef const kernels *active() except NULL:
    """The kernels of the target in use; chooses it on the first call."""
    if chosen == NULL:
        use(os.environ.get("BITNET_EDGE_ISA") or "auto")
    return chosen


def use(str name not None):
    """Choose a target by name, or the best with "auto".

    Raises ValueError for an unknown name and RuntimeError for one that this processor cannot run.
    """
    global chosen
    cdef const kernels *target
    if name == "auto":
        chosen = kernels_best()
        choose()
        return
    encoded = name.encode()
    target = kernels_named(encoded)
    if target == NULL and kernels_known(encoded):
        raise RuntimeError(f"{name!r} is not in this build; this processor can run: {', '.join(supported())}")
    if target == NULL:
        raise ValueError(f"instruction set {name!r} is not known here; known: {', '.join(isas())}")
    if not kernels_supported(target):
        raise RuntimeError(f"this processor cannot run {name!r}; it can run: {', '.join(supported())}")
    chosen = target
    choose()


def choose(way=None):
    """Choose how weights are read.  Answers are the same bits.

    ``way``: (rows read side by side: 1, 2 or 4; one of FETCHES; bytes fetched ahead), or None: as the target does by
    itself.  Not while a step runs.  Raises ValueError for values out of range.
    """
    cdef kernels_choices choices = active().own
    if way is not None:
        rows, fetch, ahead = way
        if rows not in (1, 2, 4) or fetch not in FETCHES or not 0 <= ahead <= 1 << 20:
            raise ValueError(f"{rows} rows, {fetch}, {ahead} bytes ahead are out of range")
        choices.rows, choices.fetch, choices.ahead = rows, FETCHES.index(fetch), ahead
    kernels_choose(choices)


def chosen_now():
    """How weights are read, as :func:`choose` takes it."""
    return kernels_chosen.rows, FETCHES[kernels_chosen.fetch], kernels_chosen.ahead


def isa():
    """Name of the target in use."""
    return active().name.decode()


def isas():
    """Names of all targets in this build, the best last."""
    cdef int n = 0
    cdef const kernels *const *targets = kernels_all(&n)
    return [targets[i].name.decode() for i in range(n)]


def supported():
    """Names of the targets that this processor can run, the best last."""
    cdef int n = 0
    cdef const kernels *const *targets = kernels_all(&n)
    return [targets[i].name.decode() for i in range(n) if kernels_supported(targets[i])]
