# SPDX-License-Identifier: Apache-2.0
"""The lease of a queue's messages by a spool, for brokers without leases.

The driver consumes messages and appends them to a durable spool. Spark's offsets are numbers in the
spool, and tasks read ranges of it. Messages are acked when their batch is committed, so a lost
spool loses no messages. After a restart the broker redelivers the unacked messages. The lease
recognises a spooled message by a digest of its bytes, and the message keeps its number.
"""

from __future__ import annotations

from collections import defaultdict, deque
from typing import TYPE_CHECKING, Final

from headrace.client.blocking.loop_thread import LOOP
from headrace.client.bulk.consumer import PREFETCH_MAX, BulkConsumer, DrainedMessage
from headrace.client.errors import (
    ChannelClosed,
    ConnectionClosed,
    ConnectionLost,
    ConsumerCancelled,
    NotFound,
)
from headrace.columns.errors import GroupInUseError
from headrace.columns.options.kinds import OptionError
from headrace.columns.read.spool import Spool, SpoolEntry, SpoolError, digest
from headrace.columns.runtime.connections import Purpose, run_with_retry
from headrace.spark.queue.planner import QueueLeaseState

if TYPE_CHECKING:
    from headrace.client import blocking
    from headrace.columns.options.options import ReadOptions

BATCH_MAX: Final = PREFETCH_MAX // 3  # Two batches are unacked while a third is received.
RECEIVE_MAX: Final = 1000  # Messages that are appended between two checks of the limits.
EMPTY_WAIT_S: Final = 0.2  # The wait for a message after which the queue counts as empty.
READY_WAIT_S: Final = 5.0  # The wait for a message that the broker reports as ready.


