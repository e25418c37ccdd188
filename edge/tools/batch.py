"""Batch: answers many requests from a file, several at once, into another file; a batch that was killed can continue.

The lines are those of OpenAI's batch files: {"custom_id", "method", "url", "body"} in, {"id", "custom_id", "response",
"error"} out, in the order in which answers are ready.  ``id`` contains the number of the line that was answered, so the
output shows what is done.  Each line is written at once; an incomplete last line, left by a kill or a power cut, is
removed when the batch continues.
"""

from __future__ import annotations

import fcntl
import json
import os
import threading
import time
import zlib
from array import array
from collections.abc import Callable, Iterator
from reprlib import repr as short
from typing import TYPE_CHECKING, Any, NamedTuple

from edge.errors import Busy, ContextFull, EdgeError, UsageError
from edge.model.footprint import available_memory
from edge.serve.calls import Refusal, bad, checked_text, refusal_of
from edge.serve.protocols import openai
from edge.threads import start

if TYPE_CHECKING:
    from edge.engine import Engine
    from edge.session.session import Session

LINE_LIMIT = 4 << 20  # bytes of a request
AT_ONCE = 8
HEAD = "batch_req_"  # of the id of an answer; the number of its line follows
SYNC_SECONDS = 5.0  # what was written in so long may be lost with the power


class Summary(NamedTuple):
    """Lines of the input: in all, answered before, answered now, of these with an error; tokens written now."""

    total: int
    before: int
    answered: int
    failed: int
    tokens: int
    seconds: float


