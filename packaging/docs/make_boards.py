"""Writes the tables of docs/memory-and-boards.md: python packaging/docs/make_boards.py

The text of the page stays; what lies between two markers is replaced.  tests/project/test_docs.py fails when a table is
not what this makes, or when a console block is not what its command prints.
"""

from __future__ import annotations

import re
import sys
from functools import partial
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "memory-and-boards.md"
sys.path.insert(0, str(ROOT))

from edge.cache.config import KVConfig  # noqa: E402
from edge.machine.memory import BOARDS, left_on  # noqa: E402
from edge.tools import fit  # noqa: E402
from make_models import MODELS  # noqa: E402


def bytes_at(subject: fit.PlannedModel, n_ctx: int, kv: str) -> int:
    """Memory of the whole process with a context of ``n_ctx`` tokens."""
    return fit.needed(subject, fit.LoadSettings(KVConfig(n_ctx, kv))).total_bytes


def header(columns: list[str]) -> list[str]:
    return [f"| model | {' | '.join(columns)} |", "|---" * (1 + len(columns)) + "|"]


def subjects() -> list[fit.PlannedModel]:
    """The models, each with the name under which it can be pulled."""
    return [fit.published(model.shape) for model in MODELS]


def boards() -> str:
    """Longest contexts by model and board."""
    lines = header([f"{fit.sold(board)}" for board in BOARDS])
    for subject in subjects():
        cells = (fit.on_board(subject, fit.LoadSettings(), board).longest or "-" for board in BOARDS)
        lines.append(f"| `{subject.name}` | " + " | ".join(map(str, cells)) + " |")
    room = " | ".join(f"{left_on(board) / 1e6:.0f} MB" for board in BOARDS)
    return "\n".join([*lines, f"| *for the program* | {room} |"])


def contexts() -> str:
    """Memory of the whole process by model, context and KV type, in MB."""
    columns = [(2048, "int8"), (4096, "int8"), (8192, "int8"), (8192, "int4")]
    lines = header([f"{n} tokens, {kv}" for n, kv in columns])
    for subject in subjects():
        trained = subject.checkpoint.config.n_ctx_train
        cells = (f"{bytes_at(subject, n, kv) / 1e6:.0f} MB" if n <= trained else "-" for n, kv in columns)
        lines.append(f"| `{subject.name}` | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def between(table: str, match: re.Match[str]) -> str:
    return f"{match[1]}\n{table}\n\n{match[2]}"


def page(text: str) -> str:
    """``text`` of docs/memory-and-boards.md with its tables made again."""
    return filled(text, {"boards": boards(), "contexts": contexts()})


def filled(text: str, tables: dict[str, str]) -> str:
    """``text`` with the tables between its markers."""
    for name, table in tables.items():
        marked = re.compile(rf"(<!-- {name} -->\n).*?(<!-- end -->)", re.DOTALL)
        assert marked.search(text), name
        text = marked.sub(partial(between, table), text)
    return text


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
