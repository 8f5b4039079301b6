# SPDX-License-Identifier: Apache-2.0
"""The log of a stream: segments of numbered messages, read by many from anywhere.

Segments and records are those of the journal (:mod:`headrace.store.segment`, where ``first_seq`` is
the first offset, and :mod:`headrace.store.record`, where ``seq`` is the offset). What is appended
goes into a buffer that is written and synced with the next group of the virtual host's journal, so
one watermark releases the confirms of both.

Memory keeps one index entry (offset, place, time) for about 64 KiB of an open segment. An old
segment is indexed when somebody first reads from it. A reader that goes on where the last read
ended needs no search, and readers that follow each other closely share what was read.

Transactions. A stream is written before the journal, whose COMMIT decides. So what a transaction
appends here begins with a BEGIN record that carries its number. When the log is opened, the last
group is cut back to the first BEGIN whose COMMIT the journal does not have: nothing from there on
was durable. Groups before the last one are beyond doubt, for the journal was written before the
next began; a GROUP record that only continues a group in a new segment says so.

Retention drops whole segments, the oldest first, never the last one; so offsets are never reused,
even when everything is gone.
"""

import bisect
import logging
import os
import secrets
from collections import OrderedDict, deque
from typing import Any

import cython

from headrace.store.disk import Disk
from headrace.store.errors import StoreError
from headrace.store.record import BEGIN, GROUP, HEAD, next_group, segment_seed
from headrace.store.segment import (
    HEADER,
    VERSION,
    file_name,
    header,
    numbered,
    read_header,
)

if not cython.compiled:
    from headrace.model.message import KIND_MASK as C_KIND_MASK
    from headrace.model.message import REDELIVERED as C_REDELIVERED
    from headrace.model.served import Consumer
    from headrace.model.stream_log import StreamLog
    from headrace.store.journal import Journal
    from headrace.store.record import HEAD as C_HEAD
    from headrace.store.record import MESSAGE as C_MESSAGE
    from headrace.store.record import MESSAGE_HEAD as C_MESSAGE_HEAD
    from headrace.store.record import intact, next_intact, plausible, seal
    from headrace.wire.memory import copy, cut, get16, get32, get64, put16, put32, put64

log = logging.getLogger(__name__)

INDEX_STEP = 64 << 10  # Octets of a segment for one entry of its index.
ALLOCATE_STEP = 1 << 20
BUFFER_SIZE = 64 << 10
BUFFER_KEPT = 4 << 20
SEGMENT_MIN = 64 << 10
HANDLES_MAX = 16  # Files of old segments that one stream keeps open.
PLACES_MAX = 4096  # Where readers left off.
READ_OCTETS = 256 << 10  # What is read at a time for one reader.
RECENT = 8  # Reads kept for others.
GOES_ON = 1 << 63  # In the number of a GROUP record: the group began in the segment before.


class StreamSegment:
    """One file of a stream."""

    def __init__(self, path: str, number: int, seed: int, first_offset: int, begun_ms: int) -> None:
        self.path = path
        self.number = number
        self.seed = seed
        self.first_offset = first_offset
        self.begun_ms = begun_ms
        self.end = 0  # Where the last record that was appended ends.
        self.written = 0  # Up to here the file holds what was appended, durably.
        self.allocated = 0
        self.index: list[tuple[int, int, int]] | None = None  # (offset, place, arrived_ms)
        self.handle = -1
        self.sealed = False


class StreamGroup:
    """What a stream has to write with one group of the journal."""

    def __init__(
        self,
        log: "DiskStreamLog",
        buffer: bytearray,
        pieces: list[tuple[StreamSegment, int, int, int]],
        next_offset: int,
        number: int,
    ) -> None:
        self.log = log
        self.number = number
        self.buffer = buffer
        self.pieces = pieces
        self.next_offset = next_offset

    def run(self, disk: Disk) -> None:
        """Write and sync; on the writer's thread."""
        with memoryview(self.buffer) as view:
            for segment, place, lo, hi in self.pieces:
                if segment.handle < 0:
                    self.log.create(segment)
                end = place + hi - lo
                if end > segment.allocated:
                    disk.allocate(segment.handle, end + ALLOCATE_STEP)
                    segment.allocated = end + ALLOCATE_STEP
                with view[lo:hi] as octets:
                    disk.write(segment.handle, [octets], place)
                disk.sync(segment.handle)
                if segment.sealed and end == segment.end:
                    disk.truncate(segment.handle, end)

    def finish(self) -> None:
        """It is durable; on the loop's thread."""
        for segment, place, lo, hi in self.pieces:
            segment.written = place + hi - lo
        self.log.finished(self)


