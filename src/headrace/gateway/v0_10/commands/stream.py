# SPDX-License-Identifier: Apache-2.0
"""The multimedia stream class of 0-10; queues of type stream are something else."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headrace.gateway.content_classes.packets import Pace, PacketDesk, StreamConsumer
from headrace.gateway.conversion.headers import header_of
from headrace.gateway.v0_10.commands.file_and_stream import (
    OnSession,
    add_consumer,
    check_consumer,
    end_consumer,
    end_consumers,
    telling,
)
from headrace.gateway.v0_10.content_headers import STREAM, to_0_10, to_0_x
from headrace.model.message import KIND_STREAM
from headrace.protocol.codec_0_10 import (
    StreamCancel,
    StreamConsume,
    StreamConsumeOk,
    StreamPublish,
    StreamQos,
    StreamQosOk,
)

if TYPE_CHECKING:
    from headrace.model.message import Message
    from headrace.protocol.codec_0_10 import Command


class SessionPackets(OnSession, PacketDesk):
    """The packets of one session."""

    def __init__(self, session: Any) -> None:
        shared = session.context.paces.setdefault(session.number, Pace())
        PacketDesk.__init__(self, session.vhost, session.number, shared)
        self.session = session

    def say(self, command: Command, message: Message) -> None:
        """Send a command with a packet."""
        header = to_0_10(header_of(message), STREAM)
        self.session.send_command(command, header=header, body=message.parts or ())

    def end(self) -> None:
        PacketDesk.end(self)
        end_consumers(self.session, StreamConsumer)


def desk_of(session: Any) -> SessionPackets:
    """Return what keeps a session's packets."""
    if session.packets is None:
        desk = SessionPackets(session)
        session.packets = desk
        session.on_end.append(desk.end)
    found: SessionPackets = session.packets
    return found


def qos(session: Any, command: StreamQos, header: bytes, parts: object) -> None:
    """Set how fast packets come; there is nothing to prefetch where nothing is acknowledged."""
    desk_of(session).qos(command.consume_rate or 0, command.global_)
    session.send_command(StreamQosOk())


def consume(session: Any, command: StreamConsume, header: bytes, parts: object) -> None:
    """Start a consumer of packets."""
    lane, tag = check_consumer(session, command, KIND_STREAM)
    consumer = StreamConsumer(desk_of(session), lane, tag)
    add_consumer(session, consumer, command, StreamConsumeOk(consumer_tag=tag))


def cancel(session: Any, command: StreamCancel, header: bytes, parts: object) -> None:
    """End a consumer."""
    consumer = (session.consumers or {}).get(command.consumer_tag or "")
    if isinstance(consumer, StreamConsumer):
        end_consumer(session, consumer)


def publish(session: Any, command: StreamPublish, header: bytes, parts: tuple[bytes, ...]) -> None:
    """The client publishes a packet."""
    session.connection.publishes = True
    body = b"".join(parts)
    desk_of(session).publish(
        command.exchange or "",
        command.routing_key or "",
        command.mandatory,
        command.immediate,
        to_0_x(header, STREAM, len(body)),
        body,
    )


HANDLERS: dict[str, Any] = {
    "stream.qos": telling(qos),
    "stream.consume": telling(consume),
    "stream.cancel": telling(cancel),
    "stream.publish": telling(publish),
}
