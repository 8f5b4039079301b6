# SPDX-License-Identifier: Apache-2.0
"""Clients with the same calls for every version, and for the message class of 0-9.

Each encodes and decodes by the codec of its version, and not by the broker's conversion.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol
from uuid import UUID

from headrace.gateway.v0_10.connection.connection import Connection010 as ServedConnection
from headrace.gateway.v0_10.connection.context import Context010
from headrace.gateway.v0_10.plug_ins import SERVED
from headrace.protocol.codec_0_10 import (
    ExchangeBind,
    MessageAccept,
    MessageProperties,
    MessageReject,
    ReplyTo,
    TxCommit,
    TxRollback,
    TxSelect,
)
from headrace.protocol.codec_0_10 import (
    ExchangeDeclare as ExchangeDeclare010,
)
from headrace.protocol.codec_0_10 import QueueDeclare as QueueDeclare010
from headrace.protocol.codec_0_x import (
    BasicAck,
    BasicConsume,
    BasicConsumeOk,
    BasicDeliver,
    BasicProperties,
    BasicReject,
    BasicReturn,
    ChannelClose,
    ExchangeDeclare,
    ExchangeDeclareOk,
    MessageAppend,
    MessageClose,
    MessageConsume,
    MessageOk,
    MessageOpen,
    MessageTransfer,
    QueueBind,
    QueueBindOk,
    QueueDeclare,
    QueueDeclareOk,
    TxCommitOk,
    TxRollbackOk,
    TxSelectOk,
    decode_content_header,
)
from headrace.protocol.codec_0_x import Content as Body
from headrace.protocol.codec_0_x import MessageReject as Rejected
from headrace.protocol.codec_0_x import TxCommit as TxCommit0X
from headrace.protocol.codec_0_x import TxRollback as TxRollback0X
from headrace.protocol.codec_0_x import TxSelect as TxSelect0X
from headrace.protocol.v0_x.events import ContentReceived, MethodReceived
from headrace.spec.tables import V0_8, V0_9, V0_9_1, Version
from headrace.testing.raw_session import SessionClient
from headrace.wire.ranges import SequenceSet

if TYPE_CHECKING:
    from support.brokers.in_memory_broker import Client, Rig

FRAME_BODY = 100_000  # Bytes of a body that a method carries.
CARRIERS = ("x-headrace-0-x", "x-headrace-0-10")


@dataclass
class Said:
    """A message independent of the version; absent properties are None."""

    body: bytes = b""
    exchange: str = ""
    routing_key: str = ""
    priority: int | None = None
    persistent: bool = False
    ttl_ms: int | None = None
    message_id: str | None = None
    correlation_id: str | None = None
    reply_to: tuple[str, str] | None = None  # Exchange and routing key.
    content_type: str | None = None
    content_encoding: str | None = None
    user_id: str | None = None
    app_id: str | None = None
    timestamp: datetime | None = None
    type: str | None = None
    cluster_id: str | None = None
    headers: dict[str, Any] = field(default_factory=dict)


def text_of(reply_to: tuple[str, str] | None) -> str | None:
    """Return a reply-to in the form of 0-x clients."""
    if reply_to is None:
        return None
    exchange, key = reply_to
    return f"direct://{exchange}//?routingkey='{key}'" if exchange else key


def pair_of(text: str | None) -> tuple[str, str] | None:
    if text is None:
        return None
    if not text.startswith("direct://"):
        return "", text
    exchange, _, key = text.removeprefix("direct://").partition("//?routingkey='")
    return exchange, key.removesuffix("'")


def own(headers: dict[str, Any] | None) -> dict[str, Any]:
    """Return headers without those in which the broker carries properties of other versions."""
    return {key: value for key, value in (headers or {}).items() if key not in CARRIERS}


class Speaker(Protocol):
    """A client that publishes, and that receives with acknowledgements."""

    def declare(self, name: str, arguments: dict[str, Any] | None = None) -> None:
        """Declare a queue."""

    def declare_exchange(
        self,
        name: str,
        kind: str,
        alternate: str | None = None,
        arguments: dict[str, Any] | None = None,
    ) -> None:
        """Declare an exchange."""

    def bind(
        self, queue: str, exchange: str, key: str, arguments: dict[str, Any] | None = None
    ) -> None: ...

    def differs(self, queue: str) -> bool:
        """Declare an existing queue with other fields; return True if the broker refuses it."""

    def publish(self, said: Said) -> None:
        """Publish a message."""

    def comes_back(self, said: Said, *, immediate: bool) -> bool:
        """Publish a mandatory or immediate message; return True if the broker returns it."""

    def consume(self, queue: str, *, automatic: bool = False) -> None:
        """Consume from a queue; with `automatic` without acknowledgements."""

    def read_stream(self, queue: str) -> None:
        """Read a stream from its start."""

    def received(self) -> list[Said]:
        """Return the messages since the last call."""

    def settle(self, accept: bool) -> None:
        """Accept or reject the oldest message that we hold."""

    def select(self) -> None:
        """Begin transactions."""

    def commit(self) -> None: ...

    def rollback(self) -> None: ...


class Basic(Speaker):
    """Class basic of 0-8, 0-9 or 0-9-1."""

    def __init__(self, rig: Rig, version: Version) -> None:
        kin = version is not V0_9_1  # Of Qpid's, which extended the two.
        self.client: Client = rig.client(version, product="qpid" if kin else "rig")
        self.version = version
        self.held: list[int] = []
        self.tags = 0

    def declare(self, name: str, arguments: dict[str, Any] | None = None) -> None:
        method = QueueDeclare(queue=name, durable=True, arguments=arguments or {})
        self.client.call(method, QueueDeclareOk)

    def declare_exchange(
        self,
        name: str,
        kind: str,
        alternate: str | None = None,
        arguments: dict[str, Any] | None = None,
    ) -> None:
        given = dict(arguments or {})
        if alternate is not None:
            given["alternate-exchange"] = alternate
        method = ExchangeDeclare(exchange=name, type=kind, durable=True, arguments=given)
        self.client.call(method, ExchangeDeclareOk)

    def bind(
        self, queue: str, exchange: str, key: str, arguments: dict[str, Any] | None = None
    ) -> None:
        method = QueueBind(
            queue=queue, exchange=exchange, routing_key=key, arguments=arguments or {}
        )
        self.client.call(method, QueueBindOk)

    def differs(self, queue: str) -> bool:
        arguments: dict[str, Any] = {"x-max-length": 6}
        self.client.send(QueueDeclare(queue=queue, durable=True, arguments=arguments))
        (answer,) = self.client.heard()
        if self.version is not V0_9_1:  # These say nothing of arguments that differ.
            return isinstance(answer, QueueDeclareOk)
        return isinstance(answer, ChannelClose) and answer.reply_code == 406

    def publish(self, said: Said) -> None:
        self.client.publish(
            said.routing_key,
            said.body,
            exchange=said.exchange,
            content_type=said.content_type,
            content_encoding=said.content_encoding,
            headers=said.headers or None,
            delivery_mode=2 if said.persistent else None,
            priority=said.priority,
            correlation_id=said.correlation_id,
            reply_to=text_of(said.reply_to),
            expiration=None if said.ttl_ms is None else str(said.ttl_ms),
            message_id=said.message_id,
            timestamp=said.timestamp,
            type=said.type,
            user_id=said.user_id,
            app_id=said.app_id,
            cluster_id=said.cluster_id,
        )

    def comes_back(self, said: Said, *, immediate: bool) -> bool:
        self.client.publish(
            said.routing_key, said.body, mandatory=not immediate, immediate=immediate
        )
        contents = self.client.contents()
        assert all(isinstance(content.method, BasicReturn) for content in contents)
        return bool(contents)

    def consume(self, queue: str, *, automatic: bool = False) -> None:
        self.tags += 1
        method = BasicConsume(queue=queue, consumer_tag=f"t{self.tags}", no_ack=automatic)
        self.client.call(method, BasicConsumeOk)

    def read_stream(self, queue: str) -> None:
        arguments: dict[str, Any] = {"x-stream-offset": "first"}
        self.client.call(
            BasicConsume(queue=queue, consumer_tag="s", no_ack=True, arguments=arguments),
            BasicConsumeOk,
        )

    def received(self) -> list[Said]:
        return [self.read(content) for content in self.client.contents()]

    def read(self, content: ContentReceived) -> Said:
        method = content.method
        assert isinstance(method, BasicDeliver)
        self.held.append(method.delivery_tag)
        _, size, p = decode_content_header(self.version, content.header)
        assert isinstance(p, BasicProperties)
        assert size == len(content.body)
        timestamp = p.timestamp
        assert timestamp is None or isinstance(timestamp, datetime)
        return Said(
            body=content.body,
            exchange=method.exchange,
            routing_key=method.routing_key,
            priority=p.priority,
            persistent=p.delivery_mode == 2,
            ttl_ms=None if p.expiration is None else int(p.expiration),
            message_id=p.message_id,
            correlation_id=p.correlation_id,
            reply_to=pair_of(p.reply_to),
            content_type=p.content_type,
            content_encoding=p.content_encoding,
            user_id=p.user_id,
            app_id=p.app_id,
            timestamp=timestamp,
            type=p.type,
            cluster_id=p.cluster_id,
            headers=own(p.headers),
        )

    def settle(self, accept: bool) -> None:
        tag = self.held.pop(0)
        self.client.send(
            BasicAck(delivery_tag=tag) if accept else BasicReject(delivery_tag=tag, requeue=False)
        )

    def select(self) -> None:
        self.client.call(TxSelect0X(), TxSelectOk)

    def commit(self) -> None:
        self.client.send(TxCommit0X())
        self.drop_answer(TxCommitOk)

    def rollback(self) -> None:
        self.client.send(TxRollback0X())
        self.drop_answer(TxRollbackOk)

    def drop_answer(self, kind: type[Any]) -> None:
        """The answer came, before or behind deliveries."""
        events = self.client.events
        for event in events:
            if isinstance(event, MethodReceived) and isinstance(event.method, kind):
                events.remove(event)
                return
        raise AssertionError(f"no {kind.NAME} in {events}")


class Transfers(Basic):
    """The message class of 0-9."""

    def __init__(self, rig: Rig) -> None:
        Basic.__init__(self, rig, V0_9)

    def publish(self, said: Said) -> None:
        headers = dict(said.headers)
        if said.type is not None:
            headers["x-jms-type"] = said.type
        if said.cluster_id is not None:
            headers["x-headrace-cluster-id"] = said.cluster_id
        body = self.body_of(said.body)
        self.client.send(
            MessageTransfer(
                destination=said.exchange,
                routing_key=said.routing_key,
                priority=said.priority or 0,
                delivery_mode=2 if said.persistent else 0,
                ttl=said.ttl_ms or 0,
                message_id=said.message_id or "",
                correlation_id=said.correlation_id or "",
                reply_to=text_of(said.reply_to) or "",
                content_type=said.content_type or "",
                content_encoding=said.content_encoding or "",
                user_id=said.user_id or "",
                app_id=said.app_id or "",
                timestamp=said.timestamp or 0,
                application_headers=headers,
                body=body,
            )
        )
        if body.is_reference:
            self.client.send(MessageClose(reference=b"ref"))
            self.drop_answer(MessageOk)
        self.drop_answer(MessageOk)

    def comes_back(self, said: Said, *, immediate: bool) -> bool:
        self.client.send(
            MessageTransfer(routing_key=said.routing_key, immediate=immediate, body=Body(said.body))
        )
        (answer,) = self.client.heard()
        return isinstance(answer, Rejected)

    def body_of(self, raw: bytes) -> Body:
        """Return a body that fits a frame, else send it ahead by reference."""
        if len(raw) <= FRAME_BODY:
            return Body(raw)
        self.client.send(MessageOpen(reference=b"ref"))
        self.drop_answer(MessageOk)
        for at in range(0, len(raw), FRAME_BODY):
            self.client.send(MessageAppend(reference=b"ref", data=raw[at : at + FRAME_BODY]))
            self.drop_answer(MessageOk)
        return Body(b"ref", is_reference=True)

    def consume(self, queue: str, *, automatic: bool = False) -> None:
        self.tags += 1
        method = MessageConsume(queue=queue, destination=f"t{self.tags}", no_ack=automatic)
        self.client.call(method, MessageOk)

    def received(self) -> list[Said]:
        found = []
        bodies: dict[bytes, bytes] = {}
        heard = self.client.heard()
        for method in heard:
            if isinstance(method, MessageAppend):
                name = method.reference
                bodies[name] = bodies.get(name, b"") + method.data
        for method in heard:
            if not isinstance(method, MessageTransfer):
                assert isinstance(method, MessageOpen | MessageAppend | MessageClose), method
                continue
            body = method.body.data
            if method.body.is_reference:
                body = bodies[body]
            headers = own(method.application_headers)
            timestamp = method.timestamp
            assert isinstance(timestamp, datetime)
            found.append(
                Said(
                    body=body,
                    exchange=method.exchange,
                    routing_key=method.routing_key,
                    priority=method.priority or None,
                    persistent=method.delivery_mode == 2,
                    ttl_ms=method.ttl or None,
                    message_id=method.message_id or None,
                    correlation_id=method.correlation_id or None,
                    reply_to=pair_of(method.reply_to or None),
                    content_type=method.content_type or None,
                    content_encoding=method.content_encoding or None,
                    user_id=method.user_id or None,
                    app_id=method.app_id or None,
                    timestamp=timestamp if timestamp.timestamp() else None,
                    type=headers.pop("x-jms-type", None),
                    cluster_id=headers.pop("x-headrace-cluster-id", None),
                    headers=headers,
                )
            )
        return found

    def settle(self, accept: bool) -> None:
        self.client.send(MessageOk() if accept else Rejected())


class LocalTalk(SessionClient):
    """A 0-10 client on the broker of a rig."""

    def __init__(self, rig: Rig) -> None:
        if rig.context.make_0_10 is None:
            rig.context.make_0_10 = partial(ServedConnection, Context010(rig.context, SERVED))
        rig.number += 1
        self.rig = rig
        there = rig.context.make_0_10(rig.number, True)
        assert isinstance(there, ServedConnection)
        self.there = there
        self.begin()
        self.open()

    def push(self) -> None:
        """Let both talk until neither has anything to say."""
        while True:
            asked, said = self.machine.data_to_send(), self.there.data_to_send()
            if not asked and not said:
                return
            if asked:
                self.there.receive(asked)
            self.rig.turn()
            for event in self.machine.receive(said):
                self.take(event)

    def pull(self) -> None:
        """Everything that can come is here once the clocks of the broker moved on."""
        before = self.machine.pending() + self.there.pending()
        self.rig.turn()
        self.push()
        assert before or self.there.pending() or self.ticks < 3, "nothing more comes"
        self.ticks += 1

    ticks = 0


class Sessions(Speaker):
    """0-10."""

    def __init__(self, rig: Rig) -> None:
        self.talk = LocalTalk(rig)
        self.session = self.talk.attach(f"s{rig.number}")
        self.held: list[int] = []
        self.tags = 0
        self.transacted = False

    def call(self, command: Any) -> Any:
        self.talk.ticks = 0
        return self.session.call(command)

    def declare(self, name: str, arguments: dict[str, Any] | None = None) -> None:
        self.call(QueueDeclare010(queue=name, durable=True, arguments=arguments or None))

    def declare_exchange(
        self,
        name: str,
        kind: str,
        alternate: str | None = None,
        arguments: dict[str, Any] | None = None,
    ) -> None:
        self.call(
            ExchangeDeclare010(
                exchange=name,
                type=kind,
                durable=True,
                alternate_exchange=alternate,
                arguments=arguments,
            )
        )

    def bind(
        self, queue: str, exchange: str, key: str, arguments: dict[str, Any] | None = None
    ) -> None:
        self.call(
            ExchangeBind(queue=queue, exchange=exchange, binding_key=key, arguments=arguments)
        )

    def differs(self, queue: str) -> bool:
        arguments: dict[str, Any] = {"x-max-length": 6}
        self.talk.ticks = 0
        error = self.session.expect_exception(QueueDeclare010(queue=queue, arguments=arguments))
        return error is not None

    def publish(self, said: Said) -> None:
        headers: dict[str, Any] = dict(said.headers)
        if said.type is not None:
            headers["x-jms-type"] = said.type
        if said.cluster_id is not None:
            carried: dict[str, Any] = {"cluster-id": said.cluster_id}
            if not headers:
                carried["no-headers"] = True
            headers["x-headrace-0-x"] = carried
        message = MessageProperties(
            message_id=None if said.message_id is None else UUID(said.message_id),
            correlation_id=None if said.correlation_id is None else said.correlation_id.encode(),
            reply_to=None
            if said.reply_to is None
            else ReplyTo(exchange=said.reply_to[0], routing_key=said.reply_to[1]),
            content_type=said.content_type,
            content_encoding=said.content_encoding,
            user_id=None if said.user_id is None else said.user_id.encode(),
            app_id=None if said.app_id is None else said.app_id.encode(),
            application_headers=headers or None,
        )
        self.talk.ticks = 0
        self.session.publish(
            said.body,
            said.routing_key,
            said.exchange,
            message=message,
            wait=not self.transacted,
            priority=said.priority,
            delivery_mode=2 if said.persistent else None,
            ttl=said.ttl_ms,
            timestamp=said.timestamp,
        )

    def comes_back(self, said: Said, *, immediate: bool) -> bool:
        self.session.commands.clear()
        self.talk.ticks = 0
        self.session.publish(
            said.body, said.routing_key, accept_mode=0, wait=False, immediate=immediate
        )
        self.talk.push()
        return any(isinstance(one.command, MessageReject) for one in self.session.commands)

    def consume(self, queue: str, *, automatic: bool = False) -> None:
        self.tags += 1
        self.talk.ticks = 0
        self.session.subscribe(queue, f"t{self.tags}", accept_mode=1 if automatic else 0)

    def read_stream(self, queue: str) -> None:
        self.talk.ticks = 0
        arguments: dict[str, Any] = {"x-stream-offset": "first"}
        self.session.subscribe(queue, "s", accept_mode=1, arguments=arguments)

    def received(self) -> list[Said]:
        self.talk.push()
        deliveries, self.session.deliveries = self.session.deliveries, []
        found = []
        for one in deliveries:
            self.held.append(one.id)
            d, m = one.delivery, one.message or MessageProperties()
            raw = m.application_headers or {}
            headers = own(raw)
            carried = raw.get("x-headrace-0-x", {})
            assert isinstance(carried, dict)
            timestamp = d.timestamp
            assert timestamp is None or isinstance(timestamp, datetime)
            found.append(
                Said(
                    body=one.body,
                    exchange=d.exchange or "",
                    routing_key=d.routing_key or "",
                    priority=d.priority,
                    persistent=d.delivery_mode == 2,
                    ttl_ms=d.ttl,
                    message_id=None if m.message_id is None else str(m.message_id),
                    correlation_id=text(m.correlation_id),
                    reply_to=None
                    if m.reply_to is None
                    else (m.reply_to.exchange or "", m.reply_to.routing_key or ""),
                    content_type=m.content_type,
                    content_encoding=m.content_encoding,
                    user_id=text(m.user_id),
                    app_id=text(m.app_id),
                    timestamp=timestamp,
                    type=headers.pop("x-jms-type", None),  # type: ignore[arg-type]  # A text.
                    cluster_id=carried.get("cluster-id"),  # type: ignore[arg-type]  # A text.
                    headers=headers,
                )
            )
        return found

    def settle(self, accept: bool) -> None:
        number = self.held.pop(0)
        transfers = SequenceSet([(number, number)])
        self.call(
            MessageAccept(transfers=transfers) if accept else MessageReject(transfers=transfers)
        )

    def select(self) -> None:
        self.transacted = True
        self.call(TxSelect())

    def commit(self) -> None:
        self.call(TxCommit())

    def rollback(self) -> None:
        self.call(TxRollback())


def text(raw: bytes | None) -> str | None:
    return None if raw is None else raw.decode()


SPEAKERS = {
    "0-8": lambda rig: Basic(rig, V0_8),
    "0-9": lambda rig: Basic(rig, V0_9),
    "0-9-1": lambda rig: Basic(rig, V0_9_1),
    "0-9 message": Transfers,
    "0-10": Sessions,
}
