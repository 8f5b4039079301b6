# SPDX-License-Identifier: Apache-2.0
"""A channel in AMQP 0-10: a bridge to one session, with commands for each method.

A channel sends and receives methods of 0-9-1. The bridge translates them to commands of a session:
a declaration is followed by a query, prefetch is credit in window mode, an ack is message.accept
and returns its credit, a confirm is the broker's message.accept. A method without a command in 0-10
is a UsageError (`UNSUPPORTED_ACTIONS`). Answers have the order of the requests.
"""

from __future__ import annotations

import uuid
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, cast

from headrace.client.errors import ClientError, UsageError
from headrace.client.link.deliveries_over_0_10 import Deliveries, DeliveriesLink
from headrace.client.link.publishes_over_0_10 import Publishes
from headrace.protocol import codec_0_x as v0_9_1
from headrace.protocol.codec_0_10 import (
    Command,
    ExchangeBind,
    ExchangeDeclare,
    ExchangeDelete,
    ExchangeUnbind,
    ExecutionException,
    ExecutionSync,
    MessageAccept,
    MessageCancel,
    MessageFlow,
    MessageFlush,
    MessageReject,
    MessageRelease,
    MessageSetFlowMode,
    MessageStop,
    MessageSubscribe,
    QueueDeclare,
    QueueDelete,
    QueuePurge,
    QueueQuery,
    QueueQueryResult,
    Struct,
    TxCommit,
    TxRollback,
    TxSelect,
)
from headrace.protocol.v0_10.session.session import Session
from headrace.spec.reply_0_10 import AcceptMode, AcquireMode, CreditUnit, FlowMode
from headrace.wire.ranges import SequenceSet

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace.client.link.link_0_x import LinkOwner
    from headrace.wire.types_0_10 import Map

UNLIMITED = 0xFFFFFFFF  # The value of message.flow for credit without a limit.
ALTERNATE = "alternate-exchange"  # An argument in 0-9-1, and a field of exchange.declare in 0-10.

UNSUPPORTED_ACTIONS = {
    v0_9_1.ExchangeBind: "bind exchanges to exchanges",
    v0_9_1.ExchangeUnbind: "bind exchanges to exchanges",
}


@dataclass(slots=True, eq=False)
class PendingReply:
    """The place of one request's answer in the order of the answers; filled when it is known."""

    method: v0_9_1.MethodBase | None = None
    header: bytes = b""
    body: bytes = b""


@dataclass(slots=True, eq=False)
class PendingGet:
    """A basic.get that is not answered yet, and its message once that has arrived."""

    reply: PendingReply
    no_ack: bool
    delivery: tuple[int, Any, bytes, bytes] | None = None


class BridgeLink(DeliveriesLink, Protocol):
    """The members of a link that a channel's session uses."""

    def attach(self, session: Session, session_user: ChannelBridge, number: int) -> None:
        """Attach a session to a channel."""

    def forget(self, session: Session) -> None:
        """Remove a session."""

    def forget_bridge(self, number: int) -> None:
        """Remove the bridge of a closed channel."""

    def call_soon(self, callback: Callable[[], None]) -> None:
        """Call a function in the next turn of the loop."""


