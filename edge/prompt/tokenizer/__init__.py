"""One interface for two kinds of tokenizer, and decoding that never splits a character.

Byte-level BPE is our own (:mod:`edge.prompt.tokenizer.byte_level`).  SentencePiece uses the ``sentencepiece`` library
(:mod:`edge.prompt.tokenizer.pieces`), which is imported when a model needs it.

Control tokens in text of users are never recognised, nor others that formats of conversations are made of.
:meth:`Tokenizer.encode` reads them only with ``special=True``, which is for text that a chat template wrote.  Added
tokens that are not special are text, in both directions.
"""

from __future__ import annotations

import re
from array import array
from bisect import bisect_right
from codecs import utf_8_decode
from collections.abc import Container, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from edge.errors import InvalidFile, UsageError
from edge.formats.container import StringArray
from edge.formats.mapped import located, shown
from edge.prompt.interrupt import check_interrupted
from edge.prompt.tokenizer.steps import BLANKS, normaliser
from edge.prompt.tokenizer.vocabulary import (
    CONTROL,
    END_OF_TURN,
    MAX_TOKENS,
    UNKNOWN,
    UNUSED,
    USER,
    Encode,
    is_format,
    kinds_of,
    of_kind,
    with_added,
)

if TYPE_CHECKING:
    from edge.formats.checkpoint import Added, Checkpoint, TokenizerSpec


class _Finder:
    """Finds given tokens in text: leftmost first, the longest at one place.

    It uses dictionaries instead of one large alternation, because a vocabulary may have thousands of such tokens.
    ``added``: what is known about some of them, by id; ``untyped``: those that are none in text of users.
    """

    def __init__(self, tokens: Mapping[str, int], added: Mapping[int, Added], untyped: Container[int]) -> None:
        self.tokens = tokens
        self._added = {i: added[i] for i in tokens.values() if i in added and added[i].choosy}
        self._untyped = untyped
        lengths: dict[str, set[int]] = {}
        for text in tokens:
            lengths.setdefault(text[0], set()).add(len(text))
        self._lengths = {first: sorted(found, reverse=True) for first, found in lengths.items()}
        self._first = re.compile("[" + "".join(map(re.escape, lengths)) + "]") if lengths else None

    def find(self, text: str, typed: Sequence[int]) -> list[tuple[int, int, int]]:
        """(start, end, id) of tokens and of the text between them, whose id is -1, in order, without empty texts.

        ``typed``: where text of users begins and ends, by turns.
        """
        out: list[tuple[int, int, int]] = []
        start = at = n_found = 0
        while self._first and (match := self._first.search(text, at)):
            n_found += 1
            if not n_found % 4096:
                check_interrupted()
            at = match.start()
            for n in self._lengths[text[at]]:
                number = self.tokens.get(text[at : at + n], -1)
                if number < 0 or (number in self._untyped and _touches(typed, at, at + n)):
                    continue
                first, end = at, at + n
                at = end
                if (rules := self._added.get(number)) is not None:
                    if rules.single_word and (_is_word(text[first - 1 : first]) or _is_word(text[end : end + 1])):
                        break
                    if rules.lstrip:
                        first = max(start, len(text[:first].rstrip(BLANKS)))
                    if rules.rstrip:  # the token of these blanks is looked for nevertheless
                        end = len(text) - len(text[end:].lstrip(BLANKS))
                if first > start:
                    out.append((start, first, -1))
                out.append((first, end, number))
                start = end
                break
            else:
                at += 1
        if start < len(text):
            out.append((start, len(text), -1))
        return out


def _touches(ranges: Sequence[int], start: int, end: int) -> bool:
    """Tell if a part of a text touches one of some ranges: where each begins and ends, by turns."""
    i = bisect_right(ranges, start)
    return i % 2 == 1 or (i < len(ranges) and ranges[i] < end)


def _is_word(character: str) -> bool:
    if character.isascii():
        return character.isalnum() or character == "_"
    import regex

    return regex.fullmatch(r"\w", character) is not None


