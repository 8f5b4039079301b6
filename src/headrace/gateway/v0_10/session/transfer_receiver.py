# SPDX-License-Identifier: Apache-2.0
"""Publishing of a 0-10 client's transfers.

The arguments of ``publish`` are offsets into the receive buffer. Header and body go either straight
to a waiting subscription's output or into a Message for each queue of the route.
``publish_on_slow_path`` handles a transfer that is a fragment, immediate, intercepted, part of a
transaction, unroutable, or has a publishing id.
"""

from typing import TYPE_CHECKING

import cython

if not cython.compiled:
    from headrace.gateway.messages.distributor import Distributor, Publish, ready_queues
    from headrace.gateway.messages.route import Route
    from headrace.gateway.v0_10.session.completion import Completion
    from headrace.gateway.v0_10.session.context import SessionContext
    from headrace.gateway.v0_10.session.subscription import Subscription
    from headrace.gateway.v0_10.session.transfer import ParsedTransfer
    from headrace.model.message import KIND_TRANSFER as C_KIND_TRANSFER
    from headrace.model.message import REDELIVERED as C_REDELIVERED
    from headrace.model.message import Message
    from headrace.model.queue.destination import Consumer
    from headrace.protocol.v0_10.session.port import INLINE_BODY_MAX as C_INLINE_BODY_MAX
    from headrace.wire.memory import cut, same

from headrace.model.interceptor.interception import Source
from headrace.protocol.codec_0_10 import MessageReject
from headrace.protocol.errors_0_10 import ExecutionError
from headrace.spec.reply_0_10 import ExecutionCode
from headrace.wire.ranges import SequenceSet

if TYPE_CHECKING:
    from headrace.model.transaction.transaction import Transaction
    from headrace.protocol.endpoint import Endpoint

REJECT_UNROUTABLE = 1
REJECT_IMMEDIATE = 2
REJECT_UNSPECIFIED = 0


class TransferDistributor(Distributor):
    """Distributes the transfers of a session to queues."""

    def __init__(self, session: SessionContext, transfer: ParsedTransfer) -> None:
        Distributor.__init__(self, session.connection, session.counters, session.number)
        self.transfer = transfer
        self.store = session.store
        self.vhost = session.vhost
        self.is_verbatim = False

    def message_data(
        self, publish: Publish, buffer: bytes | bytearray, start: int, end: int
    ) -> bytes:
        if publish.parts is not None:
            return self.transfer.prefix
        return self.transfer.prefix + cut(buffer, start, end)

    def put(
        self, publish: Publish, consumer: Consumer, buffer: bytes | bytearray, start: int, end: int
    ) -> bool:
        if consumer.content_kind != C_KIND_TRANSFER or publish.flags & C_REDELIVERED:
            return False
        cython.cast(Subscription, consumer).put_transfer(  # All consumers of the family are.
            self.transfer.delivered_header, buffer, start, end
        )
        return True


