"""``bitnet-edge tokens``: what a text is to the model, and back."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import click

from edge.cli import options
from edge.cli.command import Command, Noun, Text, heading, option
from edge.cli.output import Output
from edge.cli.run import read_stdin
from edge.errors import UsageError

if TYPE_CHECKING:
    from edge.tokenizer import Tokenizer

_text_options = heading(
    "Text",
    option("-f", "--file", "file", type=click.Path(dir_okay=False, allow_dash=True), metavar="FILE",
           allow_from_autoenv=False, help="Take the text of FILE ('-': standard input)."),
    option("--special", is_flag=True, help="Read control tokens such as <|eot_id|> in the text; else they are text."),
    option("--bos", is_flag=True, help="Put the token before it that begins every prompt of this model."),
)  # fmt: skip
_json_option = heading("Output", option("--json", "as_json", is_flag=True, help="JSON instead of plain text."))


@click.group(cls=Noun, help="Encode, decode and count tokens.")
def tokens() -> None:
    """The noun; the verbs are below."""


@tokens.command(
    cls=Command,
    help="Print the token ids of TEXT, of a file, or of standard input.",
    short_help="Text to token ids.",
)
@click.argument("text", required=False, type=Text())
@_text_options
@options.model_file_options
@_json_option
@heading("Output", option("--pieces", is_flag=True, help="One token a line: its id, a tab, its text as a JSON string."))
@options.output_options
@click.pass_context
def encode(ctx: click.Context, text: str | None, as_json: bool, pieces: bool, **flags: Any) -> None:
    """Text -> ids."""
    import json

    out = ctx.ensure_object(Output)
    tokenizer, ids = _encode(text, flags)
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
    help="Print how many tokens TEXT, a file, or standard input has.",
    short_help="How many tokens a text has.",
)
@click.argument("text", required=False, type=Text())
@_text_options
@options.model_file_options
@_json_option
@options.output_options
@click.pass_context
def count(ctx: click.Context, text: str | None, as_json: bool, **flags: Any) -> None:
    """Text -> how many ids."""
    out = ctx.ensure_object(Output)
    _, ids = _encode(text, flags)
    if as_json:
        out.json({"tokens": len(ids)})
    else:
        out.line(str(len(ids)))


@tokens.command(
    cls=Command,
    help="Print the text of token IDS, given as numbers or, without any, on standard input.",
    short_help="Token ids to text.",
)
@click.argument("ids", nargs=-1, type=Text())
@options.model_file_options
@_json_option
@options.output_options
@click.pass_context
def decode(ctx: click.Context, ids: tuple[str, ...], as_json: bool, **flags: Any) -> None:
    """Ids -> text."""
    out = ctx.ensure_object(Output)
    words = " ".join(ids) if ids else read_stdin()
    numbers = []
    for word in re.split(r"[\s,\[\]]+", words.strip(" \n\t,[]")):  # "1 2 3", "1,2,3" and "[1, 2, 3]" are all fine
        if not word.isdecimal():
            raise UsageError(f"'{word[:40]}' is no token id" if word else "there are no token ids")
        numbers.append(int(word))
    tokenizer = _tokenizer(flags)
    for token in numbers:
        if token >= tokenizer.n_vocab:
            raise UsageError(f"token {token} is none of the {tokenizer.n_vocab} of this model")
    text = tokenizer.decode(numbers)
    if as_json:
        out.json({"text": text})
    else:
        out.line(text)


def _encode(text: str | None, flags: dict[str, Any]) -> tuple[Tokenizer, list[int]]:
    file = flags["file"]
    if text is not None and file is not None:
        raise UsageError("TEXT and -f: give one of them")
    if text is None or text == "-":
        text = read_stdin(strip=False) if file in (None, "-") else options.read_text(file)
    tokenizer = _tokenizer(flags)
    bos = [tokenizer.bos_id] if flags["bos"] and tokenizer.bos_id is not None else []
    return tokenizer, bos + tokenizer.encode(text, special=flags["special"])


def _tokenizer(flags: dict[str, Any]) -> Tokenizer:
    """The tokenizer alone; no weight is touched."""
    from edge.formats import open_checkpoint
    from edge.tokenizer import Tokenizer

    checkpoint = open_checkpoint(
        options.model_path(flags), i2s_layout=flags["i2s_layout"], activation=flags["activation"]
    )
    return Tokenizer.build(checkpoint.tokenizer)
