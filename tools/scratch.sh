#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs a command with its temporary files in memory, where there is room for those of a test run.
#
#   tools/scratch.sh COMMAND…
#
# A test run waits for the disk a third of its time: each of thousands of brokers syncs what it has
# confirmed. In memory a sync costs nothing, and what a broker killed meanwhile has lost is the same.
# The folder is removed at the end. HEADRACE_SCRATCH=FOLDER takes another place.
set -euo pipefail

MEMORY=/dev/shm
ROOM_MB=4096       # Free there: a run uses at most half of it.
AVAILABLE_MB=14336 # Of the machine's memory, which the tests' programs share.

place=${HEADRACE_SCRATCH:-}
if [ -z "$place" ] && [ "$(stat -fc %T "$MEMORY" 2>/dev/null)" = tmpfs ]; then
    room=$(df --output=avail -m "$MEMORY" | tail -n 1)
    available=$(awk '/^MemAvailable:/ { print int($2 / 1024) }' /proc/meminfo)
    if [ "$room" -ge "$ROOM_MB" ] && [ "$available" -ge "$AVAILABLE_MB" ]; then place=$MEMORY; fi
fi
[ -n "$place" ] || exec "$@"

scratch=$(mktemp -d "$place/tests-XXXX")
trap 'rm -rf "$scratch"' EXIT
chmod 755 "$scratch" # Tests run servers as other users.
TMPDIR=$scratch "$@"
