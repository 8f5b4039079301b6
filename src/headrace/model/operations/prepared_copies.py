# SPDX-License-Identifier: Apache-2.0
"""The prepared copies of a job, which are not enqueued yet, and the messages that they replace.

The messages of the source are withdrawn. Their copies are stored in batches of some hundred, with
one transaction and one PREPARED record for each batch; without a decision the next start drops
them. The decision is one transaction for all batches and the settlement of the source's messages.
Once it is durable, the copies are enqueued slice by slice, with the seqs that they got when they
were prepared. If the broker stops in between, the next start recovers all copies.

Each copy needs ITEM bytes of memory and a few references, whatever its size. A transient message is
in memory once: its copy shares its data.
"""

from __future__ import annotations

import logging
from collections.abc import Generator, Iterable, Mapping
from struct import Struct
from typing import TYPE_CHECKING, NamedTuple

from headrace.model.contents import UnreadableError
from headrace.model.counters import memory_weight
from headrace.model.message import PAGED, PERSISTENT, SCRATCH, Message, new_message
from headrace.model.queue.delivery_count import HEADER as COUNT
from headrace.model.transaction.publishes import admit, unpage
from headrace.model.transaction.xid import JOB, Xid

if TYPE_CHECKING:
    from headrace.model.host import Host
    from headrace.model.queue.destination import Consumer
    from headrace.model.queue.queue import Queue

log = logging.getLogger(__name__)

#: A copy: store position, publisher, deadline, body size, address_len, flags, priority.
ITEM = Struct(">QQqIHBB")
ITEM_WEIGHT = 64  # Bytes of memory that count for a prepared copy.
SLICE = 512  # Messages enqueued or returned at a time.


class SelectedMessage(NamedTuple):
    """A message that a job has selected, with its copy for the target."""

    source: Message | None  # The withdrawn message; None if the source keeps it.
    copy: Message | None  # The copy in memory; None if the message is deleted.
    queue: Queue | None  # The target.
    lasting: bool  # True if the copy is persistent.
    paged: bool  # True if the message was paged out.


class CopyBatch:
    """The copies of one batch."""

    __slots__ = ("first_seq", "items", "loose", "queues", "withdrawn", "xid")

    def __init__(self) -> None:
        self.xid = b""  # Empty if none of its copies is stored.
        self.first_seq = 0  # The seq of the first copy; seqs are consecutive.
        self.items = bytearray()
        self.queues: list[Queue] = []  # The queue of each copy.
        self.loose: dict[int, Message] = {}  # Copies that are not stored.
        # Withdrawn messages; parallel to the copies, if there are any.
        self.withdrawn: list[Message] = []

    def __len__(self) -> int:
        return len(self.queues) or len(self.withdrawn)


