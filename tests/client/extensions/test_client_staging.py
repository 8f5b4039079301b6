# SPDX-License-Identifier: Apache-2.0
"""Staged batches over a real broker: what tasks and a driver do, and what they are refused."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from headrace.client import Message
from headrace.client.blocking import Connection, connect
from headrace.client.blocking_pipeline import Sink, Stage
from headrace.client.bulk.encode import Octets, encode_properties
from headrace.client.requests import RequestRefused
from headrace.client.staging import Staged, StageError
from support.queue_contents import all_ready
from support.timeouts import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import Iterator

    from headrace.testing.broker import LocalBroker


@pytest.fixture
def connection(headrace_broker: LocalBroker) -> Iterator[Connection]:
    with connect(headrace_broker.url, timeout_s=PATIENCE_S) as connection:
        yield connection


def queue(connection: Connection, name: str, **arguments: object) -> str:
    with connection.channel() as channel:
        named: Any = {key.replace("_", "-"): value for key, value in arguments.items()}
        channel.declare_queue(name, arguments=named)
    return name


def bodies(connection: Connection, name: str) -> list[str]:
    with connection.channel() as channel:
        return [message.text() for message in all_ready(channel, name)]


def stage(
    connection: Connection, sink: Sink, batch: int, texts: list[str], key: str, part: int = 0
) -> Staged:
    with Stage(connection, sink.name, batch, part, 1, epoch=sink.epoch) as work:
        work.publish_many(texts, key)
        return work.prepare()


def test_a_batch_becomes_visible_with_its_commit_once(connection: Connection) -> None:
    name = queue(connection, "once")
    log = queue(connection, "once-log", x_queue_type="stream")
    with connection.channel() as channel:
        channel.declare_exchange("both", "fanout")
        channel.bind_queue(name, "both")
        channel.bind_queue(log, "both")
    with Sink(connection, "once") as sink:
        assert sink.state() is None
        sink.begin("query")
        assert sink.last() is None
        parts = []
        for part in range(3):
            with Stage(connection, "once", 0, part, 1, epoch=sink.epoch) as work:
                work.publish_many([f"{part}.{n}" for n in range(50)], exchange="both")
                parts.append(work.prepare())
        assert bodies(connection, name) == []
        done = sink.commit(0, parts)
        assert (done.last, done.already, done.messages) == (0, False, 150)
        expected = [f"{part}.{n}" for part in range(3) for n in range(50)]
        assert bodies(connection, name) == expected

        repeated = sink.commit(0, parts)
        assert (repeated.last, repeated.already) == (0, True)
        assert bodies(connection, name) == []
    stream = connection.stream(log)
    read = [r.message().text() for batch in stream.read(0, 150) for r in batch]
    assert read == expected


def test_attempts_that_lost_are_rolled_back(connection: Connection) -> None:
    name = queue(connection, "losers")
    with Sink(connection, "losers") as sink:
        sink.begin("query")
        stage(connection, sink, 3, ["lost"], name)
        won = stage(connection, sink, 3, ["won"], name)
        unasked = stage(connection, sink, 3, ["speculative"], name)
        assert sink.commit(3, [won]).messages == 1
        assert bodies(connection, name) == ["won"]
        with pytest.raises(RequestRefused) as refused:
            sink.commit(4, [unasked])
        assert refused.value.code == "not-found"
        late = stage(connection, sink, 3, ["late"], name)
        assert late.already
        assert late.branches == ""
    with connection.channel() as channel:
        assert channel.declare_queue(name).message_count == 0


def test_many_chunks_and_columns(connection: Connection) -> None:
    name = queue(connection, "chunks")
    with Sink(connection, "chunks") as sink:
        sink.begin("query")
        with Stage(connection, "chunks", 0, 0, 1, epoch=sink.epoch) as work:
            work._source._chunk_messages = 64
            work._source._chunk_octets = 10_000
            texts = [f"{n}" * (n % 9) for n in range(1000)]
            work.publish_columns(
                1000,
                Octets.of(text.encode() for text in texts),
                properties=Octets(encode_properties(Message(b""))),
                routing_key=Octets(name.encode()),
                exchange=Octets(b""),
            )
            staged = work.prepare()
        assert int(staged.branches.rpartition(":")[2]) > 15
        sink.commit(0, [staged])
        assert bodies(connection, name) == texts


def test_a_message_that_cannot_be_taken_is_named(connection: Connection) -> None:
    name = queue(connection, "named")
    full = queue(connection, "full", x_max_length=3, x_overflow="reject-publish")
    with Sink(connection, "named") as sink:
        sink.begin("query")

        def fails(keys: list[str], exchange: str = "") -> StageError:
            with Stage(connection, "named", 0, 0, 1, epoch=sink.epoch) as work:
                work.publish_columns(
                    len(keys),
                    Octets(b"x"),
                    properties=Octets(encode_properties(Message(b""))),
                    routing_key=Octets.of(key.encode() for key in keys),
                    exchange=Octets(exchange.encode()),
                )
                with pytest.raises(StageError) as failed:
                    work.prepare()
            return failed.value

        assert fails([name, name, "nobody", name]).index == 2
        missing = fails([name], "nowhere")
        assert missing.index == 0
        assert "nowhere" in missing.reason
        assert fails([name, full, full, full, full]).index == 4
        long = Message(b"", message_id="m" * 255)
        with Stage(connection, "named", 0, 0, 1, epoch=sink.epoch) as work:
            with pytest.raises(StageError, match="routing key") as failed:
                work.publish_many([b"a", long], "k" * 256)
            assert failed.value.index == 0
        reserving_stage = stage(connection, sink, 0, ["1", "2", "3"], full)
        assert fails([full]).index == 0  # The free space is reserved by the prepared messages.
        with connection.channel() as channel:
            channel.publish("a guest", full)
        sink.commit(0, [reserving_stage])
        assert bodies(connection, full) == ["1", "2", "3", "a guest"]
    with connection.channel() as channel:
        assert channel.declare_queue(name).message_count == 0


def test_an_owner_is_fenced_by_the_next(connection: Connection) -> None:
    name = queue(connection, "fenced")
    with Sink(connection, "fenced") as old, Sink(connection, "fenced") as new:
        old.begin("query", "first life")
        assert old.begin("query", "first life").epoch == old.epoch  # The same run.
        zombie = stage(connection, old, 0, ["zombie"], name)
        with pytest.raises(RequestRefused) as refused:
            new.begin("another")
        assert refused.value.code == "conflict"

        new.begin("query", "second life")
        with pytest.raises(RequestRefused, match="is over") as refused:
            old.begin("query", "first life")
        assert refused.value.code == "conflict"
        with pytest.raises(RequestRefused) as refused:
            old.commit(0, [zombie])
        assert refused.value.code == "conflict"
        with pytest.raises(RequestRefused) as refused:
            stage(connection, old, 0, ["more"], name)
        assert refused.value.code == "conflict"
        with pytest.raises(RequestRefused) as refused:
            new.commit(0, [zombie])  # The attempt was rolled back.
        assert refused.value.code == "not-found"
        new.commit(0, [stage(connection, new, 0, ["real"], name)])
        assert bodies(connection, name) == ["real"]

        new.release("query")
        with Sink(connection, "fenced") as other:
            assert other.begin("another").last is None  # Each owner has its own batch numbers.
            assert other.begin("query", force=True).epoch == other.epoch


def test_a_queue_deleted_before_the_commit_takes_its_messages_along(connection: Connection) -> None:
    name = queue(connection, "stays")
    goes = queue(connection, "goes")
    with Sink(connection, "deleted") as sink:
        sink.begin("query")
        parts = [stage(connection, sink, 0, ["a"], name), stage(connection, sink, 0, ["b"], goes)]
        with connection.channel() as channel:
            channel.delete_queue(goes)
        sink.commit(0, parts)
        assert bodies(connection, name) == ["a"]


def test_an_empty_batch_counts_and_an_aborted_one_does_not(connection: Connection) -> None:
    name = queue(connection, "empty")
    with Sink(connection, "empty") as sink:
        sink.begin("query")
        with Stage(connection, "empty", 0, 0, 1) as work:
            nothing = work.prepare()
        assert nothing.branches == ""
        assert sink.commit(0, [nothing]).last == 0
        stage(connection, sink, 1, ["x"], name)
        assert sink.abort(1) == 1
        assert sink.abort(1) == 0
        assert sink.last() == 0
    with connection.channel() as channel:
        assert channel.declare_queue(name).message_count == 0
