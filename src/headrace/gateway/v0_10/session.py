# SPDX-License-Identifier: Apache-2.0
"""A session of a 0-10 client in the broker: what it publishes, and when its commands are complete.

The way of a transfer. ``publish`` is given offsets into the receive buffer. When arguments and
header segment are those of the transfer before, octet for octet, everything that follows from them
is known: route, flags, the header segment as it is delivered. Else they are read. Then each queue
either hands header and body straight to a waiting subscription's output or gets a Message.

Completion. A transfer that had to reach the disk, or that is to be accepted, completes in a batch:
all of one read together, when the journal has passed them. Any other command closes the batch.
"""

from collections import deque
from collections.abc import Callable
from typing import Any

import cython

if not cython.compiled:
    from headrace.gateway.route import Route, will_last
    from headrace.gateway.v0_10.subscription import Holder, Subscription
    from headrace.gateway.v0_10.transfer_header import TransferHeader
    from headrace.model.message import KIND_TRANSFER as C_KIND_TRANSFER
    from headrace.model.message import LARGE as C_LARGE
    from headrace.model.message import PERSISTENT as C_PERSISTENT
    from headrace.model.message import REDELIVERED as C_REDELIVERED
    from headrace.model.message import Message, new_message
    from headrace.model.queue import Queue
    from headrace.protocol.session_0_10 import Session as ProtocolSession
    from headrace.wire.memory import cut, get32, same

from headrace.gateway.delays import ENTRY as DELAY_ENTRY
from headrace.gateway.delays import delayed
from headrace.gateway.numbered import ID_ENTRY, take_number_0_10
from headrace.gateway.v0_10.copies import BCC_ENTRY, CC_ENTRY, take_copies
from headrace.gateway.v0_10.fault import translate
from headrace.gateway.v0_10.reply_to import ENTRY as REPLY_ENTRY
from headrace.gateway.v0_10.reply_to import name_answers
from headrace.gateway.v0_10.subscription import serial_distance
from headrace.gateway.v0_10.transfer_header import TransferHeaders
from headrace.model.delayed import delay_of
from headrace.model.errors import ModelError, NotFound, PreconditionFailed
from headrace.model.passage import Source, merged
from headrace.model.pool import parts_of
from headrace.protocol.codec_0_10 import (
    MessageAccept,
    MessageCancel,
    MessageReject,
    decode_command,
)
from headrace.protocol.errors_0_10 import ExecutionError
from headrace.spec.reply_0_10 import ExecutionCode
from headrace.wire.ranges import SequenceSet

ROUTES_MAX = 1024  # Remembered routes of one session; all are forgotten when it is full.
PERSISTENT_MODE = 2
SERIAL_MASK = 0xFFFFFFFF  # A name: as a literal it would be an object when compiled.
ACCEPTED_EXPLICITLY = 0
REJECT_UNROUTABLE = 1
REJECT_IMMEDIATE = 2
REJECT_UNSPECIFIED = 0
ACCEPT = 0  # As in gateway/v0_10/subscription.py.
REQUEUE = 1
DISCARD = 2
RELEASE = 3
UNKNOWN_SUBSCRIPTION = 0x0407  # message.subscribe, as execution.exception names it.


class Batch:
    """Commands that become complete together."""

    def __init__(self, first: int, last: int, accepted: Any, result: Any) -> None:
        self.first = first
        self.last = last
        self.accepted = accepted  # A SequenceSet of transfers that want a message.accept, or None.
        self.result = result  # What the (one) command results in, or None.


