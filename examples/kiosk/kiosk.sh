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
answering=  # the process of the program, and
speaking=   # the process that speaks: both are ended with this script
starting=   # not empty while a process has been started and its number is not yet noted
signalled=  # the exit code, if a signal came meanwhile

# SIGTERM, never SIGKILL: the one-file program must remove what it has unpacked.  It is repeated every five seconds,
# because a process that bash has just forked still has the traps of this script and may lose the first one.
finish() { # the exit code
    trap '' TERM INT
    local process turns
    for process in $speaking $answering; do
        kill -TERM "$process" 2>/dev/null
    done
    for process in $speaking $answering; do
        for ((turns = 1; ; turns++)); do
            kill -0 "$process" 2>/dev/null || break
            sleep 0.1
            ((turns % 50)) || kill -TERM "$process" 2>/dev/null
        done
    done
    exit "$1"
}

on_signal() { # the exit code
    signalled=$1
    [[ $starting ]] || finish "$1"
}
trap 'on_signal 143' TERM
trap 'on_signal 130' INT

started() { # the number of the process is noted: a signal that came meanwhile is handled now
    starting=
    [[ ! $signalled ]] || finish "$signalled"
}

say() { # one sentence
    if ((${#speak[@]} == 0)); then
        printf '%s\n' "$1"
        return
    fi
    # In the background: bash handles signals during `wait`, not during a foreground command.
    starting=1
    "${speak[@]}" <<<"$1" >&2 &
    speaking=$!
    started
    wait "$speaking" || printf 'kiosk: speaking failed; the sentence was: %s\n' "$1" >&2
    speaking=
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
    starting=1
    exec {events}< <(exec "${program[@]}" run --quiet --jsonl --by sentence --max-tokens "${TOKENS:-80}" \
        --timeout "${PATIENCE:-60}" - <<<"$1")
    answering=$!
    started
    while IFS= read -r event <&"$events"; do
        if [[ $event == *'"ev": "text"'* ]]; then
            text_of "$event"
            [[ $text ]] && say "$text"
        fi
    done
    exec {events}<&-
    wait "$answering"
    code=$?
    answering=
    return "$code"
}

# A missing or damaged model must be known now, not when the first visitor asks.
starting=1
"${program[@]}" run --quiet --max-tokens 0 ready </dev/null >/dev/null &
answering=$!
started
wait "$answering" || finish $?
answering=
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
