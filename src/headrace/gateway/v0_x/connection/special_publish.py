# SPDX-License-Identifier: Apache-2.0
"""Publishes that need more than their route and their octets.

Those with a publishing id, a delay or further routing keys, immediate ones, those that lead nowhere
or that somebody looks at on their way, and those of transactions. Each is cut out of the buffer
that it came in and becomes a :class:`Publish`; nothing in here happens to a usual message.
"""

from typing import TYPE_CHECKING, Any

import cython

if not cython.compiled:
    from headrace.gateway.messages.route import Route, will_last
    from headrace.gateway.v0_x.channel.channel import Channel
    from headrace.gateway.v0_x.connection.queue_fanout import Spreader
    from headrace.model.message import LARGE as C_LARGE
    from headrace.model.message import Message, new_message
    from headrace.model.queue.queue import Queue
    from headrace.protocol.endpoint import METHOD_WORK as C_METHOD_WORK
    from headrace.wire.memory import cut, get32

from headrace.gateway.messages.delay_header import account_of, delay_in, delayed, signed
from headrace.gateway.messages.publishing_id import take_number
from headrace.gateway.v0_x.channel.channel import check_branch
from headrace.gateway.v0_x.connection.context import V0xContext
from headrace.gateway.v0_x.connection.publish_copies import route_copies, take_copies
from headrace.model.errors import ModelError
from headrace.model.interceptor.interception import Source
from headrace.protocol.codec_0_x import BasicReturn, encode_method
from headrace.protocol.errors import AmqpError
from headrace.spec.reply import ReplyCode, Scope

if TYPE_CHECKING:
    from headrace.model.transaction.transaction import Transaction

NO_NUMBERS = "a message with a publishing id cannot be part of a distributed transaction"
TX_OCTETS_MAX = 256 << 20  # What one transaction may hold before its commit.
NO_ROUTE = 312
NO_CONSUMERS = 313
RETURNS = {NO_ROUTE: "NO_ROUTE", NO_CONSUMERS: "NO_CONSUMERS"}
MANDATORY = 1  # The bits behind a publish's address.
IMMEDIATE = 2


class Publish:
    """One publish, and what is known of it."""

    def __init__(self) -> None:
        self.data = b""  # Laid out as in Message.data,
        self.address_len = 0  # the octets of its address,
        self.header = 0  # and where its header frame starts.
        self.body_size = 0
        self.parts: tuple[bytes, ...] | None = None  # A large body.
        self.mode = 0  # Its delivery mode.
        self.priority = 0
        self.deadline_ms = 0
        self.copies: tuple[str, ...] | None = None  # Further routing keys.
        self.number: tuple[bytes, int] | None = None  # A publisher's name, and its publishing id.
        self.delay_ms = 0
        self.route: Any = None  # The Route, once it is known.


