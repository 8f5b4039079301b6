# SPDX-License-Identifier: Apache-2.0
"""Streams: queues whose messages stay, are numbered, and are read by many from any offset.

A stream is a queue to everything that routes to it and consumes from it, but its messages live in
a :class:`StreamLog`. A reader is a consumer with a cursor; acknowledging only gives it credit.
Nothing is handed out before it is durable: a message that a crash could take back would have its
offset given to another.
"""

from datetime import datetime
from typing import Any

import cython

if not cython.compiled:
    from headrace.model.message import KIND_MASK as C_KIND_MASK
    from headrace.model.message import Message, new_message
    from headrace.model.queue import Consumer, Queue
    from headrace.model.tally import MESSAGE_OVERHEAD as C_MESSAGE_OVERHEAD

from headrace.model.errors import NotFound, PreconditionFailed

TRIM_MIN_MS = 1000  # Between two looks for what is too old.
READ_OCTETS_MAX = 262144  # What a reader takes from the log at a time.
INTERVAL_UNITS_S = {
    "Y": 365 * 86400,
    "M": 30 * 86400,
    "D": 86400,
    "h": 3600,
    "m": 60,
    "s": 1,
}


class StreamLog:
    """An append-only log with offsets that are never reused. This one lives in memory."""

    def __init__(self, max_length_bytes: int = -1, max_age_ms: int = -1) -> None:
        self.first_offset = 0  # Of the oldest message that is still there.
        self.next_offset = 0  # Of the next message to come.
        self.committed_offset = 0  # Messages below it are durable.
        self.max_length_bytes = max_length_bytes
        self.max_age_ms = max_age_ms
        self.octets = 0
        self.held = 0  # Octets of memory that it is counted with.
        self.records: list[tuple[bytes, int, int, int]] = []

    def append(self, data: bytes, address_len: int, body_size: int, arrived_ms: int) -> int:
        """Append a message laid out as in Message.data; return its offset."""
        self.records.append((data, address_len, body_size, arrived_ms))
        self.octets += len(data)
        self.held += len(data) + C_MESSAGE_OVERHEAD
        offset = self.next_offset
        self.next_offset = offset + 1
        self.committed_offset = offset + 1
        self.trim(arrived_ms)
        return offset

    def trim(self, now_ms: int) -> None:
        """Drop the oldest messages beyond the retention limits, many at a time."""
        gone = 0
        octets = self.octets
        limit = self.max_length_bytes
        if limit >= 0 and octets > limit + (limit >> 3):
            while gone < len(self.records) - 1 and octets > limit:
                octets -= len(self.records[gone][0])
                gone += 1
        if self.max_age_ms >= 0:
            while gone < len(self.records) - 1 and self.records[gone][3] < now_ms - self.max_age_ms:
                octets -= len(self.records[gone][0])
                gone += 1
        if gone:
            del self.records[:gone]
            self.held -= self.octets - octets + gone * C_MESSAGE_OVERHEAD
            self.octets = octets
            self.first_offset += gone

    def read(self, offset: int, octets_max: int) -> list[tuple[int, bytes, int, int, int]]:
        """Return committed messages from ``offset`` on: (offset, data, address_len, body_size,
        arrived_ms), at least one if there is one, about ``octets_max`` octets at most.
        """
        found = []
        octets = 0
        at = offset - self.first_offset
        while at < len(self.records) and octets < octets_max:
            data, address_len, body_size, arrived_ms = self.records[at]
            found.append((self.first_offset + at, data, address_len, body_size, arrived_ms))
            octets += len(data)
            at += 1
        return found

    def offset_at(self, timestamp_ms: int) -> int:
        """Return the offset of the first message that arrived at or after the time."""
        lo, hi = 0, len(self.records)
        while lo < hi:
            middle = (lo + hi) // 2
            if self.records[middle][3] < timestamp_ms:
                lo = middle + 1
            else:
                hi = middle
        return self.first_offset + lo

    def close(self) -> None:
        """Let go of the files."""

    def delete(self) -> None:
        """The stream is no more."""
        self.records = []
        self.held = 0


