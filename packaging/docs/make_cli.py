"""Writes docs/cli.md from the command line itself: python packaging/docs/make_cli.py

tests/cli/test_cli.py fails when the page is not what this makes.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from copy import copy
from pathlib import Path
from textwrap import fill
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "cli.md"
sys.path.insert(0, str(ROOT))

import click  # noqa: E402

from edge.cli.command import CONTEXT, HELP_ALL, Command  # noqa: E402
from edge.cli.group import cli  # noqa: E402
from edge.cli.output import Output  # noqa: E402
from edge.settings import COMMON  # noqa: E402

INTRO = """\
# The commands

Written by `python packaging/docs/make_cli.py` from the program. `bitnet-edge COMMAND --help` shows one line for each
option, `--help-all` the whole text and the settings. An option of another command that is as in `run` is only named
here. [Settings](#settings) and [exit codes](contract.md#exit-codes) are those of every command.

Every option can also be given as an environment variable, `--max-tokens 80` as `BITNET_EDGE_MAX_TOKENS=80`, except
`-p` and `-f`, files that are written (`-o`, `--npy`), `--prompts` of `rm`, and options that may be repeated (`--stop`,
`--choice`, `--host-name`, `--cors`). The option overrides the variable.
`BITNET_EDGE_HOME` is the folder of the chat history, `BITNET_EDGE_CACHE` that of remembered prompts. A `~` before a
path is your home folder, in variables and settings, too. `NO_COLOR`, `CLICOLOR_FORCE` and `TERM=dumb` work as usual.

`eval "$(_BITNET_EDGE_COMPLETE=bash_source bitnet-edge)"` makes the Tab key of bash complete commands and options; zsh
has `zsh_source`, fish `_BITNET_EDGE_COMPLETE=fish_source bitnet-edge | source`.
"""


#: of the contexts, whose width must not depend on the terminal this runs in
WIDE: dict[str, Any] = {**CONTEXT, "terminal_width": 100}


def commands(command: click.Command, context: click.Context) -> Iterator[tuple[click.Command, click.Context]]:
    """Every command with a context that knows its full name, parents first."""
    yield command, context
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            child = command.get_command(context, name)
            assert child is not None
            if child.hidden:
                continue
            yield from commands(child, click.Context(child, info_name=name, parent=context, **WIDE))


def page() -> str:
    """The whole page."""
    sections = [INTRO]
    root = click.Context(cli, info_name="bitnet-edge", obj=Output(), **WIDE)
    root.meta[HELP_ALL] = True  # shared with the contexts below it
    run = cli.get_command(root, "run")
    assert run is not None
    for command, context in commands(cli, root):
        level = "##" if context.parent is None or context.parent.parent is None else "###"
        text, named = shortened(command, context, () if command is run else run.params)
        sections.append(f"{level} {context.command_path}\n\n```text\n{text}\n```\n")
        if named:
            sections.append(fill(f"As in `run`: {', '.join(named)}.", 120, break_on_hyphens=False) + "\n")
    sections.append(settings())
    sections.append(chat_commands())
    return "\n".join(sections)


def shortened(
    command: click.Command, context: click.Context, known: Sequence[click.Parameter]
) -> tuple[str, list[str]]:
    """Help without settings, exit codes and ``known`` options; the names of those that were left out."""
    command = copy(command)
    texts = {(tuple(param.opts), param.help) for param in known if isinstance(param, click.Option)}
    same = [param for param in command.params if (tuple(param.opts), getattr(param, "help", None)) in texts]
    command.params = [param for param in command.params if param not in same]
    if isinstance(command, Command):
        command.settings = {}
    text = command.get_help(context).partition("\nExit codes:")[0].rstrip()
    return text, [f"`{param.opts[0]}`" for param in same if param.name != "set"]


def settings() -> str:
    """The settings of --set."""
    bar = "\\|"  # in a table
    rows = "\n".join(f"| `{name}={setting.values.replace('|', bar)}` | {setting.line} |"
                     for name, setting in COMMON.items() if not setting.names)
    return ("## Settings\n\nWith `--set NAME=VALUE`, in `BITNET_EDGE_SET` separated by blanks, or with `/set` in a "
            f"chat.\n\n| setting | meaning |\n|---|---|\n{rows}\n")


def chat_commands() -> str:
    """The /commands of the chat."""
    from edge.cli.repl import COMMANDS

    rows = "\n".join(f"| `{command.usage}` | {command.help} |" for command in COMMANDS.values())
    return f"## Commands in the chat\n\n| type | to |\n|---|---|\n{rows}\n"


if __name__ == "__main__":
    PAGE.write_text(page())
