# SPDX-License-Identifier: Apache-2.0
"""Publishes with special features, off the hot path.

These are publishes with a publishing id, a delay or further routing keys, immediate ones,
unroutable ones, those of an intercepted route, and those of transactions. Each is copied out of the
receive buffer as a :class:`SpecialPublish`.
"""

from typing import TYPE_CHECKING

import cython

if not cython.compiled:
    from headrace.gateway.messages.distributor import Distributor, Publish, ready_queues
    from headrace.gateway.messages.route import Route
    from headrace.gateway.v0_x.channel.channel import Channel
    from headrace.gateway.v0_x.connection.routes import Routes
    from headrace.gateway.v0_x.peer import Peer
    from headrace.protocol.endpoint import METHOD_WORK as C_METHOD_WORK
    from headrace.protocol.v0_x.frames import PAYLOAD_AT as C_PAYLOAD_AT
    from headrace.protocol.v0_x.frames import SIZE_AT as C_SIZE_AT
    from headrace.wire.memory import cut, get32

from headrace.gateway.connection.context import Context
from headrace.gateway.connection.plug_in_state import states_of
from headrace.gateway.messages.delay_header import (
    account_of,
    add_publisher,
    delayed_route,
    read_delay,
)
from headrace.gateway.messages.publishing_id import take_number
from headrace.gateway.v0_x.channel.channel import check_branch
from headrace.gateway.v0_x.connection.publish_copies import take_copies
from headrace.gateway.v0_x.connection.routing import make_route, split_address
from headrace.model.errors import ModelError
from headrace.model.interceptor.interception import Source
from headrace.protocol.codec_0_x import BasicReturn, encode_method
from headrace.protocol.errors import AmqpError
from headrace.protocol.v0_x.frames import FRAME_METHOD
from headrace.spec.reply import ReplyCode, Scope

if TYPE_CHECKING:
    from headrace.model.transaction.transaction import Transaction

NO_NUMBERS = "a message with a publishing id cannot be part of a distributed transaction"
TX_BYTES_MAX = 256 << 20  # Of the publishes of one transaction before its commit.
NO_ROUTE = 312
NO_CONSUMERS = 313
RETURNS = {NO_ROUTE: "NO_ROUTE", NO_CONSUMERS: "NO_CONSUMERS"}
# Marks of the features that the headers of a publish may request.
COPIES = 1  # Further routing keys in CC and BCC.
NUMBERED = 2  # A publishing id.
DELAYED = 4  # A delay.
DIRECT_REPLY_TO = 8  # Direct reply-to.
# The flags behind the address of a basic.publish.
MANDATORY = 1
IMMEDIATE = 2
if not cython.compiled:
    C_COPIES = COPIES
    C_NUMBERED = NUMBERED
    C_DELAYED = DELAYED
    C_DIRECT_REPLY_TO = DIRECT_REPLY_TO
    C_MANDATORY = MANDATORY
    C_IMMEDIATE = IMMEDIATE


class SpecialPublish(Publish):
    """One publish, copied out of the receive buffer."""

    def __init__(self) -> None:
        Publish.__init__(self)
        self.marks = 0  # A sum of COPIES, NUMBERED and DELAYED.
        self.data = b""  # Laid out as in Message.data.
        self.header = 0  # The start of its header frame in ``data``.
        self.copies: tuple[str, ...] | None = None  # Further routing keys.
        self.number: tuple[bytes, int] | None = None  # The publisher's name and the publishing id.
        self.delay_ms = 0
        self.route: Route | None = None  # None until it is routed.

    def known_route(self) -> Route:
        """Return the route; the publish has been routed."""
        assert self.route is not None
        return self.route

    def bits(self) -> int:
        """Return the flags of basic.publish: mandatory and immediate."""
        return self.data[self.address_len]


