"""``bitnet-edge tokens``: encodes, decodes and counts the tokens of a text."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import click

from edge.cli import options
from edge.cli.command import CONTEXT, Command, Path, Text, heading, option
from edge.cli.output import Output
from edge.errors import UsageError
from edge.files import STANDARD, read_text

if TYPE_CHECKING:
    from edge.prompt.tokenizer import Tokenizer

_text_options = heading(
    "Text",
    option("-f", "--file", "file", type=Path(dir_okay=False, allow_dash=True), metavar="FILE",
           allow_from_autoenv=False, help="Read the text from FILE (-: standard input)."),
    option("--special", is_flag=True, help="Recognise control tokens such as <|eot_id|> in the text."),
    option("--bos", is_flag=True, help="Add the BOS token, if the model has one."),
)
_json_option = heading("Output", option("--json", "as_json", is_flag=True, help="Print JSON instead of plain text."))


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
@click.pass_context
def encode(ctx: click.Context, text: str | None, as_json: bool, pieces: bool, **flags: Any) -> None:
    """Run the command: text -> token ids."""
    import json

    out = ctx.ensure_object(Output)
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
@click.pass_context
def count(ctx: click.Context, text: str | None, as_json: bool, **flags: Any) -> None:
    """Run the command: text -> number of tokens."""
    out = ctx.ensure_object(Output)
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
@click.pass_context
def decode(ctx: click.Context, ids: tuple[str, ...], special: bool, as_json: bool, **flags: Any) -> None:
    """Run the command: token ids -> text."""
    out = ctx.ensure_object(Output)
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
