# SPDX-License-Identifier: Apache-2.0
"""Bodies of a queue that could not be decoded: its own dead letters, once the batch is settled.

A task owns nothing, so it rejects in advance: it tells the broker of each batch of rows which of
the leased messages are bad, and the settle of the driver makes dead letters of them. A task that
runs again says the same again, or with other options something else, which counts instead.
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

NUMBERS_MAX: Final = 20_000  # Of one request.


@dataclass(slots=True)
class Rejects:
    """The rejects of one task among leased messages; `owner` is that of its query."""

    options: ReadOptions
    owner: str
    piece: Range
    _known: set[int] | None = field(default=None, init=False)  # Already reported.

    def record(self, first: int, last: int, bad: Sequence[int]) -> None:
        """Of the numbers from `first` to before `last`, just these are bad; they are in order.

        DeadLetterError when the broker does not take that.
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
        """Nothing in the range is bad, as this query sees it."""
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
    """Cut a range so that none has too many bad numbers."""
    while len(bad) > NUMBERS_MAX:
        cut = bad[NUMBERS_MAX]
        yield first, cut, bad[:NUMBERS_MAX]
        first, bad = cut, bad[NUMBERS_MAX:]
    yield first, last, bad


def _ranges(numbers: Sequence[int]) -> Iterator[list[int]]:
    """Numbers in order, as ranges of those that follow each other."""
    start = end = -1
    for number in numbers:
        if number != end:
            if start >= 0:
                yield [start, end]
            start = number
        end = number + 1
    if start >= 0:
        yield [start, end]
