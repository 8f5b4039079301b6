# SPDX-License-Identifier: Apache-2.0
"""The generator's counting: what it says about sequences, confirms and durations must be true."""

from array import array
from itertools import product

import pytest

from headrace.bench.load.generator import make_sender
from headrace.bench.load.load import (
    TOPIC_WORDS,
    Load,
    topic_fan,
    topic_pattern,
    topic_queue,
)
from headrace.bench.load.meter import BrokenFrames, Histogram, Receiver, Sender
from headrace.protocol.codec_0_x import (
    BasicAck,
    BasicDeliver,
    BasicNack,
    BasicProperties,
    ChannelClose,
    MethodBase,
    decode_content_header,
    decode_method,
    encode_content_header,
    encode_method,
)
from headrace.spec.tables import Version
from headrace.wire.frame import decode_frame, encode_frame

V = Version.V0_9_1
FRAME_MAX = 4096


def method(one: MethodBase) -> bytes:
    return encode_frame(1, 1, encode_method(V, one))


def delivery(
    seq: int, *, tag: int = 1, publisher: int = 0, redelivered: bool = False, size: int = 16
) -> bytes:
    deliver = BasicDeliver(
        consumer_tag="c0", delivery_tag=tag, redelivered=redelivered, routing_key="hb.0"
    )
    header = encode_content_header(V, 60, size, BasicProperties())
    body = (publisher << 48 | seq).to_bytes(8, "big") + (1000).to_bytes(8, "big")
    body += b"x" * (size - 16)
    parts = [body[at : at + FRAME_MAX - 8] for at in range(0, size, FRAME_MAX - 8)]
    bodies = b"".join(encode_frame(3, 1, part) for part in parts)
    return method(deliver) + encode_frame(2, 1, header) + bodies


def receiver(
    *, ack_every: int = 0, reports_gaps: bool = True, latency: Histogram | None = None
) -> Receiver:
    waited = array("Q", bytes(16))
    return Receiver(waited, 2, latency or Histogram(), ack_every, reports_gaps, FRAME_MAX)


def feed(target: Receiver | Sender, octets: bytes, now: int = 3000) -> int:
    return target.feed(bytearray(octets), len(octets), now)


def verdict(one: Receiver) -> tuple[int, int, int, int]:
    return one.received, one.repeated, one.out_of_order, one.count_missing()


@pytest.mark.parametrize(
    ("seqs", "expected"),
    [
        ([0, 1, 2, 3], (4, 0, 0, 0)),
        ([0, 2, 3], (3, 0, 0, 1)),
        ([0, 2, 1, 3], (4, 0, 1, 0)),
        ([0, 1, 1, 2], (4, 1, 0, 0)),
        ([0, 1, 4, 2, 2, 5, 5, 9], (8, 2, 1, 4)),
        ([3, 2, 1, 0], (4, 0, 3, 0)),
        ([], (0, 0, 0, 0)),
    ],
)
def test_sequences_are_judged(seqs: list[int], expected: tuple[int, int, int, int]) -> None:
    one = receiver()
    octets = b"".join(delivery(seq) for seq in seqs)
    assert feed(one, octets) == len(octets)
    assert verdict(one) == expected


def test_publishers_have_sequences_of_their_own() -> None:
    one = receiver()
    feed(one, b"".join(delivery(seq, publisher=p) for seq, p in product(range(3), range(2))))
    assert verdict(one) == (6, 0, 0, 0)


def test_gaps_are_fine_where_a_queue_gets_only_some() -> None:
    one = receiver(reports_gaps=False)
    feed(one, b"".join(delivery(seq) for seq in (2, 5, 5, 9, 7)))
    assert verdict(one) == (5, 1, 1, 0)


def test_any_split_gives_the_same() -> None:
    octets = b"".join(delivery(seq, size=5000) for seq in (0, 1, 3)) + method(BasicAck())
    for step in (1, 7, 100, 4096):
        one = receiver()
        rest = b""
        for at in range(0, len(octets), step):
            rest += octets[at : at + step]
            rest = rest[feed(one, rest) :]
        assert rest == b""
        assert verdict(one) == (3, 0, 0, 1)
        assert [decode_method(V, payload) for payload in one.methods] == [BasicAck()]


def test_acks_cover_what_came() -> None:
    one = receiver(ack_every=2)
    feed(one, b"".join(delivery(seq, tag=seq + 1) for seq in range(5)))
    acks = bytes(one.acks[: one.acks_len])
    expected = [BasicAck(delivery_tag=2, multiple=True), BasicAck(delivery_tag=4, multiple=True)]
    assert acks == b"".join(method(ack) for ack in expected)
    one.flush()
    last = BasicAck(delivery_tag=5, multiple=True)
    assert bytes(one.acks[: one.acks_len]) == method(last)


def test_durations_are_counted_only_while_measuring() -> None:
    latency = Histogram()
    one = receiver(latency=latency)
    feed(one, delivery(0))
    assert latency.total == 0
    one.measuring = True
    feed(one, delivery(1) + delivery(2), now=51_000)
    assert latency.total == 2
    assert latency.percentile(0.5) == pytest.approx(50_000, rel=0.02)


def test_redelivered_is_counted() -> None:
    one = receiver()
    feed(one, delivery(0, redelivered=True))
    assert one.redelivered == 1


