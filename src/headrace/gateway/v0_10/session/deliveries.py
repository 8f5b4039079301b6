# SPDX-License-Identifier: Apache-2.0
"""The unsettled deliveries of a 0-10 session.

A delivery is a message.transfer command of the broker, identified by its command id. Ids count up
by one for all commands that a session sends, so :class:`Unsettled` treats them like delivery tags.
"""

from typing import TYPE_CHECKING

import cython

if not cython.compiled:
    from headrace.gateway.messages.unsettled import Unsettled
    from headrace.gateway.v0_10.session.context import SessionContext
    from headrace.model.message import Message
    from headrace.model.queue.destination import Consumer

from headrace.gateway.messages.unsettled import (
    SETTLE_ACCEPT,
    SETTLE_DISCARD,
    SETTLE_RELEASE,
    SETTLE_REQUEUE,
)
from headrace.protocol.errors_0_10 import ExecutionError
from headrace.spec.reply_0_10 import ExecutionCode

if TYPE_CHECKING:
    from headrace.model.queue.queue import Queue

ID_BITS = 32  # The bits of a command id.
BROWSED_MAX = 65536  # Browsed messages that a session may still acquire; the oldest are dropped.
SERIAL_MASK = 0xFFFFFFFF  # Named constants: Cython makes objects of such literals.
SERIAL_SIGN = 0x80000000
SERIAL_SPAN = 1 << 32

TRANSFERS = 0  # The index of the field that names the transfers to settle or acquire.
# The outcomes of gateway/messages/unsettled.py, as C numbers for the hot path.
ACCEPT = SETTLE_ACCEPT
REQUEUE = SETTLE_REQUEUE
DISCARD = SETTLE_DISCARD
RELEASE = SETTLE_RELEASE


