# SPDX-License-Identifier: Apache-2.0
"""Publishing by the thousand for programs without asyncio: see `headrace.client.bulk.publisher`."""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING, Self

from headrace.client.blocking.loop_thread import LOOP
from headrace.client.bulk import publisher as _bulk

if TYPE_CHECKING:
    from headrace.client.blocking import Connection
    from headrace.client.bulk.publisher import Failure


class BulkPublisher:
    """Publishes encoded frames by the thousand. `with` opens and closes its channel."""

    def __init__(self, connection: Connection) -> None:
        self._source = _bulk.BulkPublisher(connection.source)

    def __enter__(self) -> Self:
        LOOP.run(self._source.__aenter__())
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        LOOP.run(self._source.__aexit__(kind, error, traceback))

    @property
    def number(self) -> int:
        """The channel that frames must be encoded for."""
        return self._source.number

    @property
    def frame_max(self) -> int:
        """The size of a frame that they must not exceed, in octets."""
        return self._source.frame_max

    @property
    def failures(self) -> dict[int, Failure]:
        """Publishes that the broker did not take, by their number in the order of sending."""
        return self._source.failures

    @property
    def failed(self) -> int:
        """How many they are; the first of them are in `failures`."""
        return self._source.failed

    def send(self, octets: bytes | bytearray, count: int) -> None:
        """Send `count` publishes; waits while too much is not confirmed."""
        LOOP.run(self._source.send(octets, count))

    def finish(self) -> None:
        """Wait until every publish has its outcome."""
        LOOP.run(self._source.finish())
