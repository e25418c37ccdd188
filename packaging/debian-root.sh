#!/usr/bin/env bash
# Make a small Debian system in a folder, once, and print its folder.  It is used with packaging/emulated.py --root.
#
#   packaging/debian-root.sh bookworm arm64    what a Raspberry Pi program is frozen in, and runs in since 2023
#   packaging/debian-root.sh trixie arm64      Raspberry Pi OS of today
#   packaging/debian-root.sh trixie amd64      Debian 13 on a PC
#   packaging/debian-root.sh                   only says what is needed; status 1 where it cannot be had
#
# The system lies in ~/.cache/bitnet-edge/ARCHITECTURE-SUITE (BITNET_EDGE_CACHE names another place).  MIRROR=URI names a
# Debian mirror where this machine's apt knows none.  Status 1 and one line: this machine cannot make it, and why.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
CACHE=${BITNET_EDGE_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/bitnet-edge}
SUITE=${1:-}
ARCH=${2:-}
ROOT=$CACHE/$ARCH-$SUITE
LOG=$CACHE/$ARCH-$SUITE.log

# foreign systems get what cross-compiling, freezing and running take; a native one lets packaging/prepare.sh do the rest
case $ARCH in
    arm64) PACKAGES="python3 libpython3-dev binutils libgomp1 libstdc++6" ;;
    *) PACKAGES="make git ca-certificates" ;;
esac

say() { printf 'debian-root: %s\n' "$*" >&2; }
fail() { say "$*"; exit 1; }
done_already() { [ "$(cat "$ROOT/.done-$1" 2>/dev/null)" = "${2:-yes}" ]; }
mark() { printf '%s\n' "${2:-yes}" > "$ROOT/.done-$1"; }
inside() { # a command in that system, with an environment of its own
    # container: debootstrap then needs no mknod; cortex-a76: the emulator's own choice of a processor is several times
    # as slow with Debian 13, since it signs addresses
    env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8 TERM=dumb DEBIAN_FRONTEND=noninteractive \
        container=lxc QEMU_CPU=cortex-a76 packaging/emulated.py --root "$ROOT" "$@" </dev/null
}

missing() {
    command -v debootstrap >/dev/null || echo debootstrap
    command -v qemu-aarch64-static >/dev/null || echo qemu-user-static
    command -v aarch64-linux-gnu-gcc >/dev/null || echo gcc-aarch64-linux-gnu
    [ -e /usr/aarch64-linux-gnu/include/stdio.h ] || echo libc6-dev-arm64-cross
}
lacking=$(missing | tr '\n' ' ')
if [ -z "$SUITE" ]; then
    say "needs root; makes small Debian systems in $CACHE (0.5 GB each);" \
        "$([ -n "$lacking" ] && echo "installs ${lacking}with apt-get" || echo "all packages that it needs are installed")"
    [ "$(id -u)" = 0 ] || fail "nothing was started: you are not root; type: sudo make ..."
    exit
fi
[ "$(id -u)" = 0 ] || fail "needs root: the files of a Debian system belong to several users"
if [ -n "$lacking" ]; then
    say "installing $lacking"
    # shellcheck disable=SC2086  # a list
    { apt-get -qq update || true; apt-get -qq -y install --no-install-recommends $lacking; } </dev/null >&2 ||
        fail "cannot install $lacking"
fi
packaging/emulated.py true || fail "programs cannot be emulated here"
mkdir -p "$CACHE"
exec 9>"$CACHE/.$ARCH-$SUITE.lock" # two at a time would write over each other
flock 9

mirror() { # the mirror this machine itself uses; it has the other suites, too
    apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 'Component: main' 'Origin: Debian' \
        'Label: Debian' 2>/dev/null | head -1
}

if ! done_already system; then
    URI=${MIRROR:-$(mirror)}
    [ -n "$URI" ] || fail "apt here knows no Debian; name a mirror: MIRROR=http://... packaging/debian-root.sh $SUITE $ARCH"
    say "making a Debian $SUITE for $ARCH in $ROOT (once, some minutes)"
    rm -rf "$ROOT"
    debootstrap --arch="$ARCH" --variant=minbase --foreign \
        --keyring=/usr/share/keyrings/debian-archive-keyring.gpg "$SUITE" "$ROOT" "$URI" >"$LOG" 2>&1 </dev/null ||
        fail "debootstrap failed; see $LOG"
    # the same way to the mirror as here: name look-up, proxies and clock checks
    cp -L /etc/resolv.conf /etc/hosts "$ROOT/etc/"
    mkdir -p "$ROOT/etc/apt/apt.conf.d"
    apt-config dump | grep -E '^Acquire::(Check-Valid-Until|Check-Date|https?::Proxy) ' > "$ROOT/etc/apt/apt.conf.d/99host" ||
        true
    inside /debootstrap/debootstrap --second-stage >>"$LOG" 2>&1 || fail "debootstrap's second stage failed; see $LOG"
    echo "deb $URI $SUITE main" > "$ROOT/etc/apt/sources.list"
    mark system
fi

if ! done_already packages "$PACKAGES"; then
    say "installing $PACKAGES in it"
    # shellcheck disable=SC2086  # a list
    { inside apt-get -qq update && inside apt-get -qq -y install --no-install-recommends $PACKAGES; } >>"$LOG" 2>&1 ||
        fail "apt-get failed in it; see $LOG"
    mark packages "$PACKAGES"
fi
echo "$ROOT"
