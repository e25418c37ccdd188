"""Addresses and host names: which of them only this machine can reach, how clients send them; and Unix sockets."""

from __future__ import annotations

import errno
import ipaddress
import os
import socket
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from edge.errors import Busy, UsageError

BACKLOG = 1024  # connections that wait to be accepted


def numeric(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """The address that ``host`` is, in any form in which the system takes one (127.1, [::1]); None for a name.  One of
    IPv4 that is written as IPv6 (::ffff:127.0.0.1) is that of IPv4.
    """
    try:
        found = socket.getaddrinfo(host.strip("[]") or ".", None, flags=socket.AI_NUMERICHOST, type=socket.SOCK_STREAM)
    except (OSError, ValueError):
        return None
    address = ipaddress.ip_address(found[0][4][0])
    return getattr(address, "ipv4_mapped", None) or address


def is_loopback(host: str) -> bool:
    """True if only this machine can reach ``host``."""
    address = numeric(host)
    return host.lower() == "localhost" if address is None else address.is_loopback


def known(host: str) -> bool:
    """True if this machine knows an address of ``host``."""
    try:
        return bool(socket.getaddrinfo(host.strip("[]"), None))
    except (OSError, ValueError):
        return False


def sent_name(name: str) -> str:
    """A host name in the form in which clients send it.  Raises UsageError for one that none can send."""
    try:
        return name.rstrip(".").lower().encode("idna").decode()
    except UnicodeError:
        raise UsageError(f"{name!r} matches no request", argument="host_names",
                         hint="it must be a name without scheme, port and path, such as kiosk.local") from None


@contextmanager
def unix_socket(path: str) -> Iterator[socket.socket]:
    """A Unix socket to listen on (``serve --socket``); its file is removed at the end.

    A file left by a killed process is replaced.  The mode of the file is 0777 without the bits of the umask; clients
    need write permission to connect.  Raises UsageError if the path cannot be used, and Busy if another process listens
    there.
    """
    if not path:
        raise UsageError("--socket needs the path of a file")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC) as listening:
        try:
            _clear(path)
            listening.bind(path)
            made = os.stat(path)
            listening.listen(BACKLOG)
            listening.setblocking(False)
        except OSError as error:
            if error.errno == errno.ENOENT:
                raise UsageError(f"cannot listen at {path}: folder {os.path.dirname(path) or '.'} does not exist; "
                                 "create it first") from None
            if error.errno == errno.EADDRINUSE:  # somebody was faster
                raise Busy(f"another process listens at {path}") from None
            raise UsageError(f"cannot listen at {path}: {error.strerror or error}") from None
        try:
            yield listening
        finally:
            with suppress(OSError):
                if os.path.samestat(os.stat(path), made):  # else another service has taken the place
                    os.unlink(path)


def _clear(path: str) -> None:
    """Remove an old socket file, if nobody uses it."""
    try:
        mode = os.stat(path).st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(mode):
        raise UsageError(f"cannot listen at {path}: the file exists and is not a socket")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(1)
        try:
            probe.connect(path)
        except ConnectionRefusedError:
            os.unlink(path)
            return
        except TimeoutError:  # its queue is full: very much in use
            pass
    raise Busy(f"another process listens at {path}")
