"""``bitnet-edge completion``: prints the script with which a shell completes commands and options."""

from __future__ import annotations

import click

from edge.cli.command import Command
from edge.cli.output import Output
from edge.errors import UsageError

SHELLS = ("bash", "zsh", "fish")

EPILOG = """\
Bash:  bitnet-edge completion bash > ~/.local/share/bash-completion/completions/bitnet-edge
Zsh:   bitnet-edge completion zsh > ~/.zfunc/_bitnet-edge      (with ~/.zfunc in fpath)
Fish:  bitnet-edge completion fish > ~/.config/fish/completions/bitnet-edge.fish
"""


@click.command(
    cls=Command,
    help="Print the completion script for SHELL (bash, zsh or fish) to standard output.",
    epilog=EPILOG,
)
@click.argument("shell", type=click.Choice(SHELLS), metavar="SHELL", required=False)
@click.pass_context
def completion(ctx: click.Context, shell: str | None) -> None:
    if shell is None:
        raise UsageError(f"missing SHELL: use one of {', '.join(SHELLS)}")
    from click.shell_completion import ShellComplete, get_completion_class

    kind = get_completion_class(shell)
    assert kind is not None  # the Choice above allows only what click ships
    root = ctx.find_root()
    script = kind(root.command, {}, root.info_name or "bitnet-edge", "_BITNET_EDGE_COMPLETE")
    # The base method: bash's own starts a bash to ask for its version, and the script may be meant for another machine.
    ctx.ensure_object(Output).write(ShellComplete.source(script).strip() + "\n")
