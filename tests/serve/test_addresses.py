"""Addresses (edge/serve/addresses.py): what serve listens on, and the names and origins that it may be given."""

from __future__ import annotations

import socket

import pytest

from edge.cli.serve import check_exposure
from edge.errors import UsageError
from edge.serve.addresses import check_host, checked_name, checked_origin, is_loopback
from edge.serve.guard import checked_key
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


@pytest.mark.parametrize(("host", "words"), [
    ("127.0.0.1:9000", "--port"), ("localhost:80", "--port"), ("[::1]:80", "--port"), ("http://127.0.0.1", "127.0.0.1"),
    ("https://kiosk.local:8080/", "address"), ("127.0.0.1/", "address"), ("", "address"), (" ", "address"),
    ("[]", "address"), ("127.0.0.1 ", "address"), ("no-such-name.invalid", "no address has this name"),
])
def test_what_serve_cannot_listen_on(host: str, words: str) -> None:
    with pytest.raises(UsageError, match=words) as refused:
        check_exposure(host, None, False, None)
    assert refused.value.argument == "host" and "can be reached" not in str(refused.value)
    for fine in ("::1", "[::1]", "0", "kiosk.local", "fe80::1%eth0", "127.1"):
        check_host(fine)


@pytest.mark.parametrize("key", ["\u043a\u043b\u044e\u0447", "k\u00e9y", " ", "\t", " key", "key\n", "a\tb", "a\x7f"])
def test_keys_that_no_client_can_send(key: str) -> None:
    with pytest.raises(UsageError, match="matches no request") as refused:
        checked_key(key)
    assert refused.value.argument == "api_key"
    assert checked_key(None) is checked_key("") is None
    for fine in ("k", "a long key", "sk-1%+/=~!"):
        assert checked_key(fine) == fine


@pytest.mark.parametrize("name", [
    "kiosk.local:8080", "http://kiosk.local", "kiosk.local/", "*.example.org", "*", "", "a b", "a,b", "a..b", "a@b",
])
def test_host_names_that_match_nothing(name: str) -> None:
    with pytest.raises(UsageError, match="matches no request") as refused:
        checked_name(name)
    assert refused.value.argument == "host_names"


def test_host_names_are_kept_as_clients_send_them() -> None:
    for given, wanted in (("Kiosk.Local.", "kiosk.local"), ("münchen.example", "xn--mnchen-3ya.example")):
        assert checked_name(given) == wanted


@pytest.mark.parametrize("origin", ["https://example.org/", "HTTPS://Example.org", "https://a/b?c#d", "http://user@a",
                                    "file:///page.html", "example.org", "localhost:3000", "https://*.example.org",
                                    "//a", "https://a,https://b", "https://a https://b", "http://", ""])
def test_origins_that_no_page_has(origin: str) -> None:
    with pytest.raises(UsageError, match="matches no page") as refused:
        checked_origin(origin)
    assert refused.value.argument == "cors"


def test_origins_of_pages() -> None:
    for origin in ("*", "null", "https://example.org", "http://localhost:3000", "http://[::1]:3000", "http://10.0.0.7",
                   "chrome-extension://abcdefgh", "app://obsidian.md", "capacitor://localhost"):
        checked_origin(origin)


@pytest.mark.usefixtures("bundled_model")
def test_serve_says_in_one_line_what_it_cannot_use() -> None:
    for option, value, *more in (("--host", "http://127.0.0.1"), ("--host-name", "kiosk:80"), ("--cors", "https://a/"),
                                 ("--host", "192.0.2.1", "--insecure", "--port", "0")):
        done = bitnet_edge("serve", option, value, *more)
        assert done.returncode == 2 and done.stderr.count("\n") == 1, done.stderr
        assert option in done.stderr or "cannot listen on 192.0.2.1:0" in done.stderr, done.stderr


@pytest.mark.usefixtures("bundled_model")
@pytest.mark.parametrize("host", ["127.1", "::ffff:127.0.0.1"])
def test_short_and_mapped_addresses_are_served(host: str) -> None:
    with serving("--host", host, "--ctx", "256", "--host-name", "Kiosk.local.") as server:
        for name, status in (("127.1:8080", 200), ("[::ffff:127.0.0.1]:8080", 200), ("kiosk.local", 200),
                             ("127.1.example", 403)):
            with socket.create_connection(("127.0.0.1", server.port)) as connection:
                connection.sendall(f"GET /health HTTP/1.1\r\nHost: {name}\r\nConnection: close\r\n\r\n".encode())
                assert connection.recv(100).startswith(f"HTTP/1.1 {status}".encode()), name
