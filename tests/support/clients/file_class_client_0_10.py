# SPDX-License-Identifier: Apache-2.0
"""A client of the classes file and stream of 0-10, command by command."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import uuid4

from headrace.protocol.codec_0_10 import (
    Command,
    FileConsume,
    FileConsumeOk,
    FileDeliver,
    FileOpen,
    FileOpenOk,
    FileProperties,
    FilePublish,
    FileStage,
    QueueDeclare,
    QueueQuery,
    decode_headers,
    encode_headers,
)
from support.clients.command_client_0_10 import Talk

if TYPE_CHECKING:
    from headrace.testing.raw_session import RawSession
    from support.brokers.broker_process import Served

C = TypeVar("C", bound=Command)


class Client:
    """A session, and what is usually done with files on it."""

    def __init__(self, session: RawSession) -> None:
        self.session = session
        self.call = session.call
        self.send = session.send

    def expect(self, kind: type[C]) -> tuple[C, Any, bytes]:
        """The next command must be of this class; return it with properties and body."""
        while not self.session.commands:
            assert self.session.exception is None, self.session.exception
            assert not self.session.client.closed
            self.session.client.pull()
        event = self.session.commands.pop(0)
        assert isinstance(event.command, kind), event
        structs = decode_headers(event.header) if event.header else []
        self.session.machine.complete(event.command_id)
        return event.command, structs[0] if structs else None, event.body

    def declare(self, name: str, **how: Any) -> None:
        self.call(QueueDeclare(queue=name, **how))

    def count(self, name: str) -> int:
        found = self.call(QueueQuery(queue=name)).message_count
        return found or 0

    def open(self, identifier: str, size: int) -> int:
        self.send(FileOpen(identifier=identifier, content_size=size))
        return self.expect(FileOpenOk)[0].staged_size or 0

    def stage(self, identifier: str, body: bytes, **properties: Any) -> None:
        staged = self.open(identifier, len(body))
        header = encode_headers([FileProperties(**properties)])
        self.call_with(FileStage(), header, body[staged:])

    def call_with(self, command: Command, header: bytes, body: bytes) -> None:
        number = self.send(command, header, body, sync=True)
        self.session.wait(number)

    def publish_file(
        self, queue: str, body: bytes, identifier: str = "id", **properties: Any
    ) -> None:
        self.stage(identifier, body, **properties)
        self.call(FilePublish(routing_key=queue, identifier=identifier))

    def consume_files(self, queue: str, tag: str = "tag", **how: Any) -> None:
        self.send(FileConsume(queue=queue, consumer_tag=tag, **how))
        assert self.expect(FileConsumeOk)[0].consumer_tag == tag

    def receive(self, have: int = 0) -> tuple[FileDeliver, Any, bytes]:
        """Take the next file, ``have`` octets of which are here already."""
        opened = self.expect(FileOpen)[0]
        self.send(FileOpenOk(staged_size=have))
        _, properties, body = self.expect(FileStage)
        assert len(body) == (opened.content_size or 0) - have
        delivered = self.expect(FileDeliver)[0]
        assert delivered.identifier == opened.identifier
        return delivered, properties, body

    def expect_exception(self, command: Command, header: bytes = b"", body: bytes = b"") -> int:
        """Send what is refused; return the error code."""
        found: int = self.session.expect_exception(command, header, body).error_code
        return found


@contextmanager
def connected(served: Served, name: str = "s") -> Iterator[Client]:
    talk = Talk(served.port)
    try:  # Sessions have names of their own: those that were lost may be there a little longer.
        yield Client(talk.attach(f"{name}-{uuid4()}"))
    finally:
        talk.drop()
