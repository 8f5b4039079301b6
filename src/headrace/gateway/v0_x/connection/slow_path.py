# SPDX-License-Identifier: Apache-2.0
"""The slow path of publishing: publishes that the hot path of ``PublishReceiver`` does not handle.

A publish takes the slow path if it has a publishing id, a delay, or routing keys in CC or BCC, if
it is immediate, unroutable or part of a transaction, or if its route has an interception. It is
copied out of the receive buffer as a :class:`DetachedPublish`.

:meth:`SlowPathReceiver.refuse` also answers publishes of the hot path that a queue refused.
:meth:`SlowPathReceiver.commit` commits the local transactions (tx) of 0-8 to 0-9-1.
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
from headrace.gateway.connection.plug_in_state import channel_states
from headrace.gateway.messages.delay_header import (
    add_publisher,
    delayed_route,
    publisher_account,
    read_delay,
)
from headrace.gateway.messages.publishing_id import extract_publishing_id
from headrace.gateway.v0_x.channel.channel import check_branch
from headrace.gateway.v0_x.connection.publish_copies import extract_cc_keys
from headrace.gateway.v0_x.connection.routing import make_route, split_address
from headrace.model.errors import ModelError
from headrace.model.interceptor.interception import Source
from headrace.protocol.codec_0_x import BasicReturn, encode_method
from headrace.protocol.errors import AmqpError
from headrace.protocol.v0_x.frames import FRAME_METHOD
from headrace.spec.reply import ReplyCode, Scope

if TYPE_CHECKING:
    from headrace.model.transaction.transaction import Transaction

NO_PUBLISHING_ID_IN_BRANCH = (
    "a message with a publishing id cannot be part of a distributed transaction"
)
TX_BYTES_MAX = 256 << 20  # Bytes of the publishes of one transaction before its commit.
NO_ROUTE = ReplyCode.NO_ROUTE.number
NO_CONSUMERS = ReplyCode.NO_CONSUMERS.number
RETURNS = {NO_ROUTE: "NO_ROUTE", NO_CONSUMERS: "NO_CONSUMERS"}
# The bits of the features that the properties of a publish may request.
CC_KEYS = 1  # The headers CC and BCC: further routing keys.
PUBLISHING_ID = 2  # The header x-publishing-id.
DELAYED = 4  # The header x-delay.
DIRECT_REPLY_TO = 8  # The reply-to of direct reply-to.
# The bits that follow the address in a basic.publish.
MANDATORY = 1
IMMEDIATE = 2
if not cython.compiled:
    C_CC_KEYS = CC_KEYS
    C_PUBLISHING_ID = PUBLISHING_ID
    C_DELAYED = DELAYED
    C_DIRECT_REPLY_TO = DIRECT_REPLY_TO
    C_MANDATORY = MANDATORY
    C_IMMEDIATE = IMMEDIATE


class DetachedPublish(Publish):
    """One publish, copied out of the receive buffer."""

    def __init__(self) -> None:
        Publish.__init__(self)
        self.features = 0  # The bits CC_KEYS, PUBLISHING_ID and DELAYED.
        self.data = b""  # The bytes of the publish, laid out as in Message.data.
        self.header = 0  # The offset of the header frame in ``data``.
        self.cc_keys: tuple[str, ...] | None = None  # The routing keys of CC and BCC.
        #: The name of the publisher, and the number that it gave the message.
        self.publishing_id: tuple[bytes, int] | None = None
        self.delay_ms = 0
        self.route: Route | None = None  # None until the publish is routed.

    def assigned_route(self) -> Route:
        """Return the route of a publish that has been routed."""
        assert self.route is not None
        return self.route

    def bits(self) -> int:
        """Return the bits MANDATORY and IMMEDIATE of the publish."""
        return self.data[self.address_len]


class SlowPathReceiver:
    """Publishes the detached publishes of one connection."""

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

    def detach(
        self,
        publish: Publish,
        features: int,
        buffer: bytes | bytearray,
        args: int,
        header: int,
        end: int,
    ) -> DetachedPublish:
        """Copy ``buffer[args:end]`` out of the receive buffer, with the properties of ``publish``.

        ``args`` is the offset of the publish's address, ``header`` the offset of its header frame.
        """
        detached = DetachedPublish()
        detached.persistent = publish.persistent
        detached.priority = publish.priority
        detached.deadline_ms = publish.deadline_ms
        detached.address_len = publish.address_len
        detached.body_size = publish.body_size
        detached.parts = publish.parts
        detached.features = features
        detached.data = cut(buffer, args, end)
        detached.header = header - args
        return detached

    def read_headers(self, publish: DetachedPublish) -> None:
        """Read and remove the headers of the publish's features, and route it."""
        if publish.features & C_PUBLISHING_ID:
            publish.data, publish.publishing_id = extract_publishing_id(
                publish.data, publish.header
            )
        if publish.features & C_DELAYED:
            publish.delay_ms = read_delay(publish.data, publish.header)
        if publish.features & C_CC_KEYS:
            data, publish.cc_keys = extract_cc_keys(publish.data, publish.header)
            if not publish.delay_ms:  # After the delay the headers are read again.
                publish.data = data
        publish.route = self.find_route(publish)
        if publish.assigned_route().keeps_transient:
            publish.persistent = True

    def find_route(self, publish: DetachedPublish) -> Route:
        """Return the route of a publish under the current bindings and permissions."""
        size = get32(publish.data, publish.header + C_SIZE_AT)
        start = publish.header + C_PAYLOAD_AT
        if publish.cc_keys is None:
            return self.routes.find(publish.data[: publish.address_len], publish.data, start, size)
        payload = publish.data[start : start + size]
        address = publish.data[: publish.address_len]
        return make_route(self.context, self.connection, address, payload, publish.cc_keys)[0]

    def delay(self, publish: DetachedPublish) -> None:
        """Route a delayed publish to the queue in which it waits."""
        publish.deadline_ms = self.distributor.counters.now_ms + publish.delay_ms
        publish.route = delayed_route(self.connection.vhost, publish.assigned_route())
        publish.data = add_publisher(
            publish.data, publish.header, publisher_account(self.connection.user)
        )

    def distribute(self, publish: DetachedPublish, route: Route) -> int:
        """Enqueue a publish in every queue of a route; return how many refused it."""
        return self.distributor.distribute(publish, route, publish.data, 0, len(publish.data))

    def finish(self, channel: Channel, publish: DetachedPublish, refused: int) -> None:
        """Record a publish for its confirm, or refuse it if ``refused`` is not 0."""
        if refused:
            self.refuse(channel, publish, publish.assigned_route())
        elif channel.confirms:
            channel.record_publish()

    def refuse(self, channel: Channel, publish: Publish, route: Route) -> None:
        """Nack a publish that a queue refused; without confirms, a full disk closes the channel.

        The client thus learns of each persistent message that is lost to a full disk. A message
        that an overflow policy rejects needs no answer.
        """
        if channel.confirms:
            channel.nack_publish()
        elif publish.persistent and route.durable and self.distributor.store.full:
            raise AmqpError(
                ReplyCode.RESOURCE_ERROR,
                "the disk is full; a persistent message was not taken",
                scope=Scope.CHANNEL,
            )

    # --- Special publishes ------------------------------------------------------------------------

    def publish_with_features(self, channel: Channel, publish: DetachedPublish) -> None:
        """Publish a message with further routing keys, a publishing id or a delay."""
        self.connection.publishes = True
        self.connection.work_left -= C_METHOD_WORK
        self.read_headers(publish)
        if channel.tx:
            self.defer_publish(channel, publish)
            return
        if publish.delay_ms:
            self.delay(publish)
        elif publish.assigned_route().interception is not None:
            self.finish(channel, publish, self.intercept(channel, publish, False))
            return
        if publish.publishing_id is not None:
            self.finish(channel, publish, self.publish_once(channel, publish, False))
        else:
            self.finish(channel, publish, self.publish_or_return(channel, publish))

    def publish_intercepted(self, channel: Channel, publish: DetachedPublish) -> None:
        """Publish a message whose route has an interception."""
        if channel.tx:
            self.defer_publish(channel, publish)
        else:
            self.finish(channel, publish, self.intercept(channel, publish, False))

    def intercept(self, channel: Channel, publish: DetachedPublish, in_transaction: bool) -> int:
        """Publish a message through its interception; return how many queues refused it.

        With ``in_transaction``, a transaction is being committed.
        """
        connection = self.connection
        interception = publish.assigned_route().interception
        assert interception is not None
        publishing_id = publish.publishing_id
        bits = publish.bits()
        queues = publish.assigned_route().queues
        if bits & C_IMMEDIATE:
            queues = ready_queues(queues)
        if queues or interception.is_duplicate():
            pass
        elif not bits:
            channel.tally.drop_unroutable += 1
            route = publish.assigned_route()
            route.tally.drop_unroutable += 1
        else:
            unroutable = not publish.assigned_route().count and bits & C_MANDATORY
            self.send_return(channel, publish, NO_ROUTE if unroutable else NO_CONSUMERS)
            if publishing_id is not None:
                connection.vhost.publishing_ids.refuse(publishing_id)
                publishing_id = None
        name = self.context.connection_events.names.get(connection.number, "")
        source = Source(connection.user.name, name, channel.number)
        return self.distributor.intercept(
            publish,
            publish.assigned_route(),
            queues,
            publish.data,
            publishing_id,
            source,
            in_transaction,
        )

    def publish_once(self, channel: Channel, publish: DetachedPublish, in_transaction: bool) -> int:
        """Publish a message with a publishing id, unless the id was used before.

        With ``in_transaction``, a transaction is being committed.

        Returns:
            The number of queues that refused the message. If it is not 0, no queue has the message,
            and the id may be used again.
        """
        publishing_ids = self.connection.vhost.publishing_ids
        assert publish.publishing_id is not None
        if publishing_ids.is_duplicate(publish.publishing_id):
            return 0
        bits = publish.bits()
        route = publish.assigned_route()
        if bits & C_IMMEDIATE:
            route = ready_route(route)
        if not route.count:
            if bits:
                publishing_ids.refuse(publish.publishing_id)
            return self.publish_or_return(channel, publish)
        return self.distributor.publish_once(
            publish,
            route,
            publish.publishing_id,
            publish.data,
            0,
            len(publish.data),
            in_transaction,
        )

    # Keeps 0-9-1/s106, 0-9/basic.publish.mandatory#01, 0-9-1/s107, 0-9/basic.publish.immediate#01.
    def publish_or_return(self, channel: Channel, publish: DetachedPublish) -> int:
        """Publish a message that may be immediate or unroutable; return how many refused it."""
        bits = publish.bits()
        route = publish.assigned_route()
        code = NO_CONSUMERS
        if route.count == 0 and bits & C_MANDATORY:
            code = NO_ROUTE
        if route.count and bits & C_IMMEDIATE:
            route = ready_route(route)
        if route.count:
            return self.distribute(publish, route)
        if bits:
            self.count_unrouted(publish, route)
            self.send_return(channel, publish, code)
        else:
            self.drop(channel, publish, route)
        return 0

    def drop(self, channel: Channel, publish: Publish, route: Route) -> None:
        """Drop and count an unroutable publish that is not mandatory."""
        self.count_unrouted(publish, route)
        channel.tally.drop_unroutable += 1
        route.tally.drop_unroutable += 1

    def count_unrouted(self, publish: Publish, route: Route) -> None:
        """Count a publish that reaches no queue and no interception."""
        self.distributor.counters.count_publish(publish.body_size)
        self.distributor.count_routed(route, 0)

    def reject_immediate(self, channel: Channel, publish: DetachedPublish) -> int:
        """Count an immediate publish that the caller returns or rejects; return -1."""
        route = publish.assigned_route()
        self.count_unrouted(publish, route)
        channel.tally.return_unroutable += 1
        route.tally.return_unroutable += 1
        return -1

    def publish_content(self, channel: Channel, publish: DetachedPublish) -> int:
        """Publish for a class other than basic, or for an operator; without a confirm.

        Returns:
            The number of queues that refused the message; -1 if it is immediate and no queue has a
            consumer that can take it.
        """
        self.read_headers(publish)
        if not publish.assigned_route().is_served_by_broker:
            self.connection.publishes = True
        immediate = publish.bits() & C_IMMEDIATE
        if channel.tx:
            self.defer_publish(channel, publish)
            return 0
        if publish.delay_ms:
            self.delay(publish)
        elif publish.assigned_route().interception is not None:
            if immediate and not ready_queues(publish.assigned_route().queues):
                return self.reject_immediate(channel, publish)
            return self.intercept(channel, publish, False)
        if publish.publishing_id is not None and not immediate:
            return self.publish_once(channel, publish, False)
        if immediate:
            route = ready_route(publish.assigned_route())
            if not route.count:
                return self.reject_immediate(channel, publish)
            return self.distribute(publish, route)
        return self.publish_or_return(channel, publish)

    def send_return(self, channel: Channel, publish: DetachedPublish, code: int) -> None:
        """Send basic.return with a message that could not be delivered."""
        connection = self.connection
        route = publish.assigned_route()
        channel.tally.return_unroutable += 1
        route.tally.return_unroutable += 1
        exchange, routing_key = split_address(publish.data[: publish.address_len])
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
        connection.reserve(len(publish.data) - publish.header)
        channel.write_content(publish.data, publish.header, len(publish.data))
        if publish.parts is not None:
            connection.write_parts(channel.number, publish.parts, connection.frame_max)

    # --- Transactions -----------------------------------------------------------------------------

    def defer_publish(self, channel: Channel, publish: DetachedPublish) -> None:
        """Add a publish to the channel's transaction, for the commit.

        Raises:
            AmqpError: the transaction would hold more than ``TX_BYTES_MAX`` bytes.
        """
        if channel.dtx:
            self.publish_in_branch(channel, publish)
            return
        channel.tx_bytes += publish.body_size + len(publish.data)
        if channel.tx_bytes > TX_BYTES_MAX:
            raise AmqpError(
                ReplyCode.RESOURCE_ERROR, f"a transaction holds more than {TX_BYTES_MAX} bytes"
            )
        if channel.tx_publishes is None:
            channel.tx_publishes = []
        publish.route = None  # Bindings may change before the commit.
        channel.tx_publishes.append(publish)

    def publish_in_branch(self, channel: Channel, publish: DetachedPublish) -> None:
        """Route a publish, unless it has a route, and add it to the channel's branch."""
        transaction: Transaction = check_branch(channel)
        if publish.publishing_id is not None:
            raise AmqpError(ReplyCode.PRECONDITION_FAILED, NO_PUBLISHING_ID_IN_BRANCH)
        if publish.route is None:
            try:
                publish.route = self.find_route(publish)
            except (AmqpError, ModelError) as error:
                if not transaction.counts_publishes:
                    raise
                transaction.count_publish(error_text(error))
                return
        if publish.delay_ms:
            self.delay(publish)
        bits = publish.bits()
        queues = publish.assigned_route().queues
        if bits & C_IMMEDIATE:
            queues = ready_queues(queues)
        if queues:
            message = self.distributor.make_message(publish, publish.data)
            interception = publish.assigned_route().interception
            if interception is not None:
                message, queues = interception.join_branch(message, queues)
            transaction.publish(message, queues, publish.persistent)
            self.distributor.count_routed(publish.assigned_route(), len(queues))
            if transaction.counts_publishes:
                transaction.publish_count += 1
        elif transaction.counts_publishes:
            transaction.count_publish("no queue gets it" if bits else "")
        elif bits & C_MANDATORY and publish.assigned_route().count == 0:
            self.send_return(channel, publish, NO_ROUTE)
        elif bits & C_IMMEDIATE:
            self.send_return(channel, publish, NO_CONSUMERS)

    # Keeps 0-9-1/s119, 0-9-1/tx#01.
    def commit(self, channel: Channel) -> None:
        """Commit a channel's transaction; it is durable once the store has synced.

        Raises:
            AmqpError: the disk is full, and the transaction stays open; or a queue refused a
                publish, and the rest of the transaction is committed.
        """
        publishes = channel.tx_publishes
        settles = channel.tx_settles
        publishing_ids = self.connection.vhost.publishing_ids
        refused = 0
        if publishes:
            for deferred in publishes:  # An impossible publish fails before any has an effect.
                publish: DetachedPublish = cython.cast(DetachedPublish, deferred)
                self.find_route(publish)
                if publish.publishing_id is not None:
                    publishing_ids.check(publish.publishing_id[0])
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
                for deferred in publishes:
                    publish = cython.cast(DetachedPublish, deferred)
                    if publish.publishing_id is None or not publishing_ids.is_duplicate(
                        publish.publishing_id
                    ):
                        refused += self.commit_publish(channel, publish)
            if settles:
                for tag in sorted(settles):
                    channel.settle_one(tag, settles[tag])
            for state in channel_states(channel):
                state.commit()
        finally:
            channel.tx = True
            store.commit()
        if refused:  # Without confirms the client would not learn of it.
            raise AmqpError(
                ReplyCode.PRECONDITION_FAILED, "partial tx completion", scope=Scope.CHANNEL
            )

    # Keeps 0-9-1/s122, 0-9-1/tx#02, 0-9-1/tx#03.
    def commit_publish(self, channel: Channel, publish: DetachedPublish) -> int:
        """Publish a message of a transaction being committed; return how many queues refused it."""
        publish.route = self.find_route(publish)
        if publish.assigned_route().keeps_transient:
            publish.persistent = True
        if publish.delay_ms:
            self.delay(publish)
        elif publish.assigned_route().interception is not None:
            return self.intercept(channel, publish, True)
        if publish.publishing_id is not None:
            return self.publish_once(channel, publish, True)
        if publish.bits() or publish.assigned_route().count == 0:
            return self.publish_or_return(channel, publish)
        return self.distribute(publish, publish.assigned_route())


def ready_route(route: Route) -> Route:
    """Return a route to the queues that have a consumer with credit."""
    ready = ready_queues(route.queues)
    return route if len(ready) == route.count else Route(route.key, ready, 0, tally=route.tally)


def error_text(error: AmqpError | ModelError) -> str:
    """Return the text of an error without its code."""
    return error.reply_text if isinstance(error, AmqpError) else error.text
