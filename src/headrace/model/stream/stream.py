# SPDX-License-Identifier: Apache-2.0
"""Streams: queues that keep their messages under offsets, for any number of readers.

A stream is a queue to exchanges and consumers, but its messages are in a log
(:mod:`headrace.model.stream.log`). A reader is a consumer with a cursor; its acks only restore its
prefetch credit. It starts at ``x-stream-offset``: ``first``, ``last``, ``next``, an offset, a time
or an interval (:meth:`Stream.resolve`). Only durable records are delivered, because a crash could
remove any other record, and a later record would then get its offset.
`headrace.model.stream.reader_options` reads the other arguments of a reader, and
`headrace.model.stream.offset_tracking` stores its offsets.
"""

import logging
from datetime import datetime
from typing import TYPE_CHECKING, Unpack, cast

import cython

if not cython.compiled:
    from headrace.model.message import KIND_MASK as C_KIND_MASK
    from headrace.model.message import Message, new_message
    from headrace.model.queue.destination import Consumer
    from headrace.model.queue.queue import Queue
    from headrace.model.stream.log import StreamLog

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headrace.model.queue.destination import Options

from headrace.model.arguments.consumer import REPLAY, read_boolean, replay_period
from headrace.model.arguments.values import age_ms, parse_integer
from headrace.model.errors import (
    InvalidArgument,
    NotFound,
    PreconditionFailed,
    ResourceError,
)
from headrace.model.stream.log import StreamRecord
from headrace.model.stream.offset_tracking import OffsetTracking, forget_readers, is_tracked
from headrace.model.stream.reader_options import (
    RUNS_MAX,
    FilterBlocks,
    OwnRecords,
    StreamReader,
    read_arguments,
)

log = logging.getLogger(__name__)

TRIM_MIN_MS = 1000  # The shortest interval between two checks of the age limits.
READ_SIZE = 262144  # Bytes read from the log for a reader at a time.
SCAN_SIZE = 1 << 20  # Bytes scanned for one reader in one turn without a match.
SELECT_WEIGHT = 1 << 19  # Bytes that a read with a selector counts for.
SCAN_PAUSE_MS = 1  # The pause before the next scan.
NO_BLOCKS = FilterBlocks()  # Always empty.
INTERVAL_UNITS_S = {
    "Y": 365 * 86400,
    "M": 30 * 86400,
    "D": 86400,
    "h": 3600,
    "m": 60,
    "s": 1,
}


