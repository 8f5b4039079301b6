# SPDX-License-Identifier: Apache-2.0
"""Delayed messages: published now, routed later.

A message with the header ``x-delay`` waits in a hidden queue of its virtual host. When it is due,
it is routed like a new publish, by the bindings that exist then, and removed from the hidden queue
in the same store transaction, so that it arrives once. The header becomes negative, so that a
consumer that publishes the message again with its headers does not delay it again.

Restarts. A persistent message is in the journal: it is confirmed when it is durable, and it
survives a restart. Its queue is durable (`QueueRegistry.make_delayed_queue`), `VirtualHost.load`
adopts the queue, and ``restore`` adds each message with its old deadline. A transient message is
lost when the process ends.

Memory. Messages that are due within :data:`NEAR_MS` are objects in a heap. All others are packed,
32 bytes a message, in buckets of :data:`BUCKET_MS` each; their data is on disk only. A bucket is
unpacked shortly before its messages are due.
"""

from __future__ import annotations

import logging
import struct
from array import array
from functools import partial
from heapq import heappop, heappush
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Protocol, cast

from headrace.model.arguments.consumer import RepublishedHeaders
from headrace.model.arguments.expiration import expiration_deadline
from headrace.model.contents import UnreadableError, copy_routing_keys
from headrace.model.counters import PAGED_WEIGHT, memory_weight
from headrace.model.dead_letter_headers import EXPIRED, X_DEATH
from headrace.model.errors import PreconditionFailed
from headrace.model.host import RoutingHost
from headrace.model.message import GONE, PAGED, REDELIVERED, Message, measure, new_message
from headrace.model.queue.not_before import TimedMessages
from headrace.model.queue.queue import Queue

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Mapping
    from typing import Unpack

    from headrace.model.exchange.exchange import Observer
    from headrace.model.interceptor.tracer import Tracer
    from headrace.model.queue.destination import Options
    from headrace.model.vhost.dead_lettering import DeadLetters

    Rows = Iterator[tuple[int, ...]]

log = logging.getLogger(__name__)

HEADER = "x-delay"  # Milliseconds.
PUBLISHER = "x-delayed-publisher"  # The account that published a waiting message; see `Delayed`.
NAME = "amq.delayed"  # The name of the hidden queue.
DELAY_MS_MAX = 10 * 366 * 86_400_000  # Ten years.
BUCKET_MS = 16_384  # The time span of the packed messages of one bucket.
NEAR_MS = 2 * BUCKET_MS  # Messages that are due earlier are not packed.
DUE_MAX = 256  # Messages that are routed in one call.
REPORTED_MAX = 1024  # Missing exchanges, and publishers without permission, that are logged.
UNPACKED_MAX = 16_384  # Messages that are unpacked in one call.
ROWS_MAX = 1024  # Packed messages that a peek reads in one step.
PACKED = struct.Struct(">QQQIHBB")  # Due, seq, position, body size, address, flags, priority.


def parse_delay(headers: Mapping[str, object]) -> int:
    """Return the delay in the headers of a message in milliseconds; 0 for none.

    A message that was delayed before has a negative number, which counts as 0.

    Raises:
        PreconditionFailed: the delay is not a number of milliseconds up to :data:`DELAY_MS_MAX`.
    """
    value = headers.get(HEADER, 0)
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) <= 15:
        value = int(value)  # Some clients send numbers as text.
    if isinstance(value, bool) or not isinstance(value, int):
        raise PreconditionFailed(f"invalid {HEADER} {value!r}: expected milliseconds")
    if value > DELAY_MS_MAX:
        raise PreconditionFailed(f"invalid {HEADER} {value}: at most {DELAY_MS_MAX}")
    return max(value, 0)


def negate_delay(value: object, delay_ms: int) -> int:
    """Return the negative delay for the header of a routed message, of the same integer type."""
    signed = isinstance(value, int) and not getattr(value, "WIRE_TYPE", "").startswith("unsigned")
    return type(value)(-delay_ms) if isinstance(value, int) and signed else -delay_ms


class DelayingHost(Protocol):
    """A virtual host with delayed messages."""

    delayed: Delayed


