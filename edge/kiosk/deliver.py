"""Delivers finished orders: to standard output, a file (each once), or a command (each at least once).

An order is accepted when its line is on the disk (a file: appended by one write and synced; a command: its spool file);
the guest is thanked after that.  A command runs in its own session with the order on its standard input, and its shell
deletes the spool file after success: if the kiosk is killed in between, no order is lost or delivered twice.  If the
command fails, or the power while it runs, it is run again, with the same id.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import subprocess
from collections.abc import Callable
from typing import Any

from edge.errors import EdgeError
from edge.kiosk.house import House

Deliver = Callable[[dict[str, Any]], object]


def delivery(house: House, folder: str, write: Callable[[str], object]) -> Deliver:
    """The function that takes finished orders.

    ``folder``: relative paths in the house file begin here.  ``write``: prints a line to standard output.  Raises
    EdgeError if orders cannot be delivered.
    """
    if "file" in house.orders:
        return File(os.path.join(folder, house.orders["file"]))
    if "command" in house.orders:
        return Command(house.orders["command"], folder)
    return lambda order: write(line(order))


def line(order: dict[str, Any]) -> str:
    """An order as one line of JSON."""
    return json.dumps(order, ensure_ascii=False, separators=(",", ":"))


class File:
    """Appends orders to a file, one line each.  If a power cut left an incomplete last line, the next order begins on a
    new line.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        try:
            with open(path, "ab+") as file:
                if file.tell():
                    file.seek(-1, os.SEEK_END)
                    if file.read(1) != b"\n":
                        file.write(b"\n")
        except OSError as error:
            raise EdgeError(f"cannot write orders to {path}: {error.strerror}") from None

    def __call__(self, order: dict[str, Any]) -> None:
        data = line(order).encode() + b"\n"
        with open(self.path, "ab", buffering=0) as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            if file.write(data) != len(data):
                raise OSError("the disk is full")
            os.fsync(file.fileno())


class Command:
    """Runs a command for each order: the order is its standard input, the order's id is BITNET_EDGE_ORDER.

    Orders that were not delivered (the command failed, or the power) stay in ``spool`` and are tried again at the next
    start.
    """

    #: the shell of one order: runs the command, then removes the spool file; holds its lock until then
    SCRIPT = 'exec 9<"$0"; flock 9; [ -e "$0" ] || exit 0; "$@" <"$0" && rm -f "$0"'

    def __init__(self, command: tuple[str, ...], folder: str) -> None:
        self.command = tuple(command)
        self.folder = folder
        state = os.environ.get("XDG_STATE_HOME") or os.path.join(os.path.expanduser("~"), ".local", "state")
        own = hashlib.sha256(json.dumps([self.command, os.path.abspath(folder)]).encode()).hexdigest()[:12]
        self.spool = os.path.join(state, "bitnet-edge", "orders", own)
        os.makedirs(self.spool, mode=0o700, exist_ok=True)
        for name in sorted(os.listdir(self.spool)):
            if name.endswith(".json"):
                self._start(os.path.join(self.spool, name))

    def __call__(self, order: dict[str, Any]) -> None:
        path = os.path.join(self.spool, f"{order['id']}.json")
        with open(path + ".new", "w", encoding="utf-8") as file:
            file.write(line(order) + "\n")
            file.flush()
            os.fsync(file.fileno())
        os.rename(path + ".new", path)
        self._start(path)

    def _start(self, path: str) -> None:
        name = os.path.basename(path).removesuffix(".json")
        try:
            subprocess.Popen(
                ["/bin/sh", "-c", self.SCRIPT, path, *self.command], cwd=self.folder or None,
                env={**os.environ, "BITNET_EDGE_ORDER": name}, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                start_new_session=True,
            )  # fmt: skip
        except OSError as error:
            raise EdgeError(f"cannot run {self.command[0]}: {error.strerror}") from None
