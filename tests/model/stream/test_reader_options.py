# SPDX-License-Identifier: Apache-2.0
"""Options of a stream's reader: blocks that cannot match are not read again."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from headrace.model.counters import Counters
from headrace.model.message import Message, new_message
from headrace.model.ports import Store
from headrace.model.queue.destination import Consumer
from headrace.model.stream.log import StreamLog, StreamRecord
from headrace.model.stream.reader_options import BLOCK, BLOCKS_MAX, VALUES_MAX, FilterBlocks
from headrace.model.stream.stream import Stream
from headrace.model.vhost.virtual_host import VirtualHost

READ_SIZE = 262144  # As in headrace.model.stream.stream.
STREAM = {"x-queue-type": "stream"}


class Bodies:
    """Contents whose filter value is the body."""

    def filter_value(self, data: bytes, address_len: int) -> str | None:
        return data.decode().strip("-") or None


class Reader(Consumer):
    def __init__(self, stream: Any, **arguments: object) -> None:
        Consumer.__init__(self, stream, "reader", True)
        self.arguments = {key.replace("_", "-"): value for key, value in arguments.items()}
        self.room = 1 << 30
        self.seen: list[int] = []
        self.end = ""
        stream.check_consumer(self)
        stream.add_consumer(self)
        stream.drain()

    def has_room(self) -> bool:
        return self.room > 0

    def deliver(self, message: Message) -> None:
        self.room -= 1
        self.seen.append(message.seq)

    def on_queue_end(self) -> None:
        self.end = "ended"

    def on_failure(self, error: Exception) -> None:
        self.end = str(error)


class Counting(StreamLog):
    """A log that notes where it is read."""

    def __init__(self, **limits: int) -> None:
        StreamLog.__init__(self, **limits)
        self.reads: list[int] = []

    def read(self, offset: int, bytes_max: int) -> list[StreamRecord]:
        self.reads.append(offset)
        return StreamLog.read(self, offset, bytes_max)


@pytest.fixture
def counters() -> Counters:
    return Counters(now_ms=1_000_000)


def a_stream(counters: Counters, **limits: int) -> tuple[VirtualHost, Any]:
    def make(name: str, **options: Any) -> Any:
        return Stream(name, Counting(**limits), **options)

    vhost = VirtualHost(
        "/",
        store=Store(),
        counters=counters,
        make_stream=make,
        contents=Bodies(),  # type: ignore[arg-type]  # All that is asked of it here.
    )
    return vhost, vhost.declare_queue("s", durable=True, arguments=STREAM)


def publish(vhost: VirtualHost, stream: Any, *bodies: bytes) -> None:
    for body in bodies:
        vhost.deliver(new_message(body, 0, len(body)), [stream], False)


def run(vhost: VirtualHost, counters: Counters, reader: Reader) -> None:
    for _ in range(10_000):
        if reader.end:
            return
        counters.now_ms += 2
        vhost.scheduler.run(counters.now_ms)
    raise AssertionError("the reading does not end")


def test_what_was_looked_at_is_skipped_by_the_next_reader(counters: Counters) -> None:
    vhost, stream = a_stream(counters)
    count = 6 * BLOCK
    for n in range(count):
        publish(vhost, stream, b"red" if n // BLOCK == 3 else b"green")
    first = Reader(stream, x_stream_offset=0, x_stream_last=count, x_stream_filter="red")
    run(vhost, counters, first)
    assert first.seen == list(range(3 * BLOCK, 4 * BLOCK))
    stream.log.reads.clear()
    second = Reader(stream, x_stream_offset=7, x_stream_last=count, x_stream_filter="red")
    run(vhost, counters, second)
    assert second.seen == first.seen
    assert all(3 * BLOCK <= offset < 4 * BLOCK for offset in stream.log.reads)


def test_a_long_search_leaves_others_their_turn(counters: Counters) -> None:
    vhost, stream = a_stream(counters)
    body = b"green".ljust(20_000, b"-")
    for _ in range(200):
        publish(vhost, stream, body)
    publish(vhost, stream, b"red")
    reader = Reader(stream, x_stream_offset=0, x_stream_last=201, x_stream_filter="red")
    assert not reader.end
    assert len(stream.log.reads) * READ_SIZE < 2_000_000
    run(vhost, counters, reader)
    assert (reader.seen, reader.end) == ([200], "ended")


def test_room_and_end(counters: Counters) -> None:
    vhost, stream = a_stream(counters)
    publish(vhost, stream, *[b"red", b"green"] * 10)
    reader = Reader(stream, x_stream_offset=0, x_stream_last=9, x_stream_filter=["red", "blue"])
    assert (reader.seen, reader.end) == ([0, 2, 4, 6, 8], "ended")
    assert stream.consumer_count() == 0
    slow = Reader(stream, x_stream_offset=0, x_stream_last=30)
    assert slow.seen == list(range(20))
    slow.room = 0
    publish(vhost, stream, *[b""] * 10)
    stream.drain()
    assert len(slow.seen) == 20
    slow.room = 100
    stream.unpark(slow)
    stream.drain()
    assert (slow.seen, slow.end) == (list(range(30)), "ended")


def test_a_strict_reader_is_told_of_a_gap(counters: Counters) -> None:
    vhost, stream = a_stream(counters, max_length_bytes=1000)
    publish(vhost, stream, *[b"x" * 100] * 5)
    strict = Reader(stream, x_stream_offset=0, x_stream_offset_error=True)
    lax = Reader(stream, x_stream_offset=0, x_stream_last=1000)
    assert strict.seen == lax.seen == [0, 1, 2, 3, 4]
    strict.room = lax.room = 0
    stream.drain()
    publish(vhost, stream, *[b"x" * 100] * 30)
    strict.room = lax.room = 100
    stream.unpark(strict)
    stream.unpark(lax)
    stream.drain()
    assert strict.end == "offset 5 is gone from stream 's' in vhost '/'"
    assert lax.seen[5] == stream.log.first_offset
    assert not lax.end
    assert stream.consumer_count() == 1


def test_blocks_are_bounded() -> None:
    blocks = FilterBlocks()
    wanted = frozenset({"red"})
    many: set[str | None] = {f"{n}" for n in range(VALUES_MAX + 1)}
    blocks.put(0, many)
    assert blocks.skip(0, 10 * BLOCK, wanted) == 0
    for n in range(BLOCKS_MAX + 10):
        blocks.put(n, {"green", None})
    assert len(blocks) == BLOCKS_MAX
    end = (BLOCKS_MAX + 10) * BLOCK
    assert blocks.skip(10 * BLOCK + 5, end, wanted) == end
    assert blocks.skip(20 * BLOCK, 20 * BLOCK + 5, wanted) == 20 * BLOCK + 5
    assert blocks.skip(20 * BLOCK, end, frozenset({"red", None})) == 20 * BLOCK


def test_octets_of_a_range(counters: Counters) -> None:
    random = Random(3)
    vhost, stream = a_stream(counters, max_length_bytes=400_000)
    sizes = [random.randrange(200) for _ in range(9000)]
    publish(vhost, stream, *map(bytes, sizes))
    log = stream.log
    base = log.first_offset
    assert base % 1024
    for _ in range(300):
        first = random.randrange(base, 9001)
        last = random.randrange(first, 9001)
        assert log.measure(first, last) == sum(sizes[first:last])
        limit = random.choice((0, 50, 1000, 100_000, 10_000_000))
        end = log.find_end(first, last, limit)
        if first < last:
            assert first < end <= last
            assert end == first + 1 or sum(sizes[first:end]) <= limit
            assert end == last or sum(sizes[first : end + 1]) > limit
