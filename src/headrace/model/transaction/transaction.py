# SPDX-License-Identifier: Apache-2.0
"""A transaction: publishes, settlements and facts that happen together or not at all.

A local transaction is one object, which is reset by each commit and rollback. The messages that it
settles stay unacked by the client until the commit. The transaction of a branch owns the messages
that it settles: no session has them any longer, and a rollback returns them to their queues.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import cython

from headrace.model.arguments.values import stores_all
from headrace.model.errors import IllegalState, ResourceError
from headrace.model.queue.destination import Consumer
from headrace.model.transaction.publishes import TransactionPublishes

if not cython.compiled:
    from headrace.model.counters import MESSAGE_OVERHEAD as C_MESSAGE_OVERHEAD
    from headrace.model.counters import PAGED_WEIGHT as C_PAGED_WEIGHT
    from headrace.model.message import KIND_FILE as C_KIND_FILE
    from headrace.model.message import KIND_MASK as C_KIND_MASK

if TYPE_CHECKING:
    from collections.abc import Iterable

    from headrace.model.host import TransactionHost
    from headrace.model.interceptor.interception import Interception, Source
    from headrace.model.message import Message
    from headrace.model.queue.queue import Queue
    from headrace.model.vhost.publishing_ids import PublishingId

BYTES_MAX = 256 << 20  # Bytes of the publishes of one transaction.
ITEMS_MAX = 1 << 18  # Publishes and settlements of one transaction.

# The outcomes of a delivery, for the gateway too.
ACCEPT = 0  # Remove the message.
REQUEUE = 1  # Return it to its position.
DISCARD = 2  # Dead-letter it.


class Settle(NamedTuple):
    """A delivery and its outcome."""

    queue: Queue
    message: Message
    outcome: int


class Transaction:
    """The pending operations of a transaction."""

    def __init__(self, vhost: TransactionHost, *, owns_messages: bool = False) -> None:
        """With ``owns_messages``, a session no longer has the messages that it settled."""
        self.vhost = vhost
        self.counters = vhost.counters
        self.owns_messages = owns_messages
        self.is_ended = False  # True after the outcome; later operations are undone immediately.
        self.publishes = TransactionPublishes()
        # True if errors are recorded in ``error_text`` instead of closing the channel.
        self.counts_publishes = False
        self.publish_count = 0  # Publishes received, if ``counts_publishes``.
        self.error_text = ""  # The error of the first invalid publish.
        self.error_index = -1  # The index of that publish.
        self.settles: list[Settle] = []
        self.facts: dict[bytes, bytes | None] = {}
        self.numbers: dict[int, PublishingId] = {}  # Publishing ids by index of the publish.
        # Interceptions by index of the publish.
        self.interceptions: dict[int, tuple[Interception, Source]] = {}
        self.size = 0  # Bytes of all publishes.
        self.memory = 0  # The bytes that count as memory in use.
        self._holders: dict[Queue, Consumer] = {}

    def __bool__(self) -> bool:
        return bool(self.publishes or self.settles or self.facts)

    def publish(self, message: Message, queues: Iterable[Queue], persistent: bool) -> None:
        """Add a publish with the queues of its route.

        Raises:
            ResourceError: the transaction is too large.
        """
        if self.is_ended:
            return
        kind = message.flags & C_KIND_MASK
        size = C_MESSAGE_OVERHEAD
        if message.data is not None:
            size += len(message.data)
        if kind >= C_KIND_FILE or message.parts is not None:
            size += message.body_size
        self._check_room(size)
        self.size += size
        if kind >= C_KIND_FILE:
            if kind == C_KIND_FILE:
                self.vhost.files.add_reference(message.data or b"")
            queues = [q for q in queues if not q.is_stream]
        targets = tuple(queues)
        for queue in targets:
            persistent = persistent or stores_all(queue.arguments)
        self.publishes.add(message, targets, persistent)
        counters = self.counters
        crowded = counters.memory_used + size > counters.memory_max
        # Otherwise a large transaction would block all publishers.
        if (
            crowded
            and self.owns_messages
            and kind < C_KIND_FILE
            and self.vhost.store.page_out(message)
        ):
            self.publishes.paged += 1
            size = C_PAGED_WEIGHT
        self.memory += size
        counters.memory_used += size

    def count_publish(self, error_text: str) -> None:
        """Count a publish; ``error_text`` is its error, if any."""
        if error_text and self.error_index < 0:
            self.error_text, self.error_index = error_text, self.publish_count
        self.publish_count += 1

    def number(self, publishing_id: PublishingId) -> None:
        """Set the publishing id of the next publish; the commit drops a duplicate.

        Raises:
            IllegalState: the transaction is a branch's, which cannot change facts.
            ResourceError: there are too many publishers.
        """
        if self.owns_messages:
            raise IllegalState(
                "a message with a publishing id cannot be part of a distributed transaction"
            )
        self.vhost.publishing_ids.check(publishing_id[0])
        self.numbers[len(self.publishes)] = publishing_id

    def intercept(self, interception: Interception, source: Source) -> None:
        """Set the observers and traces that the next publish passes at the commit."""
        self.interceptions[len(self.publishes)] = interception, source

    def settle(self, queue: Queue, message: Message, outcome: int) -> None:
        """Add the outcome of a delivery: ACCEPT, REQUEUE or DISCARD.

        Raises:
            ResourceError: the transaction is too large.
        """
        if not self.is_ended:
            self._check_room(0)
        settle = Settle(queue, message, outcome)
        if self.owns_messages:
            message.consumer = self.holder(queue)
        if not self.is_ended:
            self.settles.append(settle)
        elif self.owns_messages:
            self._requeue([settle])

    def fact(self, key: bytes, value: bytes | None) -> None:
        """Add a change of a fact (:mod:`headrace.model.keyvalue`); the last one of a key counts.

        Raises:
            IllegalState: the transaction is a branch's, which cannot change facts.
            ResourceError: the fact or the transaction is too large.
        """
        if self.owns_messages:
            raise IllegalState("the work of a transaction branch changes no facts")
        self.vhost.facts.check(key, value)
        if key not in self.facts:
            self._check_room(0)
        self.facts[key] = value

    def check_room(self, settles: int) -> None:
        """Check that ``settles`` more settlements fit.

        Raises:
            ResourceError: the settlements do not fit.
        """
        if len(self.publishes) + len(self.settles) + settles > ITEMS_MAX:
            raise ResourceError(f"a transaction holds more than {ITEMS_MAX} publishes and acks")

    def holder(self, queue: Queue) -> Consumer:
        """Return the consumer of the messages that this transaction owns in a queue."""
        holder = self._holders.get(queue)
        if holder is None:
            holder = self._holders[queue] = Consumer(queue, "", False)
        return holder

    def commit(self) -> int:
        """Execute all operations in one store transaction, and reset this one.

        The commit is durable once the store's ``synced`` has reached the resulting ``appended``.
        Return how many times a queue rejected a message. A prepared branch has no rejections.

        Raises:
            ResourceError: the disk is full; nothing was done.
        """
        store = self.vhost.store
        if store.full and self.publishes:
            raise ResourceError("the disk is full; nothing was committed")
        facts, numbers, interceptions = self.facts, self.numbers, self.interceptions
        publishing_ids = self.vhost.publishing_ids
        refused = 0
        publishes, settles = self.detach()
        publishes.unpage(store)
        store.begin()
        try:
            for index, (message, queues, persistent) in enumerate(publishes):
                publishing_id = numbers.get(index) if numbers else None
                if publishing_id is not None and publishing_ids.is_duplicate(publishing_id):
                    continue
                alive = [queue for queue in queues if not queue.deleted]
                intercepted = interceptions.get(index) if interceptions else None
                if intercepted is not None:
                    refused += intercepted[0].publish(
                        message,
                        alive,
                        persistent,
                        publishing_id=publishing_id,
                        source=intercepted[1],
                        in_transaction=True,
                    )
                elif alive and publishing_id is not None:
                    refused += self._publish_once(message, alive, persistent, publishing_id)
                elif alive:
                    refused += self.vhost.deliver(
                        message, alive, persistent, promised=self.owns_messages
                    )
            # Interceptions count their own.
            self.vhost.counters.published += len(publishes) - len(interceptions)
            settle_all(settles)
            for key, value in facts.items():
                self.vhost.facts.change(key, value)
        finally:
            store.commit()
        self.release_files(publishes)
        return refused

    def forget(self) -> None:
        """Discard all operations; settled messages stay unacked by their client."""
        self.release_files(self.detach()[0])

    def undo(self) -> None:
        """Discard all operations; settled messages return to their queues."""
        publishes, settles = self.detach()
        publishes.abandon(self.vhost.store)
        self.release_files(publishes)
        self._requeue(settles)

    def release_files(self, publishes: TransactionPublishes) -> None:
        """Remove this transaction's references to the files of detached publishes."""
        if not publishes.files:
            return
        for message, _, _ in publishes:
            if message.flags & C_KIND_MASK == C_KIND_FILE and message.data is not None:
                self.vhost.files.remove_reference(message.data)

    def detach(self) -> tuple[TransactionPublishes, list[Settle]]:
        """Return the publishes and settlements, and reset the transaction."""
        operations = self.publishes, self.settles
        self.counters.memory_used -= self.memory
        self.publishes, self.settles = TransactionPublishes(), []
        self.size = self.memory = 0
        self._holders = {}
        self.facts = {}
        self.numbers = {}
        self.interceptions = {}
        return operations

    def _check_room(self, size: int) -> None:
        if self.size + size > BYTES_MAX:
            raise ResourceError(f"a transaction holds more than {BYTES_MAX} bytes")
        if len(self.publishes) + len(self.settles) + len(self.facts) >= ITEMS_MAX:
            raise ResourceError(f"a transaction holds more than {ITEMS_MAX} publishes and acks")

    def _publish_once(
        self, message: Message, queues: list[Queue], persistent: bool, publishing_id: PublishingId
    ) -> int:
        """Enqueue a message with a new publishing id; return how many queues refused it.

        If a queue refuses the message, no queue gets it, and the id may be used again.
        """
        refusing = [queue for queue in queues if queue.would_reject(message.body_size)]
        if refusing:
            self.vhost.publishing_ids.refuse(publishing_id)
            self.vhost.deliver(message, refusing, persistent)
            return len(refusing)
        is_stored = any(queue.is_stream or (persistent and queue.durable) for queue in queues)
        self.vhost.deliver(message, queues, persistent)
        self.vhost.publishing_ids.record(publishing_id, is_stored)
        return 0

    def _requeue(self, settles: Iterable[Settle]) -> None:
        settle_all([Settle(queue, message, REQUEUE) for queue, message, _ in settles])


def settle_all(settles: Iterable[Settle]) -> None:
    """Apply the outcomes of deliveries, then drain their queues."""
    changed_queues: dict[Queue, None] = {}
    for queue, message, outcome in settles:
        changed_queues[queue] = None
        if outcome == ACCEPT:
            queue.settle(message)
        elif outcome == REQUEUE:
            queue.requeue(message)
        else:
            queue.discard(message)
    for queue in changed_queues:
        queue.drain()
