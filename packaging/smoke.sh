#!/usr/bin/env bash
# Try a frozen bitnet-edge the way a board will: golden answer, pipes, damaged files, signals, and too little of everything.
#
#   packaging/smoke.sh dist/bitnet-edge                               one file
#   packaging/smoke.sh dist/bitnet-edge-x86_64/bitnet-edge            one folder
#   packaging/smoke.sh dist/bitnet-edge-aarch64 --qemu cortex-a72     emulated; QEMU_LD_PREFIX names an arm64 system
#   packaging/smoke.sh dist/bitnet-edge --qemu Nehalem                this machine's kind without AVX2
#
# One line a check: ok, skip with the reason, or FAILED with what was seen; status 1 when one failed.
# Needs bash and coreutils; with root (or user namespaces) also tries read-only and full file systems.
set -u
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

fail() { printf 'smoke: %s\n' "$*" >&2; exit 2; }
[ $# = 1 ] || { [ $# = 3 ] && [ "$2" = --qemu ]; } || fail "usage: smoke.sh BINARY [--qemu CPU]"
[ -x "$1" ] || fail "$1: no such program"
bin=$(cd "$(dirname "$1")" && pwd)/$(basename "$1")
kind=file
[ -d "$(dirname "$bin")/_internal" ] && kind=folder
case $(od -An -tx1 -j18 -N1 "$bin") in *3e) machine=x86_64 ;; *b7) machine=aarch64 ;; *) machine=unknown ;; esac

work=$(mktemp -d "${SMOKE_DIR:-/var/tmp}/bitnet-edge-smoke.XXXXXX") || fail "cannot make a folder in ${SMOKE_DIR:-/var/tmp}"
trap 'rm -rf "$work"' EXIT
patience=300 # seconds for one answer: a bound, no measure
cpu=
if [ $# = 3 ]; then
    cpu=$3
    if [ -z "${SMOKE_EMULATED:-}" ]; then # once more, where the emulator is registered
        # not exec: the folder above must go
        SMOKE_EMULATED=1 QEMU_CPU=$cpu "${PYTHON:-python3}" "$here/emulated.py" "${BASH_SOURCE[0]}" "$@"
        exit
    fi
    if [ "$machine" = "$(uname -m)" ]; then # emulated by its name, see emulated.py
        mkdir "$work/emulated"
        if [ $kind = folder ]; then
            cp -a "$(dirname "$bin")/." "$work/emulated/"
            mv "$work/emulated/$(basename "$bin")" "$work/emulated/bitnet-edge.qemu-$machine"
        else
            cp "$bin" "$work/emulated/bitnet-edge.qemu-$machine"
        fi
        bin=$work/emulated/bitnet-edge.qemu-$machine
    fi
elif [ $machine != "$(uname -m)" ]; then
    fail "$1 is for $machine; add --qemu CPU"
fi

# ---- saying what happened --------------------------------------------------------------------------------------------

failures=0
ok() { printf 'ok      %s\n' "$*"; }
skip() { printf 'skip    %s\n' "$*"; }
bad() { # NAME WHAT: with the last lines that were seen
    printf 'FAILED  %s: %s\n' "$1" "$2"
    head -c 600 "$work/out" | sed 's/^/          out: /'
    head -c 600 "$work/err" | sed 's/^/          err: /'
    failures=$((failures + 1))
}

run() { # COMMAND...: leaves out, err and the status in $code
    timeout -k 10 "$patience" "$@" >"$work/out" 2>"$work/err" </dev/null
    code=$?
}

expect() { # NAME CODE COMMAND...
    local name=$1 wanted=$2
    shift 2
    run "$@"
    if [ $code != "$wanted" ]; then bad "$name" "status $code, not $wanted"; return 1; fi
    if grep -q Traceback "$work/err"; then bad "$name" "a traceback"; return 1; fi
    ok "$name"
}

expect_line() { # NAME CODE PATTERN COMMAND...: nothing on standard output, one line on standard error
    local name=$1 wanted=$2 pattern=$3
    shift 3
    run "$@"
    if [ $code != "$wanted" ]; then bad "$name" "status $code, not $wanted"
    elif [ -s "$work/out" ]; then bad "$name" "something on standard output"
    elif [ "$(wc -l <"$work/err")" != 1 ]; then bad "$name" "not one line on standard error"
    elif ! grep -qE "$pattern" "$work/err"; then bad "$name" "the line does not say '$pattern'"
    else ok "$name (status $wanted: $(cut -c1-120 "$work/err"))"; fi
}

# golden.txt: the model that comes with the program, a prompt, and what follows it greedily in the unfrozen program
# (tests/packaging/test_freeze.py keeps it true)
{ read -r model && read -r prompt; } <"$here/golden.txt"
tail -n +3 "$here/golden.txt" >"$work/golden"
greedy=(run -m "$model" --temp 0 --set ignore_eos=on -n 48)
answer=("${greedy[@]}" "$prompt")

golden() { # NAME COMMAND...
    local name=$1
    shift
    run "$@"
    if [ $code != 0 ]; then bad "$name" "status $code"
    elif ! cmp -s "$work/out" "$work/golden"; then bad "$name" "another answer than in golden.txt"
    elif [ -s "$work/err" ]; then bad "$name" "something on standard error"
    else ok "$name"; fi
}

# ---- the program -----------------------------------------------------------------------------------------------------

printf '%s: one %s, %s, %s%s\n' "$1" $kind $machine "${cpu:-this machine}" "${QEMU_PAGESIZE:+, pages of $QEMU_PAGESIZE bytes}"
: >"$work/out"
: >"$work/err"

limit=${SMOKE_MAX_BYTES:-22000000}
if [ $kind = file ]; then
    size=$(stat -c %s "$bin")
    if [ "$size" -le "$limit" ]; then ok "size: $size bytes, at most $limit"; else bad size "$size bytes, over $limit"; fi
fi
expect "--version" 0 "$bin" --version && { grep -qE '^bitnet-edge [0-9]+\.[0-9]+\.[0-9]+$' "$work/out" || bad --version text; }
expect "--help" 0 "$bin" --help && { grep -q 'Commands:' "$work/out" || bad --help "no commands"; }
expect "run --help-all" 0 "$bin" run --help-all && { grep -q 'Exit codes:' "$work/out" || bad "run --help-all" "no exit codes"; }
golden "golden answer" "$bin" "${answer[@]}"
expect "doctor" 0 "$bin" doctor --json || true
cp "$work/out" "$work/doctor"
grep -q '"libgomp": "[^"]*libgomp\.so\.1"' "$work/doctor" || bad "doctor" "libgomp is not the bundled one"
list() { sed -n "s/.*\"$1\": \[\([^]]*\)\].*/\1/p" "$work/doctor" | tr -d '",'; }
for row in $(list supported); do
    golden "golden answer by $row" env BITNET_EDGE_ISA="$row" "$bin" "${answer[@]}"
done
missing=
for row in $(list known); do
    case " $(list supported) " in *" $row "*) ;; *) missing=$row ;; esac
