# SPDX-License-Identifier: Apache-2.0
"""Streams by offset: the first and last offsets, and any range as raw records.

A range is read by an ordinary consumer on a channel of its own, with acks as credit. A second read
of a range returns the same bytes. Headrace returns the first and last offsets, and the offset of a
time, in the answer to a passive queue.declare. At RabbitMQ the client finds them by consuming.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterable
from contextlib import aclosing
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from headrace.client.errors import ClientError, ConnectionLost, OffsetGone
from headrace.client.link.capabilities import announces
from headrace.client.requests import RequestRefused, Requests
from headrace.client.stream.blocks import BLOCK_RECORDS_MAX, Block, RangeCollector
from headrace.client.stream.reader import TAG, BlockReader, Record, RecordReader, filter_value
from headrace.protocol.codec_0_x import BasicConsume, BasicQos
from headrace.spec.tables import V0_10

if TYPE_CHECKING:
    from headrace.client.channel.channel import Channel
    from headrace.client.connection.channel_source import ChannelSource
    from headrace.wire.table import Value

CREDIT = 1000  # The default number of records in flight.
BATCH_MAX = 1000  # The default number of records in a batch.
PROBE_TIMEOUT_S = 2.0  # The wait for the first record of a probe; then the stream is empty.
PROBE_QUIET_S = 0.3  # The wait for another record of a probe; then the last one has arrived.

# The filter values of the records to read. None as an element selects records without a filter
# value; None in place of the set selects all records.
FilterValues = frozenset[str | None] | None


@dataclass(frozen=True, slots=True)
class Measure:
    """The size of a range of a stream."""

    count: int  # Records.
    octets: int  # Bytes in the broker's log.
    next: int  # The offset after the last record.


class Stream:
    """A stream of a connection; get one with `connection.stream(name)`."""

    def __init__(self, connection: ChannelSource, name: str) -> None:
        self.name = name
        self._connection = connection

    def __repr__(self) -> str:
        return f"<Stream {self.name!r} of {self._connection!r}>"

    async def first_offset(self) -> int:
        """Return the offset of the oldest record; that of the next one when the stream is empty."""
        if self._has_capability("stream_offset_query"):
            return await self._query("first")
        offsets = await self._probe("first", 1)
        return offsets[0] if offsets else 0

    async def last_offset(self) -> int:
        """Return the end of the stream: the offset that the next record will have."""
        if self._has_capability("stream_offset_query"):
            return await self._query("next")
        offsets = await self._probe("last", CREDIT)
        return offsets[-1] + 1 if offsets else 0

    async def offset_at(self, moment: datetime) -> int:
        """Return the offset of the first record that arrived at `moment` or later, or the end.

        RabbitMQ returns the first offset of the chunk, which may be some records earlier. Raises
        ValueError when `moment` has no time zone.
        """
        if moment.tzinfo is None:
            raise ValueError(f"a moment needs a time zone: {moment!r}")
        if self._has_capability("stream_offset_query"):
            return await self._query(moment)
        offsets = await self._probe(moment, 1)
        return offsets[0] if offsets else await self.last_offset()

    async def measure(
        self,
        first: int,
        last: int | None = None,
        *,
        records_max: int | None = None,
        octets_max: int | None = None,
    ) -> Measure:
        """Return the number of records and bytes in [first, last), within the limits.

        Without `last` the range ends at the present end of the stream. `octets_max` counts bytes in
        the broker's log, about 60 more than the record has; the first record may exceed it. The
        broker uses its index and reads at most two blocks. Raises OffsetGone when retention has
        deleted `first`, UsageError when the broker is not Headrace.
        """
        limits = {"to": last, "records_max": records_max, "octets_max": octets_max}
        present_limits = {key: value for key, value in limits.items() if value is not None}
        async with Requests(self._connection) as requests:
            try:
                answer = await requests.ask(
                    "stream.measure", stream=self.name, **{"from": first}, **present_limits
                )
            except RequestRefused as error:
                if error.code == "gone":
                    raise OffsetGone(404, error.text) from None
                raise
        return Measure(answer["count"], answer["octets"], answer["next"])

    async def read(
        self,
        first: int,
        last: int,
        *,
        batch_max: int = BATCH_MAX,
        credit: int = CREDIT,
        filter: str | Iterable[str] | None = None,  # noqa: A002 - what everybody calls it
        match_unfiltered: bool = False,
        browse: bool = False,
    ) -> AsyncGenerator[list[Record], None]:
        """Read the records of [first, last) in order, in batches of up to `batch_max`.

        The read waits for records that have not arrived, and continues at the same offset after a
        reconnection. `credit` bounds the records in flight. A `filter` selects the records
        published with one of these filter values, and with `match_unfiltered` also the ones without
        any; the client drops the other records that RabbitMQ sends.

        With `browse` the stream is an ordinary queue of Headrace, read without consuming: see
        `headrace.client.snapshot`. Raises OffsetGone when retention has deleted `first`, ValueError
        when it is negative.
        """
        if first < 0:
            raise ValueError(f"an offset cannot be negative: {first}")
        filter_values = _filter_values(filter, match_unfiltered)
        next_offset = first
        while next_offset < last:
            reading = self._read_once(next_offset, last, batch_max, credit, filter_values, browse)
            try:
                async with aclosing(reading):
                    async for batch in reading:
                        next_offset = batch[-1].offset + 1
                        yield batch
                return
            except ConnectionLost:
                await self._connection.ready()
                if self._connection.is_closed:
                    raise

    async def read_blocks(
        self,
        first: int,
        last: int,
        *,
        records_max: int = BLOCK_RECORDS_MAX,
        credit: int = CREDIT,
        filter: str | Iterable[str] | None = None,  # noqa: A002 - what everybody calls it
        match_unfiltered: bool = False,
        browse: bool = False,
    ) -> AsyncGenerator[Block, None]:
        """Read the records of [first, last) in order, in blocks of up to `records_max`.

        For millions of records: a block stores them in columns, without an object for each record.
        The other arguments and the errors are those of `read`.
        """
        if first < 0:
            raise ValueError(f"an offset cannot be negative: {first}")
        filter_values = _filter_values(filter, match_unfiltered)
        next_offset = first
        while next_offset < last:
            if filter_values is None or self._has_capability("stream_ranges"):
                reading = self._read_blocks_once(
                    next_offset, last, records_max, credit, filter_values, browse
                )
            else:
                reading = self._read_filtered(next_offset, last, records_max, credit, filter_values)
            try:
                async with aclosing(reading):
                    async for block in reading:
                        next_offset = block.last() + 1
                        yield block
                return
            except ConnectionLost:
                await self._connection.ready()
                if self._connection.is_closed:
                    raise

    async def _read_blocks_once(
        self,
        first: int,
        last: int,
        records_max: int,
        credit: int,
        filter_values: FilterValues,
        browse: bool,
    ) -> AsyncGenerator[Block, None]:
        """Read blocks on one channel."""
        exact = self._has_capability("stream_offset_query")
        ranges = self._has_capability("stream_ranges")
        async with self._connection.channel(confirm=False) as channel:
            collector = RangeCollector(first, last, records_max)
            reader = BlockReader(channel, self.name, collector, 0 if ranges else credit)
            arguments = _range_arguments(
                first, last, filter_values, exact=exact, ranges=ranges, browse=browse
            )
            # The broker ends a range by itself, so no acks are needed; the socket is the limit.
            consume = BasicConsume(
                queue=self.name, consumer_tag=TAG, no_ack=ranges, arguments=arguments
            )
            requests = (consume,) if ranges else (BasicQos(prefetch_count=credit), consume)
            expected = first
            try:
                await channel.attach(TAG, reader, requests, collector, reader.after_read)
                while (block := await reader.take()) is not None:
                    if not (exact or browse) and block.first() > expected:
                        raise _offset_gone(self.name, expected, block.first())
                    expected = block.last() + 1
                    yield block
            finally:
                reader.drop()

    async def _read_filtered(
        self, first: int, last: int, records_max: int, credit: int, filter_values: FilterValues
    ) -> AsyncGenerator[Block, None]:
        """Read blocks at a broker without filters: the client drops the other records."""
        block = Block(records_max)
        async with aclosing(
            self._read_once(first, last, BATCH_MAX, credit, filter_values, False)
        ) as reading:
            async for batch in reading:
                for record in batch:
                    exchange, key = record.exchange.encode(), record.routing_key.encode()
                    block.add(record.offset, record.header, record.body, exchange, key, False)
                    if block.is_full():
                        yield block
                        block = Block(records_max)
        if block.count:
            yield block

    async def _read_once(
        self,
        first: int,
        last: int,
        batch_max: int,
        credit: int,
        filter_values: FilterValues,
        browse: bool,
    ) -> AsyncGenerator[list[Record], None]:
        """Read batches on one channel."""
        exact = self._has_capability("stream_offset_query")
        ranges = self._has_capability("stream_ranges")
        async with self._connection.channel(confirm=False) as channel:
            reader = RecordReader(channel, self.name, first, last)
            arguments = _range_arguments(
                first, last, filter_values, exact=exact, ranges=ranges, browse=browse
            )
            try:
                await self._consume(channel, reader, arguments, credit)
                while not reader.is_complete:
                    batch = await reader.take(batch_max)
                    if batch and not exact and batch[0].offset > reader.expected_first:
                        raise _offset_gone(self.name, reader.expected_first, batch[0].offset)
                    if batch:
                        reader.expected_first = batch[-1].offset + 1
                        if filter_values is not None and not ranges:
                            batch = [
                                record for record in batch if filter_value(record) in filter_values
                            ]
                    if batch:
                        yield batch
                    reader.acknowledge(credit)
            finally:
                reader.drop()

    async def _consume(
        self, channel: Channel, reader: RecordReader, arguments: dict[str, Value], credit: int
    ) -> None:
        requests = (
            BasicQos(prefetch_count=credit),
            BasicConsume(queue=self.name, consumer_tag=TAG, arguments=arguments),
        )
        await channel.attach(TAG, reader, requests)

    def _has_capability(self, capability: str) -> bool:
        """Return True if the broker announces a capability, of RabbitMQ or of Headrace."""
        return announces(self._connection.server_properties, capability)

    async def _query(self, point: Value) -> int:
        """Return the offset of `first`, `next` or a time, which Headrace sends on request.

        The 64 bits of the offset are in the two counts of queue.declare-ok. AMQP 0-10 has no such
        answer, so there the request is a message.
        """
        if self._connection.version is V0_10:
            async with Requests(self._connection) as requests:
                if isinstance(point, datetime):
                    moment_ms = max(0, int(point.timestamp() * 1000))
                    answer = await requests.ask(
                        "stream.offset", stream=self.name, timestamp_ms=moment_ms
                    )
                    return int(answer["offset"])
                answer = await requests.ask("stream.info", stream=self.name)
                return int(answer["first" if point == "first" else "next"])
        async with self._connection.channel(confirm=False) as channel:
            state = await channel.declare_queue(
                self.name, passive=True, arguments={"x-stream-offset-query": point}
            )
        return state.consumer_count << 32 | state.message_count

    async def _probe(self, start: Value, credit: int) -> list[int]:
        """Consume from `start` until no more records arrive; return the offsets of the records."""
        offsets: list[int] = []
        async with self._connection.channel(confirm=False) as channel:
            reader = RecordReader(channel, self.name, 0, 1 << 62)
            try:
                await self._consume(channel, reader, {"x-stream-offset": start}, credit)
                while not offsets or credit > 1:
                    async with asyncio.timeout(PROBE_QUIET_S if offsets else PROBE_TIMEOUT_S):
                        offsets += [record.offset for record in await reader.take(BATCH_MAX)]
                    reader.acknowledge(credit)
            except TimeoutError:
                pass  # The last record has been delivered.
            finally:
                reader.drop()
        return offsets


def _range_arguments(
    first: int,
    last: int,
    filter_values: FilterValues,
    *,
    exact: bool,
    ranges: bool,
    browse: bool = False,
) -> dict[str, Value]:
    """Return the arguments of a consumer of [first, last), as far as the broker supports them."""
    arguments: dict[str, Value] = {"x-stream-offset": first}
    if browse:
        arguments |= {"x-browse": True, "x-stream-last": last}
    elif exact:
        arguments["x-stream-offset-error"] = True
    if ranges and not browse:
        arguments["x-stream-last"] = last
        if filter_values is not None:
            arguments["x-stream-filter"] = [*sorted(filter_values - {None}, key=str)]
            arguments["x-stream-match-unfiltered"] = None in filter_values
    return arguments


def _filter_values(values: str | Iterable[str] | None, match_unfiltered: bool) -> FilterValues:
    """Return the filter values of `read`; None without a filter."""
    if values is None:
        return None
    filter_values: set[str | None] = {values} if isinstance(values, str) else set(values)
    if not filter_values:
        raise ValueError("a filter needs at least one value")
    if match_unfiltered:
        filter_values.add(None)
    return frozenset(filter_values)


def _offset_gone(name: str, offset: int, first: int) -> ClientError:
    text = f"NOT_FOUND - offset {offset} is gone from stream '{name}'; the first is {first}"
    return OffsetGone(404, text)
