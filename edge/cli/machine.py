"""``bitnet-edge fit``, ``bench`` and ``doctor``: what this machine can do."""

from __future__ import annotations

from typing import Any

import click

from edge.cli import options
from edge.cli.command import Command, Commas, Text, heading, json_option, option
from edge.cli.output import Output
from edge.errors import MemoryRefused
from edge.registry.shapes import names

#: models that need not be on this machine
PUBLISHED = "Published models, with short and full names:\n" + "".join(
    f"  {short:<12} {', '.join(published)}\n" for short, published in names().items()
)


@click.command(
    cls=Command,
    help="Show the memory that MODEL needs (weights, output head, KV cache of each type, program), whether this "
    "machine has it, also for serve, and the longest context that fits here and on boards with 512 MB to 16 GB. MODEL "
    "is a file, a folder, or the name of a pulled or a published model; nothing is downloaded or loaded. Default: the "
    "model that answers without -m (bitnet-edge default). Exit 5 if it does not fit.",
    epilog="Examples:\n  bitnet-edge fit bonsai-4b\n  bitnet-edge fit bonsai-4b -c 8192 --kv int4\n"
    "  bitnet-edge fit bonsai-1.7b --memory 700M\n\n" + PUBLISHED,
)
@click.argument("wanted", metavar="[MODEL]", required=False, type=Text())
@options.model_option
@heading("Model", options.setting("threads", help="Plan for N threads; each needs some memory. Default: as run uses "
                                  "here."))
@options.kv_options
@options.settings("file", "model", "context")
@json_option("Print one JSON object instead of text.")
@options.output_options
@click.pass_context
def fit(ctx: click.Context, wanted: str | None, threads: int | None, as_json: bool, **flags: Any) -> None:
    from edge.machine.cores import choose
    from edge.tools import fit as work

    model = options.named(ctx, "MODEL", wanted, flags["model"])
    planned = work.planned_model(model, **options.reading(flags))
    flags["threads"] = choose(threads)[0]
    facts, lines, refusal = work.fit(planned, options.load_options(flags, **work.KV if planned.embeds else {}))
    ctx.ensure_object(Output).result(facts, lines, as_json)
    if refusal is not None:
        raise MemoryRefused(refusal)


@click.command(
    cls=Command,
    help="Measure how fast prompts are read and answers are written, in tokens per second, after texts of several "
    "lengths, and compare it with the speed of the memory.",
)
@options.model_option
@heading(
    "Measurement",
    option("-d", "--depths", type=Commas(click.INT), default="128,512", metavar="N,N", help="Tokens before the answer "
           "(default 128,512)."),
    option("-n", "--n-gen", type=click.INT, default=32, metavar="N", help="Tokens per answer (default "
           "32)."),
    option("-r", "--repeats", type=click.INT, default=3, metavar="N", help="Repeats of each measurement; "
           "the median is reported (default 3)."),
    option("-t", "--threads", type=Commas(click.INT), metavar="N,N", help="Numbers of threads to compare, such as "
           "1,2,4."),
    option("--kv", type=Commas(Text()), default="int8", metavar="TYPE,TYPE", help="KV types to compare, such as "
           "int8,f16 (default int8)."),
    option("--parallel", type=Commas(click.INT), default="1", metavar="N,N", help="Also measure N answers at the same "
           "time, such as 1,2,4,8: tokens per second of all together (default 1)."),
    option("--memory", "--mem", "memory", type=Text(), metavar="SIZE", help="Memory limit of the whole process, such "
           "as 4G: of a model with experts, some are then read from the disk."),
)
@json_option()
@options.settings("file", "model", "context")
@options.output_options
@click.pass_obj
def bench(
    out: Output, model: str | None, threads: tuple[int, ...] | None, as_json: bool, depths: tuple[int, ...],
    n_gen: int, repeats: int, kv: tuple[str, ...], parallel: tuple[int, ...], **flags: Any,
) -> None:
    from edge.tools import bench as work

    with out.progress("measuring") as progress:
        report = work.run(
            options.choice(out, {"model": model}).path, depths=depths, n_gen=n_gen, repeats=repeats,
            threads=threads or (None,), kv=kv, parallel=parallel, progress=progress, **options.load_arguments(flags),
        )
    if as_json:
        out.json(report.to_dict())
    else:
        out.write(report.to_markdown())


@click.command(
    cls=Command,
    help="Show the features of this machine and what slows it down, and test that results are correct: the kernels of "
    "each instruction set are compared with plain Python, and the demo model must give its known answers. Exit 1 "
    "if a test fails.",
)
@json_option()
@heading("Output", option("--selftest/--no-selftest", default=True, help="Test the kernels and the model, or not "
                          "(default: yes)."))
@options.output_options
@click.pass_obj
def doctor(out: Output, as_json: bool, selftest: bool) -> int:
    from edge.tools import doctor as work

    with out.progress("testing"):
        facts = work.report(selftest=selftest)
    out.result(facts, work.lines(facts), as_json)
    return 0 if facts["ok"] else 1
