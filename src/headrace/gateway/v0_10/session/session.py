# SPDX-License-Identifier: Apache-2.0
"""The broker's session of a 0-10 client: settlements, subscriptions, and its end.

A session is composed of objects that use it as a :class:`SessionContext`. :class:`Deliveries` holds
unsettled messages, :class:`WindowCredit` returns credit, :class:`Completion` completes commands,
:class:`ParsedTransfer` holds a parsed transfer, and :class:`TransferReceiver` publishes it.
"""

from typing import TYPE_CHECKING

import cython

if not cython.compiled:
    from headrace.gateway.v0_10.session.completion import Completion
    from headrace.gateway.v0_10.session.context import SessionContext
    from headrace.gateway.v0_10.session.deliveries import Deliveries, check_sent
    from headrace.gateway.v0_10.session.subscription import Subscription, WindowCredit
    from headrace.gateway.v0_10.session.transfer import ParsedTransfer
    from headrace.gateway.v0_10.session.transfer_receiver import TransferReceiver
    from headrace.model.queue.queue import Queue
    from headrace.protocol.v0_10.session.port import ATTACHED as C_ATTACHED
    from headrace.protocol.v0_10.session.session import Session
    from headrace.wire.memory import get32

from headrace.gateway.messages.pending_confirms import NOT_DURABLE
from headrace.gateway.messages.unsettled import SETTLE_ACCEPT, SETTLE_DISCARD, SETTLE_REQUEUE
from headrace.gateway.v0_10.errors import translate
from headrace.model.errors import ModelError
from headrace.model.queue_kinds.multi_queue import pooled_queues
from headrace.protocol.codec_0_10 import MessageCancel, Struct
from headrace.protocol.errors_0_10 import ExecutionError
from headrace.spec.reply_0_10 import ExecutionCode

if TYPE_CHECKING:
    from headrace.gateway.v0_10.session.context import AttachingConnection
    from headrace.model.queue.destination import Consumer
    from headrace.protocol.v0_10.session_connection import SessionConnection

SERIAL_MASK = 0xFFFFFFFF  # A named constant: Cython makes an object of such a literal.
# The outcomes of gateway/messages/unsettled.py, as C numbers for the hot path.
ACCEPT = SETTLE_ACCEPT
REQUEUE = SETTLE_REQUEUE
DISCARD = SETTLE_DISCARD
SUBSCRIBE = 0x0407  # The code of message.subscribe in execution.exception.
ENDED_MAX = 256  # Destinations that a session remembers of subscriptions that the broker ended.


