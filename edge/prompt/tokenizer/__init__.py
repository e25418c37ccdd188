"""One interface for two kinds of tokenizer, and decoding that never splits a character.

Byte-level BPE is our own (:mod:`edge.prompt.tokenizer.byte_level`).  SentencePiece uses the ``sentencepiece`` library
(:mod:`edge.prompt.tokenizer.pieces`), which is imported when a model needs it.

Control tokens in text of users are never recognised.  :meth:`Tokenizer.encode` reads them only with ``special=True``,
which is for text that a chat template wrote.
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
from edge.prompt.interrupt import look
from edge.prompt.tokenizer.vocabulary import (
    CONTROL,
    END_OF_TURN,
    MAX_CHARS,
    MAX_TOKEN_CHARS,
    MAX_TOKENS,
    UNUSED,
    USER,
    Encode,
    kinds_of,
    of_kind,
    place_added,
)

if TYPE_CHECKING:
    from edge.formats.checkpoint import Checkpoint, TokenizerSpec


class _Finder:
    """Splits text at given tokens: leftmost first, the longest at one place.

    It uses dictionaries instead of one large alternation, because a vocabulary may have thousands of such tokens.
    """

    def __init__(self, tokens: Mapping[str, int]) -> None:
        self.tokens = tokens
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
                look()
            at = match.start()
            for n in self._lengths[text[at]]:
                number = self.tokens.get(text[at : at + n])
                if number is not None:
                    if at > start:
                        out.append(text[start:at])
                    out.append(number)
                    start = at = at + n
                    break
            else:
                at += 1
        if start < len(text):
            out.append(text[start:])
        return out


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

    ``special``: the control tokens, text -> id.  ``eos_ids``: the ids that end an answer.  ``bos_id`` and ``add_bos``
    are for callers that build a prompt (:meth:`encode` adds nothing).
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
        ends_turn = (i for text, i in self.special.items() if text in END_OF_TURN)
        self.eos_ids: tuple[int, ...] = tuple(dict.fromkeys((*spec.eos_ids, *ends_turn)))
        self._ends = ends
        self._blob = blob
        self._encode = encode
        self._all = _Finder({**user, **self.special})
        # SentencePiece finds user-defined pieces itself, but for those that were added behind them
        behind = {text: i for text, i in user.items() if text in spec.added}
        self._user = _Finder(behind if spec.kind == "sentencepiece" else user)
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
        if spec.added:
            texts = list(texts)
            place_added(texts, spec.added)
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
        if model is not None and any(k in (CONTROL, USER) and k != t for k, t in zip(kinds, types)):
            # The library finds its user-defined markers in users' text too, and no control piece that is white space.
            if not parsed.bpe:
                raise InvalidFile("a SentencePiece unigram model with user-defined markers is not supported")
            model = None
        blank: int | None = spec.add_space_prefix
        if model is None:
            model = pieces.model_proto(spec, texts[:own], scores or array("f", bytes(4 * own)), kinds)
        else:
            blank = parsed.add_dummy_prefix if parsed.bpe and parsed.plain else None
        return cls(spec, texts, bytes(kinds), *pieces.build(texts, kinds, model, blank), spec.add_space_prefix)

    def encode(self, text: str, special: bool = False) -> list[int]:
        """Token ids of ``text``, without BOS.

        ``special=True`` recognises control tokens, the longest first: only for text that a template wrote.
        """
        finder = self._all if special else self._user
        out: list[int] = []
        for part in finder.split(text):
            if isinstance(part, int):
                out.append(part)
            else:
                out += self._ordinary(part)
        return out

    def split(self, text: str) -> list[str | int]:
        """Text of a template as pieces of ordinary text and ids of special tokens."""
        return self._all.split(text)

    def _ordinary(self, text: str) -> list[int]:
        try:
            text.encode()
        except UnicodeEncodeError:  # half of a surrogate pair, as from bytes on a terminal that were no UTF-8
            text = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        return self._encode(text)

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
