# SPDX-License-Identifier: Apache-2.0
"""Messages with publishing ids are taken once, in every version and across lost connections."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest

from headrace.client import Message, Nacked, PreconditionFailed, Reconnect, Returned, connect
from headrace.client.blocking import connect as connect_blocking
from headrace.client.blocking_publisher import Publisher as BlockingPublisher
from headrace.client.errors import ChannelClosed
from headrace.client.publisher import Publisher
from headrace.client.requests import Requests
from headrace.spec.tables import Version
from support.conversations.version_conversations import in_version

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace.client import Connection
    from headrace.testing import LocalBroker

    Name = Callable[[str], str]

STREAM = {"x-queue-type": "stream"}
every = pytest.mark.parametrize("version", [version.label for version in Version])


def numbered(number: Any, publisher: Any, body: bytes = b"") -> Message:
    headers = {"x-publisher-name": publisher, "x-publishing-id": number, "other": "stays"}
    return Message(body or f"{number}".encode(), headers=headers)


async def bodies(connection: Connection, queue: str) -> list[bytes]:
    found = []
    async with connection.channel() as channel:
        while delivery := await channel.get(queue, no_ack=True):
            found.append(delivery.body)
    return found


async def stream_bodies(connection: Connection, name: str) -> list[bytes]:
    stream = connection.stream(name)
    reading = stream.read(await stream.first_offset(), await stream.last_offset())
    return [record.body async for batch in reading for record in batch]


async def last(connection: Connection, publisher: str) -> int:
    async with Requests(connection) as requests:
        return int((await requests.ask("publisher.last", name=publisher))["last"])


@every
async def test_what_comes_twice_is_taken_once(url: str, version: str, name: Name) -> None:
    async with connect(in_version(url, version)) as connection, connect(url) as reader:
        async with connection.channel() as channel:
            await channel.declare_queue(name("q"))
            await channel.declare_queue(name("s"), arguments=STREAM)
            await channel.declare_exchange(name("x"), "fanout")
            await channel.bind_queue(name("q"), name("x"))
            await channel.bind_queue(name("s"), name("x"))
            for number in (1, 2, 2, 1, 5, 4, 5, 6, 6):
                await channel.publish(numbered(number, name("p")), "", name("x"))
            await channel.publish(numbered(6, name("p2")), "", name("x"))
            large = numbered(7, name("p"), bytes(300_000))
            await channel.publish(large, "", name("x"))
            await channel.publish(large, "", name("x"))
        expected = [b"1", b"2", b"5", b"6", b"6", bytes(300_000)]
        assert await bodies(reader, name("q")) == expected
        assert await stream_bodies(reader, name("s")) == expected
        assert await last(reader, name("p")) == 7
        assert await last(reader, name("nobody")) == -1


@every
async def test_a_consumer_may_publish_what_it_got(url: str, version: str, name: Name) -> None:
    """The broker removes the header with the id; the name and other headers stay."""
    async with connect(in_version(url, version)) as connection, connection.channel() as channel:
        await channel.declare_queue(name("q"))
        await channel.publish(numbered(3, name("p")), name("q"))
        for _ in range(2):
            delivery = await channel.get(name("q"), no_ack=True)
            assert delivery is not None
            assert delivery.headers["x-publisher-name"] == name("p")
            assert delivery.headers["other"] == "stays"
            assert "x-publishing-id" not in delivery.headers
            await channel.publish(Message(delivery.body, headers=delivery.headers), name("q"))


@every
async def test_ids_count_with_the_commit(url: str, version: str, name: Name) -> None:
    async with connect(in_version(url, version)) as connection:
        async with connection.channel(confirm=False) as channel:
            await channel.declare_queue(name("q"))

            async def fail() -> None:
                async with channel.transaction():
                    await channel.publish(numbered(1, name("p")), name("q"))
                    raise ZeroDivisionError

            with pytest.raises(ZeroDivisionError):
                await fail()
            assert await last(connection, name("p")) == -1
            async with channel.transaction():
                for number in (1, 1, 2):
                    await channel.publish(numbered(number, name("p")), name("q"))
                assert await last(connection, name("p")) == -1
            async with channel.transaction():
                for number in (2, 3):
                    await channel.publish(numbered(number, name("p")), name("q"))
        assert await bodies(connection, name("q")) == [b"1", b"2", b"3"]
        assert await last(connection, name("p")) == 3


@pytest.mark.parametrize("version", ["0-9-1", "0-10"])
async def test_what_was_refused_may_come_again(url: str, version: str, name: Name) -> None:
    """A refused message may be published again with its id; no queue gets it before all can."""
    async with connect(in_version(url, version)) as connection, connection.channel() as channel:
        limits: dict[str, Any] = {"x-max-length": 1, "x-overflow": "reject-publish"}
        await channel.declare_queue(name("narrow"), arguments=limits)
        await channel.declare_queue(name("wide"))
        await channel.declare_exchange(name("x"), "fanout")
        await channel.bind_queue(name("narrow"), name("x"))
        await channel.bind_queue(name("wide"), name("x"))
        await channel.publish(numbered(1, name("p")), "", name("x"))
        for number in (2, 3):
            with pytest.raises(Nacked):
                await channel.publish(numbered(number, name("p")), "", name("x"))
        with pytest.raises(Returned):
            await channel.publish(numbered(4, name("p")), name("none"), mandatory=True)
        await channel.publish(numbered(5, name("p")), name("wide"))
        assert await bodies(connection, name("narrow")) == [b"1"]
        await channel.publish(numbered(2, name("p")), "", name("x"))
        assert await bodies(connection, name("narrow")) == [b"2"]
        for number in (2, 3, 4, 1, 3, 4):
            await channel.publish(numbered(number, name("p")), name("wide"))
        assert await bodies(connection, name("wide")) == [b"1", b"5", b"2", b"3", b"4"]


@every
async def test_a_message_that_a_commit_refused_may_be_published_again(
    url: str, version: str, name: Name
) -> None:
    """If one queue refuses it, no queue gets it. The rest of the transaction is committed."""
    limits: dict[str, Any] = {"x-max-length": 1, "x-overflow": "reject-publish"}
    async with connect(in_version(url, version)) as connection:
        async with connection.channel() as channel:
            await channel.declare_exchange(name("x"), "fanout")
            await channel.declare_queue(name("narrow"), arguments=limits)
            await channel.declare_queue(name("wide"))
            await channel.bind_queue(name("narrow"), name("x"))
            await channel.bind_queue(name("wide"), name("x"))

        async def commit(*numbers: int) -> None:
            async with connection.channel(confirm=False) as channel, channel.transaction():
                for number in numbers:
                    await channel.publish(numbered(number, name("p")), "", name("x"))

        with pytest.raises((PreconditionFailed, ChannelClosed), match="partial tx completion"):
            await commit(1, 2)
        assert await bodies(connection, name("narrow")) == [b"1"]
        assert await bodies(connection, name("wide")) == [b"1"]
        await commit(2, 1)
        assert await bodies(connection, name("narrow")) == [b"2"]
        assert await bodies(connection, name("wide")) == [b"2"]


@every
async def test_a_commit_refuses_a_deduplicated_message_so_that_it_may_be_published_again(
    url: str, version: str, name: Name
) -> None:
    """An exchange that deduplicates publishes through an interception."""
    limits: dict[str, Any] = {"x-max-length": 1, "x-overflow": "reject-publish"}
    async with connect(in_version(url, version)) as connection:
        async with connection.channel() as channel:
            await channel.declare_exchange(
                name("x"), "fanout", arguments={"x-message-deduplication": True, "x-cache-size": 9}
            )
            await channel.declare_queue(name("narrow"), arguments=limits)
            await channel.bind_queue(name("narrow"), name("x"))

        async def commit(*numbers: int) -> None:
            async with connection.channel(confirm=False) as channel, channel.transaction():
                for number in numbers:
                    message = numbered(number, name("p"))
                    message.headers["x-deduplication-header"] = f"m{number}"
                    await channel.publish(message, "", name("x"))

        with pytest.raises((PreconditionFailed, ChannelClosed), match="partial tx completion"):
            await commit(1, 2)
        assert await bodies(connection, name("narrow")) == [b"1"]
        await commit(2, 1)
        assert await bodies(connection, name("narrow")) == [b"2"]


@pytest.mark.parametrize("version", ["0-8", "0-9", "0-9-1"])
async def test_a_message_that_a_commit_returned_may_be_published_again(
    url: str, version: str, name: Name
) -> None:
    async with connect(in_version(url, version)) as connection:
        async with connection.channel(confirm=False) as channel:
            with pytest.raises(Returned):
                async with channel.transaction():
                    await channel.publish(numbered(1, name("p")), name("q"), mandatory=True)
            await channel.declare_queue(name("q"))
            async with channel.transaction():
                await channel.publish(numbered(2, name("p")), name("q"))
            async with channel.transaction():
                await channel.publish(numbered(1, name("p")), name("q"), mandatory=True)
        assert await bodies(connection, name("q")) == [b"2", b"1"]


@every
async def test_an_accepted_message_that_has_no_route_when_repeated_stays_accepted(
    url: str, version: str, name: Name
) -> None:
    async with connect(in_version(url, version)) as connection, connection.channel() as channel:
        await channel.declare_queue(name("q"))
        await channel.publish(numbered(1, name("p")), name("q"))
        await channel.delete_queue(name("q"))
        with suppress(Returned):
            await channel.publish(numbered(1, name("p")), name("q"), mandatory=True)
        await channel.declare_queue(name("q"))
        await channel.publish(numbered(1, name("p")), name("q"))
        assert await bodies(connection, name("q")) == []


async def test_further_routing_keys_and_direct_questions(url: str, name: Name) -> None:
    async with connect(url) as connection, connection.channel() as channel:
        for queue in ("a", "b", "c"):
            await channel.declare_queue(name(queue))
        message = numbered(1, name("p"))
        message.headers = {**message.headers, "CC": [name("b")], "BCC": [name("c")]}
        for _ in range(2):
            await channel.publish(message, name("a"))
        found = [await bodies(connection, name(queue)) for queue in ("a", "b", "c")]
        assert found == [[b"1"]] * 3


@pytest.mark.parametrize(
    ("publisher", "number"),
    [(None, 1), ("", 1), ("p", "1"), ("p", -1), ("p", True), ("p" * 256, 1), (5, 1), ("p", None)],
)
@pytest.mark.parametrize("version", ["0-9-1", "0-10"])
async def test_ids_that_make_no_sense(
    url: str, version: str, name: Name, publisher: Any, number: Any
) -> None:
    async with connect(in_version(url, version)) as connection, connection.channel() as channel:
        await channel.declare_queue(name("q"))
        with pytest.raises((PreconditionFailed, ChannelClosed), match="x-publishing-id"):
            await channel.publish(numbered(number, publisher), name("q"))


async def test_what_only_looks_like_an_id(url: str, name: Name) -> None:
    async with connect(url) as connection, connection.channel() as channel:
        await channel.declare_queue(name("q"))
        for headers in (
            {"text": "\x0fx-publishing-id"},
            {"inner": {"x-publishing-id": 1, "x-publisher-name": "p"}},
            {"x-publisher-name": "p"},
        ):
            for _ in range(2):
                await channel.publish(Message(b"x", headers=headers), name("q"))  # type: ignore[arg-type]
        assert len(await bodies(connection, name("q"))) == 6


@every
async def test_a_publisher_numbers_by_itself(url: str, version: str, name: Name) -> None:
    async with connect(in_version(url, version)) as connection, connection.channel() as channel:
        await channel.declare_queue(name("q"))
        async with Publisher(connection, name("p")) as publisher:
            assert await publisher.last() == -1
            assert await publisher.publish("a", name("q")) == 0
            assert await publisher.publish_many(["b", "c"], name("q")) == 2
        async with Publisher(connection, name("p")) as publisher:
            assert await publisher.publish(Message(b"d"), name("q")) == 3
            assert await publisher.publish("d again", name("q"), publishing_id=3) == 3
            assert await publisher.publish("e", name("q"), publishing_id=10) == 10
            assert await publisher.publish("f", name("q")) == 11
        assert b"".join(await bodies(connection, name("q"))) == b"abcdef"


async def test_a_publisher_survives_lost_connections(
    headrace_durable_broker: LocalBroker, name: Name
) -> None:
    broker = headrace_durable_broker
    reconnect = Reconnect(delay_s=0.05, attempts=100)
    async with connect(broker.url, reconnect=reconnect) as connection:
        async with connection.channel() as channel:
            await channel.declare_queue(name("q"))
        async with Publisher(connection, name("p")) as publisher:
            publishing = asyncio.create_task(
                publisher.publish_many((f"{n}" for n in range(3000)), name("q"))
            )
            for _ in range(2):
                await asyncio.sleep(0)
                await asyncio.to_thread(broker.restart)
            assert await publishing == 2999
        assert await bodies(connection, name("q")) == [b"%d" % n for n in range(3000)]


async def test_publishers_are_listed_and_forgotten(url: str, name: Name) -> None:
    async with connect(url) as connection, connection.channel() as channel:
        await channel.declare_queue(name("q"))
        await channel.publish(numbered(9, name("p")), name("q"))
        async with Requests(connection) as requests:
            listed = await requests.ask("publisher.list", after="")
            [entry] = [each for each in listed["publishers"] if each["name"] == name("p")]
            assert entry["last"] == 9
            assert entry["used"]
            assert (await requests.ask("publisher.forget", name=name("p")))["forgotten"]
            assert not (await requests.ask("publisher.forget", name=name("p")))["forgotten"]
        await channel.publish(numbered(9, name("p")), name("q"))
        assert await bodies(connection, name("q")) == [b"9", b"9"]


def test_blocking(headrace_broker: LocalBroker, name: Name) -> None:
    with connect_blocking(headrace_broker.url) as connection, connection.channel() as channel:
        channel.declare_queue(name("q"))
        with BlockingPublisher(connection, name("p")) as publisher:
            assert publisher.publish("a", name("q")) == 0
            assert publisher.publish_many(["b", "c"], name("q")) == 2
            assert publisher.last() == 2
            assert publisher.name == name("p")


async def test_ranges_are_measured(headrace_durable_broker: LocalBroker, name: Name) -> None:
    async with connect(headrace_durable_broker.url) as connection:
        async with connection.channel() as channel:
            await channel.declare_queue(name("s"), arguments=STREAM)
            await channel.publish_many((bytes(1000) for _ in range(500)), name("s"))
        stream = connection.stream(name("s"))
        whole = await stream.measure(0)
        assert (whole.count, whole.next) == (500, 500)
        assert 500_000 < whole.octets < 700_000
        some = await stream.measure(100, 300, records_max=50)
        assert (some.count, some.next) == (50, 150)
        few = await stream.measure(100, octets_max=5 * some.octets // 50)
        assert (few.count, few.next) == (5, 105)
        assert few.octets <= some.octets // 10
        assert (await stream.measure(100, octets_max=1)).count == 1
        assert (await stream.measure(500)).count == 0
