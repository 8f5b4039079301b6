# SPDX-License-Identifier: Apache-2.0
"""A client of AMQP 0-10 for checks: a session of its own, and another one after each refusal."""

from __future__ import annotations

import contextlib
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from headrace.client.blocking import Connection, Session, Subscription
from headrace.client.blocking.loop_thread import LOOP
from headrace.client.connection.connection import Connection as Source
from headrace.client.errors import ChannelClosed, ClientError
from headrace.client.link.backpressure import HELD_MAX, HIGH_WATER, Backpressure
from headrace.client.message import Message
from headrace.conformance.peer import BrokenRule, must
from headrace.protocol.codec_0_10 import (
    Command,
    ExchangeBind,
    ExchangeDeclare,
    MessageAccept,
    MessageReject,
    QueueDeclare,
    QueueQuery,
    Struct,
)
from headrace.spec.tables import V0_10
from headrace.wire.ranges import SequenceSet

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace.client.session.subscription import Transfer
    from headrace.client.url import Settings


class SessionPeer:
    """One connection with one session at a time."""

    def __init__(self, settings: Settings) -> None:
        self.answer_s = settings.connection_timeout_s
        self.connection = _connect(replace(settings, version=V0_10), self.answer_s)
        self.session = self.connection.session()

    def close(self) -> None:
        """Close the connection with its handshake."""
        with contextlib.suppress(ClientError, OSError):
            self.connection.close()

    def another(self, name: bytes = b"", *, force: bool = False) -> Session:
        """Return one more session on the same connection."""
        return self.connection.session(name, force=force)

    # Every command has a result of its own class.
    def call(self, command: Command) -> Any:
        """Send a command, which must be completed; return its result."""
        return self.session.call(command)

    def expect_refusal(self, command: Command, *codes: int) -> None:
        """Send a command, which must end the session (with one of these codes); begin the next."""
        self.expect_failure(lambda: self.session.call(command), command.NAME, *codes)

    def expect_failure(self, act: Callable[[], object], name: str, *codes: int) -> None:
        """Call ``act``, which must end the session (with one of these codes); begin the next."""
        try:
            act()
        except ChannelClosed as closed:
            if codes and closed.code not in codes:
                raise BrokenRule(f"{name} fails with {codes}, not with {closed}") from closed
        else:
            raise BrokenRule(f"{name} is completed where an exception was due")
        self.session = self.connection.session()

    # --- Common commands ------------------------------------------------------------------------

    def declare(self, queue: str, **fields: Any) -> str:
        """Declare a queue."""
        self.call(QueueDeclare(queue=queue, **fields))
        return queue

    def exchange(self, exchange: str, kind: str = "direct", **fields: Any) -> str:
        """Declare an exchange."""
        self.call(ExchangeDeclare(exchange=exchange, type=kind, **fields))
        return exchange

    def bind(self, queue: str, exchange: str, key: str = "", **arguments: Any) -> None:
        """Bind a queue."""
        command = ExchangeBind(queue=queue, exchange=exchange, binding_key=key)
        command.arguments = arguments or None
        self.call(command)

    def publish(
        self, key: str, *bodies: bytes, exchange: str = "", lasting: bool = False, **how: Any
    ) -> None:
        """Send messages, each of which the broker must accept."""
        for body in bodies:
            self.session.transfer(Message(body, persistent=lasting, **how), key, exchange)

    def count(self, queue: str) -> int:
        """Return the number of ready messages of a queue, which must exist."""
        state = self.session.query_queue(queue)
        if state is None:
            raise BrokenRule(f"queue {queue} is gone")
        return state.message_count or 0

    def holds(self, queue: str, count: int) -> bool:
        """Return True once a queue holds so many messages; some brokers count a bit late."""
        return self.becomes(lambda: self.count(queue) == count)

    def becomes(self, condition: Callable[[], bool]) -> bool:
        """Return True once a condition holds."""
        deadline = time.monotonic() + self.answer_s / 2
        while not condition():
            if time.monotonic() > deadline:
                return False
        return True

    def exists(self, queue: str) -> bool:
        """Return True if the queue exists."""
        state: Struct | None = self.session.query_queue(queue)
        return state is not None

    def subscribe(self, queue: str, messages: int = 100, **how: Any) -> Subscription:
        """Subscribe with this credit."""
        subscription = self.session.subscribe(queue, **how)
        subscription.flow(messages)
        return subscription

    def take_transfers(self, subscription: Subscription, count: int) -> list[Transfer]:
        """Return the next messages of a subscription."""
        transfers: list[Transfer] = []
        for _ in range(count):
            try:
                transfers.append(subscription.receive(self.answer_s))
            except TimeoutError:
                text = f"{len(transfers)} messages come within {self.answer_s:g} s, not {count}"
                raise BrokenRule(text) from None
        return transfers

    def expect_silence(self, subscription: Subscription, reason: str) -> None:
        """Check that no message has come after all commands are completed."""
        self.session.sync()
        must(subscription.receive_nowait() is None, f"nothing is sent: {reason}")

    def bodies(self, queue: str) -> list[bytes]:
        """Take all messages of a queue; return their bodies."""
        with self.session.subscribe(queue) as subscription:
            subscription.flow(1000)
            subscription.flush()
            transfers: list[Transfer] = []
            while (transfer := subscription.receive_nowait()) is not None:
                transfers.append(transfer)
            if transfers:
                self.session.accept(*transfers)
        return [transfer.body for transfer in transfers]

    def accepts(self, *transfers: Transfer) -> None:
        """Send message.accept, also for messages that were not acquired."""
        self.call(MessageAccept(transfers=_ids(transfers)))

    def rejects(self, *transfers: Transfer) -> None:
        """Send message.reject, also for messages that were not acquired."""
        self.call(MessageReject(transfers=_ids(transfers), code=0))

    def state(self, queue: str) -> Any:
        """Return the answer of queue.query."""
        return self.call(QueueQuery(queue=queue))


def _ids(transfers: tuple[Transfer, ...]) -> SequenceSet:
    return SequenceSet([(transfer.number, transfer.number) for transfer in transfers])


def _connect(settings: Settings, timeout_s: float) -> Connection:
    async def open_source() -> Source:
        source = Source(
            [settings],
            reconnect=None,
            ssl_context=None,
            on_event=None,
            backpressure=Backpressure(HIGH_WATER, HELD_MAX),
        )
        await source.open()
        return source

    return Connection(LOOP.run(open_source(), timeout_s), timeout_s)
