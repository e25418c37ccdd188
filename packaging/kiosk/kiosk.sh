#!/usr/bin/env bash
# A kiosk as a shell script: reads one question per line from standard input and speaks the answer by sentence.
#
#   speech-to-text | SPEAK='espeak-ng --stdin' kiosk.sh
#
#   SPEAK         command that reads one sentence from its standard input; without it sentences are printed
#   BITNET_EDGE   the program and its arguments, separated by blanks (default: bitnet-edge)
#   TOKENS        maximum length of an answer in tokens (default 80)
#   PATIENCE      timeout of an answer in seconds, including loading (default 60)
#   BITNET_EDGE_MODEL, BITNET_EDGE_SYSTEM, ...   options of `bitnet-edge run`
#
# Exit codes: 0 at the end of the input, 143 on SIGTERM, 130 on SIGINT, and the code of bitnet-edge if another attempt
# cannot help (no model, a damaged model, an unsupported processor).  No input of a visitor ends the script.
set -u
export LC_ALL=${LC_ALL:-C.UTF-8}

read -ra program <<<"${BITNET_EDGE:-bitnet-edge}"
read -ra speak <<<"${SPEAK:-}"
longest=500 # characters of a question
child=      # the process to end when we are told to end

# SIGTERM, never SIGKILL: the one-file program must remove what it has unpacked.
finish() {
    trap '' TERM INT
    [[ $child ]] && kill -TERM "$child" 2>/dev/null && wait "$child"
    exit "$1"
}
trap 'finish 143' TERM
trap 'finish 130' INT

say() { # one sentence
    if ((${#speak[@]} == 0)); then
        printf '%s\n' "$1"
        return
    fi
    # In the background: bash handles signals during `wait`, not during a foreground command.
    "${speak[@]}" <<<"$1" >&2 &
    local speaker=$! answering=$child
    child=$speaker
    wait "$speaker" || printf 'kiosk: speaking failed; the sentence was: %s\n' "$1" >&2
    child=$answering
}

# shellcheck disable=SC1003  # quoted backslashes, as meant
text_of() { # a JSONL text event -> its text in $text, on one line
    text=${1#*'"text": "'}
    text=${text%'"}'}
    text=${text//'\\'/$'\x01'} # a backslash, out of the way of the other escapes
    text=${text//\\[nrtbf]/ }
    text=${text//\\u????/ } # only control characters are written so
    text=${text//'\"'/'"'}
    text=${text//$'\x01'/'\'}
    text=${text%"${text##*[![:space:]]}"}
    text=${text#"${text%%[![:space:]]*}"}
}

answer() { # a question; returns the program's exit code
    local events event text code
    exec {events}< <(exec "${program[@]}" run --quiet --jsonl --by sentence --max-tokens "${TOKENS:-80}" \
        --timeout "${PATIENCE:-60}" - <<<"$1")
    child=$!
    while IFS= read -r event <&"$events"; do
        if [[ $event == *'"ev": "text"'* ]]; then
            text_of "$event"
            [[ $text ]] && say "$text"
        fi
    done
    exec {events}<&-
    wait "$child"
    code=$?
    child=
    return "$code"
}

# A missing or damaged model must be known now, not when the first visitor asks.
"${program[@]}" run --quiet --max-tokens 0 ready </dev/null >/dev/null &
child=$!
wait "$child" || finish $?
child=
say "${GREETING:-Hello, what would you like to know?}"

next_question() { # a line of any length into $question; fails at the end of the input
    local part code
    question=
    while :; do
        # In turns of two seconds: a signal that comes just before `read` begins is handled only when it returns.
        IFS= read -r -t 2 part
        code=$?
        question+=$part
        ((code > 128)) || break
    done
    ((code == 0)) || [[ $question ]]
}

while next_question; do
    question=${question//[[:cntrl:]]/ }
    question=${question:0:longest}
    [[ $question == *[![:space:]]* ]] || continue
    answer "$question"
    code=$?
    case $code in
        0) ;;
        124) say "Sorry, that took too long." ;;
        3 | 4 | 6 | 126 | 127) finish "$code" ;;
        *) say "Sorry, I cannot answer that now." ;;
    esac
done
