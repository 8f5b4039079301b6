# SPDX-License-Identifier: Apache-2.0
"""What a 0-8, 0-9 or 0-9-1 client publishes, from the frames to the queues.

``on_publish`` is given offsets into the receive buffer. The address is looked up among the
connection's routes (one memcmp when it repeats, one dict lookup when it is known), the header's
flags say whether anything in it matters to us, and then each queue either hands the octets
straight to a waiting consumer's output or gets a Message around one copy of them.
"""

import re
from typing import TYPE_CHECKING, Any

import cython

if not cython.compiled:
    from headrace.gateway.outcome import ANSWER_COMMIT as C_ANSWER_COMMIT
    from headrace.gateway.peer import Peer
    from headrace.gateway.route import Route, will_last
    from headrace.gateway.v0_x.channel import Channel
    from headrace.model.message import LARGE as C_LARGE
    from headrace.model.message import PERSISTENT as C_PERSISTENT
    from headrace.model.message import Message, new_message
    from headrace.wire.memory import cut, get16, get32, same
    from headrace.wire.properties import BasicScan, scan_basic

from headrace.gateway.context import Context
from headrace.gateway.delays import delay_in, delayed
from headrace.gateway.numbered import take_number
from headrace.gateway.v0_x.channel import check_branch
from headrace.gateway.v0_x.copies import route_copies, take_copies
from headrace.gateway.v0_x.reply_to import reply_name
from headrace.model.arguments import EXPIRY_MS_MAX
from headrace.model.errors import ModelError
from headrace.model.passage import Source
from headrace.protocol.codec_0_x import BasicReturn, encode_method
from headrace.protocol.connection_0_x import Role, framed
from headrace.protocol.errors import AmqpError
from headrace.spec.reply import ReplyCode, Scope

if TYPE_CHECKING:
    from headrace.model.work import Work

REPLY_TO = b"amq.rabbitmq.reply-to"
REPLY_TO_LEN = 21
NO_NUMBERS = "a message with a publishing id cannot be part of a distributed transaction"
ROUTES_MAX = 4096  # Remembered routes of one connection; all are forgotten when it is full.
TX_OCTETS_MAX = 256 << 20  # What one transaction may hold before its commit.
NO_ROUTE = 312
NO_CONSUMERS = 313


