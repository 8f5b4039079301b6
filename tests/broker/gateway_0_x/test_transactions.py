# SPDX-License-Identifier: Apache-2.0
"""The tx and confirm classes, over a socket."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from headrace.protocol.codec_0_x import (
    BasicAck,
    BasicDeliver,
    BasicGet,
    BasicGetOk,
    BasicNack,
    BasicRecover,
    BasicRecoverOk,
    BasicReject,
    BasicReturn,
    ChannelClose,
    ChannelCloseOk,
    ConfirmSelect,
    ConfirmSelectOk,
    TxCommit,
    TxCommitOk,
    TxRollback,
    TxRollbackOk,
    TxSelect,
    TxSelectOk,
)
from headrace.testing.raw_client import RawClient

Client = Callable[[], RawClient]


def select(client: RawClient, channel: int = 1) -> None:
    client.call(TxSelect(), TxSelectOk, channel)


def commit(client: RawClient) -> None:
    client.call(TxCommit(), TxCommitOk)


def get_all(client: RawClient, queue: str, count: int) -> None:
    for _ in range(count):
        client.send(BasicGet(queue=queue))
        client.content(BasicGetOk)


@pytest.mark.rule("0-9-1/s119", "0-9-1/tx#01")
def test_publishes_are_seen_at_the_commit(talk: Client, name: str) -> None:
    client = talk()
    queues = [f"{name}-{n}" for n in range(3)]
    for queue in queues:
        client.declare(queue, exclusive=True)
    client.channel(2)
    select(client)
    for _ in range(2):
        for queue in queues:
            client.publish(queue, b"in", delivery_mode=2)
        assert [client.count(queue, channel=2) for queue in queues] == [0, 0, 0]
        commit(client)
        assert [client.get(queue, channel=2) for queue in queues] == [b"in"] * 3
    commit(client)  # An empty one is fine.


def test_a_rollback_forgets(talk: Client, name: str) -> None:
    client = talk().with_queue(name, exclusive=True)
    client.publish(name, b"1", b"2")
    get_all(client, name, 2)
    select(client)
    client.publish(name, b"never")
    client.ack(1)
    client.send(BasicReject(delivery_tag=2, requeue=False))
    client.call(TxRollback(), TxRollbackOk)
    client.ack(1)  # It can be acknowledged again, for it was not.
    commit(client)
    client.call(ChannelClose(), ChannelCloseOk)
    client.channel(1)
    assert client.get(name) == b"2"
    assert client.get(name) is None


@pytest.mark.parametrize(
    ("settle", "left"),
    [
        (BasicAck(delivery_tag=2, multiple=True), 1),
        (BasicAck(delivery_tag=0, multiple=True), 0),
        (BasicNack(delivery_tag=0, multiple=True, requeue=True), 3),
        (BasicReject(delivery_tag=2, requeue=False), 2),
    ],
)
def test_settlements_happen_at_the_commit(
    talk: Client, name: str, settle: BasicAck | BasicNack | BasicReject, left: int
) -> None:
    client = talk().with_queue(name, exclusive=True)
    client.publish(name, b"1", b"2", b"3")
    get_all(client, name, 3)
    select(client)
    client.send(settle)
    assert client.count(name) == 0
    commit(client)
    client.call(ChannelClose(), ChannelCloseOk)
    client.channel(1)
    assert client.count(name) == left


@pytest.mark.rule("0-9-1/s110")
def test_a_tag_is_checked_at_once(talk: Client, name: str) -> None:
    client = talk().with_queue(name, exclusive=True)
    client.publish(name, b"1")
    get_all(client, name, 1)
    select(client)
    client.ack(1)
    client.ack(1)
    closed = client.expect_channel_close()
    assert closed.text == "PRECONDITION_FAILED - unknown delivery tag 1"
    client.channel(1)
    assert client.get(name) == b"1"  # Nothing was committed.


def test_what_was_not_committed_ends_with_the_channel(talk: Client, name: str) -> None:
    client = talk().with_queue(name, exclusive=True)
    select(client)
    client.publish(name, b"x")
    client.call(ChannelClose(), ChannelCloseOk)
    client.channel(1)
    assert client.get(name) is None


def test_a_transaction_is_its_channels_own(talk: Client, name: str) -> None:
    client = talk().with_queue(name, exclusive=True)
    client.channel(2)
    select(client)
    client.publish(name, b"later")
    client.publish(name, b"now", channel=2)
    assert client.get(name, channel=2) == b"now"
    commit(client)
    assert client.get(name) == b"later"


def test_a_consumer_gets_what_was_committed_in_order(talk: Client, name: str) -> None:
    client = talk().with_queue(name, exclusive=True)
    client.channel(2)
    client.consume(name, channel=2, no_ack=True)
    select(client)
    bodies = [b"%d" % n for n in range(100)]
    client.publish(name, *bodies)
    client.send(TxCommit())
    heard = [client.next() for _ in range(101)]
    assert [c.body for _, c in heard if hasattr(c, "body")] == bodies
    assert sum(isinstance(m, TxCommitOk) for _, m in heard) == 1


@pytest.mark.rule("0-9-1/tx#02")
def test_an_immediate_one_without_consumers_comes_back_at_the_commit(
    talk: Client, name: str
) -> None:
    client = talk().with_queue(name, exclusive=True)
    select(client)
    client.publish(name, b"x", immediate=True)
    assert client.silent()
    client.send(TxCommit())
    method, body = client.content(BasicReturn)
    assert (method.reply_code, body) == (313, b"x")
    client.expect(TxCommitOk)
    assert client.count(name) == 0


@pytest.mark.rule("0-9-1/tx#03", "0-9-1/s122")
def test_an_unroutable_mandatory_comes_back_at_the_commit(talk: Client, name: str) -> None:
    client = talk().with_queue(name, exclusive=True)
    select(client)
    client.publish("nowhere", b"x", mandatory=True)
    assert client.silent()
    client.send(TxCommit())
    assert client.content(BasicReturn)[1] == b"x"
    client.expect(TxCommitOk)


@pytest.mark.rule("0-9-1/tx.commit#01", "0-9-1/tx.rollback#01")
@pytest.mark.parametrize("method", [TxCommit(), TxRollback()])
def test_no_commit_without_select(talk: Client, method: TxCommit | TxRollback) -> None:
    client = talk()
    client.send(method)
    closed = client.expect_channel_close()
    assert (closed.code, closed.text) == (406, "PRECONDITION_FAILED - channel is not transactional")


@pytest.mark.parametrize("tx_first", [True, False])
def test_a_channel_has_one_mode(talk: Client, tx_first: bool) -> None:
    client = talk()
    if tx_first:
        select(client)
        select(client)
        client.send(ConfirmSelect())
        text = "cannot switch from tx to confirm mode"
    else:
        client.call(ConfirmSelect(), ConfirmSelectOk)
        client.call(ConfirmSelect(), ConfirmSelectOk)
        client.send(TxSelect())
        text = "cannot switch from confirm to tx mode"
    closed = client.expect_channel_close()
    assert (closed.code, closed.text) == (406, f"PRECONDITION_FAILED - {text}")


# --- Confirms -----------------------------------------------------------------------------------


def confirmed(client: RawClient, upto: int, channel: int = 1) -> dict[int, bool]:
    """Read confirms until all up to a tag came; return what each said."""
    said: dict[int, bool] = {}
    first = 1
    while len(said) < upto:
        number, method = client.next()
        assert number == channel
        assert isinstance(method, (BasicAck, BasicNack)), method
        tag = method.delivery_tag
        span = range(first, tag + 1) if method.multiple else (tag,)
        for one in span:
            assert said.setdefault(one, isinstance(method, BasicAck)) == isinstance(
                method, BasicAck
            )
        while first in said:
            first += 1
    return said


@pytest.mark.parametrize("mode", [1, 2])
def test_every_publish_is_confirmed(talk: Client, name: str, mode: int) -> None:
    client = talk().with_queue(name, exclusive=True)
    client.publish(name, b"before")  # Not counted.
    client.call(ConfirmSelect(), ConfirmSelectOk)
    client.publish(name, *[b"x"] * 100, delivery_mode=mode)
    client.publish("nowhere", b"lost")  # Confirmed as well: there was nothing to keep.
    assert confirmed(client, 101) == dict.fromkeys(range(1, 102), True)


def test_confirms_are_counted_by_channel(talk: Client, name: str) -> None:
    client = talk().with_queue(name, exclusive=True)
    client.channel(2)
    client.call(ConfirmSelect(), ConfirmSelectOk, channel=2)
    client.send(ConfirmSelect(no_wait=True))
    client.publish(name, b"x", channel=2)
    assert confirmed(client, 1, channel=2) == {1: True}
    client.publish(name, b"x")
    assert confirmed(client, 1) == {1: True}


def test_a_return_comes_before_its_confirm(talk: Client, name: str) -> None:
    client = talk()
    client.call(ConfirmSelect(), ConfirmSelectOk)
    client.publish("nowhere", b"1", b"2", mandatory=True)
    heard = [client.next()[1] for _ in range(3)]
    bodies = [getattr(one, "body", None) for one in heard]
    assert bodies[0] == b"1"
    assert bodies.index(b"2") < len(bodies) - (bodies[-1] is None) or bodies[-1] == b"2"


def test_a_refused_publish_is_nacked_alone(talk: Client, name: str) -> None:
    client = talk()
    arguments = {"x-max-length": 2, "x-overflow": "reject-publish"}
    client.declare(name, exclusive=True, arguments=arguments)
    client.call(ConfirmSelect(), ConfirmSelectOk)
    client.publish(name, *[b"x"] * 4)
    assert confirmed(client, 4) == {1: True, 2: True, 3: False, 4: False}


@pytest.mark.parametrize("more", [{}, {"x-message-deduplication": True}])
def test_a_refused_publish_of_a_transaction_is_told(
    talk: Client, name: str, more: dict[str, bool]
) -> None:
    """The rest of the transaction has happened, as with RabbitMQ."""
    client = talk()
    limits = {"x-max-length": 1, "x-overflow": "reject-publish"}
    client.declare(name, exclusive=True, arguments={**limits, **more})
    other = f"{name}-other"
    client.declare(other, exclusive=True)
    select(client)
    client.publish(name, b"1", b"2", delivery_mode=2)
    client.publish(other, b"3")
    client.send(TxCommit())
    assert client.expect_channel_close().text == "PRECONDITION_FAILED - partial tx completion"
    client.channel(1)
    assert [client.get(name), client.get(name), client.get(other)] == [b"1", None, b"3"]


def test_confirms_and_deliveries_share_a_channel(talk: Client, name: str) -> None:
    client = talk().with_queue(name, exclusive=True)
    client.call(ConfirmSelect(), ConfirmSelectOk)
    client.consume(name)
    client.publish(name, *[b"%d" % n for n in range(20)], delivery_mode=2)
    bodies = []
    upto = 0
    while len(bodies) < 20 or upto < 20:
        _, one = client.next()
        if isinstance(one, BasicAck):
            upto = max(upto, one.delivery_tag)
        else:
            method = getattr(one, "method", None)
            assert isinstance(method, BasicDeliver)
            bodies.append(getattr(one, "body", None))
            client.ack(method.delivery_tag)
    assert bodies == [b"%d" % n for n in range(20)]


def test_what_a_transaction_has_settled_is_not_recovered(talk: Client, name: str) -> None:
    client = talk().with_queue(name, exclusive=True)
    client.publish(name, *[b"%d" % n for n in range(4)])
    select(client)
    get_all(client, name, 4)
    client.ack(2)
    client.send(BasicNack(delivery_tag=3, requeue=False))
    client.call(BasicRecover(requeue=True), BasicRecoverOk)
    assert client.count(name) == 2
    commit(client)
    assert [client.get(name) for _ in range(3)] == [b"0", b"3", None]
    client.channel(2)
    client.publish(name, b"4", channel=2)
    get_all(client, name, 1)
    client.ack(7)
    client.call(BasicRecover(requeue=True), BasicRecoverOk)
    client.call(TxRollback(), TxRollbackOk)
    client.send(BasicNack(delivery_tag=7, requeue=True))
    commit(client)
    assert client.get(name) == b"4"
