# SPDX-License-Identifier: Apache-2.0
"""Publishing what a 0-10 client transfers.

``publish`` is given offsets into the receive buffer. Each queue of the route either hands header
and body straight to a waiting subscription's output or gets a Message. A transfer that is a
fragment, immediate, numbered, part of a transaction, or leads nowhere goes by ``publish_rarely``.
"""

from typing import TYPE_CHECKING

import cython

if not cython.compiled:
    from headrace.gateway.messages.route import Route, will_last
    from headrace.gateway.v0_10.session.completion import Completion
    from headrace.gateway.v0_10.session.context import SessionContext
    from headrace.gateway.v0_10.session.subscription import Subscription
    from headrace.gateway.v0_10.session.transfer import ParsedTransfer
    from headrace.model.message import KIND_TRANSFER as C_KIND_TRANSFER
    from headrace.model.message import LARGE as C_LARGE
    from headrace.model.message import PERSISTENT as C_PERSISTENT
    from headrace.model.message import REDELIVERED as C_REDELIVERED
    from headrace.model.message import Message, new_message
    from headrace.wire.memory import cut, same

from headrace.model.interceptor.interception import Source
from headrace.protocol.codec_0_10 import MessageReject
from headrace.protocol.errors_0_10 import ExecutionError
from headrace.spec.reply_0_10 import ExecutionCode
from headrace.wire.ranges import SequenceSet

if TYPE_CHECKING:
    from headrace.model.interceptor.interception import Interception

REJECT_UNROUTABLE = 1
REJECT_IMMEDIATE = 2
REJECT_UNSPECIFIED = 0