class Publisher(Peer):
    """A connection, as far as it publishes."""

    def __init__(self, context: Context, number: int) -> None:
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
        self.output_max = context.output_max
        self.hold_above = 2 * context.output_max
        self.tally = context.tally
        self.unacked = 0
        self.prefetch = 0  # Messages on the whole connection; 0 is no limit.
        self.line: Any = None
        self.unflushed = []
        self.store: Any = None  # The Store of its virtual host.
        self.routes: dict[bytes, Route] = {}
        self.route: Route | None = None
        self.scan = BasicScan()
        self.mode = 0  # What ``examine`` found: delivery mode,
        self.priority = 0  # priority,
        self.deadline_ms = 0  # and when the message expires.
        self.asks = False  # It asks for an answer by direct reply-to.
        self.copied = False  # It may have further routing keys in CC and BCC,
        self.copies: tuple[str, ...] | None = None  # which are these.
        self.numbered = False  # It may have a publishing id,
        self.publishing: tuple[bytes, int] | None = None  # which is this, with a publisher's name.
        self.delays = False  # It may have a delay,
        self.delay_ms = 0  # which is this.

    def on_publish(
        self,
        channel: Any,
        d: bytes | bytearray,
        args: int,
        address_len: int,
        header: int,
        end: int,
        body_size: int,
    ) -> None:
        self.publish(channel, d, args, address_len, header, end, body_size, None)

    def on_publish_large(
        self,
        channel: Any,
        start: bytes,
        address_len: int,
        parts: tuple[bytes, ...],
        body_size: int,
    ) -> None:
        self.publish(channel, start, 0, address_len, address_len + 2, len(start), body_size, parts)

    def publish(
        self,
        channel: Channel,
        d: bytes | bytearray,
        args: int,
        address_len: int,
        header: int,
        end: int,
        body_size: int,
        parts: tuple[bytes, ...] | None,
    ) -> None:
        """Take one publish: check, route, keep, hand out. ``parts`` is a large body."""
        self.current = 0x003C0028
        flags = get16(d, header + 19)
        size = get32(d, header + 3)
        if flags == 0 and size == 14:
            self.mode = 0
            self.priority = 0
            self.deadline_ms = 0
        elif flags == 0x1000 and size == 15:
            self.mode = d[header + 21]
            self.priority = 0
            self.deadline_ms = 0
        else:
            self.examine(d, header + 7, header + 7 + size)
            if self.asks:
                question = self.with_reply_to(channel, d, args, header, end)
                header -= args
                end = len(question)
                self.publish(channel, question, 0, address_len, header, end, body_size, parts)
                return
            if self.copied or self.numbered or self.delays:
                self.publish_rewritten(
                    channel, cut(d, args, end), address_len, header - args, body_size, parts
                )
                return
        route = self.route
        if (
            route is None
            or route.generation != self.tally.generation
            or not same(route.key, d, args, args + address_len)
        ):
            if channel.dtx:
                data = cut(d, args, end)
                self.publish_in_branch(
                    channel, data, address_len, header - args, body_size, parts, None
                )
                return
            route = self.find_route(cut(d, args, args + address_len), d, header + 7, size)
            if route.passage is not None:
                self.publishes = self.publishes or not route.serves
                data = cut(d, args, end)
                header -= args
                self.publish_passing(
                    channel, route, data, address_len, header, body_size, parts, None
                )
                return
        if not route.uncommon:
            self.publishes = True
        else:
            if not route.serves:  # Requests may come while publishers wait: some make room.
                self.publishes = True
            if route.keeps:
                self.mode = 2
        bits = d[args + address_len]
        if channel.tx:
            if channel.dtx:
                data = cut(d, args, end)
                self.publish_in_branch(
                    channel, data, address_len, header - args, body_size, parts, route
                )
                return
            self.publish_later(channel, d, args, end, address_len, header, body_size, parts)
            return
        refused = 0
        if bits or route.count == 0:
            refused = self.publish_rarely(
                channel, route, bits, d, args, address_len, header, end, body_size, parts
            )
        else:
            refused = self.spread(route, d, args, address_len, end, body_size, parts)
        if refused:
            self.refuse(channel, route)
        elif channel.confirms:
            channel.publish_seen()

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
        tally = self.tally
        seq = tally.next_seq
        tally.next_seq = seq + 1
        tally.published += 1
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
                    tally.now_ms,
                    seq,
                    body_size,
                    route.queue_ids,
                )
        for queue in route.queues:
            kept = position != 0 and queue.durable
            consumer = queue.taker()
            if consumer is not None and not kept and consumer.no_ack and parts is None:
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
                    position = self.store.publish_message(message, tally.now_ms, route.queue_ids)
                kept = position != 0 and queue.durable
                if kept:
                    message.flags |= C_PERSISTENT
            if kept:
                message.position = position
            if consumer is not None:
                queue.give(consumer, message)
            else:
                refused += queue.offer(message)
            if queue.ready_count > queue.pace_above and (
                queue.consumers is not None or queue.stopped
            ):
                self.pace = queue
        return refused

    def examine(self, d: bytes | bytearray, lo: int, hi: int) -> None:
        """Read what matters to us from a content header that holds more than a delivery mode."""
        scan = self.scan
        if not scan_basic(d, lo, hi, scan):
            raise AmqpError(ReplyCode.SYNTAX_ERROR, "malformed content header")
        self.mode = scan.delivery_mode if scan.flags & 0x1000 else 0
        self.priority = scan.priority if scan.flags & 0x0800 else 0
        self.deadline_ms = 0
        self.asks = (
            scan.flags & 0x0200 != 0
            and scan.reply_to_len == REPLY_TO_LEN
            and same(REPLY_TO, d, scan.reply_to_at, scan.reply_to_at + REPLY_TO_LEN)
        )
        marks = 0
        if scan.flags & 0x2000:
            marks = marked(d, scan.headers_at, scan.headers_end)
        self.copied = marks & 1 != 0
        self.numbered = marks & 2 != 0
        self.delays = marks & 4 != 0
        if scan.flags & 0x0100:
            self.deadline_ms = self.tally.now_ms + expiration_ms(
                cut(d, scan.expiration_at, scan.expiration_at + scan.expiration_len)
            )
        if scan.flags & 0x0010:
            self.check_user_id(
                cut(d, scan.user_id_at, scan.user_id_at + scan.user_id_len).decode(
                    "utf-8", "replace"
                )
            )

    def with_reply_to(
        self, channel: Channel, d: bytes | bytearray, args: int, header: int, end: int
    ) -> bytes:
        """Return the publish with the name of the channel's own queue as its reply-to."""
        self.asks = False
        name = reply_name(channel)
        at = self.scan.reply_to_at
        size = get32(d, header + 3) + len(name) - REPLY_TO_LEN
        head = cut(d, args, header + 3) + size.to_bytes(4, "big") + cut(d, header + 7, at - 1)
        tail = cut(d, at + REPLY_TO_LEN, end)
        return head + bytes((len(name),)) + name + tail

    def publish_rewritten(
        self,
        channel: Channel,
        data: bytes,
        address_len: int,
        header: int,
        body_size: int,
        parts: tuple[bytes, ...] | None,
    ) -> None:
        """Take a publish whose headers name further routing keys, a number or a delay."""
        self.publishes = True
        number = None
        if self.numbered:
            data, number = take_number(data, header)
        delay_ms = delay_in(data, header) if self.delays else 0
        copies = None
        if self.copied and not delay_ms:  # When its time has come, its headers are read again.
            data, copies = take_copies(data, header)
            payload = data[header + 7 : header + 7 + get32(data, header + 3)]
            route = route_copies(self, data[:address_len], copies, payload)
        else:
            size = get32(data, header + 3)
            route = self.find_route(data[:address_len], data, header + 7, size)
        if route.keeps:
            self.mode = 2
        if route.passage is not None and not channel.tx and not delay_ms:
            self.publish_passing(
                channel, route, data, address_len, header, body_size, parts, number
            )
            return
        if channel.tx:
            self.copies = copies
            self.publishing = number
            self.delay_ms = delay_ms
            self.publish_later(channel, data, 0, len(data), address_len, header, body_size, parts)
            self.copies = None
            self.publishing = None
            self.delay_ms = 0
            return
        if delay_ms:
            route = self.put_off(route, delay_ms)
        if number is not None:
            refused = self.publish_once(
                channel, route, number, data, address_len, header, body_size, parts
            )
        else:
            refused = self.publish_rarely(
                channel,
                route,
                data[address_len],
                data,
                0,
                address_len,
                header,
                len(data),
                body_size,
                parts,
            )
        if refused:
            self.refuse(channel, route)
        elif channel.confirms:
            channel.publish_seen()

    def put_off(self, route: Route, delay_ms: int) -> Route:
        """Return where the publish waits until its time has come."""
        self.deadline_ms = self.tally.now_ms + delay_ms
        waiting: Route = delayed(self.vhost, route)
        return waiting

    def publish_passing(
        self,
        channel: Channel,
        route: Route,
        data: bytes,
        address_len: int,
        header: int,
        body_size: int,
        parts: tuple[bytes, ...] | None,
        number: tuple[bytes, int] | None,
    ) -> None:
        """Take a publish that somebody looks at on its way."""
        if channel.tx:
            self.publish_later(channel, data, 0, len(data), address_len, header, body_size, parts)
            return
        if self.pass_on(channel, route, data, address_len, header, body_size, parts, number, False):
            self.refuse(channel, route)
        elif channel.confirms:
            channel.publish_seen()

    def pass_on(
        self,
        channel: Channel,
        route: Route,
        data: bytes,
        address_len: int,
        header: int,
        body_size: int,
        parts: tuple[bytes, ...] | None,
        number: tuple[bytes, int] | None,
        inside: bool,
    ) -> int:
        """Give a message to its passage; return how many queues refused it."""
        passage: Any = route.passage
        bits = data[address_len]
        queues = route.queues
        if bits & 2:
            queues = tuple([queue for queue in queues if queue.taker() is not None])
        if not queues and bits and not passage.is_duplicate():
            code, text = (NO_ROUTE, "NO_ROUTE")
            if route.count or not bits & 1:
                code, text = (NO_CONSUMERS, "NO_CONSUMERS")
            self.send_back(channel, code, text, data, 0, address_len, header, len(data), parts)
            if number is not None:
                self.vhost.publishers.refuse(number)
                number = None
        message = new_message(data, address_len, body_size)
        message.publisher = self.number
        message.priority = self.priority
        message.deadline_ms = self.deadline_ms
        if parts is not None:
            message.flags = C_LARGE
            message.parts = parts
        source = Source(
            self.user.name, self.context.telling.names.get(self.number, ""), channel.number
        )
        refused: int = passage.take(
            message, queues, self.mode == 2, number=number, source=source, inside=inside
        )
        for queue in queues:
            if queue.ready_count > queue.pace_above and (
                queue.consumers is not None or queue.stopped
            ):
                self.pace = queue
        return refused

    def publish_once(
        self,
        channel: Channel,
        route: Route,
        number: tuple[bytes, int],
        data: bytes,
        address_len: int,
        header: int,
        body_size: int,
        parts: tuple[bytes, ...] | None,
    ) -> int:
        """Take a publish with a number, unless it was taken before; return how many refused it.

        Either all of its queues take it, or none does and its number is not used up.
        """
        publishers = self.vhost.publishers
        if publishers.knows(number):
            return 0
        bits = data[address_len]
        queues = route.queues
        if bits & 2:
            queues = tuple([queue for queue in queues if queue.takes_at_once()])
        if not queues:
            if bits:
                publishers.refuse(number)
            return self.publish_rarely(
                channel, route, bits, data, 0, address_len, header, len(data), body_size, parts
            )
        lasting = will_last(queues, self.mode == 2)
        if lasting and self.store.full:
            publishers.refuse(number)
            return 1
        refusing = tuple([queue for queue in queues if queue.will_refuse(body_size)])
        if refusing:
            publishers.refuse(number)
            route = Route(route.key, refusing, 0)
            self.spread(route, data, 0, address_len, len(data), body_size, parts)
            return 1
        publishers.check(number[0])
        if len(queues) < route.count:
            route = Route(route.key, queues, 0)
        if not lasting:
            self.spread(route, data, 0, address_len, len(data), body_size, parts)
            publishers.note(number, False)
            return 0
        self.store.begin()
        try:
            self.spread(route, data, 0, address_len, len(data), body_size, parts)
            publishers.note(number, True)
        finally:
            self.store.commit()
        return 0

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

    def check_user_id(self, user_id: str) -> None:
        """A message may only claim to come from the user who sends it, unless that may pose."""
        if user_id != self.user.name and "impersonator" not in self.user.tags:
            raise AmqpError(
                ReplyCode.PRECONDITION_FAILED,
                f"user_id property set to '{user_id}' but authenticated user was "
                f"'{self.user.name}'",
            )

    def find_route(self, key: bytes, d: bytes | bytearray, header: int, size: int) -> Route:
        """Return the route of an address: remembered, or made now."""
        generation = self.tally.generation
        route = self.routes.get(key)
        if route is None or route.generation != generation:
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

    def publish_rarely(
        self,
        channel: Channel,
        route: Route,
        bits: int,
        d: bytes | bytearray,
        args: int,
        address_len: int,
        header: int,
        end: int,
        body_size: int,
        parts: tuple[bytes, ...] | None,
    ) -> int:
        """A publish with mandatory or immediate set, or one that leads nowhere."""
        if route.count and bits & 2:
            ready = tuple([queue for queue in route.queues if queue.takes_at_once()])
            if not ready:
                self.send_back(
                    channel, NO_CONSUMERS, "NO_CONSUMERS", d, args, address_len, header, end, parts
                )
                return 0
            if len(ready) < route.count:
                route = Route(route.key, ready, 0)
        if route.count == 0:
            if bits & 1:
                self.send_back(
                    channel, NO_ROUTE, "NO_ROUTE", d, args, address_len, header, end, parts
                )
            elif bits & 2:
                self.send_back(
                    channel, NO_CONSUMERS, "NO_CONSUMERS", d, args, address_len, header, end, parts
                )
            self.tally.published += 1
            return 0
        return self.spread(route, d, args, address_len, end, body_size, parts)

    def publish_whole(
        self,
        channel: Channel,
        data: bytes,
        address_len: int,
        body_size: int,
        parts: tuple[bytes, ...] | None,
    ) -> int:
        """Take a publish that came by another class than basic, laid out as for that.

        Returns:
            How many queues refused it; -1 when it is immediate and nobody takes it at once.
        """
        header = address_len + 2
        size = get32(data, header + 3)
        self.examine(data, header + 7, header + 7 + size)
        number = None
        if self.numbered:
            data, number = take_number(data, header)
            size = get32(data, header + 3)
        delay_ms = delay_in(data, header) if self.delays else 0
        copies = None
        if self.copied and not delay_ms:
            data, copies = take_copies(data, header)
            payload = data[header + 7 : header + 7 + get32(data, header + 3)]
            route = route_copies(self, data[:address_len], copies, payload)
        else:
            route = self.find_route(data[:address_len], data, header + 7, size)
        if not route.serves:
            self.publishes = True
        bits = data[address_len]
        if channel.tx:
            self.copies = copies
            self.publishing = number
            self.delay_ms = delay_ms
            self.publish_later(channel, data, 0, len(data), address_len, header, body_size, parts)
            self.copies = None
            self.publishing = None
            self.delay_ms = 0
            return 0
        if delay_ms:
            route = self.put_off(route, delay_ms)
        elif route.passage is not None:
            return self.pass_whole(
                channel, route, data, address_len, header, body_size, parts, number
            )
        if number is not None and not bits & 2:
            return self.publish_once(
                channel, route, number, data, address_len, header, body_size, parts
            )
        if bits & 2:
            ready = tuple([queue for queue in route.queues if queue.takes_at_once()])
            if not ready:
                return -1
            route = Route(route.key, ready, 0)
        if route.count == 0:
            self.tally.published += 1
            return 0
        return self.spread(route, data, 0, address_len, len(data), body_size, parts)

    def pass_whole(
        self,
        channel: Channel,
        route: Route,
        data: bytes,
        address_len: int,
        header: int,
        body_size: int,
        parts: tuple[bytes, ...] | None,
        number: tuple[bytes, int] | None,
    ) -> int:
        """As :meth:`pass_on`, of another class than basic; -1 when nobody takes it at once."""
        bits = data[address_len]
        if bits & 2 and not any(queue.taker() is not None for queue in route.queues):
            return -1
        return self.pass_on(
            channel, route, data, address_len, header, body_size, parts, number, False
        )

    def send_back(
        self,
        channel: Channel,
        code: int,
        text: str,
        d: bytes | bytearray,
        args: int,
        address_len: int,
        header: int,
        end: int,
        parts: tuple[bytes, ...] | None,
    ) -> None:
        """Return a message that could not be delivered."""
        address = cut(d, args, args + address_len)
        exchange, routing_key = split_address(address)
        self.write_frame(
            1,
            channel.number,
            encode_method(
                self.version,
                BasicReturn(
                    reply_code=code, reply_text=text, exchange=exchange, routing_key=routing_key
                ),
            ),
        )
        self.reserve(end - header)
        channel.write_content(d, header, end)
        if parts is not None:
            self.write_parts(channel.number, parts, self.frame_max)

    # --- Transactions ---------------------------------------------------------------------------

    def publish_later(
        self,
        channel: Channel,
        d: bytes | bytearray,
        args: int,
        end: int,
        address_len: int,
        header: int,
        body_size: int,
        parts: tuple[bytes, ...] | None,
    ) -> None:
        """In a transaction: keep the publish for the commit."""
        if channel.dtx:
            data = cut(d, args, end)
            self.publish_in_branch(
                channel, data, address_len, header - args, body_size, parts, None
            )
            return
        channel.tx_octets += body_size + end - args
        if channel.tx_octets > TX_OCTETS_MAX:
            raise AmqpError(
                ReplyCode.RESOURCE_ERROR, f"a transaction holds more than {TX_OCTETS_MAX} octets"
            )
        if channel.tx_publishes is None:
            channel.tx_publishes = []
        channel.tx_publishes.append(
            (
                cut(d, args, end),
                address_len,
                header - args,
                body_size,
                parts,
                self.mode,
                self.priority,
                self.deadline_ms,
                self.copies,
                self.delay_ms,
                self.publishing,
            )
        )

    def publish_in_branch(
        self,
        channel: Channel,
        data: bytes,
        address_len: int,
        header: int,
        body_size: int,
        parts: tuple[bytes, ...] | None,
        route: Route | None,
    ) -> None:
        """Route a publish now, if it is not yet, and leave it to the channel's branch."""
        work: Work = check_branch(channel)
        if self.publishing is not None:
            raise AmqpError(ReplyCode.PRECONDITION_FAILED, NO_NUMBERS)
        if route is None:
            try:
                route = self.branch_route(data, address_len, header)
            except (AmqpError, ModelError) as error:
                if not work.counts:
                    raise
                work.note(flaw_of(error))
                return
        if self.delay_ms:
            route = self.put_off(route, self.delay_ms)
        bits = data[address_len]
        queues = route.queues
        if bits & 2:
            queues = tuple([queue for queue in queues if queue.takes_at_once()])
        if queues:
            message = new_message(data, address_len, body_size)
            message.publisher = self.number
            message.priority = self.priority
            message.deadline_ms = self.deadline_ms
            if parts is not None:
                message.flags = C_LARGE
                message.parts = parts
            if route.passage is not None:
                message, queues = route.passage.join_branch(message, queues)
            work.publish(message, queues, self.mode == 2)
            if work.counts:
                work.seen += 1
        elif work.counts:
            work.note("no queue gets it" if bits else "")
        elif bits & 1 and route.count == 0:
            self.send_back(
                channel, NO_ROUTE, "NO_ROUTE", data, 0, address_len, header, len(data), parts
            )
        elif bits & 2:
            self.send_back(
                channel,
                NO_CONSUMERS,
                "NO_CONSUMERS",
                data,
                0,
                address_len,
                header,
                len(data),
                parts,
            )

    def branch_route(self, data: bytes, address_len: int, header: int) -> Route:
        """Return the route of a publish that a branch will make happen."""
        size = get32(data, header + 3)
        if self.copies is None:
            return self.find_route(data[:address_len], data, header + 7, size)
        payload = data[header + 7 : header + 7 + size]
        route: Route = route_copies(self, data[:address_len], self.copies, payload)
        return route

    def commit(self, channel: Channel) -> None:
        """Make a transaction happen, and answer once it is durable."""
        publishes = channel.tx_publishes
        settles = channel.tx_settles
        if publishes:
            for data, address_len, header, *_, number in publishes:  # What cannot be, fails
                self.find_route(data[:address_len], data, header + 7, get32(data, header + 3))
                if number is not None:  # before it all.
                    self.vhost.publishers.check(number[0])
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
                for (
                    data,
                    address_len,
                    header,
                    body_size,
                    parts,
                    mode,
                    priority,
                    deadline,
                    copies,
                    delay_ms,
                    number,
                ) in publishes:
                    if number is not None and self.vhost.publishers.knows(number):
                        continue
                    self.publish_now(
                        channel,
                        data,
                        address_len,
                        header,
                        body_size,
                        parts,
                        mode,
                        priority,
                        deadline,
                        copies,
                        delay_ms,
                    )
                    if number is not None:
                        self.vhost.publishers.note(number, True)
            if settles:
                for tag in sorted(settles):
                    channel.settle_one(tag, settles[tag])
            if channel.files is not None:
                channel.files.commit()
        finally:
            channel.tx = True
            store.commit()
        self.line.join(channel, C_ANSWER_COMMIT)

    def publish_now(
        self,
        channel: Channel,
        data: bytes,
        address_len: int,
        header: int,
        body_size: int,
        parts: tuple[bytes, ...] | None,
        mode: int,
        priority: int,
        deadline_ms: int,
        copies: tuple[str, ...] | None,
        delay_ms: int,
    ) -> None:
        """Route a publish of a transaction that is being committed."""
        size = get32(data, header + 3)
        if copies is None:
            route = self.find_route(data[:address_len], data, header + 7, size)
        else:
            payload = data[header + 7 : header + 7 + size]
            route = route_copies(self, data[:address_len], copies, payload)
        self.mode = 2 if route.keeps else mode
        self.priority = priority
        self.deadline_ms = deadline_ms
        if delay_ms:
            route = self.put_off(route, delay_ms)
        elif route.passage is not None:
            self.pass_on(channel, route, data, address_len, header, body_size, parts, None, True)
            return
        bits = data[address_len]
        if bits or route.count == 0:
            self.publish_rarely(
                channel, route, bits, data, 0, address_len, header, len(data), body_size, parts
            )
        else:
            self.spread(route, data, 0, address_len, len(data), body_size, parts)


