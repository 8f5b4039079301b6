# SPDX-License-Identifier: Apache-2.0
"""Rejects of leased messages whose bodies cannot be decoded.

A task does not own the lease, so it rejects in advance: for each batch of rows it reports the
malformed messages to the broker. They become dead letters of the queue when the driver settles the
batch. If a task runs again, its report replaces the earlier one.
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

NUMBERS_MAX: Final = 20_000  # Malformed messages in one request.


@dataclass(slots=True)
class Rejects:
    """The reports of one task about malformed messages in its range of a lease.

    `owner` is the name under which the query owns the lease.
    """

    options: ReadOptions
    owner: str
    stream_range: Range
    # The messages of the range that the broker has recorded as rejected, by number; None before
    # the first request.
    _known_numbers: set[int] | None = field(default=None, init=False)

    def record(self, first: int, last: int, malformed_offsets: Sequence[int]) -> None:
        """Report which messages of [first, last) are malformed, sorted by offset.

        The report replaces an earlier one about these messages.

        Raises:
            DeadLetterError: the broker refuses the report.
        """
        if self._known_numbers is None:
            answer = self._ask(
                "rejected", first=self.stream_range.first, last=self.stream_range.last
            )
            self._known_numbers = {
                number for low, high in answer["numbers"] for number in range(low, high)
            }
        for low, high, numbers in _split_report(first, last, malformed_offsets):
            if {number for number in self._known_numbers if low <= number < high} != set(numbers):
                self._ask(
                    "reject",
                    owner=self.owner,
                    first=low,
                    last=high,
                    numbers=list(_find_runs(numbers)),
                )

    def clear(self) -> None:
        """Report that no message of the task's range is malformed."""
        self.record(self.stream_range.first, self.stream_range.last, ())

    def _ask(self, operation: str, **fields: Json) -> JsonObject:
        """Send a request about the rejects of the lease."""
        options = self.options

        def send_request(connection: blocking.Connection) -> JsonObject:
            return requests(connection).ask(
                f"lease.{operation}", queue=options.queue, group=options.group, **fields
            )

        try:
            return run_with_retry(
                options.uri,
                options.reconnect_timeout_s,
                send_request,
                Purpose.ASK,
                reached_before=True,
            )
        except RequestRefused as refused:
            raise DeadLetterError(
                f"bad rows of {options.queue!r} could not be rejected: {refused.text}"
            ) from None


def _split_report(
    first: int, last: int, malformed_offsets: Sequence[int]
) -> Iterator[tuple[int, int, Sequence[int]]]:
    """Split [first, last) into parts with at most `NUMBERS_MAX` malformed messages each."""
    while len(malformed_offsets) > NUMBERS_MAX:
        cut = malformed_offsets[NUMBERS_MAX]
        yield first, cut, malformed_offsets[:NUMBERS_MAX]
        first, malformed_offsets = cut, malformed_offsets[NUMBERS_MAX:]
    yield first, last, malformed_offsets


def _find_runs(numbers: Sequence[int]) -> Iterator[list[int]]:
    """Yield the runs of consecutive numbers, as pairs [first, last)."""
    start = end = -1
    for number in numbers:
        if number != end:
            if start >= 0:
                yield [start, end]
            start = number
        end = number + 1
    if start >= 0:
        yield [start, end]
