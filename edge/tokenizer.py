"""One face over the two tokenizer libraries, and decoding that never cuts a character.

Byte-level BPE runs on ``tiktoken``, SentencePiece on ``sentencepiece``; each is imported when a model needs it.

tiktoken knows no merge list: it joins the neighbours whose concatenation has the lowest rank, so a rank is the position
of the first merge that makes the token, and a table leads from ranks to ids.  That equals applying the merges for every
vocabulary that BPE training made: while both ends of a token's bytes stay token boundaries, its inside is merged as if
it stood alone, which is the way training found it.  (Measured on four vocabularies: every vector of llama.cpp, and no
difference to the ``tokenizers`` library in 14 million characters; that library takes three to four times as long to
load the 128 k vocabulary, and more than twice the memory.)

Text of users is never read for control tokens.  :meth:`Tokenizer.encode` looks for them only with ``special=True``,
which is for text that a chat template wrote.
"""

from __future__ import annotations

import codecs
import math
import re
import struct
from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, TypeVar

from edge.errors import InvalidFile, UsageError
from edge.formats.mapped import shown

if TYPE_CHECKING:
    from edge.formats.checkpoint import TokenizerSpec

# Beyond these a vocabulary is hostile or damaged.
MAX_TOKENS = 4_000_000
MAX_TOKEN_CHARS = 1 << 16
MAX_CHARS = 256 << 20
MAX_PATTERN = 8192

#: longest run of white space handed to a split pattern at once; its look-ahead fails somewhere above 100 thousand
MAX_BLANKS = 16384
#: seconds a split pattern that a file brought may take for one text
PATTERN_SECONDS = 10.0

NORMAL, UNKNOWN, CONTROL, USER, UNUSED, BYTE = 1, 2, 3, 4, 5, 6

_Encode = Callable[[str], "list[int]"]
_T = TypeVar("_T", str, bytes)

#: tokens that end an answer wherever a vocabulary has them as control tokens (besides its stated EOS)
END_OF_TURN = frozenset((
    "<|eot_id|>", "<|eom_id|>", "<|im_end|>", "<|end|>", "<|end_of_text|>", "<|endoftext|>", "<end_of_turn>", "</s>",
    "<eos>", "<EOT>", "_<EOT>", "[EOT]", "[EOS]", "<end_of_utterance>", "<｜end▁of▁sentence｜>",
))  # fmt: skip


# ---- byte-level BPE --------------------------------------------------------------------------------------------------


def _alphabet() -> str:
    """The character that stands for each byte in a byte-level vocabulary (GPT-2, bytes_to_unicode)."""
    same = {*range(33, 127), *range(161, 173), *range(174, 256)}
    others = iter(range(256, 512))
    return "".join(chr(b if b in same else next(others)) for b in range(256))


ALPHABET = _alphabet()
_CHARMAP = codecs.charmap_build(ALPHABET)
_BYTES = [bytes((b,)) for b in range(256)]

_CONTRACTIONS = "'s|'t|'re|'ve|'m|'ll|'d"
_GPT2 = rf"{_CONTRACTIONS}| ?\p{{L}}+| ?\p{{N}}+| ?[^\s\p{{L}}\p{{N}}]+|\s+(?!\S)|\s+"
_LLAMA3 = (
    rf"(?i:{_CONTRACTIONS})|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}{{1,3}}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_QWEN2 = _LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")


def _staged(punctuation: str, blank_joins_number: bool) -> str:
    r"""One pattern for three that cut one after another: runs of punctuation, GPT-2's, and numbers by threes.

    GPT-2's pattern never crosses what was cut out before it, so punctuation ends a run of white space as the end of
    the text does, and contractions cannot occur.  ``blank_joins_number``: without a stage that isolates ``\p{N}+`` a
    blank stays with the number behind it, unless three digits follow at once.
    """
    blank = r" (?=[0-9]{3})| ?" if blank_joins_number else ""
    return (
        rf"[{punctuation}]+| ?\p{{L}}+|[0-9]{{3}}|{blank}(?:(?![0-9]{{3}})\p{{N}})+"
        rf"| ?[^\s\p{{L}}\p{{N}}{punctuation}]+|\s+(?![^\s{punctuation}])|\s+"
    )


_PUNCTUATION = r"\p{P}$+<=>^~|"

