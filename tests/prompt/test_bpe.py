"""pyx.tokens and the split before it, against a definition in plain Python; hostile tables."""

from __future__ import annotations

import re

import pytest
import regex
from hypothesis import given, settings
from hypothesis import strategies as st

from edge.errors import InvalidFile
from edge.formats.checkpoint import TokenizerSpec
from edge.formats.container import StringArray
from edge.prompt.tokenizer import Tokenizer
from edge.prompt.tokenizer.byte_level import PATTERNS, TRUSTED, for_ascii_of
from edge.prompt.tokenizer.steps import ALPHABET
from pyx.tokens import TOKEN, BytePairs


def letters(data: bytes) -> str:
    return "".join(ALPHABET[byte] for byte in data)


def pairs_of(tokens: list[bytes], roles: bytes | None = None) -> BytePairs:
    stored = StringArray.of([letters(token) for token in tokens], "tokens")
    roles = bytes((TOKEN,)) * len(tokens) if roles is None else roles
    return BytePairs(stored.view, stored.first, stored.ends, roles, ALPHABET)


def joined(piece: bytes, ranks: dict[bytes, int]) -> list[bytes]:
    """The definition, for bytes that are tokens: as long as neighbours make a token, join those of the lowest rank, the
    leftmost of equals.
    """
    if piece in ranks:
        return [piece]
    parts = [piece[i : i + 1] for i in range(len(piece))]
    while True:
        found = [(ranks[a + b], i) for i, (a, b) in enumerate(zip(parts, parts[1:])) if a + b in ranks]
        if not found:
            return parts
        _, i = min(found)
        parts[i : i + 2] = [parts[i] + parts[i + 1]]


few = st.binary(min_size=1, max_size=5).map(lambda data: bytes(97 + byte % 3 for byte in data))
pieces = st.lists(st.text("abc", max_size=24), max_size=4)


@settings(max_examples=300)
@given(tokens=st.lists(few, max_size=40), texts=pieces)
def test_ids_are_ranks(tokens, texts):
    ranks = {token: i for i, token in reversed(list(enumerate(tokens)))}
    known = [text.encode() for text in texts]
    known = [text if text in ranks else bytes(byte for byte in text if bytes((byte,)) in ranks) for text in known]
    assert pairs_of(tokens).encode(texts) == [ranks[part] for text in known for part in joined(text, ranks) if part]


@settings(max_examples=200)
@given(data=st.data())
def test_merges_are_ranks(data):
    tokens = [b"a", b"b", b"c"]
    merges = []
    for _ in range(data.draw(st.integers(0, 20))):
        left, right = data.draw(st.sampled_from(tokens)), data.draw(st.sampled_from(tokens))
        tokens.append(left + right)
        merges.append((left, right))
    order = data.draw(st.permutations(merges))
    loose = data.draw(st.lists(few, max_size=3))  # tokens that no merge makes are never found
    everything = [*tokens, *loose]
    pairs = pairs_of(everything)
    stored = StringArray.of([f"{letters(a)} {letters(b)}" for a, b in order], "merges")
    assert pairs.rank_by(stored.view, stored.first, stored.ends) == -1
    ranks: dict[bytes, int] = {}
    for i, (left, right) in enumerate(order):
        ranks.setdefault(left + right, i)
    texts = data.draw(pieces)
    expected = [everything.index(part) for text in texts for part in joined(text.encode(), ranks) if part]
    assert pairs.encode(texts) == expected


def test_a_long_piece_takes_no_square_of_its_length():
    pairs = pairs_of([b"a", b"aa", b"aaaa", b"aaaaaaaa"])
    assert pairs.encode(["a" * 1_000_000]) == [3] * 125_000  # minutes, if it did


def test_bytes_that_are_no_tokens_are_left_out():
    """And never become an unknown token, which is a control token in most files: users could write it."""
    spec = TokenizerSpec(kind="bpe", tokens=["<|endoftext|>", "a", "b", "ab", "!", "!!"], types=[3, 1, 1, 1, 1, 1],
                         merges=["a b", "! !"], pre="gpt-2", unk_id=0)
    for text, ids in (("\x04", []), ("éab\x06", [3]), ("!\x04!", [5]), ("!\x04" * 400 + "!", [5] * 200 + [4])):
        assert Tokenizer.build(spec).encode(text) == ids  # its neighbours become neighbours, as in tokenizers


def hash_of(data: bytes) -> int:
    h = 0xCBF29CE484222325
    for byte in data:
        h = (h ^ byte) * 0x100000001B3 & (1 << 64) - 1
    return h ^ h >> 32


def test_a_table_made_to_be_slow_is_refused():
    words = (i.to_bytes(3, "big") for i in range(1 << 24))
    crowd = [word for _, word in zip(range(7000), (w for w in words if hash_of(w) % 16384 < 1024))]
    pairs_of(crowd[:3000])  # a crowd, but one that can be lived with
    with pytest.raises(ValueError, match="slow to find"):
        pairs_of(crowd)
    spec = TokenizerSpec(kind="bpe", tokens=[letters(word) for word in crowd], pre="gpt-2")
    with pytest.raises(InvalidFile, match="slow to find; the vocabulary is damaged"):
        Tokenizer.build(spec)


# ---- one word as long as a book --------------------------------------------------------------------------------------

WORDS = {"ab": b"ab" * 100_000, "a": b"a" * 200_000, "bytes": bytes(i * i // 7 % 251 % 26 + 97 for i in range(200_000))}
TOKENS = [bytes([i]) for i in range(256)] + [b"ab", b"abab", b"aa", b"aaaa", b"th", b"he", b"abababab"]


@pytest.mark.parametrize("name", WORDS)
def test_a_long_word_is_interrupted_everywhere(name):
    """At each look, and what is encoded next is right: long words between short ones, looked at all the way."""
    pairs, word = pairs_of(TOKENS), WORDS[name].decode()
    whole = pairs.encode([word])
    data = [TOKENS[id] for id in whole]
    assert b"".join(data) == WORDS[name]
    looks = 0

    def look() -> None:
        nonlocal looks
        looks += 1
        if looks == most:
            raise KeyError(most)

    most = 0
    assert pairs.encode([word], look) == whole
    # 16384 bytes, joins or tokens between two looks: each byte begins, and each token is given out
    n = looks
    assert n >= (len(word) + len(word) - len(whole)) // 16384
    for most in range(1, n + 1):
        looks = 0
        with pytest.raises(KeyError):
            pairs.encode([word], look)
        assert looks == most and pairs.encode(["abab", "th"]) == [257, 260]
    looks, most = 0, 0
    assert pairs.encode(["th ab"] * 40_000, look) == pairs.encode(["th ab"]) * 40_000 and looks >= 40_000 * 5 // 16384


# ---- the split -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", sorted({
    pattern: name for name, pattern in PATTERNS.items() if pattern in TRUSTED}.values()))
@settings(max_examples=400)
@given(text=st.text(st.characters(max_codepoint=127), max_size=30) | st.text("aS' \n\r\t1.$`_\x1c\x0b", max_size=30))
def test_ascii_is_cut_by_re_as_by_regex(name, text):
    cut = re.findall(for_ascii_of(PATTERNS[name]), text, re.ASCII)
    assert cut == regex.findall(PATTERNS[name], text)
    assert "".join(cut) == text
