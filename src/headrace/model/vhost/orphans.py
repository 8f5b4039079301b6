# SPDX-License-Identifier: Apache-2.0
"""Messages of deleted queues, on their way to the queues' alternate exchanges.

A queue that is deleted is out of use at once. What is ready in it is passed on in order: as many
as dead letters may be delivered in a millisecond (``counters.LETTERS_MAX``), the others a little
later, so that nobody else waits for them. Each portion is one transaction of the store. Until the
last one a durable queue stays defined, under a name of the broker's own; that is what it goes on
from after a restart.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from headrace.model.contents import ORPHANED
from headrace.model.vhost.definitions import QueueRecord

if TYPE_CHECKING:
    from collections.abc import Iterator

    from headrace.model.host import OrphanHost
    from headrace.model.queue.queue import Queue

ENDING = "amq.headrace.ending."  # Before the name of such a queue, in its definition.
PAUSE_MS = 1  # From one portion to the next.


class Orphans:
    """The deleted queues of one virtual host that hold messages for their alternate exchanges."""

    def __init__(self, vhost: OrphanHost) -> None:
        self.vhost = vhost
        self._queues: deque[Queue] = deque()  # The oldest first.

    def __len__(self) -> int:
        return len(self._queues)

    def __iter__(self) -> Iterator[Queue]:
        return iter(self._queues)

    def take(self, queue: Queue, user: str) -> bool:
        """Pass on what is ready in a queue that is deleted; ``user`` declared it.

        Return whether something is left for later. The queue is to be destroyed otherwise.
        """
        if queue.alternate_exchange is None or not self.vhost.dead_letters.takes(queue, ORPHANED):
            return False
        queue.retire()
        if self._pass_on(queue):
            return False
        if queue.durable:
            arguments = {**queue.arguments, "alternate-exchange": queue.alternate_exchange}
            record = QueueRecord(queue.id, ENDING + queue.name, False, arguments, user)
            self.vhost.definitions.keep_queue(record)
        self._queues.append(queue)
        self._await_turn()
        return True

    def adopt(self, queue: Queue) -> None:
        """Take up a queue that was ending when the broker stopped; it gets its messages next."""
        self._queues.append(queue)

    def restored(self) -> None:
        """The messages are there again: go on."""
        for queue in self._queues:
            queue.retire()
        if self._queues:
            self._await_turn()

    def close(self) -> None:
        """The virtual host is deleted, and everything with it."""
        queues, self._queues = self._queues, deque()
        for queue in queues:
            queue.destroy()

    def _await_turn(self) -> None:
        when_ms = self.vhost.counters.now_ms + PAUSE_MS
        self.vhost.scheduler.put(("orphans", self), when_ms, self._go_on)

    def _go_on(self, now_ms: int) -> int:
        """Pass some of them on; return when to go on, 0 when none is left."""
        while self._queues:
            if not self._pass_on(self._queues[0]):
                return now_ms + PAUSE_MS
            self.vhost.end_queue(self._queues.popleft())
        return 0

    def _pass_on(self, queue: Queue) -> bool:
        """Pass a portion on; tell whether it was the last."""
        counters = self.vhost.counters
        counters.begin_letters(counters.now_ms)
        for one in (queue, *(queue.lanes or {}).values()):
            counters.letters_left = one.orphan_some(max(0, counters.letters_left))
            if one.ready_count and not counters.letters_left:
                return False
        return True
