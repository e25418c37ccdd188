"""Messages to systemd: ready, alive, stopping; each is one datagram (sd_notify(3))."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable


class Notifier:
    """Sends to $NOTIFY_SOCKET."""

    def __init__(self) -> None:
        # Taken out of the environment: no child of ours may speak for us.
        path = os.environ.pop("NOTIFY_SOCKET", "")
        limit = os.environ.pop("WATCHDOG_USEC", "")
        owner = os.environ.pop("WATCHDOG_PID", "")
        self._address = "\0" + path[1:] if path.startswith("@") else path
        # The one-file binary is the child of the process that systemd knows.
        meant = owner in ("", str(os.getpid()), str(os.getppid()))
        # Half of the limit is what systemd asks for; a third leaves room for a busy machine.
        self._seconds = int(limit) / 3e6 if path and meant and limit.isdecimal() and int(limit) else None

    def send(self, state: str) -> None:
        """Send lines such as "READY=1" in one message.  It is not an error if nobody receives it."""
        if not self._address:
            return
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as channel:
                channel.settimeout(1)
                channel.sendto(state.encode(), self._address)
        except OSError:
            pass

    async def feed(self, well: Callable[[], bool]) -> None:
        """Send the watchdog, if there is one, a sign of life again and again while all is ``well``."""
        while self._seconds is not None:
            await asyncio.sleep(self._seconds)
            if well():
                self.send("WATCHDOG=1")
