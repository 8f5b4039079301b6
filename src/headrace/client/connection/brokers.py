# SPDX-License-Identifier: Apache-2.0
"""The brokers of one connection, and the search for the first one that accepts it.

A program configures one broker or several, and a broker may advertise more that serve the virtual
host. After a loss all of them are tried in parallel: attempts at a machine that is down time out
slowly, and must not delay the broker that took over.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from dataclasses import replace
from typing import TYPE_CHECKING

from headrace.client.errors import AuthenticationFailed, ConnectFailed
from headrace.client.link.open import open_link, redirected_settings
from headrace.client.url import Secret

if TYPE_CHECKING:
    import ssl
    from collections.abc import Coroutine, Iterable, Sequence

    from headrace.client.connection.reconnect import Reconnect
    from headrace.client.link.link_0_x import Link, LinkOwner
    from headrace.client.url import Settings

log = logging.getLogger(__name__)

NEXT_BROKER_S = 1.0  # The wait for the answer of a broker before the next is tried as well.
HEAD_START_S = 0.1  # The delay between the first attempts at one broker and at the next.
HEAD_START_MAX_S = 0.5


class BrokerList:
    """The brokers of one connection, with the settings to log in."""

    def __init__(self, configured: Sequence[Settings], ssl_context: ssl.SSLContext | None) -> None:
        self.configured = list(configured)  # The brokers of the program's URLs.
        self.advertised: list[Settings] = []  # The known hosts of the current broker.
        self.current = self.configured[0]  # The broker of the present or last connection.
        self.ssl_context = ssl_context

    def replace_password(self, secret: str) -> None:
        """Replace the password of all brokers, for later logins."""
        self.configured = [replace(broker, password=Secret(secret)) for broker in self.configured]
        self.advertised = [replace(broker, password=Secret(secret)) for broker in self.advertised]
        self.current = replace(self.current, password=Secret(secret))

    def use_link(self, link: Link) -> None:
        """Record the broker of an open link, and the brokers that it advertises."""
        self.current = link.settings
        self.advertised = [redirected_settings(host, link.settings) for host in link.known_hosts]
        if link.settings.insist:
            self.advertised = []

    def list_by_preference(self) -> list[Settings]:
        """Return all brokers, each once, beginning with the current one."""
        brokers: dict[tuple[str, int], Settings] = {}
        start = self.configured.index(self.current) if self.current in self.configured else 0
        for broker in (*self.configured[start:], *self.configured[:start], *self.advertised):
            brokers.setdefault((broker.host, broker.port), broker)
        return list(brokers.values())

    async def connect_first(self, owner: LinkOwner) -> Link:
        """Connect for the first time: try the brokers in turn, `connection_attempts` times.

        Raises:
            ConnectFailed: no broker accepts the connection.
            AuthenticationFailed: a broker refuses the login.
        """
        settings = self.configured[0]
        for attempts_left in reversed(range(settings.connection_attempts)):
            try:
                return await self._connect_in_turn(owner)
            except AuthenticationFailed:
                raise
            except ConnectFailed as error:
                if not attempts_left:
                    raise
                log.info("%s", error)
            await asyncio.sleep(settings.retry_delay_s)
        raise AssertionError("a connection has at least one attempt")

    async def _connect_in_turn(self, owner: LinkOwner) -> Link:
        failed = [asyncio.Event() for _ in self.configured]

        async def attempt(index: int, settings: Settings) -> Link:
            if index:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(index * NEXT_BROKER_S):
                        await failed[index - 1].wait()
            try:
                return await open_link(settings, owner, self.ssl_context)
            except ConnectFailed:
                failed[index].set()
                raise

        return await _first_to_open(
            [attempt(index, settings) for index, settings in enumerate(self.configured)]
        )

    def search(self, owner: LinkOwner, reconnect: Reconnect) -> BrokerSearch:
        """Begin a search for a broker after a loss."""
        return BrokerSearch(self, owner, reconnect)


class BrokerSearch:
    """Attempts at all brokers after a loss, until the connection is restored on one."""

    def __init__(self, brokers: BrokerList, owner: LinkOwner, reconnect: Reconnect) -> None:
        nearest = brokers.list_by_preference()
        self._broker_attempts = [
            BrokerAttempts(
                brokers, settings, owner, reconnect, index, has_alternatives=len(nearest) > 1
            )
            for index, settings in enumerate(nearest)
        ]

    @property
    def attempts(self) -> int:
        """The number of attempts begun so far, at all brokers."""
        return sum(broker_attempts.attempts for broker_attempts in self._broker_attempts)

    async def next(self) -> Link:
        """Return the link of the broker that accepts the connection first.

        Raises:
            ConnectFailed: no broker accepted the connection in all attempts.
            AuthenticationFailed: a broker refused the login, which ends the search.
        """
        return await _first_to_open(
            [broker_attempts.open() for broker_attempts in self._broker_attempts]
        )


class BrokerAttempts:
    """The attempts at one broker, each after the delay of the back-off."""

    def __init__(
        self,
        brokers: BrokerList,
        settings: Settings,
        owner: LinkOwner,
        reconnect: Reconnect,
        index: int,
        *,
        has_alternatives: bool,
    ) -> None:
        self.attempts = 0
        self._brokers = brokers
        self._settings = settings
        self._owner = owner
        self._delays = reconnect.delays(several=has_alternatives)
        self._head_start_s = min(index * HEAD_START_S, HEAD_START_MAX_S)
        # A relay to a machine that is down does not answer, so the timeout is short. A broker that
        # is busy with many logins is slow, so each attempt that times out doubles the next timeout.
        self._timeout_s = settings.connection_timeout_s
        if has_alternatives:
            self._timeout_s = min(self._timeout_s, NEXT_BROKER_S)

    async def open(self) -> Link:
        """Return a link once the broker accepts it; ConnectFailed after all attempts."""
        loop = asyncio.get_running_loop()
        last_error = ConnectFailed(f"no attempts are left for {self._settings.address}")
        for delay_s in self._delays:
            await asyncio.sleep(self._head_start_s + delay_s)
            self._head_start_s = 0.0
            self.attempts += 1
            began_s = loop.time()
            # The program may have replaced the password since the loss.
            settings = replace(self._settings, password=self._brokers.current.password)
            try:
                return await open_link(
                    settings, self._owner, self._brokers.ssl_context, self._timeout_s
                )
            except AuthenticationFailed:
                raise
            except ConnectFailed as error:
                log.info("%s", error)
                last_error = error
            if loop.time() - began_s >= self._timeout_s:
                self._timeout_s = min(2 * self._timeout_s, settings.connection_timeout_s)
        raise last_error


async def _first_to_open(openings: Sequence[Coroutine[object, object, Link]]) -> Link:
    """Return the link that opens first, and close the others; ConnectFailed when all fail."""
    if len(openings) == 1:
        return await openings[0]
    tasks = [asyncio.create_task(opening) for opening in openings]
    link: Link | None = None
    try:
        link = await _wait_first_open(tasks)
    finally:
        for task in tasks:
            task.cancel()
        for outcome in await asyncio.gather(*tasks, return_exceptions=True):
            if not isinstance(outcome, BaseException) and outcome is not link:
                outcome.abort()
    if not link.is_open:
        raise ConnectFailed(f"{link.settings.address} closed the connection at once")
    return link


async def _wait_first_open(tasks: Sequence[asyncio.Task[Link]]) -> Link:
    pending = set(tasks)
    while pending:
        done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            error = task.exception()
            if error is None:
                return task.result()
            if not isinstance(error, ConnectFailed) or isinstance(error, AuthenticationFailed):
                raise error
    raise _combine_errors([task.exception() for task in tasks])


def _combine_errors(errors: Iterable[BaseException | None]) -> ConnectFailed:
    """Return one error for all brokers; it has a code only if each of them sent one."""
    failures = [error for error in errors if isinstance(error, ConnectFailed)]
    last_error = next((failure for failure in failures if not failure.code), failures[-1])
    return ConnectFailed("; ".join(map(str, failures)), last_error.code, last_error.text)
