#!/usr/bin/env bash
# Run the frozen programs where the C library is the oldest they promise: a bare Ubuntu 22.04 (glibc 2.35).  By hand, as
# root, after `make freeze`; needs debootstrap.  The system is made once, under ~/.cache/bitnet-edge.
#
#   packaging/oldest.sh [MIRROR]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
ROOT=${XDG_CACHE_HOME:-$HOME/.cache}/bitnet-edge/jammy-$(uname -m)
FOLDER=bitnet-edge-$(uname -m)

fail() { printf 'oldest: %s\n' "$*" >&2; exit 1; }
[ "$(id -u)" = 0 ] || fail "needs root, for debootstrap and chroot"
command -v debootstrap >/dev/null || fail "no debootstrap; type: sudo apt-get install -y debootstrap"
[ -x dist/bitnet-edge ] && [ -x "dist/$FOLDER/bitnet-edge" ] || fail "nothing in dist; type: make freeze"
if [ ! -e "$ROOT/.made" ]; then
    rm -rf "$ROOT"
    debootstrap --variant=minbase jammy "$ROOT" ${1:+"$1"}
    touch "$ROOT/.made"
fi
rm -rf "$ROOT/opt/bitnet-edge" "$ROOT/opt/$FOLDER"
cp -r dist/bitnet-edge "dist/$FOLDER" "$ROOT/opt/"
{ read -r model && read -r prompt; } <packaging/golden.txt
for program in /opt/bitnet-edge "/opt/$FOLDER/bitnet-edge"; do
    answer=$(unshare --mount sh -c 'mount -t proc proc "$1/proc" && exec chroot "$1" env -i "$2" run -m "$3" --temp 0 \
        --set ignore_eos=on -n 48 "$4"' sh "$ROOT" "$program" "$model" "$prompt" </dev/null)
    [ "$answer" = "$(tail -n +3 packaging/golden.txt)" ] || fail "$program answers otherwise: $answer"
    echo "ok $program with $(chroot "$ROOT" ldd --version | head -n 1)"
done
