# SPDX-License-Identifier: Apache-2.0
"""pika's blocking connection: what most Python programs meet first."""

from __future__ import annotations

import threading
from datetime import UTC, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pika
import pika.exceptions
import pytest
from pika import BasicProperties

from support.brokers.broker_process import undisturbed, until
from support.timeouts import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pika.adapters.blocking_connection import BlockingChannel

    from support.brokers.broker_process import Remote, Served

    Broker = Served | Remote


def connect(broker: Broker, query: str = "") -> pika.BlockingConnection:
    return pika.BlockingConnection(pika.URLParameters(broker.url + query))


@pytest.fixture
def connection(broker: Broker) -> Iterator[pika.BlockingConnection]:
    with connect(broker) as connection:
        yield connection


@pytest.fixture
def channel(connection: pika.BlockingConnection) -> BlockingChannel:
    return connection.channel()


@pytest.fixture
def queue(channel: BlockingChannel, name: str) -> str:
    channel.queue_declare(name, exclusive=True)
    return name


def pump(connection: pika.BlockingConnection, done: object, wanted: str) -> None:
    """Let pika process events until the callable is true."""

    def step() -> object:
        connection.process_data_events(0.01)
        return done()  # type: ignore[operator]  # a callable of any result

    until(step, wanted, PATIENCE_S)


def take(channel: BlockingChannel, queue: str) -> tuple[Any, BasicProperties, bytes]:
    """Get one message that must come."""
    return until(lambda: some(channel.basic_get(queue)), f"a message in {queue}")  # type: ignore[return-value]


def some(answer: tuple[Any, Any, bytes]) -> tuple[Any, Any, bytes] | None:
    return answer if answer[0] is not None else None


def test_server_properties_name_what_clients_look_for(connection):
    assert connection.publisher_confirms_supported
    assert connection.basic_nack_supported
    assert connection.consumer_cancel_notify_supported
    assert connection.exchange_exchange_bindings_supported
    properties = connection._impl.server_properties
    assert {"product", "version", "platform", "copyright", "information"} <= properties.keys()
    assert properties["cluster_name"]
    capabilities = properties["capabilities"]
    for wanted in (
        "publisher_confirms",
        "exchange_exchange_bindings",
        "basic.nack",
        "consumer_cancel_notify",
        "connection.blocked",
        "consumer_priorities",
        "authentication_failure_close",
        "per_consumer_qos",
        "direct_reply_to",
    ):
        assert capabilities[wanted] is True, wanted


def test_confirmed_publish_then_get(channel, queue):
    channel.confirm_delivery()
    channel.basic_publish("", queue, b"body", BasicProperties(delivery_mode=2))
    method, properties, body = channel.basic_get(queue)
    assert (body, properties.delivery_mode) == (b"body", 2)
    assert (method.exchange, method.routing_key) == ("", queue)
    assert (method.redelivered, method.message_count) == (False, 0)
    channel.basic_ack(method.delivery_tag)
    assert channel.basic_get(queue) == (None, None, None)


def test_every_property_and_table_type_returns_as_sent(channel, queue):
    sent = BasicProperties(
        content_type="application/json",
        content_encoding="gzip",
        headers={
            "text": "naïve ☃",
            "bytes": b"\x00\xff",
            "yes": True,
            "small": -3,
            "large": 2**40,
            "price": Decimal("12.34"),
            "when": datetime(2024, 2, 29, 12, 0, tzinfo=UTC),
            "nothing": None,
            "list": [1, "two", [3, {"four": 4}]],
            "table": {"inner": {"deep": "x"}},
        },
        delivery_mode=2,
        priority=5,
        correlation_id="c-1",
        reply_to="answers",
        expiration="60000",
        message_id="m-1",
        timestamp=1700000000,
        type="order",
        user_id="guest",
        app_id="interop",
        cluster_id="here",
    )
    channel.basic_publish("", queue, b"", sent)
    _, received, body = take(channel, queue)
    assert body == b""
    assert received.__dict__ == sent.__dict__


