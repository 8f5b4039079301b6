# SPDX-License-Identifier: Apache-2.0
"""Recovery of a stream: finding its segments, and reading the last, which may be torn."""

import logging
import os
import secrets

from headrace.store.replacement import NEW
from headrace.store.segment.headers import read_headers
from headrace.store.segment.record import segment_seed
from headrace.store.segment.segment import numbered
from headrace.store.stream.files import StreamFiles, StreamSegment
from headrace.store.stream.scan import StreamScan

log = logging.getLogger(__name__)


class StreamRecovery:
    """One reading of one stream."""

    def __init__(self, files: StreamFiles) -> None:
        """Read the stream.

        Raises:
            StoreError, OSError: it cannot be read.
        """
        self.files = files
        self.secret = 0
        self.octets = 0
        self.segments: list[StreamSegment] = []
        self.last: StreamScan | None = None  # The records of the last segment.
        self.groups = 0  # Number of the latest group,
        self.begun: list[tuple[int, StreamSegment, int]] = []  # and its transactions.
        self.find_segments()
        if self.segments:
            self.last = self.read_last(self.segments[-1])
            self.groups = self.last.groups
            self.begun = self.find_begun(self.last)

    def find_segments(self) -> None:
        """Find the segments; remove unwritten and removed ones."""
        disk, directory = self.files.disk, self.files.directory
        names = disk.names(directory)
        for name in names:
            if name.endswith(NEW):
                disk.remove(os.path.join(directory, name))  # It was incomplete.
        numbers = numbered(names)
        found, oldest = read_headers(disk, directory, numbers)
        heads = [head for _, head in found.values() if head is not None]
        self.secret = heads[0].secret if heads else secrets.randbits(63)
        for number, (size, head) in found.items():
            if number < oldest:
                disk.remove(self.files.path(number))
                continue
            segment = self.segment(number, size)
            if head is not None:
                segment.first_offset, segment.begun_ms = head.first_seq, head.begun_ms
            elif not self.rescue(segment, number == numbers[-1]):
                continue
            if self.segments and number > self.segments[-1].number + 1:
                self.segments[-1].told = True
                log.error(
                    "damaged: the segments %d to %d of %s are missing: what they held before "
                    "offset %d is left out",
                    self.segments[-1].number + 1,
                    number - 1,
                    directory,
                    segment.first_offset,
                )
            self.octets += size
            self.segments.append(segment)

    def segment(self, number: int, size: int) -> StreamSegment:
        """Return a segment with a valid header."""
        seed = segment_seed(self.secret, number)
        segment = StreamSegment(self.files.path(number), number, seed, 0, 0)
        segment.end = segment.written = segment.allocated = size
        segment.sealed = True
        return segment

    def rescue(self, segment: StreamSegment, last: bool) -> bool:
        """Load a segment with a damaged header; return False if it has no valid record."""
        disk, path = self.files.disk, segment.path
        buffer, size = self.files.read(segment)
        if not any(buffer[:size]):
            if not last:  # The last one may have been made and never written.
                log.error("damaged: %s holds nothing any more, and is left out", path)
            else:
                log.warning("%s holds nothing, and is removed", path)
            self.forget(segment)
            disk.remove(path)
            return False
        scan = StreamScan(segment)
        scan.take(buffer, size)
        if not scan.index:
            log.error("damaged: nothing is to be had of %s, which is %s.damaged now", path, path)
            self.forget(segment)
            disk.rename(path, f"{path}.damaged")
            return False
        segment.first_offset, segment.begun_ms = scan.index[0][0], scan.index[0][2]
        log.error("damaged: the header of %s; its records are used", path)
        return True

    def forget(self, segment: StreamSegment) -> None:
        """Close the file of a segment that is not used."""
        self.files.close(segment)
        if segment in self.files.open:
            self.files.open.remove(segment)

    def read_last(self, last: StreamSegment) -> StreamScan:
        """Read the last segment, and cut off what was torn."""
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
        """Return the transactions of the last group, which may begin in an earlier segment.

        Each is its number, and the segment and place of its BEGIN.
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