class SpecialPublisher(Spreader):
    """A connection that looks at publishes; the second of the three classes that publish."""

    def __init__(self, context: V0xContext, number: int) -> None:
        Spreader.__init__(self, context, number)
        self.copied = False  # What is being published may have routing keys in CC and BCC,
        self.numbered = False  # a publishing id,
        self.delays = False  # or a delay.

    def taken(
        self,
        d: bytes | bytearray,
        args: int,
        address_len: int,
        header: int,
        end: int,
        body_size: int,
        parts: tuple[bytes, ...] | None,
    ) -> Publish:
        """Return what is being published, cut out of its buffer."""
        p = Publish()
        p.data = cut(d, args, end)
        p.address_len = address_len
        p.header = header - args
        p.body_size = body_size
        p.parts = parts
        p.mode = self.mode
        p.priority = self.priority
        p.deadline_ms = self.deadline_ms
        return p

    def look_closely(self, p: Publish) -> None:
        """Take out of a publish's headers what they ask for, and route it."""
        if self.numbered:
            p.data, p.number = take_number(p.data, p.header)
        if self.delays:
            p.delay_ms = delay_in(p.data, p.header)
        if self.copied:
            data, p.copies = take_copies(p.data, p.header)
            if not p.delay_ms:  # When its time has come, its headers are read again.
                p.data = data
        p.route = self.route_of(p)
        if p.route.keeps:
            p.mode = 2

    def route_of(self, p: Publish) -> Route:
        """Return the route of a publish as of now."""
        size = get32(p.data, p.header + 3)
        if p.copies is None:
            return self.find_route(p.data[: p.address_len], p.data, p.header + 7, size)
        payload = p.data[p.header + 7 : p.header + 7 + size]
        route: Route = route_copies(self, p.data[: p.address_len], p.copies, payload)
        return route

    def message_of(self, p: Publish) -> Message:
        """Return a publish as a message that is in no queue."""
        message = new_message(p.data, p.address_len, p.body_size)
        message.publisher = self.number
        message.priority = p.priority
        message.deadline_ms = p.deadline_ms
        if p.parts is not None:
            message.flags = C_LARGE
            message.parts = p.parts
        return message

    def put_off(self, p: Publish) -> None:
        """Let a publish go where it waits until its time has come."""
        p.deadline_ms = self.counters.now_ms + p.delay_ms
        p.route = delayed(self.vhost, p.route)
        p.data = signed(p.data, p.header, account_of(self.user))

    def give(self, p: Publish, route: Route) -> int:
        """Give a publish to every queue of a route; return how many refused it."""
        self.mode = p.mode
        self.priority = p.priority
        self.deadline_ms = p.deadline_ms
        return self.spread(route, p.data, 0, p.address_len, len(p.data), p.body_size, p.parts)

    def finish(self, channel: Channel, p: Publish, refused: int) -> None:
        """Say what became of a publish, where that is to be said."""
        if refused:
            self.mode = p.mode
            self.refuse(channel, p.route)
        elif channel.confirms:
            channel.publish_seen()

    # --- The ways ---------------------------------------------------------------------------------

    def publish_marked(self, channel: Channel, p: Publish) -> None:
        """Take a publish whose headers name further routing keys, a number or a delay."""
        self.publishes = True
        self.work_left -= C_METHOD_WORK
        self.look_closely(p)
        if channel.tx:
            self.publish_later(channel, p)
            return
        if p.delay_ms:
            self.put_off(p)
        elif p.route.interception is not None:
            self.finish(channel, p, self.pass_on(channel, p, False))
            return
        if p.number is not None:
            self.finish(channel, p, self.publish_once(channel, p))
        else:
            self.finish(channel, p, self.publish_rarely(channel, p))

    def publish_passing(self, channel: Channel, p: Publish) -> None:
        """Take a publish that somebody looks at on its way."""
        if channel.tx:
            self.publish_later(channel, p)
        else:
            self.finish(channel, p, self.pass_on(channel, p, False))

    def pass_on(self, channel: Channel, p: Publish, inside: bool) -> int:
        """Give a message to its interception; return how many queues refused it.

        With ``inside`` a transaction is being committed, which sees to the number itself.
        """
        interception: Any = p.route.interception
        number = None if inside else p.number
        bits = p.data[p.address_len]
        queues = p.route.queues
        if bits & IMMEDIATE:
            queues = at_once(queues)
        if not queues and bits and not interception.is_duplicate():
            nowhere = not p.route.count and bits & MANDATORY
            self.send_back(channel, p, NO_ROUTE if nowhere else NO_CONSUMERS)
            if number is not None:
                self.vhost.publishing_ids.refuse(number)
                number = None
        source = Source(
            self.user.name, self.context.telling.names.get(self.number, ""), channel.number
        )
        refused: int = interception.take(
            self.message_of(p), queues, p.mode == 2, number=number, source=source, inside=inside
        )
        for queue in queues:
            if queue.ready_count > queue.pace_above and (
                queue.consumers is not None or queue.stopped
            ):
                self.pace = queue
        return refused

    def publish_once(self, channel: Channel, p: Publish) -> int:
        """Take a publish with a number, unless it was taken before; return how many refused it.

        Either all of its queues take it, or none does and its number is not used up.
        """
        publishers = self.vhost.publishing_ids
        number: Any = p.number
        if publishers.knows(number):
            return 0
        bits = p.data[p.address_len]
        route = p.route
        queues = route.queues
        if bits & IMMEDIATE:
            queues = at_once(queues)
        if not queues:
            if bits:
                publishers.refuse(number)
            return self.publish_rarely(channel, p)
        lasting = will_last(queues, p.mode == 2)
        if lasting and self.store.full:
            publishers.refuse(number)
            return 1
        refusing = tuple([queue for queue in queues if queue.would_reject(p.body_size)])
        if refusing:
            publishers.refuse(number)
            self.give(p, Route(route.key, refusing, 0))
            return 1
        publishers.check(number[0])
        if len(queues) < route.count:
            route = Route(route.key, queues, 0)
        if not lasting:
            self.give(p, route)
            publishers.note(number, False)
            return 0
        self.store.begin()
        try:
            self.give(p, route)
            publishers.note(number, True)
        finally:
            self.store.commit()
        return 0

    def publish_rarely(self, channel: Channel, p: Publish) -> int:
        """Take a publish that is immediate, or may lead nowhere; return how many refused it."""
        bits = p.data[p.address_len]
        route = p.route
        if route.count and bits & IMMEDIATE:
            ready = at_once(route.queues)
            if not ready:
                self.send_back(channel, p, NO_CONSUMERS)
                return 0
            if len(ready) < route.count:
                route = Route(route.key, ready, 0)
        if route.count == 0:
            if bits & MANDATORY:
                self.send_back(channel, p, NO_ROUTE)
            elif bits & IMMEDIATE:
                self.send_back(channel, p, NO_CONSUMERS)
            self.counters.published += 1
            return 0
        return self.give(p, route)

    def send_back(self, channel: Channel, p: Publish, code: int) -> None:
        """Return a message that could not be delivered."""
        exchange, routing_key = split_address(p.data[: p.address_len])
        self.write_frame(
            1,
            channel.number,
            encode_method(
                self.version,
                BasicReturn(
                    reply_code=code,
                    reply_text=RETURNS[code],
                    exchange=exchange,
                    routing_key=routing_key,
                ),
            ),
        )
        self.reserve(len(p.data) - p.header)
        channel.write_content(p.data, p.header, len(p.data))
        if p.parts is not None:
            self.write_parts(channel.number, p.parts, self.frame_max)

    # --- Transactions -----------------------------------------------------------------------------

    def publish_later(self, channel: Channel, p: Publish) -> None:
        """In a transaction: keep the publish for the commit."""
        if channel.dtx:
            self.publish_in_branch(channel, p)
            return
        channel.tx_octets += p.body_size + len(p.data)
        if channel.tx_octets > TX_OCTETS_MAX:
            raise AmqpError(
                ReplyCode.RESOURCE_ERROR, f"a transaction holds more than {TX_OCTETS_MAX} octets"
            )
        if channel.tx_publishes is None:
            channel.tx_publishes = []
        p.route = None  # It may lead elsewhere by then.
        channel.tx_publishes.append(p)

    def publish_in_branch(self, channel: Channel, p: Publish) -> None:
        """Route a publish now, if it is not yet, and leave it to the channel's branch."""
        transaction: Transaction = check_branch(channel)
        if p.number is not None:
            raise AmqpError(ReplyCode.PRECONDITION_FAILED, NO_NUMBERS)
        if p.route is None:
            try:
                p.route = self.route_of(p)
            except (AmqpError, ModelError) as error:
                if not transaction.counts:
                    raise
                transaction.note(flaw_of(error))
                return
        if p.delay_ms:
            self.put_off(p)
        bits = p.data[p.address_len]
        queues = p.route.queues
        if bits & IMMEDIATE:
            queues = at_once(queues)
        if queues:
            message = self.message_of(p)
            if p.route.interception is not None:
                message, queues = p.route.interception.join_branch(message, queues)
            transaction.publish(message, queues, p.mode == 2)
            if transaction.counts:
                transaction.seen += 1
        elif transaction.counts:
            transaction.note("no queue gets it" if bits else "")
        elif bits & MANDATORY and p.route.count == 0:
            self.send_back(channel, p, NO_ROUTE)
        elif bits & IMMEDIATE:
            self.send_back(channel, p, NO_CONSUMERS)

    def commit(self, channel: Channel) -> None:
        """Make a transaction happen; it is durable once the store has synced.

        Raises:
            AmqpError: the disk is full, and nothing happened; or all of it did, but for publishes
                that a queue refused.
        """
        publishes = channel.tx_publishes
        settles = channel.tx_settles
        p: Publish
        refused = 0
        if publishes:
            for p in publishes:  # What cannot be, fails
                self.route_of(p)
                if p.number is not None:  # before it all.
                    self.vhost.publishing_ids.check(p.number[0])
        channel.tx_publishes = None
        channel.tx_settles = None
        channel.tx_octets = 0
        store = self.store
        if store.full and publishes:
            channel.tx_publishes = publishes
            channel.tx_settles = settles
            raise AmqpError(ReplyCode.RESOURCE_ERROR, "the disk is full; nothing was committed")
        store.begin()
        channel.tx = False
        try:
            if publishes:
                for p in publishes:
                    if p.number is None:
                        refused += self.publish_now(channel, p)
                    elif not self.vhost.publishing_ids.knows(p.number):
                        refused += self.publish_now(channel, p)
                        self.vhost.publishing_ids.note(p.number, True)
            if settles:
                for tag in sorted(settles):
                    channel.settle_one(tag, settles[tag])
            if channel.files is not None:
                channel.files.commit()
        finally:
            channel.tx = True
            store.commit()
        if refused:  # Without confirms nobody would hear of it.
            raise AmqpError(
                ReplyCode.PRECONDITION_FAILED, "partial tx completion", scope=Scope.CHANNEL
            )

    def publish_now(self, channel: Channel, p: Publish) -> int:
        """Route a publish of a transaction that is being committed; return how many refused it."""
        p.route = self.route_of(p)
        if p.route.keeps:
            p.mode = 2
        if p.delay_ms:
            self.put_off(p)
        elif p.route.interception is not None:
            return self.pass_on(channel, p, True)
        if p.data[p.address_len] or p.route.count == 0:
            return self.publish_rarely(channel, p)
        return self.give(p, p.route)


def at_once(queues: tuple[Queue, ...]) -> tuple[Queue, ...]:
    """Return those of some queues in which a consumer takes a message at once."""
    return tuple([queue for queue in queues if queue.has_ready_consumer()])


def flaw_of(error: AmqpError | ModelError) -> str:
    """Return what is wrong with a publish, in words."""
    return error.reply_text if isinstance(error, AmqpError) else error.text


def split_address(address: bytes) -> tuple[str, str]:
    """Return exchange and routing key of an address.

    Raises:
        AmqpError: one of them is not UTF-8.
    """
    cutoff = 1 + address[0]
    try:
        return address[1:cutoff].decode(), address[cutoff + 1 :].decode()
    except UnicodeDecodeError:
        raise AmqpError(ReplyCode.SYNTAX_ERROR, "a short string is not UTF-8") from None
