"""doctor: what a user sends with a report about this machine, and a test that its results are correct.

The self-test multiplies a small ternary matrix, and a sum of three, with the kernels of every instruction set that this
processor supports and compares each result with plain Python.  Then the demo model answers greedily and must give the
tokens that are stored with it.  Answers are bit-equal on every machine, so the same stored answers serve for all.
"""

from __future__ import annotations

import json
import os
import platform
from array import array
from pathlib import Path
from random import Random
from typing import Any

from edge.amounts import count, human
from edge.errors import EdgeError
from edge.machine import linux
from edge.machine.board import Board
from edge.machine.cores import find, spell
from edge.packed import Packed, own

MODELS = Path(__file__).resolve().parents[1] / "bundled"


def report(selftest: bool = True, board: Board | None = None) -> dict[str, Any]:
    """All facts of doctor, ready for JSON; sizes in bytes, temperatures in degrees Celsius.

    A missing system file is never an error: its values are None.  ``report()["ok"]`` is False if a self-test failed.
    The self-test changes the instruction set while it runs, so no engine may be open meanwhile.
    """
    import edge
    from edge.cache import remembered
    from edge.registry.library import folder

    board = board or Board()
    cores = find(board.root)
    n_prompts, prompt_bytes = remembered.size(prompts := remembered.place())
    inside = own()
    facts: dict[str, Any] = {
        "version": edge.__version__,
        "python": platform.python_version(),
        **board.summary(),
        "memory": board.memory(),
        "memory_control": board.memory_control(),
        "isa": _isa(),
        "cores": {"online": os.cpu_count(), "allowed": len(cores.allowed), "used": cores.threads,
                  "fast": list(cores.fast), "source": cores.source, "quota": cores.quota},
        "page_size": os.sysconf("SC_PAGE_SIZE"),
        "huge_pages": board.huge_pages(),
        "governor": board.governor(),
        "mhz": board.mhz(),
        "celsius": board.celsius(),
        "throttling": board.throttling(),
        "libgomp": _libgomp(),
        "models": folder(),
        "remembered": {"folder": prompts, "files": n_prompts, "bytes": prompt_bytes},
        "packed": {**inside._asdict(), "shown": inside.shown} if inside else None,
    }
    facts["selftest"] = tests = {"kernels": kernel_test(), "model": model_test()} if selftest else None
    if tests and inside:
        tests["packed"] = packed_test(inside)
    facts["warnings"] = _warnings(facts)
    facts["ok"] = not any(result.startswith("wrong") for result in _results(facts).values())
    return facts


def lines(facts: dict[str, Any]) -> list[str]:
    """The report as text, one fact per line."""
    memory, cores, isa, prompts = (facts[name] for name in ("memory", "cores", "isa", "remembered"))
    fast = f" ({spell(tuple(cores['fast']))}, the fast ones by {cores['source']})" if cores["source"] else ""
    clock = (facts["mhz"] and f"{facts['mhz']:.0f} MHz", facts["governor"] and f"governor {facts['governor']}",
             facts["celsius"] is not None and f"{facts['celsius']} C")
    slowed = (f"{when}: {', '.join(what) or 'none'}" for when, what in (facts["throttling"] or {}).items())
    rows = [
        ("board", facts["board"] or "unknown"),
        ("processor", facts["cpu"]),
        ("system", f"{facts['system']}, Python {facts['python']}, bitnet-edge {facts['version']}"),
        ("instructions", isa["error"] or f"{isa['in_use']} in use; supported: {', '.join(isa['supported'])}"),
        ("cores", f"{cores['used']} used{fast}, {cores['allowed']} allowed, {cores['online']} online"),
        ("memory", f"{_size(memory['available'])} available of {_size(memory['total'])}, swap {_size(memory['swap'])}"),
        ("pages", f"{facts['page_size'] // 1024} KiB; transparent huge pages: {facts['huge_pages'] or 'unknown'}"),
        ("clock", "; ".join(str(part) for part in clock if part)),
        ("throttling", "; ".join(slowed)),
        ("libgomp", facts["libgomp"] or "not found"),
        ("models", facts["models"]),
        ("remembered", f"{count(prompts['files'], 'system prompt')}, {human(prompts['bytes'])}, in {prompts['folder']} "
                       "(bitnet-edge rm --prompts deletes them)"),
    ]
    if packed := facts["packed"]:
        licence = packed["licence"] or "not stated in the file"
        rows.append(("model inside", f"{packed['model']} ({_size(packed['nbytes'])}), licence: {licence}"))
        rows.append(("starts with", packed["shown"]))
    rows += [(f"test {name}", result) for name, result in _results(facts).items()]
    rows += [("warning", warning) for warning in facts["warnings"]]
    if facts["selftest"]:
        failed = "a test failed: do not trust the answers of this machine"
        rows.append(("result", "all tests passed" if facts["ok"] else failed))
    width = max(len(name) for name, _ in rows)
    return [f"{name:<{width}}  {text}" for name, text in rows if text]


def _isa() -> dict[str, Any]:
    try:
        from pyx import machine

        return {"known": machine.isas(), "supported": machine.supported(), "in_use": machine.isa(), "error": None}
    except (ImportError, RuntimeError, ValueError) as error:
        return {"known": [], "supported": [], "in_use": None, "error": str(error)}


def _libgomp() -> str | None:
    """Path of the OpenMP library that the compiled modules have loaded: GCC's libgomp or clang's libomp."""
    try:
        import pyx.step  # noqa: F401 - links it
    except ImportError:
        return None
    return ", ".join(linux.libraries(r"/lib[gi]?omp")) or None


# ---- self-tests ------------------------------------------------------------------------------------------------------


