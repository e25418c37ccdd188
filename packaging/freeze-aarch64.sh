#!/usr/bin/env bash
# Freeze for aarch64 on an x86-64 machine, from the same spec, and try the result as Raspberry Pi 3, 4 and 5 and newer.
#
#   packaging/freeze-aarch64.sh            dist/bitnet-edge-aarch64 and dist/bitnet-edge-aarch64.tar.gz, tried
#
# The program is made in an arm64 Debian 12, whose C library Raspberry Pi OS has had since 2023.  Only dpkg and
# PyInstaller run under emulation.  Needs what packaging/debian-root.sh says, and what `make freeze-aarch64` makes before: the virtual environment and
# build/answers.json.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
OUT=${DIST:-dist}
WORK=build/freeze-aarch64

say() { printf 'freeze-aarch64: %s\n' "$*" >&2; }
fail() { say "$*"; exit 1; }

# ---- freeze there, with the script that freezes here -----------------------------------------------------------------

ROOT=$(packaging/stage-aarch64.sh bookworm freeze)
mkdir -p "$OUT" "$WORK"
say "freezing (PyInstaller under emulation)"
EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || echo 1700000000)}
env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8 TERM=dumb PYTHONPATH=/opt/site FREEZE_PYTHON=python3 \
    SOURCE_DATE_EPOCH="$EPOCH" packaging/emulated.py --root "$ROOT" /opt/bitnet-edge/packaging/freeze.sh </dev/null
install -m 755 "$ROOT/opt/bitnet-edge/dist/bitnet-edge" "$OUT/bitnet-edge-aarch64"
install -m 644 "$ROOT/opt/bitnet-edge/dist/bitnet-edge-aarch64.tar.gz" "$OUT/"
rm -rf "$WORK/bitnet-edge-aarch64"
tar --extract --gzip --file "$OUT/bitnet-edge-aarch64.tar.gz" --directory "$WORK"

# ---- and try it: what it does, on every kind of board and both sizes of pages; what the system can do to it, on two ---

export ROOT WORK OUT
attempt() { # FORM CPU PAGESIZE WHAT [--brief]: its lines when it has ended
    local program=$OUT/bitnet-edge-aarch64 log=$WORK/$1-$2-$3-$4.log
    [ "$1" = file ] || program=$WORK/bitnet-edge-aarch64/bitnet-edge
    # the root is a Raspberry Pi's C library; everything else must be in the program
    export QEMU_LD_PREFIX=$ROOT QEMU_PAGESIZE=$3
    if [ "$4" = smoke ]; then packaging/smoke.sh "$program" --qemu "$2" >"$log" 2>&1
    else packaging/check.py --compare build/answers.json ${5:+"$5"} --qemu "$2" "$program" >"$log" 2>&1; fi
    local code=$?
    cat "$log"
    return $code
}
export -f attempt
# cortex-a53: Raspberry Pi 3 and Zero 2; a72: 4; a76: 5, whose kernel has pages of 16 KiB; max: also i8mm, and newer.
# All checks for each form; what depends on the processor and its pages for the others.  The longest come first.
xargs -P "$(nproc)" -L 1 bash -c 'attempt "$@"' - <<'END' || fail "some checks failed"
file cortex-a76 16384 check
folder cortex-a72 16384 check
file cortex-a72 4096 smoke
folder cortex-a76 16384 smoke
folder cortex-a53 4096 check --brief
folder cortex-a76 4096 check --brief
folder max 16384 check --brief
END
