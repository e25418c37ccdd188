"""From token ids to the pieces a caller receives: whole characters, stop strings, words or sentences.

ids -> streaming decoder -> stop strings (held back while they may still be completed) -> grouping -> Piece
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from edge.errors import UsageError, check_text

if TYPE_CHECKING:
    from edge.prompt.tokenizer import StreamDecoder

LEAST_CLAUSE = 10  # characters; speech of less sounds chopped

_WORD = re.compile(r"\s*\S+\s+")
# An end of sentence: terminators, closing quotes or brackets, then space; or full-width terminators; or a line break.
_END = re.compile(r"[.!?…]+[\"'”’»)\]]*(?P<space>\s+)|[。！？]+[”’」』）]*|\s*\n\s*")
# An end of a clause: a mark, closing quotes or brackets, then space; or a full-width mark.
_CLAUSE = re.compile(r"(?:[,;:][\"'”’»)\]]*|\s[-–—])\s+|[，；：、]")
_LAST_WORD = re.compile(r"[^\s(\[\"'“‘«]+$")
_ABBREVIATIONS = frozenset("mr mrs ms dr prof st sr jr vs no fig approx e.g i.e cf p pp vol".split())


class Piece(NamedTuple):
    """A part of an answer.  The joined ``text`` of all pieces without thinking is the answer.

    Only the last piece may have no text: it contains the ids of tokens without text.
    """

    text: str
    ids: tuple[int, ...]  # the tokens whose text ends in this piece
    thought: bool = False  # part of what the model thinks before its answer

    def __str__(self) -> str:
        return self.text

    @property
    def bytes(self) -> bytes:
        """The text in UTF-8, ready for a pipe or a speech program."""
        return self.text.encode()


def check_stop(stop: str | Sequence[str]) -> tuple[str, ...]:
    """One stop string or several, as a tuple.  Raises UsageError for an empty one."""
    strings = (stop,) if not isinstance(stop, Iterable) or isinstance(stop, str) else tuple(stop)
    for s in strings:
        if not isinstance(s, str) or not s:
            raise UsageError(f"stop string {s!r}: it must have at least one character")
        check_text(s, "stop")
    return strings


def sentence_end(text: str) -> int:
    """Length of the first complete sentence with the space after it; 0 while that is not certain."""
    for match in _END.finditer(text):
        end = match.end()
        if not text[:end].strip():
            continue
        space = match["space"]
        if space is None or "\n" in space:
            return end
        if end == len(text):
            return 0  # the next character decides
        if text[end].islower():
            continue
        if match[0].startswith(".") and _is_abbreviation(text[: match.start()]):
            continue
        return end
    return 0


def clause_end(text: str) -> int:
    """Length of the first clause of at least LEAST_CLAUSE characters, or of a shorter sentence; 0: there is none yet.
    """
    ends = (match.end() for match in _CLAUSE.finditer(text))
    clause = next((end for end in ends if len(text[:end].strip()) >= LEAST_CLAUSE), 0)
    sentence = sentence_end(text)
    return min(clause, sentence) or clause or sentence


def word_end(text: str) -> int:
    """Length of the first word with the space around it; 0 while it may go on."""
    match = _WORD.match(text)
    return match.end() if match else 0


def overlap(text: str, mark: str) -> int:
    """Number of characters at the end of ``text`` with which ``mark`` begins, but not all of it."""
    return next((n for n in range(min(len(mark) - 1, len(text)), 0, -1) if text.endswith(mark[:n])), 0)


def _is_abbreviation(before: str) -> bool:
    """True if a full stop after this text does not end a sentence: "Dr", "e.g", an initial, "1" in a list."""
    match = _LAST_WORD.search(before)
    if not match:
        return False
    word = match[0]
    if len(word) == 1 and word.isalpha() and word != "I":
        return True
    if word.isdigit() and not before[: match.start()].strip():
        return True
    return word.lower() in _ABBREVIATIONS


class Thoughts:
    """Separates a model's thinking from its answer: the text between <think> and </think> at the very beginning.

    The two marks, and white space around them, belong to neither.
    """

    OPEN, CLOSE = "<think>", "</think>"

    def __init__(self) -> None:
        self.over = False  # all that comes now is answer
        self._where = "before"  # "before" the thoughts, "inside" or "behind" them
        self._begun = False  # some thought has been given out
        self._held = ""  # may be part of a mark, or white space around one

    @property
    def ended(self) -> bool:
        """True if the mark that ends them has come."""
        return self._where == "behind"

    @property
    def inside(self) -> bool:
        """True if the text so far ends within the thoughts, and not within the mark that may end them."""
        return self._where == "inside" and not self._held.strip()

    def push(self, text: str) -> tuple[str, str]:
        """The (thinking, answer) that are certain after this text."""
        held, thought = self._held + text, ""
        if self._where == "before":
            begun = held.lstrip()
            if begun.startswith(self.OPEN):
                self._where, held = "inside", begun[len(self.OPEN) :]
            elif not self.OPEN.startswith(begun):
                self.over, self._held = True, ""
                return "", held
        if self._where == "inside":
            held = held if self._begun else held.lstrip()
            thought, mark, rest = held.partition(self.CLOSE)
            if mark:
                self._where, held, thought = "behind", rest, thought.rstrip()
            else:
                thought = held.rstrip()  # white space may be the last there is
                thought = thought[: len(thought) - overlap(thought, self.CLOSE)].rstrip()
                held = held[len(thought) :]
            self._begun = self._begun or bool(thought)
        if self._where == "behind" and held.strip():
            self.over, self._held = True, ""
            return thought, held.lstrip()
        self._held = held
        return thought, ""

    def flush(self) -> tuple[str, str]:
        """The remaining (thinking, answer) at the end."""
        held, self._held, self.over = self._held, "", True
        return ("", held) if self._where == "before" else (held if self._where == "inside" else "", "")


#: how an answer is cut -> the length of the first whole unit of a text, 0: there is none yet
UNITS: dict[str, Callable[[str], int]] = {
    "token": len, "word": word_end, "clause": clause_end, "sentence": sentence_end, "all": lambda text: 0,
}


class Stream:
    """Turns ids into pieces.

    ``stopped``: a stop string was found; no part of it is passed on.  ``lead``: the text that a format puts
    before every answer (a blank after "Assistant:"); what the model writes of it is removed once.  ``thinks``: the
    answer may begin with thinking, which is passed on token by token and in which stop strings are ignored;
    ``marks``: the texts of the tokens that begin and end it, which are control tokens of some vocabularies.
    ``ended_early``: the thoughts were ended here, so the end that the model itself writes later is no text.
    """

    def __init__(
        self, decoder: StreamDecoder, stop: Sequence[str] = (), by: str = "token", lead: str = "", thinks: bool = False,
        marks: Mapping[int, str] | None = None,
    ) -> None:
        self.stopped = self.ended_early = False
        self._decoder = decoder
        self._stop = tuple(stop)
        self._unit = UNITS[by]
        self._lead = lead
        self._held = ""  # decoded, may be the start of a stop string
        self._group = ""  # passed the stop strings, not yet a whole unit
        self._decoded = 0  # characters of the answer so far
        self._passed = 0  # characters handed out so far
        self._ids: list[int] = []  # that wait for a piece
        self._ends: list[int] = []  # characters of the answer so far, for each of them
        self._thoughts = Thoughts() if thinks else None
        self._marks = marks if marks and thinks else {}

    @property
    def thinking(self) -> bool:
        """True if the tokens so far end within the model's thoughts, which may be ended here."""
        return self._thoughts is not None and self._thoughts.inside

    def push(self, token: int) -> Sequence[Piece]:
        """The pieces that this token completes, mostly none or one."""
        text = self._decoder.push(token)
        if self._lead and text:
            text = self._without_lead(text)
        if token in self._marks:
            text = self._mark(token, text)
        thoughts = self._thoughts
        if self._unit is len and text and not (self._ids or self._stop or thoughts):
            return (Piece(text, (token,)),)  # the same as below, in less time
        if thoughts is None:
            self._decoded += len(text)
        self._ids.append(token)
        self._ends.append(self._decoded)
        if not text:
            return ()
        return self._advance(text) if thoughts is None else self._told_apart(thoughts, thoughts.push(text))

    def flush(self) -> Sequence[Piece]:
        """The last pieces at the end of the answer: an incomplete word, the start of a stop string."""
        thoughts = self._thoughts
        pieces = [] if thoughts is None else self._told_apart(thoughts, thoughts.flush())
        pieces += self._advance("", last=True)
        if self._ids and not self.stopped:
            pieces.append(self._piece(""))
        return pieces

    def _mark(self, token: int, text: str) -> str:
        """The text of a token that begins or ends thoughts."""
        mark, over = self._marks[token], self._thoughts is None or self._thoughts.ended
        if self.ended_early and over and mark.startswith("</"):
            self.ended_early = False
            return ""
        return text if text or over else mark

    def _told_apart(self, thoughts: Thoughts, parts: tuple[str, str]) -> list[Piece]:
        """The pieces of (thinking, answer)."""
        pieces = [self._piece(parts[0], True)] if parts[0] else []
        if thoughts.over and self._thoughts is not None:
            self._thoughts, self._decoded = None, len(parts[1])
            self._ends = [self._decoded] * len(self._ids)
            pieces += self._advance(parts[1])
        return pieces

    def _without_lead(self, text: str) -> str:
        n = 0
        while n < len(text) and (at := self._lead.find(text[n])) >= 0:
            n, self._lead = n + 1, self._lead[at + 1 :]
        self._lead = self._lead if n == len(text) else ""
        return text[n:]

    def _advance(self, text: str, last: bool = False) -> list[Piece]:
        self._group += self._past_stop(text, last) if self._stop else text
        pieces = []
        while n := self._unit(self._group) or (len(self._group) if last or self.stopped else 0):
            text, self._group = self._group[:n], self._group[n:]
            pieces.append(self._piece(text))
            if self._unit is clause_end:  # only the first is a clause
                self._unit = sentence_end
        return pieces

    def _piece(self, text: str, thought: bool = False) -> Piece:
        """A piece with the ids whose text ends in it."""
        self._passed += 0 if thought else len(text)
        n = bisect_right(self._ends, self._passed)
        piece = Piece(text, tuple(self._ids[:n]), thought)
        del self._ids[:n], self._ends[:n]
        return piece

    def _past_stop(self, text: str, last: bool) -> str:
        """The part of the held and the new text that is certainly not part of a stop string."""
        if self.stopped:
            return ""
        text = self._held + text
        found = min((at for at in map(text.find, self._stop) if at >= 0), default=-1)
        self.stopped = found >= 0
        end = found if self.stopped else len(text) if last else len(text) - max(overlap(text, s) for s in self._stop)
        self._held = "" if self.stopped else text[end:]
        return text[:end]
