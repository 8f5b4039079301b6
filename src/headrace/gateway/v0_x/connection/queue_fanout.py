# SPDX-License-Identifier: Apache-2.0
"""From a route to its queues: how most messages of a 0-8, 0-9 or 0-9-1 client go.

Each queue either hands the octets straight to a waiting consumer's output or gets a Message around
one copy of them.
"""

from typing import Any

import cython

if not cython.compiled:
    from headrace.gateway.connection.peer import Peer
    from headrace.gateway.messages.route import Route
    from headrace.gateway.v0_x.channel.channel import Channel
    from headrace.model.message import LARGE as C_LARGE
    from headrace.model.message import PERSISTENT as C_PERSISTENT
    from headrace.model.message import Message, new_message
    from headrace.protocol.endpoint import METHOD_WORK as C_METHOD_WORK
    from headrace.protocol.output import SHARE_MIN as C_SHARE_MIN
    from headrace.wire.memory import cut

from headrace.gateway.v0_x.connection.context import V0xContext
from headrace.protocol.errors import AmqpError
from headrace.protocol.v0_x.frames import framed
from headrace.protocol.v0_x.handshake import Role
from headrace.spec.reply import ReplyCode, Scope

ROUTES_MAX = 4096  # Remembered routes of one connection; all are forgotten when it is full.


class Spreader(Peer):
    """A connection that gives messages to queues; the first of the three classes that publish."""

    def __init__(self, context: V0xContext, number: int) -> None:
        Peer.__init__(
            self,
            Role.SERVER,
            pool=context.pool,
            frame_max=context.frame_max,
            channel_max=context.channel_max,
            body_max=context.body_max,
        )
        self.context = context
        self.number = number
        self.limit(context.output_max)
        self.hold_above = 2 * context.output_max
        self.counters = context.counters
        self.unacked = 0
        self.prefetch = 0  # Messages on the whole connection; 0 is no limit.
        self.line: Any = None
        self.unflushed = []
        self.store: Any = None  # The Store of its virtual host.
        self.routes: dict[bytes, Route] = {}
        self.route: Route | None = None
        self.mode = 0  # Of the message that is being published: delivery mode,
        self.priority = 0  # priority,
        self.deadline_ms = 0  # and when the message expires.

    def find_route(self, key: bytes, d: bytes | bytearray, header: int, size: int) -> Route:
        """Return the route of an address: remembered, or made now."""
        generation = self.counters.generation
        route = self.routes.get(key)
        if route is None or route.generation != generation:
            self.work_left -= C_METHOD_WORK
            payload = cut(d, header, header + size)
            route, cacheable = self.context.make_route(self, key, payload)
            if cacheable:
                if len(self.routes) >= ROUTES_MAX:
                    self.routes.clear()
                self.routes[key] = route
            else:
                self.routes.pop(key, None)
                self.route = None
                return route
        self.route = route
        return route

    def spread(
        self,
        route: Route,
        d: bytes | bytearray,
        args: int,
        address_len: int,
        end: int,
        body_size: int,
        parts: tuple[bytes, ...] | None,
    ) -> int:
        """Give a message to every queue of its route; return how many refused it."""
        counters = self.counters
        seq = counters.next_seq
        counters.next_seq = seq + 1
        counters.published += 1
        self.work_left -= route.count
        position = 0
        refused = 0
        message: Message | None = None
        data: bytes | None = None
        if self.mode == 2 and route.durable:
            if self.store.full:
                return 1
            if parts is None and route.queue_ids:
                position = self.store.publish(
                    d,
                    args,
                    end,
                    address_len,
                    C_PERSISTENT,
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
                and (body_size < C_SHARE_MIN or not consumer.lags())
            ):
                queue.published += 1
                queue.delivered += 1
                consumer.put(d, args, address_len, end, 0)
                continue
            if data is None:
                data = cut(d, args, end)
            message = new_message(data, address_len, body_size)
            message.seq = seq
            message.publisher = self.number
            message.priority = self.priority
            message.deadline_ms = self.deadline_ms
            if kept:
                message.flags = C_PERSISTENT
            if parts is not None and queue.is_stream:
                message.data = join_parts(data, parts)
            elif parts is not None:
                message.flags |= C_LARGE
                message.parts = parts
                if self.mode == 2 and route.queue_ids and position == 0:
                    position = self.store.publish_message(message, counters.now_ms, route.queue_ids)
                kept = position != 0 and queue.durable
                if kept:
                    message.flags |= C_PERSISTENT
            if kept:
                message.position = position
            if consumer is not None:
                queue.dispatch_arrival(consumer, message)
            else:
                refused += queue.enqueue(message)
            if queue.ready_count > queue.pace_above and (
                queue.consumers is not None or queue.stopped
            ):
                self.pace = queue
        return refused

    def refuse(self, channel: Channel, route: Route) -> None:
        """A publish was turned away: nack it; without confirms, a full disk closes the channel.

        So no persistent message vanishes unsaid; an overflow policy needs no word of ours.
        """
        if channel.confirms:
            channel.publish_refused()
        elif self.mode == 2 and route.durable and self.store.full:
            raise AmqpError(
                ReplyCode.RESOURCE_ERROR,
                "the disk is full; a persistent message was not taken",
                scope=Scope.CHANNEL,
            )


def join_parts(start: bytes, parts: tuple[bytes, ...]) -> bytes:
    """Return a large message in one piece, its body as body frames."""
    return start + b"".join([framed(3, 0, part) for part in parts])
