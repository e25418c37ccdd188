#!/usr/bin/env bash
# Put bitnet-edge, built on this machine, into a Debian system for arm64, and print that system's folder.
#
#   packaging/stage-aarch64.sh SUITE [EXTRA...]     a suite of Debian; the dependencies of pyproject.toml and extras
#
# In it are then /opt/bitnet-edge, the sources with cross-compiled extensions, and /opt/site, the wheels of what they
# need.  Nothing is compiled or installed under emulation.  Needs root, and the virtual environment of `make freeze`.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
SUITE=$1
shift
PY=${VENV:-.venv}/bin/python

say() { printf 'stage-aarch64: %s\n' "$*" >&2; }
fail() { say "$*"; exit 1; }
"$PY" -c 'import PyInstaller, packaging' 2>/dev/null || fail "no virtual environment with PyInstaller; type: make freeze"
command -v aarch64-linux-gnu-gcc >/dev/null || fail "no aarch64-linux-gnu-gcc; type: packaging/prepare.sh ci"
ROOT=$(packaging/debian-root.sh "$SUITE" arm64)
PYTHON=$(readlink "$ROOT/usr/bin/python3")
PYTHON=${PYTHON#python}

# ---- the same versions of the same packages as here ------------------------------------------------------------------

wheels=$(echo "$@"; cat pyproject.toml packaging/closure.py; "$PY" packaging/closure.py freeze)
if [ "$wheels" != "$(cat "$ROOT/opt/site.from" 2>/dev/null)" ]; then
    say "unpacking wheels for Python $PYTHON"
    rm -rf "$ROOT/opt/site" "$ROOT/opt/site.from"
    "$PY" packaging/closure.py --unpack "$ROOT/opt/site" --python "$PYTHON" --machine aarch64 "$@" >&2
    echo "$wheels" >"$ROOT/opt/site.from"
fi

# ---- our sources, the extensions cross-compiled ----------------------------------------------------------------------

WORK=build/aarch64-$SUITE
compiled=$(echo "$PYTHON"; aarch64-linux-gnu-gcc --version; git ls-files -z pyx setup.py | xargs -0 sha256sum)
mkdir -p "$WORK"
if [ "$compiled" != "$(cat "$WORK/compiled" 2>/dev/null)" ]; then
    say "cross-compiling for Python $PYTHON"
    rm -rf "$WORK/tree" "$WORK/compiled"
fi
mkdir -p "$WORK/tree/build"
find "$WORK/tree" ! -type d ! -path "$WORK/tree/pyx/*.so" -delete
git ls-files -z | tar --null --files-from=- --create | tar --extract --directory "$WORK/tree" # no leftovers of builds
if [ ! -e "$WORK/compiled" ]; then
    [ ! -d build/cython ] || cp -a build/cython "$WORK/tree/build/" # C that is newer than its .pyx is used again
    (
        cd "$WORK/tree"
        packaging/cross-aarch64.sh "$ROOT" "$PYTHON" "$OLDPWD/$PY" setup.py --quiet build_ext --inplace \
            >../compile.log 2>&1 || { cat ../compile.log >&2; exit 1; }
    )
    rm -rf "$WORK/tree/build"
    echo "$compiled" >"$WORK/compiled"
fi
mkdir -p "$ROOT/opt/bitnet-edge"
find "$ROOT/opt/bitnet-edge" -mindepth 1 -maxdepth 1 ! -name build ! -name dist -exec rm -rf {} + # what was frozen stays
cp -a "$WORK/tree/." "$ROOT/opt/bitnet-edge/"
echo "$ROOT"
