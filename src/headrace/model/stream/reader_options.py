# SPDX-License-Identifier: Apache-2.0
"""Options of stream readers: an end, filter values, failing on gaps, a selector.

A publisher may set a filter value for a record, and a reader may select records by these values.
The broker checks every record, so that a reader gets only matching ones. It stores the values that
occur in each block of records, so that a later reader skips blocks without its values.

The log does not have the publishers of its records. While a reader with no-local is subscribed,
the offsets of its connection's publishes are recorded as runs, until the reader has passed them.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING

from headrace.model.arguments.consumer import read_boolean
from headrace.model.arguments.values import as_list, parse_integer
from headrace.model.errors import PreconditionFailed
from headrace.model.message import new_message

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headrace.model.contents import Contents
    from headrace.model.selector import Selector
    from headrace.model.stream.log import StreamRecord

BLOCK = 1024  # Offsets of one block; blocks start at its multiples.
BLOCKS_MAX = 16384  # Blocks of one stream whose values are stored; the oldest are dropped.
VALUES_MAX = 64  # Stored values of a block; a block with more values is always read.
FILTER_MAX = 256  # Filter values of one reader.
FILTER_BYTES_MAX = 255  # Bytes of a filter value.
RUNS_MAX = 65536  # Runs of a reader with no-local; beyond it the reader fails.


class StreamReader:
    """The options and position of one reader."""

    def __init__(
        self, last: int, values: frozenset[str] | None, unfiltered: bool, strict: bool
    ) -> None:
        self.next = 0  # The next offset to read.
        self.last = last  # The end, exclusive; -1 is none.
        self.filter_values: frozenset[str | None] | None = None  # None: all records.
        if values is not None:  # None among the values: records without one.
            self.filter_values = values | {None} if unfiltered else values
        self.strict = strict  # Fail if retention removed unread records.
        self.selector: Selector | None = None  # Applied to records with these values.
        self.own: OwnRecords | None = None  # Records to skip for no-local.
        # The offset up to which the block's values are recorded; -1 if not from its start.
        self.block_next = -1
        self.block_values: set[str | None] = set()

    @property
    def is_plain(self) -> bool:
        """True if the reader reads all records."""
        anything = self.filter_values is None and self.selector is None and self.own is None
        return anything and self.last < 0 and not self.strict

    def filter_records(
        self, entries: list[StreamRecord], contents: Contents, blocks: FilterBlocks
    ) -> list[StreamRecord]:
        """Return the records that match the filter, and record the filter values of all."""
        if self.last >= 0 and entries[-1][0] >= self.last:
            entries = [entry for entry in entries if entry[0] < self.last]
            self.next = self.last
        else:
            self.next = entries[-1][0] + 1
        filter_values = self.filter_values
        if filter_values is None:
            return self.select(entries, contents)
        value_of = contents.filter_value
        matching = []
        for entry in entries:
            value = value_of(entry[1], entry[2])
            if value in filter_values:
                matching.append(entry)
            self._record_value(entry[0], value, blocks)
        return self.select(matching, contents)

    def select(self, entries: list[StreamRecord], contents: Contents) -> list[StreamRecord]:
        """Return the records that pass no-local and the selector."""
        own = self.own
        if own is not None:
            entries = [entry for entry in entries if entry[0] not in own]
            own.pass_by(self.next)
        selector = self.selector
        if selector is None:
            return entries
        matching = []
        for entry in entries:
            message = new_message(entry[1], entry[2], entry[3])
            message.seq = entry[0]
            if selector.matches(contents.values(message)):
                matching.append(entry)
        return matching

    def _record_value(self, offset: int, value: str | None, blocks: FilterBlocks) -> None:
        """Record the filter value of a record for its block."""
        if offset % BLOCK == 0:
            self.block_values = set()
        elif offset != self.block_next:
            self.block_next = -1  # The block was not read from its start, or a record is lost.
            return
        self.block_next = offset + 1
        values = self.block_values
        if len(values) <= VALUES_MAX:
            values.add(value)
        if (offset + 1) % BLOCK == 0:
            blocks.put(offset // BLOCK, values)


class OwnRecords:
    """The offsets of records that a reader's own connection published, for no-local."""

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []  # Exclusive.

    def __len__(self) -> int:
        """Return the number of runs."""
        return len(self._starts)

    def record(self, offset: int) -> None:
        """Record the offset of a record from the reader's connection; offsets increase."""
        if self._ends and self._ends[-1] == offset:
            self._ends[-1] = offset + 1
        else:
            self._starts.append(offset)
            self._ends.append(offset + 1)

    def __contains__(self, offset: int) -> bool:
        index = bisect_right(self._starts, offset)
        return index > 0 and offset < self._ends[index - 1]

    def pass_by(self, offset: int) -> None:
        """Drop the runs before an offset that the reader has passed."""
        count = bisect_right(self._ends, offset)
        del self._starts[:count]
        del self._ends[:count]


