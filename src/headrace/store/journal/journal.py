# SPDX-License-Identifier: Apache-2.0
"""The journal of a virtual host: one log for its messages, settlements, definitions and facts.

Appending. A message is one record, however many queues have it. It is written straight into the
buffer of the log (:mod:`headrace.store.journal.log`).

Settling. The journal counts the queues that have not settled each message. The settlements of a
turn become one record of runs (:mod:`headrace.store.journal.settlements`).

Removing. The oldest segment is recycled once all its messages are settled
(:mod:`headrace.store.journal.retirement`). If an old message retains many segments, compaction
copies the unsettled messages of the oldest segments to the end
(:mod:`headrace.store.journal.compaction`).

Reading. Persistent messages that queues paged out are read from the segments
(:mod:`headrace.store.journal.page_in`), transient ones from a scratch file
(:mod:`headrace.store.journal.scratch`).
"""

import secrets
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import TYPE_CHECKING

import cython

from headrace.store.disk import Disk
from headrace.store.journal.compaction import Compactor
from headrace.store.journal.definition_records import CurrentDefinitions, read_queue_id
from headrace.store.journal.keyvalue import CurrentFacts
from headrace.store.journal.keyvalue import encode as encode_fact
from headrace.store.journal.prepared_record import Prepared, build_runs, encode_decided
from headrace.store.journal.recovery import Recovery
from headrace.store.journal.retirement import Retirement
from headrace.store.segment.reserve import RESERVE_MIN, Reserve

if not cython.compiled:
    from headrace.model.message import KIND_MASK as C_KIND_MASK
    from headrace.model.message import LARGE as C_LARGE
    from headrace.model.message import PAGED as C_PAGED
    from headrace.model.message import PERSISTENT as C_PERSISTENT
    from headrace.model.message import REDELIVERED as C_REDELIVERED
    from headrace.model.message import SCRATCH as C_SCRATCH
    from headrace.model.message import Message
    from headrace.model.ports import Span
    from headrace.store.journal.delivery_counts import DeliveryCounts
    from headrace.store.journal.log import SegmentLog
    from headrace.store.journal.page_in import PageIn
    from headrace.store.journal.scratch import Scratch
    from headrace.store.journal.settlements import Settlements
    from headrace.store.segment.record import BEGIN as C_BEGIN
    from headrace.store.segment.record import CLEAN as C_CLEAN
    from headrace.store.segment.record import COMMIT as C_COMMIT
    from headrace.store.segment.record import DECIDED as C_DECIDED
    from headrace.store.segment.record import DEFINED as C_DEFINED
    from headrace.store.segment.record import DROPPED as C_DROPPED
    from headrace.store.segment.record import FACT as C_FACT
    from headrace.store.segment.record import MARKED as C_MARKED
    from headrace.store.segment.record import MESSAGE as C_MESSAGE
    from headrace.store.segment.record import MESSAGE_HEAD as C_MESSAGE_HEAD
    from headrace.store.segment.record import PREPARED as C_PREPARED
    from headrace.store.segment.record import RESERVED as C_RESERVED
    from headrace.store.segment.record import RETURNED as C_RETURNED
    from headrace.store.segment.record import seal
    from headrace.store.segment.span import SegmentSpan
    from headrace.wire.memory import copy, get64, put16, put32, put64

if TYPE_CHECKING:
    from headrace.store.segment.segment import Segment
    from headrace.store.segment.stream_port import JournaledStream

SEGMENT_SIZE = 64 << 20  # Bytes.
INDEX_MASK = 0xFFFFFFFF  # Mask of the record's index in a position.
BACKLOG_MAX = 16 << 20  # Bytes that may be pending while recovery reads the log.
MARKS_MAX = 64 << 10  # Bytes of MARKED runs in one record.
FREE_MIN = 1 << 20  # Free bytes of the disk below which publishers wait.
CARRIED_SIZE = 1 << 20  # Bytes of definitions appended again in one turn.