#: name in ``tokenizer.ggml.pre`` -> split pattern (llama.cpp, src/llama-vocab.cpp, for the names and the splits)
PATTERNS: dict[str, str] = {
    "default": _staged(_PUNCTUATION, blank_joins_number=False),
    "falcon": _staged(_PUNCTUATION + "`", blank_joins_number=True),
    **dict.fromkeys(("gpt-2", "phi-2", "mpt", "olmo", "exaone4", "trillion"), _GPT2),
    **dict.fromkeys(("llama-bpe", "llama3", "llama-v3", "falcon3", "falcon-h1", "falcon_e", "pixtral", "lfm2", "dbrx",
                     "smaug-bpe", "glm4", "chatglm-bpe"), _LLAMA3),
    **dict.fromkeys(("qwen2", "deepseek-r1-qwen", "stablelm2", "megrez", "hunyuan", "grok-2"), _QWEN2),
}  # fmt: skip

_TRUSTED = frozenset(PATTERNS.values())
_BLANKS = re.compile(rf"\s{{{MAX_BLANKS}}}")


def _pattern(spec: TokenizerSpec, n_tokens: int, n_merges: int) -> str:
    if spec.pattern:
        if len(spec.pattern) > MAX_PATTERN:
            raise InvalidFile(f"the tokenizer's split pattern has {len(spec.pattern)} characters; it is damaged")
        return spec.pattern
    # 280147 merges: Llama 3's vocabulary, also where tokens were added to it
    pre = spec.pre or ("llama-bpe" if n_tokens == 128256 or n_merges == 280147 else "default")
    if pre not in PATTERNS:
        raise InvalidFile(f"pre-tokenizer {shown(pre)} is not supported; known are {', '.join(sorted(PATTERNS))}")
    return PATTERNS[pre]


def _build_bpe(spec: TokenizerSpec, texts: list[str], kinds: bytearray) -> tuple[array[int], bytes, _Encode]:
    n = len(texts)
    others = [i for i, kind in enumerate(kinds) if kind != NORMAL]
    # The alphabet is a charmap codec, so all tokens become bytes in one call and one character stays one byte.
    # From here on whole lists at a time: a 128 k vocabulary is on the way to every first word.
    stored = list(texts)
    for i in others:
        raw = kinds[i] in (USER, UNUSED)
        stored[i] = codecs.charmap_decode(_utf8(texts[i]), "strict", ALPHABET)[0] if raw else ""
    pieces, ends, blob = _as_bytes(stored)
    for i in others:  # no merge makes them
        pieces[i] = b""
        stored[i] = ""

    n_merges = len(spec.merges)
    pattern = _pattern(spec, n, n_merges)
    unk = -1 if spec.unk_id is None else spec.unk_id
    table: array[int] | None = None
    if not n_merges or n_merges > n:
        # More merges than tokens: every split of each token is listed, as in files made from a tiktoken vocabulary
        # (Llama 3), whose ids are its ranks.  Reading 280 thousand merges would only find that out again.
        ranks = _first_wins(pieces)
        missing = [byte for byte in _BYTES if byte not in ranks]
        if missing:
            table = array("i", [*range(n), *(unk for _ in missing)])
            ranks.update(zip(missing, range(n, n + 256)))
    else:
        ids = _first_wins(stored)
        made = dict.fromkeys([*ALPHABET, *(merge.replace(" ", "", 1) for merge in spec.merges)])  # in rank order
        found = list(map(ids.get, made))
        if None in found[256:]:
            token = list(made)[found.index(None, 256)]
            raise InvalidFile(f"a merge makes {shown(token)}, which is no token of the vocabulary; it is damaged")
        table = array("i", [unk if number is None else number for number in found])
        ranks = dict(zip(_as_bytes(list(made))[0], range(len(made))))
    return ends, blob, _bpe_encoder(pattern, ranks, table)


def _as_bytes(stored: list[str]) -> tuple[list[bytes], array[int], bytes]:
    """Tokens in the printable alphabet -> the bytes of each, the end of each in the joined bytes, the joined bytes."""
    try:
        blob = codecs.charmap_encode("".join(stored), "strict", _CHARMAP)[0]
    except UnicodeEncodeError:
        letters = frozenset(ALPHABET)
        i = next(i for i, text in enumerate(stored) if not letters.issuperset(text))
        raise InvalidFile(f"token {i} ({shown(stored[i])}) is not in the byte-level alphabet; "
                          "the vocabulary is damaged or of another kind") from None
    ends = array("I", accumulate(map(len, stored)))
    return [blob[a:b] for a, b in zip((0, *ends), ends)], ends, blob


