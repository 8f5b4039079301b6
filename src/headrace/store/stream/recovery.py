# SPDX-License-Identifier: Apache-2.0
"""Recovery of a stream: finding its segments, and reading the last one, which may be torn."""

import logging
import os
import secrets

from headrace.store.offload.block_cache import SUFFIX as CACHE
from headrace.store.offload.block_cache import OffloadedSegment
from headrace.store.offload.sidecar import MADE, Sidecar, SidecarError, SidecarHead, sidecar_path
from headrace.store.offload.sidecar import SUFFIX as SIDECAR
from headrace.store.replacement import NEW
from headrace.store.segment.headers import read_headers
from headrace.store.segment.record import segment_seed
from headrace.store.segment.segment import segment_numbers
from headrace.store.stream.files import StreamFiles, StreamSegment
from headrace.store.stream.scan import StreamScan

log = logging.getLogger(__name__)


class StreamRecovery:
    """The recovered segments of one stream."""

    def __init__(self, files: StreamFiles) -> None:
        """Read the stream.

        Raises:
            StoreError, OSError: the stream cannot be read.
        """
        self.files = files
        self.size = 0
        self.segments: list[StreamSegment] = []
        self.offloaded: dict[int, SidecarHead] = {}  # Heads of sidecars by segment number.
        self.retired_numbers: list[int] = []  # Numbers of offloaded segments to be deleted.
        self.last: StreamScan | None = None  # The records of the last segment.
        self.groups = 0  # The number of the latest group.
        # The transactions of that group: number, segment and file offset of the BEGIN.
        self.group_transactions: list[tuple[int, StreamSegment, int]] = []
        self.find_segments()
        if self.segments and self.segments[-1].offloaded is None:
            self.last = self.read_last(self.segments[-1])
            self.groups = self.last.groups
            self.group_transactions = self.find_group_transactions(self.last)

    def find_segments(self) -> None:
        """Find the segments; remove files of unwritten segments and of segments without use."""
        disk, directory = self.files.disk, self.files.directory
        names = disk.names(directory)
        for name in names:
            if name.endswith((NEW, MADE, CACHE)):
                disk.remove(os.path.join(directory, name))  # Incomplete files, and caches.
        self.find_offloaded(names)
        headers, oldest = read_headers(
            disk, directory, [n for n in segment_numbers(names) if n not in self.offloaded]
        )
        headers |= {n: (sidecar.size, sidecar.header) for n, sidecar in self.offloaded.items()}
        numbers = sorted(headers)
        heads = [headers[n][1] for n in numbers]
        valid_heads = [head for head in heads if head is not None]
        oldest = max([oldest, *(sidecar.header.oldest for sidecar in self.offloaded.values())])
        self.files.secret = valid_heads[0].secret if valid_heads else secrets.randbits(63)
        for number in numbers:
            size, head = headers[number]
            if number < oldest:
                self.remove_retired(number)
                continue
            segment = self.make_segment(number, size)
            if head is not None:
                segment.first_offset, segment.begun_ms = head.first_seq, head.begun_ms
            elif not self.load_damaged(segment, number == numbers[-1]):
                continue
            if self.segments and number > self.segments[-1].number + 1:
                self.segments[-1].has_logged_damage = True
                log.error(
                    "damaged: the segments %d to %d of %s are missing: their records before "
                    "offset %d are skipped",
                    self.segments[-1].number + 1,
                    number - 1,
                    directory,
                    segment.first_offset,
                )
            self.size += size
            self.segments.append(segment)

    def find_offloaded(self, names: list[str]) -> None:
        """Find the segments that are in the object store; finish moves that a crash interrupted."""
        disk, directory = self.files.disk, self.files.directory
        for name in sorted(name for name in names if name.endswith(SIDECAR)):
            path = os.path.join(directory, name)
            number = name.removesuffix(SIDECAR)
            segment = f"{number}.segment"
            try:
                sidecar_head = Sidecar(disk, path).read_head()
            except (OSError, SidecarError) as error:
                if segment in names:
                    log.warning("%s: %s stays instead", error, segment)
                    disk.remove(path)
                else:
                    log.error("damaged: %s: its object is in the store, and is left out", error)
                continue
            self.offloaded[sidecar_head.header.number] = sidecar_head
            if segment in names:
                disk.remove(os.path.join(directory, segment))

    def remove_retired(self, number: int) -> None:
        """Remove the file or sidecar of a segment that retention had removed."""
        path = self.files.path(number)
        if number in self.offloaded:
            self.files.disk.remove(sidecar_path(path))
            self.retired_numbers.append(number)
        else:
            self.files.disk.remove(path)

    def make_segment(self, number: int, size: int) -> StreamSegment:
        """Return the segment object of a file or sidecar."""
        seed = segment_seed(self.files.secret, number)
        segment = StreamSegment(self.files.path(number), number, seed, 0, 0)
        segment.end = segment.written = segment.allocated = size
        segment.is_sealed = True
        sidecar_head = self.offloaded.get(number)
        if sidecar_head is not None:
            sidecar = Sidecar(self.files.disk, sidecar_path(segment.path))
            segment.offloaded = OffloadedSegment(
                None, self.files.disk, "", segment.path, sidecar, size, sidecar_head.groups
            )
        return segment

    def load_damaged(self, segment: StreamSegment, last: bool) -> bool:
        """Load a segment with a damaged header; return False if it has no valid record."""
        disk, path = self.files.disk, segment.path
        buffer, size = self.files.read(segment)
        if not any(buffer[:size]):
            if not last:  # The last segment may have been created and not written.
                log.error("damaged: %s is empty and is left out", path)
            else:
                log.warning("%s is empty and is removed", path)
            self.close_unused(segment)
            disk.remove(path)
            return False
        scan = StreamScan(segment)
        scan.read(buffer, size)
        if not scan.index:
            log.error("damaged: %s has no readable record; it is renamed to %s.damaged", path, path)
            self.close_unused(segment)
            disk.rename(path, f"{path}.damaged")
            return False
        segment.first_offset, segment.begun_ms = scan.index[0][0], scan.index[0][2]
        log.error("damaged: the header of %s; its records are used", path)
        return True

    def close_unused(self, segment: StreamSegment) -> None:
        """Close the file of a segment that is not used."""
        self.files.close(segment)
        if segment in self.files.open:
            self.files.open.remove(segment)

    def read_last(self, last: StreamSegment) -> StreamScan:
        """Read the last segment, and cut off a torn write."""
        scan = StreamScan(last, last=True)
        end = scan.read(*self.files.read(last))
        if end < last.written:
            self.files.disk.truncate(self.files.handle(last), end)
            self.size -= last.written - end
        last.index = scan.index
        last.end = last.written = last.allocated = end
        last.is_sealed = False
        self.files.open.remove(last)  # The last segment stays open.
        return scan

    def find_group_transactions(self, last: StreamScan) -> list[tuple[int, StreamSegment, int]]:
        """Return the transactions of the last group, which may begin in an earlier segment.

        They are tuples of the number, and the segment and file offset of the BEGIN.
        """
        scan, begun = last, last.group_transactions
        for segment in reversed(self.segments[:-1]):
            if scan.is_whole or segment.offloaded is not None:  # Its groups were durable.
                break
            scan = StreamScan(segment)
            scan.read(*self.files.read(segment))
            self.groups = max(self.groups, scan.groups)
            begun = scan.group_transactions + begun
        return begun
