"""How blanks are written before the pieces of SentencePiece: folders as transformers, GGUF files as llama.cpp does."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from edge.errors import InvalidFile
from edge.formats import huggingface_tokenizer
from edge.formats.checkpoint import Added, TokenizerSpec
from edge.formats.sentencepiece_model import parse
from edge.prompt.tokenizer import Tokenizer
from tests.vectors import make_folders
from tests.vocabularies import converted, ids_of, json_of_pieces, sentencepiece_model

BLANK = "\u2581"
ESCAPE, PREPEND = make_folders.BLANK, {"type": "Prepend", "prepend": BLANK}


def spec_of(folder: Path, model: bytes, fast: Any = None, n_vocab: int = 1100, **stated: Any) -> TokenizerSpec:
    (folder / "tokenizer.model").write_bytes(model)
    (folder / "tokenizer.json").unlink(missing_ok=True)
    if fast is not None:
        (folder / "tokenizer.json").write_text(json.dumps(fast))
    return huggingface_tokenizer.read(str(folder), {}, {}, stated, None, n_vocab, [])


def library(fast: dict[str, Any]) -> Any:
    return pytest.importorskip("tokenizers").Tokenizer.from_str(json.dumps(fast))


# ---- folders ---------------------------------------------------------------------------------------------------------


def test_folders_as_transformers_reads_them(root: Path, tmp_path: Path) -> None:
    """The class, ``legacy``, ``add_prefix_space`` and tokenizer.json; control tokens and blanks wherever they may be;
    and the same from the file that is written of the folder."""
    made = json.loads((root / "tests" / "vectors" / "tokenizer" / "folders.json").read_text())
    assert len(made["folders"]) == 432 and made["texts"] == make_folders.TEXTS
    for *case, answer in made["folders"]:
        stated = make_folders.write(tmp_path, *case)
        spec = huggingface_tokenizer.read(str(tmp_path), {}, {}, stated, None, 512, [])
        for each in (spec, converted(spec, tmp_path, 512)):
            tokenizer = Tokenizer.build(each)
            for text, ids in zip(made["texts"], made["answers"][answer], strict=True):
                assert tokenizer.encode(text, special=True) == ids, (case, text)
            assert tokenizer.decode(tokenizer.encode("Hello  world ")) == "Hello  world "


WORDS = ("Hello", "the ", "a", " ", "  ", "   ", "\n", BLANK, "é", "e\u0301", "ﬁ", "中", "🙂", "\u3000", "<s>", "</s>",
         "<unk>", "<Ans>", "<ans>", "<ANS>", "[tool]", "[TOOL]", "x")
STEPS = st.lists(st.sampled_from([
    {"type": "NFC"}, {"type": "NFD"}, {"type": "NFKC"}, {"type": "Lowercase"},
    {"type": "Replace", "pattern": {"String": "e"}, "content": "ee"}]), max_size=2)
BLANKS = st.sampled_from([
    ([PREPEND, ESCAPE], None), ([ESCAPE], None),
    ([ESCAPE], {"type": "Split", "pattern": {"String": " "}, "behavior": "MergedWithPrevious", "invert": False}),
    *(([], {"type": "Metaspace", "replacement": BLANK, "prepend_scheme": scheme, "split": split})
      for scheme in ("first", "always", "never") for split in (True, False))])
FLAGS = st.fixed_dictionaries({key: st.booleans() for key in ("single_word", "lstrip", "rstrip", "normalized")})


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(steps=STEPS, blanks=BLANKS, flags=st.lists(FLAGS, min_size=5, max_size=5), special=st.booleans(),
       texts=st.lists(st.lists(st.sampled_from(WORDS), max_size=9).map("".join), min_size=1, max_size=8))
def test_any_steps_next_to_a_model(tmp_path_factory: pytest.TempPathFactory, steps: Any, blanks: Any, flags: Any,
                                   special: bool, texts: list[str]) -> None:
    """As the tokenizers library takes the tokenizer.json alone, of templates and of users."""
    folder = tmp_path_factory.getbasetemp()
    changes = [*steps, *blanks[0]]
    fast = json_of_pieces(
        model := sentencepiece_model(), pre_tokenizer=blanks[1],
        normalizer={"type": "Sequence", "normalizers": changes} if changes else None)
    fast["added_tokens"] = [{**each, **flags[i]} for i, each in enumerate(fast["added_tokens"])] + [
        {"id": 1000, "content": "<Ans>", **flags[3], "special": True},
        {"id": 1001, "content": "[tool]", **flags[4], "special": special}]
    other = library(fast)
    for spec in (made := spec_of(folder, model, fast), converted(made, folder)):
        tokenizer = Tokenizer.build(spec)
        for text, typed in itertools.product(texts, (False, True)):
            other.encode_special_tokens = typed
            assert tokenizer.encode(text, special=not typed) == ids_of(other, text), (text, typed)


@pytest.mark.parametrize("legacy", [True, False])
def test_user_defined_pieces_of_a_llama_folder(tmp_path: Path, legacy: bool) -> None:
    """They are added tokens to transformers' class: what is behind one begins as behind a control token."""
    model = sentencepiece_model(user_defined_symbols=["<用户>", "<AI>", "1"])
    step = {"type": "Metaspace", "replacement": BLANK, "prepend_scheme": "always" if legacy else "first",
            "split": False}
    other = library(json_of_pieces(model, pre_tokenizer=step))
    spec = spec_of(tmp_path, model, tokenizer_class="LlamaTokenizer", legacy=legacy)
    for each in (spec, converted(spec, tmp_path)):
        tokenizer = Tokenizer.build(each)
        for text in ("<用户>Hello<AI>", "<s><用户> Hello", "a1b", "1 1  11", "Hello", " <AI> x"):
            assert tokenizer.encode(text, special=True) == other.encode(text, add_special_tokens=False).ids, text


