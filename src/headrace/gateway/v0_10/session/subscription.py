# SPDX-License-Identifier: Apache-2.0
"""What a 0-10 client receives: subscriptions with their credit, and what is not settled yet.

A delivery is a message.transfer command of ours, so its name is a command id. Ids count up by one
for all commands that a session sends; what is unsettled is a ring in which the place of an id is
its distance from ``base``. Deliveries that were left behind, and such as were acquired later, are
in a dict.

Credit has two sides, messages and octets, either of which may be unlimited. In window mode it comes
back when the client completes a transfer: ``runs`` remembers what each cost, equal neighbours as
one. A subscription without limits costs neither.
"""

from collections import deque
from typing import Any

import cython

if not cython.compiled:
    from headrace.gateway.conversion.convert import Converter, body_of_frames
    from headrace.gateway.messages.stream_headers import with_offset
    from headrace.model.message import KIND_MASK as C_KIND_MASK
    from headrace.model.message import KIND_TRANSFER as C_KIND_TRANSFER
    from headrace.model.message import REDELIVERED as C_REDELIVERED
    from headrace.model.message import Message, new_message
    from headrace.model.queue.dispatch import Consumer
    from headrace.model.queue.queue import Queue
    from headrace.model.queue.ring import Ring
    from headrace.protocol.v0_10.session.session import Session as ProtocolSession
    from headrace.wire.memory import cut, get32

from headrace.gateway.conversion.convert import CannotConvert
from headrace.model.message import KIND_TRANSFER
from headrace.protocol.codec_0_10 import MessageTransfer, encode_command

RING_SLACK = 65536  # Places of settled deliveries that a ring keeps, beside four per unsettled one.
RUNS_MAX = 65536  # Runs of transfers of one session that are not completed.
BROWSED_MAX = 65536  # Transfers of one session that can still be acquired; the oldest go first.
UNLIMITED = -1
SERIAL_MASK = 0xFFFFFFFF  # Names: as literals they would be objects when compiled.
SERIAL_SIGN = 0x80000000
SERIAL_SPAN = 1 << 32
INFINITE = 0xFFFFFFFF  # Credit that has no limit.
CREDIT_MAX = 1 << 62

ACCEPT = 0
REQUEUE = 1
DISCARD = 2
RELEASE = 3


class Run:
    """Transfers in a row of one subscription that cost the same."""

    def __init__(self, first: int, subscription: "Subscription", octets: int) -> None:
        self.first = first  # Command id.
        self.count = 1
        self.subscription = subscription
        self.octets = octets  # Of each.
        self.window = subscription.window_number  # What completing them counts for.


