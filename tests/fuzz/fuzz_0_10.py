# SPDX-License-Identifier: Apache-2.0
"""AMQP 0-10 under fuzz: codecs, machines of both roles, and the broker; mutations that know frames.

Any octets are accepted or refused with a code of the standard, whatever their splits; an internal
error is a finding. What is decoded can be encoded, and decodes to the same again.
"""

from __future__ import annotations

import hashlib
import random
from functools import partial
from typing import TYPE_CHECKING, Any

from fuzz_edits import Edits
from fuzz_gateway import OUTPUT_MAX, Rig, listening, names_in_order, run_all
from fuzz_target import Finding, holds, run_machine

from headrace.gateway.v0_10.connection.connection import Connection010
from headrace.gateway.v0_10.connection.context import Context010
from headrace.gateway.v0_10.plug_ins import SERVED
from headrace.protocol import codec_0_10 as codec
from headrace.protocol.errors_0_10 import CloseError, DetachError, ExecutionError
from headrace.protocol.v0_10.connection.connection import Connection
from headrace.protocol.v0_10.events import Failed, SessionFailed
from headrace.protocol.v0_10.session.registry import Sessions
from headrace.protocol.v0_10.session.session import Session
from headrace.protocol.v0_x.handshake import Role
from headrace.spec.reply_0_10 import ExecutionCode
from headrace.wire.errors import MalformedError
from headrace.wire.ranges import SequenceSet
from support.conversations import captured_conversations as recorded

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from headrace.protocol.v0_10.events import Event

HEADER = b"AMQP\x01\x01\x00\x0a"
INPUT_MAX = 200_000  # Octets of one input.
BODY_MAX = 1 << 20
WAIT_MAX = 65535 + 98304
CORPUS = [recorded.octets(name, side) for name in recorded.NAMES for side in ("client", "broker")]
KINDS: list[Any] = [kind for kind in vars(codec).values() if isinstance(kind, type)]
COMMANDS = sorted(
    (kind for kind in KINDS if issubclass(kind, codec.Command) and kind is not codec.Command),
    key=lambda kind: kind.CODE,
)
CONTROLS = sorted(
    (kind for kind in KINDS if issubclass(kind, codec.Control) and kind is not codec.Control),
    key=lambda kind: kind.CODE,
)
NAMES = ("q", "q", "r", "", "amq.topic", "amq.fanout", "d", "topic", "s", "no")


# -- Codecs ----------------------------------------------------------------------------------------


def refused_or(decode: Callable[[], object]) -> tuple[str, object]:
    """Return the result of decoding, as text, and the value when there is one."""
    try:
        value = decode()
    except (CloseError, DetachError, MalformedError) as error:
        return str(error), None
    except ExecutionError as error:
        holds(error.error_code is not ExecutionCode.INTERNAL_ERROR, f"refused with {error}")
        return str(error), None
    return repr(value), value


def run_codec_0_10(payload: bytes) -> str:
    """Any octets as a control, a command and a header segment."""
    text, control = refused_or(partial(codec.decode_control, payload))
    said = [text]
    if control is not None:
        again = repr(codec.decode_control(codec.encode_control(control)))  # type: ignore[arg-type]
        holds(again == text, f"{text} came back as {again}")
    text, found = refused_or(partial(codec.decode_command, payload))
    said.append(text)
    if isinstance(found, tuple):
        again = repr(codec.decode_command(codec.encode_command(found[1], found[0])))
        holds(again == text, f"{text} came back as {again}")
    text, structs = refused_or(partial(codec.decode_headers, payload))
    said.append(text)
    if isinstance(structs, list):
        again = repr(codec.decode_headers(codec.encode_headers(structs)))
        holds(again == text, f"{text} came back as {again}")
    return "\n".join(said)


# -- Machines --------------------------------------------------------------------------------------


class Server(Connection):
    """A server that answers from within, so that splits cannot matter."""

    def __init__(self) -> None:
        sessions = Sessions(Session, lambda: 0.0)
        Connection.__init__(self, Role.SERVER, body_max=BODY_MAX, sessions=sessions)

    def on_header(self) -> None:
        self.send_control(codec.ConnectionStart(mechanisms=["PLAIN", "ANONYMOUS"], locales=[]))

    def on_control(self, number: int, control: Any) -> None:
        Connection.on_control(self, number, control)
        if isinstance(control, codec.ConnectionStartOk):
            self.send_control(codec.ConnectionTune(heartbeat_min=0))
        elif isinstance(control, codec.ConnectionOpen):
            self.send_control(codec.ConnectionOpenOk())


