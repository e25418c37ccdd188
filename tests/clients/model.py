"""A model that says what a test wants, piece by piece; the page's own server does the rest."""

from __future__ import annotations

import json
import threading
from collections import deque
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class Answer:
    pieces: tuple[str, ...]
    ended: str | None = "stop"  # None: the connection breaks
    then: str | None = None  # comes after Model.go()
    status: int = 200
    error: dict[str, Any] | None = None


class Model:
    def __init__(self) -> None:
        self.asked: list[Any] = []  # the requests for answers
        self.read: list[Any] = []  # the requests to read ahead
        self._next: deque[Answer] = deque()
        self._go = threading.Event()
        model = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                try:
                    model._answer(self, body)
                except OSError:
                    pass  # the page was closed, or Stop pressed

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True

    def __enter__(self) -> Model:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._go.set()
        self._server.shutdown()
        self._server.server_close()

    def serve(self, context: Any) -> None:
        """Answer the pages of this browser context, which must be Chromium's."""
        to = f"http://127.0.0.1:{self._server.server_port}/"
        context.route("**/v1/chat/completions", lambda route: route.continue_(url=to))

    def says(self, *pieces: str, ended: str | None = "stop", then: str | None = None) -> None:
        """Add an answer to those that come next; after them, each is "Yes."."""
        self._go.clear()
        self._next.append(Answer(pieces, ended, then))

    def refuses(self, status: int, code: str = "", message: str = "use --ctx") -> None:
        """Add a refusal to the answers that come next."""
        self._next.append(Answer((), status=status, error={"message": message, "code": code}))

    def go(self) -> None:
        """Let the answers go on that wait."""
        self._go.set()

    def words(self, n: int = -1) -> list[str]:
        """What was said in the n-th request."""
        return [each["content"] for each in self.asked[n]["messages"]]

    def _answer(self, to: BaseHTTPRequestHandler, body: Any) -> None:
        if body.get("partial"):
            self.read.append(body)
            return self._whole(to, 200, {"usage": {"prompt_tokens": 8}})
        self.asked.append(body)
        answer = self._next.popleft() if self._next else Answer(("Yes.",))
        if answer.error:
            return self._whole(to, answer.status, {"error": answer.error})
        to.send_response(200)
        to.send_header("Content-Type", "text/event-stream")
        to.send_header("Transfer-Encoding", "chunked")
        to.end_headers()
        for piece in answer.pieces:
            self._event(to, {"choices": [{"delta": {"content": piece}}]})
        if answer.then is not None:
            self._go.wait()
            self._event(to, {"choices": [{"delta": {"content": answer.then}}]})
        to.close_connection = True
        if answer.ended is None:
            return  # before the last chunk
        read = sum(len(each["content"].split()) for each in body["messages"])
        usage = {"prompt_tokens": read, "completion_tokens": 2, "total_tokens": read + 2}
        self._event(to, {"choices": [], "usage": usage, "timings": {"decode_seconds": 1, "ended": answer.ended}})
        self._chunk(to, "data: [DONE]\n\n")
        self._chunk(to, "")

    def _event(self, to: BaseHTTPRequestHandler, event: Any) -> None:
        self._chunk(to, f"data: {json.dumps(event)}\n\n")

    def _chunk(self, to: BaseHTTPRequestHandler, text: str) -> None:
        to.wfile.write(b"%x\r\n%s\r\n" % (len(text.encode()), text.encode()))

    def _whole(self, to: BaseHTTPRequestHandler, status: int, value: Any) -> None:
        content = json.dumps(value).encode()
        to.send_response(status)
        to.send_header("Content-Type", "application/json")
        to.send_header("Content-Length", str(len(content)))
        to.end_headers()
        to.wfile.write(content)
