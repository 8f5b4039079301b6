# SPDX-License-Identifier: Apache-2.0
"""The stream class (multimedia packets) on a session of 0-10; not queues of type stream."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from headrace.gateway.connection.plug_in_state import ensure_state
from headrace.gateway.content_classes.stream import PacketClass, PacketRate, StreamConsumer
from headrace.gateway.conversion.headers import header_payload
from headrace.gateway.v0_10.content_classes.session_port import SessionPort
from headrace.gateway.v0_10.content_headers import STREAM, to_0_10, to_0_x

if TYPE_CHECKING:
    from headrace.gateway.v0_10.session.session import Session010
    from headrace.model.message import Message
    from headrace.protocol.codec_0_10 import Command, StreamPublish


class SessionPackets(SessionPort, PacketClass):
    """The stream class on one session of 0-10."""

    def __init__(self, session: Session010) -> None:
        shared = session.context.shared_state(session.number, PacketRate)
        PacketClass.__init__(self, session.vhost, session.number, shared)
        self.session = session
        session.on_end.append(self.end)

    def send_packet(self, command: Command, message: Message) -> None:
        header = to_0_10(header_payload(message), STREAM)
        self.session.send_command(command, header=header, body=message.parts or ())

    def end(self) -> None:
        PacketClass.end(self)
        self.end_consumers(StreamConsumer)


def session_packets(session: Session010) -> SessionPackets:
    """Return the packets of a session."""
    return ensure_state(session, SessionPackets, partial(SessionPackets, session))


def publish(
    session: Session010, command: StreamPublish, header: bytes, parts: tuple[bytes, ...]
) -> None:
    """Publish a packet."""
    body = b"".join(parts)
    session_packets(session).on_publish(command, to_0_x(header, STREAM, len(body)), body)
