# SPDX-License-Identifier: Apache-2.0
"""Mutations that know what a frame is. One seed gives one sequence of inputs, always."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

from fuzz_edits import Edits

from headrace.protocol import codec_0_x as codec
from headrace.spec.methods import methods_by_id
from headrace.spec.tables import V0_9_1, Method, Receiver

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

HEADER = b"AMQP\x00\x00\x09\x01"
TAGS = b"tbBsuIilLfdDSATFxV"
ODD_NUMBERS = (
    0,
    1,
    2,
    4,
    127,
    128,
    255,
    256,
    4088,
    4089,
    8184,
    8185,
    65535,
    65536,
    2**31,
    2**32 - 1,
)
METHODS = list(methods_by_id(V0_9_1).values())
NAMES = ("", "q", "q", "r", "amq.", "amq.topic", "amq.fanout", "fuzz.a", "topic", "headers", "/")
ARGUMENTS: dict[str, tuple[object, ...]] = {  # Values that mean something.
    "x-message-ttl": (0, 1, 60_000),
    "x-expires": (1, 60_000),
    "x-max-length": (0, 1, 3),
    "x-max-length-bytes": (0, 100),
    "x-overflow": ("drop-head", "reject-publish", "reject-publish-dlx"),
    "x-dead-letter-exchange": ("", "amq.topic", "fuzz.a", "no"),
    "x-max-priority": (1, 10, 255),
    "x-queue-type": ("classic", "stream"),
    "x-max-age": ("1D", "10s"),
    "x-stream-offset": ("first", "last", "next", 0, 5, "1h"),
    "x-stream-offset-query": ("first", "last", "next"),
    "x-priority": (-1, 0, 7),
    "x-match": ("all", "any", "all-with-x", "any-with-x"),
    "alternate-exchange": ("amq.topic", "fuzz.a"),
    "x-single-active-consumer": (True,),
    "CC": (["q"], ["r", "a.b"]),
    "k": (None, True, 1, 2**40, "text", [1, {"a": "b"}], {"c": {}}),
}
HANDSHAKE = (
    codec.ConnectionStartOk(
        client_properties={
            "capabilities": {"consumer_cancel_notify": True, "connection.blocked": True}
        },
        mechanism="PLAIN",
        response=b"\0guest\0guest",
        locale="en_US",
    ),
    codec.ConnectionTuneOk(channel_max=64, frame_max=8192),
    codec.ConnectionOpen(virtual_host="/"),
)
INPUT_MAX = 200_000  # Octets of one input.


def frames_of(stream: bytes) -> list[bytes]:
    """The frames of a real stream, its protocol header first when it has one."""
    frames, at = [], 0
    if stream[:4] == b"AMQP":
        frames.append(stream[:8])
        at = 8
    while at < len(stream):
        end = at + 8 + int.from_bytes(stream[at + 3 : at + 7], "big")
        frames.append(stream[at:end])
        at = end
    return frames


def frame(kind: int, channel: int, payload: bytes) -> bytes:
    head = kind.to_bytes(1, "big") + channel.to_bytes(2, "big") + len(payload).to_bytes(4, "big")
    return head + payload + b"\xce"


class Mutator(Edits):
    """Inputs from a corpus of real streams."""

    def __init__(self, corpus: list[bytes], seed: int) -> None:
        self._streams = [frames_of(stream) for stream in corpus]
        super().__init__(random.Random(seed), [one for frames in self._streams for one in frames])
        self._moves: list[Callable[[list[bytes]], None]] = [
            self._drop,
            self._repeat,
            self._swap,
            self._graft,
            self._invent_method,
            self._invent_content,
            self._invent_table,
            self._bend_head,
            self._bend_number,
            self._flip,
            self._cut_frame,
            self._stretch,
            self._cut_stream,
        ]

    def inputs(self) -> Iterator[bytes]:
        """Endless inputs: mostly bent streams, now and then plain noise."""
        while True:
            if self._random.random() < 0.02:
                yield self._noise(self._random.randrange(200))
                continue
            frames = list(self._random.choice(self._streams))
            for _ in range(self._random.choice((1, 1, 2, 3, 5, 8, 20))):
                if frames:
                    self._random.choice(self._moves)(frames)
            yield b"".join(frames)[:INPUT_MAX]

    def sessions(self) -> Iterator[bytes]:
        """Endless sessions that keep the order of frames: odd requests, few wrong frames."""
        while True:
            frames = [HEADER, *(frame(1, 0, codec.encode_method(V0_9_1, m)) for m in HANDSHAKE)]
            channels = range(1, 1 + self._random.choice((1, 3, 20)))
            opened = codec.encode_method(V0_9_1, codec.ChannelOpen())
            frames += [frame(1, channel, opened) for channel in channels]
            for name in ("q", "r"):
                declare = codec.QueueDeclare(queue=name, arguments=self._arguments())
                frames.append(frame(1, channels[0], codec.encode_method(V0_9_1, declare)))
            for _ in range(self._random.choice((5, 20, 60))):
                channel = self._random.choice(channels)
                if self._random.random() < 0.4:
                    frames += self._content(channel)
                else:
                    row, payload = self._method()
                    fits = row.name not in ("channel.open", "channel.close-ok") and row.id[0] != 10
                    if fits and row.receiver is not Receiver.CLIENT:
                        frames.append(frame(1, channel, payload))
            if self._random.random() < 0.3:
                self._random.choice(self._moves)(frames)
            yield b"".join(frames)[:INPUT_MAX]

    def _content(self, channel: int) -> list[bytes]:
        """A publish that is right, with odd properties."""
        pick = self._random
        body = bytes(pick.choice((0, 1, 16, 16, 3000, 5000, 8184, 30_000, 70_000)))
        publish = codec.BasicPublish(
            exchange=pick.choice(("", "", "", "amq.topic", "amq.topic", "amq.headers", "fuzz.a")),
            routing_key=pick.choice(("q", "q", "r", "a.b")),
            mandatory=pick.random() < 0.2,
            immediate=pick.random() < 0.1,
        )
        properties = codec.BasicProperties(
            delivery_mode=pick.choice((None, 1, 2)),
            priority=pick.choice((None, None, 0, 5, 255)),
            expiration=pick.choice((*(None,) * 12, "0", "1000", "4294967295", "x")),
            headers=pick.choice((None, None, self._arguments())),
            user_id=pick.choice((*(None,) * 12, "guest", "root")),
            reply_to=pick.choice((None, "amq.rabbitmq.reply-to")),
        )
        header = codec.encode_content_header(V0_9_1, 60, len(body), properties)
        pieces = [
            frame(1, channel, codec.encode_method(V0_9_1, publish)),
            frame(2, channel, header),
        ]
        step = pick.choice((1000, 5000, 8184))
        return pieces + [
            frame(3, channel, body[at : at + step]) for at in range(0, len(body), step)
        ]

    def _noise(self, size: int) -> bytes:
        return self._random.randbytes(size)

    def _edit(self, frames: list[bytes], edit: Callable[[bytearray], None]) -> None:
        place = self._place(frames)
        raw = bytearray(frames[place])
        if raw:
            edit(raw)
        frames[place] = bytes(raw)

    def _insert(self, frames: list[bytes], pieces: list[bytes]) -> None:
        place = self._place(frames) + 1
        frames[place:place] = pieces

    def _value(self, kind: str) -> object:
        pick = self._random
        sizes = {"octet": 8, "short": 16, "long": 32, "longlong": 64}
        if kind == "longlong" and pick.random() < 0.9:
            return pick.choice((0, 1, 1, 1, 2, 2, 3, 4, 5))  # Delivery tags.
        if kind in sizes:
            return pick.choice((0, 1, pick.getrandbits(sizes[kind]), 2 ** sizes[kind] - 1))
        if kind == "bit":
            return pick.random() < 0.5
        if kind == "shortstr":
            odd = ("é" * pick.randrange(120), "x" * 255, "\0", "a.b.c", "#", "*.#.*")
            return pick.choice((*NAMES, *NAMES, *odd))
        if kind == "longstr":
            return self._noise(pick.randrange(40))
        return self._arguments()

    def _arguments(self) -> dict[str, Any]:
        pick = self._random
        chosen = pick.sample(list(ARGUMENTS), pick.choice((0, 0, 0, 1, 1, 2, 4)))
        return {
            name: pick.choice(ARGUMENTS[name]) if pick.random() < 0.9 else self._odd_value()
            for name in chosen
        }

    def _odd_value(self) -> object:
        pick = self._random
        numbers = (0, 1, 2, 10, 255, 256, -1, 2**31, 2**40, 2**63 - 1)
        texts = ("", "q", "stream", "classic", "drop-head", "reject-publish", "first", "²D", "1D")
        others = (None, True, False, 1.5, b"\xff", [1, {"a": "b"}], {"c": {}}, ["q"])  # type: ignore[var-annotated]
        return pick.choice((pick.choice(numbers), pick.choice(texts), pick.choice(others)))

    def _method(self) -> tuple[Method, bytes]:
        row: Method = self._random.choice(METHODS)
        name = "".join(word.capitalize() for word in row.name.replace(".", "-").split("-"))
        chosen = {
            field.name.replace("-", "_").replace("global", "global_"): self._value(field.type)
            for field in row.fields
        }
        return row, codec.encode_method(V0_9_1, getattr(codec, name)(**chosen))

    def _channel(self) -> int:
        return self._random.choice((0, 1, 1, 1, 1, 2, 3, 64, 65, 65535))

    def _invent_method(self, frames: list[bytes]) -> None:
        row, payload = self._method()
        channel = 0 if row.id[0] == 10 and self._random.random() < 0.9 else self._channel()
        self._insert(frames, [frame(1, channel, payload)])

    def _invent_content(self, frames: list[bytes]) -> None:
        """A publish, whole or with one thing wrong."""
        pick = self._random
        channel = self._channel()
        size = pick.choice((0, 1, 10, 5000, 9000, 70000))
        publish = codec.encode_method(
            V0_9_1,
            codec.BasicPublish(
                exchange=pick.choice(("", "", "amq.topic", "fuzz.a", "no")),
                routing_key=pick.choice(("q", "r", "a.b")),
                mandatory=pick.random() < 0.5,
                immediate=pick.random() < 0.1,
            ),
        )
        flags = pick.choice((0, 0x1000, 0x9000, 0x3F00, 0xFFFC, 0xFFFF, pick.getrandbits(16)))
        class_id = pick.choice((60, 60, 60, 60, 10, 50, 70))
        declared = pick.choice((size, size, size, size, size + 1, max(size - 1, 0), 2**63))
        head = class_id.to_bytes(2, "big") + pick.choice((b"\0\0", b"\0\0", b"\0\1"))
        header = head + declared.to_bytes(8, "big") + flags.to_bytes(2, "big")
        if flags == 0x1000:
            header += b"\x02"
        elif flags:
            header += self._noise(pick.randrange(60))
        pieces = [frame(1, channel, publish), frame(2, channel, header)]
        step = pick.choice((1000, 4088, 8184, 8185))
        if size <= 20 * step:
            pieces += [
                frame(3, channel, bytes(min(step, size - at))) for at in range(0, size, step)
            ]
        if pick.random() < 0.2:
            pieces.insert(pick.randrange(len(pieces)), frame(8, 0, b""))
        self._insert(frames, pieces)

    def _table(self, depth: int) -> bytes:
        pick = self._random
        body = b""
        for _ in range(pick.choice((0, 1, 1, 2, 5))):
            body += pick.choice((b"\x00", b"\x01a", b"\x04text", b"\x02\xc3\xa4", b"\xff"))
            body += self._tagged(depth)
        size = len(body) if pick.random() < 0.9 else pick.choice(ODD_NUMBERS)
        return size.to_bytes(4, "big") + body

    def _tagged(self, depth: int) -> bytes:
        pick = self._random
        tag = bytes([pick.choice(TAGS)]) if pick.random() < 0.97 else self._noise(1)
        if tag == b"F" and depth:
            return tag + self._table(depth - 1)
        if tag == b"A" and depth:
            body = b"".join(self._tagged(depth - 1) for _ in range(pick.randrange(4)))
            return tag + len(body).to_bytes(4, "big") + body
        if tag in b"SxFA":
            return tag + pick.choice((b"\0\0\0\0", b"\0\0\0\2ab", b"\0\0\0\2\xff\xfe", b"\xff" * 4))
        sizes = dict(
            zip(b"tbBsuIilLfdDTV", (1, 1, 1, 2, 2, 4, 4, 8, 8, 4, 8, 5, 8, 0), strict=True)
        )
        return tag + self._noise(sizes.get(tag[0], pick.randrange(9)))

    def _invent_table(self, frames: list[bytes]) -> None:
        """A table where one belongs: a declare's arguments or a message's headers."""
        pick = self._random
        table = self._table(pick.choice((1, 3, 6)))
        if pick.random() < 0.1:
            for _ in range(pick.choice((30, 31, 32, 33, 200))):
                body = b"\x01kF" + table
                table = len(body).to_bytes(4, "big") + body
        if pick.random() < 0.5:
            self._insert(frames, [frame(1, 1, b"\x00\x32\x00\x0a\x00\x00\x01q\x00" + table)])
            return
        header = b"\x00\x3c\x00\x00" + bytes(8) + b"\x20\x00" + table
        publish = frame(1, 1, b"\x00\x3c\x00\x28\x00\x00\x00\x01q\x00")
        self._insert(frames, [publish, frame(2, 1, header)])

    def _bend_head(self, frames: list[bytes]) -> None:
        """Another type, channel, size or end of one frame."""

        def bend(raw: bytearray) -> None:
            pick = self._random
            if len(raw) < 8:
                return
            what = pick.randrange(4)
            if what == 0:
                raw[0] = pick.choice((0, 1, 2, 3, 4, 8, 9, 255))
            elif what == 1:
                raw[1:3] = self._channel().to_bytes(2, "big")
            elif what == 2:
                raw[3:7] = pick.choice(ODD_NUMBERS).to_bytes(4, "big")
            else:
                raw[-1] = pick.choice((0, 0xCD, 0xCF, 255))

        self._edit(frames, bend)

    def _bend_number(self, frames: list[bytes]) -> None:
        """A number somewhere in a payload becomes an odd one."""

        def bend(raw: bytearray) -> None:
            size = self._random.choice((1, 2, 4))
            at = self._random.randrange(len(raw))
            number = self._random.choice(ODD_NUMBERS) & ((1 << 8 * size) - 1)
            raw[at : at + size] = number.to_bytes(size, "big")[: len(raw) - at]

        self._edit(frames, bend)

    def _flip(self, frames: list[bytes]) -> None:
        def bend(raw: bytearray) -> None:
            for _ in range(self._random.choice((1, 1, 4))):
                raw[self._random.randrange(len(raw))] ^= 1 << self._random.randrange(8)

        self._edit(frames, bend)

    def _cut_frame(self, frames: list[bytes]) -> None:
        """A payload loses its end, and the frame's size says so."""
        place = self._place(frames)
        raw = frames[place]
        if len(raw) >= 8:
            payload = raw[7:-1]
            kept = payload[: self._random.randrange(len(payload) + 1)]
            frames[place] = frame(raw[0], int.from_bytes(raw[1:3], "big"), kept)

    def _stretch(self, frames: list[bytes]) -> None:
        """A payload gets noise in its middle, and the frame's size says so."""
        place = self._place(frames)
        raw = frames[place]
        if len(raw) >= 8:
            payload = raw[7:-1]
            at = self._random.randrange(len(payload) + 1)
            payload = payload[:at] + self._noise(self._random.randrange(1, 9)) + payload[at:]
            frames[place] = frame(raw[0], int.from_bytes(raw[1:3], "big"), payload)

    def _cut_stream(self, frames: list[bytes]) -> None:
        del frames[self._place(frames) + 1 :]