class Journal(SegmentLog):
    """The durable store of one virtual host; call :meth:`recover` before anything else."""

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
        SegmentLog.__init__(
            self,
            directory,
            disk if disk is not None else Disk(),
            segment_size=segment_size,
            free_min=free_min,
            threaded=threaded,
            name=name,
        )
        self.is_clean = True  # False if the broker did not stop regularly before.
        self.is_recovered = False
        self.reserved: dict[int, int] = {}  # Seqs of RESERVED records by queue id.
        # The PREPARED records by xid, with their segments.
        self.prepared: dict[bytes, tuple[Prepared, Segment]] = {}
        self.current_facts = CurrentFacts(self.facts)
        self.definitions = CurrentDefinitions()
        self.recovery: Recovery | None = None  # Between :meth:`read` and :meth:`recover`.
        # A later group follows the definitions before this log position.
        self.protected_position = 0
        self.disk_reserve = self.writer.reserve = Reserve(self.disk, directory)
        self.counts = DeliveryCounts(self, self.is_unsettled)
        self.settled = Settlements(self, self.disk_reserve)
        self.next_transaction = secrets.randbits(62)
        self.transaction = 0  # The number of the open transaction; 0 is none.
        # The start of this turn: the segment, its number of messages, and the log position.
        self.turn_segment = self.segment
        self.turn_first_index = 0
        self.turn_start = 0
        self.spans_streams = False  # The open transaction has records in a stream's log.
        self.streams: list[JournaledStream] = []  # Logs of open streams.
        self.paged_out = 0  # The total number of messages that were paged out.
        self.paged_in = 0  # The total number of messages that were loaded again.
        self.may_retire = False  # A segment may be removable.
        self.page_in = PageIn(self)
        self.compactor = Compactor(self, self.page_in, self.flush_settled)
        self.retirement = Retirement(self, self.compactor.is_wasteful, self.carry_all)
        self.scratch = Scratch(self.disk, directory)

    # --- Appending --------------------------------------------------------------------------

    # Keeps 0-9-1/s085, 0-9-1/basic#01, 0-9/basic#01, 0-9/message#01, 0-10/s057.
    def publish(
        self,
        data: bytes | bytearray,
        start: int,
        end: int,
        address_len: int,
        flags: int,
        priority: int,
        deadline_ms: int,
        arrived_ms: int,
        seq: int,
        body_size: int,
        queue_ids: bytes,
    ) -> int:
        q = len(queue_ids)
        n = end - start
        length = C_MESSAGE_HEAD + q + n
        size = (length + 7) & ~7
        if (
            self.offset + size + 32 > self.segment.size
            or self.buffer_end + size + 64 > self.capacity
        ):
            self.reserve(size)
        buffer = self.buffer
        base = self.buffer_end
        put64(buffer, base + size - 8, 0)
        put64(buffer, base + 16, seq)
        put64(buffer, base + 24, arrived_ms)
        put64(buffer, base + 32, deadline_ms)
        put32(buffer, base + 40, body_size)
        put32(buffer, base + 44, q >> 2)
        put32(buffer, base + 48, n)
        put16(buffer, base + 52, address_len)
        buffer[base + 54] = flags & 0xFF
        buffer[base + 55] = priority & 0xFF
        copy(buffer, base + C_MESSAGE_HEAD, queue_ids, 0, q)
        copy(buffer, base + C_MESSAGE_HEAD + q, data, start, end)
        segment = self.segment
        seal(buffer, base, segment.seed, length, C_MESSAGE)
        i = segment.add_message(self.offset, q >> 2, queue_ids)
        self.buffer_end = base + size
        self.offset += size
        segment.end = self.offset
        self.appended += size
        if seq > self.last_seq:
            self.last_seq = seq
        position = segment.number
        return (position << 32) | i

    def publish_message(self, message: Message, arrived_ms: int, queue_ids: bytes) -> int:
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

    def append_returned(self, message: Message, arrived_ms: int, queue_id: bytes) -> int:
        n = len(message.data)
        length = C_MESSAGE_HEAD + 4 + n
        size = (length + 7) & ~7
        self.flush_settled()  # Earlier settlements of the queue must precede it in the log.
        self.reserve(size)
        buffer = self.buffer
        base = self.buffer_end
        put64(buffer, base + size - 8, 0)
        put64(buffer, base + 16, message.seq)
        put64(buffer, base + 24, arrived_ms)
        put64(buffer, base + 32, message.deadline_ms)
        put32(buffer, base + 40, message.body_size)
        put32(buffer, base + 44, 1)
        put32(buffer, base + 48, n)
        put16(buffer, base + 52, message.address_len)
        buffer[base + 54] = C_PERSISTENT | (message.flags & (C_KIND_MASK | C_REDELIVERED))
        buffer[base + 55] = message.priority
        copy(buffer, base + C_MESSAGE_HEAD, queue_id, 0, 4)
        copy(buffer, base + C_MESSAGE_HEAD + 4, message.data, 0, n)
        segment = self.segment
        seal(buffer, base, segment.seed, length, C_RETURNED)
        i = segment.add_message(self.offset, 1, queue_id)
        self.buffer_end = base + size
        self.offset += size
        segment.end = self.offset
        self.appended += size
        position = segment.number
        return (position << 32) | i

    # --- Settling ---------------------------------------------------------------------------

    def settle(self, queue_id: int, seq: int, position: int) -> None:
        if self.forget(queue_id, position) < 0:
            return
        self.settled.add(queue_id, seq)

    def span(self) -> Span | None:
        segment = self.segment
        if segment is not self.turn_segment or self.required_position > self.turn_start:
            return None
        return SegmentSpan(self, segment, self.turn_first_index, segment.count, self.turn_start)

    def settle_each(self, queue_id: int, messages: list[Message]) -> None:
        for message in messages:
            if message.position and not message.flags & C_SCRATCH:
                self.settle(queue_id, message.seq, message.position)

    def forget(self, queue_id: int, position: int) -> int:
        """Settle a message in memory only; return -1 if it was settled before."""
        number = position >> 32
        i = position & INDEX_MASK
        segment: Segment | None = self.segment
        if segment is None or segment.number != number:
            segment = self.segments.get(number)
            if segment is None:
                return -1
            forward = segment.forward
            if forward is not None and i < segment.count and get64(forward, 8 * i):
                return self.settle_moved(segment, forward, queue_id, i)
        outcome = segment.settle(i, queue_id)
        if segment.live == 0 and segment.is_sealed:
            self.may_retire = True
        return outcome

    def settle_moved(self, segment: "Segment", forward: bytearray, queue_id: int, i: int) -> int:
        """Settle the copy of a message that compaction made; returns as :meth:`forget`."""
        outcome = self.forget(queue_id, get64(forward, 8 * i))
        if outcome == 1:
            put64(forward, 8 * i, 0)
            put32(segment.heads, 8 * i + 4, 0)
            segment.live -= 1
            if segment.live == 0:
                if segment.is_retired:
                    del self.segments[segment.number]
                else:
                    self.may_retire = True
        return outcome

    def flush_settled(self) -> None:
        """Append the pending settlements."""
        self.settled.flush()
        if self.counts.pending_bytes:
            self.counts.flush()

    def record_count(self, queue_id: int, seq: int, position: int, count: int, due_ms: int) -> int:
        self.counts.add(queue_id, seq, position, count, due_ms)
        return self.appended + 1

    def is_unsettled(self, queue_id: int, position: int) -> bool:
        """Return True if a queue has not settled a message."""
        segment, i = self.page_in.locate(position)
        return segment is not None and bool(segment.is_unsettled(i, queue_id))

    # --- Other records ----------------------------------------------------------------------

    def record_delivered(self, queue_id: int, seq: int) -> None:
        if self.reserved.get(queue_id, 0) >= seq:
            return
        self.reserved[queue_id] = seq
        self.append(C_RESERVED, queue_id.to_bytes(8, "big") + seq.to_bytes(8, "big"))
        if self.segment.reserved is None:
            self.segment.reserved = {}
        self.segment.reserved[queue_id] = seq

    def drop(self, queue_id: int, upto_seq: int) -> None:
        """See :class:`~headrace.model.ports.Store`.

        This writes only the record: the caller calls :meth:`forget` for each message.
        """
        self.flush_settled()
        self.append(C_DROPPED, queue_id.to_bytes(8, "big") + upto_seq.to_bytes(8, "big"))
        self.bind()
        if self.reserved.get(queue_id, upto_seq + 1) <= upto_seq:
            del self.reserved[queue_id]

    def begin(self) -> None:
        self.flush_settled()
        self.append(C_BEGIN, b"")
        self.bind()
        self.next_transaction += 1
        self.transaction = self.next_transaction

    def commit(self) -> None:
        self.flush_settled()
        number = self.transaction
        self.transaction = 0
        if self.spans_streams:
            self.spans_streams = False
            self.append_shared_commit(number)
        else:
            self.append(C_COMMIT, b"")
        self.bind()

    def append_shared_commit(self, number: int) -> None:
        """Append the COMMIT of a transaction that has records in a stream's log."""
        self.append(C_COMMIT, number.to_bytes(8, "big"))
        if self.segment.shared_transactions is None:
            self.segment.shared_transactions = []
        self.segment.shared_transactions.append(number)

    def prepare(
        self, xid: bytes, publishes: list[int], settles: list[tuple[int, int, int]]
    ) -> None:
        self.flush_settled()
        self.append_prepared(Prepared(xid, 0, False, build_runs(publishes), settles))

    def append_prepared(self, prepared: Prepared) -> None:
        """Append a PREPARED record."""
        self.append(C_PREPARED, prepared.encode())
        self.prepared[prepared.xid] = (prepared, self.segment)

    def decide(self, xid: bytes, status: int, decided_ms: int) -> None:
        self.flush_settled()
        self.append(C_DECIDED, encode_decided(xid, status, decided_ms))
        self.bind()
        prepared, segment = self.prepared[xid]
        if status:
            self.prepared[xid] = (Prepared(xid, status, prepared.damaged, [], []), segment)
        else:
            del self.prepared[xid]

    def fact(self, key: bytes, value: bytes | None) -> None:
        self.flush_settled()
        self.append(C_FACT, encode_fact(key, value))
        self.current_facts.record(key, value, self.segment)

    def define(self, key: bytes, value: bytes | None) -> None:
        """Set a definition, or remove it with None; durable like a publish."""
        self.flush_settled()
        self.append(C_DEFINED, encode_fact(key, value))
        self.definitions.record(key, value, self.segment)
        self.defined_position = self.appended
        if value is None:
            self.remove_reserved(read_queue_id(key))

    def remove_reserved(self, queue_id: int) -> None:
        """Remove the delivery mark of a deleted queue."""
        self.reserved.pop(queue_id, None)
        if self.segment.reserved is not None:  # Marks of older segments are removed with them.
            self.segment.reserved.pop(queue_id, None)

    def carry_all(self, segment: "Segment") -> bool:
        """Append the current records of a segment again before its removal.

        Return False if more remain for the next turn.
        """
        if not self.counts.carry(segment) or not self.carry_definitions(segment):
            return False
        if segment.reserved is not None:
            for queue_id, seq in segment.reserved.items():
                if self.reserved.get(queue_id, 0) == seq:
                    del self.reserved[queue_id]
                    self.record_delivered(queue_id, seq)
        if segment.marks is not None:
            for runs in segment.marks:
                self.append_marks(runs)
        for number in segment.shared_transactions or ():
            if any(stream.needs_commit(number) for stream in self.streams):
                self.append_shared_commit(number)
        for prepared, prepared_segment in list(self.prepared.values()):
            if prepared_segment is segment:
                self.append_prepared(prepared)
        for key in sorted(segment.facts or ()):
            self.fact(key, self.facts[key])
        return True

    def carry_definitions(self, segment: "Segment") -> bool:
        """Append a segment's current definitions again; return False if more remain."""
        budget = CARRIED_SIZE
        while segment.defined and budget > 0:
            for key, value in list(islice(segment.defined.items(), 256)):
                self.append_definition(key, value)
                budget -= len(key) + len(value)
        return not segment.defined

    def append_definition(self, key: bytes, value: bytes) -> None:
        """Append a current definition again, into the last segment."""
        self.append(C_DEFINED, encode_fact(key, value))
        self.definitions.record(key, value, self.segment)

    def seal_changes(self) -> None:
        self.flush_settled()
        self.defined_position = self.appended

    def protect_definitions(self) -> None:
        """Make a group follow the last durable definitions, so that damage to them is recognized.

        Damage in the last group of a log looks like a torn write.
        """
        if self.protected_position < self.defined_position <= self.synced:
            self.protected_position = self.defined_position
            if not self.is_dirty():
                self.append(C_MARKED, b"")

    def append_marks(self, runs: bytes) -> None:
        """Append a MARKED record with runs of delivered messages."""
        self.append(C_MARKED, runs)
        if self.segment.marks is None:
            self.segment.marks = []
        self.segment.marks.append(runs)

    # --- Groups and segments ----------------------------------------------------------------

    def start_write(self) -> None:
        if self.settled.count or self.settled.pending_bytes or self.counts.pending_bytes:
            if not self.disk_reserve.is_low:
                self.flush_settled()
            elif self.counts.pending_bytes:  # Deliveries wait for counts, but not for settlements.
                self.counts.flush()
        if self.full and self.writer.is_short:
            self.seal_empty_segment()
        if self.may_retire:
            self.may_retire = False
            if self.retirement.retire():
                self.may_retire = True
            self.retirement.recycle()
        if self.busy is None and self.is_dirty():
            self.hand_over()
        self.turn += 1
        self.turn_segment = self.segment
        self.turn_first_index = self.segment.count
        self.turn_start = self.appended

    def seal_empty_segment(self) -> None:
        """On a full disk, seal the last segment if it has no message, so that it is removed."""
        self.may_retire = True
        if self.segment.live == 0 and self.offset > RESERVE_MIN and self.segment.written:
            self.roll(0)

    def roll(self, size: int) -> None:
        SegmentLog.roll(self, size)
        self.may_retire = True

    def handle_finished(self) -> bool:
        moved = SegmentLog.handle_finished(self)
        if moved:
            self.retirement.recycle()
            self.files.close_oldest()
            self.disk_reserve.set_target(self.segment.allocated)
            # Compaction needs free bytes before it frees any.
            if not self.disk_reserve.is_spent and self.compactor.step():
                self.may_retire = True
            self.protect_definitions()
        return moved

    # --- Reading ----------------------------------------------------------------------------

    def page_out(self, message: Message) -> bool:
        if message.position == 0:
            if not self.scratch.put(message):
                return False
            message.flags |= C_SCRATCH
        message.flags |= C_PAGED
        message.data = None
        message.parts = None
        self.paged_out += 1
        return True

    def release(self, message: Message) -> None:
        self.scratch.release(message)
        message.position = 0

    def load(self, message: Message) -> None:
        self.paged_in += 1
        if message.flags & C_SCRATCH:
            self.scratch.load(message)
        else:
            self.page_in.load(message)
        message.flags &= ~C_PAGED & 0xFF

    def arrival(self, message: Message) -> int:
        if not message.position or message.flags & C_SCRATCH:
            return 0
        return self.page_in.read_arrival_ms(message.position)

    def unfinished_files(self) -> Iterator[tuple[str, int]]:
        """Yield the unfinished files of this log and of streams, with their durable bytes."""
        for segment in self.order:
            if not segment.is_sealed or segment.written < segment.end:
                yield self.files.path(segment), segment.written
        for stream in self.streams:
            yield from stream.unfinished_files()

    # --- Start and end ----------------------------------------------------------------------

    def read(self) -> None:
        recovery = Recovery(self.disk, self.directory, self.name)
        recovery.read()
        self.recovery = recovery
        self.current_facts = recovery.facts
        self.facts = recovery.facts.values
        self.definitions = recovery.definitions

    def recover(self) -> Iterable[tuple[int, Message, int]]:
        """See :class:`~headrace.model.ports.Store`; every message is paged out."""
        if self.recovery is None:
            self.read()
        recovery = self.recovery
        assert recovery is not None
        self.recovery = None
        for stream in self.streams:
            stream.resolve(
                None if recovery.quarantined else recovery.shared_transactions, recovery.is_clean
            )
        self.secret = recovery.secret
        self.last_seq = recovery.rows.last_seq
        self.is_clean = recovery.is_clean
        self.files.spares = recovery.spares
        self.files.reached = recovery.reached
        number = 1
        for segment in recovery.segments:
            self.segments[segment.number] = segment
            self.order.append(segment)
            number = segment.number + 1
        self.begin_segment(max(number, recovery.next_number), self.segment_size)
        self.begin_group()
        self.floor = self.buffer_end
        if recovery.quarantined:  # This record proves that the log continues after the damage.
            self.append(C_MARKED, b"")
        self.reserved = dict(recovery.reserved)
        for segment in recovery.segments:
            if segment.reserved is not None:
                for queue_id, seq in list(segment.reserved.items()):
                    if self.reserved.get(queue_id) != seq:
                        del segment.reserved[queue_id]
        self.prepared = dict(recovery.prepared)
        recovery.restore_counts(self.counts)
        self.retry_times = recovery.counts.retry_times()
        self.prepared_branches = recovery.prepared_branches()
        self.is_recovered = True
        self.may_retire = True
        self.writer.request_free_check()
        return recovery.messages()

    def flush_backlog(self) -> None:
        if self.appended - self.synced > BACKLOG_MAX:
            self.start_write()
            self.wait()

    def store_redelivered(self, marks: Iterable[tuple[int, int]]) -> None:
        """Store the (queue id, seq) of messages that were delivered before.

        Call it just before :meth:`close`. Without it the next start knows only the highest
        delivered seq of each queue.
        """
        if not self.is_recovered or self.closed:
            return
        runs = bytearray()
        for queue_id, seq in marks:
            runs += queue_id.to_bytes(4, "big") + seq.to_bytes(8, "big") + b"\x00\x00\x00\x01"
            if len(runs) >= MARKS_MAX:
                self.append_marks(bytes(runs))
                runs.clear()
        self.flush_settled()
        if runs:
            self.append_marks(bytes(runs))
        for stream in self.streams:
            stream.announce(0)
        self.append(C_CLEAN, b"")

    def abandon(self) -> None:
        """Close the files without writing the records that no group has yet."""
        self.is_recovered = False
        self.close()

    def close(self) -> None:
        if self.closed:
            return
        if self.is_recovered:
            self.flush_settled()
            self.finish()
        self.writer.stop()
        self.closed = True
        self.scratch.close()
        for stream in list(self.streams):
            stream.close()
        self.files.close_replaced()
        for segment in self.segments.values():
            self.files.close(segment)
