"""Makes tests/vectors/tokenizer/folders.json: the ids that transformers gives for folders with a tokenizer.model.

The folders differ in what says how blanks are written: the class, ``legacy``, ``add_prefix_space``, the steps of a
tokenizer.json next to it, and whether the model itself puts a blank in front.  It runs where transformers is, too:

    pip install transformers sentencepiece protobuf && python -m tests.vectors.make_folders
"""

from __future__ import annotations

import itertools
import json
import tempfile
from pathlib import Path
from typing import Any

from tests.vocabularies import json_of_pieces

HERE = Path(__file__).parent / "tokenizer"
BLANK = {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"}
PREPEND = {"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "\u2581"}, BLANK]}
#: kind of tokenizer.json -> its normalizer and pre_tokenizer
STEPS: dict[str, tuple[Any, Any]] = {
    "prepend": (PREPEND, None),
    "replace": (BLANK, None),
    **{scheme: (None, {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": scheme, "split": False})
       for scheme in ("first", "always", "never")},
}
TEXTS = ["Hello", " Hello", "  Hello", "Hello ", "a  b", "<s>Hello", "<s> Hello", "<s>  Hello", "<s>Hello </s>",
         "<s>a</s>b", "<s>a</s> b", "a<s>b", " <s>b", "<s> <s>", "<s></s>", "", "  ", "Hello\n", "\nHello",
         "<s>\nHello", "\u2581Hello", "<s>\u2581Hello", "<s>  ", "<unk> a", "a </s> b", "naïve 你好 🙂",
         "<s>[INST] Hi there [/INST] Yes </s><s>[INST]"]


def write(folder: Path, dummy: bool, name: str | None, legacy: bool | None, prefix: bool | None, kind: str | None,
          ) -> dict[str, Any]:
    """Write the files of one folder.  Returns its tokenizer_config.json."""
    # what comes last in a message counts: the normaliser's add_dummy_prefix
    model = (HERE / "spm512.model").read_bytes() + (b"" if dummy else b"\x1a\x02\x18\0")
    (folder / "tokenizer.model").write_bytes(model)
    (folder / "tokenizer.json").unlink(missing_ok=True)
    if kind is not None:
        normalizer, pre_tokenizer = STEPS[kind]
        stated = json_of_pieces(model, normalizer=normalizer, pre_tokenizer=pre_tokenizer)
        (folder / "tokenizer.json").write_text(json.dumps(stated))
    said = {"tokenizer_class": name, "legacy": legacy, "add_prefix_space": prefix}
    settings = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>",
                **{key: value for key, value in said.items() if value is not None}}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    (folder / "config.json").write_text('{"model_type": "llama", "architectures": ["LlamaForCausalLM"]}')
    return settings


def main() -> None:
    import transformers

    flags = (None, True, False)
    rows, answers = [], []
    with tempfile.TemporaryDirectory() as name:
        for case in itertools.product((True, False), ("LlamaTokenizer", "LlamaTokenizerFast", "PreTrainedTokenizerFast",
                                                      None), flags, flags, (None, *STEPS)):
            write(Path(name), *case)
            tokenizer = transformers.AutoTokenizer.from_pretrained(name)
            ids = [tokenizer.encode(text, add_special_tokens=False) for text in TEXTS]
            if ids not in answers:
                answers.append(ids)
            rows.append([*case, answers.index(ids)])
    lines = ",\n ".join(map(json.dumps, rows))
    given = ",\n ".join(map(json.dumps, answers))
    (HERE / "folders.json").write_text(
        f'{{"transformers": "{transformers.__version__}",\n"texts": {json.dumps(TEXTS)},\n"answers": [{given}],\n'
        f'"folders": [{lines}]}}\n')


if __name__ == "__main__":
    main()
