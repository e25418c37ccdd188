"""Build the compiled floor: one extension per pyx/*.pyx and one for what they share, C kernels with flags per file,
OpenMP.

Nothing is built with -march=native: each target (instruction set) has its own C file and its own flags, and is
chosen at run time.  BITNET_EDGE_TARGET=aarch64|x86_64 names the machine when cross-compiling (default: this machine).
"""

import os
import platform
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

MACHINE = os.environ.get("BITNET_EDGE_TARGET", platform.machine())
BASELINE = {"x86_64": ["-march=x86-64"], "aarch64": ["-march=armv8-a"]}.get(MACHINE, [])

PYX = Path(__file__).parent.resolve() / "pyx"
KERNELS = PYX / "kernels"

COMMON = ["-O3", "-std=c11", "-ffp-contract=off", "-fvisibility=hidden", "-fopenmp", "-g0", "-D_GNU_SOURCE"]
#: for extensions alone (a static program has no symbol versions): else the build machine's C library would be the
#: oldest they run on
GLIBC_FLOOR = ["-include", str(KERNELS / "glibc_floor.h")]


class Target(NamedTuple):
    """A target: its kernels are in pyx/kernels/NAME.c, and what it needs of a processor is in dispatch.c."""

    machine: str  # whose compilers know it; "": every one
    flags: Sequence[str] = ()  # of the instruction set; (): those of the baseline
    #: code that only compilers and assemblers which know the target build; others leave it out
    probe: str = ""


_AVX2 = ("-mavx2", "-mf16c", "-mbmi2")
_AVX512 = ("-mavx512f", "-mavx512bw", "-mavx512vl", "-mavx512dq", "-mavx512vnni", "-mprefer-vector-width=512")

#: the targets of every architecture, the best last (docs/architecture.md)
TARGETS = {
    "scalar": Target(""),
    "avx2": Target("x86_64", _AVX2),
    "avxvnni": Target(
        "x86_64", [*_AVX2, "-mavxvnni"],
        "#include <immintrin.h>\n__m256i probe(__m256i a) { return _mm256_dpbusd_avx_epi32(a, a, a); }\n"),
    "avx512vnni": Target("x86_64", [*_AVX2, *_AVX512]),
    "neon": Target("aarch64"),
    "dotprod": Target("aarch64", ["-march=armv8.2-a+dotprod"]),
    "i8mm": Target("aarch64", ["-march=armv8.2-a+dotprod+i8mm"]),
}


def targets_of(machine):
    """The names of the targets of a machine, the best last."""
    return [name for name, target in TARGETS.items() if target.machine in ("", machine)]


def flags_of(name, without=()):
    """The flags of a C file beyond COMMON: of its instruction set, or of the baseline; dispatch.c gets the targets of
    the build, those of this machine but ``without``.
    """
    name = Path(name).stem
    target = TARGETS.get(name)
    if target and target.flags and target.machine == MACHINE and name not in without:
        return [*target.flags]
    if name != "dispatch":
        return BASELINE
    mine = [target for target in targets_of(MACHINE) if target not in without]
    return [*BASELINE, *(f"-D{macro}(T)={' '.join(map('T({})'.format, names))}"
                         for macro, names in (("TARGETS", mine), ("ALL_TARGETS", TARGETS)))]


#: extension -> C files linked into it (a kernel lives in exactly one extension; the others reach it by cimport)
C_SOURCES = {
    "machine": [*(f"{target}.c" for target in TARGETS), "dispatch.c", "bandwidth.c"],  # other machines' are empty
    "kv": ["packed_page.c"],
    "weights": ["repack.c", "dequantize.c", "fit_planes.c"],
    "step": ["split_bits.c", "a48.c"],
}

#: the extension with Cython's own code for memoryviews; each of the others would have a copy (packaging/README.md)
SHARED = "pyx._cython"


def headers(*paths):
    """The files of pyx/kernels that these sources include, also by way of another file or of a module they cimport."""
    found: set[Path] = set()
    waiting = [*paths]
    while waiting:
        text = waiting.pop().read_text()
        named = {KERNELS / name for name in re.findall(r'(?:#include|extern from) "([\w.]+)"', text)}
        named |= {PYX / name for name in re.findall(r'^include "([\w./]+)"', text, re.MULTILINE)}
        named |= {PYX / f"{name}.pxd" for name in re.findall(r"from pyx\.(\w+) cimport", text)}
        waiting += named - found
        found |= named
    return [str(path) for path in sorted(found) if path.parent == KERNELS]


def left_out(compiler):
    """The targets of this machine that this compiler (a list of words) cannot build."""

    def builds(name):
        command = [*compiler, *COMMON, *flags_of(name), "-x", "c", "-c", "-", "-o", os.devnull]
        try:
            return subprocess.run(command, input=TARGETS[name].probe, text=True, capture_output=True).returncode == 0
        except OSError:  # there is no such compiler: building says so
            return True

    return [name for name in targets_of(MACHINE) if TARGETS[name].probe and not builds(name)]


class BuildExt(build_ext):
    """build_ext that adds the flags of single files, and leaves out the targets that cannot be built."""

    def finalize_options(self):
        super().finalize_options()
        # pip would throw the object files away; the tests link those of the kernels
        self.build_temp = f"build/temp-{MACHINE}"
        self.parallel: int | None = self.parallel or os.cpu_count()

    def build_extensions(self):
        compile_one = self.compiler._compile
        without = left_out(self.compiler.compiler_so)
        for name in without:
            print(f"bitnet-edge: this compiler does not know {name}; built without that target", file=sys.stderr)

        def compile_with_isa(obj, src, ext, cc_args, extra_postargs, pp_opts):
            flags = flags_of(src, without)
            compile_one(obj, src, ext, cc_args, [*extra_postargs, *flags], pp_opts)

        self.compiler._compile = compile_with_isa
        super().build_extensions()


def extensions():
    from Cython.Build import cythonize

    compiled = {"extra_compile_args": [*COMMON, *GLIBC_FLOOR], "extra_link_args": ["-fopenmp", "-Wl,-s"]}
    modules = [Extension(SHARED, [], **compiled)]  # Cython writes its source
    for pyx in sorted(Path("pyx").glob("*.pyx")):
        # setuptools wants sources relative to the tree
        sources = [Path("pyx/kernels") / name for name in C_SOURCES.get(pyx.stem, [])]
        declared = [path for path in [pyx.with_suffix(".pxd")] if path.exists()]
        modules.append(
            Extension(
                f"pyx.{pyx.stem}",
                [str(pyx), *map(str, sources)],
                include_dirs=[str(KERNELS)],
                depends=headers(pyx, *declared, *sources),
                libraries=["m"],
                **compiled,
            )
        )
    return cythonize(
        modules,
        nthreads=os.cpu_count() or 1,
        build_dir="build/cython",
        shared_utility_qualified_name=SHARED,
        compiler_directives={
            "language_level": 3,
            "boundscheck": False,
            "wraparound": False,
            "cdivision": True,
            "initializedcheck": False,
            "embedsignature": False,
        },
    )


if __name__ == "__main__":
    setup(ext_modules=extensions(), cmdclass={"build_ext": BuildExt})
