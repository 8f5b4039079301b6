# SPDX-License-Identifier: Apache-2.0
"""A client of the classes file and stream of 0-8 and 0-9, method by method."""

from __future__ import annotations

from typing import Any

from headrace.protocol.codec_0_x import (
    FileConsume,
    FileConsumeOk,
    FileDeliver,
    FileOpen,
    FileOpenOk,
    FileProperties,
    FilePublish,
    FileStage,
    MethodBase,
    StreamConsume,
    StreamConsumeOk,
    StreamProperties,
    StreamPublish,
    decode_content_header,
    decode_method,
    encode_content_header,
)
from headrace.testing.raw_client import Content, RawClient, method_frame
from headrace.wire.frame import FRAME_HEADER, FRAME_METHOD, body_frames, encode_frame


class FileClient(RawClient):
    """A client of the file class, and of contents that come mixed."""

    def __init__(self, *where: Any, **how: Any) -> None:
        super().__init__(*where, **how)
        self.kept: list[tuple[int, MethodBase | Content]] = []
        self.unfinished: dict[int, tuple[MethodBase, Any, int, bytes]] = {}

    def open_file(self, identifier: str, size: int, channel: int = 1) -> int:
        """Ask to stage; return how much is staged."""
        opened = FileOpen(identifier=identifier, content_size=size)
        return self.call(opened, FileOpenOk, channel).staged_size

    def send_stage(
        self, body: bytes, *, size: int | None = None, channel: int = 1, **properties: Any
    ) -> None:
        """Send a body, or with ``size`` the beginning of one of that size."""
        made = FileProperties(**properties)
        total = len(body) if size is None else size
        header = encode_content_header(self.version, made.CLASS_ID, total, made)
        self.send_bytes(
            method_frame(channel, FileStage(), self.version)
            + encode_frame(FRAME_HEADER, channel, header)
            + body_frames(channel, body, self.frame_max)
        )

    def stage(self, identifier: str, body: bytes, channel: int = 1, **properties: Any) -> None:
        """Stage a whole file."""
        staged = self.open_file(identifier, len(body), channel)
        self.send_stage(body[staged:], channel=channel, **properties)

    def publish_file(
        self,
        queue: str,
        body: bytes,
        identifier: str = "id",
        channel: int = 1,
        **properties: Any,
    ) -> None:
        self.stage(identifier, body, channel, **properties)
        self.send(FilePublish(routing_key=queue, identifier=identifier), channel)

    def consume_files(self, queue: str, tag: str = "tag", channel: int = 1, **flags: Any) -> None:
        consume = FileConsume(queue=queue, consumer_tag=tag, **flags)
        self.call(consume, FileConsumeOk, channel)

    def receive_file(self, have: int = 0, channel: int = 1) -> tuple[FileDeliver, Content]:
        """Take the next file, ``have`` octets of which are here already."""
        opened = self.expect(FileOpen, channel)
        self.send(FileOpenOk(staged_size=have), channel)
        number, staged = self.next()
        assert (number, type(staged)) == (channel, Content), staged
        assert isinstance(staged, Content)
        assert isinstance(staged.method, FileStage)
        assert len(staged.body) == opened.content_size - have
        delivered = self.expect(FileDeliver, channel)
        assert delivered.identifier == opened.identifier
        return delivered, staged

    def publish_packet(
        self,
        queue: str,
        body: bytes,
        *,
        exchange: str = "",
        flags: dict[str, bool] | None = None,
        **properties: Any,
    ) -> None:
        """Publish with the stream class."""
        publish = StreamPublish(exchange=exchange, routing_key=queue, **(flags or {}))
        self.send_content(publish, StreamProperties(**properties), body)

    def consume_packets(self, queue: str, tag: str = "tag", channel: int = 1, **flags: Any) -> None:
        consume = StreamConsume(queue=queue, consumer_tag=tag, **flags)
        self.call(consume, StreamConsumeOk, channel)

    def next_of(self, channel: int) -> tuple[int, MethodBase | Content]:
        """The next thing on a channel; frames of other channels in between are kept."""
        while True:
            for n, (number, thing) in enumerate(self.kept):
                if number == channel:
                    del self.kept[n]
                    return number, thing
            self.kept.append(self.next_mixed())

    def next_mixed(self) -> tuple[int, MethodBase | Content]:
        """Like ``next``, where the frames of two contents may be mixed."""
        unfinished = self.unfinished
        while True:
            frame = self.frame()
            assert frame is not None
            kind, channel, payload = frame
            if kind == FRAME_METHOD:
                method = decode_method(self.version, payload)
                if not method.CONTENT:
                    return channel, method
                unfinished[channel] = (method, None, -1, b"")
                continue
            method, properties, size, body = unfinished[channel]
            if kind == FRAME_HEADER:
                _, size, properties = decode_content_header(self.version, payload)
            else:
                body += payload
            unfinished[channel] = (method, properties, size, body)
            if len(body) == size:
                del unfinished[channel]
                return channel, Content(method, properties, body)
