# SPDX-License-Identifier: Apache-2.0
"""A channel of our API in AMQP 0-10: one session, with a command for each method.

A channel sends and receives methods of 0-9-1. This module translates each to commands of a session:
a declaration is followed by a query, prefetch is credit in window mode, an ack is message.accept
and returns its credit, a confirm is the broker's message.accept. A method without a command in 0-10
is a UsageError (`CANNOT`). Answers have the order of the requests.
"""

from __future__ import annotations

import uuid
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, cast

from headrace.client.errors import ClientError, UsageError
from headrace.client.link.deliveries_over_0_10 import Deliveries, DeliveriesLink
from headrace.client.link.publishes_over_0_10 import Publishes
from headrace.protocol import codec_0_x as old
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

    from headrace.client.link.link_0_x import Owner
    from headrace.wire.types_0_10 import Map

UNLIMITED = 0xFFFFFFFF  # Credit without end.
ALTERNATE = "alternate-exchange"  # The argument that is a field of exchange.declare here.

CANNOT = {
    old.ExchangeBind: "bind exchanges to exchanges",
    old.ExchangeUnbind: "bind exchanges to exchanges",
}


@dataclass(slots=True, eq=False)
class Reply:
    """The answer to one request, once it is known."""

    method: old.MethodBase | None = None
    header: bytes = b""
    body: bytes = b""


@dataclass(slots=True, eq=False)
class Fetch:
    """A basic.get without its answer."""

    reply: Reply
    no_ack: bool
    delivery: tuple[int, Any, bytes, bytes] | None = None


class BridgeLink(DeliveriesLink, Protocol):
    """The members of a link that a channel's session uses."""

    def attach(self, session: Session, user: Bridge, number: int) -> None:
        """Attach a session to a channel."""

    def forget(self, session: Session) -> None:
        """Remove a session."""

    def forget_bridge(self, number: int) -> None:
        """Remove the bridge of a closed channel."""

    def call_soon(self, act: Callable[[], None]) -> None:
        """Call a function in the next turn of the loop."""


