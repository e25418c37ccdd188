"""A Unix socket to listen on, whose file is removed at the end (``serve --socket``)."""

from __future__ import annotations

import errno
import os
import socket
import stat
from contextlib import suppress

from edge.errors import Busy, UsageError

BACKLOG = 1024  # connections that wait to be accepted


class Listener:
    """A listening Unix socket; its file is removed when it closes.

    A file left by a killed process is replaced.  The mode of the file is 0777 without the bits of the umask; clients
    need write permission to connect.  Raises UsageError if the path cannot be used, and Busy if another process listens
    there.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        if not path:
            raise UsageError("--socket needs the path of a file")
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
        try:
            self._clear()
            self.socket.bind(path)
            self.socket.listen(BACKLOG)
            self.socket.setblocking(False)
        except OSError as error:
            self.socket.close()
            if error.errno == errno.ENOENT:
                raise UsageError(f"cannot listen at {path}: folder {os.path.dirname(path) or '.'} does not "
                                 "exist; create it first") from None
            if error.errno == errno.EADDRINUSE:  # somebody was faster
                raise Busy(f"another process listens at {path}") from None
            raise UsageError(f"cannot listen at {path}: {error.strerror or error}") from None
        except BaseException:
            self.socket.close()
            raise

    def _clear(self) -> None:
        """Remove an old socket file at the path, if nobody uses it."""
        try:
            mode = os.stat(self.path).st_mode
        except FileNotFoundError:
            return
        if not stat.S_ISSOCK(mode):
            raise UsageError(f"cannot listen at {self.path}: the file exists and is not a socket")
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
            probe.settimeout(1)
            try:
                probe.connect(self.path)
            except ConnectionRefusedError:
                os.unlink(self.path)
                return
            except TimeoutError:  # its queue is full: very much in use
                pass
        raise Busy(f"another process listens at {self.path}")

    def close(self) -> None:
        """Stop listening and remove the file."""
        self.socket.close()
        with suppress(OSError):
            os.unlink(self.path)