def kernel_test(n_row: int = 5, k: int = 384) -> dict[str, str]:
    """Target -> "ok" or the error, for every target this processor supports.

    A ternary matrix [n_row, k] in I2_S is multiplied with int8 activations, and the sum of three in groups of 32; all
    sums are compared with plain Python.
    """
    try:
        from pyx import machine
        from pyx.weights import TernaryMatrix, pack_planes
    except ImportError as error:
        return {"kernels": f"wrong: the compiled part is missing ({error})"}

    random = Random(1)
    weights = [random.randint(-1, 1) for _ in range(n_row * k)]
    x = [random.randint(-127, 127) for _ in range(k)]
    expected = [sum(w * a for w, a in zip(weights[row * k : row * k + k], x)) for row in range(n_row)]
    codes = bytearray(n_row * k // 4)  # a block of 128 codes is 32 bytes: element 32*l + p in bits 6-2l of byte p
    for i, weight in enumerate(weights):
        block, inside = divmod(i, 128)
        codes[block * 32 + inside % 32] |= (weight + 1) << (6 - 2 * (inside // 32))
    data = bytes(codes) + array("f", [1.0] + [0.0] * 7).tobytes()
    # every group of activations contains 127, and the scales are 1, 2, 4: no sum is rounded
    codes3 = array("b", [random.randint(-1, 1) for _ in range(3 * n_row * k)])
    scales = array("f", [2.0**plane for plane in range(3) for _ in range(n_row * k // 32)])
    planes = TernaryMatrix.pack("TP32_R64", pack_planes(codes3, scales, 3, n_row, k, 32), n_row, k, planes=3)
    whole = array("f", [127.0 if i % 32 == 0 else a for i, a in enumerate(x)])
    expected3 = [sum(2**p * codes3[(p * n_row + row) * k + i] * whole[i] for p in range(3) for i in range(k))
                 for row in range(n_row)]

    results = {}
    try:
        before = machine.isa()
    except (RuntimeError, ValueError) as error:  # BITNET_EDGE_ISA names a target that cannot run here
        return {"kernels": f"wrong: {error}"}
    try:
        for name in machine.supported():
            machine.use(name)
            got = list(TernaryMatrix.pack("I2_S", data, n_row, k).accumulate(array("b", x)))
            results[name] = "ok" if got == expected else f"wrong: sums are {got}, not {expected}"
            sums = list(planes.matvec(whole, groups=True))
            if sums != expected3:
                results[name] = f"wrong: sums of planes are {sums}, not {expected3}"
    finally:
        machine.use(before)
    return results


def model_test() -> str:
    """ "ok", "skipped: why" or "wrong: what": the demo model against its golden answers.

    ``MODEL.golden.json`` holds ``turns``: each a ``question``, the greedy ``answer`` and its token ``ids``, computed
    by the NumPy model of tests/oracles/forward.py.
    """
    models = sorted(MODELS.glob("*.gguf"))
    if not models:
        return "skipped: no demo model"
    path = models[0].with_suffix(".golden.json")
    if not path.exists():
        return f"skipped: {path.name} is missing"
    import edge

    turns = json.loads(path.read_text())["turns"]
    try:
        with edge.load(str(models[0]), ctx=256, kv="f16", head="native") as engine:
            for turn in turns:
                ids: list[int] = []
                text = ""
                with engine.session() as session:
                    for piece in session.ask(turn["question"], max_tokens=64, sampling=edge.Sampling(temperature=0.0)):
                        ids += piece.ids
                        text += piece.text
                if ids != turn["ids"] or text.strip() != turn["answer"].strip():
                    said, right = text.strip(), turn["answer"].strip()
                    return f"wrong: the answer to {turn['question']!r} is {said!r}, not {right!r}"
    except EdgeError as error:
        return f"wrong: {error}"
    return f"ok, {len(turns)} answers as expected"


def packed_test(inside: Packed) -> str:
    """ "ok" or "wrong: what": model and arguments inside a packed program against their SHA-256."""
    from edge.tools.pack import verify

    try:
        same = verify(inside)
    except OSError as error:
        return f"wrong: {inside.path}: {error.strerror}"
    return "ok, as packed" if same else "wrong: the model or its arguments have changed; copy the file again"


def _results(facts: dict[str, Any]) -> dict[str, str]:
    """Name of a test -> its result; none where nothing was tested."""
    tests = facts["selftest"]
    if not tests:
        return {}
    return {**tests["kernels"], "demo": tests["model"], **({"inside": tests["packed"]} if "packed" in tests else {})}


# ---- advice ----------------------------------------------------------------------------------------------------------


def _warnings(facts: dict[str, Any]) -> list[str]:
    """One line for each thing that slows this machine down, with the remedy."""
    found = []
    if facts["governor"] == "powersave":
        found.append("the CPU governor powersave limits the clock; try: sudo cpupower frequency-set -g performance")
    if facts["isa"]["error"] is None and facts["libgomp"] is None:
        found.append("libgomp was not found in this process; only one core is used without it")
    if facts["memory_control"] is False and "Raspberry" in (facts["board"] or ""):
        found.append("systemd's MemoryMax has no effect on this system; add cgroup_enable=memory to cmdline.txt")
    for when, what in (facts["throttling"] or {}).items():
        if what:
            found.append(f"slowed down {when}: {', '.join(what)}; check power supply and cooling")
    if facts["celsius"] is not None and facts["celsius"] >= 80:
        found.append(f"{facts['celsius']} C: most boards slow down at this temperature; improve the cooling")
    if facts["huge_pages"] == "never":
        found.append("transparent huge pages are off; setting them to madvise makes answers faster")
    available = facts["memory"]["available"]
    if available is not None and available < 256 << 20:
        found.append(f"only {_size(available)} of memory is free")
    return found


def _size(n: int | None) -> str:
    return "unknown" if n is None else human(n)
