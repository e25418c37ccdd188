#!/usr/bin/env python3
"""Run a command where programs for other processors start like native ones, with no change to the machine.

    packaging/emulated.py COMMAND...               this file system; QEMU_LD_PREFIX names an arm64 system's libraries
    packaging/emulated.py --root DIR COMMAND...    inside DIR (chroot), with /proc, /sys and /dev of this machine

aarch64 programs run under qemu-user, and so does an x86-64 program whose file is called NAME.qemu-x86_64: that is how
one sees it on a processor without AVX2.  QEMU_CPU chooses the processor (cortex-a72, cortex-a76, Nehalem, ...),
QEMU_PAGESIZE its pages (16384).  A program that starts itself again, as a frozen one does, stays emulated, which
`qemu-aarch64 PROGRAM` cannot do.

A private user namespace gets its own binfmt_misc (Linux >= 6.7) with the emulators registered in it.  On an older
kernel an emulator that is registered for the whole machine is used (Debian: install qemu-user-static under systemd); on
an aarch64 machine none is needed.  Needs root: packages in DIR belong to several users.
"""

import ctypes
import os
import platform
import shutil
import signal
import sys
from pathlib import Path

CLONE_NEWNS, CLONE_NEWUSER = 0x00020000, 0x10000000
MS_BIND, MS_REC, MS_PRIVATE = 0x1000, 0x4000, 0x40000
BINFMT = Path("/proc/sys/fs/binfmt_misc")
#: what binfmt_misc matches: ELF, 64 bits, little endian, program or shared object, machine 183, any OS/ABI byte
AARCH64 = (
    r"M::\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\xb7\x00"
    r":\xff\xff\xff\xff\xff\xff\xff\x00\xff\xff\xff\xff\xff\xff\xff\xff\xfe\xff\xff\xff"
)
FORMATS = {"qemu-aarch64": AARCH64, "qemu-x86_64": "E::qemu-x86_64:"}

libc = ctypes.CDLL(None, use_errno=True)


def fail(text: str) -> None:
    sys.stderr.write(f"emulated: {text}\n")
    raise SystemExit(126)


def call(name: str, *arguments: object) -> None:
    if getattr(libc, name)(*arguments) != 0:
        code = ctypes.get_errno()
        raise OSError(code, f"{name}: {os.strerror(code)}")


def mount(source: str, target: Path, kind: str, flags: int) -> None:
    call("mount", source.encode(), str(target).encode(), kind.encode(), ctypes.c_ulong(flags), None)


def enter(root: "str | None") -> None:
    """Make this process see DIR as its file system."""
    if root is None:
        return
    for name in ("proc", "sys", "dev"):
        mount(f"/{name}", Path(root, name), "", MS_BIND | MS_REC)
    os.chroot(root)
    os.chdir("/")


def register(emulators: "dict[str, str]") -> None:
    """A binfmt_misc of our own, with all emulators that are installed."""
    mount("binfmt_misc", BINFMT, "binfmt_misc", 0)
    for name, path in emulators.items():
        # F: the kernel keeps the emulator open, so it need not exist inside DIR
        (BINFMT / "register").write_text(f":bitnet-edge-{name}:{FORMATS[name]}:{path}:F")


def child(root: "str | None", command: "list[str]", emulators: "dict[str, str] | None", ready: int, go: int) -> None:
    call("unshare", CLONE_NEWNS | (CLONE_NEWUSER if emulators else 0))
    os.write(ready, b"1")
    os.read(go, 1)  # until the parent has written our user ids
    call("mount", None, b"/", None, ctypes.c_ulong(MS_REC | MS_PRIVATE), None)
    if emulators:
        try:
            register(emulators)
        except OSError as error:
            fail(f"cannot register an emulator in a namespace ({error}); Linux >= 6.7 is needed, or an emulator "
                 "that is registered for the whole machine")
    enter(root)
    try:
        os.execvp(command[0], command)
    except OSError as error:
        fail(f"{command[0]}: {error.strerror}")


def main() -> int:
    arguments = sys.argv[1:]
    root = None
    if arguments[:1] == ["--root"] and len(arguments) > 1:
        root, arguments = arguments[1], arguments[2:]
    if not arguments:
        fail("usage: emulated.py [--root DIR] COMMAND...")
    native = platform.machine() == "aarch64"
    if native and root is None:
        os.execvp(arguments[0], arguments)
    if os.getuid() != 0:
        fail("needs root")

    emulators = None
    if not native and not any("aarch64" in path.name for path in BINFMT.glob("*")):
        found = {name: shutil.which(f"{name}-static") for name in FORMATS}
        emulators = {name: path for name, path in found.items() if path}
        if not emulators:
            fail("no qemu-aarch64-static; type: sudo apt-get install -y qemu-user-static")

    ready_read, ready_write = os.pipe()
    go_read, go_write = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            child(root, arguments, emulators, ready_write, go_read)
        except OSError as error:
            sys.stderr.write(f"emulated: {error}\n")
        finally:
            os._exit(126)
    os.close(ready_write)
    if os.read(ready_read, 1) and emulators:
        for name in ("uid_map", "gid_map"):  # every id is itself
            Path(f"/proc/{pid}/{name}").write_text("0 0 4294967295")
    os.write(go_write, b"1")
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the terminal signals the command itself
    signal.signal(signal.SIGTERM, lambda number, frame: os.kill(pid, number))
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    return 128 - code if code < 0 else code


if __name__ == "__main__":
    sys.exit(main())
