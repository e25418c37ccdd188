"""Text before a vocabulary: brought to the normal form that the model was trained with, and cut into pieces.

Both follow the steps of edge/formats/text_steps.py as the ``tokenizers`` library takes them.  Its tables of characters
and ours may be of different years of Unicode: they differ in characters that are newer than one of them only.
"""

from __future__ import annotations

import re
import time
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from edge.errors import InvalidFile, one_line
from edge.formats.text_steps import Step
from edge.prompt.interrupt import check_interrupted

#: seconds that the patterns of a file may take for one text
PATTERN_SECONDS = 10.0
#: the signs of a recursive pattern: no tokenizer needs it, and it can take all memory
_RECURSION = re.compile(r"(?<!\\)(?:\\\\)*\(\?(?:R|[+-]?\d|&|P>)")
#: white space of Unicode; what Python calls so has four control characters more
BLANKS = ("\t\n\v\f\r \x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a"
          "\u2028\u2029\u202f\u205f\u3000")

CONTRACTIONS = "'s|'t|'re|'ve|'m|'ll|'d"
GPT2 = rf"{CONTRACTIONS}| ?\p{{L}}+| ?\p{{N}}+| ?[^\s\p{{L}}\p{{N}}]+|\s+(?!\S)|\s+"


def _alphabet() -> str:
    """The character that stands for each byte in a byte-level vocabulary (GPT-2, bytes_to_unicode)."""
    same = {*range(33, 127), *range(161, 173), *range(174, 256)}
    others = iter(range(256, 512))
    return "".join(chr(b if b in same else next(others)) for b in range(256))


ALPHABET = _alphabet()
BYTES = {letter: byte for byte, letter in enumerate(ALPHABET)}

Change = Callable[[str], str]
Cut = Callable[["list[Any]", bool], "list[Any]"]  # pieces, whether the first of them begins the text -> pieces


def normaliser(steps: Sequence[Step]) -> Change:
    """The function text -> text of ``normalizer`` steps.  Raises InvalidFile for a pattern that is not one."""
    changes = [_change(step) for step in steps]

    def change(text: str) -> str:
        for each in changes:
            text = each(text)
        return text

    return change


def _change(step: Step) -> Change:
    kind = step["type"]
    if kind == "Lowercase":
        return lambda text: text.lower() if text.isascii() else "".join(map(str.lower, text))  # knows no final sigma
    if kind == "StripAccents":
        return lambda text: "".join(c for c in text if unicodedata.category(c)[0] != "M")
    if kind == "Strip":
        left, right = (BLANKS if step[key] else "" for key in ("strip_left", "strip_right"))
        return lambda text: text.lstrip(left).rstrip(right)
    if kind == "Prepend":
        before = step["prepend"]
        return lambda text: before + text if text else text
    if kind == "Replace":
        content = step["content"]
        if "String" in step["pattern"]:
            old = step["pattern"]["String"]
            return lambda text: text.replace(old, content)
        sub = compiled(translated(step["pattern"]["Regex"])).sub

        def replace(text: str) -> str:
            with _limit() as left:
                return str(sub(lambda _: content, text, timeout=left()))

        return replace
    form = kind  # NFC and its kin
    normalize = unicodedata.normalize  # it looks whether there is anything to do
    return lambda text: normalize(form, text)


def cutter(steps: Sequence[Step]) -> Callable[..., list[Any]]:
    """The function (text, ``first``: whether nothing is before it) -> pieces of ``pre_tokenizer`` steps; what no step
    removes is in one of them.  Pieces are texts, or bytes where a step after ByteLevel cut the letters that stand for
    bytes.  Raises InvalidFile for a pattern that is not one.
    """
    cuts: list[Cut] = []
    for i, step in enumerate(steps):
        if step["type"] != "ByteLevel":
            cuts.append(_cut_by(step))
            continue
        if step["add_prefix_space"]:
            cuts.append(lambda pieces, _: [piece if piece[0] == " " else " " + piece for piece in pieces])
        if step["use_regex"]:
            cuts.append(_at(GPT2, "Isolated"))
        if i + 1 < len(steps):
            cuts.append(lambda pieces, _: ["".join(map(ALPHABET.__getitem__, piece.encode())) for piece in pieces])
    if any(step["type"] == "ByteLevel" for step in steps[:-1]):
        cuts.append(lambda pieces, _: [bytes(map(BYTES.__getitem__, piece)) for piece in pieces])

    def cut(text: str, first: bool = False) -> list[Any]:
        pieces = [text] if text else []
        for each in cuts:
            pieces = each(pieces, first)
        return pieces

    return cut


