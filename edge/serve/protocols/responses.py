"""OpenAI's Responses API: ``POST /v1/responses``, whole and as a stream of events.

Nothing is stored: a client sends the whole conversation in ``input``, as items; ``previous_response_id`` is refused.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from edge.errors import UsageError, check_text, shown
from edge.prompt.messages import check_message, content_of, join
from edge.serve import keys, protocols
from edge.serve.calls import Call, Refusal, dump
from edge.serve.protocols import openai

if TYPE_CHECKING:
    from edge.serve.conversations import PendingAnswer
    from edge.serve.protocols import Collected
    from edge.session.logprobs import Logprob
    from edge.session.stream import Piece

INCLUDED = "message.output_text.logprobs"  # the value of include that has an effect


def parse(body: Any, defaults: dict[str, Any]) -> Call:
    """A request for a response.  Raises UsageError."""
    asked = keys.read(body, keys.RESPONSES)
    form = keys.form_of(asked.get("text", {}).get("format"), "text.format")
    options, sent = keys.options(asked, defaults, form, "text")
    call = Call(_messages(asked.get("input"), asked.get("instructions")), options=options,
                stream=asked.get("stream", False), sent={**sent, "messages": "input"})
    if asked.get("instructions"):
        call.sent["system"] = "instructions"
    if INCLUDED in asked.get("include", ()) or asked.get("top_logprobs"):
        call.logprobs = call.options["logprobs"] = asked.get("top_logprobs", 0)
    return call


def _messages(given: Any, instructions: str | None) -> list[dict[str, Any]]:
    """The conversation in ``input``, in the form of a chat request, after the instructions.  Raises UsageError."""
    items = [{"role": "user", "content": given}] if isinstance(given, str) else given
    if not isinstance(items, list) or not items:
        raise UsageError("is not a text or a list with at least one item", argument="input")
    if len(items) > keys.MOST_MESSAGES:
        raise UsageError(f"has {len(items)} items; the limit is {keys.MOST_MESSAGES}", argument="input")
    messages: list[dict[str, Any]] = [{"role": "system", "content": instructions}] if instructions else []
    for i, item in enumerate(items):
        where = f"input[{i}]"
        if not isinstance(item, Mapping):
            raise UsageError("is not a JSON object", argument=where)
        kind = item.get("type") or "message"
        if kind == "message":
            messages.append(check_message(item, where))
        elif kind == "function_call":
            said = {key: check_text(item.get(key), f"{where}.{key}") for key in ("name", "arguments", "call_id")}
            made = {"id": said.pop("call_id"), "type": "function", "function": said}
            if messages and messages[-1]["role"] == "assistant":  # the calls of one answer are one message
                messages[-1].setdefault("tool_calls", []).append(made)
            else:
                messages.append({"role": "assistant", "content": "", "tool_calls": [made]})
        elif kind == "function_call_output":
            messages.append({"role": "tool", "tool_call_id": check_text(item.get("call_id"), f"{where}.call_id"),
                             "content": content_of(item.get("output"), f"{where}.output")})
        elif kind != "reasoning":  # thoughts of earlier answers are not read again
            raise UsageError(f"is {shown(kind)}", argument=f"{where}.type", hint="it must be message, function_call, "
                             "function_call_output or reasoning")
    if not messages:
        raise UsageError("has no message", argument="input")
    return join(messages)


# ---- responses ------------------------------------------------------------------------------------------------------


class Writer(protocols.Writer):
    """The response to one call, as one object or as events.  ``body``: the request; ``served``: the model's name."""

    def __init__(self, _call: Call, body: Mapping[str, Any], served: str) -> None:
        self._n_events = self._n_thought = 0
        self._items: list[dict[str, Any]] = []  # of the output, those that are complete
        self._open: dict[str, Any] | None = None  # the item that is being written
        self._text = ""
        self._logprobs: list[dict[str, Any]] = []
        text = body.get("text") or {}
        self._head: dict[str, Any] = {
            "id": _ident("resp"),
            "object": "response",
            "created_at": int(time.time()),
            "status": "in_progress",
            "background": False,
            "error": None,
            "incomplete_details": None,
            "instructions": body.get("instructions"),
            "max_output_tokens": body.get("max_output_tokens"),
            "max_tool_calls": None,
            "metadata": body.get("metadata") or {},
            "model": served,
            "output": [],
            "parallel_tool_calls": body.get("parallel_tool_calls") is not False,
            "previous_response_id": None,
            "reasoning": {"effort": (body.get("reasoning") or {}).get("effort"), "summary": None},
            "store": False,
            "text": {"format": text.get("format") or {"type": "text"}},
            "tool_choice": body.get("tool_choice") or "auto",
            "tools": body.get("tools") or [],
            "truncation": "disabled",
            "usage": None,
        }

    def begin(self, answers: list[PendingAnswer]) -> bytes:
        """The events at the beginning."""
        (self._answer,) = self.answers = answers
        if (prepared := self._answer.prepared) is not None:
            sampling = prepared.options.sampling
            self._head |= {"temperature": sampling.temperature, "top_p": sampling.top_p}
        return b"".join(self._event(f"response.{kind}", response=self._head) for kind in ("created", "in_progress"))

    # ---- the whole --------------------------------------------------------------------------------------------------

    def whole(self, choices: list[Collected]) -> dict[str, Any]:
        """The response without streaming."""
        (found,) = choices
        self._n_thought = found.thought_tokens
        for kind, said in (("reasoning", found.thought), ("message", found.text)):
            if said or kind == "message" and not self._answer.calls:
                self._begin(kind)
                self._text, self._logprobs = said, found.marks.get("logprobs", [])  # type: ignore[assignment]
                self._end(self._incomplete and kind == "message")
        self._items += [_called(each) for each in self._answer.calls]
        return self._closed()

    def _closed(self) -> dict[str, Any]:
        usage = self._answer.outcome.usage
        return {
            **self._head,
            "status": "incomplete" if self._incomplete else "completed",
            "incomplete_details": {"reason": "max_output_tokens"} if self._incomplete else None,
            "output": self._items,
            "usage": {"input_tokens": usage.prompt,
                      "input_tokens_details": {"cached_tokens": usage.cached, "cache_write_tokens": 0},
                      "output_tokens": usage.completion, "output_tokens_details": {"reasoning_tokens": self._n_thought},
                      "total_tokens": usage.prompt + usage.completion},
        }

    @property
    def _incomplete(self) -> bool:
        return openai.finish(self._answer.finish_reason) == "length"

    # ---- events -----------------------------------------------------------------------------------------------------

    def piece(self, _index: int, piece: Piece, logprobs: list[Logprob] | None) -> bytes:
        """The events of a piece of text, or of a thought."""
        if piece.thought:
            self._n_thought += len(piece.ids)
        return self._said("reasoning" if piece.thought else "message", piece.text, logprobs or [])

    def _said(self, kind: str, text: str, logprobs: list[Logprob]) -> bytes:
        events = b""
        if self._open is None or self._open["type"] != kind:
            events = self.end_item()
            events += self._event("response.output_item.added", item=self._begin(kind), **self._place())
            events += self._event("response.content_part.added", **self._part_place(), part=self._part("", []))
        self._text += text
        scores = [protocols.scored(each) for each in logprobs]
        self._logprobs += scores
        more = {"logprobs": scores} if kind == "message" else {}
        return events + self._event(f"response.{self._name}.delta", **self._part_place(), delta=text, **more)

    def end_item(self, incomplete: bool = False) -> bytes:
        """The events at the end of the item that is being written, if there is one."""
        if self._open is None:
            return b""
        more = {"logprobs": self._logprobs} if self._open["type"] == "message" else {}
        events = self._event(f"response.{self._name}.done", **self._part_place(), text=self._text, **more)
        part = self._part(self._text, self._logprobs)
        events += self._event("response.content_part.done", **self._part_place(), part=part)
        place = self._place()
        return events + self._event("response.output_item.done", item=self._end(incomplete), **place)

    def called(self, made: list[dict[str, Any]]) -> bytes:
        """The events of all function calls: they are parsed when the answer is complete."""
        events = b""
        for each in made:
            item, place = _called(each), self._place()
            at = {"item_id": item["id"], **place}
            events += self._event("response.output_item.added", **place,
                                  item={**item, "arguments": "", "status": "in_progress"})
            events += self._event("response.function_call_arguments.delta", **at, delta=item["arguments"])
            events += self._event("response.function_call_arguments.done", **at, name=item["name"],
                                  arguments=item["arguments"])
            events += self._event("response.output_item.done", item=item, **place)
            self._items.append(item)
        return events

    def end(self, _index: int) -> bytes:
        """The events at the end of the answer."""
        calls, events = self._answer.calls, b""
        if not calls and (self._open is None or self._open["type"] != "message"):  # an answer without any text
            events = self._said("message", "", [])
        return events + self.end_item(self._incomplete) + self.called(calls)

    def close(self) -> bytes:
        """The event at the end."""
        response = self._closed()
        return self._event(f"response.{response['status']}", response=response)

    def failed(self, refusal: Refusal) -> bytes:
        """The event of an error after the stream has begun."""
        code = "rate_limit_exceeded" if refusal.status == 429 else "server_error"
        response = {**self._head, "status": "failed", "output": self._items,
                    "error": {"code": code, "message": str(refusal)}}
        return self._event("response.failed", response=response)

    def _event(self, kind: str, **data: Any) -> bytes:
        event = {"type": kind, "sequence_number": self._n_events, **data}
        self._n_events += 1
        return b"event: " + kind.encode() + b"\ndata: " + dump(event) + b"\n\n"

    # ---- items ------------------------------------------------------------------------------------------------------

    def _begin(self, kind: str) -> dict[str, Any]:
        """Begin an item with one part, and return it as it is without this part."""
        self._text, self._logprobs = "", []
        if kind == "message":
            self._open = {"id": _ident("msg"), "type": kind, "role": "assistant"}
        else:
            self._open = {"id": _ident("rs"), "type": kind, "summary": []}
        self._open |= {"status": "in_progress", "content": []}
        return self._open

    def _end(self, incomplete: bool) -> dict[str, Any]:
        assert self._open is not None
        status = "incomplete" if incomplete else "completed"
        item = {**self._open, "status": status, "content": [self._part(self._text, self._logprobs)]}
        self._items.append(item)
        self._open = None
        return item

    @property
    def _name(self) -> str:
        assert self._open is not None
        return "output_text" if self._open["type"] == "message" else "reasoning_text"

    def _part(self, text: str, logprobs: list[dict[str, Any]]) -> dict[str, Any]:
        if self._name == "reasoning_text":
            return {"type": "reasoning_text", "text": text}
        return {"type": "output_text", "text": text, "annotations": [], "logprobs": logprobs}

    def _place(self) -> dict[str, Any]:
        return {"output_index": len(self._items)}

    def _part_place(self) -> dict[str, Any]:
        assert self._open is not None
        return {"item_id": self._open["id"], **self._place(), "content_index": 0}


def _ident(kind: str) -> str:
    return f"{kind}_{secrets.token_hex(16)}"


def _called(made: Mapping[str, Any]) -> dict[str, Any]:
    """A function call as an item of the output."""
    return {"id": _ident("fc"), "type": "function_call", "status": "completed", "call_id": made["id"],
            **made["function"]}
