# SPDX-License-Identifier: Apache-2.0
"""The log of a lease on disk: a stream's log from which settled messages are removed.

Segments of settled or released messages are removed once the fact with the settled offset is
durable. A crash before that restores the lease with all its messages.
"""

from collections import deque

import cython

from headrace.model.lease.log import Render, render_unchanged
from headrace.model.stream.log import StreamRecord

if not cython.compiled:
    from headrace.model.lease.log import TAIL as C_TAIL
    from headrace.model.lease.log import render_records
    from headrace.store.journal.journal import Journal
    from headrace.store.stream.log import DiskStreamLog

SEGMENT_SIZE = 8 << 20  # Bytes: at most one segment of settled messages stays.


class DiskLeaseLog(DiskStreamLog):
    """The durable log of one lease."""

    def __init__(self, directory: str, journal: Journal, *, segment_size: int) -> None:
        """Open the log and recover it.

        Raises:
            StoreError, OSError: the log cannot be read.
        """
        self.render: Render = render_unchanged
        self.floor = 0  # Offsets below it are durably settled.
        # Log positions, and the offsets to which ``floor`` is raised when they are durable.
        self.pending_floors: deque[tuple[int, int]] = deque()
        DiskStreamLog.__init__(
            self, directory, journal, segment_size=min(segment_size, SEGMENT_SIZE)
        )
        self.tail = C_TAIL

    def read(self, offset: int, bytes_max: int) -> list[StreamRecord]:
        return render_records(DiskStreamLog.read(self, offset, bytes_max), self.render)

    def read_raw(self, offset: int, bytes_max: int) -> list[StreamRecord]:
        return DiskStreamLog.read(self, offset, bytes_max)

    def forget_below(self, offset: int, position: int) -> None:
        if offset > self.first_offset:
            self.first_offset = offset
            self.pending_floors.append((position, offset))
        self.trim(0)

    def trim(self, now_ms: int) -> None:
        """Remove the segments of settled messages."""
        pending_floors = self.pending_floors
        while pending_floors and pending_floors[0][0] <= self.journal.synced:
            self.floor = pending_floors.popleft()[1]
        segments = self.segments
        removed_count = 0
        while (
            removed_count < len(segments) - 1
            and segments[removed_count].written == segments[removed_count].end
        ):
            if segments[removed_count + 1].first_offset > self.floor:
                break
            removed_count += 1
        if removed_count:
            self.remove_oldest(removed_count)
