"""Answers over HTTP: a request of OpenAI's or Ollama's API -> answers -> a response, whole or streamed."""

from __future__ import annotations

import json
import secrets
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from edge.records import shares
from edge.sampling import Sampling
from edge.serve.bodies import body_of
from edge.serve.calls import Call, dump, refusal_of
from edge.serve.conversations import PendingAnswer, PendingCall
from edge.serve.exchange import StreamedResponse, answer_json, watched
from edge.serve.protocols import ollama, openai, responses
from edge.serve.service import Service
from edge.session.logprobs import Logprob
from edge.session.stream import Piece

Scores = Callable[[int, list[Logprob]], dict[str, list[Any]]]  # (choice, tokens) -> lists by name, as an API has them
MARK = secrets.token_hex(16)  # stands for a list of log probabilities; no client and no model can write it


@dataclass
class Collected:
    """One choice, collected from its pieces.  ``scores``: lists of log probabilities by name, a comma before each item,
    as JSON, which takes a tenth of the memory.
    """

    text: str = ""
    thought: str = ""
    thought_tokens: int = 0
    scores: dict[str, bytearray] = field(default_factory=dict)

    def add_scores(self, scores: dict[str, list[Any]]) -> None:
        """Append to the lists."""
        for name, items in scores.items():
            made = self.scores.setdefault(name, bytearray())
            if items:
                made += b"," + dump(items)[1:-1]

    @property
    def marks(self) -> dict[str, str]:
        """What stands for the lists, see :func:`_filled`."""
        return dict.fromkeys(self.scores, MARK)


def _filled(value: Any, choices: list[Collected]) -> bytes:
    """``value`` as JSON; each MARK in it becomes the next list of these choices."""
    first, *rest = dump(value).split(dump(MARK))
    lists = [each for found in choices for each in found.scores.values()]
    return b"".join((first, *(part for each, behind in zip(lists, rest)
                              for part in (b"[", memoryview(each)[1:], b"]", behind))))


def _queue_headers(pending: PendingCall) -> dict[str, str]:
    first = pending.answers[0]
    return {"x-queue-position": str(first.job.position), "x-queue-seconds": f"{first.job.expected:.1f}"}


def counts_of(answers: Sequence[PendingAnswer]) -> tuple[int, int, int]:
    """(prompt, cached, answer) tokens of all choices."""
    return openai.counts([one.outcome.usage for one in answers], answers[0].call.n)


def _usage(answers: Sequence[PendingAnswer]) -> dict[str, Any]:
    return openai.usage(*counts_of(answers))


def timings_of(one: PendingAnswer) -> dict[str, Any]:
    """Seconds, how much of the prompt was in the cache, and why the answer ended in our own words: OpenAI's
    ``finish_reason`` has fewer.
    """
    if one.outcome.finish_reason is None:  # it has not begun
        return {}
    return {
        **{name: round(value, 6) for name, value in asdict(one.outcome.timings).items() if isinstance(value, float)},
        "cached_tokens": one.outcome.usage.cached,
        "ended": one.finish_reason,
    }


async def _pieces(pending: PendingCall) -> AsyncIterator[list[tuple[int, Piece | None, list[Any] | None]]]:
    """The batches of a call, each piece with the log probabilities of its tokens; None: they were not asked for."""
    async for batch in pending.batches():
        found: list[tuple[int, Piece | None, list[Any] | None]] = []
        for index, piece in batch:
            logprobs = None
            if piece is not None and pending.call.logprobs is not None:
                waiting = pending.answers[index].outcome.logprobs
                logprobs = None if piece.thought else waiting[: len(piece.ids)]
                del waiting[: len(piece.ids)]
            found.append((index, piece, logprobs))
        yield found


async def _said(pending: PendingCall) -> AsyncIterator[list[tuple[Piece, list[Any] | None]]]:
    """The batches of a call with one choice, without pieces that say nothing."""
    async for batch in _pieces(pending):
        said = [(piece, logprobs) for _, piece, logprobs in batch
                if piece is not None and (piece.thought or piece.text or logprobs is not None)]
        if said:
            yield said


def _scores(_index: int, entries: list[Logprob]) -> dict[str, list[Any]]:
    """The form that most APIs have."""
    return {"logprobs": [openai.scored(each) for each in entries]}


async def _collect(pending: PendingCall, scores: Scores) -> list[Collected]:
    """Run all choices of a call to their ends."""
    choices = [Collected() for _ in pending.answers]
    async for batch in _pieces(pending):
        for index, piece, logprobs in batch:
            found = choices[index]
            if pending.call.logprobs is not None:
                prompt = pending.answers[index].outcome.prompt_logprobs  # complete before the first piece
                found.add_scores(scores(index, prompt + (logprobs or [])))
                prompt.clear()
            if piece is None:
                continue
            if piece.thought:
                found.thought += piece.text
                found.thought_tokens += len(piece.ids)
            else:
                found.text += piece.text
    return choices


async def _deliver(
    service: Service, request: Request, pending: PendingCall, events: AsyncIterator[bytes], kind: str,
    whole: Callable[[list[Collected]], Any], comment: bytes | None = None, scores: Scores = _scores,
) -> Response:
    """The response to a call: if it is streamed ``events`` of the type ``kind``, else ``whole`` of its choices."""
    headers, gone = _queue_headers(pending), partial(pending.stop, "cancelled")
    if pending.call.stream:
        return StreamedResponse(events, kind, headers, gone, comment)
    choices = await watched(request, _collect(pending, scores), gone)
    return Response(_filled(whole(choices), choices), headers=headers, media_type="application/json")


# ---- OpenAI ---------------------------------------------------------------------------------------------------------

