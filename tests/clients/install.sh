#!/bin/sh
# Install other people's clients, pinned, into an environment of their own.
#
#   tests/clients/install.sh FOLDER [--optional]
#
# FOLDER gets the Python clients, tests/clients/node_modules npm's.  PYTHON names the interpreter.  Each download is tried three times.  Status 1 if something is missing after that; with
# --optional it is only reported: the tests that need it are skipped.
set -u
folder=$1
optional=${2:-}
cd "$(dirname "$0")/../.." || exit

say() { printf 'bitnet-edge: %s\n' "$*" >&2; }

thrice() {
    "$@" || { sleep 5; "$@"; } || { sleep 20; "$@"; }
}

pip_install() { # a download that hangs ends
    timeout 900 "$folder/bin/python" -m pip --disable-pip-version-check --no-input --quiet --retries 8 \
        --timeout 60 install "$@" </dev/null
}

python_clients() { # all of them at once, otherwise each that can be had
    "${PYTHON:-python3}" -m venv "$folder" || return
    thrice pip_install -r tests/clients/requirements.txt && return
    for each in $(sed 's/ *#.*//' tests/clients/requirements.txt); do
        pip_install "$each" || say "NOT INSTALLED: $each"
    done
    return 1
}

npm_install() {
    (cd tests/clients && timeout 900 npm install --silent --no-package-lock --no-fund --no-audit --fetch-retries=5 </dev/null)
}

npm_clients() {
    if command -v npm >/dev/null && thrice npm_install; then return; fi
    say "NOT INSTALLED: the npm clients"
    rm -rf tests/clients/node_modules
    return 1
}

# Both at once: they wait for the network.
mkdir -p "$folder"
npm_clients &
npm=$!
python_clients
python=$?
wait $npm && [ $python = 0 ] && exit
say "some clients could not be installed"
[ "$optional" = --optional ]
