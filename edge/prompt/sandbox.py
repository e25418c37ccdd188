"""Jinja for chat templates from model files: in Jinja's immutable sandbox, with a limit of time and one of text.

The sandbox prevents access to Python.  A template may still take much memory for a value of its own.  Templates behave
as in Hugging Face transformers: all of Jinja's filters, trim_blocks, lstrip_blocks, break and continue, ``tojson``,
``raise_exception``, ``strftime_now``, ``{% generation %}``.
"""

from __future__ import annotations

import json
import re
import time
import unicodedata
from collections.abc import Callable, Mapping
from datetime import datetime
from functools import cached_property
from itertools import groupby
from typing import TYPE_CHECKING, Any, NoReturn

import jinja2.debug  # noqa: F401  otherwise Jinja loads it when a template fails, and a server reads its program again
from jinja2 import TemplateError, nodes
from jinja2.ext import Extension, LoopControlExtension
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.visitor import NodeTransformer

from edge.errors import InvalidFile, UsageError, one_line
from edge.prompt.template import TextPart, thoughts_apart

if TYPE_CHECKING:
    from edge.formats.checkpoint import TokenizerSpec
    from edge.prompt.tokenizer import Tokenizer

Change = Callable[[str], str]

MAX_TEXT = 2 << 20  # characters of a prompt
MAX_SECONDS = 5.0

#: the clock that templates see
now: Callable[[], datetime] = datetime.now


class _Generation(Extension):
    """``{% generation %}`` marks text of the model, for training; here only its content matters."""

    tags = {"generation"}  # noqa: RUF012 (Jinja declares it so)

    def parse(self, parser: Parser) -> nodes.Node:
        next(parser.stream)
        return nodes.Scope(parser.parse_statements(("name:endgeneration",), drop_needle=True))


class _Clock(NodeTransformer):
    """Looks at the clock in every pass of a loop and every call of a macro or block: nothing else goes on for ever."""

    def _body(self, node: Any) -> nodes.Node:
        self.generic_visit(node)
        node.body.insert(0, nodes.ExprStmt(nodes.Call(nodes.EnvironmentAttribute("tick"), [], [], None, None)))
        return node

    visit_For = visit_Macro = visit_CallBlock = visit_Block = _body


class _Environment(ImmutableSandboxedEnvironment):
    deadline = 0.0

    def tick(self) -> None:
        if time.monotonic() > self.deadline:
            raise TemplateError("it takes too long")


def _tojson(value: Any, ensure_ascii: bool = False, indent: Any = None, separators: Any = None,
            sort_keys: bool = False) -> str:
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