class Client(Connection):
    """A client that attaches a session when the connection is open."""

    def __init__(self) -> None:
        Connection.__init__(self, Role.CLIENT, body_max=BODY_MAX)

    def on_control(self, number: int, control: Any) -> None:
        Connection.on_control(self, number, control)
        if isinstance(control, codec.ConnectionStart):
            self.send_control(codec.ConnectionStartOk(mechanism="PLAIN", response=b"", locale=""))
        elif isinstance(control, codec.ConnectionTune):
            self.send_control(codec.ConnectionTuneOk(channel_max=control.channel_max))
            self.send_control(codec.ConnectionOpen(virtual_host="/"))
        elif isinstance(control, codec.ConnectionOpenOk) and self.state_number == 8:
            session = Session(b"s")
            session.set_timeout(60)
            self.attach(session, 1)
            for _ in range(10):
                session.send_command(codec.ExecutionSync(), sync=True)


def told(octets: bytes) -> str:
    """Return the output without completions, whose number depends on the reads."""
    if octets.startswith(b"AMQP"):
        octets = octets[8:]
    kept = []
    while octets:
        size = int.from_bytes(octets[2:4], "big")
        one, octets = octets[:size], octets[size:]
        if one[1] != 0 or one[12:14] not in (b"\x02\x0a", b"\x02\x0b"):
            kept.append(one.hex())
    return "\n".join(kept)


def feed(machine: Connection, chunks: list[bytes]) -> str:
    """Give a machine its chunks; return all that it reported and wrote."""
    events: list[Event] = []
    written = machine.data_to_send()
    for chunk in chunks:
        events += machine.receive(chunk)
        written += machine.data_to_send()
        waiting = len(machine.rest) + len(machine.reader.held)
        holds(waiting <= WAIT_MAX + len(chunk), f"{waiting} octets wait")
    for event in events:
        if isinstance(event, Failed):
            holds("internal" not in event.error.text, f"an internal error: {event!r}")
        if isinstance(event, SessionFailed) and isinstance(event.error, ExecutionError):
            internal = event.error.error_code is ExecutionCode.INTERNAL_ERROR
            holds(not internal, f"an internal error: {event!r}")
    return "\n".join([*map(repr, events), told(written), machine.state.name])


def run_stream_0_10(data: bytes) -> str:
    """The machines on a stream, and the codecs on the payload of each of its frames."""
    said = [run_machine(Server, data, feed), run_machine(Client, data, feed)]
    for one in frames_of(data)[:40]:
        said.append(run_codec_0_10(one[12:]))
    return hashlib.sha256("\n".join(said).encode("utf-8", "surrogatepass")).hexdigest()


# -- The broker ------------------------------------------------------------------------------------


def run_split(chunks: list[bytes]) -> tuple[str, bytes]:
    """Feed a broker in memory; return what it holds in the end, and what it wrote."""
    with names_in_order():
        rig = Rig()
        shared = Context010(rig.context, SERVED, clock=lambda: 0.0)
        shared.federation_tag = "fuzz"
        client = Connection010(shared, 2, True)
        written = b""
        for chunk in chunks:
            written += rig.tell(client, chunk)  # type: ignore[arg-type]
            holds(len(written) <= OUTPUT_MAX, f"{len(written)} octets of output")
        rig.check_witness()
        state = rig.state(client)  # type: ignore[arg-type]
        client.end()
        shared.sessions.end_all()
        rig.scheduler.run(rig.counters.now_ms + 1_000_000_000)
        for queue in rig.vhost.queues.values():
            if not queue.name.startswith("witness-"):
                held = queue.unacked_count
                holds(held == 0, f"sessions that ended hold {held} messages of {queue.name}")
        rig.staging.close()
        return state, written


def run_gateway_0_10(data: bytes) -> str:
    """Feed a client's stream whole and in odd chunks; return all that happened in one piece."""
    with listening() as heard:
        state, written = run_split([data])
        step = 1 + len(data) % 97
        other, _ = run_split([data[at : at + step] for at in range(0, len(data), step)])
        if other != state:
            raise Finding(f"in chunks of {step}:\n{other}\nin one:\n{state}")
        holds(not heard, "\n".join(heard))
    return f"{state}\n{written.hex()}"


def run_all_0_10(data: bytes) -> str:
    """Every target of 0-10 on one input; return a digest of all that happened."""
    said = run_stream_0_10(data) + run_gateway_0_10(data)
    return hashlib.sha256(said.encode("utf-8", "surrogatepass")).hexdigest()


def run_any(data: bytes) -> str:
    """Every target of the version that the input asks for."""
    return run_all_0_10(data) if data.startswith(HEADER) else run_all(data)


