# SPDX-License-Identifier: Apache-2.0
"""Queues that inspect a header of each arrival.

A classic queue passes bytes from one socket to the next without reading them. Where the order or
the contents of a queue depend on a header, every arrival first becomes a message
(``is_inspecting``): in sorted and fair-share queues, which are this class with a ready list of that
kind, and in the derived classes. This class also implements two options that most kinds can have:

Not valid before. With ``holdOnPublishEnabled`` a message whose header ``x-qpid-not-valid-before``
names a time is not ready before that time. Later messages may be delivered first; the message
keeps its position.

Limits by Qpid's names. Unacked messages count for these limits, so the queue does not deliver an
arrival beyond them at once.
"""

from typing import TYPE_CHECKING

import cython

if not cython.compiled:
    from headrace.model.message import Message
    from headrace.model.queue.destination import Consumer
    from headrace.model.queue.queue import Queue
    from headrace.model.queue_kinds.header_reader import HeaderReader

from headrace.model.arguments.values import number
from headrace.model.queue.not_before import TimedMessages, parse_time_ms
from headrace.model.queue_kinds.fair_share import FairShareList
from headrace.model.queue_kinds.sorted import SortedList

if TYPE_CHECKING:
    from typing import Unpack

    from headrace.model.queue.destination import Options

NOT_VALID_BEFORE = "x-qpid-not-valid-before"  # Milliseconds since 1970.
SORT_KEY = "qpid.queue_sort_key"
SHARES = ("qpid.fairshare", "x-qpid-fairshare", *(f"qpid.fairshare-{n}" for n in range(10)))
INSPECTION_OVERHEAD = 200  # Bytes of memory of each message for keys and heaps.
DUE_MAX = 4096  # Messages that become ready in one call.


class InspectingQueue(Queue):
    """A queue that inspects each arrival while ``is_inspecting`` is set."""

    def __init__(self, name: str, **options: "Unpack[Options]") -> None:
        Queue.__init__(self, name, **options)
        self.is_inspecting = False
        self.reader = HeaderReader(self.store, self.vhost)
        self.not_yet_valid: TimedMessages | None = None  # Messages that are not valid yet.

    def set_up(self, arguments: dict[str, object]) -> None:
        """Set up the ready list and the inspection from the arguments; called once, while empty."""
        if number(arguments.get("holdOnPublishEnabled", False)):
            self.not_yet_valid = TimedMessages()
            self.is_inspecting = True
        if number(arguments.get("x-qpid-maximum-message-size", 0)):
            self.is_inspecting = True
        if number(arguments.get(SORT_KEY, 0)):
            self.ready = SortedList(self.reader, str(arguments[SORT_KEY]))
            self.is_inspecting = True
        for name in SHARES:
            if number(arguments.get(name, 0)):
                self.ready = FairShareList(arguments)
                self.is_inspecting = True
                break

    # --- Arrivals ---------------------------------------------------------------------------

    def ready_consumer(self) -> Consumer | None:
        """Return a consumer with room for the next arrival; None if arrivals are inspected."""
        if self.is_inspecting or (self.limits is not None and self.limits.counts_unacked):
            return None
        return Queue.ready_consumer(self)

    def has_ready_consumer(self) -> bool:
        return Queue.ready_consumer(self) is not None

    def would_reject(self, body_size: int) -> bool:
        # A delivered message would count as unacked.
        if self.limits is not None and self.limits.counts_unacked:
            return self.is_full_for(body_size)
        return Queue.would_reject(self, body_size)

    def weight(self, message: Message) -> int:
        if self.is_inspecting:
            return Queue.weight(self, message) + INSPECTION_OVERHEAD
        return Queue.weight(self, message)

    def enqueue(self, message: Message) -> int:
        if self.check_and_postpone(message):
            return 0
        return Queue.enqueue(self, message)

    def enqueue_in_place(self, message: Message, promised: bool = False) -> None:
        if self.not_yet_valid is not None and self.postpone(message, self.counters.now_ms):
            self.tally.publish += 1
            return
        Queue.enqueue_in_place(self, message, promised)

    def restore(self, message: Message, arrived_ms: int) -> None:
        if self.not_yet_valid is None or not self.postpone(message, arrived_ms):
            Queue.restore(self, message, arrived_ms)

    def remove(self, message: Message) -> None:
        self.ready.on_removal(message)
        Queue.remove(self, message)

    # --- Not valid before -------------------------------------------------------------------

    def check_and_postpone(self, message: Message) -> bool:
        """Check the size of an arrival; postpone it, and return True, if it is not valid yet."""
        if self.guard is not None:
            self.guard.check_size(message)
        if self.not_yet_valid is None or not self.postpone(message, self.counters.now_ms):
            return False
        self.tally.publish += 1
        return True

    def postpone(self, message: Message, arrived_ms: int) -> bool:
        """Postpone a message that is not valid yet; return False if it is valid."""
        if self.not_yet_valid is None:
            return False
        valid_ms = parse_time_ms(self.reader.read(message, NOT_VALID_BEFORE))
        if valid_ms <= self.counters.now_ms:
            return False
        if self.message_ttl_ms >= 0:
            self.set_deadline(message, arrived_ms)
        self.counters.memory_used += self.weight(message)
        if self.counters.memory_used > self.counters.memory_max:
            self.page_out(message)
        self.not_yet_valid.add(valid_ms, message)
        self.vhost.scheduler.put(("later", self), self.not_yet_valid.next_ms, self.make_valid)
        return True

    def make_valid(self, now_ms: int) -> int:
        """Make due messages ready; return the time of the next one, 0 if none waits."""
        if self.deleted or self.not_yet_valid is None:
            return 0
        for message in self.not_yet_valid.pop_due(now_ms, DUE_MAX):
            self.reinsert(message)
            if message.deadline_ms:
                self.schedule_expiry(message)
        self.drain()
        return self.not_yet_valid.next_ms

    def make_all_valid(self) -> None:
        """Make all messages ready, because the queue is purged or deleted."""
        if self.not_yet_valid is not None:
            for message in self.not_yet_valid.pop_all():
                self.reinsert(message)

    def held_count(self) -> int:
        return 0 if self.not_yet_valid is None else len(self.not_yet_valid)

    def purge(self) -> int:
        self.make_all_valid()
        return Queue.purge(self)

    def retire(self) -> None:
        self.make_all_valid()
        Queue.retire(self)

    def destroy(self) -> int:
        if self.not_yet_valid is not None:
            self.make_all_valid()
            self.vhost.scheduler.remove(("later", self))
        return Queue.destroy(self)
