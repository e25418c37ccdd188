"""Wyoming: the voice protocol of Home Assistant, as a ``handle`` server: it receives a transcript and returns the text
to speak.

JSON lines over TCP: ``{"type", "version", "data_length", "payload_length"}`` in one line, then that many bytes.  Home
Assistant opens a connection for each turn and sends no history, only ``context.conversation_id``, so the conversations
are kept here. https://github.com/OHF-Voice/wyoming describes the events.
"""

from __future__ import annotations

import asyncio
import json
import urllib.parse
from collections import OrderedDict
from typing import TYPE_CHECKING, Any

from edge.errors import EdgeError, UsageError
from edge.serve.calls import Call, Refusal, bad, checked_text

if TYPE_CHECKING:
    from edge.serve.service import Service

LINE_LIMIT = 1 << 16
DATA_LIMIT = 1 << 20
CONVERSATIONS = 256  # kept; the one used longest ago goes first
TURNS = 24  # messages kept of each
SPOKEN = 200  # tokens of an answer that is spoken, at most
PATIENCE = 30.0  # seconds for the rest of an event, and for a client to read one
CONNECTIONS = 64  # at a time; beyond that the one that has said nothing for the longest time is closed
TEXT_LIMIT = 1 << 14  # most characters of a transcript


def host_and_port(address: str) -> tuple[str, int]:
    """Host and port of tcp://HOST:PORT.  Raises UsageError for another form."""
    try:
        parts = urllib.parse.urlsplit(address)
        host, port = parts.hostname, parts.port
    except ValueError:
        host = port = None
    if host is None or port is None or parts.scheme != "tcp":
        raise UsageError(f"--wyoming {address}: must have the form tcp://HOST:PORT, such as tcp://127.0.0.1:10700")
    return host, port


class Door:
    """The server.  ``address``: tcp://HOST:PORT.  Raises UsageError for another form."""

    def __init__(self, address: str, service: Service) -> None:
        self.host, self.port = host_and_port(address)
        self._service = service
        self._conversations: OrderedDict[str, list[dict[str, Any]]] = OrderedDict()
        self._server: asyncio.Server | None = None
        self._open: set[asyncio.StreamWriter] = set()
        self._silent: dict[asyncio.StreamWriter, None] = {}  # those that are not being answered, the oldest first

    async def start(self) -> None:
        """Listen.  Raises OSError if the address cannot be used."""
        self._server = await asyncio.start_server(self._talk, self.host, self.port, limit=LINE_LIMIT)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """Stop listening."""
        if self._server is not None:
            self._server.close()

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._open) >= CONNECTIONS:
            oldest = next(iter(self._silent), writer)
            self._forget(oldest)
            oldest.transport.abort()
            if oldest is writer:
                return
        self._open.add(writer)
        try:
            while True:
                self._silent[writer] = None
                event = await read_event(reader)
                self._silent.pop(writer, None)
                if event is None:
                    break
                kind, data = event
                if kind == "describe":
                    await write_event(writer, "info", self._info())
                elif kind == "transcript":
                    await self._handle(writer, data)
                elif kind == "ping":
                    await write_event(writer, "pong", {"text": data.get("text")})
        except (ValueError, RecursionError, OSError, asyncio.IncompleteReadError, asyncio.TimeoutError):
            pass  # what is not Wyoming is not answered
        finally:
            self._forget(writer)
            writer.close()

    def _forget(self, writer: asyncio.StreamWriter) -> None:
        self._open.discard(writer)
        self._silent.pop(writer, None)

    async def _handle(self, writer: asyncio.StreamWriter, data: dict[str, Any]) -> None:
        text, context = data.get("text"), data.get("context")
        if not isinstance(text, str) or not text.strip():
            await write_event(writer, "not-handled", {"text": "", "context": context})
            return
        try:
            checked_text(text, "text")
            if len(text) > TEXT_LIMIT:
                raise bad(f"the text has {len(text)} characters; the limit is {TEXT_LIMIT}", "text")
        except Refusal as refusal:
            await write_event(writer, "not-handled", {"text": str(refusal)})
            return
        key = context.get("conversation_id") if isinstance(context, dict) else None
        key = key if isinstance(key, str) and len(key) <= 200 else None
        held = self._conversations.get(key, []) if key else []
        messages = [*held, {"role": "user", "content": text.strip()}]
        call = Call(messages=messages, key=key,
                    options={"max_tokens": SPOKEN, **self._service.settings.defaults})
        try:
            job = await self._service.submit(call)
        except (Refusal, EdgeError) as refusal:
            await write_event(writer, "not-handled", {"text": str(refusal), "context": context})
            return
        spoken = []
        try:
            async for piece in job.pieces():
                if not piece.thought:
                    spoken.append(piece.text)
        except Exception as error:
            await write_event(writer, "not-handled", {"text": str(error), "context": context})
            return
        finally:
            self._service.withdraw(job)
        answer = "".join(spoken).strip()
        if key:
            kept = [*messages, {"role": "assistant", "content": "".join(spoken)}][-TURNS:]
            while kept and kept[0]["role"] != "user":
                del kept[0]
            self._conversations[key] = kept
            self._conversations.move_to_end(key)
            while len(self._conversations) > CONVERSATIONS:
                self._conversations.popitem(last=False)
        await write_event(writer, "handled" if answer else "not-handled", {"text": answer, "context": context})

    def _info(self) -> dict[str, Any]:
        from edge import __version__

        attribution = {"name": "bitnet-edge", "url": ""}
        about = {"name": "bitnet-edge", "attribution": attribution, "installed": True, "version": __version__,
                 "description": "A ternary language model on this machine"}
        model = {"name": self._service.name or "bitnet-edge", "languages": ["en"], "attribution": attribution,
                 "installed": True, "version": __version__, "description": self._service.name}
        return {"asr": [], "tts": [], "wake": [], "intent": [], "mic": [], "snd": [], "satellite": None,
                "handle": [{**about, "models": [model], "supports_handled_streaming": False}]}


async def read_event(reader: asyncio.StreamReader) -> tuple[str, dict[str, Any]] | None:
    """(type, data) of the next event; None at the end.  Raises ValueError for an invalid event."""
    line = await reader.readline()
    if not line:
        return None
    head = json.loads(line)
    if not isinstance(head, dict) or not isinstance(head.get("type"), str):
        raise ValueError("not an event")
    data = head.get("data") or {}
    for name in ("data_length", "payload_length"):
        n = head.get(name) or 0
        if not isinstance(n, int) or not 0 <= n <= DATA_LIMIT:
            raise ValueError(name)
        if n:
            more = await asyncio.wait_for(reader.readexactly(n), PATIENCE)
            if name == "data_length":
                found = json.loads(more)
                if not isinstance(data, dict) or not isinstance(found, dict):
                    raise ValueError(name)
                data = {**data, **found}
    if not isinstance(data, dict):
        raise ValueError("data")
    return head["type"], data


async def write_event(writer: asyncio.StreamWriter, kind: str, data: dict[str, Any]) -> None:
    """Write one event; the data follow the line, as in the wyoming package."""
    body = json.dumps({name: value for name, value in data.items() if value is not None}, ensure_ascii=False).encode()
    head = {"type": kind, "version": "1.8.0", "data_length": len(body)}
    writer.write(json.dumps(head).encode() + b"\n" + body)
    await asyncio.wait_for(writer.drain(), PATIENCE)
