# SPDX-License-Identifier: Apache-2.0
"""A parsed message.transfer: its route, its flags, and the header for consumers.

Arguments and header segment that equal those of the previous transfer, byte for byte, are not
parsed again.
"""

from typing import TYPE_CHECKING, cast

import cython

if not cython.compiled:
    from headrace.gateway.messages.distributor import Publish
    from headrace.gateway.messages.route import Route
    from headrace.gateway.v0_10.session.context import SessionContext
    from headrace.gateway.v0_10.session.transfer_header import TransferHeader
    from headrace.model.message import KIND_TRANSFER as C_KIND_TRANSFER
    from headrace.model.message import REDELIVERED as C_REDELIVERED
    from headrace.protocol.endpoint import METHOD_WORK as C_METHOD_WORK
    from headrace.wire.property_bits import (
        DELIVERY_HAS_DISCARD_UNROUTABLE,
        DELIVERY_HAS_IMMEDIATE,
        DELIVERY_HAS_REDELIVERED,
        DELIVERY_HAS_TTL,
    )

from headrace.gateway.messages.delay_header import ENTRY as DELAY_ENTRY
from headrace.gateway.messages.delay_header import (
    add_publisher_0_10,
    delayed_route,
    publisher_account,
)
from headrace.gateway.messages.publishing_id import ID_ENTRY
from headrace.gateway.v0_10.session.direct_reply_to import ENTRY as REPLY_ENTRY
from headrace.gateway.v0_10.session.direct_reply_to import set_reply_address
from headrace.gateway.v0_10.session.publish_copies import BCC_ENTRY, CC_ENTRY, extract_cc_keys
from headrace.gateway.v0_10.session.publishing_id import extract_publishing_id_0_10
from headrace.gateway.v0_10.session.transfer_header import TransferHeaders
from headrace.model.errors import PreconditionFailed
from headrace.model.queue_kinds.delayed import parse_delay
from headrace.protocol.codec_0_10 import decode_command
from headrace.protocol.errors_0_10 import ExecutionError
from headrace.spec.reply_0_10 import ExecutionCode

if TYPE_CHECKING:
    from headrace.protocol.codec_0_10 import MessageTransfer

ROUTES_MAX = 1024  # Cached routes of one session; a further route clears the cache.
PERSISTENT_MODE = 2
ACCEPTED_EXPLICITLY = 0


