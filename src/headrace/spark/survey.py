# SPDX-License-Identifier: Apache-2.0
"""What a planner asks about streams, answered by a broker."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING, TypeVar

from headrace.client.errors import NotFound
from headrace.spark.kinds import OptionError
from headrace.spark.links import patiently
from headrace.spark.planner import Place
from headrace.spark.records import missing

if TYPE_CHECKING:
    from headrace.client import blocking
    from headrace.spark.limits import Measured
    from headrace.spark.offsets import Range
    from headrace.spark.options import ReadOptions

T = TypeVar("T")


class Survey:
    """The streams of one read, at their broker."""

    def __init__(self, options: ReadOptions) -> None:
        assert options.streams is not None
        self.options = options
        self.streams = options.streams

    def identity(self) -> str:
        """Which broker it is; "" when it does not tell."""
        found = self._do(lambda connection: connection.server_properties.get("headrace_id", ""))
        return found if isinstance(found, str) else ""

    def places(self) -> dict[str, Place]:
        """The streams that are to be read now, and where they are."""
        return {stream: Place(0, self._of(stream, _last)) for stream in self.streams.names}

    def offset_at(self, stream: str, moment: datetime) -> int:
        """The offset of the first record that arrived at `moment` or later; the end if none did."""
        return self._of(stream, lambda asked: asked.offset_at(moment))

    def first_offset(self, stream: str) -> int:
        """The offset of the oldest record."""
        return self._of(stream, lambda asked: asked.first_offset())

    def measure(self, piece: Range, octets_max: int | None) -> Measured:
        """The records of a range; the first of them that have no more octets than so, or one."""
        raise OptionError("option 'maxBytesPerTrigger' needs a broker that can measure streams")

    def _of(self, stream: str, ask: Callable[[blocking.Stream], T]) -> T:
        try:
            return self._do(lambda connection: ask(connection.stream(stream)))
        except NotFound:
            raise missing(stream) from None

    def _do(self, work: Callable[[blocking.Connection], T]) -> T:
        return patiently(self.options.uri, self.options.reconnect_timeout_s, work)


def _last(stream: blocking.Stream) -> int:
    return stream.last_offset()
