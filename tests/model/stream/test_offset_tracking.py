# SPDX-License-Identifier: Apache-2.0
"""Automatic offset tracking: the tags that a stream stores, and their limit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from headrace.model.counters import Counters
from headrace.model.errors import ModelError, NotFound, PreconditionFailed, ResourceError
from headrace.model.message import Message, new_message
from headrace.model.ports import Store
from headrace.model.queue.destination import Consumer
from headrace.model.stream import offset_tracking
from headrace.model.stream.log import StreamLog
from headrace.model.stream.stream import Stream
from headrace.model.vhost.virtual_host import VirtualHost

if TYPE_CHECKING:
    from headrace.model.queue.queue import Queue

ARGUMENTS = {offset_tracking.ARGUMENT: True}


class Reader(Consumer):
    """A reader that acknowledges every record at once."""

    def __init__(self, stream: Any, tag: str, **arguments: object) -> None:
        Consumer.__init__(self, stream, tag, no_ack=False)
        self.arguments = {**ARGUMENTS, **{k.replace("_", "-"): v for k, v in arguments.items()}}
        self.received: list[int] = []

    def has_room(self) -> bool:
        return True

    def deliver(self, message: Message) -> None:
        self.received.append(message.seq)
        self.queue.settle(message)


@pytest.fixture
def vhost() -> VirtualHost:
    def make(name: str, **options: Any) -> Queue:
        return Stream(name, StreamLog(max_length_bytes=3000), **options)

    return VirtualHost("/", store=Store(), counters=Counters(now_ms=1_000_000), make_stream=make)


@pytest.fixture
def stream(vhost: VirtualHost, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(offset_tracking, "READERS_MAX", 3)
    return vhost.declare_queue("s", durable=True, arguments={"x-queue-type": "stream"})


def publish(vhost: VirtualHost, stream: Any, count: int) -> None:
    for _ in range(count):
        vhost.deliver(new_message(bytes(100), 0, 100), [stream], False)


def begin(stream: Any, tag: str, **arguments: object) -> Reader:
    reader = Reader(stream, tag, **arguments)
    stream.check_consumer(reader)
    stream.add_consumer(reader)
    return reader


def refuse(reader: Reader, error: type[ModelError], published: bool = False) -> None:
    with pytest.raises(error):
        reader.queue.check_consumer(reader, published)  # type: ignore[attr-defined]


def stored_tags(vhost: VirtualHost) -> int:
    return sum(1 for _ in vhost.facts.items(b"stream/read/"))


def test_a_refused_reader_is_not_tracked(vhost: VirtualHost, stream: Any) -> None:
    publish(vhost, stream, 100)
    assert stream.log.first_offset > 1
    for number in range(10):
        reader = Reader(stream, f"own-{number}", x_stream_offset="first")
        reader.no_local = True
        refuse(reader, PreconditionFailed, published=True)
        late = {"x_stream_offset": 1, "x_stream_offset_error": True}
        refuse(Reader(stream, f"late-{number}", **late), NotFound)
    for tag in "abc":
        begin(stream, tag)
    refuse(Reader(stream, "d"), ResourceError)


def test_readers_without_an_ack_count_towards_the_limit_of_tags(
    vhost: VirtualHost, stream: Any
) -> None:
    readers = [begin(stream, tag) for tag in "abc"]
    refuse(Reader(stream, "d"), ResourceError)
    publish(vhost, stream, 1)
    stream.drain()
    assert [reader.received for reader in readers] == [[0], [0], [0]]
    stream.drain()
    assert stored_tags(vhost) == 3


def test_readers_of_one_tag_count_once(vhost: VirtualHost, stream: Any) -> None:
    for tag in "aaaabbc":
        begin(stream, tag)
    refuse(Reader(stream, "d"), ResourceError)


def test_a_reader_that_ends_without_an_ack_leaves_its_place(stream: Any) -> None:
    readers = [begin(stream, tag) for tag in "aabc"]
    stream.remove_consumer(readers[0])
    refuse(Reader(stream, "d"), ResourceError)  # The other reader with this tag is still there.
    stream.remove_consumer(readers[1])
    begin(stream, "d")
    refuse(Reader(stream, "a"), ResourceError)


def test_stored_tags_stay_and_continue(vhost: VirtualHost, stream: Any) -> None:
    publish(vhost, stream, 1)
    for tag in "abc":
        reader = begin(stream, tag, x_stream_offset="first")
        stream.drain()
        assert reader.received == [0]
        stream.remove_consumer(reader)
    assert stored_tags(vhost) == 3
    refuse(Reader(stream, "d"), ResourceError)
    publish(vhost, stream, 1)
    reader = begin(stream, "a")
    stream.drain()
    assert reader.received == [1]
