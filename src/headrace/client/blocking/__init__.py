# SPDX-License-Identifier: Apache-2.0
"""The client for programs without asyncio: the same calls, and they block.

The asyncio client runs on a thread of its own, one for all connections of the process. So
heartbeats go out while the program computes, and a consumer's messages are already here when it
asks for the next. Everything may be used from any thread. `timeout_s` of `connect` bounds calls.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from headrace.client.blocking.backlog import Confirmation
from headrace.client.blocking.calls import ConnectionCalls
from headrace.client.blocking.channel import Channel, Consumer, Delivery, Transaction
from headrace.client.blocking.loop_thread import LOOP
from headrace.client.blocking.session import Session, Subscription
from headrace.client.blocking.stream import Stream
from headrace.client.channel.closing import Closing
from headrace.client.channel.publishing import UNCONFIRMED_MAX
from headrace.client.connection import connection as _connection
from headrace.client.connection.connection import RECONNECT
from headrace.client.link.backpressure import HELD_MAX, HIGH_WATER

if TYPE_CHECKING:
    import ssl

    from headrace.client.channel import channel as _channel
    from headrace.client.connection.reconnect import Reconnect
    from headrace.client.errors import Returned
    from headrace.client.events import Event
    from headrace.client.session import session as _session

__all__ = [
    "Channel",
    "Confirmation",
    "Connection",
    "Consumer",
    "Delivery",
    "Session",
    "Stream",
    "Subscription",
    "Transaction",
    "connect",
]


class Connection(ConnectionCalls, Closing):
    """A connection to a broker. Make one with `connect`."""

    def __init__(self, source: _connection.Connection, timeout_s: float | None) -> None:
        self._source = source
        self._timeout_s = timeout_s

    def channel(
        self,
        *,
        confirm: bool = True,
        unconfirmed_max: int = UNCONFIRMED_MAX,
        retry_lost: bool = False,
        on_return: Callable[[Returned], None] | None = None,
    ) -> Channel:
        """Open a channel; `with` closes it.

        `confirm=False` publishes without waiting; returned messages then go to `on_return`.
        `retry_lost` publishes again what a lost connection left unconfirmed, perhaps twice.
        """

        async def open_channel() -> _channel.Channel:
            return await self._source.channel(
                confirm=confirm,
                unconfirmed_max=unconfirmed_max,
                retry_lost=retry_lost,
                on_return=on_return,
            )

        return Channel(LOOP.run(open_channel(), self._timeout_s), self._timeout_s)

    def session(
        self, name: str | bytes = "", *, timeout_s: int | None = 0, force: bool = False
    ) -> Session:
        """A session of AMQP 0-10, attached; `with` closes it.

        The broker keeps it for `timeout_s` (None: for good) when its connection is lost. `force`
        takes it away from the connection that it is attached to.
        """

        async def open_session() -> _session.Session:
            return await self._source.session(name, timeout_s=timeout_s, force=force)

        return Session(LOOP.run(open_session(), self._timeout_s), self._timeout_s)

    def stream(self, name: str) -> Stream:
        """A stream, to be read by offset."""
        return Stream(self._source.stream(name), self._timeout_s)

    def wait_ready(self) -> None:
        """Wait until the connection is usable, or closed for good."""
        LOOP.run(self._source.ready(), self._timeout_s)

    def close(self) -> None:
        """Close the connection; the broker puts back what was not settled."""
        LOOP.run(self._source.close())


def connect(
    url: str | Sequence[str],
    *,
    timeout_s: float | None = None,
    reconnect: Reconnect | None = RECONNECT,
    ssl_context: ssl.SSLContext | None = None,
    on_event: Callable[[Event], None] | None = None,
    name: str = "",
    high_water: int = HIGH_WATER,
    held_max: int = HELD_MAX,
) -> Connection:
    """Connect to a broker; `with` closes the connection.

    `timeout_s` bounds every call on the connection with a TimeoutError. Callbacks run on the
    client's own thread and must not block. All else is as for the asyncio `connect`.
    """

    async def open_connection() -> _connection.Connection:
        return await _connection.connect(
            url,
            reconnect=reconnect,
            ssl_context=ssl_context,
            on_event=on_event,
            name=name,
            high_water=high_water,
            held_max=held_max,
        )

    return Connection(LOOP.run(open_connection(), timeout_s), timeout_s)
