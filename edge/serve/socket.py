"""A Unix socket to listen on, whose file is removed at the end (``serve --socket``)."""

from __future__ import annotations

import errno
import os
import socket
import stat

from edge.errors import Busy, EdgeError, UsageError

#: most bytes of a path in sockaddr_un.sun_path, without its terminating NUL (unix(7))
PATH_LIMIT = 107
BACKLOG = 1024  # connections that wait to be accepted


class Listener:
    """A listening Unix socket; its file is removed when it closes.

    A file left by a killed process is replaced.  The mode of the file is 0777 without the bits of the umask; clients
    need write permission to connect.  Raises UsageError if the path cannot be used, and Busy if another process listens
    there.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        size = len(os.fsencode(path))
        if not path or "\0" in path:
            raise UsageError("--socket needs the path of a file")
        if size > PATH_LIMIT:
            raise UsageError(f"the path of the socket has {size} bytes; the limit is {PATH_LIMIT}: {path}")
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
        try:
            self._clear()
            self.socket.bind(path)
            self._made = _identity(path)
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
        except EdgeError:
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
        """Stop listening and remove the file, unless another process has replaced it."""
        self.socket.close()
        try:
            if _identity(self.path) == self._made:
                os.unlink(self.path)
        except OSError:
            pass


def _identity(path: str) -> tuple[int, int]:
    facts = os.stat(path)
    return facts.st_dev, facts.st_ino
