# SPDX-License-Identifier: Apache-2.0
"""Octets from the disk among those from memory: turns, order, errors, and the end."""

from __future__ import annotations

import pytest

from headrace.protocol.output import BufferPool, Feed, Output


class ChunkFeed(Feed):
    """Gives these chunks; an error where one is None."""

    def __init__(self, *chunks: bytes | None) -> None:
        self.chunks = list(chunks)
        self.ends: list[OSError | None] = []
        self.dropped = 0

    def next_chunk(self) -> tuple[bytes, bool]:
        chunk = self.chunks.pop(0)
        if chunk is None:
            raise OSError("gone")
        return chunk, not self.chunks

    def on_end(self, error: OSError | None) -> None:
        self.ends.append(error)

    def drop(self) -> None:
        self.dropped += 1


@pytest.fixture
def output() -> Output:
    return Output(BufferPool())


def test_feeds_take_turns_behind_everything_else(output: Output) -> None:
    first, second = ChunkFeed(b"a1", b"a2", b"a3"), ChunkFeed(b"b1", b"b2")
    output.feed_from(first)
    output.feed_from(second)
    output.write(b"now ")
    assert output.pending() == 6
    assert output.pool.dirty == [output]
    assert output.data_to_send() == b"now a1b1a2b2a3"
    assert (first.ends, second.ends) == ([None], [None])
    assert output.pending() == 0


def test_what_is_written_meanwhile_overtakes(output: Output) -> None:
    output.feed_from(ChunkFeed(b"12", b"34"))
    source, lo, hi = output.front()
    assert source[lo:hi] == b"12"
    output.advance(1)
    output.write(b"x")
    assert output.data_to_send() == b"2x34"


def test_a_feed_in_order_comes_before_what_is_written_later(output: Output) -> None:
    feed = ChunkFeed(b"12", b"34")
    output.write(b"<")
    output.feed_in_order(feed)
    output.write(b">")
    output.write_parts(1, (b"part",), 4096)
    assert output.pending() > 3
    sent = output.data_to_send()
    assert sent.startswith(b"<1234>\x03")
    assert feed.ends == [None]
    assert output.pending() == 0


def test_a_feed_in_order_survives_partial_sends(output: Output) -> None:
    output.feed_in_order(ChunkFeed(b"123", b"456"))
    output.write(b"!")
    got = b""
    while output.pending():
        source, lo, hi = output.front()
        got += bytes(source[lo : lo + 1])
        output.advance(min(1, hi - lo))
    assert got == b"123456!"


@pytest.mark.parametrize("ordered", [False, True])
def test_an_error_ends_a_feed(output: Output, ordered: bool) -> None:
    feed = ChunkFeed(b"1", None)
    (output.feed_in_order if ordered else output.feed_from)(feed)
    output.write(b"x")
    assert sorted(output.data_to_send()) == sorted(b"1x")
    assert str(feed.ends[0]) == "gone"
    assert output.pending() == 0


def test_feeds_of_a_lost_peer_are_dropped(output: Output) -> None:
    first, second = ChunkFeed(b"1"), ChunkFeed(b"2")
    output.feed_from(first)
    output.feed_in_order(second)
    output.drop()
    assert (first.dropped, second.dropped) == (1, 1)
    assert (first.ends, second.ends) == ([], [])
    assert output.pending() == 0


@pytest.mark.parametrize("kept", [0, 3, 5, 9, 12])
def test_what_was_written_last_can_be_taken_back(output: Output, kept: int) -> None:
    output.write(b"first")
    output.write_parts(1, (bytes(100),), 4096)
    output.write(b"last")
    whole = output.pending()
    assert whole == 5 + 108 + 4
    output.cut_back(whole)
    assert output.pending() == whole
    output.cut_back(kept)
    assert output.pending() == kept
    sent = output.data_to_send()
    assert len(sent) == kept
    assert sent[:5] == b"first"[:kept]
    assert output.pool.used == 0