class ChannelBridge:
    """Translates the methods of one channel to the commands of its session, and back."""

    def __init__(self, link: BridgeLink, number: int, owner: LinkOwner) -> None:
        self.link = link
        self.number = number
        self.owner = owner
        self.session = Session(uuid.uuid4().hex.encode())
        self._replies: deque[PendingReply] = deque()
        self._is_reply_scheduled = False
        self._on_completed: dict[int, Callable[[], None]] = {}  # Callbacks by command id.
        self._on_result: dict[int, Callable[[Any], None]] = {}
        self.publishes = Publishes(self.session, number, owner)
        self._deliveries = Deliveries(link, self.session)
        self._prefetch = [0, 0]  # The messages and bytes of basic.qos, for later consumers.
        self._no_ack: set[str] = set()  # Destinations whose transfers need no accept.
        self._pending_gets: dict[str, deque[PendingGet]] = {}  # Fetches by destination.
        # The lasting destinations of basic.get, by the name of an auto-delete queue.
        self._get_destinations: dict[str, str] = {}
        self._auto_delete_queues: set[str] = set()  # Declared here, deleted with the last consumer.
        self._get_count = 0
        self._opening: PendingReply | None = None
        self._closing: PendingReply | None = None
        self._is_closed = False

    # --- Requests -----------------------------------------------------------------------------

    def request(self, method: v0_9_1.MethodBase) -> None:
        """Translate a method of 0-9-1 to commands."""
        handler = _REQUESTS.get(type(method))
        if handler is None:
            action = UNSUPPORTED_ACTIONS.get(type(method), f"do {method.NAME}")
            raise UsageError(f"AMQP 0-10 cannot {action}")
        if not isinstance(method, v0_9_1.BasicAck):
            self.send_accepts()
        handler(self, method)

    def send_accepts(self) -> None:
        """Send the accumulated acks as one message.accept."""
        if self._deliveries.unsent_accepts and not self._is_closed:
            self._deliveries.accept()

    def _open(self, _: v0_9_1.ChannelOpen) -> None:
        self._opening = self._expect()
        self.link.attach(self.session, self, self.number)

    def _close(self, _: v0_9_1.ChannelClose) -> None:
        self._closing = self._expect()
        self.session.detach()

    def _declare_exchange(self, method: v0_9_1.ExchangeDeclare) -> None:
        if method.internal:
            raise UsageError("AMQP 0-10 has no internal exchanges")
        arguments = cast("Map", dict(method.arguments))
        alternate = arguments.pop(ALTERNATE, None)
        self._ask(
            ExchangeDeclare(
                exchange=method.exchange,
                type=method.type,
                alternate_exchange=str(alternate) if alternate else None,
                passive=method.passive,
                durable=method.durable,
                auto_delete=method.auto_delete,
                arguments=arguments or None,
            ),
            v0_9_1.ExchangeDeclareOk(),
        )

    def _delete_exchange(self, method: v0_9_1.ExchangeDelete) -> None:
        command = ExchangeDelete(exchange=method.exchange, if_unused=method.if_unused)
        self._ask(command, v0_9_1.ExchangeDeleteOk())

    def _declare_queue(self, method: v0_9_1.QueueDeclare) -> None:
        name = method.queue or f"gen-{uuid.uuid4().hex}"
        arguments = cast("Map", dict(method.arguments))
        self.session.send_command(
            QueueDeclare(
                queue=name,
                passive=method.passive,
                durable=method.durable,
                exclusive=method.exclusive,
                auto_delete=method.auto_delete or method.exclusive,  # It ends with the session.
                arguments=arguments or None,
            )
        )
        if method.auto_delete or method.exclusive:
            self._auto_delete_queues.add(name)
        self._query(
            name,
            lambda state: v0_9_1.QueueDeclareOk(
                queue=name,
                message_count=state.message_count or 0,
                consumer_count=state.subscriber_count or 0,
            ),
        )

    def _delete_queue(self, method: v0_9_1.QueueDelete) -> None:
        command = QueueDelete(
            queue=method.queue, if_unused=method.if_unused, if_empty=method.if_empty
        )
        self._send_with_count(method.queue, command, v0_9_1.QueueDeleteOk())

    def _purge_queue(self, method: v0_9_1.QueuePurge) -> None:
        self._send_with_count(method.queue, QueuePurge(queue=method.queue), v0_9_1.QueuePurgeOk())

    def _bind(self, method: v0_9_1.QueueBind) -> None:
        arguments = cast("Map", dict(method.arguments))
        self._ask(
            ExchangeBind(
                queue=method.queue,
                exchange=method.exchange,
                binding_key=method.routing_key,
                arguments=arguments or None,
            ),
            v0_9_1.QueueBindOk(),
        )

    def _unbind(self, method: v0_9_1.QueueUnbind) -> None:
        command = ExchangeUnbind(
            queue=method.queue, exchange=method.exchange, binding_key=method.routing_key
        )
        self._ask(command, v0_9_1.QueueUnbindOk())

    def _confirm(self, _: v0_9_1.ConfirmSelect) -> None:
        self.publishes.confirms = True
        self._answer(self._expect(), v0_9_1.ConfirmSelectOk())

    def _qos(self, method: v0_9_1.BasicQos) -> None:
        self._prefetch = [method.prefetch_count, method.prefetch_size]
        self._answer(self._expect(), v0_9_1.BasicQosOk())

    def _consume(self, method: v0_9_1.BasicConsume) -> None:
        arguments = cast("Map", dict(method.arguments))
        tag = method.consumer_tag
        count, size = (0, 0) if method.no_ack else self._prefetch
        self.session.send_command(
            MessageSubscribe(
                queue=method.queue,
                destination=tag,
                accept_mode=AcceptMode.NONE if method.no_ack else AcceptMode.EXPLICIT,
                acquire_mode=AcquireMode.PRE_ACQUIRED,
                exclusive=method.exclusive,
                arguments=arguments or None,
            )
        )
        if method.no_ack:
            self._no_ack.add(tag)
        if count or size:
            self.session.send_command(
                MessageSetFlowMode(destination=tag, flow_mode=FlowMode.WINDOW)
            )
        self._send_credit(tag, count or UNLIMITED, size or UNLIMITED)
        self._ask(ExecutionSync(), v0_9_1.BasicConsumeOk(consumer_tag=tag))

    def _cancel(self, method: v0_9_1.BasicCancel) -> None:
        command = MessageCancel(destination=method.consumer_tag)
        self._ask(command, v0_9_1.BasicCancelOk(consumer_tag=method.consumer_tag))

    def _get(self, method: v0_9_1.BasicGet) -> None:
        """Get one message: subscribe with credit for one, then query the queue's length.

        For an auto-delete queue the subscription stays until the channel closes.
        """
        queue = method.queue
        pending_get = PendingGet(self._expect(), method.no_ack)
        tag = self._get_destinations.get(queue, "")
        if not tag:
            self._get_count += 1
            tag = f"get.{self._get_count}"
            self._pending_gets[tag] = deque()
            command = MessageSubscribe(
                queue=queue,
                destination=tag,
                accept_mode=AcceptMode.EXPLICIT,
                acquire_mode=AcquireMode.PRE_ACQUIRED,
            )
            self.session.send_command(command)
            mode = MessageSetFlowMode(destination=tag, flow_mode=FlowMode.CREDIT)
            self.session.send_command(mode)
        self._pending_gets[tag].append(pending_get)
        self._send_credit(tag, 1, UNLIMITED)
        self.session.send_command(MessageFlush(destination=tag))
        if queue in self._auto_delete_queues:
            self._get_destinations[queue] = tag
        else:
            self.session.send_command(MessageCancel(destination=tag))
        number = self.session.send_command(QueueQuery(queue=queue), True)
        self._on_result[number] = lambda state: self._finish_get(tag, state)

    def _finish_get(self, tag: str, state: Any) -> None:
        """Answer a basic.get: the queue query completed after its message, if there is one."""
        pending_gets = self._pending_gets[tag]
        pending_get = pending_gets.popleft()
        if not pending_gets and tag not in self._get_destinations.values():
            del self._pending_gets[tag]
        if pending_get.delivery is None:
            self._answer(pending_get.reply, v0_9_1.BasicGetEmpty())
            return
        number, command, header, body = pending_get.delivery
        count = state.message_count if isinstance(state, QueueQueryResult) else 0
        if pending_get.no_ack:
            self._deliveries.unsent_accepts.add(number)
        deliver = self._deliveries.delivery(number, command, header, body, pending_get.no_ack)
        pending_get.reply.header = deliver[1]
        pending_get.reply.body = body
        method = deliver[0]
        self._answer(
            pending_get.reply,
            v0_9_1.BasicGetOk(
                delivery_tag=method.delivery_tag,
                redelivered=method.redelivered,
                exchange=method.exchange,
                routing_key=method.routing_key,
                message_count=count or 0,
            ),
        )

    def _ack(self, method: v0_9_1.BasicAck) -> None:
        for number in self._deliveries.pop_settled(method.delivery_tag, method.multiple):
            self._deliveries.unsent_accepts.add(number)

    def _nack(self, method: v0_9_1.BasicNack) -> None:
        self._deliveries.refuse(
            self._deliveries.pop_settled(method.delivery_tag, method.multiple), method.requeue
        )

    def _reject(self, method: v0_9_1.BasicReject) -> None:
        self._deliveries.refuse(
            self._deliveries.pop_settled(method.delivery_tag, False), method.requeue
        )

    def _recover(self, _: v0_9_1.BasicRecover) -> None:
        """Release the unacked messages; in 0-10 the broker chooses the consumers that get them."""
        self._deliveries.refuse(self._deliveries.pop_settled(0, True), True)
        self._ask(ExecutionSync(), v0_9_1.BasicRecoverOk())

    def _tx_select(self, _: v0_9_1.TxSelect) -> None:
        self._ask(TxSelect(), v0_9_1.TxSelectOk())

    def _tx_commit(self, _: v0_9_1.TxCommit) -> None:
        self._ask(TxCommit(), v0_9_1.TxCommitOk())

    def _tx_rollback(self, _: v0_9_1.TxRollback) -> None:
        self._ask(TxRollback(), v0_9_1.TxRollbackOk())

    def _ignore(self, _: v0_9_1.MethodBase) -> None:
        """Ignore an answer that 0-10 does not need."""

    # --- Received commands --------------------------------------------------------------------

    def attached(self) -> None:
        """Answer the pending channel.open."""
        if self._opening is not None:
            self._answer(self._opening, v0_9_1.ChannelOpenOk())
            self._opening = None

    def detached(self, code: int) -> None:
        """Report the channel as closed, with close-ok if the program closed it."""
        self.link.forget(self.session)
        self.link.forget_bridge(self.number)
        if self._closing is not None and not self._is_closed:
            self._closing.method = v0_9_1.ChannelCloseOk()
            self._replies = deque([self._closing])
            self._deliver_replies()
        elif not self._is_closed:
            self._is_closed = True
            text = f"the broker detached the session: detach-code {code}"
            self.owner.link_method(
                self.number, v0_9_1.ChannelClose(reply_code=code, reply_text=text)
            )
        self._is_closed = True

    def transferred(self, number: int, command: Any, header: bytes, body: bytes) -> None:
        """Pass a message on as a delivery, or keep it for the basic.get that asked for it."""
        tag = command.destination or ""
        pending_gets = self._pending_gets.get(tag)
        if pending_gets is not None:
            if pending_gets and pending_gets[0].delivery is None:
                pending_gets[0].delivery = (number, command, header, body)
            else:  # The call of this basic.get has its answer.
                self._deliveries.refuse([number], True)
            return
        method, header_0_9_1 = self._deliveries.delivery(
            number, command, header, body, tag in self._no_ack
        )
        self.owner.link_content(self.number, method, header_0_9_1, body)

    def command(self, number: int, command: Command, header: bytes, body: bytes) -> None:
        """Translate any other command to the method of 0-9-1."""
        match command:
            case MessageAccept():
                self.publishes.settle(command.transfers or SequenceSet(), None, "")
            case MessageReject():
                text = command.text or ""
                self.publishes.settle(command.transfers or SequenceSet(), command.code or 0, text)
            case MessageRelease():
                self.publishes.settle(command.transfers or SequenceSet(), 0, "released")
            case MessageCancel():
                tag = command.destination or ""
                self.owner.link_method(self.number, v0_9_1.BasicCancel(consumer_tag=tag))
            case MessageStop():
                self.owner.link_method(self.number, v0_9_1.ChannelFlow(active=False))
            case MessageFlow():
                self.owner.link_method(self.number, v0_9_1.ChannelFlow(active=True))

    def result(self, number: int, value: Struct | None) -> None:
        """Call the callback of the command `number` with its result."""
        callback = self._on_result.pop(number, None)
        if callback is not None:
            callback(value)

    def completed(self, low: int, high: int) -> None:
        """Call the callbacks of the commands from `low` to `high`, both included."""
        size = (high - low) & 0xFFFFFFFF
        for number in [
            command_id
            for command_id in self._on_completed
            if (command_id - low) & 0xFFFFFFFF <= size
        ]:
            self._on_completed.pop(number)()

    def exception(self, error: ExecutionException) -> None:
        """Report the channel as closed with the error of the failed command."""
        self._is_closed = True
        self.owner.link_method(
            self.number,
            v0_9_1.ChannelClose(
                reply_code=error.error_code or 0,
                reply_text=error.description or "",
                class_id=error.class_code or 0,
                method_id=error.command_code or 0,
            ),
        )

    def resumed(self, kept: bool) -> None:
        """Do nothing: a channel opens a new session after a reconnection."""

    def granted(self, timeout_s: int | None) -> None:
        """Do nothing: a channel requests no timeout."""

    def given_up(self, low: int, high: int) -> None:
        """Do nothing: a channel's session is attached once, so no command is kept."""

    def lost(self, error: ClientError) -> None:
        """Mark the channel closed; the link reports its end to the owner."""
        self._is_closed = True

    # --- Inside -------------------------------------------------------------------------------

    def _expect(self) -> PendingReply:
        reply = PendingReply()
        self._replies.append(reply)
        return reply

    def _answer(self, reply: PendingReply, method: v0_9_1.MethodBase) -> None:
        """Record a reply; replies are sent in order."""
        reply.method = method
        if not self._is_reply_scheduled:
            self._is_reply_scheduled = True
            self.link.call_soon(self._deliver_replies)

    def _deliver_replies(self) -> None:
        self._is_reply_scheduled = False
        while self._replies and self._replies[0].method is not None:
            reply = self._replies.popleft()
            assert reply.method is not None
            if isinstance(reply.method, v0_9_1.BasicGetOk):
                self.owner.link_content(self.number, reply.method, reply.header, reply.body)
            else:
                self.owner.link_method(self.number, reply.method)

    def _ask(self, command: Command, method: v0_9_1.MethodBase) -> None:
        """Send a command; `method` is the answer once it is completed."""
        reply = self._expect()
        number = self.session.send_command(command, True)
        self._on_completed[number] = lambda: self._answer(reply, method)

    def _query(self, queue: str, answer: Callable[[QueueQueryResult], v0_9_1.MethodBase]) -> None:
        """Query a queue's state for the answer."""
        reply = self._expect()
        number = self.session.send_command(QueueQuery(queue=queue), True)

        def set_answer(state: Any) -> None:
            assert isinstance(state, QueueQueryResult)
            self._answer(reply, answer(state))

        self._on_result[number] = set_answer

    def _send_with_count(
        self, queue: str, command: Command, answer: v0_9_1.QueueDeleteOk | v0_9_1.QueuePurgeOk
    ) -> None:
        """Query a queue's length, then send a command; the answer has the length."""
        number = self.session.send_command(QueueQuery(queue=queue))

        def set_answer(state: Any) -> None:
            answer.message_count = state.message_count or 0

        self._on_result[number] = set_answer
        self._ask(command, answer)

    def _send_credit(self, tag: str, count: int, size: int) -> None:
        self.session.send_command(
            MessageFlow(destination=tag, unit=CreditUnit.MESSAGE, value=count)
        )
        self.session.send_command(MessageFlow(destination=tag, unit=CreditUnit.BYTE, value=size))


