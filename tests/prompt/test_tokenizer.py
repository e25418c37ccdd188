"""Tokenizers: every vector of every vocabulary, the other libraries as oracles, streaming, hostile vocabularies."""

from __future__ import annotations

import json
import random
import unicodedata
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edge.errors import InvalidFile, UsageError
from edge.formats.checkpoint import Added, TokenizerSpec
from edge.formats.sentencepiece_model import parse
from edge.prompt.tokenizer import StreamDecoder, Tokenizer
from edge.prompt.tokenizer.byte_level import PATTERNS, cutter
from edge.prompt.tokenizer.steps import ALPHABET
from edge.prompt.tokenizer.vocabulary import END_OF_TURN
from tests.services import in_python
from tests.vocabularies import (
    FOREIGN,
    FOREIGN_NAMES,
    TRAINED_NAMES,
    by_name,
    needs_foreign,
    spec_of,
    trained_by_hugging_face,
    vocabulary,
)

HERE = Path(__file__).resolve().parents[1]
VECTORS = HERE / "vectors" / "tokenizer"


def bpe_spec() -> TokenizerSpec:
    """Our own byte-level vocabulary of 512 tokens, Llama 3's split."""
    d = json.loads((VECTORS / "bpe512.json").read_text())
    return TokenizerSpec(kind="bpe", tokens=d["tokens"], types=d["types"], merges=d["merges"], pre=d["pre"],
                         bos_id=d["bos_id"], eos_ids=tuple(d["eos_ids"]), add_space_prefix=False)


def spm_model_spec() -> TokenizerSpec:
    """Our own SentencePiece vocabulary of 512 pieces as a tokenizer.model."""
    return TokenizerSpec(kind="sentencepiece", model=(VECTORS / "spm512.model").read_bytes(), bos_id=1, eos_ids=(2,))


def spm_array_spec() -> TokenizerSpec:
    """The same as GGUF stores it: arrays."""
    parsed = parse((VECTORS / "spm512.model").read_bytes(), "spm512.model")
    return TokenizerSpec(kind="sentencepiece", tokens=parsed.pieces, scores=parsed.scores, types=parsed.types,
                         bos_id=1, eos_ids=(2,))


BPE = Tokenizer.build(bpe_spec())
SPM = Tokenizer.build(spm_array_spec())
BOTH = pytest.mark.parametrize("tokenizer", [BPE, SPM], ids=["bpe", "spm"])


# ---- vectors ---------------------------------------------------------------------------------------------------------


@by_name(FOREIGN_NAMES)
def test_every_vector_of_llama_cpp(name):
    tokenizer = vocabulary(name)
    path = FOREIGN / f"ggml-vocab-{name}.gguf"
    with open(f"{path}.inp", encoding="utf-8", newline="") as file:
        texts = file.read().split("\n__ggml_vocab_test__\n")
    wanted = [[int(i) for i in line.split()] for line in Path(f"{path}.out").read_text().split("\n")]
    assert len(texts) == len(wanted) == 47
    wrong = [(text, tokenizer.encode(text), ids) for text, ids in zip(texts, wanted) if tokenizer.encode(text) != ids]
    assert not wrong
    assert [tokenizer.decode(ids) for ids in wanted] == texts


def samples():
    return json.loads((VECTORS / "token_vectors.json").read_text())["samples"]


@pytest.mark.parametrize("sample", samples(), ids=lambda s: repr(s["text"])[:20])
def test_own_vectors(sample):
    assert BPE.encode(sample["text"]) == sample["bpe"]
    assert SPM.encode(sample["text"]) == sample["spm"]
    assert Tokenizer.build(spm_model_spec()).encode(sample["text"]) == sample["spm"]
    assert BPE.decode(sample["bpe"]) == SPM.decode(sample["spm"]) == sample["text"]


@needs_foreign
def test_facts_about_llama_3():
    tokenizer = vocabulary("llama-bpe")
    assert tokenizer.n_vocab == 128256
    assert tokenizer.bos_id == 128000
    assert tokenizer.eos_ids == (128001, 128009)
    assert tokenizer.special["<|eot_id|>"] == 128009
    assert tokenizer.encode("User: ") == [1502, 25, 220]
    assert tokenizer.encode("User: Hello") == [1502, 25, 22691]
    assert tokenizer.encode("Assistant: ") == [72803, 25, 220]
    assert tokenizer.encode("The capital of France is") == [791, 6864, 315, 9822, 374]
    assert tokenizer.encode("<|eot_id|>x", special=True) == [128009, 87]
    assert tokenizer.token_text(128009) == "<|eot_id|>"
    assert tokenizer.token_bytes(128009) == b""


