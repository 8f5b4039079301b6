# SPDX-License-Identifier: Apache-2.0
"""Valid and invalid bodies, on every way by which a body is sent."""

from __future__ import annotations

from array import array
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from headrace.client import Message, blocking, connect
from headrace.client.blocking.bulk import BulkPublisher
from headrace.client.blocking_pipeline import Stage
from headrace.client.blocking_publisher import Publisher
from headrace.client.bulk.encode import Octets
from headrace.client.content_classes.files import Files
from headrace.client.content_classes.message_class_0_9 import Messages
from headrace.client.message import octets_of
from headrace.protocol.codec_0_10 import FileStage
from headrace.protocol.codec_0_x import BasicPublish

SAYS = (
    r"a body is bytes, bytearray, memoryview, or str \(sent as UTF-8\), not {}: "
    r"Message.from_json\(value\) makes JSON, which is json.dumps\(value\) with content_type="
    r'"application/json"'
)

# Numbers that `bytes` makes zeros of, lists that it makes octets of, and what has a buffer.
NO_BODIES: tuple[Any, ...] = (
    5, True, None, 1.5, [1, 2, 3], (1, 2), {"a": 1}, {1}, range(3), object(), array("i", [1]),
    SimpleNamespace(body=b"a"),
)  # fmt: skip

kinds = pytest.mark.parametrize("wrong", NO_BODIES, ids=lambda wrong: type(wrong).__name__)


@kinds
def test_what_is_no_body_is_refused_with_what_is_one(wrong: Any) -> None:
    for made in (octets_of, Message, Message.of):
        with pytest.raises(TypeError, match=SAYS.format(type(wrong).__name__)):
            made(wrong)


def test_a_numpy_array_is_no_body_and_its_octets_are() -> None:
    numpy = pytest.importorskip("numpy")
    numbers = numpy.array([1, 2], dtype="<u4")
    with pytest.raises(TypeError, match=SAYS.format("ndarray")):
        Message(numbers)
    with pytest.raises(TypeError, match=r"memoryview of bytes, not of format 'I': use .cast"):
        Message(memoryview(numbers))  # type: ignore[arg-type]  # It becomes bytes.
    assert Message(numbers.tobytes()).body == b"\1\0\0\0\2\0\0\0"
    assert octets_of(memoryview(numbers).cast("B")) == b"\1\0\0\0\2\0\0\0"
    assert type(octets_of(numpy.bytes_(b"a"))) is bytes


def test_a_body_becomes_octets_of_its_own() -> None:
    changing = bytearray(b"abcd")
    messages = [Message.of(each) for each in (changing, memoryview(changing), "abcd", b"abcd")]
    every_other = octets_of(memoryview(changing)[::2])
    square = octets_of(memoryview(changing).cast("B", (2, 2)))
    changing[:] = b"    "
    assert [message.body for message in messages] == [b"abcd"] * 4
    assert (every_other, square) == (b"ac", b"abcd")
    assert Message("grün").body == "grün".encode()  # type: ignore[arg-type]  # It becomes bytes.


def test_a_body_is_checked_again_when_it_is_sent() -> None:
    message = Message(b"")
    message.body = "later"  # type: ignore[assignment]  # The mistake.
    assert Message.of(message).body == b"later"
    message.body = 5  # type: ignore[assignment]  # The mistake.
    with pytest.raises(TypeError, match=SAYS.format("int")):
        Message.of(message)


@pytest.mark.parametrize("one", ["one", b"one", bytearray(b"one"), memoryview(b"one"), {"a": 1}])
async def test_one_message_is_not_many(url: str, name: Callable[[], str], one: Any) -> None:
    says = f"many messages are a list of them, or another iterable, not {type(one).__name__}"
    async with connect(url, reconnect=None) as connection, connection.channel() as channel:
        with pytest.raises(TypeError, match=says):
            await channel.publish_many(one, name())


def no_body(publish: Callable[..., object], wrong: Any) -> None:
    """A body of a wrong type raises TypeError, and no frame is sent."""
    with pytest.raises(TypeError, match=SAYS.format(type(wrong).__name__)):
        publish(wrong)


@pytest.mark.parametrize("wrong", [5, [1, 2], {"a": 1}], ids=["int", "list", "dict"])
@pytest.mark.parametrize("version", ["0-8", "0-9", "0-9-1", "0-10"])
def test_every_way_to_publish_without_asyncio(
    headrace_broker: Any, name: Callable[..., str], version: str, wrong: Any
) -> None:
    url, queue = f"{headrace_broker.url}?version={version}", name("q")
    with blocking.connect(url, reconnect=None) as connection, connection.channel() as channel:
        channel.declare_queue(queue)
        no_body(lambda body: channel.publish(body, queue), wrong)
        no_body(lambda body: channel.publish_soon(body, queue), wrong)
        no_body(lambda body: channel.publish_many([b"", body], queue), wrong)
        with Publisher(connection, name("publisher")) as once:
            no_body(lambda body: once.publish(body, queue), wrong)
            no_body(lambda body: once.publish_many([body], queue), wrong)
        if version == "0-10":
            with connection.session() as session:
                no_body(lambda body: session.transfer(body, queue), wrong)
                no_body(lambda body: session.call(FileStage(), body=body), wrong)
        else:
            method = BasicPublish(routing_key=queue)
            no_body(lambda body: channel.send(method, body=body), wrong)
        if version == "0-9-1":
            stage = Stage(connection, name("sink"), 0, 0, 0)
            no_body(lambda body: stage.publish_many([body], queue), wrong)
            with BulkPublisher(connection), pytest.raises(TypeError):
                Octets.of([wrong])
        channel.purge_queue(queue)  # The message before the wrong one of publish_many.
        channel.publish("right", queue)
        delivery = channel.get(queue, no_ack=True)
        assert delivery is not None
        assert (delivery.body, delivery.message_count) == (b"right", 0)
        channel.delete_queue(queue)


@pytest.mark.parametrize("wrong", [5, [1, 2]], ids=["int", "list"])
async def test_every_way_to_publish_with_asyncio(
    headrace_broker: Any, name: Callable[[], str], wrong: Any
) -> None:
    says = SAYS.format(type(wrong).__name__)
    async with (
        connect(f"{headrace_broker.url}?version=0-9", reconnect=None) as connection,
        connection.channel() as channel,
    ):
        messages = Messages(channel)
        for sending in (
            channel.publish(wrong, name()),
            channel.publish_soon(wrong, name()),
            channel.publish_many([wrong], name()),
            Files(channel).publish(wrong, name()),
            messages.transfer(wrong, name()),
        ):
            with pytest.raises(TypeError, match=says):
                await sending
        async with await messages.open() as reference:
            with pytest.raises(TypeError, match=says):
                await reference.append(wrong)
