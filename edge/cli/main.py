"""The entry point of ``bitnet-edge``.  It imports so little that ``--version`` answers before click is imported.

A frozen binary on a Raspberry Pi pays for every import at every start, and scripts ask for the version often.
"""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line of this process; never returns normally."""
    if sys.stdout is None:  # closed by the caller: the answer would be lost, or land in the next file that is opened
        print("bitnet-edge: standard output is closed; use >/dev/null to discard the answer", file=sys.stderr)
        raise SystemExit(1)
    if sys.argv[1:] in (["--version"], ["-V"]):
        try:
            print(_version(), flush=True)
        except OSError as error:
            from edge.cli.output import drop_stdout

            drop_stdout()
            if not isinstance(error, BrokenPipeError):
                print(f"bitnet-edge: standard output: {error.strerror}", file=sys.stderr)
                raise SystemExit(1) from None
        raise SystemExit(0)
    import signal

    # Until a command begins (edge/cli/signals.py) there is nothing to clean up: Ctrl-C ends the program without a word.
    usual = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if usual:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    import gc

    # Imports make no garbage; looking for some took 6 % of the start. Afterwards cycles are rare: it may stay.
    gc.set_threshold(30_000)
    try:
        from edge.cli.group import cli

        if usual:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        cli.main(prog_name="bitnet-edge")
    except KeyboardInterrupt:  # Ctrl-C in the first or last moments: no traceback for it either
        raise SystemExit(130) from None
    finally:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # leaving: one more Ctrl-C must not end in a traceback


def _version() -> str:
    """The text of --version.  Only a frozen program may have a model inside, and pays for looking."""
    if not getattr(sys, "frozen", False):
        from edge import __version__

        return f"bitnet-edge {__version__}"
    from edge.cli.packed import version
    from edge.errors import EdgeError

    try:
        return version()
    except EdgeError as error:
        print(f"bitnet-edge: {error}", file=sys.stderr)
        raise SystemExit(error.exit_code) from None
