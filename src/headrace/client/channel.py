# SPDX-License-Identifier: Apache-2.0
"""A channel: declare, bind, publish, get, consume, transactions."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterable, Callable, Iterable, Mapping
from enum import Enum
from typing import TYPE_CHECKING, Protocol

from headrace.client.batch import Batch, Transaction, each
from headrace.client.calls import Answer, Call, Calls, Reply
from headrace.client.closing import AsyncClosing
from headrace.client.confirms import Confirms, Publication
from headrace.client.consumer import Consumer, Delivery, read_delivery
from headrace.client.declare import DECLARED, Arguments, Declarations
from headrace.client.errors import (
    ChannelClosed,
    ClientError,
    ConfirmLost,
    ConnectionLost,
    Returned,
    UsageError,
    channel_closed,
    fresh,
)
from headrace.client.message import Content, Message, encode_header, read_message
from headrace.client.native import Native
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
    BasicPublish,
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
    TxCommit,
    TxCommitOk,
    TxRollback,
    TxRollbackOk,
    TxSelect,
    TxSelectOk,
)
from headrace.protocol.errors import AmqpError
from headrace.spec.reply import ReplyCode

if TYPE_CHECKING:
    from headrace.client.connection import Connection
    from headrace.client.distinct import Distinct
    from headrace.client.intake import Intake
    from headrace.client.link import Link
    from headrace.protocol.content import Gatherer

log = logging.getLogger(__name__)

UNCONFIRMED_MAX = 1000
PREFETCH = 100
YIELD_EVERY = 100  # Publishes that need no wait.
FRAMES_YIELD_EVERY = 4  # Buffers of frames.


class Mode(Enum):
    """What a channel does with publishes; the protocol knows no way back to NONE."""

    NONE = "none"
    CONFIRM = "confirm"
    TX = "tx"


class Sink(Protocol):
    """What deliveries with one consumer tag go to."""

    def deliver(self, epoch: int, method: BasicDeliver, header: bytes, body: bytes) -> None:
        """A message came."""

    def cancelled(self) -> None:
        """The broker cancelled the consumer."""

    def ended(self) -> None:
        """The broker has sent all that the consumer asked for."""

    def fail(self, error: ClientError) -> None:
        """The channel is closed for good."""

    def lost(self) -> None:
        """The connection broke."""


class Channel(AsyncClosing, Declarations, Native):
    """One channel of a connection. After a reconnection it is open again, as it was.

    An error of the broker (a ChannelClosed) closes it for good: open another.
    """

    def __init__(
        self,
        connection: Connection,
        number: int,
        *,
        confirm: bool = True,
        unconfirmed_max: int = UNCONFIRMED_MAX,
        retry_lost: bool = False,
        on_return: Callable[[Returned], None] | None = None,
        resume: bytes = b"",
        consumers: Mapping[str, str] | None = None,
    ) -> None:
        Native.__init__(self)
        self.connection = connection
        self.number = number
        self.intake: Intake = connection.intake
        self.topology = connection.topology
        self._confirm = confirm
        self._retry_lost = retry_lost
        self._on_return = on_return
        self._confirms = Confirms(unconfirmed_max)
        self._mode = Mode.NONE
        self._qos: list[BasicQos] = []
        self._link: Link | None = None
        self._epoch = 0
        self._calls = Calls(number, connection.intake)
        self._sinks: dict[str, Sink] = {}
        self._tags = 0
        self._sent = 0  # Publishes that were not waited for.
        self._flow = asyncio.Event()
        self._flow.set()
        self._transaction: Transaction | None = None
        self._error: ClientError | None = None
        self.channel_id = resume  # In 0-9: what a lost channel is resumed by.
        self._resume = bool(resume)
        self.resumed = {
            tag: self._adopt(queue, tag) for tag, queue in (consumers or {}).items() if resume
        }

    def __repr__(self) -> str:
        return f"<Channel {self.number} of {self.connection!r}>"

    @property
    def is_closed(self) -> bool:
        """Whether the channel is closed for good."""
        return self._error is not None

    async def close(self) -> None:
        """Close the channel. Unconfirmed publishes fail, unsettled deliveries go back."""
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

    # --- Publishing ---------------------------------------------------------------------------

    async def publish(
        self,
        message: Content,
        routing_key: str = "",
        exchange: str = "",
        *,
        mandatory: bool = False,
    ) -> None:
        """Publish and wait until the broker has taken it over.

        Without an exchange the routing key is the name of a queue. Raises Nacked, ConfirmLost, and
        with `mandatory` Returned when no queue got it. In a transaction it does not wait.
        """
        confirmed = await self.publish_soon(message, routing_key, exchange, mandatory=mandatory)
        await confirmed

    async def publish_soon(
        self,
        message: Content,
        routing_key: str = "",
        exchange: str = "",
        *,
        mandatory: bool = False,
    ) -> asyncio.Future[None]:
        """Publish and return a future of the confirm, to have many in flight.

        It waits only while `unconfirmed_max` are unconfirmed, or while the broker does not read.
        """
        message = Message.of(message)
        header = encode_header(message)
        method = BasicPublish(
            ticket=self.ticket, exchange=exchange, routing_key=routing_key, mandatory=mandatory
        )
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if not self._confirm or self._mode is Mode.TX:
            link = await self._writable()
            self._check_transaction()
            link.send_content(self.number, method, header, message.body)
            self._sent += 1
            if self._sent % YIELD_EVERY == 0:
                await asyncio.sleep(0)  # A flood of publishes must not starve the loop.
            future.set_result(None)
            return future
        publication = Publication(message, method, header, future)
        await self._confirms.room.acquire()
        try:
            await self._publish(publication)
        except BaseException:
            self._confirms.room.release()
            raise
        return future

    async def publish_many(
        self,
        messages: Iterable[Content] | AsyncIterable[Content],
        routing_key: str = "",
        exchange: str = "",
        *,
        mandatory: bool = False,
    ) -> int:
        """Publish them all, many in flight, and wait for all confirms; return how many.

        The first failure is raised, after the outcome of every message sent so far is known.
        """
        batch = Batch(self, routing_key, exchange, mandatory=mandatory)
        async for message in each(messages):
            await batch.add(message)
            if batch.failure is not None:
                break
        return await batch.finish()

    def transaction(self) -> Transaction:
        """A block whose publishes and acks take effect together when it ends, or not at all."""
        return Transaction(self)

    # --- Receiving ----------------------------------------------------------------------------

    async def get(self, queue: str, *, no_ack: bool = False) -> Delivery | None:
        """Fetch one message, None when the queue is empty."""
        link = await self._ready()
        request = BasicGet(ticket=self.ticket, queue=self._name(queue), no_ack=no_ack)
        call = self._calls.ask(link, request, BasicGetOk, BasicGetEmpty)
        method, header, body = await self._calls.answer(call)
        if not isinstance(method, BasicGetOk):
            return None
        return read_delivery(self, self._epoch, method, header, body, no_ack)

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
        """The messages of the queue, to iterate over; at most `prefetch` (0: any) unsettled.

        With `distinct` a message whose id is that of one of the last so many that were acked is
        acked too and not handed out.
        """
        arguments = dict(arguments or {})
        if priority is not None:
            arguments["x-priority"] = priority
        if not tag:
            self._tags += 1
            tag = f"ctag{self.number}.{self._tags}"
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
        """Bound what all consumers (`shared`), or each new one, may have unsettled."""
        request = BasicQos(prefetch_count=count, prefetch_size=size, global_=shared)
        await self._call(request, BasicQosOk)
        self._qos = [qos for qos in self._qos if qos.global_ is not shared] + [request]

    async def recover(self, *, requeue: bool = True) -> None:
        """Have the broker deliver everything unsettled on this channel again."""
        await self._call(BasicRecover(requeue=requeue), BasicRecoverOk)

    async def settle(self, delivery: Delivery, *, ack: bool, multiple: bool, requeue: bool) -> bool:
        """Ack or refuse a delivery; False when its connection is gone, so it comes again."""
        sent = self.settle_soon(delivery, ack=ack, multiple=multiple, requeue=requeue)
        if self._link is not None and not self._link.can_write.is_set():
            await self._link.can_write.wait()
        return sent

    def settle_soon(self, delivery: Delivery, *, ack: bool, multiple: bool, requeue: bool) -> bool:
        """As `settle`, without waiting for a broker that does not read."""
        if delivery.settled:
            raise UsageError(f"delivery {delivery.delivery_tag} is settled already, or no_ack")
        if self._error is not None:
            raise fresh(self._error)
        link = self._link
        if link is None or not self.is_current(delivery.epoch):
            return False
        self._check_transaction()
        method: MethodBase
        if ack:
            method = BasicAck(delivery_tag=delivery.delivery_tag, multiple=multiple)
        elif multiple:
            method = BasicNack(delivery_tag=delivery.delivery_tag, multiple=True, requeue=requeue)
        else:
            method = BasicReject(delivery_tag=delivery.delivery_tag, requeue=requeue)
        link.send(self.number, method)
        delivery.settled = True
        for consumer in self._distinct() if multiple else self._distinct(delivery.consumer_tag):
            consumer.settle(
                delivery.delivery_tag, multiple=multiple, ack=ack, decided=self._mode is not Mode.TX
            )
        return True

    def _distinct(self, tag: str | None = None) -> list[Distinct]:
        """What the consumers, or the one of that tag, know of what they have dealt with."""
        sinks = self._sinks.values() if tag is None else (self._sinks.get(tag),)
        return [
            sink.distinct
            for sink in sinks
            if isinstance(sink, Consumer) and sink.distinct is not None
        ]

    def is_current(self, epoch: int) -> bool:
        """Whether what came by that opening of the channel can still be settled."""
        return epoch == self._epoch and self._link is not None and self._link.is_open

    async def send_frames(self, frames: bytes | bytearray) -> None:
        """Send frames of this channel that are encoded already, once the broker reads."""
        link = await self._writable()
        link.send_frames(frames)
        self._sent += 1
        if self._sent % FRAMES_YIELD_EVERY == 0:
            await asyncio.sleep(0)

    # --- For the package: consumers and streams -----------------------------------------------

    async def start_consumer(self, consumer: Consumer) -> None:
        """Have a consumer's messages delivered."""
        link = await self._ready()
        if consumer.tag in self._sinks:
            raise UsageError(f"consumer tag {consumer.tag!r} is in use on this channel")
        calls = self._ask_for_messages(link, consumer)
        self._sinks[consumer.tag] = consumer
        consumer.started = True
        try:
            for call in calls:
                await self._calls.answer(call)
        except ClientError:
            self._sinks.pop(consumer.tag, None)
            consumer.started = False
            raise

    def begin_cancel(self, consumer: Consumer) -> asyncio.Future[Answer] | None:
        """Have no more delivered; the future is done when nothing more can come."""
        if self._link is None or not self._link.is_open:
            self._cancelled(consumer)
            return None
        call = self._calls.ask(self._link, BasicCancel(consumer_tag=consumer.tag), BasicCancelOk)
        self.intake.wait_begins()

        def ended(_: asyncio.Future[Answer]) -> None:
            self.intake.wait_ends()
            self._cancelled(consumer)

        call.future.add_done_callback(ended)
        return call.future

    def put_back(self, deliveries: Iterable[Delivery]) -> None:
        """Return deliveries that nobody saw to their queue."""
        for delivery in deliveries:
            if not delivery.settled and self._link is not None and self.is_current(delivery.epoch):
                delivery.settled = True
                reject = BasicReject(delivery_tag=delivery.delivery_tag, requeue=True)
                self._link.send(self.number, reject)

    async def attach(
        self,
        tag: str,
        sink: Sink,
        requests: Iterable[MethodBase],
        gatherer: Gatherer | None = None,
        turn: Callable[[], None] | None = None,
    ) -> None:
        """Send the `requests` (a qos and a consume) of a consumer that is not a `Consumer`.

        A `gatherer` takes its deliveries where the version allows it, and `turn` is called when all
        that was read at a time was looked at; the sink gets the others. Nothing else may consume on
        the channel.
        """
        link = await self._ready()
        calls = [self._calls.ask(link, request, BasicQosOk, BasicConsumeOk) for request in requests]
        self._sinks[tag] = sink
        if gatherer is not None and turn is not None:
            link.gather(self.number, gatherer, turn)
        try:
            for call in calls:
                await self._calls.answer(call)
        except BaseException:
            self._sinks.pop(tag, None)
            raise

    async def confirm_by(self, confirms: Confirms) -> None:
        """Let somebody else publish here, in confirm mode, and hear of the outcomes."""
        await self._call(ConfirmSelect(), ConfirmSelectOk)
        self._confirms = confirms
        self._mode = Mode.CONFIRM

    async def writable(self) -> Link:
        """The link, once the broker reads; frames for this channel may be sent there."""
        return await self._writable()

    async def begin(self, transaction: Transaction) -> None:
        """Enter a transaction."""
        link = await self._ready()
        if self._transaction is not None:
            raise UsageError("a transaction is under way on this channel; they do not nest")
        if self._mode is Mode.CONFIRM:
            raise UsageError("this channel confirms its publishes; use another for transactions")
        self._transaction = transaction
        if self._mode is Mode.NONE:
            self._mode = Mode.TX
            try:
                await self._calls.exchange(link, TxSelect(), TxSelectOk)
            except BaseException:
                self._transaction = None
                raise

    async def end(self, transaction: Transaction, *, commit: bool) -> None:
        """Leave a transaction."""
        try:
            if not commit:
                if transaction.broken is None and self._link is not None:
                    await self._calls.exchange(self._link, TxRollback(), TxRollbackOk)
                return
            self._check_transaction()
            await self._calls.exchange(await self._ready(), TxCommit(), TxCommitOk)
            for distinct in self._distinct():
                distinct.decide(commit=True)
        finally:
            self._transaction = None
            for distinct in self._distinct():
                distinct.decide(commit=False)
        if transaction.returned:
            raise transaction.returned[0]

    def stop_gathering(self) -> None:
        """The gatherer of `attach` wants nothing more."""
        if self._link is not None:
            self._link.stop_gathering(self.number)

    def ack_up_to(self, delivery_tag: int) -> None:
        """Settle all deliveries up to the tag."""
        if self._link is not None and self._link.is_open:
            self._link.send(self.number, BasicAck(delivery_tag=delivery_tag, multiple=True))

    def consumes(self, queue: str) -> bool:
        """Whether a consumer of this channel takes from the queue."""
        return any(
            isinstance(sink, Consumer) and self._name(sink.queue) == queue
            for sink in self._sinks.values()
        )

    # --- For the connection -------------------------------------------------------------------

    async def open(self, link: Link) -> None:
        """Open the channel on a link, and put back what it had before."""
        self._link = link
        self._epoch += 1
        self._flow.set()
        self.ticket = 0  # It was the lost channel's.
        try:
            if self._resume:
                self._resume = False  # Once: the next time it is another channel.
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

    async def redo(self, link: Link, method: MethodBase) -> str:
        """Send a declaration or a binding again; return the queue's name if it is one's."""
        reply = await self._calls.answer(self._calls.ask(link, method, *DECLARED))
        return reply[0].queue if isinstance(reply[0], QueueDeclareOk) else ""

    async def shut(self, link: Link) -> None:
        """Close a channel that nobody else knows."""
        await self._calls.exchange(link, ChannelClose(reply_code=200), ChannelCloseOk)
        self.connection.forget(self)

    async def resume(self, link: Link) -> None:
        """Start the consumers again, and send again what was lost unconfirmed, if so wanted."""
        publications = self._confirms.take_all()
        for publication in publications:
            self._confirms.add(publication)
        for publication in publications:
            self._send_publication(link, publication)
        consumers = [sink for sink in self._sinks.values() if isinstance(sink, Consumer)]
        for consumer in consumers:
            try:
                for call in self._ask_for_messages(link, consumer):
                    await self._calls.answer(call)
            except ChannelClosed:
                return  # All consumers of the channel were told.
            except UsageError as error:  # This broker cannot, perhaps another than before.
                self._sinks.pop(consumer.tag, None)
                consumer.fail(error)

    def lost(self, error: ClientError, *, final: bool) -> None:
        """The connection broke: nothing under way will be answered."""
        self._link = None
        self._break_transaction(error)
        self._flow.set()
        self._calls.fail(error)  # Also the close of a channel that is closed already.
        if final:
            self._fail(error)
            return
        for tag, sink in list(self._sinks.items()):
            sink.lost()
            if not isinstance(sink, Consumer):
                del self._sinks[tag]
        if not self._retry_lost:
            self._lose_confirms(error)

    def method_received(self, method: MethodBase) -> None:
        """The broker sent a method without content."""
        match method:
            case BasicAck():
                self._confirms.settle(method.delivery_tag, method.multiple, acked=True)
            case BasicNack():
                self._confirms.settle(method.delivery_tag, method.multiple, acked=False)
            case BasicCancel():
                sink = self._sinks.pop(method.consumer_tag, None)
                if sink is not None and method.no_wait:
                    sink.cancelled()
                elif sink is not None:  # So Headrace says that a range of a stream is at its end.
                    sink.ended()
                if not method.no_wait and self._link is not None:
                    self._link.send(self.number, BasicCancelOk(consumer_tag=method.consumer_tag))
            case ChannelClose():
                if self._error is None:  # Else both sides closed, and close-ok is still to come.
                    where = (method.class_id, method.method_id)
                    self._fail(channel_closed(method.reply_code, method.reply_text, where))
                    self.connection.forget(self)
            case ChannelFlow():
                if method.active:
                    self._flow.set()
                else:
                    self._flow.clear()
                if self._link is not None:
                    self._link.send(self.number, ChannelFlowOk(active=method.active))
            case _:
                if self._calls.answers(method) or not self.arrive(method, b"", b""):
                    self._calls.replied(method, b"", b"")

    def content_received(self, method: MethodBase, header: bytes, body: bytes) -> None:
        """The broker sent a method with content."""
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
                if self._calls.answers(method) or not self.arrive(method, header, body):
                    self._calls.replied(method, header, body)

    def failed(self, error: AmqpError) -> None:
        """The broker broke a rule on this channel, and the channel is being closed for it."""
        self._fail(ChannelClosed(error.code.number, error.reply_text, error.method))
        self.connection.forget(self)

    # --- Inside -------------------------------------------------------------------------------

    def _adopt(self, queue: str, tag: str) -> Consumer:
        """A consumer that the broker has kept with the channel."""
        consumer = self.consume(queue, tag=tag)
        consumer.started = True
        self._sinks[tag] = consumer
        return consumer

    async def _ready(self) -> Link:
        """The link, once the channel is open on one."""
        while True:
            if self._error is not None:
                raise fresh(self._error)
            if self._link is not None and self.connection.is_ready:
                return self._link
            await self.connection.ready()

    async def _writable(self) -> Link:
        """The link, once the broker reads."""
        while True:
            link = await self._ready()
            if not link.can_write.is_set():
                await link.can_write.wait()
            elif not self._flow.is_set():
                await self._flow.wait()
            else:
                return link

    async def _call(self, request: MethodBase, reply: type[Reply]) -> Reply:
        """Send a request and return its reply."""
        link = await self._ready()
        self.stamp(request)
        return await self._calls.exchange(link, request, reply)

    def _returned(self, method: BasicReturn, header: bytes, body: bytes) -> None:
        message = read_message(header, body)
        if self._confirms.returned(method, message):
            return
        returned = Returned(
            message, method.reply_text, method.reply_code, method.exchange, method.routing_key
        )
        if self._transaction is not None:
            self._transaction.returned.append(returned)
        elif self._on_return is not None:
            self._on_return(returned)

    async def _publish(self, publication: Publication) -> None:
        link = await self._writable()
        if self._mode is Mode.TX:
            raise UsageError("this channel became transactional while a publish was waiting")
        if self._mode is Mode.NONE:
            self._calls.ask(link, ConfirmSelect(), ConfirmSelectOk)
            self._mode = Mode.CONFIRM
        self._send_publication(link, publication)
        self._confirms.add(publication)
        self.intake.wait_begins()
        publication.confirmed.add_done_callback(lambda _: self.intake.wait_ends())

    def _send_publication(self, link: Link, publication: Publication) -> None:
        body = publication.message.body
        link.send_content(self.number, publication.method, publication.header, body)

    def _check_transaction(self) -> None:
        """Publishes and settlements of a transactional channel belong into a transaction."""
        if self._mode is Mode.TX:
            if self._transaction is None:
                raise UsageError("this channel is transactional: do this within a transaction")
            if self._transaction.broken is not None:
                raise fresh(self._transaction.broken)

    def _break_transaction(self, error: ClientError) -> None:
        if self._transaction is not None and self._transaction.broken is None:
            self._transaction.broken = error

    def _ask_for_messages(self, link: Link, consumer: Consumer) -> list[Call]:
        """Send the qos and the consume together, so that no other consumer comes between them."""
        calls: list[Call] = []
        if consumer.prefetch and not consumer.no_ack:
            qos = BasicQos(prefetch_count=consumer.prefetch)
            calls.append(self._calls.ask(link, qos, BasicQosOk))
        request = consumer.request(self._name(consumer.queue))
        self.stamp(request)
        calls.append(self._calls.ask(link, request, BasicConsumeOk))
        return calls

    def _cancelled(self, consumer: Consumer) -> None:
        """Nothing more can come for the consumer; its queue may have gone with it."""
        self._sinks.pop(consumer.tag, None)
        queue = self._name(consumer.queue)
        topology = self.topology
        if topology.is_auto_delete(queue) and not self.connection.consumes(queue):
            topology.forget_queue(queue)

    def _fail(self, error: ClientError) -> None:
        """The channel is closed for good."""
        if self._error is not None:
            return
        self._error = error
        self._link = None
        self._arriving.set()
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

    def _lose_confirms(self, error: ClientError) -> None:
        for publication in self._confirms.take_all():
            publication.settle(
                ConfirmLost(publication.message, f"not confirmed, perhaps taken: {error}")
            )
            self._confirms.room.release()