# ---- other libraries as oracles --------------------------------------------------------------------------------------


def _staged_oracle(stages: Sequence[str], text: str) -> list[str]:
    """llama.cpp's way: each pattern cuts the pieces that the one before it left, what it misses stays a piece."""
    import regex  # here: this module is imported by tests of what is not imported

    pieces = [text]
    for stage in stages:
        cut = []
        for piece in pieces:
            start = 0
            for match in regex.finditer(stage, piece):
                cut += [piece[start : match.start()], match[0]]
                start = match.end()
            cut.append(piece[start:])
        pieces = [piece for piece in cut if piece]
    return pieces


_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)"
_STAGES = {
    "falcon": [r"[\p{P}\$\+<=>\^~\|`]+", _GPT2, "[0-9][0-9][0-9]"],
    "default": [r"[\p{P}\$\+<=>\^~\|]+", _GPT2, r"\p{N}+", "[0-9][0-9][0-9]"],
    "gpt-2": [_GPT2],
    "smollm": [r"\p{N}", _GPT2],
}
_mixed = st.lists(
    st.sampled_from(["a", "Ab", "é", " ", "  ", "\t", "\n", "1", "12", "123", "½", "٣", ".", "'s", "'", "$", "`", "=",
                     "£", "\u3000", "🙂", "中", "¬", "ひ", "カ", "゠", "・", "\u3099", "\r", "-", "~"]), max_size=16,
).map("".join)


@pytest.mark.parametrize("name", sorted(_STAGES))
@settings(max_examples=500)
@given(text=_mixed | st.text(max_size=20))
def test_one_pattern_cuts_like_the_stages(name, text):
    assert cutter(PATTERNS[name])(text) == _staged_oracle(_STAGES[name], text)


@settings(max_examples=500)
@given(text=_mixed)
def test_patterns_that_cut_one_after_another(text):
    """Regression: a sign between two words of Chinese or Japanese was a part of one with them."""
    tokenizers = pytest.importorskip("tokenizers", reason="the tokenizers library is a development dependency")
    stages = [tokenizers.pre_tokenizers.Split(tokenizers.Regex(each), "isolated") for each in PATTERNS["deepseek-v3"]]
    pieces = [piece for piece, _ in tokenizers.pre_tokenizers.Sequence(stages).pre_tokenize_str(text)]
    assert cutter(PATTERNS["deepseek-v3"])(text) == pieces
    assert cutter(PATTERNS["deepseek-v3"])("コーヒー・ティー") == ["コーヒー", "・", "ティー"]


def _hugging_face(spec: TokenizerSpec):
    """The ``tokenizers`` library on the same vocabulary."""
    tokenizers = pytest.importorskip("tokenizers", reason="the tokenizers library is a development dependency")
    from tokenizers import Regex, models, pre_tokenizers

    merges = [tuple(merge.split(" ")) for merge in spec.merges]
    model = models.BPE(vocab={token: i for i, token in enumerate(spec.tokens)}, merges=merges)
    other = tokenizers.Tokenizer(model)
    other.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(spec.pattern or PATTERNS[spec.pre]), "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
    ])
    return other


def test_like_hugging_face_on_our_vocabulary():
    other = _hugging_face(bpe_spec())

    @settings(max_examples=250)
    @given(_mixed | st.text(max_size=40) | st.sampled_from([s["text"] for s in samples()]))
    def check(text):
        assert BPE.encode(text) == other.encode(text, add_special_tokens=False).ids

    check()


