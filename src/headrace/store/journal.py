# SPDX-License-Identifier: Apache-2.0
"""The journal of a virtual host: one log for all that must survive.

Appending. Records are written straight into a buffer, on the event loop's thread, without an object
for any of them. At the end of a turn :meth:`Journal.kick` hands the buffer to the writer's thread,
which writes and syncs it as one group while the next one fills; so the disk sets the size of the
groups. When a group is durable, ``synced`` moves up and ``notify`` is called.

Settling. The journal counts, for each message, the queues that still owe it. What was settled in a
turn becomes one record of runs, as consumers mostly settle in order.

Forgetting. A segment all of whose messages are settled is recycled once it is the oldest, when what
settled them is durable. Since segments leave in order, no SETTLED record can go before the messages
it speaks of. When one old message holds many segments, compaction copies what is left of the oldest
ones to the end (:mod:`headrace.store.compaction`).

Reading. A message that a queue paged out is read with a good deal of what follows it, since
what follows it is mostly what is wanted next. One that is not written yet is found in the buffers.

Full disk. The writer tries the same group again until it succeeds; until then ``full`` is set and
nothing is confirmed.
"""

import errno
import logging
import os
import secrets
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any

import cython

from headrace.store.compaction import Compactor
from headrace.store.disk import Disk
from headrace.store.facts import FactHomes
from headrace.store.facts import encode as encode_fact
from headrace.store.prepared import Prepared, decided, runs_of
from headrace.store.record import segment_seed
from headrace.store.recovery import Recovery
from headrace.store.segment import HEADER, SEAL_ROOM, file_name, header
from headrace.store.snapshot import Snapshot
from headrace.store.writer import Writer

if not cython.compiled:
    from headrace.model.message import KIND_MASK as C_KIND_MASK
    from headrace.model.message import LARGE as C_LARGE
    from headrace.model.message import PAGED as C_PAGED
    from headrace.model.message import PERSISTENT as C_PERSISTENT
    from headrace.model.message import REDELIVERED as C_REDELIVERED
    from headrace.model.message import SCRATCH as C_SCRATCH
    from headrace.model.message import Message
    from headrace.model.ports import Store
    from headrace.store.counts import Counts
    from headrace.store.record import BEGIN as C_BEGIN
    from headrace.store.record import CLEAN as C_CLEAN
    from headrace.store.record import COMMIT as C_COMMIT
    from headrace.store.record import DECIDED as C_DECIDED
    from headrace.store.record import DROPPED as C_DROPPED
    from headrace.store.record import FACT as C_FACT
    from headrace.store.record import GROUP as C_GROUP
    from headrace.store.record import HEAD as C_HEAD
    from headrace.store.record import MARKED as C_MARKED
    from headrace.store.record import MESSAGE as C_MESSAGE
    from headrace.store.record import MESSAGE_HEAD as C_MESSAGE_HEAD
    from headrace.store.record import MOVED as C_MOVED
    from headrace.store.record import PREPARED as C_PREPARED
    from headrace.store.record import RESERVED as C_RESERVED
    from headrace.store.record import RETURNED as C_RETURNED
    from headrace.store.record import SEALED as C_SEALED
    from headrace.store.record import SETTLED as C_SETTLED
    from headrace.store.record import first_word, intact, residue, seal, seal_around
    from headrace.store.scratch import Scratch
    from headrace.store.segment import Segment
    from headrace.wire.memory import copy, cut, get32, get64, put16, put32, put64

log = logging.getLogger(__name__)

SEGMENT_SIZE = 64 << 20  # Octets.
BUFFER_SIZE = 1 << 20  # Octets a group buffer has at first, and returns to when it grew far.
BUFFER_KEPT = 8 << 20
READ_AHEAD = 256 << 10
SLABS = 4  # Stretches read ahead that are kept.
PART_SIZE = 131064  # Octets; a large body is read back in parts of this size.
INDEX_MASK = 0xFFFFFFFF  # The half of a position that is the record's number in its segment.
RELIEF = 16 << 20  # Octets that may wait to be written while the log is being read.
RUNS_MAX = 64 << 10  # Octets of SETTLED runs in one record.
SPARES_MAX = 2  # Recycled files kept for the next segments.
HANDLES_MAX = 64  # Files of old segments kept open.
FREE_MIN = 1 << 20


class Piece:
    """A stretch of a group: octets of its buffer, or parts of a body, and where they go."""

    __slots__ = ("hi", "lo", "offset", "parts", "segment", "size")

    def __init__(
        self, segment: "Segment", offset: int, lo: int, hi: int, parts: list[bytes] | None
    ) -> None:
        self.segment = segment
        self.offset = offset
        self.lo = lo
        self.hi = hi
        self.parts = parts
        self.size = hi - lo if parts is None else sum(map(len, parts))


