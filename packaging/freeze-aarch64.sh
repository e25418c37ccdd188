#!/usr/bin/env bash
# Freeze for aarch64 on an x86-64 machine, from the same spec, and run the result as a Raspberry Pi 4 and as a 5.
#
#   packaging/freeze-aarch64.sh            dist/bitnet-edge-aarch64 and dist/bitnet-edge-aarch64.tar.gz, smoke-tested
#   packaging/freeze-aarch64.sh root       only the arm64 system with what the freeze needs; prints its folder
#
# An arm64 Debian system is made once under ~/.cache/bitnet-edge (BITNET_EDGE_CACHE names another place); the suite is
# bookworm, whose C library Raspberry Pi OS has had since 2023.  Only dpkg and PyInstaller run under emulation: the
# extensions are cross-compiled here against that system's Python headers, and wheels are unpacked by our own pip.
# Needs root, debootstrap, qemu-user-static, gcc-aarch64-linux-gnu and the virtual environment that `make` sets up.
# MIRROR=URI names a Debian mirror where this machine's apt knows none.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

SUITE=bookworm
PYTHON=3.11 # bookworm's
CACHE=${BITNET_EDGE_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/bitnet-edge}
ROOT=$CACHE/arm64-$SUITE
VENV=${VENV:-.venv}
PY=$VENV/bin/python
OUT=${DIST:-dist}

say() { printf 'freeze-aarch64: %s\n' "$*" >&2; }
fail() { say "$*"; exit 1; }
done_already() { [ "$(cat "$ROOT/.done-$1" 2>/dev/null)" = "${2:-yes}" ]; }
mark() { printf '%s\n' "${2:-yes}" > "$ROOT/.done-$1"; }
inside() { # a command in the arm64 system, with an environment of its own
    env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8 TERM=dumb DEBIAN_FRONTEND=noninteractive \
        container=lxc packaging/emulated.py --root "$ROOT" "$@" # container: debootstrap then needs no mknod
}

# ---- what this machine must have -------------------------------------------------------------------------------------

