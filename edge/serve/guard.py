"""Guard: decides which requests reach a route.  Host and Origin are checked first, then the API key.

Without this, a page of another site, or a host name that points to this machine, could use the model.
"""

from __future__ import annotations

import asyncio
import hmac
import os
import re
from collections.abc import Mapping
from typing import Any

from starlette.responses import Response

from edge.serve.addresses import numeric
from edge.serve.calls import Refusal, stopping
from edge.serve.exchange import BODIES_LIMIT, refused
from edge.serve.page import PREFIX
from edge.serve.service import Service
from pyx.machine import trim

LARGE = 256 << 10  # bytes of a request whose memory is returned to the system as soon as it is over


class Guard:
    """Checks the name of the server in the request (Host), the page that sends it (Origin), and the API key.

    A host name that an attacker points to this machine (DNS rebinding) is not one of ours; a page of another site has
    another Origin.  Both are refused before a route sees the request.
    """

    #: paths that need no key, besides the files of the page: probes and the page send none
    OPEN = ("/", "/health", "/v1/health")

    def __init__(self, app: Any, service: Service) -> None:
        self._app = app
        self._service = service
        self._bodies = 0  # bytes of requests that are not answered yet

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        scope = normal(scope)
        held = 0

        def hold(n: int) -> None:
            nonlocal held
            if self._bodies > held and self._bodies + n > BODIES_LIMIT:  # one alone has limits of its own
                raise Refusal(503, f"requests in progress take {BODIES_LIMIT} bytes; try again later", "memory",
                              retry_after=2)
            held += n
            self._bodies += n

        async def counted() -> Any:
            message = await receive()
            hold(len(message.get("body", b"")))
            return message

        try:
            await self._guarded({**scope, "hold": hold}, counted, send)
        except asyncio.CancelledError:  # only uvicorn does that, to what is not over in time when the service ends
            await refused(stopping(), style_of(scope))(scope, receive, send)
        finally:
            self._bodies -= held
            if held > LARGE:
                trim()

    async def _guarded(self, scope: Any, receive: Any, send: Any) -> None:
        headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
        style = style_of(scope)
        settings = self._service.settings
        host, origin = headers.get("host", ""), headers.get("origin")
        allowed = self._origin(origin, host)
        if not self.answers_to(host):
            response = refused(Refusal(403, f"the host name '{host[:80]}' is not allowed; add it with "
                                       "--host-name", "host_refused"), style)
        elif origin is not None and allowed is None:
            response = refused(Refusal(403, f"requests from {origin[:80]} to {host[:80]} are not allowed; add this "
                                       "origin with --cors, or, behind a proxy, have it pass on the Host of the "
                                       "request", "origin_refused"), style)
        elif scope["method"] == "OPTIONS" and allowed:
            response = Response(b"", 204, {
                "Access-Control-Allow-Methods": "GET, POST", "Access-Control-Max-Age": "600",
                "Access-Control-Allow-Headers": headers.get("access-control-request-headers", "*")[:500]})
        elif settings.api_key is not None and not self._is_open(scope["path"]) and not self._key(headers):
            response = refused(Refusal(401, "the API key is missing or wrong", "invalid_api_key"), style)
        else:
            response = self._app

        async def with_cors(message: Any) -> None:
            if allowed and message["type"] == "http.response.start":
                message = {**message, "headers": [*message["headers"],
                           (b"access-control-allow-origin", allowed.encode()), (b"vary", b"Origin")]}
            await send(message)

        await response(scope, receive, with_cors if allowed else send)

    def _is_open(self, path: str) -> bool:
        return path in self.OPEN or path.startswith(PREFIX)

    def answers_to(self, host: str) -> bool:
        """True if ``host`` (of a request, perhaps with a port) is an address or a name of this server."""
        name = host.rsplit(":", 1)[0] if not host.endswith("]") else host
        name = name.strip("[]").lower().rstrip(".")
        if not name:
            return True  # HTTP/1.0 and Unix sockets; no browser sends none
        if numeric(name) is not None:
            return True  # no name at all: cannot have been pointed here
        own = os.uname().nodename.lower()
        short = own.partition(".")[0]
        return name in ("localhost", own, short, f"{short}.local", *self._service.settings.hosts)

    def _origin(self, origin: str | None, host: str) -> str | None:
        """The value of Access-Control-Allow-Origin, "" for this server's own pages; None: the origin is not allowed."""
        if origin is None:
            return ""
        if origin in (f"http://{host}", f"https://{host}"):
            return ""
        cors = self._service.settings.cors
        return origin if origin in cors or "*" in cors else None

    def _key(self, headers: Mapping[str, str]) -> bool:
        given = headers.get("authorization", "")
        given = given[7:] if given[:7].lower() == "bearer " else headers.get("x-api-key", "")
        return hmac.compare_digest(given.encode("latin-1").strip(), (self._service.settings.api_key or "").encode())


def style_of(scope: Mapping[str, Any]) -> str:
    """The API in whose form a request is refused."""
    return "ollama" if scope["path"].startswith("/api/") else "openai"


def normal(scope: Mapping[str, Any]) -> dict[str, Any]:
    """A request in the form that routes and checks see: without the address of the server, which clients of a proxy
    put before the path, and without slashes that are doubled or at the end.
    """
    path = re.sub("^https?://[^/]*", "", scope["path"], flags=re.IGNORECASE)
    return {**scope, "path": re.sub("/+", "/", path).rstrip("/") or "/"}
