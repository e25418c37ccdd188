"""Messages to systemd: ready, alive, stopping.  Each is one datagram (sd_notify(3)); without systemd nothing is
sent.
"""

from __future__ import annotations

import os
import socket
import time


class Notifier:
    """Sends to $NOTIFY_SOCKET. ``seconds``: how often :meth:`alive` should be called, None without a watchdog."""

    def __init__(self) -> None:
        # Taken out of the environment: no child of ours may speak for us.
        path = os.environ.pop("NOTIFY_SOCKET", "")
        limit = os.environ.pop("WATCHDOG_USEC", "")
        owner = os.environ.pop("WATCHDOG_PID", "")
        self._address = "\0" + path[1:] if path.startswith("@") else path
        # The one-file binary is the child of the process that systemd knows.
        meant = owner in ("", str(os.getpid()), str(os.getppid()))
        # Half of the limit is what systemd asks for; a third leaves room for a busy machine.
        self.seconds = int(limit) / 3e6 if path and meant and limit.isdecimal() and int(limit) else None
        self._next = 0.0

    def send(self, state: str) -> None:
        """Send one message, such as "READY=1"; several lines are possible.  It is not an error if nobody receives
        it.
        """
        if not self._address:
            return
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as channel:
                channel.settimeout(1)
                channel.sendto(state.encode(), self._address)
        except OSError:
            pass

    @property
    def due(self) -> bool:
        """Whether it is time for the next message to the watchdog."""
        return self.seconds is not None and time.monotonic() >= self._next

    def alive(self) -> None:
        """Tell the watchdog that work goes on; to be called where progress is made."""
        self._next = time.monotonic() + (self.seconds or 0) / 2
        self.send("WATCHDOG=1")
