"""The inner loops of the aarch64 kernels, and what a static analyser (llvm-mca) makes of them.

The kernels are compiled to assembly with the flags of setup.py; nothing is added to the sources.  A loop is a label and
the branch back to it; an inner loop holds no other loop (a branch forward is taken as not taken).  The kernels run full
tiles in constant shapes, so the loop that matters is the one with the most products per instruction; loops for
remainders and for fewer rows have fewer.
"""

from __future__ import annotations

import json
import os
import re
import runpy
import shutil
import subprocess
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TRIPLE = "aarch64-linux-gnu"
ITERATIONS = 200

#: target (instruction set) -> what llvm-mca must be allowed to decode
TARGETS = {"neon": "", "dotprod": "+dotprod", "i8mm": "+dotprod,+i8mm"}

#: name of a loop -> its function, the instructions it must contain one of, and those it must not contain
LOOPS = {
    "ternary_matvec": ("ternary_matvec", (), ()),
    "ternary_matmul": ("tiled_matmul", (), ()),
    "group_matmul": ("group_vector_1", (), ()),  # one token, scales for each 128 weights (groups.inc.h)
    "panel_matmul": ("panel_add_128_1", (), ()),  # of panels, without what a group needs besides: "panel floats"
    "five_matmul": ("five_add_1", (), ()),  # the same with five weights in a byte, where they are not unpacked
    "head_i8": ("head_one_i8", (), ()),
    "attend_i8 keys": ("score_i8", (), ("eor", "usdot")),
    "attend_i8 values": ("value_i8", ("eor", "usdot"), ()),  # u - 128 by exclusive or; usdot takes u as it is
}

#: loops that a target does not have: without dot products, five weights in a byte are unpacked
WITHOUT = {"neon": {"five_matmul"}}

#: the same where a target has a function of its own: eight tokens
OWN_FUNCTION = {("i8mm", "ternary_matmul"): "few_4"}

#: what reading a prompt consists of, where tiles.inc.h alone does not do it: name -> its function, an instruction of
#: its loop, and for how many of what is counted that one stands
PARTS = {
    # lookup.inc.h.  Products: an addition of eight lanes is that of four weights and eight tokens
    "lookup rows": ("lookup_rows", r"add\tv.*\.8h$", 32),
    "lookup table": ("lookup_table", r"str\tq", 1),  # entries of eight tokens
    "lookup lanes": ("lookup_lanes", r"sxtl2?\t", 8),  # activations
    "lookup offsets": ("lookup_offsets", r"str\tq", 32),  # weights: eight offsets, each of four
    "lookup flush": ("lookup_flush", r"saddw2?\tv.*\.4s", 4),  # sums
    # packs.inc.h
    "pack products": ("pack_products", r"s(dot|mmla)\t", 16),  # 32 of smmla: products() below
    "pack codes": ("pack_codes", r"ushr\t", 64 / 3),  # weights: three shifts for four of each of 16 bytes
    "pack tokens": ("pack_tokens", r"ldr\tq", 16),  # activations
}
#: target -> whose parts it consists of
PARTS_OF = {"neon": "lookup", "dotprod": "pack", "i8mm": "pack"}

#: target -> passes of the loop over lanes that the compiler left in panel_add, for each group
PANEL_PASSES = {"neon": 3, "dotprod": 2, "i8mm": 2}
FLOAT_PASSES = 4  # of the loop that scales and adds sums: 64 rows in vectors of four, four in each pass
#: the rest of what a group of a panel costs, or all of it (steps of a group of 32 are no loop) -> the function, and the
#: weights of the group
GROUP_LOOPS = {"panel floats": ("panel_add_128_1", 64 * 128), "planes of 32": ("panel_add_32_1", 64 * 32)}

#: processors analysed, and the instructions they decode in a cycle where llvm-mca's model does not say it.
#: Cortex-A53 and A72: 2 and 3 (their models).  Cortex-A76 and Neoverse N1 (the same core): 4.  Neoverse N2: 5.
#: Arm Software Optimization Guides, section 2.1 "Pipeline overview".
DECODE = {"cortex-a53": 2, "cortex-a72": 3, "cortex-a76": 4, "neoverse-n1": 4, "neoverse-n2": 5}

