# SPDX-License-Identifier: Apache-2.0
"""A client of AMQP 0-10 for checks, with a session that it replaces after each exception."""

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
    """A connection of AMQP 0-10 with a session."""

    def __init__(self, settings: Settings) -> None:
        self.timeout_s = settings.connection_timeout_s
        self.connection = _connect(replace(settings, version=V0_10), self.timeout_s)
        self.session = self.connection.session()

    def close(self) -> None:
        """Close the connection; ignore the error if it is lost already."""
        with contextlib.suppress(ClientError, OSError):
            self.connection.close()

    def open_session(self, name: bytes = b"", *, force: bool = False) -> Session:
        """Open a further session on the same connection."""
        return self.connection.session(name, force=force)

    # Every command has a result of its own class.
    def call(self, command: Command) -> Any:
        """Send a command, which must be completed; return its result."""
        return self.session.call(command)

    def expect_refusal(self, command: Command, *codes: int) -> None:
        """Send a command, which must fail with one of these codes, or any; open a new session."""
        self.expect_failure(lambda: self.session.call(command), command.NAME, *codes)

    def expect_failure(self, act: Callable[[], object], name: str, *codes: int) -> None:
        """Call `act`, which must fail with one of these codes, or any; open a new session."""
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
        """Declare a queue; return its name."""
        self.call(QueueDeclare(queue=queue, **fields))
        return queue

    def exchange(self, exchange: str, kind: str = "direct", **fields: Any) -> str:
        """Declare an exchange; return its name."""
        self.call(ExchangeDeclare(exchange=exchange, type=kind, **fields))
        return exchange

    def bind(self, queue: str, exchange: str, key: str = "", **arguments: Any) -> None:
        """Bind a queue to an exchange."""
        command = ExchangeBind(queue=queue, exchange=exchange, binding_key=key)
        command.arguments = arguments or None
        self.call(command)

    def publish(
        self,
        key: str,
        *bodies: bytes,
        exchange: str = "",
        persistent: bool = False,
        **properties: Any,
    ) -> None:
        """Transfer a message for each body; the broker must complete each transfer."""
        for body in bodies:
            self.session.transfer(Message(body, persistent=persistent, **properties), key, exchange)

    def count(self, queue: str) -> int:
        """Return the number of ready messages of a queue, which must exist."""
        state = self.session.query_queue(queue)
        if state is None:
            raise BrokenRule(f"queue {queue!r} does not exist")
        return state.message_count or 0

    def holds(self, queue: str, count: int) -> bool:
        """Return True once a queue has `count` ready messages, as `becomes` does."""
        return self.becomes(lambda: self.count(queue) == count)

    def becomes(self, condition: Callable[[], bool]) -> bool:
        """Return True once a condition holds; False after half of the time limit."""
        deadline = time.monotonic() + self.timeout_s / 2
        while not condition():
            if time.monotonic() > deadline:
                return False
        return True

    def exists(self, queue: str) -> bool:
        """Return True if a queue exists."""
        state: Struct | None = self.session.query_queue(queue)
        return state is not None

    def subscribe(self, queue: str, messages: int = 100, **options: Any) -> Subscription:
        """Subscribe to a queue and grant credit for a number of messages."""
        subscription = self.session.subscribe(queue, **options)
        subscription.flow(messages)
        return subscription

    def take_transfers(self, subscription: Subscription, count: int) -> list[Transfer]:
        """Return the next `count` messages of a subscription, which must arrive in time."""
        transfers: list[Transfer] = []
        for _ in range(count):
            try:
                transfers.append(subscription.receive(self.timeout_s))
            except TimeoutError:
                text = f"{len(transfers)} messages arrive within {self.timeout_s:g} s, not {count}"
                raise BrokenRule(text) from None
        return transfers

    def expect_silence(self, subscription: Subscription, reason: str) -> None:
        """Check that no message has arrived once all commands are complete."""
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

    def accept(self, *transfers: Transfer) -> None:
        """Send message.accept, also for messages that were not acquired."""
        self.call(MessageAccept(transfers=_ids(transfers)))

    def reject(self, *transfers: Transfer) -> None:
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