class Batch:
    """Answers the lines of an input file.

    As many answers run at the same time as the engine was loaded for (``parallel``), else AT_ONCE, or fewer if memory
    is short.  ``defaults``: options of every answer.

    Raises UsageError for an input that cannot be read or in which two lines have the same custom_id, and for an output
    that does not belong to it; Busy if another process writes to the output.
    """

    def __init__(
        self, engine: Engine, source: str, target: str, *, resume: bool = False, defaults: dict[str, Any] | None = None
    ) -> None:
        self._engine = engine
        self._defaults = {"sampling": engine.model.sampling, **(defaults or {})}
        self.at_once = _fitting(engine)
        self._lock = threading.Lock()  # of all below
        self._sessions: list[Session] = []
        self._stopped = False
        self._failure: BaseException | None = None
        self._answered = self._failed = self._tokens = 0
        self._synced = time.monotonic()
        try:
            self._source = open(source, "rb")
        except OSError as error:
            raise UsageError(f"cannot read {source}: {error.strerror}") from None
        try:
            self.total = self._checked_names(source)
        except BaseException:
            self._source.close()
            raise
        try:
            self._target = os.open(target, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o666)
        except OSError as error:
            self._source.close()
            raise UsageError(f"cannot write {target}: {error.strerror}") from None
        try:
            self._done = self._begun(target, resume)
        except BaseException:
            self.close()
            raise

    def run(self, progress: Callable[[float, float], None] = lambda done, total: None) -> Summary:
        """Answer all lines that have no answer yet.  ``progress``: called with (lines done, lines in all).

        Raises what ends it early: an EdgeError if the answers cannot be written, or the system starts no threads.
        """
        begun, before = time.monotonic(), sum(self._done)
        progress(before, self.total)
        work = ((number, line) for number, line in self._lines() if not self._done[number])
        threads: list[threading.Thread] = []
        try:
            for _ in range(self.at_once):
                thread = threading.Thread(target=self._answer, args=(work,), name="batch")
                start(thread)
                threads.append(thread)
            while any(thread.is_alive() for thread in threads):
                threads[0].join(0.1)
                threads = [thread for thread in threads if thread.is_alive()] or threads[:1]
                progress(before + self._answered + self._failed, self.total)
        finally:
            self.stop()
            for thread in threads:
                thread.join()
        os.fsync(self._target)
        if self._failure is not None:
            raise self._failure
        seconds = time.monotonic() - begun
        return Summary(self.total, before, self._answered, self._failed, self._tokens, seconds)

    def stop(self) -> None:
        """End the running answers, which are not written.  May be called from any thread or signal handler."""
        self._stopped = True
        for session in list(self._sessions):
            session.cancel()

    def close(self) -> None:
        """Close both files."""
        self._source.close()
        os.close(self._target)

    def __enter__(self) -> Batch:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ---- what is done -----------------------------------------------------------------------------------------------

    def _checked_names(self, source: str) -> int:
        """The number of lines.  Raises UsageError if none of them is a request, which is not a batch with mistakes, and
        if two have the same custom_id: nobody could tell their answers apart.
        """
        numbers: dict[str, int] = {}
        first, valid, number = None, False, 0
        for number, line in self._lines():
            name, request = _read(line)
            if name is not None and (before := numbers.setdefault(name, number)) != number:
                raise UsageError(f"{source}: requests {before} and {number} have the same custom_id, {short(name)}; "
                                 "each needs its own")
            if not valid:
                refusal = _refusal(request)
                first, valid = first or refusal, refusal is None
        if number and not valid:
            raise UsageError(f"{source} has no valid request; request 1: {first}")
        return number

    def _begun(self, name: str, resume: bool) -> bytearray:
        """A flag for each line (numbered from 1): whether the output answers it.  An incomplete line at the end of the
        output is removed.
        """
        try:
            fcntl.flock(self._target, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise Busy(f"another process writes to {name}") from None
        done, names, whole = bytearray(self.total + 1), array("I", bytes(4 * (self.total + 1))), 0
        if os.fstat(self._target).st_size and not resume:
            raise UsageError(f"{name} is not empty; use --resume to continue it")
        with open(self._target, "rb", closefd=False) as file:
            file.seek(0)
            for line in file:
                if not line.endswith(b"\n"):
                    break
                number, ident = _answered(line)
                if not 1 <= number <= self.total or done[number]:
                    raise UsageError(f"{name}: the line at byte {whole} is not an answer of this batch")
                done[number], names[number] = 1, _sum(ident)
                whole += len(line)
        for number, line in self._lines():
            if done[number] and names[number] != _sum(_read(line)[0]):
                raise UsageError(f"{name} belongs to another input: the custom_id of request {number} differs")
        os.ftruncate(self._target, whole)
        return done

    def _lines(self) -> Iterator[tuple[int, bytes]]:
        """(number from 1, line) of the input; empty lines are skipped."""
        self._source.seek(0)
        return enumerate((line for line in self._source if line.strip()), 1)

    # ---- the answers ------------------------------------------------------------------------------------------------

    def _answer(self, work: Iterator[tuple[int, bytes]]) -> None:
        """One thread: answers requests one after the other."""
        try:
            with self._engine.session("") as session:
                session.patient = True
                with self._lock:
                    self._sessions.append(session)
                while not self._stopped:
                    with self._lock:
                        number, line = next(work, (0, b""))
                    if not number:
                        return
                    self._one(session, number, line)
        except BaseException as error:
            self._failure = error
            self.stop()

    def _one(self, session: Session, number: int, line: bytes) -> None:
        head, tokens, status = f"{HEAD}{number}", 0, 200
        name, request = _read(line)
        try:
            if isinstance(request, Refusal):
                raise request
            answered, tokens = self._complete(session, head, *_checked(request))
        except EdgeError as error:
            if not isinstance(error, (UsageError, ContextFull)):
                raise  # of the model or the machine: the lines behind it would fail, too
            status, answered = _failed(error)
        except Exception as error:  # a refusal; or a bug, which must not cost the other lines their answers
            status, answered = _failed(error)
        if self._stopped:
            return
        written = {
            "id": head,
            "custom_id": name,
            "response": {"status_code": status, "request_id": head, "body": answered},
            "error": None if status == 200 else answered["error"],
        }
        self._write(_encoded(written) + b"\n", status == 200, tokens)

    def _complete(self, session: Session, head: str, url: str, body: dict[str, Any]) -> tuple[dict[str, Any], int]:
        """The body of a response, and the number of its tokens."""
        call = (openai.chat if url.endswith("/chat/completions") else openai.completion)(body, self._defaults)
        writer, choices, usages = openai.Writer(call, self._engine.config.name, head), [], []
        for i, prepared in enumerate(call.prepare(self._engine)):
            answer = session.answer(prepared)
            if self._stopped:
                session.cancel()
            content, calls = answer.content, answer.calls
            reason = "tool_calls" if calls else answer.finish_reason
            logprobs = [*answer.prompt_logprobs, *answer.logprobs]
            choices.append(writer.choice(i, content, reason, logprobs, answer.thoughts, calls))
            usages.append(answer.usage)
        counts = openai.counts(usages, call.n)
        return writer.whole(choices, openai.usage(*counts)), counts[2]

    def _write(self, line: bytes, answered: bool, tokens: int) -> None:
        with self._lock:
            rest = memoryview(line)
            try:
                while rest:
                    rest = rest[os.write(self._target, rest) :]
                if time.monotonic() - self._synced > SYNC_SECONDS:
                    os.fsync(self._target)
                    self._synced = time.monotonic()
            except OSError as error:
                raise EdgeError(f"cannot write the answers: {error.strerror}; use --resume to continue later") from None
            self._answered += answered
            self._failed += not answered
            self._tokens += tokens


def _failed(error: Exception) -> tuple[int, dict[str, Any]]:
    """(status, body of the response) for a request that cannot be answered."""
    refusal = refusal_of(error)
    return refusal.status, openai.error(refusal)


def _encoded(value: Any) -> bytes:
    """JSON in UTF-8.  Half a surrogate pair, which a refused request may contain, cannot be encoded and is escaped."""
    try:
        return json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return json.dumps(value).encode()


def _answered(line: bytes) -> tuple[int, Any]:
    """(number, custom_id) of the request that a line of the output answers; number 0 if none."""
    try:
        written = json.loads(line)
        return int(written["id"].removeprefix(HEAD)), written["custom_id"]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return 0, None


def _sum(name: str | None) -> int:
    """A checksum of a name in four bytes, enough to notice that the input is another file."""
    return 0 if name is None else zlib.crc32(name.encode("utf-8", "surrogatepass"))


def _fitting(engine: Engine) -> int:
    """The number of answers at the same time: as planned, else as many as memory allows, at least one."""
    plan = engine.plan
    if plan.parallel is not None:
        return plan.parallel
    room = plan.room if plan.room is not None else available_memory()
    each = max(1, plan.kv_bytes)
    return AT_ONCE if room is None else max(1, min(AT_ONCE, room // each))


# ---- one request -----------------------------------------------------------------------------------------------------


def _read(line: bytes) -> tuple[str | None, dict[str, Any] | Refusal]:
    """(custom_id, the request or the reason why it is refused)."""
    if len(line) > LINE_LIMIT:
        return None, bad(f"a request has at most {LINE_LIMIT} bytes", code="too_large")
    try:
        request = json.loads(line.decode("utf-8-sig"))
    except (ValueError, RecursionError) as error:
        return None, bad(f"the line is not one JSON object: {error}", code="bad_json")
    if not isinstance(request, dict):
        return None, bad("the line is not a JSON object", code="bad_json")
    name = request.get("custom_id")
    if name is None:
        return None, request
    if not isinstance(name, str):
        return None, bad("custom_id is not a text", "custom_id")
    try:
        checked_text(name, "custom_id")
    except Refusal as refused:
        return name, refused
    return name, request


def _refusal(request: dict[str, Any] | Refusal) -> Refusal | None:
    """Why this is not a request; None if it is one."""
    if isinstance(request, Refusal):
        return request
    try:
        _checked(request)
    except Refusal as refused:
        return refused
    return None


def _checked(request: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """(url, body).  Raises Refusal."""
    url, body = request.get("url", "/v1/chat/completions"), request.get("body")
    if request.get("method", "POST") != "POST" or url not in ("/v1/chat/completions", "/v1/completions"):
        raise Refusal(404, "a batch has POST /v1/chat/completions and /v1/completions", "not_found", "url")
    if not isinstance(body, dict):
        raise bad("body is not a JSON object", "body")
    return url, body
