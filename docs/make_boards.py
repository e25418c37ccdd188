"""Writes the tables of docs/memory-and-boards.md: python docs/make_boards.py

The text of the page stays; what lies between two markers is replaced.  tests/test_docs.py fails when a table is not
what this makes, or when a console block is not what its command prints.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

PAGE = Path(__file__).resolve().parent / "memory-and-boards.md"
sys.path.insert(0, str(PAGE.parent.parent))

from docs.make_models import MODELS, PROGRAM, Model, head_bytes, ternary_bytes  # noqa: E402
from edge.model.library import KNOWN  # noqa: E402
from edge.model.shapes import SHAPES  # noqa: E402
from pyx.kv import KVCache  # noqa: E402

#: bytes of a board's memory, as sold
BOARDS = tuple(gib << 30 for gib in (1, 2, 4, 8))
#: share of a board's memory that is left for the program
FREE = 0.75
STEP = 1024


def bytes_at(model: Model, n_ctx: int, kv: str) -> int:
    """Memory of a model with a context of ``n_ctx`` tokens: weights, output head, KV cache, program."""
    c = SHAPES[model.shape].config(model.name)
    cache = KVCache.bytes_for(c.n_layer, c.n_kv_head, c.head_dim, n_ctx, kv)
    return ternary_bytes(c) + head_bytes(c, model.table) + cache + PROGRAM


def longest(model: Model, memory: int, kv: str) -> str:
    """The longest context that fits, up to the length the model was trained on."""
    trained = SHAPES[model.shape].config(model.name).n_ctx_train
    fits = [n for n in range(STEP, trained + 1, STEP) if bytes_at(model, n, kv) <= FREE * memory]
    return f"{max(fits)}" if fits else "-"


def header(columns: list[str]) -> list[str]:
    return [f"| model | {' | '.join(columns)} |", "|---" * (1 + len(columns)) + "|"]


def boards() -> str:
    """Longest contexts by model and board."""
    lines = header([f"{board >> 30} GB" for board in BOARDS])
    for model in MODELS:
        if name := pulled(model):
            lines.append(f"| `{name}` | " + " | ".join(longest(model, board, "int8") for board in BOARDS) + " |")
    return "\n".join(lines)


def contexts() -> str:
    """Memory of the whole process by model, context and KV type, in MB."""
    columns = [(2048, "int8"), (4096, "int8"), (8192, "int8"), (8192, "int4")]
    lines = header([f"{n} tokens, {kv}" for n, kv in columns])
    for model in MODELS:
        if name := pulled(model):
            trained = SHAPES[model.shape].config(model.name).n_ctx_train
            cells = (f"{bytes_at(model, n, kv) / 1e6:.0f} MB" if n <= trained else "-" for n, kv in columns)
            lines.append(f"| `{name}` | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def pulled(model: Model) -> str | None:
    """The name under which a model can be pulled."""
    return next((name for name in (model.shape, f"bitnet-{model.shape}") if name in KNOWN), None)


def page(text: str) -> str:
    """``text`` with its tables made again."""
    for name, table in (("boards", boards()), ("contexts", contexts())):
        marked = re.compile(rf"(<!-- {name} -->\n).*?(<!-- end -->)", re.DOTALL)
        assert marked.search(text), name
        text = marked.sub(lambda match, table=table: f"{match[1]}\n{table}\n\n{match[2]}", text)
    return text


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
