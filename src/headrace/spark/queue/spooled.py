# SPDX-License-Identifier: Apache-2.0
"""The messages of a queue by a spool, for brokers without leases.

The driver consumes, appends messages to the spool, and syncs. Spark's offsets are the numbers of
the spool, and tasks read ranges of it. Messages are acked when their batch is committed, so a lost
spool loses no messages. After a restart the broker delivers unacked messages again; those in the
spool already are recognised by their bytes and get their old numbers.
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
from headrace.columns.read.spool import Entry, Spool, SpoolError, digest
from headrace.columns.runtime.connections import Purpose, run_with_retry
from headrace.spark.queue.planner import LeaseState

if TYPE_CHECKING:
    from headrace.client import blocking
    from headrace.columns.options.options import ReadOptions

BATCH_MAX: Final = PREFETCH_MAX // 3  # Two batches are unacked while a third is taken.
TAKE_MAX: Final = 1000  # Messages that are appended between two checks of the limits.
QUIET_S: Final = 0.2  # Wait for a message; without one the queue counts as empty.
SLOW_S: Final = 5.0  # Wait for a message if the broker reports ready ones.


class Spooled:
    """The spool of one queue for one group; see `planner.QueueLease`."""

    rejects = 0  # Rejects in advance are for leases only.

    def __init__(self, options: ReadOptions) -> None:
        self.options = options
        self._spool: Spool | None = None
        self._broker = ""
        self._drain: BulkConsumer | None = None
        self._connection: blocking.Connection | None = None
        self._tags: deque[tuple[int, int]] = deque()  # Delivery tags and numbers, unacked.
        self._known_numbers: dict[bytes, deque[int]] = {}  # Numbers in the spool, by digest.
        self._owed: list[Entry] = []  # Messages settled in the spool and not acked.

    def stream(self) -> str:
        """Return the directory that tasks read."""
        return self.options.spool_directory

    def claim(self, owner: str) -> LeaseState:
        """Open the spool; GroupInUseError when another process has it."""
        if self._spool is None:
            self._broker = self._identity()
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
        return self._state(self._spool)

    def leave(self, owner: str) -> None:
        """Do nothing: the process keeps the spool under another name."""

    def info(self) -> LeaseState | None:
        """Return the state of the lease; None before the spool is open."""
        return None if self._spool is None else self._state(self._spool)

    def take(self, owner: str, first: int, records: int, octets: int) -> int:
        """Spool messages, numbered from `first` on; return the number after the last."""
        spool = self._claimed_spool()
        records = min(records, BATCH_MAX)
        if first < spool.next:
            return min(spool.next, first + records)
        self._begin()
        octets_before = spool.octets
        room = min(octets, self.options.spool_octets_max - octets_before)
        while spool.next - first < records and spool.octets - octets_before < room:
            taken = self._drain_messages(min(TAKE_MAX, records - (spool.next - first)))
            if not taken:
                break
            for message in taken:
                self._append(spool, message)
        spool.sync()
        return spool.next

    def settle(self, owner: str, upto: int) -> int:
        """Settle the messages below `upto`, first in the spool, then at the broker."""
        spool = self._claimed_spool()
        if self._drain is None:
            self._owed += [entry for entry in spool.entries if entry.number < upto]
        spool.settle(upto)
        tag = 0
        while self._tags and self._tags[0][1] < upto:
            tag = self._tags.popleft()[0]
        if tag and self._drain is not None:
            LOOP.run(self._ack(self._drain, tag))
        return spool.settled

    def close(self) -> None:
        """Release the spool for another process; unacked messages return to the queue."""
        drain, self._drain = self._drain, None
        if drain is not None:
            LOOP.run(drain.close(), lasting=True)
        if self._spool is not None:
            self._spool.close()
            self._spool = None

    def _claimed_spool(self) -> Spool:
        assert self._spool is not None, "the spool was not claimed"
        return self._spool

    def _state(self, spool: Spool) -> LeaseState:
        return LeaseState(self._broker, spool.id, spool.settled, spool.next, self._ready())

    def _identity(self) -> str:
        def ask(connection: blocking.Connection) -> str:
            properties = connection.server_properties
            identity = properties.get("headrace_id") or properties.get("cluster_name")
            return str(identity or properties.get("product") or "unknown")

        return run_with_retry(self.options.uri, self.options.reconnect_timeout_s, ask, Purpose.READ)

    def _ready(self) -> int:
        """Return the number of ready messages at the broker."""
        if self._drain is not None:
            try:
                return LOOP.run(self._drain.ready())
            except (ConnectionLost, ConnectionClosed, ChannelClosed):
                self._drain = None

        def ask(connection: blocking.Connection) -> int:
            with connection.channel(confirm=False) as channel:
                try:
                    state = channel.declare_queue(self.options.queue, passive=True)
                except NotFound:
                    raise OptionError(
                        f"option 'queue': the broker has no queue {self.options.queue!r}"
                    ) from None
                return state.message_count

        return run_with_retry(self.options.uri, self.options.reconnect_timeout_s, ask, Purpose.READ)

    def _begin(self) -> None:
        """Consume over the present connection."""

        def begin(connection: blocking.Connection) -> None:
            if self._drain is not None and self._connection is connection:
                return
            drain = BulkConsumer(connection.source, self.options.queue, PREFETCH_MAX)
            LOOP.run(drain.start())
            self._drain, self._connection = drain, connection
            self._tags.clear()  # The broker redelivers the unacked messages.
            numbers: dict[bytes, deque[int]] = defaultdict(deque)
            for entry in (*self._owed, *self._claimed_spool().entries):
                numbers[entry.digest].append(entry.number)
            self._known_numbers = numbers

        run_with_retry(self.options.uri, self.options.reconnect_timeout_s, begin, Purpose.READ)

    def _drain_messages(self, most: int) -> list[DrainedMessage]:
        """Return the next messages of the queue; an empty list if none is ready."""
        drain = self._drain
        if drain is None:
            return []
        try:
            taken = LOOP.run(drain.take(most, QUIET_S))
            if not taken and LOOP.run(drain.ready()):
                taken = LOOP.run(drain.take(most, SLOW_S))
        except (ConnectionLost, ConnectionClosed, ChannelClosed, ConsumerCancelled):
            self._drain = None  # The next batch opens a new consumer.
            return []
        return taken

    def _append(self, spool: Spool, message: DrainedMessage) -> None:
        """Append a message, unless it is a redelivery of a spooled one."""
        header, body = message.header, message.body
        where, key = message.exchange.encode(), message.routing_key.encode()
        if message.redelivered and self._known_numbers:
            numbers = self._known_numbers.get(digest(header, body, where, key))
            if numbers:
                self._tags.append((message.tag, numbers.popleft()))
                return
        number = spool.append(header, body, where, key, redelivered=message.redelivered)
        self._tags.append((message.tag, number))

    @staticmethod
    async def _ack(drain: BulkConsumer, tag: int) -> None:
        drain.ack_up_to(tag)
