# SPDX-License-Identifier: Apache-2.0
"""Receivers of a range of a stream: `RecordReader` for records, `BlockReader` for blocks.

Both receive the deliveries of a channel, and ack them as the program takes records, which gives the
broker new credit.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from struct import Struct
from typing import TYPE_CHECKING, NamedTuple

from headrace.client.errors import ClientError, ConnectionLost, ConsumerCancelled, fresh
from headrace.client.message import Message, decode_properties, read_message
from headrace.protocol.errors import AmqpError
from headrace.spec.reply import ReplyCode

if TYPE_CHECKING:
    from headrace.client.channel.channel import Channel
    from headrace.client.stream.blocks import Block, RangeCollector
    from headrace.protocol.codec_0_x import BasicDeliver


BLOCKS_MAX = 8  # The number of ready blocks from which on no credit is given.
TAG = "stream"

_OFFSET_KEY = b"\x0fx-stream-offset"
_FILTER_KEY = b"\x15x-stream-filter-value"
_I64 = Struct(">q")


class Record(NamedTuple):
    """One record of a stream, as received."""

    offset: int
    header: bytes  # The payload of the content header frame, with all properties and headers.
    body: bytes
    exchange: str
    routing_key: str

    def message(self) -> Message:
        """Return the record as a message, with its properties decoded."""
        return read_message(self.header, self.body)


class _RangeReader(ABC):
    """Receives the deliveries of one range until its end."""

    def __init__(self, channel: Channel, name: str) -> None:
        self._channel = channel
        self._name = name
        self._changed = asyncio.Event()
        self._error: ClientError | None = None

    @abstractmethod
    def deliver(self, epoch: int, method: BasicDeliver, header: bytes, body: bytes) -> None:
        """Take a record that no collector took."""

    @abstractmethod
    def ended(self) -> None:
        """Handle the end of the range: the broker has sent all of its records."""

    @abstractmethod
    def drop(self) -> None:
        """Discard the rest."""

    def cancelled(self) -> None:
        """End the range with ConsumerCancelled: the stream was deleted."""
        self.fail(ConsumerCancelled(self._name, TAG))

    def lost(self) -> None:
        """End the range with ConnectionLost."""
        self.fail(ConnectionLost("the connection was lost while a stream was read"))

    def fail(self, error: ClientError) -> None:
        """End the range with an error."""
        self._error = self._error or error
        self._changed.set()


class BlockReader(_RangeReader):
    """Returns the blocks that a collector fills."""

    def __init__(self, channel: Channel, name: str, collector: RangeCollector, credit: int) -> None:
        """Read blocks with `credit` records in flight; 0 when the records need no ack."""
        super().__init__(channel, name)
        self._collector = collector
        self._credit = credit
        self._acked = 0
        self._block_sizes: list[int] = []  # Bytes of each ready block.

    async def take(self) -> Block | None:
        """Wait for a block and return it; None after the last one."""
        collector = self._collector
        while not collector.ready:
            if collector.is_complete:
                return None
            if self._error is not None:
                collector.seal()  # The records received before the error are returned first.
                if collector.ready:
                    break
                raise fresh(self._error)
            self._changed.clear()
            await self._changed.wait()
        block = collector.ready.pop(0)
        if self._block_sizes:
            self._channel.backpressure.release(self._block_sizes.pop(0))
        self._acknowledge()
        return block

    def after_read(self) -> None:
        """Wake the reader once for all deliveries of one read of the socket."""
        collector = self._collector
        if not collector.has_new:
            return
        collector.has_new = False
        for block in collector.ready[len(self._block_sizes) :]:
            self._block_sizes.append(block.bodies.used + block.heads.used)
            self._channel.backpressure.hold(self._block_sizes[-1])
        self._acknowledge()
        if collector.ready or collector.is_complete:
            self._changed.set()

    def _acknowledge(self) -> None:
        collector = self._collector
        if (
            self._credit
            and collector.tag - self._acked >= max(1, self._credit // 2)
            and len(collector.ready) < BLOCKS_MAX
            and not collector.is_complete
            and self._error is None
        ):
            self._acked = collector.tag
            self._channel.ack_up_to(collector.tag)

    def deliver(self, epoch: int, method: BasicDeliver, header: bytes, body: bytes) -> None:
        """Take a record that the collector did not take."""
        self._collector.add(
            decode_offset(header),
            method.delivery_tag,
            header,
            body,
            method.exchange,
            method.routing_key,
            method.redelivered,
        )
        self.after_read()

    def ended(self) -> None:
        """Finish the last block: the broker has sent all records of the range."""
        self._collector.finish()
        self._changed.set()

    def drop(self) -> None:
        """Discard the rest."""
        self._channel.stop_gathering()
        for size in self._block_sizes:
            self._channel.backpressure.release(size)
        self._block_sizes.clear()
        self._collector.ready.clear()


class RecordReader(_RangeReader):
    """Returns the records of one range in batches."""

    def __init__(self, channel: Channel, name: str, first: int, last: int) -> None:
        super().__init__(channel, name)
        self.expected_first = first
        self.is_complete = first >= last  # Whether the last record was returned.
        self._first = first
        self._last = last
        self._records: list[Record] = []
        self._has_all = False
        self._tag = 0  # The tag of the newest delivery returned.
        self._tags: list[int] = []  # The tags of records not yet returned.
        self._acked = 0

    async def take(self, count_max: int) -> list[Record]:
        """Wait for records and return up to `count_max` of them.

        The list is empty when retention has deleted the rest of the range.
        """
        while not self._records and not self._has_all:
            if self._error is not None:
                raise fresh(self._error)
            self._changed.clear()
            await self._changed.wait()
        records, self._records = self._records[:count_max], self._records[count_max:]
        if records:
            self._tag = self._tags[len(records) - 1]
            del self._tags[: len(records)]
            for record in records:
                self._channel.backpressure.release(len(record.body))
        self.is_complete = self._has_all and not self._records
        return records

    def acknowledge(self, credit: int) -> None:
        """Ack the returned records, once they are half of `credit` or more."""
        if self._tag - self._acked >= max(1, credit // 2) and not self._has_all:
            self._acked = self._tag
            self._channel.ack_up_to(self._tag)

    def deliver(self, epoch: int, method: BasicDeliver, header: bytes, body: bytes) -> None:
        """Take a record."""
        offset = decode_offset(header)
        if self._has_all:
            return
        if offset >= self._first:  # RabbitMQ begins with the first record of the chunk.
            if offset < self._last:
                self._records.append(
                    Record(offset, header, body, method.exchange, method.routing_key)
                )
                self._tags.append(method.delivery_tag)
                self._channel.backpressure.hold(len(body))
            self._has_all = offset >= self._last - 1
        elif not self._records:
            self._tag = method.delivery_tag  # Skipped records are acked too: they used credit.
            self.acknowledge(2)
        self._changed.set()

    def ended(self) -> None:
        """Complete the range once the buffered records are read."""
        self._has_all = True
        self.is_complete = not self._records
        self._changed.set()

    def drop(self) -> None:
        """Discard the rest."""
        for record in self._records:
            self._channel.backpressure.release(len(record.body))
        self._records.clear()


def filter_value(record: Record) -> str | None:
    """Return the filter value that a record was published with, if any."""
    if _FILTER_KEY not in record.header:
        return None
    value = (decode_properties(record.header).headers or {}).get("x-stream-filter-value")
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    return value if isinstance(value, str) else None


def decode_offset(header: bytes) -> int:
    """Return the offset in the payload of a delivery's header frame.

    The broker always adds the header x-stream-offset. If its name occurs twice, one may be in a
    value of the program; only then are the properties decoded.
    """
    position = header.find(_OFFSET_KEY)
    if position >= 0 and header.find(_OFFSET_KEY, position + 1) < 0:
        position += len(_OFFSET_KEY)
        if header[position : position + 1] in (b"l", b"L") and len(header) >= position + 9:
            return int(_I64.unpack_from(header, position + 1)[0])
    headers = decode_properties(header).headers or {}
    offset = headers.get("x-stream-offset")
    if not isinstance(offset, int) or isinstance(offset, bool):
        raise AmqpError(ReplyCode.SYNTAX_ERROR, "a record of a stream without its offset")
    return offset
