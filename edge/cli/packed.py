"""What the command line of a packed program does otherwise: its defaults, and what it says of itself.

Defaults are click's: an option that is typed or set by a variable wins.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from edge.packed import Packed, own

if TYPE_CHECKING:
    import click

#: an option -> those whose packed defaults it replaces, since the two contradict each other
REPLACES = {
    "system_file": ("system",),
    "raw": ("system",),
    "kv": ("cache_type_k", "cache_type_v"),
    "cache_type_k": ("kv",),
    "cache_type_v": ("kv",),
    "greedy": ("temperature",),
    "temperature": ("greedy",),
    "preset": (
        "greedy", "temperature", "top_k", "top_p", "min_p", "repeat_penalty", "repeat_last_n", "presence_penalty",
        "frequency_penalty",
    ),
}


def version() -> str:
    """What --version prints.  Raises InvalidFile for a damaged packed program."""
    from edge import __version__

    inside = own()
    return f"bitnet-edge {__version__}" + (f"\nmodel: {model(inside)}" if inside else "")


def model(inside: Packed) -> str:
    """The model in one line."""
    from edge.amounts import human

    return f"{inside.model}, {human(inside.nbytes)}, licence: {inside.licence or 'not stated in the file'}"


def about(inside: Packed) -> str:
    """What is inside, for the help page."""
    name = os.path.basename(inside.path)
    defaults = f"\nDefaults: {inside.shown}" if inside.shown else ""
    return (
        f"Model inside: {model(inside)}{defaults}\n\n"
        f"{name} without a command opens a chat. An option overrides its default, -m the model.\n"
    )


def defaults(inside: Packed) -> dict[str, Any]:
    """click's ``default_map`` of the root command."""
    common = dict(inside.options)
    return {**dict.fromkeys(("run", "chat", "batch", "fit"), common), "serve": {**common, **inside.service}}


def give_way(ctx: click.Context) -> None:
    """Drop packed defaults that contradict an option of the person who starts the command."""
    if not ctx.default_map:
        return
    from click.core import ParameterSource as Source

    given = {name for name in REPLACES if ctx.get_parameter_source(name) in (Source.COMMANDLINE, Source.ENVIRONMENT)}
    for name in {name for each in given for name in REPLACES[each]}:
        if ctx.get_parameter_source(name) is Source.DEFAULT_MAP:
            ctx.params[name] = False if ctx.params[name] is True else None
