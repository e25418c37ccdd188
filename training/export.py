"""``python -m training.export RUN``: the model of a run as a Hugging Face directory and as the engine's GGUF.

RUN/huggingface has the float32 weights, which transformers and ``bitnet-edge convert`` round as training did
("online" quantisation of BitNetForCausalLM); RUN/NAME.gguf is converted from it.
"""

from __future__ import annotations

import argparse
import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors.torch import save_file

from training.model import Model, Shape
from training.quantise import BitLinear
from training.run import Run
from training.tokenizer import BOS, END, EOT

TEMPLATE = "bitnet-edge"  # a name in edge.prompt.template.FAMILIES


def config(shape: Shape) -> dict[str, Any]:
    """config.json."""
    described: dict[str, Any] = {
        "architectures": ["BitNetForCausalLM"],
        "model_type": "bitnet",
        "vocab_size": shape.n_vocab,
        "hidden_size": shape.hidden,
        "intermediate_size": shape.ffn,
        "num_hidden_layers": shape.n_layer,
        "num_attention_heads": shape.n_head,
        "num_key_value_heads": shape.n_kv_head,
        "head_dim": shape.head_dim,
        "hidden_act": "relu2",
        "rms_norm_eps": shape.eps,
        "rope_theta": shape.rope_theta,
        "rope_parameters": {"rope_type": "default", "rope_theta": shape.rope_theta},
        "max_position_embeddings": shape.n_ctx,
        "tie_word_embeddings": True,
        "bos_token_id": 0,
        "eos_token_id": 1,
        "pad_token_id": 2,
        "attention_bias": False,
        "use_cache": True,
        "dtype": "float32",
    }
    if shape.scheme != "v1":
        described["quantization_config"] = {
            "quant_method": "bitnet",
            "linear_class": "autobitlinear",
            "quantization_mode": "online",
        }
    if shape.scheme == "a4.8":  # our own word: transformers knows 8-bit activations only
        described["quantization_config"]["activation_quantization"] = "a4.8"
    return described


def write_huggingface(model: Model, tokenizer: Path, folder: Path) -> None:
    """The Hugging Face directory."""
    from edge.prompt.template import source

    folder.mkdir(parents=True, exist_ok=True)
    tokenizer_config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": BOS,
        "eos_token": EOT,
        "pad_token": END,
        "model_max_length": model.shape.n_ctx,
        "chat_template": source(TEMPLATE),
    }
    described = {
        "config.json": config(model.shape),
        "generation_config.json": {"bos_token_id": 0, "eos_token_id": [1, 2], "pad_token_id": 2},
        "tokenizer_config.json": tokenizer_config,
    }
    for name, content in described.items():
        (folder / name).write_text(json.dumps(content, indent=1) + "\n")
    shutil.copyfile(tokenizer, folder / "tokenizer.json")
    tensors = dict(model.state_dict())
    if model.shape.scheme == "v1":  # no reader rounds to signs by itself: the rounded weights are written
        for name, module in model.named_modules():
            if isinstance(module, BitLinear):
                integers, scale = module.weights(module.weight)
                tensors[f"{name}.weight"] = (integers * scale).detach()
    save_file({f"model.{name}": tensor.contiguous() for name, tensor in tensors.items()},
              folder / "model.safetensors", metadata={"format": "pt"})


def export(run: Run, name: str, extra: Mapping[str, str] | None = None) -> Path:
    """RUN/huggingface and RUN/NAME.gguf -> the latter; ``extra``: further metadata of it."""
    from edge.tools.convert import convert

    write_huggingface(run.model(), run.tokenizer, run.folder / "huggingface")
    path = run.folder / f"{name}.gguf"
    convert(run.folder / "huggingface", path, force=True, extra={"general.name": name, **(extra or {})})
    return path


def main() -> None:
    parser = argparse.ArgumentParser(description="Write the model of a run as a Hugging Face directory and as GGUF.")
    parser.add_argument("run")
    parser.add_argument("--name", default="model", help="name of the GGUF file, without its ending")
    given = parser.parse_args()
    print(export(Run(given.run), given.name))


if __name__ == "__main__":
    main()
