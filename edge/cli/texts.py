"""``bitnet-edge tokens`` and ``embed``: texts as token ids and as vectors."""

from __future__ import annotations

import json
import re
import sys
from array import array
from typing import TYPE_CHECKING, Any

import click

from edge.cli import options
from edge.cli.command import CONTEXT, Command, Path, Text, heading, json_option, option
from edge.cli.output import Output
from edge.errors import UsageError
from edge.files import STANDARD, check_place, read_text, write

if TYPE_CHECKING:
    from collections.abc import Callable

    from edge.prompt.tokenizer import Tokenizer
    from edge.tools.embed import Embedder

_text_options = heading(
    "Text",
    option("-f", "--file", "file", type=Path(dir_okay=False, allow_dash=True), metavar="FILE",
           allow_from_autoenv=False, help="Read the text from FILE (-: standard input)."),
    option("--special", is_flag=True, help="Recognise control tokens such as <|eot_id|> in the text."),
    option("--bos", is_flag=True, help="Add the BOS token, if the model has one."),
)
_json_option = json_option("Print JSON instead of plain text.")


@click.group(context_settings=CONTEXT, help="Encode, decode and count tokens.")
def tokens() -> None:
    """The command group."""


@tokens.command(
    cls=Command,
    help="Print the token ids of TEXT, a file, or standard input.",
    short_help="Convert text to token ids.",
)
@click.argument("text", required=False, type=Text())
@_text_options
@options.model_option
@options.settings("file")
@_json_option
@heading("Output", option("--pieces", is_flag=True, help="Print one token per line: its id, a tab, its text as "
                          "a JSON string."))
@options.output_options
@click.pass_obj
def encode(out: Output, text: str | None, as_json: bool, pieces: bool, **flags: Any) -> None:
    tokenizer, ids = _encode(out, text, flags)
    if as_json and pieces:
        out.json([{"id": token, "text": tokenizer.token_text(token)} for token in ids])
    elif as_json:
        out.json(ids)
    elif pieces:
        for token in ids:
            out.line(f"{token}\t{json.dumps(tokenizer.token_text(token), ensure_ascii=False)}")
    else:
        out.line(" ".join(map(str, ids)))


@tokens.command(
    cls=Command,
    help="Print the number of tokens in TEXT, a file, or standard input.",
    short_help="Count the tokens of a text.",
)
@click.argument("text", required=False, type=Text())
@_text_options
@options.model_option
@options.settings("file")
@_json_option
@options.output_options
@click.pass_obj
def count(out: Output, text: str | None, as_json: bool, **flags: Any) -> None:
    _, ids = _encode(out, text, flags)
    out.result({"tokens": len(ids)}, [str(len(ids))], as_json)


@tokens.command(
    cls=Command,
    help="Print the text of the token IDS, or of those on standard input.",
    short_help="Convert token ids to text.",
)
@click.argument("ids", nargs=-1, type=Text())
@heading("Text", option("--special", is_flag=True, help="Write control tokens such as <|eot_id|>, too."))
@options.model_option
@options.settings("file")
@_json_option
@options.output_options
@click.pass_obj
def decode(out: Output, ids: tuple[str, ...], special: bool, as_json: bool, **flags: Any) -> None:
    words = " ".join(ids) if ids else read_text(STANDARD)
    numbers = []
    for word in re.split(r"[\s,\[\]]+", words.strip(" \n\t,[]")):  # "1 2 3", "1,2,3" and "[1, 2, 3]" are all fine
        if not word.isdecimal():
            raise UsageError(f"'{word[:40]}' is not a token id" if word else "no token ids")
        numbers.append(int(word))
    tokenizer = _tokenizer(out, flags)
    for token in numbers:
        if token >= tokenizer.n_vocab:
            raise UsageError(f"token {token} does not exist: this model has {tokenizer.n_vocab} tokens")
    text = tokenizer.decode(numbers, special=special)
    out.result({"text": text}, [text], as_json)


def _encode(out: Output, text: str | None, flags: dict[str, Any]) -> tuple[Tokenizer, list[int]]:
    file = flags["file"]
    if text is not None and file is not None:
        raise UsageError("TEXT and -f cannot be used together")
    if text in (None, STANDARD):
        text = read_text(file or STANDARD)
    tokenizer = _tokenizer(out, flags)
    bos = [tokenizer.bos_id] if flags["bos"] and tokenizer.bos_id is not None else []
    return tokenizer, bos + tokenizer.encode(text, special=flags["special"])


def _tokenizer(out: Output, flags: dict[str, Any]) -> Tokenizer:
    """The tokenizer of the model; no weights are read."""
    from edge.prompt.tokenizer import Tokenizer

    return Tokenizer.of(options.checkpoint(out, flags))


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
@heading(
    "Output",
    option("--cosine", is_flag=True, help="Print only the cosine similarity of two texts, -1 to 1."),
    option("--npy", type=Path(dir_okay=False), metavar="FILE", allow_from_autoenv=False,
           help="Write the vectors to FILE (-: standard output) instead of printing JSON: a float32 array, one row per "
           "text."),
)
@options.output_options
@click.pass_obj
def embed(out: Output, texts: tuple[str, ...], cosine: bool, npy: str | None, **flags: Any) -> None:
    from edge.tools import embed as work

    if not texts and sys.stdin is not None and not sys.stdin.isatty():
        texts = tuple(line for line in read_text(STANDARD).split("\n") if line.strip())
    if not texts:
        raise UsageError("no text: use bitnet-edge embed 'some text', or pipe in one text per line")
    if cosine and len(texts) != 2:
        raise UsageError(f"--cosine needs two texts, not {len(texts)}")
    if npy is not None:
        check_place(npy)
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
    elif npy is not None:
        write(npy, work.npy(vectors))
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
