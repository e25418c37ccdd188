"""Jinja for chat templates from model files: with what they need, and with limits on time and memory.

Jinja's immutable sandbox prevents access to Python.  It does not limit time and memory, so this module also:

* limits every value that a template makes to MAX_WEIGHT (characters, and bytes per element, counted through nested
  lists).  Values are made by calls, filters, ``+ * ** %``, ``~`` and literals; each of these is intercepted, operations
  that can multiply a size before they run.  What a filter gives one by one is counted together;
* counts passes of loops and calls of macros, and counts literal text inside them for each pass;
* checks the time at each intercepted operation.

Only filters and methods of strings that chat templates use exist.  Otherwise templates behave as in Hugging Face
transformers: trim_blocks, lstrip_blocks, break and continue, ``raise_exception``, ``strftime_now``,
``{% generation %}``.
"""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Callable, ItemsView, Iterable, Iterator, KeysView, ValuesView
from datetime import datetime
from functools import wraps
from itertools import islice
from types import BuiltinMethodType, MethodType
from typing import Any, NoReturn

from jinja2 import TemplateError, nodes
from jinja2.exceptions import FilterArgumentError
from jinja2.ext import Extension, LoopControlExtension
from jinja2.filters import do_batch, do_indent, make_attrgetter, sync_do_slice
from jinja2.parser import Parser
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment, SandboxedEscapeFormatter, SandboxedFormatter
from jinja2.utils import Cycler, Joiner, Namespace, pass_context
from jinja2.visitor import NodeTransformer

from edge.errors import InvalidFile, UsageError, one_line
from edge.threads import anew

MAX_SOURCE = 256 << 10  # characters; the longest known (with tools) have some 20 thousand
MAX_WEIGHT = 2 << 20
MAX_STEPS = 100_000
MAX_SECONDS = 5.0

_FILTERS = (
    "abs batch capitalize center count d default dictsort e escape first float forceescape format groupby indent int "
    "items join last length list lower map max min reject rejectattr replace reverse round safe select selectattr "
    "slice sort string sum title tojson trim truncate unique upper wordcount"
).split()
_STR_METHODS = frozenset(
    "capitalize casefold center count endswith expandtabs find format format_map index isalnum isalpha isascii "
    "isdecimal isdigit isidentifier islower isnumeric isprintable isspace istitle isupper join ljust lower lstrip "
    "partition removeprefix removesuffix replace rfind rindex rjust rpartition rsplit rstrip split splitlines "
    "startswith strip swapcase title upper zfill".split()
)
_OTHER_METHODS = {dict: frozenset(("items", "keys", "values", "get", "copy")),
                  list: frozenset(("index", "count", "copy")),
                  tuple: frozenset(("index", "count", "grouper", "list"))}  # the last two: of the filter groupby


#: the clock that templates see
now: Callable[[], datetime] = datetime.now


class _Limit(TemplateError):
    """A limit was exceeded."""


class _Refused(Exception):
    """The template called raise_exception."""


def _refuse(message: Any = "") -> NoReturn:
    raise _Refused(str(message)[:200])


class _Generation(Extension):
    """``{% generation %}`` marks text of the model, for training; here only its content matters."""

    tags = {"generation"}  # noqa: RUF012 (Jinja declares it so)

    def parse(self, parser: Parser) -> nodes.Node:
        next(parser.stream)
        return nodes.Scope(parser.parse_statements(("name:endgeneration",), drop_needle=True))


class _Fields(SandboxedFormatter):
    """``str.format`` whose result is limited; attributes are those that templates may see."""

    _env: _Environment
    _size = 0

    def convert_field(self, value: Any, conversion: Any) -> Any:
        return super().convert_field(self._env.weigh(value), conversion)

    def format_field(self, value: Any, format_spec: str) -> Any:
        if re.search(r"\d{4}", format_spec):
            raise _Limit("it pads text too far")
        text = super().format_field(self._env.weigh(value), format_spec)
        self._size += len(text)
        if self._size > MAX_WEIGHT:
            raise _Limit("it makes too much text")
        return text