class DelayedQueue(Queue):
    """The hidden queue of delayed messages, which routes each message when it is due."""

    def __init__(self, name: str, **options: Unpack[Options]) -> None:
        super().__init__(name, **options)
        self.is_hidden = True
        self._near = TimedMessages()
        self._far: dict[int, bytearray] = {}  # Packed messages by bucket.
        self._starts: list[int] = []  # The buckets; a heap.

    def ready_consumer(self) -> None:
        """Return None: no message is delivered at once."""
        return

    def enqueue(self, message: Message) -> int:
        """Add a message; its deadline is the time at which it is due."""
        self.tally.publish += 1
        self._add(message)
        return 0

    def enqueue_in_place(self, message: Message, promised: bool = False) -> None:
        """Add a message of a transaction branch that was committed now."""
        self.enqueue(message)

    def restore(self, message: Message, arrived_ms: int) -> None:
        """Restore a message that the store recovered."""
        self._add(message)

    def message_count(self) -> int:
        """Return the number of waiting messages."""
        return self.ready.count

    def redelivered_seqs(self) -> list[int]:
        """Return an empty list: no waiting message was delivered before."""
        return []

    def expire(self, now_ms: int) -> int:
        """Route due messages; return the time of the next call, 0 if no message waits.

        Routing and removal are one store transaction, so that after a crash a message is either
        in this queue or in its targets.
        """
        self._unpack(now_ms)
        if 0 < self._near.next_ms <= now_ms:
            self.store.begin()
            try:
                for _ in range(DUE_MAX):
                    for message in self._near.pop_due(now_ms, 1):  # A failure loses one only.
                        self._release(message)
            finally:
                self.store.commit()
        return self._next_ms()

    def waiting(self) -> Generator[Message | None]:
        """Yield the waiting messages in order of their due times, and None after each long step.

        Messages that arrive or are routed during the iteration may be omitted.
        """
        while self._starts and self._starts[0] * BUCKET_MS <= self.counters.now_ms + NEAR_MS:
            self._unpack(self.counters.now_ms)
            yield None
        near = self._near.in_order()
        due_ms, first = next(near, (0, None))
        for bucket in sorted(self._starts):
            packed = self._far.get(bucket)
            if packed is None:
                continue
            for row in self._sort_rows(bucket, packed):
                while row is not None and first is not None and due_ms <= row[0]:
                    yield None if first.flags & GONE else first
                    due_ms, first = next(near, (0, None))
                if row is not None and self._is_far(bucket, packed):
                    yield _unpack(row)
                else:
                    yield None
        while first is not None:
            yield None if first.flags & GONE else first
            due_ms, first = next(near, (0, None))

    def _sort_rows(self, bucket: int, packed: bytearray) -> Generator[tuple[int, ...] | None]:
        """Yield the rows of a bucket in order of time, then of position, and None after each step.

        A bucket may have millions of rows, so only their numbers are sorted, at four bytes each:
        by counting the messages that are due in each millisecond.
        """
        begin_ms = bucket * BUCKET_MS
        count = len(packed) // PACKED.size  # Later arrivals are behind these.
        starts = [0] * (BUCKET_MS + 1)
        ascending, last = True, 0
        for rows in self._rows(bucket, packed, count):
            for due_ms, seq, *_ in rows:
                starts[due_ms - begin_ms + 1] += 1
                ascending = ascending and seq > last
                last = seq
            yield None
        starts = list(accumulate(starts))
        next_index = starts[:-1]
        order = array("I", bytes(4 * count))
        number = 0
        for rows in self._rows(bucket, packed, count):
            for due_ms, *_ in rows:
                order[next_index[due_ms - begin_ms]] = number
                next_index[due_ms - begin_ms] += 1
                number += 1
            yield None
        for first, end in pairwise(starts):
            numbers = order[first:end]
            if not ascending and len(numbers) <= ROWS_MAX:  # Most buckets are in order of position.
                numbers = array("I", sorted(numbers, key=partial(_packed_position, packed)))
            for number in numbers:
                if not self._is_far(bucket, packed):
                    return
                yield PACKED.unpack_from(packed, number * PACKED.size)

    def _rows(self, bucket: int, packed: bytearray, count: int) -> Generator[Rows]:
        """Yield the first ``count`` rows of a bucket, ``ROWS_MAX`` at once, while it is packed."""
        for first in range(0, count, ROWS_MAX):
            if not self._is_far(bucket, packed):
                return
            end = min(first + ROWS_MAX, count)
            yield PACKED.iter_unpack(packed[first * PACKED.size : end * PACKED.size])

    def _is_far(self, bucket: int, packed: bytearray) -> bool:
        """Return True if all messages of ``packed`` are still packed in their bucket."""
        is_far = bucket * BUCKET_MS > self.counters.now_ms + NEAR_MS
        return is_far and self._far.get(bucket) is packed

    def purge(self) -> int:
        """Remove all waiting messages; return their number."""
        count = self.ready.count
        for message in self._pop_all():
            self.remove(message)
        return count

    def destroy(self) -> int:
        """Delete the queue."""
        count = self.purge()
        super().destroy()
        return count

    # --- Inside -----------------------------------------------------------------------------------

    def _add(self, message: Message) -> None:
        self.ready.count += 1
        self.ready.bytes += message.body_size
        message.flags &= ~REDELIVERED
        due_ms = message.deadline_ms
        is_far = due_ms > self.counters.now_ms + NEAR_MS
        if is_far and (message.flags & PAGED or self.store.page_out(message)):
            self._pack(message)
        else:
            self.counters.memory_used += memory_weight(message)
            self._near.add(due_ms, message)
        if self.on_deadline is not None:
            self.on_deadline(self, self._next_ms())

    def _pack(self, message: Message) -> None:
        bucket = message.deadline_ms // BUCKET_MS
        packed = self._far.get(bucket)
        if packed is None:
            packed = self._far[bucket] = bytearray()
            heappush(self._starts, bucket)
        packed += PACKED.pack(
            message.deadline_ms,
            message.seq,
            message.position,
            message.body_size,
            message.address_len,
            message.flags,
            message.priority,
        )
        self.counters.memory_used += PACKED.size

    def _unpack(self, now_ms: int) -> None:
        """Unpack the messages that are due soon, at most ``UNPACKED_MAX``."""
        budget = UNPACKED_MAX
        while self._starts and self._starts[0] * BUCKET_MS <= now_ms + NEAR_MS and budget:
            packed = self._far[self._starts[0]]
            size = min(len(packed), budget * PACKED.size)
            budget -= size // PACKED.size
            for row in PACKED.iter_unpack(packed[:size]):
                message = _unpack(row)
                self.counters.memory_used += PAGED_WEIGHT - PACKED.size
                self._near.add(message.deadline_ms, message)
            del packed[:size]
            if not packed:
                del self._far[heappop(self._starts)]

    def _pop_all(self) -> list[Message]:
        """Remove and return all waiting messages, unpacking the packed ones."""
        messages = self._near.pop_all()
        for packed in self._far.values():
            for row in PACKED.iter_unpack(packed):
                messages.append(_unpack(row))
                self.counters.memory_used += PAGED_WEIGHT - PACKED.size
        self._far, self._starts = {}, []
        self.ready.count = 0
        self.ready.bytes = 0
        return messages

    def _next_ms(self) -> int:
        next_ms = self._near.next_ms
        if self._starts:
            unpack_ms = max(self._starts[0] * BUCKET_MS - NEAR_MS, 1)
            next_ms = min(next_ms, unpack_ms) if next_ms else unpack_ms
        return next_ms

    def _release(self, message: Message) -> None:
        self.ready.count -= 1
        self.ready.bytes -= message.body_size
        if message.flags & PAGED:
            paged_weight = memory_weight(message)
            try:
                self.store.load(message)
            except OSError as error:
                log.error("a delayed message cannot be read and is dropped: %s", error)
                self.remove(message)
                return
            if message.data is not None:
                measure(message)
            self.counters.memory_used += memory_weight(message) - paged_weight
        self.tally.deliver_no_ack += 1
        try:
            cast("DelayingHost", self.vhost).delayed.release(message)
        except UnreadableError as error:
            log.error("a delayed message is dropped: %s", error)
        self.remove(message)


