# SPDX-License-Identifier: Apache-2.0
"""The client for programs without asyncio: the calls of the asyncio client, which block.

One background thread runs the asyncio client for all connections of the process. So heartbeats are
sent while the program computes, and messages are prefetched. All objects may be used from any
thread. `timeout_s` of `connect` bounds every call, in seconds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from headrace.client.blocking.backlog import Confirmation
from headrace.client.blocking.calls import ConnectionCalls
from headrace.client.blocking.channel import Channel, Consumer, Delivery, Transaction
from headrace.client.blocking.loop_thread import LOOP, leave_interrupted
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

        With `confirm`, a publish waits for the broker's confirm, and at most `unconfirmed_max`
        messages are unconfirmed at a time. With `confirm=False` publishes do not wait, and
        `on_return` is called with returned messages. With `retry_lost`, messages whose confirms
        were lost with the connection are published again, so the broker may have them twice.
        """

        async def open_channel() -> _channel.Channel:
            return await self._source.channel(
                confirm=confirm,
                unconfirmed_max=unconfirmed_max,
                retry_lost=retry_lost,
                on_return=on_return,
            )

        return Channel(self._run(open_channel(), discard=leave_interrupted), self._timeout_s)

    def session(
        self, name: str | bytes = "", *, timeout_s: int | None = 0, force: bool = False
    ) -> Session:
        """Attach a session of AMQP 0-10; `with` closes it.

        The broker keeps a detached session for `timeout_s` seconds (None: for good). `force` takes
        the session from the connection it is attached to. Raises UsageError in any other version.
        """

        async def open_session() -> _session.Session:
            return await self._source.session(name, timeout_s=timeout_s, force=force)

        return Session(self._run(open_session(), discard=leave_interrupted), self._timeout_s)

    def stream(self, name: str) -> Stream:
        """Return a stream, to be read by offset."""
        return Stream(self._source.stream(name), self._timeout_s)

    def wait_ready(self) -> None:
        """Wait until the connection is ready, or closed for good; raises TimeoutError."""
        LOOP.run(self._source.ready(), self._timeout_s)

    def close(self) -> None:
        """Close the connection. Unconfirmed publishes fail, unacked messages are requeued."""
        LOOP.run(self._source.close(), must_finish=True)


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

    A call that takes more than `timeout_s` seconds raises TimeoutError (None: no limit). Callbacks
    run on the client's own thread and must not block. The other arguments are those of
    `headrace.client.connect`.
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

    return Connection(LOOP.run(open_connection(), timeout_s, discard=leave_interrupted), timeout_s)