class Subscription(Consumer):
    """A consumer of 0-10."""

    def __init__(
        self,
        session: "Holder",
        queue: Queue,
        destination: str,
        accept_mode: int,
        acquire_mode: int,
    ) -> None:
        """``accept_mode`` 1 wants no accept; ``acquire_mode`` 1 browses."""
        Consumer.__init__(self, queue, destination, accept_mode != 0 or acquire_mode != 0)
        self.session = session
        self.family = KIND_TRANSFER
        self.browses = acquire_mode != 0
        self.accept_mode = accept_mode
        self.method = encode_command(
            MessageTransfer(
                destination=destination, accept_mode=accept_mode, acquire_mode=acquire_mode
            )
        )
        self.head: bytes = b""
        self.window = True  # The mode before any set-flow-mode (0-10/s098).
        self.window_number = 0  # A stop ends a window: what was sent in it gives no credit.
        self.credit_messages = 0
        self.credit_octets = 0
        self.limited = True  # One of them is not unlimited.
        self.converter = Converter()
        self.flushing = UNLIMITED  # The id of a message.flush that is not complete.
        self.number = 0  # The id of its message.subscribe.
        self.cancelled_by_client = False
        self.attach()

    # --- Credit -------------------------------------------------------------------------------

    def can(self) -> bool:
        if self.credit_messages == 0 or self.credit_octets == 0:
            return False
        link = self.session.connection
        if link is None or self.session.sent.resuming:
            return False
        if link.is_full():
            starving = link.starving
            if starving is None:
                starving = link.starving = {}
            starving[self.queue] = None
            if link.transport is not None:
                link.transport.watch_output()
            return False
        return True

    def accepts(self, message: Message) -> int:
        if self.credit_octets < 0:
            return 1
        return 1 if self.size_of(message) <= self.credit_octets else 2

    def size_of(self, message: Message) -> int:
        """What a message costs: the octets of its header and body segments."""
        data = message.data
        at = message.address_len + 2
        if message.flags & C_KIND_MASK == C_KIND_TRANSFER:
            size = get32(data, at)
        else:
            size = len(data) - at
            try:
                size = len(
                    self.converter.header_for_transfer(
                        data, message.address_len, at + 7, get32(data, at + 3)
                    )
                )
            except CannotConvert:
                return 0  # It will be refused when it is delivered.
        return size + message.body_size

    def add_credit(self, octets: bool, value: int) -> None:
        """Add to what may be sent; 0xFFFFFFFF lifts the limit (0-10/message.flow)."""
        if octets:
            if value == INFINITE:
                self.credit_octets = UNLIMITED
            elif self.credit_octets >= 0:
                self.credit_octets = min(self.credit_octets + value, CREDIT_MAX)
        elif value == INFINITE:
            self.credit_messages = UNLIMITED
        elif self.credit_messages >= 0:
            self.credit_messages = min(self.credit_messages + value, CREDIT_MAX)
        self.limited = self.credit_messages >= 0 or self.credit_octets >= 0
        self.select(self.credit_octets >= 0)
        self.queue.unpark(self)

    def idle(self) -> bool:
        """Tell whether there is no credit for anything."""
        return self.credit_messages == 0 or self.credit_octets == 0

    def stop(self) -> None:
        """Send nothing more until new credit comes."""
        self.credit_messages = 0
        self.credit_octets = 0
        self.limited = True
        self.window_number += 1

    def select(self, selective: bool) -> None:
        """Have the queue ask before each message whether it fits."""
        selective = selective or self.filters
        if selective != self.selective:
            self.selective = selective
            queue = self.queue
            if queue.consumers is not None and self in queue.consumers:
                queue.selective += 1 if selective else -1

    def restore(self, count: int, octets: int, window: int) -> None:
        """Transfers were completed: what they cost may be spent again, in window mode."""
        if not self.window or window != self.window_number:
            return
        if self.credit_messages >= 0:
            self.credit_messages += count
        if self.credit_octets >= 0:
            self.credit_octets += count * octets
        self.queue.unpark(self)

    # --- Deliveries ---------------------------------------------------------------------------

    def attach(self) -> None:
        """The session has a connection: make what each transfer begins with."""
        if self.session.connection is not None:
            self.head = self.session.sent.transfer_head(self.method)

    def deliver(self, message: Message) -> None:
        data = message.data
        address_len = message.address_len
        at = address_len + 2
        parts = message.parts
        if message.flags & C_KIND_MASK == C_KIND_TRANSFER:
            header = data
            lo = at + 4
            hi = lo + get32(data, at)
            body = data
            body_lo = hi
            body_hi = len(data)
        else:
            if self.queue.is_stream:
                data = with_offset(data, address_len, message.seq, message.deadline_ms)
            hi = get32(data, at + 3)
            body_lo = at + 8 + hi
            body_hi = len(data)
            try:
                header = self.converter.header_for_transfer(data, address_len, at + 7, hi)
            except CannotConvert as error:
                self.queue.unconvertible(message, self, error.reason)
                return
            lo = 0
            hi = len(header)
            body = data
            if body_lo < body_hi:
                if body_lo + 8 + get32(data, body_lo + 3) == body_hi:
                    body_lo += 7
                    body_hi -= 1
                else:
                    body = body_of_frames(data, body_lo, body_hi)
                    body_lo = 0
                    body_hi = len(body)
        if message.flags & C_REDELIVERED and not header[lo + 6] & 4:
            header = (
                cut(header, lo, lo + 6) + bytes((header[lo + 6] | 4,)) + cut(header, lo + 7, hi)
            )
            hi -= lo
            lo = 0
        session = self.session
        if parts is not None:
            number = session.sent.send_transfer_parts(self.head, cut(header, lo, hi), parts)
        else:
            number = session.sent.send_transfer(self.head, header, lo, hi, body, body_lo, body_hi)
        if not self.no_ack:
            session.remember(number, message)
        elif self.browses:
            session.remember_browsed(number, message, self)
        if self.limited:
            session.charge(self, number, hi - lo + message.body_size)

    def put(
        self, d: bytes | bytearray, lo: int, address_len: int, end: int, redelivered: int
    ) -> int:
        at = lo + address_len + 2
        size = get32(d, at + 3)
        try:
            header = self.converter.transfer_at(d, lo, address_len, at + 7, size)
        except CannotConvert as error:
            message = new_message(cut(d, lo, end), address_len, 0)
            self.queue.unconvertible(message, self, error.reason)
            return 0
        body_lo = at + 8 + size
        if body_lo >= end:
            self.put_transfer(header, d, end, end)
        elif body_lo + 8 + get32(d, body_lo + 3) == end:
            self.put_transfer(header, d, body_lo + 7, end - 1)
        else:
            body = body_of_frames(cut(d, body_lo, end), 0, end - body_lo)
            self.put_transfer(header, body, 0, len(body))
        return 0

    def put_transfer(self, header: bytes, d: bytes | bytearray, body_lo: int, body_hi: int) -> int:
        """Take a message straight from a buffer: ``header`` is a whole header segment."""
        session = self.session
        size = len(header)
        number = session.sent.send_transfer(self.head, header, 0, size, d, body_lo, body_hi)
        if self.limited:
            session.charge(self, number, size + body_hi - body_lo)
        return 0

    def hold(self, position: int) -> None:
        connection = self.session.connection
        if connection is not None:
            connection.hold(self.queue.store, position)

    def cancelled(self) -> None:
        self.session.subscription_cancelled(self)

    def looked(self) -> None:
        if self.flushing >= 0:
            self.session.end_flush(self)

    def ended(self) -> None:
        self.session.subscription_ended(self)

    def failed(self, error: Exception) -> None:
        self.session.subscription_failed(self, error)


