#!/bin/sh
# Prepare a virtual environment, installing missing system packages where that needs no password and no question.
#
#   packaging/prepare.sh chat   what `make chat` needs: Python >= 3.10 with venv and headers, a C compiler
#   packaging/prepare.sh lint   Python with venv alone: nothing is compiled
#   packaging/prepare.sh test   as chat; cross tools for the aarch64 tests are wanted but not required
#   packaging/prepare.sh clients  for `make test-clients`: two browsers and Node.js are wanted but not required
#   packaging/prepare.sh ci     the same as test; the cross tools, make and the other compilers are required
#
# Prints nothing when nothing is missing.  Where a package cannot be installed it prints one line with the command to
# type and ends with status 1.  VENV names the environment (default .venv), PYTHON the interpreter to build it with.
set -eu
cd "$(dirname "$0")/.."
purpose=${1:-chat}
venv=${VENV:-.venv}

say() { printf 'bitnet-edge: %s\n' "$*" >&2; }
fail() { say "$*"; exit 1; }

[ "$(uname -s)" = Linux ] || fail "bitnet-edge runs on Linux only"
[ "$(getconf LONG_BIT)" = 64 ] || fail "needs a 64-bit system: on a Raspberry Pi write Raspberry Pi OS (64-bit) to the card"

# ---- which interpreter, and what does it lack? -----------------------------------------------------------------------

find_python() { # the first interpreter that is new enough
    for candidate in ${PYTHON:-python3 python3.14 python3.13 python3.12 python3.11 python3.10}; do
        if "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 10))' 2>/dev/null; then
            echo "$candidate"
            return
        fi
    done
}

has_headers() {
    "$1" -c 'import os, sys, sysconfig
sys.exit(not os.path.exists(os.path.join(sysconfig.get_path("include"), "Python.h")))' 2>/dev/null
}

compiles() { # a compiler with the C library's headers and OpenMP
    printf '#include <stdio.h>\n#include <omp.h>\n' | "${CC:-gcc}" -fopenmp -E - >/dev/null 2>&1
}

required() { # names of Debian packages that are missing and needed
    python=$(find_python)
    prefix=python3
    case ${python##*/} in python3.*) prefix=${python##*/} ;; esac
    [ -n "$python" ] || echo python3
    # Debian keeps ensurepip in python3-venv: without it the environment would have no pip
    [ -n "$python" ] && "$python" -c 'import venv, ensurepip' 2>/dev/null || echo "$prefix-venv"
    [ "$purpose" != lint ] || return 0
    [ -n "$python" ] && has_headers "$python" || echo "$prefix-dev"
    compiles || echo gcc libc6-dev
    if [ "$purpose" = ci ]; then
        command -v make >/dev/null || echo make
        wanted
        others
    fi
}

wanted() { # what the tests use to run the aarch64 kernels; they skip without it
    command -v objdump >/dev/null || echo binutils
    command -v qemu-aarch64-static >/dev/null || command -v qemu-aarch64 >/dev/null || echo qemu-user-static
    command -v aarch64-linux-gnu-gcc >/dev/null || echo gcc-aarch64-linux-gnu
    [ "$(uname -m)" = aarch64 ] || [ -e /usr/aarch64-linux-gnu/include/stdio.h ] || echo libc6-dev-arm64-cross
}

others() { # for `make compilers`: the oldest GCC of Debian 12, and clang with its threads
    command -v gcc-11 >/dev/null || echo gcc-11
    command -v aarch64-linux-gnu-gcc-11 >/dev/null || [ "$(uname -m)" = aarch64 ] || echo gcc-11-aarch64-linux-gnu
    command -v clang >/dev/null || echo clang
    echo '#include <omp.h>' | clang -fopenmp -E - >/dev/null 2>&1 || echo libomp-dev
}

clients() { # what tests/clients tries the page and the npm clients with; they skip without it
    command -v chromium >/dev/null || echo chromium
    command -v firefox-esr >/dev/null || command -v firefox >/dev/null || echo firefox-esr
    command -v node >/dev/null || echo nodejs
    command -v npm >/dev/null || echo npm
}

# ---- install without asking, where we may ----------------------------------------------------------------------------

if [ "$(id -u)" = 0 ]; then
    root=
elif command -v sudo >/dev/null && sudo -n true 2>/dev/null; then
    root='sudo -n'
else
    root=none
fi

install() { # returns 1 where we may not or cannot
    [ "$root" != none ] && command -v apt-get >/dev/null || return 1
    say "installing $*"
    # shellcheck disable=SC2086  # $root is empty or two words
    $root env DEBIAN_FRONTEND=noninteractive apt-get -qq update </dev/null >&2 ||
        say "apt-get update failed; trying with the lists that are here"
    # shellcheck disable=SC2086
    $root env DEBIAN_FRONTEND=noninteractive apt-get -qq -y -o DPkg::Lock::Timeout=120 -o Acquire::Retries=3 \
        install --no-install-recommends "$@" </dev/null >&2
}

words() { tr '\n' ' ' | sed 's/ $//'; }

missing=$(required | words)
# shellcheck disable=SC2086  # a list of package names
if [ -n "$missing" ]; then
    install $missing || true
    left=$(required | words)
    if [ -n "$left" ]; then
        if command -v apt-get >/dev/null; then
            fail "missing system packages; type: sudo apt-get install -y $left"
        fi
        fail "missing system packages (by their Debian names): $left"
    fi
fi

if [ "$purpose" = test ]; then
    extra=$(wanted | words)
    # shellcheck disable=SC2086
    if [ -n "$extra" ] && ! install $extra; then
        say "the aarch64 kernel tests will be skipped; to run them: sudo apt-get install -y $extra"
    fi
fi

if [ "$purpose" = clients ]; then
    extra=$(clients | words)
    # shellcheck disable=SC2086
    if [ -n "$extra" ] && ! install $extra; then
        say "the tests of the page or the npm clients will be skipped; to run them: sudo apt-get install -y $extra"
    fi
fi

# ---- the virtual environment -----------------------------------------------------------------------------------------

[ "$purpose" = ci ] && exit 0
if ! "$venv/bin/python" -m pip --version >/dev/null 2>&1; then # absent, half made, or its Python has gone
    say "making the virtual environment $venv"
    "$(find_python)" -m venv --clear "$venv"
fi
