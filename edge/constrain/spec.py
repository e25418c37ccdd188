"""Spec: the form that an answer must have: a JSON schema, a regular expression, choices or a Lark grammar."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from edge.constrain import bounds, lark
from edge.errors import UsageError, check_text

#: white space between the parts of JSON, as llguidance's option: a model that is unsure could write it without end
_SPACED = {"whitespace_flexible": True, "whitespace_pattern": r" |\r?\n[ \t]{0,20}"}
#: the usual ways to write JSON, which are tried ahead, see Constraint.forced
_STYLES: tuple[dict[str, Any], ...] = (
    {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}, {"whitespace_flexible": False})
#: parts of a Lark grammar that may be or have a schema
_LARK = re.compile(r'//[^\n]*|"(?:\\.|[^"\\])*"|/(?:\\.|[^/\\\n])+/|(%json)\s*')


@dataclass(frozen=True)
class Spec:
    """One form.  ``grammar``: its rules as a Lark grammar, or a JSON schema if ``is_json``; ``into``: the class of the
    value.
    """

    grammar: str
    is_json: bool = False
    into: type | None = None
    allowed: frozenset[int] = frozenset()  # control tokens that the grammar names by number
    parts: tuple[tuple[str, Spec], ...] = ()  # forms that a Lark grammar names: @name
    choices: tuple[str, ...] = ()  # the texts that the answer is one of

    @classmethod
    def of(
        cls,
        schema: Any = None,
        regex: str | None = None,
        choices: Sequence[str] | None = None,
        grammar: str | None = None,
    ) -> Spec | None:
        """The form of a call, checked as far as possible without a model; None if no argument is given.

        Raises UsageError that names what is wrong, also for more than one argument.
        """
        given = [name for name, each in (("schema", schema), ("regex", regex), ("choices", choices),
                                         ("grammar", grammar)) if each is not None]
        if not given:
            return None
        if len(given) > 1:
            raise UsageError(f"{' and '.join(given)}: an answer has only one form, give only one of them")
        name = given[0]
        if name == "schema":
            from edge.constrain.schema import parse

            parsed = parse(schema)
            spec = cls(parsed.text, True, parsed.into)
        elif name == "regex":
            text = _checked(regex, name)
            bounds.check_repeats(text, name)
            if (len(text) - len(text.rstrip("\\"))) % 2:
                raise UsageError("ends with a backslash that escapes nothing", argument=name)
            escapes = {"/": r"\/", "\\\n": r"\n"}  # characters that would end the expression in Lark
            quoted = re.sub(r"(?s)\\.|/", lambda found: escapes.get(found[0], found[0]), text)
            spec = cls(f"start: /{quoted}/")
        elif name == "choices":
            texts = _texts(choices)
            # a terminal: it may have thousands
            spec = cls(f"start: CHOICE\nCHOICE: {lark.choice(texts)}", choices=tuple(dict.fromkeys(texts)))
        else:
            spec = cls(_with_schemas(_checked(grammar, name)))
        if error := spec.problem():
            hint = "grammars are written in Lark" if name == "grammar" else ""
            raise UsageError(f"is wrong: {_of_regex(error) if name == 'regex' else error}", argument=name, hint=hint)
        return spec

    def problem(self) -> str:
        """The reason why llguidance refuses the grammar, in one line; "" if it accepts it."""
        return _examined(self.rules())[0]

    def rules(self, lead: str = "", style: int | None = None) -> str:
        """The grammar in llguidance's JSON form.  ``lead``: white space that comes first and is not part of the answer,
        see :meth:`_led`; ``style``: a number of :attr:`styles`, or None for any spelling of JSON.
        """
        part = self._part(style)
        grammars: list[dict[str, Any]] = [part]
        if lead:
            grammars = [{"lark_grammar": f"start: {self._led(lead)} @answer"}, {"name": "answer", **part}]
        grammars += [{"name": name, **each._part()} for name, each in self.parts]
        return json.dumps({"grammars": grammars})

    def _led(self, lead: str) -> str:
        """The rule for the white space before an answer.  A model may leave it out, unless the form may begin with it:
        the first would be taken for the lead.
        """
        texts = [part for name, part in self.parts if name == "text"] if self.parts else [self]
        begins = any(_examined(each.rules())[1] >> blank.encode()[0] & 1 for each in texts for blank in lead)
        return lark.text(lead) if begins else " ".join(f"{lark.text(blank)}?" for blank in lead)

    def _part(self, style: int | None = None) -> dict[str, Any]:
        """This form alone, as one of llguidance's grammars."""
        if not self.is_json:
            return {"lark_grammar": self.grammar}
        return {"json_schema": _spaced(json.loads(self.grammar), _SPACED if style is None else _STYLES[style])}

    @property
    def styles(self) -> range:
        """The usual spellings of JSON, as values for ``style`` of :meth:`rules`."""
        return range(len(_STYLES) if self.is_json else 0)

    def value(self, text: str) -> Any:
        """The value of an answer: the JSON value or the instance for a schema, else the text.  Raises ValueError if it
        is incomplete.
        """
        if not self.is_json:
            return text
        from edge.constrain.schema import value

        return value(text, self.into)


