"""linux: what is asked of the operating system about this process and its files.

Nothing here fails: where the system does not answer, there is a stated stand-in (edge/machine/__init__.py).
"""

from __future__ import annotations

import mmap
import os
import re
from collections.abc import Iterator
from contextlib import suppress

SIOCGIFADDR = 0x8915  # netdevice(7): the address of an interface


def text(path: str, root: str = "/") -> str | None:
    """The text of a small system file, such as those below /proc and /sys; None if it cannot be read.

    ``root``: of a made-up machine, for tests.
    """
    try:
        with open(os.path.join(root, path.lstrip("/")), encoding="utf-8", errors="surrogateescape") as file:
            return file.read()
    except OSError:
        return None


def number(path: str, root: str = "/", base: int = 10) -> int | None:
    """A system file that holds one integer."""
    try:
        return int(text(path, root) or "", base)
    except ValueError:
        return None


def sizes(path: str, root: str = "/") -> dict[str, int]:
    """A system file with lines such as ``MemTotal: 8000000 kB``, in bytes; those without a number are left out."""
    found = re.findall(r"^([\w()]+):\s+(\d+)(?: kB)?$", text(path, root) or "", re.MULTILINE)
    return {name: int(value) * 1024 for name, value in found}


def control_groups(file: str, root: str = "/") -> Iterator[tuple[str, str]]:
    """(folder, text of its ``file``) of the control groups (version 2) of this process, and of all above them,
    which bind it, too.  In a container the path may be one of outside.
    """
    for line in (text("/proc/self/cgroup", root) or "").splitlines():
        if line.startswith("0::"):
            names = [name for name in line[3:].split("/") if name]
            for depth in range(len(names), -1, -1):
                folder = os.path.join("/sys/fs/cgroup", *names[:depth])
                if (found := text(f"{folder}/{file}", root)) is not None:
                    yield folder, found


def allowed_cores() -> set[int]:
    """The cores on which this process may run, by its affinity mask (taskset, cpusets); without such masks all."""
    try:
        return os.sched_getaffinity(0)
    except (AttributeError, OSError):
        return set(range(os.cpu_count() or 1))


def rss() -> dict[str, int]:
    """Resident bytes of this process: {"rss", "anon", "file"}; without /proc the most so far, and none of files."""
    found = sizes("/proc/self/status")
    if "VmRSS" in found:
        file = found.get("RssFile", 0) + found.get("RssShmem", 0)
        return {"rss": found["VmRSS"], "anon": found.get("RssAnon", 0), "file": file}
    most = peak()
    return {"rss": most, "anon": most, "file": 0}


def peak() -> int:
    """The most resident bytes so far; without /proc those that the parent of this process held may count, too."""
    import resource

    most = sizes("/proc/self/status").get("VmHWM")
    return most if most is not None else resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def huge_bytes() -> int:
    """Bytes of this process's own memory in pages of 2 MiB; 0 if unknown."""
    return sizes("/proc/self/smaps_rollup").get("AnonHugePages", 0)


def disk_read() -> int:
    """Bytes that this process has read from the disk so far; 0 if unknown."""
    match = re.search(r"^read_bytes: (\d+)$", text("/proc/self/io") or "", re.MULTILINE)
    return int(match[1]) if match else 0


def libraries(pattern: str) -> list[str]:
    """Paths of the mapped files that match a regular expression; none if unknown."""
    lines = (text("/proc/self/maps") or "").splitlines()
    return sorted({line.split()[-1] for line in lines if re.search(pattern, line)})


def vcgencmd(word: str) -> str:
    """The answer of the firmware of a Raspberry Pi; empty elsewhere."""
    import subprocess

    try:
        return subprocess.run(["vcgencmd", word], capture_output=True, text=True, timeout=5).stdout
    except (OSError, ValueError, subprocess.SubprocessError):
        return ""


def addresses() -> list[str]:
    """Addresses at which other machines reach this one, those of IPv4 first; nobody else is asked for them."""
    import fcntl
    import socket
    import struct

    found = []
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as channel:
        for _, name in socket.if_nameindex():
            with suppress(OSError):  # it has none
                told = fcntl.ioctl(channel.fileno(), SIOCGIFADDR, struct.pack("256s", os.fsencode(name)))
                found.append(socket.inet_ntoa(told[20:24]))
    for line in (text("/proc/net/if_inet6") or "").splitlines():
        digits, _, _, scope, *_ = line.split()
        if scope == "00":  # global
            found.append(socket.inet_ntop(socket.AF_INET6, bytes.fromhex(digits)))
    return [each for each in found if not each.startswith("127.")]


def open_files() -> int:
    """The number of files and connections that this process may have open: its soft limit, raised to the hard one."""
    import resource

    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return soft if soft != resource.RLIM_INFINITY else 1 << 20


def release(map: mmap.mmap) -> None:
    """Release the pages of a file's map from this process's memory; they stay in the system's cache."""
    with suppress(AttributeError, OSError):
        map.madvise(mmap.MADV_DONTNEED)


def drop_cached(fd: int) -> None:
    """Drop a file that is on disk from the system's cache, so that its next reader reads it in order."""
    with suppress(AttributeError, OSError):
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