def _packed_position(packed: bytearray, number: int) -> int:
    """Return the position of the packed message at index ``number``."""
    seq: int = PACKED.unpack_from(packed, number * PACKED.size)[1]
    return seq


def _unpack(row: tuple[int, ...]) -> Message:
    due_ms, seq, position, body_size, address_len, flags, priority = row
    message = new_message(None, address_len, body_size)
    message.deadline_ms = due_ms
    message.seq = seq
    message.position = position
    message.flags = flags
    message.priority = priority
    return message


class ReleasingHost(RoutingHost, Protocol):
    """A host that publishes messages whose delay is over."""

    tracer: Tracer | None
    dead_letters: DeadLetters

    def make_delayed_queue(self, name: str) -> Queue:
        """Make the durable queue in which delayed messages wait."""


class Delayed:
    """The delayed messages of one virtual host."""

    def __init__(self, vhost: ReleasingHost) -> None:
        self.vhost = vhost
        self._queue: DelayedQueue | None = None
        self._missing: set[str] = set()  # Missing exchanges that were logged.
        # Publishers without permission that were logged, each with an exchange.
        self._refused: set[tuple[str, str]] = set()
        #: Returns why an account may not publish to an exchange by these keys; "" if it may.
        self.refusal: Callable[[str, str, list[str]], str] | None = None

    def __len__(self) -> int:
        return 0 if self._queue is None else self._queue.message_count()

    def adopt(self, queue: DelayedQueue) -> None:
        """Set the hidden queue after it was loaded with the definitions."""
        self._queue = queue

    def queue(self) -> Queue:
        """Return the hidden queue; make it on first use."""
        if self._queue is None:
            queue = self.vhost.make_delayed_queue(NAME)
            assert isinstance(queue, DelayedQueue)
            self._queue = queue
        return self._queue

    def release(self, message: Message) -> None:
        """Route a message that is due.

        Raises:
            UnreadableError: the message is malformed.
        """
        vhost = self.vhost
        if vhost.contents is None:
            return
        content = vhost.contents.read(message)
        exchange = vhost.exchanges.get(content.exchange)
        if exchange is None:
            if content.exchange not in self._missing and len(self._missing) < REPORTED_MAX:
                self._missing.add(content.exchange)
                log.warning(
                    "vhost %r: a delayed message is dropped: exchange %r is gone; this is not "
                    "reported again",
                    vhost.name,
                    content.exchange,
                )
            return
        headers = dict(content.headers)
        if HEADER in headers:
            headers[HEADER] = negate_delay(headers[HEADER], parse_delay(headers))
        publisher = str(headers.pop(PUBLISHER, ""))
        bcc_keys = copy_routing_keys({"CC": headers.pop("BCC", None)})
        keys = [*copy_routing_keys(headers), *bcc_keys]
        routing_keys = [content.routing_key, *keys]
        if publisher and self._is_refused(publisher, content.exchange, routing_keys):
            return
        queues: dict[Queue, None] = {}
        observers: dict[Observer, None] = {}
        republished = RepublishedHeaders(headers, message, vhost.contents)
        vhost.follow(
            exchange,
            content.routing_key,
            republished,
            queues,
            observers=observers,
            copies=keys,
            publisher=message.publisher,
        )
        if not queues and not observers:
            if vhost.tracer is not None:
                vhost.tracer.trace_release(message, ())
            return
        if X_DEATH in headers and not vhost.dead_letters.record_spread(
            content.exchange, headers, EXPIRED, len(queues) + len(observers)
        ):
            return
        routed = vhost.contents.rewrite(
            message, content.exchange, content.routing_key, headers, expires=True
        )
        if content.expiration is not None and content.expiration.isdigit():
            routed.deadline_ms = expiration_deadline(int(content.expiration), vhost.counters.now_ms)
        if vhost.tracer is not None:
            routed.publisher = message.publisher
            vhost.tracer.trace_release(routed, tuple(queues))
        vhost.send(routed, queues, observers, headers, content.persistent)

    def _is_refused(self, publisher: str, exchange: str, keys: list[str]) -> bool:
        """Return True, and log it once, if the publisher has lost its permission."""
        reason = "" if self.refusal is None else self.refusal(publisher, exchange, keys)
        if not reason:
            return False
        if (publisher, exchange) not in self._refused and len(self._refused) < REPORTED_MAX:
            self._refused.add((publisher, exchange))
            log.warning(
                "vhost %r: a delayed message of user %r is dropped: %s; this is not reported again "
                "of this user and exchange",
                self.vhost.name,
                publisher,
                reason,
            )
        return True
