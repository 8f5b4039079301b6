# SPDX-License-Identifier: Apache-2.0
"""A session of a 0-10 client in the broker: what it settles, its subscriptions, its end.

It is made of parts. :class:`Deliveries` has what is unsettled, :class:`WindowCredit` what credit
comes back, :class:`Completion` says when a command is complete, :class:`ParsedTransfer` what a
transfer says, and :class:`Publisher` publishes it. They know the session as a
:class:`SessionContext`.
"""

from typing import TYPE_CHECKING

import cython

if not cython.compiled:
    from headrace.gateway.v0_10.session.completion import Completion
    from headrace.gateway.v0_10.session.context import SessionContext
    from headrace.gateway.v0_10.session.deliveries import Deliveries, serial_distance
    from headrace.gateway.v0_10.session.publisher import Publisher
    from headrace.gateway.v0_10.session.subscription import Subscription, WindowCredit
    from headrace.gateway.v0_10.session.transfer import ParsedTransfer
    from headrace.model.queue.queue import Queue
    from headrace.protocol.v0_10.session.port import ATTACHED as C_ATTACHED
    from headrace.protocol.v0_10.session.session import Session
    from headrace.wire.memory import get32

from headrace.gateway.messages.pending_confirms import NOT_DURABLE
from headrace.gateway.v0_10.errors import translate
from headrace.model.errors import ModelError
from headrace.model.queue_kinds.multi_queue import parts_of
from headrace.protocol.codec_0_10 import MessageCancel, Struct
from headrace.protocol.errors_0_10 import ExecutionError
from headrace.spec.reply_0_10 import ExecutionCode

if TYPE_CHECKING:
    from headrace.gateway.v0_10.session.context import AttachingConnection
    from headrace.model.queue.destination import Consumer
    from headrace.protocol.v0_10.session_connection import SessionConnection

SERIAL_MASK = 0xFFFFFFFF  # A name: as a literal it would be an object when compiled.
ACCEPT = 0  # As in gateway/v0_10/session/deliveries.py.
REQUEUE = 1
DISCARD = 2
UNKNOWN_SUBSCRIPTION = 0x0407  # message.subscribe, as execution.exception names it.
ENDED_MAX = 256  # Tags of subscriptions that we ended, of one session.


class Session010(SessionContext):
    """One session."""

    def __init__(self, name: bytes, connection: "AttachingConnection") -> None:
        """``connection`` is the one that attaches it first."""
        SessionContext.__init__(self, name, connection)
        self.deliveries = Deliveries(self)
        self.windows = WindowCredit()
        self.completion = Completion(self, connection.pending_confirms)
        self.publisher = Publisher(self, ParsedTransfer(self), self.completion)
        self.subscriptions: dict[str, Subscription] = {}
        self.consumers: dict[str, Consumer] | None = None  # Of files and packets, by tag.
        self.plug_ins: dict[type, object] | None = None  # Their states, by kind.
        self.selected_tx = False
        self.selected_dtx = False

    def attached_to(self, connection: "SessionConnection") -> None:
        """A connection of the same user attaches the session, perhaps with other permissions."""
        self.number = connection.number
        self.user = connection.user
        self.publisher.attached_to(connection)

    def later(self, result: Struct | None = None) -> bool:
        """As :meth:`Completion.later`."""
        return self.completion.later(result)

    def answer_with(self, result: Struct) -> bool:
        """As :meth:`Completion.answer_with`."""
        return self.completion.answer_with(result)

    # --- Settling -----------------------------------------------------------------------------

    def accept(self, d: bytes | bytearray, lo: int, hi: int) -> None:
        """Accept the transfers of the ranges in ``d[lo:hi]``, 8 octets each."""
        while lo < hi:
            last = get32(d, lo + 4)
            if serial_distance(last, self.sent.next_id) <= 0:
                raise ExecutionError(
                    ExecutionCode.ILLEGAL_ARGUMENT, f"command {last} was not sent yet", 0
                )
            self.deliveries.settle_range(get32(d, lo), last, ACCEPT)
            lo += 8
        self.finish_settling()

    def settle_ranges(self, ranges: list[tuple[int, int]], outcome: int) -> None:
        """Settle the deliveries of these ranges."""
        deliveries = self.deliveries
        for first, last in ranges:
            deliveries.settle_range(first, last, outcome)
            if deliveries.browsed and outcome != ACCEPT:
                deliveries.forget_browsed(first, last)
            if deliveries.tx_settled and outcome != ACCEPT and outcome != DISCARD:
                deliveries.record_returns(first, last, outcome)
        self.finish_settling()

    def finish_settling(self) -> None:
        """Dispatch what was returned to queues; complete the command, perhaps later."""
        deliveries = self.deliveries
        deliveries.drain_touched()
        if deliveries.durable or self.completion.batch is not None:
            deliveries.durable = False
            self.completion.join(False)
        else:
            self.received.complete(self.command_id)

    def requeue_lost(self, first: int, last: int) -> None:
        """Requeue deliveries that were lost on the way."""
        self.deliveries.settle_range(first, last, REQUEUE)
        self.deliveries.forget_browsed(first, last)
        if self.windows.runs:
            self.windows.completed(first, last)
        self.deliveries.drain_touched()

    def return_late(self, subscription: Subscription, last: int) -> None:
        """Return to the queue what a subscription has held for too long."""
        for number in self.deliveries.unsettled.numbers_of(subscription, last):
            self.deliveries.settle_range(number, number, REQUEUE)
        self.deliveries.drain_touched()

    # --- Subscriptions ------------------------------------------------------------------------

    def refresh_all(self) -> None:
        """Let all queues deliver: there is room, or a connection, again."""
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

    # Keeps 0-10/s100.
    def end_flush(self, subscription: Subscription) -> None:
        """End a flush: all ready messages were offered to a subscription."""
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

    # Keeps 0-10/s090.
    def subscription_cancelled(self, subscription: Subscription) -> None:
        """End the session of a subscription whose queue was deleted (0-10/s090)."""
        connection = self.connection
        if connection is not None and connection.qpid_client and subscription.idle():
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
        completion = self.completion
        if completion.failure is not None:
            completion.end_for_failure()
            return
        batch = completion.first_change()
        if batch is not None and not self.over:
            error = ExecutionError(ExecutionCode.RESOURCE_LIMIT_EXCEEDED, NOT_DURABLE)
            completion.fail_for(error, batch.change, batch.first)

    # --- Ends ---------------------------------------------------------------------------------

    def fail(self, error: ExecutionError) -> None:
        """End the session; the peer is told why, after what is done already and not durable."""
        if self.completion.failure is not None:
            return  # It has failed already.
        if self.state != C_ATTACHED or not self.completion.fail_later(error):
            self.fail_now(error)
        else:
            self.wind_up()

    def end(self) -> None:
        """The session is over, however it came to that: give everything back."""
        Session.end(self)
        self.wind_up()

    def wind_up(self) -> None:
        """Cancel the subscriptions, return what is unsettled, undo what is not committed."""
        if self.over:
            return
        self.over = True
        self.completion.batch = None
        self.publisher.transfer.forget()
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
        for message in self.deliveries.take_unsettled():
            queue = message.consumer.queue
            queue.requeue(message)
            queues[queue] = None
        for queue in queues:
            queue.drain()
        for subscription in subscriptions:
            self.leave_queue(subscription.queue)
        self.windows.runs = None
        self.context.context.channel_ended(self.vhost, "0-10", self.tally, self.number)
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
