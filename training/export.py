"""``python -m training.export RUN FOLDER``: a trained model as a Hugging Face directory and as the engine's GGUF.

FOLDER/master gets the float32 weights, which transformers and our converter round as training did
(``BitNetForCausalLM``, "online" quantisation); FOLDER/NAME.gguf is made of it by :func:`edge.tools.convert.convert`.
"""

from __future__ import annotations

import argparse
import json
import shutil
from pathlib import Path
from typing import Any

from safetensors.torch import load_file, save_file

from training.checkpoint import Run
from training.model import Model, Shape
from training.quantise import binary
from training.tokenizer import BOS, END, EOT

TEMPLATE = "bitnet-edge"  # of edge.prompt.template.FAMILIES

_ATTENTION = ("q_proj", "k_proj", "v_proj", "o_proj", "attn_sub_norm")
_MLP = ("gate_proj", "up_proj", "down_proj", "ffn_sub_norm")


def tensor_name(ours: str) -> str:
    """The name that transformers' BitNetForCausalLM gives a parameter of ours."""
    *path, last = ours.split(".")
    part = "self_attn." if last in _ATTENTION else "mlp." if last in _MLP else ""
    return ".".join(["model", *path, f"{part}{last}", "weight"])


def config(shape: Shape) -> dict[str, Any]:
    """config.json."""
    described = {
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
    if shape.scheme in ("b1.58", "a4.8"):
        described["quantization_config"] = {
            "quant_method": "bitnet",
            "linear_class": "autobitlinear",
            "quantization_mode": "online",
        }
    if shape.scheme == "a4.8":  # our own word: transformers knows 8-bit activations only
        described["quantization_config"]["activation_quantization"] = "a4.8"
    return described


def write_master(model: Model, tokenizer: str, folder: Path) -> None:
    """The Hugging Face directory with float32 weights."""
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
    tensors = {tensor_name(name): tensor.contiguous() for name, tensor in model.state_dict().items()}
    if model.shape.scheme == "v1":  # no reader rounds to signs by itself: the rounded weights are written
        for name, tensor in tensors.items():
            if tensor.ndim == 2 and name.startswith("model.layers."):
                codes, scale = binary(tensor)
                tensors[name] = codes * scale
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})


def read_master(folder: Path) -> Model:
    """The model of a directory that :func:`write_master` wrote."""
    described = json.loads((folder / "config.json").read_text())
    rounding = described.get("quantization_config")
    shape = Shape(
        hidden=described["hidden_size"], n_layer=described["num_hidden_layers"],
        n_head=described["num_attention_heads"], n_kv_head=described["num_key_value_heads"],
        head_dim=described.get("head_dim") or described["hidden_size"] // described["num_attention_heads"],
        ffn=described["intermediate_size"], n_vocab=described["vocab_size"], n_ctx=described["max_position_embeddings"],
        rope_theta=described["rope_theta"], eps=described["rms_norm_eps"],
        scheme="none" if rounding is None else rounding.get("activation_quantization", "b1.58"),
    )  # fmt: skip
    model = Model(shape)
    tensors = load_file(folder / "model.safetensors")
    model.load_state_dict({name: tensors[tensor_name(name)] for name in model.state_dict()})
    return model


def main() -> None:
    from edge.tools.convert import convert

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--name", default="kiosk", help="name of the GGUF, which bears it inside as well")
    parser.add_argument("--checkpoint", default="last.pt")
    given = parser.parse_args()
    run = Run(given.run)
    write_master(run.model(given.checkpoint), run.tokenizer, given.folder / "master")
    result = convert(given.folder / "master", given.folder / f"{given.name}.gguf", force=True, extra={
        "general.name": given.name,
        "general.license": "mit",
        "general.description": "Demonstration model of bitnet-edge: orders, tickets and small talk at a kiosk",
    })  # fmt: skip
    print(f"{result.path}  {result.nbytes} bytes  {result.sha256}")


if __name__ == "__main__":
    main()
