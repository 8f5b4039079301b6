# SPDX-License-Identifier: Apache-2.0
"""The console's access to the broker: a few connections that all requests share."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

from headrace.console.broker.connection import SocketConnection
from headrace.console.broker.login_lines import LoginLines

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator
    from pathlib import Path

    from headrace.untyped import JsonObject

# Of the 64 operators that the broker serves at a time: some for logins, which it may delay,
LOGINS_MAX = 32
CONNECTIONS_MAX = 16  # and some for all else.
LOGIN = "login"


class BrokerLink:
    """Runs operations of the broker; connects by itself, again after the broker's restart."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._free: list[SocketConnection] = []
        self._places = asyncio.Semaphore(CONNECTIONS_MAX)
        self._login_places = asyncio.Semaphore(LOGINS_MAX)
        self.login_lines = LoginLines()
        self._shared: dict[str, asyncio.Task[JsonObject]] = {}

    async def ask(
        self,
        do: str,
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
        return await self._asked(do, fields, ticket, rows)

    async def _asked(
        self,
        do: str,
        fields: JsonObject,
        ticket: str | None = None,
        rows: list[JsonObject] | None = None,
    ) -> JsonObject:
        done: JsonObject = {}
        async with contextlib.aclosing(self._lines(do, ticket, rows, fields)) as lines:
            async for line in lines:
                done = line.get("done", done)
        return done

    async def shared(self, do: str, **fields: object) -> JsonObject:
        """As :meth:`ask`, with one request for all who ask the same meanwhile."""
        key = f"{do} {fields}"
        asking = self._shared.get(key)
        if asking is None:
            asking = self._shared[key] = asyncio.create_task(self._asked(do, fields))
            asking.add_done_callback(lambda _: self._shared.pop(key))
        return await asyncio.shield(asking)

    async def items(
        self, do: str, *, ticket: str | None = None, **fields: object
    ) -> AsyncGenerator[JsonObject, None]:
        """Run an operation; yield its items as they arrive. Raises as :meth:`ask`."""
        async with contextlib.aclosing(self._lines(do, ticket, None, fields)) as lines:
            async for line in lines:
                if "item" in line:
                    yield line["item"]

    async def lines(
        self, do: str, *, ticket: str | None = None, **fields: object
    ) -> AsyncGenerator[JsonObject, None]:
        """Run an operation; yield its items, busy lines and last line. Raises as :meth:`ask`."""
        async with contextlib.aclosing(self._lines(do, ticket, None, fields)) as lines:
            async for line in lines:
                yield line

    async def answer(
        self,
        do: str,
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

    def close(self) -> None:
        """Disconnect."""
        while self._free:
            self._free.pop().close()

    async def _lines(
        self,
        do: str,
        ticket: str | None,
        rows: list[JsonObject] | None,
        fields: JsonObject,
    ) -> AsyncGenerator[JsonObject, None]:
        request = {"do": do, **{name: one for name, one in fields.items() if one is not None}}
        if ticket is not None:
            request["as"] = ticket
        async with self._login_places if do == LOGIN else self._places:
            connection = self._take() or await SocketConnection.open(self.path)
            try:
                async with contextlib.aclosing(connection.exchange(request, rows)) as lines:
                    async for line in lines:
                        yield line
            finally:
                if connection.is_usable:
                    self._free.append(connection)
                else:
                    connection.close()

    def _take(self) -> SocketConnection | None:
        while self._free:
            connection = self._free.pop()
            if connection.is_usable:
                return connection
            connection.close()
        return None
