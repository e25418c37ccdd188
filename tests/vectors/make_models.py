"""Writes what transformers makes of tiny models (NumPy, of those of which it has no class).

    python -m tests.vectors.make_models families [NAME ...]      (needs torch and transformers 5, as the other two)
    python -m tests.vectors.make_models configs
    python -m tests.vectors.make_models windows

families.npz: the models of tests/oracles/tiny.py.  transformers computes in float32 with eager attention, NumPy in
float64.  Of each: logits [token][vocabulary] of IDS, and greedy, the ids of IDS with 12 more, each the likeliest.
HYBRIDS read LONG instead: logits of the tokens at [place], greedy with 200 more, and delta and attention
[place][hidden], what the first layer with a recurrent state and the first with attention add to the residual stream.

configs.json: the config.json of these models, with the names of transformers 4 and as version 5 writes it.

oracle.npz, the arrays wWINDOWsSINKS: every query sees {0 .. sinks-1} and the last `window` tokens, in all layers;
positions are those of the text.  A part of the logits is kept, at positions next to the edges of pages and windows.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from tests.oracles import maple, tiny
from tests.vectors.stored import VECTORS, oracle, write

#: tokens of LONG whose numbers are kept: the first ones, and around the ends of chunks of 32
PLACES = [0, 1, 2, 3, 17, 30, 31, 32, 33, 62, 63, 64, 65, 69]
def stacked(state: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Experts as transformers 5 has them in memory: all of a layer in one tensor, up below gate."""
    found = {name: value for name, value in state.items() if ".experts." not in name}
    for name in [name for name in state if ".experts.0.gate_proj." in name]:
        prefix, n = name.partition("0.gate_proj.")[0], sum(name.partition("0.gate")[0] in each and "gate_proj" in each
                                                           for each in state)

        def of(kind: str, prefix: str = prefix, n: int = n) -> list[np.ndarray]:
            return [state[f"{prefix}{e}.{kind}_proj.weight"] for e in range(n)]

        found[f"{prefix}gate_up_proj"] = np.concatenate([np.stack(of("gate")), np.stack(of("up"))], 1)
        found[f"{prefix}down_proj"] = np.stack(of("down"))
    return found


def network(model: tiny.Tiny) -> Any:
    """The model as transformers has it."""
    import torch
    import transformers

    cls = getattr(transformers, model.architecture)
    config = cls.config_class(**{key: value for key, value in model.config.items() if key != "model_type"})
    config._attn_implementation = "eager"
    net = cls(config).to(torch.float32).eval()
    state = {key: torch.from_numpy(value) for key, value in stacked(tiny.weights(model)).items()}
    missing, unexpected = net.load_state_dict(state, strict=False)
    assert not unexpected, unexpected
    assert set(missing) <= {"lm_head.weight"}, missing
    net.tie_weights()
    return net


def of_transformers(model: tiny.Tiny) -> Callable[[list[int]], np.ndarray]:
    """Tokens -> logits [token][vocabulary]."""
    import torch

    net = network(model)

    def logits(ids: list[int]) -> np.ndarray:
        with torch.no_grad():
            return net(torch.tensor([ids])).logits[0].numpy()

    return logits


def families(wanted: list[str]) -> None:
    for name in wanted or {**tiny.ALL, **tiny.HYBRIDS}:
        if name in tiny.HYBRIDS:
            hybrid(name)
            continue
        model = tiny.ALL[name]
        logits_of = of_transformers(model) if name in tiny.MODELS else partial(maple.logits, model)
        logits, ids = logits_of(tiny.IDS), list(tiny.IDS)
        for _ in range(12):
            ids.append(int(logits_of(ids)[-1].argmax()))
        write("families", name, {"logits": logits.astype(np.float32), "greedy": np.array(ids, np.int32)})
        print(f"{name}: range {np.ptp(logits):.2f}, {ids[len(tiny.IDS):]}")


