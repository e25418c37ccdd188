#!/usr/bin/env bash
# For `make chat`: packaging/chat.sh PYTHON STAMP [OPTION...] starts `bitnet-edge chat` with these options.
# The first time, where no model was chosen yet, it gets a first real one; where it cannot, the demo model answers.
set -euo pipefail
python=$1 stamp=$2 code=0
shift 2
# On a terminal each program gets a group of processes of its own: Ctrl-C, which only stops an answer, would end make,
# with an error, as soon as the chat ends.
if [ -t 0 ]; then set -m; fi

case " $*" in
*' -m'* | *' --model'* | *' -h'* | *' --help'*) ;;
*)
    if [ -e "$stamp" ]; then
        :
    elif ! "$python" -m edge default --json --quiet | grep -q '"why": "demo"'; then
        touch "$stamp"
    elif "$python" -m edge pull || { code=$? && false; }; then
        touch "$stamp"
    elif [ "$code" = 130 ]; then # Ctrl-C
        exit 130
    else
        set -- -m demo "$@"
    fi
    ;;
esac
code=0
"$python" -m edge chat "$@" || code=$?
while [ -t 0 ] && [ "$code" = 148 ]; do # Ctrl-Z: all of make is to stop, and to go on
    kill -STOP 0
    code=0
    fg >/dev/null || code=$?
done
exit "$code"
