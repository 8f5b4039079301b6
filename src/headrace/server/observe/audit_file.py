# SPDX-License-Identifier: Apache-2.0
"""The file of the audit log: written by a thread, rotated by size, bounded in memory.

At most ``LINES_MAX`` lines wait for the thread. Further lines are lost, as are those that the disk
refuses: this policy, *lose and report*, keeps a slow or full disk from stopping the broker. The
setting ``audit_log_strict`` chooses the policy *keep and refuse* instead: lines wait for the disk,
and logins and changes are refused meanwhile. When lines can be written again, the first one has the
number of lost lines before it::

    {"time": "2026-11-21T14:00:00.123Z", "what": "lines.lost", "allowed": true, "lines": 17}

A file that has reached its maximum size is renamed to ``….1``, older ones one number up. The oldest
is removed.
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
        """Open the file, and start the thread.

        Args:
            path: the path of the file.
            size_max: the bytes at which the file is renamed; 0: never.
            keep: the number of renamed files that are kept.
            strict: keep lines until the disk accepts them, and refuse audited actions meanwhile.
            sync: sync the file after each write.

        Raises:
            OSError: the file cannot be written.
        """
        self.path = path
        self.size_max = size_max
        self.keep = keep
        self.strict = strict
        self.sync = sync
        self.failing = ""  # Why the last lines could not be written; empty if they were.
        self._rotates = 0  # For a requested rotation, the number of renamed files to keep.
        self._reopens = False  # The thread is to open the file again.
        self._lines: queue.Queue[bytes | None] = queue.Queue(LINES_MAX)
        self._kept: list[bytes] = []  # Lines of a strict log that the disk refused.
        # Each counter is incremented by one thread alone.
        self._dropped = 0  # Lines dropped for lack of room, counted by the callers.
        self._unwritten = 0  # Lines that the disk refused, counted by the thread.
        self._reported = 0  # The lost lines that the file reports.
        self._torn = False  # The last line of the file is incomplete.
        self._stuck = False  # The file could not be renamed.
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
        """The number of lines that were lost since this object was made."""
        return self._dropped + self._unwritten

    @property
    def refuses(self) -> bool:
        """True while audited actions are refused, because the file cannot be written."""
        return self.strict and (bool(self.failing) or self._lines.full())

    def put(self, kind: str, allowed: bool, facts: dict[str, object]) -> None:
        """Queue a line for the thread, or drop it."""
        try:
            self._lines.put_nowait(format_line(kind, allowed, facts))
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
        # A full queue needs no wake-up: the thread is busy, and checks for requests soon.
        with contextlib.suppress(queue.Full):
            self._lines.put_nowait(b"")

    def close(self) -> None:
        """Write the pending lines, for `CLOSE_S` at most, and close the file."""
        with contextlib.suppress(queue.Full):
            self._lines.put(None, timeout=CLOSE_S)
        self._thread.join(timeout=CLOSE_S)

    # --- The thread -----------------------------------------------------------------------------

    def _write(self) -> None:
        """Write lines until the file is closed; runs on the thread."""
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
        """Wait for lines, and return all pending ones; none if it is time to retry."""
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
        """Open the file anew by its path; on failure, continue in the present file."""
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
        """Write lines, after those that are kept and the number of lost ones; count failures."""
        lines, self._kept = self._kept + lines, []
        missing = self.lost - self._reported
        head = [b"\n"] if self._torn else []  # Ends an incomplete last line.
        if missing:
            head.append(format_line(LOST, True, {"lines": missing}))
        output = [*head, *lines]
        reason, written = self._write_bytes(b"".join(output))
        complete = 0  # The number of lines that are completely written.
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
        """Write bytes; return the error, or "", and the number of written bytes."""
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
            # These errors mean that the file cannot be synced at all, as a pipe cannot.
            if error.errno not in (errno.EINVAL, errno.EROFS, errno.ENOTSUP):
                raise


def format_line(kind: str, allowed: bool, facts: dict[str, object]) -> bytes:
    """Return a line of the log, with its end; the facts are JSON values."""
    now = dt.datetime.now(dt.UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    line = {"time": now, "what": kind, "allowed": allowed, **facts}
    return json.dumps(line).encode() + b"\n"


def open_audit_file(settings: Settings) -> AuditFile | None:
    """Open the file of the setting ``audit_log``; return None if it is not set.

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
