"""The steps by which a tokenizer.json changes and cuts text before its vocabulary sees it: ``normalizer`` and
``pre_tokenizer``.

A file may say anything here, and each word of it changes ids: what is not known is refused by name, a key as well as a
kind.  Steps are kept in the form of tokenizer.json, without nesting and without keys that change no id; so a converted
model file has them as its source had them.  edge/prompt/tokenizer/steps.py takes them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from edge.errors import InvalidFile
from edge.formats.mapped import shown

Step = Mapping[str, Any]

MAX_PATTERN = 8192
MOST_STEPS = 64
BEHAVIORS = ("Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous")

#: kind of step -> key -> the value if the file does not say it; a type: the file must say one of this type
_NORMALIZERS: dict[str, dict[str, Any]] = {
    **{kind: {} for kind in ("NFC", "NFD", "NFKC", "NFKD", "Lowercase", "StripAccents")},
    "Strip": {"strip_left": True, "strip_right": True},
    "Replace": {"pattern": dict, "content": str},
    "Prepend": {"prepend": str},
}
_PRE_TOKENIZERS: dict[str, dict[str, Any]] = {
    "Split": {"pattern": dict, "behavior": str, "invert": False},
    "Digits": {"individual_digits": False},
    "Punctuation": {"behavior": "Isolated"},
    "Whitespace": {},
    "WhitespaceSplit": {},
    "CharDelimiterSplit": {"delimiter": str},
}
#: those that write text in the letters of a byte-level vocabulary, or of one of pieces (SentencePiece)
_BYTE_LEVEL = {"ByteLevel": {"add_prefix_space": False, "use_regex": True}}
_METASPACE = {"Metaspace": {"replacement": "\u2581", "prepend_scheme": "always", "split": True}}
#: the values of keys that have a few
_VALUES = {"behavior": BEHAVIORS, "replacement": ("\u2581",), "prepend_scheme": ("always", "first", "never")}
#: keys that only move offsets, or say again what others do
_SILENT = frozenset(("type", "trim_offsets", "add_prefix_space", "str_rep"))


def normalizer(stated: Any) -> tuple[Step, ...]:
    """The steps of a ``normalizer``, () for null.  Raises InvalidFile, without the file's name, for what is not
    known.
    """
    return tuple(_steps(stated, "normalizer", "normalizers", _NORMALIZERS))


def pre_tokenizer(stated: Any, pieces: bool = False) -> tuple[Step, ...]:
    """The steps of a ``pre_tokenizer``: one of them is ByteLevel, unless the vocabulary is one of ``pieces``.  Raises
    as :func:`normalizer`.
    """
    known = {**_PRE_TOKENIZERS, **(_METASPACE if pieces else _BYTE_LEVEL)}
    steps = tuple(_steps(stated, "pre_tokenizer", "pretokenizers", known))
    if not pieces and sum(step["type"] == "ByteLevel" for step in steps) != 1:
        raise InvalidFile("pre_tokenizer does not have one step ByteLevel, which a byte-level vocabulary needs; "
                          "put the model's tokenizer.model (SentencePiece) next to it if it has one")
    return steps


def split(pattern: str) -> Step:
    """The step that cuts text at the matches of a regular expression and leaves nothing out."""
    return {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}


def metaspace(scheme: str) -> Step:
    """The step that writes blanks as SentencePiece does.  ``scheme``: which pieces get one in front."""
    return {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": scheme, "split": False}


def writes_blanks(*steps: Step) -> bool:
    """True if steps write blanks as SentencePiece does, so that its library must put none in front of a text."""
    return any("\u2581" in step.values() for step in steps)


def stored(steps: Sequence[Step]) -> str:
    """Steps as JSON, for the metadata of a model file."""
    import json

    return json.dumps(list(steps), ensure_ascii=False, separators=(",", ":"))


def parse(text: str | None) -> list[Any] | None:
    """JSON of :func:`stored`, to be given to :func:`normalizer` or :func:`pre_tokenizer`; None for None."""
    if text is None:
        return None  # as in most files
    import json

    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, list):
        raise InvalidFile("the steps of the tokenizer are no JSON list; the file is damaged")
    return found


def _steps(stated: Any, name: str, inner: str, known: Mapping[str, Mapping[str, Any]]) -> list[Step]:
    found: list[Step] = []
    waiting = [stated]  # the next one is the last
    while waiting:
        step = waiting.pop()
        if step is None:
            continue
        if isinstance(step, Mapping) and step.get("type") == "Sequence" and set(step) <= {"type", inner}:
            step = step.get(inner)
        if isinstance(step, list):
            waiting += reversed(step)
        else:
            found.append(_step(step, name, known))
        if len(found) + len(waiting) > MOST_STEPS:
            raise InvalidFile(f"{name} has more than {MOST_STEPS} steps; the file is damaged")
    return found


def _step(step: Any, name: str, known: Mapping[str, Mapping[str, Any]]) -> Step:
    kind = step.get("type") if isinstance(step, Mapping) else None
    if not isinstance(kind, str) or kind not in known:
        raise InvalidFile(f"{name} {shown(kind)} is not supported; supported are Sequence, {', '.join(known)}")
    keys = known[kind]
    if stranger := next((key for key in step if key not in keys and key not in _SILENT), None):
        raise InvalidFile(f"{name} {kind}: {shown(stranger)} is not supported")
    made: dict[str, Any] = {"type": kind}
    for key, default in keys.items():
        required = isinstance(default, type)
        value = step.get(key, None if required else default)
        wanted = default if required else type(default)
        if not isinstance(value, wanted) or value not in _VALUES.get(key, (value,)):
            raise InvalidFile(f"{name} {kind}: {key} is {shown(value)}, which is not supported")
        made[key] = value
    pattern = made.get("pattern")
    if pattern is not None and not (
        len(pattern) == 1 and set(pattern) <= {"Regex", "String"}
        and all(isinstance(text, str) and text and len(text) <= MAX_PATTERN for text in pattern.values())
    ):
        raise InvalidFile(f"{name} {kind}: pattern {shown(pattern)} is not one Regex or String of at most "
                          f"{MAX_PATTERN} characters")
    if any(isinstance(value, str) and len(value) > MAX_PATTERN for value in made.values()):
        raise InvalidFile(f"{name} {kind}: a text of more than {MAX_PATTERN} characters; the file is damaged")
    if len(made.get("delimiter", "x")) != 1:
        raise InvalidFile(f"{name} {kind}: delimiter {shown(made['delimiter'])} is not one character")
    return made
