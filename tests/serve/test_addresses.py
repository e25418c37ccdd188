"""Addresses (edge/serve/addresses.py): what serve listens on, and the names that it may be given."""

from __future__ import annotations

import contextlib
import os
import re
import socket
from types import SimpleNamespace
from typing import Any

import pytest

from edge.cli.serve import check_exposure, listen
from edge.errors import Busy, UsageError
from edge.machine import linux
from edge.serve.addresses import is_loopback, sent_name
from edge.serve.guard import Guard
from edge.serve.service import Service, Settings
from tests.http_service import serving
from tests.services import bitnet_edge


@pytest.mark.parametrize(("host", "wanted"), [
    ("127.0.0.1", True), ("127.1", True), ("127.0.1.1", True), ("0x7f.1", True), ("2130706433", True), ("::1", True),
    ("[::1]", True), ("::ffff:127.0.0.1", True), ("[::ffff:7f00:1]", True), ("0:0:0:0:0:0:0:1", True),
    ("localhost", True), ("LocalHost", True), ("0.0.0.0", False), ("0", False), ("::", False), ("10.1", False),
    ("::ffff:10.0.0.1", False), ("127.0.0.1.example", False), ("localhost.example", False), ("", False), ("é", False),
])
def test_what_only_this_machine_can_reach(host: str, wanted: bool) -> None:
    """Judged by the system, too: a socket bound to it has an address of the loopback network."""
    assert is_loopback(host) is wanted
    if wanted:
        family, kind, _, _, address = socket.getaddrinfo(host.strip("[]"), 0, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind) as bound:
            bound.bind(address)
            assert bound.getsockname()[0].removeprefix("::ffff:").startswith(("127.", "::1"))


@pytest.mark.parametrize("host", ["127.0.0.1:9000", "http://127.0.0.1", "", "127.0.0.1 ", "no-such-name.invalid"])
def test_what_serve_cannot_listen_on(host: str) -> None:
    with pytest.raises(UsageError, match="no address has this name") as refused:
        check_exposure(host, None, False, None)
    assert refused.value.argument == "host"


def test_host_names_are_kept_as_clients_send_them() -> None:
    for given, wanted in (("Kiosk.Local.", "kiosk.local"), ("münchen.example", "xn--mnchen-3ya.example")):
        assert sent_name(given) == wanted
    with pytest.raises(UsageError, match="matches no request"):
        sent_name("a..b")


def test_serve_says_in_one_line_what_it_cannot_use() -> None:
    for option, value, *more in (("--host", "http://127.0.0.1"), ("--host-name", "a..b"),
                                 ("--host", "192.0.2.1", "--insecure", "--port", "0")):
        done = bitnet_edge("serve", option, value, *more)
        assert done.returncode == 2 and done.stderr.count("\n") == 1, done.stderr
        assert option in done.stderr or "cannot listen on 192.0.2.1:0" in done.stderr, done.stderr


@pytest.mark.parametrize("host", ["127.1", "::ffff:127.0.0.1"])
def test_short_and_mapped_addresses_are_served(host: str) -> None:
    with serving("--host", host, "--ctx", "256", "--host-name", "Kiosk.local.") as server:
        for name, status in (("127.1:8080", 200), ("[::ffff:127.0.0.1]:8080", 200), ("kiosk.local", 200),
                             ("127.1.example", 403)):
            with socket.create_connection(("127.0.0.1", server.port)) as connection:
                connection.sendall(f"GET /health HTTP/1.1\r\nHost: {name}\r\nConnection: close\r\n\r\n".encode())
                assert connection.recv(100).startswith(f"HTTP/1.1 {status}".encode()), name


def open_at(host: str, port: int) -> bool:
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as client:
        return client.connect_ex((host, port)) == 0


def test_all_addresses_of_a_name_are_served(monkeypatch: pytest.MonkeyPatch) -> None:
    real = socket.getaddrinfo

    def two(host: str, *more: Any, **options: Any) -> list[Any]:
        return [found for each in (("127.0.0.1", "::1") if host == "localhost" else (host,))
                for found in real(each, *more, **options) * 2]  # twice, as where a hosts file says it twice

    monkeypatch.setattr(socket, "getaddrinfo", two)
    with contextlib.ExitStack() as held:
        found = [held.enter_context(each) for each in listen("localhost", 0)]
        ports = {each.getsockname()[1] for each in found}
        assert len(found) == 2 and len(ports) == 1 and ports != {0}
        assert open_at("127.0.0.1", *ports) and open_at("::1", *ports)
        with pytest.raises(Busy, match="another --port"):
            listen("localhost", *ports)
        found[0].close()
        with pytest.raises(Busy):  # the other one still listens
            listen("localhost", *ports)
        assert not open_at("127.0.0.1", *ports)


def test_the_line_has_the_name_that_was_typed() -> None:
    with serving("--host", "localhost", "--ctx", "256") as server:
        assert server.url == f"http://localhost:{server.port}" and server.ask("GET", "/health")[0] == 200


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "0"])
def test_the_line_names_addresses_that_others_can_open(host: str) -> None:
    """As the system's own tool lists them; without any, that of this machine alone."""
    if host == "::" and not socket.has_ipv6:
        pytest.skip("no IPv6 here")
    with serving("--host", host, "--insecure", "--ctx", "256") as server:
        found = re.findall(r"http://(\S+?):(\d+)(?=[,\n])", server.log)
        assert {int(port) for _, port in found} == {server.port}
        addresses = [address.strip("[]") for address, _ in found]
        assert addresses and not {"0.0.0.0", "::", "::1"} & set(addresses)
        assert all(open_at(address, server.port) for address in addresses)
        own = [each for each in linux.addresses() if host == "::" or ":" not in each]
        assert addresses == (own or ["127.0.0.1"])


@pytest.mark.parametrize("node", ["kiosk", "Kiosk.example.org", "kiosk.local"])
def test_a_machine_answers_to_its_names(monkeypatch: pytest.MonkeyPatch, node: str) -> None:
    monkeypatch.setattr(os, "uname", lambda: SimpleNamespace(nodename=node))
    guard = Guard(None, Service(Settings()))
    for name in {"kiosk", "KIOSK:8080", "kiosk.local", "kiosk.local.:80", "localhost", node, f"{node}:8080"}:
        assert guard.answers_to(name), name
    for name in ("kiosk.example", "kiosk.evil.example", "example.org", "kios", "local", "kiosk.local.evil.example"):
        assert not guard.answers_to(name), name
