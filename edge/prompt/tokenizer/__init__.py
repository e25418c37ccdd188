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
from codecs import utf_8_decode
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from edge.errors import InvalidFile, UsageError
from edge.formats.mapped import located, shown
from edge.formats.texts import StringArray
from edge.prompt.interrupt import check_interrupted
from edge.prompt.tokenizer.steps import BLANKS, normaliser
from edge.prompt.tokenizer.vocabulary import (
    CONTROL,
    END_OF_TURN,
    MAX_CHARS,
    MAX_TOKEN_CHARS,
    MAX_TOKENS,
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
    """Splits text at given tokens: leftmost first, the longest at one place.

    It uses dictionaries instead of one large alternation, because a vocabulary may have thousands of such tokens.
    ``added``: what is known about some of them, by id.
    """

    def __init__(self, tokens: Mapping[str, int], added: Mapping[int, Added]) -> None:
        self.tokens = tokens
        self._added = {i: added[i] for i in tokens.values() if i in added and added[i].choosy}
        lengths: dict[str, set[int]] = {}
        for text in tokens:
            lengths.setdefault(text[0], set()).add(len(text))
        self._lengths = {first: sorted(found, reverse=True) for first, found in lengths.items()}
        self._first = re.compile("[" + "".join(map(re.escape, lengths)) + "]") if lengths else None

    def split(self, text: str) -> list[str | int]:
        """Pieces of text and token ids, in order, without empty texts."""
        out: list[str | int] = []
        start = at = n_found = 0
        while self._first and (match := self._first.search(text, at)):
            n_found += 1
            if not n_found % 4096:
                check_interrupted()
            at = match.start()
            for n in self._lengths[text[at]]:
                number = self.tokens.get(text[at : at + n])
                if number is not None:
                    first, end = at, at + n
                    at = end
                    if (rules := self._added.get(number)) is not None:
                        if rules.single_word and (_is_word(text[first - 1 : first]) or _is_word(text[end : end + 1])):
                            break
                        if rules.lstrip:
                            first = max(start, len(text[:first].rstrip(BLANKS)))
                        if rules.rstrip:
                            at = end = len(text) - len(text[end:].lstrip(BLANKS))
                    if first > start:
                        out.append(text[start:first])
                    out.append(number)
                    start = end
                    break
            else:
                at += 1
        if start < len(text):
            out.append(text[start:])
        return out


def _is_word(character: str) -> bool:
    if character.isascii():
        return character.isalnum() or character == "_"
    import regex

    return regex.fullmatch(r"\w", character) is not None


class StreamDecoder:
    """Decodes one token at a time into whole characters.

    The joined results of :meth:`push` equal :meth:`Tokenizer.decode` of the same ids: bytes that cannot become UTF-8
    are replaced by U+FFFD at once, and a character cut off by the end of the ids is left out.
    """

    def __init__(self, tokenizer: Tokenizer, start: bool = True) -> None:
        self._token_bytes = tokenizer.token_bytes
        self._begun = b""  # of an incomplete character
        self._strip = start and tokenizer.strips_blank

    def push(self, id: int, /) -> str:
        """The characters that this token completes; "" while a character is incomplete."""
        data = self._token_bytes(id)
        if self._strip and data:
            self._strip = False
            data = data.removeprefix(b" ")
        if self._begun:
            data = self._begun + data
        text, n = utf_8_decode(data, "replace")  # as codecs' incremental decoder, in half of its time
        self._begun = data[n:]
        return text

    def flush(self) -> str:
        """End the text: drop an incomplete character."""
        self._begun = b""
        return ""


class Decoder(Protocol):
    """The streaming decoder that Tokenizer.decoder() returns."""

    def push(self, id: int, /) -> str:
        """The characters that this token completes."""

    def flush(self) -> str:
        """The remaining characters at the end."""


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
        self._added = {each.id: each for each in spec.added.values()}
        # SentencePiece finds user-defined pieces itself, but for those that were added behind them
        plain = {text: i for text, i in user.items() if text not in self.markers
                 and (spec.kind != "sentencepiece" or text in spec.added)}
        late = {text: i for text, i in plain.items() if i in self._added and self._added[i].normalized}
        early = {text: i for text, i in plain.items() if text not in late}
        self._all, self._user = _Finder({**user, **self.markers}, self._added), _Finder(early, self._added)
        if self._normalise is not None:
            late = {normal: i for text, i in late.items() if (normal := self._normalise(text))}
        self._late = _Finder(late, self._added)  # what is looked for in normalised text
        self._names = {i: text for text, i in self.special.items()}
        #: tokens that a model was not trained with: rows in which a vocabulary is padded
        self.unused = array("i", of_kind(kinds, b"[%c]" % UNUSED))

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
        texts, scores, types = spec.tokens, spec.scores, spec.types
        model = spec.model
        if spec.kind == "sentencepiece" and model is not None:
            from edge.formats import sentencepiece_model

            parsed = sentencepiece_model.parse(model, "tokenizer.model")
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

            roles = byte_level.roles_of(stored, kinds)
            ends, blob, encode = byte_level.build(spec, stored, kinds, roles)
            return cls(spec, stored, bytes(kinds), ends, blob, encode, False)

        from edge.prompt.tokenizer import pieces

        texts = list(stored)
        if max(map(len, texts)) > MAX_TOKEN_CHARS or sum(map(len, texts)) > MAX_CHARS:
            raise InvalidFile("the vocabulary has tokens too long to be tokens; it is damaged")
        found = bytearray(CONTROL if kind == USER and is_format(text) else kind for text, kind in zip(texts, kinds))
        if model is not None and any(k in (CONTROL, USER) and k != t for k, t in zip(found, types)):
            # The library finds its user-defined markers in users' text too, and no control piece that is white space.
            if not parsed.bpe:
                raise InvalidFile("a SentencePiece unigram model with user-defined markers is not supported")
            model = None
        blank: int | None = spec.add_space_prefix
        if model is None:
            model = pieces.model_proto(spec, texts[:own], scores or array("f", bytes(4 * own)), found)
        else:
            blank = parsed.add_dummy_prefix if parsed.bpe and parsed.plain else None
        return cls(spec, texts, bytes(kinds), *pieces.build(texts, kinds, model, blank), spec.add_space_prefix)

    def encode(self, text: str, special: bool = False) -> list[int]:
        """Token ids of ``text``, without BOS.

        ``special=True`` recognises control tokens, the longest first: only for text that a template wrote.
        """
        return self.encode_parts(((text, special),))

    def encode_parts(self, parts: Iterable[tuple[str, bool]]) -> list[int]:
        """Token ids of a text that is partly of users: (part, whether a template wrote it), see :meth:`encode`."""
        ids: list[int] = []
        run: list[str] = []  # ordinary text since the last control token
        strips = False  # the last control token takes the white space behind it along
        for text, special in parts:
            for piece in self.split(text) if special else (text,):
                if isinstance(piece, str):
                    piece = piece.lstrip(BLANKS) if strips else piece
                    strips = strips and not piece
                    run.append(piece)
                    continue
                rules = self._added.get(piece)
                before = "".join(run)
                ids += self._ordinary(before.rstrip(BLANKS) if rules and rules.lstrip else before)
                run.clear()
                ids.append(piece)
                check_interrupted()
                strips = rules is not None and rules.rstrip
        return ids + self._ordinary("".join(run))

    def split(self, text: str) -> list[str | int]:
        """Text of a template as pieces of ordinary text and ids of special tokens."""
        return self._all.split(text)

    def _ordinary(self, text: str) -> list[int]:
        """Token ids of text without control tokens."""
        try:
            text.encode()
        except UnicodeEncodeError:  # half of a surrogate pair, as from bytes on a terminal that were no UTF-8
            text = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        out: list[int] = []
        for part in self._user.split(text):
            if isinstance(part, int):
                out.append(part)
                continue
            for piece in self._late.split(part if self._normalise is None else self._normalise(part)):
                if isinstance(piece, int):
                    out.append(piece)
                else:
                    out += self._encode(piece)
        return out

    def token_bytes(self, id: int) -> bytes:
        """The bytes that a token adds to the text; empty for control tokens and for rows beyond the vocabulary."""
        if not 0 <= id < self.n_vocab:
            return b""
        return self._blob[self._ends[id - 1] if id else 0 : self._ends[id]]

    def token_text(self, id: int) -> str:
        """A token for display: the name of a control token, else its text."""
        return self._names.get(id) or self.token_bytes(id).decode("utf-8", "replace")

    def decode(self, ids: Iterable[int], start: bool = True) -> str:
        """The text of ``ids``.  ``start=False``: they continue a text, so SentencePiece's first blank is kept."""
        data = b"".join(map(self.token_bytes, ids))
        if start and self.strips_blank:
            data = data.removeprefix(b" ")
        return utf_8_decode(data, "replace")[0]

    def decoder(self, start: bool = True) -> StreamDecoder:
        """A decoder for one id at a time, see :class:`StreamDecoder`."""
        return StreamDecoder(self, start)


def _no_tokenizer(text: str) -> list[int]:
    raise UsageError("this model has no tokenizer: give token ids instead of text")
