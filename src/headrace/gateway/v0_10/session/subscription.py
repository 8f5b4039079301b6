# SPDX-License-Identifier: Apache-2.0
"""The subscriptions of a 0-10 client, and their credit.

Credit is counted in messages and in bytes, each of which may be unlimited. In window mode it comes
back when the client completes a transfer: ``runs`` remembers what each cost, equal neighbours as
one. A subscription without limits is not charged.
"""

from collections import deque
from typing import TYPE_CHECKING, Any, Protocol

import cython

if not cython.compiled:
    from headrace.gateway.conversion.convert import Converter, body_of_frames
    from headrace.gateway.messages.stream_headers import with_offset
    from headrace.gateway.v0_10.session.deliveries import serial_distance
    from headrace.model.message import KIND_MASK as C_KIND_MASK
    from headrace.model.message import KIND_TRANSFER as C_KIND_TRANSFER
    from headrace.model.message import REDELIVERED as C_REDELIVERED
    from headrace.model.message import Message, new_message
    from headrace.model.queue.destination import Consumer
    from headrace.model.queue.queue import Queue
    from headrace.wire.memory import cut, get32

from headrace.gateway.conversion.convert import CannotConvert
from headrace.model.message import KIND_TRANSFER
from headrace.protocol.codec_0_10 import MessageTransfer, encode_command

if TYPE_CHECKING:
    from headrace.gateway.v0_10.session.deliveries import Deliveries
    from headrace.model.tallies import ChannelTally
    from headrace.protocol.v0_10.session.sent import SentCommands

RUNS_MAX = 65536  # Runs of transfers of one session that are not completed.
UNLIMITED = -1
SERIAL_MASK = 0xFFFFFFFF  # Names: as literals they would be objects when compiled.
SERIAL_SIGN = 0x80000000
INFINITE = 0xFFFFFFFF  # Credit that has no limit.
CREDIT_MAX = 1 << 62


class SubscribedSession(Protocol):
    """Port of a session, for its subscriptions."""

    connection: Any  # As headrace.protocol.v0_10.session_connection has it.
    sent: "SentCommands"
    tally: "ChannelTally"
    deliveries: "Deliveries"
    windows: "WindowCredit"

    def subscription_cancelled(self, subscription: "Subscription") -> None:
        """The queue of a subscription is gone."""

    def end_flush(self, subscription: "Subscription") -> None:
        """End a flush: all ready messages were offered to a subscription."""

    def subscription_ended(self, subscription: "Subscription") -> None:
        """A subscription has all it asked for."""

    def subscription_failed(self, subscription: "Subscription", error: Exception) -> None:
        """The source of a subscription cannot be read."""


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
        session: SubscribedSession,
        queue: Queue,
        destination: str,
        accept_mode: int,
        acquire_mode: int,
    ) -> None:
        """``accept_mode`` 1 wants no accept; ``acquire_mode`` 1 browses."""
        Consumer.__init__(self, queue, destination, accept_mode != 0 or acquire_mode != 0)
        self.session = session
        self.sent = session.sent
        self.tally: ChannelTally = session.tally
        self.deliveries = session.deliveries
        self.windows = session.windows
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
        self.window_number: int = 0  # A stop ends a window: what was sent in it gives no credit.
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
        if link is None or self.sent.resuming:
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

    # Keeps 0-10/s097.
    def accepts(self, message: Message) -> int:
        if self.credit_octets < 0:
            return 1
        return 1 if self.size_of(message) <= self.credit_octets else 2

    def size_of(self, message: Message) -> int:
        """Return the credit that a message costs: the bytes of its header and body segments."""
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
        """Return True if there is no credit left."""
        return self.credit_messages == 0 or self.credit_octets == 0

    # Keeps 0-10/s099.
    def stop(self) -> None:
        """Send nothing more until new credit comes."""
        self.credit_messages = 0
        self.credit_octets = 0
        self.limited = True
        self.window_number += 1

    def select(self, selective: bool) -> None:
        """Have the queue ask before each message whether it fits."""
        selective = selective or self.filters
        self.queue.set_selective(self, selective)

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
            self.head = self.sent.transfer_head(self.method)

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
        if parts is not None:
            number = self.sent.send_transfer_parts(self.head, cut(header, lo, hi), parts)
        else:
            number = self.sent.send_transfer(self.head, header, lo, hi, body, body_lo, body_hi)
        if not self.no_ack:
            self.tally.deliver += 1
            self.deliveries.unsettled.add(number, message)
        else:
            self.tally.deliver_no_ack += 1
            if self.browses:
                self.deliveries.remember_browsed(number, message, self)
        if self.limited:
            self.windows.charge(self, number, hi - lo + message.body_size)

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
        size = len(header)
        self.tally.deliver_no_ack += 1
        number = self.sent.send_transfer(self.head, header, 0, size, d, body_lo, body_hi)
        if self.limited:
            self.windows.charge(self, number, size + body_hi - body_lo)
        return 0

    def redelivers(self) -> None:
        self.tally.redeliver += 1

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


class WindowCredit:
    """The transfers of a session whose completion gives window credit back."""

    def __init__(self) -> None:
        self.runs: deque[Run] | None = None  # Made for the first transfer with limits.
        self.last_run: Run | None = None  # The last of them.

    def charge(self, by: Subscription, number: int, octets: int) -> None:
        """Take the cost of a transfer that was sent off the credit of its subscription."""
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
            assert run is not None
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
        """Give window credit back for commands that the client completed."""
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
        """As :meth:`completed`, out of order: look at every run."""
        assert self.runs is not None
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
