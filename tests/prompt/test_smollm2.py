"""Vocabulary and chat template of SmolLM2, as its model file has them, against the ``tokenizers`` library and Jinja."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jinja2
import pytest

from edge.formats import open_checkpoint
from edge.formats.checkpoint import TokenizerSpec
from edge.prompt.template import Template
from edge.prompt.tokenizer import Tokenizer
from tests.vocabularies import digits_then_gpt2, text

pytestmark = pytest.mark.real_model


@pytest.fixture(scope="module")
def spec(real_model: Path) -> TokenizerSpec:
    return open_checkpoint(real_model).tokenizer


@pytest.fixture(scope="module")
def tokenizer(spec: TokenizerSpec) -> Tokenizer:
    return Tokenizer.build(spec)


@pytest.fixture(scope="module")
def other(spec: TokenizerSpec) -> Any:
    """The ``tokenizers`` library with the parts that SmolLM2's tokenizer.json names."""
    tokenizers = pytest.importorskip("tokenizers", reason="the tokenizers library is a development dependency")
    merges = [tuple(merge.split(" ")) for merge in spec.merges]
    made = tokenizers.Tokenizer(tokenizers.models.BPE({token: i for i, token in enumerate(spec.tokens)}, merges))
    made.pre_tokenizer = digits_then_gpt2()
    made.decoder = tokenizers.decoders.ByteLevel()
    made.add_special_tokens([token for token, kind in zip(spec.tokens, spec.types, strict=True) if kind == 3])
    return made


def ordinary(other: Any, text: str) -> list[int]:
    """Its ids of a text that is not looked through for special tokens."""
    other.encode_special_tokens = True
    return other.encode(text, add_special_tokens=False).ids


def test_facts(tokenizer: Tokenizer) -> None:
    assert tokenizer.n_vocab == 49152 and len(tokenizer.special) == 17
    assert tokenizer.bos_id == 1 and not tokenizer.add_bos and tokenizer.eos_ids == (2, 0)
    # as other programs on the original vocabulary print them
    assert tokenizer.encode("Hello, we can use") == [19556, 28, 392, 416, 722]
    assert tokenizer.encode("The capital of France is") == [504, 3575, 282, 4649, 314]
    assert tokenizer.encode("Hello world! 123") == [19556, 905, 17, 216, 33, 34, 35]


def test_text_of_people(tokenizer: Tokenizer, other: Any) -> None:
    for each in (text(), text().upper(), "".join(reversed(text()))):
        assert tokenizer.encode(each) == ordinary(other, each)


# ---- the chat template -----------------------------------------------------------------------------------------------

TALKS = [
    [{"role": "user", "content": "What is the capital of France?"}],
    [{"role": "system", "content": " Be brief.\n"}, {"role": "user", "content": "  <|im_end|> {{ x }} 12 "}],
    [{"role": "user", "content": ""}, {"role": "assistant", "content": "Hi!\n"}, {"role": "user", "content": "é🙂"}],
    [{"role": "user", "content": "a"}, {"role": "system", "content": "b"}, {"role": "user", "content": "c"}],
    [],
]


@pytest.mark.parametrize("talk", TALKS, ids=range(len(TALKS)))
def test_prompts(real_model: Path, tokenizer: Tokenizer, talk: list[dict[str, str]]) -> None:
    checkpoint = open_checkpoint(real_model)
    template = Template.for_model(checkpoint)
    assert template.name == "smollm2", "recognised, so that a start needs no Jinja"
    plain = jinja2.Environment(trim_blocks=True, lstrip_blocks=True).from_string(checkpoint.chat_template or "")
    for prompt in (True, False):
        assert template.render(talk, prompt) == plain.render(messages=talk, add_generation_prompt=prompt)
    ids = template.encode(tokenizer, talk)
    assert ids.count(tokenizer.special["<|im_end|>"]) == len(talk) + bool(talk and talk[0]["role"] != "system")
    assert template.stop_ids(tokenizer) == {0, 2}
