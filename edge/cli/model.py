"""``bitnet-edge model``: shows and checks a model file without loading it."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from edge.amounts import count, human
from edge.cli import options
from edge.cli.command import Command, Text, heading, option
from edge.cli.output import Output

if TYPE_CHECKING:
    from edge.formats.checkpoint import Checkpoint
    from edge.model.interpretation import Interpretation


@click.command(
    cls=Command,
    help="Show the contents of a model file: dimensions, types of tensors, tokenizer. MODEL is a .gguf file, a Hugging "
    "Face folder or the name of a pulled model. Default: as -m. bitnet-edge fit shows the memory that it needs.",
)
@click.argument("path", metavar="[MODEL]", required=False, type=Text())
@options.model_option
@options.settings("file")
@heading(
    "Output",
    option("--check", is_flag=True, help="Also read all weights, and test on a short text every way in which they "
           "could be read if the file leaves that open. Exit 0 if the file is sound, 4 if it is damaged, mislabelled "
           "or not a ternary language model."),
    option("--tensors", is_flag=True, help="Also list every tensor."),
    option("--json", "as_json", is_flag=True, help="Print one JSON object instead of the table."),
)
@options.output_options
@click.pass_context
def model(ctx: click.Context, path: str | None, check: bool, tensors: bool, as_json: bool, **flags: Any) -> None:
    """Run the command.  The result of a check is the exit code."""
    from edge.errors import InvalidFile
    from edge.machine.cores import find
    from edge.model import interpretation
    from edge.prompt.template import Template
    from edge.prompt.tokenizer import Tokenizer

    out = ctx.ensure_object(Output)
    flags["model"] = options.named(ctx, "MODEL", path, flags["model"])
    opened = checkpoint = options.checkpoint(out, flags)
    faults: list[str] = []
    found: list[Interpretation] = []
    if check:
        with out.progress("reading the weights"):
            faults = list(interpretation.faults(checkpoint))
    if not faults:
        checkpoint, found = _read(checkpoint, find().threads, every=check, out=out)
    if check and not faults:
        faults = interpretation.verdict(opened, found)
    tokenizer = Tokenizer.of(checkpoint)
    facts = {
        "path": checkpoint.path,
        "format": checkpoint.format,
        "bytes": _size_on_disk(checkpoint.path),
        "config": checkpoint.config.facts(),
        "types": _types(checkpoint),
        "planes": _planes(checkpoint),
        "tokenizer": {
            "kind": checkpoint.tokenizer.kind,
            "n_vocab": tokenizer.n_vocab,
            "bos": tokenizer.bos_id,
            "eos": list(tokenizer.eos_ids),
        },
        "template": Template.for_model(checkpoint).name,
        "templates": sorted(checkpoint.templates),
        "readings": _facts_of(found),
        "notes": checkpoint.notes,
    }
    if check:
        facts |= {"sound": not faults, "faults": faults}
    if tensors:
        facts["tensors"] = [
            {"name": t.name, "type": t.type, "shape": list(t.shape), "bytes": len(t.data)}
            for t in checkpoint.tensors.values()
        ]
    out.result(facts, _lines(facts), as_json)
    if faults:
        raise InvalidFile(f"{checkpoint.path}: {'; '.join(faults)}")
    if check and not as_json:
        out.line(f"{checkpoint.path}: sound")


def _read(checkpoint: Checkpoint, n_threads: int, every: bool, out: Output) -> tuple[Checkpoint, list[Interpretation]]:
    """The checkpoint in its best reading, and the scores of all readings (none without a tokenizer)."""
    from edge.model import interpretation

    if checkpoint.tokenizer.kind == "none":
        return checkpoint, []
    with out.progress("scoring a short text") as progress:
        found = interpretation.interpretations(checkpoint, n_threads, every=every, most=None, progress=progress)
    taken = interpretation.winner(checkpoint, found)
    if taken is not found[0]:
        checkpoint = interpretation.reopened(checkpoint, taken.options)
        checkpoint.notes.append(interpretation.note(found, taken))
    return checkpoint, found


def _facts_of(found: Sequence[Interpretation]) -> list[dict[str, Any]]:
    # JSON has no number for an overflow
    return [{"reading": r.words(), "nats": round(r.nats, 3) if r.nats < 1e6 else None} for r in found]


def _types(checkpoint: Checkpoint) -> dict[str, dict[str, int]]:
    """Tensors, values and bytes of each stored type; ``stored``: the values of all planes that make up a matrix."""
    from edge.formats.names import parts

    shapes = {part.name: part.shape for part in parts(checkpoint.config)}
    types: dict[str, dict[str, int]] = {}
    for name, tensor in checkpoint.tensors.items():
        entry = types.setdefault(tensor.type, {"tensors": 0, "values": 0, "stored": 0, "bytes": 0})
        entry["tensors"] += 1
        entry["values"] += math.prod(shapes.get(name, tensor.shape))
        entry["stored"] += math.prod(tensor.shape)
        entry["bytes"] += len(tensor.data)
    return types


def _size_on_disk(path: str) -> int:
    if os.path.isdir(path):
        return sum(entry.stat().st_size for entry in os.scandir(path) if entry.is_file())
    return os.path.getsize(path)


def _planes(checkpoint: Checkpoint) -> dict[str, Any] | None:
    """What a file of planes says about where they come from and what they lose; None for other models."""
    start = "bitnet-edge.planes."
    if not checkpoint.config.planes:
        return None
    said = {key.removeprefix(start): value for key, value in checkpoint.metadata.items() if key.startswith(start)}
    return {key: value for key, value in said.items() if key.isidentifier() and (
        (isinstance(value, str) and len(value) < 200 and value.isprintable())
        or (isinstance(value, (int, float)) and math.isfinite(value)))}


def _planes_rows(said: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    def number(key: str, form: str) -> str:
        return form.format(said[key]) if isinstance(said.get(key), (int, float)) else ""

    parts = [f"a scale per {said['group']} weights", number("bits", "{:.2f} bits per weight")]
    parts += [f"from {said['source']}" if "source" in said else "", str(said.get("method", ""))]
    yield "planes", ", ".join(filter(None, parts))
    lost = [number("error", "relative squared error {:.5f}"), number("kl", "KL {:.3f} nats"),
            number("same_choice", "same first choice {:.1%}"), number("perplexity_ratio", "perplexity x {:.3f}")]
    if any(lost):
        where = f" ({said['measured']})" if "measured" in said else ""
        yield "lost", ", ".join(filter(None, lost)) + where


def _lines(facts: dict[str, Any]) -> Iterator[str]:
    c, tok = facts["config"], facts["tokenizer"]
    heads = f"{count(c['n_head'], 'query head')}, {count(c['n_kv_head'], 'key/value head')}"
    parts = [each["feed_forward"] for each in c["layers"]]
    mixers = [each["mixer"] for each in c["layers"] if each["mixer"]["kind"] == "attention"]
    rotation = next((each for each in mixers if not each["window"]), mixers[0])["rotation"]
    feed_forward, experts = next((part for part in parts if "n_expert" in part), parts[0]), ""
    if "n_expert" in feed_forward:
        experts = f"; {feed_forward['n_expert']} experts, of which a token uses {feed_forward['n_used']}"
    rows = [
        ("model", c["name"]),
        ("file", f"{facts['path']} ({human(facts['bytes'])}, {facts['format']})"),
        ("arch", f"{c['arch']}, {count(c['n_layer'], 'layer')}, hidden {c['hidden']}, ffn {feed_forward['ffn']}"
                 f"{experts}"),
        ("attention", f"{heads}, {c['head_dim']} values each{_states(c)}"),
        (
            "details",
            f"{feed_forward['activation']}, {'sub-norms' if feed_forward['sub_norm'] else 'no sub-norms'}, "
            f"rope {rotation['theta']:g} {rotation['style']}, {'tied' if c['tied'] else 'separate'} output head",
        ),
        ("context", f"trained on {c['n_ctx_train']} tokens{_windows(c)}"),
        ("tokenizer", f"{tok['kind']}, {tok['n_vocab']} tokens, bos {tok['bos']}, eos {tok['eos']}"),
        ("template", ", ".join([facts["template"], *facts["templates"]])),
    ]
    for name, entry in facts["types"].items():
        planes = entry["stored"] / entry["values"]
        about = "about " if planes % 1 else ""
        each = f", each a sum of {about}{planes:.3g} ternary ones (planes)" if planes > 1 else ""
        sizes = f"{_count(entry['values'])} values{each}, {human(entry['bytes'])}"
        rows.append((name, f"{count(entry['tensors'], 'tensor')}, {sizes}"))
    rows += _planes_rows(facts["planes"]) if facts["planes"] else []
    for entry in facts["readings"]:
        nats = "overflows" if entry["nats"] is None else f"{entry['nats']:.2f} nats per token"
        rows.append(("read with", f"{entry['reading']}: predicts a short text with {nats} (lower is better)"))
    rows += [("note", note) for note in facts["notes"]]
    for name, text in rows:
        yield f"{name:<11}{text}"
    for tensor in facts.get("tensors", ()):
        yield f"  {tensor['name']:<32} {tensor['type']:<6} {' x '.join(map(str, tensor['shape']))}"


def _states(c: dict[str, Any]) -> str:
    """The layers with a state instead of attention, as text."""
    found = [each["mixer"] for each in c["layers"] if each["mixer"]["kind"] == "delta"]
    if not found:
        return ""
    return (f"; {len(found)} of {c['n_layer']} layers have {count(found[0]['n_v_head'], 'state')} of "
            f"{found[0]['head_dim_k']} x {found[0]['head_dim_v']} instead")


def _windows(c: dict[str, Any]) -> str:
    """The layers with a sliding window, as text."""
    near = [window for each in c["layers"] if (window := each["mixer"].get("window"))]
    return f"; {len(near)} of {c['n_layer']} layers see the latest {near[0]} only" if near else ""


def _count(n: int) -> str:
    return f"{n / 1e9:.2f} billion" if n >= 1e9 else f"{n / 1e6:.2f} million" if n >= 1e5 else str(n)
