"""A Debian package out of a frozen folder: python packaging/deb/build.py dist/bitnet-edge-MACHINE [OUTPUT FOLDER]

The package holds the one-folder program (which needs neither Python nor a writable /tmp), the service, completions and
the kiosk examples.  Its architecture is that of the program inside, whatever machine builds it; the
same input gives the same bytes.  Needs dpkg-deb.
"""

from __future__ import annotations

import gzip
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
sys.path.insert(0, str(ROOT))

from edge import __version__  # noqa: E402

#: e_machine of the program -> Debian's name of the architecture
MACHINES = {62: "amd64", 183: "arm64"}

CONTROL = """\
Package: bitnet-edge
Version: {version}
Architecture: {architecture}
Maintainer: the bitnet-edge project <bitnet-edge@localhost.invalid>
Installed-Size: {size}
{depends}Suggests: espeak-ng, python3
Section: science
Priority: optional
Description: language model that answers on this machine, offline
 A ternary (BitNet b1.58) language model answers on a Raspberry Pi or any
 64-bit ARM or x86 machine, in memory that is known beforehand. With a small
 demonstration model, a service on a unix socket, and an example of a kiosk.
"""


class Failed(Exception):
    """Why there is no package, in one line."""


def is_elf(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(4) == b"\x7fELF"


def architecture(program: Path) -> str:
    """Debian's name; "all" for a script, which only tests pack."""
    if not is_elf(program):
        return "all"
    with program.open("rb") as file:
        machine = int.from_bytes(file.read(20)[18:20], "little")
    if machine not in MACHINES:
        raise Failed(f"{program} is for machine {machine}, which is neither x86-64 nor aarch64")
    return MACHINES[machine]


def glibc(folder: Path) -> str | None:
    """The newest glibc symbol version that any file inside asks for: "2.36"."""
    found = set()
    for path in folder.rglob("*"):
        if path.is_file() and not path.is_symlink() and is_elf(path):
            found |= {int(minor) for minor in re.findall(rb"\0GLIBC_2\.(\d+)(?:\.\d+)?(?=\0)", path.read_bytes())}
    return f"2.{max(found)}" if found else None


def put(source: Path, target: Path, mode: int = 0o644) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, target)
    target.chmod(mode)


def stage(folder: Path, tree: Path) -> None:
    """Lay out all files of the package below ``tree``."""
    program = tree / "usr/lib/bitnet-edge"
    shutil.copytree(folder, program, symlinks=True)
    for path in program.rglob("*"):
        if not path.is_symlink():
            run = path.stat().st_mode & 0o100 and ".so" not in path.name
            path.chmod(0o755 if path.is_dir() or run else 0o644)
    (tree / "usr/bin").mkdir(parents=True)
    (tree / "usr/bin/bitnet-edge").symlink_to("../lib/bitnet-edge/bitnet-edge")

    put(ROOT / "packaging" / "systemd" / "bitnet-edge.service", tree / "usr/lib/systemd/system/bitnet-edge.service")
    put(HERE / "bitnet-edge.sysusers", tree / "usr/lib/sysusers.d/bitnet-edge.conf")
    put(HERE / "bitnet-edge.default", tree / "etc/default/bitnet-edge")
    put(HERE / "bitnet-edge.lintian", tree / "usr/share/lintian/overrides/bitnet-edge")
    for shell, target in (
        ("bash", "bash-completion/completions/bitnet-edge"),
        ("zsh", "zsh/vendor-completions/_bitnet-edge"),
        ("fish", "fish/vendor_completions.d/bitnet-edge.fish"),
    ):
        path = tree / "usr/share" / target
        path.parent.mkdir(parents=True)
        asking = {**os.environ, "_BITNET_EDGE_COMPLETE": f"{shell}_source"}
        command = [sys.executable, "-m", "edge"]
        path.write_bytes(subprocess.run(command, cwd=ROOT, env=asking, check=True, capture_output=True).stdout)

    about = tree / "usr/share/doc/bitnet-edge"
    kiosk = ROOT / "examples" / "kiosk"
    settings = sorted(path for path in (kiosk / "etc").rglob("*") if path.is_file())
    for example in (kiosk / "house.txt", kiosk / "kiosk.toml", kiosk / "kiosk.sh", kiosk / "kiosk.py", *settings):
        mode = 0o755 if example.suffix in (".sh", ".py") else 0o644
        put(example, about / "examples" / example.relative_to(kiosk), mode)
    for page in ("kiosk.md", "contract.md", "cli.md"):
        put(ROOT / "docs" / page, about / page)
    licences = next(folder.rglob("LICENSES.txt"), ROOT / "LICENSE")  # of all that is frozen in
    put(licences, about / "copyright")
    (about / "changelog.gz").write_bytes(gzip.compress((ROOT / "CHANGELOG.md").read_bytes(), 9, mtime=0))


