"""The service that the clients are tried on: this checkout's, or the program that SERVE_COMMAND names."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]


@contextlib.contextmanager
def serve(*arguments: str, kiosk: dict[str, Any] | None = None) -> Iterator[str]:
    """The address of a running service, of a kiosk with these keys if there are any."""
    with started(*arguments, kiosk=kiosk) as (url, _):
        yield url


@contextlib.contextmanager
def started(*arguments: str, kiosk: dict[str, Any] | None = None) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """The address of a running service, and its process."""
    command = shlex.split(os.environ.get("SERVE_COMMAND", f"{ROOT}/.venv/bin/python -m edge"))
    # the demo model answers: neither the settings nor the pulled models of whoever tests
    environment = {name: value for name, value in os.environ.items() if not name.startswith("BITNET_EDGE_")}
    environment["BITNET_EDGE_MODELS"] = os.path.join(tempfile.gettempdir(), "bitnet-edge-no-models")
    for_answers = [] if "--embeddings" in arguments else ["--parallel", "4"]
    for_visitors = ["--kiosk", "-"] if kiosk else []
    process = subprocess.Popen(
        [*command, "serve", "--port", "0", "--ctx", "2048", *for_answers, *for_visitors, *arguments],
        cwd=ROOT, env=environment, stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdin is not None
    process.stdin.write("".join(f"{name} = {json.dumps(value)}\n" for name, value in (kiosk or {}).items()))
    process.stdin.close()
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
