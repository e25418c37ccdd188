"""doctor: what this machine supports, as text and as a dictionary, and a test that its results are correct.

The self-test multiplies a small ternary matrix, and a sum of three, with the kernels of every instruction set that this
processor supports and compares each result with plain Python.  Then the demo model answers greedily and must give the
tokens that are stored with it.  Answers are bit-equal on every machine, so the same stored answers serve for all.
"""

from __future__ import annotations

import json
import os
import platform
import sys
from pathlib import Path
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

    board = board or Board()
    facts: dict[str, Any] = {
        "version": edge.__version__,
        "python": platform.python_version(),
        **board.summary(),
        "memory": board.memory(),
        "memory_control": board.memory_control(),
        "isa": _isa(),
        "cores": _cores(board.root),
        "page_size": os.sysconf("SC_PAGE_SIZE"),
        "huge_pages": board.huge_pages(),
        "huge_page_support": {**board.huge_page_support(), "collapse": _collapses(), "own": _gives()},
        "governor": board.governor(),
        "mhz": board.mhz(),
        "celsius": board.celsius(),
        "throttling": board.throttling(),
        "libgomp": _libgomp(),
        "choices": _choices(board),
        "remembered": _remembered(),
        "model": _demo_model(),
        "packed": inside._asdict() if (inside := own()) else None,
    }
    facts["selftest"] = {"kernels": kernel_test(), "model": model_test()} if selftest else None
    if selftest and inside:
        facts["selftest"]["packed"] = packed_test(inside)
    facts["warnings"] = _warnings(facts)
    facts["ok"] = not any("wrong" in str(result) for result in _results(facts))
    return facts


def lines(facts: dict[str, Any]) -> list[str]:
    """The report as text, one fact per line."""
    memory, cores, isa, model = facts["memory"], facts["cores"], facts["isa"], facts["model"]
    throttling = facts["throttling"]
    rows = [
        ("board", facts["board"] or "unknown"),
        ("processor", facts["cpu"]),
        ("system", f"{facts['system']}, Python {facts['python']}, bitnet-edge {facts['version']}"),
        ("instructions", isa["error"] or f"{isa['in_use']} in use; supported: {', '.join(isa['supported'])}"),
        ("not supported", ", ".join(name for name in isa["known"] if name not in isa["supported"])),
        ("cores", _cores_words(cores)),
        ("memory", f"{_size(memory['available'])} available of {_size(memory['total'])}, swap {_size(memory['swap'])}"),
        ("pages", f"{facts['page_size'] // 1024} KiB; transparent huge pages: {facts['huge_pages'] or 'unknown'}"),
        ("2 MiB pages", huge_page_line(facts["huge_page_support"])),
        ("clock", _join(facts["mhz"] and f"{facts['mhz']:.0f} MHz", _named("governor", facts["governor"]))),
        ("temperature", f"{facts['celsius']} C" if facts["celsius"] is not None else ""),
        ("throttling", _join(*(f"{when}: {', '.join(what) or 'none'}" for when, what in (throttling or {}).items()))),
        ("libgomp", facts["libgomp"] or "not found"),
        *(("measured", _measured_words(each)) for each in facts["choices"]),
        ("remembered", _remembered_words(facts["remembered"])),
        ("demo model", model["error"] or f"{model['path']} ({_size(model['bytes'])})"),
    ]
    if packed := facts["packed"]:
        licence = packed["licence"] or "not stated in the file"
        rows.append(("model inside", f"{packed['model']} ({_size(packed['nbytes'])}), licence: {licence}"))
        rows.append(("defaults", packed["shown"]))
    if facts["selftest"]:
        rows += [(f"test {name}", result) for name, result in facts["selftest"]["kernels"].items()]
        rows.append(("test demo", facts["selftest"]["model"]))
        rows.append(("test inside", facts["selftest"].get("packed", "")))
    rows += [("warning", warning) for warning in facts["warnings"]]
    if facts["selftest"]:
        failed = "a test failed: do not trust the answers of this machine"
        rows.append(("result", "all tests passed" if facts["ok"] else failed))
    width = max(len(name) for name, _ in rows)
    return [f"{name:<{width}}  {text}" for name, text in rows if text]


# ---- facts that are not in /proc or /sys -----------------------------------------------------------------------------


def _isa() -> dict[str, Any]:
    try:
        from pyx.machine import cpu

        return {"known": cpu.isas(), "supported": cpu.supported(), "in_use": cpu.isa(), "error": None}
    except (ImportError, RuntimeError, ValueError) as error:
        return {"known": [], "supported": [], "in_use": None, "error": str(error)}


def _cores(root: str) -> dict[str, Any]:
    """The default number of threads, their cores, and the reason."""
    found = find(root)
    held = found.held(found.threads)
    return {
        "online": os.cpu_count(),
        "allowed": len(found.allowed),
        "performance": found.threads,
        "fast": list(found.fast),
        "held": held is not None,
        "source": found.source,
        "quota": found.quota,
        "openmp": found.openmp,
    }


