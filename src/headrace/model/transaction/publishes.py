# SPDX-License-Identifier: Apache-2.0
"""The publishes of a transaction, in order: messages with the queues of their routes.

The publishes are parallel lists, so that a publish needs memory for its message and three
references only.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, NamedTuple

import cython

if not cython.compiled:
    from headrace.model.counters import Counters, memory_weight
    from headrace.model.message import GONE as C_GONE
    from headrace.model.message import KIND_FILE as C_KIND_FILE
    from headrace.model.message import KIND_MASK as C_KIND_MASK
    from headrace.model.message import PAGED as C_PAGED
    from headrace.model.message import PERSISTENT as C_PERSISTENT
    from headrace.model.message import REDELIVERED as C_REDELIVERED
    from headrace.model.message import SCRATCH as C_SCRATCH
    from headrace.model.message import Message, copy_message

from headrace.model.queue_kinds.content_lanes import get_lane

if TYPE_CHECKING:
    from collections.abc import Iterator

    from headrace.model.ports import Store
    from headrace.model.queue.queue import Queue

log = logging.getLogger(__name__)


class Publish(NamedTuple):
    """A message and the queues of its route."""

    message: Message
    queues: tuple[Queue, ...]
    persistent: bool


class TransactionPublishes:
    """The publishes of one transaction."""

    __slots__ = ("files", "lost", "messages", "paged", "persistent", "queues")

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.queues: list[tuple[Queue, ...]] = []  # The queues of each message.
        self.persistent: list[bool] = []  # True for each message that is persistent.
        self.files = 0  # File messages.
        self.paged = 0  # Messages in the scratch log.
        self.lost = 0  # Messages lost on a damaged disk.

    def __len__(self) -> int:
        return len(self.messages)

    def __iter__(self) -> Iterator[Publish]:
        for publish in zip(self.messages, self.queues, self.persistent, strict=True):
            yield Publish(*publish)

    def add(self, message: Message, queues: tuple[Queue, ...], persistent: bool) -> None:
        """Append a publish."""
        if message.flags & C_KIND_MASK == C_KIND_FILE:
            self.files += 1
        self.messages.append(message)
        self.queues.append(queues)
        self.persistent.append(persistent)

    def routes(self) -> list[tuple[Queue, ...]]:
        """Return the queues of each run of messages with the same route."""
        routes: list[tuple[Queue, ...]] = []
        last: tuple[Queue, ...] | None = None
        for queues in self.queues:
            if queues is not last:
                routes.append(queues)
                last = queues
        return routes

    def unpage(self, store: Store) -> None:
        """Load the messages that were paged out during the transaction.

        Raises:
            OSError: a message cannot be read.
        """
        if self.paged:
            for message in self.messages:
                unpage(message, store)
            self.paged = 0

    def abandon(self, store: Store) -> None:
        """Release the scratch space of messages that are not published."""
        if self.paged:
            for message in self.messages:
                if message.flags & C_SCRATCH:
                    store.release(message)
                    message.flags &= ~C_SCRATCH & 0xFF
            self.paged = 0

    def store_all(self, store: Store, counters: Counters) -> list[int]:
        """Append all messages to the store, inside a store transaction, and set their seqs.

        Returns:
            The seqs of the stored messages.
        """
        kept = []
        count = len(self.messages)
        queues: tuple[Queue, ...] | None = None
        ids = b""
        for i in range(count):
            message = self.messages[i]
            in_scratch = message.flags & C_SCRATCH
            if in_scratch and not self.try_unpage(i, store):
                continue
            message.seq = counters.next_seq
            counters.next_seq += 1
            if self.queues[i] is not queues:
                queues = self.queues[i]
                ids = b"".join([q.id_bytes for q in queues if q.durable and not q.deleted])
            for queue in queues:
                queue.pending_count += 1
            if ids and self.persistent[i]:
                message.position = store.publish_message(message, counters.now_ms, ids)
            if message.position:
                message.flags |= C_PERSISTENT
                kept.append(message.seq)
                if in_scratch:
                    store.page_out(message)
        self.paged = 0
        return kept

    def try_unpage(self, i: int, store: Store) -> bool:
        """Load one message; if that fails, count it as lost and return False."""
        try:
            unpage(self.messages[i], store)
        except OSError as error:
            log.error("a message of a transaction cannot be read and is lost: %s", error)
            self.lost += 1
            self.queues[i] = ()
            self.messages[i] = new_placeholder()
            return False
        return True

    def charge_memory(self, store: Store, counters: Counters) -> None:
        """Add the memory of all messages to the count; page them out if memory is short."""
        count = len(self.messages)
        for i in range(count):
            message = self.messages[i]
            crowded = counters.memory_used > counters.memory_max
            if message.position and crowded and message.flags & C_KIND_MASK != C_KIND_FILE:
                store.page_out(message)
            counters.memory_used += memory_weight(message)

    def admit(self, start: int, end: int, store: Store, counters: Counters) -> int:
        """Enqueue the messages ``[start, end)``; return the number of lost ones.

        Queues do not reject them for their length.
        """
        lost = 0
        for i in range(start, end):
            message = self.messages[i]
            counters.memory_used -= memory_weight(message)
            for queue in self.queues[i]:
                queue.pending_count -= 1
                if not admit(message, queue, store):
                    lost += 1
            counters.count_publish(message.body_size)
        return lost

    def drop(self, start: int, end: int, store: Store, counters: Counters) -> None:
        """Drop the messages ``[start, end)``."""
        for i in range(start, end):
            message = self.messages[i]
            counters.memory_used -= memory_weight(message)
            for queue in self.queues[i]:
                queue.pending_count -= 1
                disown(message, queue, store)

    def free(self, start: int, end: int) -> None:
        """Free the memory of the messages ``[start, end)``, without changing any index."""
        placeholder = new_placeholder()
        for i in range(start, end):
            self.messages[i] = placeholder


def new_placeholder() -> Message:
    """Return an empty placeholder message."""
    return Message()


def unpage(message: Message, store: Store) -> None:
    """Load a message from the scratch log.

    Raises:
        OSError: the message cannot be read.
    """
    if message.flags & C_SCRATCH:
        store.load(message)
        store.release(message)
        message.flags &= ~C_SCRATCH & 0xFF


def admit(message: Message, queue: Queue, store: Store) -> bool:
    """Enqueue a message that was counted as pending; return False if it cannot be read."""
    if queue.deleted:
        disown(message, queue, store)
        return True
    kept = message.position != 0 and queue.durable and not queue.is_stream
    if message.flags & C_PAGED and not kept:
        try:
            store.load(message)
        except OSError as error:
            log.error("a message of a transaction cannot be read and is lost: %s", error)
            disown(message, queue, store)
            return False
    message_copy = copy_message(message)
    message_copy.seq = message.seq
    message_copy.flags = message.flags & ~(C_REDELIVERED | C_SCRATCH | C_GONE) & 0xFF
    if kept:
        message_copy.position = message.position
    else:
        message_copy.flags &= ~C_PERSISTENT & 0xFF
    kind = message.flags & C_KIND_MASK
    lane: Queue = queue
    if kind >= C_KIND_FILE:
        lane = get_lane(queue, kind)
    lane.enqueue_in_place(message_copy, True)
    if queue.is_stream:
        disown(message, queue, store)
    return True


def disown(message: Message, queue: Queue, store: Store) -> None:
    """Remove a pending message from the store for a queue that does not get it."""
    if not message.position or not queue.durable:
        return
    if queue.deleted:
        store.forget(queue.id, message.position)
    else:
        store.settle(queue.id, message.seq, message.position)