#: targets a processor can run; all where it is not named
TARGETS_OF = {
    "cortex-a53": ("neon",),
    "cortex-a72": ("neon",),
    "cortex-a76": ("neon", "dotprod"),
    "neoverse-n1": ("neon", "dotprod"),
}

BRANCH = re.compile(r"^\s+(?:b(?:\.?[a-z]{2,4})?|cbn?z|tbn?z)\s(?:.*[,\s])?(\.L\w+)\s*$")
BRANCH_TARGET = re.compile(r"\.L\w+$")
LABEL = re.compile(r"^(\.L\w+):")
FUNCTION = re.compile(r"^([A-Za-z_]\w*)(?:\.[\w.]+)?:")


class Missing(Exception):
    """A tool or a loop that is not there; the message says which."""


@dataclass(frozen=True)
class Loop:
    """One inner loop: its instructions, and the products of two integers (or what else it counts) in one pass."""

    target: str
    name: str
    body: tuple[str, ...]
    products: float

    @property
    def weights(self) -> float:
        """Weights (or, in attention and matmul, products) that one pass takes care of.

        The dot-product head splits an activation in two bytes and spends two products on each weight.  The sdot form of
        attention's values spends one product in five (four queries, and the ones) on the sum of the values.  Where five
        weights are in a byte, one product in six divides the byte.
        """
        if "sdot" not in self.operations or self.name in (*PARTS, *GROUP_LOOPS):
            return self.products
        return self.products * {"head_i8": 1 / 2, "attend_i8 values": 4 / 5, "five_matmul": 5 / 6}.get(self.name, 1)

    @property
    def operations(self) -> Counter[str]:
        """Mnemonic -> how often."""
        return Counter(line.split()[0] for line in self.body)


@dataclass(frozen=True)
class Cycles:
    """What the analyser says of one loop on one processor."""

    target: str
    loop: str
    cpu: str
    model: str  # the scheduling model LLVM has for that processor: A57, N1, N2
    cycles: float  # per pass of the loop
    weights: float  # per pass of the loop
    instructions: int

    @property
    def per_weight(self) -> float:
        """Cycles per weight (matmul, attention: per product)."""
        return self.cycles / self.weights


# ---- tools -----------------------------------------------------------------------------------------------------------


def compiler() -> str:
    """The aarch64 compiler: BITNET_EDGE_AARCH64_CC, or the cross compiler of Debian. Raises Missing."""
    name = os.environ.get("BITNET_EDGE_AARCH64_CC", f"{TRIPLE}-gcc")
    if not shutil.which(name):
        raise Missing(f"{name} is not installed (Debian: gcc-aarch64-linux-gnu)")
    return name


def analyser() -> str:
    """LLVM_MCA, or the newest llvm-mca: later ones have models of more cores. Raises Missing."""
    found: dict[int, str] = {}
    for folder in os.environ.get("PATH", "").split(os.pathsep):
        for path in Path(folder or ".").glob("llvm-mca-*"):
            if path.name[9:].isdigit():
                found.setdefault(int(path.name[9:]), str(path))
    name = os.environ.get("LLVM_MCA") or (found[max(found)] if found else shutil.which("llvm-mca"))
    if not name:
        raise Missing("llvm-mca is not installed (Debian: llvm, or llvm-19 for a model of the Cortex-A76's core)")
    return name


def version(tool: str) -> str:
    """The line of `tool --version` that has a number."""
    lines = subprocess.run([tool, "--version"], capture_output=True, text=True, check=True).stdout.splitlines()
    return next(line.strip() for line in lines if re.search(r"\d\.\d", line))


