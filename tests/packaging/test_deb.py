"""The Debian package: what is in it, and installed, upgraded, removed and purged in a root of the test's own.

A stand-in for the frozen program (a script that runs this tree) makes these tests cheap; the last ones take what
`make freeze` has left in dist/, where it has.
"""

from __future__ import annotations

import gzip
import os
import platform
import re
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import click
import pytest

from edge import __version__
from edge.cli.group import cli
from tests.http_service import service
from tests.packaging.test_freeze import promised, spec
from tests.services import ROOT, asked, environment

BUILD = ROOT / "packaging" / "deb" / "build.py"

pytestmark = pytest.mark.skipif(
    not (shutil.which("dpkg") and shutil.which("dpkg-deb")), reason="no dpkg here: packages are for Debian"
)


def build(folder: Path, out: Path, **extra: str) -> Path:
    """Run the program that `make deb` runs."""
    done = subprocess.run(
        [sys.executable, str(BUILD), str(folder), str(out)], capture_output=True, text=True, env=environment(**extra)
    )
    assert done.returncode == 0, done.stderr
    package = Path(done.stdout.strip())
    assert package.parent == out
    return package


@pytest.fixture(scope="module")
def stand_in(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder like the one that PyInstaller makes."""
    folder = tmp_path_factory.mktemp("frozen") / "bitnet-edge-noarch"
    (folder / "_internal" / "edge" / "bundled").mkdir(parents=True)
    program = folder / "bitnet-edge"
    program.write_text(f'#!/bin/sh\nPYTHONPATH="{ROOT}" exec "{sys.executable}" -m edge "$@"\n')
    program.chmod(0o755)
    (folder / "_internal" / "edge" / "bundled" / "odd name.txt").write_text("data")
    (folder / "_internal" / "data").write_text("private")
    (folder / "_internal" / "data").chmod(0o600)  # whoever froze it had a narrow umask
    (folder / "_internal" / "LICENSES.txt").write_text("the licences of all parts\n")
    (folder / "_internal" / "link").symlink_to("data")
    return folder


@pytest.fixture(scope="module")
def package(stand_in: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(stand_in, tmp_path_factory.mktemp("out"))


@pytest.fixture(scope="module")
def tree(package: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files of the package, unpacked."""
    folder = tmp_path_factory.mktemp("tree")
    subprocess.run(["dpkg-deb", "--extract", str(package), str(folder)], check=True)
    return folder


class Root:
    """A Debian system as far as dpkg sees it: a database, with the newest of the libraries that the program may need,
    and nothing else.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        database = path / "var/lib/dpkg"
        for name in ("updates", "info", "parts", "triggers", "alternatives"):
            (database / name).mkdir(parents=True)
        rest = "Status: install ok installed\nMaintainer: x <x@localhost.invalid>\n" \
               f"Architecture: {self.architecture()}\nVersion: 2.99\nDescription: stand-in\n"
        (database / "status").write_text("\n".join(f"Package: {name}\n{rest}" for name in ("libc6", "libexpat1")))
        (database / "available").write_text("")
        (path / "etc").mkdir()

    @staticmethod
    def architecture() -> str:
        return subprocess.check_output(["dpkg", "--print-architecture"], text=True).strip()

    def dpkg(self, *arguments: str, code: int = 0) -> str:
        """dpkg in this root, without root's rights and without chroot."""
        done = subprocess.run(
            ["dpkg", f"--root={self.path}", "--force-not-root", "--force-script-chrootless", "--force-confdef",
             f"--log={self.path}/dpkg.log", *arguments],
            capture_output=True, text=True, stdin=subprocess.DEVNULL,
            env=environment(PATH=f"{os.environ['PATH']}:/usr/sbin:/sbin", DEBIAN_FRONTEND="noninteractive"),
        )
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout

    def files(self) -> set[str]:
        """Everything that is not dpkg's own."""
        return {
            str(path.relative_to(self.path))
            for path in self.path.rglob("*")
            if not path.is_dir() and path.relative_to(self.path).parts[:2] != ("var", "lib") and path.name != "dpkg.log"
        }


# ---- what is in it ---------------------------------------------------------------------------------------------------


def field(package: Path, name: str) -> str:
    return subprocess.check_output(["dpkg-deb", "--field", str(package), name], text=True).strip()


def test_control(package: Path) -> None:
    assert package.name == f"bitnet-edge_{__version__}_all.deb"  # the stand-in is a script
    assert (field(package, "Package"), field(package, "Version")) == ("bitnet-edge", __version__)
    assert field(package, "Depends") == "" and int(field(package, "Installed-Size")) > 10
    assert field(package, "Description").startswith("language model")


def test_files_and_their_rights(package: Path, tree: Path, stand_in: Path) -> None:
    """Owned by root, readable by all, whatever umask the builder had."""
    for line in subprocess.check_output(["dpkg-deb", "--contents", str(package)], text=True).splitlines():
        assert line.split()[1] == "root/root"
        assert line[:10] in ("drwxr-xr-x", "-rw-r--r--", "-rwxr-xr-x", "lrwxrwxrwx"), line
    assert os.readlink(tree / "usr/bin/bitnet-edge") == "../lib/bitnet-edge/bitnet-edge"
    inside = tree / "usr/lib/bitnet-edge"
    assert {p.relative_to(inside) for p in inside.rglob("*")} == {p.relative_to(stand_in) for p in stand_in.rglob("*")}
    about = tree / "usr/share/doc/bitnet-edge"
    assert (about / "copyright").read_text() == "the licences of all parts\n"
    assert b"bitnet-edge" in gzip.decompress((about / "changelog.gz").read_bytes())
    assert all((about / page).exists() for page in ("kiosk.md", "contract.md", "cli.md"))
    for example in ("kiosk.sh", "kiosk.py"):
        assert (about / "examples" / example).stat().st_mode & 0o111
    for example in ("house.txt", "kiosk.toml", "etc/kiosk/rc.xml", "etc/systemd/system/kiosk-screen.service"):
        assert (about / "examples" / example).exists()


def test_the_unit_starts_the_packaged_program(tree: Path, tmp_path: Path) -> None:
    """Its program, its page and its user are in the unpacked package."""
    unit = tree / "usr/lib/systemd/system/bitnet-edge.service"
    start = re.search(r"^ExecStart=(\S+)", unit.read_text(), re.MULTILINE)
    assert start and (tree / start[1].lstrip("/")).exists()
    page = re.search(r"^Documentation=file:/(\S+)", unit.read_text(), re.MULTILINE)
    assert page and (tree / page[1]).exists()
    user = re.search(r"^User=(\S+)", unit.read_text(), re.MULTILINE)
    assert user and f"u {user[1]} " in (tree / "usr/lib/sysusers.d/bitnet-edge.conf").read_text()


def test_default_settings_are_all_comments(tree: Path) -> None:
    """Installed, it changes nothing; every variable it names is one of the program's."""
    serve = cli.get_command(click.Context(cli), "serve")
    assert serve
    known = {param.envvar for param in serve.params}
    lines = (tree / "etc/default/bitnet-edge").read_text().splitlines()
    assert all(line.startswith("#") or not line for line in lines)
    named = {line[1:].partition("=")[0] for line in lines if line.startswith("#BITNET")}
    assert named and named <= known


def test_same_input_same_bytes(stand_in: Path, tmp_path: Path) -> None:
    again = shutil.copytree(stand_in, tmp_path / "copy", symlinks=True)
    os.utime(again / "bitnet-edge", (1, 1))
    one = build(stand_in, tmp_path / "one", SOURCE_DATE_EPOCH="1700000000")
    two = build(again, tmp_path / "two", SOURCE_DATE_EPOCH="1700000000", TZ="Asia/Tokyo", LC_ALL="C")
    assert one.read_bytes() == two.read_bytes()


# ---- installed -------------------------------------------------------------------------------------------------------


def test_install_run_upgrade_remove_purge(package: Path, tmp_path: Path) -> None:
    root = Root(tmp_path / "root")
    before = root.files()
    root.dpkg("--install", str(package))
    assert "install ok installed" in (root.path / "var/lib/dpkg/status").read_text().partition("bitnet-edge")[2]
    program = root.path / "usr/bin/bitnet-edge"
    done = subprocess.run([str(program), "--version"], capture_output=True, text=True)
    assert done.stdout == f"bitnet-edge {__version__}\n"
    done = subprocess.run([str(program), "run", "--temp", "0", "tell me a joke"], capture_output=True, text=True,
                          input="")
    assert (done.returncode, done.stderr) == (0, "") and len(done.stdout) > 20
    assert "no changes" not in root.dpkg("--verify", "bitnet-edge")
    if shutil.which("systemd-sysusers"):
        assert re.search(r"^bitnet-edge:x?:", (root.path / "etc/group").read_text(), re.MULTILINE)

    settings = root.path / "etc/default/bitnet-edge"
    settings.write_text("BITNET_EDGE_THREADS=1\n")
    root.dpkg("--install", str(package))  # an upgrade as dpkg sees it
    assert settings.read_text() == "BITNET_EDGE_THREADS=1\n"  # the administrator's file

    root.dpkg("--remove", "bitnet-edge")
    left = {name for name in root.files() - before if not name.startswith(("etc/passwd", "etc/group", "etc/shadow"))}
    assert left - {"etc/gshadow", "etc/.pwd.lock"} == {"etc/default/bitnet-edge"}
    root.dpkg("--purge", "bitnet-edge")
    assert not settings.exists()
    assert not (root.path / "usr/lib/bitnet-edge").exists()


def test_an_upgrade_restarts_what_runs(tmp_path: Path) -> None:
    """Every unit whose main process is the program, whoever wrote it; and nothing else."""
    (tmp_path / "bin").mkdir()
    tool, told = tmp_path / "bin" / "systemctl", tmp_path / "told"
    tool.write_text(f'''#!/bin/sh
echo "$*" >>{told}
case "$1 $4" in
    list-units*) printf "%s.service loaded active running\\n" cron bitnet-serve ;;
    *bitnet-serve.service) echo 7 ;;
    *cron.service) echo 8 ;;
esac
''')
    tool.chmod(0o755)
    for number, program in ((7, "/usr/lib/bitnet-edge/bitnet-edge (deleted)"), (8, "/usr/sbin/cron")):
        (tmp_path / "proc" / str(number)).mkdir(parents=True)
        (tmp_path / "proc" / str(number) / "exe").symlink_to(program)
    script = (ROOT / "packaging" / "deb" / "postinst").read_text()
    script = script.replace("/proc/", f"{tmp_path}/proc/").replace("/run/systemd/system", str(tmp_path))
    done = subprocess.run(["sh", "-c", script, "postinst", "configure", "0.1"], capture_output=True, text=True,
                          env={"PATH": f"{tmp_path}/bin:/usr/bin:/bin"})
    assert done.returncode == 0, done.stderr
    assert [line for line in told.read_text().splitlines() if "restart" in line] == ["try-restart bitnet-serve.service"]


# ---- the real thing --------------------------------------------------------------------------------------------------


@pytest.mark.freeze
@pytest.mark.parametrize(("machine", "kind"), [("x86_64", "amd64"), ("aarch64", "arm64")])
def test_the_frozen_program(
    machine: str, kind: str, tmp_path: Path, folder: Path, request: pytest.FixtureRequest
) -> None:
    """Packed, installed and asked; for another machine packed only."""
    made = ROOT / "dist" / f"bitnet-edge-{machine}"
    if machine == platform.machine():
        request.getfixturevalue("frozen")
    else:
        archive = made.with_name(f"{made.name}.tar.gz")
        if not archive.exists():
            pytest.skip(f"no {archive.relative_to(ROOT)}; make freeze (for aarch64: make freeze-aarch64) makes it")
        if archive.stat().st_mtime < (ROOT / "packaging" / "bitnet-edge.spec").stat().st_mtime:
            pytest.skip(f"{archive.relative_to(ROOT)} is of another spec; make freeze-aarch64 makes it again")
        with tarfile.open(archive) as packed:
            packed.extractall(tmp_path)
        made = tmp_path / made.name
    package = build(made, tmp_path, DPKG_DEB_COMPRESSOR_LEVEL="1")
    assert package.name == f"bitnet-edge_{__version__}_{kind}.deb"
    assert package.stat().st_size < 20e6
    needs = re.fullmatch(r"libc6 \(>= 2\.(\d+)\)(?:, libexpat1)?", field(package, "Depends"))
    assert needs and (2, int(needs[1])) <= promised(machine)
    if shutil.which("lintian"):
        command = ["lintian", "--no-cfg", "--fail-on", "error", str(package)]
        done = subprocess.run(command, capture_output=True, text=True, env=environment(PERL5LIB=""))
        assert done.returncode == 0, done.stdout + done.stderr
    licences = (made / "_internal" / "LICENSES.txt").read_text().lower().replace("_", "-")
    closure = subprocess.run([sys.executable, str(ROOT / "packaging" / "closure.py")], capture_output=True, text=True)
    assert closure.returncode == 0, closure.stderr
    for line in closure.stdout.split():
        name = line.partition("==")[0]
        assert (f"\n{name} " in licences) == (name not in spec("EXCLUDED")), f"the licence of {line}"
    if platform.machine() != machine:
        return
    root = Root(tmp_path / "root")
    root.dpkg("--install", str(package))
    program = root.path / "usr/bin/bitnet-edge"
    bare = {"PATH": "/nonexistent", "HOME": "/nonexistent"}
    command = [str(program), "run", "-m", "demo", "--temp", "0", "tell me a joke"]
    done = subprocess.run(command, capture_output=True, input=b"", env=bare)
    assert (done.returncode, done.stderr) == (0, b"") and len(done.stdout) > 20
    with service(folder / "socket", command=[str(program)]):
        assert asked(folder / "socket", "tell me a joke").strip() == done.stdout.decode().strip()
    root.dpkg("--purge", "bitnet-edge")
    assert not program.exists()
