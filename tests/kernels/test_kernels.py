"""The C kernels: every target against the scalar target bit for bit, natively and under qemu; packings and
tables against golden bytes and the `gguf` package; and an audit of what instructions stand in which object file."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from tests.kernel_builds import (
    BASELINE_FILES,
    KERNELS,
    MACHINE,
    ROOT,
    TARGET_FILES,
    build_harness,
    compiled,
    compiler,
    flags_of,
    kept,
    objects,
    shipped,
    tool,
)
from tests.packaging.test_freeze import golden, golden_run

TARGETS = {machine: ["scalar", *(name.removesuffix(".c") for name in names)] for machine, names in TARGET_FILES.items()}

#: processor that qemu imitates -> the target it must choose; those that older ones lack
QEMU_CPUS = {
    "cortex-a53": ("neon", ["scalar", "neon"]),  # Raspberry Pi 3, Zero 2
    "cortex-a72": ("neon", []),  # Raspberry Pi 4
    "cortex-a76": ("dotprod", ["dotprod"]),  # Raspberry Pi 5
    "neoverse-n1": ("dotprod", []),
    "neoverse-n2": ("i8mm", []),  # not every qemu knows it
    "max": ("i8mm", ["i8mm"]),
}


# ---- building ------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def build() -> Callable[[str], dict[str, Path]]:
    """machine -> its object files."""

    def built(machine: str) -> dict[str, Path]:
        if machine not in TARGETS:
            pytest.skip(f"there are kernels for {', '.join(TARGETS)}, not for {machine}")
        return compiled(machine)

    return built


@pytest.fixture(scope="session")
def native(build, once) -> Path:
    return once("harness", lambda folder: build_harness(MACHINE, build(MACHINE), folder)) / "harness"


@pytest.fixture(scope="session")
def emulated(build) -> Path:
    """The harness for aarch64, to run under qemu."""
    tool("qemu-aarch64-static", "qemu-aarch64")
    there = build("aarch64")

    def link(folder: Path) -> None:
        build_harness("aarch64", there, folder, "-static")

    return kept("harness-aarch64", compiler("aarch64"), (), link) / "harness"


def run(*command: str | Path, **environment: str) -> str:
    """Run the harness; its output.  Fails with what it printed."""
    done = subprocess.run(
        [str(part) for part in command], capture_output=True, text=True, env={**os.environ, **environment}, timeout=600
    )
    assert done.returncode == 0, f"exit {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def digests(output: str) -> dict[str, str]:
    """Target -> digest of all its outputs; asserts that each target and the total say 0 failed."""
    targets = re.findall(r"^(\w+) +(\d+) passed, (\d+) failed, digest (\w{16})$", output, re.M)
    assert targets and all(int(passed) > 3900 and failed == "0" for _, passed, failed, _ in targets), output
    assert re.search(r"^\d+ passed, 0 failed$", output, re.M), output
    return {target: digest for target, _, _, digest in targets}


def assert_specified(specification: str, targets: Sequence[str], *command: str | Path, **environment: str) -> None:
    """The digest of each of these targets is that of the specification; if not, the whole comparison fails with what
    differs.
    """
    computed = digests(run(*command, "--digest", *targets, **environment))
    assert computed == dict.fromkeys(targets, specification), run(*command, *targets, **environment)


def listing(output: str) -> tuple[dict[str, str], str]:
    """(target -> "supported" or "unsupported", the best target) of harness --list."""
    lines = [line.split() for line in output.splitlines()]
    states = dict(lines)
    return {target: state for target, state in lines if target != "best"}, states["best"]


@pytest.fixture(scope="session")
def specification(native, once) -> str:
    """Digest of all outputs of the scalar target on this machine."""

    def write(folder: Path) -> None:
        (folder / "digest").write_text(digests(run(native, "scalar"))["scalar"])

    return (once("specification", write) / "digest").read_text()


# ---- every target equals the specification ---------------------------------------------------------------------------


@pytest.mark.parametrize("target", sorted({target for targets in TARGETS.values() for target in targets}))
def test_native_target(native, specification, target):
    """Equal outputs, bit for bit: the digest is that of the scalar target.  One that the processor lacks is refused."""
    known, _ = listing(run(native, "--list"))
    if known.get(target) != "supported":
        done = subprocess.run([str(native), target], capture_output=True, text=True)
        assert done.returncode == 3 and target in done.stderr
        why = "not supported by this processor" if target in known else "of another architecture"
        pytest.skip(f"target {target} is {why}")
    if target != "scalar":  # the specification itself
        assert_specified(specification, [target], native)


@pytest.mark.skipif(MACHINE != "x86_64", reason="x86-64 only")
def test_avxvnni_as_avx512_encodes_it(native, build, specification):
    """The same source with the same instructions in the encoding of AVX-512 VL, for processors that have only that."""
    if listing(run(native, "--list"))[0]["avx512vnni"] != "supported":
        pytest.skip("this processor has neither encoding to offer, or has the target's own")
    cc = compiler(MACHINE)
    # under the name of a target that this processor supports
    flags = [*flags_of(MACHINE, "avx2.c"), "-mavx512vl", "-mavx512vnni", "-Dkernels_avxvnni=kernels_avx2", "-O1"]

    def build_in_its_place(folder: Path) -> None:
        subprocess.run([cc, *flags, "-c", str(KERNELS / "avxvnni.c"), "-o", str(folder / "avxvnni.o")], check=True)
        build_harness(MACHINE, {**build(MACHINE), "avx2.c": folder / "avxvnni.o"}, folder)

    program = kept("avxvnni-in-avx512", cc, flags, build_in_its_place) / "harness"
    known, _ = listing(run(program, "--list"))
    assert "avx2" not in known
    assert_specified(specification, ["avxvnni"], program)


def test_best_target_is_the_last_supported(native):
    known, best = listing(run(native, "--list"))
    assert list(known) == TARGETS[MACHINE]
    assert best == [target for target, state in known.items() if state == "supported"][-1]


@pytest.mark.sanitize
def test_undefined_behaviour(native, build, specification, tmp_path):
    """The same comparison with the address and undefined-behaviour sanitizers."""
    cc, sanitizers = compiler(MACHINE), ("-fsanitize=address,undefined", "-fno-sanitize-recover=all")
    probe = tmp_path / "probe.c"
    probe.write_text("int main(void) { return 0; }\n")
    if subprocess.run([cc, *sanitizers, str(probe), "-o", str(tmp_path / "probe")]).returncode:
        pytest.skip("the compiler has no sanitizer libraries")
    targets = [target for target, state in listing(run(native, "--list"))[0].items() if state == "supported"]

    def build_sanitized(folder: Path) -> None:
        # Targets are not optimised: that compiles in a third of the time.  The specification, which every one of them
        # is compared with, is, a little.  What this processor cannot run need not be instrumented.
        plain = objects(MACHINE, folder, ("-O1", *sanitizers), names=BASELINE_FILES)
        instrumented = [f"{target}.c" for target in targets if target != "scalar"]
        built = {**build(MACHINE), **plain, **objects(MACHINE, folder, ("-O0", *sanitizers), names=instrumented)}
        build_harness(MACHINE, built, folder, *sanitizers)

    program = kept("sanitized", cc, [*sanitizers, *targets], build_sanitized) / "harness"
    assert_specified(specification, targets, program)


@pytest.mark.qemu
@pytest.mark.parametrize("cpu", QEMU_CPUS)
def test_aarch64_targets(emulated, specification, cpu):
    """Each Arm processor chooses its target, and its outputs are those of this machine: the digest covers every output
    of every kernel, so the bits depend neither on the target nor on the architecture.  A target is run once, on
    the oldest processor that has it and that every qemu knows: an instruction that it lacks would stop it."""
    qemu = tool("qemu-aarch64-static", "qemu-aarch64")
    if cpu not in subprocess.run([qemu, "-cpu", "help"], capture_output=True, text=True).stdout.split():
        pytest.skip(f"this qemu does not know {cpu}")
    known, best = listing(run(qemu, "-cpu", cpu, emulated, "--list"))
    chosen, newer = QEMU_CPUS[cpu]
    assert best == chosen and all(known[target] == "supported" for target in newer)
    if newer:  # Raspberry Pi OS on the Pi 5 has pages of 16 KiB
        pages = {"QEMU_PAGESIZE": "16384"} if cpu == "cortex-a76" else {}
        assert_specified(specification, newer, qemu, "-cpu", cpu, emulated, **pages)


# ---- what stands in the object files ---------------------------------------------------------------------------------


def disassembly(machine: str, path: Path) -> str:
    objdump = tool("objdump") if machine == MACHINE else tool(f"{machine}-linux-gnu-objdump")
    return subprocess.run(
        [objdump, "-d", "--no-show-raw-insn", path], check=True, capture_output=True, text=True
    ).stdout


def test_x86_instructions(build):
    """No AVX in baseline objects, no 512-bit registers and nothing fused in the AVX2 targets."""
    built = build("x86_64")
    for name in BASELINE_FILES:
        assert not re.search(r"%[yz]mm\d|\tv[a-z]", disassembly("x86_64", built[name])), name
    vnni = disassembly("x86_64", built["avxvnni.c"])
    assert "vpdpbusd" in vnni and not re.search(r"%zmm|%k[0-7]|\tvf(n?m)(add|sub)|vpmaddubsw", vnni)
    avx2 = disassembly("x86_64", built["avx2.c"])
    assert "vpmaddubsw" in avx2 and not re.search(r"%zmm|%k[0-7]|\tvf(n?m)(add|sub)|vpdpbusd", avx2)
    wide = disassembly("x86_64", built["avx512vnni.c"])
    assert "vpdpbusd" in wide and not re.search(r"\tvf(n?m)(add|sub)", wide)


def test_aarch64_instructions(build):
    """Dot products only in dotprod.c and i8mm.c, matrix multiplies only in i8mm.c, nothing fused anywhere."""
    built = build("aarch64")
    newer = r"\t[su]dot\t|\tusdot\t|\tsudot\t"
    matrix = r"\t[su]mmla\t|\tusmmla\t"
    for name in [*BASELINE_FILES, "neon.c"]:
        assert not re.search(f"{newer}|{matrix}", disassembly("aarch64", built[name])), name
    dotprod = disassembly("aarch64", built["dotprod.c"])
    assert "\tsdot\t" in dotprod and not re.search(f"{matrix}|\tusdot\t", dotprod)
    assert "\tsmmla\t" in disassembly("aarch64", built["i8mm.c"])
    for name, path in built.items():
        assert not re.search(r"\tfn?m(add|sub|la|ls)\t", disassembly("aarch64", path)), name


# ---- other compilers than the one that built this tree: clang, and the oldest GCC of Debian 12 -----------------------

# `make compilers` runs these, `make test` leaves them out, since they compile everything four times.  No compiler may
# warn, and what it builds must answer with the same bits.


@pytest.mark.compilers
def test_no_warning_when_optimised(tmp_path: Path) -> None:
    """The optimiser sees more than the parser: what setup.py compiles, a warning being an error."""
    objects(MACHINE, tmp_path)


@pytest.mark.compilers
@pytest.mark.qemu
@pytest.mark.parametrize("cc", [("aarch64-linux-gnu-gcc-11",), ("clang", "--target=aarch64-linux-gnu")], ids=" ".join)
def test_kernels_of_another_processor(native: Path, tmp_path: Path, cc: tuple[str, ...]) -> None:
    """A warning is an error; every row has the digest that the specification has from the usual compiler."""
    tool(cc[0])
    compiler("aarch64")  # links: the kernels need no library of their compiler
    program = build_harness("aarch64", objects("aarch64", tmp_path, cc=cc), tmp_path, "-static")
    found = digests(run(tool("qemu-aarch64-static", "qemu-aarch64"), "-cpu", "max", program))
    assert set(found.values()) == set(digests(run(native, "scalar")).values())


@pytest.mark.compilers
@pytest.mark.parametrize("cc", ["gcc-11", "clang"])
def test_the_whole_package(native: Path, tmp_path: Path, cc: str) -> None:
    """Every kernel without a warning; extensions with their threads (clang brings libomp); then the digests of all
    rows, the golden answer and the same logits as ever.
    """
    tool(cc)
    trial = ["-fopenmp", "-shared", "-x", "c", "/dev/null", "-o", str(tmp_path / "trial.so")]
    if subprocess.run([cc, *trial], capture_output=True).returncode:
        pytest.skip(f"{cc} has no OpenMP library (Debian: libomp-dev)")
    for name in [*BASELINE_FILES, *TARGET_FILES[MACHINE]]:
        flags = [*flags_of(MACHINE, name), "-Wall", "-Wextra", "-Werror", "-fsyntax-only"]
        subprocess.run([cc, *flags, str(KERNELS / name)], check=True)
    for name in ("setup.py", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tmp_path)
    for name in ("edge", "pyx", "build/cython"):  # C that is newer than its .pyx is used again
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("*.so", "__pycache__"))
    subprocess.run(
        [sys.executable, "setup.py", "--quiet", "build_ext", "--inplace"], cwd=tmp_path, check=True,
        env={**os.environ, "CC": cc, "LDSHARED": f"{cc} -shared"},
    )
    program = build_harness(MACHINE, shipped(tmp_path), tmp_path)
    assert set(digests(run(program)).values()) == set(digests(run(native, "scalar")).values())
    done = golden_run(sys.executable, "-P", "-m", "edge", PYTHONPATH=str(tmp_path))
    assert (done.returncode, done.stdout) == (0, golden()[2]), done.stderr
    folder = ROOT / "tests" / "kernels"
    tests = [str(folder / f"test_{name}.py") for name in ("transformer", "pages", "kv")]
    checked = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-o", f"pythonpath={tmp_path}", *tests],
        cwd=tmp_path, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": f"{tmp_path}:{ROOT}"},
    )
    assert checked.returncode == 0, checked.stdout[-3000:]
