# SPDX-License-Identifier: Apache-2.0
"""The operation that searches the whole file of the audit log, from its newest line on."""

from __future__ import annotations

import asyncio
import json
import os
import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from headrace.server.management.operation_table import OperationTable
from headrace.server.management.resources.logs import (
    AUDIT,
    LINE_CHARACTERS_MAX,
    log_path,
    open_regular,
)
from headrace.user_tags import ADMINISTER

if TYPE_CHECKING:
    from collections.abc import Iterator

    from headrace.server.management.call import Call, JsonLine

operation = OperationTable()

COUNT, COUNT_MAX = 200, 1000  # Lines of an answer.
BLOCK_BYTES = 64 << 10  # Bytes of one read, which runs on a thread.
LINES_PER_SLICE = 64  # Lines of a block after which the loop serves others.
SEARCHED_BYTES_MAX = 8 << 20  # Bytes that one request reads; the next one continues from there.
LINE_BYTES_MAX = 1 << 20  # A longer line is skipped; must be less than SEARCHED_BYTES_MAX.
FIELDS = (("user", "who"), ("vhost", "vhost"), ("what", "what"))
POSITION = re.compile(r"([0-9]{1,20})-([0-9]{1,18})")
TIME = re.compile(rb'\{"time": "(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z)"')


class LineFilter:
    """The conditions of a request, which lines must meet."""

    def __init__(self, call: Call) -> None:
        self._fields = {field: call.text(name, "") for name, field in FIELDS}
        self._text = call.text("text", "").lower()
        self._since, self._until = (read_time(call, name) for name in ("since", "until"))

    def matches(self, line: bytes) -> bool:
        """Return True if a line meets all conditions."""
        if self._since or self._until:
            match = TIME.match(line)
            time = match[1] if match else b""
            if not time or time < self._since or (self._until and time >= self._until):
                return False
        if self._text and self._text not in line.decode(errors="replace").lower():
            return False
        if not any(self._fields.values()):
            return True
        try:
            fields = json.loads(line)
        except (ValueError, RecursionError):
            return False
        return isinstance(fields, dict) and all(
            fields.get(field) == value for field, value in self._fields.items() if value
        )


def read_time(call: Call, name: str) -> bytes:
    """Return a time field in the format of the lines, in UTC; empty without the field."""
    text = call.text(name, "")
    if not text:
        return b""
    try:
        time = datetime.fromisoformat(text)
        time = (time if time.tzinfo else time.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, OverflowError):
        call.refuse("bad-request", f"'{name}' is not a time such as 2026-11-23T07:00:00Z")
    return (time.isoformat(timespec="milliseconds").removesuffix("+00:00") + "Z").encode()


@operation(
    "show audit log",
    ADMINISTER,
    reads=True,
    fields="`user`, `vhost`, `what`, `text`, `since`, `until`, `count` (200), `before`",
)
async def show_audit_log(call: Call) -> JsonLine:
    """Send matching lines of the audit log, the newest first, each with its position.

    A further request continues with the ``before`` of the answer.
    """
    count = call.number("count", COUNT, minimum=1, maximum=COUNT_MAX)
    line_filter = LineFilter(call)
    path = log_path(call, AUDIT)
    try:
        handle = await asyncio.to_thread(open_regular, path)
    except OSError as error:
        call.refuse("precondition", f"{path}: {error.strerror}")
    try:
        status = os.fstat(handle)
        end = read_end_offset(call, status)
        limit = max(0, end - SEARCHED_BYTES_MAX)
        sent = 0
        line_tail = b""  # The end of a line that begins in the next block.
        # The request begins, or a block ends, within a line that is too long.
        is_within_long = False
        if 0 < end < status.st_size:
            is_within_long = await asyncio.to_thread(os.pread, handle, 1, end - 1) != b"\n"
        while end > limit and sent < count:
            size = min(BLOCK_BYTES, end)
            block = await asyncio.to_thread(os.pread, handle, size, end - size)
            end -= size
            if is_within_long:
                lines, line_end, _ = block.rpartition(b"\n")
                block, is_within_long = lines + line_end, not line_end
            else:
                block += line_tail
            line_tail, lines = (b"", block) if not end else split_block(block)
            start = end + len(line_tail)
            for offset, line in iterate_backwards(lines, start):
                if line is None:
                    await asyncio.sleep(0)
                elif line_filter.matches(line):
                    text = line.decode(errors="replace")[:LINE_CHARACTERS_MAX]
                    await call.send({"at": f"{status.st_ino}-{offset}", "line": text})
                    sent += 1
                    if sent == count:
                        return {"items": sent, "before": f"{status.st_ino}-{offset}"}
            if len(line_tail) > LINE_BYTES_MAX:
                line_tail, is_within_long = b"", True
        unread_end = end + len(line_tail)
        return {"items": sent, "before": f"{status.st_ino}-{unread_end}" if unread_end else None}
    finally:
        os.close(handle)


def read_end_offset(call: Call, status: os.stat_result) -> int:
    """Return the offset to search back from: the end of the file, or ``before`` of a request."""
    text = call.text("before", "")
    if not text:
        return status.st_size
    position = POSITION.fullmatch(text)
    if position is None:
        call.refuse("bad-request", "'before' is not a position from an answer")
    if int(position[1]) != status.st_ino or int(position[2]) > status.st_size:
        call.refuse("conflict", "the file of that place was renamed; begin without 'before'")
    return int(position[2])


def split_block(block: bytes) -> tuple[bytes, bytes]:
    """Return the end of a line that begins before the block, and the complete lines after it."""
    first, line_end, lines = block.partition(b"\n")
    return (first + line_end, lines) if line_end else (block, b"")


def iterate_backwards(lines: bytes, start: int) -> Iterator[tuple[int, bytes | None]]:
    """Yield lines and their offsets, the last line first; None asks for a pause.

    ``start`` is the offset of the first line.
    """
    end = len(lines)
    count = 0
    while end > 0:
        begin = lines.rfind(b"\n", 0, end - 1) + 1
        line = lines[begin:end].rstrip(b"\r\n")
        if line:
            yield start + begin, line
        end = begin
        count += 1
        if not count % LINES_PER_SLICE:
            yield start, None
