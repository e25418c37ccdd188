"""Answers over HTTP: a request of OpenAI's or Ollama's API -> answers -> a response, whole or streamed."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from edge.serve.calls import Call, Fields, dump, refusal_of
from edge.serve.conversations import Job, Ticket
from edge.serve.exchange import StreamedResponse, answer_json, body_of, watched
from edge.serve.protocols import ollama, openai, responses
from edge.serve.service import Service
from edge.session.stream import Piece


@dataclass
class Collected:
    """One choice, collected from its pieces."""

    text: str = ""
    thought: str = ""
    thought_tokens: int = 0
    logprobs: list[Any] = field(default_factory=list)


def _queue_headers(job: Job) -> dict[str, str]:
    first = job.tickets[0]
    return {"x-queue-position": str(first.place.position), "x-queue-seconds": f"{first.place.expected:.1f}"}


def counts_of(tickets: list[Ticket]) -> tuple[int, int, int]:
    """(prompt, cached, answer) tokens of all choices."""
    return openai.counts([ticket.usage for ticket in tickets], tickets[0].call.n)


def timings_of(ticket: Ticket) -> dict[str, Any]:
    """Seconds, how much of the prompt was in the cache, and at which position the cached part ended."""
    answer = ticket.answer
    if answer is None:
        return {}
    return {
        **{name: round(value, 6) for name, value in asdict(answer.timings).items() if isinstance(value, float)},
        "cached_tokens": answer.usage.cached,
        **({"prefix_broke_at_message": ticket.broke} if ticket.broke is not None else {}),
    }


async def _pieces(job: Job) -> AsyncIterator[list[tuple[int, Piece | None, list[Any] | None]]]:
    """The batches of a call, each piece with the log probabilities of its tokens; None: they were not asked for."""
    taken = [0] * len(job.tickets)  # tokens
    async for batch in job.batches():
        found: list[tuple[int, Piece | None, list[Any] | None]] = []
        for index, piece in batch:
            logprobs = None
            if piece is not None:
                first, taken[index] = taken[index], taken[index] + len(piece.ids)
                answer = job.tickets[index].answer
                if job.call.logprobs is not None and not piece.thought and answer is not None:
                    logprobs = list(answer.logprobs[first : taken[index]])
            found.append((index, piece, logprobs))
        yield found


async def _collect(job: Job) -> list[Collected]:
    """Run all choices of a call to their ends."""
    choices = [Collected() for _ in job.tickets]
    async for batch in _pieces(job):
        for index, piece, logprobs in batch:
            found = choices[index]
            if piece is None:
                continue
            if piece.thought:
                found.thought += piece.text
                found.thought_tokens += len(piece.ids)
            else:
                found.text += piece.text
                found.logprobs += logprobs or []
    return choices


async def _deliver(
    service: Service, request: Request, job: Job, events: AsyncIterator[bytes], kind: str,
    whole: Callable[[list[Collected]], Any], comment: bytes | None = None,
) -> Response:  # fmt: skip
    """The response to a call: ``events`` of the media type ``kind`` if it is streamed, else what ``whole`` makes of its
    choices.
    """
    headers, gone = _queue_headers(job), partial(service.withdraw, job)
    if job.call.stream:
        return StreamedResponse(events, kind, headers, gone, comment)
    return answer_json(whole(await watched(request, _collect(job), gone)), headers=headers)


# ---- OpenAI ---------------------------------------------------------------------------------------------------------

SSE = "text/event-stream; charset=utf-8"
WAITING = b": waiting\n\n"


async def openai_answer(service: Service, parse: Callable[..., Call], request: Request) -> Response:
    """The response to both kinds of completions."""
    call = parse(await body_of(request), service.settings.defaults)
    service.ready()
    job = await service.submit(call)
    writer = openai.Writer(call, service.name)

    def whole(found: list[Collected]) -> Any:
        choices = [_choice(writer, i, each, ticket) for i, (each, ticket) in enumerate(zip(found, job.tickets))]
        return writer.whole(choices, openai.usage(*counts_of(job.tickets)), timings_of(job.tickets[0]))

    return await _deliver(service, request, job, _sse(job, writer), SSE, whole, WAITING)


def _of_prompt(ticket: Ticket) -> list[Any]:
    return [] if ticket.answer is None else ticket.answer.prompt_logprobs


def _choice(writer: openai.Writer, index: int, found: Collected, ticket: Ticket) -> dict[str, Any]:
    logprobs = [*_of_prompt(ticket), *found.logprobs]
    return writer.choice(index, found.text, ticket.finish_reason, logprobs, found.thought, ticket.calls)


async def _sse(job: Job, writer: openai.Writer) -> AsyncIterator[bytes]:
    """Server-sent events: the chunks of all choices, in the order in which they are written."""
    call, tickets = job.call, job.tickets
    opened: set[int] = set()
    try:
        async for batch in _pieces(job):
            events: list[bytes] = []
            for index, piece, logprobs in batch:
                if index not in opened:
                    opened.add(index)
                    events += writer.first(index, _of_prompt(tickets[index]))
                if piece is None:
                    if calls := tickets[index].calls:
                        events.append(writer.called(index, calls))
                    events.append(writer.last(index, tickets[index].finish_reason))
                elif piece.thought:
                    events.append(writer.thought(index, piece.text))
                elif piece.text or logprobs is not None:
                    events.append(writer.piece(index, piece.text, logprobs))
            if events:
                yield b"".join(events)
        end = b"data: [DONE]\n\n"
        if call.include_usage:
            end = writer.totals(openai.usage(*counts_of(tickets)), timings_of(tickets[0])) + end
        yield end
    except Exception as error:
        yield openai.event(openai.error(refusal_of(error)))


async def response_answer(service: Service, request: Request) -> Response:
    """The response to ``/v1/responses``."""
    body = await body_of(request)
    call = responses.parse(body, service.settings.defaults)
    service.ready()
    job = await service.submit(call)
    ticket, writer = job.tickets[0], responses.Writer(call, body, service.name)

    def whole(choices: list[Collected]) -> Any:
        (found,) = choices
        return writer.whole(found.thought, found.text, ticket.calls, found.logprobs, ticket.finish_reason,
                            counts_of(job.tickets), found.thought_tokens)  # fmt: skip

    return await _deliver(service, request, job, _response_events(job, writer), SSE, whole, WAITING)


async def _response_events(job: Job, writer: responses.Writer) -> AsyncIterator[bytes]:
    """Server-sent events: the items of the output, one after the other."""
    ticket = job.tickets[0]
    n_thought = 0
    yield writer.first()
    try:
        async for batch in _pieces(job):
            events = []
            for _, piece, logprobs in batch:
                if piece is None:
                    continue
                if piece.thought:
                    n_thought += len(piece.ids)
                    events.append(writer.piece("reasoning", piece.text, []))
                elif piece.text or logprobs is not None:
                    events.append(writer.piece("message", piece.text, logprobs or []))
            if events:
                yield b"".join(events)
        yield writer.last(ticket.calls, ticket.finish_reason, counts_of(job.tickets), n_thought)
    except Exception as error:
        yield writer.failed(refusal_of(error))


# ---- Ollama ---------------------------------------------------------------------------------------------------------


async def ollama_answer(service: Service, parse: Callable[..., Call], chat: bool, request: Request) -> Response:
    """The response to ``/api/chat`` and ``/api/generate``."""
    body = await body_of(request)
    engine, _ = service.ready()
    prompt_free = body.get("messages") == [] if chat and isinstance(body, dict) else not _asks(body, chat)
    if prompt_free:  # this is how Ollama's clients load and unload a model
        name = Fields(body).text("model") or service.name
        return answer_json({"model": name, "created_at": ollama.now(), "done": True,
                            "done_reason": "load", **({"message": {"role": "assistant", "content": ""}} if chat
                                                      else {"response": ""})})
    call = parse(body, service.settings.defaults)
    job = await service.submit(call)
    ticket = job.tickets[0]
    writer = ollama.Writer(call, service.name)
    load_ns = int(engine.load_seconds * 1e9)

    def end() -> dict[str, Any]:
        prompt, _, completion = counts_of(job.tickets)
        assert ticket.answer is not None
        return writer.end(ticket.answer.finish_reason, prompt, completion, ticket.answer.timings, load_ns)

    async def lines() -> AsyncIterator[bytes]:
        try:
            async for batch in _pieces(job):
                said = []
                for _, piece, logprobs in batch:
                    if piece is None:
                        continue
                    if piece.thought:
                        said.append(writer.line("", chat, piece.text))
                    elif piece.text or logprobs is not None:
                        said.append(writer.line(piece.text, chat, logprobs=logprobs))
                if said:
                    yield b"".join(dump(each) + b"\n" for each in said)
            if calls := ticket.calls:
                yield dump(writer.line("", chat, calls=_ollama_calls(calls))) + b"\n"
            yield dump(writer.line("", chat, **end())) + b"\n"
        except Exception as error:
            yield dump({"error": str(refusal_of(error))}) + b"\n"

    def whole(choices: list[Collected]) -> Any:
        (found,) = choices
        return writer.line(found.text, chat, found.thought, _ollama_calls(ticket.calls), found.logprobs, **end())

    return await _deliver(service, request, job, lines(), "application/x-ndjson", whole)


def _asks(body: Any, chat: bool) -> bool:
    return not isinstance(body, dict) or chat or bool(body.get("prompt"))


def _ollama_calls(calls: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{"function": {"name": each["function"]["name"], "arguments": json.loads(each["function"]["arguments"])}}
            for each in calls]