class Removal:
    """Removes files; a job of the writer."""

    def __init__(self, paths: list[str], directory: str | None) -> None:
        self.paths = paths
        self.directory = directory  # Removed too, when given.

    def run(self, disk: Disk) -> None:
        """Remove them, the oldest first."""
        for path in self.paths:
            disk.remove(path)
        if self.directory is not None:
            disk.remove_directory(self.directory)


class DiskStreamLog(StreamLog):
    """The durable log of one stream."""

    def __init__(
        self,
        directory: str,
        journal: Journal,
        *,
        segment_size: int,
        max_length_bytes: int = -1,
        max_age_ms: int = -1,
    ) -> None:
        """Open the log, recovering what is there.

        Raises:
            StoreError, OSError: it cannot be read.
        """
        StreamLog.__init__(self, max_length_bytes, max_age_ms)
        self.directory = directory
        self.journal = journal
        self.disk = journal.disk
        self.segment_size_usual = segment_size
        self.segment_size_max = segment_size
        self.size_segments()
        self.secret = 0
        self.tail = 0  # Octets at the end of a record's data that readers are not shown.
        self.segments: list[StreamSegment] = []
        self.buffer = bytearray(BUFFER_SIZE)
        self.capacity = BUFFER_SIZE
        self.spare: bytearray | None = None
        self.at = 0
        self.pieces: list[tuple[StreamSegment, int, int, int]] = []
        self.piece_lo = 0
        self.piece_place = 0
        self.place = 0  # Where the next record goes.
        self.indexed = 0  # Where the last index entry points.
        self.index: list[tuple[int, int, int]] = []  # Of the segment that is appended to.
        self.groups = 0  # The number of the latest group.
        self.bracket = 0  # The transaction whose BEGIN stands last.
        self.doubtful: deque[tuple[int, int]] = deque()  # Group and number of transactions.
        self.begun: list[tuple[int, StreamSegment, int]] | None = None  # Found at the start.
        self.whole = False  # The start of the last group was found.
        self.seed = 0
        self.roll_ms = 0  # A segment ends with the first message after this.
        self.newest_ms = 0
        self.dirty = False
        self.deleted = False
        self.handles: deque[StreamSegment] = deque()
        self.places: OrderedDict[int, tuple[StreamSegment, int]] = OrderedDict()
        self.recent: deque[tuple[int, int, list[Any]]] = deque(maxlen=RECENT)
        self.disk.make_directory(directory)
        self.recover()
        if journal.recovered:
            self.begun = None
        journal.streams.append(self)

    # --- Appending --------------------------------------------------------------------------

    def append(self, data: bytes, address_len: int, body_size: int, arrived_ms: int) -> int:
        """See :class:`StreamLog`."""
        n = len(data)
        length = C_MESSAGE_HEAD + n
        size = (length + 7) & ~7
        if not self.dirty:
            self.begin_group(arrived_ms)
        if self.journal.transaction != 0 and self.journal.transaction != self.bracket:
            self.begin_transaction(self.journal.transaction)
        full = self.place + size + 32 > self.segment_size or arrived_ms > self.roll_ms
        if full and self.place > HEADER + 64:
            self.roll(arrived_ms)
        if self.at + size + 128 > self.capacity:
            self.grow(size)
        b = self.buffer
        at = self.at
        offset = self.next_offset
        put64(b, at + size - 8, 0)
        put64(b, at + 16, offset)
        put64(b, at + 24, arrived_ms)
        put64(b, at + 32, 0)
        put32(b, at + 40, body_size)
        put32(b, at + 44, 0)
        put32(b, at + 48, n)
        put16(b, at + 52, address_len)
        b[at + 54] = 1
        b[at + 55] = 0
        copy(b, at + C_MESSAGE_HEAD, data, 0, n)
        seal(b, at, self.seed, length, C_MESSAGE)
        if self.place >= self.indexed + INDEX_STEP or self.indexed == 0:
            self.indexed = self.place
            self.index.append((offset, self.place, arrived_ms))
        self.at = at + size
        self.place += size
        self.octets += size
        self.journal.appended += size
        self.newest_ms = arrived_ms
        self.next_offset = offset + 1
        return offset

    def active(self) -> StreamSegment:
        """Return the segment that is appended to."""
        return self.segments[len(self.segments) - 1]

    def grow(self, size: int) -> None:
        """Make room in the buffer."""
        more = self.capacity
        while self.at + size + 128 > self.capacity + more:
            more *= 2
        self.buffer.extend(bytes(more))
        self.capacity += more

    def begin_group(self, arrived_ms: int) -> None:
        """Begin what the next group of the journal will write."""
        self.dirty = True
        self.journal.dirty_streams.append(self)
        if not self.segments:
            self.begin_segment(1, arrived_ms, False)
            return
        self.piece_lo = self.at
        self.piece_place = self.place
        self.mark_group(False)

    def begin_transaction(self, number: int) -> None:
        """Note that what follows counts only with a COMMIT of the journal."""
        self.bracket = number
        self.journal.shared = True
        self.doubtful.append((self.groups, number))
        if self.at + 128 > self.capacity:
            self.grow(128)
        put64(self.buffer, self.at + HEAD, number)
        seal(self.buffer, self.at, self.seed, HEAD + 8, BEGIN)
        self.at += HEAD + 8
        self.place += HEAD + 8
        self.octets += HEAD + 8

    def doubts(self, number: int) -> bool:
        """Tell whether a transaction is in the last group, so that its COMMIT is still needed."""
        return any(known == number for _, known in self.doubtful)

    def mark_group(self, goes_on: bool) -> None:
        """Append the GROUP record that proves the group before it, unless that goes on."""
        if not goes_on:
            self.groups += 1
        b = self.buffer
        put64(b, self.at + HEAD, self.groups | (GOES_ON if goes_on else 0))
        seal(b, self.at, self.seed, HEAD + 8, GROUP)
        self.at += HEAD + 8
        self.place += HEAD + 8
        self.octets += HEAD + 8

    def begin_segment(self, number: int, arrived_ms: int, goes_on: bool) -> None:
        """Begin a segment in the buffer; its file is made by the writer."""
        path = os.path.join(self.directory, file_name(number))
        self.seed = segment_seed(self.secret, number)
        segment = StreamSegment(path, number, self.seed, self.next_offset, arrived_ms)
        self.index = segment.index = []
        self.segments.append(segment)
        self.limit_age(arrived_ms)
        first = header(number, self.secret, self.next_offset, self.segments[0].number, arrived_ms)
        copy(self.buffer, self.at, first, 0, HEADER)
        self.piece_lo = self.at
        self.piece_place = 0
        self.at += HEADER
        self.place = HEADER
        self.octets += HEADER
        self.indexed = 0
        self.mark_group(goes_on)

    def limit_segments(self, octets: int) -> None:
        """See :class:`StreamLog`."""
        self.segment_size_max = octets or self.segment_size_usual
        self.size_segments()

    def limit(self, max_length_bytes: int, max_age_ms: int) -> None:
        StreamLog.limit(self, max_length_bytes, max_age_ms)
        self.size_segments()
        if self.segments:
            self.limit_age(self.active().begun_ms)

    def size_segments(self) -> None:
        """Have segments that are small enough for retention to drop some."""
        size = self.segment_size_max
        if self.max_length_bytes >= 0:
            size = min(size, self.max_length_bytes // 8)
        self.segment_size = max(size, SEGMENT_MIN)

    def limit_age(self, begun_ms: int) -> None:
        """End a segment in time for retention by age to have something to drop."""
        self.roll_ms = begun_ms + self.max_age_ms // 4 if self.max_age_ms >= 0 else 1 << 62

    def roll(self, arrived_ms: int) -> None:
        """Go on in a new segment."""
        old = self.active()
        self.end_piece()
        old.sealed = True
        self.handles.append(old)
        if self.at + 256 > self.capacity:
            self.grow(256)
        self.begin_segment(old.number + 1, arrived_ms, True)

    def end_piece(self) -> None:
        """Close the stretch of the buffer that belongs together in a file."""
        segment = self.active()
        segment.end = self.place
        if self.at > self.piece_lo:
            self.pieces.append((segment, self.piece_place, self.piece_lo, self.at))
        self.piece_lo = self.at
        self.piece_place = self.place

    def take(self) -> StreamGroup:
        """Give what was appended to the journal's next group."""
        self.end_piece()
        group = StreamGroup(self, self.buffer, self.pieces, self.next_offset, self.groups)
        self.pieces = []
        self.buffer = self.spare if self.spare is not None else bytearray(BUFFER_SIZE)
        self.spare = None
        self.capacity = len(self.buffer)
        self.at = 0
        self.dirty = False
        return group

    def create(self, segment: StreamSegment) -> None:
        """Open the file of a segment that is being written; on the writer's thread."""
        if self.deleted:
            self.disk.make_directory(self.directory)  # The removal comes after this.
        segment.handle = self.disk.open(segment.path, create=True)
        self.disk.sync_directory(self.directory)

    def finished(self, group: StreamGroup) -> None:
        """A group is durable."""
        self.committed_offset = group.next_offset
        while self.doubtful and self.doubtful[0][0] < group.number:
            self.doubtful.popleft()
        if len(group.buffer) <= BUFFER_KEPT:
            self.spare = group.buffer
        if len(self.segments) > 1:
            self.trim(self.newest_ms)
        if self.deleted:
            self.close()
        self.close_handles()

    # --- Retention --------------------------------------------------------------------------

    def trim(self, now_ms: int) -> None:
        """Drop the oldest segments beyond the limits."""
        gone = 0
        segments = self.segments
        octets = self.octets
        while gone < len(segments) - 1 and segments[gone].written == segments[gone].end:
            following = segments[gone + 1]
            if following.first_offset > self.committed_offset:
                break
            too_long = 0 <= self.max_length_bytes < octets
            too_old = self.max_age_ms >= 0 and following.begun_ms < now_ms - self.max_age_ms
            if not too_long and not too_old:
                break
            if self.holds_back(following.first_offset, octets):
                break
            octets -= segments[gone].end
            gone += 1
        if not gone:
            return
        dropped = segments[:gone]
        del segments[:gone]
        self.octets = octets
        self.first_offset = segments[0].first_offset
        for segment in dropped:
            self.close_handle(segment)
        self.recent.clear()
        self.places.clear()
        self.journal.writer.submit(Removal([segment.path for segment in dropped], None))

    def close_handle(self, segment: StreamSegment) -> None:
        """Close the file of a segment."""
        if segment.handle >= 0:
            self.disk.close(segment.handle)
            segment.handle = -1

    def close_handles(self) -> None:
        """Keep few files of old segments open."""
        while len(self.handles) > HANDLES_MAX:
            segment = self.handles.popleft()
            if segment.written == segment.end:
                self.close_handle(segment)
            else:
                self.handles.append(segment)
                return

    def octets_from(self, offset: int) -> int:
        """See :class:`StreamLog`; within about an index entry where there is an index."""
        octets = 0
        for k in range(len(self.segments) - 1, -1, -1):
            segment = self.segments[k]
            active = k + 1 == len(self.segments)
            end = self.place if active else segment.end
            if segment.first_offset >= offset:
                octets += end
                continue
            last = self.next_offset if active else self.segments[k + 1].first_offset
            if offset < last:
                octets += self.rest_of(segment, offset, end, last)
            break
        return octets

    def rest_of(self, segment: StreamSegment, offset: int, end: int, last: int) -> int:
        """Return roughly what a segment holds from an offset on, without reading it."""
        first, place = segment.first_offset, HEADER
        after, stop = last, end
        if segment.index:
            k = bisect.bisect_right(segment.index, offset, key=first_in)
            if k:
                first, place = segment.index[k - 1][:2]
            if k < len(segment.index):
                after, stop = segment.index[k][:2]
        part = (stop - place) * (after - offset) // (after - first) if after > first else 0
        return end - stop + part

    # --- Reading ----------------------------------------------------------------------------

    def read(self, offset: int, octets_max: int) -> list[tuple[int, bytes, int, int, int]]:
        """See :class:`StreamLog`."""
        if offset < self.first_offset:
            offset = self.first_offset
        if offset >= self.committed_offset:
            return []
        for first, wanted, earlier in self.recent:
            if first == offset and wanted == octets_max:
                return list(earlier)
        segment, place = self.find(offset)
        found: list[tuple[int, bytes, int, int, int]] = []
        while not found:
            if place >= segment.written:
                following = self.following(segment)
                if following is None:
                    return []
                segment, place = following, HEADER
                continue
            after = self.read_some(segment, place, offset, octets_max, found)
            if after == place and not found:
                return []
            place = after
        last = found[len(found) - 1][0]
        self.places[last + 1] = (segment, place)
        while len(self.places) > PLACES_MAX:
            self.places.popitem(last=False)
        self.recent.append((offset, octets_max, found))
        return list(found)

    def pour(self, offset: int, end: int, consumer: Consumer) -> int:
        """See :class:`StreamLog`. Records go from where they were read to the consumer's output."""
        if offset < self.first_offset:
            offset = self.first_offset
        begun = offset
        if offset >= end or not consumer.can():
            return offset
        segment, place = self.find(offset)
        while offset == begun:
            if place >= segment.written:
                following = self.following(segment)
                if following is None:
                    return offset
                segment, place = following, HEADER
                continue
            left = segment.written - place
            d = self.disk.read(self.handle(segment), min(READ_OCTETS + 4096, left), place)
            stop = len(d) & ~7
            seed = segment.seed
            tail = self.tail
            at = 0
            while at < stop and offset < end:
                length = intact(d, at, stop, seed)
                if length == 0:
                    break  # Cut off by our reading, or damaged.
                if d[at + 4] == C_MESSAGE:
                    seq = get64(d, at + 16)
                    if seq >= end:
                        break
                    if seq >= offset:
                        if not consumer.can():
                            break
                        lo = at + C_MESSAGE_HEAD
                        hi = lo + get32(d, at + 48) - tail
                        if tail and d[hi + 16] & (C_KIND_MASK | C_REDELIVERED):
                            break  # It has to be shown in another way.
                        consumer.put_record(d, lo, get16(d, at + 52), hi, seq, get64(d, at + 24))
                        offset = seq + 1
                at += (length + 7) & ~7
            if at == 0:
                return self.pour_one_by_one(offset, end, consumer)
            place += at
        self.places[offset] = (segment, place)
        while len(self.places) > PLACES_MAX:
            self.places.popitem(last=False)
        return offset

    def pour_one_by_one(self, offset: int, end: int, consumer: Consumer) -> int:
        """As :meth:`pour`, for large records, damaged places, and what is shown otherwise."""
        for seq, data, address_len, _, arrived_ms in self.read(offset, 1):
            if seq >= end or not consumer.can():
                break
            consumer.put_record(data, 0, address_len, len(data), seq, arrived_ms)
            offset = seq + 1
        return offset

    def find(self, offset: int) -> tuple[StreamSegment, int]:
        """Return a place in a segment at or before an offset."""
        known = self.places.pop(offset, None)
        if known is not None and known[0] in self.segments:
            return known
        k = bisect.bisect_right(self.segments, offset, key=first_of) - 1
        segment = self.segments[max(k, 0)]
        index = self.index_of(segment)
        k = bisect.bisect_right(index, offset, key=first_in) - 1
        return segment, index[k][1] if k >= 0 else HEADER

    def following(self, segment: StreamSegment) -> StreamSegment | None:
        """Return the segment behind another."""
        for k, other in enumerate(self.segments):
            if other is segment and k + 1 < len(self.segments):
                return self.segments[k + 1]
        return None

    def read_some(
        self,
        segment: StreamSegment,
        place: int,
        offset: int,
        octets_max: int,
        found: list[tuple[int, bytes, int, int, int]],
    ) -> int:
        """Read records from a place on, those before ``offset`` aside; return where to go on."""
        left = segment.written - place
        d = self.disk.read(self.handle(segment), min(octets_max + 4096, left), place)
        end = len(d) & ~7
        if end == 0:
            raise OSError(f"{segment.path} is shorter than it was")
        at = 0
        octets = 0
        seed = segment.seed
        while at < end and octets < octets_max:
            length = intact(d, at, end, seed)
            if length == 0:
                if at and end < left:
                    break  # Cut off by our reading, or damaged: seen next time.
                length = plausible(d, at, left, seed) if end - at >= C_HEAD else 0
                if length > end and end < left:
                    d = self.disk.read(self.handle(segment), (length + 7) & ~7, place)
                    end = len(d) & ~7
                    if intact(d, 0, end, seed):
                        continue
                log.error("damaged record in %s near octet %d is left out", segment.path, place)
                at = next_intact(d, at + 8, end, seed)
                continue
            if d[at + 4] == C_MESSAGE:
                seq = get64(d, at + 16)
                if seq >= self.committed_offset:
                    break
                if seq >= offset:
                    lo = at + C_MESSAGE_HEAD
                    n = get32(d, at + 48)
                    found.append(
                        (
                            seq,
                            cut(d, lo, lo + n),
                            get16(d, at + 52),
                            get32(d, at + 40),
                            get64(d, at + 24),
                        )
                    )
                    octets += n
            at += (length + 7) & ~7
        return place + at

    def handle(self, segment: StreamSegment) -> int:
        """Return the open file of a segment that is on the disk."""
        if segment.handle < 0:
            segment.handle = self.disk.open(segment.path)
            self.handles.append(segment)
            self.close_handles()
        return segment.handle

    def index_of(self, segment: StreamSegment) -> list[tuple[int, int, int]]:
        """Return the index of a segment, made now if nobody needed it before."""
        if segment.index is None:
            buffer = bytearray(segment.written)
            size = self.disk.read_into(self.handle(segment), buffer, segment.written)
            index: list[tuple[int, int, int]] = []
            self.scan(segment, buffer, size, index)
            segment.index = index
        return segment.index

    def offset_at(self, timestamp_ms: int) -> int:
        """See :class:`StreamLog`."""
        if not self.segments:
            return self.next_offset
        k = bisect.bisect_left(self.segments, timestamp_ms, key=begun) - 1
        segment = self.segments[max(k, 0)]
        index = self.index_of(segment)
        k = bisect.bisect_left(index, timestamp_ms, key=arrived) - 1
        offset = index[k][0] if k >= 0 else segment.first_offset
        while offset < self.committed_offset:
            batch = self.read(offset, 1 << 18)
            if not batch:
                break
            for found in batch:
                if found[4] >= timestamp_ms:
                    return found[0]
            offset = batch[len(batch) - 1][0] + 1
        return self.committed_offset

    # --- Measuring --------------------------------------------------------------------------

    def measure(self, first: int, last: int) -> int:
        """See :class:`StreamLog`; octets are those of the segments, records' heads included."""
        last = min(last, self.committed_offset)
        if first >= last:
            return 0
        return self.position(last) - self.position(first)

    def position(self, offset: int) -> int:
        """Return how many octets of the segments that are kept stand before a record."""
        if offset >= self.committed_offset:
            return sum([max(0, segment.written - HEADER) for segment in self.segments])
        k = max(bisect.bisect_right(self.segments, offset, key=first_of) - 1, 0)
        segment = self.segments[k]
        index = self.index_of(segment)
        i = bisect.bisect_right(index, offset, key=first_in) - 1
        place, _ = self.walk(segment, index[i][1] if i >= 0 else HEADER, offset, segment.written)
        return sum([each.written - HEADER for each in self.segments[:k]]) + place - HEADER

    def within(self, first: int, last: int, octets_max: int) -> int:
        """See :class:`StreamLog`."""
        last = min(last, self.committed_offset)
        if first + 1 >= last:
            return last
        stop = self.position(first) + octets_max
        if self.position(last) <= stop:
            return last
        for segment in self.segments:
            size = segment.written - HEADER
            if size > stop:
                index = self.index_of(segment)
                i = bisect.bisect_right(index, HEADER + stop, key=stands_at) - 1
                place = index[i][1] if i >= 0 else HEADER
                _, seq = self.walk(segment, place, 1 << 62, HEADER + stop)
                if seq < 0:
                    break
                return max(first + 1, min(seq, last))
            stop -= size
        return last

    def walk(self, segment: StreamSegment, place: int, offset: int, limit: int) -> tuple[int, int]:
        """Return place and offset of a record: the first from ``offset`` on, or beyond ``limit``.

        ``place`` is where a record begins. Beyond the limit is a record that ends behind it. At the
        segment's end the offset is -1.
        """
        while place < segment.written:
            left = segment.written - place
            d = self.disk.read(self.handle(segment), min(2 * INDEX_STEP, left), place)
            end = len(d)
            at = 0
            while at + C_MESSAGE_HEAD <= end:
                length = plausible(d, at, left, segment.seed)
                if length == 0:
                    at = next_intact(d, at + 8, end & ~7, segment.seed)
                    continue
                size = (length + 7) & ~7
                if d[at + 4] == C_MESSAGE:
                    seq = get64(d, at + 16)
                    if seq >= offset or place + at + size > limit:
                        return place + at, seq
                at += size
            if at == 0:
                break
            place += at
        return segment.written, -1

    # --- Recovery ---------------------------------------------------------------------------

    def recover(self) -> None:
        """Find the segments and read the last one, which a crash may have torn."""
        numbers = numbered(self.disk.names(self.directory))
        heads = {}
        oldest = 0
        for number in numbers:
            path = os.path.join(self.directory, file_name(number))
            handle = self.disk.open(path)
            try:
                head = read_header(self.disk.read(handle, HEADER, 0))
                size = self.disk.size(handle)
            finally:
                self.disk.close(handle)
            if head is None or head.number != number:
                if number != numbers[len(numbers) - 1]:
                    log.error("damaged header: %s is left out", path)
                else:
                    self.disk.remove(path)  # Made, and never written.
                continue
            if head.version > VERSION:
                raise StoreError(f"{path} was written by a newer version of Headrace")
            oldest = max(oldest, head.oldest)
            heads[number] = head, size
        for number, (head, size) in heads.items():
            path = os.path.join(self.directory, file_name(number))
            if number < oldest:
                self.disk.remove(path)
                continue
            self.secret = head.secret
            seed = segment_seed(head.secret, number)
            segment = StreamSegment(path, number, seed, head.first_seq, head.begun_ms)
            segment.end = segment.written = segment.allocated = size
            segment.sealed = True
            self.octets += size
            self.segments.append(segment)
        if not self.segments:
            self.secret = secrets.randbits(63)
            return
        self.first_offset = self.segments[0].first_offset
        last = self.active()
        buffer = bytearray(last.written)
        size = self.disk.read_into(self.handle(last), buffer, last.written)
        self.index = last.index = []
        self.next_offset = last.first_offset
        self.begun = []
        self.whole = False
        end = self.scan(last, buffer, size, self.index)
        self.find_begun()
        if end < last.written:
            self.disk.truncate(self.handle(last), end)
            self.octets -= last.written - end
        last.end = last.written = last.allocated = end
        last.sealed = False
        self.handles.clear()  # This one stays open.
        self.seed = last.seed
        self.limit_age(last.begun_ms)
        self.place = end
        self.indexed = self.index[len(self.index) - 1][1] if self.index else 0
        self.committed_offset = self.next_offset

    def find_begun(self) -> None:
        """Find the transactions of the last group that are in segments before the last."""
        begun = self.begun or []
        for segment in reversed(self.segments[: len(self.segments) - 1]):
            if self.whole:
                break
            self.begun = []
            buffer = bytearray(segment.written)
            size = self.disk.read_into(self.handle(segment), buffer, segment.written)
            self.scan(segment, buffer, size, [])
            begun = self.begun + begun
        self.begun = begun
        self.doubtful = deque((self.groups, number) for number, _, _ in begun)

    def resolve(self, committed: set[int] | None) -> None:
        """Cut off what belongs to a transaction that was not committed, and what follows it.

        Without knowing (the journal is damaged), nothing is cut.
        """
        begun, self.begun = self.begun or [], None
        if committed is None:
            return
        for number, segment, place in begun:
            if number not in committed:
                self.cut_back(segment, place)
                return

    def cut_back(self, segment: StreamSegment, place: int) -> None:
        """Cut the log at a place, and read it anew."""
        while self.active() is not segment:
            later = self.segments.pop()
            self.close_handle(later)
            self.disk.remove(later.path)
            self.disk.sync_directory(self.directory)
        self.disk.truncate(self.handle(segment), place)
        for each in self.segments:
            self.close_handle(each)
        self.segments = []
        self.octets = 0
        self.doubtful.clear()
        self.places.clear()
        self.recent.clear()
        self.handles.clear()
        self.recover()
        self.begun = None

    def scan(
        self, segment: StreamSegment, d: bytearray, size: int, index: list[tuple[int, int, int]]
    ) -> int:
        """Index a segment; return where its records end."""
        at = HEADER
        end = size & ~7
        marked = 0
        following = 0
        while at < end:
            length = intact(d, at, end, segment.seed)
            if length == 0:
                tail = segment is self.active()
                if tail and next_group(d, at, end, segment.seed) < 0:
                    return at
                following = next_intact(d, at + 8, end, segment.seed)
                if following == end and not tail:
                    return at
                log.error(
                    "damaged at octet %d of %s: %d octets are left out",
                    at,
                    segment.path,
                    following - at,
                )
                at = following
                continue
            if d[at + 4] == C_MESSAGE:
                seq = get64(d, at + 16)
                if at >= marked + INDEX_STEP or marked == 0:
                    marked = at
                    index.append((seq, at, get64(d, at + 24)))
                if seq >= self.next_offset:
                    self.next_offset = seq + 1
            elif self.begun is not None:
                self.note(segment, d[at + 4], get64(d, at + C_HEAD), at)
            at += (length + 7) & ~7
        return at

    def note(self, segment: StreamSegment, type: int, number: int, place: int) -> None:
        """Take in a GROUP or a BEGIN record, at the start."""
        if self.begun is None:
            return
        if type == BEGIN:
            self.begun.append((number, segment, place))
        elif type == GROUP:
            self.groups = max(self.groups, number & ~GOES_ON)
            if not number & GOES_ON:
                self.begun.clear()
                self.whole = True

    # --- The end ----------------------------------------------------------------------------

    def close(self) -> None:
        """See :class:`StreamLog`."""
        if self in self.journal.streams:
            self.journal.streams.remove(self)
        for segment in self.segments:
            self.close_handle(segment)

    def delete(self) -> None:
        """See :class:`StreamLog`."""
        self.deleted = True
        if self in self.journal.dirty_streams:
            self.journal.dirty_streams.remove(self)
        busy = self.journal.busy
        paths = [segment.path for segment in self.segments]
        self.journal.writer.submit(Removal(paths, self.directory))
        in_use = False
        if busy is not None:
            for group in busy.streams:
                in_use = in_use or group.log is self
        if not in_use:
            self.close()  # Otherwise when the writer is done with it.


def first_of(segment: StreamSegment) -> int:
    """Key of a segment by offset."""
    return segment.first_offset


def begun(segment: StreamSegment) -> int:
    """Key of a segment by time."""
    return segment.begun_ms


def first_in(entry: tuple[int, int, int]) -> int:
    """Key of an index entry by offset."""
    return entry[0]


def arrived(entry: tuple[int, int, int]) -> int:
    """Key of an index entry by time."""
    return entry[2]


def stands_at(entry: tuple[int, int, int]) -> int:
    """Key of an index entry by place."""
    return entry[1]
