# SPDX-License-Identifier: Apache-2.0
"""Consumers that read a queue without popping its head: browsers, and consumers that filter.

Browsing. A browser gets messages at their positions, and acquires none.

Filtering. A consumer with a selector or no-local acquires messages from the middle of the queue. It
evaluates each message once, and again after a requeue. After ``LOOKS_MAX`` messages in a row that
it does not accept, fewer large ones, it continues ``LOOK_PAUSE_MS`` later.

Browsers and filters have a cursor, which the ready list keeps up to date.
"""

from typing import TYPE_CHECKING

import cython

if not cython.compiled:
    from headrace.model.message import PAGED as C_PAGED
    from headrace.model.message import Message
    from headrace.model.queue.destination import Consumer

if TYPE_CHECKING:
    from headrace.model.contents import Contents
    from headrace.model.queue.queue import Queue

LOOKS_MAX = 512  # Looks of one cursor in a row; a message passed over counts for at least one.
PAGED_LOOKS = 16  # Looks that a message loaded from the disk counts for.
LOOK_BYTES = 1024  # Bytes of properties and headers that count for one look more.
LOOK_PAUSE_MS = 1  # Pause after ``LOOKS_MAX``.


class Browsing:
    """The browsers and filters of one queue."""

    def __init__(self, queue: "Queue") -> None:
        self.queue = queue
        self.browsers: list[Consumer] = []
        self.filters: list[Consumer] = []
        self.resting: list[Consumer] = []  # Filters at the end of the queue, during a drain.
        self.closing = 0  # The number of filters that end at the end of the queue.

    def clear(self) -> None:
        """Forget all consumers."""
        self.browsers = []
        self.filters = []

    def wake(self) -> None:
        """Drain the queue at the end of this turn, if browsers wait for messages."""
        if self.browsers:
            self.queue.wake()

    # --- Filters ----------------------------------------------------------------------------------

    def add_filter(self, consumer: Consumer) -> None:
        """Let a consumer filter, from the first ready message on."""
        ready = self.queue.ready
        consumer.cursor = ready.new_cursor(False)
        ready.watch(consumer.cursor)
        self.filters.append(consumer)
        if consumer.auto_close:
            self.closing += 1

    def remove_filter(self, consumer: Consumer) -> None:
        """Forget a consumer that filters."""
        if consumer.cursor is not None:
            self.queue.ready.unwatch(consumer.cursor)
        self.filters.remove(consumer)
        consumer.cursor = None
        if consumer.auto_close:
            self.closing -= 1

    def drain_selective(self) -> None:
        """Deliver ready messages where some consumers do not take every message."""
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
            if consumer.parked and consumer.cursor is not None and queue.round is not None:
                queue.activate(consumer)
        self.resting = []
        if self.closing:
            self.end_closing()
        ready.sweep_if_stale()

    def choose_consumer(self, consumer: Consumer, message: Message) -> Consumer | None:
        """Return the consumer that accepts a message: ``consumer``, or another with room.

        A consumer without room for this message is parked, so that smaller messages do not overtake
        the message for ever. Filters are skipped, since each seeks its own messages.
        """
        other: Consumer
        consumers = self.queue.round
        assert consumers is not None
        for other in [consumer, *consumers.active]:
            if other.parked or other.cursor is not None:
                continue
            if not other.selective:
                if other is consumer or other.can_take():
                    return other
                continue
            verdict = other.accepts(message)
            if verdict == 1 and (other is consumer or other.can_take()):
                return other
            if verdict == 0:
                self.queue.start_filtering(other)
            if verdict == 2:
                consumers.deactivate(other)
        return None

    def seek(self, consumer: Consumer) -> Message | None:
        """Return the next message that a filter accepts, in memory, without popping it.

        Without such a message the consumer leaves the round: parked without room, or resting.
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
                ready.pass_over(cursor, message)  # It expires soon.
                continue
            paged = message.flags & C_PAGED
            if paged and not queue.load(message):
                ready.withdraw(message)
                continue
            cursor.looks += self.count_looks(message, paged)
            verdict = self.evaluate(consumer, message)
            if verdict == 1:
                ready.pass_over(cursor, message)
                cursor.looks = 0
                return message
            if paged:
                queue.page_out(message)
            if verdict == 2:
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
        """Return 1 if a consumer accepts a message, 0 if never, 2 if it lacks room for it now."""
        if consumer.no_local and consumer.publisher == message.publisher:
            return 0
        if consumer.selector is not None:
            contents: Contents | None = None
            if self.queue.vhost is not None:
                contents = self.queue.vhost.contents
            if contents is None or not consumer.selector.matches(contents.values(message)):
                return 0
        return consumer.accepts(message)

    def end_scan(self, consumer: Consumer, complete: bool) -> None:
        """End a scan at the end of the queue (``complete``), or interrupt it for a pause."""
        queue = self.queue
        if consumer.cursor is not None:
            consumer.cursor.looks = 0
        if not complete:
            consumer.scanning = True
            has_scheduler = queue.vhost is not None
            if has_scheduler:
                due_ms = queue.counters.now_ms + LOOK_PAUSE_MS
                queue.vhost.scheduler.put(("look", queue), due_ms, self.continue_scans)
            else:
                queue.wake()
        elif consumer.scanning:
            consumer.scanning = False
            consumer.on_scan_end()

    def continue_scans(self, now_ms: int) -> int:
        """Continue the scans of the filters."""
        self.queue.drain()
        for consumer in list(self.filters):
            if consumer.scanning and not consumer.can_take():
                self.end_scan(consumer, True)  # The consumer has no room.
        return 0

    def end_closing(self) -> None:
        """End auto-close consumers that have reached the end of the queue."""
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
            consumer.filters = True
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
            if not consumer.can_take():
                consumer.parked = True
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
            verdict = 1
            if consumer.selective or consumer.filters:
                verdict = self.evaluate(consumer, message)
                if verdict == 2:
                    consumer.parked = True  # The message waits for room.
                    self.end_scan(consumer, True)
                    return
            ready.pass_over(cursor, message)
            if verdict == 0:
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
                consumer.queue.present(consumer, message)
            if paged and queue.counters.memory_used > queue.counters.memory_max:
                queue.page_out(message)
