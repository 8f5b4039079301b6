# SPDX-License-Identifier: Apache-2.0
"""A queue read like a stream: its ready messages by position, without consuming.

A consumer with ``x-browse`` reads a range of positions. One with ``x-filter-no-consume``, as Qpid's
clients send it, reads the queue's messages in order, and later arrivals.

A message's position is its seq in the virtual host, which never changes and is never reused. A
reader with a range of positions gets the ready messages in the range, each once, in order of
position, whatever their priority; then the broker ends it. Any number of readers read any ranges,
without marking, locking or moving messages. A message that a consumer acquires first is not shown,
nor is a message that is requeued behind a reader. A reader with a selector gets the messages that
the selector matches.
"""

from typing import Any

import cython

if not cython.compiled:
    from headrace.model.message import KIND_MASK as C_KIND_MASK
    from headrace.model.message import PAGED as C_PAGED
    from headrace.model.message import REDELIVERED as C_REDELIVERED
    from headrace.model.message import Message, new_message
    from headrace.model.queue.destination import Consumer
    from headrace.model.queue.queue import Queue
    from headrace.model.stream.log import StreamLog
    from headrace.model.stream.stream import Stream

from headrace.model.contents import UnreadableError
from headrace.model.errors import PreconditionFailed
from headrace.model.operations.peek import read_position, start_position
from headrace.model.queue_kinds.multi_queue import MultiQueue
from headrace.model.stream.log import StreamRecord

ARGUMENT = "x-browse"  # The argument of a consumer that browses instead of consuming.
READ_SIZE = 262144  # Bytes prepared for a reader at a time.
SELECT_SIZE = 1 << 20  # Bytes that a selector scans in one turn without a match.
SELECT_READ = 65536  # Bytes that a selector scans in one read.


