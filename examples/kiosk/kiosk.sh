#!/usr/bin/env bash
# A kiosk in bash: it answers questions, each a line of standard input, from the statements of a house file.
#
#   speech-to-text | SPEAK='espeak-ng --stdin' ./kiosk.sh house.txt
#
# Options of `bitnet-edge chat` are variables, such as BITNET_EDGE_MODEL.  It takes no orders and remembers nothing.
# Exit codes: 0 at the end of the input, 130 and 143 after SIGINT and SIGTERM, else those of bitnet-edge.
set -u
export LC_ALL=${LC_ALL:-C.UTF-8}
[[ -r ${1-} ]] || { echo "usage: kiosk.sh HOUSE (a text file that can be read)" >&2; exit 2; }

finish() { # end with this exit code, and what was started here
    trap '' TERM INT PIPE
    local turns=0 started
    mapfile -t started < <(jobs -p)
    while kill -$((turns++ % 50 ? 0 : 15)) "${started[@]}" 2>/dev/null; do # again after 5 s: one just forked may miss it
        sleep 0.1
    done
    exit "$1"
}
trap 'finish 143' TERM
trap 'finish 130' INT
trap 'finish 141' PIPE
notify() { [[ -z ${NOTIFY_SOCKET-} ]] || systemd-notify "$1"; }
say() { # a sentence; in the background, since bash handles signals during `wait`
    sh -c "${SPEAK:-cat}" <<<"$1" &
    wait $! || printf 'kiosk: speaking failed; the sentence was: %s\n' "$1" >&2
}

next_line() { # of a file descriptor -> $line; in turns of two seconds, since a signal just before `read` waits for it
    local part='' code
    line=
    while IFS= read -r -t 2 -u "$1" part; code=$?; line+=$part; ((code > 128)); do
        [[ $1 != 0 ]] || notify WATCHDOG=1
    done
    ((code == 0)) || [[ $line ]]
}

# shellcheck disable=SC1003  # quoted backslashes, as meant
ask() { # a question, more keys of the request, a command for each piece of the answer -> the last piece is $text
    text=
    printf '{"op":"chat","messages":[{"role":"user","content":"%s"}],"timeout":50,%s}\n' "$1" "$2" >&"$requests"
    while next_line "$events"; do
        notify WATCHDOG=1
        case $line in
            *'"ev": "text"'*)
                text=${line#*'"text": "'} text=${text%'"}'} text=${text//'\\'/$'\x01'} text=${text//\\[nrtbf]/ }
                text=${text//\\u????/ } text=${text//'\"'/'"'} text=${text//$'\x01'/'\'}
                [[ $text != *[![:space:]]* ]] || "$3" "$text"
                ;;
            *'"finish_reason": "stop"'* | *'"finish_reason": "length"'*) return 0 ;;
            *'"ev": "done"'* | *'"ev": "error"'*) return 1 ;;
        esac
    done
    wait "$program"
    finish $? # it has ended, and said why
}

coproc exec "${BITNET_EDGE:-bitnet-edge}" chat --jsonl --no-think --system-file "$1"
program=$! requests=${COPROC[1]-} events=${COPROC[0]-}
ask ready '"max_tokens":0' : # the model reads the house file before the first guest comes
notify READY=1
say "Hello, what would you like to know?"
while next_line 0; do
    question=${line//[[:cntrl:]\"\\]/ }
    question=${question:0:500}
    [[ $question == *[![:space:]]* ]] || continue
    known="A guest asks: '$question' Do the statements above answer that, yes or no?"
    ask "$known" '"by":"all","choices":["yes","no"]' :
    if [[ $text == no ]]; then
        say "I do not know that. Please ask at the counter."
    elif [[ ! $text ]] || ! ask "$question" '"by":"sentence","max_tokens":80' say; then
        say "Sorry, that did not work. Please ask at the counter."
    fi
done
finish 0
