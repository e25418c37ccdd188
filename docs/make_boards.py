"""Writes the tables of docs/memory-and-boards.md and docs/boards.md: python docs/make_boards.py

The text of the pages stays; what lies between two markers is replaced.  The measured speeds come from the files in
benchmarks/results/boards, each made by ``bitnet-edge bench --share``.  tests/project/test_docs.py fails when a table is
not what this makes, when a file has anything that it should not have, or when a console block is not what its command
prints.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

PAGE = Path(__file__).resolve().parent / "memory-and-boards.md"
sys.path.insert(0, str(PAGE.parent.parent))

from docs.make_models import MODELS  # noqa: E402
from edge.cache.config import KVConfig  # noqa: E402
from edge.machine.memory import BOARDS, left_on  # noqa: E402
from edge.tools import fit  # noqa: E402
from edge.tools.bench import CACHED  # noqa: E402


def bytes_at(subject: fit.PlannedModel, n_ctx: int, kv: str) -> int:
    """Memory of the whole process with a context of ``n_ctx`` tokens."""
    return fit.needed(subject, fit.LoadSettings(KVConfig(n_ctx, kv))).total_bytes


#: docs/boards.md, and the files that owners of boards have sent
MEASURED = PAGE.with_name("boards.md")
RESULTS = PAGE.parent.parent / "benchmarks" / "results" / "boards"

#: machines whose speed people ask for: the beginning of the name that the system gives, and the processor
WANTED = (
    ("Raspberry Pi Zero 2 W", "Cortex-A53"),
    ("Raspberry Pi 4", "Cortex-A72"),
    ("Raspberry Pi 5", "Cortex-A76"),
    ("Orange Pi 5", "Cortex-A76 and A55"),
    ("Mini PC", "Intel N100"),
    ("Laptop", "Snapdragon X"),
)

#: all that a file may have: names, and what their values look like
_NAME, _WORD = r"(GNU/Linux|[\w .,()+@-]){1,120}", r"[\w .-]{1,40}"
_MACHINE = {
    "board": _NAME, "processor": _NAME, "features": _WORD, "cores": int, "memory": int, "page_size": int,
    "huge_pages": _WORD, "system": _NAME, "kernel": r"[\d.]+",
}
_MODEL = {
    "shape": _WORD, "arch": _WORD,
    **dict.fromkeys(("n_layer", "hidden", "ffn", "n_head", "n_kv_head", "head_dim", "n_vocab"), int),
    **dict.fromkeys(("weight_bytes", "head_bytes"), int),
}
_ROW = {
    **dict.fromkeys(("isa", "weights", "head", "kv"), _WORD),
    **dict.fromkeys(("threads", "depth", "parallel", "token_bytes"), int),
    **dict.fromkeys(
        ("pp", "tg", "gain", "spread", "ms_p50", "ms_p95", "of_disk", "read_rate", "of_memory", "celsius", "mhz"),
        float),
}
_FILE = {
    "format": int, "version": r"[\d.a-z+]{1,20}", "date": r"\d{4}-\d\d-\d\d", "machine": _MACHINE, "model": _MODEL,
    "repeats": int, "top_k": int, "rows": _ROW,
}


def wrong(value: Any, kind: Any = None, name: str = "the file") -> Iterator[str]:
    """What in the content of a file should not be there, or is missing."""
    kind = _FILE if kind is None else kind
    if isinstance(value, list):
        for each in value:
            yield from wrong(each, kind, name)
    elif isinstance(kind, dict):
        if not isinstance(value, dict) or set(value) != set(kind):
            yield f"{name} must have {', '.join(kind)}, and nothing else"
            return
        for each, inner in value.items():
            yield from wrong(inner, kind[each], each)
    elif value is None:
        return
    elif isinstance(kind, str):
        if not isinstance(value, str) or not re.fullmatch(kind, value):
            yield f"{name} is {value!r}"
    elif isinstance(value, bool) or not isinstance(value, (int, kind)):
        yield f"{name} is {value!r}"


def measured(folder: Path = RESULTS) -> str:
    """The speeds of the machines of which there are files, and the machines that are not measured."""
    lines = ["| machine | memory, system | model | threads | prompt, t/s | answer, t/s | GB/s | reached | version |",
             "|---|---|---|--:|--:|--:|--:|--:|---|"]
    found = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("*.json"))]
    for content in found:
        machine, model = content["machine"], content["model"]
        name = ", ".join(each for each in (machine["board"], machine["processor"]) if each)
        about = f"{machine['memory'] / 1e9:.0f} GB, {machine['system']}"
        shape = f"`{model['shape']}`" if model["shape"] else f"{model['arch']}, {model['n_layer']} x {model['hidden']}"
        for row in content["rows"]:
            if row["parallel"] != 1:
                continue
            cached = row["of_memory"] > CACHED
            reached = "from the caches" if cached else f"{min(row['of_memory'], 1.0):.0%}"
            lines.append(
                f"| {name} ({machine['cores']} cores, {row['isa']}) | {about} | {shape}, depth {row['depth']} | "
                f"{row['threads']} | {row['pp']:.1f} | {row['tg']:.2f} | {row['read_rate'] / 1e9:.1f} | {reached} | "
                f"{content['version']}, {content['date']} |")
    boards = [str(content["machine"]["board"]) for content in found]
    lines += [
        f"| {name} ({processor}) | not measured | | | | | | | |"
        for name, processor in WANTED if not any(board.startswith(name) for board in boards)
    ]
    return "\n".join(lines)


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
    MEASURED.write_text(filled(MEASURED.read_text(encoding="utf-8"), {"measured": measured()}), encoding="utf-8")