class SpecialPublisher:
    """Publishes the special publishes of one connection."""

    def __init__(
        self,
        connection: Peer,
        context: Context,
        routes: Routes,
        distributor: Distributor,
    ) -> None:
        self.connection = connection
        self.context = context
        self.routes = routes
        self.distributor = distributor

    def cut_out(
        self, p: Publish, marks: int, d: bytes | bytearray, args: int, header: int, end: int
    ) -> SpecialPublish:
        """Return the publish ``d[args:end]`` with the properties of ``p``."""
        special = SpecialPublish()
        special.persistent = p.persistent
        special.priority = p.priority
        special.deadline_ms = p.deadline_ms
        special.address_len = p.address_len
        special.body_size = p.body_size
        special.parts = p.parts
        special.marks = marks
        special.data = cut(d, args, end)
        special.header = header - args
        return special

    def read_headers(self, p: SpecialPublish) -> None:
        """Read and remove the special headers of a publish, and route it."""
        if p.marks & C_NUMBERED:
            p.data, p.number = take_number(p.data, p.header)
        if p.marks & C_DELAYED:
            p.delay_ms = read_delay(p.data, p.header)
        if p.marks & C_COPIES:
            data, p.copies = take_copies(p.data, p.header)
            if not p.delay_ms:  # After the delay the headers are read again.
                p.data = data
        p.route = self.route_of(p)
        if p.known_route().keeps:
            p.persistent = True

    def route_of(self, p: SpecialPublish) -> Route:
        """Return the present route of a publish."""
        size = get32(p.data, p.header + C_SIZE_AT)
        start = p.header + C_PAYLOAD_AT
        if p.copies is None:
            return self.routes.find(p.data[: p.address_len], p.data, start, size)
        payload = p.data[start : start + size]
        address = p.data[: p.address_len]
        return make_route(self.context, self.connection, address, payload, p.copies)[0]

    def delay(self, p: SpecialPublish) -> None:
        """Route a delayed publish to the queue in which it waits."""
        p.deadline_ms = self.distributor.counters.now_ms + p.delay_ms
        p.route = delayed_route(self.connection.vhost, p.known_route())
        p.data = add_publisher(p.data, p.header, account_of(self.connection.user))

    def distribute(self, p: SpecialPublish, route: Route) -> int:
        """Enqueue a publish in every queue of a route; return how many refused it."""
        return self.distributor.distribute(p, route, p.data, 0, len(p.data))

    def finish(self, channel: Channel, p: SpecialPublish, refused: int) -> None:
        """Confirm or refuse a publish."""
        if refused:
            self.refuse(channel, p, p.known_route())
        elif channel.confirms:
            channel.record_publish()

    def refuse(self, channel: Channel, p: Publish, route: Route) -> None:
        """Nack a publish; without confirms, a full disk closes the channel.

        So no persistent message is lost unreported. An overflow policy needs no answer.
        """
        if channel.confirms:
            channel.nack_publish()
        elif p.persistent and route.durable and self.distributor.store.full:
            raise AmqpError(
                ReplyCode.RESOURCE_ERROR,
                "the disk is full; a persistent message was not taken",
                scope=Scope.CHANNEL,
            )

    # --- Kinds of publishes -----------------------------------------------------------------------

    def publish_marked(self, channel: Channel, p: SpecialPublish) -> None:
        """Publish a message with further routing keys, a publishing id or a delay."""
        self.connection.publishes = True
        self.connection.work_left -= C_METHOD_WORK
        self.read_headers(p)
        if channel.tx:
            self.defer_publish(channel, p)
            return
        if p.delay_ms:
            self.delay(p)
        elif p.known_route().interception is not None:
            self.finish(channel, p, self.intercept(channel, p, False))
            return
        if p.number is not None:
            self.finish(channel, p, self.publish_once(channel, p))
        else:
            self.finish(channel, p, self.publish_or_return(channel, p))

    def publish_intercepted(self, channel: Channel, p: SpecialPublish) -> None:
        """Publish a message whose route has an interception."""
        if channel.tx:
            self.defer_publish(channel, p)
        else:
            self.finish(channel, p, self.intercept(channel, p, False))

    def intercept(self, channel: Channel, p: SpecialPublish, inside: bool) -> int:
        """Publish a message through its interception; return how many queues refused it.

        With ``inside`` a transaction is being committed, which records the publishing id itself.
        """
        connection = self.connection
        interception = p.known_route().interception
        assert interception is not None
        number = None if inside else p.number
        bits = p.bits()
        queues = p.known_route().queues
        if bits & C_IMMEDIATE:
            queues = ready_queues(queues)
        if queues or interception.is_duplicate():
            pass
        elif not bits:
            channel.tally.drop_unroutable += 1
            route = p.known_route()
            route.tally.drop_unroutable += 1
        else:
            unroutable = not p.known_route().count and bits & C_MANDATORY
            self.send_return(channel, p, NO_ROUTE if unroutable else NO_CONSUMERS)
            if number is not None:
                connection.vhost.publishing_ids.refuse(number)
                number = None
        name = self.context.connection_events.names.get(connection.number, "")
        source = Source(connection.user.name, name, channel.number)
        return self.distributor.intercept(
            p, p.known_route(), queues, p.data, number, source, inside
        )

    def publish_once(self, channel: Channel, p: SpecialPublish) -> int:
        """Publish a message with a publishing id, unless the id was used before.

        Returns:
            The number of queues that refused it: if any does, none takes it, and its id is free.
        """
        publishing_ids = self.connection.vhost.publishing_ids
        assert p.number is not None
        if publishing_ids.is_duplicate(p.number):
            return 0
        bits = p.bits()
        route = p.known_route()
        if bits & C_IMMEDIATE:
            route = ready_route(route)
        if not route.count:
            if bits:
                publishing_ids.refuse(p.number)
            return self.publish_or_return(channel, p)
        return self.distributor.publish_once(p, route, p.number, p.data, 0, len(p.data))

    # Keeps 0-9-1/s106, 0-9/basic.publish.mandatory#01, 0-9-1/s107, 0-9/basic.publish.immediate#01.
    def publish_or_return(self, channel: Channel, p: SpecialPublish) -> int:
        """Publish a message that may be immediate or unroutable; return how many refused it."""
        bits = p.bits()
        route = p.known_route()
        if route.count and bits & C_IMMEDIATE:
            route = ready_route(route)
            if not route.count:
                self.send_return(channel, p, NO_CONSUMERS)
                return 0
        if route.count == 0:
            if bits & C_MANDATORY:
                self.send_return(channel, p, NO_ROUTE)
            elif bits & C_IMMEDIATE:
                self.send_return(channel, p, NO_CONSUMERS)
            else:
                self.drop(channel, p, route)
                return 0
            self.distributor.count_routed(route, 0)
            self.distributor.counters.count_publish(p.body_size)
            return 0
        return self.distribute(p, route)

    def drop(self, channel: Channel, p: Publish, route: Route) -> None:
        """Count an unroutable publish that is not mandatory."""
        self.distributor.counters.count_publish(p.body_size)
        self.distributor.count_routed(route, 0)
        channel.tally.drop_unroutable += 1
        route.tally.drop_unroutable += 1

    def publish_content(self, channel: Channel, p: SpecialPublish) -> int:
        """Publish for a class other than basic, or for an operator; without a confirm.

        Returns:
            The number of queues that refused it; -1 if it is immediate and no consumer takes it.
        """
        self.read_headers(p)
        if not p.known_route().serves:
            self.connection.publishes = True
        immediate = p.bits() & C_IMMEDIATE
        if channel.tx:
            self.defer_publish(channel, p)
            return 0
        if p.delay_ms:
            self.delay(p)
        elif p.known_route().interception is not None:
            if immediate and not ready_queues(p.known_route().queues):
                return -1
            return self.intercept(channel, p, False)
        if p.number is not None and not immediate:
            return self.publish_once(channel, p)
        if immediate:
            route = ready_route(p.known_route())
            return self.distribute(p, route) if route.count else -1
        return self.publish_or_return(channel, p)

    def send_return(self, channel: Channel, p: SpecialPublish, code: int) -> None:
        """Send basic.return with a message that could not be delivered."""
        connection = self.connection
        route = p.known_route()
        channel.tally.return_unroutable += 1
        route.tally.return_unroutable += 1
        exchange, routing_key = split_address(p.data[: p.address_len])
        connection.write_frame(
            FRAME_METHOD,
            channel.number,
            encode_method(
                connection.version,
                BasicReturn(
                    reply_code=code,
                    reply_text=RETURNS[code],
                    exchange=exchange,
                    routing_key=routing_key,
                ),
            ),
        )
        connection.reserve(len(p.data) - p.header)
        channel.write_content(p.data, p.header, len(p.data))
        if p.parts is not None:
            connection.write_parts(channel.number, p.parts, connection.frame_max)

    # --- Transactions -----------------------------------------------------------------------------

    def defer_publish(self, channel: Channel, p: SpecialPublish) -> None:
        """Keep a publish for the commit of the channel's transaction."""
        if channel.dtx:
            self.publish_in_branch(channel, p)
            return
        channel.tx_bytes += p.body_size + len(p.data)
        if channel.tx_bytes > TX_BYTES_MAX:
            raise AmqpError(
                ReplyCode.RESOURCE_ERROR, f"a transaction holds more than {TX_BYTES_MAX} bytes"
            )
        if channel.tx_publishes is None:
            channel.tx_publishes = []
        p.route = None  # Bindings may change before the commit.
        channel.tx_publishes.append(p)

    def publish_in_branch(self, channel: Channel, p: SpecialPublish) -> None:
        """Route a publish, unless it has a route, and add it to the channel's branch."""
        transaction: Transaction = check_branch(channel)
        if p.number is not None:
            raise AmqpError(ReplyCode.PRECONDITION_FAILED, NO_NUMBERS)
        if p.route is None:
            try:
                p.route = self.route_of(p)
            except (AmqpError, ModelError) as error:
                if not transaction.counts:
                    raise
                transaction.note(error_text(error))
                return
        if p.delay_ms:
            self.delay(p)
        bits = p.bits()
        queues = p.known_route().queues
        if bits & C_IMMEDIATE:
            queues = ready_queues(queues)
        if queues:
            message = self.distributor.message_of(p, p.data)
            interception = p.known_route().interception
            if interception is not None:
                message, queues = interception.join_branch(message, queues)
            transaction.publish(message, queues, p.persistent)
            self.distributor.count_routed(p.known_route(), len(queues))
            if transaction.counts:
                transaction.seen += 1
        elif transaction.counts:
            transaction.note("no queue gets it" if bits else "")
        elif bits & C_MANDATORY and p.known_route().count == 0:
            self.send_return(channel, p, NO_ROUTE)
        elif bits & C_IMMEDIATE:
            self.send_return(channel, p, NO_CONSUMERS)

    def commit(self, channel: Channel) -> None:
        """Commit a channel's transaction; it is durable once the store has synced.

        Raises:
            AmqpError: the disk is full, and nothing was committed; or all of it was, except
                publishes that a queue refused.
        """
        publishes = channel.tx_publishes
        settles = channel.tx_settles
        publishing_ids = self.connection.vhost.publishing_ids
        refused = 0
        if publishes:
            for publish in publishes:  # An impossible publish fails before any has an effect.
                p: SpecialPublish = cython.cast(SpecialPublish, publish)
                self.route_of(p)
                if p.number is not None:
                    publishing_ids.check(p.number[0])
        channel.tx_publishes = None
        channel.tx_settles = None
        channel.tx_bytes = 0
        store = self.distributor.store
        if store.full and publishes:
            channel.tx_publishes = publishes
            channel.tx_settles = settles
            raise AmqpError(ReplyCode.RESOURCE_ERROR, "the disk is full; nothing was committed")
        store.begin()
        channel.tx = False
        try:
            if publishes:
                for publish in publishes:
                    p = cython.cast(SpecialPublish, publish)
                    if p.number is None:
                        refused += self.commit_publish(channel, p)
                    elif not publishing_ids.is_duplicate(p.number):
                        refused += self.commit_publish(channel, p)
                        publishing_ids.note(p.number, True)
            if settles:
                for tag in sorted(settles):
                    channel.settle_one(tag, settles[tag])
            for state in states_of(channel):
                state.commit()
        finally:
            channel.tx = True
            store.commit()
        if refused:  # Without confirms the client would not learn of it.
            raise AmqpError(
                ReplyCode.PRECONDITION_FAILED, "partial tx completion", scope=Scope.CHANNEL
            )

    def commit_publish(self, channel: Channel, p: SpecialPublish) -> int:
        """Route a publish of a transaction that is being committed; return how many refused it."""
        p.route = self.route_of(p)
        if p.known_route().keeps:
            p.persistent = True
        if p.delay_ms:
            self.delay(p)
        elif p.known_route().interception is not None:
            return self.intercept(channel, p, True)
        if p.bits() or p.known_route().count == 0:
            return self.publish_or_return(channel, p)
        return self.distribute(p, p.known_route())


def ready_route(route: Route) -> Route:
    """Return a route to the queues with a consumer that takes a message at once."""
    ready = ready_queues(route.queues)
    return route if len(ready) == route.count else Route(route.key, ready, 0, tally=route.tally)


def error_text(error: AmqpError | ModelError) -> str:
    """Return the text of an error."""
    return error.reply_text if isinstance(error, AmqpError) else error.text