class Holder(ProtocolSession):
    """A session, as far as it receives."""

    def __init__(self, name: bytes) -> None:
        ProtocolSession.__init__(self, name)
        self.subscriptions: dict[str, Subscription] = {}
        self.ended_tags: dict[str, None] = {}  # Those that we ended, and the client may not know.
        self.base = 0  # The id of the ring's head.
        self.ring: Any = None  # A Ring once something was delivered.
        self.old: dict[int, Message] = {}  # Unsettled ones that are not in the ring.
        self.browsed: dict[int, tuple[Message, Subscription]] = {}  # Shown, and not acquired.
        self.parted: dict[int, Message] = {}  # Accepted in a transaction of the session's own.
        self.returning: dict[int, int] = {}  # Outcomes of these, if it is rolled back.
        self.unsettled = 0  # In ring and ``old``.
        self.runs: Any = None  # deque[Run] once something with limits was sent.
        self.last_run: Any = None  # The last of them.
        self.transaction: Any = None  # The Transaction that accepts and rejects are part of.
        self.durable = False  # Something durable was settled by this command.
        self.touched: dict[Queue, None] = {}  # Queues that messages returned to.

    # --- Bookkeeping --------------------------------------------------------------------------

    def remember(self, number: int, message: Message) -> None:
        """Hold a message until it is settled; ``number`` is the id of its transfer."""
        ring = self.ring
        if ring is None:
            ring = self.ring = Ring()
        if ring.count == 0:
            self.base = number
        gap = (number - self.base - ring.count) & SERIAL_MASK
        if gap > RING_SLACK:
            self.spill(ring.count)
            self.base = number
            gap = 0
        while gap:
            ring.push(None)
            gap -= 1
        ring.push(message)
        self.unsettled += 1
        if ring.count > RING_SLACK + 4 * self.unsettled:
            self.spill(ring.count - RING_SLACK)

    def spill(self, count: int) -> None:
        """Move the oldest ``count`` places of the ring into the dict."""
        ring = self.ring
        while count and ring.count:
            message = ring.pop()
            if message is not None:
                self.old[self.base] = message
            self.base = (self.base + 1) & SERIAL_MASK
            count -= 1
        self.trim()

    def trim(self) -> None:
        """Move the ring's head over empty places."""
        ring = self.ring
        while ring.count and ring.at(0) is None:
            ring.pop()
            self.base = (self.base + 1) & SERIAL_MASK

    def remember_browsed(self, number: int, message: Message, by: Subscription) -> None:
        """Remember what was shown, in case that the client wants to acquire it."""
        browsed = self.browsed
        if len(browsed) >= BROWSED_MAX:
            del browsed[next(iter(browsed))]
        browsed[number] = (message, by)

    def charge(self, by: Subscription, number: int, octets: int) -> None:
        """A transfer was sent: take what it cost off the credit."""
        if by.credit_messages > 0:
            by.credit_messages -= 1
        if by.credit_octets > 0:
            by.credit_octets = max(0, by.credit_octets - octets)
        if not by.window:
            return
        runs = self.runs
        if runs is None:
            runs = self.runs = deque()
        if runs:
            run = self.last_run
            if (
                run.subscription is by
                and run.octets == octets
                and run.window == by.window_number
                and run.first + run.count == number
            ):
                run.count += 1
                return
            if len(runs) >= RUNS_MAX:
                runs.popleft()  # What is never completed gives no credit.
        self.last_run = Run(number, by, octets)
        runs.append(self.last_run)

    def completed(self, lo: int, hi: int) -> None:
        """The client completed commands of ours: window credit comes back."""
        runs = self.runs
        while runs:
            run: Run = runs[0]
            before = (run.first - lo) & SERIAL_MASK
            if before & SERIAL_SIGN:  # Something older is not completed.
                self.complete_behind(lo, hi)
                return
            reach = (hi - run.first) & SERIAL_MASK
            if reach & SERIAL_SIGN:
                return  # It begins after what was completed.
            inside = reach + 1
            if inside >= run.count:
                runs.popleft()
                run.subscription.restore(run.count, run.octets, run.window)
                continue
            run.first = (run.first + inside) & SERIAL_MASK
            run.count -= inside
            run.subscription.restore(inside, run.octets, run.window)
            return

    def complete_behind(self, lo: int, hi: int) -> None:
        """Completed out of order: look at every run."""
        kept: deque[Run] = deque()
        restored: list[tuple[Subscription, int, int, int]] = []
        for run in self.runs:
            start = serial_distance(run.first, lo)  # Where the completed ones begin in the run,
            end = serial_distance(run.first, hi) + 1  # and where they end.
            start = max(0, start)
            end = min(run.count, end)
            if start >= end:
                kept.append(run)
                continue
            restored.append((run.subscription, end - start, run.octets, run.window))
            if start:
                first = Run(run.first, run.subscription, run.octets)
                first.window = run.window
                first.count = start
                kept.append(first)
            if end < run.count:
                rest = Run((run.first + end) & SERIAL_MASK, run.subscription, run.octets)
                rest.window = run.window
                rest.count = run.count - end
                kept.append(rest)
        self.runs = kept
        for run in kept:
            self.last_run = run
        for subscription, count, octets, window in restored:
            subscription.restore(count, octets, window)

    # --- Settlement ---------------------------------------------------------------------------

    def settle_range(self, lo: int, hi: int, outcome: int) -> None:
        """Settle every unsettled delivery from ``lo`` to ``hi``; ids of others are passed over."""
        if self.old:
            size = (hi - lo) & SERIAL_MASK
            for number in [n for n in self.old if ((n - lo) & SERIAL_MASK) <= size]:
                self.apply(number, self.old.pop(number), outcome)
        ring = self.ring
        if ring is None or not ring.count:
            return
        end = (hi - self.base) & SERIAL_MASK
        if end & SERIAL_SIGN:
            return  # All before the ring.
        at = (lo - self.base) & SERIAL_MASK
        if at & SERIAL_SIGN:
            at = 0
        end = min(end + 1, ring.count)
        if at == 0:
            while end:
                message = ring.pop()
                number = self.base
                self.base = (number + 1) & SERIAL_MASK
                end -= 1
                if message is not None:
                    self.apply(number, message, outcome)
            self.trim()
            return
        while at < end:
            message = ring.at(at)
            if message is not None:
                ring.clear_at(at)
                self.apply((self.base + at) & SERIAL_MASK, message, outcome)
            at += 1

    def apply(self, number: int, message: Message, outcome: int) -> None:
        """Give one delivery its outcome; it is in no place any more."""
        self.unsettled -= 1
        consumer: Consumer = message.consumer
        queue = consumer.queue
        if message.position:
            self.durable = True
        if outcome != ACCEPT and outcome != DISCARD:
            self.touched[queue] = None
            if outcome == RELEASE:
                queue.release(message)
            else:
                queue.requeue(message)
            return
        if self.transaction is not None:
            self.settle_in_work(number, message, queue, outcome)
        elif outcome == ACCEPT:
            queue.settle(message)
        else:
            queue.discard(message)

    def settle_in_work(self, number: int, message: Message, queue: Queue, outcome: int) -> None:
        """The outcome is part of a transaction."""
        transaction = self.transaction
        if not transaction.owns:
            self.parted[number] = message
        transaction.settle(queue, message, outcome)

    def take_back(self) -> list[Message]:
        """Take every unsettled message off the session, oldest first; they are nobody's now."""
        messages: list[Message] = [*self.parted.values(), *self.old.values()]
        self.parted = {}
        self.returning = {}
        self.old = {}
        ring = self.ring
        while ring is not None and ring.count:
            message = ring.pop()
            if message is not None:
                messages.append(message)
        self.unsettled = 0
        self.browsed = {}
        return sorted(messages, key=lambda message: message.seq)

    def subscription_cancelled(self, subscription: Subscription) -> None:
        """A queue ended a subscription's part."""

    def end_flush(self, subscription: Subscription) -> None:
        """All there is was offered to a subscription."""

    def subscription_ended(self, subscription: Subscription) -> None:
        """A subscription has all that it asked for."""

    def subscription_failed(self, subscription: Subscription, error: Exception) -> None:
        """A subscription cannot have what it asked for."""


def serial_distance(a: int, b: int) -> int:
    """The steps from one command id to another, negative when ``b`` comes before ``a``."""
    distance = (b - a) & SERIAL_MASK
    return distance - SERIAL_SPAN if distance & SERIAL_SIGN else distance
