# SPDX-License-Identifier: Apache-2.0
"""The classes file and stream of 0-10, and across versions."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, TypeVar

import pytest

from headrace.protocol.codec_0_10 import (
    Command,
    ExchangeBind,
    ExchangeDeclare,
    FileAck,
    FileCancel,
    FileConsume,
    FileOpen,
    FileOpenOk,
    FilePublish,
    FileQos,
    FileQosOk,
    FileReject,
    FileReturn,
    FileStage,
    StreamCancel,
    StreamConsume,
    StreamConsumeOk,
    StreamDeliver,
    StreamProperties,
    StreamPublish,
    StreamQos,
    StreamQosOk,
    StreamReturn,
    TxCommit,
    TxRollback,
    TxSelect,
    encode_headers,
)
from headrace.spec.reply_0_10 import ExecutionCode
from headrace.spec.tables import V0_9
from support.brokers.broker_process import until
from support.clients.file_class_client import FileClient
from support.clients.file_class_client_0_10 import Client, connected

if TYPE_CHECKING:
    from support.brokers.broker_process import Served

C = TypeVar("C", bound=Command)


@pytest.fixture
def one(served: Served) -> Iterator[Client]:
    with connected(served) as client:
        yield client


@pytest.fixture
def other(served: Served) -> Iterator[Client]:
    with connected(served, "other") as client:
        yield client


# --- Files --------------------------------------------------------------------------------------


@pytest.mark.rule("0-10/s215", "0-10/s220", "0-10/s225")
def test_a_file_goes_from_session_to_session(one: Client, other: Client, name: str) -> None:
    one.declare(name)
    body = bytes(range(256)) * 2000
    headers = {"a": 1, "b": "text", "c": [1, 2]}
    one.publish_file(name, body, filename="a.bin", priority=3, headers=headers)
    other.consume_files(name)
    delivered, properties, got = other.receive()
    assert got == body
    assert (properties.filename, properties.priority) == ("a.bin", 3)
    assert properties.headers["b"] == "text"
    assert (delivered.consumer_tag, delivered.delivery_tag) == ("tag", 1)
    assert (delivered.routing_key, delivered.redelivered) == (name, False)
    other.call(FileAck(delivery_tag=1))
    assert one.count(name) == 0


@pytest.mark.rule("0-10/s216", "0-10/s217", "0-10/s218", "0-10/s219")
@pytest.mark.parametrize("cut", [0, 1, 70_001])
def test_staging_goes_on_after_a_lost_connection(served: Served, name: str, cut: int) -> None:
    body = bytes(range(250)) * 400
    with connected(served) as first:
        first.declare(name)
        first.open(name, len(body))
        first.session.machine.connection.write_segment(1, False, 0, b"\x09\x08\x01\x00")
        first.session.machine.connection.write_part(3, True, 0, body, 0, cut)
        first.session.client.push()
        first.session.client.drop()
    with connected(served, "second") as second:
        assert second.open(name, len(body)) == cut
        second.call_with(FileStage(), b"", body[cut:])
        second.call(FilePublish(routing_key=name, identifier=name))
        second.consume_files(name)
        assert second.receive()[2] == body


@pytest.mark.rule("0-10/s217")
def test_a_client_that_has_a_part_is_sent_the_rest(one: Client, name: str) -> None:
    one.declare(name)
    one.publish_file(name, b"")
    one.publish_file(name, b"0123456789")
    one.consume_files(name)
    assert one.receive()[2] == b""
    assert one.receive(have=4)[2] == b"456789"


@pytest.mark.rule("0-10/s207", "0-10/s226")
def test_both_ways_of_acknowledging(one: Client, served: Served, name: str) -> None:
    one.declare(name)
    for n in range(3):
        one.publish_file(name, bytes((n,)))
    with connected(served, "automatic") as automatic:
        automatic.consume_files(name, no_ack=True)
        assert automatic.receive()[2] == b"\x00"
        automatic.expect(FileOpen)
    until(lambda: one.count(name) == 2, "what was not sent as a whole is back")
    with connected(served, "explicit") as explicit:
        explicit.consume_files(name)
        delivered, _, body = explicit.receive()
        assert (delivered.redelivered, body) == (True, b"\x01")
        assert (
            one.expect_exception(FileAck(delivery_tag=1)) == ExecutionCode.PRECONDITION_FAILED.value
        )
        assert explicit.receive()[2] == b"\x02"
        explicit.call(FileAck(multiple=True))
    with connected(served, "last") as last:
        assert last.count(name) == 0


MISUSES: dict[str, tuple[ExecutionCode, Command]] = {
    "ack of nothing": (ExecutionCode.PRECONDITION_FAILED, FileAck(delivery_tag=1)),
    "reject of nothing": (ExecutionCode.PRECONDITION_FAILED, FileReject(delivery_tag=1)),
    "consume of nothing": (ExecutionCode.NOT_FOUND, FileConsume(consumer_tag="t")),
    "stage of nothing": (ExecutionCode.COMMAND_INVALID, FileStage()),
    "open-ok for nothing": (ExecutionCode.COMMAND_INVALID, FileOpenOk()),
    "publish of nothing": (ExecutionCode.NOT_FOUND, FilePublish(identifier="none")),
    "too large": (
        ExecutionCode.RESOURCE_LIMIT_EXCEEDED,
        FileOpen(identifier="x", content_size=1 << 40),
    ),
    "consume packets of nothing": (ExecutionCode.NOT_FOUND, StreamConsume(consumer_tag="t")),
}


@pytest.mark.rule("0-10/s227", "0-10/s231", "0-10/s210", "0-10/s242")
@pytest.mark.parametrize("misuse", MISUSES)
def test_misuse_is_refused(one: Client, misuse: str) -> None:
    code, command = MISUSES[misuse]
    assert one.expect_exception(command) == code.value


@pytest.mark.rule("0-10/s216")
@pytest.mark.parametrize("size", [3, 5])
def test_the_size_of_a_body_must_be_what_was_said(one: Client, name: str, size: int) -> None:
    one.open(name, size)
    assert (
        one.expect_exception(FileStage(), b"", b"four") == ExecutionCode.PRECONDITION_FAILED.value
    )


@pytest.mark.rule("0-10/s211", "0-10/s212", "0-10/s243", "0-10/s244")
@pytest.mark.parametrize("kind", [FileConsume, StreamConsume])
def test_tags_of_consumers_are_unique(one: Client, name: str, kind: type[Any]) -> None:
    one.declare(name)
    one.consume_files(name, "t")
    code = one.expect_exception(kind(queue=name, consumer_tag="t"))
    assert code == ExecutionCode.NOT_ALLOWED.value


@pytest.mark.rule("0-10/s213", "0-10/s245")
@pytest.mark.parametrize("tag", ["", "  "])
@pytest.mark.parametrize("kind", [FileConsume, StreamConsume])
def test_a_tag_is_not_empty(one: Client, name: str, kind: type[Any], tag: str) -> None:
    one.declare(name)
    code = one.expect_exception(kind(queue=name, consumer_tag=tag))
    assert code == ExecutionCode.ILLEGAL_ARGUMENT.value


@pytest.mark.rule("0-10/s214", "0-10/s246")
@pytest.mark.parametrize("kind", [FileConsume, StreamConsume])
def test_exclusive_access_is_granted_to_one(
    one: Client, other: Client, name: str, kind: type[Any]
) -> None:
    one.declare(name)
    one.send(kind(queue=name, consumer_tag="a", nowait=True))
    assert one.count(name) == 0
    code = other.expect_exception(kind(queue=name, consumer_tag="b", exclusive=True))
    assert code == ExecutionCode.RESOURCE_LOCKED.value


@pytest.mark.rule("0-10/s209")
def test_many_consumers_share_a_queue(one: Client, name: str) -> None:
    one.declare(name)
    for n in range(20):
        one.consume_files(name, f"t{n}")
    one.send(FileOpen(identifier=name, content_size=1))
    assert (one.expect(FileOpenOk)[0].staged_size or 0) == 0
    one.call_with(FileStage(), b"", b"x")
    one.call(FilePublish(routing_key=name, identifier=name))
    assert one.receive()[2] == b"x"


@pytest.mark.rule("0-10/s208")
@pytest.mark.parametrize(
    "limits",
    [
        {"prefetch_count": 2},
        {"prefetch_size": 10},
        {"prefetch_count": 2, "global_": True},
    ],
)
def test_no_more_is_sent_than_the_window_takes(
    one: Client, other: Client, name: str, limits: dict[str, int]
) -> None:
    one.declare(name)
    for n in range(4):
        one.publish_file(name, bytes((n,)) * 5, f"{name}-{n}")
    other.send(FileQos(**limits))  # type: ignore[arg-type]
    other.expect(FileQosOk)
    other.consume_files(name)
    assert [other.receive()[2][0] for _ in range(2)] == [0, 1]
    assert other.count(name) == 2
    assert not other.session.commands
    other.send(FileAck(delivery_tag=1))
    assert other.receive()[2][0] == 2


@pytest.mark.rule("0-10/s228", "0-10/s229", "0-10/s230", "0-10/s232", "0-10/s233")
def test_a_rejected_file_goes_to_another_consumer(one: Client, other: Client, name: str) -> None:
    one.declare(name)
    one.publish_file(name, b"a")
    one.consume_files(name)
    one.receive()
    one.call(FileReject(delivery_tag=1, requeue=True))
    assert one.count(name) == 1  # It waits: this session does not get it again.
    assert not one.session.commands
    other.consume_files(name)
    assert other.receive()[0].redelivered
    other.call(FileReject(delivery_tag=1))
    assert other.count(name) == 0


@pytest.mark.rule("0-10/s224")
def test_a_file_that_no_consumer_accepts_is_a_dead_letter(served: Served, name: str) -> None:
    arguments = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": name + "-dead"}
    with connected(served) as first:
        first.declare(name + "-dead")
        first.declare(name, arguments=arguments)
        first.publish_file(name, b"poison")
        for n in range(6):
            with connected(served, f"s{n}") as client:
                client.consume_files(name)
                assert client.receive()[0].redelivered == (n > 0)
            until(lambda: first.count(name) + first.count(name + "-dead") == 1, "it is back")
        assert (first.count(name), first.count(name + "-dead")) == (0, 1)


@pytest.mark.rule("0-10/s222", "0-10/s223")
def test_what_cannot_be_delivered_comes_back(one: Client, name: str) -> None:
    one.declare(name)
    body = bytes(range(256)) * 1000
    for n, (flags, key, code) in enumerate(
        (({"mandatory": True}, "nowhere", 312), ({"immediate": True}, name, 313))
    ):
        one.stage(f"i{n}", body, content_type="x/y")
        one.send(FilePublish(routing_key=key, identifier=f"i{n}", **flags))  # type: ignore[arg-type]
        returned, properties, got = one.expect(FileReturn)
        assert (returned.reply_code, returned.routing_key, got) == (code, key, body)
        assert properties.content_type == "x/y"
    one.publish_file("nowhere", b"dropped")
    one.consume_files(name)
    one.stage("now", b"now")
    one.send(FilePublish(routing_key=name, identifier="now", immediate=True))
    assert one.receive()[2] == b"now"


def test_publishes_to_a_full_queue_complete_when_there_is_room(
    one: Client, other: Client, name: str
) -> None:
    one.declare(name, arguments={"x-max-length": 1})
    one.stage("a", b"a")
    number = one.send(FilePublish(routing_key=name, identifier="a"))
    until(lambda: other.count(name) == 1, "it is kept all the same")
    sent = one.session.machine.sent.completed
    assert not sent.has(sent.unwrap(number))
    other.consume_files(name)
    assert other.receive()[2] == b"a"
    one.session.wait(number)


def test_files_and_their_outcomes_are_transactional(one: Client, other: Client, name: str) -> None:
    one.declare(name)
    one.call(TxSelect())
    one.publish_file(name, b"never")
    one.call(TxRollback())
    one.publish_file(name, b"a")
    assert other.count(name) == 0
    one.call(TxCommit())
    assert other.count(name) == 1
    one.consume_files(name)
    assert one.receive()[2] == b"a"
    one.call(FileAck(delivery_tag=1))
    one.call(TxRollback())
    one.call(FileAck(delivery_tag=1))
    one.call(TxCommit())
    assert one.expect_exception(FileAck(delivery_tag=1)) == ExecutionCode.PRECONDITION_FAILED.value


@pytest.mark.rule("0-10/s221", "0-10/s248")
def test_a_queue_of_type_stream_refuses_files_and_packets(
    one: Client, other: Client, name: str
) -> None:
    one.declare(name, durable=True, arguments={"x-queue-type": "stream"})
    one.stage("i", b"x")
    code = one.expect_exception(FilePublish(routing_key=name, identifier="i"))
    assert code == ExecutionCode.NOT_IMPLEMENTED.value
    code = other.expect_exception(StreamPublish(routing_key=name), b"", b"x")
    assert code == ExecutionCode.NOT_IMPLEMENTED.value


def test_there_must_be_an_exchange(one: Client) -> None:
    one.stage("i", b"x")
    code = one.expect_exception(FilePublish(exchange="nowhere", identifier="i"))
    assert code == ExecutionCode.NOT_FOUND.value


def test_files_cross_the_versions(one: Client, served: Served, name: str) -> None:
    old = FileClient(served.host, served.port, V0_9).open()
    one.declare(name)
    one.publish_file(name, b"new", filename="n", headers={"k": 7, "t": "x"})
    old.consume_files(name)
    _, staged = old.receive_file()
    assert (staged.body, staged.properties.filename) == (b"new", "n")
    assert staged.properties.headers == {"k": 7, "t": "x"}
    one.consume_files(name)
    old.declare(name + "2")
    old.publish_file(name + "2", b"old", filename="o", headers={"k": 8})
    one.call(FileCancel(consumer_tag="tag"))
    one.consume_files(name + "2", "two")
    _, properties, body = one.receive()
    assert (body, properties.filename, properties.headers) == (b"old", "o", {"k": 8})
    old.drop()


# --- Packets ------------------------------------------------------------------------------------


def publish_packet(client: Client, queue: str, body: bytes, **properties: Any) -> None:
    header = encode_headers([StreamProperties(**properties)])
    client.call_with(StreamPublish(routing_key=queue), header, body)


def consume_packets(client: Client, queue: str, tag: str = "tag", **how: Any) -> None:
    client.send(StreamConsume(queue=queue, consumer_tag=tag, **how))
    client.expect(StreamConsumeOk)


@pytest.mark.rule("0-10/s237", "0-10/s247", "0-10/s251")
def test_a_packet_is_gone_once_it_was_delivered(one: Client, other: Client, name: str) -> None:
    one.declare(name)
    body = bytes(range(256)) * 1000
    publish_packet(one, name, body, content_type="video/x", headers={"a": 1})
    consume_packets(one, name)
    delivered, properties, got = one.expect(StreamDeliver)
    assert (delivered.consumer_tag, delivered.delivery_tag, delivered.queue) == ("tag", 1, name)
    assert (got, properties.content_type, properties.headers) == (body, "video/x", {"a": 1})
    assert other.count(name) == 0
    assert one.expect_exception(FileAck(delivery_tag=1)) == ExecutionCode.PRECONDITION_FAILED.value
    assert other.count(name) == 0


@pytest.mark.rule("0-10/s234", "0-10/s235", "0-10/s236", "0-10/s239")
def test_packets_of_low_priority_give_way(one: Client, name: str) -> None:
    one.declare(name, arguments={"x-max-length": 3})
    for n, priority in enumerate((4, 5, 0, 9, 4, 5)):
        publish_packet(one, name, bytes((n,)), priority=priority)
    assert one.count(name) == 3
    consume_packets(one, name)
    assert [one.expect(StreamDeliver)[2][0] for _ in range(3)] == [3, 1, 5]


@pytest.mark.rule("0-10/s238")
def test_the_rate_that_was_asked_for_is_kept(one: Client, name: str) -> None:
    one.declare(name)
    one.send(StreamQos(consume_rate=10_000))
    one.expect(StreamQosOk)
    consume_packets(one, name)
    began = time.monotonic()
    for n in range(4):
        one.send(StreamPublish(routing_key=name), b"", bytes((n,)) * 1000)
    assert [one.expect(StreamDeliver)[2][0] for _ in range(4)] == list(range(4))
    assert time.monotonic() - began > 0.25


@pytest.mark.rule("0-10/s249", "0-10/s250")
def test_packets_that_cannot_be_delivered_come_back(one: Client, name: str) -> None:
    one.declare(name)
    for flags, key, code in (
        ({"mandatory": True}, "nowhere", 312),
        ({"immediate": True}, name, 313),
    ):
        one.send(StreamPublish(routing_key=key, **flags), b"", b"packet")  # type: ignore[arg-type]
        returned, _, body = one.expect(StreamReturn)
        assert (returned.reply_code, returned.routing_key, body) == (code, key, b"packet")


@pytest.mark.rule("0-10/s151", "0-10/s152")
def test_packets_go_to_no_alternate_of_an_alternate(one: Client, name: str) -> None:
    one.declare(name)
    one.call(ExchangeDeclare(exchange=name + "3", type="fanout"))
    one.call(ExchangeBind(queue=name, exchange=name + "3", binding_key=""))
    for number, alternate in ((2, "3"), (1, "2")):
        one.call(
            ExchangeDeclare(
                exchange=f"{name}{number}", type="direct", alternate_exchange=name + alternate
            )
        )
    consume_packets(one, name)
    for number in (1, 2):  # Two steps lead nowhere, one leads to the queue.
        packet = StreamPublish(exchange=f"{name}{number}", routing_key="k")
        one.send(packet, b"", bytes((number,)))
    assert one.expect(StreamDeliver)[2] == b"\x02"


@pytest.mark.rule("0-10/s240", "0-10/s241")
def test_many_consumers_of_packets(one: Client, name: str) -> None:
    one.declare(name)
    for n in range(20):
        consume_packets(one, name, f"t{n}")
    for n in range(20):
        one.send(StreamPublish(routing_key=name), b"", bytes((n,)))
    tags = {one.expect(StreamDeliver)[0].consumer_tag for _ in range(20)}
    assert tags == {f"t{n}" for n in range(20)}
    one.call(StreamCancel(consumer_tag="t0"))
    one.call(StreamCancel(consumer_tag="none"))


# --- Consumers that choose, and such as only look ------------------------------------------------

SELECTOR = {"x-filter-jms-selector": "n > 1 AND amqp.priority = 3"}
LOOK = {"x-filter-no-consume": True}


def headers_of(n: int) -> dict[str, Any]:
    return {"headers": {"n": n}, "priority": 3 if n % 2 else 0}


def test_a_consumer_of_files_chooses(one: Client, other: Client, name: str) -> None:
    one.declare(name)
    for n in range(6):
        one.publish_file(name, bytes((n,)), **headers_of(n))
    other.consume_files(name, arguments=SELECTOR)
    for n in (3, 5):
        delivered, _, body = other.receive()
        assert body == bytes((n,))
        other.call(FileAck(delivery_tag=delivered.delivery_tag))
    one.consume_files(name)
    assert [one.receive()[2][0] for _ in range(4)] == [0, 1, 2, 4]


def test_a_consumer_of_files_looks(served: Served, one: Client, other: Client, name: str) -> None:
    one.declare(name)
    for n in range(3):
        one.publish_file(name, bytes((n,)))
    other.send(FileQos(prefetch_count=1))
    other.expect(FileQosOk)
    other.consume_files(name, arguments={**LOOK, "x-filter-auto-close": True})
    for n in range(3):
        delivered, _, body = other.receive()
        assert (body[0], delivered.redelivered) == (n, False)
        assert one.count(name) == 3
        if n:
            other.call(FileAck(delivery_tag=delivered.delivery_tag))
        else:
            other.call(FileReject(delivery_tag=delivered.delivery_tag, requeue=True))
    with connected(served, "leaves") as leaves:
        leaves.consume_files(name, arguments=LOOK)
        leaves.receive()  # And goes without an answer, another half sent.
    one.consume_files(name)
    for n in range(3):
        delivered, _, body = one.receive()
        assert (body[0], delivered.redelivered) == (n, False)


def test_a_consumer_of_packets_chooses_and_looks(one: Client, other: Client, name: str) -> None:
    one.declare(name)
    for n in range(6):
        header = encode_headers([StreamProperties(**headers_of(n))])
        one.call_with(StreamPublish(routing_key=name), header, bytes((n,)))

    def got(tag: str, count: int, **arguments: Any) -> list[int]:
        other.send(StreamConsume(queue=name, consumer_tag=tag, arguments=arguments))
        other.expect(StreamConsumeOk)
        found = [other.expect(StreamDeliver)[2][0] for _ in range(count)]
        other.call(StreamCancel(consumer_tag=tag))
        return found

    assert got("look", 6, **LOOK) == [1, 3, 5, 0, 2, 4]
    assert got("see", 2, **LOOK, **SELECTOR) == [3, 5]
    assert one.count(name) == 6
    assert got("take", 2, **SELECTOR) == [3, 5]
    assert one.count(name) == 4


@pytest.mark.parametrize("kind", [FileConsume, StreamConsume])
@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ({"x-apache-selector": "n >"}, ExecutionCode.INVALID_ARGUMENT),
        ({"x-priority": "high"}, ExecutionCode.INVALID_ARGUMENT),
        ({"x-browse": True}, ExecutionCode.NOT_IMPLEMENTED),
        ({"x-qpid-replay-period": 1}, ExecutionCode.NOT_IMPLEMENTED),
    ],
)
def test_what_cannot_be_chosen_is_refused(
    one: Client, name: str, kind: type[Any], arguments: dict[str, Any], code: ExecutionCode
) -> None:
    one.declare(name)
    assert (
        one.expect_exception(kind(queue=name, consumer_tag="t", arguments=arguments)) == code.value
    )
