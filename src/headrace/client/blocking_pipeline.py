# SPDX-License-Identifier: Apache-2.0
"""What pipelines need of a broker beside AMQP's methods, for programs without asyncio.

Each class is the blocking twin of the one of the same name in the asyncio client; see there.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from headrace.client import requests as _requests
from headrace.client.background import LOOP
from headrace.client.requests import ANSWER_S, PIPELINE

if TYPE_CHECKING:
    from headrace.client.blocking import Connection


class Requests:
    """Asks one queue of a broker. `with`, or `close`, closes its channel."""

    def __init__(
        self, connection: Connection, queue: str = PIPELINE, *, timeout_s: float = ANSWER_S
    ) -> None:
        self._source = _requests.Requests(connection.source, queue, timeout_s=timeout_s)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return repr(self._source)

    @property
    def source(self) -> _requests.Requests:
        """The asyncio object that does the work, on the client's own thread."""
        return self._source

    def ask(self, what: str, **fields: Any) -> dict[str, Any]:
        """Send the request `what` with its fields; return the answer."""
        return LOOP.run(self._source.ask(what, **fields))

    def send(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """As `ask`, with the whole object."""
        return LOOP.run(self._source.send(request))

    def close(self) -> None:
        """Close the channel; requests under way fail."""
        LOOP.run(self._source.close())
