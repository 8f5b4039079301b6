# SPDX-License-Identifier: Apache-2.0
"""The subscriptions of a 0-10 client, and their credit.

Credit is counted in messages and in bytes, each of which may be unlimited. In window mode it is
returned when the client completes a transfer: ``runs`` holds the cost of each transfer, consecutive
equal ones as one run. A subscription without limits is not charged.
"""

from collections import deque
from typing import TYPE_CHECKING, Any, Protocol

import cython

if not cython.compiled:
    from headrace.gateway.conversion.convert import Converter, join_body_frames
    from headrace.gateway.messages.stream_headers import with_offset
    from headrace.gateway.v0_10.session.deliveries import serial_distance
    from headrace.model.message import KIND_MASK as C_KIND_MASK
    from headrace.model.message import KIND_TRANSFER as C_KIND_TRANSFER
    from headrace.model.message import REDELIVERED as C_REDELIVERED
    from headrace.model.message import Message, new_message
    from headrace.model.queue.destination import ACCEPTED as C_ACCEPTED
    from headrace.model.queue.destination import NO_ROOM as C_NO_ROOM
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

RUNS_MAX = 65536  # Runs that a session keeps of transfers that are not completed.
UNLIMITED = -1
SERIAL_MASK = 0xFFFFFFFF  # Named constants: Cython makes objects of such literals.
SERIAL_SIGN = 0x80000000
INFINITE = 0xFFFFFFFF  # The value of message.flow for unlimited credit.
CREDIT_MAX = 1 << 62


class SubscribedSession(Protocol):
    """A session, as its subscriptions see it."""

    connection: Any  # As headrace.protocol.v0_10.session_connection has it.
    sent: "SentCommands"
    tally: "ChannelTally"
    deliveries: "Deliveries"
    windows: "WindowCredit"

    def on_subscription_cancelled(self, subscription: "Subscription") -> None:
        """End a subscription whose queue was deleted."""

    def end_flush(self, subscription: "Subscription") -> None:
        """End a flush: all ready messages were offered to a subscription."""

    def on_subscription_ended(self, subscription: "Subscription") -> None:
        """End a subscription that has reached its end."""

    def on_subscription_failed(self, subscription: "Subscription", error: Exception) -> None:
        """End a subscription whose source cannot be read."""


class Run:
    """Consecutive transfers of one subscription with the same cost."""

    def __init__(self, first: int, subscription: "Subscription", size: int) -> None:
        self.first = first  # Command id.
        self.count = 1
        self.subscription = subscription
        self.size = size  # The credit that each transfer costs, in bytes.
        self.window = subscription.window_id  # The id of the window that the credit returns to.


