"""The kiosk file: what visitors see of ``bitnet-edge serve --kiosk FILE``, what the model is told, and their limits.

    title = "Corner Café"
    instructions_file = "house.txt"
    suggestions = ["When do you open?", "Is there oat milk?"]
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from typing import Any

from edge.errors import UsageError, shown
from edge.files import STANDARD, read_text

LANGUAGES = ("en", "de", "fr", "es", "ar")  # in which the page has its words
MOST_SUGGESTIONS = 8
MOST_SHOWN = 1000  # characters of a text that the page shows

#: key -> its kind: a text, a list of texts, one of several values, or a range of whole numbers
_KEYS: dict[str, Any] = {
    "title": str, "greeting": str, "suggestions": list, "language": LANGUAGES, "instructions": str,
    "instructions_file": str, "longest_question": range(1, 100_001), "longest_answer": range(1, 100_001),
    "idle_seconds": range(10, 3601)}


@dataclass(frozen=True)
class Kiosk:
    """A kiosk.  ``instructions``: the system prompt, which no client can replace.  ``longest_question``: characters of
    a visitor's message.  ``longest_answer``: tokens, those of thoughts included.  ``idle_seconds``: after so many
    without a request, what is held of a visitor is forgotten.
    """

    title: str
    instructions: str
    greeting: str = ""
    suggestions: tuple[str, ...] = ()
    language: str = LANGUAGES[0]
    longest_question: int = 300
    longest_answer: int = 200
    idle_seconds: float = 60

    @classmethod
    def read(cls, path: str) -> Kiosk:
        """The kiosk in a TOML file.  Raises UsageError that names the file and the key."""
        if sys.version_info >= (3, 11):
            import tomllib
        else:
            import tomli as tomllib
        text, folder = read_text(path), os.path.dirname(path)
        path = "standard input" if path == STANDARD else path
        try:
            found = tomllib.loads(text)
        except (ValueError, RecursionError) as error:
            raise UsageError(f"{path} is not TOML: {' '.join(str(error).split())}") from None
        for key, value in found.items():
            _check(path, key, value)
        if "title" not in found:
            raise UsageError(f"{path}: title is missing")
        if ("instructions" in found) == ("instructions_file" in found):
            raise UsageError(f"{path}: give either instructions or instructions_file")
        if (name := found.pop("instructions_file", None)) is not None:
            name = os.path.join(folder, os.path.expanduser(name))
            found["instructions"] = read_text(name).strip("\n")
            if not found["instructions"].strip():
                raise UsageError(f"{path}: instructions_file {name} is empty")
        kiosk = cls(**{**found, "suggestions": tuple(found.get("suggestions", ()))})
        for i, each in enumerate(kiosk.suggestions):
            if len(each) > kiosk.longest_question:
                raise UsageError(f"{path}: suggestions[{i}] is longer than longest_question, "
                                 f"{kiosk.longest_question} characters")
        return kiosk

    @property
    def shown(self) -> dict[str, Any]:
        """What the page may see."""
        return {"title": self.title, "greeting": self.greeting, "suggestions": list(self.suggestions),
                "language": self.language, "longest_question": self.longest_question,
                "idle_seconds": self.idle_seconds}


def _check(path: str, key: str, value: Any) -> None:
    """Raise UsageError unless this is a key of a kiosk with a value of its kind."""
    kind = _KEYS.get(key)
    if kind is None:
        raise UsageError(f"{path}: {key} is not a key of a kiosk; the keys are {', '.join(_KEYS)}")
    if isinstance(kind, range):
        fits, wanted = type(value) is int and value in kind, f"a whole number from {kind[0]} to {kind[-1]}"
    elif isinstance(kind, tuple):
        fits, wanted = value in kind, f"one of {', '.join(kind)}"
    elif kind is list:
        fits = isinstance(value, list) and len(value) <= MOST_SUGGESTIONS and all(map(_is_shown, value))
        wanted = f"a list of at most {MOST_SUGGESTIONS} texts of 1 to {MOST_SHOWN} characters"
    elif key in ("title", "greeting"):
        fits, wanted = _is_shown(value), f"a text of 1 to {MOST_SHOWN} characters"
    else:
        fits, wanted = isinstance(value, str) and bool(value.strip()), "a text, and not empty"
    if not fits:
        raise UsageError(f"{path}: {key} is {shown(value)}; it must be {wanted}")


def _is_shown(value: Any) -> bool:
    return isinstance(value, str) and len(value) <= MOST_SHOWN and bool(value.strip())
