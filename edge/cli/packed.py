"""The command line of a packed program: its own arguments, and what it says of itself.

Without arguments it runs those that were packed.  With others the packed ones are defaults: click's, so that an option
that is typed or set by a variable wins.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from edge.packed import Packed, own

if TYPE_CHECKING:
    import click

#: options that contradict each other: one that is typed replaces another that a variable sets, and both a packed one
RIVALS = (("system", "system_file", "raw"), ("session", "raw"), ("schema", "choice", "regex", "grammar"))


def version() -> str:
    """The text of --version.  Raises InvalidFile for a damaged packed program."""
    from edge import __version__

    inside = own()
    return f"bitnet-edge {__version__}" + (f"\nmodel: {model(inside)}" if inside else "")


def model(inside: Packed) -> str:
    """The model in one line."""
    from edge.amounts import human

    return f"{inside.model}, {human(inside.nbytes)}, licence: {inside.licence or 'not stated in the file'}"


def about(inside: Packed) -> str:
    """Model and arguments inside, for the help page."""
    name = os.path.basename(inside.path)
    return (
        f"Model inside: {model(inside)}\n\n"
        f"{name} alone is {name} {inside.shown}. An option overrides that, -m the model.\n"
    )


def named(text: str) -> str:
    """A help page, with the name of this file in its commands, which need no -m."""
    inside = own()
    return text.replace("bitnet-edge ", f"{os.path.basename(inside.path)} ").replace(" -m bonsai-1.7b", "") \
        if inside else text


def defaults(inside: Packed, root: click.Group) -> dict[str, Any]:
    """click's ``default_map`` of the root command: the packed options, for every command that has them."""
    import click

    ctx = click.Context(root)
    name, *words = inside.words
    command = root.get_command(ctx, name)
    assert command is not None
    found, _, _ = command.make_parser(click.Context(command, parent=ctx)).parse_args(words)
    options = {param.name: found[param.name] for param in command.params
               if isinstance(param, click.Option) and param.name in found}
    return dict.fromkeys(("run", "chat", "serve", "batch", "fit"), options)


def give_way(ctx: click.Context) -> None:
    """Drop what contradicts an option: packed defaults where it is typed or set by a variable, and variables where it
    is typed.
    """
    from click.core import ParameterSource as Source

    ranks = [Source.COMMANDLINE, Source.ENVIRONMENT, Source.DEFAULT_MAP]
    for rivals in RIVALS:
        given = {name: ranks.index(source) for name in rivals if (source := ctx.get_parameter_source(name)) in ranks}
        for name, rank in given.items():
            if rank > min(given.values()):
                ctx.params[name] = None if not isinstance(ctx.params[name], tuple) else ()