@by_name(("gpt-2", "qwen2", *TRAINED_NAMES[:5]))
def test_like_hugging_face_on_a_large_vocabulary(name):
    """Trained ones also as a file of theirs that we read: tokenizer.json."""
    other = trained_by_hugging_face(name) if name in TRAINED_NAMES else _hugging_face(spec_of(name))
    tokenizer, r = vocabulary(name), random.Random(5)
    other.encode_special_tokens = True  # none is looked for in what users write
    texts = [path.read_text() for path in sorted((HERE.parent / "docs").glob("*.md"))]
    for _ in range(2000):  # words that exist, side by side as nobody wrote them
        ids = [r.randrange(5, min(50000, tokenizer.n_vocab)) for _ in range(r.randrange(1, 8))]
        texts.append(tokenizer.decode(ids))
    for text in texts:
        assert tokenizer.encode(text) == other.encode(text, add_special_tokens=False).ids

    @settings(max_examples=400)
    @given(st.text(max_size=200).filter(old_characters) | st.text(st.characters(max_codepoint=255), max_size=200))
    def check(text):
        assert tokenizer.encode(text) == other.encode(text, add_special_tokens=False).ids

    check()


def old_characters(text: str) -> bool:
    """Whether libraries of any year know all of them: Unicode grows, and what is not assigned is no letter."""
    return not any(unicodedata.category(character) == "Cn" for character in text)


def test_sentencepiece_decodes_like_its_library():
    import sentencepiece

    library = sentencepiece.SentencePieceProcessor(model_proto=(VECTORS / "spm512.model").read_bytes())

    @settings(max_examples=250)
    @given(st.text(max_size=40))
    def check(text):
        assert SPM.decode(SPM.encode(text)) == library.decode(library.encode(text))

    check()


# ---- text, bytes, characters -----------------------------------------------------------------------------------------


@BOTH
@settings(max_examples=250)
@given(text=st.text(max_size=60))
def test_round_trip(tokenizer, text):
    if tokenizer is SPM:
        text = text.replace("▁", " ")  # SentencePiece writes blanks so, and cannot tell the two apart
    assert tokenizer.decode(tokenizer.encode(text)) == text


@BOTH
def test_half_a_surrogate_pair_becomes_the_replacement_character(tokenizer):
    assert tokenizer.decode(tokenizer.encode("a\udc80b")) == "a\ufffdb"


@BOTH
def test_token_bytes(tokenizer):
    text = "naïve 你好 🙂\x00\n"
    joined = b"".join(tokenizer.token_bytes(i) for i in tokenizer.encode(text))
    assert joined.decode() == (" " if tokenizer is SPM else "") + text
    for outside in (-1, 512, 10**9):  # the embedding may have more rows than the vocabulary
        assert tokenizer.token_bytes(outside) == b""
        assert tokenizer.decode([outside]) == ""
    for control in tokenizer.special.values():
        assert tokenizer.token_bytes(control) == b""


