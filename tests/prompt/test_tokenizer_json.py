"""What a tokenizer.json may say about text, against the library it was made for: normal forms, cuts, added tokens; the
same from the file that ``convert`` writes of it.
"""

from __future__ import annotations

import json
import random
import unicodedata
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from edge.constrain.vocabulary import Vocabulary
from edge.errors import InvalidFile
from edge.formats import huggingface_tokenizer, text_steps
from edge.formats.checkpoint import Added, TokenizerSpec
from edge.prompt.tokenizer import StreamDecoder, Tokenizer
from edge.prompt.tokenizer.steps import cutter, normaliser
from edge.session.stream import Stream
from tests.vocabularies import converted, ids_of, trained_by_hugging_face

FORMS = ("NFC", "NFD", "NFKC", "NFKD")
WORDS = ("Tiếng Việt rất đẹp", "한국어 문장입니다", "für schön", "Å Å Å", "ﬁne ①½ ｶﾞ", "क्षि ड़", "👩‍👩‍👧 🏳️‍🌈 ☝🏽",
         "ΑΣ Σας İIı ẞß", "a\u0315\u0300\u05ae\u0062 q\u0323\u0307", "\u1112\u1161\u11ab ᄀᆨ",
         "  spaced \u2003out\u3000 ")


def library(**changes: Any) -> Any:
    """A byte-level vocabulary of the ``tokenizers`` library with other settings in its tokenizer.json."""
    import tokenizers

    stated = json.loads(trained_by_hugging_face("trained qwen2").to_str())
    stated["model"] |= changes.pop("model", {})
    for token in changes.pop("added", ()):
        known = {"id": len(stated["model"]["vocab"]) + len(stated["added_tokens"]), "special": False, "lstrip": False,
                 "rstrip": False, "single_word": False, "normalized": False}
        stated["added_tokens"].append({**known, **token})
    return tokenizers.Tokenizer.from_str(json.dumps(stated | changes))


def spec_of(other: Any, folder: Path, **settings: Any) -> TokenizerSpec:
    other.save(str(folder / "tokenizer.json"))
    return huggingface_tokenizer.read(str(folder), {}, {}, settings, None, other.get_vocab_size(), [])


def same(other: Any, tokenizer: Tokenizer, text: str) -> None:
    ids = ids_of(other, text)
    assert tokenizer.encode(text, special=True) == ids, text
    other.encode_special_tokens = True
    assert tokenizer.encode(text) == ids_of(other, text), text
    other.encode_special_tokens = False
    # damaged where letters of an added text stand for bytes; a normal form where tokenizers 0.23 keeps no other
    said = other.decode(ids, skip_special_tokens=True)
    changed = any(other.decode([i], skip_special_tokens=False) != tokenizer.token_text(i) for i in ids if i >= 3000)
    assert tokenizer.decode(ids) == said or changed or "\ufffd" in said


# ---- normal forms ----------------------------------------------------------------------------------------------------


def characters() -> Iterator[str]:
    """Every character that was assigned in 2017: what is newer than the tables of one of two libraries differs."""
    old = unicodedata.ucd_3_2_0.category
    for i in range(0x110000):
        if not 0xD800 <= i < 0xE000 and old(chr(i)) not in ("Cn", "Co"):
            yield chr(i)


@pytest.mark.parametrize("kind", [*FORMS, "Lowercase", "StripAccents"])
def test_every_character_in_every_form(kind: str) -> None:
    normalizers = pytest.importorskip("tokenizers").normalizers
    other, ours = getattr(normalizers, kind)().normalize_str, normaliser(text_steps.normalizer({"type": kind}))
    texts = list(characters())
    for form in FORMS:
        for written in ("\n".join(texts), "b\na".join(texts), "\u0323\u0301b\n".join(texts)):
            text = unicodedata.normalize(form, written)
            assert ours(text).split("\n") == other(text).split("\n")


# ---- any tokenizer.json ----------------------------------------------------------------------------------------------

