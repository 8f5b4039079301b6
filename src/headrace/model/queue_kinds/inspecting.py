# SPDX-License-Identifier: Apache-2.0
"""Queues that look at what arrives: at a header, before they know what to do with it.

An ordinary queue hands octets from one socket to the next without a look. The kinds of queue that
depend on a header are subclasses of :class:`InspectingQueue`: there every arrival becomes a message
first (``looks``). This class itself serves what goes with most kinds:

Later. With ``holdOnPublishEnabled`` a message whose header ``x-qpid-not-valid-before`` says a time
is not ready before it; others pass. It keeps its place, and goes to it when its time has come.

Limits by Qpid's names. What somebody holds unsettled counts for these, so nothing is handed out at
once that there would be no room for.
"""

from typing import Any

import cython

if not cython.compiled:
    from headrace.model.message import GONE as C_GONE
    from headrace.model.message import PAGED as C_PAGED
    from headrace.model.message import Message
    from headrace.model.queue.dispatch import Consumer
    from headrace.model.queue.queue import Queue

from headrace.model.arguments.values import number
from headrace.model.queue.not_before import Later, due_ms

NOT_VALID_BEFORE = "x-qpid-not-valid-before"  # Milliseconds since 1970.
LOOK_OVERHEAD = 200  # Octets of memory that the kinds remember of each message.
DUE_MAX = 4096  # Messages that become ready in one go.


class InspectingQueue(Queue):
    """A queue that looks at each arrival when ``looks`` is set."""

    def __init__(self, name: str, **options: Any) -> None:
        Queue.__init__(self, name, **options)
        self.looks = False
        self.later: Any = None  # A Later, if messages may wait for their time.

    def shape(self, arguments: dict[str, Any]) -> None:
        """Learn, before any message, what the queue's arguments make of it."""
        if number(arguments.get("holdOnPublishEnabled", False)):
            self.later = Later()
            self.looks = True
        if number(arguments.get("x-qpid-maximum-message-size", 0)):
            self.looks = True

    # --- Arrivals ---------------------------------------------------------------------------

    def ready_consumer(self) -> Consumer | None:
        """Return a consumer that may have the next arrival unseen: none where it is looked at."""
        if self.looks or self.counts_unacked:
            return None
        return Queue.ready_consumer(self)

    def has_ready_consumer(self) -> bool:
        return Queue.ready_consumer(self) is not None

    def would_reject(self, body_size: int) -> bool:
        if self.counts_unacked:  # It would count whoever takes it.
            return self.limited and self.is_full_for(body_size)
        return Queue.would_reject(self, body_size)

    def weight(self, message: Message) -> int:
        if self.looks:
            return Queue.weight(self, message) + LOOK_OVERHEAD
        return Queue.weight(self, message)

    def header(self, message: Message, name: str) -> Any:
        """Return what a message says in a header; None when it says nothing, or is unreadable."""
        contents = None if self.vhost is None else self.vhost.contents
        if contents is None:
            return None
        paged = message.flags & C_PAGED
        if paged:
            try:
                self.store.load(message)
            except OSError:
                return None  # Whoever is to have it will find out.
        value = contents.header(message, name)
        if paged:
            self.store.page_out(message)
        return value

    def enqueue(self, message: Message) -> int:
        if self.guard is not None:
            self.guard.weigh(message)
        if self.later is not None and self.postpone(message, self.counters.now_ms):
            self.published += 1
            return 0
        return Queue.enqueue(self, message)

    def enqueue_in_place(self, message: Message, promised: bool = False) -> None:
        if self.later is not None and self.postpone(message, self.counters.now_ms):
            self.published += 1
            return
        Queue.enqueue_in_place(self, message, promised)

    def restore(self, message: Message, arrived_ms: int) -> None:
        if self.later is None or not self.postpone(message, arrived_ms):
            Queue.restore(self, message, arrived_ms)

    # --- Later ------------------------------------------------------------------------------

    def postpone(self, message: Message, arrived_ms: int) -> bool:
        """Let a message wait, if it says that it is not valid yet."""
        due = due_ms(self.header(message, NOT_VALID_BEFORE))
        if due <= self.counters.now_ms:
            return False
        if self.message_ttl_ms >= 0:
            self.set_deadline(message, arrived_ms)
        self.counters.memory_used += self.weight(message)
        if self.counters.memory_used > self.counters.memory_max:
            self.page_out(message)
        self.later.add(due, message)
        self.vhost.scheduler.put(("later", self), self.later.next_ms, self.come)
        return True

    def come(self, now_ms: int) -> int:
        """Let messages be ready whose time has come; return when the next one is due."""
        if self.deleted:
            return 0
        for message in self.later.take(now_ms, DUE_MAX):
            self.reinsert(message)
            if message.deadline_ms:
                self.schedule_expiry(message)
        self.drain()
        due: int = self.later.next_ms
        return due

    def hasten(self) -> None:
        """Let all be ready that wait for their time: the queue is purged, or ends."""
        if self.later is not None:
            for message in self.later.take_all():
                self.reinsert(message)

    def purge(self) -> int:
        """Drop every message that nobody holds; return how many there were."""
        self.hasten()
        return Queue.purge(self)

    def retire(self) -> None:
        self.hasten()
        Queue.retire(self)

    def destroy(self) -> int:
        if self.later is not None:
            self.hasten()
            self.vhost.scheduler.remove(("later", self))
        return Queue.destroy(self)

    # --- For the kinds ----------------------------------------------------------------------

    def is_ready(self, message: Message) -> bool:
        """Tell whether a message that is listed somewhere stands there for something."""
        return not message.flags & C_GONE and message.consumer is None
