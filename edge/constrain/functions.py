"""Functions that a model may call, in OpenAI's form: their description in the prompt, the form of an answer, and
the calls in it.

    tools = Functions.of(request["tools"], request.get("tool_choice"))
    answer = session.chat(messages, tools=tools)
    print(answer.content, answer.calls)

A call is always well-formed: its name is one of those given, and its arguments are JSON of that function's schema.  How
it is written depends on the model, see :class:`Form`: between <tool_call> marks (Qwen3 and others), or as the whole
answer (Llama 3).  If a template does not support tools, they are described in the system prompt.
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from edge.constrain import lark
from edge.constrain.bounds import MOST_SCHEMA, check_text
from edge.constrain.schema import parse
from edge.constrain.spec import Spec
from edge.errors import UsageError, shown

if TYPE_CHECKING:
    from edge.prompt.template import Template
    from edge.prompt.tokenizer import Tokenizer

MOST = 128
_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_OBJECT = '{"type":"object"}'
#: text before a call; if the whole answer is a call, it must not look like one
_TEXT = r"TEXT: /(?s:.+)/"
_NO_BRACE = r"TEXT: /[^\s{](?s:.*)/"
_NO_MARK = r"TEXT: /[^<](?s:.*)/"
BEGIN, END = "<tool_call>", "</tool_call>"
_INSTRUCTION = """\
You may call one of these functions:
{definitions}

