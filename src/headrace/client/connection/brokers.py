# SPDX-License-Identifier: Apache-2.0
"""The brokers of one connection: which there are, and the first one that answers.

A program names one broker or several, and a broker may name more that serve the virtual host. After
a loss each of them has attempts of its own, side by side: a machine that is down answers nothing
for a long time, and must not delay the one that took over.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from dataclasses import replace
from typing import TYPE_CHECKING

from headrace.client.errors import AuthenticationFailed, ConnectFailed
from headrace.client.link.open import open_link, settings_at
from headrace.client.url import Secret

if TYPE_CHECKING:
    import ssl
    from collections.abc import Coroutine, Iterable, Sequence

    from headrace.client.connection.reconnect import Reconnect
    from headrace.client.link.link_0_x import Link, Owner
    from headrace.client.url import Settings

log = logging.getLogger(__name__)

UNANSWERED_S = 1.0  # The wait for one of several brokers before the next is tried as well.
HEAD_START_S = 0.1  # The head start of one broker over the next, after a loss.
HEAD_START_MAX_S = 0.5


class Brokers:
    """The brokers of one connection, and what is needed to log in there."""

    def __init__(self, named: Sequence[Settings], ssl_context: ssl.SSLContext | None) -> None:
        self.named = list(named)  # The program's list.
        self.known: list[Settings] = []  # The broker's list.
        self.recent = self.named[0]  # The broker of the present or last connection.
        self.ssl_context = ssl_context

    def renew(self, secret: str) -> None:
        """Replace the password."""
        self.named = [replace(broker, password=Secret(secret)) for broker in self.named]
        self.known = [replace(broker, password=Secret(secret)) for broker in self.known]
        self.recent = replace(self.recent, password=Secret(secret))

    def arrived(self, link: Link) -> None:
        """Remember the broker of an open link, and the others that it names."""
        self.recent = link.settings
        self.known = [settings_at(host, link.settings) for host in link.known_hosts]
        if link.settings.insist:
            self.known = []

    def nearest(self) -> list[Settings]:
        """Return all brokers, each once; first the recent one."""
        brokers: dict[tuple[str, int], Settings] = {}
        at = self.named.index(self.recent) if self.recent in self.named else 0
        for broker in (*self.named[at:], *self.named[:at], *self.known):
            brokers.setdefault((broker.host, broker.port), broker)
        return list(brokers.values())

    async def first(self, owner: Owner) -> Link:
        """Connect for the first time: try the brokers in turn, as often as the URL says.

        Raises:
            ConnectFailed: none of them accepts the connection.
            AuthenticationFailed: one of them refuses the login.
        """
        settings = self.named[0]
        for attempts_left in reversed(range(settings.connection_attempts)):
            try:
                return await self._in_turn(owner)
            except AuthenticationFailed:
                raise
            except ConnectFailed as error:
                if not attempts_left:
                    raise
                log.info("%s", error)
            await asyncio.sleep(settings.retry_delay_s)
        raise AssertionError("a connection has at least one attempt")

    async def _in_turn(self, owner: Owner) -> Link:
        failed = [asyncio.Event() for _ in self.named]

        async def attempt(number: int, settings: Settings) -> Link:
            if number:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(number * UNANSWERED_S):
                        await failed[number - 1].wait()
            try:
                return await open_link(settings, owner, self.ssl_context)
            except ConnectFailed:
                failed[number].set()
                raise

        return await _fastest([attempt(number, one) for number, one in enumerate(self.named)])

    def search(self, owner: Owner, reconnect: Reconnect) -> Search:
        """Return the search for a broker after a loss."""
        return Search(self, owner, reconnect)


class Search:
    """Attempts at all brokers after a loss, until the connection is restored on one."""

    def __init__(self, brokers: Brokers, owner: Owner, reconnect: Reconnect) -> None:
        nearest = brokers.nearest()
        self._lanes = [
            BrokerAttempts(brokers, settings, owner, reconnect, number, several=len(nearest) > 1)
            for number, settings in enumerate(nearest)
        ]

    @property
    def attempts(self) -> int:
        """The number of attempts that have begun."""
        return sum(lane.attempts for lane in self._lanes)

    async def next(self) -> Link:
        """Return the link of the broker that accepts the connection first.

        Raises:
            ConnectFailed: none of them did in all attempts; AuthenticationFailed at once.
        """
        return await _fastest([lane.open() for lane in self._lanes])


class BrokerAttempts:
    """Attempts at one broker, one after the other."""

    def __init__(
        self,
        brokers: Brokers,
        settings: Settings,
        owner: Owner,
        reconnect: Reconnect,
        number: int,
        *,
        several: bool,
    ) -> None:
        self.attempts = 0
        self._brokers = brokers
        self._settings = settings
        self._owner = owner
        self._delays = reconnect.delays(several=several)
        self._head_start_s = min(number * HEAD_START_S, HEAD_START_MAX_S)
        # A broker that relays to a machine that is down does not answer. Yet one that is busy with
        # many logins needs time: who ran out of it gets twice as much.
        self._limit_s = settings.connection_timeout_s
        if several:
            self._limit_s = min(self._limit_s, UNANSWERED_S)

    async def open(self) -> Link:
        """Return a link once the broker accepts it; ConnectFailed after all attempts."""
        loop = asyncio.get_running_loop()
        last = ConnectFailed(f"no attempts are left for {self._settings.address}")
        for delay_s in self._delays:
            await asyncio.sleep(self._head_start_s + delay_s)
            self._head_start_s = 0.0
            self.attempts += 1
            began_s = loop.time()
            # A program may have renewed the password since.
            settings = replace(self._settings, password=self._brokers.recent.password)
            try:
                return await open_link(
                    settings, self._owner, self._brokers.ssl_context, self._limit_s
                )
            except AuthenticationFailed:
                raise
            except ConnectFailed as error:
                log.info("%s", error)
                last = error
            if loop.time() - began_s >= self._limit_s:
                self._limit_s = min(2 * self._limit_s, settings.connection_timeout_s)
        raise last


async def _fastest(openings: Sequence[Coroutine[object, object, Link]]) -> Link:
    """Return the link that opens first, and give up the others; ConnectFailed when all fail."""
    if len(openings) == 1:
        return await openings[0]
    tasks = [asyncio.create_task(opening) for opening in openings]
    link: Link | None = None
    try:
        link = await _first_open(tasks)
    finally:
        for task in tasks:
            task.cancel()
        for other in await asyncio.gather(*tasks, return_exceptions=True):
            if not isinstance(other, BaseException) and other is not link:
                other.abort()
    if not link.is_open:
        raise ConnectFailed(f"{link.settings.address} closed the connection at once")
    return link


async def _first_open(tasks: Sequence[asyncio.Task[Link]]) -> Link:
    waiting = set(tasks)
    while waiting:
        done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            error = task.exception()
            if error is None:
                return task.result()
            if not isinstance(error, ConnectFailed) or isinstance(error, AuthenticationFailed):
                raise error
    raise _together([task.exception() for task in tasks])


def _together(errors: Iterable[BaseException | None]) -> ConnectFailed:
    """Return one error for all brokers; it has a code only if each of them sent one."""
    failures = [error for error in errors if isinstance(error, ConnectFailed)]
    last = next((failure for failure in failures if not failure.code), failures[-1])
    return ConnectFailed("; ".join(map(str, failures)), last.code, last.text)
