# SPDX-License-Identifier: Apache-2.0
"""The way of a message that a 0-10 client publishes.

``publish`` is given offsets into the receive buffer. Each queue of the route either hands header
and body straight to a waiting subscription's output or gets a Message. A transfer that is a
fragment, immediate, numbered, part of a transaction, or leads nowhere goes by ``publish_rarely``.
"""

from typing import Any

import cython

if not cython.compiled:
    from headrace.gateway.messages.route import Route, will_last
    from headrace.gateway.v0_10.session.transfer import Transfers
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

REJECT_UNROUTABLE = 1
REJECT_IMMEDIATE = 2
REJECT_UNSPECIFIED = 0


class Publisher(Transfers):
    """A session, as far as it publishes."""

    def __init__(self, name: bytes, gateway: Any) -> None:
        Transfers.__init__(self, name, gateway)
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
        counters = self.counters
        route = self.route
        if (
            route is None
            or route.generation != counters.generation
            or counters.now_ms >= self.until_ms
            or not same(self.args, d, args + 2, args_end)
            or not same(self.header, d, header, header_end)
        ):
            route = self.prepare(cut(d, args, args_end), cut(d, header, header_end))
        if self.rare or route.count == 0 or self.transaction is not None:
            self.publish_rarely(route, cut(d, body, body_end), None, body_end - body)
            return
        refused = self.spread(route, d, body, body_end, None, body_end - body)
        if refused:
            self.turn_away("a queue is full")
        elif self.position or self.explicit or self.batch is not None:
            self.join_batch(self.explicit)
        else:
            self.received.complete(self.command_id)

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
        self.until_ms = 0
        route = self.prepare(start[args:args_end], start[header:header_end])
        if self.rare or route.count == 0 or self.transaction is not None:
            self.publish_rarely(route, b"", parts, body_size)
            return
        refused = self.spread(route, b"", 0, 0, parts, body_size)
        if refused:
            self.turn_away("a queue is full")
        elif self.position or self.explicit or self.batch is not None:
            self.join_batch(self.explicit)
        else:
            self.received.complete(self.command_id)

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
        counters = self.counters
        seq = counters.next_seq
        counters.next_seq = seq + 1
        counters.published += 1
        self.connection.work_left -= route.count
        position = 0
        refused = 0
        message: Message | None = None
        data: bytes | None = None
        if self.ttl_ms >= 0:
            self.deadline_ms = counters.now_ms + self.ttl_ms
        if self.persistent and route.durable:
            if self.store.full:
                return 1
            if parts is None and route.queue_ids:
                data = self.prefix + cut(d, body, body_end)
                position = self.store.publish(
                    data,
                    0,
                    len(data),
                    self.address_len,
                    C_PERSISTENT | C_KIND_TRANSFER,
                    self.priority,
                    self.deadline_ms,
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
                and not self.flags & C_REDELIVERED
            ):
                queue.published += 1
                queue.delivered += 1
                self.put(consumer, d, body, body_end)
                continue
            if data is None:
                data = self.prefix if parts is not None else self.prefix + cut(d, body, body_end)
            message = new_message(data, self.address_len, body_size)
            message.seq = seq
            message.publisher = self.number
            message.priority = self.priority
            message.deadline_ms = self.deadline_ms
            message.flags = self.flags
            if parts is not None:
                message.flags |= C_LARGE
                message.parts = parts
                if self.persistent and route.queue_ids and position == 0:
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
                self.connection.pace = queue
        self.position = position
        return refused

    def put(self, consumer: Any, d: bytes | bytearray, body: int, body_end: int) -> None:
        """Write a message straight from the receive buffer into a subscription's output."""
        consumer.put_transfer(self.delivered_header, d, body, body_end)

    # --- Rarely -------------------------------------------------------------------------------

    def publish_rarely(
        self, route: Route, body: bytes, parts: tuple[bytes, ...] | None, body_size: int
    ) -> None:
        """A transfer that is a fragment, immediate, part of a transaction, or leads nowhere."""
        if self.fragment is not None:
            whole = self.context.fragments.add(self, self.fragment, body, parts)
            if whole is None:
                self.received.complete(self.command_id)
                return
            parts, body_size = whole
            if body_size <= 65536:
                body = b"".join(parts)
                parts = None
        self.position = 0
        interception = route.interception
        if route.count and self.immediate:
            for queue in route.queues:
                if not queue.has_ready_consumer():
                    if self.publishing is not None:
                        self.vhost.publishing_ids.refuse(self.publishing)
                    self.unroutable(REJECT_IMMEDIATE, "a queue has no subscription with credit")
                    return
        if route.count == 0 and (interception is None or not interception.is_duplicate()):
            if interception is not None:
                self.pass_on(interception, route, body, parts, body_size)
            else:
                self.counters.published += 1
            if self.publishing is not None:
                self.vhost.publishing_ids.refuse(self.publishing)
            self.unroutable(REJECT_UNROUTABLE, "the message leads to no queue")
            return
        if self.transaction is not None:
            message = self.message_of(body, parts, body_size)
            queues = route.queues
            if interception is not None and self.transaction.owns:
                message, queues = interception.join_branch(message, queues)
            elif interception is not None:
                self.transaction.pass_by(interception, self.source())
            if self.publishing is not None:
                self.transaction.number(self.publishing)
            self.transaction.publish(message, queues, self.persistent and route.durable)
        elif interception is not None:
            if self.pass_on(interception, route, body, parts, body_size):
                self.turn_away("a queue is full")
                return
            self.join_batch(self.explicit)
            return
        elif self.publishing is not None:
            self.publish_once(route, self.publishing, body, parts, body_size)
            return
        elif self.spread(route, body, 0, len(body), parts, body_size):
            self.turn_away("a queue is full")
            return
        if self.position or self.explicit or self.batch is not None:
            self.join_batch(self.explicit)
        else:
            self.received.complete(self.command_id)

    def message_of(self, body: bytes, parts: tuple[bytes, ...] | None, body_size: int) -> Message:
        """Return the transfer as a message that is in no queue."""
        data = self.prefix if parts is not None else self.prefix + body
        message = new_message(data, self.address_len, body_size)
        message.publisher = self.number
        message.priority = self.priority
        message.deadline_ms = self.deadline_ms
        message.flags = self.flags
        if parts is not None:
            message.flags |= C_LARGE
            message.parts = parts
        return message

    def pass_on(
        self,
        interception: Any,
        route: Route,
        body: bytes,
        parts: tuple[bytes, ...] | None,
        body_size: int,
    ) -> int:
        """Give a transfer to its interception; return how many queues refused it."""
        if self.ttl_ms >= 0:
            self.deadline_ms = self.counters.now_ms + self.ttl_ms
        message = self.message_of(body, parts, body_size)
        refused: int = interception.take(
            message, route.queues, self.persistent, number=self.publishing, source=self.source()
        )
        for queue in route.queues:
            if queue.ready_count > queue.pace_above and (
                queue.consumers is not None or queue.stopped
            ):
                self.connection.pace = queue
        return refused

    def source(self) -> Source:
        """Who publishes, for whom it concerns."""
        name = self.context.context.telling.names.get(self.number, "")
        return Source(self.user.name, name, self.channel)

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
        publishers = self.vhost.publishing_ids
        if not publishers.knows(number):
            lasting = will_last(route.queues, self.persistent)
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
        self.join_batch(self.explicit)

    # --- What is not taken --------------------------------------------------------------------

    def unroutable(self, code: int, text: str) -> None:
        """Nobody may have the message: say so to a client that wants to know."""
        if self.explicit and not self.discards:
            self.reject(code, text)
        elif self.explicit or self.batch is not None:
            self.join_batch(self.explicit)
        else:
            self.received.complete(self.command_id)

    def turn_away(self, text: str) -> None:
        """An overflow policy, or a full disk, refuses the message."""
        if not self.explicit:
            raise ExecutionError(ExecutionCode.RESOURCE_LIMIT_EXCEEDED, text)
        self.reject(REJECT_UNSPECIFIED, text)

    def reject(self, code: int, text: str) -> None:
        """Tell the client that a transfer of its own was not taken."""
        number = self.command_id
        self.close_batch()
        self.send_command(
            MessageReject(transfers=SequenceSet([(number, number)]), code=code, text=text)
        )
        self.complete(number)
