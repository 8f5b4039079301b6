# SPDX-License-Identifier: Apache-2.0
"""The channel and connection classes once the handshake is over, over a socket."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pika
import pytest

from headrace.protocol.codec_0_x import (
    BasicCancel,
    BasicDeliver,
    BasicGet,
    BasicGetEmpty,
    ChannelClose,
    ChannelCloseOk,
    ChannelFlow,
    ChannelFlowOk,
    ChannelOpen,
    ConnectionClose,
    ConnectionCloseOk,
    ConnectionOpen,
    ConnectionOpenOk,
    ConnectionStart,
    ConnectionTune,
    ConnectionTuneOk,
    QueueDelete,
    QueueDeleteOk,
)
from headrace.spec.tables import V0_8, V0_9, V0_9_1, Version
from headrace.testing.raw_client import RawClient, start_ok
from headrace.wire.frame import FRAME_HEARTBEAT, encode_frame
from support.brokers.broker_process import Served, undisturbed, until

if TYPE_CHECKING:
    from pika.adapters.blocking_connection import BlockingChannel, BlockingConnection

Client = Callable[[], RawClient]


@pytest.mark.rule("0-9-1/s010", "0-9-1/s011")
def test_what_the_broker_says_of_itself(served: Served) -> None:
    with RawClient(served.host, served.port) as raw:
        start = raw.greet()
        assert isinstance(start, ConnectionStart)
        assert (start.version_major, start.version_minor) == (0, 9)
        assert b"en_US" in bytes(start.locales).split()
        assert set(bytes(start.mechanisms).split()) >= {b"PLAIN", b"AMQPLAIN"}
        properties = start.server_properties
        assert properties["product"] == "Headrace"
        assert {"version", "platform", "copyright", "information"} <= set(properties)
        assert properties["capabilities"] == {
            "publisher_confirms": True,
            "exchange_exchange_bindings": True,
            "basic.nack": True,
            "consumer_cancel_notify": True,
            "connection.blocked": True,
            "consumer_priorities": True,
            "authentication_failure_close": True,
            "per_consumer_qos": True,
            "direct_reply_to": True,
            "stream_offset_query": True,
            "stream_ranges": True,
            "connection.update_secret": True,
        }


@pytest.mark.rule("0-9-1/channel.flow#01", "0-9-1/channel.flow#02")
def test_flow_pauses_deliveries(talk: Client, name: str) -> None:
    client = talk().with_queue(name, exclusive=True)
    client.channel(2)
    assert client.call(ChannelFlow(active=False), ChannelFlowOk).active is False
    client.consume(name)
    client.publish(name, b"1", b"2")
    assert client.count(name, channel=2) == 2
    assert client.get(name) == b"1"  # What was asked for comes nevertheless.
    client.send(ChannelFlow(active=True))
    heard = {type(client.next()[1]).__name__ for _ in range(2)}
    assert heard == {"ChannelFlowOk", "Content"}
    client.publish(name, b"3")
    assert client.content(BasicDeliver)[1] == b"3"
    client.call(ChannelFlow(active=False), ChannelFlowOk)
    client.publish(name, b"4")
    assert client.silent()
    assert client.count(name) == 1


def test_flow_of_one_channel_leaves_the_others(talk: Client, name: str) -> None:
    client = talk().with_queue(name, exclusive=True)
    client.channel(2)
    client.call(ChannelFlow(active=False), ChannelFlowOk)
    client.consume(name, "paused")
    client.consume(name, "going", channel=2, no_ack=True)
    client.publish(name, b"1", b"2")
    assert [client.content(BasicDeliver, 2)[1] for _ in range(2)] == [b"1", b"2"]


@pytest.mark.rule("0-9-1/channel.open#01")
def test_a_channel_is_opened_once(talk: Client) -> None:
    client = talk()
    client.send(ChannelOpen())
    closed = client.expect_connection_close()
    assert (closed.code, closed.text) == (504, "CHANNEL_ERROR - second 'channel.open' seen")


def test_a_closed_channel_may_be_opened_again(talk: Client, name: str) -> None:
    client = talk()
    for _ in range(3):
        client.declare(name, exclusive=True)
        client.publish(name, b"x")
        client.send(BasicGet(queue=name))
        client.next()
        client.call(ChannelClose(reply_code=200), ChannelCloseOk)
        client.channel(1)
    assert client.count(name) == 3


def test_channels_of_one_connection_are_apart(talk: Client, name: str) -> None:
    client = talk()
    for number in range(2, 200):
        client.channel(number)
    client.declare(name, exclusive=True, channel=199)
    client.send(BasicGet(queue="missing"), channel=7)
    assert client.expect_channel_close(7).code == 404
    client.call(BasicGet(queue=name), BasicGetEmpty, channel=198)


@pytest.mark.parametrize("version", [V0_8, V0_9, V0_9_1], ids=str)
def test_channels_are_counted_whatever_their_numbers(served: Served, version: Version) -> None:
    with RawClient(served.host, served.port, version) as raw:
        raw.log_in()
        raw.send(ConnectionTuneOk(channel_max=3, frame_max=4096))
        raw.send(ConnectionOpen(virtual_host="/"))
        raw.expect(ConnectionOpenOk)
        for number in (65535, 7, 4000):
            raw.channel(number)
        raw.send(ChannelClose(reply_code=200), 7)
        raw.expect(ChannelCloseOk, 7)
        raw.channel(1)
        raw.send(ChannelOpen(), 2)
        closed = raw.expect_connection_close()
    assert closed.code == 530
    assert closed.text == (
        "NOT_ALLOWED - number of channels opened (3) has reached the negotiated channel_max (3)"
    )


@pytest.mark.rule("0-9-1/connection.close#01")
def test_the_client_closes(talk: Client) -> None:
    client = talk()
    client.call(ConnectionClose(reply_code=200, reply_text="bye"), ConnectionCloseOk, channel=0)
    assert client.hung_up()


def test_a_heartbeat_is_sent_when_there_is_nothing_else(served: Served) -> None:
    with RawClient(served.host, served.port) as raw:
        tune = raw.log_in()
        assert isinstance(tune, ConnectionTune)
        assert tune.heartbeat == 60
        raw.send(ConnectionTuneOk(channel_max=10, frame_max=4096, heartbeat=1))
        raw.send(ConnectionOpen(virtual_host="/"))
        raw.expect(ConnectionOpenOk)
        frame = raw.frame()
        assert frame == (FRAME_HEARTBEAT, 0, b"")


def test_a_silent_peer_is_dropped_and_a_beating_one_kept(served: Served) -> None:
    def silence_and_beats(in_time: Callable[[], None]) -> None:
        with (
            RawClient(served.host, served.port) as silent,
            RawClient(served.host, served.port) as beating,
        ):
            for raw in (silent, beating):
                raw.log_in()
                raw.send(ConnectionTuneOk(channel_max=10, frame_max=4096, heartbeat=2))
                raw.send(ConnectionOpen(virtual_host="/"))
                raw.expect(ConnectionOpenOk)
            heartbeat = encode_frame(FRAME_HEARTBEAT, 0, b"")
            beats = 0
            while (frame := silent.frame()) is not None:
                assert frame[0] == FRAME_HEARTBEAT
                beats += 1
                assert beats < 20
                beating.send_bytes(heartbeat)
                in_time()
            beating.channel(1)

    undisturbed(silence_and_beats, 2)


def test_no_heartbeat_when_the_client_wants_none(served: Served) -> None:
    with RawClient(served.host, served.port) as raw:
        raw.open_connection().channel(1)


def test_smaller_frames_are_agreed_on(served: Served, name: str) -> None:
    body = bytes(range(256)) * 200
    with RawClient(served.host, served.port) as raw:
        raw.log_in()
        raw.send(ConnectionTuneOk(channel_max=10, frame_max=4096, heartbeat=0))
        raw.send(ConnectionOpen(virtual_host="/"))
        raw.expect(ConnectionOpenOk)
        small = raw.channel(1)
        small.declare(name)
        large = RawClient(served.host, served.port).open()
        large.publish(name, body)
        until(lambda: large.count(name) == 1, "it is there")
        small.send(BasicGet(queue=name, no_ack=True))
        got = b""
        while len(got) < len(body):
            frame = raw.frame()
            assert frame is not None
            assert len(frame[2]) <= 4096 - 8
            if frame[0] == 3:
                got += frame[2]
        assert got == body
        large.call(QueueDelete(queue=name), QueueDeleteOk)
        large.drop()


def test_consumers_hear_of_a_deleted_queue(
    connection: BlockingConnection, channel: BlockingChannel, name: str
) -> None:
    told: list[str] = []
    channel.queue_declare(name)
    channel.add_on_cancel_callback(lambda frame: told.append(frame.method.consumer_tag))
    channel.basic_consume(name, lambda *_: None, consumer_tag="mine")
    connection.channel().queue_delete(name)
    until(lambda: connection.process_data_events(0) or told, "the consumer is told")
    assert told == ["mine"]


def test_who_did_not_ask_is_not_told(served: Served, name: str) -> None:
    with RawClient(served.host, served.port) as raw:
        client = raw.open_connection().channel(1)
        client.declare(name)
        client.consume(name)
        client.call(QueueDelete(queue=name), QueueDeleteOk)
        client.declare(name, exclusive=True)  # No basic.cancel came in between.


def test_who_asked_is_told(served: Served, name: str) -> None:
    with RawClient(served.host, served.port) as raw:
        raw.send_bytes(V0_9_1.header)
        raw.expect(ConnectionStart)
        login = start_ok()
        login.client_properties = {"capabilities": {"consumer_cancel_notify": True}}
        raw.send(login, 0)
        tune = raw.expect(ConnectionTune)
        raw.send(ConnectionTuneOk(channel_max=tune.channel_max, frame_max=tune.frame_max))
        raw.send(ConnectionOpen(virtual_host="/"))
        raw.expect(ConnectionOpenOk)
        client = raw.channel(1)
        client.declare(name)
        client.consume(name, "mine")
        client.send(QueueDelete(queue=name))
        heard = [client.next()[1] for _ in range(2)]
        (cancel,) = [one for one in heard if isinstance(one, BasicCancel)]
        assert (cancel.consumer_tag, cancel.no_wait) == ("mine", True)


def test_sender_selected_distribution(channel: BlockingChannel, name: str) -> None:
    queues = [f"{name}-{n}" for n in range(4)]
    for queue in queues:
        channel.queue_declare(queue, exclusive=True)
    headers: dict[str, Any] = {"CC": queues[1:2], "BCC": queues[2:3], "other": 1}
    channel.basic_publish("", queues[0], b"x", pika.BasicProperties(headers=headers))
    channel.basic_publish("", queues[0], b"y")
    for queue in queues[:3]:
        method, properties, body = channel.basic_get(queue, auto_ack=True)
        assert (body, method.routing_key) == (b"x", queues[0])
        assert properties.headers == {"CC": queues[1:2], "other": 1}
    assert channel.basic_get(queues[3], auto_ack=True)[0] is None
    assert channel.basic_get(queues[1], auto_ack=True)[0] is None


def test_direct_reply_to(connection: BlockingConnection, connect: Any, name: str) -> None:
    asking = connection.channel()
    answers: list[bytes] = []
    asking.basic_consume("amq.rabbitmq.reply-to", lambda *a: answers.append(a[3]), auto_ack=True)
    serving = connect().channel()
    serving.queue_declare(name, exclusive=True)
    asking.basic_publish(
        "", name, b"question", pika.BasicProperties(reply_to="amq.rabbitmq.reply-to")
    )
    until(
        lambda: serving.queue_declare(name, passive=True).method.message_count == 1, "it is there"
    )
    _, properties, _ = serving.basic_get(name, auto_ack=True)
    assert properties.reply_to.startswith("amq.rabbitmq.reply-to.")
    serving.basic_publish("", properties.reply_to, b"answer")
    until(lambda: connection.process_data_events(0) or answers, "the answer comes")
    assert answers == [b"answer"]


def test_a_single_active_consumer(talk: Client, name: str) -> None:
    client, other = talk(), talk()
    client.declare(name, arguments={"x-single-active-consumer": True})
    client.consume(name, "first", no_ack=True)
    other.consume(name, "second", no_ack=True)
    client.publish(name, *[b"%d" % n for n in range(4)])
    assert [client.content(BasicDeliver)[1] for _ in range(4)] == [b"0", b"1", b"2", b"3"]
    client.call(ChannelClose(), ChannelCloseOk)
    client.channel(1)
    client.publish(name, b"4")
    assert other.content(BasicDeliver)[1] == b"4"
    other.call(QueueDelete(queue=name), QueueDeleteOk)


def test_sender_selected_distribution_in_a_transaction(channel: BlockingChannel, name: str) -> None:
    queues = [f"{name}-{n}" for n in range(3)]
    for queue in queues:
        channel.queue_declare(queue, exclusive=True)
    channel.tx_select()
    headers: dict[str, Any] = {"CC": queues[:1], "BCC": queues[1:]}
    channel.basic_publish("", "nowhere", b"x", pika.BasicProperties(headers=headers))
    assert channel.basic_get(queues[1])[0] is None
    channel.tx_commit()
    for queue in queues:
        _, properties, body = channel.basic_get(queue, auto_ack=True)
        assert (body, properties.headers) == (b"x", {"CC": queues[:1]})


@pytest.mark.parametrize("header", ["CC", "BCC"])
def test_copies_are_an_array(channel: BlockingChannel, name: str, header: str) -> None:
    properties = pika.BasicProperties(headers={header: name})
    channel.basic_publish("", name, b"x", properties)
    with pytest.raises(pika.exceptions.ChannelClosedByBroker) as caught:
        channel.queue_declare(name, exclusive=True)
    assert caught.value.reply_code == 406
    assert caught.value.reply_text.startswith("PRECONDITION_FAILED - invalid message: ")
