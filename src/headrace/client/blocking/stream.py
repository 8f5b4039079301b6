# SPDX-License-Identifier: Apache-2.0
"""A stream for programs without asyncio."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterable, Iterator
from datetime import datetime
from typing import TYPE_CHECKING, TypeVar

from headrace.client.blocking.loop_thread import LOOP
from headrace.client.stream.blocks import BLOCK_RECORDS_MAX, Block
from headrace.client.stream.stream import BATCH_MAX, CREDIT, Measure

if TYPE_CHECKING:
    from headrace.client.stream import stream as _stream
    from headrace.client.stream.reader import Record

T = TypeVar("T")


class Stream:
    """A stream of a connection; get one with `connection.stream(name)`."""

    def __init__(self, source: _stream.Stream, timeout_s: float | None) -> None:
        self._source = source
        self._timeout_s = timeout_s

    def __repr__(self) -> str:
        return repr(self._source)

    @property
    def name(self) -> str:
        """The name of the stream."""
        return self._source.name

    def first_offset(self) -> int:
        """The offset of the oldest record that is kept; that of the next one when none is."""
        return LOOP.run(self._source.first_offset(), self._timeout_s)

    def last_offset(self) -> int:
        """The end of what is committed: the offset that the next record will have."""
        return LOOP.run(self._source.last_offset(), self._timeout_s)

    def offset_at(self, moment: datetime) -> int:
        """The offset of the first record that arrived at `moment` or later, or the end."""
        return LOOP.run(self._source.offset_at(moment), self._timeout_s)

    def measure(
        self,
        first: int,
        last: int | None = None,
        *,
        records_max: int | None = None,
        octets_max: int | None = None,
    ) -> Measure:
        """How many records and octets [first, last) has, or as much as the limits allow.

        OffsetGone when `first` is no longer kept; UsageError when the broker is no Headrace.
        """
        measuring = self._source.measure(
            first, last, records_max=records_max, octets_max=octets_max
        )
        return LOOP.run(measuring, self._timeout_s)

    def read(
        self,
        first: int,
        last: int,
        *,
        batch_max: int = BATCH_MAX,
        credit: int = CREDIT,
        filter: str | Iterable[str] | None = None,  # noqa: A002 - what everybody calls it
        match_unfiltered: bool = False,
        browse: bool = False,
    ) -> Iterator[list[Record]]:
        """The records of [first, last) in order, in batches of up to `batch_max`.

        With a `filter` only those that were published with one of these filter values, and with
        `match_unfiltered` those without any as well. OffsetGone when `first` is no longer kept.
        Waits for records that are not yet there, for each batch at most the `timeout_s` of the
        connection. With `browse` an ordinary queue of Headrace is looked at, by positions.
        """
        return self._each(
            self._source.read(
                first,
                last,
                batch_max=batch_max,
                credit=credit,
                filter=filter,
                match_unfiltered=match_unfiltered,
                browse=browse,
            )
        )

    def read_blocks(
        self,
        first: int,
        last: int,
        *,
        records_max: int = BLOCK_RECORDS_MAX,
        credit: int = CREDIT,
        filter: str | Iterable[str] | None = None,  # noqa: A002 - what everybody calls it
        match_unfiltered: bool = False,
        browse: bool = False,
    ) -> Iterator[Block]:
        """The records of [first, last) in order, in blocks of `records_max` but for the last.

        As `read`, for very many records: a block keeps them in columns.
        """
        return self._each(
            self._source.read_blocks(
                first,
                last,
                records_max=records_max,
                credit=credit,
                filter=filter,
                match_unfiltered=match_unfiltered,
                browse=browse,
            )
        )

    def _each(self, reading: AsyncGenerator[T, None]) -> Iterator[T]:
        turn = asyncio.Lock()  # An interrupted `following` ends before `close` begins.

        async def following() -> T | None:
            async with turn:
                return await anext(reading, None)

        async def close() -> None:
            async with turn:
                await reading.aclose()

        try:
            while (some := LOOP.run(following(), self._timeout_s)) is not None:
                yield some
        finally:
            LOOP.run(close())
