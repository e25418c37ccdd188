"""Vocabularies for tests: trained here, in the formats that models come with, or other people's where they are there.

Trained ones are made by other people's trainers of our documentation, so nothing of theirs has to be kept: what a file
says, how text is cut and joined, and what a second library makes of it is tested with them.  What only other people's
vocabularies can show is that the ids are those that a real model was trained with.
"""

from __future__ import annotations

import functools
import io
import json
import os
import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import reject

from edge.formats import container, gguf_tokenizer, huggingface_tokenizer
from edge.formats import sentencepiece_model as sentencepiece_model_file
from edge.formats.checkpoint import Checkpoint, TokenizerSpec
from edge.formats.gguf_tokenizer import tokenizer_keys
from edge.prompt.tokenizer import Tokenizer
from edge.prompt.tokenizer.byte_level import PATTERNS

ROOT = Path(__file__).resolve().parent.parent
#: a folder of data that may not live in the repository: other people's vocabularies, an earlier model
DATA = Path(os.environ.get("TEST_DATA") or ROOT / "build" / "no-data")
FOREIGN = DATA / "vocab"
FOREIGN_NAMES = ("llama-bpe", "qwen2", "gpt-2", "falcon", "llama-spm", "phi-3")
#: split patterns of byte-level vocabularies, and a SentencePiece vocabulary made as Llama 2's was
TRAINED_NAMES = ("trained llama-bpe", "trained qwen2", "trained gpt-2", "trained smollm", "trained falcon",
                 "trained spm")

needs_foreign = pytest.mark.skipif(
    not FOREIGN.is_dir(),
    reason="needs TEST_DATA=FOLDER, with vocab: llama.cpp's vocabularies, which are not part of this repository, and "
    "the ids that llama.cpp gives with them (trained vocabularies cover the rest)",
)


def by_name(names: tuple[str, ...]) -> pytest.MarkDecorator:
    """Parametrizes ``name``.  Where other people's are not there, trained ones stand in for them; what has none to
    stand in is skipped."""
    trained = tuple(name for name in names if name in TRAINED_NAMES)
    if trained and not FOREIGN.is_dir():
        names = trained
    return pytest.mark.parametrize(
        "name", [name if name in TRAINED_NAMES else pytest.param(name, marks=needs_foreign) for name in names])


def in_file(path: Path) -> TokenizerSpec:
    """The specification in a GGUF file, which may hold nothing else."""
    header = container.read_header(path)
    return gguf_tokenizer.describe(header, len(header.strings("tokenizer.ggml.tokens")), [])


def converted(spec: TokenizerSpec, folder: Path, n_vocab: int = 1100) -> TokenizerSpec:
    """What the file says that is written of a vocabulary."""
    config: Any = SimpleNamespace(n_vocab=n_vocab)
    checkpoint = Checkpoint("m", "huggingface", config, {}, spec, None, {})
    container.write(folder / "v.gguf", {"general.architecture": "llama", **tokenizer_keys(checkpoint)}, [])
    return in_file(folder / "v.gguf")


def ids_of(other: Any, text: str) -> Any:
    """The ids of the ``tokenizers`` library, in a test of hypothesis."""
    try:
        return other.encode(text, add_special_tokens=False).ids
    except BaseException as error:
        if type(error).__name__ == "PanicException":  # it loses count of bytes cut behind ByteLevel
            reject()
        raise


def text() -> str:
    """Our documentation: what is trained on."""
    return "\n".join(page.read_text() for page in sorted((ROOT / "docs").glob("*.md")))


@functools.cache
def vocabulary(name: str) -> Tokenizer:
    """The tokenizer of one of FOREIGN_NAMES or TRAINED_NAMES."""
    return Tokenizer.build(spec_of(name))


@functools.cache
def spec_of(name: str) -> TokenizerSpec:
    """The specification in its file."""
    if not name.startswith("trained "):
        return in_file(FOREIGN / f"ggml-vocab-{name}.gguf")
    if name == "trained spm":
        return TokenizerSpec(kind="sentencepiece", model=sentencepiece_model(), bos_id=1, eos_ids=(2,))
    other = trained_by_hugging_face(name)
    with tempfile.TemporaryDirectory() as folder:
        other.save(f"{folder}/tokenizer.json")
        settings = {"bos_token": "<|begin_of_text|>", "eos_token": "<|end_of_text|>"}
        return huggingface_tokenizer.read(folder, {}, {}, settings, None, other.get_vocab_size(), [])


@functools.cache
def trained_by_hugging_face(name: str) -> Any:
    """A byte-level vocabulary of 3,000 tokens, as the ``tokenizers`` library trains and uses it."""
    tokenizers = pytest.importorskip("tokenizers", reason="the tokenizers library is a development dependency")
    from tokenizers import Regex, decoders, models, pre_tokenizers, trainers

    made = tokenizers.Tokenizer(models.BPE())
    made.pre_tokenizer = digits_then_gpt2() if name == "trained smollm" else pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(PATTERNS[name.removeprefix("trained ")]), "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
    ])
    made.decoder = decoders.ByteLevel()
    made.train_from_iterator([text()], trainers.BpeTrainer(
        vocab_size=3000, show_progress=False, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        special_tokens=["<|begin_of_text|>", "<|end_of_text|>", "<|eot_id|>", "<|im_start|>", "<tool_call>"]))
    return made


def digits_then_gpt2() -> Any:
    """The split of SmolLM2's tokenizer.json."""
    from tokenizers import pre_tokenizers

    return pre_tokenizers.Sequence([
        pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)])


def json_of_pieces(model: bytes, **changes: Any) -> dict[str, Any]:
    """A tokenizer.json of a tokenizer.model that merges, as transformers makes it; ``changes`` to its steps."""
    pytest.importorskip("tokenizers", reason="the tokenizers library is a development dependency")
    from tokenizers import Tokenizer as Library
    from tokenizers import models

    parsed = sentencepiece_model_file.parse(model, "tokenizer.model")
    vocab = {text: i for i, text in enumerate(parsed.pieces)}
    splits = [(vocab[text[:n]], vocab[text[n:]], text[:n], text[n:]) for text, kind in zip(parsed.pieces, parsed.types)
              if kind == 1 for n in range(1, len(text)) if text[:n] in vocab and text[n:] in vocab]
    merges = [pair[2:] for pair in sorted(splits, key=lambda pair: (-parsed.scores[vocab[pair[2] + pair[3]]], pair))]
    made = json.loads(Library(models.BPE(vocab, merges, fuse_unk=True, byte_fallback=True, unk_token="<unk>")).to_str())
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    made["added_tokens"] = [{"id": i, "content": text, **flags, "special": kind != 4}
                            for i, (text, kind) in enumerate(zip(parsed.pieces, parsed.types)) if kind in (2, 3, 4)]
    made["decoder"] = {"type": "Sequence", "decoders": [
        {"type": "Replace", "pattern": {"String": "\u2581"}, "content": " "}, {"type": "ByteFallback"},
        {"type": "Fuse"}]}
    return {**made, **changes}


def sentencepiece_model(**options: Any) -> bytes:
    """A tokenizer.model of 1,000 pieces, trained as Llama 2's was; ``options`` of its trainer change that."""
    import sentencepiece

    out = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(text().splitlines()[:1500]), model_writer=out, minloglevel=2, num_threads=1,
        **{"model_type": "bpe", "vocab_size": 1000, "byte_fallback": True, "normalization_rule_name": "identity",
           "remove_extra_whitespaces": False, "split_digits": True, "allow_whitespace_only_pieces": True, **options})
    return out.getvalue()