def hybrid(name: str) -> None:
    """Write the arrays of a hybrid model."""
    import torch

    model = tiny.HYBRIDS[name]
    net, heard = network(model), {}
    for key, module in (("delta", net.model.layers[0].linear_attn), ("attention", net.model.layers[3].self_attn)):
        module.register_forward_hook(listener(heard, key))
    with torch.no_grad():
        logits = net(torch.tensor([tiny.LONG])).logits[0].numpy()
        found, ids, least = dict(heard), list(tiny.LONG), np.inf
        for _ in range(200):
            row = net(torch.tensor([ids])).logits[0, -1].numpy()
            two = np.sort(row)[-2:]
            least = min(least, (two[1] - two[0]) / np.ptp(row))
            ids.append(int(row.argmax()))
    place = np.array(PLACES)
    found = {key: values[place] for key, values in {**found, "logits": logits.astype(np.float32)}.items()}
    write("families", name, {"place": place, "greedy": np.array(ids, np.int32), **found})
    print(f"{name}: range {np.ptp(logits):.2f}, closest choice {least:.1e} of it, {ids[len(tiny.LONG):][:12]}")


def listener(heard: dict[str, np.ndarray], key: str) -> Any:
    """A hook that keeps the output [token][hidden] of a module."""

    def listen(module: Any, given: Any, output: Any) -> None:
        output = output[0] if isinstance(output, tuple) else output
        heard[key] = output[0].numpy().astype(np.float32)

    return listen


# ---- configurations --------------------------------------------------------------------------------------------------


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


def configs() -> None:
    from transformers import AutoConfig, __version__

    models = {name: {"architectures": [model.architecture], **model.config}
              for name, model in {**tiny.MODELS, **tiny.HYBRIDS}.items()}
    models["bitnet"] = json.loads((oracle() / "relu2_gqa_tied" / "online_bf16" / "config.json").read_text())
    found = {}
    for name, config in models.items():
        before = old(config)
        after = AutoConfig.for_model(**json.loads(json.dumps(before)))
        found[name] = {"transformers 4": before, f"transformers {__version__}": json.loads(after.to_json_string())}
    (VECTORS / "configs.json").write_text(json.dumps(found, indent=1, sort_keys=True) + "\n")


# ---- windows ---------------------------------------------------------------------------------------------------------

WINDOWED = ("relu2_gqa_tied/packed_bitlinear_f32", "llama_untied_hd/packed_bitlinear_f32")
N = 260
EVERY = 4  # of so many logits one is kept
#: (window, sinks)
WINDOWS = ((0, 0), (1, 0), (33, 4), (64, 0), (40, 33))
IDS = [(7 * i * i + 3 * i + 5) % 500 for i in range(N)]


def positions(window: int, sinks: int) -> list[int]:
    """Where logits are compared: edges of pages and chunks, of the window, of the trained context (128)."""
    edges = (0, 32, 64, 128, 256, N - 1, window, window + sinks, 2 * window)
    return sorted({t for edge in edges for t in (edge - 1, edge, edge + 1) if 0 <= t < N})


def windows() -> None:
    import torch
    from transformers import AutoModelForCausalLM

    t = torch.arange(N)
    for name in WINDOWED:
        model = AutoModelForCausalLM.from_pretrained(oracle() / name, attn_implementation="eager", dtype=torch.float32)
        model.eval()
        found = {}
        for window, sinks in WINDOWS:
            seen = t[None] <= t[:, None]
            if window:
                seen &= (t[None] < sinks) | (t[None] > t[:, None] - window)
            mask = torch.where(seen, 0.0, torch.finfo(torch.float32).min)[None, None]
            with torch.no_grad():
                logits = model(torch.tensor([IDS]), attention_mask=mask, use_cache=False).logits[0]
            found[f"w{window}s{sinks}"] = logits[positions(window, sinks)][:, ::EVERY].numpy()
        write("oracle", name, found)


if __name__ == "__main__":
    {"families": families, "configs": lambda _: configs(), "windows": lambda _: windows()}[sys.argv[1]](sys.argv[2:])
