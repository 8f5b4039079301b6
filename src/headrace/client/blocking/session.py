# SPDX-License-Identifier: Apache-2.0
"""Sessions of AMQP 0-10 for programs without asyncio."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING, Self

from headrace.client.blocking.calls import SessionCalls, SubscriptionCalls
from headrace.client.blocking.loop_thread import LOOP
from headrace.client.channel.closing import Closing
from headrace.client.errors import UsageError

if TYPE_CHECKING:
    from headrace.client.session import session as _session
    from headrace.client.session import subscription as _subscription
    from headrace.client.session.queries import SessionArguments
    from headrace.client.session.subscription import Transfer


class Subscription(SubscriptionCalls):
    """The messages of one destination of a session.

    Iterate over it to receive them; `with` cancels the subscription at the end of the block.
    """

    def __init__(self, source: _subscription.Subscription, timeout_s: float | None) -> None:
        self._source = source
        self._timeout_s = timeout_s
        self._fetched: deque[Transfer] = deque()  # Transfers fetched from the loop's thread.

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.cancel()

    def __iter__(self) -> Iterator[Transfer]:
        while True:
            try:
                yield self.receive()
            except UsageError:
                return  # This program cancelled the subscription.

    def receive(self, timeout_s: float | None = None) -> Transfer:
        """Wait for the next message; TimeoutError after `timeout_s` seconds."""
        if not self._fetched:
            LOOP.run(self._fetch(timeout_s))
        return self._fetched.popleft()

    def receive_nowait(self) -> Transfer | None:
        """Return the next message that has arrived, or None."""

        async def fetch() -> None:
            transfer = None if self._fetched else self._source.receive_nowait()
            if transfer is not None:
                self._fetched.append(transfer)

        if not self._fetched:
            LOOP.run(fetch())
        return self._fetched.popleft() if self._fetched else None

    def cancel(self) -> None:
        """Cancel the subscription; messages that the program has not received are released."""

        async def cancel() -> None:
            self._source.put_back(self._fetched)
            self._fetched.clear()
            await self._source.cancel()

        LOOP.run(cancel(), self._timeout_s, must_finish=True)

    async def _fetch(self, timeout_s: float | None) -> None:
        if not self._fetched:  # An interrupted call may have fetched a transfer just now.
            self._fetched.append(await self._source.receive(timeout_s))


class Session(SessionCalls, Closing):
    """A session of AMQP 0-10; get one with `connection.session(...)`."""

    def __init__(self, source: _session.Session, timeout_s: float | None) -> None:
        self._source = source
        self._timeout_s = timeout_s

    def subscribe(
        self,
        queue: str,
        destination: str = "",
        *,
        accept: bool = True,
        acquire: bool = True,
        exclusive: bool = False,
        arguments: SessionArguments | None = None,
        window: bool = False,
    ) -> Subscription:
        """Subscribe to a queue. Messages arrive once there is credit: see `Subscription.flow`.

        `acquire=False` browses: the messages stay in the queue for others. With `accept=False` the
        broker counts messages as accepted when it sends them. `window` sets the flow mode at once.
        """
        source = self._run(
            self._source.subscribe(
                queue,
                destination,
                accept=accept,
                acquire=acquire,
                exclusive=exclusive,
                arguments=arguments,
                window=window,
            ),
            discard=self._source.give_up,
        )
        return Subscription(source, self._timeout_s)
