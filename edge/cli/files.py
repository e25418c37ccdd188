"""``bitnet-edge model`` and ``convert``: what is in a model file, and other files made of it."""

from __future__ import annotations

import dataclasses
import math
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from edge.amounts import amount, count, human
from edge.cli import options
from edge.cli.command import Command, Path, Text, heading, json_option, option
from edge.cli.output import Output
from edge.errors import InvalidFile, UsageError

if TYPE_CHECKING:
    from edge.formats.checkpoint import Checkpoint
    from edge.model.interpretation import Interpretation
    from edge.tools.planes import Planes


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
)
@json_option("Print one JSON object instead of the table.")
@options.output_options
@click.pass_context
def model(ctx: click.Context, path: str | None, check: bool, tensors: bool, as_json: bool, **flags: Any) -> None:
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
    if not faults and checkpoint.tokenizer.kind != "none":  # the best reading, and the scores of all
        with out.progress("scoring a short text") as progress:
            found = interpretation.interpretations(
                checkpoint, find().threads, every=check, most=None, progress=progress)
        taken = interpretation.winner(checkpoint, found)
        if taken is not found[0]:
            checkpoint = interpretation.reopened(checkpoint, taken.options)
            checkpoint.notes.append(interpretation.note(found, taken))
    if check and not faults:
        faults = interpretation.verdict(opened, found)
    tokenizer = Tokenizer.of(checkpoint)
    facts = {
        "path": checkpoint.path,
        "format": checkpoint.format,
        "bytes": _size_on_disk(checkpoint.path),
        "config": checkpoint.config.facts(),
        "types": _types(checkpoint),
        "planes": _planes_stated(checkpoint),
        "tokenizer": {
            "kind": checkpoint.tokenizer.kind,
            "n_vocab": tokenizer.n_vocab,
            "bos": tokenizer.bos_id,
            "eos": list(tokenizer.eos_ids),
        },
        "template": Template.for_model(checkpoint).name,
        "templates": sorted(checkpoint.templates),
        "readings": [{"reading": each.words(), "nats": round(each.nats, 3) if each.nats < 1e6 else None}
                     for each in found],  # JSON has no number for an overflow
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


def _planes_stated(checkpoint: Checkpoint) -> dict[str, Any] | None:
    """The statements of a file of planes about their origin and loss that can be shown; None for other models."""
    if not checkpoint.config.planes:
        return None
    keys = ("source", "method", "group", "bits", "error")
    said = {key: checkpoint.metadata.get(f"bitnet-edge.planes.{key}") for key in keys}
    return {key: value for key, value in said.items() if isinstance(value, str) and len(value) < 200
            and value.isprintable() or isinstance(value, (int, float)) and math.isfinite(value)}


def _layer_rows(c: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """The rows about the layers of a configuration."""
    parts = [each["feed_forward"] for each in c["layers"]]
    mixers = [each["mixer"] for each in c["layers"]]
    attention = [each for each in mixers if each["kind"] == "attention"]
    states = [each for each in mixers if each["kind"] == "delta"]
    windows = [each["window"] for each in attention if each["window"]]
    rotation = next((each for each in attention if not each["window"]), attention[0])["rotation"]
    part = next((part for part in parts if "n_expert" in part), parts[0])
    experts = f"; {part['n_expert']} experts, of which a token uses {part['n_used']}" if "n_expert" in part else ""
    instead = (f"; {len(states)} of {c['n_layer']} layers have {count(states[0]['n_v_head'], 'state')} of "
               f"{states[0]['head_dim_k']} x {states[0]['head_dim_v']} instead" if states else "")
    near = f"; {len(windows)} of {c['n_layer']} layers see the latest {windows[0]} only" if windows else ""
    yield "arch", f"{c['arch']}, {count(c['n_layer'], 'layer')}, hidden {c['hidden']}, ffn {part['ffn']}{experts}"
    yield "attention", (f"{count(c['n_head'], 'query head')}, {count(c['n_kv_head'], 'key/value head')}, "
                        f"{c['head_dim']} values each{instead}")
    yield "details", (f"{part['activation']}, {'sub-norms' if part['sub_norm'] else 'no sub-norms'}, rope "
                      f"{rotation['theta']:g} {rotation['style']}, {'tied' if c['tied'] else 'separate'} output head")
    yield "context", f"trained on {c['n_ctx_train']} tokens{near}"


def _lines(facts: dict[str, Any]) -> Iterator[str]:
    c, tok = facts["config"], facts["tokenizer"]
    rows = [
        ("model", c["name"]),
        ("file", f"{facts['path']} ({human(facts['bytes'])}, {facts['format']})"),
        *_layer_rows(c),
        ("tokenizer", f"{tok['kind']}, {tok['n_vocab']} tokens, bos {tok['bos']}, eos {tok['eos']}"),
        ("template", ", ".join([facts["template"], *facts["templates"]])),
    ]
    for name, entry in facts["types"].items():
        planes = entry["stored"] / entry["values"]
        about = "about " if planes % 1 else ""
        each = f", each a sum of {about}{planes:.3g} ternary ones (planes)" if planes > 1 else ""
        sizes = f"{amount(entry['values'])} values{each}, {human(entry['bytes'])}"
        rows.append((name, f"{count(entry['tensors'], 'tensor')}, {sizes}"))
    if stated := facts["planes"]:
        rows.append(("planes", ", ".join(f"{key.replace('_', ' ')} {value:.5g}" if isinstance(value, float)
                                         else f"{key} {value}" for key, value in stated.items())))
    for entry in facts["readings"]:
        nats = "overflows" if entry["nats"] is None else f"{entry['nats']:.2f} nats per token"
        rows.append(("read with", f"{entry['reading']}: predicts a short text with {nats} (lower is better)"))
    rows += [("note", note) for note in facts["notes"]]
    for name, text in rows:
        yield f"{name:<11}{text}"
    for tensor in facts.get("tensors", ()):
        yield f"  {tensor['name']:<32} {tensor['type']:<6} {' x '.join(map(str, tensor['shape']))}"


@click.command(
    cls=Command,
    help="Convert the model IN (a .gguf file or a Hugging Face folder) to the GGUF file OUT. The result is read back "
    "and each tensor is compared with the converted one before the file is moved to OUT. "
)
@click.argument("source", metavar="IN", type=Text())
@click.argument("output", metavar="OUT", type=Path())
@heading(
    "Conversion",
    option("--type", "weights_type", type=click.Choice(["I2_S", "TQ2_0"]), default="I2_S",
           help="Type of the ternary matrices: I2_S (default), which loads without conversion, or TQ2_0, for "
           "llama.cpp. Models with a scale for each 128 weights (Ternary-Bonsai) get PQ2_0_R64 instead of I2_S, and "
           "PQ2_0 instead of TQ2_0."),
    option("--planes", type=click.Choice(["1", "2", "3", "4"]), default=None,
           help="Make a sum of so many ternary matrices of each matrix of an ordinary (dense) model, so that it runs "
           "here without training: Llama, Qwen2, Qwen3 or Gemma 3, as GGUF or Hugging Face folder. After an "
           "interruption the same command goes on where it stopped."),
    option("--group", type=click.Choice(["32", "64", "128"]), default=None,
           help="With --planes: weights that share a scale (default 32). More of them take less "
           "memory and lose more."),
    option("--embedding", type=click.Choice(["F16", "Q8_0", "F32", "keep"]), default=None,
           help="Type of the embedding table and of a separate output head (default F16, with --planes Q8_0); keep: "
           "unchanged. Q8_0 has half the size and is used from the mapped file, which takes less memory and starts "
           "earlier; generation is slower, by 7% for 2B-4T and more for small models."),
    option("--ternarise", is_flag=True, help="Round float matrices to -1, 0, 1 by their mean magnitude, as BitNet "
           "does. Use it for a ternary model that was published as float weights and is not recognised as ternary."),
    option("--force", is_flag=True, help="Overwrite OUT if it exists."),
)
@json_option("Print path, size, SHA-256, number of tensors and notes as one JSON object.")
@options.settings("file")
@options.output_options
@click.pass_context
def convert(
    ctx: click.Context, source: str, output: str, weights_type: str, embedding: str | None, as_json: bool, **flags: Any
) -> None:
    from edge.tools.convert import VERIFYING
    from edge.tools.convert import convert as work

    out = ctx.ensure_object(Output)
    planes = _planes(ctx, flags)

    def report(done: int, total: int, what: str) -> None:
        if what == VERIFYING:
            progress.next("verifying the new file", "")
        else:
            progress(done, total)

    with out.progress("converting", "bytes", log=True) as progress:
        result = work(
            source, output, weights_type, embedding, report, force=flags["force"], ternarise=flags["ternarise"],
            planes=planes, **options.reading(flags),
        )
    for note in result.notes:
        out.info(f"note: {note}", "dim")
    line = f"{result.path}: {count(result.n_tensors, 'tensor')}, {human(result.nbytes)}, sha256 {result.sha256}"
    out.result(dataclasses.asdict(result), [line], as_json)


def _planes(ctx: click.Context, flags: dict[str, Any]) -> Planes | None:
    """The planes that the options ask for.  Raises UsageError for options that do not go together."""
    from edge.machine.cores import find
    from edge.tools.planes import Planes

    if flags["planes"] is None:
        if flags["group"]:
            raise UsageError("--group needs --planes")
        return None
    for name in ("weights_type", "ternarise"):
        if ctx.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE:
            raise UsageError(f"--{'type' if name == 'weights_type' else name} and --planes cannot be used together")
    return Planes(int(flags["planes"]), int(flags["group"] or 32), find().threads)
