"""Dummy vocabularies of a real size: made-up syllable words, so that header costs are real and nothing is borrowed.

A tokenizer built from them is consistent (every word can be merged from its parts), but its words mean nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

NORMAL, UNKNOWN, CONTROL, BYTE = 1, 2, 3, 6  # tokenizer.ggml.token_type

#: special tokens of Llama 3 besides its reserved ones, by id
LLAMA3_SPECIAL = {
    128000: "<|begin_of_text|>",
    128001: "<|end_of_text|>",
    128006: "<|start_header_id|>",
    128007: "<|end_header_id|>",
    128009: "<|eot_id|>",
}


def byte_alphabet() -> list[str]:
    """The 256 bytes in the printable alphabet of GPT-2, in the order of the ids of such vocabularies."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    return [chr(byte) for byte in printable] + [chr(0x100 + i) for i in range(256 - len(printable))]


def _syllables() -> list[str]:
    """36 two-letter syllables."""
    return [consonant + vowel for consonant in "bdfgklmnr" for vowel in "aeio"]


def _words() -> Iterator[tuple[str, list[str]]]:
    """Endless words of 1, 2, 3 ... syllables in a fixed order, each with its parts."""
    length = 1
    while True:
        for parts in product(_syllables(), repeat=length):
            yield "".join(parts), list(parts)
        length += 1


def qwen2_special(token_id: int) -> str:
    """Text of the special token at an id from 151643 on."""
    named = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
    index = token_id - 151643
    return named[index] if index < len(named) else f"<|special_{index}|>"


def llama3_special(token_id: int) -> str:
    """Text of the special token at an id from 128000 on."""
    if token_id in LLAMA3_SPECIAL:
        return LLAMA3_SPECIAL[token_id]
    index = token_id - 128002 - sum(128002 <= known < token_id for known in LLAMA3_SPECIAL)
    return f"<|reserved_special_token_{index}|>"


def byte_level_bpe(
    n_vocab: int, special: dict[int, str], n_merge: int | None = None
) -> tuple[list[str], list[int], list[str]]:
    """Tokens, token types and merges of a byte-level BPE vocabulary of exactly ``n_vocab`` tokens.

    ``special`` (id -> text) must be at the end of the vocabulary.  Merges stand in the order of the ids of their
    results, as in Llama 3, where a token has one merge for every way to split it; ``n_merge`` keeps that many of
    them, at least one per word (None: all).  Raises ValueError for impossible numbers.
    """
    n_word = n_vocab - 256 - len(special)
    if n_word < 0 or sorted(special) != list(range(n_vocab - len(special), n_vocab)):
        raise ValueError(f"{n_vocab} tokens cannot end in the special ids {min(special)} to {max(special)}")
    words = [word for word, _ in zip(_words(), range(n_word))]
    tokens = byte_alphabet() + [word for word, _ in words] + [special[i] for i in sorted(special)]
    types = [NORMAL] * (256 + n_word) + [CONTROL] * len(special)

    splits = 0
    for _, parts in words:
        splits += max(1, len(parts) - 1)
    surplus = 0 if n_merge is None else splits - n_merge  # how many ways to split to leave out
    if n_merge is not None and not n_word <= n_merge <= splits:
        raise ValueError(f"{n_word} words have {n_word} to {splits} merges, not {n_merge}")
    merges = []
    for word, parts in words:
        cuts = range(2, len(word), 2) if len(parts) > 1 else (1,)
        for cut in cuts:
            if surplus and cut > 2:  # the first way to split always stays
                surplus -= 1
            else:
                merges.append(f"{word[:cut]} {word[cut:]}")
    return tokens, types, merges


def sentencepiece_bpe(n_vocab: int) -> tuple[list[str], list[int], list[float]]:
    """Tokens, types and scores of a SentencePiece BPE vocabulary with byte fallback, Llama-2 style.

    <unk>, <s>, </s>, 256 bytes, then words in the order of their scores; single letters come last.
    """
    letters = ["\u2581", *"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.,!?'-:;()\""]
    n_word = n_vocab - 3 - 256 - len(letters)
    if n_word < 0:
        raise ValueError(f"a vocabulary with bytes and letters has at least {n_vocab - n_word} tokens, not {n_vocab}")
    words = [word for (word, _), _ in zip(_words(), range(n_word))]
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), *words, *letters]
    types = [UNKNOWN, CONTROL, CONTROL, *[BYTE] * 256, *[NORMAL] * (n_word + len(letters))]
    scores = [0.0] * 259 + [-float(i) for i in range(n_word + len(letters))]
    return tokens, types, scores
