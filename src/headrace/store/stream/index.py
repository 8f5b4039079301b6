# SPDX-License-Identifier: Apache-2.0
"""The index of a stream: positions by offset, time and bytes.

The index in memory has one entry (offset, file offset, time) for about 64 KiB of a segment. Records
after an entry are read one by one. An old segment is indexed on first use. Counts of bytes include
the heads of records, but not the headers of files.
"""

import bisect

import cython

from headrace.store.offload.sidecar import OFFSET, TIME
from headrace.store.segment.segment import HEADER
from headrace.store.stream.files import StreamFiles

if not cython.compiled:
    from headrace.store.segment.record import MESSAGE as C_MESSAGE
    from headrace.store.segment.record import MESSAGE_HEAD as C_MESSAGE_HEAD
    from headrace.store.segment.record import check_head, find_record_from
    from headrace.store.stream.files import StreamSegment
    from headrace.store.stream.scan import StreamScan
    from headrace.wire.memory import get64

WALK_SIZE = 128 << 10  # Bytes read at a time to find a record.


class StreamIndex:
    """Finds the segment and the file offset of a record of one stream."""

    def __init__(self, files: StreamFiles, segments: list[StreamSegment]) -> None:
        """``segments`` is the log's list, oldest first, which the log changes."""
        self.files = files
        self.segments = segments

    def segment_index(self, segment: StreamSegment) -> list[tuple[int, int, int]]:
        """Return the index of a segment, which is built on first use."""
        if segment.offloaded is not None:
            index = segment.offloaded.record_index()
            return [] if index is None else index.index
        if segment.index is None:
            scan = StreamScan(segment)
            buffer, size = self.files.read(segment)
            scan.read(buffer, size)
            segment.index = scan.index
        return segment.index

    def next_segment(self, segment: StreamSegment) -> StreamSegment | None:
        """Return the segment after another."""
        for k, other in enumerate(self.segments):
            if other is segment and k + 1 < len(self.segments):
                return self.segments[k + 1]
        return None

    def find_next_segment(self, segment: StreamSegment, offset: int) -> StreamSegment | None:
        """Return the next segment; log damage if the record ``offset`` is in neither segment."""
        following = self.next_segment(segment)
        if following is not None and offset < following.first_offset:
            self.files.log_damage(
                segment,
                "damaged: %s has no record from offset %d on, and the next segment begins with %d: "
                "the records between them are skipped",
                segment.path,
                offset,
                following.first_offset,
            )
        return following

    def find(self, offset: int) -> tuple[StreamSegment, int]:
        """Return a segment and a file offset at or before an offset."""
        k = bisect.bisect_right(self.segments, offset, key=segment_first_offset) - 1
        segment = self.segments[max(k, 0)]
        index = self.segment_index(segment)
        k = bisect.bisect_right(index, offset, key=entry_offset) - 1
        return segment, index[k][1] if k >= 0 else HEADER

    def offset_before(self, timestamp_ms: int) -> int:
        """Return an offset at or before the first record that arrived at a time or later.

        The stream must have a segment.
        """
        k = bisect.bisect_left(self.segments, timestamp_ms, key=segment_begun_ms) - 1
        segment = self.segments[max(k, 0)]
        index = self.segment_index(segment)
        k = bisect.bisect_left(index, timestamp_ms, key=entry_arrived_ms) - 1
        return index[k][0] if k >= 0 else segment.first_offset

    # --- Bytes ------------------------------------------------------------------------------

    def total_bytes(self) -> int:
        """Return the written bytes of all segments."""
        return sum([max(0, segment.written - HEADER) for segment in self.segments])

    def bytes_before(self, offset: int) -> int:
        """Return the bytes of the records before a written record."""
        k = max(bisect.bisect_right(self.segments, offset, key=segment_first_offset) - 1, 0)
        segment = self.segments[k]
        index = self.segment_index(segment)
        i = bisect.bisect_right(index, offset, key=entry_offset) - 1
        file_offset, _ = self.find_record(
            segment, index[i][1] if i >= 0 else HEADER, offset, segment.written
        )
        return (
            sum([segment.written - HEADER for segment in self.segments[:k]]) + file_offset - HEADER
        )

    def offset_ending_after(self, stop: int) -> int:
        """Return the offset of the first record that ends beyond ``stop`` bytes, or -1."""
        for segment in self.segments:
            size = segment.written - HEADER
            if size > stop:
                index = self.segment_index(segment)
                i = bisect.bisect_right(index, HEADER + stop, key=entry_file_offset) - 1
                file_offset = index[i][1] if i >= 0 else HEADER
                return self.find_record(segment, file_offset, 1 << 62, HEADER + stop)[1]
            stop -= size
        return -1

    def find_record(
        self, segment: StreamSegment, file_offset: int, offset: int, limit: int
    ) -> tuple[int, int]:
        """Return file offset and offset of the first record from ``offset``, or beyond ``limit``.

        ``file_offset`` is the start of a record. A record is beyond the limit if it ends after it.
        At the segment's end the offset is -1.
        """
        if segment.offloaded is not None:
            return self.find_offloaded_record(segment, offset, limit)
        while file_offset < segment.written:
            left = segment.written - file_offset
            chunk = self.files.read_at(segment, min(WALK_SIZE, left), file_offset)
            end = len(chunk)
            start = 0
            while start + C_MESSAGE_HEAD <= end:
                length = check_head(chunk, start, left, segment.seed)
                if length == 0:
                    start = find_record_from(chunk, start + 8, end & ~7, segment.seed)
                    continue
                size = (length + 7) & ~7
                if chunk[start + 4] == C_MESSAGE:
                    seq = get64(chunk, start + 16)
                    if seq >= offset or file_offset + start + size > limit:
                        return file_offset + start, seq
                start += size
            if start == 0:
                break
            file_offset += start
        return segment.written, -1

    def find_offloaded_record(
        self, segment: StreamSegment, offset: int, limit: int
    ) -> tuple[int, int]:
        """Return a record as :meth:`find_record` does, by the sidecar of an offloaded segment.

        With a limit it may be the previous record, because a sidecar has no ends of records.
        """
        assert segment.offloaded is not None
        if limit < segment.written:
            first, file_offset = segment.offloaded.record_at(limit)
        else:
            first, file_offset = segment.offloaded.find(OFFSET, offset)
        return (segment.written, -1) if first < 0 else (file_offset, first)

    def find_time(self, offset: int, timestamp_ms: int) -> tuple[int, int]:
        """Return the first record of a time in the segment of an offset, if it is offloaded.

        Returns:
            The record's offset, and 0. If the segment has no such record, -1 and the next segment's
            first offset. If the segment is not offloaded, or is the last, -1 and -1.
        """
        k = max(bisect.bisect_right(self.segments, offset, key=segment_first_offset) - 1, 0)
        segment = self.segments[k]
        if segment.offloaded is None:
            return -1, -1
        first, _ = segment.offloaded.find(TIME, timestamp_ms)
        if first >= 0:
            return first, 0
        return -1, self.segments[k + 1].first_offset if k + 1 < len(self.segments) else -1

    def estimate_bytes_from(self, offset: int, file_offset: int, next_offset: int) -> int:
        """Return the approximate bytes from an offset on, without reading files.

        ``file_offset`` is the present end of the last segment, ``next_offset`` the offset of the
        next record.
        """
        size = 0
        for k in range(len(self.segments) - 1, -1, -1):
            segment = self.segments[k]
            active = k + 1 == len(self.segments)
            end = file_offset if active else segment.end
            if segment.first_offset >= offset:
                size += end
                continue
            last = next_offset
            if not active:
                following = self.segments[k + 1]
                last = following.first_offset
            if offset < last:
                size += self.estimate_segment_bytes(segment, offset, end, last)
            break
        return size

    def estimate_segment_bytes(
        self, segment: StreamSegment, offset: int, end: int, last: int
    ) -> int:
        """Return the approximate bytes of a segment from an offset on, without reading its file."""
        first, file_offset = segment.first_offset, HEADER
        entry_end, stop = last, end
        if segment.index:
            k = bisect.bisect_right(segment.index, offset, key=entry_offset)
            if k:
                first, file_offset = segment.index[k - 1][:2]
            if k < len(segment.index):
                entry_end, stop = segment.index[k][:2]
        size = 0  # The bytes from the offset on of the records of one index entry.
        if entry_end > first:
            size = (stop - file_offset) * (entry_end - offset) // (entry_end - first)
        return end - stop + size


def segment_first_offset(segment: StreamSegment) -> int:
    """Return the sort key of a segment by offset."""
    return segment.first_offset


def segment_begun_ms(segment: StreamSegment) -> int:
    """Return the sort key of a segment by time."""
    return segment.begun_ms


def entry_offset(entry: tuple[int, int, int]) -> int:
    """Return the sort key of an index entry by offset."""
    return entry[0]


def entry_arrived_ms(entry: tuple[int, int, int]) -> int:
    """Return the sort key of an index entry by time."""
    return entry[2]


def entry_file_offset(entry: tuple[int, int, int]) -> int:
    """Return the sort key of an index entry by file offset."""
    return entry[1]