@lru_cache(maxsize=32)  # the requests of a conversation repeat their schema and functions
def _examined(rules: str) -> tuple[str, int]:
    """(why llguidance refuses a grammar, "" if it does not; the bytes with which an answer may begin, a bit each)."""
    from llguidance import LLMatcher, LLTokenizer

    if error := LLMatcher.validate_grammar(rules, limits=bounds.limits()):
        return _plain(error), 0
    matcher = LLMatcher(LLTokenizer("byte"), rules, log_level=0, limits=bounds.limits())
    # a form that no answer can have, or with too many beginnings, fails only here
    first = int.from_bytes(matcher.compute_bitmask(), "little")
    return (why(matcher), 0) if matcher.is_error() else ("", first)


def _checked(text: Any, name: str) -> str:
    if not isinstance(text, str) or not text:
        raise UsageError("must have at least one character", argument=name)
    check_text(text, name)
    bounds.check_text(len(text), name)
    return text


def _spaced(schema: Any, options: Mapping[str, Any] = _SPACED) -> Any:
    """The schema with llguidance's options for the white space in it."""
    return schema if schema is False else {**({} if schema is True else schema), "x-guidance": options}


def _with_schemas(grammar: str) -> str:
    """The grammar with its schemas (``%json``) as those of a whole answer.  Raises UsageError."""
    from edge.constrain.schema import parse

    bounds.check_lark(grammar)
    out, at = "", 0
    while found := _LARK.search(grammar, at):
        out, at = out + grammar[at : found.end()], found.end()
        if found[1]:
            try:
                schema, at = json.JSONDecoder().raw_decode(grammar, at)
                out += json.dumps(_spaced(json.loads(parse(schema).text)), ensure_ascii=False)
            except UsageError as error:
                raise UsageError(f"%json: {error}", argument="grammar") from None
            except (ValueError, RecursionError):
                pass  # llguidance reports what is wrong with it
    return out + grammar[at:]


def _of_regex(error: str) -> str:
    """The error of a regular expression without the grammar around it."""
    said = re.search(
        r"(?:regex parse error: .* error: |: (?=lookarounds ))(.*?)(?: in regex /.*)?(?: \d+ \| start:.*)?$", error)
    return said[1] if said else error


def _texts(choices: Any) -> list[str]:
    if isinstance(choices, str) or not isinstance(choices, Iterable):
        raise UsageError("is not a list of texts", argument="choices")
    texts = list(choices)
    if not texts or not all(isinstance(text, str) and text for text in texts):
        raise UsageError("must have one text or more, each of at least one character", argument="choices")
    check_text("".join(texts), "choices")
    bounds.check_text(sum(map(len, texts)), "choices")
    return texts


def why(matcher: Any) -> str:
    """The error of a matcher, in one line."""
    said = _plain(matcher.get_error())
    return "no answer can have this form" if "NoExtensionBias" in said else said or "it has no end"


def _plain(message: str) -> str:
    """An error of llguidance in one line; it writes several, with an arrow below the position."""
    if "oneOf constraints" in message:  # it names an option of its own
        return "oneOf is supported where no value can have two of the forms: give each a required property with a " \
               "const of its own, or use anyOf"
    return " ".join(message.split())[:400]
