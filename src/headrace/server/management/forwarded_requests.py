# SPDX-License-Identifier: Apache-2.0
"""Serves requests that other brokers of the cluster forward (:mod:`.forwarding`).

A link carries one request, of the few operations that are forwarded, for one virtual host. The
operation runs with the rights of the operator's user, which are checked here again. It is audited
and logged with the operator's name at the broker that forwards.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

from headrace.exact_json import read_json
from headrace.server.management.call import Answer, Call, OperationRefused
from headrace.server.management.resources import definitions
from headrace.server.management.socket import Client, ManagementSocket
from headrace.server.observe.account_events import Operator

if TYPE_CHECKING:
    from headrace.server.cluster_relay.links import Asker, Link
    from headrace.server.management.managed_broker import ManagedBroker
    from headrace.server.management.operation_table import OperationRow

SERVED_S = 12.0  # How long a virtual host that this broker takes is waited for.
POLL_S = 0.05


class ForwardedRequests:
    """See the module."""

    def __init__(self, broker: ManagedBroker) -> None:
        rows: dict[str, OperationRow] = {row.name: row for row in definitions.operation.rows}
        self._owner = ManagementSocket(broker, Path(), rows)  # It is never opened.

    async def serve(self, link: Link, asker: Asker) -> None:
        """Serve the request of a link.

        Raises:
            OSError, TimeoutError: the other broker is gone.
        """
        await ForwardedClient(self._owner, link, asker).serve()


class ForwardedClient(Client):
    """An operator of another broker, instead of one at the socket."""

    def __init__(self, owner: ManagementSocket, link: Link, asker: Asker) -> None:
        # Not that of an operator of this machine, whom the kernel names.
        self.owner = owner
        self.link = link
        self.user = asker.user
        self.operator = f"{asker.words}, at broker '{asker.broker}'"
        self.actor = Operator(asker.name, asker.address)
        self.current = {}
        self.has_unread_lines = False
        self.acting = None

    async def serve(self) -> None:
        """Serve the request, and read what was sent with it: the answer would be lost else."""
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
        """Wait until a virtual host is served that this broker is taking."""
        broker = self.owner.broker
        loop = asyncio.get_running_loop()
        until_s = loop.time() + SERVED_S
        await broker.accounts.poll()
        while name not in broker.vhosts and loop.time() < until_s:
            if name not in broker.access.snapshot.vhosts or broker.server(str(name)) != "no broker":
                return  # It is refused with this as the reason.
            await asyncio.sleep(POLL_S)

    async def receive(self) -> Answer | None:
        """Return the object of the next line; None at the end, or at ``{"end": true}``.

        Raises:
            OperationRefused: the line is no object.
            OSError, TimeoutError: there is none.
        """
        text = await self.link.receive()
        try:
            request = read_json(text) if text else {"end": True}
        except ValueError:
            request = None
        if not isinstance(request, dict):
            raise OperationRefused("bad-request", "each line must be a JSON object")
        if request.get("end") is True and len(request) == 1:
            self.has_unread_lines = False
            return None
        return request

    def act_as(self, call: Call) -> None:
        """Act as the operator's user; what is asked here is not forwarded."""
        if "vhost" not in call.request:
            raise OperationRefused("bad-request", "a forwarded request is for one virtual host")
        call.user = self.user
        call.forwarded = True

    async def send(self, *lines: str) -> None:
        """Send lines, and wait while too much is unread."""
        await self.link.send(*lines)