class Bridge:
    """One channel's session."""

    def __init__(self, link: BridgeLink, number: int, owner: Owner) -> None:
        self.link = link
        self.number = number
        self.owner = owner
        self.session = Session(uuid.uuid4().hex.encode())
        self._replies: deque[Reply] = deque()
        self._due = False
        self._done: dict[int, Callable[[], None]] = {}  # Callbacks by command id.
        self._results: dict[int, Callable[[Any], None]] = {}
        self.publishes = Publishes(self.session, number, owner)
        self._deliveries = Deliveries(link, self.session)
        self._prefetch = [0, 0]  # Messages and octets, for consumers to come.
        self._no_ack: set[str] = set()  # Destinations whose transfers need no accept.
        self._fetches: dict[str, deque[Fetch]] = {}  # Fetches by destination.
        self._getters: dict[str, str] = {}  # Destinations that stay, by queue.
        self._fragile: set[str] = set()  # Queues of ours that go with their last consumer.
        self._fetched = 0
        self._opening: Reply | None = None
        self._closing: Reply | None = None
        self._over = False

    # --- Requests -----------------------------------------------------------------------------

    def request(self, method: old.MethodBase) -> None:
        """Translate a method of 0-9-1 to commands."""
        handler = _REQUESTS.get(type(method))
        if handler is None:
            action = CANNOT.get(type(method), f"do {method.NAME}")
            raise UsageError(f"AMQP 0-10 cannot {action}")
        if not isinstance(method, old.BasicAck):
            self.gather()
        handler(self, method)

    def gather(self) -> None:
        """Send the acks that have come together."""
        if self._deliveries.accepted and not self._over:
            self._deliveries.accept()

    def _open(self, _: old.ChannelOpen) -> None:
        self._opening = self._expect()
        self.link.attach(self.session, self, self.number)

    def _close(self, _: old.ChannelClose) -> None:
        self._closing = self._expect()
        self.session.detach()

    def _declare_exchange(self, method: old.ExchangeDeclare) -> None:
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
            old.ExchangeDeclareOk(),
        )

    def _delete_exchange(self, method: old.ExchangeDelete) -> None:
        command = ExchangeDelete(exchange=method.exchange, if_unused=method.if_unused)
        self._ask(command, old.ExchangeDeleteOk())

    def _declare_queue(self, method: old.QueueDeclare) -> None:
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
            self._fragile.add(name)
        self._query(
            name,
            lambda state: old.QueueDeclareOk(
                queue=name,
                message_count=state.message_count or 0,
                consumer_count=state.subscriber_count or 0,
            ),
        )

    def _delete_queue(self, method: old.QueueDelete) -> None:
        command = QueueDelete(
            queue=method.queue, if_unused=method.if_unused, if_empty=method.if_empty
        )
        self._count_queue(method.queue, command, old.QueueDeleteOk())

    def _purge_queue(self, method: old.QueuePurge) -> None:
        self._count_queue(method.queue, QueuePurge(queue=method.queue), old.QueuePurgeOk())

    def _bind(self, method: old.QueueBind) -> None:
        arguments = cast("Map", dict(method.arguments))
        self._ask(
            ExchangeBind(
                queue=method.queue,
                exchange=method.exchange,
                binding_key=method.routing_key,
                arguments=arguments or None,
            ),
            old.QueueBindOk(),
        )

    def _unbind(self, method: old.QueueUnbind) -> None:
        command = ExchangeUnbind(
            queue=method.queue, exchange=method.exchange, binding_key=method.routing_key
        )
        self._ask(command, old.QueueUnbindOk())

    def _confirm(self, _: old.ConfirmSelect) -> None:
        self.publishes.confirms = True
        self._answer(self._expect(), old.ConfirmSelectOk())

    def _qos(self, method: old.BasicQos) -> None:
        self._prefetch = [method.prefetch_count, method.prefetch_size]
        self._answer(self._expect(), old.BasicQosOk())

    def _consume(self, method: old.BasicConsume) -> None:
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
        self._credit(tag, count or UNLIMITED, size or UNLIMITED)
        self._ask(ExecutionSync(), old.BasicConsumeOk(consumer_tag=tag))

    def _cancel(self, method: old.BasicCancel) -> None:
        command = MessageCancel(destination=method.consumer_tag)
        self._ask(command, old.BasicCancelOk(consumer_tag=method.consumer_tag))

    def _get(self, method: old.BasicGet) -> None:
        """Get one message: subscribe with credit for one, then query the queue's length.

        For an auto-delete queue the subscription stays until the channel closes.
        """
        queue = method.queue
        fetch = Fetch(self._expect(), method.no_ack)
        tag = self._getters.get(queue, "")
        if not tag:
            self._fetched += 1
            tag = f"get.{self._fetched}"
            self._fetches[tag] = deque()
            command = MessageSubscribe(
                queue=queue,
                destination=tag,
                accept_mode=AcceptMode.EXPLICIT,
                acquire_mode=AcquireMode.PRE_ACQUIRED,
            )
            self.session.send_command(command)
            mode = MessageSetFlowMode(destination=tag, flow_mode=FlowMode.CREDIT)
            self.session.send_command(mode)
        self._fetches[tag].append(fetch)
        self._credit(tag, 1, UNLIMITED)
        self.session.send_command(MessageFlush(destination=tag))
        if queue in self._fragile:
            self._getters[queue] = tag
        else:
            self.session.send_command(MessageCancel(destination=tag))
        number = self.session.send_command(QueueQuery(queue=queue), True)
        self._results[number] = lambda state: self._got(tag, state)

    def _got(self, tag: str, state: Any) -> None:
        """Answer a basic.get: its message would have arrived by now."""
        fetches = self._fetches[tag]
        fetch = fetches.popleft()
        if not fetches and tag not in self._getters.values():
            del self._fetches[tag]
        if fetch.delivery is None:
            self._answer(fetch.reply, old.BasicGetEmpty())
            return
        number, command, header, body = fetch.delivery
        count = state.message_count if isinstance(state, QueueQueryResult) else 0
        if fetch.no_ack:
            self._deliveries.accepted.add(number)
        deliver = self._deliveries.delivery(number, command, header, body, fetch.no_ack)
        fetch.reply.header = deliver[1]
        fetch.reply.body = body
        method = deliver[0]
        self._answer(
            fetch.reply,
            old.BasicGetOk(
                delivery_tag=method.delivery_tag,
                redelivered=method.redelivered,
                exchange=method.exchange,
                routing_key=method.routing_key,
                message_count=count or 0,
            ),
        )

    def _ack(self, method: old.BasicAck) -> None:
        for number in self._deliveries.pop_settled(method.delivery_tag, method.multiple):
            self._deliveries.accepted.add(number)

    def _nack(self, method: old.BasicNack) -> None:
        self._deliveries.refuse(
            self._deliveries.pop_settled(method.delivery_tag, method.multiple), method.requeue
        )

    def _reject(self, method: old.BasicReject) -> None:
        self._deliveries.refuse(
            self._deliveries.pop_settled(method.delivery_tag, False), method.requeue
        )

    def _recover(self, _: old.BasicRecover) -> None:
        """Release the unacked messages; 0-10 does not say to which consumer they go."""
        self._deliveries.refuse(self._deliveries.pop_settled(0, True), True)
        self._ask(ExecutionSync(), old.BasicRecoverOk())

    def _tx_select(self, _: old.TxSelect) -> None:
        self._ask(TxSelect(), old.TxSelectOk())

    def _tx_commit(self, _: old.TxCommit) -> None:
        self._ask(TxCommit(), old.TxCommitOk())

    def _tx_rollback(self, _: old.TxRollback) -> None:
        self._ask(TxRollback(), old.TxRollbackOk())

    def _ignore(self, _: old.MethodBase) -> None:
        """Ignore an answer that 0-10 does not need."""

    # --- Received commands --------------------------------------------------------------------

    def attached(self) -> None:
        """The session is attached."""
        if self._opening is not None:
            self._answer(self._opening, old.ChannelOpenOk())
            self._opening = None

    def detached(self, code: int) -> None:
        """The session left its channel."""
        self.link.forget(self.session)
        self.link.forget_bridge(self.number)
        if self._closing is not None and not self._over:
            self._closing.method = old.ChannelCloseOk()
            self._replies = deque([self._closing])
            self._give()
        elif not self._over:
            self._over = True
            text = f"the broker detached the session: detach-code {code}"
            self.owner.link_method(self.number, old.ChannelClose(reply_code=code, reply_text=text))
        self._over = True

    def transferred(self, number: int, command: Any, header: bytes, body: bytes) -> None:
        """Take a message."""
        tag = command.destination or ""
        fetches = self._fetches.get(tag)
        if fetches is not None:
            if fetches and fetches[0].delivery is None:
                fetches[0].delivery = (number, command, header, body)
            else:  # No call waits for it.
                self._deliveries.refuse([number], True)
            return
        method, old_header = self._deliveries.delivery(
            number, command, header, body, tag in self._no_ack
        )
        self.owner.link_content(self.number, method, old_header, body)

    def command(self, number: int, command: Command, header: bytes, body: bytes) -> None:
        """The broker sent another command."""
        match command:
            case MessageAccept():
                self.publishes.outcome(command.transfers or SequenceSet(), None, "")
            case MessageReject():
                text = command.text or ""
                self.publishes.outcome(command.transfers or SequenceSet(), command.code or 0, text)
            case MessageRelease():
                self.publishes.outcome(command.transfers or SequenceSet(), 0, "released")
            case MessageCancel():
                tag = command.destination or ""
                self.owner.link_method(self.number, old.BasicCancel(consumer_tag=tag))
            case MessageStop():
                self.owner.link_method(self.number, old.ChannelFlow(active=False))
            case MessageFlow():
                self.owner.link_method(self.number, old.ChannelFlow(active=True))

    def result(self, number: int, value: Struct | None) -> None:
        """Handle the result of a command."""
        act = self._results.pop(number, None)
        if act is not None:
            act(value)

    def completed(self, low: int, high: int) -> None:
        """These commands are executed."""
        size = (high - low) & 0xFFFFFFFF
        for number in [each for each in self._done if (each - low) & 0xFFFFFFFF <= size]:
            self._done.pop(number)()

    def exception(self, error: ExecutionException) -> None:
        """A command failed: the channel is closed."""
        self._over = True
        self.owner.link_method(
            self.number,
            old.ChannelClose(
                reply_code=error.error_code or 0,
                reply_text=error.description or "",
                class_id=error.class_code or 0,
                method_id=error.command_code or 0,
            ),
        )

    def resumed(self, kept: bool) -> None:
        """Never called: a channel opens a new session after a reconnection."""

    def granted(self, timeout_s: int | None) -> None:
        """Never called: no timeout is requested."""

    def given_up(self, low: int, high: int) -> None:
        """Never called: no command is kept for another attachment."""

    def lost(self, error: ClientError) -> None:
        """Do nothing: the link reports to the owner."""
        self._over = True

    # --- Inside -------------------------------------------------------------------------------

    def _expect(self) -> Reply:
        reply = Reply()
        self._replies.append(reply)
        return reply

    def _answer(self, reply: Reply, method: old.MethodBase) -> None:
        """Record a reply; replies are sent in order."""
        reply.method = method
        if not self._due:
            self._due = True
            self.link.call_soon(self._give)

    def _give(self) -> None:
        self._due = False
        while self._replies and self._replies[0].method is not None:
            reply = self._replies.popleft()
            assert reply.method is not None
            if isinstance(reply.method, old.BasicGetOk):
                self.owner.link_content(self.number, reply.method, reply.header, reply.body)
            else:
                self.owner.link_method(self.number, reply.method)

    def _ask(self, command: Command, method: old.MethodBase) -> None:
        """Send a command; `method` is the answer once it is completed."""
        reply = self._expect()
        number = self.session.send_command(command, True)
        self._done[number] = lambda: self._answer(reply, method)

    def _query(self, queue: str, answer: Callable[[QueueQueryResult], old.MethodBase]) -> None:
        """Query a queue's state for the answer."""
        reply = self._expect()
        number = self.session.send_command(QueueQuery(queue=queue), True)

        def known(state: Any) -> None:
            assert isinstance(state, QueueQueryResult)
            self._answer(reply, answer(state))

        self._results[number] = known

    def _count_queue(
        self, queue: str, command: Command, answer: old.QueueDeleteOk | old.QueuePurgeOk
    ) -> None:
        """Query a queue's length, then send a command; the answer has the length."""
        number = self.session.send_command(QueueQuery(queue=queue))

        def known(state: Any) -> None:
            answer.message_count = state.message_count or 0

        self._results[number] = known
        self._ask(command, answer)

    def _credit(self, tag: str, count: int, size: int) -> None:
        self.session.send_command(
            MessageFlow(destination=tag, unit=CreditUnit.MESSAGE, value=count)
        )
        self.session.send_command(MessageFlow(destination=tag, unit=CreditUnit.BYTE, value=size))