class TransferReceiver:
    """Receives the transfers of one session and publishes them."""

    def __init__(
        self, session: SessionContext, transfer: ParsedTransfer, completion: Completion
    ) -> None:
        self.session = session
        self.transfer = transfer
        self.completion = completion
        self.received = session.received
        self.counters = session.counters
        self.tally = session.tally
        self.distributor = TransferDistributor(session, transfer)

    def publish(
        self,
        buffer: bytes | bytearray,
        args: int,
        args_end: int,
        header: int,
        header_end: int,
        body: int,
        body_end: int,
    ) -> None:
        """Publish one transfer; the arguments are offsets into ``buffer``."""
        transfer = self.transfer
        route = transfer.route
        if (
            route is None
            or route.generation != self.counters.generation
            or self.counters.now_ms >= transfer.valid_until_ms
            or not same(transfer.args, buffer, args + 2, args_end)
            or not same(transfer.header, buffer, header, header_end)
        ):
            route = transfer.prepare(cut(buffer, args, args_end), cut(buffer, header, header_end))
        self.tally.publish += 1
        if transfer.requires_accept:
            self.tally.publish_confirm += 1
        transfer.body_size = body_end - body
        if transfer.ttl_ms >= 0:
            transfer.deadline_ms = self.counters.now_ms + transfer.ttl_ms
        if transfer.takes_slow_path or route.count == 0 or self.session.transaction is not None:
            self.publish_on_slow_path(route, cut(buffer, body, body_end))
            return
        refused = self.distributor.distribute(transfer, route, buffer, body, body_end)
        if (
            refused
            or self.distributor.position
            or transfer.requires_accept
            or self.completion.batch is not None
        ):
            self.finish(refused)
        else:
            self.received.complete(self.session.command_id)

    def publish_large(
        self,
        start: bytes,
        args: int,
        args_end: int,
        header: int,
        header_end: int,
        parts: tuple[bytes, ...],
        body_size: int,
    ) -> None:
        """Publish a transfer with a large body."""
        transfer = self.transfer
        transfer.valid_until_ms = 0
        route = transfer.prepare(start[args:args_end], start[header:header_end])
        transfer.valid_until_ms = 0
        transfer.parts = parts
        self.tally.publish += 1
        if transfer.requires_accept:
            self.tally.publish_confirm += 1
        transfer.body_size = body_size
        if transfer.ttl_ms >= 0:
            transfer.deadline_ms = self.counters.now_ms + transfer.ttl_ms
        if transfer.takes_slow_path or route.count == 0 or self.session.transaction is not None:
            self.publish_on_slow_path(route, b"")
        else:
            self.finish(self.distributor.distribute(transfer, route, b"", 0, 0))
        transfer.parts = None

    # Keeps 0-10/s044, 0-10/s072.
    def finish(self, refused: int) -> None:
        """Complete the current transfer, or reject it if queues ``refused`` it."""
        transfer = self.transfer
        if refused:
            self.refuse("a queue is full")
        elif (
            self.distributor.position
            or transfer.requires_accept
            or self.completion.batch is not None
        ):
            self.completion.join(transfer.requires_accept)
        else:
            self.received.complete(self.session.command_id)

    def attach_to(self, connection: "Endpoint") -> None:
        """Use a newly attached connection, whose permissions may differ."""
        self.distributor.endpoint = connection
        self.distributor.number = connection.number
        self.transfer.clear()

    def on_detached(self) -> None:
        """Forget the connection; the session outlives it."""
        self.distributor.endpoint = None  # type: ignore[assignment]  # Nothing is published now.

    # --- The slow path ------------------------------------------------------------------------

    def publish_on_slow_path(self, route: Route, body: bytes) -> None:
        """Publish a transfer that the hot path of :meth:`publish` does not handle."""
        session = self.session
        transfer = self.transfer
        if transfer.fragment is not None:
            assembled = session.context.fragments.add(
                session, transfer.fragment, body, transfer.parts
            )
            if assembled is None:
                self.received.complete(session.command_id)
                return
            transfer.parts, transfer.body_size = assembled
            if transfer.body_size <= C_INLINE_BODY_MAX:
                body = b"".join(transfer.parts)
                transfer.parts = None
        self.distributor.position = 0
        interception = route.interception
        if route.count and transfer.immediate and len(ready_queues(route.queues)) < route.count:
            self.counters.count_publish(transfer.body_size)
            self.distributor.count_routed(route, 0)
            self.free_publishing_id()
            self.reject_unroutable(
                route, REJECT_IMMEDIATE, "a queue has no subscription with credit"
            )
            return
        if route.count == 0 and (interception is None or not interception.is_duplicate()):
            if interception is not None:
                self.intercept(route, body)
            else:
                self.counters.count_publish(transfer.body_size)
                self.distributor.count_routed(route, 0)
            self.free_publishing_id()
            self.reject_unroutable(route, REJECT_UNROUTABLE, "the message is routed to no queue")
            return
        if session.transaction is not None:
            self.publish_in_transaction(session.transaction, route, body)
            self.finish(0)
        elif interception is not None:
            if self.intercept(route, body):
                self.refuse("a queue is full")
            else:
                self.completion.join(transfer.requires_accept)
        elif transfer.publishing_id is not None:
            self.publish_once(route, transfer.publishing_id, body)
        else:
            self.finish(self.distributor.distribute(transfer, route, body, 0, len(body)))

    def publish_in_transaction(self, transaction: "Transaction", route: Route, body: bytes) -> None:
        """Add a transfer to a transaction."""
        transfer = self.transfer
        interception = route.interception
        message = self.make_message(body)
        queues = route.queues
        if interception is not None and transaction.owns_messages:
            message, queues = interception.join_branch(message, queues)
        elif interception is not None:
            transaction.intercept(interception, self.source())
        if transfer.publishing_id is not None:
            transaction.number(transfer.publishing_id)
        self.distributor.count_routed(route, len(queues))
        transaction.publish(message, queues, transfer.persistent and route.durable)

    def make_message(self, body: bytes) -> Message:
        """Make a message of the transfer, for a transaction to enqueue."""
        distributor = self.distributor
        data = distributor.message_data(self.transfer, body, 0, len(body))
        return distributor.make_message(self.transfer, data)

    def intercept(self, route: Route, body: bytes) -> int:
        """Publish a transfer through its interception; return how many queues refused it."""
        transfer = self.transfer
        distributor = self.distributor
        data = distributor.message_data(transfer, body, 0, len(body))
        source = self.source()
        return distributor.intercept(
            transfer, route, route.queues, data, transfer.publishing_id, source, False
        )

    def source(self) -> Source:
        """Return the publisher's user, connection and channel, for interceptors."""
        session = self.session
        name = session.context.context.connection_events.names.get(session.number, "")
        return Source(session.user.name, name, session.channel)

    # Keeps 0-10/s072.
    def publish_once(self, route: Route, number: tuple[bytes, int], body: bytes) -> None:
        """Publish a transfer with a publishing id, unless the id was used before."""
        transfer = self.transfer
        if not self.session.vhost.publishing_ids.is_duplicate(
            number
        ) and self.distributor.publish_once(transfer, route, number, body, 0, len(body), False):
            self.refuse("a queue is full")
            return
        self.completion.join(transfer.requires_accept)

    # --- Rejected transfers -------------------------------------------------------------------

    def free_publishing_id(self) -> None:
        """Free the publishing id of a transfer that is not published."""
        if self.transfer.publishing_id is not None:
            self.session.vhost.publishing_ids.refuse(self.transfer.publishing_id)

    # Keeps 0-10/s149, 0-10/s152.
    def reject_unroutable(self, route: Route, code: int, text: str) -> None:
        """Reject an unroutable transfer, unless it has no accept or discard-unroutable is set."""
        transfer = self.transfer
        if transfer.requires_accept and not transfer.discards_unroutable:
            self.tally.return_unroutable += 1
            route.tally.return_unroutable += 1
            self.reject(code, text)
            return
        self.tally.drop_unroutable += 1
        route.tally.drop_unroutable += 1
        if transfer.requires_accept or self.completion.batch is not None:
            self.completion.join(transfer.requires_accept)
        else:
            self.received.complete(self.session.command_id)

    def refuse(self, text: str) -> None:
        """Refuse a transfer because of an overflow policy or a full disk."""
        if not self.transfer.requires_accept:
            raise ExecutionError(ExecutionCode.RESOURCE_LIMIT_EXCEEDED, text)
        self.reject(REJECT_UNSPECIFIED, text)

    def reject(self, code: int, text: str) -> None:
        """Send message.reject for the current transfer."""
        session = self.session
        number = session.command_id
        self.completion.close_batch()
        session.send_command(
            MessageReject(transfers=SequenceSet([(number, number)]), code=code, text=text)
        )
        session.complete(number)