def flaw_of(error: AmqpError | ModelError) -> str:
    """Return what is wrong with a publish, in words."""
    return error.reply_text if isinstance(error, AmqpError) else error.text


def join_parts(start: bytes, parts: tuple[bytes, ...]) -> bytes:
    """Return a large message in one piece, its body as body frames."""
    return start + b"".join([framed(3, 0, part) for part in parts])


def expiration_ms(raw: bytes) -> int:
    """Read the property ``expiration``.

    Raises:
        AmqpError: it is not a whole number of milliseconds from 0 to 2**32 - 1.
    """
    if raw.isdigit() and len(raw) <= 10 and int(raw) <= EXPIRY_MS_MAX:
        return int(raw)
    text = raw.decode("utf-8", "replace")
    number = re.match(r"[+-]?[0-9]{1,32}", text, re.ASCII)
    if number is None:
        wrong = "no_integer"
    elif number[0] != text:
        wrong = f'{{leftover_string,"{text[number.end() :]}"}}'
    else:
        wrong = f"{{{'value_negative' if text[0] == '-' else 'value_too_big'},{text}}}"
    raise AmqpError(ReplyCode.PRECONDITION_FAILED, f"invalid expiration '{text}': {wrong}")


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


def marked(d: bytes | bytearray, at: int, end: int) -> int:
    """Tell what keys of ours a table may have: 1 CC or BCC, 2 x-publishing-id, 4 x-delay.

    When it only looks so, no harm is done.
    """
    found = 0
    end -= 3
    while at < end:
        octet = d[at]
        if octet > 15:  # As nearly all of them are.
            pass
        elif octet == 2:
            if d[at + 1] == 67 and d[at + 2] == 67:
                found |= 1
        elif octet == 3:
            if d[at + 1] == 66 and d[at + 2] == 67 and d[at + 3] == 67:
                found |= 1
        elif octet == 7:
            if end - at > 4 and d[at + 1] == 120 and d[at + 3] == 100 and d[at + 7] == 121:
                found |= 4  # x.d...y
        elif (
            octet == 15
            and end - at > 12
            and d[at + 1] == 120  # x-p........g..d
            and d[at + 3] == 112
            and d[at + 12] == 103
            and d[at + 15] == 100
        ):
            found |= 2
        at += 1
    return found
