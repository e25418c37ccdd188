#!/usr/bin/env bash
# What `make chat` runs: packaging/chat.sh PYTHON STAMP [OPTION...] starts `bitnet-edge chat` with these options.
# The first time, where no model was chosen yet, it gets a small real one; where it cannot, the demo model answers.
set -euo pipefail
python=$1 stamp=$2 code=0
shift 2

case " $*" in
*' -m'* | *' --model'* | *' -h'* | *' --help'*) ;;
*)
    if [ -e "$stamp" ]; then
        :
    elif ! "$python" -m edge default --json --quiet | grep -q '"why": "demo"'; then
        touch "$stamp"
    elif "$python" -m edge pull smollm2-135m || { code=$? && false; }; then
        touch "$stamp"
    elif [ "$code" = 130 ]; then # Ctrl-C
        exit 130
    else
        set -- -m demo "$@"
    fi
    ;;
esac
exec "$python" -m edge chat "$@"