done
if [ -n "$missing" ]; then
    expect_line "an instruction set that is not here: $missing" 6 "$missing" env BITNET_EDGE_ISA="$missing" "$bin" "${answer[@]}"
else
    skip "an instruction set that is not here: this processor has them all"
fi

# ---- pipes and the terminal ------------------------------------------------------------------------------------------

printf '%s\n' "$prompt" | timeout $patience "$bin" "${greedy[@]}" >"$work/out" 2>"$work/err"
code=$?
if [ $code = 0 ] && cmp -s "$work/out" "$work/golden"; then ok "a pipe into it"; else bad "a pipe into it" "status $code"; fi
{ timeout $patience "$bin" "${answer[@]}" 2>"$work/err" </dev/null; echo $? >"$work/code"; } | head -c 1 >"$work/out"
code=$(cat "$work/code")
if [ "$code" = 0 ] && [ ! -s "$work/err" ]; then ok "a pipe out of it that closes early"; else bad "a closing pipe" "status $code"; fi
if command -v script >/dev/null; then
    printf '%s\n/exit\n' "$prompt" >"$work/in"
    TERM=xterm timeout $patience script -qec "'$bin' chat -m $model --temp 0 --set history=off" /dev/null <"$work/in" >"$work/out" 2>"$work/err"
    code=$?
    if [ $code = 0 ] && grep -q "$(cut -c1-30 "$work/golden")" "$work/out"; then ok "chat on a terminal"; else bad chat "status $code"; fi
else
    skip "chat on a terminal: no command 'script' here"
fi

# ---- files that are not there or not what they say -------------------------------------------------------------------

expect_line "a missing model" 3 "nowhere.gguf" "$bin" run -m "$work/nowhere.gguf" hello
head -c 4096 /dev/urandom >"$work/noise.gguf"
expect_line "a file that is no model" 4 "noise.gguf" "$bin" run -m "$work/noise.gguf" hello
printf 'GGUF\003\000\000\000\377\377\377\377\377\377\377\377\377\377\377\377\377\377\377\377' >"$work/hostile.gguf"
expect_line "a header that lies" 4 "hostile.gguf" "$bin" run -m "$work/hostile.gguf" hello
expect_line "a wrong flag" 2 "no-such-flag" "$bin" run -m "$model" --no-such-flag hello

# ---- signals ---------------------------------------------------------------------------------------------------------