class Stream(Queue):
    """A queue of type stream."""

    def __init__(self, name: str, log: StreamLog, **options: Any) -> None:
        Queue.__init__(self, name, **options)
        self.log = log
        self.is_stream = True
        self.cursors: dict[Consumer, int] = {}
        self.fetched: dict[Consumer, list[tuple[int, bytes, int, int, int]]] = {}

    def message_count(self) -> int:
        return self.log.committed_offset - self.log.first_offset

    def taker(self) -> Consumer | None:
        return None

    def offer(self, message: Message) -> int:
        """Append to the log; readers get it once it is durable.

        The log has messages of class basic in one piece; what is not so is made so.
        """
        self.published += 1
        foreign = message.flags & C_KIND_MASK or message.parts is not None
        if foreign and not self.vhost.join(message, self):
            return 0
        before = self.log.held
        self.log.append(message.data, message.address_len, message.body_size, self.tally.now_ms)
        self.tally.memory_used += self.log.held - before
        if self.consumers is not None:
            self.wake()
        return 0

    def admit(self, message: Message) -> None:
        self.offer(message)

    def trim(self, now_ms: int) -> int:
        """Drop what is too old; return when to look again, 0 when age does not matter."""
        log = self.log
        if self.deleted or log.max_age_ms < 0:
            return 0
        before = log.held
        log.trim(now_ms)
        self.tally.memory_used += log.held - before
        return now_ms + max(TRIM_MIN_MS, log.max_age_ms // 8)

    def check_consumer(self, consumer: Consumer) -> None:
        """Give a consumer its place in the stream.

        Raises:
            PreconditionFailed: no prefetch is set, or the offset argument makes no sense.
            NotFound: the offset is gone, and the consumer asked to be told.
        """
        if not consumer.no_ack and not getattr(consumer, "prefetch", 1):
            raise PreconditionFailed(
                f"consumer prefetch count is not set for stream '{self.name}' in vhost "
                f"'{self.vhost.name}'"
            )
        asked = consumer.arguments.get("x-stream-offset", "next")
        offset = self.resolve(asked)
        first = self.log.first_offset
        if offset < first:
            if consumer.arguments.get("x-stream-offset-error"):
                raise NotFound(
                    f"offset {offset} is gone from stream '{self.name}' in vhost "
                    f"'{self.vhost.name}'"
                )
            offset = first
        self.cursors[consumer] = offset

    def resolve(self, asked: Any) -> int:
        """Return the offset that first, last, next, a number, a time or an interval stands for.

        Raises:
            PreconditionFailed: it is none of these.
        """
        log = self.log
        if asked == "first":
            return log.first_offset
        if asked == "last":
            return max(log.first_offset, log.committed_offset - 1)
        if asked == "next":
            return log.committed_offset
        if isinstance(asked, bool):
            pass
        elif isinstance(asked, int):
            if asked >= 0:
                return asked
        elif isinstance(asked, datetime):
            return log.offset_at(int(asked.timestamp() * 1000))
        elif isinstance(asked, str):
            seconds = interval_s(asked)
            if seconds >= 0:
                return log.offset_at(max(0, self.tally.now_ms - seconds * 1000))
        raise PreconditionFailed(
            f"invalid arg 'x-stream-offset' for queue '{self.name}' in vhost "
            f"'{self.vhost.name}': {asked!r}"
        )

    def drain(self) -> None:
        """Serve every reader that has room, as far as the log is durable."""
        self.waking = False
        active = self.active
        if active is not None:
            for consumer in list(active):
                self.serve(consumer)
        if self.log.committed_offset < self.log.next_offset and self.consumers is not None:
            self.wake()

    def serve(self, consumer: Consumer) -> None:
        """Hand a reader what it may have."""
        while True:
            if not consumer.can():
                consumer.parked = True
                self.active.remove(consumer)
                return
            batch = self.fetched.get(consumer)
            if not batch:
                cursor = self.cursors[consumer]
                if cursor >= self.log.committed_offset:
                    return
                if cursor < self.log.first_offset:
                    cursor = self.log.first_offset
                batch = self.log.read(cursor, READ_OCTETS_MAX)
                if not batch:
                    return
                batch.reverse()
                self.fetched[consumer] = batch
            while batch and consumer.can():
                offset, data, address_len, body_size, arrived_ms = batch.pop()
                self.cursors[consumer] = offset + 1
                message = new_message(data, address_len, body_size)
                message.seq = offset
                message.deadline_ms = arrived_ms  # Nothing here expires: when it came.
                self.tally.memory_used += body_size + C_MESSAGE_OVERHEAD
                self.delivered += 1
                if consumer.no_ack:
                    consumer.deliver(message)
                    self.leave(message)
                else:
                    self.unacked_count += 1
                    message.consumer = consumer
                    consumer.deliver(message)

    def requeue(self, message: Message) -> None:
        """A message given back stays where it is in the log; only the credit returns."""
        self.settle(message)

    def release(self, message: Message) -> None:
        self.requeue(message)

    def discard(self, message: Message) -> None:
        self.settle(message)

    def unpark(self, consumer: Consumer) -> None:
        if consumer.parked:
            self.enlist(consumer)
        self.wake()

    def remove_consumer(self, consumer: Consumer) -> None:
        Queue.remove_consumer(self, consumer)
        self.cursors.pop(consumer, None)
        self.fetched.pop(consumer, None)

    def purge(self) -> int:
        """Streams are not purged; the gateway refuses before it comes to this."""
        return 0

    def destroy(self) -> int:
        count = self.message_count()
        Queue.destroy(self)
        self.cursors.clear()
        self.fetched.clear()
        self.tally.memory_used -= self.log.held
        self.log.delete()
        return count


def interval_s(text: str) -> int:
    """Return the seconds of an interval like ``7D`` or ``30m``; -1 when it is none."""
    last = len(text) - 1
    if not 0 < last < 11 or text[last] not in INTERVAL_UNITS_S:
        return -1
    count = text[:last]
    return int(count) * INTERVAL_UNITS_S[text[last]] if count.isascii() and count.isdigit() else -1
