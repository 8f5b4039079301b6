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
from headrace.gateway.messages.delay_header import account_of, add_publisher_0_10, delayed_route
from headrace.gateway.messages.publishing_id import ID_ENTRY
from headrace.gateway.v0_10.session.direct_reply_to import ENTRY as REPLY_ENTRY
from headrace.gateway.v0_10.session.direct_reply_to import set_reply_address
from headrace.gateway.v0_10.session.publish_copies import BCC_ENTRY, CC_ENTRY, take_copies
from headrace.gateway.v0_10.session.publishing_id import take_number_0_10
from headrace.gateway.v0_10.session.transfer_header import TransferHeaders
from headrace.model.errors import PreconditionFailed
from headrace.model.queue_kinds.delayed import delay_of
from headrace.protocol.codec_0_10 import decode_command
from headrace.protocol.errors_0_10 import ExecutionError
from headrace.spec.reply_0_10 import ExecutionCode

if TYPE_CHECKING:
    from headrace.protocol.codec_0_10 import MessageTransfer

ROUTES_MAX = 1024  # Remembered routes of one session; all are forgotten when it is full.
PERSISTENT_MODE = 2
ACCEPTED_EXPLICITLY = 0


class ParsedTransfer(Publish):
    """The transfer that a session handles now, and the routes that it used."""

    def __init__(self, session: SessionContext) -> None:
        Publish.__init__(self)
        self.session = session
        self.counters = session.counters
        # The bytes of the previous transfer.
        self.args = b""  # Arguments without the session header.
        self.header = b""  # The header segment.
        self.until_ms = 0  # When the parsed values become invalid.
        self.route: Route | None = None
        self.routes: dict[bytes, Route] = {}
        self.generation = 0  # Of the routes in ``routes``.
        self.fragment: TransferHeader | None = None  # Set if the message has several fragments.
        self.explicit = False  # It requires a message.accept.
        self.special = False  # It is immediate, a fragment, or numbered.
        self.publishing: tuple[bytes, int] | None = None  # The publisher's name and the id.
        self.delivered_header = b""
        self.prefix = b""  # Message.data up to the body.
        self.ttl_ms = 0
        self.timestamp_s = 0  # The client's timestamp; 0 if it is missing.
        self.discards = False
        self.immediate = False

    # Keeps 0-10/s076.
    def prepare(self, args: bytes, header: bytes) -> Route:
        """Read arguments and header segment of a transfer and find its route."""
        session = self.session
        self.route = None
        self.parts = None
        session.connection.work_left -= C_METHOD_WORK
        transfer = cast("MessageTransfer", decode_command(b"\x04\x01" + args)[1])
        read = TransferHeader()
        bare = header
        copies: tuple[bytes, ...] = ()
        if CC_ENTRY in header or BCC_ENTRY in header:
            bare, copies = take_copies(header)
            if DELAY_ENTRY in header:
                bare = header  # After the delay the headers are read again.
        if ID_ENTRY in header:
            bare, read.publishing = take_number_0_10(bare)
        if REPLY_ENTRY in header:
            bare = set_reply_address(session, bare)
        read.read(bare)
        self.fragment = None
        if not (read.first and read.last):
            self.fragment = read
            if not read.first:  # The first fragment has the message's properties.
                read = session.context.fragments.first_header(session, read)
        self.publishing = read.publishing
        if read.user_id:  # Some clients send an empty one.
            self.check_user(read.user_id)
        exchange = (transfer.destination or "").encode()
        key = read.routing_key
        now_ms = self.counters.now_ms
        # Clients that leave the mode out do not support accepts.
        self.explicit = transfer.accept_mode == ACCEPTED_EXPLICITLY
        self.discards = read.flags & DELIVERY_HAS_DISCARD_UNROUTABLE != 0
        self.immediate = read.flags & DELIVERY_HAS_IMMEDIATE != 0
        self.special = self.immediate or self.fragment is not None or self.publishing is not None
        self.persistent = read.delivery_mode == PERSISTENT_MODE
        self.priority = read.priority
        self.ttl_ms = read.ttl_ms if read.flags & DELIVERY_HAS_TTL else -1
        self.deadline_ms = read.deadline_ms(now_ms)
        self.timestamp_s = read.timestamp_s
        address = bytes((len(exchange),)) + exchange + bytes((len(key),)) + key
        self.address_len = len(address)
        self.delivered_header = read.write(exchange, now_ms)
        size = len(self.delivered_header).to_bytes(4, "big")
        self.prefix = address + b"\x00\x00" + size + self.delivered_header
        self.flags = C_KIND_TRANSFER
        if read.flags & DELIVERY_HAS_REDELIVERED:
            self.flags |= C_REDELIVERED
        route = self.find_route(address, exchange, key, read.rest)
        if route.keeps:
            self.persistent = True
        self.args = args[2:]
        self.header = header
        delay_ms = 0
        if DELAY_ENTRY in header:
            delay_ms = self.read_delay(read.rest)
        if copies:
            route = self.route_copies(route, exchange, key, copies, read.rest)
            self.persistent = self.persistent or route.keeps
        if delay_ms:
            route = self.delay(route, address, now_ms + delay_ms)
        if self.fragment is not None or delay_ms or copies:
            self.until_ms = 0
            self.route = None
        return route

    def check_user(self, user_id: bytes) -> None:
        """Refuse a transfer with another user's user-id, except from an impersonator."""
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
        self.delivered_header = add_publisher_0_10(self.delivered_header, account_of(session.user))
        size = len(self.delivered_header).to_bytes(4, "big")
        self.prefix = address + b"\x00\x00" + size + self.delivered_header
        return route

    def forget(self) -> None:
        """Forget the parsed values and the routes."""
        self.route = None
        self.routes = {}
        self.until_ms = 0

    def read_delay(self, rest: bytes) -> int:
        """Return the delay in a header segment in milliseconds; 0 without one."""
        try:
            return delay_of(TransferHeaders(rest)())
        except PreconditionFailed as error:
            raise ExecutionError(ExecutionCode.PRECONDITION_FAILED, error.text) from None

    # --- Routes -------------------------------------------------------------------------------

    def find_route(self, address: bytes, exchange: bytes, key: bytes, rest: bytes) -> Route:
        """Return the route of an address; make it unless it is remembered."""
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
            headers = TransferHeaders(rest, self.timestamp_s, self.prefix, self.address_len)
            routing = session.vhost.route(
                name, routing_key, headers, alternates=1, publisher=session.number
            )
            tally = session.vhost.find_exchange(name).tally
            route = Route(address, routing.queues, generation, routing.interception, tally)
            if not routing.cacheable:
                self.until_ms = 0
                self.route = None
                self.special = self.special or routing.interception is not None
                return route
            if len(self.routes) >= ROUTES_MAX:
                self.routes.clear()
            self.routes[address] = route
        self.route = route
        self.until_ms = self.counters.now_ms // 1000 * 1000 + 1000
        return route

    def route_copies(
        self, route: Route, exchange: bytes, key: bytes, copies: tuple[bytes, ...], rest: bytes
    ) -> Route:
        """Return the route of a message with further routing keys; it is not remembered."""
        session = self.session
        name = exchange.decode()
        further = [copy.decode() for copy in copies]
        for routing_key in further:
            session.check_topic("write", name, routing_key)
        headers = TransferHeaders(rest, self.timestamp_s, self.prefix, self.address_len)
        routing = session.vhost.route(
            name, key.decode(), headers, alternates=1, copies=further, publisher=session.number
        )
        return Route(route.key, routing.queues, route.generation, routing.interception, route.tally)
