"""``bitnet-edge model``: look into a model file without loading its weights."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from edge.amounts import count, human
from edge.cli import options
from edge.cli.command import Command, Noun, Text, heading, option
from edge.cli.output import Output
from edge.errors import UsageError
from edge.kv_config import KVConfig, KVPlan

if TYPE_CHECKING:
    from edge.formats.checkpoint import Checkpoint


@click.group(cls=Noun, help="Look into a model file.")
def model() -> None:
    """The noun; the verbs are below."""


@model.command(
    cls=Command,
    help="Show what is in a model file, and what running it would take. PATH is a .gguf file or a Hugging Face folder; "
    "without it the model that ships inside.",
    short_help="Show dimensions, tensors, tokenizer, and the memory it would take.",
)
@click.argument("path", required=False, type=Text())
@options.model_file_options
@options.placement_options
@options.kv_options
@heading(
    "Output",
    option("--json", "as_json", is_flag=True, help="One JSON object instead of the table."),
    option("--tensors", is_flag=True, help="List every tensor, too."),
)
@options.output_options
@click.pass_context
def show(ctx: click.Context, path: str | None, as_json: bool, tensors: bool, **flags: Any) -> None:
    """Open, describe, plan; weights stay in the file."""
    from edge.drafting import Drafting
    from edge.engine import expect
    from edge.formats import open_checkpoint
    from edge.template import Template
    from edge.tokenizer import Tokenizer
    from pyx import cpu
    from pyx.memory import rss

    out = ctx.ensure_object(Output)
    if path is not None:
        if ctx.get_parameter_source("model") is click.core.ParameterSource.COMMANDLINE:
            raise UsageError("PATH and -m: give one of them")
        flags["model"] = path
    chosen = options.load_arguments(flags)
    wishes = KVConfig(**{f.name: chosen[f.name] for f in dataclasses.fields(KVConfig) if f.name in chosen})
    checkpoint = open_checkpoint(
        options.model_path(flags), i2s_layout=flags["i2s_layout"], activation=flags["activation"]
    )
    tokenizer = Tokenizer.build(checkpoint.tokenizer)
    facts = {
        "path": checkpoint.path,
        "format": checkpoint.format,
        "bytes": _size_on_disk(checkpoint.path),
        "config": dataclasses.asdict(checkpoint.config),
        "types": _types(checkpoint),
        "tokenizer": {
            "kind": checkpoint.tokenizer.kind,
            "n_vocab": tokenizer.n_vocab,
            "bos": tokenizer.bos_id,
            "eos": list(tokenizer.eos_ids),
        },
        "template": Template.for_model(checkpoint).name,
    }
    place = "map" if flags["weights"] == "auto" else flags["weights"]  # where auto begins
    drafting = Drafting.parse(flags["draft"]).under(wishes.kv_policy)
    expected = expect(checkpoint, flags["head"], place, rss()["rss"], cpu.cores(), drafting)
    plan = wishes.plan(checkpoint.config, expected)
    facts["notes"] = [*checkpoint.notes, *plan.notes]
    facts["plan"] = {
        "ctx": plan.n_ctx,
        "kv": plan.kv_type,
        "window": plan.window,
        "sinks": plan.sinks,
        "kv_bytes": plan.kv_bytes,
        "total_bytes": plan.total_bytes,
    }
    if tensors:
        facts["tensors"] = [
            {"name": t.name, "type": t.type, "shape": list(t.shape), "bytes": len(t.data)}
            for t in checkpoint.tensors.values()
        ]
    if as_json:
        out.json(facts)
    else:
        for line in _lines(facts, plan):
            out.line(line)


def _types(checkpoint: Checkpoint) -> dict[str, dict[str, int]]:
    """Stored type -> how many tensors, values and bytes."""
    types: dict[str, dict[str, int]] = {}
    for tensor in checkpoint.tensors.values():
        entry = types.setdefault(tensor.type, {"tensors": 0, "values": 0, "bytes": 0})
        values = 1
        for n in tensor.shape:
            values *= n
        entry["tensors"] += 1
        entry["values"] += values
        entry["bytes"] += len(tensor.data)
    return types


def _size_on_disk(path: str) -> int:
    if os.path.isdir(path):
        return sum(entry.stat().st_size for entry in os.scandir(path) if entry.is_file())
    return os.path.getsize(path)


def _lines(facts: dict[str, Any], plan: KVPlan) -> Iterator[str]:
    c, tok = facts["config"], facts["tokenizer"]
    rows = [
        ("model", c["name"]),
        ("file", f"{facts['path']} ({human(facts['bytes'])}, {facts['format']})"),
        ("arch", f"{c['arch']}, {count(c['n_layer'], 'layer')}, hidden {c['hidden']}, ffn {c['ffn']}"),
        ("attention", f"{count(c['n_head'], 'head')} over {c['n_kv_head']} of keys and values, {c['head_dim']} wide"),
        (
            "details",
            f"{c['activation']}, {'sub-norms' if c['sub_norm'] else 'no sub-norms'}, rope {c['rope_theta']:g} "
            f"{c['rope_style']}, {'tied' if c['tied'] else 'own'} output head",
        ),
        ("context", f"trained on {c['n_ctx_train']} tokens"),
        ("tokenizer", f"{tok['kind']}, {tok['n_vocab']} tokens, bos {tok['bos']}, eos {tok['eos']}"),
        ("template", facts["template"]),
    ]
    for name, entry in facts["types"].items():
        sizes = f"{_count(entry['values'])} values, {human(entry['bytes'])}"
        rows.append((name, f"{count(entry['tensors'], 'tensor')}, {sizes}"))
    rows += [("note", note) for note in facts["notes"]]
    for name, text in rows:
        yield f"{name:<11}{text}"
    for tensor in facts.get("tensors", ()):
        yield f"  {tensor['name']:<32} {tensor['type']:<6} {' x '.join(map(str, tensor['shape']))}"
    yield "running it would take"
    for line in plan.lines():
        yield f"  {line}"


def _count(n: int) -> str:
    return f"{n / 1e9:.2f} billion" if n >= 1e9 else f"{n / 1e6:.2f} million" if n >= 1e5 else str(n)