SPLITS = st.fixed_dictionaries({
    "type": st.just("Split"),
    "pattern": st.sampled_from([{"Regex": r"\p{N}{1,3}"}, {"Regex": r"\s+"}, {"Regex": "[一-龥가-힣]+"},
                                {"Regex": r" ?\p{L}+"}, {"String": "."}, {"Regex": "'s|'t|[.,]"}, {"String": " t"}]),
    "behavior": st.sampled_from(text_steps.BEHAVIORS),
    "invert": st.booleans(),
})
OTHERS = st.sampled_from([
    {"type": "Digits", "individual_digits": True}, {"type": "Digits", "individual_digits": False},
    {"type": "Punctuation", "behavior": "Contiguous"}, {"type": "Punctuation", "behavior": "Isolated"},
    {"type": "Punctuation", "behavior": "MergedWithNext"}, {"type": "WhitespaceSplit"}, {"type": "Whitespace"},
    {"type": "CharDelimiterSplit", "delimiter": "a"},
])
BYTE_LEVELS = st.fixed_dictionaries({
    "type": st.just("ByteLevel"), "add_prefix_space": st.booleans(), "trim_offsets": st.booleans(),
    "use_regex": st.booleans()})
NORMALIZERS = st.sampled_from([
    *({"type": kind} for kind in (*FORMS, "Lowercase", "StripAccents")),
    {"type": "Strip", "strip_left": True, "strip_right": False},
    {"type": "Strip", "strip_left": False, "strip_right": True},
    {"type": "Replace", "pattern": {"String": "e"}, "content": "ee"}, {"type": "Prepend", "prepend": "x "},
    {"type": "Replace", "pattern": {"Regex": r"\s+"}, "content": " "},
])
TOKENS = ("<answer>", "[REF]", "<br>", "straße", "é!", "E\u0301t", "  ", "the", "<|user|>", "<|x|>", "</s>")


@st.composite
def added_tokens(draw: st.DrawFn) -> list[dict[str, Any]]:
    flags = st.fixed_dictionaries({key: st.booleans() for key in Added._fields[2:]})
    texts = draw(st.lists(st.sampled_from(TOKENS), max_size=4, unique=True))
    # formats are made of "<|...|>", and what ends a turn ends it, whatever a file says
    return [{**draw(flags), "content": text, "special": text in TOKENS[-3:] or (text[0] == "<" and draw(st.booleans())),
             **({"normalized": False} if text == "  " else {})} for text in texts]  # no normal form is empty


@st.composite
def tokenizer_jsons(draw: st.DrawFn) -> Any:
    def nested(kind: str, key: str, steps: list[Any]) -> Any:
        if len(steps) > 2 and draw(st.booleans()):
            steps = [{"type": "Sequence", key: steps[:2]}, *steps[2:]]
        return steps[0] if len(steps) == 1 else {"type": "Sequence", key: steps}

    behind = draw(st.lists(st.just({"type": "Digits", "individual_digits": False}), max_size=1))  # as in Falcon's
    cuts = [*draw(st.lists(st.one_of(SPLITS, OTHERS), max_size=3)), draw(BYTE_LEVELS), *behind]
    changes = draw(st.lists(NORMALIZERS, max_size=3))
    return library(pre_tokenizer=nested("pre_tokenizer", "pretokenizers", cuts), added=draw(added_tokens()),
                   normalizer=nested("normalizer", "normalizers", changes) if changes else None,
                   model={"ignore_merges": draw(st.booleans())})


TEXTS = st.lists(
    st.sampled_from([*WORDS, *TOKENS, *map(str.title, TOKENS), *map(str.upper, TOKENS),
                     " ", "\n", "a", "the ", "E", ".", "12345", "don't", "²½", "_", "e\u0301"])
    | st.text(st.characters(max_codepoint=0x24F), max_size=4), max_size=12,
).map("".join)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(other=tokenizer_jsons(), texts=st.lists(TEXTS, min_size=1, max_size=6), form=st.sampled_from(FORMS))
def test_any_tokenizer_json(tmp_path_factory: pytest.TempPathFactory, other: Any, texts: list[str], form: str) -> None:
    """Ids, what is read of them, and both again from the file that is written of it."""
    folder = tmp_path_factory.mktemp("t")
    spec = spec_of(other, folder)
    for each in (spec, converted(spec, folder, len(spec.tokens))):
        tokenizer = Tokenizer.build(each)
        for text in [*texts, unicodedata.normalize(form, texts[0])]:
            same(other, tokenizer, text)


