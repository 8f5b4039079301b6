# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
# Functions of the scripts that set up: an error, and a long step that is never silent.

SILENT_S=15 # A step that goes on says so this often.

die() {
    echo "headrace: $*" >&2
    exit 1
}

# aloud WHAT COMMAND… runs a command, and says every SILENT_S seconds that it goes on. Its status is returned.
aloud() {
    echo "== $1"
    _ticking "${@:2}"
}

# step WHAT COMMAND… does so with the command's output in a file: where the command fails, its end is shown.
step() {
    local what=$1 log begin=$SECONDS status=0
    shift
    log=$(mktemp)
    echo "== $what"
    _ticking _into "$log" "$@" || status=$?
    if [ "$status" != 0 ]; then
        tail -n 30 "$log" >&2
        echo "headrace: failed after $((SECONDS - begin)) s: $what" >&2
    fi
    rm -f "$log"
    return "$status"
}

_into() {
    "${@:2}" >"$1" 2>&1
}

_ticking() {
    local begin=$SECONDS never ticker status=0
    exec {never}<> <(:) # Nothing is ever written to it: reading from it is a sleep without a process.
    (
        while ! read -rt "$SILENT_S" -u "$never"; do
            echo "   … $((SECONDS - begin)) s"
        done
    ) &
    ticker=$!
    "$@" </dev/null || status=$?
    kill "$ticker" 2>/dev/null
    wait "$ticker" 2>/dev/null || true
    exec {never}>&-
    return "$status"
}
