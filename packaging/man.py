"""Manual pages from the command line itself, the program's own and one for each command: python packaging/man.py FOLDER

Sections come from click: what --help says is what the page says.  Written for groff's man macros.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import click  # noqa: E402

from edge import __version__  # noqa: E402
from edge.cli.command import CONTEXT  # noqa: E402
from edge.cli.group import COMMANDS, cli  # noqa: E402
from edge.errors import EXIT_CODES  # noqa: E402

FILES = [
    ("/etc/default/bitnet-edge", "Variables for the service bitnet-edge.service: BITNET_EDGE_MODEL and the like."),
    ("/run/bitnet-edge/socket", "Where the service listens; members of the group bitnet-edge may connect."),
    ("$BITNET_EDGE_HOME/history, $XDG_STATE_HOME/bitnet-edge/history", "Lines typed in the chat; mode 0600."),
]


def escaped(text: str) -> str:
    """Text as groff shows it unchanged, every hyphen one that can be typed again."""
    text = text.replace("\\", "\\e").replace("'", "\\(aq").replace("`", "\\(ga").replace("~", "\\(ti")
    text = text.replace("^", "\\(ha").replace('"', "\\(dq").replace("-", "\\-")
    text = re.sub(r"[^\x00-\x7f]", lambda match: f"\\[u{ord(match[0]):04X}]", text)
    return re.sub(r"^\.", r"\\&.", text, flags=re.MULTILINE)


def verbatim(text: str) -> str:
    """Lines kept as they are: examples and tables."""
    return f".nf\n{escaped(text.rstrip())}\n.fi\n"


def paragraph(text: str) -> str:
    return f"{escaped(' '.join(text.split()))}\n"


def definition(term: str, text: str) -> str:
    return f".TP\n\\fB{escaped(term)}\\fR\n{paragraph(text)}"


def options(command: click.Command, context: click.Context) -> str:
    """The options under their headings; those of a command inside a group (where headings stand already) in one row."""
    sections: dict[str, list[tuple[str, str]]] = {}
    for param in command.get_params(context):
        record = param.get_help_record(context)
        if record is not None and record[1]:
            sections.setdefault(getattr(param, "heading", "Output"), []).append(record)
    inner = context.parent is not None and context.parent.parent is not None
    parts = [] if inner else [".SH OPTIONS\n"]
    for heading, records in sections.items():
        parts += [] if inner else [f".SS {escaped(heading)}\n"]
        parts += [definition(term, text) for term, text in records]
    return "".join(parts)


def synopsis(command: click.Command, context: click.Context) -> str:
    pieces = escaped(" ".join(command.collect_usage_pieces(context)))
    return f"\\fB{escaped(context.command_path)}\\fR {pieces}\n"


def epilog(command: click.Command) -> str:
    """The examples and remarks below the options in --help-all; the exit codes have their own section."""
    parts = ((command.epilog or "").removeprefix("\b\n"), getattr(command, "details", ""))
    text = "\n\n".join(part.strip() for part in parts if part)
    return f".SH NOTES\n{verbatim(text)}" if text else ""


def exit_status() -> str:
    return ".SH EXIT STATUS\n" + "".join(definition(str(code), text) for code, text in EXIT_CODES.items())


def environment(everything: bool) -> str:
    text = paragraph(
        "Every option can also be given as a variable: --max-tokens 80 is BITNET_EDGE_MAX_TOKENS=80. The flag wins. "
        "Exceptions: -p and -f, files that are written, and options that may be repeated, such as --stop and --choice."
    )
    more = definition("BITNET_EDGE_HOME", "Folder of the chat history.") + definition(
        "NO_COLOR, CLICOLOR_FORCE, TERM=dumb", "Obeyed."
    )
    return ".SH ENVIRONMENT\n" + text + (more if everything else "")


def see_also(own: str) -> str:
    names = ["bitnet-edge", *(f"bitnet-edge-{name}" for name in COMMANDS)]
    lines = [f".BR {escaped(name)} (1)" for name in names if name != own]
    return ".SH SEE ALSO\n" + ",\n".join(lines) + "\n"


def head(name: str, summary: str) -> str:
    return (
        f'.TH {escaped(name.upper())} 1 "" "bitnet\\-edge {__version__}" "User Commands"\n'
        ".nh\n"  # options and file names must not be broken
        f".SH NAME\n{escaped(name)} \\- {escaped(summary.rstrip('.'))}\n"
    )


def pages() -> Iterator[tuple[str, str]]:
    """(file name, text) of every page."""
    root = click.Context(cli, info_name="bitnet-edge", **CONTEXT)
    commands = "".join(
        f".TP\n.BR {escaped(f'bitnet-edge-{name}')} (1)\n{paragraph(text)}" for name, (_, text) in COMMANDS.items()
    )
    yield "bitnet-edge.1", "".join([
        head("bitnet-edge", cli.help or ""),
        ".SH SYNOPSIS\n\\fBbitnet\\-edge\\fR \\fICOMMAND\\fR [OPTIONS] ...\n",
        ".SH DESCRIPTION\n", paragraph(cli.help or ""),
        ".SH COMMANDS\n", commands,
        options(cli, root), environment(True), exit_status(),
        ".SH FILES\n", *(definition(*each) for each in FILES),
        see_also("bitnet-edge"),
    ])
    for name in COMMANDS:
        command = cli.get_command(root, name)
        assert command is not None
        yield f"bitnet-edge-{name}.1", page(name, command, root)


def page(name: str, command: click.Command, root: click.Context) -> str:
    """One command; a group has its own commands as subsections."""
    context = click.Context(command, info_name=name, parent=root, **CONTEXT)
    title = f"bitnet-edge-{name}"
    parts = [head(title, COMMANDS[name][1]), ".SH SYNOPSIS\n", synopsis(command, context)]
    parts += [".SH DESCRIPTION\n", paragraph(command.help or "")]
    if isinstance(command, click.Group):
        parts.append(".SH COMMANDS\n")
        for verb in command.list_commands(context):
            child = command.get_command(context, verb)
            assert child is not None
            inner = click.Context(child, info_name=verb, parent=context, **CONTEXT)
            parts += [f".SS {escaped(verb)}\n", synopsis(child, inner), ".PP\n", paragraph(child.help or "")]
            parts.append(options(child, inner))
    parts += [options(command, context), epilog(command), environment(False), exit_status(), see_also(title)]
    return "".join(parts)


def main() -> int:
    """Write all pages."""
    if len(sys.argv) != 2:
        print("man: the name of one folder, please", file=sys.stderr)
        return 2
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in pages():
        (folder / name).write_text(text, encoding="ascii")
    return 0


if __name__ == "__main__":
    sys.exit(main())
