# SPDX-License-Identifier: Apache-2.0
"""Quarantine: bytes of a journal that were durable and are damaged now.

The bytes up to the next valid record are copied to ``quarantine/``, and the damage is logged. The
rest of the log is used.
"""

import logging
import os
from typing import TYPE_CHECKING

from headrace.store.disk import Disk
from headrace.store.segment.record import MESSAGE, MESSAGE_HEAD, MOVED, RETURNED
from headrace.store.segment.segment import file_name

if TYPE_CHECKING:
    from headrace.store.segment.segment import Segment

log = logging.getLogger(__name__)

QUEUES_MAX = 1000  # A larger number of queues in a damaged record is ignored.


def put_aside(
    disk: Disk, directory: str, name: str, segment: "Segment", data: bytearray, start: int, end: int
) -> None:
    """Copy damaged bytes of a segment to the quarantine, and log it; ``name`` is the journal's."""
    quarantine = os.path.join(directory, "quarantine")
    path = os.path.join(quarantine, f"{segment.number:010d}-{start}")
    disk.make_directory(quarantine)
    handle = disk.open(path, create=True)
    try:
        disk.write(handle, [bytes(data[start:end])], 0)
    finally:
        disk.close(handle)
    log.error(
        "journal %s: damaged at byte %d of %s: %d bytes%s put aside in %s; the rest is used",
        name,
        start,
        file_name(segment.number),
        end - start,
        describe_queues(data, start, end),
        path,
    )


def describe_queues(data: bytearray, start: int, end: int) -> str:
    """Return the queue ids in a damaged message as text; empty if they cannot be read."""
    if end - start <= MESSAGE_HEAD or data[start + 4] not in (MESSAGE, MOVED, RETURNED):
        return ""
    count = int.from_bytes(data[start + 44 : start + 48], "big")
    offset = start + MESSAGE_HEAD
    if not 0 < count < QUEUES_MAX or end - offset < 4 * count:
        return ""
    ids = [int.from_bytes(data[offset + 4 * k : offset + 4 * k + 4], "big") for k in range(count)]
    return f", perhaps of the queues with the ids {ids}"
