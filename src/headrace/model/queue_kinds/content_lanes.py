# SPDX-License-Identifier: Apache-2.0
"""Lanes: the content of class file and class stream in a queue.

The content classes are independent in a queue: a consumer of class basic, file or stream gets the
content of that class, in order. Messages (class basic and 0-10 transfers) are in the queue itself.
File and stream content is in lanes, made with the first consumer or message of that class. A lane
has the queue's name, id, limits and lifetime, and its own messages and consumers. Purging, deleting
and counting a queue includes its lanes.

Files. The body is on disk, and the message's data ends with a reference to it. A file is never
dropped because of the queue's length: publishers wait instead. A file that was requeued more than
``FILE_DELIVERIES`` times is dead-lettered, if the queue has a dead-letter exchange.

Stream packets are in memory only and are removed when they are delivered. Beyond the limits the
oldest packets of the lowest priority are dropped first.
"""

import logging
from typing import TYPE_CHECKING

import cython

if not cython.compiled:
    from headrace.model.counters import MESSAGE_OVERHEAD as C_MESSAGE_OVERHEAD
    from headrace.model.message import GONE as C_GONE
    from headrace.model.message import KIND_FILE as C_KIND_FILE
    from headrace.model.message import Message
    from headrace.model.queue.destination import Consumer
    from headrace.model.queue.overflow import Overflow
    from headrace.model.queue.queue import Queue

from headrace.model.errors import NotImplementedHere
from headrace.model.queue_kinds.apply_arguments import apply_arguments

if TYPE_CHECKING:
    from headrace.model.ports import Files

log = logging.getLogger(__name__)

FILE_DELIVERIES = 5  # Delivery limit of files in queues with a dead-letter exchange.
PACKET_BYTES_MAX = 16 << 20  # Default limit of the stream packets in one queue.
PACKET_PRIORITY_MAX = 9  # Each priority is a level of its own.


class ContentClassQueue(Queue):
    """A lane: the content of class file or stream in a queue."""

    def __init__(self, queue: Queue, durable: bool) -> None:
        Queue.__init__(
            self,
            queue.name,
            store=queue.store,
            counters=queue.counters,
            vhost=queue.vhost,
            id=queue.id,
            durable=durable,
            arguments=queue.arguments,
        )
        self.parent = queue
        arguments = queue.arguments
        if queue.vhost is not None:
            arguments = queue.vhost.effective_arguments(queue)
        self.apply(arguments)
        self.on_deadline = queue.on_deadline

    def apply(self, arguments: dict[str, object]) -> None:
        """Apply the effective arguments of the queue; called again when they change."""
        apply_arguments(self, arguments)

    def add_consumer(self, consumer: Consumer) -> None:
        """Add a consumer; an exclusive one locks the whole queue."""
        Queue.add_consumer(self, consumer)
        if consumer.exclusive:
            self.parent.exclusive_consumer = consumer

    def remove_consumer(self, consumer: Consumer) -> None:
        Queue.remove_consumer(self, consumer)
        if self.parent.exclusive_consumer is consumer:
            self.parent.exclusive_consumer = None
        self.parent.used_ms = self.counters.now_ms


# Keeps 0-9/file#02, 0-10/s203.
class FileOverflow(Overflow):
    """Limits that neither reject nor drop a file (0-9/file#02): publishers wait instead."""

    def enforce(self, queue: Queue, message: Message | None) -> None:
        if queue.guard is not None:
            queue.guard.check_depth()


