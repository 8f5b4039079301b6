# SPDX-License-Identifier: Apache-2.0
"""A channel: its opening and closing, its consumers and their settlements.

`Channel` inherits the rest from three mixins: `Declarations` for the topology, `Publishing` for
publishes and transactions, and `NativeMethods` for the methods of one version. Each is based on
`ChannelBase`, which waits for the link.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Protocol

from headrace.client.channel.arrivals import Arrivals
from headrace.client.channel.closing import AsyncClosing
from headrace.client.channel.consumer import Consumer
from headrace.client.channel.declarations import DECLARED, Arguments, Declarations
from headrace.client.channel.delivery import Delivery, DeliveryBase, read_delivery
from headrace.client.channel.native_methods import NativeMethods
from headrace.client.channel.publishing import UNCONFIRMED_MAX, Mode, Publishing
from headrace.client.errors import (
    ChannelClosed,
    ClientError,
    ConnectionLost,
    Returned,
    UsageError,
    channel_closed,
    fresh,
)
from headrace.protocol.codec_0_x import (
    BasicAck,
    BasicCancel,
    BasicCancelOk,
    BasicConsumeOk,
    BasicDeliver,
    BasicGet,
    BasicGetEmpty,
    BasicGetOk,
    BasicNack,
    BasicQos,
    BasicQosOk,
    BasicRecover,
    BasicRecoverOk,
    BasicReject,
    BasicReturn,
    ChannelClose,
    ChannelCloseOk,
    ChannelFlow,
    ChannelFlowOk,
    ChannelOk,
    ChannelOpen,
    ChannelOpenOk,
    ChannelResume,
    ConfirmSelect,
    ConfirmSelectOk,
    MethodBase,
    QueueDeclareOk,
    TxSelect,
    TxSelectOk,
)
from headrace.protocol.errors import AmqpError
from headrace.spec.reply import ReplyCode

if TYPE_CHECKING:
    from headrace.client.channel.channel_base import ConnectionPort
    from headrace.client.channel.deduplicate import Deduplicator
    from headrace.client.channel.pending_calls import Answer, PendingCall
    from headrace.client.link.link_0_x import Link
    from headrace.protocol.v0_x.channel import DeliveryCollector

log = logging.getLogger(__name__)

PREFETCH = 100


class DeliverySink(Protocol):
    """The upcalls of a channel for the deliveries with one consumer tag."""

    def deliver(self, epoch: int, method: BasicDeliver, header: bytes, body: bytes) -> None:
        """Handle a delivered message."""

    def cancelled(self) -> None:
        """Handle the cancellation of the consumer by the broker."""

    def ended(self) -> None:
        """Handle the end of the consumer's range: no more messages will arrive."""

    def fail(self, error: ClientError) -> None:
        """Handle the end of the channel, which is closed for good."""

    def lost(self) -> None:
        """Handle the loss of the connection, after which the channel may open again."""


