# SPDX-License-Identifier: Apache-2.0
"""The file of the audit log: written by a thread, rotated by size, bounded in memory.

A bounded number of lines waits for the thread; further ones are lost. So are those
that the disk refuses. The policy is *lose and report*: a slow or full disk must not stop the
broker. Where that is worse than being stopped, the setting ``audit_log_strict`` has the policy
*keep and refuse*: lines wait for the disk, and logins and changes are refused meanwhile. When
lines can be written again, the first has the number of those missing before it::

    {"time": "2026-11-21T14:00:00.123Z", "what": "lines.lost", "allowed": true, "lines": 17}

The file is renamed to ``….1`` when it is large enough, older ones one number up; the oldest is
removed.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import errno
import json
import logging
import os
import queue
import threading
from pathlib import Path
from typing import TYPE_CHECKING

from headrace.server.config.logs import shift
from headrace.server.config.settings import StartError
from headrace.server.observe.audited_events import LOST

if TYPE_CHECKING:
    from headrace.server.config.settings import Settings

log = logging.getLogger(__name__)

LINES_MAX = 8192  # Lines that may wait to be written.
SIZE_MAX = 128 << 20  # Bytes of the file before it is renamed.
KEPT = 16  # Renamed files that are kept.
RETRY_S = 1.0  # The interval between tries of a failing file without new lines.
CLOSE_S = 1.0  # The time that closing waits for the disk.


class AuditFile:
    """Lines of JSON in a file that only the broker's system user may read."""

    def __init__(
        self,
        path: Path,
        *,
        size_max: int = SIZE_MAX,
        keep: int = KEPT,
        strict: bool = False,
        sync: bool = False,
    ) -> None:
        """Open the file. It is renamed when it has ``size_max`` bytes; 0: never.

        With ``strict`` lines that the disk refuses are kept until it accepts them, and audited
        actions are refused meanwhile. With ``sync`` lines are synced soon after
        they were written.

        Raises:
            OSError: the file cannot be written.
        """
        self.path = path
        self.size_max = size_max
        self.keep = keep
        self.strict = strict
        self.sync = sync
        self.failing = ""  # Why the last lines could not be written; empty: they could.
        self._rotates = 0  # Renamed files to keep, of a requested rotation.
        self._reopens = False
        self._lines: queue.Queue[bytes | None] = queue.Queue(LINES_MAX)
        self._kept: list[bytes] = []  # Lines of a strict log that the disk refused.
        # Each counter is incremented by one thread alone.
        self._dropped = 0  # Lines dropped for lack of room, counted by the callers.
        self._unwritten = 0  # Lines that the disk refused, counted by the thread.
        self._reported = 0  # The lost lines that the file reports.
        self._torn = False  # The last line of the file is incomplete.
        self._stuck = False  # It could not be renamed.
        self._file = self._open()
        self._size = os.fstat(self._file).st_size
        self._thread = threading.Thread(target=self._write, name="headrace-audit", daemon=True)
        self._thread.start()

    def _open(self) -> int:
        """Open the file; a pipe without a reader is an error."""
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK
        file = os.open(self.path, flags, 0o600)
        os.set_blocking(file, True)
        return file

    @property
    def lost(self) -> int:
        """Lines that were lost since the first opening of the file."""
        return self._dropped + self._unwritten

    @property
    def refuses(self) -> bool:
        """True while audited actions are refused, because the file cannot be written."""
        return self.strict and (bool(self.failing) or self._lines.full())

    def put(self, kind: str, allowed: bool, facts: dict[str, object]) -> None:
        """Queue a line for the thread, or drop it."""
        try:
            self._lines.put_nowait(line_of(kind, allowed, facts))
        except queue.Full:
            self._dropped += 1

    def reopen(self) -> None:
        """Have the thread continue in a new file, after the old one was moved away."""
        self._reopens = True
        self._wake()

    def rotate(self, keep: int) -> None:
        """Have the thread rename the file, and keep ``keep`` renamed ones."""
        self._rotates = keep
        self._wake()

    def _wake(self) -> None:
        with contextlib.suppress(queue.Full):  # The thread is busy, and checks soon.
            self._lines.put_nowait(b"")

    def close(self) -> None:
        """Write the pending lines, for `CLOSE_S` at most, and close the file."""
        with contextlib.suppress(queue.Full):
            self._lines.put(None, timeout=CLOSE_S)
        self._thread.join(timeout=CLOSE_S)

    # --- The thread -----------------------------------------------------------------------------

    def _write(self) -> None:
        running = True
        while running:
            items = self._next()
            if self._reopens:
                self._reopens = False
                self._replace()
            running = None not in items
            lines = [line for line in items if line]
            size = sum(map(len, lines))
            if self._rotates:
                keep, self._rotates = self._rotates, 0
                self._rotate(keep)
            elif self.size_max and self._size and self._size + size > self.size_max:
                self._rotate(self.keep)
            self._append(lines)
        os.close(self._file)
        if self._kept:
            log.error("%d lines of the audit log were not written", len(self._kept))

    def _next(self) -> list[bytes | None]:
        """Return the pending lines; none when it is time to retry."""
        items: list[bytes | None] = []
        with contextlib.suppress(queue.Empty):
            items.append(self._lines.get(timeout=RETRY_S if self.failing else None))
            while len(items) < LINES_MAX:
                items.append(self._lines.get_nowait())
        return items

    def _rotate(self, keep: int) -> None:
        try:
            shift(self.path, keep)
        except OSError as error:
            if not self._stuck:
                log.error("the audit log cannot be renamed: %s", error.strerror or error)
            self._stuck = True
            return
        self._stuck = False
        self._replace()

    def _replace(self) -> None:
        try:
            file = self._open()
        except OSError as error:
            log.error("the audit log cannot be opened again: %s", error.strerror or error)
            return
        os.close(self._file)
        self._file = file
        self._size = os.fstat(file).st_size
        self._torn = False

    def _append(self, lines: list[bytes]) -> None:
        lines, self._kept = self._kept + lines, []
        missing = self.lost - self._reported
        head = [b"\n"] if self._torn else []  # A partial last line gets a line of its own.
        if missing:
            head.append(line_of(LOST, True, {"lines": missing}))
        output = [*head, *lines]
        reason, written = self._write_bytes(b"".join(output))
        complete = 0  # Lines that are in the file.
        for line in output:
            if len(line) > written:
                break
            written -= len(line)
            complete += 1
        if written or complete:
            self._torn = written > 0
        if missing and complete >= len(head):
            self._reported += missing
        unwritten = lines[max(0, complete - len(head)) :]
        if self.strict:
            self._kept = unwritten[:LINES_MAX]
        self._unwritten += len(unwritten) - len(self._kept)
        if reason and not self.failing:
            effect = "logins and changes are refused" if self.strict else "its lines are lost"
            log.error("the audit log cannot be written: %s; %s", reason, effect)
        elif self.failing and not reason:
            log.warning("the audit log can be written again")
        self.failing = reason

    def _write_bytes(self, data: bytes) -> tuple[str, int]:
        """Write bytes; return the error, empty for none, and how many bytes were written."""
        written = 0
        try:
            while written < len(data):
                written += os.write(self._file, data[written:])
            if self.sync and (data or self.failing):
                self._flush()
        except OSError as error:
            return error.strerror or str(error), written
        finally:
            self._size += written
        return "", written

    def _flush(self) -> None:
        try:
            os.fdatasync(self._file)
        except OSError as error:
            if error.errno not in (errno.EINVAL, errno.EROFS, errno.ENOTSUP):  # A pipe, or so.
                raise


def line_of(kind: str, allowed: bool, facts: dict[str, object]) -> bytes:
    """Return a line of the log; the facts are JSON values."""
    now = dt.datetime.now(dt.UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    line = {"time": now, "what": kind, "allowed": allowed, **facts}
    return json.dumps(line).encode() + b"\n"


def audit_file(settings: Settings) -> AuditFile | None:
    """Return the file of the audit log, or None.

    Raises:
        StartError: the file cannot be written.
    """
    path = settings.audit_log
    if path is None:
        return None
    try:
        return AuditFile(
            path,
            size_max=settings.audit_log_size_max,
            keep=settings.audit_log_keep,
            strict=settings.audit_log_strict,
            sync=settings.audit_log_sync,
        )
    except OSError as error:
        raise StartError(f"audit_log {path}: {error.strerror}") from error