class Subscription(Consumer):
    """A subscription of a 0-10 session (message.subscribe) to one queue, with its credit."""

    def __init__(
        self,
        session: SubscribedSession,
        queue: Queue,
        destination: str,
        accept_mode: int,
        acquire_mode: int,
    ) -> None:
        """``accept_mode`` 1 means none (no accepts), ``acquire_mode`` 1 not-acquired (browse)."""
        Consumer.__init__(self, queue, destination, accept_mode != 0 or acquire_mode != 0)
        self.session = session
        self.sent = session.sent
        self.tally: ChannelTally = session.tally
        self.deliveries = session.deliveries
        self.windows = session.windows
        self.content_kind = KIND_TRANSFER
        self.is_browser = acquire_mode != 0
        self.accept_mode = accept_mode
        self.method = encode_command(
            MessageTransfer(
                destination=destination, accept_mode=accept_mode, acquire_mode=acquire_mode
            )
        )
        self.transfer_head: bytes = b""
        # Keeps 0-10/s098.
        self.is_window_mode = True  # The mode before any set-flow-mode.
        self.window_id: int = 0  # message.stop ends a window, whose transfers return no credit.
        self.credit_messages = 0
        self.credit_bytes = 0
        self.has_limits = True  # False: both kinds of credit are unlimited.
        self.converter = Converter()
        self.flush_id = UNLIMITED  # The command id of an incomplete message.flush; -1 for none.
        self.number = 0  # The command id of its message.subscribe.
        self.cancelled_by_client = False
        self.attach()

    # --- Credit -------------------------------------------------------------------------------

    def has_room(self) -> bool:
        if self.credit_messages == 0 or self.credit_bytes == 0:
            return False
        connection = self.session.connection
        if connection is None or self.sent.is_resuming:
            return False
        if connection.is_full():
            starving = connection.starving
            if starving is None:
                starving = connection.starving = {}
            starving[self.queue] = None
            if connection.transport is not None:
                connection.transport.watch_output()
            return False
        return True

    # Keeps 0-10/s097.
    def evaluate(self, message: Message) -> int:
        if self.credit_bytes < 0:
            return C_ACCEPTED
        return C_ACCEPTED if self.credit_cost(message) <= self.credit_bytes else C_NO_ROOM

    def credit_cost(self, message: Message) -> int:
        """Return the credit that a message costs: the bytes of its header and body segments."""
        data = message.data
        position = message.address_len + 2
        if message.flags & C_KIND_MASK == C_KIND_TRANSFER:
            size = get32(data, position)
        else:
            size = len(data) - position
            try:
                size = len(
                    self.converter.header_for_transfer(
                        data, message.address_len, position + 7, get32(data, position + 3)
                    )
                )
            except CannotConvert:
                return 0  # The delivery of such a message is refused.
        return size + message.body_size

    def add_credit(self, in_bytes: bool, value: int) -> None:
        """Add credit; 0xFFFFFFFF is unlimited (0-10/message.flow)."""
        if in_bytes:
            if value == INFINITE:
                self.credit_bytes = UNLIMITED
            elif self.credit_bytes >= 0:
                self.credit_bytes = min(self.credit_bytes + value, CREDIT_MAX)
        elif value == INFINITE:
            self.credit_messages = UNLIMITED
        elif self.credit_messages >= 0:
            self.credit_messages = min(self.credit_messages + value, CREDIT_MAX)
        self.has_limits = self.credit_messages >= 0 or self.credit_bytes >= 0
        self.set_selective(self.credit_bytes >= 0)
        self.queue.unpark(self)

    def lacks_credit(self) -> bool:
        """Return True if no credit is left."""
        return self.credit_messages == 0 or self.credit_bytes == 0

    # Keeps 0-10/s099, 0-10/s100.
    def stop(self) -> None:
        """Withdraw the credit; transfers already sent return none."""
        self.credit_messages = 0
        self.credit_bytes = 0
        self.has_limits = True
        self.window_id += 1

    def set_selective(self, selective: bool) -> None:
        """Set whether the queue calls ``evaluate`` before each message; filters require it, too."""
        selective = selective or self.is_filtering
        self.queue.set_selective(self, selective)

    def restore(self, count: int, size: int, window: int) -> None:
        """Return the cost of completed transfers to the credit, in window mode."""
        if not self.is_window_mode or window != self.window_id:
            return
        if self.credit_messages >= 0:
            self.credit_messages += count
        if self.credit_bytes >= 0:
            self.credit_bytes += count * size
        self.queue.unpark(self)

    # --- Deliveries ---------------------------------------------------------------------------

    def attach(self) -> None:
        """Encode the beginning of each transfer for the connection of the session."""
        if self.session.connection is not None:
            self.transfer_head = self.sent.transfer_head(self.method)

    def deliver(self, message: Message) -> None:
        data = message.data
        address_len = message.address_len
        position = address_len + 2
        parts = message.parts
        if message.flags & C_KIND_MASK == C_KIND_TRANSFER:
            header = data
            header_start = position + 4
            header_end = header_start + get32(data, position)
            body = data
            body_start = header_end
            body_end = len(data)
        else:
            if self.queue.is_stream:
                data = with_offset(data, address_len, message.seq, message.deadline_ms)
            header_end = get32(data, position + 3)
            body_start = position + 8 + header_end
            body_end = len(data)
            try:
                header = self.converter.header_for_transfer(
                    data, address_len, position + 7, header_end
                )
            except CannotConvert as error:
                self.queue.on_unconvertible(message, self, error.reason)
                return
            header_start = 0
            header_end = len(header)
            body = data
            if body_start < body_end:
                if body_start + 8 + get32(data, body_start + 3) == body_end:
                    body_start += 7
                    body_end -= 1
                else:
                    body = join_body_frames(data, body_start, body_end)
                    body_start = 0
                    body_end = len(body)
        # Keeps 0-10/s067.
        if message.flags & C_REDELIVERED and not header[header_start + 6] & 4:
            header = (
                cut(header, header_start, header_start + 6)
                + bytes((header[header_start + 6] | 4,))
                + cut(header, header_start + 7, header_end)
            )
            header_end -= header_start
            header_start = 0
        if parts is not None:
            number = self.sent.send_transfer_parts(
                self.transfer_head, cut(header, header_start, header_end), parts
            )
        else:
            number = self.sent.send_transfer(
                self.transfer_head, header, header_start, header_end, body, body_start, body_end
            )
        if not self.no_ack:
            self.tally.deliver += 1
            self.deliveries.unsettled.add(number, message)
        else:
            self.tally.deliver_no_ack += 1
            if self.is_browser:
                self.deliveries.record_browsed(number, message, self)
        if self.has_limits:
            self.windows.charge(self, number, header_end - header_start + message.body_size)

    def put(
        self, buffer: bytes | bytearray, start: int, address_len: int, end: int, redelivered: int
    ) -> int:
        position = start + address_len + 2
        size = get32(buffer, position + 3)
        try:
            header = self.converter.transfer_at(buffer, start, address_len, position + 7, size)
        except CannotConvert as error:
            message = new_message(cut(buffer, start, end), address_len, 0)
            self.queue.on_unconvertible(message, self, error.reason)
            return 0
        body_start = position + 8 + size
        if body_start >= end:
            self.put_transfer(header, buffer, end, end)
        elif body_start + 8 + get32(buffer, body_start + 3) == end:
            self.put_transfer(header, buffer, body_start + 7, end - 1)
        else:
            body = join_body_frames(cut(buffer, body_start, end), 0, end - body_start)
            self.put_transfer(header, body, 0, len(body))
        return 0

    def put_transfer(
        self, header: bytes, buffer: bytes | bytearray, body_start: int, body_end: int
    ) -> int:
        """Send a message straight from a buffer; ``header`` is a complete header segment."""
        size = len(header)
        self.tally.deliver_no_ack += 1
        number = self.sent.send_transfer(
            self.transfer_head, header, 0, size, buffer, body_start, body_end
        )
        if self.has_limits:
            self.windows.charge(self, number, size + body_end - body_start)
        return 0

    def on_redelivery(self) -> None:
        self.tally.redeliver += 1

    def delay_deliveries(self, position: int) -> None:
        connection = self.session.connection
        if connection is not None:
            connection.hold(self.queue.store, position)

    def on_cancel(self) -> None:
        self.session.on_subscription_cancelled(self)

    def on_scan_end(self) -> None:
        if self.flush_id >= 0:
            self.session.end_flush(self)

    def on_queue_end(self) -> None:
        self.session.on_subscription_ended(self)

    def on_failure(self, error: Exception) -> None:
        self.session.on_subscription_failed(self, error)


