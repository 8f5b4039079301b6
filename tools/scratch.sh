#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs a command with its temporary files in memory, where there is room for those of a test run.
#
#   tools/scratch.sh COMMAND…
#
# A test run waits for the disk a third of its time, because thousands of brokers sync the messages
# that they confirm. In memory a sync costs nothing, and a killed broker loses no more.
# The folder is removed at the end. HEADRACE_SCRATCH=FOLDER takes another place. Java does not read
# TMPDIR: tests set `spark.local.dir` for Spark's large files.
set -euo pipefail

MEMORY=/dev/shm
ROOM_MB=4096       # Free there: a run uses at most half of it.
AVAILABLE_MB=14336 # Of the machine's memory, which the tests' programs share.

# Tests run programs and load libraries from the folder, which containers often forbid there.
is_usable() {
    [ -w "$MEMORY" ] && grep -E "^[^ ]+ $MEMORY tmpfs rw" /proc/mounts | grep -qvw noexec
}

place=${HEADRACE_SCRATCH:-}
if [ -z "$place" ] && is_usable; then
    room=$(df --output=avail -m "$MEMORY" | tail -n 1)
    available=$(awk '/^MemAvailable:/ { print int($2 / 1024) }' /proc/meminfo)
    if [ "$room" -ge "$ROOM_MB" ] && [ "$available" -ge "$AVAILABLE_MB" ]; then place=$MEMORY; fi
fi
[ -n "$place" ] || exec "$@"

scratch=$(mktemp -d "$place/tests-XXXX")
trap 'rm -rf "$scratch" || true' EXIT # The exit status is the command's.
chmod 755 "$scratch" # Tests run servers as other users.
TMPDIR=$scratch "$@"
