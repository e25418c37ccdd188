"""Jinja for chat templates from model files: with what they need, and with limits on time and memory.

Jinja's immutable sandbox prevents access to Python.  It does not limit time and memory, so this module also:

* limits every value that a template makes to MAX_WEIGHT (characters, and bytes per element, counted through nested
  lists).  Values are made by calls, filters, ``+ * ** %``, ``~`` and literals; each of these is intercepted, operations
  that can multiply a size before they run;
* counts passes of loops and calls of macros, and counts literal text inside them for each pass;
* checks the time at each intercepted operation.

Only filters and methods of strings that chat templates use exist.  Otherwise templates behave as in Hugging Face
transformers: trim_blocks, lstrip_blocks, break and continue, ``raise_exception``, ``{% generation %}``.
``strftime_now`` does not exist: with a date in the prompt, the KV cache could not be reused.
"""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Callable, ItemsView, Iterable, Iterator, KeysView, ValuesView
from functools import wraps
from itertools import islice
from typing import Any, NoReturn

from jinja2 import TemplateError, nodes
from jinja2.ext import Extension, LoopControlExtension
from jinja2.parser import Parser
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace
from jinja2.visitor import NodeTransformer

from edge.errors import InvalidFile, UsageError
from edge.threads import with_locks

MAX_SOURCE = 256 << 10  # characters; the longest known (with tools) have some 20 thousand
MAX_WEIGHT = 2 << 20
MAX_STEPS = 100_000
MAX_SECONDS = 5.0

_FILTERS = (
    "abs capitalize count d default dictsort first float indent int items join last length list lower map max min "
    "reject rejectattr replace reverse round safe select selectattr sort string title tojson trim unique upper"
).split()
_STR_METHODS = frozenset(
    "capitalize count endswith find index isalnum isalpha isdigit isspace isupper islower join lower lstrip "
    "partition removeprefix removesuffix replace rfind rindex rpartition rsplit rstrip split splitlines startswith "
    "strip swapcase title upper".split()
)
_OTHER_METHODS = {dict: frozenset(("items", "keys", "values", "get")), list: frozenset(("index", "count")),
                  tuple: frozenset(("index", "count"))}  # fmt: skip


class _Limit(TemplateError):
    """A limit was exceeded."""


class _Refused(Exception):
    """The template called raise_exception."""


def _refuse(message: Any = "") -> NoReturn:
    raise _Refused(str(message)[:200])


class _Generation(Extension):
    """``{% generation %}`` marks text of the model, for training; here only its content matters."""

    tags = {"generation"}  # noqa: RUF012 (Jinja declares it so)

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


class _Guards(NodeTransformer):
    """Inserts calls of the environment's ``tick``, ``made`` and ``tilde`` where the template would otherwise run
    unobserved.

    They are called as attributes of the environment, so that no variable of a template can replace them.
    """

    def _call(self, name: str, *args: nodes.Expr) -> nodes.Call:
        return nodes.Call(nodes.EnvironmentAttribute(name), list(args), [], None, None)

    def _block(self, node: Any) -> nodes.Node:
        text = sum(len(data.data) for data in node.find_all(nodes.TemplateData))
        self.generic_visit(node)
        node.body.insert(0, nodes.ExprStmt(self._call("tick", nodes.Const(text))))
        return node

    visit_For = visit_Macro = visit_CallBlock = visit_Block = _block

    def _literal(self, node: Any) -> nodes.Node:
        self.generic_visit(node)
        if getattr(node, "ctx", "load") != "load":
            return node  # the target of a loop or an assignment
        return self._call("made", node)

    visit_List = visit_Tuple = visit_Dict = _literal

    def visit_Concat(self, node: nodes.Concat) -> nodes.Node:
        self.generic_visit(node)
        return self._call("tilde", *node.nodes)


