#!/usr/bin/env bash
# Freeze for this machine: dist/bitnet-edge (one file) and dist/bitnet-edge-MACHINE.tar.gz (one folder, also left
# unpacked in dist/bitnet-edge-MACHINE).  Does nothing when they are there and nothing that goes in has changed.
#
#   packaging/freeze.sh            with the virtual environment that `make` sets up (VENV names another)
#
# DIST names another output folder.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
VENV=${VENV:-.venv}
PY=${FREEZE_PYTHON:-$VENV/bin/python} # not PYTHON: that names the interpreter a virtual environment is made with
OUT=${DIST:-dist}
MACHINE=$(uname -m)
FOLDER=bitnet-edge-$MACHINE

fail() { printf 'freeze: %s\n' "$*" >&2; exit 1; }
"$PY" -c 'import PyInstaller' 2>/dev/null || fail "no PyInstaller in $VENV; type: make freeze"
command -v objdump >/dev/null || fail "objdump is missing; type: sudo apt-get install -y binutils"
mkdir -p "$OUT"
exec 9>"$OUT/.lock" # two freezes at a time would write over each other
flock 9

inputs() { # one line for everything that goes in
    "$PY" -VV
    "$PY" packaging/closure.py freeze
    { find edge pyx -type f \( -name '*.py' -o -name '*.so' -o -name '*.gguf' -o -name '*.json' -o -name '*.jinja' -o \
        -name '*.html' -o -name '*.toml' -o -name '*.txt' \) -print0
        printf '%s\0' LICENSE pyproject.toml packaging/{bitnet-edge.spec,closure.py,entry.py,freeze.sh,licenses.py}
    } | LC_ALL=C sort -z | xargs -0 sha256sum
}
stamp=$(inputs | sha256sum)
if [ "$stamp" = "$(cat "$OUT/.frozen-$MACHINE" 2>/dev/null)" ] && [ -x "$OUT/bitnet-edge" ] && [ -f "$OUT/$FOLDER.tar.gz" ]
then
    exit 0
fi
rm -f "$OUT/.frozen-$MACHINE"

# Same input, same bytes: no random order of sets, no time of day.
export PYTHONHASHSEED=1
export PYTHONNODEBUGRANGES=1 # code without the columns that only mark a place in a traceback: a quarter of its size
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || echo 1700000000)}
export SOURCE_DATE_EPOCH
new=$OUT/.new
rm -rf "$new"
mkdir -p build
"$PY" -m PyInstaller --noconfirm --log-level WARN --distpath "$new" --workpath "build/freeze-$MACHINE" \
    packaging/bitnet-edge.spec >"build/freeze-$MACHINE.log" 2>&1 || { cat "build/freeze-$MACHINE.log" >&2; exit 1; }
tar --directory "$new" --sort=name --owner=0 --group=0 --numeric-owner --mtime="@$SOURCE_DATE_EPOCH" \
    --create "$FOLDER" | gzip -9n >"$new/$FOLDER.tar.gz"
rm -rf "${OUT:?}/$FOLDER"
mv "$new/bitnet-edge" "$new/$FOLDER" "$new/$FOLDER.tar.gz" "$OUT/" # running copies keep the old file
rmdir "$new"
echo "$stamp" >"$OUT/.frozen-$MACHINE"
ls -l "$OUT/bitnet-edge" "$OUT/$FOLDER.tar.gz" >&2
