"""Byte-level BPE: a pattern splits the text, :class:`pyx.tokens.BytePairs` joins the bytes of each piece.

The rank of a token is the position of the first merge that makes it, or its id if every split of it is listed.  For all
vocabularies made by BPE training this equals applying the merges: while both ends of a token's bytes stay token
boundaries, its inside is merged as if it stood alone, which is how training found it.  (Measured on four vocabularies:
all test vectors of llama.cpp, and no difference to the ``tokenizers`` and ``tiktoken`` libraries in many million
characters; those take 0.1 s and more to load a vocabulary of 128 thousand tokens.)

ASCII text needs no tables of characters: the ``re`` module splits it by the same pattern.  The ``regex`` package, for
all other text, takes longer to load than everything else here (benchmarks/log#vocabulary): it is imported when needed.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from edge.errors import InvalidFile
from edge.formats.container import StringArray
from edge.formats.mapped import shown
from edge.formats.text_steps import MAX_PATTERN, split
from edge.prompt.interrupt import check_interrupted
from edge.prompt.tokenizer import steps
from edge.prompt.tokenizer.steps import ALPHABET, BYTES, CONTRACTIONS, GPT2
from edge.prompt.tokenizer.vocabulary import CONTROL, NORMAL, UNUSED, USER, Encode, is_blank, is_format, of_kind
from pyx.tokens import RAW, SKIP, TOKEN, BytePairs

if TYPE_CHECKING:
    from edge.formats.checkpoint import TokenizerSpec

#: longest run of white space given to a pattern at once; its look-ahead fails somewhere above 100 thousand
MAX_BLANKS = 16384
#: type of token -> the usual meaning of its text; markers add no bytes to an answer, user-defined texts are not letters
_ROLES = bytes(TOKEN if kind == NORMAL else RAW if kind in (USER, UNUSED) else SKIP for kind in range(256))

_LLAMA3 = (
    rf"(?i:{CONTRACTIONS})|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}{{1,3}}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_QWEN2 = _LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
#: a combining mark is part of the word it stands in
_QWEN35 = _QWEN2.replace(r"\p{L}+", r"[\p{L}\p{M}]+").replace(r"[^\s\p{L}\p{N}]", r"[^\s\p{L}\p{M}\p{N}]")
#: GPT-2's between digits that were cut out one by one, so a digit ends a run of white space as the end of the text does
_SMOLLM = rf"\p{{N}}|{CONTRACTIONS}| ?\p{{L}}+| ?[^\s\p{{L}}\p{{N}}]+|\s+(?![^\s\p{{N}}])|\s+"

#: three that cut one after another: numbers by threes, runs of Chinese and Japanese, and all that by words and signs
_HUNYUAN = (
    r"\p{N}{1,3}",
    r"[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+",
    r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"
    r"| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
)


def _staged(punctuation: str, blank_joins_number: bool) -> str:
    r"""One pattern for three that cut one after another: runs of punctuation, GPT-2's, and numbers by threes.

    GPT-2's pattern never crosses what was cut out before it, so punctuation ends a run of white space as the end of
    the text does, and contractions cannot occur.  ``blank_joins_number``: without a stage that isolates ``\p{N}+`` a
    blank stays with the number after it, unless three digits follow at once.
    """
    blank = r" (?=[0-9]{3})| ?" if blank_joins_number else ""
    return (
        rf"[{punctuation}]+| ?\p{{L}}+|[0-9]{{3}}|{blank}(?:(?![0-9]{{3}})\p{{N}})+"
        rf"| ?[^\s\p{{L}}\p{{N}}{punctuation}]+|\s+(?![^\s{punctuation}])|\s+"
    )


_PUNCTUATION = r"\p{P}$+<=>^~|"

#: name in ``tokenizer.ggml.pre`` -> split pattern (llama.cpp, src/llama-vocab.cpp, for the names and the splits), or
#: several
PATTERNS: dict[str, str | tuple[str, ...]] = {
    "default": _staged(_PUNCTUATION, blank_joins_number=False),
    "falcon": _staged(_PUNCTUATION + "`", blank_joins_number=True),
    **dict.fromkeys(("gpt-2", "phi-2", "mpt", "olmo", "exaone4", "trillion"), GPT2),
    **dict.fromkeys(("llama-bpe", "llama3", "llama-v3", "falcon3", "falcon-h1", "falcon_e", "pixtral", "lfm2", "dbrx",
                     "smaug-bpe", "glm4", "chatglm-bpe"), _LLAMA3),
    "smollm": _SMOLLM,
    **dict.fromkeys(("hunyuan-dense", "deepseek-v3"), _HUNYUAN),
    **dict.fromkeys(("qwen2", "deepseek-r1-qwen", "stablelm2", "megrez", "hunyuan", "grok-2"), _QWEN2),
    "qwen35": _QWEN35,
}

#: patterns that leave nothing out
TRUSTED = frozenset(each for each in PATTERNS.values() if isinstance(each, str))
#: the meaning of properties among ASCII characters, inside brackets
_ASCII = {r"\p{L}": "A-Za-z", r"\p{N}": "0-9", r"\p{P}": r"!-#%-*,-/:;?@\[-\]_{}",
          r"\p{S}": r"$+<=>\^`|~", r"\p{M}": ""}
_BLANKS = re.compile(rf"\s{{{MAX_BLANKS}}}")


def _pattern(spec: TokenizerSpec, n_tokens: int, n_merges: int) -> str | tuple[str, ...]:
    if spec.pattern:
        if len(spec.pattern) > MAX_PATTERN:
            raise InvalidFile(f"the tokenizer's split pattern has {len(spec.pattern)} characters; it is damaged")
        return spec.pattern
    # 280147 merges: Llama 3's vocabulary, also where tokens were added to it
    pre = spec.pre or ("llama-bpe" if n_tokens == 128256 or n_merges == 280147 else "default")
    if pre not in PATTERNS:
        raise InvalidFile(f"pre-tokenizer {shown(pre)} is not supported; supported are {', '.join(sorted(PATTERNS))}")
    return PATTERNS[pre]


def roles_of(texts: StringArray, kinds: bytearray) -> bytearray:
    """The meaning of each text, see :class:`pyx.tokens.BytePairs`; types are corrected in ``kinds``.

    Vocabularies list some of their own entries among the added tokens, by the letters that stand for bytes: a line end
    is "Ċ".  For the ``tokenizers`` library such an entry stays part of the byte pairs, whatever its type, and
    decodes to its bytes; llama.cpp encodes it so, too.  A file does not say which added texts are meant:

    - A single letter is the only token of its byte.
    - Several are letters if their bytes are text (white space, if the token is special), and no others but spaces and
      line ends among the control characters; else, as in newer conversions, the text itself.

    A special token of this kind becomes an ordinary one, or it would be missing in answers.
    """
    roles = bytearray(bytes(kinds).translate(_ROLES))
    for i in of_kind(kinds, b"[^%c]" % NORMAL):
        text, kind = texts[i], kinds[i]
        data = _spelled(text)
        if data and len(text) == 1:
            roles[i], kinds[i] = TOKEN, kind if kind == USER else NORMAL
        elif kind == USER:
            spelled = data and (text.isascii() or _is_text(data)) and not is_format(text)
            roles[i] = TOKEN if spelled else RAW
        elif kind == CONTROL and data and data.isspace():
            roles[i], kinds[i] = TOKEN, NORMAL
        elif kind == CONTROL and is_blank(text):
            roles[i], kinds[i] = RAW, USER
    return roles


def _spelled(text: str) -> bytes | None:
    """The bytes that letters stand for; None if a character is none of them."""
    try:
        return bytes(map(BYTES.__getitem__, text))
    except KeyError:
        return None


def _is_text(data: bytes) -> bool:
    try:
        return all(c.isprintable() or c.isspace() for c in data.decode())
    except UnicodeDecodeError:
        return False


def build(spec: TokenizerSpec, texts: StringArray, kinds: bytearray) -> tuple[array[int], bytes, Encode]:
    """(end of each token in the joined bytes, the joined bytes, function text -> ids).  Types are corrected in
    ``kinds``.  Raises InvalidFile for a damaged vocabulary.
    """
    roles = roles_of(texts, kinds)
    merges = StringArray.of(spec.merges, "the merges")
    try:
        pairs = BytePairs(texts.view, texts.first, texts.ends, roles, ALPHABET)
        if (i := pairs.stranger) >= 0:
            raise InvalidFile(f"token {i} ({shown(texts[i])}) is not in the byte-level alphabet; "
                              "the vocabulary is damaged or of another kind")
        # More merges than tokens: every split of each token is listed, as in files made from a tiktoken vocabulary
        # (Llama 3), whose ids are its ranks.  Reading 280 thousand merges would only find that out again.
        if 0 < len(merges) <= len(texts) and (made := _rank(pairs, merges, texts, kinds)):
            for i in made:
                roles[i] = TOKEN
                kinds[i] = NORMAL if kinds[i] == UNUSED else kinds[i]
            pairs = BytePairs(texts.view, texts.first, texts.ends, roles, ALPHABET)
            _rank(pairs, merges, texts, kinds)
    except ValueError as error:
        raise InvalidFile(f"{error}; the vocabulary is damaged") from None
    pairs.ignore_merges = bool(spec.ignore_merges)
    cut = steps.cutter(spec.pre_tokenizer) if spec.pre_tokenizer else cutter(_pattern(spec, len(texts), len(merges)))

    def encode(text: str, first: bool) -> list[int]:
        return pairs.encode(cut(text), check_interrupted)

    return pairs.ends, pairs.blob, encode


def _rank(pairs: BytePairs, merges: StringArray, texts: StringArray, kinds: bytearray) -> set[int]:
    """Rank the tokens by the merges.  Returns those, not found by them, that merges make: letters, whatever their type.

    Control tokens stay out: users could write them.  Raises InvalidFile for a merge that makes no token.
    """
    made: set[int] = set()
    others: dict[str, int] | None = None
    at = 0
    while (at := pairs.rank_by(merges.view, merges.first, merges.ends, at)) >= 0:
        if others is None:
            others = {texts[i]: i for i in of_kind(kinds, b"[^%c]" % NORMAL)}
        i = others.get(merges[at].replace(" ", "", 1))
        if i is None:
            raise InvalidFile(f"merge {at} ({shown(merges[at])}) gives no token of the vocabulary; it is damaged")
        if kinds[i] != CONTROL:
            made.add(i)
        at += 1
    return made


def cutter(pattern: str | tuple[str, ...]) -> Callable[[str], list[str]]:
    """A function that splits a text into the pieces of a pattern, or of several that cut one after another."""
    if isinstance(pattern, tuple) or pattern not in TRUSTED:
        return steps.cutter([split(each) for each in ((pattern,) if isinstance(pattern, str) else pattern)])
    for_ascii: Callable[[str], list[str]] = re.compile(for_ascii_of(pattern), re.ASCII).findall
    for_all: Callable[[str], list[str]] | None = None

    def cut(text: str) -> list[str]:
        nonlocal for_all
        findall = for_ascii
        if not text.isascii():
            if for_all is None:
                import regex

                for_all = regex.compile(pattern).findall
            findall = for_all
        return [piece for part in _blank_runs(text) for piece in findall(part)]

    return cut


def for_ascii_of(pattern: str) -> str:
    """The same pattern for ``re``, correct for text that is all ASCII."""
    pattern = re.sub(r"\[(?:\\.|[^\]])*\]|\\p\{.\}", lambda m: m[0] if m[0][0] == "[" else f"[{m[0]}]", pattern)
    for name, characters in _ASCII.items():
        pattern = pattern.replace(name, characters)
    return pattern


def _blank_runs(text: str) -> Iterable[str]:
    """The text, split only inside extremely long runs of white space."""
    cuts = [0, *(match.end() for match in _BLANKS.finditer(text)), len(text)] if len(text) > MAX_BLANKS else []
    return [text[a:b] for a, b in zip(cuts, cuts[1:])] or [text]
