#!/usr/bin/env bash
# The whole suite N times on a machine that has other things to do: a busy loop on each core, and copies of a gigabyte
# that are written, read and dropped.  `make test-load COUNT=20`; prints what each run counted and keeps the output of
# a run that failed in build/load-RUN.log.  The suite takes two processes per core and one more, so that the tests have to
# wait for each other as well.
#
#   tests/campaigns/load.sh [COUNT]
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.." || exit
count=${1:-20}
folder=$(mktemp -d "${TMPDIR:-/tmp}/bitnet-edge-load.XXXXXX")
loads=()
end() {
    for load in "${loads[@]}"; do kill "$load" 2>/dev/null; done
    wait 2>/dev/null
    rm -rf "$folder"
}
trap end EXIT
trap 'exit 130' INT TERM

for _ in $(seq "$(nproc)"); do
    while :; do :; done &
    loads+=($!)
done
while :; do # memory and disk: the page cache turns over
    head -c 1G /dev/zero >"$folder/a" && cp "$folder/a" "$folder/b" && cat "$folder/b" >/dev/null
    rm -f "$folder/a" "$folder/b"
done &
loads+=($!)

green=0
for run in $(seq "$count"); do
    begun=$SECONDS
    if make --silent test ARGS="-q -n $((2 * $(nproc) + 1))" >"$folder/out" 2>&1; then
        green=$((green + 1))
    else
        grep -E '^(FAILED|ERROR)' "$folder/out"
        mkdir -p build && cp "$folder/out" "build/load-$run.log"
    fi
    echo "run $run of $count: $(grep -E '[0-9]+ passed' "$folder/out" | tail -n 1) ($((SECONDS - begun)) s, load $(cut -d' ' -f1 /proc/loadavg))"
done
echo "$green of $count green"
[ "$green" = "$count" ]
