"""The messages of a request, in the form of OpenAI's and Ollama's chats -> those that templates need."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from edge.errors import shown
from edge.serve.calls import bad
from edge.serve.keys import text
from edge.session.answer_options import NOTHING, ROLES, UNREAD

MOST_MESSAGES = 4096
SAME = {"developer": "system", "function": "tool"}  # other names of roles


def messages_of(value: Any) -> list[dict[str, Any]]:
    """The messages of a chat, with valid roles and contents as texts.  Raises Refusal."""
    if not isinstance(value, list) or not value:
        raise bad("messages is not a list with at least one message", "messages")
    if len(value) > MOST_MESSAGES:
        raise bad(f"{len(value)} messages; the limit is {MOST_MESSAGES}", "messages")
    return joined([message_of(each, f"messages[{i}]") for i, each in enumerate(value)])


def message_of(value: Any, where: str) -> dict[str, Any]:
    """One message, with a valid role and its content as text.  Raises Refusal."""
    if not isinstance(value, dict):
        raise bad(f"{where} is not a JSON object", where)
    for key, why in UNREAD.items():
        if value.get(key) not in NOTHING:
            raise bad(f"{where}.{key} is not supported: {why}", f"{where}.{key}")
    given = value.get("role")
    role = SAME.get(given, given) if isinstance(given, str) else given
    if role not in ROLES:
        raise bad(f"{where}.role is {shown(given)}; it must be one of {', '.join((*ROLES, *SAME))}", f"{where}.role")
    if given not in ("assistant", "function") and value.get("content") is None:  # of these OpenAI allows null
        raise bad(f"{where}.content is missing", f"{where}.content")
    message = {"role": role, "content": content_of(value.get("content"), f"{where}.content")}
    if value.get("refusal") is not None:
        message["content"] += text(value["refusal"], f"{where}.refusal")
    if calls := value.get("tool_calls"):
        if not isinstance(calls, list) or not all(isinstance(each, dict) for each in calls):
            raise bad(f"{where}.tool_calls is not a list of calls", f"{where}.tool_calls")
        message["tool_calls"] = calls
    for key, known in (("tool_call_id", "tool_call_id"), ("tool_name", "name"), ("name", "name")):  # the second: Ollama
        if role == "tool" and value.get(key) is not None:
            message[known] = text(value[key], f"{where}.{key}")
    return message


def content_of(value: Any, where: str) -> str:
    """The text of a message: a text, or a list of parts of type text.  Raises Refusal."""
    if value is None or isinstance(value, str):
        return value or ""
    if not isinstance(value, list):
        raise bad(f"{where} is not a string or a list of parts", where)
    said = []
    for i, part in enumerate(value):
        kind = part.get("type") if isinstance(part, dict) else part
        if kind not in ("text", "input_text", "output_text", "refusal"):
            raise bad(f"{where}[{i}].type is {shown(kind)}; only text is supported", f"{where}[{i}].type")
        key = "refusal" if kind == "refusal" else "text"
        said.append(text(part.get(key), f"{where}[{i}].{key}"))
    return "".join(said)


def joined(messages: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The messages as templates need them: system messages that follow each other are one, and the results of several
    calls have the order of the calls.
    """
    found: list[dict[str, Any]] = []
    calls, first = [], 0  # ids of calls, and where their results begin
    for message in messages:
        if message["role"] == "system" and found and found[-1]["role"] == "system":
            found[-1]["content"] += "\n\n" + message["content"]
            continue
        found.append(message)
        if message["role"] != "tool":
            calls, first = [each.get("id") for each in message.get("tool_calls", ())], len(found)
        elif all(each.get("tool_call_id") in calls for each in found[first:]):
            found[first:] = sorted(found[first:], key=lambda each: calls.index(each.get("tool_call_id")))
    return found


def with_system(messages: list[dict[str, Any]], system: str | None) -> list[dict[str, Any]]:
    """The messages, with the system prompt of the service if they have none."""
    if not system or messages[0]["role"] == "system":
        return messages
    return [{"role": "system", "content": system}, *messages]