def _cores_words(cores: dict[str, Any]) -> str:
    """The same as one line: "4 used (threads stay on 4-7, the fast ones by ...), 8 allowed, 8 online"."""
    fast = f"{spell(tuple(cores['fast']))}, the fast ones by {cores['source']}"
    why = _join(
        cores["source"] and f"{'threads stay on' if cores['held'] else 'as many as'} {fast}",
        cores["source"] and cores["openmp"] and f"{cores['openmp']} is set, so OpenMP places them",
        cores["performance"] < len(cores["fast"]) and f"a control group allows {cores['quota']:g} cores' worth of time",
    )
    used = f"{cores['performance']} used{f' ({why})' if why else ''}"
    return f"{used}, {cores['allowed']} allowed, {cores['online']} online"


def _libgomp() -> str | None:
    """Path of the OpenMP library that the compiled modules have loaded: GCC's libgomp or clang's libomp."""
    try:
        import pyx.step.transformer  # noqa: F401 - links it
    except ImportError:
        return None
    return ", ".join(linux.libraries(r"/lib[gi]?omp")) or None


def huge_page_line(support: dict[str, Any]) -> str:
    """Where 2 MiB pages are supported, in one line.  ``support``: the value of that name in :func:`report`."""
    words = {True: "yes", False: "no", None: "unknown"}
    return _join(
        f"weights, output head, KV cache: {words[support['own']]}",
        f"shared memory: {support['shmem'] or 'unknown'}",
        f"mapped model files: {words[support['files']]}",
        f"on request: {words[support['collapse']]}",
    )


def _gives() -> bool | None:
    """Whether the system gives 2 MiB pages for anonymous memory when asked; tested."""
    try:
        from pyx.machine.memory import Arena, huge_share
    except ImportError:
        return None
    arena = Arena(8 << 20, huge=True)
    arena.view[:] = bytes(len(arena.view))
    return bool(huge_share(arena.view) > 0)


#: how often tune measures what was not clear before
TUNES = 6


def tune(model: str | None = None) -> str | None:
    """Measure what is fastest for a model on this machine, and remember it.

    Returns None, or why nothing was measured.  Raises whatever loading raises.
    """
    import edge
    from edge.formats import open_checkpoint
    from edge.machine.choices import Choices, key_of, place, remember, remembered
    from edge.registry.library import choose

    path = choose(model).path
    key = key_of(open_checkpoint(path))
    remember(key, Choices())  # the default is what others are compared with
    with edge.load(path, draft="off") as engine:
        for _ in engine.session().complete("The river", max_tokens=8, ignore_eos=True):
            pass
        engine.wait_for_weights()
        if not engine.measures:
            return f"{engine.config.name} is so small that there is nothing to choose"
        if not engine.tune(TUNES):
            return "nothing was measured: other programs use the processor; try again when they have ended"
    return None if remembered(key) else f"what was measured cannot be remembered: {place()} cannot be written"


def _measured_words(choices: dict[str, Any]) -> str:
    given = choices["given_threads"]
    return f"{choices['words']} ({choices['model']}{'' if given is None else f'; --threads {given}'})"


def _choices(board: Board) -> list[dict[str, Any]]:
    """What was measured on this machine, for each model."""
    from edge.machine.choices import entries, kernels, processor_of

    try:
        here = processor_of(board), kernels()
    except (ImportError, RuntimeError, ValueError):
        return []
    return [{"model": key.model, "given_threads": key.given, **choices._asdict(), "words": choices.words()}
            for key, choices in entries()
            if (key.processor, key.kernels) == here]


def _remembered() -> dict[str, Any]:
    """The folder of system prompts that were read before, their number and their size."""
    from edge.cache import remembered

    n, nbytes = remembered.size(place := remembered.place())
    return {"folder": place, "files": n, "bytes": nbytes}


def _remembered_words(facts: dict[str, Any]) -> str:
    prompts = count(facts["files"], "system prompt")
    return f"{prompts}, {human(facts['bytes'])}, in {facts['folder']} (bitnet-edge rm --prompts deletes them)"


def _collapses() -> bool | None:
    """Whether the kernel makes 2 MiB pages when asked (MADV_COLLAPSE); tested with anonymous memory."""
    try:
        from pyx.machine.memory import Arena, advise
    except ImportError:
        return None
    arena = Arena(4 << 20)  # holds a whole page of 2 MiB wherever it begins
    arena.view[:] = bytes(len(arena.view))
    return bool(advise(arena.view, "collapse"))


def _demo_model() -> dict[str, Any]:
    facts: dict[str, Any] = {"path": None, "bytes": None, "error": None}
    paths = sorted(MODELS.glob("*.gguf"))
    if not paths:
        return {**facts, "error": "this installation has no demo model"}
    facts |= {"path": str(paths[0]), "bytes": paths[0].stat().st_size}
    try:
        from edge.formats import open_checkpoint

        config = open_checkpoint(str(paths[0])).config
        facts |= {"name": config.name, "arch": config.arch}
    except (EdgeError, ImportError, OSError) as error:
        facts["error"] = str(error)
    return facts


# ---- self-tests ------------------------------------------------------------------------------------------------------


