"""Answers over HTTP: a request of OpenAI's or Ollama's API -> answers -> a response, whole or streamed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from edge.errors import ContextFull, UsageError
from edge.prompt.messages import check_turns, with_system
from edge.serve.calls import Call, Refusal, dump, refusal_of
from edge.serve.conversations import PendingCall
from edge.serve.exchange import Streamed, answer_json, body_of, watched
from edge.serve.protocols import MARK, Collected, Writer
from edge.serve.service import Service, Settings
from edge.session.logprobs import Logprob
from edge.session.stream import Piece

QUIET = 15.0  # seconds after which a stream that has not begun sends a comment, so that no proxy closes it

async def answer(
    service: Service, parse: Callable[[Any, dict[str, Any]], Call], made: Callable[[Call, Any, str], Writer],
    request: Request,
) -> Response:
    """The response to a request for answers: ``parse`` makes a call of it, and ``made`` its writer."""
    body = await body_of(request)
    _, conversations = service.ready()
    call = parse(body, service.settings.defaults)
    writer = made(call, body, service.name)
    if call.messages is None and not call.prompts:
        return answer_json(writer.nothing())
    try:
        admit(call, service.settings)
        if call.messages is not None:
            call.messages = with_system(call.messages, service.settings.system)
        pending = await conversations.submit(call)
        first, gone = pending.answers[0].job, partial(pending.stop, "cancelled")
        headers = {"x-queue-position": str(first.position), "x-queue-seconds": f"{first.expected:.1f}"}
        if call.stream:
            return Streamed(_stream(pending, writer), writer.KIND, headers, gone)
        found = await watched(request.receive, _collect(pending, writer), gone)
        return Response(_filled(writer.whole(found), found), 200, headers, "application/json")
    except (UsageError, ContextFull) as error:
        raise refusal_of(error, call.sent) from None


def admit(call: Call, settings: Settings) -> None:
    """Refuse what would change or bypass locked instructions, and keep a call within the limits of a kiosk.  Raises
    Refusal (400).
    """
    if settings.locked and (found := bypass(call)) is not None:
        key, what = found
        raise Refusal(400, f"{key} {what}, and the instructions of this server are locked", "instructions_locked", key)
    if (kiosk := settings.kiosk) is None:
        return
    key, most = call.sent.get("messages", "messages"), kiosk.longest_question
    for each in call.messages or ():
        if each["role"] == "user" and (n := len(each["content"])) > most:
            raise Refusal(400, f"{key} has a question of {n} characters; the limit is {most}", "question_too_long", key)
    call.options["max_tokens"] = min(call.options.get("max_tokens", kiosk.longest_answer), kiosk.longest_answer)


def bypass(call: Call) -> tuple[str, str] | None:
    """(key, what it has) of the part of a call that would change the system prompt, or have the model write without
    it or as a client wants; None: there is none.
    """
    if call.messages is None:
        return call.sent.get("prompts", "prompt"), "asks for a raw prompt"
    key, roles = call.sent.get("messages", "messages"), [each["role"] for each in call.messages]
    if "system" in roles:
        return call.sent.get("system", key), "has instructions"
    if call.options.get("tools"):
        return "tools", "describes functions, which become part of the instructions"
    if "tool" in roles or any("tool_calls" in each for each in call.messages):
        return key, "has calls of functions or their results"
    if check_turns(call.messages)[-1]["role"] == "assistant":
        return key, "ends with an answer to continue"
    return None


async def _stream(pending: PendingCall, writer: Writer) -> AsyncIterator[bytes]:
    batches = pending.batches()
    first = asyncio.ensure_future(anext(batches, None))
    try:
        if begun := writer.begin(list(pending.answers)):
            yield begun
        while not (await asyncio.wait({first}, timeout=QUIET))[0]:
            if writer.COMMENT:
                yield writer.COMMENT
        batch = first.result()
        while batch is not None:
            if data := b"".join([_events(pending, writer, index, piece) for index, piece in batch]):
                yield data
            batch = await anext(batches, None)
        yield writer.close()
    except Exception as error:
        yield writer.failed(refusal_of(error))
    finally:
        first.cancel()


def _events(pending: PendingCall, writer: Writer, index: int, piece: Piece | None) -> bytes:
    if piece is None:
        return writer.end(index)
    logprobs = _logprobs(pending, index, piece)
    return writer.piece(index, piece, logprobs) if piece.thought or piece.text or logprobs is not None else b""


def _logprobs(pending: PendingCall, index: int, piece: Piece) -> list[Logprob] | None:
    """The log probabilities of the tokens of a piece, which are taken out; None: they were not asked for."""
    if pending.call.logprobs is None:
        return None
    waiting, n = pending.answers[index].outcome.logprobs, len(piece.ids)
    found = waiting[:n]
    del waiting[:n]
    return None if piece.thought else found


async def _collect(pending: PendingCall, writer: Writer) -> list[Collected]:
    """Run all choices of a call to their ends."""
    writer.begin(list(pending.answers))
    choices = [Collected() for _ in pending.answers]
    async for batch in pending.batches():
        for index, piece in batch:
            found, outcome = choices[index], pending.answers[index].outcome
            if pending.call.logprobs is not None:
                logprobs = [] if piece is None else _logprobs(pending, index, piece) or []
                for name, items in writer.scores(index, outcome.prompt_logprobs + logprobs).items():
                    kept = found.scores.setdefault(name, bytearray())
                    if items:
                        kept += b"," + dump(items)[1:-1]
                outcome.prompt_logprobs.clear()  # it is complete before the first piece
            if piece is not None and piece.thought:
                found.thought += piece.text
                found.thought_tokens += len(piece.ids)
            elif piece is not None:
                found.text += piece.text
    return choices


def _filled(value: Any, choices: list[Collected]) -> bytes:
    """``value`` as JSON; each MARK in it becomes the next list of these choices."""
    first, *rest = dump(value).split(dump(MARK))
    lists = [each for found in choices for each in found.scores.values()]
    return b"".join((first, *(part for each, after in zip(lists, rest)
                              for part in (b"[", memoryview(each)[1:], b"]", after))))
