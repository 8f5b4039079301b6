# SPDX-License-Identifier: Apache-2.0
"""A session of a 0-10 client in the broker: what it settles, its subscriptions, its end.

It is five classes on top of one another, each of which knows those below it only: :class:`Holder`
is what subscriptions know of it, :class:`Batcher` completes commands, :class:`Transfers` reads what
a transfer says, :class:`Publisher` publishes it; :class:`Session` is the whole.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import cython

if not cython.compiled:
    from headrace.gateway.v0_10.session.publisher import Publisher
    from headrace.gateway.v0_10.session.subscription import Subscription
    from headrace.model.queue.queue import Queue
    from headrace.protocol.v0_10.attachment import ATTACHED as C_ATTACHED
    from headrace.protocol.v0_10.session.session import Session as ProtocolSession
    from headrace.wire.memory import get32

from headrace.gateway.messages.confirm_line import NOT_KEPT
from headrace.gateway.v0_10.errors import translate
from headrace.gateway.v0_10.session.subscription import serial_distance
from headrace.model.errors import ModelError
from headrace.model.queue.multi_queue import parts_of
from headrace.protocol.codec_0_10 import MessageCancel
from headrace.protocol.errors_0_10 import ExecutionError
from headrace.spec.reply_0_10 import ExecutionCode

if TYPE_CHECKING:
    from headrace.model.message import Message

SERIAL_MASK = 0xFFFFFFFF  # A name: as a literal it would be an object when compiled.
ACCEPT = 0  # As in gateway/v0_10/session/subscription.py.
REQUEUE = 1
DISCARD = 2
RELEASE = 3
UNKNOWN_SUBSCRIPTION = 0x0407  # message.subscribe, as execution.exception names it.
ENDED_MAX = 256  # Tags of subscriptions that we ended, of one session.


class Session(Publisher):
    """One session."""

    def __init__(self, name: bytes, gateway: Any) -> None:
        """``gateway`` is the connection that attaches it first."""
        Publisher.__init__(self, name, gateway)
        self.consumers: Any = None  # Those of files and packets, by tag.
        self.reply_queue: Queue | None = None  # Where answers by direct reply-to come.
        self.files: Any = None  # A FileDesk, once used,
        self.packets: Any = None  # and a PacketDesk.
        self.on_end: list[Callable[[], None]] = []
        self.selected_tx = False
        self.selected_dtx = False

    # --- Settling -----------------------------------------------------------------------------

    def accept(self, d: bytes | bytearray, lo: int, hi: int) -> None:
        """The client accepts the transfers of these ranges, 8 octets each."""
        while lo < hi:
            last = get32(d, lo + 4)
            if serial_distance(last, self.sent.next_id) <= 0:
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

    # --- Subscriptions ------------------------------------------------------------------------

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
            if connection is None or connection.is_full():
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
        """A subscription has all it asked for: say so with a message.cancel of ours."""
        self.subscriptions.pop(subscription.tag, None)
        if self.over:
            return
        self.ended_tags[subscription.tag] = None
        if len(self.ended_tags) > ENDED_MAX:
            del self.ended_tags[next(iter(self.ended_tags))]
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

    def cannot_keep(self) -> None:
        """The disk fails: end the session if it waits for a change of definitions."""
        batch: Any
        if self.failure is not None:
            self.tell_failure()
            return
        connection = self.connection
        for batch in self.batches:
            if batch.change and connection is not None and not self.over:
                current, number = connection.current, self.command_id
                connection.current = batch.change
                self.command_id = batch.first
                error = ExecutionError(ExecutionCode.RESOURCE_LIMIT_EXCEEDED, NOT_KEPT)
                ProtocolSession.fail(self, error)
                connection.current, self.command_id = current, number
                return

    # --- Rights -------------------------------------------------------------------------------

    def check_any_access(self, kind: str, name: str) -> None:
        """Refuse to tell whether a thing exists to who has no permission on it at all."""
        self.context.access.check_any(self.user, self.vhost.name, kind, name)

    # --- Ends ---------------------------------------------------------------------------------

    def fail(self, error: ExecutionError) -> None:
        """End the session; the peer is told why, after what is done already and not durable."""
        if self.failure is not None:
            return  # It has failed already.
        if self.state != C_ATTACHED or not self.fail_later(error):
            ProtocolSession.fail(self, error)
        else:
            self.wind_up()

    def tell_failure(self) -> None:
        error, code, command_id = self.failure
        self.failure = None
        connection = self.connection
        if connection is not None:
            current, number = connection.current, self.command_id
            connection.current, self.command_id = code, command_id
            ProtocolSession.fail(self, error)
            connection.current, self.command_id = current, number

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
        if self.selected_tx and self.transaction is not None:
            self.transaction.forget()
        self.transaction = None
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
            if part.single_active and part.ready_count:
                part.drain()  # It is another's turn now.
            if part.exclusive_owner is self and not self.over and part is not self.reply_queue:
                continue  # It goes with the session (0-10/s188).
            if part.auto_delete and not part.deleted and not part.consumer_count():
                self.vhost.queue_unused(part)
