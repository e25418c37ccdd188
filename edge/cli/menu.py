"""The menu of models: on a terminal, where no model is named, set or pulled, a person chooses one."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from textwrap import wrap
from typing import TYPE_CHECKING, Any

from edge.amounts import human
from edge.cli.output import Output, is_tty
from edge.cli.signals import interrupting
from edge.errors import EdgeError

if TYPE_CHECKING:
    from edge.tools.fit import Candidate

#: in place of the size of a download
HERE = "is here"


def settle_model(out: Output, flags: dict[str, Any], for_program: bool = False) -> None:
    """Ask which model answers, and store it in ``flags["model"]``; nothing is asked where a model is named, set or the
    only pulled one, without a terminal, with -q, where none but the demo model fits, or ``for_program``: if the output
    is read by a program.

    Raises KeyboardInterrupt on Ctrl-C and Ctrl-D.
    """
    from edge.registry import library

    if out.quiet or for_program or not (is_tty(sys.stdin) and is_tty(sys.stderr)):
        return
    if library.choose(flags.get("model")).why != "demo":
        return
    with interrupting():
        try:
            flags["model"] = _choose(out, flags)
        except KeyboardInterrupt:
            out.info("")
            raise


def _choose(out: Output, flags: Mapping[str, Any]) -> str | None:
    """The name of the model that was chosen, pulled and made the default; None: no model fits."""
    from edge.cli.library import fetch
    from edge.registry.library import DEMO

    found = _candidates(out, flags)
    if not found:
        return None
    for line in listing(found, _width()):
        out.info(line)
    by_name = {each.name: each for each in found}
    entries = [*by_name, DEMO]
    while True:
        text = _read("Number or name [1]: ").lower() or "1"
        name = entries[int(text) - 1] if text in map(str, range(1, len(entries) + 1)) else text
        if name not in entries:
            out.info(f"Enter a number from 1 to {len(entries)}, or a name of the list; Ctrl-C leaves.")
            continue
        if name != DEMO and by_name[name].download:
            if not _agrees(f"Download {name}, {human(by_name[name].download)}? [y/N]: "):
                continue
            try:
                fetch(out, name)
            except EdgeError as error:
                out.warn(f"{error}; the demo model answers")
                return DEMO
        _keep(out, name)
        return name


def _candidates(out: Output, flags: Mapping[str, Any]) -> list[Candidate]:
    """The models that fit with the options of the command."""
    import dataclasses

    from edge.cache.config import KVConfig
    from edge.cli.options import load_arguments
    from edge.model.cores import choose
    from edge.tools.fit import Wishes, candidates

    given = load_arguments(flags) if "n_ctx" in flags else {}
    kv = KVConfig(**{f.name: given[f.name] for f in dataclasses.fields(KVConfig) if f.name in given})
    with out.progress("looking for models that fit"):
        return candidates(Wishes(kv, n_threads=choose(given.get("threads"))[0]))


def listing(found: Sequence[Candidate], width: int) -> Iterator[str]:
    """The menu, as lines of at most ``width`` columns: a table, or on a narrow terminal a paragraph for each model."""
    from edge.registry.library import DEMO

    yield from wrap("No model is set. Those that fit this machine:", width)
    titles = ("", "model", "download", "memory", "tokens/s", "licence")
    rows = [
        (str(n), each.name, human(each.download) if each.download else HERE, human(each.memory),
         f"about {each.rate:.0f}" if each.rate >= 1 else "below 1", each.licence)
        for n, each in enumerate(found, 1)
    ]  # fmt: skip
    rows.append((str(len(found) + 1), DEMO, HERE, "", "", ""))
    sizes = [max(len(row[i]) for row in (titles, *rows)) for i in range(len(titles))]
    if sum(sizes) + 2 * len(sizes) <= width:
        for row in (titles, *rows):
            cells = [cell.ljust(size) if title in ("model", "licence") else cell.rjust(size)
                     for title, cell, size in zip(titles, row, sizes, strict=True)]  # fmt: skip
            yield f"  {'  '.join(cells)}".rstrip()
    else:
        for n, name, download, *more in rows:
            facts = [f"{title} {cell}" for title, cell in zip(titles[3:], more, strict=True) if cell]
            text = ", ".join([download if download == HERE else f"download {download}", *facts])
            yield from wrap(f"{n:>3}  {name}: {text}", width, subsequent_indent=" " * 5)
    yield from wrap("tokens/s: estimated from the speed of this machine's memory. demo: small, for tests; it makes "
                    "mistakes.", width)  # fmt: skip


def _width() -> int:
    """Columns of the terminal behind standard error."""
    try:
        return max(os.get_terminal_size(2).columns, 20)
    except OSError:
        return 80


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
