"""The licences of everything inside a frozen program, in one text: their condition for giving copies away.

Packages inside are those of the closure (closure.py) and no others: one that came in by accident stops the freeze.
"""

from __future__ import annotations

import subprocess
import sysconfig
from importlib import metadata
from pathlib import Path

from closure import closure, stated
from packaging.utils import canonicalize_name


def text(modules: set[str], libraries: set[str], own: Path) -> str:
    """``modules``: top-level names inside; ``libraries``: files of shared libraries inside; ``own``: our LICENSE."""
    found = {"bitnet-edge": own.read_text(), "Python": _python()}
    owners = metadata.packages_distributions()
    inside = {canonicalize_name(name) for module in modules for name in owners.get(module, ())} - {"bitnet-edge"}
    needed, _ = closure(stated())
    if strangers := sorted(inside - needed.keys()):
        raise SystemExit(f"licenses: nothing that bitnet-edge depends on needs {', '.join(strangers)}; leave them out")
    for package in sorted(inside):
        distribution = needed[package]
        title = f"{distribution.name} {distribution.version}"
        files = [f for f in distribution.files or () if f.name.upper().startswith(("LICEN", "COPYING", "NOTICE"))]
        found[title] = "\n".join(Path(str(f.locate())).read_text(errors="replace") for f in files)
        if not files:
            fields = distribution.metadata
            found[title] = f"{fields['License-Expression'] or fields['License']}\n{fields['Home-page'] or ''}\n"
    for library in sorted(libraries):
        for owner in _debian_packages(library) - {"python3", *found}:
            copyright_ = Path("/usr/share/doc", owner, "copyright")
            if copyright_.exists():
                found[owner] = copyright_.read_text(errors="replace")
    return "\n".join(f"{'=' * 120}\n{title}\n{'=' * 120}\n{body.rstrip()}\n" for title, body in found.items())


def _python() -> str:
    """The interpreter's licence: next to its library, or where Debian keeps it."""
    version = sysconfig.get_python_version()
    places = [Path(sysconfig.get_path("stdlib"), "LICENSE.txt"), Path(f"/usr/share/doc/python{version}/copyright"),
              *Path("/usr/share/doc").glob(f"*python{version}*/copyright")]
    return next((place.read_text(errors="replace") for place in places if place.exists()), "PSF-2.0, www.python.org\n")


def _debian_packages(library: str) -> set[str]:
    """Names of the Debian packages that own a file; none elsewhere."""
    names = set()
    path = Path(library).resolve()
    for spelling in {str(path), str(path).removeprefix("/usr")}:  # dpkg knows files by the name they were packed under
        try:
            done = subprocess.run(["dpkg", "-S", spelling], capture_output=True, text=True)
        except OSError:
            return set()
        names |= {line.partition(":")[0] for line in done.stdout.splitlines()}
    return names