class Group:
    """What is written and synced at once; a job of the writer."""

    def __init__(self, journal: "Journal", buffer: bytearray, pieces: list[Piece]) -> None:
        self.journal = journal
        self.buffer = buffer
        self.pieces = pieces
        self.appended = 0
        self.streams: list[Any] = []

    def run(self, disk: Disk) -> None:
        """Write and sync; creates the files of new segments."""
        for stream in self.streams:
            stream.run(disk)
        handle = -1
        with memoryview(self.buffer) as view:
            for piece in self.pieces:
                if handle not in (-1, piece.segment.handle):
                    disk.sync(handle)  # Before anything of the next segment is there.
                if piece.segment.handle < 0:
                    self.journal.create(piece.segment)
                handle = piece.segment.handle
                if piece.parts is not None:
                    disk.write(handle, piece.parts, piece.offset)
                else:
                    with view[piece.lo : piece.hi] as octets:
                        disk.write(handle, [octets], piece.offset)
        if handle >= 0:
            disk.sync(handle)


class Retire:
    """Takes the file of a segment out of the log, for use by a later one; a job of the writer."""

    def __init__(self, journal: "Journal", segment: "Segment") -> None:
        self.journal = journal
        self.segment = segment
        self.renamed = False

    def run(self, disk: Disk) -> None:
        """Rename or remove the file."""
        journal, path = self.journal, self.journal.path(self.segment)
        if not self.renamed:
            if (
                self.segment.size == journal.segment_size
                and len(journal.spares) < SPARES_MAX
                and not disk.is_shared(path)  # A backup is being made of it.
            ):
                name = f"{self.segment.number:010d}.spare"
                disk.rename(path, os.path.join(journal.directory, name))
                journal.spares.append(name)
            else:
                disk.remove(path)
            self.renamed = True
        disk.sync_directory(journal.directory)


