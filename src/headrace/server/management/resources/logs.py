# SPDX-License-Identifier: Apache-2.0
"""The logs of the broker: their last lines, and files that are rotated or reopened.

:mod:`.audit_log` searches the audit log.
"""

from __future__ import annotations

import asyncio
import os
import stat
from typing import TYPE_CHECKING

from headrace.server.config.logs import KEPT_MAX, LogError
from headrace.server.management.operation_table import OperationTable
from headrace.user_tags import ADMINISTER

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from headrace.server.config.logs import Logs
    from headrace.server.management.call import Call, JsonLine

operation = OperationTable()

LINES, LINES_MAX = 200, 2000  # Lines that are shown, by default and at most.
READ_BYTES = 1 << 20  # Bytes that are read from the end of a file.
LINE_CHARACTERS_MAX = 4096
BROKER, AUDIT = "broker", "audit"
NO_PROCESS = "this broker was not started by `headrace serve`"


@operation("show log", ADMINISTER, reads=True, fields="`of`: `broker` or `audit`, `count` (200)")
async def show_log(call: Call) -> JsonLine:
    """Return the last ``count`` lines, the oldest first, of the log that ``of`` names.

    A thread reads the file, as its disk may be slow.
    """
    count = call.number("count", LINES, minimum=1, maximum=LINES_MAX)
    path = log_path(call, call.text("of", BROKER))
    try:
        lines = await asyncio.to_thread(last_lines, path, count)
    except OSError as error:
        call.refuse("precondition", f"{path}: {error.strerror}")
    for line in lines:
        await call.send({"line": line[:LINE_CHARACTERS_MAX]})
    return {"items": len(lines), "file": str(path)}


def log_path(call: Call, log_name: str) -> Path:
    """Return the file of the broker's log or the audit log.

    Raises:
        OperationRefused: there is no such file.
    """
    if log_name not in (BROKER, AUDIT):
        call.refuse("bad-request", f"'of' must be {BROKER} or {AUDIT}")
    if log_name == AUDIT:
        file = call.broker.audit.file
        if file is None:
            call.refuse("precondition", "there is no audit log: the setting audit_log is empty")
        return file.path
    logs = call.broker.logs
    if logs is None or logs.path is None:
        call.refuse("precondition", "log_file is not set: the log goes to standard error")
    return logs.path


def last_lines(path: Path, count: int) -> list[str]:
    """Return the last lines of a regular file.

    Raises:
        OSError: the file cannot be read, or is a device or a pipe.
    """
    handle = open_regular(path)
    with os.fdopen(handle, "rb") as file:
        start = max(0, os.fstat(handle).st_size - READ_BYTES)
        file.seek(start)
        lines = file.read(READ_BYTES).splitlines()
    complete = lines[1:] if start else lines  # The first line read may be incomplete.
    return [line.decode(errors="replace") for line in complete[-count:]]


def open_regular(path: Path) -> int:
    """Open a regular file; return its descriptor.

    Raises:
        OSError: the file cannot be read, or is a device or a pipe.
    """
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    if stat.S_ISREG(os.fstat(handle).st_mode):
        return handle
    os.close(handle)
    raise OSError(0, "not a regular file")


@operation("rotate logs", ADMINISTER, fields="`keep`")
def rotate_logs(call: Call) -> JsonLine:
    """Rename the log file and the audit log, and begin new ones."""
    keep = call.number("keep", 7, minimum=1, maximum=KEPT_MAX)
    call.broker.audit.rotate(keep)
    return with_logs(call, lambda logs: {"renamed": logs.rotate(keep)})


@operation("reopen logs", ADMINISTER)
def reopen_logs(call: Call) -> JsonLine:
    """Reopen the log file and the audit log by their names, after a rename."""
    call.broker.audit.reopen()

    def reopen(logs: Logs) -> JsonLine:
        logs.reopen()
        return {"reopened": None}

    return with_logs(call, reopen)


def with_logs(call: Call, work: Callable[[Logs], JsonLine]) -> JsonLine:
    """Call ``work`` with the broker's log, and return its answer.

    Raises:
        OperationRefused: the broker has no log of its own, or the work failed.
    """
    if call.broker.logs is None:
        call.refuse("precondition", NO_PROCESS)
    try:
        return work(call.broker.logs)
    except LogError as error:
        call.refuse("precondition", str(error))