@BOTH
def test_very_long_runs(tokenizer):
    for unit in (" ", "\n", "\t ", "a", "ab1", "🙂"):
        text = unit * (300_000 // len(unit))
        assert tokenizer.decode(tokenizer.encode(text)) == text


def test_absurd_blanks_only_change_at_the_cut():
    assert BPE.encode(" " * 16000 + "a") == BPE.encode(" " * 15999) + BPE.encode(" a")


@BOTH
@settings(max_examples=300)
@given(ids=st.lists(st.integers(-2, 520), max_size=40))
def test_streaming_equals_decoding(tokenizer, ids):
    stream = StreamDecoder(tokenizer)
    pieces = [stream.push(i) for i in ids]
    assert "".join(pieces) == tokenizer.decode(ids)


@BOTH
@settings(max_examples=300)
@given(text=st.text(max_size=30))
def test_streaming_text_never_cuts_a_character(tokenizer, text):
    if tokenizer is SPM:
        text = text.replace("▁", " ")
    stream, ids = StreamDecoder(tokenizer), tokenizer.encode(text)
    assert "".join(map(stream.push, ids)) == text
    assert all(text.startswith(tokenizer.decode(ids[:n])) for n in range(len(ids)))


def test_invalid_bytes_do_not_hold_the_stream():
    byte = {BPE.token_bytes(i): i for i in range(512)}
    stream = StreamDecoder(BPE)
    assert stream.push(byte[b"\xff"]) == "\ufffd"
    assert stream.push(byte[b"\xe2"]) == ""
    assert stream.push(byte[b"A"]) == "\ufffdA"
    assert [stream.push(byte[b"\x80"]) for _ in range(3)] == ["\ufffd"] * 3


def test_sentencepiece_strips_one_blank_at_the_start_only():
    ids = SPM.encode("Hello") + SPM.encode("Hello")
    assert SPM.decode(ids) == "Hello Hello"
    assert SPM.decode(ids, start=False) == " Hello Hello"
    assert SPM.decode([SPM.bos_id, *ids]) == "Hello Hello"
    assert SPM.decode(SPM.encode("  x")) == "  x"
    bare = Tokenizer.build(replace(spm_array_spec(), add_space_prefix=False))
    assert bare.decode(bare.encode(" x")) == " x" != bare.decode(bare.encode("x"))


# ---- special tokens --------------------------------------------------------------------------------------------------


@by_name(FOREIGN_NAMES + TRAINED_NAMES)
def test_text_never_becomes_a_control_token(name):
    tokenizer = vocabulary(name)
    control = set(tokenizer.special.values())
    assert control >= set(tokenizer.eos_ids)
    for text, number in tokenizer.special.items():
        for written in (text, f"a{text}b {text}", f" {text}\n"):
            assert not control.intersection(tokenizer.encode(written))
        assert tokenizer.encode(text, special=True) == [number]
        found = tokenizer.encode(f"a{text}b", special=True)
        assert found.count(number) == 1
        assert found[: found.index(number)] == tokenizer.encode("a")


@BOTH
@settings(max_examples=300)
@given(data=st.data())
def test_text_never_becomes_a_control_token_anywhere(tokenizer, data):
    part = st.sampled_from([*tokenizer.special, "<", "|>", "<|", "<s", "a", " "])
    text = "".join(data.draw(st.lists(part, max_size=8)))
    assert not set(tokenizer.special.values()).intersection(tokenizer.encode(text))
    assert tokenizer.decode(tokenizer.encode(text)) == text


def with_tokens(**types_by_text: int) -> TokenizerSpec:
    spec = bpe_spec()
    return replace(spec, tokens=[*spec.tokens, *types_by_text], types=[*spec.types, *types_by_text.values()])


def test_the_longest_special_token_wins():
    tokenizer = Tokenizer.build(with_tokens(**{"<|a|>": 3, "<|a|>b": 3, "<|a": 3}))
    assert tokenizer.encode("<|a|>b<|a|>c<|a|", special=True) == [513, 512, *BPE.encode("c"), 514, *BPE.encode("|")]
    assert tokenizer.encode("x<|a|>y", special=True) == [*BPE.encode("x"), 512, *BPE.encode("y")]


def test_user_defined_tokens():
    """They are text, in answers and of users; those of which formats are made cannot be typed, but are read."""
    tokenizer = Tokenizer.build(with_tokens(**{"    ": 4, "<answer>": 4, "[REF]": 4, "<|user|>": 4, "<think>": 4}))
    assert not tokenizer.special.keys() & {"<answer>", "[REF]", "<|user|>", "<think>"}
    for number, text in enumerate(("    ", "<answer>", "[REF]", "<|user|>", "<think>"), 512):
        assert tokenizer.encode(f"a{text}b", special=True) == [*BPE.encode("a"), number, *BPE.encode("b")]
        assert (number in tokenizer.encode(f"a{text}b")) == (text not in tokenizer.markers)
        assert tokenizer.decode([number]) == text and tokenizer.decode(tokenizer.encode(text)) == text
    assert tokenizer.markers.keys() - tokenizer.special.keys() == {"<|user|>", "<think>"}


def test_markers_in_a_sentencepiece_file():
    """phi-3 calls "</s>" user-defined; the library would find it in anything a user writes."""
    spec = spm_array_spec()
    types = list(spec.types)
    types[2] = 4
    for tokenizer in (
        Tokenizer.build(replace(spec, types=types)),
        Tokenizer.build(replace(spm_model_spec(), added={"<|end|>": Added(512), "<pad>": Added(513)})),
    ):
        for text in tokenizer.special:
            assert not set(tokenizer.special.values()).intersection(tokenizer.encode(f"a{text}"))
            assert tokenizer.encode(text, special=True) == [tokenizer.special[text]]


def test_added_tokens_behind_the_vocabulary():
    tokenizer = Tokenizer.build(replace(bpe_spec(), added={"<|im_end|>": Added(515), "<|im_start|>": Added(513)}))
    assert tokenizer.n_vocab == 516
    assert tokenizer.special["<|im_start|>"] == 513
    assert tokenizer.encode("<|im_start|>a", special=True) == [513, *BPE.encode("a")]
    assert tokenizer.decode([514, 513, *BPE.encode("a"), 515]) == "a"
    assert 515 in tokenizer.eos_ids


def test_markers_with_the_type_of_text_still_end_answers():
    """Converters of 2024 wrote <|eot_id|> as an ordinary token."""
    tokenizer = Tokenizer.build(with_tokens(**dict.fromkeys(END_OF_TURN, 3)))
    assert {tokenizer.special[text] for text in END_OF_TURN} <= set(tokenizer.eos_ids)
    tokenizer = Tokenizer.build(with_tokens(**{"<|eot_id|>": 1}))
    assert 512 in tokenizer.eos_ids
    assert 512 not in tokenizer.encode("<|eot_id|>")
    untyped = Tokenizer.build(replace(with_tokens(**{"<|eot_id|>": 1}), types=()))
    assert untyped.encode("Hello<|eot_id|>") == BPE.encode("Hello<|eot_id|>")
    assert untyped.eos_ids[-1] == 512 or 512 in untyped.eos_ids


# ---- entries of the vocabulary among the added tokens ----------------------------------------------------------------


def _letters(data: bytes) -> str:
    return "".join(ALPHABET[byte] for byte in data)


#: a byte-level vocabulary as its authors have it: all bytes, and a few words; merge i makes token 256 + i
_OWN = [*(bytes((i,)) for i in range(256)), b"\n\n", b"  ", b"\t\t", b"he", b" he", b"\xc3\xa9", b"\xc4\x8a", b"ab"]
_MERGES = [(b"\n", b"\n"), (b" ", b" "), (b"\t", b"\t"), (b"h", b"e"), (b" ", b"he"), (b"\xc3", b"\xa9"),
           (b"\xc4", b"\x8a"), (b"a", b"b")]


def _listed(marked: Sequence[bytes], special: bool, normalised: bool):
    """(the spec of a GGUF file, a tokenizer of the ``tokenizers`` library): ``marked`` are added tokens, too."""
    import tokenizers
    from tokenizers import decoders, models, pre_tokenizers

    texts = [_letters(each) for each in _OWN]
    merges = [(_letters(a), _letters(b)) for a, b in _MERGES]
    other = tokenizers.Tokenizer(models.BPE(vocab={text: i for i, text in enumerate(texts)}, merges=merges))
    other.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    other.decoder = decoders.ByteLevel()
    stated = json.loads(other.to_str())
    ids = sorted(_OWN.index(each) for each in marked)
    stated["added_tokens"] = [
        {"id": i, "content": texts[i], "single_word": False, "lstrip": False, "rstrip": False,
         "normalized": normalised, "special": special} for i in ids
    ]
    types = [(3 if special else 4) if i in ids else 1 for i in range(len(_OWN))]
    spec = TokenizerSpec(kind="bpe", tokens=texts, types=types, merges=[" ".join(pair) for pair in merges], pre="gpt-2")
    return spec, tokenizers.Tokenizer.from_str(json.dumps(stated))


@pytest.mark.parametrize("special", [True, False], ids=["special", "plain"])
@pytest.mark.parametrize("normalised", [True, False], ids=["normalised", "raw"])
def test_bytes_of_the_vocabulary_as_added_tokens(special: bool, normalised: bool) -> None:
    """Falcon3 lists line ends, by the letter that stands for the byte.  Each byte alone, and all together."""
    texts = ["a\nb", "a\n\n\tb\r\n", "  \t\t\t", "héhe he\x00\x7f\x85\xad", "Ċ", "ab"]
    for marked in [*([bytes((i,))] for i in range(256)), _OWN[:256], _OWN[:34] + [b"\n\n", b"  ", b"\t\t"]]:
        spec, other = _listed(marked, special, normalised)
        tokenizer = Tokenizer.build(spec)
        for i in (i for i, each in enumerate(_OWN) if each in marked):
            data = _OWN[i]
            assert tokenizer.token_bytes(i) == data
            text = data.decode("utf-8", "ignore")
            for each in (f"a{text}b", text * 3) if text else ():
                if special and any(letter in each for letter in map(_letters, marked)):
                    continue  # the library reads special tokens in any text
                ids = tokenizer.encode(each)
                assert ids == other.encode(each, add_special_tokens=False).ids, (marked, each)
                assert tokenizer.decode(ids) == each or not special
            assert tokenizer.decode([97, i, 98]) == other.decode([97, i, 98], skip_special_tokens=False)
        for text in texts:
            if not special or not any(letter in text for letter in map(_letters, marked)):
                assert tokenizer.encode(text) == other.encode(text, add_special_tokens=False).ids, (marked, text)
        if special:
            assert all(tokenizer.decode(tokenizer.encode(text)) == text for text in texts)


def test_a_merge_may_make_an_added_token() -> None:
    """Whatever its type; what looks like structure stays out of text, and the file is not damaged."""
    for kind, made in ((1, [263]), (4, [263]), (5, [263]), (3, [97, 98])):
        spec = _listed([], False, False)[0]
        tokenizer = Tokenizer.build(replace(spec, types=[*spec.types[:-1], kind]))
        assert tokenizer.encode("ab") == made
        assert tokenizer.encode("ab", special=True) == [263]
    texts = [*spec.tokens, "été"]  # no text as letters: the bytes of letters are none in UTF-8
    assert Tokenizer.build(replace(spec, tokens=texts, types=[*spec.types, 4])).token_bytes(264) == "été".encode()


@pytest.mark.parametrize("kind", [1, 3, 4, 5])
def test_bytes_of_sentencepiece_with_another_type_are_bytes(kind: int) -> None:
    """Conversions from tokenizer.json of 2023: "<0x0A>" came out instead of line ends."""
    spec = spm_array_spec()
    types = [kind if old == 6 else old for old in spec.types]
    assert kind in types
    tokenizer = Tokenizer.build(replace(spec, types=types))
    for text in ("a\nb", "\x00🙂\r\n", "<0x0A>"):
        assert tokenizer.encode(text) == SPM.encode(text)
        assert tokenizer.decode(tokenizer.encode(text)) == text


# ---- building --------------------------------------------------------------------------------------------------------


def test_nothing_heavy_is_imported_before_it_is_needed():
    code = ("import sys, edge.prompt.tokenizer; "
            "print([m for m in ('numpy', 'sentencepiece', 'jinja2', 'regex') if m in sys.modules])")
    assert in_python(code) == "[]\n"


def test_no_tokenizer():
    tokenizer = Tokenizer.build(TokenizerSpec(kind="none", add_bos=False))
    assert tokenizer.decode([1, 2, 3]) == ""
    assert tokenizer.n_vocab == 0
    with pytest.raises(UsageError, match="token ids"):
        tokenizer.encode("a")


def test_a_pattern_that_leaves_text_out_keeps_it_as_a_piece():
    tokenizer = Tokenizer.build(replace(bpe_spec(), pattern="[0-9]"))
    assert tokenizer.decode(tokenizer.encode("Hello 12 you")) == "Hello 12 you"


def _changed(spec: TokenizerSpec, **lists) -> TokenizerSpec:
    """The spec with single elements replaced: tokens={3: "x"}."""
    for field, changes in lists.items():
        values = list(getattr(spec, field))
        for i, value in changes.items():
            values[i] = value
        spec = replace(spec, **{field: values})
    return spec


HOSTILE = {
    "no tokens": replace(bpe_spec(), tokens=(), types=()),
    "types too short": replace(bpe_spec(), types=[1] * 5),
    "types out of range": _changed(bpe_spec(), types={7: 1 << 20}),
    "scores too short": replace(spm_array_spec(), scores=[0.0]),
    "score not a number": _changed(spm_array_spec(), scores={7: float("nan")}),
    "bos outside": replace(bpe_spec(), bos_id=512),
    "eos outside": replace(spm_array_spec(), eos_ids=(2, 99999)),
    "unknown outside": replace(spm_array_spec(), unk_id=4096),
    "unknown is BOS": replace(spm_array_spec(), unk_id=1),
    "not in the alphabet": _changed(bpe_spec(), tokens={300: "a b"}),
    "sentencepiece said to be bpe": replace(bpe_spec(), tokens=spm_array_spec().tokens, merges=()),
    "merge of nothing": _changed(bpe_spec(), merges={0: ""}),
    "merge not in the alphabet": _changed(bpe_spec(), merges={5: "\n \n"}),
    "pre unknown": replace(bpe_spec(), pre="magic"),
    "kind unknown": replace(bpe_spec(), kind="unigram"),
    "pattern no pattern": replace(bpe_spec(), pattern="(((("),
    "pattern recursive": replace(bpe_spec(), pattern=r"\((?R)*\)|."),
    "pattern nested": replace(bpe_spec(), pattern="(" * 3000 + "a" + ")" * 3000),
    "pattern long": replace(bpe_spec(), pattern="a" * 100_000),
    "token long": _changed(bpe_spec(), tokens={300: "a" * 1_000_000}),
    "added far out": replace(bpe_spec(), added={"<|x|>": Added(1 << 30)}),
    "model empty": TokenizerSpec(kind="sentencepiece", model=b""),
    "model cut": replace(spm_model_spec(), model=(VECTORS / "spm512.model").read_bytes()[:4000]),
}


@pytest.mark.parametrize("name", sorted(HOSTILE))
def test_hostile_vocabularies(name, capfd):
    with pytest.raises(InvalidFile) as caught:
        Tokenizer.build(HOSTILE[name])
    message = str(caught.value)
    assert "\n" not in message
    assert len(message) < 400
    assert capfd.readouterr().err == ""  # nothing from the library either


SURVIVABLE = {
    "pattern matches nothing": replace(bpe_spec(), pattern="x?"),
    "every token control": replace(bpe_spec(), types=[3] * 512),
    "every piece user-defined": replace(spm_array_spec(), types=[4] * 512),
    "bytes incomplete": _changed(spm_array_spec(), types={9: 1}),
    "one piece": TokenizerSpec(kind="sentencepiece", tokens=["a"], scores=[0.0], types=[1]),
    "nul in a piece": _changed(spm_array_spec(), tokens={300: "a\0b"}),
    "empty tokens": _changed(bpe_spec(), tokens={0: "", 1: ""}),
}


@pytest.mark.parametrize("name", sorted(SURVIVABLE))
def test_unusual_vocabularies_are_used(name, capfd):
    try:
        tokenizer = Tokenizer.build(SURVIVABLE[name])
    except InvalidFile as error:
        assert "\n" not in str(error)
    else:
        for text in ("", "Hello a b 🙂 \n\n  x", "<s></s>"):
            ids = tokenizer.encode(text)
            tokenizer.encode(text, special=True)
            assert not set(tokenizer.special.values()).intersection(ids)
            tokenizer.decode(ids)
    assert capfd.readouterr().err == ""


def test_a_pattern_that_never_ends(monkeypatch):
    monkeypatch.setattr("edge.prompt.tokenizer.steps.PATTERN_SECONDS", 0.2)
    tokenizer = Tokenizer.build(replace(bpe_spec(), pattern=r"(?:a|aa)+$"))
    with pytest.raises(InvalidFile, match="too long"):
        tokenizer.encode("a" * 200 + "c")


@settings(max_examples=200)
@given(data=st.data())
def test_damaged_vocabularies_fail_in_one_line(data):
    """Any few wrong elements: a tokenizer that works, or InvalidFile."""
    spec = data.draw(st.sampled_from([bpe_spec(), spm_array_spec()]))
    junk = st.sampled_from(["", " ", "a", "\u2581", "Ġ", "\n", "<0x41>", "<|x|>", "中", "\0", "a b", "\udfff"])
    for field, values in (("tokens", junk), ("types", st.integers(-3, 9)), ("merges", junk),
                          ("scores", st.sampled_from([0.0, -1e38, float("nan")]))):
        size = len(getattr(spec, field))
        if size:
            spec = _changed(spec, **{field: data.draw(st.dictionaries(st.integers(0, size - 1), values, max_size=3))})
    spec = replace(spec, unk_id=data.draw(st.sampled_from([None, 0, 5])))
    try:
        tokenizer = Tokenizer.build(spec)
    except InvalidFile as error:
        assert "\n" not in str(error)
        return
    text = data.draw(st.text(max_size=20))
    ids = tokenizer.encode(text)
    assert all(0 <= i < tokenizer.n_vocab for i in ids)
    tokenizer.decode(ids)


@settings(max_examples=150)
@given(at=st.integers(0, 7399), value=st.integers(0, 255), cut=st.integers(0, 50))
def test_damaged_model_files_fail_in_one_line(at, value, cut):
    model = bytearray((VECTORS / "spm512.model").read_bytes())
    model[at] = value
    del model[at : at + cut]
    try:
        tokenizer = Tokenizer.build(replace(spm_model_spec(), model=bytes(model)))
    except InvalidFile as error:
        assert "\n" not in str(error)
        return
    assert isinstance(tokenizer.decode(tokenizer.encode("Hello world 🙂")), str)