def _cut_by(step: Step) -> Cut:
    kind = step["type"]
    if kind == "Metaspace":
        return _metaspace(step["prepend_scheme"], step["split"])
    if kind == "Split":
        said = step["pattern"]
        pattern = translated(said["Regex"]) if "Regex" in said else re.escape(said["String"])
        return _at(pattern, step["behavior"], step["invert"])
    if kind == "Digits":
        return _at(r"\p{N}", "Isolated" if step["individual_digits"] else "Contiguous")
    if kind == "Punctuation":
        return _at(r"[\p{P}$+<=>^`|~]", step["behavior"])
    if kind == "Whitespace":
        return _at(r"\w+|[^\w\s]+", "Removed", invert=True)
    return _at(rf"[{BLANKS}]" if kind == "WhitespaceSplit" else re.escape(step["delimiter"]), "Removed")


def _metaspace(scheme: str, split: bool) -> Cut:
    def cut(pieces: list[Any], first: bool) -> list[Any]:
        out: list[str] = []
        for i, piece in enumerate(pieces):
            text = piece.replace(" ", "\u2581")
            if text[0] != "\u2581" and (scheme == "always" or (scheme == "first" and first and not i)):
                text = "\u2581" + text
            out += re.findall("\u2581?[^\u2581]+|\u2581", text) if split else [text]
        return out

    return cut


def _at(pattern: str, behavior: str, invert: bool = False) -> Cut:
    """The function that cuts pieces at the matches of a pattern.  ``behavior``: what becomes of a match; ``invert``:
    of what lies between two of them.
    """
    finditer = compiled(pattern).finditer

    def cut(pieces: list[Any], first: bool) -> list[Any]:
        out: list[str] = []
        n = 0
        with _limit() as left:
            for text in pieces:
                spans: list[tuple[int, int, bool]] = []  # the whole text: start, end, whether it is a match
                start = 0
                for match in finditer(text, timeout=left()):
                    n += 1
                    if not n % 4096:
                        check_interrupted()
                    a, b = match.span()
                    if a > start:
                        spans.append((start, a, invert))
                    spans.append((a, b, not invert))
                    start = b
                if start < len(text):
                    spans.append((start, len(text), invert))
                out += [text[a:b] for a, b in _parts(spans, behavior) if b > a]
        return out

    return cut


def _parts(spans: list[tuple[int, int, bool]], behavior: str) -> list[tuple[int, int]]:
    """Where pieces begin and end, by matches and what lies between them."""
    if behavior in ("Isolated", "Removed"):
        return [(a, b) for a, b, matched in spans if not matched or behavior == "Isolated"]
    parts: list[tuple[int, int]] = []
    before = False
    for a, b, matched in reversed(spans) if behavior == "MergedWithNext" else spans:
        joins = matched == before if behavior == "Contiguous" else matched and not before
        if joins and parts:
            parts[-1] = min(a, parts[-1][0]), max(b, parts[-1][1])
        else:
            parts.append((a, b))
        before = matched
    return parts[::-1] if behavior == "MergedWithNext" else parts


def compiled(pattern: str) -> Any:
    """A pattern of unknown origin, for the ``regex`` package.  Raises InvalidFile."""
    import regex

    if _RECURSION.search(pattern):
        raise InvalidFile("the tokenizer's split pattern is recursive, which is not supported")
    try:
        return regex.compile(pattern)
    except (regex.error, RecursionError, OverflowError, MemoryError) as error:
        raise InvalidFile(f"the tokenizer's split pattern is not a regular expression ({one_line(error)})") from None


