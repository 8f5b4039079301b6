# SPDX-License-Identifier: Apache-2.0
"""The broker's channel of a 0-8, 0-9 or 0-9-1 client: settlements and confirms.

A channel is built of three classes. :class:`.content_writer.ContentWriter` writes contents.
:class:`Deliveries` derives from it and holds the delivery tags and unsettled messages; a
:class:`BasicConsumer` uses its channel as this class. :class:`Channel` adds settlements, confirms
and transactions.
"""

from typing import TYPE_CHECKING

import cython

if not cython.compiled:
    from headrace.gateway.messages.pending_confirms import ANSWER_NACK as C_ANSWER_NACK
    from headrace.gateway.messages.unsettled import SETTLE_ACCEPT as C_ACCEPT
    from headrace.gateway.messages.unsettled import SETTLE_REQUEUE as C_REQUEUE
    from headrace.gateway.v0_x.channel.consumer import BasicConsumer, GetConsumer
    from headrace.gateway.v0_x.channel.deliveries import Deliveries
    from headrace.gateway.v0_x.peer import Peer
    from headrace.model.message import Message
    from headrace.model.queue.destination import Consumer
    from headrace.model.tallies import ChannelTally

from headrace.model.errors import PreconditionFailed
from headrace.model.queue_kinds.multi_queue import head_consumer, restore_credit, unpark_head

if TYPE_CHECKING:
    from headrace.gateway.conversion.convert import Converter
    from headrace.gateway.messages.distributor import Publish
    from headrace.model.queue.queue import Queue
    from headrace.model.transaction.transaction import Transaction