SSE = "text/event-stream; charset=utf-8"
WAITING = b": waiting\n\n"


async def openai_answer(service: Service, parse: Callable[..., Call], request: Request) -> Response:
    """The response to both kinds of completions."""
    call = parse(await body_of(request), service.settings.defaults)
    service.ready()
    pending = await service.submit(call)
    writer = openai.Writer(call, service.name)

    def whole(found: list[Collected]) -> Any:
        choices = [_choice(writer, i, each, one) for i, (each, one) in enumerate(zip(found, pending.answers))]
        return writer.whole(choices, _usage(pending.answers), timings_of(pending.answers[0]))

    return await _deliver(service, request, pending, _sse(pending, writer), SSE, whole, WAITING, writer.scores)


def _choice(writer: openai.Writer, index: int, found: Collected, one: PendingAnswer) -> dict[str, Any]:
    made = writer.choice(index, found.text, one.finish_reason, found.marks or None, found.thought, one.calls)
    return {**made, **shares(one.outcome.shares)}


async def _sse(pending: PendingCall, writer: openai.Writer) -> AsyncIterator[bytes]:
    """Server-sent events: the chunks of all choices, in the order in which they are written."""
    call, answers = pending.call, pending.answers
    opened: set[int] = set()
    try:
        async for batch in _pieces(pending):
            events: list[bytes] = []
            for index, piece, logprobs in batch:
                if index not in opened:
                    opened.add(index)
                    events += writer.first(index, answers[index].outcome.prompt_logprobs)
                if piece is None:
                    if calls := answers[index].calls:
                        events.append(writer.called(index, calls))
                    ended = answers[index]
                    events.append(writer.last(index, ended.finish_reason, shares(ended.outcome.shares)))
                elif piece.thought:
                    events.append(writer.thought(index, piece.text))
                elif piece.text or logprobs is not None:
                    events.append(writer.piece(index, piece.text, logprobs))
            if events:
                yield b"".join(events)
        end = b"data: [DONE]\n\n"
        if call.include_usage:
            end = writer.totals(_usage(answers), timings_of(answers[0])) + end
        yield end
    except Exception as error:
        yield openai.event(openai.error(refusal_of(error)))


async def response_answer(service: Service, request: Request) -> Response:
    """The response to ``/v1/responses``."""
    body = await body_of(request)
    call = responses.parse(body, service.settings.defaults)
    service.ready()
    pending = await service.submit(call)
    one = pending.answers[0]
    sampling = one.prepared.options.sampling if one.prepared is not None else Sampling()
    writer = responses.Writer(sampling, body, service.name)

    def whole(choices: list[Collected]) -> Any:
        (found,) = choices
        return writer.whole(found.thought, found.text, one.calls, found.marks.get("logprobs", []), one.finish_reason,
                            counts_of(pending.answers), found.thought_tokens)

    return await _deliver(service, request, pending, _response_events(pending, writer), SSE, whole, WAITING)


async def _response_events(pending: PendingCall, writer: responses.Writer) -> AsyncIterator[bytes]:
    """Server-sent events: the items of the output, one after the other."""
    one = pending.answers[0]
    n_thought = 0
    yield writer.first()
    try:
        async for batch in _said(pending):
            n_thought += sum(len(piece.ids) for piece, _ in batch if piece.thought)
            yield b"".join(writer.piece("reasoning" if piece.thought else "message", piece.text, logprobs or [])
                           for piece, logprobs in batch)
        yield writer.last(one.calls, one.finish_reason, counts_of(pending.answers), n_thought)
    except Exception as error:
        yield writer.failed(refusal_of(error))


# ---- Ollama ---------------------------------------------------------------------------------------------------------


async def ollama_answer(service: Service, parse: Callable[..., Call], chat: bool, request: Request) -> Response:
    """The response to ``/api/chat`` and ``/api/generate``."""
    body = await body_of(request)
    service.ready()
    if ollama.loads(body, chat):
        return answer_json({"model": service.name, "created_at": ollama.now(), "done": True,
                            "done_reason": "load", **({"message": {"role": "assistant", "content": ""}} if chat
                                                      else {"response": ""})})
    call = parse(body, service.settings.defaults)
    writer = ollama.Writer(service.name)  # its time begins before the answer
    pending = await service.submit(call)
    one = pending.answers[0]

    def end() -> dict[str, Any]:
        return writer.end(one.outcome)

    async def lines() -> AsyncIterator[bytes]:
        try:
            async for batch in _said(pending):
                said = (writer.line("", chat, piece.text) if piece.thought
                        else writer.line(piece.text, chat, logprobs=[openai.scored(each) for each in logprobs or ()])
                        for piece, logprobs in batch)
                yield b"".join(dump(each) + b"\n" for each in said)
            if calls := one.calls:
                yield dump(writer.line("", chat, calls=_ollama_calls(calls))) + b"\n"
            yield dump(writer.line("", chat, **end())) + b"\n"
        except Exception as error:
            yield dump({"error": str(refusal_of(error))}) + b"\n"

    def whole(choices: list[Collected]) -> Any:
        (found,) = choices
        return writer.line(found.text, chat, found.thought, _ollama_calls(one.calls), **found.marks, **end())

    return await _deliver(service, request, pending, lines(), "application/x-ndjson", whole)


def _ollama_calls(calls: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{"id": each["id"], "function": {
        "index": i, "name": each["function"]["name"],
        "arguments": json.loads(each["function"]["arguments"], parse_float=_finite)}} for i, each in enumerate(calls)]


def _finite(number: str) -> float:
    """The nearest double: 1e400 would be written as Infinity, which is not JSON."""
    return max(-sys.float_info.max, min(float(number), sys.float_info.max))
