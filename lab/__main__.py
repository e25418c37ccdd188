"""``python -m lab``: how well a model predicts a text, what KV caches cost, how widely heads attend."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import edge
from edge.errors import EdgeError, UsageError
from edge.files import check_place, write
from lab import calibrate, evaluate, heads


def options() -> argparse.ArgumentParser:
    """The command line."""
    shared = argparse.ArgumentParser(add_help=False)
    shared.add_argument("-m", "--model", help="a file or a name; without it the model that answers without -m")
    shared.add_argument("-f", "--file", help="a text, or conversations, one JSON object with messages in each line of "
                        f"a .jsonl; without it {evaluate.DIALOGUES_NAME}")
    shared.add_argument("-c", "--ctx", type=int, help="tokens of a segment of the text (2048, or less if the model was "
                        "trained on less)")
    shared.add_argument("--segments", type=int, help="read only so many segments")
    shared.add_argument("-t", "--threads", type=int)
    shared.add_argument("--json", action="store_true", help="print one JSON object")
    parser = argparse.ArgumentParser(prog="python -m lab", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    what = "the perplexity of a text, with the KV cache of --mode"
    ppl = commands.add_parser("ppl", parents=[shared], help=what, description=what)
    ppl.add_argument("--mode", default="int8")
    what = ("KV caches, compared token by token: perplexity, KL divergence in nats, share of equal first choices, and "
            "share of the reference's attention on tokens that the cache still has (mass)")
    kv = commands.add_parser("kv", parents=[shared], help="what KV caches cost", description=what)
    kv.add_argument("--mode", action="append", default=[], help="a KV type and settings, such as 'int8 window=508 "
                    "sinks=4'; again for more (without it every type, and windows)")
    kv.add_argument("--against", default="f32", help="the reference (f32, which keeps everything)")
    what = "how widely each KV head attends, and a plan of how many tokens each keeps, for --set kv_budget=FILE"
    plan = commands.add_parser("calibrate", parents=[shared], help=what, description=what)
    plan.add_argument("--keep-share", type=float, default=0.25, help="of the context, the heads' mean (0.25)")
    plan.add_argument("--method", choices=calibrate.METHODS, default="support")
    plan.add_argument("--sinks", type=int, default=4, help="first tokens that each head keeps (4)")
    plan.add_argument("-o", "--output", help="a file for the plan")
    plan.add_argument("--compare", action="store_true", help="instead: a plan by every method, made on the first half "
                      "of the text, compared on the second")
    what = "the entropy of each query head's attention at the end of texts of some lengths, and its class"
    look = commands.add_parser("heads", parents=[shared], help=what, description=what)
    look.add_argument("--lengths", default="32,512,2048", help="in tokens (32,512,2048)")
    return parser


def run(flags: argparse.Namespace) -> dict[str, Any]:
    """The measurements.  Raises EdgeError."""
    modes = [evaluate.Mode.parse(mode) for mode in flags.mode] if flags.command == "kv" else []
    against = evaluate.Mode.parse(flags.against if flags.command == "kv" else "f32")
    lengths = [*map(int, flags.lengths.split(","))] if flags.command == "heads" else []
    if flags.command == "calibrate" and flags.output is not None:
        if flags.compare:
            raise UsageError("-o and --compare cannot be used together: a comparison writes no plan")
        check_place(flags.output)
    ctx = max(lengths, default=flags.ctx)
    with edge.load(flags.model, ctx=ctx, kv="f32", overflow="stop", threads=flags.threads) as engine:
        tokens = evaluate.read(engine, flags.file)
        if flags.segments is not None:
            tokens = tokens[: flags.segments * engine.plan.n_ctx]
        if flags.command == "ppl":
            found = evaluate.perplexity(engine, tokens, evaluate.Mode.parse(flags.mode))
        elif flags.command == "kv":
            found = evaluate.kv_quality(engine, tokens, modes, against)
        elif flags.command == "heads":
            found = heads.classes(engine, tokens, lengths)
        elif flags.compare:
            found = calibrate.compare(engine, tokens, flags.keep_share, flags.sinks)
        else:
            found = calibrate.plan(engine, tokens, flags.keep_share, flags.method, flags.sinks)
            if flags.output is not None:
                write(flags.output, (json.dumps(found, indent=1) + "\n").encode())
        return {"model": engine.config.name, "text": flags.file or evaluate.DIALOGUES_NAME, **found}


def lines(facts: Mapping[str, Any]) -> Iterator[str]:
    """Facts as text: a line for each value, and a table for each list of objects."""
    tables = {name: value for name, value in facts.items() if isinstance(value, list) and isinstance(value[0], dict)}
    for name, value in facts.items():
        if name not in tables:
            yield f"{name}: {cell(value)}"
    for rows in tables.values():
        names = list(rows[0])
        texts = [names, *([cell(row[name]) for name in names] for row in rows)]
        widths = [max(len(row[i]) for row in texts) for i in range(len(names))]
        yield ""
        for row in texts:
            yield "  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip()


def cell(value: object) -> str:
    """A value as text."""
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; returns its exit code."""
    flags = options().parse_args(arguments)
    try:
        facts = run(flags)
    except EdgeError as error:
        print(f"lab: {error}", file=sys.stderr)
        return error.exit_code
    print(json.dumps(facts) if flags.json else "\n".join(lines(facts)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