class _Environment(ImmutableSandboxedEnvironment):
    intercepted_binops = frozenset(("+", "*", "**", "%"))

    def __init__(self) -> None:
        super().__init__(trim_blocks=True, lstrip_blocks=True, extensions=[LoopControlExtension, _Generation],
                         finalize=self._emit, cache_size=0)
        self.globals = {"range": self.globals["range"], "dict": dict, "namespace": Namespace,
                        "raise_exception": _refuse}
        own = {"join": self._join, "replace": self._replace, "indent": self._indent, "list": self._list,
               "tojson": self._tojson, "string": self._string, "safe": self._string}
        self.filters = {name: self._bounded(own.get(name, self.filters[name])) for name in _FILTERS}
        self.start()

    # ---- the counters -----------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Reset the counters for a new rendering."""
        self._steps = 0
        self._emitted = 0
        self._deadline = time.monotonic() + MAX_SECONDS

    def check(self) -> None:
        if time.monotonic() > self._deadline:
            raise _Limit("it takes too long")

    def weigh(self, value: Any) -> Any:
        """Return the value.  Raises _Limit if it is too large."""
        self.check()
        if type(value) is str:
            if len(value) > MAX_WEIGHT:
                raise _Limit("it makes too much text")
            return value
        weight, rest = 0, [value]
        while rest:
            item = rest.pop()
            if isinstance(item, str):
                weight += len(item)
            elif isinstance(item, (list, tuple, set, frozenset, KeysView, ValuesView, ItemsView)):
                weight += 8 * len(item)
                rest.extend(item)
            elif isinstance(item, dict):  # not Mapping: Jinja's own Context counts as one
                weight += 16 * len(item)
                rest.extend(item)
                rest.extend(item.values())
            elif isinstance(item, int):
                weight += item.bit_length() >> 3
            elif isinstance(item, Namespace):
                attributes = item._Namespace__attrs
                weight += 16 + 16 * len(attributes)
                rest.extend(attributes.values())
            if weight > MAX_WEIGHT:
                raise _Limit("it makes too large a value")
        return value

    def _emit(self, value: Any) -> Any:
        """Called for each value that is written to the output."""
        text = self._string(value)
        self._charge(len(text))
        return text

    def _charge(self, n: int) -> None:
        self._emitted += n
        if self._emitted > MAX_WEIGHT:
            raise _Limit("it makes too much text")

    def tick(self, text: int) -> None:
        """Count one pass of a block with ``text`` characters of literal text."""
        self._steps += 1
        if self._steps > MAX_STEPS:
            raise _Limit("it loops too often")
        self._charge(text)

    def made(self, value: Any) -> Any:
        return value  # call() weighs it

    def tilde(self, *values: Any) -> str:
        """The operator ``a ~ b``."""
        return self._join(values)

    # ---- what is intercepted ----------------------------------------------------------------------------------------

    def call(__self, __context: Context, __obj: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: B902
        __self.check()
        owner = getattr(__obj, "__self__", None)
        if isinstance(owner, str):
            method = getattr(__obj, "__name__", "")
            if method == "join":
                return __self._join(args[0] if args else (), owner)
            if method == "replace":
                return __self._replace(owner, *args, **kwargs)
        return __self.weigh(super().call(__context, __obj, *args, **kwargs))

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        self.weigh(left)
        self.weigh(right)
        numbers = isinstance(left, (int, float)) and isinstance(right, (int, float))
        if operator == "*":
            if not numbers:
                sized, n = (left, right) if hasattr(left, "__len__") else (right, left)
                if isinstance(n, int) and hasattr(sized, "__len__") and len(sized) * n > MAX_WEIGHT:
                    raise _Limit("it makes too large a value")
            elif isinstance(left, int) and isinstance(right, int) and left.bit_length() + right.bit_length() > 4096:
                raise _Limit("it makes too large a number")
        elif operator == "**" and not (numbers and abs(left) <= 1 << 20 and abs(right) <= 64):
            raise _Limit("it makes too large a number")
        elif operator == "%" and isinstance(left, str) and re.search(r"\d{3}|\*", left):
            raise _Limit("it pads text too far")
        return self.weigh(super().call_binop(context, operator, left, right))

    def wrap_str_format(self, value: Any) -> None:
        return None  # no str.format, so that is_safe_attribute is asked about it as about any other method

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        if not super().is_safe_attribute(obj, attr, value):
            return False
        if isinstance(obj, str):
            return attr in _STR_METHODS
        for kind, methods in _OTHER_METHODS.items():
            if isinstance(obj, kind):
                return attr in methods
        return not isinstance(obj, (int, float, bytes, range))

    # ---- filters ----------------------------------------------------------------------------------------------------

    def _bounded(self, function: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(function)  # keeps Jinja's mark that the filter takes the context
        def bounded(*args: Any, **kwargs: Any) -> Any:
            for argument in args:  # a namespace in it may have grown since it was weighed
                self.weigh(argument)
            return self.weigh(function(*args, **kwargs))

        return bounded

    def _string(self, value: Any) -> str:
        return str(self.weigh(value))

    def _join(self, values: Iterable[Any], d: Any = "", attribute: Any = None) -> str:
        glue = self._string(d)
        parts, size = [], 0
        for value in values:
            part = self._string(value if attribute is None else self.getitem(value, attribute))
            size += len(part) + len(glue)
            if size > MAX_WEIGHT:
                raise _Limit("it makes too much text")
            parts.append(part)
        return glue.join(parts)

    def _replace(self, s: Any, old: Any, new: Any, count: Any = -1) -> str:
        text, old, new = self._string(s), self._string(old), self._string(new)
        n = -1 if count is None else int(count)
        found = text.count(old)
        if len(text) + (found if n < 0 else min(found, n)) * len(new) > MAX_WEIGHT:
            raise _Limit("it makes too much text")
        return text.replace(old, new, n)

    def _indent(self, s: Any, width: Any = 4, first: bool = False, blank: bool = False) -> str:
        text = self._string(s)
        pad = width if isinstance(width, str) else " " * min(int(width), 64)
        if len(text) + (text.count("\n") + 1) * len(pad) > MAX_WEIGHT:
            raise _Limit("it makes too much text")
        lines = text.split("\n")
        return "\n".join(pad + line if (first or i) and (line or blank) else line for i, line in enumerate(lines))

    def _list(self, value: Iterable[Any]) -> list[Any]:
        return list(islice(value, MAX_WEIGHT + 1))

    def _tojson(self, value: Any, ensure_ascii: bool = False, indent: Any = None, separators: Any = None,
                sort_keys: bool = False) -> str:
        self.weigh(value)
        return json.dumps(value, ensure_ascii=ensure_ascii, indent=None if indent is None else min(int(indent), 16),
                          separators=separators and tuple(separators), sort_keys=sort_keys)


class Renderer:
    """A compiled template.  Raises InvalidFile, one line, for anything that is wrong with it."""

    def __init__(self, source: str, where: str = "the model's chat template") -> None:
        self._where = where
        if len(source) > MAX_SOURCE:
            raise InvalidFile(f"{where} has {len(source)} characters (limit {MAX_SOURCE}); "
                              "it is damaged or hostile; choose another with --template")
        with_locks(self)
        self._environment = _Environment()
        try:
            tree = _Guards().visit(self._environment.parse(source))
            self._template = self._environment.from_string(tree)
        except Exception as error:  # any error of the parser or compiler about a file's text
            self._fail(error)

    def make_locks(self) -> None:
        """New locks, see :mod:`edge.threads`."""
        self._lock = threading.Lock()

    def _fail(self, error: BaseException) -> NoReturn:
        reason = " ".join(str(error).split())[:160] or type(error).__name__
        line = getattr(error, "lineno", None)
        place = f" (line {line})" if line else ""
        raise InvalidFile(f"{self._where} cannot be used{place}: {reason}; choose another with --template") from None

    def render(self, **variables: Any) -> str:
        """The rendered text.  Raises UsageError if the template refuses the messages (``raise_exception``)."""
        with self._lock:
            self._environment.start()
            try:
                return "".join(_pieces(self._template.generate(**variables)))
            except _Refused as refused:
                raise UsageError(f"{self._where} refuses these messages: {' '.join(str(refused).split())}") from None
            except Exception as error:  # the template is a program of unknown origin: any error is its own
                self._fail(error)


def _pieces(stream: Iterator[str]) -> Iterator[str]:
    size = 0
    for piece in stream:
        size += len(piece)
        if size > MAX_WEIGHT + MAX_SOURCE:
            raise _Limit("it makes too much text")
        yield piece
