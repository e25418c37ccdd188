"""Writes tests/vectors/configs.json: the config.json of tiny models, with the names of transformers 4 and as version 5
writes it.

    python -m tests.vectors.make_configs      (needs transformers 5)
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.oracles import tiny

VECTORS = Path(__file__).resolve().parent
BITNET = VECTORS / "oracle" / "relu2_gqa_tied" / "online_bf16" / "config.json"


def old(config: dict[str, Any]) -> dict[str, Any]:
    """The keys that transformers 4 has for a configuration."""
    found = {"torch_dtype": "bfloat16", **config}
    rope = found.pop("rope_parameters", {})
    if "full_attention" in rope:
        found |= {"rope_local_base_freq": rope["sliding_attention"]["rope_theta"]}
        rope = rope["full_attention"]
    if rope:
        found["rope_theta"] = rope["rope_theta"]
    scaling = {key: value for key, value in rope.items() if key != "rope_theta"}
    if scaling and scaling["rope_type"] != "default":
        found["rope_scaling"] = scaling
    elif "partial_rotary_factor" in scaling:
        found["partial_rotary_factor"] = scaling["partial_rotary_factor"]
    return found


def main() -> None:
    """Write them."""
    from transformers import AutoConfig, __version__

    models = {name: {"architectures": [model.architecture], **model.config}
              for name, model in {**tiny.MODELS, **tiny.HYBRIDS}.items()}
    models["bitnet"] = json.loads(BITNET.read_text())
    found = {}
    for name, config in models.items():
        before = old(config)
        after = AutoConfig.for_model(**json.loads(json.dumps(before)))
        found[name] = {"transformers 4": before, f"transformers {__version__}": json.loads(after.to_json_string())}
    (VECTORS / "configs.json").write_text(json.dumps(found, indent=1, sort_keys=True) + "\n")


main()