@pytest.mark.parametrize(("step", "words"), [
    ({"type": "Metaspace", "replacement": "_"}, "Metaspace: replacement is '_', which is not supported"),
    ({"type": "Metaspace", "prepend_scheme": "last"}, "Metaspace: prepend_scheme is 'last', which is not supported"),
    ({"type": "ByteLevel"}, "pre_tokenizer 'ByteLevel' is not supported"),
])
def test_steps_that_pieces_cannot_have(tmp_path: Path, step: Any, words: str) -> None:
    with pytest.raises(InvalidFile, match=words):
        spec_of(tmp_path, sentencepiece_model(), json_of_pieces(sentencepiece_model(), pre_tokenizer=step))


# ---- GGUF ------------------------------------------------------------------------------------------------------------


def test_user_defined_blanks_of_a_gguf_file() -> None:
    """Gemma's runs of blanks, which a file has as they are (token_type 4), as a tokenizer.model finds them."""
    import sentencepiece

    runs = [BLANK * n for n in range(2, 17)]
    model = sentencepiece_model(user_defined_symbols=[*runs, "\n\n", "<b>"], add_dummy_prefix=False)
    wanted = sentencepiece.SentencePieceProcessor(model_proto=model).EncodeAsIds
    parsed = parse(model, "m")
    types = list(parsed.types)
    texts = [text.replace(BLANK, " ") if kind == 4 else text for text, kind in zip(parsed.pieces, types)]
    assert "  " in texts
    arrays = TokenizerSpec(kind="sentencepiece", tokens=texts, scores=parsed.scores, types=types, bos_id=1,
                           eos_ids=(2,), add_space_prefix=False)
    tokenizer = Tokenizer.build(arrays)

    @settings(max_examples=200)
    @given(st.lists(st.sampled_from(["a", "b", " ", "  ", "   ", "\n", "<b>", "the", "é"]), max_size=12).map("".join))
    def check(text: str) -> None:
        assert tokenizer.encode(text) == wanted(text)
        assert tokenizer.decode(tokenizer.encode(text)) == text

    check()
    assert tokenizer.encode("a  b") == [wanted("a")[0], texts.index("  "), *wanted("b")]
    # llama.cpp puts a blank, where a file has them, at the start and behind each token that it finds first
    prefixed = Tokenizer.build(replace(arrays, add_space_prefix=True))
    assert prefixed.encode("a<b>b") == [*wanted(" a"), texts.index("<b>"), *wanted(" b")]
    assert prefixed.encode("a  b<s>", special=True) == [*wanted(" a"), texts.index("  "), *wanted(" b"), 1]


# ---- special tokens that are looked for in normalised text -----------------------------------------------------------


def test_a_special_token_in_normalised_text(tmp_path: Path) -> None:
    """In what a template wrote; users cannot write one, whatever they write around it."""
    answer = {"content": "<Ans>", "normalized": True, "special": True}
    fast = json_of_pieces(sentencepiece_model(), normalizer={"type": "Sequence", "normalizers": [
        {"type": "Lowercase"}, ESCAPE]})
    fast["added_tokens"].append({**dict.fromkeys(("single_word", "lstrip", "rstrip"), False), "id": 1000, **answer})
    other, tokenizer = library(fast), Tokenizer.build(spec_of(tmp_path, sentencepiece_model(), fast))
    text = "a <Ans> b <ans> c <ANS>"
    assert tokenizer.encode(text, special=True).count(1000) == 3
    assert tokenizer.encode(text, special=True) == other.encode(text, add_special_tokens=False).ids
    assert 1000 not in tokenizer.encode(text)
    for parts in ((("<ANS> ", True), ("Hi <", False), ("ans> ", True), ("<Ans>", False), (" <ans>", True)),
                  (("<a", True), ("n", False), ("s>", True)), (("<an", False), ("s>", True)), (("", False),)):
        ids = tokenizer.encode_parts(parts)
        assert ids.count(1000) == sum(special and text.strip().lower() == "<ans>" for text, special in parts)
        assert tokenizer.decode(ids).split() == "".join(
            text.lower() for text, special in parts if not special or text.strip().lower() != "<ans>").split()
    assert Added(1000, normalized=True) in spec_of(tmp_path, sentencepiece_model(), fast).added.values()
