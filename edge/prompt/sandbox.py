"""Jinja for chat templates from model files: in Jinja's immutable sandbox, with a limit of time and one of text.

The sandbox prevents access to Python.  A template may still take much memory for a value of its own.  Templates behave
as in Hugging Face transformers: all of Jinja's filters, trim_blocks, lstrip_blocks, break and continue, ``tojson``,
``raise_exception``, ``strftime_now``, ``{% generation %}``.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from datetime import datetime
from typing import Any, NoReturn

import jinja2.debug  # noqa: F401  otherwise Jinja loads it when a template fails, and a server reads its program again
from jinja2 import TemplateError, nodes
from jinja2.ext import Extension, LoopControlExtension
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.visitor import NodeTransformer

from edge.errors import InvalidFile, UsageError, one_line

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


class Renderer:
    """A compiled template.  Raises InvalidFile, one line, for anything that is wrong with it."""

    def __init__(self, source: str, where: str = "the model's chat template") -> None:
        self._where = where
        self._environment = _Environment(trim_blocks=True, lstrip_blocks=True,
                                         extensions=[LoopControlExtension, _Generation])
        self._environment.globals["raise_exception"] = self._refuse
        self._environment.filters["tojson"] = _tojson
        try:
            self._template = self._environment.from_string(_Clock().visit(self._environment.parse(source)))
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

    def dated(self) -> Callable[[str], str]:
        """``strftime_now`` of templates, at this moment."""
        return now().strftime

    def render(self, **variables: Any) -> str:
        """The rendered text.  Raises UsageError if the template refuses the messages (``raise_exception``)."""
        text = ""
        self._environment.deadline = time.monotonic() + MAX_SECONDS
        try:
            for piece in self._template.generate(**variables):
                text += piece
                if len(text) > MAX_TEXT:
                    raise TemplateError("it makes too much text")
            return text
        except UsageError:
            raise
        except Exception as error:  # the template is a program of unknown origin: any error is its own
            self._fail(error)
