#!/usr/bin/env bash
# Build and try bitnet-edge where Raspberry Pi OS is today: in a Debian 13 (Python 3.13, GCC 14).
#
#   packaging/debian13.sh x86_64     as README says: make, doctor, a part of the suite, the frozen programs made there
#   packaging/debian13.sh aarch64    emulated: cross-compiled, doctor, a part of the suite; and the program in dist/
#
# Both go through the list of check.py, whose answers must be those of the unfrozen program here.  Needs root and what
# debian-root.sh needs; the virtual environment and build/answers.json, which `make debian13` makes before.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
PY=$PWD/${VENV:-.venv}/bin/python
ANSWERS=build/answers.json
#: what depends most on the system: packages, C library, interpreter, terminal, signals, other libraries
PART="tests/packaging/test_deb.py tests/packaging/test_freeze.py tests/kernels/test_transformer.py
    tests/cli/test_signals.py tests/prompt/test_template.py tests/prompt/test_tokenizer.py tests/cli/test_cli.py"
EMULATED_PART="tests/kernels/test_transformer.py::test_golden_answers tests/prompt/test_template.py"

say() { printf 'debian13: %s\n' "$*" >&2; }
inside() { # a command in that system, in the sources
    # cortex-a76: the emulator's own choice of a processor is several times as slow, since it signs addresses
    env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8 TERM=dumb QEMU_CPU=cortex-a76 ${CI:+CI="$CI"} \
        ${http_proxy:+http_proxy="$http_proxy"} ${https_proxy:+https_proxy="$https_proxy"} \
        "$PWD/packaging/emulated.py" --root "$ROOT" sh -c 'cd /opt/bitnet-edge && exec "$@"' - "$@" </dev/null
}
pip_settings() { # pip there finds packages as pip does here, but for folders of this machine
    local cert
    echo "[global]"
    "$PY" -m pip config list | sed -nE "s/^[^.]*\.(index-url|proxy|trusted-host|timeout|retries)='(.*)'$/\1 = \2/p" |
        sort -u -t ' ' -k 1,1
    cert=$("$PY" -m pip config list | sed -nE "s/^[^.]*\.cert='(.*)'$/\1/p" | head -1)
    if [ -n "$cert" ]; then
        install -m 644 "$cert" "$ROOT/etc/pip-cert.pem"
        echo "cert = /etc/pip-cert.pem"
    fi
}

case $1 in
    x86_64)
        ROOT=$(packaging/debian-root.sh trixie amd64)
        tree=$ROOT/opt/bitnet-edge
        mkdir -p "$tree"
        # what was built there stays, as in a clone that is built again
        find "$tree" -mindepth 1 -maxdepth 1 ! -name .venv ! -name build ! -name dist ! -name pyx -exec rm -rf {} +
        [ ! -d "$tree/pyx" ] || find "$tree/pyx" -type f ! -name '*.so' -delete
        git ls-files -z | tar --null --files-from=- --create | tar --extract --directory "$tree"
        pip_settings >"$ROOT/etc/pip.conf"
        cp "$ANSWERS" "$tree/answers.json"
        say "make freeze"
        inside make freeze
        say "doctor"
        inside .venv/bin/bitnet-edge doctor
        inside .venv/bin/python packaging/check.py --compare answers.json .venv/bin/bitnet-edge
        inside .venv/bin/python packaging/check.py --compare answers.json dist/bitnet-edge-x86_64/bitnet-edge
        say "a part of the suite"
        inside make test ARGS="-m 'not compilers and not sanitize' -k 'not every_module' $(echo $PART)"
        ;;
    aarch64)
        ROOT=$(packaging/stage-aarch64.sh trixie freeze dev)
        cp "$ANSWERS" "$ROOT/opt/bitnet-edge/answers.json"
        say "doctor"
        inside env PYTHONPATH=/opt/site:/opt/bitnet-edge python3 -m edge doctor
        inside env PYTHONPATH=/opt/site:/opt/bitnet-edge packaging/check.py --compare answers.json python3 -m edge
        say "a part of the suite"
        inside env PYTHONPATH=/opt/site python3 -m pytest -q $EMULATED_PART
        if [ -x dist/bitnet-edge-aarch64 ]; then # frozen on Debian 12
            QEMU_LD_PREFIX=$ROOT QEMU_PAGESIZE=16384 packaging/check.py --compare "$ANSWERS" --brief \
                --qemu cortex-a76 dist/bitnet-edge-aarch64
        fi
        ;;
    *) say "usage: debian13.sh x86_64|aarch64"; exit 2 ;;
esac