class FileQueue(ContentClassQueue):
    """The lane of a queue for content of class file."""

    def __init__(self, queue: Queue) -> None:
        ContentClassQueue.__init__(self, queue, queue.durable)
        self.files: Files | None = None
        if queue.vhost is not None:
            self.files = queue.vhost.files

    # Keeps 0-10/s224.
    def apply(self, arguments: dict[str, object]) -> None:
        ContentClassQueue.apply(self, arguments)
        if self.delivery_limit < 0 and self.dead_letter_exchange is not None:
            self.delivery_limit = FILE_DELIVERIES
        if self.limits is not None:
            self.limits = FileOverflow(self.limits.max_length, self.limits.max_length_bytes)

    def add_reference(self, message: Message) -> None:
        """Add a reference to the body of a message."""
        if self.files is not None:
            self.files.add_reference(message.data)

    def enqueue(self, message: Message) -> int:
        self.add_reference(message)
        return Queue.enqueue(self, message)

    def dispatch_arrival(self, consumer: Consumer, message: Message) -> None:
        self.add_reference(message)
        Queue.dispatch_arrival(self, consumer, message)

    def enqueue_in_place(self, message: Message, promised: bool = False) -> None:
        self.add_reference(message)
        Queue.enqueue_in_place(self, message, promised)

    def restore(self, message: Message, arrived_ms: int) -> None:
        if self.find_body(message):
            Queue.restore(self, message, arrived_ms)

    def restore_unacked(self, message: Message) -> bool:
        return self.find_body(message) and Queue.restore_unacked(self, message)

    def find_body(self, message: Message) -> bool:
        """Add a reference to the body of a recovered file; settle the file if its body is lost."""
        try:
            self.store.load(message)
        except OSError as error:
            log.error("queue %r: file %d cannot be read: %s", self.name, message.seq, error)
        if message.data is None or (
            self.files is not None and not self.files.add_reference(message.data)
        ):
            log.error("queue %r: the body of file %d is lost", self.name, message.seq)
            self.store.settle(self.id, message.seq, message.position)
            return False
        return True

    def remove(self, message: Message) -> None:
        data = message.data
        is_present = not message.flags & C_GONE
        Queue.remove(self, message)
        if is_present and data is not None and self.files is not None:
            self.files.remove_reference(data)

    def weight(self, message: Message) -> int:
        """Return the bytes of memory of a message without its body, which is on disk."""
        return C_MESSAGE_OVERHEAD

    def page_out(self, message: Message) -> None:
        """Do nothing: the body is on disk already."""

    def is_full(self) -> bool:
        """Return True if the queue is at its limits, so that publishers wait."""
        limits = self.limits
        if limits is None:
            return False
        if 0 <= limits.max_length <= self.ready.count:
            return True
        return 0 <= limits.max_length_bytes <= self.ready.bytes

    def release_waiters(self) -> None:
        """Resume the paced publishers once the queue is below its limits."""
        if self.waiters is not None and not self.is_full():
            waiters = self.waiters
            self.waiters = None
            for publisher in waiters:
                publisher.resume_publishing()


# Keeps 0-9/stream#01.
class PacketOverflow(Overflow):
    """Limits that reject no packet, but drop the oldest of the lowest priority."""

    # Keeps 0-10/s234, 0-10/s239.
    def drop_head(self, queue: Queue) -> None:
        assert isinstance(queue, PacketQueue)
        packets = queue
        while packets.ready.count and self.exceeds(packets, 0, 0):
            if not packets.drop_lowest():
                return

    def drop_head_in_batch(self, queue: Queue) -> None:
        self.drop_head(queue)


class PacketQueue(ContentClassQueue):
    """The lane of a queue for stream packets, which are in memory only."""

    def __init__(self, queue: Queue) -> None:
        ContentClassQueue.__init__(self, queue, False)
        self.discarded = 0  # Packets dropped because of the limits.

    # Keeps 0-9/stream#02, 0-10/s235, 0-10/s236.
    def apply(self, arguments: dict[str, object]) -> None:
        ContentClassQueue.apply(self, arguments)
        self.ready.max_priority = self.ready.max_priority or PACKET_PRIORITY_MAX
        max_length = max_bytes = -1
        if self.limits is not None:
            max_length, max_bytes = self.limits.max_length, self.limits.max_length_bytes
        self.limits = PacketOverflow(max_length, PACKET_BYTES_MAX if max_bytes < 0 else max_bytes)

    def page_out(self, message: Message) -> None:
        """Drop the oldest packet of the lowest priority: packets are never on disk."""
        if not message.flags & C_GONE:
            self.drop_lowest()

    # Keeps 0-9/stream#01, 0-9/stream.qos.consume-rate#01, 0-10/s234, 0-10/s239.
    def drop_lowest(self) -> bool:
        """Drop the oldest packet of the lowest priority; return False if there is none."""
        message = self.ready.pop_lowest()
        if message is None:
            return False
        self.discarded += 1
        self.publish_dead_letter(message, "maxlen")
        self.remove(message)
        return True


# Keeps 0-9/queue#any-content, 0-10/s175.
def get_lane(queue: Queue, kind: int) -> Queue:
    """Return the queue for content of a kind: the queue itself, or one of its lanes.

    ``kind`` is one of KIND_BASIC, KIND_TRANSFER, KIND_FILE and KIND_STREAM.

    Raises:
        NotImplementedHere: the queue is of type stream, which has messages only.
    """
    if kind < C_KIND_FILE:
        return queue
    lane: Queue | None = None
    if queue.lanes is not None:
        lane = queue.lanes.get(kind)
    if lane is None:
        if queue.is_stream:
            raise NotImplementedHere(f"queue '{queue.name}' of type stream keeps messages only")
        lane = FileQueue(queue) if kind == C_KIND_FILE else PacketQueue(queue)
        if queue.lanes is None:
            queue.lanes = {}
        queue.lanes[kind] = lane
    return lane


def home_queue(queue: Queue) -> Queue:
    """Return the queue of a lane, or any other queue itself."""
    return queue.parent if isinstance(queue, ContentClassQueue) else queue


def apply_to_lanes(queue: Queue, arguments: dict[str, object]) -> None:
    """Apply changed effective arguments of a queue to its lanes."""
    for lane in (queue.lanes or {}).values():
        assert isinstance(lane, ContentClassQueue)
        lane.apply(arguments)
