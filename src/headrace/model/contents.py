# SPDX-License-Identifier: Apache-2.0
"""The port that reads and rewrites messages, which are opaque to the model."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

from headrace.model.arguments.values import as_list

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headrace.model.message import Message
    from headrace.model.selector.values import Values

ROUTING_KEYS_MAX = 256  # Routing keys of one CC header; further keys are ignored.


class UnreadableError(Exception):
    """A message is malformed, or headers cannot be added to it."""


class Content(NamedTuple):
    """The parts of a message that are read to publish it again."""

    exchange: str
    routing_key: str
    headers: Mapping[str, object]
    expiration: str | None
    persistent: bool
    priority: int = 0


class Contents(Protocol):
    """Reads and rewrites messages, which are opaque to the model; a gateway implements it."""

    def read(self, message: Message) -> Content:
        """Return the headers and properties of a message.

        Raises:
            UnreadableError: the message is malformed.
        """

    def rewrite(
        self,
        message: Message,
        exchange: str,
        routing_key: str,
        headers: Mapping[str, object],
        *,
        expires: bool = False,
    ) -> Message:
        """Return a new message with the same body, and with this address and these headers.

        Without ``expires`` the expiration is removed.

        Raises:
            UnreadableError: the headers do not fit.
        """

    def stamp(
        self, message: Message, headers: Mapping[str, object], timestamp_s: int | None
    ) -> Message:
        """Return the message with headers added, and with a timestamp unless that is None.

        Raises:
            UnreadableError: the headers do not fit.
        """

    def with_count(self, message: Message, count: int) -> bytes:
        """Return the data of a message with a header for its redelivery count.

        ``count`` is at most 255.

        Raises:
            UnreadableError: the header does not fit.
        """

    def make_trace(
        self, message: Message, exchange: str, routing_key: str, headers: Mapping[str, object]
    ) -> Message:
        """Return a basic message with the same body and headers that describe the original.

        Raises:
            UnreadableError: the message is malformed.
        """

    def values(self, message: Message) -> Values:
        """Return the headers and properties of a message in memory, as selectors read them."""

    def render_leased(self, message: Message) -> bytes:
        """Return the data of a leased message as readers see it.

        Raises:
            UnreadableError: the message cannot be converted.
        """

    def encode_record(self, message: Message) -> bytes:
        """Return the data of a message in the form of streams: class basic, in one piece.

        Raises:
            UnreadableError: the message cannot be converted.
        """

    def header(self, message: Message, name: str) -> object:
        """Return the value of a header of a message in memory; None without that header."""

    def filter_value(self, data: bytes, address_len: int) -> str | None:
        """Return the stream filter value of a basic message; None if it has none."""


def copy_routing_keys(headers: Mapping[str, object]) -> list[str]:
    """Return the further routing keys of a CC header."""
    keys = as_list(headers.get("CC"))
    if not isinstance(keys, list):
        return []
    return [key for key in keys[:ROUTING_KEYS_MAX] if isinstance(key, str)]
