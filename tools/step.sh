# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
# Functions of the scripts that set up: an error, and a long step that is never silent.

SILENT_S=15 # A step that goes on says so this often.

die() {
    echo "headrace: $*" >&2
    exit 1
}

# step WHAT COMMAND… runs a command with its output in a file, and says every SILENT_S seconds that it goes on.
# Where the command fails, the end of its output is shown, and its status is returned.
step() {
    local what=$1 log begin=$SECONDS never ticker status=0
    shift
    log=$(mktemp)
    echo "== $what"
    exec {never}<> <(:) # Nothing is ever written to it: reading from it is a sleep without a process.
    (
        while ! read -rt "$SILENT_S" -u "$never"; do
            echo "   … $((SECONDS - begin)) s"
        done
    ) &
    ticker=$!
    "$@" >"$log" 2>&1 </dev/null || status=$?
    kill "$ticker" 2>/dev/null
    wait "$ticker" 2>/dev/null || true
    exec {never}>&-
    if [ "$status" != 0 ]; then
        tail -n 30 "$log" >&2
        echo "headrace: failed after $((SECONDS - begin)) s: $what" >&2
    fi
    rm -f "$log"
    return "$status"
}