_REQUESTS: dict[type[v0_9_1.MethodBase], Callable[[ChannelBridge, Any], None]] = {
    v0_9_1.ChannelOpen: ChannelBridge._open,
    v0_9_1.ChannelClose: ChannelBridge._close,
    v0_9_1.ChannelFlowOk: ChannelBridge._ignore,
    v0_9_1.ExchangeDeclare: ChannelBridge._declare_exchange,
    v0_9_1.ExchangeDelete: ChannelBridge._delete_exchange,
    v0_9_1.QueueDeclare: ChannelBridge._declare_queue,
    v0_9_1.QueueDelete: ChannelBridge._delete_queue,
    v0_9_1.QueuePurge: ChannelBridge._purge_queue,
    v0_9_1.QueueBind: ChannelBridge._bind,
    v0_9_1.QueueUnbind: ChannelBridge._unbind,
    v0_9_1.ConfirmSelect: ChannelBridge._confirm,
    v0_9_1.BasicQos: ChannelBridge._qos,
    v0_9_1.BasicConsume: ChannelBridge._consume,
    v0_9_1.BasicCancel: ChannelBridge._cancel,
    v0_9_1.BasicGet: ChannelBridge._get,
    v0_9_1.BasicAck: ChannelBridge._ack,
    v0_9_1.BasicNack: ChannelBridge._nack,
    v0_9_1.BasicReject: ChannelBridge._reject,
    v0_9_1.BasicRecover: ChannelBridge._recover,
    v0_9_1.TxSelect: ChannelBridge._tx_select,
    v0_9_1.TxCommit: ChannelBridge._tx_commit,
    v0_9_1.TxRollback: ChannelBridge._tx_rollback,
    v0_9_1.BasicCancelOk: ChannelBridge._ignore,
}
