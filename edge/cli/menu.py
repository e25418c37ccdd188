"""The menu of models: on a terminal, where no model is named, set or pulled, a person chooses one."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from edge.amounts import human
from edge.cli.output import Output, columns, is_tty
from edge.cli.signals import interrupting
from edge.errors import EdgeError, MemoryRefused

if TYPE_CHECKING:
    from edge.tools.fit import Candidate, LoadSettings

#: a file in the folder of models: better ones than the first were named once
NAMED = ".better-named"
#: in place of the size of a download, for a model that is on this machine
HERE = "on disk"


def choose_model(out: Output, flags: dict[str, Any], for_program: bool = False) -> None:
    """Ask which model answers, and store it in ``flags["model"]``; nothing is asked where a model is named, set or the
    only pulled one, without a terminal, with -q, where none but the demo model fits, or ``for_program``: if the output
    is read by a program.

    The first time that a dense model answers, which is one for a first conversation, better ones are named.

    Raises KeyboardInterrupt on Ctrl-C and Ctrl-D.
    """
    from edge.registry import library

    if out.quiet or for_program or not (is_tty(sys.stdin) and is_tty(sys.stderr)):
        return
    choice = library.choose(flags.get("model"))
    if choice.why != "demo":
        return _name_better(out, flags, choice.name)
    with interrupting():
        try:
            flags["model"] = _choose(out, flags)
        except KeyboardInterrupt:
            out.info("")
            raise


def _name_better(out: Output, flags: dict[str, Any], name: str) -> None:
    """Name models that fit this machine and know more than the dense model ``name``; once, and for no other model."""
    from edge.registry.known import KNOWN
    from edge.registry.library import folder

    mark = os.path.join(folder(), NAMED)
    if name not in KNOWN or not KNOWN[name].planes or os.path.exists(mark):
        return
    from edge.tools.fit import fits_now, published, to_pull

    settings = _settings(flags)
    better = [known for known in to_pull()[:3] if not known.planes and fits_now(published(known.name), settings)]
    if better:
        named = ", ".join(f"{known.name} ({human(known.nbytes)})" for known in better)
        out.info(f"{name} is the smallest model and knows little; better ones that fit this machine: bitnet-edge pull "
                 f"{named}", "dim")
    with suppress(OSError):
        open(mark, "w").close()


def _choose(out: Output, flags: dict[str, Any]) -> str | None:
    """The name of the model that was chosen, pulled and made the default; None: no model fits."""
    from edge.cli.library import fetch
    from edge.registry.known import KNOWN
    from edge.registry.library import DEMO, find
    from edge.tools.fit import arranged, candidates, published

    settings = _settings(flags)
    with out.progress("looking for models that fit"):
        found = candidates(settings)
    if not found:
        return None
    for line in listing(found, max(columns(sys.stderr) or 80, 20)):
        out.info(line)
    entries = [*(each.name for each in found), DEMO]
    while True:
        text = _read("Number or name: ").lower()
        name = entries[int(text) - 1] if text in map(str, range(1, len(entries) + 1)) else text
        if name != DEMO and find(name) is None:
            if name not in KNOWN:
                out.info(f"Enter a number from 1 to {len(entries)}, or the name of a model; Ctrl-C leaves.")
                continue
            try:
                arranged(published(name), settings)
            except MemoryRefused:
                out.info(f"{name} does not fit this machine; bitnet-edge fit {name} shows why.")
                continue
            listed = name in entries  # with the size of its download: to choose it is a yes
            if not listed and not _agrees(f"Download {name}, {human(KNOWN[name].nbytes)}? [y/N]: "):
                out.info("Nothing was downloaded. Choose a model; Ctrl-C leaves.")
                continue
            try:
                fetch(out, name)
            except EdgeError as error:
                out.warn(f"{error}; choose again: demo needs no download")
                continue
        _keep(out, name)
        return name


def _settings(flags: dict[str, Any]) -> LoadSettings:
    """What the options of the command say of memory."""
    from edge.cli.options import kv_config
    from edge.machine.cores import choose
    from edge.tools.fit import LoadSettings

    return LoadSettings(kv_config(flags), n_threads=choose(flags.get("threads"))[0])


def listing(found: Sequence[Candidate], width: int) -> Iterator[str]:
    """The menu, as lines of at most ``width`` columns: a table, or on a narrow terminal a paragraph for each model."""
    from textwrap import wrap

    from edge.registry.library import DEMO

    yield from wrap("No model is set. Some that fit this machine (all: bitnet-edge list --known):", width)
    titles = ("", "model", "download", "memory", "tokens/s", "licence")
    rows = [
        (str(n), each.name, human(each.download) if each.download else HERE, human(each.memory),
         f"about {each.rate:.0f}" if each.rate >= 1 else "below 1", each.licence)
        for n, each in enumerate(found, 1)
    ]
    rows.append((str(len(found) + 1), DEMO, HERE, "", "", ""))
    sizes = [max(len(row[i]) for row in (titles, *rows)) for i in range(len(titles))]
    if sum(sizes) + 2 * len(sizes) <= width:
        for row in (titles, *rows):
            cells = [cell.ljust(size) if title in ("model", "licence") else cell.rjust(size)
                     for title, cell, size in zip(titles, row, sizes, strict=True)]
            yield f"  {'  '.join(cells)}".rstrip()
    else:
        for n, name, download, *more in rows:
            facts = [f"{title} {cell}" for title, cell in zip(titles[3:], more, strict=True) if cell]
            text = ", ".join([download if download == HERE else f"download {download}", *facts])
            yield from wrap(f"{n:>3}  {name}: {text}", width, subsequent_indent=" " * 5)
    if any(each.download for each in found):
        yield from wrap("Choose one: if it is not on disk, it is downloaded then.", width)
    yield from wrap("tokens/s: estimated from the speed of this machine's memory. demo: small, for tests; it makes "
                    "mistakes. The name of any other pulled or known model works, too.", width)


def _read(prompt: str) -> str:
    """A line that a person types.  Raises KeyboardInterrupt at the end of the input."""
    sys.stderr.write(prompt)
    sys.stderr.flush()
    line = os.read(sys.stdin.fileno(), 4096)  # of a terminal: one line; what was pasted behind it waits for the chat
    if not line:
        raise KeyboardInterrupt
    return line.decode("utf-8", "replace").strip()


def _agrees(question: str) -> bool:
    """Whether a person says yes; Enter is no, and anything else asks again."""
    while True:
        said = _read(question).lower()
        if said in ("y", "yes"):
            return True
        if said in ("", "n", "no"):
            return False


def _keep(out: Output, name: str) -> None:
    """Make the choice the default, and say so."""
    from edge.registry import library

    try:
        library.set_default(name)
    except OSError as error:
        return out.warn(f"{name} answers, but cannot be made the default: {error.strerror}")
    out.info(f"{name} is the default from now on; bitnet-edge default NAME changes it", "dim")
