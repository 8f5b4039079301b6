# SPDX-License-Identifier: Apache-2.0
"""Operations of the broker with the rights of the user of one request."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from headrace.console.auth.broker_login import Identity
    from headrace.console.broker.link import BrokerLink
    from headrace.console.broker.lists import ListOperation, Row
    from headrace.management_operations import OperationName
    from headrace.untyped import JsonObject

AGENT_MAX = 200  # Characters of the user agent in the audit log.


class UserLink:
    """Runs operations as :class:`BrokerLink`, with a user's ticket.

    Each request also names its client for the audit log. Methods raise as those of ``BrokerLink``.
    """

    def __init__(
        self, link: BrokerLink, identity: Identity | None, *, peer: str, agent: str
    ) -> None:
        """``peer`` is address and port of the client, ``agent`` its User-Agent header.

        ``identity`` is None for a route without login, which may run no operation as a user.
        """
        self._link = link
        self._identity = identity
        self._client = {"peer": peer, "agent": agent[:AGENT_MAX] or None}

    @property
    def identity(self) -> Identity:
        """The user; a route without login has none."""
        assert self._identity is not None, "a route without login has no user"
        return self._identity

    def act_as(self, identity: Identity) -> None:
        """Continue with another ticket of the user."""
        self._identity = identity

    async def ask(
        self, do: OperationName, rows: list[JsonObject] | None = None, **fields: object
    ) -> JsonObject:
        """Run an operation; return its last line."""
        return await self._link.ask(do, rows=rows, **self._sign(fields))

    async def answer(
        self, do: OperationName, rows: list[JsonObject] | None = None, **fields: object
    ) -> tuple[list[JsonObject], JsonObject]:
        """Run an operation; return its items and its last line."""
        return await self._link.answer(do, rows=rows, **self._sign(fields))

    async def rows(self, listing: ListOperation[Row], **fields: object) -> list[Row]:
        """Return the rows of a list that the user sees."""
        return await self._link.rows(listing, **self._sign(fields))

    def items(self, do: OperationName, **fields: object) -> AsyncGenerator[JsonObject, None]:
        """Run an operation; yield its items as they arrive."""
        return self._link.items(do, **self._sign(fields))

    def lines(self, do: OperationName, **fields: object) -> AsyncGenerator[JsonObject, None]:
        """Run an operation; yield its items, busy lines and last line."""
        return self._link.lines(do, **self._sign(fields))

    def _sign(self, fields: JsonObject) -> JsonObject:
        """Return the fields of an operation with the ticket of the user, and the client."""
        return {"ticket": self.identity.ticket, **self._client, **fields}