signal() { # NAME CODE TARGET SIGNAL: a long answer is interrupted at its first words
    local name=$1 wanted=$2 target=$3 number=$4 pid i
    : >"$work/out"
    set -m # a job of its own group, with SIGINT as on a terminal
    TMPDIR=$work/tmp "$bin" "${greedy[@]}" -n 100000 --set overflow=slide "$prompt" >"$work/out" 2>"$work/err" </dev/null &
    pid=$!
    set +m
    for i in $(seq $((patience * 10))); do
        [ -s "$work/out" ] && break
        sleep 0.1
    done
    [ -s "$work/out" ] || { kill -KILL -$pid; bad "$name" "no first word in $patience s"; return; }
    if [ "$target" = group ]; then kill -"$number" -$pid; else kill -"$number" $pid; fi
    for i in $(seq $((patience * 10))); do
        kill -0 $pid 2>/dev/null || break
        sleep 0.1
    done
    if kill -0 $pid 2>/dev/null; then kill -KILL -$pid; wait $pid 2>/dev/null; bad "$name" "still there after $patience s"; return; fi
    wait $pid 2>/dev/null
    code=$?
    if [ $code != "$wanted" ]; then bad "$name" "status $code, not $wanted"
    elif [ -s "$work/err" ]; then bad "$name" "something on standard error"
    elif [ -n "$(ls "$work/tmp")" ]; then bad "$name" "left $(ls "$work/tmp")"
    else ok "$name (status $wanted)"; fi
}

mkdir "$work/tmp"
signal "Ctrl-C on a terminal" 130 group INT
signal "SIGINT to the program alone" 130 one INT
signal "SIGTERM to the program alone" 143 one TERM
signal "SIGTERM to all its processes" 143 group TERM

# ---- too little of everything ----------------------------------------------------------------------------------------

golden "no HOME, no PATH, no locale" env -i ${cpu:+QEMU_CPU="$cpu"} ${QEMU_PAGESIZE:+QEMU_PAGESIZE="$QEMU_PAGESIZE"} \
    ${QEMU_LD_PREFIX:+QEMU_LD_PREFIX="$QEMU_LD_PREFIX"} "$bin" "${answer[@]}"
if command -v taskset >/dev/null; then
    golden "one core" taskset -c "$(taskset -cp $$ | sed 's/.*: *\([0-9]*\).*/\1/')" "$bin" "${answer[@]}"
else
    skip "one core: no command 'taskset' here"
fi
space=512 # MB
[ -z "$cpu" ] || space=1024 # an emulator that finds no more space for its own translations hangs
golden "$space MB of address space" bash -c 'ulimit -v $(($1 * 1024)); shift; exec "$@"' - $space "$bin" "${answer[@]}"
expect_line "a context that does not fit" 5 "works from --memory [0-9]*M on" "$bin" run -m "$model" --memory 1M hello

unshare=(unshare --mount)
[ "$(id -u)" = 0 ] || unshare=(unshare --map-root-user --mount)
if "${unshare[@]}" true 2>/dev/null; then
    mkdir "$work/full"
    within=("${unshare[@]}" bash -c 'eval "$1" || exit 99; shift; exec "$@"' -)
    golden "a read-only /tmp" "${within[@]}" 'mount --rbind /tmp /tmp && mount -o remount,bind,ro /tmp' "$bin" "${answer[@]}"
    read_only='for m in / /tmp /var/tmp; do mount --rbind $m $m && mount -o remount,bind,ro $m || exit 99; done; cd /'
    full="mount -t tmpfs -o size=256k none '$work/full' && export TMPDIR='$work/full'"
    noexec="mount -t tmpfs -o noexec none '$work/full' && export TMPDIR='$work/full'"
    if [ $kind = folder ]; then
        golden "nothing writable at all" "${within[@]}" "$read_only" "$bin" "${answer[@]}"
        golden "no space in /tmp" "${within[@]}" "$full" "$bin" "${answer[@]}"
        golden "/tmp without permission to execute" "${within[@]}" "$noexec" "$bin" "${answer[@]}"
    else # a one-file program needs a place to unpack: PyInstaller's start-up code says so
        expect "nothing writable at all: refused" 255 "${within[@]}" "$read_only" "$bin" "${answer[@]}"
        expect "no space in /tmp: refused" 255 "${within[@]}" "$full" "$bin" "${answer[@]}"
    fi
else
    skip "read-only and full file systems: mount namespaces are not allowed here"
fi

# ---- how long it takes to start (a figure, not a check: machines differ) ---------------------------------------------

start=9999999
for _ in 1 2 3; do
    begun=$(date +%s%N)
    "$bin" --version >/dev/null
    took=$((($(date +%s%N) - begun) / 1000))
    [ $took -lt $start ] && start=$took
done
printf 'start   --version in %d ms, best of 3; load %s\n' $((start / 1000)) "$(cut -d' ' -f1 /proc/loadavg)"
[ $failures = 0 ] || printf '%d checks failed\n' $failures
[ $failures = 0 ]