class StreamDecoder:
    """Decodes one token at a time into whole characters.

    The joined results of :meth:`push` equal :meth:`Tokenizer.decode` of the same ids: bytes that cannot become UTF-8
    are replaced by U+FFFD at once, and a character cut off by the end of the ids is left out.  ``names``: texts of
    control tokens, which have none.
    """

    def __init__(self, tokenizer: Tokenizer, names: Mapping[int, str] | None = None) -> None:
        self._token_bytes = tokenizer.token_bytes
        self._names = names or {}
        self._begun = b""  # of an incomplete character
        self._strip = tokenizer.strips_blank

    def push(self, id: int, /) -> str:
        """The characters that this token completes; "" while a character is incomplete."""
        if id in self._names:
            return self._names[id]
        data = self._token_bytes(id)
        if self._strip and data:
            self._strip = False
            data = data.removeprefix(b" ")
        if self._begun:
            data = self._begun + data
        text, n = utf_8_decode(data, "replace")  # as codecs' incremental decoder, in half of its time
        self._begun = data[n:]
        return text


class Tokenizer:
    """Text -> token ids and back, for one vocabulary.

    ``special``: the control tokens, text -> id.  ``markers``: these and the tokens that formats of conversations are
    made of although their file does not call them special, such as <think>; their text is a part of answers.
    ``eos_ids``: the ids that end an answer.  ``bos_id`` and ``add_bos`` are for callers that build a prompt
    (:meth:`encode` adds nothing).
    """

    def __init__(self, spec: TokenizerSpec, texts: Sequence[str], kinds: bytes, ends: array[int], blob: bytes,
                 encode: Encode, strips_blank: bool) -> None:
        self.n_vocab = len(texts)
        self.bos_id = spec.bos_id
        self.add_bos = spec.add_bos and spec.bos_id is not None
        self.strips_blank = strips_blank  # SentencePiece: the first word brings a blank that is not part of the text
        self.special: dict[str, int] = {}
        user: dict[str, int] = {}
        for i in of_kind(kinds, b"[%c%c]" % (CONTROL, USER)):
            if text := texts[i]:
                (self.special if kinds[i] == CONTROL else user).setdefault(text, i)
        self.markers = {**{text: i for text, i in user.items() if is_format(text)}, **self.special}
        ends_turn = (i for text, i in self.special.items() if text in END_OF_TURN)
        self.eos_ids: tuple[int, ...] = tuple(dict.fromkeys((*spec.eos_ids, *ends_turn)))
        self._ends = ends
        self._blob = blob
        self._encode = encode
        self.opens_with_blank = strips_blank or any(step.get("add_prefix_space") for step in spec.pre_tokenizer)
        self._normalise = normaliser(spec.normalizer)
        self._early, self._late = self._finders(spec, texts, kinds, user)
        self._names = {i: text for text, i in self.special.items()}
        #: tokens that a model was not trained with: rows in which a vocabulary is padded
        self.unused = array("i", of_kind(kinds, b"[%c]" % UNUSED))

    def _finders(
        self, spec: TokenizerSpec, texts: Sequence[str], kinds: bytes, user: Mapping[str, int]
    ) -> list[_Finder]:
        """For the tokens that are looked for in a text, and for those that are in normalised text."""
        added = {each.id: each for each in spec.added.values()}
        # The user-defined pieces of a tokenizer.model are found by its library, others as llama.cpp finds them.
        texts_of = {text: i for text, i in user.items() if spec.model is None or text in spec.added}
        untyped = {**{texts[i]: i for i in of_kind(kinds, b"%c" % UNKNOWN) if texts[i]}, **self.markers}
        tokens = {**texts_of, **untyped}
        late = {text: i for text, i in tokens.items() if i in added and added[i].normalized}
        early = {text: i for text, i in tokens.items() if text not in late}
        late = {normal: i for text, i in late.items() if (normal := self._normalise(text))}
        return [_Finder(each, added, frozenset(untyped.values())) for each in (early, late)]

    @classmethod
    def of(cls, checkpoint: Checkpoint) -> Tokenizer:
        """The tokenizer of a model.  Raises InvalidFile as :meth:`build` does; the line names the file."""
        with located(checkpoint.path):
            return cls.build(checkpoint.tokenizer)

    @classmethod
    def build(cls, spec: TokenizerSpec) -> Tokenizer:
        """The tokenizer that a checkpoint describes.  Raises InvalidFile, one line, if its arrays are not valid.

        ``spec.kind`` "none" (the file has no tokenizer) gives one that refuses to encode and decodes to nothing.
        """
        if spec.kind == "none":
            return cls(spec, (), b"", array("I"), b"", _no_tokenizer, False)
        if spec.kind not in ("bpe", "sentencepiece"):
            raise InvalidFile(f"tokenizer kind {shown(spec.kind)} is not supported")
        if max(len(spec.tokens), len(spec.merges) // 4) > MAX_TOKENS:
            raise InvalidFile(f"a vocabulary of {len(spec.tokens)} tokens is too large to be one")
        texts, scores, types, parsed = spec.tokens, spec.scores, spec.types, None
        if spec.kind == "sentencepiece" and spec.model is not None:
            from edge.formats import sentencepiece_model

            parsed = sentencepiece_model.parse(spec.model, "tokenizer.model")
            texts, scores, types = parsed.pieces, parsed.scores, parsed.types
        own = len(texts)
        if not own:
            raise InvalidFile("the vocabulary is empty")
        if len(types) not in (0, own) or len(scores) not in (0, own):
            raise InvalidFile(f"{own} tokens have {len(types)} types and {len(scores)} scores; "
                              "the vocabulary is damaged")
        texts = with_added(texts, spec.added)
        stored = StringArray.of(texts, "the vocabulary")
        kinds = kinds_of(spec, stored, types)
        if spec.kind == "bpe":
            from edge.prompt.tokenizer import byte_level

            made = byte_level.build(spec, stored, kinds)
            return cls(spec, stored, bytes(kinds), *made, strips_blank=False)

        from edge.prompt.tokenizer import pieces

        texts = list(stored)
        made = pieces.build(spec, texts, scores or array("f", bytes(4 * own)), types, kinds, parsed)
        return cls(spec, texts, bytes(kinds), *made, strips_blank=spec.add_space_prefix)

    def encode(self, text: str, special: bool = False) -> list[int]:
        """Token ids of ``text``, without BOS.

        ``special=True`` recognises control tokens, the longest first: only for text that a template wrote.
        """
        return self.encode_parts(((text, special),))

    def encode_parts(self, parts: Iterable[tuple[str, bool]]) -> list[int]:
        """Token ids of a text that is partly of users: (part, whether a template wrote it), see :meth:`encode`."""
        whole: list[str] = []
        typed: list[int] = []  # where text of users begins and ends
        size = 0
        for text, special in parts:
            try:
                text.encode()
            except UnicodeEncodeError:  # half of a surrogate pair, as from bytes on a terminal that were no UTF-8
                text = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
            typed += (size, size + len(text)) if text and not special else ()
            size += len(text)
            whole.append(text)
        text, out = "".join(whole), list[int]()
        for start, end, id in self._early.find(text, typed):
            if id >= 0:
                out.append(id)
                check_interrupted()
                continue
            part = text[start:end]
            normal, i = self._normalise(part), bisect_right(typed, start)
            # of the part, as typed is of the text, where normalised text is looked at
            inner = typed[i : bisect_right(typed, end)] if self._late.tokens else []
            theirs = [0] * (i % 2) + [len(self._normalise(part[: at - start])) for at in inner]
            for first, last, id in self._late.find(normal, theirs):
                out += [id] if id >= 0 else self._encode(normal[first:last], not out)
        return out

    def token_bytes(self, id: int) -> bytes:
        """The bytes that a token adds to the text; empty for control tokens and for rows beyond the vocabulary."""
        if not 0 <= id < self.n_vocab:
            return b""
        return self._blob[self._ends[id - 1] if id else 0 : self._ends[id]]

    def token_text(self, id: int) -> str:
        """A token for display: the name of a control token, else its text."""
        return self._names.get(id) or self.token_bytes(id).decode("utf-8", "replace")

    def decode(self, ids: Iterable[int], start: bool = True, special: bool = False) -> str:
        """The text of ``ids``.  ``start=False``: they continue a text, so SentencePiece's first blank is kept.
        ``special``: with the names of control tokens, which have no text.
        """
        names = self._names if special else {}
        data = b"".join(names[id].encode() if id in names else self.token_bytes(id) for id in ids)
        if start and self.strips_blank:
            data = data.removeprefix(b" ")
        return utf_8_decode(data, "replace")[0]


def _no_tokenizer(text: str, first: bool) -> list[int]:
    raise UsageError("this model has no tokenizer: give token ids instead of text")
