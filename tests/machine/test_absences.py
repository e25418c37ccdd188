"""What edge/machine needs of the operating system, taken away: the program answers, with the stated stand-ins.

A library in front of the system's refuses one thing in a whole process, compiled parts included.
"""

from __future__ import annotations

import json
import mmap
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from edge.machine import cores, linux, memory
from edge.machine.board import Board
from tests.kernel_builds import tool

ROOT = Path(__file__).resolve().parents[2]

REFUSES = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#define refuse(code) return errno = (code), -1

static int refused(const char *path, int flags)
{
#ifdef PROC
    if (strncmp(path, "/proc", 5) == 0 || strncmp(path, "/sys", 4) == 0)
        return ENOENT;
#endif
#ifdef GROUPS
    if (strcmp(path, "/proc/self/cgroup") == 0 || strncmp(path, "/sys/fs/cgroup", 14) == 0)
        return ENOENT;
#endif
#ifdef UNNAMED
    if ((flags & O_TMPFILE) == O_TMPFILE)
        return EOPNOTSUPP;
#endif
    return 0;
}

#define OPEN(name)                                                     \
    int name(const char *path, int flags, ...)                         \
    {                                                                  \
        va_list rest;                                                  \
        va_start(rest, flags);                                         \
        int mode = va_arg(rest, int), code = refused(path, flags);     \
        va_end(rest);                                                  \
        int (*real)(const char *, int, ...) = dlsym(RTLD_NEXT, #name); \
        if (code)                                                      \
            refuse(code);                                              \
        return real(path, flags, mode);                                \
    }
OPEN(open)
OPEN(open64)

#ifdef AFFINITY
int sched_getaffinity(pid_t pid, size_t n, cpu_set_t *set) { refuse(ENOSYS); }
int sched_setaffinity(pid_t pid, size_t n, const cpu_set_t *set) { refuse(ENOSYS); }
#endif
#ifdef ADVICE
int madvise(void *start, size_t n, int advice) { refuse(EINVAL); }
int posix_fadvise(int fd, off_t start, off_t n, int advice) { return EINVAL; }
int posix_fadvise64(int fd, off64_t start, off64_t n, int advice) { return EINVAL; }
#endif
"""

ANSWERS = """
import json, os, sys
import edge
from edge.machine import linux
from edge.machine.cores import find

found = {"memory": linux.text("/proc/meminfo") is not None, "group": linux.text("/proc/self/cgroup") is not None}
try:
    found["affinity"] = bool(os.sched_getaffinity(0))
except OSError:
    found["affinity"] = False
try:
    os.close(os.open(sys.argv[1], os.O_RDWR | os.O_TMPFILE))
    found["unnamed"] = True
except OSError:
    found["unnamed"] = False
with open(sys.executable, "rb") as file, linux.mmap.mmap(file.fileno(), 0, access=linux.mmap.ACCESS_READ) as map:
    linux.release(map)
    linux.drop_cached(file.fileno())
    try:
        map.madvise(linux.mmap.MADV_NORMAL)
        found["advice"] = True
    except OSError:
        found["advice"] = False

with edge.load(weights="huge", ctx=96, window=64, kv_offload=sys.argv[1]) as engine, engine.session() as session:
    text = session.complete("Once", max_tokens=160, temperature=0, ignore_eos=True).text
    print(json.dumps({
        "found": found, "text": text, "error": session.offload_error, "cores": len(find().allowed),
        "rss": engine.rss(), "planned": engine.plan.total_bytes,
    }))
"""


def answer(folder: Path, missing: str) -> dict:
    """What ANSWERS prints in a process without one thing, "" for none."""
    library = folder / f"without-{missing}.so"
    source = folder / "refuses.c"
    source.write_text(REFUSES)
    flags = ["-shared", "-fPIC", "-D_FILE_OFFSET_BITS=32", *([f"-D{missing}"] if missing else [])]
    subprocess.run([tool("gcc", "cc"), *flags, "-o", library, source, "-ldl"], check=True)
    done = subprocess.run(
        [sys.executable, "-c", ANSWERS, str(folder)], cwd=ROOT, env={**os.environ, "LD_PRELOAD": str(library)},
        capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> dict:
    return answer(tmp_path_factory.mktemp("whole"), "")


@pytest.mark.parametrize(("missing", "gone"), [
    ("AFFINITY", {"affinity"}), ("PROC", {"memory", "group"}), ("ADVICE", {"advice"}), ("UNNAMED", {"unnamed"}),
    ("GROUPS", {"group"}),
])
def test_it_answers_without(tmp_path: Path, whole: dict, missing: str, gone: set[str]) -> None:
    assert all(whole["found"].values()), "what is taken away must be there"
    seen = answer(tmp_path, missing)
    assert {name for name, there in seen["found"].items() if not there} == gone
    assert seen["text"] == whole["text"] and len(seen["text"]) > 100
    assert seen["error"] is None and not list(tmp_path.glob("tmp*")), "pages left the window, and no file is left"
    assert seen["rss"]["rss"] > 10_000_000 and seen["planned"] > 10_000_000
    if missing == "AFFINITY":
        assert seen["cores"] == os.cpu_count()
    if missing == "PROC":
        assert seen["rss"]["file"] == 0


def test_stand_ins_for_a_system_without_proc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nothing = str(tmp_path)
    assert memory.available_memory(nothing) is None and cores.quota(nothing) is None
    assert linux.text("/proc/meminfo", nothing) is linux.number("/proc/meminfo", nothing) is None
    assert not linux.lies_in_memory(nothing, nothing) and Board(nothing).huge_pages() is None
    most = linux.peak()
    monkeypatch.setattr(linux, "text", lambda path, root="/": None)
    held = linux.rss()
    assert held["rss"] == held["anon"] >= most // 2 and held["file"] == 0
    assert (linux.disk_read(), linux.huge_bytes(), linux.libraries("omp")) == (0, 0, [])


def test_stand_ins_for_calls_that_are_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on systems whose Python has none of them."""
    for owner, name in ((os, "sched_getaffinity"), (os, "posix_fadvise"), (mmap, "MADV_DONTNEED")):
        monkeypatch.delattr(owner, name)
    assert linux.allowed_cores() == set(range(os.cpu_count() or 1)) and cores.find().threads >= 1
    with tempfile.TemporaryFile() as file:
        file.write(bytes(4096))
        file.flush()
        with mmap.mmap(file.fileno(), 4096) as map:
            linux.release(map)
            linux.drop_cached(file.fileno())
            assert map[:] == bytes(4096)


def test_a_signal_that_waits(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", "import time; print(flush=True); time.sleep(600)"],
                          stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        assert not linux.signal_waits(process.pid, signal.SIGINT)
        process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WNOWAIT)
        process.send_signal(signal.SIGINT)
        assert linux.signal_waits(process.pid, signal.SIGINT)
        assert not linux.signal_waits(process.pid, signal.SIGTERM)
        assert not linux.signal_waits(process.pid, signal.SIGINT, str(tmp_path))
        process.kill()


def test_a_file_system_made_of_memory_is_known(tmp_path: Path) -> None:
    mounts = tmp_path / "proc/self/mountinfo"
    mounts.parent.mkdir(parents=True)
    device = os.stat(tmp_path).st_dev
    name = f"{os.major(device)}:{os.minor(device)}"
    for kind, expected in (("ext4", False), ("tmpfs", True), ("ramfs", True)):
        mounts.write_text(f"21 1 0:99 / /x rw - proc proc rw\n36 35 {name} / / rw,noatime shared:1 - {kind} none rw\n")
        assert linux.lies_in_memory(str(tmp_path), str(tmp_path)) is expected
    mounts.write_text("garbage\n")
    assert linux.lies_in_memory(str(tmp_path), str(tmp_path)) is False
    assert linux.lies_in_memory(str(tmp_path / "none")) is False