@pytest.mark.parametrize("size", [1, 131_064, 131_065, 5_000_000])
def test_bodies_of_any_size(channel, queue, size):
    body = bytes(range(256)) * (size // 256 + 1)
    channel.confirm_delivery()
    channel.basic_publish("", queue, body[:size])
    method, _, received = channel.basic_get(queue)
    assert received == body[:size]
    channel.basic_ack(method.delivery_tag)


def test_unroutable_mandatory_message_is_returned(channel, name):
    channel.confirm_delivery()
    with pytest.raises(pika.exceptions.UnroutableError) as raised:
        channel.basic_publish("", name, b"lost", BasicProperties(message_id="7"), mandatory=True)
    (returned,) = raised.value.messages
    assert (returned.method.reply_code, returned.method.reply_text) == (312, "NO_ROUTE")
    assert (returned.method.exchange, returned.method.routing_key) == ("", name)
    assert (returned.properties.message_id, returned.body) == ("7", b"lost")


def test_return_callback_without_confirms(connection, channel, name):
    returned = []
    channel.add_on_return_callback(lambda *answer: returned.append(answer))
    channel.basic_publish("amq.topic", name, b"lost", mandatory=True)
    pump(connection, lambda: returned, "a returned message")
    _, method, _, body = returned[0]
    assert (method.reply_code, method.exchange, body) == (312, "amq.topic", b"lost")


def test_a_full_queue_that_rejects_nacks_the_publisher(channel, name):
    arguments = {"x-max-length": 1, "x-overflow": "reject-publish"}
    channel.queue_declare(name, exclusive=True, arguments=arguments)
    channel.confirm_delivery()
    channel.basic_publish("", name, b"first")
    with pytest.raises(pika.exceptions.NackError):
        channel.basic_publish("", name, b"second")
    assert take(channel, name)[2] == b"first"


def test_consumer_gets_no_more_than_its_prefetch(connection, channel, queue):
    for number in range(5):
        channel.basic_publish("", queue, str(number).encode())
    channel.basic_qos(prefetch_count=2)
    got = []
    channel.basic_consume(queue, lambda ch, method, _, body: got.append((method, body)))
    pump(connection, lambda: len(got) == 2, "two deliveries")
    assert channel.queue_declare(queue, passive=True).method.message_count == 3
    assert [body for _, body in got] == [b"0", b"1"]
    channel.basic_ack(got[1][0].delivery_tag, multiple=True)
    pump(connection, lambda: len(got) == 4, "two more")
    channel.basic_ack(0, multiple=True)
    pump(connection, lambda: len(got) == 5, "the last one")
    assert [method.delivery_tag for method, _ in got] == [1, 2, 3, 4, 5]


def test_channel_wide_prefetch_is_shared_by_consumers(connection, channel, queue):
    for _ in range(6):
        channel.basic_publish("", queue, b"x")
    channel.basic_qos(prefetch_count=3, global_qos=True)
    got = []
    for _ in range(2):
        channel.basic_consume(queue, lambda ch, method, _, body: got.append(method))
    pump(connection, lambda: len(got) == 3, "three deliveries over both consumers")
    assert channel.queue_declare(queue, passive=True).method.message_count == 3


def test_consume_generator_and_cancel_give_back_what_was_not_taken(channel, queue):
    for number in range(4):
        channel.basic_publish("", queue, str(number).encode())
    taken = []
    for method, _, body in channel.consume(queue, inactivity_timeout=PATIENCE_S):
        taken.append(body)
        channel.basic_ack(method.delivery_tag)
        if len(taken) == 2:
            break
    channel.cancel()
    assert taken == [b"0", b"1"]
    method, _, body = take(channel, queue)
    assert body == b"2"
    assert method.message_count == 1


def test_nack_with_requeue_returns_messages_to_their_places(channel, queue):
    for number in range(3):
        channel.basic_publish("", queue, str(number).encode())
    tags = [take(channel, queue)[0].delivery_tag for _ in range(3)]
    channel.basic_nack(tags[-1], multiple=True, requeue=True)
    again = [take(channel, queue) for _ in range(3)]
    assert [body for _, _, body in again] == [b"0", b"1", b"2"]
    assert all(method.redelivered for method, _, _ in again)


def test_rejected_message_is_dead_lettered_with_its_history(channel, queue, name):
    dead = name + ".dead"
    channel.queue_declare(dead, exclusive=True)
    source = name + ".source"
    arguments = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": dead}
    channel.queue_declare(source, exclusive=True, arguments=arguments)
    channel.basic_publish("", source, b"bad", BasicProperties(headers={"mine": 1}))
    method, _, _ = take(channel, source)
    channel.basic_reject(method.delivery_tag, requeue=False)
    _, properties, body = take(channel, dead)
    assert body == b"bad"
    (death,) = properties.headers["x-death"]
    assert death["queue"] == source
    assert death["reason"] == "rejected"
    assert death["exchange"] == ""
    assert death["routing-keys"] == [source]
    assert death["count"] == 1
    assert isinstance(death["time"], datetime)
    assert properties.headers["mine"] == 1
    assert properties.headers["x-first-death-queue"] == source
    assert properties.headers["x-first-death-reason"] == "rejected"
    assert properties.headers["x-first-death-exchange"] == ""


def test_expired_message_is_dead_lettered_even_behind_a_longer_lived_one(channel, queue, name):
    arguments = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": queue}
    waiting = name + ".waiting"
    channel.queue_declare(waiting, exclusive=True, arguments=arguments)
    channel.basic_publish("", waiting, b"brief", BasicProperties(expiration="30"))
    _, properties, body = take(channel, queue)
    assert body == b"brief"
    assert properties.expiration is None
    (death,) = properties.headers["x-death"]
    assert (death["reason"], death["original-expiration"]) == ("expired", "30")


def test_recover_requeues_what_is_unacknowledged(connection, channel, queue):
    channel.basic_publish("", queue, b"x")
    got = []
    channel.basic_consume(queue, lambda ch, method, _, body: got.append(method.redelivered))
    pump(connection, lambda: got, "the delivery")
    channel.basic_recover(requeue=True)
    pump(connection, lambda: len(got) == 2, "the redelivery")
    assert got == [False, True]


def test_transaction_commits_publishes_and_acks_together(connection, channel, queue):
    other = connection.channel()
    channel.basic_publish("", queue, b"old")
    method, _, _ = take(channel, queue)
    channel.tx_select()
    channel.basic_publish("", queue, b"new")
    channel.basic_ack(method.delivery_tag)
    assert other.basic_get(queue)[0] is None
    channel.tx_commit()
    assert take(other, queue)[2] == b"new"


def test_transaction_rollback_forgets_publishes_and_keeps_the_unacked(channel, queue):
    channel.basic_publish("", queue, b"old")
    method, _, _ = take(channel, queue)
    channel.tx_select()
    channel.basic_publish("", queue, b"new")
    channel.basic_ack(method.delivery_tag)
    channel.tx_rollback()
    assert channel.basic_get(queue)[0] is None
    channel.basic_nack(method.delivery_tag, requeue=True)
    channel.tx_commit()
    assert take(channel, queue)[2] == b"old"


def test_cancel_stops_deliveries_and_keeps_the_unacked(connection, channel, queue):
    got = []
    tag = channel.basic_consume(queue, lambda ch, method, _, body: got.append(method))
    channel.basic_publish("", queue, b"first")
    pump(connection, lambda: got, "a delivery")
    assert channel.basic_cancel(tag) == []
    channel.basic_publish("", queue, b"second")
    channel.basic_ack(got[0].delivery_tag)
    assert take(channel, queue)[2] == b"second"
    assert len(got) == 1


def test_consumer_learns_that_its_queue_was_deleted(connection, channel, queue):
    cancelled = []
    channel.add_on_cancel_callback(lambda frame: cancelled.append(frame.method.consumer_tag))
    tag = channel.basic_consume(queue, lambda *_: None)
    connection.channel().queue_delete(queue)
    pump(connection, lambda: cancelled, "the cancel from the broker")
    assert cancelled == [tag]
    assert channel.is_open


def test_higher_consumer_priority_is_served_first(connection, channel, queue):
    got = []
    for priority in (0, 10):
        channel.basic_consume(
            queue,
            lambda ch, method, _, body, priority=priority: got.append(priority),
            arguments={"x-priority": priority},
        )
    for _ in range(3):
        channel.basic_publish("", queue, b"x")
    pump(connection, lambda: len(got) == 3, "three deliveries")
    assert got == [10, 10, 10]


def test_priority_queue_serves_high_priorities_first(channel, name):
    channel.queue_declare(name, exclusive=True, arguments={"x-max-priority": 10})
    for priority in (1, 9, None, 5, 9):
        properties = BasicProperties(priority=priority)
        channel.basic_publish("", name, str(priority).encode(), properties)
    assert [take(channel, name)[2] for _ in range(5)] == [b"9", b"9", b"5", b"1", b"None"]


def test_routing_of_each_exchange_type(channel, queue, name):
    channel.exchange_declare(name, "topic", auto_delete=True)
    channel.queue_bind(queue, name, "a.*.#")
    inner = name + ".headers"
    channel.exchange_declare(inner, "headers", auto_delete=True)
    channel.exchange_bind(name, inner, arguments={"x-match": "all", "kind": "order"})
    channel.basic_publish(name, "a.b", b"topic")
    channel.basic_publish(name, "b.a", b"no")
    channel.basic_publish(inner, "a.x.y", b"through", BasicProperties(headers={"kind": "order"}))
    channel.basic_publish(inner, "a.x.y", b"no", BasicProperties(headers={"kind": "bill"}))
    assert [take(channel, queue)[2] for _ in range(2)] == [b"topic", b"through"]
    channel.exchange_unbind(name, inner, arguments={"x-match": "all", "kind": "order"})
    channel.queue_unbind(queue, name, "a.*.#")
    with pytest.raises(pika.exceptions.ChannelClosedByBroker) as raised:
        channel.exchange_declare(name, passive=True)
    assert raised.value.reply_code == 404


def test_alternate_exchange_takes_the_unroutable(channel, queue, name):
    other = name + ".other"
    channel.exchange_declare(other, "fanout", auto_delete=True)
    channel.queue_bind(queue, other)
    channel.exchange_declare(
        name, "direct", auto_delete=False, arguments={"alternate-exchange": other}
    )
    channel.confirm_delivery()
    channel.basic_publish(name, "nowhere", b"x", mandatory=True)
    assert take(channel, queue)[2] == b"x"
    channel.exchange_delete(name)


def test_server_named_queue_and_purge(channel):
    declared = channel.queue_declare("", exclusive=True).method
    assert declared.queue.startswith("amq.gen-")
    channel.confirm_delivery()
    for _ in range(3):
        channel.basic_publish("", declared.queue, b"x")
    assert channel.queue_purge("").method.message_count == 3
    assert channel.queue_delete("").method.message_count == 0


def test_direct_reply_to(connection, channel, queue):
    answers = []
    channel.basic_consume(
        "amq.rabbitmq.reply-to", lambda ch, m, p, body: answers.append((p, body)), auto_ack=True
    )
    properties = BasicProperties(reply_to="amq.rabbitmq.reply-to", correlation_id="1")
    channel.basic_publish("", queue, b"question", properties)
    server = connection.channel()
    _, asked, _ = take(server, queue)
    assert asked.reply_to.startswith("amq.rabbitmq.reply-to.")
    server.basic_publish("", asked.reply_to, b"answer", BasicProperties(correlation_id="1"))
    pump(connection, lambda: answers, "the answer")
    assert (answers[0][0].correlation_id, answers[0][1]) == ("1", b"answer")


def test_an_answer_to_a_client_that_went_away_is_unroutable(broker, channel, queue):
    with connect(broker) as client:
        asking = client.channel()
        asking.basic_consume("amq.rabbitmq.reply-to", lambda *_: None, auto_ack=True)
        asking.basic_publish("", queue, b"?", BasicProperties(reply_to="amq.rabbitmq.reply-to"))
        _, asked, _ = take(channel, queue)
        channel.queue_declare(asked.reply_to, passive=True)  # How a server asks for the client.
    channel.confirm_delivery()

    def unroutable() -> bool:
        try:
            channel.basic_publish("", asked.reply_to, b"!", mandatory=True)
        except pika.exceptions.UnroutableError:
            return True
        return False

    until(unroutable, "the answer is returned")
    with pytest.raises(pika.exceptions.ChannelClosedByBroker) as raised:
        channel.queue_declare(asked.reply_to, passive=True)
    assert raised.value.reply_code == 404


def test_publishing_from_another_thread(connection, channel, queue):
    def publish() -> None:
        connection.add_callback_threadsafe(lambda: channel.basic_publish("", queue, b"threaded"))

    thread = threading.Thread(target=publish)
    thread.start()
    thread.join()
    connection.process_data_events(0)
    assert take(channel, queue)[2] == b"threaded"


@pytest.mark.parametrize("wanted", [4096, 8192, 131072])
def test_frame_max_is_negotiated_down(broker, name, wanted):
    with connect(broker, f"?frame_max={wanted}&heartbeat=10&channel_max=17") as connection:
        assert connection._impl.params.frame_max == wanted
        assert connection._impl.params.channel_max == 17
        channel = connection.channel()
        channel.queue_declare(name, exclusive=True)
        channel.basic_publish("", name, b"y" * 20_000)
        assert len(take(channel, name)[2]) == 20_000


def test_heartbeats_keep_a_silent_connection(broker):
    def beats(in_time):
        with connect(broker, "?heartbeat=2") as connection:
            checker = connection._impl._heartbeat_checker

            def heard():
                in_time()
                return checker._heartbeat_frames_received >= 3

            pump(connection, heard, "three heartbeats")
            assert connection.is_open

    undisturbed(beats, 2)


def test_wrong_password_is_told_with_the_text_clients_match(broker):
    credentials = pika.PlainCredentials("guest", "wrong")
    parameters = pika.ConnectionParameters(broker.host, broker.port, credentials=credentials)
    with pytest.raises(pika.exceptions.ProbableAuthenticationError) as raised:
        pika.BlockingConnection(parameters)
    assert "(403)" in str(raised.value)
    assert (
        "ACCESS_REFUSED - Login was refused using authentication mechanism PLAIN. "
        "For details see the broker logfile." in str(raised.value)
    )


def test_missing_virtual_host_is_told(broker):
    parameters = pika.ConnectionParameters(broker.host, broker.port, virtual_host="nowhere")
    with pytest.raises(pika.exceptions.ProbableAccessDeniedError) as raised:
        pika.BlockingConnection(parameters)
    assert "(530)" in str(raised.value)
    assert "NOT_ALLOWED - vhost nowhere not found" in str(raised.value)


def test_channel_flow_is_answered(channel):
    assert channel.flow(True) is True


def test_update_secret_is_accepted(connection):
    connection.update_secret("guest", "rotation")
    assert connection.channel().is_open


def test_exclusive_consumer_shuts_others_out(connection, channel, queue):
    channel.basic_consume(queue, lambda *_: None, exclusive=True)
    other = connection.channel()
    with pytest.raises(pika.exceptions.ChannelClosedByBroker) as raised:
        other.basic_consume(queue, lambda *_: None)
    assert raised.value.reply_code == 403
    assert raised.value.reply_text == (
        f"ACCESS_REFUSED - queue '{queue}' in vhost '/' in exclusive use"
    )


def test_exclusive_queue_is_locked_for_others_and_gone_with_its_owner(broker, connection, name):
    with connect(broker) as owner:
        owner.channel().queue_declare(name, exclusive=True)
        with pytest.raises(pika.exceptions.ChannelClosedByBroker) as raised:
            connection.channel().queue_declare(name, passive=True)
        assert raised.value.reply_code == 405
        assert raised.value.reply_text == (
            f"RESOURCE_LOCKED - cannot obtain exclusive access to locked queue '{name}' in vhost "
            "'/'. It could be originally declared on another connection or the exclusive property "
            "value does not match that of the original declaration."
        )
    with pytest.raises(pika.exceptions.ChannelClosedByBroker) as raised:
        connection.channel().queue_declare(name, passive=True)
    assert raised.value.reply_code == 404


def test_auto_delete_queue_goes_with_its_last_consumer(channel, name):
    channel.queue_declare(name, auto_delete=True)
    tag = channel.basic_consume(name, lambda *_: None)
    channel.basic_cancel(tag)
    with pytest.raises(pika.exceptions.ChannelClosedByBroker) as raised:
        channel.queue_declare(name, passive=True)
    assert raised.value.reply_text == f"NOT_FOUND - no queue '{name}' in vhost '/'"


def test_unacked_messages_of_a_closed_channel_come_back_redelivered(connection, channel, queue):
    channel.basic_publish("", queue, b"x")
    other = connection.channel()
    assert take(other, queue)[0].redelivered is False
    other.close()
    assert take(channel, queue)[0].redelivered is True


def test_durable_queue_and_persistent_messages_outlive_a_restart(own_broker, name):
    connection = connect(own_broker)
    channel = connection.channel()
    channel.exchange_declare(name, "topic", durable=True)
    channel.queue_declare(name, durable=True)
    channel.queue_bind(name, name, "#")
    channel.queue_declare(name + ".brief", durable=False, auto_delete=True)
    channel.confirm_delivery()
    for number in range(10):
        mode = 2 if number % 2 == 0 else 1
        properties = BasicProperties(delivery_mode=mode, headers={"number": number})
        channel.basic_publish(name, "k", str(number).encode(), properties)
    channel.basic_get(name)  # Never acknowledged.
    own_broker.restart()
    with pytest.raises(pika.exceptions.AMQPConnectionError):
        pump(connection, lambda: False, "the end of the connection")
    with connect(own_broker) as connection:
        channel = connection.channel()
        channel.exchange_declare(name, "topic", durable=True, passive=True)
        got = [channel.basic_get(name) for _ in range(5)]
        assert [body for _, _, body in got] == [b"0", b"2", b"4", b"6", b"8"]
        assert next(method.redelivered for method, _, _ in got) is True
        assert channel.basic_get(name)[0] is None
        channel.basic_ack(0, multiple=True)
        channel.confirm_delivery()
        channel.basic_publish(name, "k", b"after", mandatory=True)
        channel.queue_delete(name)
        channel.exchange_delete(name)
        with pytest.raises(pika.exceptions.ChannelClosedByBroker):
            channel.queue_declare(name + ".brief", passive=True)


def test_consuming_loop_reconnects_after_a_restart(own_broker, name):
    """The recovery loop of pika's own documentation."""
    got = []
    connected = threading.Semaphore(0)

    def consume_until_stopped() -> None:
        while True:
            try:
                connection = connect(own_broker)
            except pika.exceptions.AMQPConnectionError:
                continue
            try:
                channel = connection.channel()
                channel.queue_declare(name, durable=True)
                channel.basic_qos(prefetch_count=1)
                connected.release()
                for method, _, body in channel.consume(name):
                    got.append(body)
                    channel.basic_ack(method.delivery_tag)
                    if body == b"stop":
                        channel.queue_delete(name)
                        connection.close()
                        return
            except pika.exceptions.AMQPConnectionError:
                continue

    thread = threading.Thread(target=consume_until_stopped, daemon=True)
    thread.start()
    assert connected.acquire(timeout=PATIENCE_S)
    with connect(own_broker) as connection:
        connection.channel().basic_publish("", name, b"before", BasicProperties(delivery_mode=2))
        until(lambda: b"before" in got, "the first message")
    own_broker.restart()
    assert connected.acquire(timeout=PATIENCE_S)
    with connect(own_broker) as connection:
        connection.channel().basic_publish("", name, b"stop", BasicProperties(delivery_mode=2))
        thread.join(PATIENCE_S)
    assert not thread.is_alive()
    assert got[-1] == b"stop"