@pytest.mark.parametrize(
    "octets",
    [
        b"\x01\0\1\xff\xff\xff\xff\0",
        delivery(0)[:-1] + b"\0",
        encode_frame(2, 1, b"\0" * 13),
        encode_frame(1, 1, bytes.fromhex("003c003cff")),
        encode_frame(3, 1, b"more than was announced"),
        delivery(0).replace(b"\x02c0", b"\x02c7"),
    ],
)
def test_broken_frames_are_refused(octets: bytes) -> None:
    with pytest.raises(BrokenFrames):
        feed(receiver(), octets)


def sender(load: Load) -> Sender:
    return make_sender(Sender, load, 0, FRAME_MAX)


def published(octets: bytes) -> list[tuple[str, int, int]]:
    """Routing key, sequence number and body size of each publish."""
    found = []
    at = 0
    while at < len(octets):
        frames = []
        size = body = None
        while body is None or body < size:
            frame = decode_frame(octets, at, FRAME_MAX)
            assert frame is not None
            at = frame.end
            frames.append(frame)
            if frame.type == 2:
                size, body = decode_content_header(V, frame.payload)[1], 0
            elif frame.type == 3:
                assert body is not None
                body += len(frame.payload)
        publish = decode_method(V, frames[0].payload)
        seq = int.from_bytes(frames[2].payload[:8], "big")
        found.append((publish.routing_key, seq, body))  # type: ignore[attr-defined]
    return found


def test_publishes_are_numbered_by_queue() -> None:
    one = sender(Load(queues=2, size=5000))
    seen = []
    while len(seen) < 10:
        count = one.fill(1, 3, 1 << 20)
        seen += published(bytes(one.buffer[one.send_start : one.send_end]))
        assert one.sent == len(seen)
        assert count <= 3
    expected = [(f"hb.{i % 2}", i // 2, 5000) for i in range(len(seen))]
    assert seen == expected


def test_a_sheet_ends_a_sending_and_starts_again() -> None:
    one = sender(Load())
    total = len(one.buffer)
    first = one.fill(1, 1 << 40, 1 << 30)
    assert (one.send_start, one.send_end) == (0, total)
    assert one.fill(1, 1, 1 << 30) == 1
    assert one.send_start == 0
    assert published(bytes(one.buffer[one.send_start : one.send_end])) == [("hb.0", first, 16)]


def test_confirms_free_the_window() -> None:
    one = sender(Load(window=10))
    one.measuring = True
    assert one.fill(1000, one.free_window(), 1 << 20) == 10
    assert one.free_window() == 0
    feed(one, method(BasicAck(delivery_tag=3)))
    assert (one.confirmed, one.free_window()) == (1, 1)
    feed(one, method(BasicAck(delivery_tag=5, multiple=True)))
    assert (one.confirmed, one.free_window()) == (5, 5)
    feed(one, method(BasicAck(delivery_tag=5, multiple=True)))  # Again: nothing new.
    feed(one, method(BasicNack(delivery_tag=6)))
    assert (one.confirmed, one.nacked) == (6, 1)
    assert one.latency.total == 6
    assert one.latency.percentile(0.5) == pytest.approx(2000, rel=0.02)
    with pytest.raises(BrokenFrames):
        feed(one, method(BasicAck(delivery_tag=11)))


def test_unordered_confirms_never_overrun_the_ring() -> None:
    one = sender(Load(window=4))
    one.fill(1, one.free_window(), 1 << 20)
    for tag in (2, 3, 4):
        feed(one, method(BasicAck(delivery_tag=tag)))
    one.fill(1, one.free_window(), 1 << 20)
    assert one.sent == 7  # Tag 1 still holds its place among 2 * 4.
    feed(one, method(BasicAck(delivery_tag=1)))
    assert one.free_window() == 1


def test_other_methods_are_kept() -> None:
    one = sender(Load())
    close = ChannelClose(reply_code=404, reply_text="NOT_FOUND")
    feed(one, method(close))
    assert [decode_method(V, payload) for payload in one.methods] == [close]


def test_percentiles_are_within_two_percent() -> None:
    one = Histogram()
    for value in range(1, 100_001):
        one.add(value * 100, 1)
    for share in (0.01, 0.5, 0.9, 0.99, 0.999):
        assert one.percentile(share) == pytest.approx(share * 10_000_000, rel=0.02)
    assert one.percentile(1.0) == 10_000_000
    two = Histogram()
    two.merge(one.as_list(), one.largest)
    assert two.percentile(0.5) == one.percentile(0.5)
    assert Histogram().percentile(0.5) == 0


def matches(pattern: list[str], key: list[str]) -> bool:
    if not pattern:
        return not key
    if pattern[0] == "#":
        return any(matches(pattern[1:], key[i:]) for i in range(len(key) + 1))
    return bool(key) and pattern[0] in ("*", key[0]) and matches(pattern[1:], key[1:])


def test_the_expected_topic_deliveries_are_right() -> None:
    load = Load(exchange="topic", queues=7, bindings=10_500)
    patterns = [topic_pattern(i).split(".") for i in range(load.bindings)]
    for x, y, z in ((0, 0, 0), (1, 2, 13), (49, 49, 49), (7, 3, 8), (5, 0, 35)):
        assert max(x, y, z) < TOPIC_WORDS
        key = [f"a{x}", f"b{y}", f"c{z}"]
        reached = {topic_queue(load, i) for i, one in enumerate(patterns) if matches(one, key)}
        assert topic_fan(load, x, y, z) == len(reached)
