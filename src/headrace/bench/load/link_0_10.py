# SPDX-License-Identifier: Apache-2.0
"""One blocking 0-10 connection with one session: for the set-up and the end of a load."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any

from headrace.bench.load.link import PRODUCT, BenchError, reach
from headrace.protocol.codec_0_10 import (
    ConnectionClose,
    ExecutionException,
    ExecutionSync,
    decode_command,
    decode_control,
)
from headrace.protocol.v0_10.events import (
    ControlReceived,
    Event,
    Failed,
    HeaderRejected,
    SessionFailed,
)
from headrace.protocol.v0_10.session.session import Session
from headrace.testing.raw_session import RawSession, SessionClient
from headrace.wire.errors import MalformedError

if TYPE_CHECKING:
    from headrace.client.url import Settings

CHANNEL = 0


class Link010(SessionClient):
    """A connection; `open_link_0_10` returns one with a session attached."""

    product = PRODUCT
    heartbeat_s = 0  # None are asked for.
    session: RawSession

    @property
    def frame_max(self) -> int:
        """Octets of a frame, as agreed on."""
        return self.machine.max_frame_size

    def make_error(self, text: str) -> BenchError:
        return BenchError(f"{self.address}: {text}")

    def pull(self) -> None:
        super().pull()
        if self.closed:
            raise BenchError(f"{self.address} closed the connection")

    def take(self, event: Event) -> None:
        """Keep an event, unless it ends the session or the connection."""
        if isinstance(event, ControlReceived) and isinstance(event.control, ConnectionClose):
            raise BenchError(f"the broker closed: {event.control.reply_text}")
        if isinstance(event, SessionFailed):
            raise BenchError(f"the session failed: {event.error}")
        if isinstance(event, HeaderRejected | Failed):
            raise BenchError(f"{self.address} does not speak AMQP 0-10")
        super().take(event)


def open_link_0_10(settings: Settings) -> Link010:
    """Connect, with TLS if the URL requires it, log in and attach a session."""
    link = reach(Link010.at, settings)
    try:
        link.open()
        link.session = RawSession(link, Session(uuid.uuid4().bytes), CHANNEL)
        link.session.call(ExecutionSync())
    except BaseException:
        link.drop()
        raise
    return link


def raise_failure(payload: bytes) -> None:
    """Raise when a control or command ends the session or the connection."""
    try:
        if payload[:2] == bytes(ExecutionException.CODE):
            failure: Any = decode_command(payload)[1]
            raise BenchError(f"the session failed: {failure.error_code} {failure.description}")
        if payload[:2] == bytes(ConnectionClose.CODE):
            close: Any = decode_control(payload)
            raise BenchError(f"the broker closed: {close.reply_code} {close.reply_text}")
    except MalformedError as error:
        raise BenchError(f"the broker sent what cannot be read: {error}") from error