class Channel(Deliveries):
    """A channel of one client: settlements, confirms and its transaction."""

    def __init__(self, number: int, connection: Peer) -> None:
        Deliveries.__init__(self, number, connection)
        #: Requeued overdue deliveries, by tag: consumer and body size in bytes.
        self.overdue: dict[int, tuple[BasicConsumer, int]] | None = None
        self.consumer_prefetch = 0  # The prefetch of consumers that start later; 0 is no limit.
        self.get_consumers: dict[tuple[str, bool], GetConsumer] | None = None
        self.converter: Converter | None = None  # Converts messages from 0-10 for basic.get.
        self.last_queue = ""
        self.reply_queue: Queue | None = None  # The queue of replies by direct reply-to.
        self.confirms = False
        self.publish_seq = 0  # The number of the latest publish in confirm mode.
        self.confirmed_seq = 0  # The number of the latest publish that was confirmed to the client.
        self.queued_seq = 0  # The number of the latest publish in the queue of pending confirms.
        self.is_unflushed = False  # True: publishes of this read are not in that queue yet.
        self.store_turn = 0  # The store's turn in which the first of these publishes was received.
        self.tx = False
        self.tx_publishes: list[Publish] | None = None
        self.tx_settles: dict[int, int] | None = None
        self.tx_bytes = 0
        self.dtx = False  # True, and ``tx`` too: a coordinator decides the channel's transactions.
        self.transaction: Transaction | None = None  # The transaction of the channel's branch.
        self.plug_ins: dict[type, object] | None = None  # The states of plug-ins, by class.
        self.deferred_confirms: list[int] | None = None  # Confirms that wait while a body is sent.

    def update_tally(self) -> ChannelTally:
        self.tally.publish_confirm = self.publish_seq
        return Deliveries.update_tally(self)

    # --- Settlement ---------------------------------------------------------------------------

    def is_unsettled(self, tag: int) -> bool:
        """Return True if a delivery tag names an unsettled message."""
        if self.tx_settles is not None and tag in self.tx_settles:
            return False
        return self.unsettled.find(tag) is not None

    # Keeps 0-9-1/s001, 0-9-1/s109, 0-9-1/s111, 0-9/delivery-tag#channel-local,
    # 0-9/basic.ack.multiple#01.
    def check_tag(self, tag: int) -> None:
        """Refuse a delivery tag that names no unsettled message of this channel."""
        if not self.is_unsettled(tag):
            raise PreconditionFailed(f"unknown delivery tag {tag}")

    # Keeps 0-9-1/s110, 0-9-1/basic#10, 0-9/basic#10.
    def settle(self, tag: int, multiple: bool, outcome: int) -> None:
        """Settle one delivery, or all up to it; tag 0 with ``multiple`` means all."""
        if multiple and tag == 0:
            if not self.unacked:
                return
            tag = self.tag
        elif self.tx or self.unsettled.find(tag) is None:
            if self.overdue is None or tag not in self.overdue:
                self.check_tag(tag)
            elif not multiple:
                self.settle_overdue(tag)
                return
        if self.tx:
            self.settle_in_transaction(tag, multiple, outcome)
        elif multiple:
            self.settle_range(tag, outcome)
        else:
            self.settle_one(tag, outcome)

    def settle_one(self, tag: int, outcome: int) -> None:
        """Settle the unsettled delivery with this tag."""
        message = self.unsettled.pop(tag)
        assert message is not None, "the tag is unsettled"
        consumer = message.consumer
        self.apply_outcome(message, consumer, outcome)
        self.unpark_consumers(consumer)

    def settle_range(self, tag: int, outcome: int) -> None:
        """Settle every unsettled delivery up to this tag."""
        unsettled = self.unsettled
        last: Consumer | None = None
        if self.overdue:
            for overdue_tag in sorted(self.overdue):
                if overdue_tag <= tag:
                    self.settle_overdue(overdue_tag)
        if unsettled.spilled:
            for spilled_tag in unsettled.spilled_numbers(0, tag):
                self.settle_one(spilled_tag, outcome)
        while True:
            message = unsettled.pop_first(tag)
            if message is None:
                break
            consumer = cython.cast(Consumer, message.consumer)  # Every unsettled message has one.
            if consumer is not last:
                if last is not None:
                    self.unpark_consumers(last)
                last = consumer
            self.apply_outcome(message, consumer, outcome)
        if last is not None:
            self.unpark_consumers(last)

    def apply_outcome(self, message: Message, consumer: Consumer, outcome: int) -> None:
        """Apply an outcome to one message."""
        self.unacked -= 1
        self.unacked_bytes -= message.body_size
        self.connection.unacked -= 1
        inner = False  # True: the consumer is the one of a single queue of a multi-queue consumer.
        if isinstance(consumer, BasicConsumer):
            self.release_credit(consumer)
        elif not isinstance(consumer, GetConsumer):
            restore_credit(consumer)
            inner = True
        queue = consumer.queue
        if outcome == C_ACCEPT:
            self.tally.ack += 1
        if self.transaction is not None:
            self.transaction.settle(queue, message, outcome)
        elif outcome == C_ACCEPT:
            queue.settle(message)
        elif outcome == C_REQUEUE:
            queue.requeue(message)
        else:
            queue.discard(message)
        if inner:
            unpark_head(consumer)

    def release_credit(self, consumer: BasicConsumer) -> None:
        """Subtract one unacked message from the consumer's count."""
        consumer.unacked -= 1

    def unpark_consumers(self, consumer: Consumer) -> None:
        """Unpark the consumers that lacked credit, as a delivery to ``consumer`` is settled."""
        if self.connection.prefetch:
            channels = [cython.cast(Channel, c) for c in self.connection.channels.values()]
            unpark_in_turn(channels, consumer)
        elif self.prefetch or self.prefetch_size:
            unpark_in_turn([self], consumer)
        elif consumer.is_parked:
            consumer.queue.unpark(consumer)
        if consumer.queue.ready.count:
            consumer.queue.drain()

    def settle_in_transaction(self, tag: int, multiple: bool, outcome: int) -> None:
        """Keep an outcome for the commit, or in dtx mode add it to the branch."""
        if self.dtx:
            check_branch(self).check_room(self.unacked)
            if multiple:
                self.settle_range(tag, outcome)
            else:
                self.settle_one(tag, outcome)
            return
        if self.tx_settles is None:
            self.tx_settles = {}
        if not multiple:
            self.tx_settles[tag] = outcome
            return
        for unsettled_tag, _ in self.unsettled.entries(tag):
            if unsettled_tag not in self.tx_settles:
                self.tx_settles[unsettled_tag] = outcome

    # --- Requeued deliveries ------------------------------------------------------------------

    def requeue_overdue(self, consumer: Consumer, last: int) -> None:
        """Requeue a consumer's overdue deliveries up to the tag ``last``."""
        queue = consumer.queue
        for tag in self.unsettled.delivery_numbers(consumer, last):
            message = self.unsettled.pop(tag)
            assert message is not None, "the tag is the consumer's"
            if self.overdue is None:
                self.overdue = {}
            self.overdue[tag] = (head_consumer(consumer), message.body_size)
            if self.tx_settles is not None:
                self.tx_settles.pop(tag, None)
            queue.requeue(message)
        queue.drain()

    def settle_overdue(self, tag: int) -> None:
        """Settle a delivery that was requeued as overdue: only its credit is released."""
        self.unpark_consumers(self.release_overdue(tag))

    def release_overdue(self, tag: int) -> BasicConsumer:
        """Release the credit of a requeued overdue delivery; return its consumer."""
        consumer: BasicConsumer
        assert self.overdue is not None
        consumer, body_size = self.overdue.pop(tag)
        self.unacked -= 1
        self.unacked_bytes -= body_size
        self.connection.unacked -= 1
        self.release_credit(consumer)
        return consumer

    def pop_unsettled(self) -> list[Message]:
        """Remove and return the unsettled messages, oldest first.

        Messages that the channel's transaction settles stay, for the commit.
        """
        messages: list[Message] = []
        settled = self.tx_settles or ()
        entries = self.unsettled.entries(self.tag)
        self.unsettled.clear()
        for tag, message in entries:
            if tag in settled:
                self.unsettled.add_spilled(tag, message)
            else:
                messages.append(message)
        for message in messages:
            consumer = message.consumer
            self.unacked -= 1
            self.unacked_bytes -= message.body_size
            self.connection.unacked -= 1
            if isinstance(consumer, BasicConsumer):
                self.release_credit(consumer)
            else:
                restore_credit(consumer)
        return messages

    def requeue_all(self) -> None:
        """Return every unsettled message to its queue, then let the queues deliver."""
        queues: dict[Queue, None] = {}
        for message in self.pop_unsettled():
            queue = message.consumer.queue
            queue.requeue(message)
            queues[queue] = None
        if self.consumers is not None:
            for consumer in list(self.consumers.values()):
                if consumer.is_parked:
                    consumer.queue.unpark(consumer)
        for queue in queues:
            queue.drain()

    # --- Confirms -----------------------------------------------------------------------------

    def record_publish(self) -> None:
        """Record a publish in confirm mode."""
        self.publish_seq += 1
        if not self.is_unflushed:
            self.is_unflushed = True
            self.store_turn = self.connection.pending_confirms.store.turn
            self.connection.unflushed.append(self)

    def nack_publish(self) -> None:
        """Nack a publish that an overflow policy or a full store rejected."""
        self.publish_seq += 1
        pending_confirms = self.connection.pending_confirms
        if self.publish_seq - 1 > self.queued_seq:
            pending_confirms.join(self, self.publish_seq - 1)
        self.queued_seq = self.publish_seq
        pending_confirms.join(self, self.publish_seq | C_ANSWER_NACK)

    def flush_confirms(self) -> None:
        """Join the queue of pending confirms once for all publishes of a read."""
        self.is_unflushed = False
        if self.publish_seq > self.queued_seq:
            is_first = self.confirmed_seq == self.queued_seq
            self.queued_seq = self.publish_seq
            self.connection.pending_confirms.join_publishes(
                self, self.publish_seq, self.store_turn, is_first
            )

    def on_released(self, token: int) -> None:
        """Confirm or refuse publishes: the log is durable, or consumers have settled them."""
        self.connection.send_confirm(self, token)


def unpark_in_turn(channels: list[Channel], last: Consumer) -> None:
    """Unpark the consumers that lacked credit, those after ``last`` first and ``last`` at the end.

    The queues of consumers that share credit thus take turns.
    """
    waiting = [
        consumer
        for channel in channels
        if channel.consumers is not None
        for consumer in channel.consumers.values()
    ]
    if last in waiting:
        start = waiting.index(last) + 1
        waiting = waiting[start:] + waiting[:start]
    for consumer in waiting:
        if consumer.is_parked:
            consumer.queue.unpark(consumer)


def check_branch(channel: Channel) -> "Transaction":
    """Return the transaction of the branch of a channel in dtx mode.

    Raises:
        PreconditionFailed: the channel has no branch.
    """
    if channel.transaction is None:
        raise PreconditionFailed("no transaction was started on this channel")
    return channel.transaction