class Session(Holder):
    """One session."""

    def __init__(self, name: bytes, gateway: Any) -> None:
        """``gateway`` is the connection that attaches it first."""
        Holder.__init__(self, name)
        self.context = gateway.shared
        self.number = gateway.number
        self.tally = gateway.tally
        self.user = gateway.user
        self.vhost = gateway.vhost
        self.store = gateway.store
        self.line = gateway.line
        self.over = False  # All that it held was given back.
        self.consumers: Any = None  # Those of files and packets, by tag.
        self.reply_queue: Queue | None = None  # Where answers by direct reply-to come.
        self.files: Any = None  # A FileDesk, once used,
        self.packets: Any = None  # and a PacketDesk.
        self.on_end: list[Callable[[], None]] = []
        self.selected_tx = False
        self.selected_dtx = False
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
        # Completion.
        self.batch: Batch | None = None  # Of this read.
        self.batches: deque[Batch] = deque()  # Waiting for the disk.
        self.position = 0  # Where in the journal the transfer is.

    # --- Publishing ---------------------------------------------------------------------------

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
        tally = self.tally
        route = self.route
        if (
            route is None
            or route.generation != tally.generation
            or tally.now_ms >= self.until_ms
            or not same(self.args, d, args + 2, args_end)
            or not same(self.header, d, header, header_end)
        ):
            route = self.prepare(cut(d, args, args_end), cut(d, header, header_end))
        if self.rare or route.count == 0 or self.work is not None:
            self.publish_rarely(route, cut(d, body, body_end), None, body_end - body)
            return
        refused = self.spread(route, d, body, body_end, None, body_end - body)
        if refused:
            self.turn_away("a queue is full")
        elif self.position or self.explicit or self.batch is not None:
            self.join_batch(self.explicit)
        else:
            self.complete(self.command_id)

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
        if self.rare or route.count == 0 or self.work is not None:
            self.publish_rarely(route, b"", parts, body_size)
            return
        refused = self.spread(route, b"", 0, 0, parts, body_size)
        if refused:
            self.turn_away("a queue is full")
        elif self.position or self.explicit or self.batch is not None:
            self.join_batch(self.explicit)
        else:
            self.complete(self.command_id)

    def prepare(self, args: bytes, header: bytes) -> Route:
        """Read arguments and header segment of a transfer and find its route."""
        self.route = None
        transfer: Any = decode_command(b"\x04\x01" + args)[1]
        read = TransferHeader()
        bare = header
        copies: tuple[bytes, ...] = ()
        if (CC_ENTRY in header or BCC_ENTRY in header) and DELAY_ENTRY not in header:
            bare, copies = take_copies(header)
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
        now_ms = self.tally.now_ms
        # Clients that leave the mode out do not know what to do with an accept.
        self.explicit = transfer.accept_mode == ACCEPTED_EXPLICITLY
        self.discards = read.flags & 1 != 0
        self.immediate = read.flags & 2 != 0
        self.rare = self.immediate or self.fragment is not None or self.publishing is not None
        self.persistent = read.delivery_mode == PERSISTENT_MODE
        self.priority = read.priority
        self.ttl_ms = read.ttl_ms if read.flags & 0x20 else -1
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
        if delay_ms:
            self.ttl_ms = -1  # It counts from then on.
            self.deadline_ms = now_ms + delay_ms
            route = delayed(self.vhost, route)
        if copies:
            route = self.route_copies(route, exchange, copies, read.rest)
            self.persistent = self.persistent or route.keeps
        if self.fragment is not None or delay_ms or copies:
            self.until_ms = 0
            self.route = None
        return route

    def route_copies(
        self, route: Route, exchange: bytes, copies: tuple[bytes, ...], rest: bytes
    ) -> Route:
        """Return the route of a message with further routing keys; it is not remembered."""
        start = bytes((len(exchange),)) + exchange
        queues = dict.fromkeys(route.queues)
        passages = [route.passage]
        for key in copies:
            other = self.find_route(start + bytes((len(key),)) + key, exchange, key, rest)
            queues.update(dict.fromkeys(other.queues))
            passages.append(other.passage)
        return Route(route.key, tuple(queues), route.generation, merged(passages))

    def delay_in(self, rest: bytes) -> int:
        """Return the delay that a header segment asks for, in milliseconds; 0 when it does not."""
        try:
            return delay_of(TransferHeaders(rest)())
        except PreconditionFailed as error:
            raise ExecutionError(ExecutionCode.PRECONDITION_FAILED, error.text) from None

    def find_route(self, address: bytes, exchange: bytes, key: bytes, rest: bytes) -> Route:
        """Return the route of an address: remembered, or made now."""
        generation = self.tally.generation
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
            routed = self.vhost.route(name, routing_key, headers, alternates=1)
            route = Route(address, routed.queues, generation, routed.passage)
            if not routed.cacheable:
                self.until_ms = 0
                self.route = None
                self.rare = self.rare or routed.passage is not None
                return route
            if len(self.routes) >= ROUTES_MAX:
                self.routes.clear()
            self.routes[address] = route
        self.route = route
        self.until_ms = self.tally.now_ms // 1000 * 1000 + 1000
        return route

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
        tally = self.tally
        seq = tally.next_seq
        tally.next_seq = seq + 1
        tally.published += 1
        position = 0
        refused = 0
        message: Message | None = None
        data: bytes | None = None
        if self.ttl_ms >= 0:
            self.deadline_ms = tally.now_ms + self.ttl_ms
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
                    tally.now_ms,
                    seq,
                    body_size,
                    route.queue_ids,
                )
        for queue in route.queues:
            kept = position != 0 and queue.durable
            consumer = queue.taker()
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
                    position = self.store.publish_message(message, tally.now_ms, route.queue_ids)
                kept = position != 0 and queue.durable
            if kept and not queue.is_stream:
                message.flags |= C_PERSISTENT
                message.position = position
            if consumer is not None:
                queue.give(consumer, message)
            else:
                refused += queue.offer(message)
            if queue.ready_count > queue.pace_above and (
                queue.consumers is not None or queue.stopped
            ):
                self.connection.pace = queue
        self.position = position
        return refused

    def put(self, consumer: Any, d: bytes | bytearray, body: int, body_end: int) -> None:
        """Write a message straight from the receive buffer into a subscription's output."""
        consumer.put_transfer(self.delivered_header, d, body, body_end)

    def publish_rarely(
        self, route: Route, body: bytes, parts: tuple[bytes, ...] | None, body_size: int
    ) -> None:
        """A transfer that is a fragment, immediate, part of a transaction, or leads nowhere."""
        if self.fragment is not None:
            whole = self.context.fragments.add(self, self.fragment, body, parts)
            if whole is None:
                self.complete(self.command_id)
                return
            parts, body_size = whole
            if body_size <= 65536:
                body = b"".join(parts)
                parts = None
        self.position = 0
        passage = route.passage
        if route.count and self.immediate:
            for queue in route.queues:
                if not queue.takes_at_once():
                    if self.publishing is not None:
                        self.vhost.publishers.refuse(self.publishing)
                    self.unroutable(REJECT_IMMEDIATE, "a queue has no subscription with credit")
                    return
        if route.count == 0 and (passage is None or not passage.is_duplicate()):
            if passage is not None:
                self.pass_on(passage, route, body, parts, body_size)
            else:
                self.tally.published += 1
            if self.publishing is not None:
                self.vhost.publishers.refuse(self.publishing)
            self.unroutable(REJECT_UNROUTABLE, "the message leads to no queue")
            return
        if self.work is not None:
            message = self.message_of(body, parts, body_size)
            queues = route.queues
            if passage is not None and self.work.owns:
                message, queues = passage.join_branch(message, queues)
            elif passage is not None:
                self.work.pass_by(passage, self.source())
            if self.publishing is not None:
                self.work.number(self.publishing)
            self.work.publish(message, queues, self.persistent and route.durable)
        elif passage is not None:
            if self.pass_on(passage, route, body, parts, body_size):
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
            self.complete(self.command_id)

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
        passage: Any,
        route: Route,
        body: bytes,
        parts: tuple[bytes, ...] | None,
        body_size: int,
    ) -> int:
        """Give a transfer to its passage; return how many queues refused it."""
        if self.ttl_ms >= 0:
            self.deadline_ms = self.tally.now_ms + self.ttl_ms
        message = self.message_of(body, parts, body_size)
        refused: int = passage.take(
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
        publishers = self.vhost.publishers
        if not publishers.knows(number):
            lasting = will_last(route.queues, self.persistent)
            refusing = tuple([queue for queue in route.queues if queue.will_refuse(body_size)])
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

    def unroutable(self, code: int, text: str) -> None:
        """Nobody may have the message: say so to a client that wants to know."""
        if self.explicit and not self.discards:
            self.reject(code, text)
        elif self.explicit or self.batch is not None:
            self.join_batch(self.explicit)
        else:
            self.complete(self.command_id)

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

    # --- Completion ---------------------------------------------------------------------------

    def join_batch(self, wants_accept: bool) -> None:
        """The command is complete when all of this read that came before it is on disk."""
        number = self.command_id
        batch = self.batch
        if batch is None:
            batch = self.batch = Batch(number, number, None, None)
            self.connection.unflushed.append(self)
        batch.last = number
        if wants_accept:
            if batch.accepted is None:
                batch.accepted = SequenceSet()
            batch.accepted.add(number)

    def close_batch(self) -> None:
        """Put the batch of this read in the line."""
        batch = self.batch
        if batch is not None:
            self.batch = None
            self.batches.append(batch)
            self.line.join(self, batch.last)

    def later(self, result: Any = None) -> bool:
        """Complete the current command, with its result, once all so far is durable; False."""
        number = self.command_id
        self.close_batch()
        self.batches.append(Batch(number, number, None, result))
        self.line.join(self, number)
        return False

    def released(self, token: int) -> None:
        """What a batch waited for is durable."""
        batch = self.batches.popleft()
        if self.over:
            return
        if batch.result is not None:
            self.send_result(batch.first, batch.result)
        if batch.accepted is not None:
            self.send_command(MessageAccept(transfers=batch.accepted))
        self.complete_range(batch.first, batch.last)
        connection = self.connection
        if connection is not None:
            connection.announce_later()

    # --- Receiving ----------------------------------------------------------------------------

    def accept(self, d: bytes | bytearray, lo: int, hi: int) -> None:
        """The client accepts the transfers of these ranges, 8 octets each."""
        while lo < hi:
            last = get32(d, lo + 4)
            if serial_distance(last, self.next_id) <= 0:
                raise ExecutionError(
                    ExecutionCode.ILLEGAL_ARGUMENT, f"command {last} was not sent yet", 0
                )
            self.settle_range(get32(d, lo), last, ACCEPT)
            lo += 8
        self.finish_settling()

    def settle_ranges(self, ranges: list[tuple[int, int]], outcome: int) -> None:
        """Settle the deliveries of these ranges."""
        for first, last in ranges:
            self.settle_range(first, last, outcome)
            if self.browsed and outcome != ACCEPT:
                self.forget_browsed(first, last)
            if self.parted and outcome != ACCEPT and outcome != DISCARD:
                self.note_returns(first, last, outcome)
        self.finish_settling()

    def finish_settling(self) -> None:
        """Let queues go on that got something back; complete the command, perhaps later."""
        self.drain_touched()
        if self.durable or self.batch is not None:
            self.durable = False
            self.join_batch(False)
        else:
            self.complete(self.command_id)

    def drain_touched(self) -> None:
        """Let queues go on that messages returned to."""
        if self.touched:
            touched = self.touched
            self.touched = {}
            for queue in touched:
                queue.drain()

    def forget_browsed(self, first: int, last: int) -> None:
        """The client has no more interest in messages that it was shown."""
        size = (last - first) & SERIAL_MASK
        for number in [n for n in self.browsed if ((n - first) & SERIAL_MASK) <= size]:
            del self.browsed[number]

    def acquire(self, ranges: list[tuple[int, int]]) -> list[tuple[int, int]]:
        """Take messages that were only shown; return those that nobody else has taken."""
        acquired: list[tuple[int, int]] = []
        for first, last in ranges:
            size = (last - first) & SERIAL_MASK
            for number in [n for n in self.browsed if ((n - first) & SERIAL_MASK) <= size]:
                message, subscription = self.browsed.pop(number)
                if subscription.queue.acquire(message, subscription):
                    self.old[number] = message
                    self.unsettled += 1
                    acquired.append((number, number))
        return acquired

    def note_returns(self, first: int, last: int, outcome: int) -> None:
        """The client releases what it accepted: it is to return if the transaction is undone."""
        size = (last - first) & SERIAL_MASK
        for number in self.parted:
            if ((number - first) & SERIAL_MASK) <= size:
                self.returning[number] = outcome

    def part_again(self) -> None:
        """The transaction is rolled back: what was accepted in it is unsettled again."""
        returning = self.returning
        self.returning = {}
        for number, outcome in returning.items():
            message = self.parted.pop(number, None)
            if message is None:
                continue
            queue = message.consumer.queue
            self.touched[queue] = None
            if outcome == RELEASE:
                queue.release(message)
            else:
                queue.requeue(message)
        self.drain_touched()
        self.old.update(self.parted)
        self.unsettled += len(self.parted)
        self.parted = {}

    def give_back(self, first: int, last: int) -> None:
        """Deliveries got lost on the way: they return to their queues."""
        self.settle_range(first, last, REQUEUE)
        self.forget_browsed(first, last)
        if self.runs:
            self.completed(first, last)
        self.drain_touched()

    def held_up_to(self, subscription: Subscription, last: int) -> list[int]:
        """Return the ids up to ``last`` of the transfers that a subscription holds."""
        message: Message | None
        found = [
            number
            for number, message in self.old.items()
            if message.consumer is subscription and serial_distance(number, last) >= 0
        ]
        ring = self.ring
        at = 0
        while ring is not None and at < ring.count:
            number = (self.base + at) & SERIAL_MASK
            if serial_distance(number, last) < 0:
                break
            message = ring.at(at)
            if message is not None and message.consumer is subscription:
                found.append(number)
            at += 1
        return found

    def return_late(self, subscription: Subscription, last: int) -> None:
        """Return to the queue what a subscription has held for too long."""
        for number in self.held_up_to(subscription, last):
            self.settle_range(number, number, REQUEUE)
        self.drain_touched()

    def refresh_all(self) -> None:
        """There is room, or a connection, again: let all queues look."""
        if self.consumers is not None:
            for consumer in list(self.consumers.values()):
                consumer.queue.unpark(consumer)
        for subscription in list(self.subscriptions.values()):
            subscription.queue.unpark(subscription)
            if subscription.flushing >= 0:
                self.go_on_flushing(subscription)

    def go_on_flushing(self, subscription: Subscription) -> None:
        """Complete a message.flush when all there is was sent, or the credit is spent."""
        subscription.queue.drain()
        if subscription.flushing >= 0 and not subscription.looking:
            self.end_flush(subscription)

    def end_flush(self, subscription: Subscription) -> None:
        """All there is was offered to a subscription."""
        queue = subscription.queue
        if subscription.credit_messages and subscription.credit_octets and not queue.deleted:
            connection = self.connection
            if connection is None or connection.pending() > connection.output_max:
                return  # More will be sent when the client has read.
        number = subscription.flushing
        subscription.flushing = -1
        subscription.stop()
        self.complete(number)
        if self.connection is not None:
            self.connection.announce_later()  # Looking may have gone on after the read.

    def subscription_cancelled(self, subscription: Subscription) -> None:
        """A queue is gone: so is every session that subscribes to it (0-10/s090)."""
        connection = self.connection
        if connection is not None and connection.kin and subscription.idle():
            return  # It will be cancelled, or hear of it when it wants messages again.
        self.subscriptions.pop(subscription.tag, None)
        if self.over or subscription.cancelled_by_client:
            return
        self.fail_subscription(
            subscription,
            ExecutionError(
                ExecutionCode.RESOURCE_DELETED, f"queue '{subscription.queue.name}' was deleted"
            ),
        )

    def subscription_ended(self, subscription: Subscription) -> None:
        """A range of a stream was read: say so with a message.cancel of ours; it was asked for."""
        self.subscriptions.pop(subscription.tag, None)
        if self.over:
            return
        if subscription.flushing >= 0:
            self.complete(subscription.flushing)
            subscription.flushing = -1
        self.send_command(MessageCancel(destination=subscription.tag))

    def subscription_failed(self, subscription: Subscription, error: Exception) -> None:
        """A range of a stream cannot be read: the session ends with the reason."""
        self.subscriptions.pop(subscription.tag, None)
        if not self.over and isinstance(error, ModelError):
            self.fail_subscription(subscription, translate(error))

    def fail_subscription(self, subscription: Subscription, error: ExecutionError) -> None:
        """End the session for a fault of one of its subscriptions."""
        connection = self.connection
        if connection is None:
            self.ended = True
            self.end()
            return
        current, number = connection.current, self.command_id
        connection.current = UNKNOWN_SUBSCRIPTION
        self.command_id = subscription.number
        self.fail(error)
        connection.current, self.command_id = current, number

    # --- Rights -------------------------------------------------------------------------------

    def check_access(self, permission: str, kind: str, name: str) -> None:
        """Refuse what the user has no permission for."""
        self.context.access.check(self.user, self.vhost.name, permission, kind, name)

    def check_topic(self, permission: str, exchange: str, routing_key: str) -> None:
        """Refuse a topic that the user may not publish to or bind."""
        access = self.context.access
        access.check_topic(self.user, self.vhost, permission, exchange, routing_key)

    def check_any_access(self, kind: str, name: str) -> None:
        """Refuse to tell whether a thing exists to who has no permission on it at all."""
        access, vhost = self.context.access, self.vhost.name
        if not any(
            access.allowed(self.user, vhost, p, name) for p in ("configure", "write", "read")
        ):
            self.check_access("configure", kind, name)

    def queue_of(self, name: str | None) -> Any:
        """Return the queue of that name, if the session may use it.

        Raises:
            NotFound: there is none.
        """
        if not name:
            raise NotFound("a queue has a name")
        return self.vhost.find_queue(name, self)

    # --- Ends ---------------------------------------------------------------------------------

    def end(self) -> None:
        """The session is over, however it came to that: give everything back."""
        ProtocolSession.end(self)
        self.wind_up()

    def wind_up(self) -> None:
        """Cancel the subscriptions, return what is unsettled, undo what is not committed."""
        if self.over:
            return
        self.over = True
        self.batch = None
        self.route = None
        self.routes = {}
        subscriptions = list(self.subscriptions.values())
        self.subscriptions = {}
        for subscription in subscriptions:
            subscription.queue.remove_consumer(subscription)
        for callback in self.on_end:
            callback()
        self.on_end = []
        if self.selected_tx and self.work is not None:
            self.work.forget()
        self.work = None
        queues: dict[Queue, None] = {}
        for message in self.take_back():
            queue = message.consumer.queue
            queue.requeue(message)
            queues[queue] = None
        for queue in queues:
            queue.drain()
        for subscription in subscriptions:
            self.leave_queue(subscription.queue)
        self.runs = None
        self.vhost.connection_closed(self)

    def leave_queue(self, queue: Queue) -> None:
        """A subscription has ended: the queue may be one that goes with its last."""
        for part in parts_of(queue):
            if part.single and part.ready_count:
                part.drain()  # It is another's turn now.
            if part.exclusive_owner is self and not self.over and part is not self.reply_queue:
                continue  # It goes with the session (0-10/s188).
            if part.auto_delete and not part.deleted and not part.consumer_count():
                self.vhost.queue_unused(part)
