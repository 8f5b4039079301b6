# SPDX-License-Identifier: Apache-2.0
"""Blocking connections of AMQP 0-10 with a session, for the publishers and consumers of a load."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any

from headrace.bench.load.link import PRODUCT, BenchError, connect_or_fail
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


class BenchLink010(SessionClient):
    """A connection of AMQP 0-10; `open_link_0_10` returns one with a session attached."""

    product = PRODUCT
    heartbeat_s = 0  # The connection has no heartbeats.
    session: RawSession

    @property
    def frame_max(self) -> int:
        """The negotiated maximum size of a frame, in bytes."""
        return self.machine.max_frame_size

    def make_error(self, text: str) -> BenchError:
        return BenchError(f"{self.address}: {text}")

    def pull(self) -> None:
        super().pull()
        if self.closed:
            raise BenchError(f"{self.address} closed the connection")

    def take(self, event: Event) -> None:
        """Store an event; raise BenchError if it ends the session or the connection."""
        if isinstance(event, ControlReceived) and isinstance(event.control, ConnectionClose):
            raise BenchError(f"the broker closed: {event.control.reply_text}")
        if isinstance(event, SessionFailed):
            raise BenchError(f"the session failed: {event.error}")
        if isinstance(event, HeaderRejected | Failed):
            raise BenchError(f"{self.address} does not serve AMQP 0-10")
        super().take(event)


def open_link_0_10(settings: Settings) -> BenchLink010:
    """Connect, with TLS if the URL requires it, log in and attach a session."""
    link = connect_or_fail(BenchLink010.connect_to, settings)
    try:
        link.open()
        link.session = RawSession(link, Session(uuid.uuid4().bytes), CHANNEL)
        link.session.call(ExecutionSync())
    except BaseException:
        link.drop()
        raise
    return link


def raise_failure(payload: bytes) -> None:
    """Raise BenchError if a control or command ends the session or the connection."""
    try:
        if payload[:2] == bytes(ExecutionException.CODE):
            failure: Any = decode_command(payload)[1]
            raise BenchError(f"the session failed: {failure.error_code} {failure.description}")
        if payload[:2] == bytes(ConnectionClose.CODE):
            close: Any = decode_control(payload)
            raise BenchError(f"the broker closed: {close.reply_code} {close.reply_text}")
    except MalformedError as error:
        raise BenchError(f"the broker's frame cannot be decoded: {error}") from error