class Session010(SessionContext):
    """A client's session at the broker; it may outlive its connection."""

    def __init__(self, name: bytes, connection: "AttachingConnection") -> None:
        """``connection`` is the first that attaches the session."""
        SessionContext.__init__(self, name, connection)
        self.deliveries = Deliveries(self)
        self.windows = WindowCredit()
        self.completion = Completion(self, connection.pending_confirms)
        self.transfer_receiver = TransferReceiver(self, ParsedTransfer(self), self.completion)
        self.subscriptions: dict[str, Subscription] = {}
        self.consumers: dict[str, Consumer] | None = None  # Consumers of files and packets, by tag.
        self.plug_ins: dict[type, object] | None = None  # The states of plug-ins, by class.
        self.selected_tx = False
        self.selected_dtx = False

    def attach_to(self, connection: "SessionConnection") -> None:
        """Attach the session to a connection of the same user, whose permissions may differ."""
        self.number = connection.number
        self.user = connection.user
        self.transfer_receiver.attach_to(connection)

    def complete_when_durable(self, result: Struct | None = None) -> bool:
        """Call :meth:`Completion.complete_when_durable`."""
        return self.completion.complete_when_durable(result)

    def send_result_in_order(self, result: Struct) -> bool:
        """Call :meth:`Completion.send_result_in_order`."""
        return self.completion.send_result_in_order(result)

    # --- Settling -----------------------------------------------------------------------------

    def accept(self, buffer: bytes | bytearray, start: int, end: int) -> None:
        """Accept the transfers of the ranges in ``buffer[start:end]``, 8 bytes each."""
        while start < end:
            last = get32(buffer, start + 4)
            check_sent(last, self.sent.next_id)
            self.deliveries.settle_range(get32(buffer, start), last, ACCEPT)
            start += 8
        self.finish_settling()

    def settle_ranges(self, ranges: list[tuple[int, int]], outcome: int) -> None:
        """Settle the deliveries of these ranges."""
        deliveries = self.deliveries
        for first, last in ranges:
            deliveries.settle_range(first, last, outcome)
            if deliveries.browsed and outcome != ACCEPT:
                deliveries.remove_browsed(first, last)
            if deliveries.tx_settled and outcome != ACCEPT and outcome != DISCARD:
                deliveries.record_returns(first, last, outcome)
        self.finish_settling()

    # Keeps 0-10/s044.
    def finish_settling(self) -> None:
        """Dispatch from queues that messages returned to; complete the command, perhaps later."""
        deliveries = self.deliveries
        deliveries.drain_returned_queues()
        if deliveries.has_settled_durable or self.completion.batch is not None:
            deliveries.has_settled_durable = False
            self.completion.join(False)
        else:
            self.received.complete(self.command_id)

    def requeue_lost(self, first: int, last: int) -> None:
        """Requeue deliveries that were lost with a connection."""
        self.deliveries.settle_range(first, last, REQUEUE)
        self.deliveries.remove_browsed(first, last)
        if self.windows.runs:
            self.windows.completed(first, last)
        self.deliveries.drain_returned_queues()

    def requeue_overdue(self, subscription: Subscription, last: int) -> None:
        """Requeue overdue deliveries of a subscription."""
        for number in self.deliveries.unsettled.delivery_numbers(subscription, last):
            self.deliveries.settle_range(number, number, REQUEUE)
        self.deliveries.drain_returned_queues()

    # --- Subscriptions ------------------------------------------------------------------------

    def refresh_all(self) -> None:
        """Let all queues deliver again: the output has room, or the session is attached."""
        if self.consumers is not None:
            for consumer in list(self.consumers.values()):
                consumer.queue.unpark(consumer)
        for subscription in list(self.subscriptions.values()):
            subscription.queue.unpark(subscription)
            if subscription.flush_id >= 0:
                self.continue_flush(subscription)

    def continue_flush(self, subscription: Subscription) -> None:
        """Complete a message.flush when all ready messages were sent, or the credit is spent."""
        subscription.queue.drain()
        if subscription.flush_id >= 0 and not subscription.is_scanning:
            self.end_flush(subscription)

    # Keeps 0-10/s100.
    def end_flush(self, subscription: Subscription) -> None:
        """End a flush: all ready messages were offered to a subscription."""
        queue = subscription.queue
        if subscription.credit_messages and subscription.credit_bytes and not queue.deleted:
            connection = self.connection
            if connection is None or connection.is_full():
                return  # Delivery resumes when the client has read the output.
        number = subscription.flush_id
        subscription.flush_id = -1
        subscription.stop()
        self.complete(number)
        if self.connection is not None:
            self.connection.announce_later()  # The search may have ended after the read.

    # Keeps 0-10/s090.
    def on_subscription_cancelled(self, subscription: Subscription) -> None:
        """End the session of a subscription whose queue was deleted (0-10/s090)."""
        connection = self.connection
        if connection is not None and connection.is_from_qpid and subscription.lacks_credit():
            return  # The client gets the error when it next grants credit.
        self.subscriptions.pop(subscription.tag, None)
        if self.is_released or subscription.cancelled_by_client:
            return
        self.fail_subscription(
            subscription,
            ExecutionError(
                ExecutionCode.RESOURCE_DELETED, f"queue '{subscription.queue.name}' was deleted"
            ),
        )

    def on_subscription_ended(self, subscription: Subscription) -> None:
        """Send message.cancel for a subscription that has reached its end."""
        self.subscriptions.pop(subscription.tag, None)
        if self.is_released:
            return
        self.ended_tags[subscription.tag] = None
        if len(self.ended_tags) > ENDED_MAX:
            del self.ended_tags[next(iter(self.ended_tags))]
        if subscription.flush_id >= 0:
            self.complete(subscription.flush_id)
            subscription.flush_id = -1
        self.send_command(MessageCancel(destination=subscription.tag))

    def on_subscription_failed(self, subscription: Subscription, error: Exception) -> None:
        """End the session of a subscription whose stream cannot be read."""
        self.subscriptions.pop(subscription.tag, None)
        if not self.is_released and isinstance(error, ModelError):
            self.fail_subscription(subscription, translate(error))

    def fail_subscription(self, subscription: Subscription, error: ExecutionError) -> None:
        """End the session for an error of one of its subscriptions."""
        connection = self.connection
        if connection is None:
            self.ended = True
            self.end()
            return
        current, number = connection.current, self.command_id
        connection.current = SUBSCRIBE
        self.command_id = subscription.number
        self.fail(error)
        connection.current, self.command_id = current, number

    def fail_changes(self) -> None:
        """End the session if it waits for a change of definitions that cannot be written."""
        completion = self.completion
        if completion.failure is not None:
            completion.end_for_failure()
            return
        batch = completion.first_change()
        if batch is not None and not self.is_released:
            error = ExecutionError(ExecutionCode.RESOURCE_LIMIT_EXCEEDED, NOT_DURABLE)
            completion.fail_command(error, batch.change, batch.first)

    # --- The end of the session ---------------------------------------------------------------

    def fail(self, error: ExecutionError) -> None:
        """End the session with an error, after the commands that wait to become durable."""
        if self.completion.failure is not None:
            return  # The session has failed already.
        if self.state != C_ATTACHED or not self.completion.delay_failure(error):
            self.fail_now(error)
        else:
            self.release_resources()

    def end(self) -> None:
        """Release everything that the session holds: it has ended."""
        Session.end(self)
        self.release_resources()

    # Keeps 0-10/s066.
    def release_resources(self) -> None:
        """Cancel subscriptions, requeue unsettled messages, roll back the transaction."""
        if self.is_released:
            return
        self.is_released = True
        self.completion.batch = None
        self.transfer_receiver.transfer.clear()
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
        for message in self.deliveries.pop_unsettled():
            queue = message.consumer.queue
            queue.requeue(message)
            queues[queue] = None
        for queue in queues:
            queue.drain()
        for subscription in subscriptions:
            self.leave_queue(subscription.queue)
        self.windows.runs = None
        self.context.context.add_ended_channel(self.vhost, "0-10", self.tally, self.number)
        self.vhost.on_connection_closed(self)

    def leave_queue(self, queue: Queue) -> None:
        """Delete an auto-delete queue whose last subscription has ended."""
        for part in pooled_queues(queue):
            if part.single_active and part.ready_count:
                part.drain()  # Another consumer is active now.
            if (
                part.exclusive_owner is self
                and not self.is_released
                and part is not self.reply_queue
            ):
                continue  # The session's end deletes the queue (0-10/s188).
            if part.auto_delete and not part.deleted and not part.consumer_count():
                self.vhost.on_queue_unused(part)