class Channel(Declarations, Publishing, NativeMethods, AsyncClosing):
    """One channel of a connection. After a reconnection it is open again, as it was.

    A channel error of the broker raises ChannelClosed and closes the channel for good: open
    another.
    """

    def __init__(
        self,
        connection: ConnectionPort,
        number: int,
        *,
        confirm: bool = True,
        unconfirmed_max: int = UNCONFIRMED_MAX,
        retry_lost: bool = False,
        on_return: Callable[[Returned], None] | None = None,
        resume: bytes = b"",
        consumers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(
            connection,
            number,
            confirm=confirm,
            unconfirmed_max=unconfirmed_max,
            retry_lost=retry_lost,
            on_return=on_return,
        )
        self._qos: list[BasicQos] = []
        self._sinks: dict[str, DeliverySink] = {}
        self.delivery_class = Delivery  # The class of deliveries.
        self._arrivals: Arrivals | None = None  # The deliveries of this opening.
        self._has_distinct = False  # True if a consumer was started with `distinct`.
        self._tag_count = 0
        self.channel_id = resume  # The id that resumes a lost channel in 0-9.
        self._resume = bool(resume)
        self.resumed = {
            tag: self._restore_consumer(queue, tag)
            for tag, queue in (consumers or {}).items()
            if resume
        }

    # Keeps 0-9-1/channel.close-ok#01, 0-9/channel.close-ok#reporting.
    async def close(self) -> None:
        """Close the channel: unconfirmed publishes fail, unacked messages are requeued."""
        if self._error is not None:
            return
        link = self._link
        self._fail(ChannelClosed(200, "the channel was closed by this program"))
        try:
            if link is not None and link.is_open:
                close = ChannelClose(reply_code=200, reply_text="Goodbye")
                await self._calls.exchange(link, close, ChannelCloseOk)
        except ConnectionLost as error:
            log.warning("channel %d ended without channel.close-ok: %s", self.number, error)
        finally:
            self.connection.forget(self)

    # --- Receiving ----------------------------------------------------------------------------

    async def get(self, queue: str, *, no_ack: bool = False) -> Delivery | None:
        """Fetch one message; return None when the queue is empty.

        The message must be settled unless `no_ack` is set. If the call is cancelled, a message that
        arrives afterwards is requeued. Raises NotFound when the queue does not exist.
        """
        link = await self._ready()
        request = BasicGet(ticket=self.ticket, queue=self._name(queue), no_ack=no_ack)
        call = self._calls.send_request(link, request, BasicGetOk, BasicGetEmpty)
        epoch = self._epoch

        def put_back(answer: Answer) -> None:
            method, header, body = answer
            if isinstance(method, BasicGetOk):
                self.put_back([read_delivery(self, epoch, method, header, body, no_ack)])

        call.discard = put_back
        method, header, body = await self._calls.wait_reply(call)
        if not isinstance(method, BasicGetOk):
            return None
        return read_delivery(self, epoch, method, header, body, no_ack)

    def consume(
        self,
        queue: str,
        *,
        prefetch: int = PREFETCH,
        no_ack: bool = False,
        exclusive: bool = False,
        priority: int | None = None,
        tag: str = "",
        arguments: Arguments | None = None,
        distinct: int = 0,
    ) -> Consumer:
        """Return a consumer of the queue: iterate over it to receive messages.

        At most `prefetch` messages are unacked at a time (1 to 65535; 0: no limit). The broker
        prefers consumers with a higher `priority`. With `distinct`, the consumer remembers the
        message ids of that many acked messages: a message with one of these ids is acked and not
        handed out.
        """
        arguments = dict(arguments or {})
        if priority is not None:
            arguments["x-priority"] = priority
        if not tag:
            self._tag_count += 1
            tag = f"ctag{self.number}.{self._tag_count}"
        return Consumer(
            self,
            queue,
            tag,
            prefetch=prefetch,
            no_ack=no_ack,
            exclusive=exclusive,
            arguments=arguments,
            distinct=distinct,
        )

    async def qos(self, count: int = 0, *, size: int = 0, shared: bool = True) -> None:
        """Limit the unacked messages of all consumers together (`shared`), or of each new consumer.

        `count` is in messages (0 to 65535), `size` in bytes; 0 is no limit.
        """
        request = BasicQos(prefetch_count=count, prefetch_size=size, global_=shared)
        await self._call(request, BasicQosOk)
        self._qos = [qos for qos in self._qos if qos.global_ is not shared] + [request]

    async def recover(self, *, requeue: bool = True) -> None:
        """Make the broker redeliver every unacked message of this channel."""
        await self._call(BasicRecover(requeue=requeue), BasicRecoverOk)

    async def settle(self, delivery: Delivery, *, ack: bool, multiple: bool, requeue: bool) -> bool:
        """Ack or refuse a delivery; return False when its connection is lost."""
        is_sent = self.settle_soon(delivery, ack=ack, multiple=multiple, requeue=requeue)
        if self.must_wait():
            await self.can_write()
        return is_sent

    def must_wait(self) -> bool:
        """Return True while the broker does not read as fast as this channel writes."""
        return self._link is not None and not self._link.can_write.is_set()

    async def can_write(self) -> None:
        """Wait until the broker reads again."""
        if self._link is not None:
            await self._link.can_write.wait()

    def deliver_as(self, delivery_class: type[Delivery]) -> None:
        """Make later messages instances of `delivery_class`."""
        self.delivery_class = delivery_class
        if self._arrivals is not None:
            self._arrivals.delivery_class = delivery_class

    def settle_soon(self, delivery: Delivery, *, ack: bool, multiple: bool, requeue: bool) -> bool:
        """Ack or refuse a delivery without waiting for a broker that does not read."""
        if delivery.settled:
            raise UsageError(f"delivery {delivery.delivery_tag} is settled already, or no_ack")
        return self.settle_now(delivery, ack=ack, multiple=multiple, requeue=requeue)

    def settle_now(
        self, delivery: DeliveryBase, *, ack: bool, multiple: bool, requeue: bool
    ) -> bool:
        """Ack or refuse a delivery even if its program has marked it settled."""
        if self._error is not None:
            raise fresh(self._error)
        link = self._link
        if link is None or not self.is_current(delivery.epoch):
            return False
        self._check_transaction()
        tag = delivery.delivery_tag
        if ack:
            link.send_ack(self.number, tag, multiple)
        elif multiple:
            nack = BasicNack(delivery_tag=tag, multiple=True, requeue=requeue)
            link.send(self.number, nack)
        else:
            link.send(self.number, BasicReject(delivery_tag=tag, requeue=requeue))
        delivery.settled = True
        if not self._has_distinct:
            return True
        for consumer in (
            self._deduplicators() if multiple else self._deduplicators(delivery.consumer_tag)
        ):
            consumer.settle(tag, multiple=multiple, ack=ack, is_final=self._mode is not Mode.TX)
        return True

    def _deduplicators(self, tag: str | None = None) -> list[Deduplicator]:
        """Return the deduplication of the consumer with this tag, or of all consumers."""
        sinks = self._sinks.values() if tag is None else (self._sinks.get(tag),)
        return [
            sink.distinct
            for sink in sinks
            if isinstance(sink, Consumer) and sink.distinct is not None
        ]

    # --- For the package: consumers and streams -----------------------------------------------

    async def start_consumer(self, consumer: Consumer) -> None:
        """Send basic.consume for a consumer, and wait for consume-ok."""
        link = await self._ready()
        if consumer.tag in self._sinks:
            raise UsageError(f"consumer tag {consumer.tag!r} is in use on this channel")
        calls = self._send_consume(link, consumer)
        self._sinks[consumer.tag] = consumer
        self._has_distinct = self._has_distinct or consumer.distinct is not None
        consumer.is_started = True
        try:
            for call in calls:
                await self._calls.wait_reply(call)
        except ClientError:
            self._forget_consumer(consumer.tag)
            consumer.is_started = False
            raise

    def begin_cancel(self, consumer: Consumer) -> asyncio.Future[Answer] | None:
        """Send basic.cancel; the future is done when no more deliveries can arrive."""
        if self._link is None or not self._link.is_open:
            self._consumer_cancelled(consumer)
            return None
        call = self._calls.send_request(
            self._link, BasicCancel(consumer_tag=consumer.tag), BasicCancelOk
        )
        self.backpressure.wait_begins()

        def ended(_: asyncio.Future[Answer]) -> None:
            self.backpressure.wait_ends()
            self._consumer_cancelled(consumer)

        call.future.add_done_callback(ended)
        return call.future

    # Keeps 0-9-1/basic.reject#03, 0-9/basic.reject#03.
    def put_back(self, deliveries: Iterable[Delivery]) -> None:
        """Requeue deliveries that were not handed to the program.

        By itself the client rejects only messages that the program did not take or process.
        """
        for delivery in deliveries:
            if not delivery.settled and self._link is not None and self.is_current(delivery.epoch):
                delivery.settled = True
                reject = BasicReject(delivery_tag=delivery.delivery_tag, requeue=True)
                self._link.send(self.number, reject)

    def give_back(self, delivery: DeliveryBase) -> None:
        """Requeue a delivery that the program has in hand, unless it is settled."""
        if not delivery.settled:
            with suppress(ClientError):  # The end of the channel requeues the message.
                self.settle_now(delivery, ack=False, multiple=False, requeue=True)

    async def attach(
        self,
        tag: str,
        sink: DeliverySink,
        requests: Iterable[MethodBase],
        collector: DeliveryCollector | None = None,
        after_read: Callable[[], None] | None = None,
    ) -> None:
        """Send the `requests` (a qos and a consume) of a consumer that is not a `Consumer`.

        In 0-9-1 the deliveries go to the `collector`, and `after_read` is called once after each
        read; in other versions they go to the sink. With a collector, this must be the only
        consumer of the channel.
        """
        link = await self._ready()
        calls = [
            self._calls.send_request(link, request, BasicQosOk, BasicConsumeOk)
            for request in requests
        ]
        self._sinks[tag] = sink
        if collector is not None and after_read is not None:
            link.start_gathering(self.number, collector, after_read)
        try:
            for call in calls:
                await self._calls.wait_reply(call)
        except BaseException:
            self._sinks.pop(tag, None)
            raise

    def stop_gathering(self) -> None:
        """Stop passing deliveries to the collector of `attach`."""
        if self._link is not None:
            self._link.stop_gathering(self.number)

    def ack_up_to(self, delivery_tag: int) -> None:
        """Ack all deliveries up to and including the tag."""
        if self._link is not None and self._link.is_open:
            self._link.send(self.number, BasicAck(delivery_tag=delivery_tag, multiple=True))

    def consumes(self, queue: str) -> bool:
        """Return True if a consumer of this channel consumes from the queue."""
        return any(
            isinstance(sink, Consumer) and self._name(sink.queue) == queue
            for sink in self._sinks.values()
        )

    # --- For the connection -------------------------------------------------------------------

    async def open(self, link: Link) -> None:
        """Open the channel on a link, and restore its mode and qos."""
        self._link = link
        self._epoch += 1
        self._flow.set()
        self.ticket = 0  # A ticket is valid on the channel that requested it only.
        try:
            if self._resume:
                self._resume = False  # A later reconnection opens a new channel.
                resume = ChannelResume(channel_id=self.channel_id)
                await self._calls.exchange(link, resume, ChannelOk)
            else:
                answer = await self._calls.exchange(link, ChannelOpen(), ChannelOpenOk)
                self.channel_id = answer.channel_id
            if self._mode is Mode.TX:
                await self._calls.exchange(link, TxSelect(), TxSelectOk)
            elif self._mode is Mode.CONFIRM:
                await self._calls.exchange(link, ConfirmSelect(), ConfirmSelectOk)
            for qos in self._qos:
                await self._calls.exchange(link, qos, BasicQosOk)
        except BaseException:
            self._link = None
            raise
        self._arrivals = Arrivals(self, self._epoch, self.delivery_class, link.notifiers)
        link.deliver(self.number, self._arrivals)

    async def redo(self, link: Link, method: MethodBase) -> str:
        """Send a declaration or binding again; return the queue's name if it has one."""
        reply = await self._calls.wait_reply(self._calls.send_request(link, method, *DECLARED))
        return reply[0].queue if isinstance(reply[0], QueueDeclareOk) else ""

    async def shut(self, link: Link) -> None:
        """Close a channel that was opened for the package's own use."""
        await self._calls.exchange(link, ChannelClose(reply_code=200), ChannelCloseOk)
        self.connection.forget(self)

    def give_up(self, link: Link) -> None:
        """Close the channel after its opening was cancelled, without waiting for the broker."""
        if not link.is_open:
            self.connection.forget(self)
            return
        # This forgets the pending channel.open, so close-ok is the next reply.
        self._fail(ChannelClosed(200, "its opening was cancelled"))
        close = ChannelClose(reply_code=200, reply_text="Goodbye")
        closing = self._calls.send_request(link, close, ChannelCloseOk)
        closing.future.add_done_callback(lambda _: self.connection.forget(self))

    async def resume(self, link: Link) -> None:
        """Start the consumers again; with `retry_lost`, publish unconfirmed messages again."""
        self._publish_again(link)
        consumers = [sink for sink in self._sinks.values() if isinstance(sink, Consumer)]
        for consumer in consumers:
            try:
                for call in self._send_consume(link, consumer):
                    await self._calls.wait_reply(call)
            except ChannelClosed:
                return  # `_fail` has notified all consumers of the channel.
            except UsageError as error:  # The new broker does not support the consumer's arguments.
                self._forget_consumer(consumer.tag)
                consumer.fail(error)

    def lost(self, error: ClientError, *, final: bool) -> None:
        """Fail the pending requests: the connection was lost, for good if `final`."""
        self._link = None
        self._break_transaction(error)
        self._flow.set()
        self._calls.fail(error)  # The close of a closed channel fails as well.
        if final:
            self._fail(error)
            return
        self._lose_methods()
        for tag, sink in list(self._sinks.items()):
            sink.lost()
            if not isinstance(sink, Consumer):
                del self._sinks[tag]
        if not self._retry_lost:
            self._lose_confirms(error)

    def method_received(self, method: MethodBase) -> None:
        """Handle a method without content."""
        match method:
            case BasicAck():
                self.confirmed(method.delivery_tag, method.multiple)
            case BasicNack():
                self._confirms.settle(method.delivery_tag, method.multiple, acked=False)
            case BasicCancel():
                sink = self._forget_consumer(method.consumer_tag)
                if sink is not None and method.no_wait:
                    sink.cancelled()
                elif sink is not None:  # Headrace cancels the consumer at the end of a range.
                    sink.ended()
                if not method.no_wait and self._link is not None:
                    self._link.send(self.number, BasicCancelOk(consumer_tag=method.consumer_tag))
            case ChannelClose():
                if self._error is None:  # Otherwise both sides closed, and close-ok will follow.
                    where = (method.class_id, method.method_id)
                    self._fail(channel_closed(method.reply_code, method.reply_text, where))
                    self.connection.forget(self)
            # Keeps 0-9-1/channel.flow#02, 0-9/channel.flow#bidirectional.
            case ChannelFlow():
                if method.active:
                    self._flow.set()
                else:
                    self._flow.clear()
                if self._link is not None:
                    self._link.send(self.number, ChannelFlowOk(active=method.active))
            case _:
                if self._calls.is_reply(method) or not self.arrive(method, b"", b""):
                    self._calls.handle_reply(method, b"", b"")

    def content_received(self, method: MethodBase, header: bytes, body: bytes) -> None:
        """Handle a method with content, whose frames are complete."""
        match method:
            case BasicDeliver():
                sink = self._sinks.get(method.consumer_tag)
                if sink is None:
                    raise AmqpError(
                        ReplyCode.COMMAND_INVALID,
                        f"delivery for the unknown consumer {method.consumer_tag!r}",
                    )
                sink.deliver(self._epoch, method, header, body)
            case BasicReturn():
                self._returned(method, header, body)
            case _:
                if self._calls.is_reply(method) or not self.arrive(method, header, body):
                    self._calls.handle_reply(method, header, body)

    def confirmed(self, tag: int, multiple: bool) -> None:
        """Settle an acked publish, with `multiple` all up to its tag."""
        self._confirms.settle(tag, multiple, acked=True)

    def failed(self, error: AmqpError) -> None:
        """Close the channel for good: the broker violated the protocol on it."""
        self._fail(ChannelClosed(error.code.number, error.reply_text, error.method))
        self.connection.forget(self)

    # --- Inside -------------------------------------------------------------------------------

    def _decide(self, *, commit: bool) -> None:
        for distinct in self._deduplicators():
            distinct.decide(commit=commit)

    def _restore_consumer(self, queue: str, tag: str) -> Consumer:
        """Return a started consumer that the broker has kept with a resumed channel."""
        consumer = self.consume(queue, tag=tag)
        consumer.is_started = True
        self._sinks[tag] = consumer
        return consumer

    def _send_consume(self, link: Link, consumer: Consumer) -> list[PendingCall]:
        """Send qos and consume together, so that the qos applies to this consumer alone."""
        calls: list[PendingCall] = []
        if consumer.prefetch and not consumer.no_ack:
            qos = BasicQos(prefetch_count=consumer.prefetch)
            calls.append(self._calls.send_request(link, qos, BasicQosOk))
        request = consumer.request(self._name(consumer.queue))
        self.stamp(request)
        if self._arrivals is not None:
            self._arrivals.inboxes[consumer.tag.encode()] = consumer.inbox
        calls.append(self._calls.send_request(link, request, BasicConsumeOk))
        return calls

    def _forget_consumer(self, tag: str) -> DeliverySink | None:
        """Forget a consumer."""
        if self._arrivals is not None:
            self._arrivals.inboxes.pop(tag.encode(), None)
        return self._sinks.pop(tag, None)

    def _consumer_cancelled(self, consumer: Consumer) -> None:
        """Forget a cancelled consumer, and its auto-delete queue if it was the last consumer."""
        self._forget_consumer(consumer.tag)
        queue = self._name(consumer.queue)
        topology = self.topology
        if topology.is_auto_delete(queue) and not self.connection.consumes(queue):
            topology.forget_queue(queue)

    def _fail(self, error: ClientError) -> None:
        """Close the channel for good: everything under way fails with `error`."""
        if self._error is not None:
            return
        self._error = error
        self._link = None
        self._method_arrived.set()
        self._break_transaction(error)
        self._flow.set()
        self._calls.fail(error)
        for sink in self._sinks.values():
            sink.fail(error)
        self._sinks.clear()
        if isinstance(error, ConnectionLost):
            self._lose_confirms(error)
        else:
            self._confirms.fail_all(error)
