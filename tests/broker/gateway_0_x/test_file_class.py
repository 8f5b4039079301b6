# SPDX-License-Identifier: Apache-2.0
"""The file class of 0-8 and 0-9: staging both ways, publishing, delivering, settling."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest

from headrace.protocol.codec_0_x import (
    BasicCancel,
    BasicCancelOk,
    BasicGet,
    ChannelClose,
    ChannelCloseOk,
    ChannelFlow,
    ChannelFlowOk,
    ConnectionClose,
    ExchangeDeclare,
    ExchangeDeclareOk,
    FileAck,
    FileCancel,
    FileCancelOk,
    FileConsume,
    FileDeliver,
    FileOpen,
    FileOpenOk,
    FilePublish,
    FileQos,
    FileQosOk,
    FileReject,
    FileReturn,
    QueueDeclare,
    QueueDeclareOk,
    QueuePurge,
    QueuePurgeOk,
    TxCommit,
    TxCommitOk,
    TxRollback,
    TxRollbackOk,
    TxSelect,
    TxSelectOk,
)
from headrace.spec.tables import V0_9
from headrace.testing.raw_client import Content, method_frame
from headrace.wire.frame import FRAME_BODY, FRAME_HEADER, encode_frame
from support.brokers.broker_process import until
from support.clients.file_class_client import FileClient

if TYPE_CHECKING:
    from support.brokers.broker_process import Served


Client = Callable[..., FileClient]


@pytest.mark.rule("0-9/file.publish.exchange#01")
def test_a_file_goes_from_client_to_client(client: Client, name: str) -> None:
    sender, taker = client(), client()
    sender.declare(name)
    body = bytes(range(256)) * 1000
    sender.publish_file(name, body, filename="a.bin", content_type="x/y", priority=3)
    taker.consume_files(name)
    delivered, staged = taker.receive_file()
    assert staged.body == body
    assert (staged.properties.filename, staged.properties.content_type) == ("a.bin", "x/y")
    assert (delivered.consumer_tag, delivered.delivery_tag, delivered.redelivered) == (
        "tag",
        1,
        False,
    )
    assert (delivered.exchange, delivered.routing_key) == ("", name)
    taker.send(FileAck(delivery_tag=1))
    assert taker.count(name) == 0


# --- Staging ------------------------------------------------------------------------------------


@pytest.mark.rule("0-9/file.open.content-size#01")
def test_a_file_may_be_empty(client: Client, name: str) -> None:
    one = client().with_queue(name)
    one.publish_file(name, b"")
    one.consume_files(name)
    assert one.receive_file()[1].body == b""


@pytest.mark.rule("0-9/file.open-ok.staged-size#01", "0-9/file.open-ok.staged-size#02")
@pytest.mark.parametrize("cut", [0, 1, 4000, 70_001])
def test_staging_goes_on_after_a_lost_connection(client: Client, name: str, cut: int) -> None:
    body = bytes(range(250)) * 400
    first = client().with_queue(name)
    first.open_file(name, len(body))
    first.send_stage(body[:cut], size=len(body))
    first.vanish()
    second = client()
    assert second.open_file(name, len(body)) == cut
    second.send_stage(body[cut:])
    second.send(FilePublish(routing_key=name, identifier=name))
    second.consume_files(name)
    assert second.receive_file()[1].body == body


@pytest.mark.rule("0-9/file.open-ok.staged-size#01")
def test_a_client_that_has_a_part_is_sent_the_rest(client: Client, name: str) -> None:
    body = bytes(range(251)) * 300
    one = client().with_queue(name)
    one.publish_file(name, body)
    one.consume_files(name)
    first = one.expect(FileOpen)
    one.drop()
    other = client()
    other.consume_files(name)
    delivered, staged = other.receive_file(have=1234)
    assert staged.body == body[1234:]
    assert delivered.identifier == first.identifier
    assert delivered.redelivered
    other.send(FileAck(delivery_tag=1))
    other.publish_file(name, body)
    delivered, staged = other.receive_file(have=len(body))
    assert (staged.body, delivered.redelivered) == (b"", False)


def test_what_was_staged_is_the_users_own_and_of_one_size(client: Client, name: str) -> None:
    first, second = client(), client()
    first.open_file(name, 100)
    first.send_stage(b"x" * 50, size=100)
    first.drop()
    assert second.open_file(name, 99) == 0
    second.send_stage(b"y" * 99)
    assert second.open_file(name, 99) == 99
    second.send_stage(b"")


def test_an_identifier_is_taken_over_from_a_connection_that_seems_lost(
    client: Client, name: str
) -> None:
    first, second = client(), client()
    first.declare(name)
    first.open_file(name, 100)
    first.send_stage(b"x" * 60, size=100)
    first.channel(2)
    first.call(QueueDeclare(queue=name, passive=True), QueueDeclareOk, 2)
    assert second.open_file(name, 100) == 60
    second.send_stage(b"y" * 40)
    second.send(FilePublish(routing_key=name, identifier=name))
    second.consume_files(name)
    assert second.receive_file()[1].body == b"x" * 60 + b"y" * 40
    first.send_bytes(encode_frame(FRAME_BODY, 1, b"z" * 40))
    assert first.expect_channel_close().code == 405


def test_a_staged_file_is_published_once(client: Client, name: str) -> None:
    one = client().with_queue(name)
    one.publish_file(name, b"a", "same")
    one.publish_file(name, b"b", "same")
    assert one.count(name) == 2
    one.send(FilePublish(routing_key=name, identifier="same"))
    assert one.expect_channel_close() == (404, "NOT_FOUND - no file 'same' is staged", (70, 60))


def test_a_publish_waits_for_the_end_of_its_staging(client: Client, name: str) -> None:
    one = client().with_queue(name)
    one.channel(2)
    one.open_file("id", 10)
    one.send_stage(b"hello", size=10)
    one.send(FilePublish(routing_key=name, identifier="id"), 2)
    one.send(QueueDeclare(queue=name, passive=True), 2)
    one.send_bytes(encode_frame(FRAME_BODY, 1, b"world"))
    number, counted = one.next()
    assert (number, counted) == (
        2,
        QueueDeclareOk(queue=name, message_count=1, consumer_count=0),
    )


MISUSES: dict[str, tuple[int, Callable[[FileClient, str], object]]] = {
    "stage without open": (503, lambda one, _: one.send_stage(b"x")),
    "longer than said": (406, lambda one, _: (one.open_file("i", 3), one.send_stage(b"four"))),
    "shorter than said": (406, lambda one, _: (one.open_file("i", 5), one.send_stage(b"four"))),
    "too large": (311, lambda one, _: one.send(FileOpen(identifier="i", content_size=1 << 40))),
    "publish what is not staged": (404, lambda one, q: one.send(FilePublish(routing_key=q))),
    "publish what is staged in part": (
        406,
        lambda one, q: (
            one.open_file("i", 5),
            one.send(FilePublish(routing_key=q, identifier="i")),
        ),
    ),
    "open-ok without open": (503, lambda one, _: one.send(FileOpenOk())),
    "ack of nothing": (406, lambda one, _: one.send(FileAck(delivery_tag=1))),
    "reject of nothing": (406, lambda one, _: one.send(FileReject(delivery_tag=1))),
    "no such exchange": (
        404,
        lambda one, _: (
            one.stage("i", b"x"),
            one.send(FilePublish(exchange="nowhere", identifier="i")),
        ),
    ),
}


@pytest.mark.rule("0-9/file.open.content-size#01", "0-9/file.ack.multiple#01")
@pytest.mark.parametrize("misuse", MISUSES)
def test_misuse_is_refused(client: Client, name: str, misuse: str) -> None:
    code, act = MISUSES[misuse]
    one = client().with_queue(name)
    act(one, name)
    method: Any = None
    while not isinstance(method, ChannelClose | ConnectionClose):
        _, method = one.next()
    assert method.reply_code == code
    assert isinstance(method, ConnectionClose) == (code > 500)


def test_an_identifier_is_staged_on_one_channel_at_a_time(client: Client, name: str) -> None:
    one = client()
    one.channel(2)
    one.open_file(name, 5)
    one.send(FileOpen(identifier=name, content_size=5), 2)
    assert one.expect_channel_close(2).code == 405
    one.send_stage(b"still")
    one.send(FileConsume(queue="nowhere"))
    assert one.expect_channel_close().code == 404


@pytest.mark.rule("0-9/file.consume.queue#01")
def test_there_must_be_a_queue(client: Client) -> None:
    one = client()
    one.send(FileConsume())
    assert one.expect_connection_close().code == 530


@pytest.mark.rule("0-9/file.publish.exchange#02")
def test_an_internal_exchange_takes_no_files(client: Client, name: str) -> None:
    one = client()
    declare = ExchangeDeclare(exchange=name, type="direct", internal=True, auto_delete=True)
    one.call(declare, ExchangeDeclareOk)
    one.stage("i", b"x")
    one.send(FilePublish(exchange=name, identifier="i"))
    assert one.expect_channel_close().code == 403


# --- Consumers ----------------------------------------------------------------------------------


@pytest.mark.rule("0-9/file.consume.consumer-tag#01")
def test_tags_of_consumers_are_unique(client: Client, name: str) -> None:
    one = client().with_queue(name)
    one.channel(2)
    one.consume_files(name, "t")
    one.send(FileConsume(queue=name, consumer_tag="t"), 2)
    assert one.expect_connection_close().code == 530


@pytest.mark.rule("0-9/file.consume.exclusive#01")
def test_exclusive_access_is_granted_to_one(client: Client, name: str) -> None:
    one, other = client(), client()
    one.declare(name)
    one.consume_files(name)
    other.send(FileConsume(queue=name, exclusive=True))
    assert other.expect_channel_close().code == 405
    one.call(FileCancel(consumer_tag="tag"), FileCancelOk)
    one.consume_files(name, exclusive=True)
    third = client()
    third.send(FileConsume(queue=name))
    assert third.expect_channel_close().code == 405


@pytest.mark.rule("0-9/file.consume#01")
def test_many_consumers_share_a_queue(client: Client, name: str) -> None:
    sender, takers = client(), [client() for _ in range(4)]
    sender.declare(name)
    for taker in takers:
        taker.call(FileQos(prefetch_count=1), FileQosOk)
        for n in range(5):
            taker.consume_files(name, f"t{n}")
    for n in range(4):
        sender.publish_file(name, bytes((n,)))
    assert sorted(taker.receive_file()[1].body for taker in takers) == [
        bytes((n,)) for n in range(4)
    ]


def test_classes_of_content_are_independent(client: Client, name: str) -> None:
    one = client().with_queue(name)
    one.publish(name, b"message")
    one.publish_file(name, b"file")
    one.publish(name, b"second")
    assert one.count(name) == 3
    one.consume_files(name)
    assert one.receive_file()[1].body == b"file"
    assert one.get(name) == b"message"
    assert one.get(name) == b"second"
    assert one.get(name) is None
    one.call(FileCancel(consumer_tag="tag"), FileCancelOk)
    one.publish_file(name, b"another")
    assert one.call(QueuePurge(queue=name), QueuePurgeOk).message_count == 1


def test_a_queue_goes_with_its_last_consumer_of_any_class(client: Client, name: str) -> None:
    one = client().with_queue(name, auto_delete=True)
    one.consume_files(name)
    one.consume(name, "basic")
    one.call(FileCancel(consumer_tag="basic"), FileCancelOk)  # Not a consumer of files.
    one.call(BasicCancel(consumer_tag="basic"), BasicCancelOk)
    assert one.declare(name, passive=True).consumer_count == 1
    one.call(FileCancel(consumer_tag="tag"), FileCancelOk)
    one.send(QueueDeclare(queue=name, passive=True))
    assert one.expect_channel_close().code == 404


# --- Windows and settlement ---------------------------------------------------------------------


@pytest.mark.rule("0-9/file.qos.prefetch-count#01")
@pytest.mark.parametrize("everywhere", [False, True])
@pytest.mark.parametrize("limits", [{"prefetch_count": 2}, {"prefetch_size": 10}])
def test_no_more_is_sent_than_the_window_takes(
    client: Client, name: str, limits: dict[str, int], everywhere: bool
) -> None:
    sender, one = client(), client()
    one.declare(name)
    one.call(FileQos(global_=everywhere, **limits), FileQosOk)
    one.consume_files(name)
    for n in range(4):
        sender.publish_file(name, bytes((n,)) * 5, f"{name}-{n}")
    assert [one.receive_file()[1].body[0] for _ in range(2)] == [0, 1]
    until(
        lambda: one.count(name) == 2, "all are there"
    )  # And no further file.open came before the answer.
    one.send(FileAck(delivery_tag=1))
    assert one.receive_file()[1].body[0] == 2
    one.send(FileAck(delivery_tag=3, multiple=True))
    assert one.receive_file()[1].body[0] == 3


@pytest.mark.rule("0-9/file#04")
def test_both_ways_of_acknowledging(client: Client, name: str) -> None:
    sender = client().with_queue(name)
    for n in range(4):
        sender.publish_file(name, bytes((n,)))
    automatic = client()
    automatic.consume_files(name, no_ack=True)
    assert automatic.receive_file()[0].delivery_tag == 1
    assert automatic.receive_file()[1].body == b"\x01"
    automatic.expect(FileOpen)
    automatic.drop()
    until(lambda: sender.count(name) == 2, "what was not sent as a whole is back")
    explicit = client()
    explicit.consume_files(name)
    delivered, staged = explicit.receive_file()
    assert (staged.body, delivered.redelivered) == (b"\x02", True)
    assert explicit.receive_file()[1].body == b"\x03"
    explicit.send(FileAck(multiple=True))
    explicit.send(FileAck(multiple=True))
    assert explicit.count(name) == 0
    explicit.send(FileAck(delivery_tag=2))
    assert explicit.expect_channel_close().code == 406


@pytest.mark.rule("0-9/file.reject#01", "0-9/file.reject#02", "0-9/file.reject.requeue#01")
def test_a_rejected_file_goes_to_another_consumer(client: Client, name: str) -> None:
    one = client().with_queue(name)
    one.declare(name + "-dead")
    one.declare(
        name + "-q",
        arguments={"x-dead-letter-exchange": "", "x-dead-letter-routing-key": name + "-dead"},
    )
    one.consume_files(name + "-q")
    one.publish_file(name + "-q", b"a", filename="f")
    assert not one.receive_file()[0].redelivered
    one.send(FileReject(delivery_tag=1, requeue=True))
    assert one.count(name + "-q") == 1  # It waits: this channel does not get it again.
    other = client()
    other.consume_files(name + "-q")
    delivered, staged = other.receive_file()
    assert delivered.redelivered
    other.send(FileReject(delivery_tag=1, requeue=False))
    assert other.count(name + "-dead") == 1
    other.consume_files(name + "-dead", "dead")
    delivered, staged = other.receive_file()
    assert (staged.body, staged.properties.filename) == (b"a", "f")
    assert staged.properties.headers["x-first-death-reason"] == "rejected"


@pytest.mark.rule("0-9/file.deliver#01")
def test_a_file_that_no_consumer_accepts_is_a_dead_letter(client: Client, name: str) -> None:
    one = client().with_queue(name + "-dead")
    one.declare(
        name, arguments={"x-dead-letter-exchange": "", "x-dead-letter-routing-key": name + "-dead"}
    )
    one.publish_file(name, b"poison")
    for n in range(6):
        one.channel(n + 2)
        one.consume_files(name, channel=n + 2)
        assert one.receive_file(channel=n + 2)[0].redelivered == (n > 0)
        one.call(ChannelClose(reply_code=200), ChannelCloseOk, n + 2)
    assert (one.count(name), one.count(name + "-dead")) == (0, 1)


# --- Returns, flow, transactions ----------------------------------------------------------------


@pytest.mark.rule("0-9/file.publish.mandatory#01", "0-9/file.publish.immediate#01")
def test_what_cannot_be_delivered_comes_back(client: Client, name: str) -> None:
    one = client().with_queue(name)
    body = bytes(range(256)) * 2000
    for n, (flags, key, code) in enumerate(
        (
            ({"mandatory": True}, "nowhere", 312),
            ({"immediate": True}, name, 313),
        )
    ):
        one.stage(f"i{n}", body, content_type="x/y")
        one.send(FilePublish(routing_key=key, identifier=f"i{n}", **flags))  # type: ignore[arg-type]
        _, returned = one.next()
        assert isinstance(returned, Content)
        assert isinstance(returned.method, FileReturn)
        assert (returned.method.reply_code, returned.method.routing_key) == (code, key)
        assert (returned.body, returned.properties.content_type) == (body, "x/y")
    one.stage("e", b"")
    one.send(FilePublish(routing_key="nowhere", identifier="e", mandatory=True))
    assert one.content(FileReturn)[1] == b""
    one.publish_file("nowhere", b"dropped")
    assert one.count(name) == 0
    one.channel(2)
    one.consume_files(name, channel=2)
    one.stage("j", b"now")
    one.send(FilePublish(routing_key=name, identifier="j", immediate=True))
    assert one.receive_file(channel=2)[1].body == b"now"


@pytest.mark.rule("0-9/file#02")
def test_a_full_queue_stops_its_publishers(client: Client, name: str) -> None:
    one, other = client(), client()
    one.declare(name, arguments={"x-max-length": 2})
    one.publish_file(name, b"a")
    one.publish_file(name, b"b")
    assert one.expect(ChannelFlow).active is False
    one.send(ChannelFlowOk(active=False))
    one.publish_file(name, b"c")
    assert one.count(name) == 3
    other.consume_files(name)
    assert [other.receive_file()[1].body for _ in range(2)] == [b"a", b"b"]
    assert one.expect(ChannelFlow).active is True
    assert other.receive_file()[1].body == b"c"


@pytest.mark.rule("0-9/file.publish.exchange#03")
def test_a_queue_of_type_stream_refuses_files(client: Client, name: str) -> None:
    one = client().with_queue(name, durable=True, arguments={"x-queue-type": "stream"})
    one.stage("i", b"x")
    one.send(FilePublish(routing_key=name, identifier="i"))
    assert one.expect_channel_close().code == 540
    other = client()
    other.send(FileConsume(queue=name))
    assert other.expect_connection_close().code == 540


def test_files_and_their_outcomes_are_transactional(client: Client, name: str) -> None:
    one, other = client(), client()
    one.declare(name)
    one.call(TxSelect(), TxSelectOk)
    one.publish_file(name, b"never")
    one.call(TxRollback(), TxRollbackOk)
    one.publish_file(name, b"a")
    one.publish(name, b"message")
    assert other.count(name) == 0
    one.call(TxCommit(), TxCommitOk)
    assert other.count(name) == 2
    one.consume_files(name)
    assert one.receive_file()[1].body == b"a"
    one.send(FileAck(delivery_tag=1))
    one.call(TxRollback(), TxRollbackOk)
    one.send(FileAck(delivery_tag=1))
    one.call(TxCommit(), TxCommitOk)
    one.send(FileAck(delivery_tag=1))
    assert one.expect_channel_close().code == 406
    other.consume_files(name)
    other.publish_file(name, b"last")
    assert other.receive_file()[1].body == b"last"


def test_what_comes_during_a_body_waits_for_its_end(client: Client, name: str) -> None:
    one, sender = client(), client()
    one.declare(name)
    body = bytes(range(256)) * 40_000
    sender.publish_file(name, body)
    one.channel(2)
    one.consume(name, "basic", channel=2, no_ack=True)
    one.consume_files(name)
    one.expect(FileOpen)
    one.send(FileOpenOk())
    for n in range(20):
        one.publish(name, bytes((n,)) * 100)
    one.send(QueueDeclare(queue=name, passive=True))
    _, staged = one.next_of(1)
    assert isinstance(staged, Content)
    assert staged.body == body
    assert isinstance(one.next_of(1)[1], FileDeliver)
    assert isinstance(one.next_of(1)[1], QueueDeclareOk)
    assert [one.next_of(2)[1].body[0] for _ in range(20)] == list(range(20))


def test_what_waits_is_bounded_and_none_of_it_is_lost(client: Client, name: str) -> None:
    one, sender = client(), client()
    one.declare(name)
    body = bytes(range(256)) * 40_000
    for n in range(6):
        sender.publish(name, bytes((n,)) * 700_000)
    sender.publish_file(name, body)
    assert sender.count(name) == 7
    one.consume_files(name)
    one.expect(FileOpen)
    one.send(FileOpenOk())
    for n in range(30):
        one.publish(name, bytes((100 + n,)) * 100_000)
    for _ in range(6):
        one.send(BasicGet(queue=name, no_ack=True))
    one.send(QueueDeclare(queue=name, passive=True))
    assert one.next_of(1)[1].body == body
    assert isinstance(one.next_of(1)[1], FileDeliver)
    assert [one.next_of(1)[1].body[0] for _ in range(6)] == list(range(6))
    assert one.expect(QueueDeclareOk).message_count == 30


def test_channels_share_a_connection_fairly(client: Client, name: str) -> None:
    one, sender = client(), client()
    one.declare(name)
    body = bytes(range(256)) * 40_000
    sender.publish_file(name, body)
    one.consume_files(name)
    one.expect(FileOpen)
    one.channel(2)
    asked = method_frame(2, QueueDeclare(queue=name, passive=True), one.version)
    one.send_bytes(method_frame(1, FileOpenOk(), one.version) + asked)
    order = []
    while len(order) < 2:
        frame = one.frame()
        assert frame is not None
        if frame[0] == 1 and frame[1] == 2:
            order.append("answer")
        if frame[0] == 1 and frame[1] == 1 and frame[2][2:4] == b"\x00\x50":
            order.append("delivered")
    assert order == ["answer", "delivered"]


def test_a_channel_may_close_in_the_middle(client: Client, name: str) -> None:
    one = client().with_queue(name)
    one.channel(2)
    body = bytes(100_000)
    one.open_file(name, len(body), 2)
    one.send_stage(body[:50_000], size=len(body), channel=2)
    one.send_bytes(encode_frame(FRAME_HEADER, 2, b"\x00\x46"))  # Not due.
    assert one.expect_connection_close().code == 503


# --- Consumers that choose, and such as only look; in 0-8 file.consume has no table for that -----


@pytest.fixture
def early(served: Served) -> Iterator[FileClient]:
    one = FileClient(served.host, served.port, V0_9).open()
    yield one
    one.drop()


def test_a_consumer_chooses(early: FileClient, name: str) -> None:
    early.declare(name)
    for n in range(4):
        early.publish_file(name, bytes((n,)), headers={"n": n}, filename="even odd"[5 * (n % 2) :])
    early.consume_files(name, "odd", arguments={"x-apache-selector": "n > 0 AND n % 2 = 1"})
    assert [early.receive_file()[1].body[0] for _ in range(2)] == [1, 3]
    early.send(FileConsume(queue=name, consumer_tag="no", arguments={"x-selector": "n !"}))
    assert early.expect_channel_close().code == 406


def test_a_browser_takes_nothing(early: FileClient, name: str) -> None:
    early.declare(name)
    for n in range(3):
        early.publish_file(name, bytes((n,)))
    early.call(FileQos(prefetch_count=1), FileQosOk)
    early.consume_files(name, "look", arguments={"x-filter-no-consume": True})
    for n in range(3):
        delivered, staged = early.receive_file()
        assert (staged.body[0], delivered.redelivered) == (n, False)
        early.send(FileAck(delivery_tag=delivered.delivery_tag))
    assert early.count(name) == 3
    early.call(FileCancel(consumer_tag="look"), FileCancelOk)
    early.call(FileQos(), FileQosOk)
    early.consume_files(name, "take")
    assert [early.receive_file()[1].body[0] for _ in range(3)] == [0, 1, 2]


def test_files_cannot_be_consumed_from_a_queue_for_browsing(client: Client, name: str) -> None:
    one = client().with_queue(name, arguments={"qpid.browse-only": True})
    one.publish_file(name, b"x")
    for tag in ("a", "b"):
        one.consume_files(name, tag)
        delivered, staged = one.receive_file()
        assert (staged.body, delivered.consumer_tag) == (b"x", tag)
        one.send(FileAck(delivery_tag=delivered.delivery_tag))
    assert one.count(name) == 1
