# SPDX-License-Identifier: Apache-2.0
"""What a 0-10 client says of a message: its route, its flags, and what its header becomes.

When arguments and header segment are those of the transfer before, octet for octet, all of this is
known. Else they are read.
"""

from typing import Any

import cython

if not cython.compiled:
    from headrace.gateway.messages.route import Route
    from headrace.gateway.v0_10.session.completion import Batcher
    from headrace.gateway.v0_10.session.transfer_header import TransferHeader
    from headrace.model.message import KIND_TRANSFER as C_KIND_TRANSFER
    from headrace.model.message import REDELIVERED as C_REDELIVERED
    from headrace.protocol.endpoint import METHOD_WORK as C_METHOD_WORK
    from headrace.wire.property_bits import DELIVERY_HAS_TTL

from headrace.gateway.messages.delay_header import ENTRY as DELAY_ENTRY
from headrace.gateway.messages.delay_header import account_of, delayed, signed_0_10
from headrace.gateway.messages.publishing_id import ID_ENTRY
from headrace.gateway.v0_10.session.direct_reply_to import ENTRY as REPLY_ENTRY
from headrace.gateway.v0_10.session.direct_reply_to import name_answers
from headrace.gateway.v0_10.session.publish_copies import BCC_ENTRY, CC_ENTRY, take_copies
from headrace.gateway.v0_10.session.publishing_id import take_number_0_10
from headrace.gateway.v0_10.session.transfer_header import TransferHeaders
from headrace.model.errors import PreconditionFailed
from headrace.model.queue_kinds.delayed import delay_of
from headrace.protocol.codec_0_10 import decode_command
from headrace.protocol.errors_0_10 import ExecutionError
from headrace.spec.reply_0_10 import ExecutionCode

ROUTES_MAX = 1024  # Remembered routes of one session; all are forgotten when it is full.
PERSISTENT_MODE = 2
ACCEPTED_EXPLICITLY = 0


