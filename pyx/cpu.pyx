"""cpu: which kernels this processor can run.

The target is chosen once, on first use: the best the processor supports, or the one named by ``BITNET_EDGE_ISA``.
"""

import os

cdef extern from "kernels.h" nogil:
    const kernels *const *kernels_all(int *n)
    int kernels_supported(const kernels *target)
    const kernels *kernels_best()
    const kernels *kernels_named(const char *name)
    kernels_choices kernels_chosen
    int64_t kernels_many(int64_t own)
    void kernels_choose(int64_t ahead, int64_t many_tokens)

cdef const kernels *chosen = NULL

#: the targets of every architecture, to tell one that this build lacks from a misspelt name
ALL_TARGETS = ("scalar", "sse41", "avx2", "avxvnni", "avx512vnni", "neon", "dotprod", "i8mm")


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
        return
    encoded = name.encode()
    target = kernels_named(encoded)
    if target == NULL and name in ALL_TARGETS:
        raise RuntimeError(f"{name!r} is not in this build; this processor can run: {', '.join(supported())}")
    if target == NULL:
        raise ValueError(f"instruction set {name!r} is not known here; known: {', '.join(isas())}")
    if not kernels_supported(target):
        raise RuntimeError(f"this processor cannot run {name!r}; it can run: {', '.join(supported())}")
    chosen = target


cdef int64_t many_tokens(const kernels *kernel) noexcept nogil:
    return kernels_many(kernel.many_tokens)


def choose(int64_t ahead=0, int64_t many_tokens=0):
    """Choose how many bytes streams are fetched ahead, and from how many tokens on kernels do what pays for many only;
    0: what this build has by itself.  Answers are the same bits.

    Not while a step runs.  Raises ValueError for values out of range.
    """
    if not 0 <= ahead <= 1 << 20 or many_tokens and not 16 <= many_tokens <= 1 << 20:
        raise ValueError(f"{ahead} bytes ahead, {many_tokens} tokens are out of range")
    kernels_choose(ahead, many_tokens)


def chosen_now():
    """(bytes that streams are fetched ahead, tokens from which kernels do what pays for many only)."""
    return kernels_chosen.ahead, kernels_many(active().many_tokens)


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