class Journal(Store):
    """The durable store of one virtual host. Call :meth:`recover` before anything else."""

    def __init__(
        self,
        directory: str,
        *,
        disk: Disk | None = None,
        segment_size: int = SEGMENT_SIZE,
        free_min: int = FREE_MIN,
        threaded: bool = True,
        name: str = "",
    ) -> None:
        Store.__init__(self)
        self.durable = True
        self.directory = directory
        self.name = name  # For log lines.
        self.disk = disk if disk is not None else Disk()
        self.segment_size = segment_size
        self.secret = 0
        self.clean = True  # The log was closed in peace.
        self.segments: dict[int, Segment] = {}  # All that positions may name.
        self.segment = Segment(0, 0, 0)  # The last one.
        self.order: deque[Segment] = deque()  # Those with a file, oldest first.
        self.retiring: deque[tuple[Segment, int]] = deque()  # With what must be synced first.
        self.spares: list[str] = []
        self.open_handles: deque[Segment] = deque()
        self.reserved: dict[int, int] = {}  # Queue id to seq; what RESERVED records say.
        self.prepared: dict[bytes, tuple[Prepared, Segment]] = {}  # By xid; where its record is.
        self.fact_homes = FactHomes(self.facts)
        self.counts = Counts(self)
        self.buffer = bytearray(BUFFER_SIZE)
        self.capacity = BUFFER_SIZE
        self.spare_buffer: bytearray | None = bytearray(BUFFER_SIZE)
        self.at = 0
        self.floor = 0  # Where ``at`` stood when the buffer was empty.
        self.pieces: list[Piece] = []
        self.piece_lo = 0
        self.piece_offset = 0
        self.offset = 0  # In the file of the last segment.
        self.group_number = 0
        self.busy: Group | None = None
        self.run_queue = 0
        self.run_seq = 0
        self.run_count = 0
        self.runs = bytearray(RUNS_MAX + 16)
        self.runs_at = 0
        self.emptied = False  # Some segment may be of no use any more.
        self.slabs: deque[tuple[int, int, bytes]] = deque(maxlen=SLABS)
        self.next_transaction = secrets.randbits(62)
        self.transaction = 0  # The number of the one that is open.
        self.shared = False  # It is in the log of a stream, too.
        self.closed = False
        self.recovered = False
        self.dirty_streams: list[Any] = []  # Logs of streams with something to write.
        self.streams: list[Any] = []  # Those that are open.
        self.disk.make_directory(directory)
        self.scratch = Scratch(self.disk, directory)
        self.compactor = Compactor(self)
        self.writer = Writer(self.disk, directory, free_min=free_min, threaded=threaded)
        self.wake_fd = self.writer.wake_fd

    def path(self, segment: "Segment") -> str:
        """Return where a segment's file is."""
        return os.path.join(self.directory, file_name(segment.number))

    # --- Appending --------------------------------------------------------------------------

    def reserve(self, size: int) -> None:
        """Make room for ``size`` octets in the buffer and in the segment."""
        if self.offset + size + 2 * C_HEAD > self.segment.size:
            self.roll(size)
        if self.at + size + 64 > self.capacity:
            more = self.capacity
            while self.at + size + 64 > self.capacity + more:
                more *= 2
            self.buffer.extend(bytes(more))
            self.capacity += more

    def publish(
        self,
        d: bytes | bytearray,
        lo: int,
        hi: int,
        address_len: int,
        flags: int,
        priority: int,
        deadline_ms: int,
        arrived_ms: int,
        seq: int,
        body_size: int,
        queue_ids: bytes,
    ) -> int:
        """See :class:`Store`."""
        q = len(queue_ids)
        n = hi - lo
        length = C_MESSAGE_HEAD + q + n
        size = (length + 7) & ~7
        if self.offset + size + 32 > self.segment.size or self.at + size + 64 > self.capacity:
            self.reserve(size)
        b = self.buffer
        at = self.at
        put64(b, at + size - 8, 0)
        put64(b, at + 16, seq)
        put64(b, at + 24, arrived_ms)
        put64(b, at + 32, deadline_ms)
        put32(b, at + 40, body_size)
        put32(b, at + 44, q >> 2)
        put32(b, at + 48, n)
        put16(b, at + 52, address_len)
        b[at + 54] = flags & 0xFF
        b[at + 55] = priority & 0xFF
        copy(b, at + C_MESSAGE_HEAD, queue_ids, 0, q)
        copy(b, at + C_MESSAGE_HEAD + q, d, lo, hi)
        segment = self.segment
        seal(b, at, segment.seed, length, C_MESSAGE)
        i = segment.note(self.offset, q >> 2, queue_ids)
        self.at = at + size
        self.offset += size
        segment.end = self.offset
        self.appended += size
        if seq > self.last_seq:
            self.last_seq = seq
        position = segment.number
        return (position << 32) | i

    def publish_message(self, message: Message, arrived_ms: int, queue_ids: bytes) -> int:
        """See :class:`Store`."""
        paged = message.flags & C_PAGED
        if paged:
            self.load(message)
        data = message.data
        flags = C_PERSISTENT | (message.flags & (C_LARGE | C_KIND_MASK))
        if message.parts is None:
            position = self.publish(
                data,
                0,
                len(data),
                message.address_len,
                flags,
                message.priority,
                message.deadline_ms,
                arrived_ms,
                message.seq,
                message.body_size,
                queue_ids,
            )
        else:
            head = bytearray(40)
            put64(head, 0, message.seq)
            put64(head, 8, arrived_ms)
            put64(head, 16, message.deadline_ms)
            put32(head, 24, message.body_size)
            put32(head, 28, len(queue_ids) >> 2)
            put32(head, 32, len(data))
            put16(head, 36, message.address_len)
            head[38] = flags & 0xFF
            head[39] = message.priority
            position = self.append_large(
                C_MESSAGE,
                bytes(head) + queue_ids + data,
                list(message.parts),
                queue_ids,
            )
            if message.seq > self.last_seq:
                self.last_seq = message.seq
        if paged:
            message.flags |= C_PAGED
            message.data = None
            message.parts = None
        return position

    def give_back(self, message: Message, arrived_ms: int, queue_id: bytes) -> int:
        """See :class:`Store`."""
        n = len(message.data)
        length = C_MESSAGE_HEAD + 4 + n
        size = (length + 7) & ~7
        self.flush_settled()  # What the queue settled before stands before it in the log.
        self.reserve(size)
        b = self.buffer
        at = self.at
        put64(b, at + size - 8, 0)
        put64(b, at + 16, message.seq)
        put64(b, at + 24, arrived_ms)
        put64(b, at + 32, message.deadline_ms)
        put32(b, at + 40, message.body_size)
        put32(b, at + 44, 1)
        put32(b, at + 48, n)
        put16(b, at + 52, message.address_len)
        b[at + 54] = C_PERSISTENT | (message.flags & (C_KIND_MASK | C_REDELIVERED))
        b[at + 55] = message.priority
        copy(b, at + C_MESSAGE_HEAD, queue_id, 0, 4)
        copy(b, at + C_MESSAGE_HEAD + 4, message.data, 0, n)
        segment = self.segment
        seal(b, at, segment.seed, length, C_RETURNED)
        i = segment.note(self.offset, 1, queue_id)
        self.at = at + size
        self.offset += size
        segment.end = self.offset
        self.appended += size
        position = segment.number
        return (position << 32) | i

    def append_large(self, type: int, own: bytes, parts: list[bytes], queue_ids: bytes) -> int:
        """Append a message whose body is not copied; return its position."""
        length = C_HEAD + len(own) + sum(map(len, parts))
        size = (length + 7) & ~7
        if size > length:
            parts.append(bytes(size - length))
        own_size = C_HEAD + len(own)
        if self.offset + size + 2 * C_HEAD > self.segment.size:
            self.roll(size)
        self.reserve(own_size)
        b = self.buffer
        at = self.at
        copy(b, at + C_HEAD, own, 0, len(own))
        seal_around(b, at, self.segment.seed, length, type, own_size, parts)
        i = self.segment.note(self.offset, len(queue_ids) >> 2, queue_ids)
        self.at += own_size
        self.offset += own_size
        self.end_piece()
        body = Piece(self.segment, self.offset, 0, 0, parts)
        self.pieces.append(body)
        self.offset += body.size
        self.piece_offset = self.offset
        self.segment.end = self.offset
        self.appended += size
        position = self.segment.number
        return (position << 32) | i

    def append(self, type: int, payload: bytes) -> None:
        """Append a record that is no message."""
        n = len(payload)
        length = C_HEAD + n
        size = (length + 7) & ~7
        self.reserve(size)
        b = self.buffer
        at = self.at
        put64(b, at + size - 8, 0)
        copy(b, at + C_HEAD, payload, 0, n)
        seal(b, at, self.segment.seed, length, type)
        self.at += size
        self.offset += size
        self.segment.end = self.offset
        self.appended += size

    def append_copy(self, record: bytes, own: int, queue_ids: bytes) -> int:
        """Append a message that compaction read, for the queues that still owe it.

        ``own`` is where its body starts if that is kept apart, else 0.
        """
        q = 4 * int.from_bytes(record[44:48], "big")
        length = int.from_bytes(record[:4], "big")
        count = len(queue_ids) >> 2
        head = record[16:44] + count.to_bytes(4, "big") + record[48:56] + queue_ids
        if own:
            data = record[C_MESSAGE_HEAD + q : own]
            return self.append_large(C_MOVED, head + data, [record[own:length]], queue_ids)
        data = record[C_MESSAGE_HEAD + q : length]
        size = (C_HEAD + len(head) + len(data) + 7) & ~7
        self.reserve(size)
        i = self.segment.note(self.offset, count, queue_ids)
        self.append(C_RETURNED if record[4] == C_RETURNED else C_MOVED, head + data)
        position = self.segment.number
        return (position << 32) | i

    def end_piece(self) -> None:
        """Close the stretch of the buffer that belongs together in the file."""
        if self.at > self.piece_lo:
            self.pieces.append(Piece(self.segment, self.piece_offset, self.piece_lo, self.at, None))
        self.piece_lo = self.at
        self.piece_offset = self.offset

    def roll(self, size: int) -> None:
        """Seal the last segment and begin the next, with room for ``size``."""
        old = self.segment
        if self.at + 256 > self.capacity:
            self.buffer.extend(bytes(self.capacity))
            self.capacity *= 2
        b = self.buffer
        seal(b, self.at, old.seed, C_HEAD, C_SEALED)
        self.at += C_HEAD
        self.offset += C_HEAD
        old.end = self.offset
        self.appended += C_HEAD
        self.end_piece()
        old.sealed = True
        self.begin_segment(
            old.number + 1, max(self.segment_size, size + HEADER + 4 * SEAL_ROOM + 64)
        )
        self.emptied = True

    def begin_segment(self, number: int, size: int) -> None:
        """Begin a segment in the buffer; its file is made by the writer."""
        segment = Segment(number, segment_seed(self.secret, number), size)
        oldest = self.order[0].number if self.order else number
        self.segment = segment
        self.segments[number] = segment
        self.order.append(segment)
        first = header(number, self.secret, self.last_seq + 1, oldest)
        copy(self.buffer, self.at, first, 0, HEADER)
        self.piece_lo = self.at
        self.piece_offset = 0
        self.at += HEADER
        self.offset = HEADER
        segment.end = HEADER

    # --- Facts beside messages --------------------------------------------------------------

    def settle(self, queue_id: int, seq: int, position: int) -> None:
        """See :class:`Store`."""
        if self.forget(queue_id, position) < 0:
            return
        if queue_id == self.run_queue and seq == self.run_seq + self.run_count:
            self.run_count += 1
            return
        if self.run_count:
            self.end_run()
        self.run_queue = queue_id
        self.run_seq = seq
        self.run_count = 1

    def settle_each(self, queue_id: int, messages: list[Message]) -> None:
        """See :class:`Store`."""
        for message in messages:
            if message.position and not message.flags & C_SCRATCH:
                self.settle(queue_id, message.seq, message.position)

    def forget(self, queue_id: int, position: int) -> int:
        """Note in memory that a queue does not owe a message; -1 when it did not anyway."""
        number = position >> 32
        i = position & INDEX_MASK
        segment: Segment | None = self.segment
        if segment is None or segment.number != number:
            segment = self.segments.get(number)
            if segment is None:
                return -1
            forward = segment.forward
            if forward is not None and i < segment.count and get64(forward, 8 * i):
                return self.forget_moved(segment, forward, queue_id, i)
        outcome = segment.settle(i, queue_id)
        if segment.live == 0 and segment.sealed:
            self.emptied = True
        return outcome

    def forget_moved(self, segment: "Segment", forward: bytearray, queue_id: int, i: int) -> int:
        """Like :meth:`forget` for a message that compaction copied."""
        outcome = self.forget(queue_id, get64(forward, 8 * i))
        if outcome == 1:
            put64(forward, 8 * i, 0)
            put32(segment.heads, 8 * i + 4, 0)
            segment.live -= 1
            if segment.live == 0:
                if segment.retired:
                    del self.segments[segment.number]
                else:
                    self.emptied = True
        return outcome

    def end_run(self) -> None:
        """Add the run of settled messages to those of this turn."""
        if self.runs_at >= RUNS_MAX:
            self.flush_runs()
        put32(self.runs, self.runs_at, self.run_queue)
        put64(self.runs, self.runs_at + 4, self.run_seq)
        put32(self.runs, self.runs_at + 12, self.run_count)
        self.runs_at += 16
        self.run_count = 0

    def flush_runs(self) -> None:
        """Append the runs gathered so far as one record."""
        if self.runs_at:
            n = self.runs_at
            self.runs_at = 0
            self.append(C_SETTLED, cut(self.runs, 0, n))

    def flush_settled(self) -> None:
        """Append all that was settled and is not in the log yet."""
        if self.run_count:
            self.end_run()
        self.flush_runs()
        if self.counts.at:
            self.counts.flush()

    def counted(self, queue_id: int, seq: int, position: int, count: int, when_ms: int) -> int:
        """See :class:`Store`."""
        self.counts.note(queue_id, seq, position, count, when_ms)
        return self.appended + 1

    def owes(self, queue_id: int, position: int) -> bool:
        """Tell whether a queue owes a message."""
        segment, i = self.whereabouts(position)
        return segment is not None and bool(segment.owes(i, queue_id))

    def delivered(self, queue_id: int, seq: int) -> None:
        """See :class:`Store`."""
        if self.reserved.get(queue_id, 0) >= seq:
            return
        self.reserved[queue_id] = seq
        self.append(C_RESERVED, queue_id.to_bytes(8, "big") + seq.to_bytes(8, "big"))
        if self.segment.reserved is None:
            self.segment.reserved = {}
        self.segment.reserved[queue_id] = seq

    def drop(self, queue_id: int, upto_seq: int) -> None:
        """See :class:`Store`. Only the record: call :meth:`forget` for each message."""
        self.flush_settled()
        self.append(C_DROPPED, queue_id.to_bytes(8, "big") + upto_seq.to_bytes(8, "big"))
        if self.reserved.get(queue_id, upto_seq + 1) <= upto_seq:
            del self.reserved[queue_id]

    def begin(self) -> None:
        """See :class:`Store`."""
        self.flush_settled()
        self.append(C_BEGIN, b"")
        self.next_transaction += 1
        self.transaction = self.next_transaction

    def commit(self) -> None:
        """See :class:`Store`."""
        self.flush_settled()
        number = self.transaction
        self.transaction = 0
        if self.shared:
            self.shared = False
            self.vouch(number)
        else:
            self.append(C_COMMIT, b"")

    def vouch(self, number: int) -> None:
        """Append that a transaction was committed which is in the log of some stream, too."""
        self.append(C_COMMIT, number.to_bytes(8, "big"))
        if self.segment.shared is None:
            self.segment.shared = []
        self.segment.shared.append(number)

    def prepare(
        self, xid: bytes, publishes: list[int], settles: list[tuple[int, int, int]]
    ) -> None:
        """See :class:`Store`."""
        self.flush_settled()
        self.keep(Prepared(xid, 0, False, runs_of(publishes), settles))

    def keep(self, prepared: Prepared) -> None:
        """Append what is known of a branch."""
        self.append(C_PREPARED, prepared.encode())
        self.prepared[prepared.xid] = (prepared, self.segment)

    def decide(self, xid: bytes, status: int, when_ms: int) -> None:
        """See :class:`Store`."""
        self.flush_settled()
        self.append(C_DECIDED, decided(xid, status, when_ms))
        prepared, segment = self.prepared[xid]
        if status:
            self.prepared[xid] = (Prepared(xid, status, prepared.damaged, [], []), segment)
        else:
            del self.prepared[xid]

    def fact(self, key: bytes, value: bytes | None) -> None:
        """See :class:`Store`."""
        self.flush_settled()
        self.append(C_FACT, encode_fact(key, value))
        self.fact_homes.note(key, value, self.segment)

    # --- Groups -----------------------------------------------------------------------------

    def kick(self) -> None:
        """See :class:`Store`."""
        if self.run_count or self.runs_at or self.counts.at:
            self.flush_settled()
        if self.emptied:
            self.emptied = False
            self.retire_oldest()
            self.retire_synced()
        if self.busy is None and (self.at > self.floor or self.pieces or self.dirty_streams):
            self.hand_over()

    def hand_over(self) -> None:
        """Give the buffer to the writer and go on with the other one."""
        self.end_piece()
        group = Group(self, self.buffer, self.pieces)
        group.appended = self.appended
        if self.dirty_streams:
            group.streams = [stream.take() for stream in self.dirty_streams]
            self.dirty_streams = []
        self.busy = group
        self.pieces = []
        self.buffer = self.spare_buffer if self.spare_buffer is not None else bytearray(BUFFER_SIZE)
        self.spare_buffer = None
        self.capacity = len(self.buffer)
        self.at = 0
        self.piece_lo = 0
        self.begin_group()
        self.writer.submit(group)

    def begin_group(self) -> None:
        """Put the GROUP record at the start of the buffer; alone, it is not worth a write."""
        before = self.appended
        self.group_number += 1
        self.append(C_GROUP, self.group_number.to_bytes(8, "big"))
        self.appended = before
        self.floor = self.at

    def woken(self) -> None:
        """The writer has news; called on the event loop when ``wake_fd`` is readable."""
        if self.closed:
            return
        self.writer.woken()
        news = self.take_finished()
        full = self.is_full()
        if full != self.full:
            self.full = full
            self.report_full()
            news = True
        self.kick()
        if news and self.notify is not None:
            self.notify()

    def take_finished(self) -> bool:
        """Take note of what the writer finished; true if ``synced`` moved."""
        moved = False
        while self.writer.finished:
            job = self.writer.finished.popleft()
            if not isinstance(job, Group):
                if isinstance(job, Snapshot):
                    job.taken(self)
                continue
            for piece in job.pieces:
                segment = piece.segment
                segment.written = piece.offset + piece.size
                if segment.sealed and segment.written == segment.end:
                    self.open_handles.append(segment)
            for stream in job.streams:
                stream.finish()
            self.synced = job.appended
            moved = True
            if len(job.buffer) <= BUFFER_KEPT:
                self.spare_buffer = job.buffer
            self.busy = None
        if moved:
            self.retire_synced()
            self.close_handles()
            self.compactor.step()
        return moved

    def is_full(self) -> bool:
        """Tell whether publishers must wait: the disk is full, or does not take what we write."""
        return bool(self.writer.trouble is not None or self.writer.short)

    def report_full(self) -> None:
        """Log why publishers wait, or that they need not any more."""
        if not self.full:
            log.warning("journal %s: writing again", self.name)
        elif self.writer.trouble is not None:
            log.error(
                "journal %s: cannot write, trying again: %s; nothing is confirmed meanwhile",
                self.name,
                self.writer.trouble,
            )
        else:
            log.error(
                "journal %s: less than %d octets free in %s; publishers wait",
                self.name,
                self.writer.free_min,
                self.directory,
            )

    # --- Files ------------------------------------------------------------------------------

    def create(self, segment: "Segment") -> None:
        """Make the file of a new segment; on the writer's thread."""
        if segment.handle >= 0:
            return
        path = self.path(segment)
        spare = None
        if self.spares and segment.size == self.segment_size:
            spare = self.spares[len(self.spares) - 1]
            self.disk.rename(os.path.join(self.directory, spare), path)
            self.spares.pop()
        handle = self.disk.open(path, create=True)
        try:
            if spare is None:
                self.disk.allocate(handle, segment.size)
            self.disk.sync_directory(self.directory)
        except OSError:
            self.disk.close(handle)
            raise
        segment.handle = handle

    def retire_oldest(self) -> None:
        """Have the oldest segments leave while nothing in them is wanted any more."""
        carried = False
        while len(self.order) > 1:
            segment = self.order[0]
            if not segment.sealed or (segment.live and not segment.moved):
                return
            if 2 * segment.fact_octets > segment.end:
                if carried or not self.compactor.wasteful():
                    return
                carried = True  # As much as one turn may take; another one will look again.
                self.emptied = True
            if len(self.order) == 2 and self.segment.written == 0:
                return  # Numbers go on from the last segment on the disk.
            if not self.counts.carry(segment):
                self.emptied = True
                return
            self.order.popleft()
            segment.retired = True
            self.carry(segment)
            if segment.live == 0:
                self.segments.pop(segment.number, None)
            self.retiring.append((segment, self.appended))

    def carry(self, segment: "Segment") -> None:
        """Say again what a segment that leaves said and what still holds."""
        if segment.reserved is not None:
            for queue_id, seq in segment.reserved.items():
                if self.reserved.get(queue_id, 0) == seq:
                    del self.reserved[queue_id]
                    self.delivered(queue_id, seq)
        if segment.marks is not None:
            for runs in segment.marks:
                self.mark(runs)
        for number in segment.shared or ():
            if any(stream.doubts(number) for stream in self.streams):
                self.vouch(number)
        for prepared, where in list(self.prepared.values()):
            if where is segment:
                self.keep(prepared)
        for key in sorted(segment.facts or ()):
            self.fact(key, self.facts[key])

    def mark(self, runs: bytes) -> None:
        """Append which messages were delivered."""
        self.append(C_MARKED, runs)
        if self.segment.marks is None:
            self.segment.marks = []
        self.segment.marks.append(runs)

    def retire_synced(self) -> None:
        """Let go of the files of segments whose end is durable."""
        while self.retiring and self.retiring[0][1] <= self.synced:
            segment, _ = self.retiring.popleft()
            if segment.handle >= 0:
                self.disk.close(segment.handle)
                segment.handle = -1
            if segment in self.open_handles:  # Its index goes with it.
                self.open_handles.remove(segment)
            self.writer.submit(Retire(self, segment))

    def close_handles(self) -> None:
        """Keep few files of old segments open."""
        while len(self.open_handles) > HANDLES_MAX:
            segment = self.open_handles.popleft()
            if segment.handle >= 0 and segment is not self.segment:
                self.disk.close(segment.handle)
                segment.handle = -1

    def handle(self, segment: "Segment") -> int:
        """Return the open file of a segment that is written."""
        if segment.handle < 0:
            segment.handle = self.disk.open(self.path(segment))
            self.open_handles.append(segment)
            self.close_handles()
        return segment.handle

    # --- Reading ----------------------------------------------------------------------------

    def page_out(self, message: Message) -> bool:
        """See :class:`Store`."""
        if message.position == 0:
            if not self.scratch.put(message):
                return False
            message.flags |= C_SCRATCH
        message.flags |= C_PAGED
        message.data = None
        message.parts = None
        return True

    def release(self, message: Message) -> None:
        """See :class:`Store`."""
        self.scratch.release(message)
        message.position = 0

    def load(self, message: Message) -> None:
        """See :class:`Store`."""
        if message.flags & C_SCRATCH:
            self.scratch.load(message)
        else:
            self.load_record(message)
        message.flags &= ~C_PAGED & 0xFF

    def whereabouts(self, position: int) -> tuple["Segment | None", int]:
        """Return the segment and the index of a message, wherever it was copied."""
        i = position & INDEX_MASK
        segment = self.segments.get(position >> 32)
        while segment is not None and segment.forward is not None and i < segment.count:
            position = get64(segment.forward, 8 * i)
            if position == 0:
                break
            i = position & INDEX_MASK
            segment = self.segments.get(position >> 32)
        return segment, i

    def find(self, position: int) -> tuple["Segment", int]:
        """Return the segment and the offset of a message that is still owed."""
        segment, i = self.whereabouts(position)
        if segment is None or i >= segment.count:
            raise OSError(errno.ENOENT, f"no message at position {position:#x} of the journal")
        return segment, segment.offset(i)

    def load_record(self, message: Message) -> None:
        """Read a message's data from the buffers or from the disk."""
        segment, offset = self.find(message.position)
        slab: bytes | bytearray
        if offset < segment.written:
            slab, at = self.slab(segment, offset)
        else:
            slab, at = self.pending(segment, offset)
        q = 4 * get32(slab, at + 44)
        n = get32(slab, at + 48)
        lo = at + C_MESSAGE_HEAD + q
        if message.flags & C_LARGE:
            message.parts = self.load_body(segment, offset, slab, at, C_MESSAGE_HEAD + q + n)
        message.data = cut(slab, lo, lo + n)

    def arrival(self, message: Message) -> int:
        """See :class:`Store`. Only the time is read: what is resident needs no more of the disk."""
        if not message.position or message.flags & C_SCRATCH:
            return 0
        segment, offset = self.find(message.position)
        if offset >= segment.written:
            slab, at = self.pending(segment, offset)
            return get64(slab, at + 24)
        for number, lo, d in self.slabs:
            if number == segment.number and lo <= offset and offset - lo + 32 <= len(d):
                return get64(d, offset - lo + 24)
        found = self.disk.read(self.handle(segment), 8, offset + 24)
        return get64(found, 0) if len(found) == 8 else 0

    def slab(self, segment: "Segment", offset: int) -> tuple[bytes, int]:
        """Return octets that hold a checked record, a large one's body aside, and where it is."""
        for number, lo, d in self.slabs:
            if number == segment.number and lo <= offset:
                at = offset - lo
                if at < len(d) and intact(d, at, len(d), segment.seed):
                    return d, at
        handle = self.handle(segment)
        d = self.disk.read(handle, min(READ_AHEAD, segment.written - offset), offset)
        if len(d) >= C_MESSAGE_HEAD:
            length = get32(d, 0)
            if length > len(d) and not d[54] & C_LARGE and length <= segment.written - offset:
                d = self.disk.read(handle, (length + 7) & ~7, offset)
            elif d[54] & C_LARGE:
                own = C_MESSAGE_HEAD + 4 * get32(d, 44) + get32(d, 48)
                if len(d) < own <= segment.written - offset:
                    d = self.disk.read(handle, own, offset)
                if own <= len(d) < length:
                    return d, 0  # Checked together with the body.
            if intact(d, 0, len(d), segment.seed):
                self.slabs.append((segment.number, offset, d))
                return d, 0
        raise OSError(errno.EIO, f"damaged record at {offset} of {file_name(segment.number)}")

    def load_body(
        self, segment: "Segment", offset: int, d: bytes | bytearray, at: int, own: int
    ) -> tuple[bytes, ...]:
        """Return the body of a large message."""
        length = get32(d, at)
        if offset >= segment.written:
            filled = 1 if length & 7 else 0  # The last part is the filling.
            for piece in self.pending_pieces():
                if piece.segment is segment and piece.parts and piece.offset == offset + own:
                    return tuple(piece.parts[: len(piece.parts) - filled])
            raise OSError(errno.ENOENT, f"no body at {offset + own} in the journal's buffers")
        if len(d) - at >= length:  # The whole record was read ahead.
            return tuple(
                cut(d, at + lo, at + min(lo + PART_SIZE, length))
                for lo in range(own, length, PART_SIZE)
            )
        handle = self.handle(segment)
        x = residue(first_word(segment.seed, length, d[at + 4]), d, at + C_HEAD, at + own)
        parts = []
        for lo in range(own, length, PART_SIZE):
            part = self.disk.read(handle, min(PART_SIZE, length - lo), offset + lo)
            x = residue(x, part, 0, len(part))
            parts.append(part)
        x = residue(x, bytes(-length & 7), 0, -length & 7)
        if x != get64(d, at + 8):
            raise OSError(errno.EIO, f"damaged record at {offset} of {file_name(segment.number)}")
        return tuple(parts)

    def pending_pieces(self) -> Iterator[Piece]:
        """Give the pieces that are not known to be written."""
        if self.busy is not None:
            yield from self.busy.pieces
        yield from self.pieces

    def pending(self, segment: "Segment", offset: int) -> tuple[bytearray, int]:
        """Return the buffer that holds a record not written yet, and where it is in there."""
        if self.busy is not None:
            for piece in self.busy.pieces:
                if piece.segment is segment and piece.offset <= offset < piece.offset + piece.size:
                    return self.busy.buffer, piece.lo + offset - piece.offset
        for piece in self.pieces:
            if piece.segment is segment and piece.offset <= offset < piece.offset + piece.size:
                return self.buffer, piece.lo + offset - piece.offset
        return self.buffer, self.piece_lo + offset - self.piece_offset

    # --- Start and end ----------------------------------------------------------------------

    def recover(self) -> Iterable[tuple[int, Message, int]]:
        """See :class:`Store`. Every message comes paged out."""
        recovery = Recovery(self)
        recovery.read()
        for stream in self.streams:
            stream.resolve(None if recovery.quarantined else recovery.shared)
        self.secret = recovery.secret
        self.last_seq = recovery.last_seq
        self.clean = recovery.clean
        self.spares = recovery.spares
        number = 1
        for segment in recovery.segments:
            self.segments[segment.number] = segment
            self.order.append(segment)
            number = segment.number + 1
        self.begin_segment(max(number, recovery.next_number), self.segment_size)
        self.begin_group()
        self.floor = self.at
        if recovery.quarantined:  # Proof for the next start that the log went on behind the damage.
            self.append(C_MARKED, b"")
        self.reserved = dict(recovery.reserved)
        for segment in recovery.segments:
            if segment.reserved is not None:
                for queue_id, seq in list(segment.reserved.items()):
                    if self.reserved.get(queue_id) != seq:
                        del segment.reserved[queue_id]
        self.prepared = dict(recovery.prepared)
        self.fact_homes = recovery.facts
        self.facts = recovery.facts.values
        recovery.place_counts(self.counts)
        self.waits = recovery.counts.waits()
        self.kept = recovery.kept()
        self.recovered = True
        self.emptied = True
        self.writer.look()
        return recovery.messages()

    def relieve(self) -> None:
        """See :class:`Store`."""
        if self.appended - self.synced > RELIEF:
            self.kick()
            self.wait()

    def rest(self, marks: Iterable[tuple[int, int]]) -> None:
        """Write down which messages were delivered before, (queue id, seq) each, and no others.

        The last thing before :meth:`close`; without it the next start cannot know exactly.
        """
        if not self.recovered or self.closed:
            return
        runs = bytearray()
        for queue_id, seq in marks:
            runs += queue_id.to_bytes(4, "big") + seq.to_bytes(8, "big") + b"\x00\x00\x00\x01"
            if len(runs) >= RUNS_MAX:
                self.mark(bytes(runs))
                runs.clear()
        self.flush_settled()
        if runs:
            self.mark(bytes(runs))
        self.append(C_CLEAN, b"")

    def close(self) -> None:
        """See :class:`Store`."""
        if self.closed:
            return
        if self.recovered:
            self.flush_settled()
            while (
                self.busy is not None or self.at > self.floor or self.pieces or self.dirty_streams
            ):
                if self.busy is None:
                    self.hand_over()
                if not self.wait():
                    log.error("journal %s: closed without writing its end", self.name)
                    break
        self.writer.stop()
        self.closed = True
        self.scratch.close()
        for stream in list(self.streams):
            stream.close()
        for segment in self.segments.values():
            if segment.handle >= 0:
                self.disk.close(segment.handle)
                segment.handle = -1

    def wait(self) -> bool:
        """Wait until the writer finished a group; false if it cannot."""
        if not self.writer.wait():
            return False
        self.take_finished()
        return True