class Publisher:
    """Publishes the transfers of a session."""

    def __init__(
        self, session: SessionContext, transfer: ParsedTransfer, completion: Completion
    ) -> None:
        self.session = session
        self.transfer = transfer
        self.completion = completion
        self.received = session.received
        self.counters = session.counters
        self.store = session.store
        self.position = 0  # Where in the journal the transfer is.

    def publish(
        self,
        d: bytes | bytearray,
        args: int,
        args_end: int,
        header: int,
        header_end: int,
        body: int,
        body_end: int,
    ) -> None:
        """Take one transfer whose octets lie in ``d``."""
        transfer = self.transfer
        counters = self.counters
        route = transfer.route
        if (
            route is None
            or route.generation != counters.generation
            or counters.now_ms >= transfer.until_ms
            or not same(transfer.args, d, args + 2, args_end)
            or not same(transfer.header, d, header, header_end)
        ):
            route = transfer.prepare(cut(d, args, args_end), cut(d, header, header_end))
        if transfer.rare or route.count == 0 or self.session.transaction is not None:
            self.publish_rarely(route, cut(d, body, body_end), None, body_end - body)
            return
        refused = self.spread(route, d, body, body_end, None, body_end - body)
        if refused:
            self.turn_away("a queue is full")
        elif self.position or transfer.explicit or self.completion.batch is not None:
            self.completion.join(transfer.explicit)
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
        """Take a transfer with a large body."""
        transfer = self.transfer
        transfer.until_ms = 0
        route = transfer.prepare(start[args:args_end], start[header:header_end])
        if transfer.rare or route.count == 0 or self.session.transaction is not None:
            self.publish_rarely(route, b"", parts, body_size)
            return
        refused = self.spread(route, b"", 0, 0, parts, body_size)
        if refused:
            self.turn_away("a queue is full")
        elif self.position or transfer.explicit or self.completion.batch is not None:
            self.completion.join(transfer.explicit)
        else:
            self.received.complete(self.session.command_id)

    def spread(
        self,
        route: Route,
        d: bytes | bytearray,
        body: int,
        body_end: int,
        parts: tuple[bytes, ...] | None,
        body_size: int,
    ) -> int:
        """Give a message to every queue of its route; return how many refused it."""
        transfer = self.transfer
        counters = self.counters
        seq = counters.next_seq
        counters.next_seq = seq + 1
        counters.published += 1
        self.session.connection.work_left -= route.count
        position = 0
        refused = 0
        message: Message | None = None
        data: bytes | None = None
        if transfer.ttl_ms >= 0:
            transfer.deadline_ms = counters.now_ms + transfer.ttl_ms
        if transfer.persistent and route.durable:
            if self.store.full:
                return 1
            if parts is None and route.queue_ids:
                data = transfer.prefix + cut(d, body, body_end)
                position = self.store.publish(
                    data,
                    0,
                    len(data),
                    transfer.address_len,
                    C_PERSISTENT | C_KIND_TRANSFER,
                    transfer.priority,
                    transfer.deadline_ms,
                    counters.now_ms,
                    seq,
                    body_size,
                    route.queue_ids,
                )
        for queue in route.queues:
            kept = position != 0 and queue.durable
            consumer = queue.ready_consumer()
            if (
                consumer is not None
                and not kept
                and consumer.no_ack
                and parts is None
                and consumer.family == C_KIND_TRANSFER
                and not transfer.flags & C_REDELIVERED
            ):
                queue.published += 1
                queue.delivered += 1
                self.put(consumer, d, body, body_end)  # type: ignore[arg-type]  # By its family.
                continue
            if data is None:
                data = (
                    transfer.prefix
                    if parts is not None
                    else transfer.prefix + cut(d, body, body_end)
                )
            message = new_message(data, transfer.address_len, body_size)
            message.seq = seq
            message.publisher = self.session.number
            message.priority = transfer.priority
            message.deadline_ms = transfer.deadline_ms
            message.flags = transfer.flags
            if parts is not None:
                message.flags |= C_LARGE
                message.parts = parts
                if transfer.persistent and route.queue_ids and position == 0:
                    position = self.store.publish_message(message, counters.now_ms, route.queue_ids)
                kept = position != 0 and queue.durable
            if kept and not queue.is_stream:
                message.flags |= C_PERSISTENT
                message.position = position
            if consumer is not None:
                queue.dispatch_arrival(consumer, message)
            else:
                refused += queue.enqueue(message)
            if queue.ready_count > queue.pace_above and (
                queue.consumers is not None or queue.stopped
            ):
                self.session.connection.pace = queue
        self.position = position
        return refused

    def put(self, consumer: Subscription, d: bytes | bytearray, body: int, body_end: int) -> None:
        """Write a message straight from the receive buffer into a subscription's output."""
        consumer.put_transfer(self.transfer.delivered_header, d, body, body_end)

    # --- Rarely -------------------------------------------------------------------------------

    def publish_rarely(
        self, route: Route, body: bytes, parts: tuple[bytes, ...] | None, body_size: int
    ) -> None:
        """A transfer that is a fragment, immediate, part of a transaction, or leads nowhere."""
        session = self.session
        transfer = self.transfer
        if transfer.fragment is not None:
            whole = session.context.fragments.add(session, transfer.fragment, body, parts)
            if whole is None:
                self.received.complete(session.command_id)
                return
            parts, body_size = whole
            if body_size <= 65536:
                body = b"".join(parts)
                parts = None
        self.position = 0
        interception = route.interception
        if route.count and transfer.immediate:
            for queue in route.queues:
                if not queue.has_ready_consumer():
                    if transfer.publishing is not None:
                        session.vhost.publishing_ids.refuse(transfer.publishing)
                    self.unroutable(REJECT_IMMEDIATE, "a queue has no subscription with credit")
                    return
        if route.count == 0 and (interception is None or not interception.is_duplicate()):
            if interception is not None:
                self.pass_on(interception, route, body, parts, body_size)
            else:
                self.counters.published += 1
            if transfer.publishing is not None:
                session.vhost.publishing_ids.refuse(transfer.publishing)
            self.unroutable(REJECT_UNROUTABLE, "the message leads to no queue")
            return
        if session.transaction is not None:
            message = self.message_of(body, parts, body_size)
            queues = route.queues
            if interception is not None and session.transaction.owns:
                message, queues = interception.join_branch(message, queues)
            elif interception is not None:
                session.transaction.pass_by(interception, self.source())
            if transfer.publishing is not None:
                session.transaction.number(transfer.publishing)
            session.transaction.publish(message, queues, transfer.persistent and route.durable)
        elif interception is not None:
            if self.pass_on(interception, route, body, parts, body_size):
                self.turn_away("a queue is full")
                return
            self.completion.join(transfer.explicit)
            return
        elif transfer.publishing is not None:
            self.publish_once(route, transfer.publishing, body, parts, body_size)
            return
        elif self.spread(route, body, 0, len(body), parts, body_size):
            self.turn_away("a queue is full")
            return
        if self.position or transfer.explicit or self.completion.batch is not None:
            self.completion.join(transfer.explicit)
        else:
            self.received.complete(session.command_id)

    def message_of(self, body: bytes, parts: tuple[bytes, ...] | None, body_size: int) -> Message:
        """Return the transfer as a message that is in no queue."""
        transfer = self.transfer
        data = transfer.prefix if parts is not None else transfer.prefix + body
        message = new_message(data, transfer.address_len, body_size)
        message.publisher = self.session.number
        message.priority = transfer.priority
        message.deadline_ms = transfer.deadline_ms
        message.flags = transfer.flags
        if parts is not None:
            message.flags |= C_LARGE
            message.parts = parts
        return message

    def pass_on(
        self,
        interception: "Interception",
        route: Route,
        body: bytes,
        parts: tuple[bytes, ...] | None,
        body_size: int,
    ) -> int:
        """Give a transfer to its interception; return how many queues refused it."""
        transfer = self.transfer
        if transfer.ttl_ms >= 0:
            transfer.deadline_ms = self.counters.now_ms + transfer.ttl_ms
        message = self.message_of(body, parts, body_size)
        refused: int = interception.take(
            message,
            route.queues,
            transfer.persistent,
            number=transfer.publishing,
            source=self.source(),
        )
        for queue in route.queues:
            if queue.ready_count > queue.pace_above and (
                queue.consumers is not None or queue.stopped
            ):
                self.session.connection.pace = queue
        return refused

    def source(self) -> Source:
        """Return the publisher's user, connection and channel, for interceptors."""
        session = self.session
        name = session.context.context.telling.names.get(session.number, "")
        return Source(session.user.name, name, session.channel)

    def publish_once(
        self,
        route: Route,
        number: tuple[bytes, int],
        body: bytes,
        parts: tuple[bytes, ...] | None,
        body_size: int,
    ) -> None:
        """Take a transfer with a number, unless it was taken before.

        Either all of its queues take it, or none does and its number is not used up.
        """
        transfer = self.transfer
        publishers = self.session.vhost.publishing_ids
        if not publishers.knows(number):
            lasting = will_last(route.queues, transfer.persistent)
            refusing = tuple([queue for queue in route.queues if queue.would_reject(body_size)])
            if refusing:
                route = Route(route.key, refusing, 0)
                self.spread(route, body, 0, len(body), parts, body_size)
            if refusing or (lasting and self.store.full):
                publishers.refuse(number)
                self.turn_away("a queue is full")
                return
            publishers.check(number[0])
            if lasting:
                self.store.begin()
            try:
                self.spread(route, body, 0, len(body), parts, body_size)
                publishers.note(number, lasting)
            finally:
                if lasting:
                    self.store.commit()
        self.completion.join(transfer.explicit)

    # --- Rejected transfers --------------------------------------------------------------------

    def unroutable(self, code: int, text: str) -> None:
        """Reject a message that leads to no queue, unless the client does not want to know."""
        transfer = self.transfer
        if transfer.explicit and not transfer.discards:
            self.reject(code, text)
        elif transfer.explicit or self.completion.batch is not None:
            self.completion.join(transfer.explicit)
        else:
            self.received.complete(self.session.command_id)

    def turn_away(self, text: str) -> None:
        """An overflow policy, or a full disk, refuses the message."""
        if not self.transfer.explicit:
            raise ExecutionError(ExecutionCode.RESOURCE_LIMIT_EXCEEDED, text)
        self.reject(REJECT_UNSPECIFIED, text)

    def reject(self, code: int, text: str) -> None:
        """Tell the client that the current transfer was rejected."""
        session = self.session
        number = session.command_id
        self.completion.close_batch()
        session.send_command(
            MessageReject(transfers=SequenceSet([(number, number)]), code=code, text=text)
        )
        session.complete(number)
