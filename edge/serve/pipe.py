"""The connection of JSON lines: standard input and output.

Input and output may be files, for which an event loop cannot wait: so one thread reads and one writes.  If nobody reads
the output, the answer waits.
"""

from __future__ import annotations

import asyncio
import json
import os
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

from edge.threads import start

if TYPE_CHECKING:
    from edge.serve.protocols.jsonl import Client

READ = 1 << 16
AHEAD = 1 << 16  # bytes that may wait to be written before the answer waits
STOP_SECONDS = 5.0  # for the last events, when a signal ends it


class Pipe:
    """The channel to one output.  ``write``: takes bytes and may block."""

    def __init__(self, write: Callable[[bytes], object], ascii_only: bool = False) -> None:
        self._write = write
        self._ascii_only = ascii_only
        self._loop = asyncio.get_running_loop()
        self._lines: SimpleQueue[bytes | None] = SimpleQueue()
        self._waiting = 0  # bytes
        self._written = asyncio.Event()
        self.ended: asyncio.Future[None] = self._loop.create_future()  # done when all is written, or fails
        start(threading.Thread(target=self._run, name="output", daemon=True))

    def send(self, event: dict[str, Any]) -> None:
        """Write one event as a line, in the thread of the output; returns at once."""
        data = json.dumps(event, ensure_ascii=self._ascii_only).encode() + b"\n"
        self._waiting += len(data)
        self._lines.put(data)

    async def room(self) -> None:
        """Wait until at most AHEAD bytes are still to be written."""
        while self._waiting > AHEAD and not self.ended.done():
            self._written.clear()
            await self._written.wait()

    def close(self) -> None:
        """End the output after everything is written."""
        self._lines.put(None)

    def _run(self) -> None:
        error: BaseException | None = None
        try:
            while (data := self._lines.get()) is not None:
                self._write(data)
                self._loop.call_soon_threadsafe(self._wrote, len(data))
        except BaseException as failure:
            error = failure
        try:
            self._loop.call_soon_threadsafe(self._end, error)
        except RuntimeError:  # the loop is closed: the program ends
            pass

    def _wrote(self, nbytes: int) -> None:
        self._waiting -= nbytes
        self._written.set()

    def _end(self, error: BaseException | None) -> None:
        self._written.set()
        if self.ended.done():
            return
        if error is None:
            self.ended.set_result(None)
        else:
            self.ended.set_exception(error)
            self.ended.exception()  # after a signal nobody asks for it, which asyncio would report


async def speak(
    welcome: Callable[[Pipe], Client], source: int | None, write: Callable[[bytes], object], ascii_only: bool = False,
) -> None:
    """Serve the client at the file descriptor ``source`` until its end; None: the client sends nothing.

    Raises what ``write`` raises.
    """
    channel = Pipe(write, ascii_only)
    client = welcome(channel)
    client.begin()
    loop = asyncio.get_running_loop()

    async def feed(data: bytes) -> None:
        client.feed(data)

    def read(source: int) -> None:
        try:
            while data := os.read(source, READ):
                asyncio.run_coroutine_threadsafe(feed(data), loop).result()
        except OSError:
            pass
        except BaseException:  # the loop ends
            return
        try:
            loop.call_soon_threadsafe(client.end)
        except RuntimeError:
            pass

    if source is None:
        client.end()
    else:
        start(threading.Thread(target=read, args=(source,), name="input", daemon=True))
    try:
        await asyncio.shield(channel.ended)
    except asyncio.CancelledError:
        await asyncio.wait([asyncio.ensure_future(client.stop()), channel.ended], timeout=STOP_SECONDS)
        await asyncio.wait([channel.ended], timeout=STOP_SECONDS)
        raise
    finally:
        client.leave()