# -- Mutations -------------------------------------------------------------------------------------


def frames_of(stream: bytes) -> list[bytes]:
    """The frames of a stream, its protocol header first; the last piece may be odd."""
    frames = [stream[:8]] if stream.startswith(b"AMQP") else []
    at = 8 * len(frames)
    while at < len(stream):
        size = max(int.from_bytes(stream[at + 2 : at + 4], "big"), 12)
        frames.append(stream[at : at + size])
        at += size
    return frames


def frame(flags: int, kind: int, channel: int, payload: bytes) -> bytes:
    head = bytes((flags, kind)) + (len(payload) + 12 & 0xFFFF).to_bytes(2, "big")
    return head + bytes((0, 1 if kind else 0)) + channel.to_bytes(2, "big") + bytes(4) + payload


class Mutator010(Edits):
    """Inputs from recorded conversations, and sessions of its own making. A seed gives the same."""

    def __init__(self, seed: int) -> None:
        self._streams = [frames_of(stream) for stream in CORPUS if len(stream) < INPUT_MAX]
        super().__init__(random.Random(seed), [one for frames in self._streams for one in frames])
        self._moves: list[Callable[[list[bytes]], None]] = [
            self._drop,
            self._repeat,
            self._swap,
            self._graft,
            self._invent,
            self._bend_head,
            self._flip,
            self._stretch,
            self._cut,
        ]

    def inputs(self) -> Iterator[bytes]:
        """Endless inputs: bent conversations and odd sessions in turn."""
        while True:
            frames = list(self._random.choice(self._streams))
            self._bend(frames, self._random.choice((1, 1, 2, 3, 5, 8, 20)))
            yield b"".join(frames)[:INPUT_MAX]
            frames = self._session()
            if self._random.random() < 0.4:
                self._bend(frames, 1)
            yield b"".join(frames)[:INPUT_MAX]

    def _bend(self, frames: list[bytes], times: int) -> None:
        for _ in range(times):
            if frames:
                self._random.choice(self._moves)(frames)

    def _session(self) -> list[bytes]:
        """The opening, attached sessions, and odd commands and controls in order."""
        start = codec.ConnectionStartOk(mechanism="PLAIN", response=b"\0guest\0guest", locale="")
        opening: list[codec.Control] = [
            start,
            codec.ConnectionTuneOk(channel_max=64, max_frame_size=65535),
            codec.ConnectionOpen(virtual_host="/"),
        ]
        frames = [HEADER, *(frame(15, 0, 0, codec.encode_control(one)) for one in opening)]
        channels = range(1, 1 + self._random.choice((1, 1, 3)))
        for channel in channels:
            steps: list[codec.Control] = [
                codec.SessionAttach(name=b"s%d" % channel),
                codec.SessionRequestTimeout(timeout=self._random.choice((0, 0, 60))),
                codec.SessionCommandPoint(command_id=0, command_offset=0),
            ]
            frames += [frame(15, 0, channel, codec.encode_control(one)) for one in steps]
            declare = codec.QueueDeclare(queue="q", auto_delete=channel == 2)
            frames.append(frame(15, 1, channel, codec.encode_command(declare)))
            for subscribed in self._subscription():
                frames.append(frame(15, 1, channel, codec.encode_command(subscribed)))
        for _ in range(self._random.choice((5, 20, 60))):
            channel = self._random.choice(channels)
            frames += self._content(channel) if self._random.random() < 0.4 else self._odd(channel)
        return frames

    def _subscription(self) -> list[codec.Command]:
        pick = self._random
        if pick.random() < 0.3:
            return []
        return [
            codec.MessageSubscribe(
                queue="q",
                destination="d",
                accept_mode=pick.choice((0, 1)),
                acquire_mode=pick.choice((0, 0, 1)),
            ),
            codec.MessageSetFlowMode(destination="d", flow_mode=pick.choice((0, 1))),
            codec.MessageFlow(destination="d", unit=0, value=pick.choice((1, 5, 0xFFFFFFFF))),
            codec.MessageFlow(destination="d", unit=1, value=pick.choice((10, 0xFFFFFFFF))),
        ]

    def _content(self, channel: int) -> list[bytes]:
        """A transfer that is right, in one way of framing or another."""
        pick = self._random
        destination = pick.choice(("", "", "amq.topic", "amq.fanout", "no"))
        command = codec.MessageTransfer(destination=destination, accept_mode=pick.choice((0, 1)))
        delivery = codec.DeliveryProperties(
            routing_key=pick.choice(("q", "q", "r", "a.b")),
            discard_unroutable=pick.random() < 0.5,
            immediate=pick.random() < 0.1,
            ttl=pick.choice((None, None, 0, 1000)),
            priority=pick.choice((None, 4, 9)),
        )
        message = codec.MessageProperties(
            correlation_id=b"c",
            application_headers=pick.choice((None, {"k": [1, {"a": "b"}]})),  # type: ignore[arg-type]
        )
        body = bytes(pick.choice((0, 1, 16, 16, 5000, 70_000)))
        segments = [(1, codec.encode_command(command, sync=pick.random() < 0.3))]
        if pick.random() < 0.9:
            segments.append((2, codec.encode_headers([delivery, message])))
        if body:
            segments.append((3, body))
        piece = pick.choice((65523, 65523, 1000, 4084))
        frames = []
        for place, (kind, payload) in enumerate(segments):
            flags = (8 if kind == 1 else 0) | (4 if place == len(segments) - 1 else 0)
            for at in range(0, len(payload), piece):
                edge = (2 if at == 0 else 0) | (1 if at + piece >= len(payload) else 0)
                frames.append(frame(flags | edge, kind, channel, payload[at : at + piece]))
        return frames

    def _odd(self, channel: int) -> list[bytes]:
        """A command or control with odd values, as far as they can be encoded."""
        pick = self._random
        control = pick.random() < 0.25
        kind: Any = pick.choice(CONTROLS[12:] if control else COMMANDS)
        types = getattr(kind.__init__, "__annotations__", {})  # Those without fields have none.
        values = {name: self._value(str(types[name])) for name in kind.FIELDS}
        try:
            made = kind(**{name: value for name, value in values.items() if pick.random() < 0.8})
            payload = (
                codec.encode_control(made)
                if control
                else codec.encode_command(made, sync=pick.random() < 0.3)
            )
        except (ValueError, TypeError, AttributeError, OverflowError):
            return []
        return [frame(15, 0 if control else 1, channel, payload)]

    def _value(self, kind: str) -> object:
        pick = self._random
        if "SequenceSet" in kind:
            ids = sorted(pick.sample(range(30), pick.choice((0, 2, 2, 4))))
            return SequenceSet(zip(ids[::2], ids[1::2], strict=True))
        if "bool" in kind:
            return pick.random() < 0.5
        if "int" in kind:
            return pick.choice((0, 0, 1, 1, 2, 5, 255, 65535, 2**31, 2**32 - 1))
        if "bytes" in kind:
            return pick.choice((b"", b"s1", b"s2", b"x" * 300))
        if "dict" in kind:
            return pick.choice((None, {}, {"x-max-length": 3}, {"k": [None, {"a": 1.5}]}))
        if "str" in kind and "list" not in kind:
            return pick.choice(NAMES)
        if "Xid" in kind:
            return codec.Xid(format=pick.choice((0, 1)), global_id=b"g", branch_id=b"b")
        return None

    def _invent(self, frames: list[bytes]) -> None:
        place = self._place(frames) + 1
        frames[place:place] = self._odd(self._random.choice((0, 1, 1, 1, 2)))

    def _bend_head(self, frames: list[bytes]) -> None:
        place = self._place(frames)
        raw = bytearray(frames[place])
        if len(raw) >= 12:
            at = self._random.choice((0, 0, 1, 2, 3, 5, 6, 7))
            raw[at] = self._random.choice((0, 1, 2, 3, 7, 11, 15, 255, raw[at] ^ 1, raw[at] ^ 8))
        frames[place] = bytes(raw)

    def _flip(self, frames: list[bytes]) -> None:
        place = self._place(frames)
        raw = bytearray(frames[place])
        for _ in range(self._random.choice((1, 1, 3))):
            if len(raw) > 12:
                at = self._random.randrange(12, len(raw))
                raw[at] = self._random.choice((0, 1, 127, 128, 255, raw[at] ^ 1 << 3))
        frames[place] = bytes(raw)

    def _stretch(self, frames: list[bytes]) -> None:
        """More or fewer octets in a frame whose size says so."""
        place = self._place(frames)
        raw = frames[place]
        if 12 <= len(raw) < 60_000:
            payload = raw[12:]
            at = self._random.randrange(len(payload) + 1)
            if self._random.random() < 0.5:
                payload = payload[:at]
            else:
                payload = payload[:at] + self._random.randbytes(5) + payload[at:]
            frames[place] = frame(raw[0], raw[1], int.from_bytes(raw[6:8], "big"), payload)

    def _cut(self, frames: list[bytes]) -> None:
        place = self._place(frames)
        frames[place] = frames[place][: self._random.randrange(len(frames[place]) + 1)]
        del frames[place + 1 :]
