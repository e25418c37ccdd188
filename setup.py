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
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

MACHINE = os.environ.get("BITNET_EDGE_TARGET", platform.machine())
BASELINE = {"x86_64": ["-march=x86-64"], "aarch64": ["-march=armv8-a"]}.get(MACHINE, [])

KERNELS = Path(__file__).parent.resolve() / "pyx" / "kernels"

COMMON = ["-O3", "-std=c11", "-ffp-contract=off", "-fvisibility=hidden", "-fopenmp", "-g0", "-D_GNU_SOURCE"]
#: for extensions alone (a static program has no symbol versions): else the build machine's C library would be the
#: oldest they run on
GLIBC_FLOOR = ["-include", str(KERNELS / "glibc_floor.h")]

#: C file -> the instruction set it is written for; every other file gets the baseline
ISA_FLAGS = {
    "x86_64": {
        "sse41.c": ["-msse4.1"],
        "avx2.c": ["-mavx2", "-mf16c", "-mbmi2"],
        "avxvnni.c": ["-mavx2", "-mf16c", "-mbmi2", "-mavxvnni"],
        "avx512vnni.c": [
            *("-mavx2", "-mf16c", "-mbmi2", "-mavx512f", "-mavx512bw", "-mavx512vl", "-mavx512dq", "-mavx512vnni"),
            "-mprefer-vector-width=512",
        ],
    },
    "aarch64": {
        "dotprod.c": ["-march=armv8.2-a+dotprod"],
        "i8mm.c": ["-march=armv8.2-a+dotprod+i8mm"],
    },
}.get(MACHINE, {})

#: targets that not every compiler and assembler knows -> code to ask with; without the flags their file is empty
OPTIONAL = {
    "avxvnni.c": "#include <immintrin.h>\n__m256i probe(__m256i a) { return _mm256_dpbusd_avx_epi32(a, a, a); }\n",
}

#: the files of the targets; those of other machines compile to nothing
TARGETS = ["scalar.c", "sse41.c", "avx2.c", "avxvnni.c", "avx512vnni.c", "neon.c", "dotprod.c", "i8mm.c"]

#: extension -> C files linked into it (a kernel lives in exactly one extension; the others reach it by cimport)
C_SOURCES = {
    "cpu": [*TARGETS, "dispatch.c"],
    "page": ["packed_page.c"],
    "ternary": ["repack.c"],
    "stored_rows": ["dequantize.c"],
    "bandwidth": ["bandwidth.c"],
    "bit_planes": ["split_planes.c"],
    "stages": ["a48.c"],
    "planes": ["fit_planes.c"],
}

#: the extension with Cython's own code for memoryviews; each of the others would have a copy (packaging/README.md)
SHARED = "pyx._cython"


def check_names():
    """End the build if a name in the tables above has no file, or a C file is in none of them."""
    linked = {name for names in C_SOURCES.values() for name in names}
    there = {path.name for path in KERNELS.glob("*.c")}
    wrong = [f"pyx/kernels/{name} does not exist" for name in sorted((linked | {*ISA_FLAGS, *OPTIONAL}) - there)]
    wrong += [f"no extension is linked with pyx/kernels/{name}" for name in sorted(there - linked)]
    wrong += [f"pyx/{name}.pyx does not exist" for name in C_SOURCES if not (KERNELS.parent / f"{name}.pyx").exists()]
    if wrong:
        sys.exit(f"setup.py: {'; '.join(wrong)}")


def headers(*paths):
    """The files of pyx/kernels that these sources include, also by way of another file or of a module they cimport."""
    found: set[Path] = set()
    waiting = [*paths]
    while waiting:
        text = waiting.pop().read_text()
        named = {KERNELS / name for name in re.findall(r'(?:#include|extern from) "([\w.]+)"', text)}
        named |= {KERNELS.parent / f"{name}.pxd" for name in re.findall(r"from pyx\.(\w+) cimport", text)}
        waiting += named - found
        found |= named
    return [str(path) for path in sorted(found) if path.parent == KERNELS]


def left_out(compiler):
    """The files of OPTIONAL that this compiler (a list of words) cannot build."""

    def builds(name):
        command = [*compiler, *COMMON, *ISA_FLAGS[name], "-x", "c", "-c", "-", "-o", os.devnull]
        try:
            return subprocess.run(command, input=OPTIONAL[name], text=True, capture_output=True).returncode == 0
        except OSError:  # there is no such compiler: building says so
            return True

    return [name for name in OPTIONAL if name in ISA_FLAGS and not builds(name)]


class BuildExt(build_ext):
    """build_ext that adds the flags of ISA_FLAGS to single files, and leaves out the targets that cannot be built."""

    def finalize_options(self):
        super().finalize_options()
        # pip would throw the object files away; the tests link those of the kernels
        self.build_temp = f"build/temp-{MACHINE}"
        self.parallel: int | None = self.parallel or os.cpu_count()

    def build_extensions(self):
        compile_one = self.compiler._compile
        file_flags = dict(ISA_FLAGS)
        for name in left_out(self.compiler.compiler_so):
            target = Path(name).stem
            print(f"bitnet-edge: this compiler does not know {target}; built without that target", file=sys.stderr)
            del file_flags[name]
            file_flags["dispatch.c"] = [*BASELINE, f"-DWITHOUT_{target.upper()}"]

        def compile_with_isa(obj, src, ext, cc_args, extra_postargs, pp_opts):
            flags = file_flags.get(Path(src).name, BASELINE)
            compile_one(obj, src, ext, cc_args, [*extra_postargs, *flags], pp_opts)

        self.compiler._compile = compile_with_isa
        super().build_extensions()


def extensions():
    from Cython.Build import cythonize

    check_names()
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
