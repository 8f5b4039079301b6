# SPDX-License-Identifier: Apache-2.0
"""Pending output is counted; large bodies are one object in all outputs."""

from __future__ import annotations

import pytest

from headrace.protocol.codec_0_x import (
    BasicProperties,
    BasicPublish,
    encode_content_header,
    encode_method,
)
from headrace.protocol.output import OUTPUT_MIN, BufferPool
from headrace.protocol.v0_x.connection import Connection
from headrace.protocol.v0_x.handshake import Role
from headrace.spec.tables import V0_9_1
from headrace.wire.frame import encode_frame
from support.brokers.in_memory_broker import Rig

FRAME_MAX = 4096
BUFFER_SIZE, BUFFER_KEPT_MAX, POOL_BYTES_MAX = 16 << 10, 2 << 20, 8 << 20  # Octets.
KEPT_TICKS = 20  # Half seconds.
BODY = bytes(range(256)) * 100


def outputs(pool: BufferPool, count: int) -> list[Connection]:
    return [Connection(Role.SERVER, pool=pool) for _ in range(count)]


def frames(number: int) -> bytes:
    limit = FRAME_MAX - 8
    pieces = [BODY[at : at + limit] for at in range(0, len(BODY), limit)]
    return b"".join([encode_frame(3, number, piece) for piece in pieces])


def test_a_body_is_one_object_in_all_outputs() -> None:
    pool = BufferPool()
    some = outputs(pool, 20)
    for number, output in enumerate(some):
        output.write(b"before")
        output.write_parts(number, (BODY,), FRAME_MAX)
        output.write(b"after")
    own = 0
    for output in some:
        sources = [one[0] for one in output.chain]
        assert any(source is BODY for source in sources)
        own += sum(len(source) for source in sources if source is not BODY)
    assert own < 20 * 200  # Heads of frames, and what stood before.
    assert pool.used >= sum(output.pending() for output in some)
    for number, output in enumerate(some):
        assert output.data_to_send() == b"before" + frames(number) + b"after"
    assert pool.used == 0


def test_buffers_that_grew_are_let_go_after_a_while() -> None:
    pool = BufferPool()
    some = outputs(pool, 20)
    for output in some:
        output.write(bytes(200_000))
    for output in some:
        output.data_to_send()
    assert pool.pooled_bytes >= 20 * 200_000  # The next outputs are likely to be as large.
    for _ in range(KEPT_TICKS):
        pool.tick()
    assert pool.buffers == []
    assert pool.pooled_bytes == 0
    some[0].write(b"small")
    some[0].data_to_send()
    assert pool.pooled_bytes == BUFFER_SIZE


def test_pieces_are_sent_together_as_far_as_they_go() -> None:
    (output,) = outputs(BufferPool(), 1)
    output.write(b"before")
    output.write_parts(9, (BODY,), FRAME_MAX)
    whole = b"before" + frames(9)
    sent = b""
    step = 1
    while output.pending():
        found = b"".join([bytes(source[lo:hi]) for source, lo, hi in output.gather()])
        sent += found[:step]
        output.advance(min(step, len(found)))
        step += 97
    assert sent == whole
    assert output.pool.used == 0


def test_little_memory_makes_unread_outputs_full() -> None:
    pool = BufferPool()
    pool.used_max = 4 * OUTPUT_MIN
    slow, quick = outputs(pool, 2)
    for output in (slow, quick):
        output.limit(1 << 20)
    quick.write(bytes(OUTPUT_MIN))
    slow.write(bytes(OUTPUT_MIN + 1))
    assert [slow.is_full(), slow.lags()] == [False, True]
    quick.write(bytes(3 * OUTPUT_MIN))
    assert [pool.is_tight, slow.is_full(), quick.is_full()] == [True, True, True]
    quick.data_to_send()
    assert [pool.is_tight, quick.is_full()] == [False, False]
    slow.drop()
    assert pool.used == 0


def test_unused_buffers_are_bounded() -> None:
    pool = BufferPool()
    for output in outputs(pool, 3 * POOL_BYTES_MAX // BUFFER_KEPT_MAX):
        output.write(bytes(BUFFER_KEPT_MAX))
    assert pool.used >= 3 * POOL_BYTES_MAX
    for output in list(pool.dirty):
        output.data_to_send()
    assert pool.used == 0
    assert sum(map(len, pool.buffers)) == pool.pooled_bytes <= POOL_BYTES_MAX


@pytest.mark.parametrize("ends", ["complete", "abandoned"])
def test_contents_that_are_not_complete_are_counted(ends: str) -> None:
    there = Rig().client().there
    header = encode_content_header(V0_9_1, 60, 100_000, BasicProperties())
    publish = encode_method(V0_9_1, BasicPublish(routing_key="none"))
    there.receive(encode_frame(1, 1, publish) + encode_frame(2, 1, header))
    for _ in range(3):
        there.receive(encode_frame(3, 1, bytes(30_000)))
    assert there.pool.used == 90_000
    if ends == "complete":
        there.receive(encode_frame(3, 1, bytes(10_000)))
    else:
        there.receive(encode_frame(1, 1, publish))  # Where the rest of the body is due.
    there.data_to_send()
    assert there.pool.used == 0
