# SPDX-License-Identifier: Apache-2.0
"""Orphans: the messages of deleted queues that are rerouted to alternate exchanges.

A deleted queue cannot be used any more. Its ready messages are rerouted in order, at most
``counters.LETTERS_MAX`` in a millisecond, so that they do not delay other work. Each portion is one
store transaction. A durable queue keeps a definition under an internal name until its last message
is rerouted, so that rerouting resumes after a restart.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Protocol

from headrace.model.dead_letter_headers import ORPHANED
from headrace.model.host import Host
from headrace.model.vhost.definitions import QueueRecord

if TYPE_CHECKING:
    from collections.abc import Iterator

    from headrace.model.queue.queue import Queue
    from headrace.model.vhost.dead_lettering import DeadLetters
    from headrace.model.vhost.definitions import Definitions

ENDING_PREFIX = "amq.headrace.ending."  # Prefix of the internal names in the definitions.
PAUSE_MS = 1  # The pause between two portions.


class OrphanHost(Host, Protocol):
    """A virtual host that reroutes the messages of deleted queues."""

    definitions: Definitions
    dead_letters: DeadLetters

    def end_queue(self, queue: Queue) -> None:
        """Remove a deleted queue's remaining messages and its definition."""


class Orphans:
    """The deleted queues of one virtual host that still have messages for alternate exchanges."""

    def __init__(self, vhost: OrphanHost) -> None:
        self.vhost = vhost
        self._queues: deque[Queue] = deque()  # Oldest first.

    def __len__(self) -> int:
        return len(self._queues)

    def __iter__(self) -> Iterator[Queue]:
        return iter(self._queues)

    # Keeps 0-9-1/queue.delete#01, 0-9/queue.delete#01, 0-10/s179.
    def reroute(self, queue: Queue, user: str) -> bool:
        """Reroute the ready messages of a deleted queue to its alternate exchange.

        ``user`` declared the queue. Without an alternate exchange the messages are dropped.
        Return True if messages remain for later turns; otherwise the caller destroys the queue.
        """
        if queue.alternate_exchange is None or not self.vhost.dead_letters.has_target(
            queue, ORPHANED
        ):
            return False
        queue.retire()
        if self._reroute_portion(queue):
            return False
        if queue.durable:
            arguments = {**queue.arguments, "alternate-exchange": queue.alternate_exchange}
            record = QueueRecord(queue.id, ENDING_PREFIX + queue.name, False, arguments, user)
            self.vhost.definitions.keep_queue(record)
        self._queues.append(queue)
        self._schedule()
        return True

    def adopt(self, queue: Queue) -> None:
        """Register a recovered deleted queue, before its messages are recovered."""
        self._queues.append(queue)

    def resume(self) -> None:
        """Continue rerouting after the messages are recovered."""
        for queue in self._queues:
            queue.retire()
        if self._queues:
            self._schedule()

    def close(self) -> None:
        """Destroy all queues, because the virtual host is deleted."""
        queues, self._queues = self._queues, deque()
        for queue in queues:
            queue.destroy()

    def _schedule(self) -> None:
        due_ms = self.vhost.counters.now_ms + PAUSE_MS
        self.vhost.scheduler.put(("orphans", self), due_ms, self._reroute_next)

    def _reroute_next(self, now_ms: int) -> int:
        """Reroute some messages; return the time of the next call, 0 if all are rerouted."""
        while self._queues:
            if not self._reroute_portion(self._queues[0]):
                return now_ms + PAUSE_MS
            self.vhost.end_queue(self._queues.popleft())
        return 0

    def _reroute_portion(self, queue: Queue) -> bool:
        """Reroute one portion; return True if it was the last one."""
        counters = self.vhost.counters
        counters.begin_letters(counters.now_ms)
        for lane in (queue, *(queue.lanes or {}).values()):
            counters.letters_left = lane.orphan_some(max(0, counters.letters_left))
            if lane.ready_count and not counters.letters_left:
                return False
        return True
