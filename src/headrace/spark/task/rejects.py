# SPDX-License-Identifier: Apache-2.0
"""Rejects of leased messages whose bodies cannot be decoded.

A task does not own the lease, so it rejects in advance: for each batch of rows it reports the
malformed messages to the broker. They become dead letters of the queue when the driver settles the
batch. A report of a task that runs again replaces the earlier one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from headrace.client.requests import RequestRefused
from headrace.columns.read.dead_letters import DeadLetterError
from headrace.columns.runtime.connections import Purpose, requests, run_with_retry

if TYPE_CHECKING:
    from headrace.client import blocking
    from headrace.columns.options.options import ReadOptions
    from headrace.columns.schema.offsets import Range
    from headrace.untyped import Json, JsonObject

NUMBERS_MAX: Final = 20_000  # Numbers of one request.


@dataclass(slots=True)
class Rejects:
    """The rejects of one task among leased messages; `owner` is the owner of the lease."""

    options: ReadOptions
    owner: str
    piece: Range
    _known: set[int] | None = field(default=None, init=False)  # Numbers the broker has.

    def record(self, first: int, last: int, bad: Sequence[int]) -> None:
        """Report the malformed messages of [first, last), exactly and in order.

        DeadLetterError when the broker refuses the report.
        """
        if self._known is None:
            answer = self._ask("rejected", first=self.piece.first, last=self.piece.last)
            self._known = {number for low, high in answer["numbers"] for number in range(low, high)}
        for low, high, numbers in _chunks(first, last, bad):
            if {number for number in self._known if low <= number < high} != set(numbers):
                self._ask(
                    "reject", owner=self.owner, first=low, last=high, numbers=list(_ranges(numbers))
                )

    def clear(self) -> None:
        """Report that no message of the range is malformed."""
        self.record(self.piece.first, self.piece.last, ())

    def _ask(self, what: str, **fields: Json) -> JsonObject:
        options = self.options

        def ask(connection: blocking.Connection) -> JsonObject:
            return requests(connection).ask(
                f"lease.{what}", queue=options.queue, group=options.group, **fields
            )

        try:
            return run_with_retry(
                options.uri, options.reconnect_timeout_s, ask, Purpose.ASK, known=True
            )
        except RequestRefused as refused:
            raise DeadLetterError(
                f"bad rows of {options.queue!r} could not be rejected: {refused.text}"
            ) from None


def _chunks(first: int, last: int, bad: Sequence[int]) -> Iterator[tuple[int, int, Sequence[int]]]:
    """Cut a range into parts with at most `NUMBERS_MAX` malformed messages."""
    while len(bad) > NUMBERS_MAX:
        cut = bad[NUMBERS_MAX]
        yield first, cut, bad[:NUMBERS_MAX]
        first, bad = cut, bad[NUMBERS_MAX:]
    yield first, last, bad


def _ranges(numbers: Sequence[int]) -> Iterator[list[int]]:
    """Return the runs of consecutive numbers, as pairs [first, last)."""
    start = end = -1
    for number in numbers:
        if number != end:
            if start >= 0:
                yield [start, end]
            start = number
        end = number + 1
    if start >= 0:
        yield [start, end]
