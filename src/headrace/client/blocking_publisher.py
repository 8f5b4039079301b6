# SPDX-License-Identifier: Apache-2.0
"""Publishing once, for programs without asyncio; see :mod:`headrace.client.publisher`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Self

from headrace.client import publisher as _publisher
from headrace.client.blocking.loop_thread import LOOP
from headrace.client.channel.closing import Closing

if TYPE_CHECKING:
    from headrace.client.blocking import Connection
    from headrace.client.message import Content


class Publisher(Closing):
    """Publishes under a name, each message once. Use it with `with`, one for each name."""

    def __init__(self, connection: Connection, name: str) -> None:
        self._source = _publisher.Publisher(connection.source, name)

    def __enter__(self) -> Self:
        """Open a channel, and ask how far the publisher was."""
        LOOP.run(self._source.__aenter__())
        return self

    def __repr__(self) -> str:
        return repr(self._source)

    @property
    def name(self) -> str:
        """The publisher's name."""
        return self._source.name

    def last(self) -> int:
        """The highest id that the broker has taken from this publisher; -1 when none was."""
        return LOOP.run(self._source.last())

    def publish(
        self,
        message: Content,
        routing_key: str = "",
        exchange: str = "",
        *,
        mandatory: bool = False,
        publishing_id: int | None = None,
    ) -> int:
        """Publish once; return the id, when the broker has confirmed."""
        return LOOP.run(
            self._source.publish(
                message, routing_key, exchange, mandatory=mandatory, publishing_id=publishing_id
            )
        )

    def publish_many(
        self,
        messages: Iterable[Content],
        routing_key: str = "",
        exchange: str = "",
        *,
        mandatory: bool = False,
    ) -> int:
        """Publish all, with up to 1000 under way; return the last id (-1: none ever)."""
        return LOOP.run(
            self._source.publish_many(messages, routing_key, exchange, mandatory=mandatory)
        )

    def close(self) -> None:
        """Close the channel."""
        LOOP.run(self._source.close())