class ParsedTransfer(Publish):
    """The transfer that a session is publishing, and the routes of its earlier transfers."""

    def __init__(self, session: SessionContext) -> None:
        Publish.__init__(self)
        self.session = session
        self.counters = session.counters
        # The bytes of the previous transfer.
        self.args = b""  # Arguments without the session header.
        self.header = b""  # The header segment.
        self.valid_until_ms = 0  # The time at which the parsed values become invalid.
        self.route: Route | None = None
        self.routes: dict[bytes, Route] = {}
        self.generation = 0  # The generation that the routes in ``routes`` were made in.
        self.fragment: TransferHeader | None = None  # The header, if the transfer is a fragment.
        #: True: the broker accepts the transfer (accept-mode explicit).
        self.requires_accept = False
        #: True for a transfer that is immediate, a fragment, intercepted, or has a publishing id.
        self.takes_slow_path = False
        self.publishing_id: tuple[bytes, int] | None = None  # The publisher's name, and the id.
        self.delivered_header = b""
        self.prefix = b""  # Message.data up to the body.
        self.ttl_ms = 0
        self.timestamp_s = 0  # The client's timestamp; 0 if it is missing.
        self.discards_unroutable = False
        self.immediate = False

    def prepare(self, args: bytes, header: bytes) -> Route:
        """Read arguments and header segment of a transfer and find its route."""
        session = self.session
        self.route = None
        self.parts = None
        session.connection.work_left -= C_METHOD_WORK
        transfer = cast("MessageTransfer", decode_command(b"\x04\x01" + args)[1])
        parsed = TransferHeader()
        stripped = header
        cc_keys: tuple[bytes, ...] = ()
        if CC_ENTRY in header or BCC_ENTRY in header:
            stripped, cc_keys = extract_cc_keys(header)
            if DELAY_ENTRY in header:
                stripped = header  # After the delay the headers are read again.
        if ID_ENTRY in header:
            stripped, parsed.publishing_id = extract_publishing_id_0_10(stripped)
        if REPLY_ENTRY in header:
            stripped = set_reply_address(session, stripped)
        parsed.read(stripped)
        self.fragment = None
        if not (parsed.first and parsed.last):
            self.fragment = parsed
            if not parsed.first:  # The first fragment has the message's properties.
                parsed = session.context.fragments.first_header(session, parsed)
        self.publishing_id = parsed.publishing_id
        if parsed.user_id:  # Some clients send an empty one.
            self.check_user(parsed.user_id)
        exchange = (transfer.destination or "").encode()
        key = parsed.routing_key
        now_ms = self.counters.now_ms
        # Clients that leave the mode out do not support accepts.
        self.requires_accept = transfer.accept_mode == ACCEPTED_EXPLICITLY
        self.discards_unroutable = parsed.flags & DELIVERY_HAS_DISCARD_UNROUTABLE != 0
        self.immediate = parsed.flags & DELIVERY_HAS_IMMEDIATE != 0
        self.takes_slow_path = (
            self.immediate or self.fragment is not None or self.publishing_id is not None
        )
        self.persistent = parsed.delivery_mode == PERSISTENT_MODE
        self.priority = parsed.priority
        self.ttl_ms = parsed.ttl_ms if parsed.flags & DELIVERY_HAS_TTL else -1
        self.deadline_ms = parsed.deadline_ms(now_ms)
        self.timestamp_s = parsed.timestamp_s
        address = bytes((len(exchange),)) + exchange + bytes((len(key),)) + key
        self.address_len = len(address)
        self.delivered_header = parsed.write(exchange, now_ms)
        size = len(self.delivered_header).to_bytes(4, "big")
        self.prefix = address + b"\x00\x00" + size + self.delivered_header
        self.flags = C_KIND_TRANSFER
        if parsed.flags & DELIVERY_HAS_REDELIVERED:
            self.flags |= C_REDELIVERED
        route = self.find_route(address, exchange, key, parsed.other_structs)
        if route.keeps_transient:
            self.persistent = True
        self.args = args[2:]
        self.header = header
        delay_ms = 0
        if DELAY_ENTRY in header:
            delay_ms = self.read_delay(parsed.other_structs)
        if cc_keys:
            route = self.route_with_cc_keys(route, exchange, key, cc_keys, parsed.other_structs)
            self.persistent = self.persistent or route.keeps_transient
        if delay_ms:
            route = self.delay(route, address, now_ms + delay_ms)
        if self.fragment is not None or delay_ms or cc_keys:
            self.valid_until_ms = 0
            self.route = None
        return route

    # Keeps 0-10/s076.
    def check_user(self, user_id: bytes) -> None:
        """Refuse a transfer whose user-id is another user's, unless the user is an impersonator."""
        user = self.session.user
        if user_id != user.name.encode() and "impersonator" not in user.tags:
            raise ExecutionError(
                ExecutionCode.UNAUTHORIZED_ACCESS,
                f"the user-id of the message is not that of user '{user.name}'",
            )

    def delay(self, route: Route, address: bytes, due_ms: int) -> Route:
        """Delay the transfer until ``due_ms``; return the route to the queue in which it waits."""
        session = self.session
        self.ttl_ms = -1  # The time to live begins after the delay.
        self.deadline_ms = due_ms
        route = delayed_route(session.vhost, route)
        self.delivered_header = add_publisher_0_10(
            self.delivered_header, publisher_account(session.user)
        )
        size = len(self.delivered_header).to_bytes(4, "big")
        self.prefix = address + b"\x00\x00" + size + self.delivered_header
        return route

    def clear(self) -> None:
        """Drop the parsed values and the cached routes."""
        self.route = None
        self.routes = {}
        self.valid_until_ms = 0

    def read_delay(self, other_structs: bytes) -> int:
        """Return the delay in a header segment in milliseconds; 0 without one."""
        try:
            return parse_delay(TransferHeaders(other_structs)())
        except PreconditionFailed as error:
            raise ExecutionError(ExecutionCode.PRECONDITION_FAILED, error.text) from None

    # --- Routes -------------------------------------------------------------------------------

    # Keeps 0-10/s077, 0-10/s078, 0-10/s151.
    def find_route(
        self, address: bytes, exchange: bytes, key: bytes, other_structs: bytes
    ) -> Route:
        """Return the cached route of an address, or make it, with at most one alternate exchange.

        An empty exchange name is the default exchange.

        Raises:
            ExecutionError: the exchange or the routing key is not UTF-8.
            ModelError: the user may not publish to the exchange, or it does not exist.
        """
        session = self.session
        generation = self.counters.generation
        route = self.routes.get(address)
        if self.generation != generation:
            self.routes.clear()  # All are void, and refer to queues that may be deleted.
            self.generation = generation
            route = None
        if route is None:
            try:
                name, routing_key = exchange.decode(), key.decode()
            except UnicodeDecodeError:
                raise ExecutionError(
                    ExecutionCode.ILLEGAL_ARGUMENT, "a name is not UTF-8"
                ) from None
            session.check_access("write", "exchange", name or "amq.default")
            session.check_topic("write", name, routing_key)
            session.vhost.check_publishable(name)
            headers = TransferHeaders(
                other_structs, self.timestamp_s, self.prefix, self.address_len
            )
            routing = session.vhost.route(
                name, routing_key, headers, alternates=1, publisher=session.number
            )
            tally = session.vhost.find_exchange(name).tally
            route = Route(address, routing.queues, generation, routing.interception, tally)
            if not routing.cacheable:
                self.valid_until_ms = 0
                self.route = None
                self.takes_slow_path = self.takes_slow_path or routing.interception is not None
                return route
            if len(self.routes) >= ROUTES_MAX:
                self.routes.clear()
            self.routes[address] = route
        self.route = route
        self.valid_until_ms = self.counters.now_ms // 1000 * 1000 + 1000
        return route

    # Keeps 0-10/s151.
    def route_with_cc_keys(
        self,
        route: Route,
        exchange: bytes,
        key: bytes,
        cc_keys: tuple[bytes, ...],
        other_structs: bytes,
    ) -> Route:
        """Make the route of a message with routing keys in CC and BCC; it is not cached."""
        session = self.session
        name = exchange.decode()
        routing_keys = [cc_key.decode() for cc_key in cc_keys]
        for routing_key in routing_keys:
            session.check_topic("write", name, routing_key)
        headers = TransferHeaders(other_structs, self.timestamp_s, self.prefix, self.address_len)
        routing = session.vhost.route(
            name, key.decode(), headers, alternates=1, copies=routing_keys, publisher=session.number
        )
        return Route(route.key, routing.queues, route.generation, routing.interception, route.tally)