need() {
    local missing=()
    command -v debootstrap >/dev/null || missing+=(debootstrap)
    command -v qemu-aarch64-static >/dev/null || missing+=(qemu-user-static)
    command -v aarch64-linux-gnu-gcc >/dev/null || missing+=(gcc-aarch64-linux-gnu libc6-dev-arm64-cross)
    [ ${#missing[@]} = 0 ] && return
    [ "$(id -u)" = 0 ] || fail "missing system packages; type: sudo apt-get install -y ${missing[*]}"
    say "installing ${missing[*]}"
    apt-get -qq update >&2 || true
    apt-get -qq -y install --no-install-recommends "${missing[@]}" </dev/null >&2
}

[ "$(id -u)" = 0 ] || fail "needs root: the files of the arm64 system belong to several users"
need
mkdir -p "$CACHE" "$OUT"

# ---- the arm64 system, made once -------------------------------------------------------------------------------------

mirror() { # the mirror this machine itself uses
    apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' "Codename: $SUITE" 'Component: main' \
        'Origin: Debian' 2>/dev/null | head -1
}

if ! done_already system; then
    URI=${MIRROR:-$(mirror)}
    [ -n "$URI" ] || fail "apt here knows no Debian $SUITE; name one: MIRROR=http://... packaging/freeze-aarch64.sh"
    say "making a Debian $SUITE for arm64 in $ROOT (once, some minutes)"
    rm -rf "$ROOT"
    debootstrap --arch=arm64 --variant=minbase --foreign \
        --keyring=/usr/share/keyrings/debian-archive-keyring.gpg "$SUITE" "$ROOT" "$URI" >"$CACHE/debootstrap.log" 2>&1 ||
        fail "debootstrap failed; see $CACHE/debootstrap.log"
    # the same way to the mirror as here: name look-up, proxies and clock checks
    cp -L /etc/resolv.conf /etc/hosts "$ROOT/etc/"
    mkdir -p "$ROOT/etc/apt/apt.conf.d"
    apt-config dump | grep -E '^Acquire::(Check-Valid-Until|Check-Date|https?::Proxy) ' > "$ROOT/etc/apt/apt.conf.d/99host" ||
        true
    inside /debootstrap/debootstrap --second-stage >>"$CACHE/debootstrap.log" 2>&1 ||
        fail "debootstrap's second stage failed; see $CACHE/debootstrap.log"
    echo "deb $URI $SUITE main" > "$ROOT/etc/apt/sources.list"
    mark system
fi

PACKAGES="python3 libpython3-dev binutils libgomp1 libstdc++6"
if ! done_already packages "$PACKAGES"; then
    say "installing $PACKAGES in it"
    # shellcheck disable=SC2086  # a list
    { inside apt-get -qq update &&
        inside apt-get -qq -y install --no-install-recommends $PACKAGES </dev/null; } >"$CACHE/apt.log" 2>&1 ||
        fail "apt-get failed in the arm64 system; see $CACHE/apt.log"
    mark packages "$PACKAGES"
fi
if [ "${1:-}" = root ]; then
    echo "$ROOT"
    exit
fi

# ---- the same versions of the same packages as in the virtual environment here ---------------------------------------

[ -x "$PY" ] || fail "no virtual environment $VENV; type: make freeze"
"$PY" -c 'import PyInstaller' 2>/dev/null || fail "no PyInstaller in $VENV; type: make freeze"
WHEELS=$("$PY" - <<'END'
import ast, re, importlib.metadata as m
stated = re.search(r"^dependencies = (\[.*?^\])", open("pyproject.toml").read(), re.M | re.S)[1]
run = [re.match(r"[\w-]+", requirement)[0] for requirement in ast.literal_eval(stated)]
run += ["markupsafe", "wcwidth"]  # what those need
build = ["pyinstaller", "pyinstaller-hooks-contrib", "altgraph", "packaging", "setuptools"]
print(*(f"{name}=={m.version(name)}" for name in run + build))
END
)
if ! done_already wheels "$WHEELS"; then
    say "unpacking aarch64 wheels"
    rm -rf "$ROOT/opt/site"
    platforms=()
    for minor in $(seq 17 36); do platforms+=(--platform "manylinux_2_${minor}_aarch64"); done
    # shellcheck disable=SC2086  # a list
    "$PY" -m pip --disable-pip-version-check --no-input --quiet install --target "$ROOT/opt/site" --no-deps \
        --only-binary=:all: --platform manylinux2014_aarch64 "${platforms[@]}" --implementation cp \
        --python-version "$PYTHON" $WHEELS
    mark wheels "$WHEELS"
fi

# ---- our sources, the extensions cross-compiled ----------------------------------------------------------------------

say "cross-compiling"
WORK=build/freeze-aarch64
rm -rf "$WORK/src"
mkdir -p "$WORK/src/build"
cp -a setup.py pyproject.toml README.md LICENSE edge pyx packaging "$WORK/src/"
find "$WORK/src" \( -name '*.so' -o -name __pycache__ \) -prune -exec rm -rf {} +
[ ! -d build/cython ] || cp -a build/cython "$WORK/src/build/" # C that is newer than its .pyx is used again
(
    cd "$WORK/src"
    packaging/cross-aarch64.sh "$ROOT" "$PYTHON" "$OLDPWD/$PY" setup.py --quiet build_ext --inplace \
        >../compile.log 2>&1 || { cat ../compile.log >&2; exit 1; }
)

# ---- freeze there, with the script that freezes here -----------------------------------------------------------------

say "freezing (PyInstaller under emulation)"
rm -rf "$ROOT/opt/bitnet-edge"
mkdir -p "$ROOT/opt/bitnet-edge"
cp -a "$WORK/src/edge" "$WORK/src/pyx" "$WORK/src/packaging" "$WORK/src/LICENSE" "$ROOT/opt/bitnet-edge/"
EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || echo 1700000000)}
inside env PYTHONPATH=/opt/site SOURCE_DATE_EPOCH="$EPOCH" FREEZE_PYTHON=python3 /opt/bitnet-edge/packaging/freeze.sh
install -m 755 "$ROOT/opt/bitnet-edge/dist/bitnet-edge" "$OUT/bitnet-edge-aarch64"
install -m 644 "$ROOT/opt/bitnet-edge/dist/bitnet-edge-aarch64.tar.gz" "$OUT/"

# ---- and run it: Raspberry Pi 4, Pi 5, and Pi 5 with its own kernel's pages of 16 KiB --------------------------------

export QEMU_LD_PREFIX=$ROOT # a Raspberry Pi's C library; everything else must be in the file
packaging/smoke.sh "$OUT/bitnet-edge-aarch64" --qemu cortex-a72
packaging/smoke.sh "$OUT/bitnet-edge-aarch64" --qemu cortex-a76
QEMU_PAGESIZE=16384 packaging/smoke.sh "$OUT/bitnet-edge-aarch64" --qemu cortex-a76
tar --extract --gzip --file "$OUT/bitnet-edge-aarch64.tar.gz" --directory "$WORK"
packaging/smoke.sh "$WORK/bitnet-edge-aarch64/bitnet-edge" --qemu cortex-a72