def _first_wins(tokens: list[_T]) -> dict[_T, int]:
    """Token -> its lowest index; the empty token left out."""
    found = dict(zip(reversed(tokens), range(len(tokens) - 1, -1, -1)))
    found.pop(type(tokens[0])(), None)
    return found


def _bpe_encoder(pattern: str, ranks: dict[bytes, int], table: array[int] | None) -> _Encode:
    """``ranks`` must hold every single byte, and no rank twice: tiktoken panics on what it does not find."""
    import tiktoken

    trusted = pattern in _TRUSTED
    # An unknown pattern may match nothing, or for ever, and tiktoken answers both with a panic.  Such a pattern cuts
    # the text in the ``regex`` module, which has a time limit, and tiktoken merges each piece as a whole.
    core = tiktoken.Encoding("bitnet-edge", pat_str=pattern if trusted else r"[\s\S]+", mergeable_ranks=ranks,
                             special_tokens={})
    ranks.clear()  # the object above keeps this dictionary for look-ups we do ourselves: 20 MB for 128 k tokens
    split = _blank_runs if trusted else _foreign_split(pattern)

    def encode(text: str) -> list[int]:
        found: list[int] = []
        for part in split(text):
            found += core.encode_ordinary(part)
        if table is not None:
            return [number for rank in found if (number := table[rank]) >= 0]
        return found

    return encode


def _blank_runs(text: str) -> Iterable[str]:
    """The text, cut inside absurdly long runs of white space only."""
    if len(text) <= MAX_BLANKS:
        return (text,)
    cuts = [0, *(match.end() for match in _BLANKS.finditer(text)), len(text)]
    return [text[a:b] for a, b in zip(cuts, cuts[1:])]


def _foreign_split(pattern: str) -> Callable[[str], Iterable[str]]:
    """Pieces by a pattern of unknown origin; what it leaves out is a piece too (Hugging Face: "Isolated")."""
    import regex  # type: ignore[import-untyped]

    try:
        compiled = regex.compile(pattern)
    except (regex.error, RecursionError, OverflowError, MemoryError) as error:
        raise InvalidFile(f"the tokenizer's split pattern is no regular expression ({_one_line(error)})") from None

    def split(text: str) -> Iterable[str]:
        pieces, start = [], 0
        try:
            for match in compiled.finditer(text, timeout=PATTERN_SECONDS):
                a, b = match.span()
                if a > start:
                    pieces.append(text[start:a])
                if b > a:
                    pieces.append(text[a:b])
                start = b
        except TimeoutError:
            raise InvalidFile("the tokenizer's split pattern takes too long; it is damaged or hostile") from None
        pieces.append(text[start:])
        return pieces

    return split


# ---- SentencePiece ---------------------------------------------------------------------------------------------------


def _build_sentencepiece(texts: list[str], kinds: bytearray, model: bytes) -> tuple[array[int], bytes, _Encode]:
    import sentencepiece

    processor = sentencepiece.SentencePieceProcessor()
    try:
        processor.LoadFromSerializedProto(model)
    except (RuntimeError, ValueError, TypeError) as error:
        raise InvalidFile(f"the SentencePiece model cannot be used ({_one_line(error)}); get the file again") from None
    parts = []
    for text, kind in zip(texts, kinds):
        if kind == BYTE:
            parts.append(bytes((_byte_value(text),)))
        elif kind in (CONTROL, UNKNOWN):
            parts.append(b"")
        else:
            parts.append(_utf8(text.replace("\u2581", " ")))
    return array("I", accumulate(map(len, parts))), b"".join(parts), processor.EncodeAsIds


def _byte_value(text: str) -> int:
    """65 for "<0x41>", -1 for anything else."""
    return int(text[3:5], 16) if re.fullmatch("<0x[0-9A-F]{2}>", text) else -1