class _EscapedFields(_Fields, SandboxedEscapeFormatter):
    """The same for text that is marked as safe, into which other text is put escaped."""


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
            return node  # what a loop or an assignment sets
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
        self.globals = {"range": self.globals["range"], "dict": lambda *args, **kwargs: dict(*args, **kwargs),
                        "namespace": Namespace, "cycler": Cycler, "joiner": Joiner, "raise_exception": _refuse}
        self._methods: dict[str, Callable[..., str]] = {
            "join": self._method_join, "replace": self._method_replace, "format": self._method_format,
            "format_map": self._method_format_map, "expandtabs": self._method_expandtabs,
            **dict.fromkeys(("center", "ljust", "rjust", "zfill"), self._method_pad)}
        own = {"join": self._join, "replace": self._replace, "indent": self._indent, "list": self._list,
               "tojson": self._tojson, "center": self._center, "format": self._percent, "sum": self._sum,
               "batch": self._counting(do_batch), "slice": self._counting(sync_do_slice)}
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
        self.weight(value)
        return value

    def weight(self, value: Any) -> int:
        """How large the value is, with all that it contains.  Raises _Limit if it is too large."""
        self.check()
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
        return weight

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
        return __self.weigh(super().call(__context, __obj, *args, **kwargs))

    def getattr(self, obj: Any, attribute: str) -> Any:
        return self._looking(super().getattr(obj, attribute))

    def getitem(self, obj: Any, argument: Any) -> Any:
        return self._looking(super().getitem(obj, argument))

    def _looking(self, value: Any) -> Any:
        """``value``; if it is a method of a string that can multiply a size, one that looks before it does so."""
        if not isinstance(value, (BuiltinMethodType, MethodType)) or not isinstance(value.__self__, str):
            return value
        bounded = self._methods.get(value.__name__)
        if bounded is None:
            return value

        def looking(*args: Any, **kwargs: Any) -> str:  # not a partial, whose attributes would show the method
            return bounded(value, *args, **kwargs)

        return looking

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
        elif operator == "%" and isinstance(left, str):
            if re.search(r"\d{3}|\*", left):
                raise _Limit("it pads text too far")
            if isinstance(right, dict) and left.count("%") * len(self._string(right)) > MAX_WEIGHT:
                raise _Limit("it makes too much text")
        return self.weigh(super().call_binop(context, operator, left, right))

    def wrap_str_format(self, value: Any) -> None:
        return None  # getattr has its own, also with versions of Jinja that do not ask here

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        if not super().is_safe_attribute(obj, attr, value):
            return False
        if isinstance(obj, str):
            return attr in _STR_METHODS
        for kind, methods in _OTHER_METHODS.items():
            if isinstance(obj, kind):
                return attr in methods
        return not isinstance(obj, (int, float, bytes, range))

    # ---- methods of strings, each given the method itself first -----------------------------------------------------

    def _method_join(self, method: Any, values: Iterable[Any], /) -> str:
        return method(self._within(values, len(method.__self__)))

    def _method_replace(self, method: Any, old: str, new: str, count: int = -1) -> str:
        text = method.__self__
        found = text.count(old)
        if len(text) + (found if count < 0 else min(found, count)) * len(new) > MAX_WEIGHT:
            raise _Limit("it makes too much text")
        return method(old, new, count)

    def _method_pad(self, method: Any, width: int, *fill: str) -> str:
        if width > MAX_WEIGHT:
            raise _Limit("it pads text too far")
        return method(width, *fill)

    def _method_expandtabs(self, method: Any, tabsize: int = 8) -> str:
        text = method.__self__
        if len(text) + text.count("\t") * tabsize > MAX_WEIGHT:
            raise _Limit("it pads text too far")
        return method(tabsize)

    def _method_format(self, method: Any, /, *args: Any, **kwargs: Any) -> str:
        return self._formatted(method.__self__, args, kwargs)

    def _method_format_map(self, method: Any, mapping: dict[str, Any], /) -> str:
        return self._formatted(method.__self__, (), mapping)

    def _formatted(self, text: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
        escape = getattr(text, "escape", None)  # of Markup, which the filters safe and e make
        fields = _Fields(self) if escape is None else _EscapedFields(self, escape=escape)
        return type(text)(fields.vformat(text, args, kwargs))

    # ---- filters ----------------------------------------------------------------------------------------------------

    def _bounded(self, function: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(function)  # keeps Jinja's mark that the filter takes the context
        def bounded(*args: Any, **kwargs: Any) -> Any:
            for argument in (*args, *kwargs.values()):  # a namespace in it may have grown since it was weighed
                self.weigh(argument)
            made = function(*args, **kwargs)
            return self._within(made) if isinstance(made, Iterator) else self.weigh(made)

        return bounded

    def _within(self, values: Iterable[Any], more: int = 0) -> Iterator[Any]:
        """The values one by one.  Raises _Limit if they are too large together, each with ``more`` characters."""
        room = MAX_WEIGHT
        for value in values:
            room -= 8 + more + self.weight(value)
            if room < 0:
                raise _Limit("it makes too large a value")
            yield value

    def _counting(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """A filter whose second argument is how many it makes."""

        def counting(value: Any, n: int, fill_with: Any = None) -> Any:
            if n > MAX_STEPS:
                raise _Limit("it makes too large a value")
            return function(value, n, fill_with)

        return counting

    def _string(self, value: Any) -> str:
        return str(self.weigh(value))

    def _join(self, value: Iterable[Any], d: Any = "", attribute: Any = None) -> str:
        glue = self._string(d)
        values = value if attribute is None else map(make_attrgetter(self, attribute), value)
        return glue.join(self._within(map(self._string, values), len(glue)))

    def _replace(self, s: Any, old: Any, new: Any, count: int | None = None) -> str:
        count = -1 if count is None else count
        return self._method_replace(self._string(s).replace, self._string(old), self._string(new), count)

    def _center(self, value: Any, width: int = 80) -> str:
        return self._method_pad((value if isinstance(value, str) else self._string(value)).center, width)

    @pass_context
    def _percent(self, context: Context, value: Any, *args: Any, **kwargs: Any) -> Any:
        if args and kwargs:
            raise FilterArgumentError("can't handle positional and keyword arguments at the same time")
        return self.call_binop(context, "%", value if isinstance(value, str) else self._string(value), kwargs or args)

    @pass_context
    def _sum(self, context: Context, iterable: Iterable[Any], attribute: Any = None, start: Any = 0) -> Any:
        for value in iterable if attribute is None else map(make_attrgetter(self, attribute), iterable):
            start = self.call_binop(context, "+", start, value)
        return start

    def _indent(self, s: str, width: str | int = 4, first: bool = False, blank: bool = False) -> str:
        if len(s) + (len(s.splitlines()) + 1) * (len(width) if isinstance(width, str) else width) > MAX_WEIGHT:
            raise _Limit("it makes too much text")
        return do_indent(s, width, first, blank)

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
        self._lock = anew(self, "_lock", threading.Lock)
        self._environment = _Environment()
        try:
            tree = _Guards().visit(self._environment.parse(source))
            self._template = self._environment.from_string(tree)
        except Exception as error:  # any error of the parser or compiler about a file's text
            self._fail(error)

    def _fail(self, error: BaseException) -> NoReturn:
        line = getattr(error, "lineno", None)
        place = f" (line {line})" if line else ""
        raise InvalidFile(
            f"{self._where} cannot be used{place}: {one_line(error)}; choose another with --template") from None

    def dated(self) -> Callable[[str], str]:
        """``strftime_now`` of templates, at this moment."""
        moment = now()

        def strftime_now(form: str) -> str:
            if len(form) > 200 or re.search(r"\d{3}", form):  # the C library pads as far as it says
                raise _Limit("it writes too long a date")
            return moment.strftime(form)

        return strftime_now

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
