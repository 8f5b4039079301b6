# SPDX-License-Identifier: Apache-2.0
"""Finding the segments of a stream, and reading the last one, which a crash may have torn."""

import logging
import secrets

from headrace.store.headers import read_headers
from headrace.store.record import segment_seed
from headrace.store.segment import numbered
from headrace.store.stream_files import StreamFiles, StreamSegment
from headrace.store.stream_scan import StreamScan

log = logging.getLogger(__name__)


class StreamRecovery:
    """One reading of one stream."""

    def __init__(self, files: StreamFiles) -> None:
        """Read it.

        Raises:
            StoreError, OSError: it cannot be read.
        """
        self.files = files
        self.secret = 0
        self.octets = 0
        self.segments: list[StreamSegment] = []
        self.last: StreamScan | None = None  # What stands in the last segment.
        self.groups = 0  # The number of the latest group,
        self.begun: list[tuple[int, StreamSegment, int]] = []  # and its transactions.
        self.find_segments()
        if self.segments:
            self.last = self.read_last(self.segments[-1])
            self.groups = self.last.groups
            self.begun = self.find_begun(self.last)
        else:
            self.secret = secrets.randbits(63)

    def find_segments(self) -> None:
        """Find what there is; remove what was never written, and what was let go of."""
        disk, directory = self.files.disk, self.files.directory
        numbers = numbered(disk.names(directory))
        found, oldest = read_headers(disk, directory, numbers)
        for number, (size, head) in found.items():
            path = self.files.path(number)
            if head is None:
                if number != numbers[-1]:
                    log.error("damaged header: %s is left out", path)
                else:
                    disk.remove(path)  # Made, and never written.
                continue
            if number < oldest:
                disk.remove(path)
                continue
            self.secret = head.secret
            seed = segment_seed(head.secret, number)
            segment = StreamSegment(path, number, seed, head.first_seq, head.begun_ms)
            segment.end = segment.written = segment.allocated = size
            segment.sealed = True
            self.octets += size
            self.segments.append(segment)

    def read_last(self, last: StreamSegment) -> StreamScan:
        """Read the segment that is appended to, and cut off what was torn."""
        found = StreamScan(last, last=True)
        end = found.take(*self.files.read(last))
        if end < last.written:
            self.files.disk.truncate(self.files.handle(last), end)
            self.octets -= last.written - end
        last.index = found.index
        last.end = last.written = last.allocated = end
        last.sealed = False
        self.files.open.remove(last)  # This one stays open.
        return found

    def find_begun(self, last: StreamScan) -> list[tuple[int, StreamSegment, int]]:
        """Return the transactions of the last group, which may begin in segments before the last.

        Each is its number, and the segment and the place of its BEGIN.
        """
        found, begun = last, last.begun
        for segment in reversed(self.segments[:-1]):
            if found.whole:
                break
            found = StreamScan(segment)
            found.take(*self.files.read(segment))
            self.groups = max(self.groups, found.groups)
            begun = found.begun + begun
        return begun