def _model_proto(spec: TokenizerSpec, texts: list[str], scores: Sequence[float], kinds: bytearray) -> bytes:
    """A serialised ModelProto from GGUF's arrays (google/sentencepiece, sentencepiece_model.proto).

    Protobuf by hand because the library cannot load anything else and its own Python bindings need the protobuf
    package.  Key = field << 3 | wire type: 0 varint, 2 length and bytes, 5 32-bit.  The library insists on exactly one
    UNKNOWN piece, on no empty or repeated piece, and on all 256 byte pieces or none.
    """

    def varint(value: int) -> bytes:
        out = bytearray()
        value &= (1 << 64) - 1
        while value > 127:
            out.append(value & 127 | 128)
            value >>= 7
        out.append(value)
        return bytes(out)

    def number(field: int, value: int) -> bytes:
        return varint(field << 3) + varint(value)

    def data(field: int, value: bytes) -> bytes:
        return varint(field << 3 | 2) + varint(len(value)) + value

    unk = kinds.find(UNKNOWN)
    if unk >= len(texts):
        raise InvalidFile(f"the unknown token's id {unk} is outside the vocabulary of {len(texts)} tokens")
    every_byte = {_byte_value(t) for t, k in zip(texts, kinds) if k == BYTE} == set(range(256))
    seen: set[bytes] = set()
    names: list[bytes] = []
    out = []
    for i, (text, score, kind) in enumerate(zip(texts, scores, kinds)):
        name = _utf8(text)
        if kind == BYTE and not every_byte:
            kind = UNUSED
        if not name or name in seen or b"\0" in name:
            name = b"%s\xee\x80\x80%d" % (name[:64].replace(b"\0", b""), i)
            kind = kind if i == unk else UNUSED
        seen.add(name)
        names.append(name)
        if not math.isfinite(score):
            raise InvalidFile(f"the score of token {i} is {score}; the vocabulary is damaged")
        piece = data(1, name) + b"\x15" + struct.pack("<f", score) + number(3, kind)
        out.append(data(1, piece))
    bos = spec.bos_id if spec.bos_id is not None else -1
    eos = spec.eos_ids[0] if spec.eos_ids else -1
    trainer = number(3, 2) + number(4, len(texts)) + number(35, every_byte)  # BPE, vocabulary size, byte fallback
    for field, name_field, value in ((40, 45, unk), (41, 46, bos), (42, 47, eos), (43, 48, -1)):
        inside = value if value < len(names) else -1  # an added token is none of the library's pieces
        trainer += number(field, inside)
        if inside >= 0:
            trainer += data(name_field, names[inside])
    # normaliser: add_dummy_prefix, remove_extra_whitespaces, escape_whitespaces
    normalizer = data(1, b"identity") + number(3, spec.add_space_prefix) + number(4, 0) + number(5, 1)
    return b"".join(out) + data(2, trainer) + data(3, normalizer)


# ---- the face --------------------------------------------------------------------------------------------------------


def _utf8(text: str) -> bytes:
    return text.encode("utf-8", "replace")


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())[:160] or type(error).__name__


def _is_marker(text: str) -> bool:
    """Whether a user-defined token looks like structure: a user must not be able to write it into a conversation."""
    return len(text) > 2 and text[0] + text[-1] in ("<>", "[]", "{}")


class _Finder:
    """Splits text at given tokens: leftmost first, the longest at one place.

    Dictionary look-ups instead of one large alternation: vocabularies have up to thousands of such tokens.
    """

    def __init__(self, tokens: Mapping[str, int]) -> None:
        self.tokens = tokens
        lengths: dict[str, set[int]] = {}
        for text in tokens:
            lengths.setdefault(text[0], set()).add(len(text))
        self._lengths = {first: sorted(found, reverse=True) for first, found in lengths.items()}
        self._first = re.compile("[" + "".join(map(re.escape, lengths)) + "]") if lengths else None

    def split(self, text: str) -> list[str | int]:
        """Pieces of text and ids, in order; no empty text."""
        out: list[str | int] = []
        start = at = 0
        while self._first and (match := self._first.search(text, at)):
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
    """Ids in, text out, whole characters only.

    The pieces from :meth:`push` joined are exactly :meth:`Tokenizer.decode` of the same ids: bytes that cannot become
    UTF-8 turn into U+FFFD at once, and a character cut off by the end of the ids is left out.
    """

    def __init__(self, tokenizer: Tokenizer, start: bool = True) -> None:
        self._token_bytes = tokenizer.token_bytes
        self._utf8 = codecs.getincrementaldecoder("utf-8")("replace")
        self._strip = start and tokenizer.strips_blank

    def push(self, id: int, /) -> str:
        """The characters that this token completes, "" while one is still cut."""
        data = self._token_bytes(id)
        if self._strip and data:
            self._strip = False
            data = data.removeprefix(b" ")
        return self._utf8.decode(data)

    def flush(self) -> str:
        """Ends the text: drops half a character if one is left."""
        self._utf8.reset()
        return ""


