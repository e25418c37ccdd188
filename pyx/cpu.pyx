"""cpu: which kernels this processor can run, and which cores it has.

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


def _read_text(path):
    try:
        with open(path) as file:
            return file.read()
    except (OSError, ValueError):
        return None


def _read_number(path):
    try:
        return int(_read_text(path) or "")
    except ValueError:
        return None


def cores():
    """Threads worth having: the performance cores in the affinity mask (taskset, cpusets), as far as a control group's
    quota (docker --cpus, systemd CPUQuota=) lets us use them; at least 1.

    A big.LITTLE board slows to the pace of its little cores when they share a barrier, so they are left out.
    """
    allowed, most = _performance_cores(), quota()
    return allowed if most is None else max(1, min(allowed, round(most)))


def quota(root="/"):
    """Cores' worth of time that control groups (version 1 or 2) allow this process, such as 1.5; None: no limit."""
    groups = "sys/fs/cgroup"
    least = None
    for line in (_read_text(os.path.join(root, "proc/self/cgroup")) or "").splitlines():
        _, controllers, path = line.split(":", 2) if line.count(":") > 1 else ("", "", "")
        if controllers and "cpu" not in controllers.split(","):
            continue
        mounts = (controllers, "cpu") if controllers else ("", "unified")
        while True:  # a group is bound by all groups above it; in a container the path may be one of outside
            for mount in mounts:
                found = _quota_of(os.path.join(root, groups, mount, path.strip("/")))
                if found is not None and (least is None or found < least):
                    least = found
            if path.strip("/") == "":
                break
            path = os.path.dirname(path)
    return least


def _quota_of(folder):
    """Cores' worth of one group, None: no limit."""
    limit, _, period = (_read_text(os.path.join(folder, "cpu.max")) or "").partition(" ")
    if not period:
        limit = _read_text(os.path.join(folder, "cpu.cfs_quota_us")) or ""
        period = _read_text(os.path.join(folder, "cpu.cfs_period_us")) or ""
    try:
        limit, period = int(limit), int(period)
    except ValueError:  # "max"
        return None
    return limit / period if limit > 0 and period > 0 else None


def _performance_cores():
    allowed = sorted(os.sched_getaffinity(0))
    base = "/sys/devices/system/cpu/cpu{}/{}"
    for what in ("cpu_capacity", "cpufreq/cpuinfo_max_freq"):
        rates = [_read_number(base.format(cpu, what)) for cpu in allowed]
        if all(rate is not None for rate in rates):
            best = max(rates)
            return sum(rate * 10 >= best * 8 for rate in rates)
    return len(allowed)
