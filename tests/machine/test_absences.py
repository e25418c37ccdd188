"""What edge/machine needs of the operating system, taken away: the program answers, with the stated stand-ins.

A library in front of the system's refuses it in a whole process, compiled parts included.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from edge.machine import cores, linux, memory
from edge.machine.board import Board
from tests.kernel_builds import preloaded
from tests.services import in_python

REFUSES = r"""
#define _GNU_SOURCE
#undef _FILE_OFFSET_BITS
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdarg.h>
#include <string.h>
#include <sys/mman.h>

#define refuse(code) return errno = (code), -1
#define OPEN(name)                                                                                             \
    int name(const char *path, int flags, ...)                                                                 \
    {                                                                                                          \
        va_list rest;                                                                                          \
        va_start(rest, flags);                                                                                 \
        int mode = va_arg(rest, int);                                                                          \
        va_end(rest);                                                                                          \
        int (*real)(const char *, int, ...) = dlsym(RTLD_NEXT, #name);                                         \
        if (!strncmp(path, "/proc", 5) || !strncmp(path, "/sys", 4) || (flags & O_TMPFILE) == O_TMPFILE)        \
            refuse(EOPNOTSUPP);                                                                                \
        return real(path, flags, mode);                                                                        \
    }
OPEN(open)
OPEN(open64)
int sched_getaffinity(pid_t pid, size_t n, cpu_set_t *set) { refuse(ENOSYS); }
int sched_setaffinity(pid_t pid, size_t n, const cpu_set_t *set) { refuse(ENOSYS); }
int madvise(void *start, size_t n, int advice) { refuse(EINVAL); }
int posix_fadvise(int fd, off_t start, off_t n, int advice) { return EINVAL; }
int posix_fadvise64(int fd, off64_t start, off64_t n, int advice) { return EINVAL; }
"""

ANSWERS = """
import json, os, sys
import edge
from edge.machine import linux
from edge.machine.cores import find

with open(sys.executable, "rb") as file, linux.mmap.mmap(file.fileno(), 0, access=linux.mmap.ACCESS_READ) as map:
    linux.release(map)
    linux.drop_cached(file.fileno())
with edge.load(weights="huge", ctx=96, window=64, kv_offload=sys.argv[1]) as engine, engine.session() as session:
    text = session.complete("Once", max_tokens=160, temperature=0, ignore_eos=True).text
    print(json.dumps({
        "proc": linux.text("/proc/meminfo") is not None, "text": text, "error": session.state.offload_error,
        "cores": len(find().allowed), "rss": engine.rss(), "planned": engine.plan.total_bytes,
    }))
"""


def answer(folder: Path, **environment: str) -> dict:
    """What ANSWERS prints."""
    return json.loads(in_python(ANSWERS, folder, **environment))


def test_it_answers_without_all_of_it(tmp_path: Path) -> None:
    """No /proc and /sys, no masks of cores, no advice about pages, no unnamed files."""
    whole, seen = answer(tmp_path), answer(tmp_path, LD_PRELOAD=preloaded(tmp_path, REFUSES, "-ldl"))
    assert whole["proc"] and not seen["proc"]
    assert seen["text"] == whole["text"] and len(seen["text"]) > 100
    assert seen["error"] is None and not list(tmp_path.glob("tmp*")), "pages left the window, and no file is left"
    assert seen["rss"]["rss"] > 10_000_000 and seen["planned"] > 10_000_000
    assert seen["cores"] == os.cpu_count() and seen["rss"]["file"] == 0


def test_stand_ins_for_a_system_without_proc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nothing = str(tmp_path)
    assert memory.available_memory(nothing) is None and cores.quota(nothing) is None
    assert linux.text("/proc/meminfo", nothing) is linux.number("/proc/meminfo", nothing) is None
    assert Board(nothing).huge_pages() is None
    most = linux.peak()
    monkeypatch.setattr(linux, "text", lambda path, root="/": None)
    held = linux.rss()
    assert held["rss"] == held["anon"] >= most // 2 and held["file"] == 0
    assert (linux.disk_read(), linux.huge_bytes(), linux.libraries("omp")) == (0, 0, [])
