"""Messages of a conversation, in the form of OpenAI's and Ollama's chats: their one check, wherever they come from.

After that they are dictionaries with ``role``, ``content`` and perhaps ``tool_calls``, ``tool_call_id`` and ``name``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from edge.errors import UsageError, check_text, shown

ROLES = ("system", "user", "assistant", "tool")
SAME = {"developer": "system", "function": "tool"}  # other names of roles
#: keys of messages that would change the answer -> why they are refused
UNREAD = {
    **dict.fromkeys(("image_url", "images", "audio", "audio_url", "input_audio", "video_url", "videos", "file"),
                    "only text is read"),
    "function_call": "use tool_calls",
}


def check_messages(value: Any, where: str = "messages") -> list[dict[str, Any]]:
    """Messages as templates need them: each is copied with its text; system messages that follow each other are one.
    Raises UsageError that names what is wrong.
    """
    if isinstance(value, (str, bytes, Mapping)) or not isinstance(value, Sequence) or not value:
        raise UsageError("is not a list with at least one message", argument=where,
                         hint='it must be such as [{"role": "user", "content": "Hello"}]')
    return join([check_message(each, f"{where}[{i}]") for i, each in enumerate(value)])


def check_message(value: Any, where: str) -> dict[str, Any]:
    """One message.  Raises UsageError."""
    if not isinstance(value, Mapping):
        raise UsageError("is not a JSON object", argument=where)
    for key, why in UNREAD.items():
        if value.get(key) not in (None, "", []):
            raise UsageError(f"is not supported: {why}", argument=f"{where}.{key}")
    given = value.get("role")
    role = SAME.get(given, given) if isinstance(given, str) else given
    if role not in ROLES:
        raise UsageError(f"is {shown(given)}", argument=f"{where}.role",
                         hint=f"it must be one of {', '.join((*ROLES, *SAME))}")
    if given not in ("assistant", "function") and value.get("content") is None:  # of these OpenAI allows null
        raise UsageError("is missing", argument=f"{where}.content")
    message: dict[str, Any] = {"role": role, "content": content_of(value.get("content"), f"{where}.content")}
    if value.get("refusal") is not None:
        message["content"] += check_text(value["refusal"], f"{where}.refusal")
    if calls := value.get("tool_calls"):
        if not isinstance(calls, Sequence) or not all(isinstance(each, Mapping) for each in calls):
            raise UsageError("is not a list of calls", argument=f"{where}.tool_calls")
        import json  # most conversations have no calls

        check_text(json.dumps(calls, ensure_ascii=False, default=str), f"{where}.tool_calls")
        message["tool_calls"] = calls
    for key, known in (("tool_call_id", "tool_call_id"), ("tool_name", "name"), ("name", "name")):  # the second: Ollama
        if role == "tool" and value.get(key) is not None:
            message[known] = check_text(value[key], f"{where}.{key}")
    return message


def content_of(value: Any, where: str) -> str:
    """The text of a message: a text, or a list of parts of type text.  Raises UsageError."""
    if value is None or isinstance(value, str):
        return check_text(value or "", where)
    if not isinstance(value, list):
        raise UsageError("is not a string or a list of parts", argument=where)
    said = []
    for i, part in enumerate(value):
        kind = part.get("type") if isinstance(part, Mapping) else part
        if kind not in ("text", "input_text", "output_text", "refusal"):
            raise UsageError(f"is {shown(kind)}", argument=f"{where}[{i}].type", hint="only text is supported")
        key = "refusal" if kind == "refusal" else "text"
        said.append(check_text(part.get(key), f"{where}[{i}].{key}"))
    return "".join(said)


def join(messages: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Join system messages that follow each other, and give the results of several calls the order of the calls."""
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
    """The messages, with this system prompt if they have none."""
    if not system or messages[0]["role"] == "system":
        return messages
    return [{"role": "system", "content": system}, *messages]


def check_turns(messages: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """A conversation that ends with a question, with the result of a function, or with the beginning of the answer; an
    answer at its end that has not begun is left out.  Raises UsageError.
    """
    *before, last = messages
    if last["role"] == "assistant" and not last["content"] and "tool_calls" not in last and before:
        messages = before  # an answer that has not begun
    if not any(each["role"] in ("user", "tool") for each in messages):
        raise UsageError("has no message of the user: there is nothing to answer", argument="messages")
    if "tool_calls" in messages[-1]:
        raise UsageError("ends with calls of functions: send their results", argument="messages")
    return list(messages)


def has_calls(messages: Sequence[Mapping[str, Any]]) -> bool:
    """True if functions were called in these messages; then :mod:`edge.constrain.functions` writes their prompt."""
    return any("tool_calls" in message or message["role"] == "tool" for message in messages)


def certain(text: str) -> str:
    """The part of a text that will be the same tokens however it goes on: all but its last word."""
    whole = text.rstrip()
    end = len(whole) if len(whole) < len(text) else max(whole.rfind(" "), whole.rfind("\n"), 0)
    return text[:end].rstrip()
