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
import shutil
import stat
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from reprlib import repr as short
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple

from edge.errors import Busy, ContextFull, EdgeError, UsageError, check_text
from edge.files import LINE_LIMIT, STANDARD, remove, stdin
from edge.machine.memory import available_memory
from edge.records import shares
from edge.serve.bodies import parse
from edge.serve.calls import Refusal, refusal_of
from edge.serve.protocols import openai
from edge.threads import starting

if TYPE_CHECKING:
    from edge.engine import Engine
    from edge.session.session import Session

AT_ONCE = 8
HEAD = "batch_req_"  # of the id of an answer; the number of its line follows
START = f'{{"id": "{HEAD}'.encode()  # of a line of the output
SYNC_SECONDS = 5.0  # what was written in so long may be lost with the power


class Summary(NamedTuple):
    """Lines of the input: in all, answered before, answered now, with an error; tokens written now."""

    total: int
    before: int
    answered: int
    failed: int
    tokens: int
    seconds: float


class Batch:
    """Answers the lines of an input file.  ``source`` and ``output`` may be ``-``: standard input and output.

    As many answers run at the same time as the engine was loaded for (``parallel``), else AT_ONCE, or fewer if memory
    is short.  ``defaults``: options of every answer.

    Raises UsageError for an input that cannot be read or in which two lines have the same custom_id, and for an output
    that does not belong to it; Busy if another process writes to the output.
    """

    def __init__(
        self, engine: Engine, source: str, output: str, *, resume: bool = False, defaults: dict[str, Any] | None = None
    ) -> None:
        self._engine = engine
        self._defaults = {"sampling": engine.model.sampling, **(defaults or {})}
        self.at_once = _count_fitting(engine)
        self._sessions: list[Session] = []
        self._stopped = False
        self._lock = threading.Lock()  # of both files and the counts
        self._written: Callable[[], None] = lambda: None  # called when a line was written
        self._answered = self._failed = self._tokens = 0
        self._synced = time.monotonic()
        self._source = _open(source)
        try:
            self.total = self._check_names(source)
        except BaseException:
            self._source.close()
            raise
        made = not os.path.lexists(output)
        try:
            if output == STANDARD:
                self._output = os.dup(1)
            else:
                self._output = os.open(output, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o666)
        except OSError as error:
            self._source.close()
            raise UsageError(f"cannot write {output}: {error.strerror}") from None
        #: a file that can be continued; not standard output, a pipe or a device
        self.continues = output != STANDARD and stat.S_ISREG(os.fstat(self._output).st_mode)
        try:
            if resume and not self.continues:
                raise UsageError(f"--resume reads what OUT has, and {output} is not a file")
            self._done = self._find_done(output, resume) if self.continues else set()
        except BaseException:
            if made and self.continues:
                remove(output)
            self.close()
            raise

    def run(self, progress: Callable[[float, float], None] = lambda done, total: None) -> Summary:
        """Answer all lines that have no answer yet.  ``progress``: called with (lines done, lines in all), from several
        threads in turn.

        Raises what ends it early: an EdgeError if the answers cannot be written, or the system starts no threads.
        """
        begun, before = time.monotonic(), len(self._done) - self._failed
        pending = ((number, line) for number, line in self._lines() if number not in self._done)
        self._sessions = [self._engine.session("") for _ in range(self.at_once)]
        self._written = lambda: progress(before + self._answered + self._failed, self.total)
        self._written()
        pool = ThreadPoolExecutor(self.at_once)
        try:
            with starting():
                running = [pool.submit(self._answer_lines, session, pending) for session in self._sessions]
            for each in as_completed(running):
                each.result()  # raises what ends it early
        finally:
            self.stop()
            pool.shutdown()
            for session in self._sessions:
                session.close()
        if self.continues:
            os.fsync(self._output)
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
        os.close(self._output)

    def __enter__(self) -> Batch:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ---- what is done -----------------------------------------------------------------------------------------------

    def _check_names(self, source: str) -> int:
        """The number of lines.  Raises UsageError if none of them is a request, which is not a batch with mistakes, and
        if two have the same custom_id: nobody could distinguish their answers.
        """
        numbers: dict[str, int] = {}
        first, valid, number = None, False, 0
        for number, line in self._lines():
            name, request = _read_request(line)
            if name is not None and (before := numbers.setdefault(name, number)) != number:
                raise UsageError(f"{source}: requests {before} and {number} have the same custom_id, {short(name)}; "
                                 "each needs its own")
            if not valid:
                try:
                    valid = bool(_check_request(request))
                except (Refusal, UsageError) as refused:
                    first = first or refused
        if number and not valid:
            raise UsageError(f"{source} has no valid request; request 1: {first}")
        return number

    def _find_done(self, name: str, resume: bool) -> set[int]:
        """The numbers of the lines that the output answers.  Its last line is removed if it is incomplete."""
        try:
            fcntl.flock(self._output, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise Busy(f"another process writes to {name}") from None
        done: dict[int, Any] = {}  # number -> custom_id
        whole = 0
        if os.path.sameopenfile(self._source.fileno(), self._output):
            raise UsageError(f"{name} is IN, too: the answers need a file of their own")
        if os.fstat(self._output).st_size and not resume:
            raise UsageError(f"{name} is not empty; use --resume to continue it")
        with open(self._output, "rb", closefd=False) as file:
            file.seek(0)
            for line in file:
                ended = line.endswith(b"\n")
                if not ended and START.startswith(line.rstrip(b"\0")[: len(START)]):  # a power cut may leave zeros
                    break
                number, ident, failed = _read_answer(line) if ended else (0, None, False)
                if not 1 <= number <= self.total or number in done:
                    raise UsageError(f"{name}: the line at byte {whole} is not an answer of this batch")
                done[number] = ident
                self._failed += failed
                whole += len(line)
        for number, line in self._lines():
            if number in done and done[number] != _read_request(line)[0]:
                raise UsageError(f"{name} belongs to another input: the custom_id of request {number} differs")
        os.ftruncate(self._output, whole)
        return set(done)

    def _lines(self) -> Iterator[tuple[int, bytes]]:
        """(number from 1, line) of the input; empty lines are skipped."""
        self._source.seek(0)
        return enumerate((line for line in self._source if line.strip()), 1)

    # ---- the answers ------------------------------------------------------------------------------------------------

    def _answer_lines(self, session: Session, pending: Iterator[tuple[int, bytes]]) -> None:
        """Answer one line after the other, in a thread of its own."""
        session.state.patient = True
        while not self._stopped:
            with self._lock:
                number, line = next(pending, (0, b""))
            if not number:
                break
            self._answer_line(session, f"{HEAD}{number}", *_read_request(line))

    def _answer_line(
        self, session: Session, head: str, name: str | None, request: dict[str, Any] | Exception
    ) -> None:
        """Answer a request, and write its line."""
        status, tokens = 200, 0
        try:
            answered, tokens = self._response(session, head, *_check_request(request))
        except Exception as error:  # a refusal; or a bug, which must not cost the other lines their answers
            if isinstance(error, EdgeError) and not isinstance(error, (UsageError, ContextFull)):
                raise  # of the model or the machine: the other lines would fail, too
            refusal = refusal_of(error)
            status, answered = refusal.status, openai.error(refusal)
        written = {
            "id": head,
            "custom_id": name,
            "response": {"status_code": status, "request_id": head, "body": answered},
            "error": None if status == 200 else answered["error"],
        }
        with self._lock:
            if not self._stopped:
                self._write(_encode(written) + b"\n", status == 200, tokens)
                self._written()

    def _response(self, session: Session, head: str, url: str, body: dict[str, Any]) -> tuple[dict[str, Any], int]:
        """(the body of the response, the number of its tokens); its choices are written one after the other."""
        call = (openai.chat if url.endswith("/chat/completions") else openai.completion)(body, self._defaults)
        writer = openai.Writer(call, body, self._engine.config.name, head)
        try:
            prepared = call.prepare(self._engine)
        except (UsageError, ContextFull) as error:
            raise refusal_of(error, call.sent) from None
        choices, usages = [], []
        for index, each in enumerate(prepared):
            answer = session.answer(each)
            answer.begin()
            if self._stopped:
                session.cancel()
            content, calls = answer.content, answer.calls
            logprobs = [*answer.prompt_logprobs, *answer.logprobs]
            scores = None if call.logprobs is None else writer.scores(index, logprobs)
            reason = "tool_calls" if calls else answer.finish_reason
            choice = writer.choice(index, content, reason, scores, answer.thoughts, calls)
            choices.append(choice | shares(answer.shares))
            usages.append(answer.usage)
        return writer.made(choices, usages), sum(each.completion for each in usages)

    def _write(self, line: bytes, answered: bool, tokens: int) -> None:
        rest = memoryview(line)
        try:
            while rest:
                rest = rest[os.write(self._output, rest) :]
            if self.continues and time.monotonic() - self._synced > SYNC_SECONDS:
                os.fsync(self._output)
                self._synced = time.monotonic()
        except BrokenPipeError:
            raise
        except OSError as error:
            later = "; use --resume to continue later" if self.continues else ""
            raise EdgeError(f"cannot write the answers: {error.strerror}{later}") from None
        self._answered += answered
        self._failed += not answered
        self._tokens += tokens


def _open(source: str) -> BinaryIO:
    """The input, which is read more than once: standard input is kept in a file without a name.  Raises UsageError."""
    try:
        if source != STANDARD:
            return open(source, "rb")
        kept = tempfile.TemporaryFile()
        shutil.copyfileobj(stdin(), kept)
        return kept
    except OSError as error:
        name = "standard input" if source == STANDARD else source
        raise UsageError(f"cannot read {name}: {error.strerror}") from None


def _encode(value: Any) -> bytes:
    """JSON in UTF-8.  Half a surrogate pair, which a refused request may contain, cannot be encoded and is escaped."""
    try:
        return json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return json.dumps(value).encode()


def _read_answer(line: bytes) -> tuple[int, Any, bool]:
    """(number, custom_id, whether it is an error) of the request that a line of the output answers; number 0 if none.
    """
    try:
        written = json.loads(line)
        return int(written["id"].removeprefix(HEAD)), written["custom_id"], written["error"] is not None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return 0, None, False


def _count_fitting(engine: Engine) -> int:
    """The number of answers at the same time: as planned, else as many as memory allows, at least one."""
    plan = engine.plan
    if plan.parallel is not None:
        return plan.parallel
    room = plan.room if plan.room is not None else available_memory()
    each = max(1, plan.kv_bytes)
    return AT_ONCE if room is None else max(1, min(AT_ONCE, room // each))


# ---- one request -----------------------------------------------------------------------------------------------------


def _read_request(line: bytes) -> tuple[str | None, dict[str, Any] | Exception]:
    """(custom_id, the request or the reason why it is refused)."""
    name = None
    try:
        request = parse(line, LINE_LIMIT, "too_large")
        if not isinstance(request, dict):
            raise Refusal(400, "the line is not a JSON object", "bad_json")
        if isinstance(given := request.get("custom_id"), str):
            name = given
        if given is not None:
            check_text(given, "custom_id")
    except (Refusal, UsageError) as refused:
        return name, refused
    return name, request


def _check_request(request: dict[str, Any] | Exception) -> tuple[str, dict[str, Any]]:
    """(url, body).  Raises Refusal and UsageError."""
    if isinstance(request, Exception):
        raise request
    url, body = request.get("url", "/v1/chat/completions"), request.get("body")
    if request.get("method", "POST") != "POST" or url not in ("/v1/chat/completions", "/v1/completions"):
        raise Refusal(404, "a batch has POST /v1/chat/completions and /v1/completions", "not_found", "url")
    if not isinstance(body, dict):
        raise UsageError("is not a JSON object", argument="body")
    return url, body
