"""A hub on loopback that behaves as the real one: lists, redirects to another host, ranges, and every way to fail.

Two servers: the hub itself and the store it redirects large files to.  What a test wants to go wrong is set on the
:class:`Hub`: statuses to answer first, where to cut a connection, a store that ignores ranges.
"""

from __future__ import annotations

import hashlib
import json
import threading
import urllib.parse
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

COMMIT = "0123456789abcdef0123456789abcdef01234567"


class Hub:
    """Files by path of one repository, and what happens to those who ask for them."""

    def __init__(self, files: dict[str, bytes], repo: str) -> None:
        self.repo = repo
        self.files = files
        self.digests = {path: hashlib.sha256(data).hexdigest() for path, data in files.items()}
        self.statuses: list[int] = []  # answered by the hub before anything else, in order
        self.retry_after: str | None = "7"
        self.cuts: list[int] = []  # bytes after which the store closes the connection, one for each answer
        self.ranges = True
        self.token: str | None = None  # what the hub asks for
        self.renamed: tuple[str, str] | None = None  # (former name of the repository, address of the hub that has it)
        self.requests: list[tuple[str, str, dict[str, str]]] = []  # (host, path, headers)
        self.url = self.store = ""


def _handler(hub: Hub, is_store: bool) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: object) -> None:
            pass

        def do_GET(self) -> None:  # noqa: N802
            hub.requests.append(("store" if is_store else "hub", self.path, dict(self.headers)))
            path = urllib.parse.unquote(urllib.parse.urlsplit(self.path).path)
            if is_store:
                return self.send_file(path.lstrip("/"))
            if hub.statuses:
                return self.refuse(hub.statuses.pop(0))
            if hub.renamed and hub.renamed[0] in self.path:  # asks for no token there
                old, there = hub.renamed
                return self.send(307, b"", {"Location": there + self.path.replace(old, hub.repo)})
            if hub.token and self.headers.get("Authorization") != f"Bearer {hub.token}":
                return self.refuse(401)
            if path == f"/api/models/{hub.repo}/revision/main":
                return self.send(200, json.dumps({"id": hub.repo, "sha": COMMIT}).encode())
            if path == f"/api/models/{hub.repo}/tree/{COMMIT}":
                return self.send(200, json.dumps([
                    {"type": "directory", "path": "assets", "size": 0},
                    *({"type": "file", "path": name, "size": len(data), "lfs": {"oid": hub.digests[name],
                       "size": len(data)}} for name, data in hub.files.items()),
                    {"type": "file", "path": "../escape.gguf", "size": 3},
                ]).encode())
            head = f"/{hub.repo}/resolve/{COMMIT}/"
            if path.startswith(head) and path[len(head) :] in hub.files:
                return self.send(302, b"", {"Location": f"{hub.store}/{path[len(head) :]}?signature=x"})
            return self.refuse(404)

        def refuse(self, status: int) -> None:
            more = {"Retry-After": hub.retry_after} if status == 429 and hub.retry_after else {}
            self.send(status, b"{}", more)

        def send(self, status: int, data: bytes, headers: dict[str, str] | None = None) -> None:
            self.send_response(status)
            for name, value in {"Content-Length": str(len(data)), **(headers or {})}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(data)

        def send_file(self, name: str) -> None:
            if name not in hub.files:
                return self.refuse(401)
            data = hub.files[name]
            begin, wanted = 0, self.headers.get("Range")
            if wanted and hub.ranges:
                begin = int(wanted.removeprefix("bytes=").rstrip("-"))
            self.send_response(206 if begin else 200)
            self.send_header("Content-Length", str(len(data) - begin))
            if begin:
                self.send_header("Content-Range", f"bytes {begin}-{len(data) - 1}/{len(data)}")
            self.end_headers()
            part = data[begin:]
            if hub.cuts:
                self.wfile.write(part[: hub.cuts.pop(0)])
                self.wfile.flush()
                self.close_connection = True
                self.connection.shutdown(2)
                return
            self.wfile.write(part)

    return Handler


@contextmanager
def serving(files: dict[str, bytes], repo: str = "owner/name") -> Iterator[Hub]:
    """Both servers on loopback, closed at the end."""
    hub = Hub(files, repo)
    servers = [ThreadingHTTPServer(("127.0.0.1", 0), _handler(hub, is_store)) for is_store in (False, True)]
    for server in servers:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    hub.url, hub.store = (f"http://127.0.0.1:{server.server_address[1]}" for server in servers)
    try:
        yield hub
    finally:
        for server in servers:
            server.shutdown()
            server.server_close()