def describe(folder: Path, tree: Path) -> str:
    """Write DEBIAN/; returns the architecture."""
    kind = architecture(folder / "bitnet-edge")
    floor = glibc(folder)
    libraries = [path for path in folder.rglob("libpython*") if path.is_file()]
    expat = ", libexpat1" * any(b"\0libexpat.so.1\0" in path.read_bytes() for path in libraries)  # Debian's
    files = sorted(path for path in tree.rglob("*") if path.is_file() and not path.is_symlink())
    debian = tree / "DEBIAN"
    debian.mkdir()
    digests = subprocess.run(
        ["md5sum", *(str(path.relative_to(tree)) for path in files)], cwd=tree, check=True, capture_output=True
    )
    (debian / "md5sums").write_bytes(digests.stdout)
    (debian / "conffiles").write_text("/etc/default/bitnet-edge\n")
    (debian / "control").write_text(
        CONTROL.format(
            version=__version__,
            architecture=kind,
            size=sum(-(-path.stat().st_size // 1024) for path in files),
            depends=f"Depends: libc6 (>= {floor}){expat}\nRecommends: libstdc++6\n" if floor else "",
        )
    )
    for script in ("postinst", "prerm", "postrm"):
        put(HERE / script, debian / script, 0o755)
    return kind


def epoch() -> int:
    """The time that every file gets: SOURCE_DATE_EPOCH, else that of the last commit."""
    given = os.environ.get("SOURCE_DATE_EPOCH")
    if given is None:
        done = subprocess.run(["git", "log", "-1", "--format=%ct"], cwd=ROOT, capture_output=True, text=True)
        given = done.stdout.strip() or "1700000000"
    return int(given)


def build(folder: Path, out: Path) -> Path:
    """The package, as a file in ``out``."""
    if not os.access(folder / "bitnet-edge", os.X_OK) or not (folder / "bitnet-edge").is_file():
        raise Failed(f"{folder}/bitnet-edge is no program; make freeze makes it")
    if shutil.which("dpkg-deb") is None:
        raise Failed("dpkg-deb is missing; type: sudo apt-get install -y dpkg")
    os.umask(0o022)
    time = epoch()
    with tempfile.TemporaryDirectory(prefix="bitnet-edge-deb-") as temporary:
        tree = Path(temporary) / "tree"
        stage(folder, tree)
        kind = describe(folder, tree)
        for path in tree.rglob("*"):
            if path.is_dir():
                path.chmod(0o755)
            os.utime(path, (time, time), follow_symlinks=False)
        out.mkdir(parents=True, exist_ok=True)
        package = out / f"bitnet-edge_{__version__}_{kind}.deb"
        command = ["dpkg-deb", "--root-owner-group", "-Zxz", "--build", str(tree), str(package)]
        done = subprocess.run(
            command, env={**os.environ, "SOURCE_DATE_EPOCH": str(time)}, capture_output=True, text=True
        )
        if done.returncode:
            raise Failed(f"dpkg-deb: {' '.join(done.stderr.split())}")
    return package


def main() -> int:
    """Build and say where it is."""
    if len(sys.argv) not in (2, 3):
        print("build: a frozen folder, please, and perhaps an output folder", file=sys.stderr)
        return 2
    try:
        package = build(Path(sys.argv[1]), Path(sys.argv[2] if len(sys.argv) == 3 else "dist"))
    except (Failed, OSError, subprocess.CalledProcessError) as error:
        print(f"build: {error}", file=sys.stderr)
        return 1
    print(package)
    return 0


if __name__ == "__main__":
    sys.exit(main())
