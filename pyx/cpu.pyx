"""cpu: which kernels this processor can run.

The row is chosen once, on first use: the best the processor supports, or the one named by ``BITNET_EDGE_ISA``.
"""

import os

cdef extern from "kernels.h" nogil:
    const kernels *const *kernels_all(int *n)
    int kernels_supported(const kernels *row)
    const kernels *kernels_best()
    const kernels *kernels_named(const char *name)

cdef const kernels *chosen = NULL

#: the rows of every architecture, so that a name from another one is told from a misspelt one
ALL_ROWS = ("scalar", "sse41", "avx2", "avxvnni", "avx512vnni", "neon", "dotprod", "i8mm")


cdef const kernels *active() except NULL:
    """The kernel table in use; chooses it on the first call."""
    if chosen == NULL:
        use(os.environ.get("BITNET_EDGE_ISA") or "auto")
    return chosen


def use(str name not None):
    """Choose a row by name, or the best with "auto".

    Raises ValueError for an unknown name and RuntimeError for one that this processor cannot run.
    """
    global chosen
    cdef const kernels *row
    if name == "auto":
        chosen = kernels_best()
        return
    encoded = name.encode()
    row = kernels_named(encoded)
    if row == NULL and name in ALL_ROWS:
        raise RuntimeError(f"{name!r} is for other processors; this one can run: {', '.join(supported())}")
    if row == NULL:
        raise ValueError(f"instruction set {name!r} is not known here; known: {', '.join(isas())}")
    if not kernels_supported(row):
        raise RuntimeError(f"this processor cannot run {name!r}; it can run: {', '.join(supported())}")
    chosen = row


def isa():
    """Name of the row in use."""
    return active().name.decode()


def isas():
    """Names of all rows in this build, best last."""
    cdef int n = 0
    cdef const kernels *const *rows = kernels_all(&n)
    return [rows[i].name.decode() for i in range(n)]


def supported():
    """Names of the rows that this processor can run, best last."""
    cdef int n = 0
    cdef const kernels *const *rows = kernels_all(&n)
    return [rows[i].name.decode() for i in range(n) if kernels_supported(rows[i])]