class FilterBlocks:
    """The filter values that occur in the blocks of one stream."""

    def __init__(self) -> None:
        self._values: dict[int, frozenset[str | None]] = {}
        self._shared: dict[frozenset[str | None], frozenset[str | None]] = {}

    def __len__(self) -> int:
        return len(self._values)

    def put(self, block: int, values: set[str | None]) -> None:
        """Store the values of a complete block."""
        if block in self._values or len(values) > VALUES_MAX:
            return
        if len(self._values) >= BLOCKS_MAX:
            del self._values[next(iter(self._values))]
        if len(self._shared) > BLOCKS_MAX // 16:
            self._shared.clear()
        frozen = frozenset(values)
        self._values[block] = self._shared.setdefault(frozen, frozen)

    def skip(self, offset: int, end: int, filter_values: frozenset[str | None]) -> int:
        """Return the first offset from ``offset`` to ``end`` where a matching record may be."""
        values_by_block = self._values
        while offset < end:
            values = values_by_block.get(offset // BLOCK)
            if values is None or not values.isdisjoint(filter_values):
                return offset
            offset = (offset // BLOCK + 1) * BLOCK
        return end


def read_arguments(arguments: Mapping[str, object], subject: str) -> StreamReader:
    """Read the arguments of a consumer; ``subject`` names the stream in errors.

    Raises:
        PreconditionFailed: an argument is malformed.
    """
    last = parse_integer(arguments.get("x-stream-last", -1))
    if last is None or (last < 0 and "x-stream-last" in arguments):
        raise _invalid("x-stream-last", subject, "expected an offset")
    filter_argument = as_list(arguments.get("x-stream-filter"))
    values: frozenset[str] | None = None
    if filter_argument is not None:
        filter_values = filter_argument if isinstance(filter_argument, list) else [filter_argument]
        listed = [
            text.decode("utf-8", "replace") if isinstance(text, bytes) else text
            for text in filter_values
        ]
        if not listed or len(listed) > FILTER_MAX:
            raise _invalid("x-stream-filter", subject, f"expected 1 to {FILTER_MAX} values")
        texts = [text for text in listed if isinstance(text, str)]
        if len(texts) < len(listed):
            raise _invalid("x-stream-filter", subject, "expected a string or a list of strings")
        if any(len(text.encode()) > FILTER_BYTES_MAX for text in texts):
            raise _invalid(
                "x-stream-filter", subject, f"a value may have at most {FILTER_BYTES_MAX} bytes"
            )
        values = frozenset(texts)
    unfiltered = read_boolean(arguments, "x-stream-match-unfiltered", subject)
    return StreamReader(
        last, values, unfiltered, read_boolean(arguments, "x-stream-offset-error", subject)
    )


def _invalid(name: str, subject: str, reason: str) -> PreconditionFailed:
    return PreconditionFailed(f"invalid arg '{name}' for {subject}: {reason}")
