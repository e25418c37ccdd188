"""A limit on the threads of one process, which the system ignores for root and counts for all processes of a user."""

from __future__ import annotations

import ctypes
import functools
import os
import resource
import subprocess
import sys
from collections.abc import Callable

#: Linux: prctl(PR_CAPBSET_DROP), CAP_SYS_ADMIN and CAP_SYS_RESOURCE, with which the limit is ignored
DROP, RIGHTS = 24, (21, 24)


def few_threads(n: int) -> Callable[[], None]:
    """For ``preexec_fn``: the program may have ``n`` threads, its first included.

    It counts as a user of its own, and reads and writes files as root.  The hard limit stays as it is.
    """
    drop = ctypes.CDLL(None).prctl

    def prepare() -> None:
        for right in RIGHTS:
            if drop(DROP, right, 0, 0, 0) != 0:
                raise PermissionError("no right to give up rights")
        os.setresuid(20_000 + os.getpid() % 40_000, 0, 0)
        resource.setrlimit(resource.RLIMIT_NPROC, (n, resource.getrlimit(resource.RLIMIT_NPROC)[1]))

    return prepare


@functools.cache
def can_limit_threads() -> bool:
    """Whether :func:`few_threads` limits anything here."""
    if sys.platform != "linux" or os.geteuid() != 0:
        return False
    try:
        code = "import threading; threading.Thread(target=int).start()"
        return subprocess.run(
            [sys.executable, "-c", code], preexec_fn=few_threads(1), capture_output=True).returncode != 0
    except (OSError, subprocess.SubprocessError):
        return False