class QueueView(Stream):
    """A queue as a stream for its browsers."""

    def __init__(self, source: Queue) -> None:
        Stream.__init__(
            self,
            source.name,
            StreamLog(),
            store=source.store,
            counters=source.counters,
            vhost=source.vhost,
        )
        self.source = source
        self.ends: dict[Consumer, int] = {}  # The end of each reader's range.
        self.ahead: dict[Consumer, Any] = {}  # Requeued messages in each reader's range.

    def message_count(self) -> int:
        return self.source.ready.count

    def check_consumer(self, consumer: Consumer, published: bool = False) -> None:
        """Set a reader's range: from x-stream-offset to before x-stream-last, by default all.

        Raises:
            PreconditionFailed: an argument is not a position, or no prefetch is set.
            InvalidArgument: two arguments set the start.
        """
        if not consumer.arguments.get(ARGUMENT):
            consumer.is_browser = True  # Ready messages and arrivals; see :meth:`show_message`.
            self.cursors[consumer] = start_position(self.source, consumer.arguments)
            return
        if not consumer.no_ack and not getattr(consumer, "prefetch", 1):
            raise PreconditionFailed(
                f"consumer prefetch count is not set for browsing queue '{self.name}' in vhost "
                f"'{self.vhost.name}'"
            )
        first = start_position(self.source, consumer.arguments)
        end = self.counters.next_seq
        consumer.is_browser = False
        last = read_position(self.source, consumer.arguments, "x-stream-last", end)
        self.cursors[consumer] = first
        self.ends[consumer] = min(end, last)
        self.ahead[consumer] = self.source.ready.requeued_between(first, last)

    def add_consumer(self, consumer: Consumer) -> None:
        if not consumer.is_browser:
            Stream.add_consumer(self, consumer)
            return
        if self.source.vhost is not None:
            self.source.vhost.count_consumer(consumer)
        self.source.add_browser(consumer)
        self.source.browse_from(consumer, self.cursors[consumer])
        self.source.wake()

    def show_message(self, consumer: Consumer, message: Message) -> None:
        """Show a message of the queue to a consumer that browses it."""
        entry = self.entry(message)
        if entry is not None:
            self.deliver_batch(consumer, [entry])

    def unpark(self, consumer: Consumer) -> None:
        if consumer.is_browser:
            self.source.unpark(consumer)
        else:
            Stream.unpark(self, consumer)

    def drain(self) -> None:
        """Deliver the next messages to every reader with room."""
        self.will_drain = False
        if self.source.browsing is not None:
            self.source.wake()
        if self.round is not None:
            for consumer in list(self.round.active):
                if consumer in self.ends:
                    self.show_some(consumer)

    def show_some(self, consumer: Consumer) -> None:
        """Deliver to one reader while it has room; end it after its range."""
        was_scanning = consumer.is_scanning
        while True:
            batch = self.fetched.get(consumer)
            if not batch:
                batch = self.prepare(consumer)
                if consumer.is_scanning:
                    self.vhost.scheduler.put(
                        ("look", self), self.counters.now_ms + 1, self.drain_again
                    )
                    return
                if not batch:
                    self.remove_consumer(consumer)
                    consumer.on_queue_end()
                    return
                self.fetch(consumer, batch)
            if not consumer.has_room():
                self.deactivate(consumer)
                if was_scanning:
                    consumer.on_scan_end()
                return
            self.deliver_batch(consumer, batch)

    def prepare(self, consumer: Consumer) -> list[StreamRecord]:
        """Return the next messages for a reader, as records of a stream.

        If there are none, the reader is ``is_scanning`` or has read its range.
        """
        source = self.source
        last = self.ends[consumer]
        entries: list[StreamRecord] = []
        read_size = READ_SIZE if consumer.selector is None else SELECT_READ
        bytes_left = SELECT_SIZE
        consumer.is_scanning = False
        while not entries:
            if bytes_left <= 0:
                consumer.is_scanning = True
                break
            if consumer.selector is not None:
                bytes_left -= read_size
            first = self.cursors[consumer]
            messages = source.ready.peek(first, last, read_size, self.ahead[consumer])
            if not messages:
                break
            for message in messages:
                self.cursors[consumer] = message.seq + 1
                entry = self.entry(message)
                if entry is not None and self.matches(consumer, message, entry):
                    entries.append(entry)
        return entries

    def matches(self, consumer: Consumer, message: Message, entry: StreamRecord) -> bool:
        """Return True if a message passes a reader's no-local and selector."""
        if consumer.no_local and consumer.publisher == message.publisher:
            return False
        if consumer.selector is None:
            return True
        candidate = new_message(entry[1], entry[2], entry[3])
        candidate.seq = message.seq
        candidate.flags = message.flags & C_REDELIVERED
        candidate.deadline_ms = message.deadline_ms
        candidate.deliveries = message.deliveries
        contents = self.vhost.contents
        assert contents is not None
        return bool(consumer.selector.matches(contents.values(candidate)))

    def entry(self, message: Message) -> StreamRecord | None:
        """Return a message as the record of a stream; None if it cannot be shown."""
        if message.deadline_ms and message.deadline_ms <= self.counters.now_ms:
            return None
        store = self.store
        paged = message.flags & C_PAGED
        try:
            if paged:
                store.load(message)
            data = message.data
            if message.parts is not None or message.flags & (C_KIND_MASK | C_REDELIVERED):
                contents = self.vhost.contents
                if contents is not None:
                    data = contents.render_leased(message)
            arrived_ms = store.arrival(message)
        except (OSError, UnreadableError):
            data = None
            arrived_ms = 0
        if paged and not message.flags & C_PAGED:
            store.page_out(message)
        if data is None:
            return None
        if arrived_ms <= 0:
            arrived_ms = self.counters.now_ms
        return (message.seq, data, message.address_len, message.body_size, arrived_ms)

    def remove_consumer(self, consumer: Consumer) -> None:
        if consumer.is_browser:
            self.source.remove_browser(consumer)
        Stream.remove_consumer(self, consumer)
        self.ends.pop(consumer, None)
        self.ahead.pop(consumer, None)


def get_view(queue: Queue) -> Queue:
    """Return the view of a queue, or a stream itself, which consumers do not change.

    Raises:
        PreconditionFailed: the queue is a pool of queues of one consumer.
    """
    if queue.is_stream:
        return queue
    if isinstance(queue, MultiQueue):
        raise PreconditionFailed("one consumer cannot browse several queues")
    if queue.view is None:
        queue.view = QueueView(queue)
    return queue.view
