"""Writes the tables of docs/models.md from the tables of the program: python packaging/docs/make_models.py

The text of the page stays; what lies between two markers is replaced.  tests/registry/test_models_page.py fails when a
table is not what this makes.
"""

from __future__ import annotations

import re
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "models.md"
sys.path.insert(0, str(ROOT))

from edge.machine.memory import BOARDS  # noqa: E402
from edge.registry.families import FAMILIES, REFUSED  # noqa: E402
from edge.registry.known import KNOWN  # noqa: E402
from edge.tools import fit  # noqa: E402


def models() -> str:
    """Every known model: sizes, memory, and the longest context on each board."""
    boards = [fit.sold(board) for board in BOARDS]
    lines = [f"| `bitnet-edge pull` | download | stored | 2048 tokens | 8192 tokens | {' | '.join(boards)} |",
             "|---" + "|--:" * (4 + len(boards)) + "|"]
    for name, known in KNOWN.items():
        subject = fit.published(name)
        sizes = [megabytes(known.nbytes), megabytes(subject.file_bytes), memory(subject, 2048), memory(subject, 8192)]
        found = [fit.on_board(subject, fit.usual(subject), board) for board in BOARDS]
        longest = [f"{each.longest or '-'}{'*' * bool(each.on_disk)}" for each in found]
        lines.append(f"| `{name}` | {' | '.join(sizes + longest)} |")
    return "\n".join(lines)


def memory(subject: fit.PlannedModel, n_ctx: int) -> str:
    """Memory of the whole process with a cache of ``n_ctx`` tokens; "-" if the model was trained on less."""
    if n_ctx > subject.checkpoint.config.n_ctx_train:
        return "-"
    return megabytes(fit.needed(subject, replace(fit.usual(subject), ctx=n_ctx)).total_bytes)


def megabytes(n: int) -> str:
    return f"{n / 1e6:.0f} MB"


def architectures() -> str:
    """Every family that is read."""
    lines = ["| `general.architecture` | Hugging Face | what it is | activations | norms of heads |", "|---" * 5 + "|"]
    for family in FAMILIES.values():
        norms = {"": "none", "before": "before the rotation", "after": "after the rotation"}[family.qk_norm]
        kind = "int8 per 128 values" if family.weight_only else "int8 per token"
        classes = ", ".join(f"`{name}`" for name in family.huggingface) or "none"
        lines.append(f"| `{family.arch}` | {classes} | {family.about} | {kind} | {norms} |")
    return "\n".join(lines)


def refused() -> str:
    """Families that are refused, with what to use instead."""
    return "\n".join([
        "| architecture contains | what it is |",
        "|---|---|",
        *(f"| `{name}` | {why} |" for name, why in REFUSED.items()),
        "| types TL1, TL2 | can only be decoded with the tile sizes of the machine that wrote them; convert again as "
        "I2_S |",
        "| type Q2_0C (HY-1.8B-2Bit, Hy-MT 2Bit) | has the four levels -1.5, -0.5, 0.5 and 1.5, so it is not ternary; "
        "use bitcpm-1b or bonsai-1.7b, and hy-mt2-1.8b for translations |",
    ])


def between(table: str, match: re.Match[str]) -> str:
    return f"{match[1]}\n{table}\n\n{match[2]}"


def filled(text: str, tables: dict[str, str]) -> str:
    """``text`` with the tables between its markers."""
    for name, table in tables.items():
        marked = re.compile(rf"(<!-- {name} -->\n).*?(<!-- end -->)", re.DOTALL)
        assert marked.search(text), name
        text = marked.sub(partial(between, table), text)
    return text


def page(text: str) -> str:
    """``text`` of docs/models.md with its tables made again."""
    return filled(text, {"models": models(), "architectures": architectures(), "refused": refused()})


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
