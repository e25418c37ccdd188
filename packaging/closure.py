"""The closure of what the program needs: every distribution, from the packages' own metadata.

    python packaging/closure.py [EXTRA...]       name==version of each, as installed here
    python packaging/closure.py --unpack FOLDER --python 3.11 --machine aarch64 [EXTRA...]
                                                 their wheels for another machine in FOLDER, in the same versions

It begins with the `dependencies` of pyproject.toml and of the extras named, and follows the metadata of each package
with the markers evaluated for the target: a package that only Python 3.10 needs is in the list there and nowhere else.
What the target needs and this environment has not, or has in a version without a wheel for the target, is taken in the
newest version that the requirement allows.
"""

from __future__ import annotations

import argparse
import platform
import subprocess
import sys
import sysconfig
from collections.abc import Iterable
from importlib import metadata
from pathlib import Path

from packaging.markers import default_environment
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parent.parent


def stated(*extras: str) -> list[Requirement]:
    """The requirements of pyproject.toml."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    lines = [*project["dependencies"], *(line for extra in extras for line in project["optional-dependencies"][extra])]
    return [Requirement(line) for line in lines]


def here() -> dict[str, str]:
    """The variables of markers of this interpreter."""
    return {name: str(value) for name, value in default_environment().items()}


def target(python: str, machine: str) -> dict[str, str]:
    """The variables of markers on a Linux machine with CPython; ``python`` is 3.11, say."""
    return {**here(), "python_version": python, "python_full_version": f"{python}.0",
            "implementation_version": f"{python}.0", "platform_machine": machine}


def closure(
    wanted: Iterable[Requirement], environment: dict[str, str] | None = None, path: list[str] | None = None
) -> tuple[dict[str, metadata.Distribution], list[Requirement]]:
    """({canonical name: distribution}, requirements that are not installed) of all that ``wanted`` leads to.

    ``environment``: the variables of markers (default: of this interpreter).  ``path``: folders with the metadata
    (default: sys.path).
    """
    variables = here() if environment is None else environment
    folders = sys.path if path is None else path
    found: dict[str, metadata.Distribution] = {}
    missing: dict[str, Requirement] = {}
    seen: set[tuple[str, str]] = set()  # (name, extra): each is followed once, "" without one
    waiting = [(requirement, "") for requirement in wanted]
    while waiting:
        requirement, of_extra = waiting.pop()
        if requirement.marker is not None and not requirement.marker.evaluate({**variables, "extra": of_extra}):
            continue
        name = canonicalize_name(requirement.name)
        if name not in found:
            installed = next(iter(metadata.distributions(name=requirement.name, path=folders)), None)
            if installed is None:
                missing[name] = requirement
                continue
            found[name] = installed
        needs = [Requirement(line) for line in found[name].requires or ()]
        for extra in {"", *requirement.extras} - {extra for seen_name, extra in seen if seen_name == name}:
            seen.add((name, extra))
            waiting += [(need, extra) for need in needs]
    return dict(sorted(found.items())), [missing[name] for name in sorted(missing)]


def pins(found: dict[str, metadata.Distribution]) -> list[str]:
    return [f"{name}=={each.version}" for name, each in found.items()]


def unpack(folder: Path, python: str, machine: str, extras: list[str]) -> list[str]:
    """Make ``folder`` hold the wheels for such a machine, with pip here; returns the pins of all."""
    environment = target(python, machine)
    versions = {canonicalize_name(each.name): each.version for each in metadata.distributions() if each.name}
    platforms = [f"manylinux_2_{minor}_{machine}" for minor in range(36, 16, -1)] + [f"manylinux2014_{machine}"]
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-input", "--quiet", "install", "--no-deps",
           *(["--no-compile"] if python != sysconfig.get_python_version() else []),  # ours would be of no use there
           "--only-binary=:all:", "--implementation", "cp", "--python-version", python,
           *(f"--platform={tag}" for tag in platforms), "--target", str(folder)]
    while True:
        found, missing = closure(stated(*extras), environment, [str(folder)])
        if not missing:
            return pins(found)
        names = {canonicalize_name(need.name): f"{need.name}{need.specifier}" for need in missing}
        same = [f"{name}=={versions[name]}" if name in versions else wanted for name, wanted in names.items()]
        if subprocess.run([*pip, *same], capture_output=True).returncode != 0:  # some have no such wheel
            for one, wanted in zip(same, names.values(), strict=True):
                if subprocess.run([*pip, one], capture_output=True).returncode != 0:
                    subprocess.run([*pip, wanted], check=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("extras", nargs="*", help="extras of pyproject.toml, in addition to its dependencies")
    parser.add_argument("--unpack", type=Path, metavar="FOLDER", help="fetch the wheels of another machine into FOLDER")
    parser.add_argument("--python", default=sysconfig.get_python_version(), help="its Python (default: this one's)")
    parser.add_argument("--machine", default=platform.machine(), help="its processor, as uname -m names it")
    options = parser.parse_args()
    if options.unpack is not None:
        print(*unpack(options.unpack, options.python, options.machine, options.extras), sep="\n")
        return 0
    found, missing = closure(stated(*options.extras))
    if missing:
        print("closure: not installed: " + ", ".join(map(str, missing)), file=sys.stderr)
        return 1
    print(*pins(found), sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
