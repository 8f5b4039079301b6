# SPDX-License-Identifier: Apache-2.0
"""Checks of how connections and sessions of 0-10 begin and end, control by control."""

from __future__ import annotations

from uuid import uuid4

from headrace.conformance.check import Site, check
from headrace.conformance.peer import must
from headrace.protocol.codec_0_10 import (
    ConnectionClose,
    ConnectionOpen,
    ConnectionOpenOk,
    ConnectionStart,
    ConnectionStartOk,
    ConnectionTuneOk,
    ExecutionSync,
    SessionAttach,
    SessionAttached,
    SessionCommandPoint,
    SessionDetached,
    SessionExpected,
    SessionFlush,
    SessionRequestTimeout,
    SessionTimeout,
)
from headrace.spec.reply_0_10 import CloseCode, DetachCode

SMALLEST_FRAME = 4096  # The smallest frame size that can be negotiated, in bytes.
CHANNELS_MAX = 0xFFFF  # The largest channel-max.


@check("0-10/s006")
def opening_unknown_version(site: Site) -> None:
    """An unknown protocol header gets a supported header, and the connection ends."""
    peer = site.controls()
    peer.send_bytes(b"AMQP\x01\x01\x63\x63")
    must(peer.read(8)[:4] in (b"AMQP", b""), "a protocol header or nothing")
    must(peer.read(1) == b"", "the end of the stream, and no control")


@check("0-10/s004", "0-10/s008", "0-10/s009")
def opening_start(site: Site) -> None:
    """connection.start has the broker's properties and offers the locale en_US."""
    start = site.controls().greet().expect(ConnectionStart)
    must("en_US" in (start.locales or []), f"en_US is one of {start.locales}")
    must({"product", "version"} <= set(start.server_properties or {}), "what the broker is")


@check("0-10/s012")
def opening_other_mechanism(site: Site) -> None:
    """A mechanism that was not offered ends the connection without another byte."""
    peer = site.controls().greet()
    peer.expect(ConnectionStart)
    peer.send(ConnectionStartOk(mechanism="X-NO-SUCH", response=b"", locale="en_US"))
    must(peer.frame() is None, "the end of the stream")


@check("0-10/s014", "0-10/s015")
def opening_too_many_channels(site: Site) -> None:
    """More channels than offered end the connection without another byte."""
    peer = site.controls()
    tune = peer.log_in()
    must(
        tune.heartbeat_min is not None or tune.heartbeat_max is None,
        "connection.tune has no heartbeat-max without a heartbeat-min",
    )
    limit = tune.channel_max
    if limit is not None and limit < CHANNELS_MAX:
        peer.send(ConnectionTuneOk(channel_max=limit + 1, max_frame_size=SMALLEST_FRAME))
        must(peer.frame() is None, f"the end of the stream after a channel-max above {limit}")


@check("0-10/s013", "0-10/s016")
def opening_smallest_frames(site: Site) -> None:
    """The broker accepts frames of 4096 bytes before tuning, and this size can be negotiated."""
    peer = site.controls()
    peer.log_in(SMALLEST_FRAME)
    peer.send(ConnectionTuneOk(channel_max=1, max_frame_size=SMALLEST_FRAME))
    peer.send(ConnectionOpen(virtual_host=site.settings.vhost))
    peer.expect(ConnectionOpenOk)


@check("0-10/s019")
def opening_oversized_frame(site: Site) -> None:
    """A frame above the negotiated size closes the connection with framing-error."""
    peer = site.controls().open(SMALLEST_FRAME)
    peer.send_frame(bytes(SMALLEST_FRAME), channel=0)
    closed = peer.expect(ConnectionClose)
    code = closed.reply_code
    must(code == CloseCode.FRAMING_ERROR, f"the close-code is 501, not {code}")


@check("0-10/s030", "0-10/s031")
def session_not_attached(site: Site) -> None:
    """A control for a channel without session is answered with session.detached, not-attached."""
    peer = site.controls().open()
    peer.send(SessionFlush(completed=True), channel=1)
    code = peer.expect(SessionDetached, channel=1).code
    must(code == DetachCode.NOT_ATTACHED, f"the code is not-attached (3), not {code}")


@check("0-10/s032")
def session_busy(site: Site) -> None:
    """A session can be attached to one transport at a time."""
    first, second = site.controls().open(), site.controls().open()
    name = uuid4().bytes
    first.attach(name)
    second.send(SessionAttach(name=name), channel=1)
    code = second.expect(SessionDetached, channel=1).code
    must(code == DetachCode.SESSION_BUSY, f"the code is session-busy (1), not {code}")


@check("0-10/s033")
def transport_busy(site: Site) -> None:
    """A transport can have one session at a time."""
    peer = site.controls().open()
    peer.attach(uuid4().bytes)
    peer.send(SessionAttach(name=uuid4().bytes), channel=1)
    code = peer.expect(SessionDetached, channel=1).code
    must(code == DetachCode.TRANSPORT_BUSY, f"the code is transport-busy (2), not {code}")


@check("0-10/s034")
def session_attached_again(site: Site) -> None:
    """Attaching a session again to its transport is answered with session.attached."""
    peer = site.controls().open()
    name = uuid4().bytes
    peer.attach(name)
    peer.send(SessionAttach(name=name), channel=1)
    peer.expect(SessionAttached, channel=1)


@check("0-10/s036")
def session_timeout(site: Site) -> None:
    """session.request-timeout is answered with a timeout that is not longer."""
    peer = site.controls().open()
    peer.attach(uuid4().bytes)
    peer.send(SessionRequestTimeout(timeout=10), channel=1)
    granted = peer.expect(SessionTimeout, channel=1).timeout
    must(granted is not None and granted <= 10, f"10 s or less, not {granted}")


@check("0-10/s037")
def session_without_command_point(site: Site) -> None:
    """A command before session.command-point detaches a new transport with unknown-ids."""
    peer = site.controls().open()
    peer.send(SessionAttach(name=uuid4().bytes), channel=1)
    peer.expect(SessionAttached, channel=1)
    peer.send_command(ExecutionSync(), channel=1)
    code = peer.expect(SessionDetached, channel=1).code
    must(code == DetachCode.UNKNOWN_IDS, f"the code is unknown-ids (4), not {code}")


@check("0-10/s040", "0-10/s041")
def session_expects(site: Site) -> None:
    """The broker sends session.expected with the next command of a session, empty for a new one."""
    peer = site.controls().open()
    peer.send(SessionAttach(name=uuid4().bytes), channel=1)
    peer.expect(SessionAttached, channel=1)
    peer.send(SessionFlush(expected=True), channel=1)
    expected = list(peer.expect(SessionExpected, channel=1).commands or ())
    must(expected == [], f"nothing is expected of a new session, not {expected}")
    peer.send(SessionCommandPoint(command_id=7, command_offset=0), channel=1)
    peer.send_command(ExecutionSync(), channel=1)
    peer.send(SessionFlush(expected=True), channel=1)
    expected = list(peer.expect(SessionExpected, channel=1).commands or ())
    must(any(low <= 8 <= high for low, high in expected), f"command 8 is expected, in {expected}")