To call a function, answer only with one JSON object: {{"name": "<function>", "parameters": {{<arguments>}}}}"""


class Function:
    """One function: its ``name``, the ``schema`` of its arguments as JSON text, the ``size`` of this schema as the
    client wrote it, in characters without descriptions, and ``given``, the client's definition.

    Raises UsageError that names what is wrong.
    """

    def __init__(self, given: Any, where: str) -> None:
        if not isinstance(given, Mapping):
            raise UsageError(f'{where} must be an object {{"type": "function", "function": {{...}}}}')
        if given.get("type") != "function":
            raise UsageError(f"{where}.type is {shown(given.get('type'))}; only function is supported")
        function = {key: value for key, value in given.items() if key != "type"}  # as OpenAI's Responses have it
        if "function" in given:
            function, where = given["function"], f"{where}.function"
        if not isinstance(function, Mapping):
            raise UsageError(f"{where} must be an object with a name")
        name = function.get("name")
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise UsageError(f"{where}.name must be 1 to 64 letters, digits, '_', '-' and '.'")
        if not isinstance(function.get("description", ""), (str, type(None))):
            raise UsageError(f"{where}.description must be a text")
        if not isinstance(function.get("strict", False), (bool, type(None))):
            raise UsageError(f"{where}.strict must be true or false")
        self.name, self.given = name, dict(given) if "function" in given else {"type": "function", "function": function}
        parameters = function.get("parameters")
        if parameters is None:
            parameters = {"type": "object", "properties": {}}
        if not isinstance(parameters, Mapping) or parameters.get("type", "object") != "object":
            raise UsageError(f"{where}.parameters must be a JSON schema of type object")
        try:
            self.schema, _, self.size = parse({"type": "object", **parameters})
            if error := Spec(self.schema, True).problem():
                raise UsageError(f"schema: {error}")
        except UsageError as error:
            if function.get("strict"):
                raise UsageError(f"{where}.parameters: {error}") from None
            self.schema, self.size = _OBJECT, len(_OBJECT)  # not strict: arguments are an object, of whatever


@dataclass(frozen=True, eq=False)
class Functions:
    """The functions of a request.  ``choice``: "none", "auto" or "required"; ``parallel``: several may be called."""

    tools: list[Function]
    choice: str
    parallel: bool

    @classmethod
    def of(cls, tools: Any, tool_choice: Any = None, parallel: bool | None = None) -> Functions | None:
        """The tools of a request; None if there are none.  Raises UsageError that names what is wrong."""
        if not isinstance(tool_choice, Mapping) and tool_choice not in (None, "none", "auto", "required"):
            raise UsageError(f"tool_choice is {shown(tool_choice)}; it must be none, auto, required or the name of a "
                             "function in an object")
        if tools is None or tools == []:
            if tool_choice not in (None, "none", "auto"):
                raise UsageError("tool_choice requires a call, but there are no tools")
            return None
        if not isinstance(tools, list) or len(tools) > MOST:
            raise UsageError(f"tools must be a list of at most {MOST} functions")
        known = [Function(each, f"tools[{i}]") for i, each in enumerate(tools)]
        check_text(sum(tool.size for tool in known), "tools", MOST_SCHEMA)
        names = [tool.name for tool in known]
        if len(set(names)) < len(names):
            raise UsageError(f"tools has two functions named {next(n for n in names if names.count(n) > 1)}")
        choice, parallel = "auto" if tool_choice is None else tool_choice, parallel is not False
        if isinstance(choice, Mapping):
            choice, parallel, chosen = _chosen(choice, parallel)
            for name in chosen:
                if name not in names:
                    inner = ".function" if "function" in tool_choice else ""
                    raise UsageError(f"tool_choice{inner}.name is {shown(name)}; it must be one of the tools")
            known = [tool for tool in known if tool.name in chosen]
        return cls(known, choice, parallel)

    def form(self, template: Template, tokenizer: Tokenizer, text: Spec | None = None) -> Form:
        """The format in which this model receives tools and writes calls.  ``text``: the form of an answer in text."""
        marks = tuple(tokenizer.markers.get(mark, -1) for mark in (BEGIN, END)) if template.tools == "marked" else ()
        role = "system" if template.tools or template.writes_system else "user"
        return Form(self, template.tools, marks if min(marks, default=-1) >= 0 else (), text, role)


def _chosen(choice: Mapping[str, Any], parallel: bool) -> tuple[str, bool, list[Any]]:
    """(mode, whether there may be several calls, names) of a tool_choice that names functions: one, or OpenAI's
    allowed_tools.  Raises UsageError.
    """
    mode: Any = "required"
    tools: Any = [choice]
    if choice.get("type") == "function":
        parallel = False
    elif choice.get("type") == "allowed_tools":
        inner = choice.get("allowed_tools", choice)
        mode, tools = (inner.get("mode"), inner.get("tools")) if isinstance(inner, Mapping) else (None, None)
        if not isinstance(tools, list) or not tools or mode not in ("auto", "required"):
            raise UsageError("tool_choice of type allowed_tools has a mode, auto or required, and a list of tools")
    else:
        raise UsageError(f"tool_choice.type is {shown(choice.get('type'))}; it must be function or allowed_tools")
    named = [each.get("function", each) if isinstance(each, Mapping) else None for each in tools]
    return mode, parallel, [each.get("name") if isinstance(each, Mapping) else None for each in named]


@dataclass(frozen=True)
class Form:
    """How one model receives tools and writes calls.

    ``style``: "marked" (between <tool_call> and its end), "whole" (the whole answer) or "" (the template does not
    support tools).  ``marks``: the ids of the two marks where they are tokens.  ``text``: the form of an answer that is
    not a call; None: any text, which calls may follow.  ``role``: of the message that describes the tools if
    the template does not support them.
    """

    tools: Functions
    style: str
    marks: tuple[int, ...] = ()
    text: Spec | None = None
    role: str = "system"

    @property
    def definitions(self) -> list[dict[str, Any]] | None:
        """The value of ``tools`` for the template; None if it gets none."""
        return [tool.given for tool in self.tools.tools] if self.style and self.tools.choice != "none" else None

    def messages(self, messages: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """A conversation in the form that the template needs: with the calls and results of earlier turns, and with the
        tools in the system prompt if the template does not support them, or in the first message of the user if it
        does not write that.
        """
        asked: list[dict[str, str]] = []  # calls that have no result yet
        known = [self._message(message, asked) for message in messages]
        if self.style or self.tools.choice == "none":
            return known
        definitions = "\n".join(json.dumps(tool.given["function"], ensure_ascii=False) for tool in self.tools.tools)
        text = _INSTRUCTION.format(definitions=definitions)
        at = next((i for i, each in enumerate(known) if each["role"] == self.role), None)
        if self.role == "user" and at is not None:
            known[at] = {**known[at], "content": f"{text}\n\n{known[at]['content']}"}
        elif at == 0:
            known[0] = {**known[0], "content": f"{known[0]['content']}\n\n{text}"}
        else:
            known.insert(0, {"role": "system", "content": text})
        return known

    def _message(self, message: Mapping[str, Any], asked: list[dict[str, str]]) -> dict[str, Any]:
        role, content = message.get("role"), message.get("content")
        known: dict[str, Any] = {"role": role, "content": "" if content is None else content}
        if role == "tool" and not self.style:
            return {"role": "user", "content": f"Result of the function: {known['content']}"}
        if role == "tool":  # of which call it is the result: OpenAI's clients say the id, Ollama's the name or nothing
            said = {key: message[key] for key in ("tool_call_id", "name") if message.get(key) is not None}
            at = next((i for i, call in enumerate(asked) if said.items() <= call.items()), None)
            return {**known, **({"name": ""} if at is None else asked.pop(at)), **said}
        return self._with_calls(known, message.get("tool_calls") or [], asked) if role == "assistant" else known

    def _with_calls(self, known: dict[str, Any], calls: Any, asked: list[dict[str, str]]) -> dict[str, Any]:
        """An earlier answer with the calls in it."""
        if not isinstance(calls, (list, tuple)):
            raise UsageError("tool_calls is not a list")
        made = [_made(call) for call in calls]
        if not self.style:
            written = [json.dumps({"name": each["name"], "parameters": each["arguments"]}) for each in made]
            return {**known, "content": "\n".join(filter(None, [known["content"], *written]))}
        # some templates demand ids of nine letters and digits
        ids = [call.get("id") or f"call{i:05}" for i, call in enumerate(calls, len(asked))]
        asked += [{"tool_call_id": id, "name": each["name"]} for id, each in zip(ids, made)]
        calls = [{"id": id, "type": "function", "function": each} for id, each in zip(ids, made)]
        return {**known, "tool_calls": calls} if calls else known

    @property
    def spec(self) -> Spec | None:
        """The form that the answer must have; None for any text."""
        tools, choice = self.tools.tools, self.tools.choice
        if choice == "none":
            return self.text
        calls = [f"{lark.text(head)} @f{i} {lark.text('}')}" for i, head in enumerate(self.heads)]
        rules = [f"object: {' | '.join(calls)}"]
        first = last = ""
        if self.marks:
            first, last = f'<[{self.marks[0]}]> "\\n"', f'"\\n" <[{self.marks[1]}]>'
        elif self.style == "marked":
            first, last = lark.text(f"{BEGIN}\n"), lark.text(f"\n{END}")
        rules.append(f"call: {first} object {last}")
        many = 'call ("\\n" call)*' if self.tools.parallel and self.style == "marked" else "call"
        if choice == "required":
            rules.append(f"start: {many}")
        elif self.text is not None:
            rules.append(f"start: @text | {many}")
        elif self.marks:
            rules += [f"start: TEXT? ({many})?", _TEXT]
        else:
            rules += [f"start: TEXT | {many}", _NO_MARK if self.style == "marked" else _NO_BRACE]
        parts = [(f"f{i}", Spec(tool.schema, True)) for i, tool in enumerate(tools)]
        if choice == "auto" and self.text is not None:
            parts.append(("text", self.text))
        return Spec("\n".join(rules), allowed=frozenset(self.marks), parts=tuple(parts))

    @property
    def heads(self) -> list[str]:
        """How the object of a call begins, for each function, up to its arguments."""
        word = "arguments" if self.style == "marked" else "parameters"
        return [json.dumps({"name": tool.name})[:-1] + f", {json.dumps(word)}: " for tool in self.tools.tools]

    @property
    def beginnings(self) -> list[str]:
        """How an answer begins that is a call as a whole; [] if calls may follow a text."""
        if self.style != "marked":
            return self.heads
        return [BEGIN] if self.text is not None else []

    @property
    def names(self) -> dict[int, str]:
        """The texts of the marks, which are control tokens without text in some vocabularies."""
        return dict(zip(self.marks, (BEGIN, END)))

    def split(self, text: str) -> tuple[str, list[dict[str, Any]]]:
        """(content, calls in OpenAI's form) of an answer.  An incomplete call is left out."""
        reader = self.reader()
        content = reader.feed(text) + reader.flush()
        return content, reader.calls()

    def reader(self) -> Reader:
        """A reader that separates content from calls while an answer is written."""
        return Reader(self)


class Reader:
    """Separates the text of one answer, while it is written, into content to show and calls."""

    def __init__(self, form: Form) -> None:
        self._form = form
        self._beginnings = form.beginnings
        self._content = form.tools.choice == "none"  # there will be no call
        self._calling = False
        self._held = ""  # may be the beginning of a call; or the calls

    def feed(self, text: str) -> str:
        """Take more text; returns the part of it that is content."""
        if self._content:
            return text
        self._held += text
        if self._calling:
            return ""
        if not self._beginnings:
            return self._before_mark()
        opening = self._held.lstrip()
        self._calling = any(map(opening.startswith, self._beginnings))
        self._content = not self._calling and not any(each.startswith(opening) for each in self._beginnings)
        return self.flush() if self._content else ""

    def _before_mark(self) -> str:
        at = self._held.find(BEGIN)
        self._calling = at >= 0
        if at < 0:  # the longest end that the mark may begin with is held back
            n = next((n for n in range(len(BEGIN) - 1, 0, -1) if self._held.endswith(BEGIN[:n])), 0)
            at = len(self._held) - n
        text, self._held = self._held[:at], self._held[at:]
        return text

    def flush(self) -> str:
        """At the end of the answer: text that was held back and is content; not the beginning of a call."""
        if self._calling or self._beginnings and not self._content and self._form.text is None and self._held.strip():
            return ""
        text, self._held = self._held, ""
        return text

    def calls(self) -> list[dict[str, Any]]:
        """The calls in OpenAI's form.  An incomplete call is left out."""
        found, decoder, at = [], json.JSONDecoder(), 0
        while self._calling and (at := self._held.find("{", at)) >= 0:
            head = next((each for each in self._form.heads if self._held.startswith(each, at)), None)
            if head is None:
                break
            begin = at + len(head)
            try:
                call, at = decoder.raw_decode(self._held, at)
            except (ValueError, RecursionError):
                break
            # as they were written: a number may be one that Python would write differently
            function = {"name": call["name"], "arguments": self._held[begin : at - 1].strip()}
            found.append({"id": f"call_{secrets.token_hex(12)}", "type": "function", "function": function})
        return found


def _made(call: Any) -> dict[str, Any]:
    """Name and arguments of a call of an earlier turn, the arguments as an object."""
    function = call.get("function") if isinstance(call, Mapping) else None
    if not isinstance(function, Mapping) or not isinstance(function.get("name"), str):
        raise UsageError("tool_calls are objects with a function, of which name and arguments are known")
    arguments = function.get("arguments") or {}
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments)
        except (ValueError, RecursionError):
            raise UsageError(f"the arguments of the call of {function['name'][:64]} are not JSON") from None
    if not isinstance(arguments, Mapping):
        raise UsageError(f"the arguments of the call of {function['name'][:64]} are a JSON object")
    return {"name": function["name"], "arguments": dict(arguments)}
