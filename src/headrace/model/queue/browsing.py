# SPDX-License-Identifier: Apache-2.0
"""Consumers that read a queue without popping its head: browsers, and consumers that filter.

Browsing. A browser gets messages at their positions, and acquires none.

Filtering. A filter, a consumer with a selector or no-local, acquires messages from the middle of
the queue. The queue evaluates each message once for it, and again after a requeue. After
``LOOKS_MAX`` messages in a row that the filter does not accept, or fewer large ones, the scan
pauses for ``LOOK_PAUSE_MS``.

Browsers and filters have a cursor, which the ready list keeps up to date.
"""

from typing import TYPE_CHECKING

import cython

if not cython.compiled:
    from headrace.model.message import PAGED as C_PAGED
    from headrace.model.message import Message
    from headrace.model.queue.destination import ACCEPTED as C_ACCEPTED
    from headrace.model.queue.destination import NEVER as C_NEVER
    from headrace.model.queue.destination import NO_ROOM as C_NO_ROOM
    from headrace.model.queue.destination import Consumer

if TYPE_CHECKING:
    from headrace.model.contents import Contents
    from headrace.model.queue.queue import Queue

# A look is the cost unit of a scan: one evaluation of a small message in memory.
LOOKS_MAX = 512  # Looks of one cursor in a row, before a pause.
PAGED_LOOKS = 16  # Looks of a message that is loaded from the disk.
LOOK_BYTES = 1024  # Each multiple of this size of properties and headers costs one look more.
LOOK_PAUSE_MS = 1  # The pause after ``LOOKS_MAX``.


