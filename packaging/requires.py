"""Prints the requirements of pyproject.toml under the names given: python packaging/requires.py dependencies dev

For pip, with their markers, one a line.  Needs nothing installed: Makefile sets up its environments with it.
"""

from __future__ import annotations

import ast
import re
import sys
from pathlib import Path

TEXT = (Path(__file__).resolve().parent.parent / "pyproject.toml").read_text(encoding="utf-8")


def listed(key: str) -> list[str]:
    """A list of strings (Python 3.10 has no tomllib)."""
    match = re.search(rf"^{key} = (\[.*?\])$", TEXT, re.MULTILINE | re.DOTALL)
    if match is None:
        raise SystemExit(f"pyproject.toml has no list {key}")
    return list(ast.literal_eval(re.sub(r"\s#.*", "", match[1])))


if __name__ == "__main__":
    print(*(requirement for key in sys.argv[1:] for requirement in listed(key)), sep="\n")