class PreparedCopies:
    """All copies of one job."""

    def __init__(self, vhost: Host, source: Queue, holder: Consumer) -> None:
        """``holder`` is the consumer of the withdrawn messages."""
        self.vhost = vhost
        self.source = source
        self.shown = 0  # Messages moved or removed so far.
        self._holder = holder
        self._batches: list[CopyBatch] = []

    def prepare(self, selected: Iterable[SelectedMessage]) -> None:
        """Store the copies of a batch in one transaction."""
        store, counters = self.vhost.store, self.vhost.counters
        batch = CopyBatch()
        self._batches.append(batch)
        batch.first_seq = counters.next_seq
        seqs: list[int] = []
        store.begin()
        try:
            for source, copy, queue, lasting, paged in selected:
                if source is not None:
                    batch.withdrawn.append(source)
                if copy is not None and queue is not None:
                    copy.seq = counters.next_seq
                    counters.next_seq += 1
                    queue.pending_count += 1
                    batch.queues.append(queue)
                    position = 0
                    if lasting and queue.durable and not queue.deleted:
                        position = store.publish_message(copy, counters.now_ms, queue.id_bytes)
                    if position:
                        seqs.append(copy.seq)
                    elif source is None:
                        self._keep_loose(batch, copy, paged)
                    batch.items += pack_copy(copy, position)
            if seqs:
                # No other batch ever starts at this seq, whatever a crash leaves in the log.
                batch.xid = Xid(JOB, batch.first_seq.to_bytes(8, "big"), b"").encode()
                store.prepare(batch.xid, seqs, [])
        finally:
            store.commit()
        counters.memory_used += ITEM_WEIGHT * len(batch.queues)

    def _keep_loose(self, batch: CopyBatch, copy: Message, paged: bool) -> None:
        """Add a copy that is not stored, of a message that the source may lose."""
        counters = self.vhost.counters
        if paged or counters.memory_used > counters.memory_max:
            self.vhost.store.page_out(copy)
        batch.loose[len(batch.queues) - 1] = copy
        counters.memory_used += memory_weight(copy)

    def decide(self, facts: Mapping[bytes, bytes | None]) -> None:
        """Decide all batches in one transaction, with facts that were checked."""
        store, now_ms = self.vhost.store, self.vhost.counters.now_ms
        store.begin()
        try:
            for batch in self._batches:
                if batch.xid:
                    store.decide(batch.xid, 0, now_ms)
                store.settle_each(self.source.id, batch.withdrawn)
            for key, value in facts.items():
                self.vhost.facts.change(key, value)
        finally:
            store.commit()

    # --- After the decision -------------------------------------------------------------------

    def show(self) -> Generator[None, None, None]:
        """Enqueue the decided copies, in slices, once the decision is durable."""
        store = self.vhost.store
        batches, self._batches = self._batches, []
        batches.reverse()
        count = 0
        while batches:
            batch = batches.pop()
            store.begin()
            try:
                for i in range(len(batch)):
                    self._show_one(batch, i)
            finally:
                store.commit()
            self.vhost.counters.memory_used -= ITEM_WEIGHT * len(batch.queues)
            count += len(batch)
            self.shown += len(batch)
            if count >= SLICE:
                count = 0
                self.source.drain()
                yield
        # Removes the entries of removed messages from the source's lists.
        self.source.expire(self.vhost.counters.now_ms)
        self.source.drain()

    def _show_one(self, batch: CopyBatch, i: int) -> None:
        """Enqueue one copy and remove its original."""
        source = batch.withdrawn[i] if batch.withdrawn else None
        if batch.queues:
            queue = batch.queues[i]
            queue.pending_count -= 1
            try:
                copy = self._copy(batch, i, source)
            except OSError as error:
                log.error("a message for queue %r cannot be read and is lost: %s", queue, error)
            else:
                admit(copy, queue, self.vhost.store)
        if source is not None and source.consumer is self._holder:
            self.source.settle(source)

    def _copy(self, batch: CopyBatch, i: int, source: Message | None) -> Message:
        """Return a copy ready to be enqueued.

        Raises:
            OSError: the message cannot be read.
        """
        store = self.vhost.store
        copy = batch.loose.pop(i, None)
        if copy is not None:
            self.vhost.counters.memory_used -= memory_weight(copy)
            unpage(copy, store)
            copy.position = 0
            return copy
        copy = unpack_copy(batch.items, i)
        copy.seq = batch.first_seq + i
        if source is not None and not copy.position and source.flags & PAGED:
            store.load(source)
            copy.data, copy.parts = source.data, source.parts
            store.page_out(source)
        elif source is not None and not source.flags & PAGED and source.data is not None:
            copy.data, copy.parts = source.data, source.parts
        else:
            copy.flags |= PAGED
        if source is not None and source.deliveries and copy.data is not None:
            remove_delivery_count(self.vhost, copy)
        if copy.position:
            copy.flags |= PERSISTENT
        return copy

    # --- Undo ---------------------------------------------------------------------------------

    def undo(self) -> Generator[None, None, None]:
        """Drop the copies, and return the originals to the source."""
        count = 0
        batches, self._batches = self._batches, []
        batches.reverse()
        while batches:
            batch = batches.pop()
            self._drop(batch)
            for message in batch.withdrawn:
                self.return_to_source(message)
            count += len(batch)
            if count >= SLICE:
                count = 0
                self.source.drain()
                yield
        self.source.drain()

    def return_to_source(self, message: Message) -> None:
        """Return a withdrawn message to its position; the caller drains the queue afterwards."""
        if message.consumer is self._holder:
            self.source.requeue_now(message)

    def _drop(self, batch: CopyBatch) -> None:
        """Drop the copies of a batch."""
        store, counters = self.vhost.store, self.vhost.counters
        counters.memory_used -= ITEM_WEIGHT * len(batch.queues)
        store.begin()
        try:
            for i, queue in enumerate(batch.queues):
                queue.pending_count -= 1
                copy = batch.loose.get(i)
                if copy is not None:
                    counters.memory_used -= memory_weight(copy)
                    if copy.flags & SCRATCH:
                        store.release(copy)
                    continue
                position = ITEM.unpack_from(batch.items, ITEM.size * i)[0]
                if position and queue.deleted:
                    store.forget(queue.id, position)
                elif position:
                    store.settle(queue.id, batch.first_seq + i, position)
            if batch.xid:
                store.decide(batch.xid, 0, counters.now_ms)
        finally:
            store.commit()


def remove_delivery_count(vhost: Host, copy: Message) -> None:
    """Remove the redelivery count from a copy's headers."""
    if vhost.contents is None:
        return
    try:
        content = vhost.contents.read(copy)
        if COUNT in content.headers:
            headers = {name: value for name, value in content.headers.items() if name != COUNT}
            address = content.exchange, content.routing_key
            copy.data = vhost.contents.rewrite(copy, *address, headers, expires=True).data
    except UnreadableError:
        return


def pack_copy(copy: Message, position: int) -> bytes:
    """Return the fields of a copy besides its seq."""
    return ITEM.pack(
        position,
        copy.publisher,
        copy.deadline_ms,
        copy.body_size,
        copy.address_len,
        copy.flags & ~(PERSISTENT | PAGED | SCRATCH) & 0xFF,
        copy.priority,
    )


def unpack_copy(items: bytearray, i: int) -> Message:
    """Return the message that :func:`pack_copy` packed, without data."""
    position, publisher, deadline_ms, body_size, address_len, flags, priority = ITEM.unpack_from(
        items, ITEM.size * i
    )
    copy = new_message(None, address_len, body_size)
    copy.position = position
    copy.publisher = publisher
    copy.deadline_ms = deadline_ms
    copy.flags = flags
    copy.priority = priority
    return copy