def _numbers(seed: int, n: int, least: int, most: int) -> list[int]:
    """``n`` reproducible numbers in least..most (the linear congruential generator of POSIX rand48)."""
    out = []
    for _ in range(n):
        seed = (seed * 0x5DEECE66D + 11) % (1 << 48)
        out.append(least + (seed >> 24) % (most - least + 1))
    return out


def kernel_test(n_row: int = 5, k: int = 384) -> dict[str, str]:
    """Target -> "ok" or the error, for every target this processor supports.

    A ternary matrix [n_row, k] in I2_S is multiplied with int8 activations, and the sum of three in groups of 32; all
    sums are compared with plain Python.
    """
    try:
        from pyx.machine import cpu
        from pyx.weights.ternary import TernaryMatrix, pack_planes
    except ImportError as error:
        return {"kernels": f"wrong: the compiled part is missing ({error})"}
    from array import array

    weights = _numbers(1, n_row * k, -1, 1)
    x = _numbers(2, k, -127, 127)
    expected = [sum(w * a for w, a in zip(weights[row * k : row * k + k], x)) for row in range(n_row)]
    codes = bytearray(n_row * k // 4)  # a block of 128 codes is 32 bytes: element 32*l + p in bits 6-2l of byte p
    for i, weight in enumerate(weights):
        block, inside = divmod(i, 128)
        codes[block * 32 + inside % 32] |= (weight + 1) << (6 - 2 * (inside // 32))
    data = bytes(codes) + array("f", [1.0] + [0.0] * 7).tobytes()
    # every group of activations contains 127, and the scales are 1, 2, 4: no sum is rounded
    codes3 = array("b", _numbers(3, 3 * n_row * k, -1, 1))
    scales = array("f", [2.0**plane for plane in range(3) for _ in range(n_row * k // 32)])
    planes = TernaryMatrix.pack("TP32_R64", pack_planes(codes3, scales, 3, n_row, k, 32), n_row, k, planes=3)
    whole = array("f", [127.0 if i % 32 == 0 else a for i, a in enumerate(x)])
    expected3 = [sum(2**p * codes3[(p * n_row + row) * k + i] * whole[i] for p in range(3) for i in range(k))
                 for row in range(n_row)]

    results = {}
    try:
        before = cpu.isa()
    except (RuntimeError, ValueError) as error:  # BITNET_EDGE_ISA names a target that cannot run here
        return {"kernels": f"wrong: {error}"}
    try:
        for name in cpu.supported():
            cpu.use(name)
            got = list(TernaryMatrix.pack("I2_S", data, n_row, k).accumulate(array("b", x)))
            results[name] = "ok" if got == expected else f"wrong: sums are {got}, not {expected}"
            sums = list(planes.matvec(whole, groups=True))
            if sums != expected3:
                results[name] = f"wrong: sums of planes are {sums}, not {expected3}"
    finally:
        cpu.use(before)
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
    """ "ok" or "wrong: what": model and defaults inside a packed program against their SHA-256."""
    from edge.tools.pack import verify

    try:
        same = verify(inside)
    except OSError as error:
        return f"wrong: {inside.path}: {error.strerror}"
    return "ok, as packed" if same else "wrong: the model or the defaults have changed; copy the file again"


# ---- advice ----------------------------------------------------------------------------------------------------------


def _results(facts: dict[str, Any]) -> list[str]:
    tests = facts["selftest"] or {"kernels": {}, "model": ""}
    return [*tests["kernels"].values(), tests["model"], tests.get("packed", "")]


def _warnings(facts: dict[str, Any]) -> list[str]:
    """One line for each thing that slows this machine down, with the remedy."""
    found = []
    if sys.maxsize < 1 << 32:
        found.append("this Python is 32-bit; install a 64-bit system")
    if facts["governor"] == "powersave":
        found.append("the CPU governor powersave limits the clock; try: sudo cpupower frequency-set -g performance")
    if facts["isa"]["error"] is None and facts["libgomp"] is None:
        found.append("libgomp was not found in this process; only one core is used without it")
    if facts["memory_control"] is False and "Raspberry" in (facts["board"] or ""):
        found.append("systemd's MemoryMax has no effect on this system; add cgroup_enable=memory to cmdline.txt")
    throttling = facts["throttling"] or {}
    for when in ("now", "since boot"):
        if throttling.get(when):
            found.append(f"slowed down {when}: {', '.join(throttling[when])}; check power supply and cooling")
            break
    if facts["celsius"] is not None and facts["celsius"] >= 80:
        found.append(f"{facts['celsius']} C: most boards slow down at this temperature; improve the cooling")
    if facts["huge_pages"] == "never":
        found.append("transparent huge pages are off; setting them to madvise makes answers faster")
    available = facts["memory"]["available"]
    if available is not None and available < 256 << 20:
        found.append(f"only {_size(available)} of memory is free")
    return found


def _size(n: int | None) -> str:
    if n is None:
        return "unknown"
    return f"{n / 1e9:.1f} GB" if n >= 1e9 else f"{n / 1e6:.1f} MB"


def _named(name: str, value: object) -> str:
    return f"{name} {value}" if value else ""


def _join(*parts: object) -> str:
    return "; ".join(str(part) for part in parts if part)