@contextmanager
def _limit() -> Iterator[Callable[[], float]]:
    """A context manager for the work of patterns on one text: gives the function that says how many seconds are left.
    Raises InvalidFile for work that takes too much.
    """
    end = time.monotonic() + PATTERN_SECONDS
    try:
        yield lambda: max(1e-3, end - time.monotonic())
    except TimeoutError:
        raise InvalidFile("the tokenizer's split pattern takes too long; it is damaged or hostile") from None
    except (MemoryError, RecursionError):
        raise InvalidFile("the tokenizer's split pattern takes too much memory; it is damaged or hostile") from None


# ---- patterns as Oniguruma reads them --------------------------------------------------------------------------------

_LETTERS = r"\p{Alphabetic}\p{M}\p{Nd}\p{Pc}"
#: a set of characters -> its members in another set
_MEMBERS = {
    r"\w": _LETTERS, r"\p{word}": _LETTERS, "[:word:]": _LETTERS, "[:alnum:]": r"\p{Alphabetic}\p{Nd}",
    "[:digit:]": r"\p{Nd}", "[:punct:]": r"\p{P}\p{S}", r"\h": "0-9a-fA-F",
}
_W, _NOT_W = f"[{_LETTERS}²³¹¼½¾]", f"[^{_LETTERS}²³¹¼½¾]"  # in no set it has these, too
#: syntax elsewhere -> the same
_OTHERS = {
    r"\w": _W, r"\W": _NOT_W, r"\p{Word}": _W, r"\P{Word}": _NOT_W, r"\h": "[0-9a-fA-F]", r"\H": "[^0-9a-fA-F]",
    r"\b": f"(?:(?<={_W})(?!{_W})|(?<!{_W})(?={_W}))", r"\B": f"(?:(?<={_W})(?={_W})|(?<!{_W})(?!{_W}))",
    "^": r"(?:\A|(?<=\n)(?!\Z))", "$": r"(?=\n|\Z)", r"\Z": r"(?=\n?\Z)", r"\z": r"\Z", r"\N": r"[^\n]",
    r"\O": "(?s:.)",
}
_PARTS = re.compile(r"(?s)\\(?:[pP]\{[^}]*\}|.)|\[:\^?[a-z]+:\]|\[\^?\]?|\(\?[imx-]+\)?|\{[\d,]+\}\+|--|\|\||~~|.")


def translated(pattern: str) -> str:
    r"""A pattern of a tokenizer.json, which ``tokenizers`` gives to Oniguruma, for the ``regex`` package.  Both know
    Unicode, but not the same: ``\w`` has other members, POSIX brackets have those of Unicode, ``^`` and ``$`` are those
    of every line, and ``m`` is what others call ``s``.  Raises InvalidFile, without the file's name, for what ``regex``
    does not have.
    """
    out, depth = ["(?V1)"], 0  # sets may hold sets
    for part in _PARTS.findall(pattern):
        if (part == "--") if depth else (
                part in (r"\g", r"\k", r"\K") or part[-2:] == "}+" or part[:2] == "(?" and part[-1] == ")" and out[1:]):
            raise InvalidFile(f"the tokenizer's split pattern has {part}, which is not supported")
        if part[0] == "[" and (part[1:2] != ":" or not depth):
            depth += 1
        elif part == "]":
            depth -= depth > 0
        elif not depth:
            part = part.replace("m", "s") if part[:2] == "(?" else _OTHERS.get(part, part)
        elif part in ("||", "~~"):
            part = rf"\{part[0]}\{part[1]}"
        elif (name := part.lower().replace("^", "")) in _MEMBERS:
            part = _MEMBERS[name] if name == part or part == r"\p{Word}" else f"[^{_MEMBERS[name]}]"
        out.append(part)
    return "".join(out)
