# SPDX-License-Identifier: Apache-2.0
"""Serves requests that other brokers of the cluster forward (:mod:`.forwarding`).

A link carries one request: an operation on the objects of one virtual host, or a sample. This
broker checks the rights of the operator's user again. Its audit log and its log name the operator,
and the broker that forwards the request.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from headrace.server.management.call import Call, OperationRefused
from headrace.server.management.client import OperatorClient
from headrace.server.management.operations import FORWARDED, SAMPLES
from headrace.server.observe.account_events import Operator

if TYPE_CHECKING:
    from headrace.server.cluster_relay.links import Asker, OperatorLink
    from headrace.server.management.call import JsonLine
    from headrace.server.management.managed_broker import ManagedBroker

SERVED_S = 12.0  # The time that a request waits while this broker takes over its virtual host.
POLL_S = 0.05  # The interval of checks during that wait.


async def serve(broker: ManagedBroker, link: OperatorLink, asker: Asker) -> None:
    """Serve the request of a link.

    Raises:
        OSError, TimeoutError: the other broker is gone.
    """
    await ForwardedClient(broker, link, asker).serve()


class ForwardedClient(OperatorClient):
    """An operator of another broker, whose request arrives over a link."""

    def __init__(self, broker: ManagedBroker, link: OperatorLink, asker: Asker) -> None:
        """``link`` is the link to the other broker, ``asker`` the operator there."""
        operator = f"{asker.words}, at broker '{asker.broker}'"
        super().__init__(broker, FORWARDED, operator, Operator(asker.name, asker.address))
        self.link = link
        self.user = asker.user

    async def serve(self) -> None:
        """Serve the request, then read the rest of its lines.

        The answer would be lost if the link was closed with unread lines.

        Raises:
            OSError, TimeoutError: the other broker is gone.
        """
        try:
            request = await self.receive()
        except OperationRefused as error:
            await self.fail(error.code, error.text)
            return
        if request is None:
            return
        await self._await_vhost(request.get("vhost"))
        await self.run(request)
        while self.has_unread_lines and await self.receive() is not None:
            pass

    async def _await_vhost(self, name: object) -> None:
        """Wait until this broker serves a virtual host that it may be taking over."""
        if name is None:
            return
        loop = asyncio.get_running_loop()
        until_s = loop.time() + SERVED_S
        await self.broker.accounts.poll()
        while name not in self.broker.vhosts and loop.time() < until_s:
            is_known = name in self.broker.access.snapshot.vhosts
            if not is_known or self.broker.describe_server(str(name)) != "no broker":
                return  # The request is refused for this reason.
            await asyncio.sleep(POLL_S)

    async def read_line(self) -> str:
        """Return the next line; see :class:`OperatorClient`."""
        return await self.link.receive()

    def act_as(self, call: Call) -> None:
        """Act as the operator's user; the request is not forwarded again."""
        if "vhost" not in call.request and call.request["do"] not in SAMPLES:
            raise OperationRefused("bad-request", "a forwarded request must name one virtual host")
        call.user = self.user
        call.forwarded = True

    def is_by_console(self, request: JsonLine) -> bool:
        """Return True if a request is of a user, or the console sends it for no user."""
        return self.user is not None or super().is_by_console(request)

    async def send(self, *lines: str) -> None:
        """Send lines; see :class:`OperatorClient`."""
        await self.link.send(*lines)
