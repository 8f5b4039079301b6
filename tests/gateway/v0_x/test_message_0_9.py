# SPDX-License-Identifier: Apache-2.0
"""The message class of 0-9."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

from headrace.gateway.connection.offers import Offers
from headrace.gateway.connection.plug_in_state import ensure_state
from headrace.gateway.v0_x.early.references import (
    CHECKPOINT_KEEP_MS,
    REFERENCES_MAX,
    Checkpoints,
)
from headrace.protocol.codec_0_x import (
    AccessRequest,
    AccessRequestOk,
    BasicGet,
    BasicGetOk,
    BasicProperties,
    ChannelClose,
    ChannelFlow,
    ChannelFlowOk,
    ChannelOpen,
    ConnectionClose,
    Content,
    ExchangeDeclare,
    ExchangeDeclareOk,
    MessageAppend,
    MessageCancel,
    MessageCheckpoint,
    MessageClose,
    MessageConsume,
    MessageEmpty,
    MessageGet,
    MessageOffset,
    MessageOk,
    MessageOpen,
    MessageQos,
    MessageRecover,
    MessageReject,
    MessageResume,
    MessageTransfer,
    MethodBase,
    QueueBind,
    QueueBindOk,
    QueueDeclare,
    QueueDeclareOk,
    QueueDelete,
    QueueDeleteOk,
    TxCommit,
    TxCommitOk,
    TxRollback,
    TxRollbackOk,
    TxSelect,
    TxSelectOk,
    decode_content_header,
)
from headrace.protocol.v0_x.events import MethodReceived
from headrace.spec.tables import V0_9, V0_9_1
from support.brokers.in_memory_broker import BODY_MAX, Client, Rig

if TYPE_CHECKING:
    from headrace.model.queue.queue import Queue


@pytest.fixture
def client(rig: Rig) -> Client:
    return rig.client(V0_9)


def checkpoints_in(rig: Rig) -> Checkpoints:
    return ensure_state(rig.context, Checkpoints, Checkpoints)


def declare(client: Client, name: str = "q", **options: Any) -> None:
    client.call(QueueDeclare(queue=name, **options), QueueDeclareOk)


def put(client: Client, body: bytes, key: str = "q", **fields: Any) -> None:
    """Transfer a message to the broker; it says ok, when deliveries have gone out."""
    client.send(MessageTransfer(routing_key=key, body=Content(body), **fields))
    answer = client.events.pop()
    assert isinstance(answer, MethodReceived)
    assert isinstance(answer.method, MessageOk), answer


def consume(client: Client, queue: str = "q", destination: str = "here", **options: Any) -> None:
    client.call(MessageConsume(queue=queue, destination=destination, **options), MessageOk)


def transfers(client: Client) -> list[MessageTransfer]:
    """Return the transfers received; there is no other output."""
    heard = client.heard()
    for method in heard:
        assert isinstance(method, MessageTransfer), heard
    return heard  # type: ignore[return-value]  # Just checked.


def bodies(client: Client) -> list[bytes]:
    return [transfer.body.data for transfer in transfers(client)]


def refused(client: Client, method: MethodBase, channel: int = 1) -> int:
    """The code of the channel's or the connection's close that a method brings about."""
    client.send(method, channel)
    for close in client.heard():
        if isinstance(close, ChannelClose | ConnectionClose):
            return close.reply_code
    raise AssertionError("it is not refused")


def queue(rig: Rig, name: str = "q") -> Queue:
    found: Queue = rig.vhost.queues[name]
    return found


# --- Transfers -----------------------------------------------------------------------------------


def test_a_transfer_says_what_was_said(rig: Rig, client: Client) -> None:
    client.call(ExchangeDeclare(exchange="ex", type="direct"), ExchangeDeclareOk)
    declare(client)
    client.call(QueueBind(queue="q", exchange="ex", routing_key="key"), QueueBindOk)
    sent = MessageTransfer(
        destination="ex",
        ttl=60000,
        priority=7,
        timestamp=datetime(2026, 1, 1, tzinfo=UTC),
        delivery_mode=2,
        routing_key="key",
        message_id="m-1",
        correlation_id="c-1",
        reply_to="answers",
        content_type="text/plain",
        content_encoding="gzip",
        user_id="guest",
        app_id="app",
        transaction_id="t-1",
        security_token=b"\x00\xff",
        application_headers={"color": "red", "n": 5, "x-jms-type": "kind"},
        body=Content(b"body"),
    )
    client.call(sent, MessageOk)
    consume(client, destination="here")
    (got,) = transfers(client)
    assert got == MessageTransfer(
        destination="here",
        ttl=60000,
        priority=7,
        timestamp=datetime(2026, 1, 1, tzinfo=UTC),
        delivery_mode=2,
        expiration=datetime.fromtimestamp(rig.counters.now_ms // 1000 + 60, UTC),
        exchange="ex",
        routing_key="key",
        message_id="m-1",
        correlation_id="c-1",
        reply_to="answers",
        content_type="text/plain",
        content_encoding="gzip",
        user_id="guest",
        app_id="app",
        transaction_id="t-1",
        security_token=b"\x00\xff",
        application_headers={"color": "red", "n": 5, "x-jms-type": "kind"},
        body=Content(b"body"),
    )


def test_a_transfer_that_says_little_gets_its_time_of_arrival(rig: Rig, client: Client) -> None:
    declare(client)
    put(client, b"")
    consume(client)
    (got,) = transfers(client)
    arrived = datetime.fromtimestamp(rig.counters.now_ms // 1000, UTC)
    assert got == MessageTransfer(destination="here", routing_key="q", timestamp=arrived)


def test_class_basic_gets_what_was_transferred(client: Client) -> None:
    declare(client)
    headers = {"n": 1, "x-jms-type": "kind", "x-headrace-cluster-id": "cluster"}
    put(client, b"body", application_headers=headers, ttl=1000, delivery_mode=1, message_id="m")
    client.send(BasicGet(queue="q", no_ack=True))
    (content,) = client.contents()
    assert isinstance(content.method, BasicGetOk)
    assert content.body == b"body"
    _, _, said = decode_content_header(V0_9, content.header)
    assert isinstance(said, BasicProperties)
    assert said.timestamp is not None
    said.timestamp = None
    assert said == BasicProperties(
        headers={"n": 1},
        expiration="1000",
        delivery_mode=1,
        message_id="m",
        type="kind",
        cluster_id="cluster",
    )


@pytest.mark.parametrize(("product", "seen"), [("qpid", [1, "x"]), ("other", {"1": 1, "2": "x"})])
def test_what_class_basic_published_is_transferred(rig: Rig, product: str, seen: object) -> None:
    client = rig.client(V0_9, product=product)
    other = rig.client(V0_9_1)
    declare(client)
    headers = {"a": [1, "x"]}
    other.publish("q", b"body", type="kind", cluster_id="c", headers=headers, priority=3)
    consume(client)
    (got,) = transfers(client)
    assert got == MessageTransfer(
        destination="here",
        routing_key="q",
        priority=3,
        application_headers={"a": seen, "x-jms-type": "kind", "x-headrace-cluster-id": "c"},  # type: ignore[dict-item]
        body=Content(b"body"),
    )


@pytest.mark.rule("0-9/message.transfer.destination#01")
def test_a_blank_destination_is_the_default_exchange(rig: Rig, client: Client) -> None:
    declare(client)
    put(client, b"body", key="q", destination="")
    assert queue(rig).ready_count == 1


@pytest.mark.rule("0-9/message.transfer.destination#02")
def test_an_internal_exchange_refuses_content(rig: Rig, client: Client) -> None:
    client.call(ExchangeDeclare(exchange="inside", type="direct", internal=True), ExchangeDeclareOk)
    sent = MessageTransfer(destination="inside", body=Content(b"x"))
    assert refused(client, sent) == 403


def test_a_destination_that_does_not_exist_is_an_error(client: Client) -> None:
    assert refused(client, MessageTransfer(destination="nowhere")) == 404


@pytest.mark.rule("0-9/message.transfer.immediate#01", "0-9/reject-code#01")
def test_immediate_is_rejected_without_a_ready_consumer(rig: Rig, client: Client) -> None:
    declare(client)
    sent = MessageTransfer(routing_key="q", immediate=True, body=Content(b"now"))
    assert client.call(sent, MessageReject).code == 1
    assert queue(rig).ready_count == 0
    consume(client, no_ack=True)
    client.send(sent)
    answers = client.heard()
    assert [type(method) for method in answers] == [MessageTransfer, MessageOk]


@pytest.mark.rule("0-9/message.transfer#01")
def test_ok_waits_until_the_message_is_where_it_has_to_be(rig: Rig, client: Client) -> None:
    declare(client, durable=True)
    rig.store.appended = 100  # The disk owes what was appended before.
    client.send(MessageTransfer(routing_key="q", delivery_mode=2, body=Content(b"kept")))
    client.send(MessageCancel(destination="nobody"))
    assert client.heard() == []
    rig.store.synced = 100
    rig.turn()
    assert client.heard() == [MessageOk(), MessageOk()]


@pytest.mark.rule("0-9/reject-code#01")
def test_a_full_queue_rejects(rig: Rig, client: Client) -> None:
    declare(client, arguments={"x-max-length": 1, "x-overflow": "reject-publish"})
    put(client, b"fits")
    sent = MessageTransfer(routing_key="q", body=Content(b"does not"))
    assert client.call(sent, MessageReject).code == 0
    assert queue(rig).ready_count == 1


@pytest.mark.rule("0-9/message#06", "0-9/message#07")
def test_priorities_are_levels(client: Client) -> None:
    declare(client)
    for priority in (0, 4, 9, 5, 1):
        put(client, b"%d" % priority, priority=priority)
    consume(client)
    assert bodies(client) == [b"9", b"5", b"0", b"4", b"1"]


@pytest.mark.rule("0-9/message#08")
def test_persistence_does_not_change_the_order(client: Client) -> None:
    declare(client, durable=True)
    modes = (1, 2, 0, 2, 1, 2)
    for number, mode in enumerate(modes):
        put(client, b"%d" % number, delivery_mode=mode)
    consume(client)
    assert bodies(client) == [b"%d" % number for number in range(len(modes))]


def test_a_client_may_stop_the_flow_of_transfers(client: Client) -> None:
    declare(client)
    consume(client, no_ack=True)
    client.call(ChannelFlow(active=False), ChannelFlowOk)
    put(client, b"waits")
    assert bodies(client) == []
    client.send(ChannelFlow(active=True))
    assert {type(method) for method in client.heard()} == {ChannelFlowOk, MessageTransfer}


def test_what_exceeds_a_limit_is_a_dead_letter(rig: Rig, client: Client) -> None:
    declare(client, "dead")
    letters = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}
    declare(client, arguments={**letters, "x-max-length": 1})
    put(client, b"old")
    put(client, b"new")
    consume(client, "dead")
    (got,) = transfers(client)
    assert got.body.data == b"old"
    assert got.application_headers["x-first-death-reason"] == "maxlen"


def test_in_a_transaction_transfers_wait_for_the_commit(rig: Rig, client: Client) -> None:
    declare(client)
    client.call(TxSelect(), TxSelectOk)
    put(client, b"never")
    client.call(TxRollback(), TxRollbackOk)
    put(client, b"once")
    assert queue(rig).ready_count == 0
    client.call(TxCommit(), TxCommitOk)
    assert queue(rig).ready_count == 1
    consume(client)
    assert bodies(client) == [b"once"]
    client.send(MessageOk())
    assert queue(rig).unacked_count == 1
    client.call(TxCommit(), TxCommitOk)
    assert queue(rig).unacked_count == 0


def test_a_user_id_must_be_ones_own(client: Client) -> None:
    declare(client)
    assert refused(client, MessageTransfer(routing_key="q", user_id="somebody")) == 406


# --- Consumers -----------------------------------------------------------------------------------


@pytest.mark.rule("0-9/message#09")
def test_without_acknowledgements_a_message_is_gone_once_it_is_sent(
    rig: Rig, client: Client
) -> None:
    declare(client)
    put(client, b"before")
    consume(client, no_ack=True)
    assert bodies(client) == [b"before"]
    client.send(MessageTransfer(routing_key="q", body=Content(b"after")))
    assert [type(method) for method in client.heard()] == [MessageTransfer, MessageOk]
    assert (queue(rig).ready_count, queue(rig).unacked_count) == (0, 0)
    assert rig.counters.memory_used == 0


@pytest.mark.rule("0-9/message#10")
def test_what_is_not_acknowledged_comes_to_another(rig: Rig, client: Client) -> None:
    declare(client)
    for number in range(4):
        put(client, b"%d" % number)
    consume(client)
    assert len(transfers(client)) == 4
    client.send(MessageOk())
    client.send(MessageOk())
    assert queue(rig).unacked_count == 2
    client.send(ChannelClose())
    other = rig.client(V0_9)
    consume(other)
    got = transfers(other)
    assert [transfer.body.data for transfer in got] == [b"2", b"3"]
    assert all(transfer.redelivered for transfer in got)


def test_a_rejected_transfer_is_a_dead_letter(rig: Rig, client: Client) -> None:
    declare(client, "dead")
    declare(client, arguments={"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"})
    put(client, b"one")
    put(client, b"two")
    consume(client)
    assert len(transfers(client)) == 2
    client.send(MessageReject(code=0, text="no"))
    client.send(MessageOk())
    assert queue(rig).unacked_count == 0
    consume(client, "dead", "there")
    assert bodies(client) == [b"one"]


@pytest.mark.parametrize("answer", [MessageReject(), MessageEmpty(), MessageOffset()])
def test_an_answer_to_nothing_is_an_error(client: Client, answer: MethodBase) -> None:
    assert refused(client, answer) == 503


def test_an_ok_to_nothing_is_ignored(client: Client) -> None:
    client.send(MessageOk())
    declare(client)


@pytest.mark.rule("0-9/message.consume#01")
def test_a_queue_has_many_consumers(rig: Rig, client: Client) -> None:
    declare(client)
    for number in range(64):
        consume(client, destination=f"d{number}", no_ack=True)
    assert queue(rig).consumer_count() == 64
    for _ in range(64):
        client.send(MessageTransfer(routing_key="q", body=Content(b"x")))
    got = [method for method in client.heard() if isinstance(method, MessageTransfer)]
    assert len({transfer.destination for transfer in got}) == 64


@pytest.mark.rule("0-9/message.consume.queue#01", "0-9/message.get.queue#01")
@pytest.mark.parametrize("method", [MessageConsume(destination="d"), MessageGet(destination="d")])
def test_without_a_name_there_must_be_a_queue_declared_before(rig: Rig, method: MethodBase) -> None:
    client = rig.client(V0_9)
    assert refused(client, method) == 530
    client = rig.client(V0_9)
    declare(client)
    client.send(method)
    assert isinstance(client.heard()[0], MessageOk | MessageEmpty)


@pytest.mark.rule("0-9/message.consume.destination#01")
def test_a_destination_is_used_once(client: Client) -> None:
    declare(client)
    consume(client, destination="d")
    assert refused(client, MessageConsume(queue="q", destination="d")) == 530


@pytest.mark.rule("0-9/message.consume.destination#02")
def test_a_destination_is_its_channels_own(client: Client) -> None:
    declare(client)
    client.send(ChannelOpen(), 2)
    client.events.clear()
    consume(client, destination="d")
    assert refused(client, MessageCancel(destination="d"), 2) == 530


@pytest.mark.rule("0-9/message.consume.exclusive#01")
def test_a_queue_with_consumers_is_not_had_alone(rig: Rig, client: Client) -> None:
    declare(client)
    consume(client)
    other = rig.client(V0_9)
    assert refused(other, MessageConsume(queue="q", destination="d", exclusive=True)) == 403
    client.call(MessageCancel(destination="here"), MessageOk)
    third = rig.client(V0_9)
    consume(third, exclusive=True)
    assert refused(client, MessageConsume(queue="q", destination="d")) == 403
    assert refused(rig.client(V0_9), MessageGet(queue="q", destination="d")) == 403


def test_no_local_keeps_ones_own_messages_away(rig: Rig, client: Client) -> None:
    declare(client)
    consume(client, no_local=True, no_ack=True)
    put(client, b"own")
    put(rig.client(V0_9), b"another's")
    assert bodies(client) == [b"another's"]


@pytest.mark.rule("0-9/message.cancel#01")
def test_a_cancel_is_answered_whether_or_not_the_queue_is_there(client: Client) -> None:
    declare(client)
    consume(client)
    client.call(QueueDelete(queue="q"), QueueDeleteOk)
    client.call(MessageCancel(destination="here"), MessageOk)
    client.call(MessageCancel(destination="never"), MessageOk)


def test_a_cancelled_consumer_keeps_what_it_has(rig: Rig, client: Client) -> None:
    declare(client)
    put(client, b"held")
    consume(client)
    assert bodies(client) == [b"held"]
    client.call(MessageCancel(destination="here"), MessageOk)
    put(client, b"waits")
    assert (queue(rig).ready_count, queue(rig).unacked_count) == (1, 1)
    client.send(MessageOk())
    assert queue(rig).unacked_count == 0


def test_a_message_is_got(rig: Rig, client: Client) -> None:
    declare(client)
    client.call(MessageGet(queue="q", destination="d"), MessageEmpty)
    put(client, b"one")
    put(client, b"two")
    client.send(MessageGet(queue="q", destination="d", no_ack=True))
    first, answer = client.heard()
    assert isinstance(first, MessageTransfer)
    assert (first.destination, first.body.data, answer) == ("d", b"one", MessageOk())
    client.send(MessageGet(queue="q", destination="d"))
    client.events.clear()
    assert queue(rig).unacked_count == 1
    client.send(MessageOk())
    assert (queue(rig).ready_count, queue(rig).unacked_count) == (0, 0)


def test_a_stream_is_not_for_the_message_class(rig: Rig, client: Client) -> None:
    declare(client, "s", durable=True, arguments={"x-queue-type": "stream"})
    assert refused(client, MessageConsume(queue="s", destination="d")) == 540
    assert refused(rig.client(V0_9), MessageGet(queue="s", destination="d")) == 540


@pytest.mark.rule("0-9/message.recover#01")
@pytest.mark.parametrize("requeue", [True, False])
def test_what_is_recovered_is_marked_redelivered(rig: Rig, client: Client, requeue: bool) -> None:
    declare(client)
    put(client, b"one")
    put(client, b"two")
    consume(client)
    assert len(transfers(client)) == 2
    client.send(MessageRecover(requeue=requeue))
    *again, answer = client.heard()
    assert isinstance(answer, MessageOk)
    assert [t.redelivered for t in again if isinstance(t, MessageTransfer)] == [True, True]
    client.send(MessageOk())
    client.send(MessageOk())
    assert queue(rig).unacked_count == 0


@pytest.mark.rule("0-9/message.recover#02")
def test_recover_is_not_for_transacted_channels(client: Client) -> None:
    client.call(TxSelect(), TxSelectOk)
    assert refused(client, MessageRecover()) == 406


@pytest.mark.rule("0-9/message.qos.prefetch-size#01", "0-9/message.qos.prefetch-count#01")
def test_prefetching_is_limited_but_never_to_nothing(rig: Rig, client: Client) -> None:
    declare(client)
    client.call(MessageQos(prefetch_size=10, prefetch_count=3), MessageOk)
    for size in (100, 6, 4, 1):
        put(client, b"x" * size)
    consume(client)
    assert [len(body) for body in bodies(client)] == [100]
    client.send(MessageOk())
    assert [len(body) for body in bodies(client)] == [6, 4]
    put(client, b"xx")
    assert bodies(client) == []
    put(client, b"xxx")
    client.send(MessageOk())
    assert [len(body) for body in bodies(client)] == [1, 2]


def test_prefetching_may_be_limited_for_the_whole_connection(client: Client) -> None:
    declare(client)
    client.call(MessageQos(prefetch_count=1, global_=True), MessageOk)
    put(client, b"one")
    put(client, b"two")
    consume(client)
    assert bodies(client) == [b"one"]
    consume(client, destination="automatic", no_ack=True)
    assert bodies(client) == [b"two"]


# --- References ----------------------------------------------------------------------------------

NAME = b"ref"


def opened(client: Client, *pieces: bytes, name: bytes = NAME) -> None:
    client.call(MessageOpen(reference=name), MessageOk)
    for piece in pieces:
        client.call(MessageAppend(reference=name, data=piece), MessageOk)


def referred(**fields: Any) -> MessageTransfer:
    return MessageTransfer(routing_key="q", body=Content(NAME, is_reference=True), **fields)


@pytest.mark.rule("0-9/message.close#01")
def test_a_transfer_by_reference_is_answered_when_the_reference_is_closed(
    rig: Rig, client: Client
) -> None:
    declare(client)
    opened(client, b"one ")
    client.send(referred())
    assert client.heard() == []
    client.call(MessageAppend(reference=NAME, data=b"two"), MessageOk)
    assert queue(rig).ready_count == 0
    client.send(MessageClose(reference=NAME))
    assert client.heard() == [MessageOk(), MessageOk()]
    consume(client)
    assert bodies(client) == [b"one two"]


def test_several_transfers_may_refer_to_one_body(rig: Rig, client: Client) -> None:
    declare(client)
    opened(client, b"body")
    client.send(referred(message_id="a"))
    client.send(referred(message_id="b"))
    client.send(MessageClose(reference=NAME))
    assert client.heard() == [MessageOk()] * 3
    consume(client)
    assert [(t.message_id, t.body.data) for t in transfers(client)] == [
        ("a", b"body"),
        ("b", b"body"),
    ]


@pytest.mark.rule("0-9/message.open.reference#01")
def test_an_open_reference_is_not_opened_again(client: Client) -> None:
    opened(client)
    assert refused(client, MessageOpen(reference=NAME)) == 530


@pytest.mark.rule("0-9/message.resume.reference#01")
def test_an_open_reference_is_not_resumed(client: Client) -> None:
    opened(client)
    assert refused(client, MessageResume(reference=NAME, identifier="id")) == 530


@pytest.mark.rule("0-9/message.close.reference#01", "0-9/message.append.reference#01")
@pytest.mark.rule("0-9/message.checkpoint.reference#01")
@pytest.mark.parametrize(
    "method",
    [
        MessageClose(reference=NAME),
        MessageAppend(reference=NAME, data=b"x"),
        MessageCheckpoint(reference=NAME, identifier="id"),
        referred(),
    ],
    ids=lambda method: method.NAME,
)
def test_a_reference_that_is_not_open_is_an_error(rig: Rig, method: MethodBase) -> None:
    assert refused(rig.client(V0_9), method) == 530
    client = rig.client(V0_9)
    opened(client)
    client.send(MessageClose(reference=NAME))
    client.events.clear()
    assert refused(client, method) == 530
    other = rig.client(V0_9)
    other.send(ChannelOpen(), 2)
    other.events.clear()
    opened(other)
    assert refused(other, method, 2) == 530


def test_referenced_bodies_are_bounded(rig: Rig, client: Client) -> None:
    opened(client)
    piece = b"x" * 100_000
    for _ in range(BODY_MAX // len(piece)):
        client.call(MessageAppend(reference=NAME, data=piece), MessageOk)
    assert rig.counters.memory_used > BODY_MAX - len(piece)
    assert refused(client, MessageAppend(reference=NAME, data=piece)) == 311
    assert rig.counters.memory_used == 0


def test_open_references_are_bounded(rig: Rig, client: Client) -> None:
    for number in range(REFERENCES_MAX):
        opened(client, name=b"%d" % number)
    assert refused(client, MessageOpen(reference=NAME)) == 506


def test_a_channel_that_closes_takes_its_references_along(rig: Rig, client: Client) -> None:
    opened(client, b"x" * 1000)
    assert rig.counters.memory_used == 1000
    client.send(ChannelClose())
    assert rig.counters.memory_used == 0


@pytest.mark.parametrize("size", [3000, 4079, 4080, 50_000, 300_000])
def test_a_body_too_large_for_a_frame_comes_by_reference(rig: Rig, size: int) -> None:
    client = rig.client(V0_9, frame_max=4096)
    sender = rig.client(V0_9_1)
    declare(client)
    body = bytes(range(250)) * (size // 250) + b"x" * (size % 250)
    sender.publish("q", body)
    consume(client)
    heard = client.heard()
    (transfer,) = [method for method in heard if isinstance(method, MessageTransfer)]
    if not transfer.body.is_reference:
        assert size < 4079
        assert transfer.body.data == body
        return
    assert isinstance(heard[0], MessageOpen)
    assert isinstance(heard[-1], MessageClose)
    assert heard[0].reference == heard[-1].reference == transfer.body.data
    pieces = [method.data for method in heard if isinstance(method, MessageAppend)]
    assert b"".join(pieces) == body
    for _ in heard[:-1]:
        client.send(MessageOk())
    assert queue(rig).unacked_count == 1
    client.send(MessageOk())
    assert queue(rig).unacked_count == 0


def test_a_transfer_by_reference_may_be_rejected(rig: Rig) -> None:
    client = rig.client(V0_9, frame_max=4096)
    declare(client)
    opened(client, *[b"x" * 4000] * 3)
    client.send(referred())
    client.send(MessageClose(reference=NAME))
    client.events.clear()
    put(client, b"small")
    consume(client)
    asked = len(client.heard())
    for _ in range(asked - 2):
        client.send(MessageOk())
    assert queue(rig).unacked_count == 2
    client.send(MessageReject())
    client.send(MessageOk())
    assert queue(rig).unacked_count == 0


def test_a_body_resumes_from_its_checkpoint_after_a_lost_connection(
    rig: Rig, client: Client
) -> None:
    declare(client)
    opened(client, b"first ", b"second ")
    client.call(MessageCheckpoint(reference=NAME, identifier="id"), MessageOk)
    client.call(MessageAppend(reference=NAME, data=b"lost"), MessageOk)
    client.end()
    client = rig.client(V0_9)
    resumed = MessageResume(reference=NAME, identifier="id")
    assert client.call(resumed, MessageOffset).value == len(b"first second ")
    client.call(MessageAppend(reference=NAME, data=b"third"), MessageOk)
    client.send(referred())
    client.send(MessageClose(reference=NAME))
    assert client.heard() == [MessageOk(), MessageOk()]
    consume(client)
    assert bodies(client) == [b"first second third"]
    assert len(checkpoints_in(rig)) == 0


def test_a_checkpoint_is_kept_for_a_bounded_time(rig: Rig, client: Client) -> None:
    opened(client, b"piece")
    client.call(MessageCheckpoint(reference=NAME, identifier="id"), MessageOk)
    client.end()
    rig.pass_time(CHECKPOINT_KEEP_MS - 1)
    assert len(checkpoints_in(rig)) == 1
    rig.pass_time(1)
    assert len(checkpoints_in(rig)) == checkpoints_in(rig).total_bytes == 0
    client = rig.client(V0_9)
    resumed = MessageResume(reference=NAME, identifier="id")
    assert client.call(resumed, MessageOffset).value == 0


def test_the_last_checkpoint_counts_and_takes_what_there_is_room_for(
    rig: Rig, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headrace.gateway.v0_x.early.references.CHECKPOINT_BYTES_MAX", 8)
    opened(client, b"12345")
    client.call(MessageCheckpoint(reference=NAME, identifier="id"), MessageOk)
    client.call(MessageAppend(reference=NAME, data=b"67890"), MessageOk)
    client.call(MessageCheckpoint(reference=NAME, identifier="id"), MessageOk)
    assert checkpoints_in(rig).total_bytes == 8
    client.end()
    client = rig.client(V0_9)
    resumed = MessageResume(reference=NAME, identifier="id")
    assert client.call(resumed, MessageOffset).value == 8


# --- Tickets -------------------------------------------------------------------------------------

NEEDS_TICKETS = [
    pytest.param(
        MessageTransfer(routing_key="q"),
        "read",
        marks=pytest.mark.rule("0-9/message.transfer.ticket#01"),
    ),
    pytest.param(
        MessageConsume(queue="q", destination="d"),
        "write",
        marks=pytest.mark.rule("0-9/message.consume.ticket#01"),
    ),
    pytest.param(
        MessageGet(queue="q", destination="d"),
        "write",
        marks=pytest.mark.rule("0-9/message.get.ticket#01"),
    ),
]


@pytest.mark.parametrize(("method", "right"), NEEDS_TICKETS)
def test_a_ticket_must_give_the_right(
    method: MessageTransfer | MessageConsume | MessageGet, right: str
) -> None:
    rig = Rig(offers=Offers(realms={"/data": lambda name: True}))
    client = rig.client(V0_9)
    declare(client)
    asked = AccessRequest(realm="/data", **{right: True})
    method.ticket = client.call(asked, AccessRequestOk).ticket
    assert refused(client, method) == 403
    client = rig.client(V0_9)
    method.ticket = 4711
    assert refused(client, method) == 403
    client = rig.client(V0_9)
    asked = AccessRequest(realm="/data", read=True, write=True)
    method.ticket = client.call(asked, AccessRequestOk).ticket
    client.send(method)
    assert isinstance(client.heard()[0], MessageOk | MessageEmpty)


# --- What cannot be said -------------------------------------------------------------------------


def test_headers_too_large_for_a_frame_make_a_dead_letter(rig: Rig) -> None:
    client = rig.client(V0_9, frame_max=4096)
    sender = rig.client(V0_9_1)
    declare(client, "dead")
    declare(client, arguments={"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"})
    sender.publish("q", b"body", headers={"long": "x" * 5000})
    consume(client)
    put(client, b"next")
    assert bodies(client) == [b"next"]
    sender.send(BasicGet(queue="dead", no_ack=True))
    (content,) = sender.contents()
    _, _, properties = decode_content_header(V0_9_1, content.header)
    assert isinstance(properties, BasicProperties)
    assert properties.headers is not None
    assert "exceeds" in str(properties.headers["x-conversion-error"])