_REQUESTS: dict[type[old.MethodBase], Callable[[Bridge, Any], None]] = {
    old.ChannelOpen: Bridge._open,
    old.ChannelClose: Bridge._close,
    old.ChannelFlowOk: Bridge._ignore,
    old.ExchangeDeclare: Bridge._declare_exchange,
    old.ExchangeDelete: Bridge._delete_exchange,
    old.QueueDeclare: Bridge._declare_queue,
    old.QueueDelete: Bridge._delete_queue,
    old.QueuePurge: Bridge._purge_queue,
    old.QueueBind: Bridge._bind,
    old.QueueUnbind: Bridge._unbind,
    old.ConfirmSelect: Bridge._confirm,
    old.BasicQos: Bridge._qos,
    old.BasicConsume: Bridge._consume,
    old.BasicCancel: Bridge._cancel,
    old.BasicGet: Bridge._get,
    old.BasicAck: Bridge._ack,
    old.BasicNack: Bridge._nack,
    old.BasicReject: Bridge._reject,
    old.BasicRecover: Bridge._recover,
    old.TxSelect: Bridge._tx_select,
    old.TxCommit: Bridge._tx_commit,
    old.TxRollback: Bridge._tx_rollback,
    old.BasicCancelOk: Bridge._ignore,
}
