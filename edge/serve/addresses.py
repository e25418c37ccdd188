"""Addresses and host names: which of them only this machine can reach, and how clients send them."""

from __future__ import annotations

import ipaddress
import socket

from edge.errors import UsageError


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