class JinjaTemplate:
    """A template of a model file.  Its output is one text, in which all control tokens are read, as in transformers.

    Text of a message can be part of one only if it has a character with which one of these tokens begins or ends, or
    stands inside one.  Then the template is rendered again with such characters changed: the control tokens of this
    second text are the template's own.  If the first has others, or a message has the text of one, text where
    renderings differ is of the messages.  A template that reads what was changed, so that more than this differs, gets
    no such messages.

    Raises InvalidFile, one line, for anything that is wrong with the template when it is first used: a model with a
    broken one can still complete raw prompts.
    """

    bos: bool | None = None  # as the tokenizer says
    stops: tuple[str, ...] = ()

    def __init__(self, text: str, where: str, spec: TokenizerSpec) -> None:
        self._text, self._where, self._spec = text, where, spec
        self.switches = "enable_thinking" in text  # it can ask a model to think before its answer

    @cached_property
    def _compiled(self) -> tuple[_Environment, Any]:
        environment = _Environment(trim_blocks=True, lstrip_blocks=True,
                                   extensions=[LoopControlExtension, _Generation])
        environment.globals["raise_exception"] = self._refuse
        environment.filters["tojson"] = _tojson
        spec = self._spec
        known = {"bos": spec.bos_id, "eos": (*spec.eos_ids, None)[0], "pad": spec.pad_id, "unk": spec.unk_id}
        environment.globals |= {f"{name}_token": _stored_text(spec, number) for name, number in known.items()}
        try:
            return environment, environment.from_string(_Clock().visit(environment.parse(self._text)))
        except Exception as error:  # any error of the parser or compiler about a file's text
            self._fail(error)

    def _refuse(self, message: Any = "") -> NoReturn:
        raise UsageError(f"{self._where} refuses these messages: {' '.join(str(message)[:200].split())}")

    def _fail(self, error: BaseException) -> NoReturn:
        line = getattr(error, "lineno", None)
        place = f" (line {line})" if line else ""
        raise InvalidFile(
            f"{self._where} cannot be used{place}: {one_line(error)}; choose another with template=NAME"
        ) from None

    def text(self, *asked: Any) -> str:
        """The text of the prompt, see :meth:`edge.prompt.template.Template.render`."""
        return self._render(now().strftime, asked, str)

    def _render(self, dated: Change, asked: Any, change: Change, key: Change | None = None) -> str:
        """The text with all texts of messages, definitions and calls changed; ``key``: how their keys are."""
        messages, add_generation_prompt, tools, think = asked
        try:
            messages = [_said(message, change, key or change) for message in messages]
            tools = _changed(tools, change, key or change)
        except RecursionError:
            raise UsageError("a definition or an argument of a function is nested too deeply") from None
        environment, template = self._compiled
        environment.deadline = time.monotonic() + MAX_SECONDS
        text = ""
        try:
            for piece in template.generate(messages=messages, tools=tools, documents=None, strftime_now=dated,
                                           add_generation_prompt=add_generation_prompt,
                                           **({} if think is None else {"enable_thinking": think})):
                text += piece
                if len(text) > MAX_TEXT:
                    raise TemplateError("it makes too much text")
            return text
        except UsageError:
            raise
        except Exception as error:  # the template is a program of unknown origin: any error is its own
            self._fail(error)

    def encode(self, tokenizer: Tokenizer, begun: TextPart, *asked: Any) -> list[int]:
        """The token ids of the prompt and of the text after it, see :meth:`Template.encode`."""
        dated = now().strftime  # once: the texts that are compared below have the same date
        names = {number: name for name, number in tokenizer.markers.items()}
        texts = dict[str, str]()

        def encoded(*parts: TextPart) -> tuple[list[int], list[str]]:
            ids = tokenizer.encode_parts([*parts, begun])
            return ids, [names[number] for number in ids if number in names]

        text = self._render(dated, asked, lambda said: texts.setdefault(said, said))
        ids, found = encoded(TextPart(text, True))
        marks = sorted({*found}, key=len, reverse=True)
        ends = {*_folded("".join(mark[0] + mark[-1] for mark in marks))}
        changed = {ord(c): _twin(c) for c in set[str]().union(*texts) if not ends.isdisjoint(_folded(c))}
        between = _folded("\n".join(mark[1:-1] for mark in marks))
        inside = {said for said in texts if 0 < len(said.strip()) <= len(between) and _folded(said.strip()) in between}
        if not changed and not inside:
            return ids
        typed = re.compile("|".join(map(re.escape, marks)) or "(?!)")
        first = next(filter(None, map(typed.search, texts)), None)

        def hide(said: str) -> str:
            return _twins(said) if said in inside else said.translate(changed)

        def mark(said: str) -> str:
            return typed.sub(lambda match: _twins(match[0]), said)

        try:
            hidden = self._render(dated, asked, hide, lambda key: key.translate(changed))
            own = encoded(TextPart(hidden, True))[1]
            if first is None and found == own:
                return ids
            for other in (self._render(dated, asked, mark), hidden):
                if parts := _apart(text, other):
                    ids, found = encoded(*parts)
                    if found == own:
                        return ids
        except (InvalidFile, UsageError):  # it needs what was changed
            pass
        raise UsageError(f"{self._where} does not keep {first[0] if first else marks[0]} in the text of a message "
                         "apart from its own; leave that out, or choose another with template=NAME")


def _twin(c: str) -> str:
    """A character in place of another, which no template treats in a way of its own; white space stays."""
    return c if c.isspace() else chr(0x4E00 + ord(c) % 0x5000)


def _twins(text: str) -> str:
    return "".join(map(_twin, text))


def _folded(text: str) -> str:
    """A text without differences of case and width, as a template or a tokenizer may take them away."""
    return unicodedata.normalize("NFKC", text).casefold()


def _said(message: Mapping[str, Any], change: Change, key: Change) -> dict[str, Any]:
    """A message with all texts in it changed, but for its role and the marks of thoughts in an answer."""
    said = {name: each if name == "role" else _changed(each, change, key) for name, each in message.items()}
    if message["role"] == "assistant":
        said["content"] = "".join(text if mark else change(text) for text, mark in thoughts_apart(message["content"]))
    return said


def _changed(value: Any, change: Change, key: Change) -> Any:
    if isinstance(value, str):
        return change(value)
    if isinstance(value, Mapping):
        return {_changed(name, key, key): _changed(each, change, key) for name, each in value.items()}
    return [_changed(each, change, key) for each in value] if isinstance(value, (list, tuple)) else value


def _apart(text: str, changed: str) -> list[TextPart]:
    """A text as parts: those where a rendering with changed messages has other characters are of the messages.

    None at all if the two differ in anything else.
    """
    if len(text) != len(changed) or any(a != b and _twin(a) != b for a, b in zip(text, changed)):
        return []
    return [TextPart("".join(a for a, _ in run), same)
            for same, run in groupby(zip(text, changed), lambda pair: pair[0] == pair[1])]


def _stored_text(spec: TokenizerSpec, number: int | None) -> str:
    """The text of a token as stored in the file, such as "<s>"; "" if there is none."""
    if number is None:
        return ""
    for text, added in spec.added.items():
        if added.id == number:
            return text
    tokens = spec.tokens
    if spec.model is not None:
        from edge.formats import sentencepiece_model

        tokens = sentencepiece_model.parse(spec.model, "tokenizer.model").pieces
    return tokens[number] if 0 <= number < len(tokens) else ""
