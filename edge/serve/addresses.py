"""Addresses: which of them only this machine can reach; what can be the name of a server, or the origin of a page."""

from __future__ import annotations

import ipaddress
import re
import socket

from edge.errors import UsageError

_NAME = re.compile(r"(?=.{1,253}$)[a-z0-9_-]{1,63}(\.[a-z0-9_-]{1,63})*")
_ORIGIN = re.compile(r"[a-z][a-z0-9+.-]*://(\[[0-9a-f:]+\]|[a-z0-9._-]+)(:\d{1,5})?")


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
    """Whether only this machine can reach ``host``."""
    address = numeric(host)
    return host.lower() == "localhost" if address is None else address.is_loopback


def check_host(host: str) -> None:
    """Raise UsageError for what cannot be an address to listen on."""
    said = "it must be an address or a name, such as 127.0.0.1 or localhost"
    if "/" in host or " " in host or not host.strip("[]"):
        raise UsageError(f"is {host!r}", argument="host", hint=said)
    if numeric(host) is None and ":" in host:
        raise UsageError(f"is {host!r}", argument="host", hint=f"{said}; the port is set with --port")


def known(host: str) -> bool:
    """Whether this machine knows an address of ``host``."""
    try:
        return bool(socket.getaddrinfo(host.strip("[]"), None))
    except (OSError, ValueError):
        return False


def checked_name(name: str) -> str:
    """A host name in the form in which clients send it.  Raises UsageError for what none can send."""
    try:
        sent = name.rstrip(".").lower().encode("idna").decode()
    except UnicodeError:
        sent = ""
    if numeric(name) is None and not _NAME.fullmatch(sent):
        raise UsageError(f"{name!r} matches no request", argument="host_names",
                         hint="it must be a name without scheme, port and path, such as kiosk.local")
    return sent


def checked_origin(text: str) -> str:
    """The origin of pages, or "*".  Raises UsageError for one that no page has."""
    if text not in ("*", "null") and not _ORIGIN.fullmatch(text):
        raise UsageError(f"{text!r} matches no page", argument="cors",
                         hint="it must be an origin as browsers send it, such as https://example.org")
    return text