class SpoolLease:
    """The lease of one queue for one group in a spool; it implements `planner.QueueLease`."""

    rejects = 0  # A spool has no rejects in advance.

    def __init__(self, options: ReadOptions) -> None:
        self.options = options
        self._spool: Spool | None = None
        self._broker = ""
        self._consumer: BulkConsumer | None = None
        self._connection: blocking.Connection | None = None
        # Delivery tag and spool number of each unacked message, in order.
        self._tags: deque[tuple[int, int]] = deque()
        # Spool numbers of messages that the broker may redeliver, by digest.
        self._known_numbers: dict[bytes, deque[int]] = {}
        # Messages that are settled in the spool but not acked.
        self._settled_unacked: list[SpoolEntry] = []

    def stream(self) -> str:
        """Return the directory of the spool, which tasks read."""
        return self.options.spool_directory

    def claim(self, owner: str) -> QueueLeaseState:
        """Open the spool, unless it is open.

        Raises:
            GroupInUseError: another process has the spool open.
        """
        if self._spool is None:
            self._broker = self._broker_identity()
            identity = {
                "broker": self._broker,
                "queue": self.options.queue,
                "group": self.options.group,
            }
            try:
                self._spool = Spool(self.options.spool_directory, identity)
            except SpoolError as error:
                if "in use" in str(error):
                    raise GroupInUseError(f"option 'spoolDirectory': {error}") from None
                raise
        return self._lease_state(self._spool)

    def release(self, owner: str) -> None:
        """Do nothing, because the next owner is in this process and uses the same spool."""

    def state(self) -> QueueLeaseState | None:
        """Return the state of the lease; None before the spool is open."""
        return None if self._spool is None else self._lease_state(self._spool)

    def take(self, owner: str, first: int, records_max: int, bytes_max: int) -> int:
        """Spool messages, numbered from `first` on; return the number after the last.

        If message `first` is spooled already, the call spools no further messages.
        """
        spool = self._open_spool()
        records_max = min(records_max, BATCH_MAX)
        if first < spool.next:
            return min(spool.next, first + records_max)
        self._open_consumer()
        size_before = spool.size
        bytes_left = min(bytes_max, self.options.spool_bytes_max - size_before)
        while spool.next - first < records_max and spool.size - size_before < bytes_left:
            messages = self._receive_messages(min(RECEIVE_MAX, records_max - (spool.next - first)))
            if not messages:
                break
            for message in messages:
                self._append(spool, message)
        spool.sync()
        return spool.next

    def settle(self, owner: str, upto: int) -> int:
        """Settle the messages below `upto`, first in the spool, then at the broker."""
        spool = self._open_spool()
        if self._consumer is None:
            self._settled_unacked += [entry for entry in spool.entries if entry.number < upto]
        spool.settle(upto)
        tag = 0
        while self._tags and self._tags[0][1] < upto:
            tag = self._tags.popleft()[0]
        if tag and self._consumer is not None:
            LOOP.run(self._ack(self._consumer, tag))
        return spool.settled

    def close(self) -> None:
        """Release the spool for another process; unacked messages return to the queue."""
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            LOOP.run(consumer.close(), must_finish=True)
        if self._spool is not None:
            self._spool.close()
            self._spool = None

    def _open_spool(self) -> Spool:
        assert self._spool is not None, "the spool was not claimed"
        return self._spool

    def _lease_state(self, spool: Spool) -> QueueLeaseState:
        return QueueLeaseState(
            self._broker, spool.id, spool.settled, spool.next, self._ready_count()
        )

    def _broker_identity(self) -> str:
        """Return the best name of the broker in its server properties."""

        def read_properties(connection: blocking.Connection) -> str:
            properties = connection.server_properties
            identity = properties.get("headrace_id") or properties.get("cluster_name")
            return str(identity or properties.get("product") or "unknown")

        return run_with_retry(
            self.options.uri, self.options.reconnect_timeout_s, read_properties, Purpose.READ
        )

    def _ready_count(self) -> int:
        """Return the number of ready messages at the broker."""
        if self._consumer is not None:
            try:
                return LOOP.run(self._consumer.ready())
            except (ConnectionLost, ConnectionClosed, ChannelClosed):
                self._consumer = None

        def count_ready(connection: blocking.Connection) -> int:
            with connection.channel(confirm=False) as channel:
                try:
                    state = channel.declare_queue(self.options.queue, passive=True)
                except NotFound:
                    raise OptionError(
                        f"option 'queue': the broker has no queue {self.options.queue!r}"
                    ) from None
                return state.message_count

        return run_with_retry(
            self.options.uri, self.options.reconnect_timeout_s, count_ready, Purpose.READ
        )

    def _open_consumer(self) -> None:
        """Open a consumer, unless the current connection has one."""

        def open_consumer(connection: blocking.Connection) -> None:
            if self._consumer is not None and self._connection is connection:
                return
            consumer = BulkConsumer(connection.source, self.options.queue, PREFETCH_MAX)
            LOOP.run(consumer.start())
            self._consumer, self._connection = consumer, connection
            self._tags.clear()  # The broker redelivers the unacked messages.
            numbers_by_digest: dict[bytes, deque[int]] = defaultdict(deque)
            for entry in (*self._settled_unacked, *self._open_spool().entries):
                numbers_by_digest[entry.digest].append(entry.number)
            self._known_numbers = numbers_by_digest

        run_with_retry(
            self.options.uri, self.options.reconnect_timeout_s, open_consumer, Purpose.READ
        )

    def _receive_messages(self, messages_max: int) -> list[DrainedMessage]:
        """Return the next messages of the queue; an empty list if none is ready."""
        consumer = self._consumer
        if consumer is None:
            return []
        try:
            messages = LOOP.run(consumer.take(messages_max, EMPTY_WAIT_S))
            if not messages and LOOP.run(consumer.ready()):
                messages = LOOP.run(consumer.take(messages_max, READY_WAIT_S))
        except (ConnectionLost, ConnectionClosed, ChannelClosed, ConsumerCancelled):
            self._consumer = None  # The next batch opens a new consumer.
            return []
        return messages

    def _append(self, spool: Spool, message: DrainedMessage) -> None:
        """Append a message, unless it is a redelivery of a spooled message."""
        header, body = message.header, message.body
        exchange, routing_key = message.exchange.encode(), message.routing_key.encode()
        if message.redelivered and self._known_numbers:
            numbers = self._known_numbers.get(digest(header, body, exchange, routing_key))
            if numbers:
                self._tags.append((message.tag, numbers.popleft()))
                return
        number = spool.append(header, body, exchange, routing_key, redelivered=message.redelivered)
        self._tags.append((message.tag, number))

    @staticmethod
    async def _ack(consumer: BulkConsumer, tag: int) -> None:
        consumer.ack_up_to(tag)
