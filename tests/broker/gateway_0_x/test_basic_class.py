# SPDX-License-Identifier: Apache-2.0
"""Every method and flag of the basic class, over a socket."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from headrace.protocol.codec_0_x import (
    BasicCancel,
    BasicCancelOk,
    BasicConsume,
    BasicConsumeOk,
    BasicDeliver,
    BasicGet,
    BasicGetEmpty,
    BasicGetOk,
    BasicNack,
    BasicQos,
    BasicQosOk,
    BasicRecover,
    BasicRecoverAsync,
    BasicRecoverOk,
    BasicReject,
    BasicReturn,
    ChannelClose,
    ChannelCloseOk,
    QueueDelete,
    QueueDeleteOk,
)
from headrace.testing.raw_client import Content, RawClient

Client = Callable[[], RawClient]


def delivered(client: RawClient, count: int, channel: int = 1) -> list[tuple[int, bytes]]:
    """Read that many deliveries: (tag, body)."""
    found = []
    for _ in range(count):
        method, body = client.content(BasicDeliver, channel)
        found.append((method.delivery_tag, body))
    return found


def qos(client: RawClient, channel: int = 1, **limits: Any) -> None:
    client.call(BasicQos(**limits), BasicQosOk, channel)


# --- Consume and deliver ------------------------------------------------------------------------


@pytest.mark.rule("0-9-1/basic#09", "0-9-1/s002")
def test_consume_without_acks(talk: Client, name: str) -> None:
    client = talk().with_queue(name, exclusive=True)
    client.consume(name, "mine", no_ack=True)
    client.publish(name, b"a", b"", b"c", content_type="text/plain")
    for n, body in enumerate((b"a", b"", b"c"), 1):
        _, content = client.next()
        assert isinstance(content, Content)
        method = content.method
        assert isinstance(method, BasicDeliver)
        assert (method.consumer_tag, method.delivery_tag, method.redelivered) == ("mine", n, False)
        assert (method.exchange, method.routing_key) == ("", name)
        assert (content.body, content.properties.content_type) == (body, "text/plain")
    client.ack(1)
    assert client.expect_channel_close().text == "PRECONDITION_FAILED - unknown delivery tag 1"


@pytest.mark.rule("0-9-1/basic#10", "0-9-1/s003", "0-9-1/basic#08")
def test_what_was_not_acknowledged_comes_back_in_its_place(talk: Client, name: str) -> None:
    client, other = talk(), talk()
    client.declare(name)
    client.publish(name, b"a", b"b", b"c", delivery_mode=2)
    client.publish(name, b"d", delivery_mode=1)
    client.consume(name)
    assert delivered(client, 4) == [(1, b"a"), (2, b"b"), (3, b"c"), (4, b"d")]
    client.ack(2)
    client.call(ChannelClose(), ChannelCloseOk)
    other.consume(name)
    other.publish(name, b"e")
    heard = [other.content(BasicDeliver) for _ in range(4)]
    assert [(m.redelivered, body) for m, body in heard] == [
        (True, b"a"),
        (True, b"c"),
        (True, b"d"),
        (False, b"e"),
    ]
    other.call(QueueDelete(queue=name), QueueDeleteOk)


def test_consumers_take_turns(talk: Client, name: str) -> None:
    client = talk().with_queue(name, exclusive=True)
    for tag in ("x", "y", "z"):
        client.consume(name, tag, no_ack=True)
    client.publish(name, *[b"%d" % n for n in range(9)])
    tags = [client.content(BasicDeliver)[0].consumer_tag for _ in range(9)]
    assert tags == ["x", "y", "z"] * 3


@pytest.mark.rule("0-9-1/basic.consume#01")
def test_many_consumers_on_one_queue(talk: Client, name: str) -> None:
    client = talk().with_queue(name, exclusive=True)
    for n in range(100):
        client.consume(name, f"c{n}", no_ack=True)
    client.publish(name, *[b"x"] * 200)
    tags = [client.content(BasicDeliver)[0].consumer_tag for _ in range(200)]
    assert {tags.count(f"c{n}") for n in range(100)} == {2}


def test_a_consumer_tag_is_made_up(talk: Client, name: str) -> None:
    client = talk().with_queue(name, exclusive=True)
    tags = {client.call(BasicConsume(queue=name), BasicConsumeOk).consumer_tag for _ in range(3)}
    assert len(tags) == 3
    assert all(tag.startswith("amq.ctag-") for tag in tags)


@pytest.mark.rule("0-9-1/s098")
def test_a_tag_is_used_once_on_a_channel(talk: Client, name: str) -> None:
    client = talk().with_queue(name, exclusive=True)
    client.channel(2)
    client.consume(name, "t")
    client.consume(name, "t", channel=2)  # Another channel, another consumer.
    client.send(BasicConsume(queue=name, consumer_tag="t"))
    closed = client.expect_connection_close()
    assert (closed.code, closed.text) == (
        530,
        "NOT_ALLOWED - attempt to reuse consumer tag 't'",
    )


@pytest.mark.rule("0-9-1/s100")
def test_exclusive_consumption(talk: Client, name: str) -> None:
    client, other = talk(), talk()
    client.declare(name)
    client.consume(name, "only", exclusive=True)
    text = f"ACCESS_REFUSED - queue '{name}' in vhost '/' in exclusive use"
    for method in (BasicConsume(queue=name), BasicGet(queue=name)):
        other.send(method)
        closed = other.expect_channel_close()
        assert (closed.code, closed.text) == (403, text)
        other.channel(1)
    client.call(BasicCancel(consumer_tag="only"), BasicCancelOk)
    other.consume(name)
    client.send(BasicConsume(queue=name, exclusive=True))
    assert client.expect_channel_close().text == text
    other.call(QueueDelete(queue=name), QueueDeleteOk)


def test_no_local(talk: Client, name: str) -> None:
    client, other = talk(), talk()
    client.declare(name)
    client.consume(name, "mine", no_local=True)
    client.publish(name, b"own")
    other.publish(name, b"theirs")
    assert client.content(BasicDeliver)[1] == b"theirs"
    other.consume(name, "other", no_ack=True)
    assert other.content(BasicDeliver)[1] == b"own"
    other.call(QueueDelete(queue=name), QueueDeleteOk)


def test_a_higher_consumer_goes_first_while_it_has_room(talk: Client, name: str) -> None:
    client = talk().with_queue(name, exclusive=True)
    qos(client, prefetch_count=2)
    client.consume(name, "low", arguments={"x-priority": -1})
    client.consume(name, "high", arguments={"x-priority": 10})
    client.consume(name, "usual")
    client.publish(name, *[b"x"] * 5)
    tags = [client.content(BasicDeliver)[0].consumer_tag for _ in range(5)]
    assert tags == ["high", "high", "usual", "usual", "low"]


def test_a_priority_is_a_number(talk: Client, name: str) -> None:
    client = talk().with_queue(name, exclusive=True)
    client.send(BasicConsume(queue=name, arguments={"x-priority": "top"}))
    closed = client.expect_channel_close()
    assert closed.code == 406
    assert closed.text.startswith(
        f"PRECONDITION_FAILED - invalid arg 'x-priority' for queue '{name}' in vhost '/': "
    )


def test_consume_without_an_answer(talk: Client, name: str) -> None:
    client = talk().with_queue(name, exclusive=True)
    client.send(BasicConsume(queue=name, consumer_tag="t", no_wait=True, no_ack=True))
    client.publish(name, b"x")
    assert client.content(BasicDeliver)[1] == b"x"
    client.send(BasicCancel(consumer_tag="t", no_wait=True))
    client.publish(name, b"y")
    assert client.count(name) == 1


# --- Cancel -------------------------------------------------------------------------------------


@pytest.mark.rule("0-9-1/basic.cancel#01")
def test_cancel(talk: Client, name: str) -> None:
    client = talk().with_queue(name, exclusive=True)
    client.consume(name, "t")
    client.publish(name, b"held")
    assert delivered(client, 1) == [(1, b"held")]
    assert client.call(BasicCancel(consumer_tag="t"), BasicCancelOk).consumer_tag == "t"
    assert client.call(BasicCancel(consumer_tag="t"), BasicCancelOk).consumer_tag == "t"
    client.publish(name, b"later")
    assert client.count(name) == 1
    client.ack(1)  # What it held is still the channel's to settle.
    assert client.get(name) == b"later"
    assert client.get(name) is None


def test_a_deleted_queue_cancels_its_consumers(talk: Client, name: str) -> None:
    client, other = talk(), talk()
    client.declare(name)
    client.consume(name, "t")
    client.publish(name, b"held")
    delivered(client, 1)
    other.call(QueueDelete(queue=name), QueueDeleteOk)
    # This client did not say that it understands basic.cancel from a broker: it is not told.
    client.ack(1)  # Its queue is gone, yet the tag was known.
    client.declare(f"{name}-2", exclusive=True)
    client.consume(f"{name}-2", "t")  # The tag is free again.


# --- Qos ----------------------------------------------------------------------------------------


@pytest.mark.rule("0-9-1/s096")
def test_prefetch_count_bounds_each_consumer(talk: Client, name: str) -> None:
    client = talk().with_queue(name, exclusive=True)
    client.publish(name, *[b"%d" % n for n in range(6)])
    qos(client, prefetch_count=2)
    client.consume(name, "x")
    assert delivered(client, 2) == [(1, b"0"), (2, b"1")]
    qos(client, prefetch_count=1)  # For consumers to come.
    client.consume(name, "y")
    assert delivered(client, 1) == [(3, b"2")]
    assert client.silent()
    client.ack(1)
    assert delivered(client, 1) == [(4, b"3")]
    client.ack(4, multiple=True)
    assert {body for _, body in delivered(client, 2)} == {b"4", b"5"}


@pytest.mark.rule("0-9-1/s096")
def test_prefetch_count_of_a_whole_channel(talk: Client, name: str) -> None:
    client = talk().with_queue(name, exclusive=True)
    client.channel(2)
    client.publish(name, *[b"%d" % n for n in range(6)])
    qos(client, prefetch_count=3, global_=True)
    client.consume(name, "x")
    assert len(delivered(client, 3)) == 3
    client.consume(name, "y")
    assert client.silent()
    client.consume(name, "z", channel=2)  # Another channel has limits of its own.
    assert len(delivered(client, 3, channel=2)) == 3
    client.ack(2)
    client.publish(name, b"6")
    client.ack(3, 2)
    client.publish(name, b"7")
    numbers = sorted(client.next()[0] for _ in range(2))
    assert numbers in ([1, 2], [2, 2])


def test_a_limit_can_be_lifted(talk: Client, name: str) -> None:
    client = talk().with_queue(name, exclusive=True)
    client.publish(name, *[b"%d" % n for n in range(5)])
    qos(client, prefetch_count=1, global_=True)
    client.consume(name)
    assert len(delivered(client, 1)) == 1
    assert client.silent()
    client.send(BasicQos(prefetch_count=0, global_=True))
    kinds = [client.next()[1] for _ in range(5)]
    assert sum(isinstance(kind, Content) for kind in kinds) == 4
    assert sum(isinstance(kind, BasicQosOk) for kind in kinds) == 1


@pytest.mark.rule("0-9-1/s095")
def test_prefetch_size_bounds_octets_in_advance(talk: Client, name: str) -> None:
    client = talk().with_queue(name, exclusive=True)
    client.publish(name, b"12345678", b"12", b"34", b"1")
    qos(client, prefetch_size=4)
    client.consume(name)
    assert delivered(client, 1) == [(1, b"12345678")]  # A single message always passes.
    assert client.silent()
    client.ack(1)
    assert delivered(client, 2) == [(2, b"12"), (3, b"34")]
    assert client.silent()
    client.ack(2)
    assert delivered(client, 1) == [(4, b"1")]


@pytest.mark.rule("0-9-1/s096")
def test_prefetch_size_bounds_consumers_that_are_there(talk: Client, name: str) -> None:
    client = talk().with_queue(name, exclusive=True)
    client.consume(name)
    qos(client, prefetch_size=4)
    client.publish(name, b"12", b"3", b"45")
    assert delivered(client, 2) == [(1, b"12"), (2, b"3")]
    assert client.silent()
    client.ack(1)
    assert delivered(client, 1) == [(3, b"45")]
    qos(client, prefetch_size=0)
    client.publish(name, b"678", b"9")
    assert delivered(client, 2) == [(4, b"678"), (5, b"9")]


def test_prefetch_size_bounds_what_a_browser_is_shown(talk: Client, name: str) -> None:
    client = talk().with_queue(name, exclusive=True)
    client.publish(name, b"1234", b"12", b"34", b"123")
    qos(client, prefetch_size=4)
    client.consume(name, arguments={"x-filter-no-consume": True})
    found = []
    for tag in range(1, 5):
        found += [client.content(BasicDeliver)[1]]
        client.ack(tag)
    assert found == [b"1234", b"12", b"34", b"123"]


def test_no_local_counts_for_streams_as_well(talk: Client, name: str) -> None:
    client, other = talk(), talk()
    client.declare(name, durable=True, arguments={"x-queue-type": "stream"})
    qos(client, prefetch_count=10)
    client.consume(name, no_local=True)
    client.publish(name, b"own")
    other.publish(name, b"other's")
    assert client.content(BasicDeliver)[1] == b"other's"
    assert client.silent()


def test_no_ack_has_no_limit(talk: Client, name: str) -> None:
    client = talk().with_queue(name, exclusive=True)
    qos(client, prefetch_count=1)
    client.publish(name, *[b"%d" % n for n in range(5)])
    client.consume(name, no_ack=True)
    assert len(delivered(client, 5)) == 5


# --- Get ----------------------------------------------------------------------------------------


def test_get(talk: Client, name: str) -> None:
    client = talk().with_queue(name, exclusive=True)
    client.call(BasicGet(queue=name), BasicGetEmpty)
    client.publish(name, b"a", b"b")
    client.send(BasicGet(queue=name))
    method, body = client.content(BasicGetOk)
    assert (method.delivery_tag, method.message_count, method.redelivered) == (1, 1, False)
    assert (method.exchange, method.routing_key, body) == ("", name, b"a")
    client.send(BasicReject(delivery_tag=1, requeue=True))
    client.send(BasicGet(queue=name))
    method, body = client.content(BasicGetOk)
    assert (method.delivery_tag, method.redelivered, body) == (2, True, b"a")
    client.send(BasicGet(queue=name, no_ack=True))
    method, body = client.content(BasicGetOk)
    assert (method.delivery_tag, method.message_count, body) == (3, 0, b"b")
    client.ack(2)
    client.call(BasicGet(queue=name), BasicGetEmpty)


# --- Ack, nack, reject --------------------------------------------------------------------------


def get_all(client: RawClient, queue: str, count: int) -> None:
    for _ in range(count):
        client.send(BasicGet(queue=queue))
        client.content(BasicGetOk)


@pytest.mark.parametrize(
    ("settle", "left"),
    [
        ([(3, False)], [b"1", b"2", b"4"]),
        ([(3, True)], [b"4"]),
        ([(0, True)], []),
        ([(2, False), (3, True)], [b"4"]),
        ([(4, False), (1, False), (0, True)], []),
    ],
)
def test_ack(talk: Client, name: str, settle: list[tuple[int, bool]], left: list[bytes]) -> None:
    client, other = talk(), talk()
    client.declare(name)
    client.publish(name, b"1", b"2", b"3", b"4")
    get_all(client, name, 4)
    for tag, multiple in settle:
        client.ack(tag, multiple=multiple)
    client.call(ChannelClose(), ChannelCloseOk)
    assert [other.get(name) for _ in left] == left
    assert other.get(name) is None
    other.call(QueueDelete(queue=name), QueueDeleteOk)


@pytest.mark.rule("0-9-1/s109", "0-9-1/s111", "0-9-1/s001")
@pytest.mark.parametrize("tag", [0, 3, 2**64 - 1])
@pytest.mark.parametrize("how", ["ack", "ack multiple", "nack", "reject"])
def test_an_unknown_tag(talk: Client, name: str, tag: int, how: str) -> None:
    if (tag, how) == (0, "ack multiple"):
        tag = 9  # Zero means all there are.
    client = talk()
    client.channel(2)
    client.declare(name, channel=2, exclusive=True)
    client.publish(name, b"1", b"2", b"3", channel=2)
    get_all(client, name, 2)
    client.get(name, channel=2, no_ack=False)
    if how.startswith("ack"):
        client.ack(tag, multiple=how.endswith("multiple"))
    elif how == "nack":
        client.send(BasicNack(delivery_tag=tag))
    else:
        client.send(BasicReject(delivery_tag=tag))
    closed = client.expect_channel_close()
    assert (closed.code, closed.text) == (
        406,
        f"PRECONDITION_FAILED - unknown delivery tag {tag}",
    )
    assert client.count(name, channel=2) == 2  # What the channel held is back.


@pytest.mark.rule("0-9-1/s111")
def test_twice_is_once_too_often(talk: Client, name: str) -> None:
    client = talk().with_queue(name, exclusive=True)
    client.publish(name, b"1", b"2")
    get_all(client, name, 2)
    client.ack(1)
    client.ack(1)
    assert client.expect_channel_close().text == "PRECONDITION_FAILED - unknown delivery tag 1"


@pytest.mark.rule("0-9-1/basic.reject#02")
@pytest.mark.parametrize(
    ("tag", "multiple", "requeue", "left"),
    [
        (2, False, True, [b"2", b"4"]),
        (2, True, True, [b"1", b"2", b"4"]),
        (2, True, False, [b"4"]),
        (0, True, True, [b"1", b"2", b"3", b"4"]),
        (0, True, False, [b"4"]),
    ],
)
def test_nack(
    talk: Client, name: str, tag: int, multiple: bool, requeue: bool, left: list[bytes]
) -> None:
    client = talk().with_queue(name, exclusive=True)
    client.publish(name, b"1", b"2", b"3", b"4")
    get_all(client, name, 3)
    client.send(BasicNack(delivery_tag=tag, multiple=multiple, requeue=requeue))
    assert [client.get(name) for _ in left] == left
    assert client.get(name) is None


# --- Recover ------------------------------------------------------------------------------------


@pytest.mark.rule("0-9-1/basic.recover#01", "0-9-1/basic.recover-async#01")
@pytest.mark.parametrize("asynchronous", [True, False])
@pytest.mark.parametrize("requeue", [True, False])
def test_recover(talk: Client, name: str, requeue: bool, asynchronous: bool) -> None:
    client = talk().with_queue(name, exclusive=True)
    client.publish(name, b"1", b"2", b"3")
    qos(client, prefetch_count=3)
    client.consume(name, "t")
    delivered(client, 3)
    client.ack(2)
    client.send(
        BasicRecoverAsync(requeue=requeue) if asynchronous else BasicRecover(requeue=requeue)
    )
    heard = [client.next()[1] for _ in range(2 if asynchronous else 3)]
    again = [one for one in heard if isinstance(one, Content)]
    assert len(heard) - len(again) == (0 if asynchronous else 1)
    assert all(isinstance(one, (Content, BasicRecoverOk)) for one in heard)
    methods = [one.method for one in again]
    assert [one.body for one in again] == [b"1", b"3"]
    assert [getattr(m, "redelivered", None) for m in methods] == [True, True]
    assert [getattr(m, "consumer_tag", None) for m in methods] == ["t", "t"]
    assert [getattr(m, "delivery_tag", None) for m in methods] == [4, 5]
    client.ack(1)
    assert client.expect_channel_close().text.endswith("unknown delivery tag 1")


@pytest.mark.rule("0-9-1/s115")
def test_rejected_messages_find_other_consumers(talk: Client, name: str) -> None:
    client, other = talk(), talk()
    client.declare(name)
    qos(client, prefetch_count=1)
    client.consume(name)
    client.publish(name, b"1")
    delivered(client, 1)
    other.consume(name)
    client.send(BasicReject(delivery_tag=1, requeue=True))
    method, body = other.content(BasicDeliver)
    assert (method.redelivered, body) == (True, b"1")
    other.call(QueueDelete(queue=name), QueueDeleteOk)


# --- Return -------------------------------------------------------------------------------------


@pytest.mark.rule("0-9-1/s106")
def test_mandatory(talk: Client, name: str) -> None:
    client = talk()
    client.publish("nowhere", b"back", exchange="amq.direct", mandatory=True, message_id="m")
    _, content = client.next()
    assert isinstance(content, Content)
    method = content.method
    assert isinstance(method, BasicReturn)
    assert (method.reply_code, method.reply_text) == (312, "NO_ROUTE")
    assert (method.exchange, method.routing_key) == ("amq.direct", "nowhere")
    assert (content.body, content.properties.message_id) == (b"back", "m")
    client.declare(name, exclusive=True)
    client.publish(name, b"kept", mandatory=True)
    assert client.get(name) == b"kept"


@pytest.mark.rule("0-9-1/s107")
def test_immediate(talk: Client, name: str) -> None:
    client = talk().with_queue(name, exclusive=True)
    client.publish(name, b"1", immediate=True)
    method, body = client.content(BasicReturn)
    assert (method.reply_code, method.reply_text, body) == (313, "NO_CONSUMERS", b"1")
    qos(client, prefetch_count=1)
    client.consume(name)
    client.publish(name, b"2", immediate=True)
    assert client.content(BasicDeliver)[1] == b"2"
    client.publish(name, b"3", immediate=True)  # Its consumer has no room.
    assert client.content(BasicReturn)[1] == b"3"
    assert client.count(name) == 0


def test_a_returned_large_body_is_whole(talk: Client, name: str) -> None:
    client = talk()
    body = bytes(range(256)) * 4096
    client.declare(name, exclusive=True)
    client.publish(name, body[:100_000])
    client.publish("nowhere", body[:120_000], mandatory=True)
    assert client.content(BasicReturn)[1] == body[:120_000]


@pytest.mark.slow
def test_one_delivery_that_is_never_settled_does_not_hold_up_the_others(
    talk: Client, name: str
) -> None:
    """Beyond 65,536 later deliveries it is kept apart; it can be settled all the same."""
    client = talk().with_queue(name, exclusive=True)
    client.consume(name, "mine")
    client.publish(name, b"first")
    delivered(client, 1)
    for start in range(2, 70_002, 1000):
        client.publish(name, *[b"x"] * 1000)
        for tag, _ in delivered(client, 1000):
            client.ack(tag)
        assert start + 999 == tag
    client.publish(name, b"last")
    assert delivered(client, 1) == [(70_002, b"last")]
    client.send(BasicNack(delivery_tag=70_002, multiple=True, requeue=True))
    again = [client.content(BasicDeliver) for _ in range(2)]
    assert [body for _, body in again] == [b"first", b"last"]
    assert [method.redelivered for method, _ in again] == [True, True]
    client.ack(1)
    assert client.expect_channel_close().text == "PRECONDITION_FAILED - unknown delivery tag 1"
