"""``bitnet-edge tokens`` and ``embed``: texts as tokens and as vectors."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

import click

from edge.cli import options
from edge.cli.command import Command, Path, Text, heading, json_option, option
from edge.cli.output import Output
from edge.errors import UsageError
from edge.files import STANDARD, read_text

if TYPE_CHECKING:
    from array import array
    from collections.abc import Callable

    from edge.tools.embed import Embedder


@click.command(
    cls=Command,
    help="Print the tokens of TEXT, a file, or standard input, one per line: its id, a tab, its text as a JSON string.",
)
@click.argument("text", metavar="[TEXT]", required=False, type=Text())
@heading(
    "Text",
    option("-f", "--file", "file", type=Path(dir_okay=False, allow_dash=True), metavar="FILE",
           allow_from_autoenv=False, help="Read the text from FILE (-: standard input)."),
    option("--special", is_flag=True, help="Recognise control tokens such as <|eot_id|> in the text."),
)
@options.model_option
@options.settings("file")
@json_option("Print a JSON list of objects: id, text.")
@options.output_options
@click.pass_obj
def tokens(out: Output, text: str | None, file: str | None, special: bool, as_json: bool, **flags: Any) -> None:
    from edge.prompt.tokenizer import Tokenizer

    if text is not None and file is not None:
        raise UsageError("TEXT and -f cannot be used together")
    if text in (None, STANDARD):
        text = read_text(file or STANDARD)
    tokenizer = Tokenizer.of(options.checkpoint(out, flags))  # no weights are read
    found = [(token, tokenizer.token_text(token)) for token in tokenizer.encode(text, special=special)]
    out.result([{"id": token, "text": piece} for token, piece in found],
               (f"{token}\t{json.dumps(piece, ensure_ascii=False)}" for token, piece in found), as_json)


@click.command(
    cls=Command,
    help="Compute embeddings (vectors of norm 1, for search and comparison) with an embedding model (such as "
    "bitnet-embedding-0.6b, which bitnet-edge pull gets). Prints one line of JSON for each TEXT or, without TEXT, each "
    "line of standard input. The demo model is not an embedding model: give one with -m, except for tests.",
)
@click.argument("texts", metavar="[TEXT]...", nargs=-1, type=Text())
@options.model_option
@heading("Model", options.setting("threads"))
@heading(
    "Context",
    options.setting("ctx", help="Longest text in tokens; a longer one exits 2 (default: the longest that the model "
                    "reads). Memory is planned for the longest TEXT."),
    options.setting("memory", help="Memory limit of the whole process, such as 1500M or 2G; exit 5 if it is not "
                    "enough."),
)
@options.settings("file", "model", "context")
@heading("Output", option("--cosine", is_flag=True, help="Print only the cosine similarity of two texts, -1 to 1."))
@options.output_options
@click.pass_obj
def embed(out: Output, texts: tuple[str, ...], cosine: bool, **flags: Any) -> None:
    from edge.tools import embed as work

    if not texts and sys.stdin is not None and not sys.stdin.isatty():
        texts = tuple(line for line in read_text(STANDARD).split("\n") if line.strip())
    if not texts:
        raise UsageError("no text: use bitnet-edge embed 'some text', or pipe in one text per line")
    if cosine and len(texts) != 2:
        raise UsageError(f"--cosine needs two texts, not {len(texts)}")
    path = options.choice(out, flags).path
    with out.progress("loading the model") as progress:
        model = embedder(out, flags, path, texts, progress=progress)
        if not model.config.layers[0].inner_norm:
            out.warn(f"{model.config.name} is not an embedding model, so its vectors are of little use; for one that "
                     "is: bitnet-edge pull bitnet-embedding-0.6b")
        progress.next("embedding", "texts")
        vectors: list[array[float]] = []
        for text in texts:
            progress(len(vectors), len(texts))
            vectors.append(model.vector(text))
    if cosine:
        out.line(f"{work.cosine(*vectors):.6f}")
    else:
        for text, vector in zip(texts, vectors, strict=True):
            out.json({"text": text, "vector": vector.tolist()})


def embedder(
    out: Output, flags: dict[str, Any], path: str, texts: tuple[str, ...] = (),
    progress: Callable[[float, float], None] | None = None, **more: Any,
) -> Embedder:
    """The embedding model of the options, with memory for the longest of ``texts``; without texts, for that of --ctx.

    ``more``: further options of :func:`edge.load`.
    """
    from edge.tools.embed import KV, Embedder

    one = {**flags, "parallel": None, **more}  # one text at a time
    found = Embedder(path, options.load_options(one, **KV), texts, progress, options.plan_shown(out))
    for note in found.notes if out.verbose else ():
        out.info(f"note: {note}", "dim")
    return found
