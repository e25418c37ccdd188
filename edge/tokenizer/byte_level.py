"""Byte-level BPE on ``tiktoken``.

tiktoken knows no merge list: it joins the neighbours whose concatenation has the lowest rank, so a rank is the position
of the first merge that makes the token, and a table leads from ranks to ids.  That equals applying the merges for every
vocabulary that BPE training made: while both ends of a token's bytes stay token boundaries, its inside is merged as if
it stood alone, which is the way training found it.  (Measured on four vocabularies: every vector of llama.cpp, and no
difference to the ``tokenizers`` library in 14 million characters; that library takes three to four times as long to
load the 128 k vocabulary, and more than twice the memory.)
"""

from __future__ import annotations

import codecs
import re
from array import array
from collections.abc import Callable, Iterable
from itertools import accumulate
from typing import TYPE_CHECKING, TypeVar

from edge.errors import InvalidFile
from edge.formats.mapped import shown
from edge.tokenizer.vocabulary import NORMAL, UNUSED, USER, Encode, one_line, utf8

if TYPE_CHECKING:
    from edge.formats.checkpoint import TokenizerSpec

MAX_PATTERN = 8192
#: longest run of white space handed to a split pattern at once; its look-ahead fails somewhere above 100 thousand
MAX_BLANKS = 16384
#: seconds a split pattern that a file brought may take for one text
PATTERN_SECONDS = 10.0

_T = TypeVar("_T", str, bytes)


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


def build(spec: TokenizerSpec, texts: list[str], kinds: bytearray) -> tuple[array[int], bytes, Encode]:
    """(end of each token in the joined bytes, the joined bytes, text -> ids)."""
    n = len(texts)
    others = [i for i, kind in enumerate(kinds) if kind != NORMAL]
    # The alphabet is a charmap codec, so all tokens become bytes in one call and one character stays one byte.
    # From here on whole lists at a time: a 128 k vocabulary is on the way to every first word.
    stored = list(texts)
    for i in others:
        raw = kinds[i] in (USER, UNUSED)
        stored[i] = codecs.charmap_decode(utf8(texts[i]), "strict", ALPHABET)[0] if raw else ""
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


def _bpe_encoder(pattern: str, ranks: dict[bytes, int], table: array[int] | None) -> Encode:
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
        raise InvalidFile(f"the tokenizer's split pattern is no regular expression ({one_line(error)})") from None

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
