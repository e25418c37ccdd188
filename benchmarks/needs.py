"""Packages that these scripts need and the program does not: ``from benchmarks.needs import numpy as np``.

Where one is missing the script ends with a line that says how to install it.
"""

from __future__ import annotations

import importlib
import os
import sys
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import jsonschema as jsonschema
    import numpy as numpy


def __getattr__(name: str) -> ModuleType:
    if name.startswith("__"):
        raise AttributeError(name)
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError:
        script = os.path.basename(sys.argv[0])
        raise SystemExit(f"{script} needs {name}; install it with: {sys.executable} -m pip install {name}") from None
