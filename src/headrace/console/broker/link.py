# SPDX-License-Identifier: Apache-2.0
"""Operations of the broker, over a few connections to its socket that all requests share."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, cast

from headrace.console.broker.connection import SocketConnection
from headrace.console.broker.login_throttle import LoginThrottle
from headrace.management_socket import CONSOLE_AGENT

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator
    from pathlib import Path

    from headrace.console.broker.lists import ListOperation, Row
    from headrace.management_operations import OperationName
    from headrace.untyped import JsonObject

# The broker serves 64 operators at a time. It may delay logins, so they have separate connections.
LOGINS_MAX = 32
CONNECTIONS_MAX = 16  # Connections for all other operations.
LOGIN: OperationName = "login"


class BrokerLink:
    """Runs operations of the broker; reconnects after the broker's restart."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._free: list[SocketConnection] = []
        self._places = asyncio.Semaphore(CONNECTIONS_MAX)
        self._login_places = asyncio.Semaphore(LOGINS_MAX)
        self.login_throttle = LoginThrottle()
        self._shared: dict[str, asyncio.Task[JsonObject]] = {}

    async def ask(
        self,
        do: OperationName,
        *,
        ticket: str | None = None,
        rows: list[JsonObject] | None = None,
        **fields: object,
    ) -> JsonObject:
        """Run an operation; return its last line. Fields that are None are left out.

        Raises:
            OperationRefused: the broker refused it.
            BrokerGone: the broker does not answer.
        """
        return await self._run(do, fields, ticket, rows)

    async def _run(
        self,
        do: OperationName,
        fields: JsonObject,
        ticket: str | None = None,
        rows: list[JsonObject] | None = None,
    ) -> JsonObject:
        done: JsonObject = {}
        async with contextlib.aclosing(self._lines(do, ticket, rows, fields)) as lines:
            async for line in lines:
                done = line.get("done", done)
        return done

    async def ask_shared(self, do: OperationName, **fields: object) -> JsonObject:
        """Run an operation as :meth:`ask`; equal calls at the same time share one run."""
        key = f"{do} {fields}"
        task = self._shared.get(key)
        if task is None:
            task = self._shared[key] = asyncio.create_task(self._run(do, fields))
            task.add_done_callback(lambda _: self._shared.pop(key))
        return await asyncio.shield(task)

    async def items(
        self, do: OperationName, *, ticket: str | None = None, **fields: object
    ) -> AsyncGenerator[JsonObject, None]:
        """Run an operation; yield its items as they arrive. Raises as :meth:`ask`."""
        async with contextlib.aclosing(self._lines(do, ticket, None, fields)) as lines:
            async for line in lines:
                if "item" in line:
                    yield line["item"]

    async def lines(
        self, do: OperationName, *, ticket: str | None = None, **fields: object
    ) -> AsyncGenerator[JsonObject, None]:
        """Run an operation; yield its items, busy lines and last line. Raises as :meth:`ask`."""
        async with contextlib.aclosing(self._lines(do, ticket, None, fields)) as lines:
            async for line in lines:
                yield line

    async def answer(
        self,
        do: OperationName,
        *,
        ticket: str | None = None,
        rows: list[JsonObject] | None = None,
        **fields: object,
    ) -> tuple[list[JsonObject], JsonObject]:
        """Run an operation; return its items and its last line. Raises as :meth:`ask`."""
        items: list[JsonObject] = []
        done: JsonObject = {}
        async with contextlib.aclosing(self._lines(do, ticket, rows, fields)) as lines:
            async for line in lines:
                if "item" in line:
                    items.append(line["item"])
                done = line.get("done", done)
        return items, done

    async def rows(
        self, listing: ListOperation[Row], *, ticket: str | None = None, **fields: object
    ) -> list[Row]:
        """Return the rows of a list. Raises as :meth:`ask`."""
        items = self.items(listing.name, ticket=ticket, **{**listing.fields, **fields})
        return [cast("Row", item) async for item in items]

    def close(self) -> None:
        """Disconnect."""
        while self._free:
            self._free.pop().close()

    async def _lines(
        self,
        do: OperationName,
        ticket: str | None,
        rows: list[JsonObject] | None,
        fields: JsonObject,
    ) -> AsyncGenerator[JsonObject, None]:
        request = {"do": do, **{name: value for name, value in fields.items() if value is not None}}
        if ticket is None:
            request.setdefault("agent", CONSOLE_AGENT)
        else:
            request["as"] = ticket
        async with self._login_places if do == LOGIN else self._places:
            connection = self._idle_connection() or await SocketConnection.open(self.path)
            try:
                async with contextlib.aclosing(connection.exchange(request, rows)) as lines:
                    async for line in lines:
                        yield line
            finally:
                if connection.is_usable:
                    self._free.append(connection)
                else:
                    connection.close()

    def _idle_connection(self) -> SocketConnection | None:
        while self._free:
            connection = self._free.pop()
            if connection.is_usable:
                return connection
            connection.close()
        return None