# ---- what is refused, and what users see -----------------------------------------------------------------------------

LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}


@pytest.mark.parametrize(("changes", "words"), [
    *(({"normalizer": {"type": "Sequence", "normalizers": [{"type": kind}]}}, f"normalizer '{kind}' is not supported")
      for kind in ("BertNormalizer", "Nmt", "ByteLevel", "Precompiled")),
    ({"normalizer": {"type": "NFC", "form": 2}}, "normalizer NFC: 'form' is not supported"),
    ({"normalizer": {"type": "Replace", "pattern": {"Glob": "*"}, "content": ""}}, "pattern .* is not one Regex or"),
    ({"pre_tokenizer": {"type": "Metaspace"}}, "pre_tokenizer 'Metaspace' is not supported"),
    ({"pre_tokenizer": {"type": "Sequence", "pretokenizers": [{"type": "Sequence", "pretokenizers": [
        {"type": "UnicodeScripts"}]}, LEVEL]}}, "pre_tokenizer 'UnicodeScripts' is not supported"),
    ({"pre_tokenizer": {**LEVEL, "use_regex": "no"}}, "ByteLevel: use_regex is 'no', which is not supported"),
    ({"pre_tokenizer": None}, "does not have one step ByteLevel"),
    ({"pre_tokenizer": [LEVEL, LEVEL]}, "does not have one step ByteLevel"),
    ({"model": {"dropout": 0.1}}, "model.dropout is 0.1, which is not supported"),
    ({"model": {"end_of_word_suffix": "</w>"}}, "model.end_of_word_suffix is '</w>', which is not supported"),
])
def test_what_is_not_known_is_refused_by_name(tmp_path: Path, changes: dict[str, Any], words: str) -> None:
    stated = json.loads(trained_by_hugging_face("trained qwen2").to_str())
    stated["model"] |= changes.pop("model", {})
    (tmp_path / "tokenizer.json").write_text(json.dumps(stated | changes))
    with pytest.raises(InvalidFile, match=words):
        huggingface_tokenizer.read(str(tmp_path), {}, {}, {}, None, 4000, [])


def test_white_space_next_to_the_markers_of_a_template(tmp_path: Path) -> None:
    """Of a template and of users: "<|user|>" of Phi-3 takes the line end behind it along."""
    other = library(added=[{"content": "<|user|>", "special": True, "rstrip": True},
                           {"content": "<|end|>", "special": True, "lstrip": True}])
    tokenizer = Tokenizer.build(spec_of(other, tmp_path))
    for before, typed, after in (("<|user|>\n", "Hi", "<|end|>\n"), ("<|user|>", "\n Hi \n", "\n<|end|>")):
        ids = tokenizer.encode_parts(((before, True), (typed, False), (after, True)))
        assert ids == other.encode(before + typed + after, add_special_tokens=False).ids


def test_an_added_token_is_text_and_stops(tmp_path: Path) -> None:
    """It is shown, and the end of an answer can be found in it; a special one is neither."""
    other = library(added=[{"content": text} for text in ("<answer>", "</answer>", "[REF]", "<br>")]
                    + [{"content": "<gone>", "special": True}])
    for spec in (made := spec_of(other, tmp_path), converted(made, tmp_path, len(made.tokens))):
        tokenizer = Tokenizer.build(spec)
        ids = other.encode("<answer>4[REF]<br></answer> more<gone>", add_special_tokens=False).ids
        assert tokenizer.decode(ids) == other.decode(ids) == "<answer>4[REF]<br></answer> more"
        stream = Stream(StreamDecoder(tokenizer), stop=["</answer>"])
        shown = [piece.text for id in ids if not stream.stopped for piece in stream.push(id)]
        assert stream.stopped and "".join(shown) == "<answer>4[REF]<br>"
        assert other.token_to_id("<gone>") not in tokenizer.encode("<gone>")