class Deliveries:
    """The unsettled deliveries of one session, and its browsed ones that can be acquired."""

    def __init__(self, session: SessionContext) -> None:
        self.session = session
        self.unsettled = Unsettled(ID_BITS)
        self.browsed: dict[int, tuple[Message, Consumer]] = {}  # Messages delivered not-acquired.
        self.tx_settled: dict[int, Message] = {}  # Messages accepted in the session's transaction.
        self.tx_returns: dict[int, int] = {}  # The outcomes of such messages after a rollback.
        self.has_settled_durable = False  # The current command settled a durable message.
        self.returned_queues: dict[Queue, None] = {}  # Queues that messages returned to.

    def record_browsed(self, number: int, message: Message, consumer: Consumer) -> None:
        """Record a browsed message, which the client may acquire."""
        browsed = self.browsed
        if len(browsed) >= BROWSED_MAX:
            del browsed[next(iter(browsed))]
        browsed[number] = (message, consumer)

    # --- Settlement ---------------------------------------------------------------------------

    # Keeps 0-10/s079, 0-10/s082, 0-10/s083.
    def settle_range(self, first: int, last: int, outcome: int) -> None:
        """Settle every unsettled delivery from ``first`` to ``last``; other ids are ignored."""
        unsettled = self.unsettled
        spilled = unsettled.spilled
        if spilled:
            for number in unsettled.spilled_numbers(first, last):
                self.apply_outcome(number, spilled.pop(number), outcome)
        ring = unsettled.ring
        if ring is None or not ring.count:
            return
        end = (last - unsettled.base) & SERIAL_MASK
        if end & SERIAL_SIGN:
            return  # The whole range is before the ring.
        index = (first - unsettled.base) & SERIAL_MASK
        if index & SERIAL_SIGN:
            index = 0
        end = min(end + 1, ring.count)
        if index == 0:
            while end:
                message = ring.pop()
                number = unsettled.base
                unsettled.base = (number + 1) & SERIAL_MASK
                end -= 1
                if message is not None:
                    self.apply_outcome(number, message, outcome)
            unsettled.trim()
            return
        while index < end:
            message = ring.get(index)
            if message is not None:
                ring.clear_at(index)
                self.apply_outcome((unsettled.base + index) & SERIAL_MASK, message, outcome)
            index += 1

    def apply_outcome(self, number: int, message: Message, outcome: int) -> None:
        """Apply an outcome to a delivery that was removed from the ring or the dict."""
        self.unsettled.count -= 1
        consumer: Consumer = message.consumer
        queue = consumer.queue
        if outcome == ACCEPT:
            self.session.tally.ack += 1
        if message.position:
            self.has_settled_durable = True
        if outcome != ACCEPT and outcome != DISCARD:
            self.returned_queues[queue] = None
            if outcome == RELEASE:
                queue.release(message)
            else:
                queue.requeue(message)
            return
        if self.session.transaction is not None:
            self.settle_in_transaction(number, message, queue, outcome)
        elif outcome == ACCEPT:
            queue.settle(message)
        else:
            queue.discard(message)

    def settle_in_transaction(
        self, number: int, message: Message, queue: "Queue", outcome: int
    ) -> None:
        """Add an outcome to the session's transaction."""
        transaction = self.session.transaction
        assert transaction is not None
        if not transaction.owns_messages:
            self.tx_settled[number] = message
        transaction.settle(queue, message, outcome)

    def pop_unsettled(self) -> list[Message]:
        """Remove and return every unsettled message, oldest first."""
        messages: list[Message] = [*self.tx_settled.values(), *self.unsettled.messages()]
        self.tx_settled = {}
        self.tx_returns = {}
        self.unsettled.clear()
        self.browsed = {}
        return sorted(messages, key=lambda message: message.seq)

    def drain_returned_queues(self) -> None:
        """Dispatch from the queues that messages returned to."""
        if self.returned_queues:
            returned_queues = self.returned_queues
            self.returned_queues = {}
            for queue in returned_queues:
                queue.drain()

    def remove_browsed(self, first: int, last: int) -> None:
        """Remove browsed messages that the client will not acquire."""
        size = (last - first) & SERIAL_MASK
        for number in [n for n in self.browsed if ((n - first) & SERIAL_MASK) <= size]:
            del self.browsed[number]

    def acquire(self, ranges: list[tuple[int, int]]) -> list[tuple[int, int]]:
        """Acquire browsed messages; return the ids of those that were still available."""
        acquired: list[tuple[int, int]] = []
        for first, last in ranges:
            size = (last - first) & SERIAL_MASK
            for number in [n for n in self.browsed if ((n - first) & SERIAL_MASK) <= size]:
                message, subscription = self.browsed.pop(number)
                if subscription.queue.acquire(message, subscription):
                    self.unsettled.add_spilled(number, message)
                    acquired.append((number, number))
        return acquired

    def record_returns(self, first: int, last: int, outcome: int) -> None:
        """Record the release of accepted messages, for a rollback of the transaction."""
        size = (last - first) & SERIAL_MASK
        for number in self.tx_settled:
            if ((number - first) & SERIAL_MASK) <= size:
                self.tx_returns[number] = outcome

    def undo_settles(self) -> None:
        """Make messages unsettled again that the rolled back transaction had accepted."""
        tx_returns = self.tx_returns
        self.tx_returns = {}
        for number, outcome in tx_returns.items():
            message = self.tx_settled.pop(number, None)
            if message is None:
                continue
            queue = message.consumer.queue
            self.returned_queues[queue] = None
            if outcome == RELEASE:
                queue.release(message)
            else:
                queue.requeue(message)
        self.drain_returned_queues()
        for number, message in self.tx_settled.items():
            self.unsettled.add_spilled(number, message)
        self.tx_settled = {}


def check_sent(last: int, next_id: int) -> None:
    """Refuse to settle or acquire up to the id ``last`` before it is used; ``next_id`` is unused.

    Raises:
        ExecutionError: ILLEGAL_ARGUMENT, about the command's first field, ``transfers``.
    """
    if serial_distance(last, next_id) <= 0:
        raise ExecutionError(
            ExecutionCode.ILLEGAL_ARGUMENT, f"command {last} was not sent yet", TRANSFERS
        )


def serial_distance(a: int, b: int) -> int:
    """Return the steps from command id ``a`` to ``b``, negative when ``b`` comes first."""
    distance = (b - a) & SERIAL_MASK
    return distance - SERIAL_SPAN if distance & SERIAL_SIGN else distance