class Stream(Queue):
    """A queue of type stream."""

    def __init__(self, name: str, log: StreamLog, **options: "Unpack[Options]") -> None:
        Queue.__init__(self, name, **options)
        self.log = log
        log.name = name
        log.on_arrival = self.on_records
        self.is_stream = True
        self.cursors: dict[Consumer, int] = {}
        self.fetched: dict[Consumer, list[StreamRecord]] = {}
        # The bytes of each reader's fetched records, which count as memory in use.
        self.fetched_size: dict[Consumer, int] = {}
        # The readers with a filter, range or tracking.
        self.readers: dict[Consumer, StreamReader] = {}
        self.blocks = NO_BLOCKS  # Replaced once a reader has a filter.
        # Made for the first reader with a stored offset.
        self.tracking: OffsetTracking | None = None
        # Readers without records of their own connection; None while there are none.
        self.no_local_readers: list[tuple[Consumer, OwnRecords]] | None = None

    def on_records(self) -> None:
        """Serve the readers again; called when the missing records of a read are loaded."""
        self.wake()

    def next_offset(self, consumer: Consumer) -> int | None:
        """Return the offset that a reader reads next; None if it does not read this stream."""
        return self.cursors.get(consumer)

    def message_count(self) -> int:
        return self.log.committed_offset - self.log.first_offset

    def ready_consumer(self) -> Consumer | None:
        return None

    def enqueue(self, message: Message) -> int:
        """Append a message to the log; readers get it once it is durable.

        The log has messages of class basic in one piece; all others are converted.
        """
        self.tally.publish += 1
        must_encode = message.flags & C_KIND_MASK or message.parts is not None
        if must_encode and not self.vhost.encode_for_stream(message, self):
            return 0
        before = self.log.memory
        offset = self.log.append(
            message.data, message.address_len, message.body_size, self.counters.now_ms
        )
        self.counters.memory_used += self.log.memory - before
        if self.round is not None:
            if self.no_local_readers is not None:
                self.record_own(message.publisher, offset)
            self.wake()
        return 0

    def enqueue_in_place(self, message: Message, promised: bool = False) -> None:
        self.enqueue(message)

    def restore(self, message: Message, arrived_ms: int) -> None:
        """Append a message of a transaction that was committed just before the broker stopped.

        The store has the message and the log lacks it; this moves it to the log.
        """
        store = self.store
        store.begin()
        try:
            store.load(message)
            self.enqueue(message)
        except OSError as error:
            log.error("stream %r: a message cannot be read and is lost: %s", self.name, error)
        finally:
            store.settle(self.id, message.seq, message.position)
            store.commit()
        message.data = None
        store.flush_backlog()

    def limit(self, arguments: "Mapping[str, object]") -> None:
        """Set the retention limits from the effective arguments."""
        log = self.log
        bytes_max = cast("int", arguments.get("x-max-length-bytes", -1))
        age_max_ms = age_ms(cast("str", arguments.get("x-max-age", ""))) or -1
        log.limit_segments(cast("int", arguments.get("x-stream-max-segment-size-bytes", 0)))
        log.limit_local(
            cast("int", arguments.get("x-local-max-length-bytes", -1)),
            age_ms(cast("str", arguments.get("x-local-max-age", ""))) or -1,
        )
        if bytes_max != log.max_length_bytes or age_max_ms != log.max_age_ms:
            log.limit(bytes_max, age_max_ms)
            before = log.memory
            log.trim(self.counters.now_ms)
            self.counters.memory_used += log.memory - before

    def trim(self, now_ms: int) -> int:
        """Remove records beyond the age limits.

        Return the time of the next check, 0 without a limit.
        """
        log = self.log
        ages = [age for age in (log.max_age_ms, log.local_max_age_ms) if age >= 0]
        if self.deleted or not ages:
            return 0
        before = log.memory
        log.trim(now_ms)
        log.offload(now_ms)
        self.counters.memory_used += log.memory - before
        return now_ms + max(TRIM_MIN_MS, min(ages) // 8)

    def pin(self, offset: int, bytes_max: int) -> None:
        """Keep the records from an offset on, whatever their age; -1 pins none.

        ``bytes_max`` bounds the bytes beyond the stream's own limit.
        """
        log = self.log
        log.pinned_offset = offset
        log.pin_bytes_max = bytes_max
        if log.pin_failed:
            # Half of the room is free again: a group that stays behind is logged only once.
            bytes_in_all = max(0, log.max_length_bytes) + bytes_max
            log.pin_failed = offset >= 0 and 2 * log.bytes_from(offset) > bytes_in_all
        before = log.memory
        log.trim(self.counters.now_ms)
        self.counters.memory_used += log.memory - before

    def record_own(self, publisher: int, offset: int) -> None:
        """Record an offset for the no-local readers of the connection that published it."""
        for consumer, own in list(self.no_local_readers or ()):
            if consumer.publisher != publisher:
                continue
            own.record(offset)
            if len(own) > RUNS_MAX:
                self.remove_consumer(consumer)
                consumer.on_failure(
                    ResourceError(
                        f"the reader is too far behind in stream '{self.name}' to recognise "
                        "its own records"
                    )
                )

    def check_consumer(self, consumer: Consumer, published: bool = False) -> None:
        """Check the arguments of a reader, and set the offset at which it starts.

        With ``published`` its connection may have published to the stream before.

        Raises:
            PreconditionFailed: no prefetch is set, or an argument is malformed.
            InvalidArgument: two arguments set the start.
            NotFound: retention removed the offset, and the consumer has x-stream-offset-error.
        """
        if not consumer.no_ack and not getattr(consumer, "prefetch", 1):
            raise PreconditionFailed(
                f"consumer prefetch count is not set for stream '{self.name}' in vhost "
                f"'{self.vhost.name}'"
            )
        arguments = consumer.arguments
        browses = bool(arguments.get("x-browse"))
        subject = f"queue '{self.name}' in vhost '{self.vhost.name}'"
        is_browser = browses or read_boolean(arguments, "x-filter-no-consume", subject)
        reader = read_arguments(arguments, subject)
        start = arguments.get("x-stream-offset", "first" if is_browser else "next")
        period_s = replay_period(arguments, subject)
        if period_s is not None:
            if "x-stream-offset" in arguments:
                raise InvalidArgument(
                    f"invalid arg '{REPLAY}' for {subject}: it contradicts 'x-stream-offset'"
                )
            start = f"{period_s}s" if period_s else "next"
        offset = self.resolve(start)
        is_tracking = is_tracked(consumer, arguments)
        if is_tracking:
            if self.tracking is None:
                self.tracking = OffsetTracking(self.vhost.facts, self.id_bytes)
            tracked = self.tracking.find_start(consumer)
            if tracked >= 0 and "x-stream-offset" not in arguments and period_s is None:
                start = offset = tracked
        log = self.log
        first = log.first_offset
        if consumer.no_local:
            reader.own = OwnRecords()
            if published and start == "next":
                offset = log.next_offset
            elif published and offset < log.next_offset:
                raise PreconditionFailed(
                    f"no-local for {subject}: this connection may have published existing "
                    "records; begin with 'next', or on another connection"
                )
        if offset < first:
            if reader.strict:
                raise self.removed_error(offset)
            offset = first
        if is_tracking and self.tracking is not None:  # Now nothing refuses the reader any more.
            self.tracking.begin(consumer)
        self.cursors[consumer] = offset
        reader.selector = consumer.selector
        if browses or consumer.auto_close:
            end = log.committed_offset
            reader.last = end if reader.last < 0 else min(reader.last, end)
        if not reader.is_plain:
            reader.next = offset
            self.readers[consumer] = reader

    def add_consumer(self, consumer: Consumer) -> None:
        Queue.add_consumer(self, consumer)
        reader = self.readers.get(consumer)
        if reader is not None and reader.own is not None:
            if self.no_local_readers is None:
                self.no_local_readers = []
            self.no_local_readers.append((consumer, reader.own))

    def removed_error(self, offset: int) -> NotFound:
        """Return the error for an offset that retention removed."""
        return NotFound(
            f"offset {offset} is gone from stream '{self.name}' in vhost '{self.vhost.name}'"
        )

    def resolve(self, start: object, argument: str = "x-stream-offset") -> int:
        """Return the offset of a start: first, last, next, a number, a time or an interval.

        A negative number counts back from the end. ``argument`` is the name of the argument that
        has the value, for the error.

        Raises:
            PreconditionFailed: ``start`` is none of these.
        """
        log = self.log
        if start == "first":
            return log.first_offset
        if start == "last":
            return max(log.first_offset, log.committed_offset - 1)
        if start == "next":
            return log.committed_offset
        offset = parse_integer(start)
        if offset is not None:
            return offset if offset >= 0 else max(log.first_offset, log.committed_offset + offset)
        if isinstance(start, datetime):
            return log.offset_at(int(start.timestamp() * 1000))
        if isinstance(start, str):
            seconds = interval_s(start)
            if seconds >= 0:
                return log.offset_at(max(0, self.counters.now_ms - seconds * 1000))
        raise PreconditionFailed(
            f"invalid arg '{argument}' for queue '{self.name}' in vhost "
            f"'{self.vhost.name}': {start!r}"
        )

    def drain(self) -> None:
        """Deliver the durable records to every reader with room."""
        self.will_drain = False
        if self.tracking is not None:
            self.tracking.write()
        if self.round is not None:
            for consumer in list(self.round.active):
                if consumer in self.readers:
                    was_scanning = consumer.is_scanning
                    self.serve_filtered(consumer)
                    if was_scanning and not consumer.is_scanning:
                        consumer.on_scan_end()
                elif consumer in self.cursors:
                    self.serve(consumer)
        if self.log.committed_offset < self.log.next_offset and self.round is not None:
            self.wake()

    def serve(self, consumer: Consumer) -> None:
        """Deliver records to a reader while it has room."""
        while True:
            if not consumer.has_room():
                self.deactivate(consumer)
                return
            batch = self.fetched.get(consumer)
            if not batch:
                cursor = self.cursors[consumer]
                if cursor >= self.log.committed_offset:
                    return
                if cursor < self.log.first_offset:
                    cursor = self.log.first_offset
                if consumer.accepts_records():
                    next_offset = self.log.deliver_records(
                        cursor, self.log.committed_offset, consumer
                    )
                    self.tally.deliver_no_ack += next_offset - cursor
                    self.cursors[consumer] = next_offset
                    if next_offset == cursor:
                        return
                    continue
                batch = self.log.read(cursor, READ_SIZE)
                if not batch:
                    return
                self.fetch(consumer, batch)
            self.deliver_batch(consumer, batch)

    def fetch(self, consumer: Consumer, batch: list[StreamRecord]) -> None:
        """Store records until a reader has room for them; they count as memory in use."""
        size = 0
        for entry in batch:
            size += len(entry[1])
        batch.reverse()
        self.fetched[consumer] = batch
        self.fetched_size[consumer] = size
        self.counters.memory_used += size

    def deliver_batch(self, consumer: Consumer, batch: list[StreamRecord]) -> None:
        """Deliver the records of a batch, the last one first, as long as the reader has room."""
        while batch and consumer.has_room():
            offset, data, address_len, body_size, arrived_ms = batch.pop()
            self.cursors[consumer] = offset + 1
            message = new_message(data, address_len, body_size)
            message.seq = offset
            message.deadline_ms = arrived_ms  # Records do not expire; gateways read their arrival.
            self.counters.memory_used += self.weight(message)
            if consumer.no_ack:
                self.tally.deliver_no_ack += 1
                consumer.deliver(message)
                self.remove(message)
            else:
                self.tally.deliver += 1
                self.unacked_count += 1
                self.unacked_bytes += body_size
                message.consumer = consumer
                consumer.deliver(message)
        if not batch:
            self.counters.memory_used -= self.fetched_size.pop(consumer, 0)

    def serve_filtered(self, consumer: Consumer) -> None:
        """Deliver records to a reader with an end or a filter while it has room."""
        reader: StreamReader = self.readers[consumer]
        log = self.log
        scanned_size = 0
        consumer.is_scanning = False
        while True:
            batch = self.fetched.get(consumer)
            if not batch and 0 <= reader.last <= reader.next:
                self.remove_consumer(consumer)
                consumer.on_queue_end()
                return
            if not consumer.has_room():
                self.deactivate(consumer)
                return
            if not batch:
                if scanned_size >= SCAN_SIZE:
                    consumer.is_scanning = True
                    self.vhost.scheduler.put(
                        ("scan", self), self.counters.now_ms + SCAN_PAUSE_MS, self.drain_again
                    )
                    return
                end = log.committed_offset
                if reader.next >= end:
                    return
                if reader.next < log.first_offset:
                    if reader.strict:
                        error = self.removed_error(reader.next)
                        self.remove_consumer(consumer)
                        consumer.on_failure(error)
                        return
                    reader.next = log.first_offset
                if reader.filter_values is not None:
                    if self.blocks is NO_BLOCKS:
                        self.blocks = FilterBlocks()
                    if 0 <= reader.last < end:
                        end = reader.last
                    reader.next = self.blocks.skip(reader.next, end, reader.filter_values)
                    if reader.next >= end:
                        continue
                elif reader.selector is None and consumer.accepts_records():
                    if 0 <= reader.last < end:
                        end = reader.last
                    next_offset = log.deliver_records(reader.next, end, consumer)
                    if next_offset == reader.next:
                        return
                    self.tally.deliver_no_ack += next_offset - reader.next
                    reader.next = next_offset
                    continue
                entries = log.read(reader.next, READ_SIZE)
                if not entries:
                    return
                scanned_size += READ_SIZE if reader.selector is None else SELECT_WEIGHT
                contents = self.vhost.contents
                assert contents is not None  # Without it there are no streams.
                batch = reader.filter_records(entries, contents, self.blocks)
                if not batch:
                    continue
                self.fetch(consumer, batch)
                scanned_size = 0
            self.deliver_batch(consumer, batch)

    def settle(self, message: Message) -> None:
        """Settle a record, and record the offset of a tracked reader."""
        if self.tracking is not None and self.tracking.record(message.consumer, message.seq):
            self.wake()
        Queue.settle(self, message)

    def requeue(self, message: Message) -> None:
        """Settle a record that a reader returns: it is in the log, and the reader gets credit."""
        Queue.settle(self, message)

    def release(self, message: Message) -> None:
        self.requeue(message)

    def discard(self, message: Message) -> None:
        self.settle(message)

    def unpark(self, consumer: Consumer) -> None:
        if consumer.is_parked:
            self.activate(consumer)
        self.wake()

    def remove_consumer(self, consumer: Consumer) -> None:
        Queue.remove_consumer(self, consumer)
        if self.tracking is not None:
            self.tracking.end(consumer)
        self.cursors.pop(consumer, None)
        self.fetched.pop(consumer, None)
        self.counters.memory_used -= self.fetched_size.pop(consumer, 0)
        self.readers.pop(consumer, None)
        if self.no_local_readers is not None:
            self.no_local_readers = [
                reader for reader in self.no_local_readers if reader[0] is not consumer
            ] or None

    def purge(self) -> int:
        """Do nothing: gateways refuse to purge a stream."""
        return 0

    def destroy(self) -> int:
        count = self.message_count()
        Queue.destroy(self)
        self.cursors.clear()
        self.fetched.clear()
        self.counters.memory_used -= sum(self.fetched_size.values())
        self.fetched_size.clear()
        self.readers.clear()
        forget_readers(self.vhost.facts, self.id_bytes)
        self.tracking = None
        self.no_local_readers = None
        self.counters.memory_used -= self.log.memory
        self.log.delete()
        return count


def interval_s(text: str) -> int:
    """Return the seconds of an interval like ``7D`` or ``30m``; -1 if it is malformed."""
    last = len(text) - 1
    if not 0 < last < 11 or text[last] not in INTERVAL_UNITS_S:
        return -1
    count = text[:last]
    return int(count) * INTERVAL_UNITS_S[text[last]] if count.isascii() and count.isdigit() else -1
