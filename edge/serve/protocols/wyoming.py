"""Wyoming: the voice protocol of Home Assistant, as a ``handle`` server: a transcript comes, a text to speak goes.

JSON lines over TCP: ``{"type", "version", "data_length", "payload_length"}`` in one line, then that many bytes.  Home
Assistant opens a connection for each turn and sends no history, only ``context.conversation_id``, so the conversations
are kept here. https://github.com/OHF-Voice/wyoming describes the events.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import urllib.parse
from collections import OrderedDict
from typing import TYPE_CHECKING, Any

from edge.errors import EdgeError, UsageError
from edge.serve.calls import Call, Fields, Refusal, bad
from edge.session.answer_options import certain

if TYPE_CHECKING:
    import socket

    from edge.serve.service import Service

LINE_LIMIT = 1 << 16
DATA_LIMIT = 1 << 20
CONVERSATIONS = 256  # kept; the one used longest ago goes first
TURNS = 24  # messages kept of each
SPOKEN = 200  # tokens of an answer that is spoken, at most
PATIENCE = 30.0  # seconds for the rest of an event, and for a client to read one
CONNECTIONS = 64  # at a time; beyond that the one that has said nothing for the longest time is closed
TEXT_LIMIT = 1 << 14  # most characters of a transcript
ID_LIMIT = 200  # and of the name of a conversation


def host_and_port(address: str) -> tuple[str, int]:
    """Host and port of tcp://HOST:PORT.  Raises UsageError for another form."""
    try:
        parts = urllib.parse.urlsplit(address)
        host, port = parts.hostname, parts.port
    except ValueError:
        host = port = None
    if host is None or port is None or parts.scheme != "tcp" or parts.path + parts.query + (parts.username or ""):
        raise UsageError(f"--wyoming {address}: must have the form tcp://HOST:PORT, such as tcp://127.0.0.1:10700")
    return host, port


class Heard:
    """A transcript that is still being spoken.  ``read``: what was read of it."""

    def __init__(self) -> None:
        self.text = self.read = ""
        self.key: str | None = None  # its conversation

    def add(self, data: dict[str, Any]) -> None:
        """Add what an event says; what is wrong with it the whole transcript will say."""
        context, text = data.get("context"), data.get("text")
        key = context.get("conversation_id") if isinstance(context, dict) else None
        self.key = key if isinstance(key, str) and len(key) <= ID_LIMIT else self.key
        self.text = (self.text + (text if isinstance(text, str) else ""))[: TEXT_LIMIT + 1]


class WyomingServer:
    """The server.  ``listening``: its socket, which clients can connect to already."""

    def __init__(self, listening: socket.socket, service: Service) -> None:
        self._listening = listening
        self._service = service
        self._conversations: OrderedDict[str, list[dict[str, Any]]] = OrderedDict()
        self._server: asyncio.Server | None = None
        self._open: set[asyncio.StreamWriter] = set()
        self._reading: set[asyncio.Task[None]] = set()
        self._silent: dict[asyncio.StreamWriter, None] = {}  # those that are not being answered, the oldest first

    async def start(self) -> None:
        """Answer."""
        self._server = await asyncio.start_server(self._talk, sock=self._listening, limit=LINE_LIMIT)

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
            heard = Heard()
            while True:
                self._silent[writer] = None
                event = await read_event(reader)
                self._silent.pop(writer, None)
                if event is None:
                    break
                kind, data = event
                if kind == "describe":
                    await write_event(writer, "info", self._info())
                elif kind == "transcript-start":
                    heard = Heard()
                    heard.add(data)
                elif kind == "transcript-chunk":
                    heard.add(data)
                    self._read_ahead(heard)
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

    def _read_ahead(self, heard: Heard) -> None:
        """Read what was heard so far, if it has more whole words than before; nobody waits for it."""
        words = certain(heard.text)
        if words == heard.read or len(heard.text) > TEXT_LIMIT:
            return
        heard.read = words
        call = self._call(heard.key, heard.text.lstrip(), partial=True, max_tokens=0)
        task = asyncio.ensure_future(self._ignored(call))
        self._reading.add(task)  # asyncio itself does not keep it
        task.add_done_callback(self._reading.discard)

    async def _ignored(self, call: Call) -> None:
        with contextlib.suppress(Refusal, EdgeError):  # the answer will say what is wrong
            async for _ in (await self._service.submit(call)).pieces():
                pass

    def _call(self, key: str | None, text: str, **options: Any) -> Call:
        held = self._conversations.get(key, []) if key else []
        return Call(messages=[*held, {"role": "user", "content": text}], key=key,
                    options={"max_tokens": SPOKEN, **self._service.settings.defaults, **options})

    async def _handle(self, writer: asyncio.StreamWriter, data: dict[str, Any]) -> None:
        context = data.get("context")
        try:
            text = Fields(data).text("text") or ""
            key = (Fields(data).inner("context") or Fields({})).text("conversation_id")
            for name, said, most in (("text", text, TEXT_LIMIT), ("context.conversation_id", key or "", ID_LIMIT)):
                if len(said) > most:
                    raise bad(f"{name} has {len(said)} characters; the limit is {most}", name)
        except Refusal as refusal:
            await write_event(writer, "not-handled", {"text": str(refusal)})
            return
        if not text.strip():
            await write_event(writer, "not-handled", {"text": "", "context": context})
            return
        call = self._call(key, text.strip())
        messages = call.messages or []  # without the system prompt
        try:
            pending = await self._service.submit(call)
        except (Refusal, EdgeError) as refusal:
            await write_event(writer, "not-handled", {"text": str(refusal), "context": context})
            return
        spoken = []
        try:
            async for piece in pending.pieces():
                if not piece.thought:
                    spoken.append(piece.text)
        except Exception as error:
            await write_event(writer, "not-handled", {"text": str(error), "context": context})
            return
        finally:
            self._service.withdraw(pending)
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