class Transfers(Batcher):
    """A session, as far as it knows what the transfer that it handles is."""

    def __init__(self, name: bytes, gateway: Any) -> None:
        Batcher.__init__(self, name, gateway)
        # What follows from the transfer before.
        self.args = b""  # Its arguments without the session header,
        self.header = b""  # and its header segment.
        self.until_ms = 0  # When that is void.
        self.route: Route | None = None
        self.routes: dict[bytes, Route] = {}
        self.fragment: Any = None  # Read last; the message is more than this one transfer.
        self.explicit = False  # It wants a message.accept.
        self.rare = False  # It is immediate, a fragment, or numbered,
        self.publishing: tuple[bytes, int] | None = None  # by this publisher and id.
        self.delivered_header = b""
        self.prefix = b""  # Message.data up to the body.
        self.address_len = 0
        self.flags = 0
        self.persistent = False
        self.priority = 0
        self.ttl_ms = 0
        self.deadline_ms = 0
        self.timestamp_s = 0  # When the client says that it sent it; 0 is not known.
        self.discards = False
        self.immediate = False

    def prepare(self, args: bytes, header: bytes) -> Route:
        """Read arguments and header segment of a transfer and find its route."""
        self.route = None
        self.connection.work_left -= C_METHOD_WORK
        transfer: Any = decode_command(b"\x04\x01" + args)[1]
        read = TransferHeader()
        bare = header
        copies: tuple[bytes, ...] = ()
        if CC_ENTRY in header or BCC_ENTRY in header:
            bare, copies = take_copies(header)
            if DELAY_ENTRY in header:
                bare = header  # When its time has come, its headers are read again.
        if ID_ENTRY in header:
            bare, read.publishing = take_number_0_10(bare)
        if REPLY_ENTRY in header:
            bare = name_answers(self, bare)
        read.read(bare)
        self.fragment = None
        if not (read.first and read.last):
            self.fragment = read
            if not read.first:  # What the first one said still holds.
                read = self.context.fragments.opening(self, read)
        self.publishing = read.publishing
        if (
            read.user_id  # Some send an empty one.
            and read.user_id != self.user.name.encode()
            and "impersonator" not in self.user.tags
        ):
            raise ExecutionError(
                ExecutionCode.UNAUTHORIZED_ACCESS,
                f"the user-id of the message is not that of user '{self.user.name}'",
            )
        exchange = (transfer.destination or "").encode()
        key = read.routing_key
        now_ms = self.counters.now_ms
        # Clients that leave the mode out do not know what to do with an accept.
        self.explicit = transfer.accept_mode == ACCEPTED_EXPLICITLY
        self.discards = read.flags & 1 != 0
        self.immediate = read.flags & 2 != 0
        self.rare = self.immediate or self.fragment is not None or self.publishing is not None
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
        if read.flags & 4:
            self.flags |= C_REDELIVERED
        route = self.find_route(address, exchange, key, read.rest)
        if route.keeps:
            self.persistent = True
        self.args = args[2:]
        self.header = header
        delay_ms = 0
        if DELAY_ENTRY in header:
            delay_ms = self.delay_in(read.rest)
        if copies:
            route = self.route_copies(route, exchange, key, copies, read.rest)
            self.persistent = self.persistent or route.keeps
        if delay_ms:
            self.ttl_ms = -1  # It counts from then on.
            self.deadline_ms = now_ms + delay_ms
            route = delayed(self.vhost, route)
            self.delivered_header = signed_0_10(self.delivered_header, account_of(self.user))
            size = len(self.delivered_header).to_bytes(4, "big")
            self.prefix = address + b"\x00\x00" + size + self.delivered_header
        if self.fragment is not None or delay_ms or copies:
            self.until_ms = 0
            self.route = None
        return route

    def delay_in(self, rest: bytes) -> int:
        """Return the delay that a header segment asks for, in milliseconds; 0 when it does not."""
        try:
            return delay_of(TransferHeaders(rest)())
        except PreconditionFailed as error:
            raise ExecutionError(ExecutionCode.PRECONDITION_FAILED, error.text) from None

    # --- Routes -------------------------------------------------------------------------------

    def find_route(self, address: bytes, exchange: bytes, key: bytes, rest: bytes) -> Route:
        """Return the route of an address: remembered, or made now."""
        generation = self.counters.generation
        route = self.routes.get(address)
        if route is None or route.generation != generation:
            try:
                name, routing_key = exchange.decode(), key.decode()
            except UnicodeDecodeError:
                raise ExecutionError(
                    ExecutionCode.ILLEGAL_ARGUMENT, "a name is not UTF-8"
                ) from None
            self.check_access("write", "exchange", name or "amq.default")
            self.check_topic("write", name, routing_key)
            self.vhost.check_publishable(name)
            headers = TransferHeaders(rest, self.timestamp_s, self.prefix, self.address_len)
            routed = self.vhost.route(
                name, routing_key, headers, alternates=1, publisher=self.number
            )
            route = Route(address, routed.queues, generation, routed.interception)
            if not routed.cacheable:
                self.until_ms = 0
                self.route = None
                self.rare = self.rare or routed.interception is not None
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
        name = exchange.decode()
        further = [copy.decode() for copy in copies]
        for each in further:
            self.check_topic("write", name, each)
        headers = TransferHeaders(rest, self.timestamp_s, self.prefix, self.address_len)
        routed = self.vhost.route(
            name, key.decode(), headers, alternates=1, copies=further, publisher=self.number
        )
        return Route(route.key, routed.queues, route.generation, routed.interception)

    # --- Rights -------------------------------------------------------------------------------

    def check_access(self, permission: str, kind: str, name: str) -> None:
        """Refuse what the user has no permission for."""
        self.context.access.check(self.user, self.vhost.name, permission, kind, name)

    def check_topic(self, permission: str, exchange: str, routing_key: str) -> None:
        """Refuse a topic that the user may not publish to or bind."""
        access = self.context.access
        access.check_topic(self.user, self.vhost, permission, exchange, routing_key)

    def check_elsewhere(self, exchange: str, routing_key: Any = None, *, letters: bool) -> None:
        """Refuse to let messages go on to where the user may not write."""
        access = self.context.access
        access.check_elsewhere(self.user, self.vhost, exchange, routing_key, letters=letters)
