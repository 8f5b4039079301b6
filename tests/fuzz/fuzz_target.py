# SPDX-License-Identifier: Apache-2.0
"""The fuzzer's target, and the properties that hold for any bytes.

* Garbage is accepted or leaves as AmqpError or as a close with a reply code of the standard;
  nothing else is raised, and 541 (internal error) is ours and therefore a finding.
* Any split of a stream into chunks gives the same events and the same output.
* What waits for more octets is bounded.

Every function returns text that says all that happened, so two builds can be compared by it.
"""

from __future__ import annotations

import hashlib
from functools import partial
from typing import TYPE_CHECKING, Any

from headrace.protocol.codec_0_x import (
    ChannelOpen,
    ChannelOpenOk,
    ConnectionOpen,
    ConnectionOpenOk,
    ConnectionStart,
    ConnectionStartOk,
    ConnectionTune,
    ConnectionTuneOk,
    MethodBase,
    QueueDeclare,
    decode_content_header,
    decode_method,
    encode_content_header,
    encode_method,
)
from headrace.protocol.errors import AmqpError
from headrace.protocol.v0_x.connection import Connection
from headrace.protocol.v0_x.events import Event, Failed
from headrace.protocol.v0_x.handshake import Role
from headrace.protocol.v0_x.upcalls import EventCollector
from headrace.spec.reply import ReplyCode
from headrace.spec.tables import V0_9_1, VERSIONS_0_X, Version
from headrace.wire import properties
from headrace.wire.errors import MalformedError
from headrace.wire.properties import BasicScan, scan_basic
from headrace.wire.table import check_table, check_utf8, decode_array, decode_table, encode_entry

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from headrace.protocol.v0_x.channel import Channel

FRAME_MAX = 8192
BODY_MAX = 1 << 20
WAIT_MAX = FRAME_MAX + 98304  # Octets: a frame, or a content that is small enough to wait for.
ENTRY = encode_entry("fuzz", 1)
REFUSALS = (ReplyCode.SYNTAX_ERROR, ReplyCode.NOT_IMPLEMENTED)


class Finding(AssertionError):
    """A property does not hold."""


def holds(condition: object, text: str) -> None:
    if not condition:
        raise Finding(text)


# -- The codec: methods, content headers, tables ---------------------------------------------------


def refused_or(decode: Callable[[], object]) -> tuple[str, object]:
    """Return the result of decoding, as text, and the value when there is one."""
    try:
        value = decode()
    except AmqpError as error:
        holds(error.code in REFUSALS, f"refused with {error}")
        return f"{error.code.number} {error.text} {error.method}", None
    return repr(value), value


def run_codec(data: bytes) -> str:
    """Any bytes as a method, as a content header, as a table and as an array."""
    said: list[str] = []
    for version in VERSIONS_0_X:
        text, method = refused_or(partial(decode_method, version, data))
        said.append(text)
        if isinstance(method, MethodBase):
            again = decode_method(version, encode_method(version, method))
            holds(repr(again) == text, f"{text} came back as {again!r}")
        text, header = refused_or(partial(decode_content_header, version, data))
        said.append(text)
        if isinstance(header, tuple):
            class_id, size, kept = header
            raw = encode_content_header(version, class_id, size, kept)
            again_kept = decode_content_header(version, raw)
            holds(repr(again_kept) == text, f"{text} came back as {again_kept!r}")
    said.append(run_table(data))
    said.append(run_scan(data))
    return "\n".join(said)


def run_table(data: bytes) -> str:
    end = check_table(data, 0, len(data))
    try:
        table, table_end = decode_table(data)
        holds(table_end == end, f"the checker stops at {end}, the decoder at {table_end}")
        text = repr(table)
    except MalformedError:
        holds(end == -1, "the checker accepts what the decoder refuses")
        text = "malformed"
    try:
        text += repr(decode_array(data))
    except MalformedError:
        text += "malformed"
    return f"{text} {bool(check_utf8(data, 0, len(data)))}"


def run_scan(data: bytes) -> str:
    scan = BasicScan()
    accepted = bool(scan_basic(data, 0, len(data), scan))
    try:
        class_id, _, _ = decode_content_header(V0_9_1, data)
        decoded = class_id == properties.CLASS_BASIC
    except AmqpError:
        decoded = False
    holds(accepted is decoded, f"scan says {accepted}, decoder says {decoded}")
    if not accepted:
        return "no header"
    changed = properties.with_header_entry(data, ENTRY)
    holds(scan_basic(changed, 0, len(changed), scan), "a rebuilt header is malformed")
    parts = [changed, properties.without_header_entry(changed, b"fuzz")]
    for place in range(2, 16):
        parts.append(properties.without_property(data, 1 << place))
        holds(scan_basic(parts[-1], 0, len(parts[-1]), scan), "a shortened header is malformed")
    return " ".join(part.hex() for part in parts)


# -- The machines ----------------------------------------------------------------------------------