class WindowCredit:
    """The transfers of one session that return window credit once they are completed."""

    def __init__(self) -> None:
        self.runs: deque[Run] | None = None  # None until the first transfer with limits.
        self.last_run: Run | None = None

    def charge(self, subscription: Subscription, number: int, size: int) -> None:
        """Subtract the cost of a sent transfer from the credit of its subscription."""
        if subscription.credit_messages > 0:
            subscription.credit_messages -= 1
        if subscription.credit_bytes > 0:
            subscription.credit_bytes = max(0, subscription.credit_bytes - size)
        if not subscription.is_window_mode:
            return
        runs = self.runs
        if runs is None:
            runs = self.runs = deque()
        if runs:
            run = self.last_run
            assert run is not None
            if (
                run.subscription is subscription
                and run.size == size
                and run.window == subscription.window_id
                and run.first + run.count == number
            ):
                run.count += 1
                return
            if len(runs) >= RUNS_MAX:
                runs.popleft()  # The transfers of the dropped run return no credit.
        self.last_run = Run(number, subscription, size)
        runs.append(self.last_run)

    def completed(self, first: int, last: int) -> None:
        """Return window credit for commands that the client has completed."""
        runs = self.runs
        while runs:
            run: Run = runs[0]
            before = (run.first - first) & SERIAL_MASK
            if before & SERIAL_SIGN:  # An earlier transfer of the run is not completed.
                self.complete_out_of_order(first, last)
                return
            last_distance = (last - run.first) & SERIAL_MASK
            if last_distance & SERIAL_SIGN:
                return  # The run begins after the completed commands.
            completed_count = last_distance + 1
            if completed_count >= run.count:
                runs.popleft()
                run.subscription.restore(run.count, run.size, run.window)
                continue
            run.first = (run.first + completed_count) & SERIAL_MASK
            run.count -= completed_count
            run.subscription.restore(completed_count, run.size, run.window)
            return

    def complete_out_of_order(self, first: int, last: int) -> None:
        """Return window credit as :meth:`completed`, checking every run."""
        assert self.runs is not None
        open_runs: deque[Run] = deque()
        restored: list[tuple[Subscription, int, int, int]] = []
        for run in self.runs:
            # The completed part of the run.
            start = max(0, serial_distance(run.first, first))
            end = min(run.count, serial_distance(run.first, last) + 1)
            if start >= end:
                open_runs.append(run)
                continue
            restored.append((run.subscription, end - start, run.size, run.window))
            if start:
                before = Run(run.first, run.subscription, run.size)
                before.window = run.window
                before.count = start
                open_runs.append(before)
            if end < run.count:
                after = Run((run.first + end) & SERIAL_MASK, run.subscription, run.size)
                after.window = run.window
                after.count = run.count - end
                open_runs.append(after)
        self.runs = open_runs
        for run in open_runs:
            self.last_run = run
        for subscription, count, size, window in restored:
            subscription.restore(count, size, window)