def test_a_form_is_spelled_as_it_is(tmp_path: Path) -> None:
    """Grammars ask for the tokens of bytes; a tokenizer that changes text, or begins it, does not change these."""
    for changes in ({"normalizer": {"type": "Lowercase"}}, {"pre_tokenizer": {**LEVEL, "add_prefix_space": True}}):
        tokenizer = Tokenizer.build(spec_of(library(**changes), tmp_path))
        encode = Vocabulary(tokenizer, tokenizer.n_vocab, []).encode
        for text in ('{"Name": ', "the", "Zu\u0308rich", " the"):
            assert tokenizer.decode(encode(text)) == text


def test_every_character_is_the_same_tokens(tmp_path: Path) -> None:
    """Alone, between letters, and there in its parts; of Han and Hangul every eighth."""
    other = library(normalizer={"type": "NFC"})
    tokenizer = Tokenizer.build(spec_of(other, tmp_path))
    few = [c for i, c in enumerate(characters()) if not ("\u3400" <= c <= "\ud7a3" or c > "\U00020000") or not i % 8]
    texts = [text for c in few for text in (c, f"a{c}b", f"a{unicodedata.normalize('NFD', c)}b")]
    for text, found in zip(texts, other.encode_batch_fast(texts, add_special_tokens=False)):
        assert tokenizer.encode(text) == found.ids, ascii(text)


# ---- patterns --------------------------------------------------------------------------------------------------------

PATTERNS = (
    r"\w", r"\W", r"[\w-]", r"[^\w]", r"[\W\d]", r"\w+|[^\w\s]+", r"\p{Word}", r"[\p{Word}a]", r"\d", r"\s",
    r"\b.", r"\B.",
    r"\h", r"[^\h]", "[[:alpha:]]", "[[:alnum:]]", "[[:digit:]]", "[[:^digit:]]", "[[:punct:]]",
    "[[:^punct:]a]", "[[:word:]]",
    "^.", ".$", "^.*$", "(?m).", "(?m-i:.)a", r"\A.", r".\Z", r".\z", r"\N", r"\O", r"\R", "(?i)ß", "(?i)ss",
    "[a[b]]", "[^a[b]]",
    "[a||b]", "[a~~b]", "[a-z&&[^aeiou]]", "[]a]", "a{,3}", "a++", r"(\d{3})+$", r"\d{1,3}(?=(?:\d{3})*\b)",
    "[:alpha:]",
    r" ?[^(\s|[.,!?…。，、।۔،])]+",  # BLOOM's
)


@pytest.mark.parametrize("pattern", PATTERNS)
def test_patterns_mean_what_they_mean_to_the_library(pattern: str) -> None:
    tokenizers = pytest.importorskip("tokenizers")
    drawn = random.Random(7)
    letters = [*"abAB12 \n\r-|~&[]:^$_x'sſkK", *"éß²½٣Ⓐ\u200d漢🙂\u0301Σ—€।\u2028\x85"]
    texts = [*map(chr, range(0x3000)), *("".join(drawn.choices(letters, k=drawn.randint(2, 12))) for _ in range(500)),
             "a\n", "\na", "a\nb\n", "1234567", "½ x²", "👩‍👩‍👧", "aaaa", "SS"]
    for behavior, invert in (("Isolated", False), ("Removed", True)):
        step = {"type": "Split", "pattern": {"Regex": pattern}, "behavior": behavior, "invert": invert}
        other = tokenizers.pre_tokenizers.Split(tokenizers.Regex(pattern), behavior.lower(), invert)
        cut = cutter([step])
        for text in texts:
            if all(unicodedata.ucd_3_2_0.category(c) != "Cn" for c in text):
                assert cut(text) == [piece for piece, _ in other.pre_tokenize_str(text)], ascii(text)


@pytest.mark.parametrize("pattern", [r"(?<n>a)\k<n>", r"(?<n>a|b\g<n>)", r"a\Kb", "a{2}+", "[+--]", "a(?i)b|x"])
def test_a_pattern_that_would_mean_something_else_is_refused(pattern: str) -> None:
    with pytest.raises(InvalidFile, match="which is not supported"):
        cutter([text_steps.split(pattern)])