class Tokenizer:
    """Text to ids and back for one vocabulary.

    ``special`` holds the control tokens, text -> id; ``eos_ids`` the ids that end an answer; ``bos_id`` and ``add_bos``
    are for whoever puts a prompt together (:meth:`encode` adds nothing).
    """

    def __init__(self, spec: TokenizerSpec, texts: Sequence[str], kinds: bytes, ends: array[int], blob: bytes,
                 encode: _Encode, strips_blank: bool) -> None:
        self.n_vocab = len(texts)
        self.bos_id = spec.bos_id
        self.add_bos = spec.add_bos and spec.bos_id is not None
        self.strips_blank = strips_blank  # SentencePiece: the first word brings a blank that is not part of the text
        self.special: dict[str, int] = {}
        user: dict[str, int] = {}
        for i in [i for i, kind in enumerate(kinds) if kind in (CONTROL, USER) and texts[i]]:
            (self.special if kinds[i] == CONTROL else user).setdefault(texts[i], i)
        ends_turn = (i for text, i in self.special.items() if text in END_OF_TURN)
        self.eos_ids: tuple[int, ...] = tuple(dict.fromkeys((*spec.eos_ids, *ends_turn)))
        self._ends = ends
        self._blob = blob
        self._encode = encode
        self._all = _Finder({**user, **self.special})
        # SentencePiece finds user-defined pieces itself
        self._user = _Finder({} if spec.kind == "sentencepiece" else user)
        self._names = {i: text for text, i in self.special.items()}

    @classmethod
    def build(cls, spec: TokenizerSpec) -> Tokenizer:
        """The tokenizer a checkpoint describes.  Raises InvalidFile, one line, when its arrays make no sense.

        ``spec.kind`` "none" (the file brings no tokenizer) gives one that refuses to encode and decodes to nothing.
        """
        if spec.kind == "none":
            return cls(spec, (), b"", array("I"), b"", _no_tokenizer, False)
        if spec.kind not in ("bpe", "sentencepiece"):
            raise InvalidFile(f"tokenizer kind {shown(spec.kind)} is not supported")
        if max(len(spec.tokens), len(spec.merges) // 4) > MAX_TOKENS:
            raise InvalidFile(f"a vocabulary of {len(spec.tokens)} tokens is too large to be one")
        texts, scores, types = list(spec.tokens), spec.scores, spec.types
        model = spec.model
        if spec.kind == "sentencepiece" and model is not None:
            from edge.formats import sentencepiece_model

            parsed = sentencepiece_model.parse(model, "tokenizer.model")
            texts, scores, types = parsed.pieces, parsed.scores, parsed.types
        own = len(texts)
        if not texts:
            raise InvalidFile("the vocabulary is empty")
        if len(types) not in (0, len(texts)) or len(scores) not in (0, len(texts)):
            raise InvalidFile(f"{len(texts)} tokens have {len(types)} types and {len(scores)} scores; "
                              "the vocabulary is damaged")
        if max(map(len, texts)) > MAX_TOKEN_CHARS or sum(map(len, texts)) > MAX_CHARS:
            raise InvalidFile("the vocabulary has tokens too long to be tokens; it is damaged")

        _place_added(texts, spec.added)
        kinds = _kinds(spec, texts, types)
        if spec.kind == "bpe":
            parts = _build_bpe(spec, texts, kinds)
        else:
            if model is not None and any(k == CONTROL != t for k, t in zip(kinds, types)):
                # The library finds its user-defined markers in users' text too: make them control pieces.
                if not parsed.bpe:
                    raise InvalidFile("a SentencePiece unigram model with user-defined markers is not supported")
                model = None
            if model is None:
                model = _model_proto(spec, texts[:own], scores or array("f", bytes(4 * own)), kinds)
            parts = _build_sentencepiece(texts, kinds, model)
        return cls(spec, texts, bytes(kinds), *parts, spec.kind == "sentencepiece" and spec.add_space_prefix)

    def encode(self, text: str, special: bool = False) -> list[int]:
        """Ids of ``text``, without BOS.

        ``special=True`` reads control tokens in it, the longest first: only for text that a template wrote.
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
        """Template text as pieces of ordinary text and ids of the special tokens between them."""
        return self._all.split(text)

    def _ordinary(self, text: str) -> list[int]:
        try:
            text.encode()
        except UnicodeEncodeError:  # half of a surrogate pair, as from bytes on a terminal that were no UTF-8
            text = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        return self._encode(text)

    def token_bytes(self, id: int) -> bytes:
        """What a token adds to the text: nothing for control tokens and for rows behind the vocabulary."""
        if not 0 <= id < self.n_vocab:
            return b""
        return self._blob[self._ends[id - 1] if id else 0 : self._ends[id]]

    def token_text(self, id: int) -> str:
        """A token to look at: the name of a control token, else its text."""
        return self._names.get(id) or self.token_bytes(id).decode("utf-8", "replace")

    def decode(self, ids: Iterable[int], start: bool = True) -> str:
        """Text of ``ids``.  ``start=False``: they continue a text, so SentencePiece's first blank counts."""
        data = b"".join(map(self.token_bytes, ids))
        if start and self.strips_blank:
            data = data.removeprefix(b" ")
        return codecs.utf_8_decode(data, "replace", False)[0]

    def stream(self, start: bool = True) -> StreamDecoder:
        """Decodes one id at a time; see :class:`StreamDecoder`."""
        return StreamDecoder(self, start)


def _no_tokenizer(text: str) -> list[int]:
    raise UsageError("this model brings no tokenizer: give token ids instead of text")


def _place_added(texts: list[str], added: Mapping[str, int]) -> None:
    """Put the added tokens at their ids, with empty tokens in gaps."""
    own = len(texts)
    for text, number in added.items():
        if not 0 <= number < own + 65536:
            raise InvalidFile(f"added token {shown(text)} has id {number}, the vocabulary has {own} tokens")
        texts.extend([""] * (number + 1 - len(texts)))
        texts[number] = text


def _kinds(spec: TokenizerSpec, texts: list[str], types: Sequence[int]) -> bytearray:
    """Type of each token, put right where files are known to be wrong.

    Control tokens are: what the file says, BOS and EOS, added tokens, user-defined tokens that look like markers, and
    "<|...|>" whatever the file says (converters of 2024 wrote "<|eot_id|>" as an ordinary token).
    """
    n = len(texts)
    try:
        kinds = bytearray(list(types)) if len(types) else bytearray([NORMAL]) * n
    except (ValueError, TypeError):
        raise InvalidFile("a token has a type that is none; the vocabulary is damaged") from None
    kinds.extend(bytes((UNUSED,)) * (n - len(kinds)))
    for i in [i for i, text in enumerate(texts) if text.startswith("<|")]:
        if texts[i].endswith("|>") and len(texts[i]) > 4:
            kinds[i] = CONTROL
    for i in [i for i, kind in enumerate(kinds) if kind != NORMAL]:
        kind = kinds[i]
        if (kind == USER and _is_marker(texts[i])) or (kind == UNKNOWN and spec.kind == "bpe"):
            kinds[i] = CONTROL
        elif kind == BYTE and (spec.kind == "bpe" or _byte_value(texts[i]) < 0):
            kinds[i] = NORMAL if spec.kind == "bpe" else UNUSED
        elif not NORMAL <= kind <= BYTE:
            kinds[i] = NORMAL
    for text, number in spec.added.items():
        kinds[number] = USER if text.isspace() else CONTROL
    for number in [i for i in (spec.bos_id, *spec.eos_ids) if i is not None]:
        if not 0 <= number < n:
            raise InvalidFile(f"the BOS or EOS token's id {number} is outside the vocabulary of {n} tokens")
        kinds[number] = CONTROL
    if spec.kind == "sentencepiece":
        _one_unknown(spec, kinds)
    return kinds


def _one_unknown(spec: TokenizerSpec, kinds: bytearray) -> None:
    """SentencePiece needs exactly one unknown token; it may turn up in any text, so it must not end or begin one."""
    stated = [i for i, kind in enumerate(kinds) if kind == UNKNOWN]
    unk = spec.unk_id if spec.unk_id is not None and spec.model is None else (*stated, 0)[0]
    if not 0 <= unk < len(kinds) or unk == spec.bos_id or unk in spec.eos_ids:
        raise InvalidFile(f"the unknown token's id {unk} is no token that can stand for unknown text")
    for i in stated:
        kinds[i] = UNUSED
    kinds[unk] = UNKNOWN
