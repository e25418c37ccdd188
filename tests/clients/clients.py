"""The service that the clients are tried on: this checkout's, or the program that SERVE_COMMAND names."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


@contextlib.contextmanager
def serve(*arguments: str) -> Iterator[str]:
    """The address of a running service."""
    with started(*arguments) as (url, _):
        yield url


@contextlib.contextmanager
def started(*arguments: str) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """The address of a running service, and its process."""
    command = shlex.split(os.environ.get("SERVE_COMMAND", f"{ROOT}/.venv/bin/python -m edge"))
    # the demo model answers: neither the settings nor the pulled models of whoever tests
    environment = {name: value for name, value in os.environ.items() if not name.startswith("BITNET_EDGE_")}
    environment["BITNET_EDGE_MODELS"] = os.path.join(tempfile.gettempdir(), "bitnet-edge-no-models")
    for_answers = [] if "--embeddings" in arguments else ["--parallel", "4"]
    process = subprocess.Popen([*command, "serve", "--port", "0", "--ctx", "2048", *for_answers, *arguments],
                               cwd=ROOT, env=environment, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    try:
        for line in process.stderr:
            if found := re.search(r"answers at (\S+)", line):
                break
        else:
            raise AssertionError("the service did not start")
        yield found[1], process
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)
        process.stderr.close()