class ServerOwner(EventCollector):
    """Answers what a handshake needs, and closes a channel for every passive declare."""

    def __init__(self, connection: Connection) -> None:
        EventCollector.__init__(self, V0_9_1, True)
        self.send_method = connection.send_method

    def on_header(self, version: Version) -> None:
        EventCollector.on_header(self, version)
        start = ConnectionStart(version_minor=9, mechanisms=b"PLAIN", locales=b"en_US")
        self.send_method(0, start)

    def on_method(self, channel: Channel | None, number: int, method: MethodBase) -> None:
        EventCollector.on_method(self, channel, number, method)
        if isinstance(method, ConnectionStartOk):
            self.send_method(0, ConnectionTune(channel_max=64, frame_max=FRAME_MAX, heartbeat=60))
        elif isinstance(method, ConnectionOpen):
            self.send_method(0, ConnectionOpenOk())
        elif isinstance(method, ChannelOpen):
            self.send_method(number, ChannelOpenOk())
        elif isinstance(method, QueueDeclare) and method.passive:
            raise AmqpError(ReplyCode.NOT_FOUND, f"no queue '{method.queue}'")


class ClientOwner(EventCollector):
    """Opens channels 1 and 2 when the connection is open."""

    def __init__(self, connection: Connection) -> None:
        EventCollector.__init__(self, V0_9_1, False)
        self.send_method = connection.send_method

    def on_method(self, channel: Channel | None, number: int, method: MethodBase) -> None:
        EventCollector.on_method(self, channel, number, method)
        if isinstance(method, ConnectionStart):
            self.send_method(0, ConnectionStartOk(mechanism="PLAIN", locale="en_US"))
        elif isinstance(method, ConnectionTune):
            tuned = ConnectionTuneOk(channel_max=64, frame_max=FRAME_MAX, heartbeat=60)
            self.send_method(0, tuned)
            self.send_method(0, ConnectionOpen(virtual_host="/"))
        elif isinstance(method, ConnectionOpenOk):
            self.send_method(1, ChannelOpen())
            self.send_method(2, ChannelOpen())


class Server(Connection):
    """A server that answers from within, so that splits cannot matter."""

    def __init__(self) -> None:
        Connection.__init__(
            self, Role.SERVER, frame_max=FRAME_MAX, channel_max=64, body_max=BODY_MAX
        )
        self.set_owner(ServerOwner(self))


class Client(Connection):
    """A client likewise."""

    def __init__(self) -> None:
        Connection.__init__(
            self, Role.CLIENT, frame_max=FRAME_MAX, channel_max=64, body_max=BODY_MAX
        )
        self.set_owner(ClientOwner(self))


def feed(machine: Connection, chunks: Iterable[bytes]) -> str:
    """Give a machine its chunks; return all that it reported and wrote."""
    events: list[Event] = []
    written = machine.data_to_send()
    for chunk in chunks:
        events += machine.receive(chunk)
        written += machine.data_to_send()
        waiting = len(machine.rest)
        holds(waiting <= WAIT_MAX + len(chunk), f"{waiting} octets wait")
    for event in events:
        if isinstance(event, Failed):
            internal = event.error.code is ReplyCode.INTERNAL_ERROR
            holds(not internal, f"an internal error on {event!r}")
    return "\n".join([*map(repr, events), written.hex(), machine.state.name])


def splits(data: bytes, seed: int) -> list[list[bytes]]:
    """The stream whole, in a few odd chunks, and byte by byte when it is short."""
    chunks: list[bytes] = []
    at, step = 0, seed
    while at < len(data):
        step = (step * 1103515245 + 12345) & 0x7FFFFFFF
        size = 1 + step % (17 if step & 0x10000 else 3000)
        chunks.append(data[at : at + size])
        at += size
    ways = [[data], chunks]
    if len(data) <= 1500:
        ways.append([data[i : i + 1] for i in range(len(data))])
    return ways


def run_machine(
    make: Callable[[], Any], data: bytes, feed: Callable[[Any, list[bytes]], str]
) -> str:
    """Feed machines in every split, which must lead to the same; return what they report."""
    first: str | None = None
    for chunks in splits(data, len(data)):
        said = feed(make(), chunks)
        if first is None:
            first = said
        elif said != first:
            raise Finding(f"in {len(chunks)} chunks:\n{said}\nin one:\n{first}")
    return first or ""


def run_stream(data: bytes) -> str:
    """The machines on a stream, and the codecs on the payload of each of its frames."""
    said = [run_machine(Server, data, feed), run_machine(Client, data, feed)]
    at = 8 if data[:4] == b"AMQP" else 0
    while at + 8 <= len(data) and len(said) < 40:
        size = int.from_bytes(data[at + 3 : at + 7], "big")
        payload = data[at + 7 : at + 7 + min(size, 1 << 16)]
        said.append(run_codec(payload))
        at += 8 + size
    return hashlib.sha256("\n".join(said).encode("utf-8", "surrogatepass")).hexdigest()