class Browsing:
    """The browsers and filters of one queue."""

    def __init__(self, queue: "Queue") -> None:
        self.queue = queue
        self.browsers: list[Consumer] = []
        self.filters: list[Consumer] = []
        self.resting: list[Consumer] = []  # Filters at the end of the queue, during a drain.
        self.closing = 0  # The number of filters that end at the end of the queue.

    def clear(self) -> None:
        """Remove all consumers."""
        self.browsers = []
        self.filters = []

    def wake(self) -> None:
        """Drain the queue at the end of this turn, if browsers wait for messages."""
        if self.browsers:
            self.queue.wake()

    # --- Filters ----------------------------------------------------------------------------------

    def add_filter(self, consumer: Consumer) -> None:
        """Add a filter, which starts with the first ready message."""
        ready = self.queue.ready
        consumer.cursor = ready.new_cursor(False)
        ready.watch(consumer.cursor)
        self.filters.append(consumer)
        if consumer.auto_close:
            self.closing += 1

    def remove_filter(self, consumer: Consumer) -> None:
        """Remove a filter and its cursor."""
        if consumer.cursor is not None:
            self.queue.ready.unwatch(consumer.cursor)
        self.filters.remove(consumer)
        consumer.cursor = None
        if consumer.auto_close:
            self.closing -= 1

    def drain_selective(self) -> None:
        """Deliver ready messages to consumers, some of which do not accept every message."""
        queue = self.queue
        ready = queue.ready
        consumers = queue.round
        assert consumers is not None
        self.resting = []
        while ready.count and consumers.active:
            consumer = consumers.pick()
            if consumer is None:
                break
            if consumer.cursor is not None:
                message = self.seek(consumer)
                if message is not None:
                    ready.withdraw(message)
                    queue.dispatch(consumer, message)
                continue
            message = queue.dequeue()
            if message is None:
                break
            consumer = self.choose_consumer(consumer, message)
            if consumer is None:
                queue.reinsert(message)
            else:
                queue.dispatch(consumer, message)
        for consumer in self.resting:
            if consumer.is_parked and consumer.cursor is not None and queue.round is not None:
                queue.activate(consumer)
        self.resting = []
        if self.closing:
            self.end_closing()
        ready.sweep_if_stale()

    def choose_consumer(self, consumer: Consumer, message: Message) -> Consumer | None:
        """Return the consumer that accepts a message: ``consumer``, or another with room.

        A consumer without room for this message is parked. Otherwise smaller messages could always
        overtake it. Filters are skipped, since each seeks its own messages.
        """
        other: Consumer
        consumers = self.queue.round
        assert consumers is not None
        for other in [consumer, *consumers.active]:
            if other.is_parked or other.cursor is not None:
                continue
            if not other.is_selective:
                if other is consumer or other.has_room():
                    return other
                continue
            verdict = other.evaluate(message)
            if verdict == C_ACCEPTED and (other is consumer or other.has_room()):
                return other
            if verdict == C_NEVER:
                self.queue.start_filtering(other)
            if verdict == C_NO_ROOM:
                consumers.deactivate(other)
        return None

    def seek(self, consumer: Consumer) -> Message | None:
        """Return the next message that a filter accepts, in memory, without popping it.

        If there is none, or the filter has no room for it, deactivate the filter. A filter that
        has scanned all messages is ``resting`` until the end of the drain.
        """
        queue = self.queue
        ready = queue.ready
        consumers, cursor = queue.round, consumer.cursor
        assert consumers is not None
        assert cursor is not None
        while True:
            message = ready.peek_unseen(cursor)
            if message is None or cursor.looks >= LOOKS_MAX:
                self.end_scan(consumer, message is None)
                consumers.deactivate(consumer)
                self.resting.append(consumer)
                return None
            if message.deadline_ms and message.deadline_ms <= queue.counters.now_ms:
                ready.pass_over(cursor, message)  # `Queue.expire` removes it.
                continue
            paged = message.flags & C_PAGED
            if paged and not queue.load(message):
                ready.withdraw(message)
                continue
            cursor.looks += self.count_looks(message, paged)
            verdict = self.evaluate(consumer, message)
            if verdict == C_ACCEPTED:
                ready.pass_over(cursor, message)
                cursor.looks = 0
                return message
            if paged:
                queue.page_out(message)
            if verdict == C_NO_ROOM:
                self.end_scan(consumer, True)
                consumers.deactivate(consumer)
                return None
            ready.pass_over(cursor, message)

    def count_looks(self, message: Message, paged: int) -> int:
        """Return the number of looks that a message counts for."""
        looks = PAGED_LOOKS if paged else 1
        if message.data is not None and len(message.data) > message.body_size:
            looks += (len(message.data) - message.body_size) // LOOK_BYTES
        return looks

    def evaluate(self, consumer: Consumer, message: Message) -> int:
        """Return NEVER if a filter excludes a message, else the result of its ``evaluate``."""
        if consumer.no_local and consumer.publisher == message.publisher:
            return C_NEVER
        if consumer.selector is not None:
            contents: Contents | None = None
            if self.queue.vhost is not None:
                contents = self.queue.vhost.contents
            if contents is None or not consumer.selector.matches(contents.values(message)):
                return C_NEVER
        return consumer.evaluate(message)

    def end_scan(self, consumer: Consumer, complete: bool) -> None:
        """Complete a scan at the end of the queue, or without ``complete`` pause it."""
        queue = self.queue
        if consumer.cursor is not None:
            consumer.cursor.looks = 0
        if not complete:
            consumer.is_scanning = True
            has_scheduler = queue.vhost is not None
            if has_scheduler:
                resume_ms = queue.counters.now_ms + LOOK_PAUSE_MS
                queue.vhost.scheduler.put(("look", queue), resume_ms, self.continue_scans)
            else:
                queue.wake()
        elif consumer.is_scanning:
            consumer.is_scanning = False
            consumer.on_scan_end()

    def continue_scans(self, now_ms: int) -> int:
        """Continue the scans of the filters after a pause; return 0, for no further call."""
        self.queue.drain()
        for consumer in list(self.filters):
            if consumer.is_scanning and not consumer.has_room():
                self.end_scan(consumer, True)  # The consumer has no room.
        return 0

    def end_closing(self) -> None:
        """End auto-close filters that have reached the end of the queue."""
        for consumer in list(self.filters):
            cursor = consumer.cursor
            if (
                consumer.auto_close
                and cursor is not None
                and self.queue.ready.peek_unseen(cursor) is None
            ):
                self.queue.remove_consumer(consumer)
                consumer.on_queue_end()

    # --- Browsers ---------------------------------------------------------------------------------

    def add_browser(self, consumer: Consumer) -> None:
        """Show a consumer all ready messages and all arrivals; the caller drains the queue."""
        if consumer.no_local or consumer.selector is not None:
            consumer.is_filtering = True
        ready = self.queue.ready
        consumer.cursor = ready.new_cursor(True)
        ready.watch(consumer.cursor)
        self.browsers.append(consumer)
        if consumer.exclusive:
            self.queue.exclusive_consumer = consumer

    def remove_browser(self, consumer: Consumer) -> None:
        """Remove a browser and its cursor."""
        if consumer in self.browsers:
            self.browsers.remove(consumer)
            if consumer.cursor is not None:
                self.queue.ready.unwatch(consumer.cursor)
                consumer.cursor = None

    def show_all(self) -> None:
        """Deliver unseen messages to all browsers while they have room."""
        for consumer in list(self.browsers):
            if consumer.cursor is not None:
                self.show(consumer)

    def show(self, consumer: Consumer) -> None:
        """Deliver unseen messages to one browser while it has room."""
        queue = self.queue
        ready = queue.ready
        cursor = consumer.cursor
        assert cursor is not None
        while not queue.deleted:
            if not consumer.has_room():
                consumer.is_parked = True
                self.end_scan(consumer, True)
                return
            message = ready.peek_unseen(cursor)
            if message is None:
                self.end_scan(consumer, True)
                if consumer.auto_close:
                    queue.remove_browser(consumer)
                    consumer.on_queue_end()
                return
            paged = message.flags & C_PAGED
            if paged and not queue.load(message):
                ready.withdraw(message)
                continue
            verdict = C_ACCEPTED
            if consumer.is_selective or consumer.is_filtering:
                verdict = self.evaluate(consumer, message)
                if verdict == C_NO_ROOM:
                    consumer.is_parked = True  # The message waits for room.
                    self.end_scan(consumer, True)
                    return
            ready.pass_over(cursor, message)
            if verdict == C_NEVER:
                if paged:
                    queue.page_out(message)
                cursor.looks += self.count_looks(message, paged)
                if cursor.looks >= LOOKS_MAX:
                    self.end_scan(consumer, False)
                    return
                continue
            cursor.looks = 0
            queue.tally.deliver_no_ack += 1
            if consumer.queue is queue:
                consumer.deliver(message)
            else:
                consumer.queue.show_message(consumer, message)
            if paged and queue.counters.memory_used > queue.counters.memory_max:
                queue.page_out(message)
