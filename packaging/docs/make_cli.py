"""Writes docs/cli.md from the command line itself: python packaging/docs/make_cli.py

tests/cli/test_cli.py fails when the page is not what this makes.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "cli.md"
sys.path.insert(0, str(ROOT))

import click  # noqa: E402

from edge.cli.command import CONTEXT, HELP_ALL  # noqa: E402
from edge.cli.group import cli  # noqa: E402
from edge.cli.output import Output  # noqa: E402

INTRO = """\
# The commands

Written by `python packaging/docs/make_cli.py` from the program. `bitnet-edge COMMAND --help` shows one line for each
option, `bitnet-edge COMMAND --help-all` what is shown here. What scripts may rely on is in [contract.md](contract.md).

Every option can also be given as an environment variable, `--max-tokens 80` as `BITNET_EDGE_MAX_TOKENS=80`, except
`-p` and `-f`, files that are written (`-o`, `--npy`), `--prompts` of `rm`, and options that may be repeated (`--stop`,
`--choice`, `--host-name`, `--cors`). The option overrides the variable.
`BITNET_EDGE_HOME` is the folder of the chat history, `BITNET_EDGE_CACHE` that of measured choices. `NO_COLOR`,
`CLICOLOR_FORCE` and `TERM=dumb` work as usual.
"""


#: settings of the contexts, whose width must not depend on the terminal this runs in
SETTINGS: dict[str, Any] = {**CONTEXT, "terminal_width": 100}


def commands(command: click.Command, context: click.Context) -> Iterator[tuple[click.Command, click.Context]]:
    """Every command with a context that knows its full name, parents first."""
    yield command, context
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            child = command.get_command(context, name)
            assert child is not None
            if child.hidden:
                continue
            yield from commands(child, click.Context(child, info_name=name, parent=context, **SETTINGS))


def page() -> str:
    """The whole page."""
    sections = [INTRO]
    root = click.Context(cli, info_name="bitnet-edge", obj=Output(), **SETTINGS)
    root.meta[HELP_ALL] = True  # shared with the contexts below it
    for command, context in commands(cli, root):
        level = "##" if context.parent is None or context.parent.parent is None else "###"
        sections.append(f"{level} {context.command_path}\n\n```text\n{command.get_help(context).rstrip()}\n```\n")
    sections.append(chat_commands())
    return "\n".join(sections)


def chat_commands() -> str:
    """The /commands of the chat."""
    from edge.cli.repl import COMMANDS

    rows = "\n".join(f"| `{command.usage}` | {command.help} |" for command in COMMANDS.values())
    return f"## Commands in the chat\n\n| type | to |\n|---|---|\n{rows}\n"


if __name__ == "__main__":
    PAGE.write_text(page())
