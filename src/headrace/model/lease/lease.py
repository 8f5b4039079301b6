# SPDX-License-Identifier: Apache-2.0
"""A lease: messages taken from a queue for a group, which reads them by their numbers.

Taken messages are removed from the queue and become the next records of this hidden stream, in one
store transaction. Their offsets are the lease's numbers. Any number of readers read any range of
numbers, repeatedly, until it is settled::

         settled                                  next
            |                                      |
    --------+--------------------------------------+--------------> numbers
     gone   |  leased: read, settled, released     |  not taken
            |                                      |  yet

Settling raises ``settled``; messages that are rejected with it become dead letters of the queue.
Releasing also raises ``settled``, and returns the messages to their positions in the queue, marked
redelivered.

Each method does a slice of the work, inside a transaction that the caller opened
(:mod:`headrace.model.lease.registry`).
"""

import logging
from typing import TYPE_CHECKING, Any

import cython

from headrace.model.contents import UnreadableError
from headrace.model.dead_letter_headers import DELIVERY_LIMIT, UNCONVERTIBLE

if not cython.compiled:
    from headrace.model.lease.log import pack_record, unpack_record
    from headrace.model.message import GONE as C_GONE
    from headrace.model.message import KIND_MASK as C_KIND_MASK
    from headrace.model.message import PERSISTENT as C_PERSISTENT
    from headrace.model.message import REDELIVERED as C_REDELIVERED
    from headrace.model.message import Message
    from headrace.model.queue.queue import Queue
    from headrace.model.stream.log import StreamLog
    from headrace.model.stream.stream import Stream

if TYPE_CHECKING:
    from typing import Unpack

    from headrace.model.contents import Contents
    from headrace.model.queue.destination import Options

log = logging.getLogger(__name__)

SLICE_SIZE = 1 << 20  # Bytes taken in one slice; only the last message may exceed them.
READ_SIZE = 131072  # Bytes read from the log at a time, to release or reject.


class Lease(Stream):
    """The hidden stream of one queue and one group."""

    def __init__(self, name: str, log: StreamLog, **options: "Unpack[Options]") -> None:
        Stream.__init__(self, name, log, **options)
        self.is_hidden = True
        #: The queue whose messages are leased.
        self.source: Queue = None  # type: ignore[assignment]  # `set_source` sets it first.
        self.group = ""
        self.raw_log: Any = log  # As Any: LeaseLog and DiskLeaseLog have no common base.
        self.settled = 0  # All numbers below this one are settled or released.

    def set_source(self, source: Queue, group: str) -> None:
        """Set the queue and the group of the lease."""
        self.source = source
        self.group = group
        self.access_name = source.name
        contents: Contents | None = None
        if self.vhost is not None:
            contents = self.vhost.contents
        if contents is not None:
            self.raw_log.render = contents.render_leased

    def enqueue(self, message: Message) -> int:
        """Do nothing: clients do not publish to a lease."""
        return 0

    def enqueue_in_place(self, message: Message, promised: bool = False) -> None:
        """Do nothing: clients do not publish to a lease."""

    def lease_some(
        self, messages_max: int, bytes_max: int, at_least_one: bool
    ) -> tuple[int, int, bool]:
        """Take a slice of the ready messages in their order.

        Return their number, their bytes, and True if the next message was too large. With
        ``at_least_one`` the first message may have more bytes than ``bytes_max``.
        """
        source: Queue = self.source
        log = self.log
        store = self.store
        before = log.memory
        count = 0
        size = 0
        now_ms = self.counters.now_ms
        full = False
        while count < messages_max and size < SLICE_SIZE:
            message = source.dequeue()
            if message is None:
                break
            data = message.data
            if message.parts is not None or message.flags & C_KIND_MASK:
                data = self.join_parts(message)
                if data is None:
                    source.remove(message)
                    continue
            size += len(data)
            if size > bytes_max and (count or not at_least_one):
                size -= len(data)
                source.reinsert(message)
                if self.counters.memory_used > self.counters.memory_max:
                    source.page_out(message)
                full = True
                break
            arrived_ms = store.arrival(message)
            if arrived_ms <= 0:
                arrived_ms = now_ms
            log.append(
                pack_record(message, data), message.address_len, message.body_size, arrived_ms
            )
            count += 1
            source.remove(message)
        source.tally.deliver_no_ack += count
        source.used_ms = now_ms
        self.tally.publish += count
        self.counters.memory_used += log.memory - before
        return count, size, full

    def join_parts(self, message: Message) -> bytes | None:
        """Return the data of a message in one piece.

        Return None, and dead-letter the message, if it cannot be converted.
        """
        contents = self.vhost.contents
        parts = b"" if message.parts is None else b"".join(message.parts)
        if contents is None:
            return bytes(message.data + parts)
        try:
            record: bytes = contents.encode_record(message)
        except UnreadableError as error:
            log.warning("queue %r: a message is not leased: %s", self.source.name, error)
            self.vhost.dead_letters.dead_letter(message, self.source, UNCONVERTIBLE, str(error))
            return None
        if message.flags & C_KIND_MASK:
            return bytes(message.data + parts)
        return record

    def return_some(self, upto: int) -> int:
        """Return a slice of the messages leased below a number to the queue; return their count."""
        source: Queue = self.source
        count = 0
        for offset, raw, address_len, body_size, arrived_ms in self.raw_log.read_raw(
            self.settled, READ_SIZE
        ):
            if offset >= upto:
                break
            message = unpack_record(raw, address_len, body_size)
            message.flags |= C_REDELIVERED
            if message.deliveries < 255:
                message.deliveries += 1
            count += 1
            self.settled = offset + 1
            if 0 <= source.delivery_limit < message.deliveries:
                source.publish_dead_letter(message, DELIVERY_LIMIT)
                continue
            if message.flags & C_PERSISTENT:
                message.position = self.store.append_returned(message, arrived_ms, source.id_bytes)
                if not message.position:
                    message.flags &= ~C_PERSISTENT
                if source.delivery_limit >= 0:
                    source.record_count(message, message.deliveries, 0)
            self.counters.memory_used += source.weight(message)
            source.reinsert(message)
            if message.flags & C_GONE:
                continue  # A last-value queue has a newer message of its key.
            if message.deadline_ms:
                source.schedule_expiry(message)
            if self.counters.memory_used > self.counters.memory_max:
                source.page_out(message)
        return count

    def reject_some(self, numbers: list[int], reason: str) -> int:
        """Dead-letter leased messages by ascending numbers; return the number of processed ones.

        The messages stay leased. A call processes the messages that one read of the log returns.
        """
        count = 0
        total = len(numbers)
        batch = self.raw_log.read_raw(numbers[0], READ_SIZE)
        for offset, raw, address_len, body_size, _ in batch:
            if offset < numbers[count]:
                continue
            self.source.publish_dead_letter(unpack_record(raw, address_len, body_size), reason)
            count += 1
            if count == total:
                return count
        if not count:  # The log reports that the record cannot be read. Skip it.
            return 1
        return count

    def raise_settled(self, settled: int) -> None:
        """Raise ``settled`` to a number, unless it is higher already."""
        self.settled = max(self.settled, settled)

    def count(self) -> int:
        """Return the number of leased messages."""
        return self.log.next_offset - self.settled

    def count_memory(self, before: int) -> None:
        """Count the change of the log's memory, which was ``before`` bytes."""
        self.counters.memory_used += self.log.memory - before
