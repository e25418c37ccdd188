"""Hook of mkdocs (mkdocs.yml): files of the project that pages link to become part of the site.

Pages lie in docs/ and link to files outside, such as ``../benchmarks/SPEED.md``, so that the links work in a
checkout.  The site gets these files under their path in the project, and the links lead there.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
LINK = re.compile(r"(\]\()([^)#\s:]+)((?:#[^)\s]*)?\))")


def place(path: Path) -> str:
    """Where a file of the project lies in the site."""
    return os.path.relpath(path, ROOT / "docs" if path.is_relative_to(ROOT / "docs") else ROOT)


def linked(path: Path) -> set[Path]:
    """Files of the project that a page links to."""
    text = path.read_text(encoding="utf-8") if path.suffix == ".md" else ""
    found = {(path.parent / match[2]).resolve() for match in LINK.finditer(text)}
    return {each for each in found if each.is_file() and each.is_relative_to(ROOT)}


def on_files(files: Any, config: Any) -> Any:
    """Add what the pages link to, and what that links to."""
    from mkdocs.structure.files import File

    known = {Path(file.abs_src_path).resolve() for file in files}
    new = set(known)
    while new:
        new = {each for path in new for each in linked(path)} - known
        for path in sorted(new):
            files.append(File.generated(config, place(path), abs_src_path=str(path)))
        known |= new
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Links between files as they lie in the site."""
    source = Path(page.file.abs_src_path).resolve()
    folder = os.path.dirname(place(source))

    def moved(match: re.Match[str]) -> str:
        linked = (source.parent / match[2]).resolve()
        if not (linked.is_file() and linked.is_relative_to(ROOT)):
            return match[0]
        return match[1] + os.path.relpath(place(linked), folder or ".") + match[3]

    return LINK.sub(moved, markdown)
