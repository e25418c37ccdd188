"""Batch: many requests out of a file, several at once, their answers into another; one that was killed goes on.

A line of either file is that of OpenAI's batch files: {"custom_id", "method", "url", "body"} in, {"id", "custom_id",
"response", "error"} out, in the order in which answers are ready.  ``id`` tells the number of the line it answers, so
the output itself says what is done: a line is written in one piece, and half a line, which a kill or a power cut leaves
at the end, is dropped when the batch goes on.
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
from typing import TYPE_CHECKING, Any, NamedTuple

from edge.errors import Busy, ContextFull, EdgeError, UsageError
from edge.model.footprint import available_memory

if TYPE_CHECKING:
    from edge.engine import Engine
    from edge.session.session import Session

LINE_LIMIT = 4 << 20  # bytes of a request
AT_ONCE = 4
HEAD = "batch_req_"  # of the id of an answer; the number of its line follows
SYNC_SECONDS = 5.0  # what was written in so long may be lost with the power
#: keys of a body that are options of an answer
_OPTIONS = (
    "max_tokens", "stop", "regex", "choices", "grammar", "ignore_eos", "temperature", "top_k", "top_p", "min_p", "seed",
    "repeat_penalty", "repeat_last_n", "presence_penalty", "frequency_penalty",
)  # fmt: skip
_FORMS = {"schema", "regex", "choices", "grammar"}
#: keys that would change what is answered
_REFUSED = ("logprobs", "logit_bias", "functions", "echo", "suffix")


class Summary(NamedTuple):
    """Lines of the input: in all, of these answered before, now, and with an error now; tokens written now."""

    total: int
    before: int
    answered: int
    failed: int
    tokens: int
    seconds: float


class Refused(Exception):
    """A line that cannot be answered; ``status`` as in HTTP."""

    def __init__(self, message: str, status: int = 400, code: str = "invalid_request") -> None:
        super().__init__(message)
        self.status, self.code = status, code


class Batch:
    """As many answers are in work at a time as the engine was loaded for (``parallel``), else AT_ONCE, or fewer where
    memory is short.  ``defaults``: options of every answer.

    Raises UsageError for an input that cannot be read and an output that is not of it, Busy where another process
    writes to it.
    """

    def __init__(
        self, engine: Engine, source: str, target: str, *, resume: bool = False, defaults: dict[str, Any] | None = None
    ) -> None:
        self._engine = engine
        self._defaults = dict(defaults or {})
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
        self.total = sum(1 for line in self._source if line.strip())
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
        """Answer what is not answered yet.  ``progress`` is called with (lines done, lines in all)."""
        begun, before = time.monotonic(), sum(self._done)
        progress(before, self.total)
        work = ((number, line) for number, line in self._lines() if not self._done[number])
        threads = [threading.Thread(target=self._answer, args=(work,), name="batch") for _ in range(self.at_once)]
        for thread in threads:
            thread.start()
        try:
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
        """End the answers in work, which are not written; from any thread or signal handler."""
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

    def _begun(self, name: str, resume: bool) -> bytearray:
        """A flag for each line, from number 1: whether the output answers it.  Half a line at its end is dropped."""
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
        """(number from 1, line) of the input; empty lines do not count."""
        self._source.seek(0)
        return enumerate((line for line in self._source if line.strip()), 1)

    # ---- the answers ------------------------------------------------------------------------------------------------

    def _answer(self, work: Iterator[tuple[int, bytes]]) -> None:
        """One thread: requests, one after the other."""
        try:
            with self._engine.session("") as session:
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
            if isinstance(request, Refused):
                raise request
            answered, tokens = self._complete(session, head, *_checked(request))
        except (Refused, UsageError, ContextFull) as error:
            status, code = getattr(error, "status", 400), getattr(error, "code", "invalid_request")
            answered = {"error": {"message": str(error), "type": "invalid_request_error", "param": None, "code": code}}
        if self._stopped:
            return
        written = {
            "id": head,
            "custom_id": name,
            "response": {"status_code": status, "request_id": head, "body": answered},
            "error": None if status == 200 else answered["error"],
        }
        self._write(json.dumps(written, ensure_ascii=False).encode() + b"\n", status == 200, tokens)

    def _complete(self, session: Session, head: str, url: str, body: dict[str, Any]) -> tuple[dict[str, Any], int]:
        """The body of a response, and its tokens."""
        chat = url.endswith("/chat/completions")
        options = _options(body, self._defaults)
        if chat:
            answer = session.chat(_messages(body.get("messages")), **options)
        else:
            prompt = body.get("prompt")
            if not isinstance(prompt, str) or not prompt:
                raise Refused("prompt is a text")
            answer = session.complete(prompt, **options)
        if self._stopped:
            session.cancel()
        text, usage = answer.text, answer.usage
        calls = answer.calls
        reason = "tool_calls" if calls else {"stop": "stop"}.get(answer.finish_reason or "", "length")
        message = {"role": "assistant", "content": answer.content, **({"tool_calls": calls} if calls else {})}
        said: dict[str, Any] = {"message": message} if chat else {"text": text}
        return {
            "id": ("chatcmpl-" if chat else "cmpl-") + head,
            "object": "chat.completion" if chat else "text_completion",
            "created": int(time.time()),
            "model": self._engine.config.name,
            "choices": [{"index": 0, **said, "logprobs": None, "finish_reason": reason}],
            "usage": {
                "prompt_tokens": usage.prompt,
                "completion_tokens": usage.completion,
                "total_tokens": usage.prompt + usage.completion,
                "prompt_tokens_details": {"cached_tokens": usage.cached},
            },
        }, usage.completion

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


def _answered(line: bytes) -> tuple[int, Any]:
    """(number, custom_id) of the request that a line of the output answers; number 0: none."""
    try:
        written = json.loads(line)
        return int(written["id"].removeprefix(HEAD)), written["custom_id"]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return 0, None


def _sum(name: str | None) -> int:
    """Tells names apart in four bytes, well enough to see that a file is another."""
    return 0 if name is None else zlib.crc32(name.encode("utf-8", "surrogatepass"))


def _fitting(engine: Engine) -> int:
    """Answers at a time: those that are planned, else as memory has room for, one at least."""
    plan = engine.plan
    if plan.parallel is not None:
        return plan.parallel
    room = plan.room if plan.room is not None else available_memory()
    each = max(1, plan.kv_bytes)
    return AT_ONCE if room is None else max(1, min(AT_ONCE, room // each))


# ---- one request -----------------------------------------------------------------------------------------------------


def _read(line: bytes) -> tuple[str | None, dict[str, Any] | Refused]:
    """(custom_id, the request or what is wrong with it)."""
    if len(line) > LINE_LIMIT:
        return None, Refused(f"a request has at most {LINE_LIMIT} bytes")
    try:
        request = json.loads(line.decode("utf-8-sig"))
    except (ValueError, RecursionError) as error:
        return None, Refused(f"not one JSON object: {error}", code="invalid_json")
    if not isinstance(request, dict):
        return None, Refused("a request is a JSON object", code="invalid_json")
    name = request.get("custom_id")
    if name is None or isinstance(name, str):
        return name, request
    return None, Refused("custom_id is a text")


def _checked(request: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """(url, body).  Raises Refused."""
    url, body = request.get("url", "/v1/chat/completions"), request.get("body")
    if request.get("method", "POST") != "POST" or url not in ("/v1/chat/completions", "/v1/completions"):
        raise Refused("a batch has POST /v1/chat/completions and /v1/completions", 404, "not_found")
    if not isinstance(body, dict):
        raise Refused("body is a JSON object")
    return url, body


def _messages(given: Any) -> list[dict[str, Any]]:
    """Messages with their contents as texts; the session judges the rest."""
    if not isinstance(given, list) or not given:
        raise Refused('messages is a list such as [{"role": "user", "content": "Hello"}]')
    messages = []
    for i, message in enumerate(given):
        role = message.get("role") if isinstance(message, dict) else None
        if role == "developer":
            role = "system"
        content = message.get("content")
        if isinstance(content, list) and all(isinstance(p, dict) and p.get("type") == "text" for p in content):
            content = "".join(str(part.get("text", "")) for part in content)
        if not isinstance(content, str) and not (content is None and message.get("tool_calls")):
            raise Refused(f"messages[{i}].content is a text")
        messages.append({**message, "role": role, "content": content})
    return messages


def _options(body: dict[str, Any], defaults: dict[str, Any]) -> dict[str, Any]:
    """Keyword arguments of ``ask``; keys that are not known are ignored, as OpenAI does."""
    for key in _REFUSED:
        if body.get(key):
            raise Refused(f"{key} is not supported in a batch")
    if body.get("n") not in (None, 1):
        raise Refused("n is 1: a line has one answer")
    own = {key: body[key] for key in _OPTIONS if body.get(key) is not None}
    if body.get("max_completion_tokens") is not None:
        own["max_tokens"] = body["max_completion_tokens"]
    wanted = body.get("response_format") or {"type": "text"}
    kind = wanted.get("type") if isinstance(wanted, dict) else None
    if kind == "json_schema":
        outer = wanted.get("json_schema")
        if not isinstance(outer, dict) or not isinstance(outer.get("schema"), (dict, bool)):
            raise Refused("response_format.json_schema.schema is missing")
        own["schema"] = outer["schema"]
    elif kind == "json_object":
        own["schema"] = {"type": "object"}
    elif kind != "text":
        raise Refused("response_format.type is text, json_object or json_schema")
    if body.get("tools"):
        from edge.constrain.tools import Tools

        own["tools"] = Tools.of(body["tools"], body.get("tool_choice"), body.get("parallel_tool_calls"))
    if {*_FORMS, "tools"} & own.keys():  # in place of the one that is the default
        defaults = {key: value for key, value in defaults.items() if key not in _FORMS}
    return defaults | own