def flags(target: str) -> list[str]:
    """Compiler flags of setup.py for pyx/kernels/<target>.c, plus -fPIC, with which every extension module is built."""
    before = os.environ.get("BITNET_EDGE_TARGET")
    os.environ["BITNET_EDGE_TARGET"] = "aarch64"
    try:
        setup = runpy.run_path(str(ROOT / "setup.py"), run_name="flags")
    finally:
        if before is None:
            del os.environ["BITNET_EDGE_TARGET"]
        else:
            os.environ["BITNET_EDGE_TARGET"] = before
    return [*setup["COMMON"], "-fPIC", *setup["flags_of"](f"{target}.c")]


def assembly(target: str, kernels: Path = ROOT / "pyx/kernels") -> str:
    """Assembly of one target (instruction set). Raises Missing (no compiler), CalledProcessError (does not compile)."""
    source = kernels / f"{target}.c"
    command = [compiler(), *flags(target), "-S", "-o", "-", str(source)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


# ---- loops -----------------------------------------------------------------------------------------------------------


def functions(text: str) -> dict[str, list[str]]:
    """Function -> its lines; clones (name.constprop.0) follow the function they were made of."""
    found: dict[str, list[str]] = {}
    lines: list[str] | None = None
    for line in text.splitlines():
        if head := FUNCTION.match(line):
            lines = found.setdefault(head[1], [])
        elif lines is not None:
            lines.append(line)
    return found


def inner_loops(lines: list[str]) -> Iterator[tuple[str, ...]]:
    """Bodies of the loops of a function that hold no other loop."""
    label = {match[1]: i for i, line in enumerate(lines) if (match := LABEL.match(line))}
    jump = {i: label.get(match[1], -1) for i, line in enumerate(lines) if (match := BRANCH.match(line))}
    for end, start in jump.items():
        if 0 <= start < end and not any(start < i < end and 0 <= to < i for i, to in jump.items()):
            yield tuple(line.strip() for line in lines[start + 1 : end + 1] if re.match(r"\s+[a-z]", line))


def products(instruction: str) -> int:
    """Products of two integers in one instruction: 32 in smmla, 16 in a dot product, 8 or 4 in a widening multiply."""
    name, _, operands = instruction.partition("\t")
    if name in ("smmla", "ummla", "usmmla"):
        return 32
    if name in ("sdot", "udot", "usdot"):
        return 16
    if re.fullmatch(r"[su]ml(al|sl)2?|[su]mull2?", name):
        return 8 if ".8h" in operands.split(",")[0] else 4
    return 0


def densest(text: str, target: str, name: str) -> Loop | None:
    """The inner loop of that name with the most products per instruction; None where the compiler left none."""
    function, one_of, none_of = LOOPS[name]
    function = OWN_FUNCTION.get((target, name), function)
    best: Loop | None = None
    for body in inner_loops(functions(text).get(function, [])):
        there = {line.split()[0] for line in body}
        if (one_of and not there & set(one_of)) or there & set(none_of):
            continue
        loop = Loop(target, name, body, sum(products(line) for line in body))
        if loop.products and (not best or loop.products / len(body) > best.products / len(best.body)):
            best = loop
    return best


def part(text: str, target: str, name: str) -> Loop | None:
    """The inner loop of one part of reading a prompt that gets the most done per instruction."""
    function, instruction, count = PARTS[name]
    best: Loop | None = None
    for body in inner_loops(functions(text).get(function, [])):
        done = sum(products(line) for line in body) or count * sum(bool(re.match(instruction, line)) for line in body)
        if done and (not best or done / len(body) > best.products / len(best.body)):
            best = Loop(target, name, body, done)
    return best


def group_loop(text: str, target: str, name: str) -> Loop | None:
    """What panel_add does for a group of one plane, as often as it does it: sums are stored, scaled and added; of
    "planes of 32" the products, too.
    """
    function, weights = GROUP_LOOPS[name]
    lines = functions(text).get(function, [])
    label = {match[1]: i for i, line in enumerate(lines) if (match := LABEL.match(line))}
    jumps = ((label.get(match[1], -1), i) for i, line in enumerate(lines) if (match := BRANCH.match(line)))
    loops = sorted(((start, end) for start, end in jumps if 0 <= start < end), key=lambda loop: loop[0] - loop[1])
    if len(loops) < 2:
        return None
    group = loops[1]  # the first holds the groups of all planes
    inside = [loop for loop in loops[2:] if group[0] < loop[0] < loop[1] < group[1]]
    inner = [loop for loop in inside if not any(loop[0] < start < loop[1] for start, _ in inside)]
    products_of = {loop for loop in inside if any(products(line.strip()) for line in lines[loop[0] : loop[1]])}

    def times(i: int) -> int:
        """How often a line is executed, of which the analyser is to know."""
        around = [loop for loop in inside if loop[0] < i <= loop[1]]
        if name == "panel floats" and any(loop in inner and loop in products_of for loop in around):
            return 0  # "panel_matmul"
        passes = [PANEL_PASSES[target] if loop in products_of else FLOAT_PASSES for loop in around]
        return max(passes, default=1)

    body: list[str] = []
    for i in range(group[0] + 1, group[1] + 1):
        if re.match(r"\s+[a-z]", lines[i]):
            body += [lines[i].strip()] * times(i)
    return Loop(target, name, tuple(body), weights)


def find(target: str, kernels: Path = ROOT / "pyx/kernels") -> list[Loop]:
    """The inner loops of a target. Raises Missing where one is not found (unrolled value loops of attention may be)."""
    text = assembly(target, kernels)
    parts = [name for name in PARTS if name.startswith(PARTS_OF[target])]
    found = [loop for name in LOOPS if (loop := densest(text, target, name))]
    found += [loop for name in parts if (loop := part(text, target, name))]
    found += [loop for name in GROUP_LOOPS if (loop := group_loop(text, target, name))]
    lacking = {*LOOPS, *parts, *GROUP_LOOPS} - {loop.name for loop in found} - {"attend_i8 values"}
    lacking -= WITHOUT.get(target, set())
    if lacking:
        raise Missing(f"{target}: no inner loop found in {', '.join(sorted(lacking))}")
    return found


# ---- analysis --------------------------------------------------------------------------------------------------------


def analyse(loops: list[Loop], cpu: str) -> list[Cycles]:
    """llvm-mca's cycles for loops of one target, 200 passes each, everything in the first-level cache."""
    text = []
    for i, loop in enumerate(loops):
        text += [f"# LLVM-MCA-BEGIN loop{i}", *(BRANCH_TARGET.sub(f".Lloop{i}", line) for line in loop.body)]
        text += ["# LLVM-MCA-END"]
    with tempfile.NamedTemporaryFile("w", suffix=".s") as source:
        source.write("\n".join([*(f".Lloop{i}:" for i in range(len(loops))), *text, ""]))
        source.flush()
        command = [analyser(), f"-mtriple={TRIPLE}", f"-mcpu={cpu}", f"-mattr={TARGETS[loops[0].target]}", "-json"]
        command += [f"-iterations={ITERATIONS}", f"-dispatch={DECODE[cpu]}", source.name]
        done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise Missing(f"llvm-mca {cpu}: {done.stderr.strip().splitlines()[:1]}")
    result = json.loads(done.stdout)
    model = re.sub(r"Unit.*", "", result["TargetInfo"]["Resources"][0])
    regions = {region["Name"]: region["SummaryView"] for region in result["CodeRegions"]}
    return [
        Cycles(
            loop.target,
            loop.name,
            cpu,
            model,
            regions[f"loop{i}"]["TotalCycles"] / ITERATIONS,
            loop.weights,
            len(loop.body),
        )
        for i, loop in enumerate(loops)
    ]


def everything(kernels: Path = ROOT / "pyx/kernels") -> list[Cycles]:
    """Each loop of each target on each processor that can run it."""
    loops = {target: find(target, kernels) for target in TARGETS}
    runs = {cpu: TARGETS_OF.get(cpu, tuple(TARGETS)) for cpu in DECODE}
    return [cycles for cpu in DECODE for target in runs[cpu] for cycles in analyse(loops[target], cpu)]
