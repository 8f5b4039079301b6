# SPDX-License-Identifier: Apache-2.0
"""The route of a publish of 0-8 to 0-9-1: permissions, the exchange, and its queues.

``VirtualHost.route`` of `headrace.model.vhost.virtual_host` finds the queues.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.gateway.conversion.contents import decode_entries
from headrace.gateway.conversion.selected import SelectorValues
from headrace.gateway.messages.route import Route
from headrace.gateway.v0_x.errors import translate
from headrace.model.errors import ModelError
from headrace.model.exchange.hash import PROPERTIES as HASHED_PROPERTIES
from headrace.model.message import new_message
from headrace.protocol.codec_0_x import decode_content_header
from headrace.protocol.errors import AmqpError
from headrace.protocol.v0_x.frames import FRAME_HEADER, make_frame
from headrace.spec.reply import ReplyCode

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headrace.gateway.connection.context import Context
    from headrace.gateway.v0_x.peer import Peer
    from headrace.protocol.codec_0_x import PropertiesBase
    from headrace.spec.tables import Version

SIZE_MAX = 0xFFFFFFFF  # The maximum size of a body in selectors.


class ContentHeaders:
    """The headers of a message, decoded when an exchange needs them."""

    def __init__(self, version: Version, payload: bytes, address: bytes = b"\0\0") -> None:
        """``payload`` is the header frame's, ``address`` the message's exchange and key."""
        self._address = address
        self._version = version
        self._payload = payload
        self._decoded: PropertiesBase | None = None

    def __call__(self) -> Mapping[str, object]:
        return getattr(self._properties(), "headers", None) or {}

    def properties(self) -> dict[str, object]:
        """Return the properties by which exchanges can route."""
        properties = self._properties()
        return {name: getattr(properties, name, None) for name in HASHED_PROPERTIES}

    def values(self) -> SelectorValues:
        """Return the message's values for selectors."""
        data = self._address + b"\0\0" + make_frame(FRAME_HEADER, 0, self._payload)
        size = min(int.from_bytes(self._payload[4:12], "big"), SIZE_MAX)
        return SelectorValues(new_message(data, len(self._address), size), decode_entries)

    def _properties(self) -> PropertiesBase:
        if self._decoded is None:
            self._decoded = decode_content_header(self._version, self._payload)[2]
        return self._decoded


def split_address(address: bytes) -> tuple[str, str]:
    """Return exchange and routing key of an address.

    Raises:
        AmqpError: the exchange or the routing key is not UTF-8.
    """
    cutoff = 1 + address[0]
    try:
        return address[1:cutoff].decode(), address[cutoff + 1 :].decode()
    except UnicodeDecodeError:
        raise AmqpError(ReplyCode.SYNTAX_ERROR, "a short string is not UTF-8") from None


def make_route(
    context: Context,
    connection: Peer,
    address: bytes,
    payload: bytes,
    cc_keys: tuple[str, ...] = (),
) -> tuple[Route, bool]:
    """Return the route of an address and further routing keys, and True if it may be cached.

    Raises:
        AmqpError: the address is not UTF-8, or the exchange is missing or internal.
        AccessRefused: the user may not write to it.
    """
    exchange, routing_key = split_address(address)
    vhost = connection.vhost
    name = exchange or "amq.default"
    context.access.check(connection.user, vhost.name, "write", "exchange", name)
    for key in (routing_key, *cc_keys):
        context.access.check_topic(connection.user, vhost, "write", exchange, key)
    headers = ContentHeaders(connection.version, payload, address)
    generation = context.counters.generation
    try:
        vhost.check_publishable(exchange)
        routing = vhost.route(
            exchange, routing_key, headers, copies=cc_keys, publisher=connection.number
        )
    except ModelError as error:
        raise translate(error) from None
    tally = vhost.find_exchange(exchange).tally
    route = Route(address, routing.queues, generation, routing.interception, tally)
    return route, routing.cacheable
