# SPDX-License-Identifier: Apache-2.0
"""The rules of exchanges, queues and the basic class, as 0-9 has them and 0-8 had them before."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from headrace.protocol.codec_0_x import (
    BasicAck,
    BasicCancel,
    BasicCancelOk,
    BasicConsume,
    BasicConsumeOk,
    BasicDeliver,
    BasicGet,
    BasicGetEmpty,
    BasicGetOk,
    BasicPublish,
    BasicQos,
    BasicQosOk,
    BasicRecover,
    BasicRecoverSync,
    BasicRecoverSyncOk,
    BasicReject,
    BasicReturn,
    ConnectionClose,
    ConnectionCloseOk,
    ConnectionOpen,
    ConnectionOpenOk,
    ExchangeBound,
    ExchangeBoundOk,
    ExchangeDeclare,
    ExchangeDeclareOk,
    ExchangeDelete,
    ExchangeDeleteOk,
    FileAck,
    FilePublish,
    FileQos,
    FileQosOk,
    MessageConsume,
    MessageOk,
    MessageReject,
    MessageTransfer,
    MethodBase,
    QueueBind,
    QueueBindOk,
    QueueDeclare,
    QueueDelete,
    QueueDeleteOk,
    QueuePurge,
    QueuePurgeOk,
    QueueUnbind,
    QueueUnbindOk,
    StreamDeliver,
    TxSelect,
    TxSelectOk,
)
from headrace.spec.tables import V0_8, V0_9, V0_9_1, Version
from headrace.testing.raw_client import Content, RawClient
from support.brokers.broker_process import Served, until
from support.clients.file_class_client import FileClient

Talker = Callable[..., RawClient]
rule = pytest.mark.rule
pytestmark = pytest.mark.parametrize("version", [V0_8, V0_9], ids=lambda v: v.label)


@pytest.fixture
def client(talk: Talker, version: Version) -> RawClient:
    return talk(version)


@pytest.fixture
def other(talk: Talker, version: Version) -> RawClient:
    return talk(version)


@pytest.fixture
def kept(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A broker that can be restarted."""
    served = Served(tmp_path_factory.mktemp("kept")).start()
    yield served
    served.end()


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A broker with a second virtual host, and one that no user may open."""
    served = Served(tmp_path_factory.mktemp("hosts")).start()
    served.administer("vhost", "add", "other")
    served.administer("vhost", "add", "closed")
    served.administer("permission", "set", "guest", ".*", ".*", ".*", "--vhost", "other")
    yield served
    served.end()


def exchange(client: RawClient, name: str, kind: str = "direct", **flags: Any) -> None:
    client.call(ExchangeDeclare(exchange=name, type=kind, **flags), ExchangeDeclareOk)


def bind(client: RawClient, queue: str, name: str, key: str = "", **flags: Any) -> None:
    method = QueueBind(queue=queue, exchange=name, routing_key=key, **flags)
    client.call(method, QueueBindOk)


def deliveries(client: RawClient, count: int) -> list[tuple[int, bool, bytes]]:
    found = []
    for _ in range(count):
        deliver, body = client.content(BasicDeliver)
        found.append((deliver.delivery_tag, deliver.redelivered, body))
    return found


def refused(client: RawClient, method: MethodBase) -> int:
    """The code that the channel is closed with; the channel is opened again."""
    client.send(method)
    code = client.expect_channel_close().code
    client.channel(1)
    return code


def fatal(client: RawClient, method: MethodBase) -> int:
    client.send(method)
    return client.expect_connection_close().code


# -- Deliveries ------------------------------------------------------------------------------------


@rule("0-9/delivery-tag#non-zero", "0-9/basic#10", "0-9/redelivered#implementation")
def test_what_is_not_acknowledged_comes_again_and_says_so(
    client: RawClient, talk: Talker, version: Version, name: str
) -> None:
    client.declare(name)
    client.publish(name, b"1", b"2", b"3", b"4")
    client.consume(name)
    assert [(tag, again) for tag, again, _ in deliveries(client, 4)] == [
        (tag, False) for tag in (1, 2, 3, 4)
    ]
    client.ack(2, multiple=True)
    client.send(ConnectionClose(reply_code=200), 0)
    client.expect(ConnectionCloseOk)
    second = talk(version).with_queue(name)
    second.consume(name)
    assert deliveries(second, 2) == [(1, True, b"3"), (2, True, b"4")]


@rule("0-9/delivery-tag#channel-local", "0-9/basic.ack.multiple#01")
def test_a_delivery_is_settled_on_its_channel(client: RawClient, name: str) -> None:
    client.channel(2)
    client.declare(name)
    client.publish(name, b"x")
    client.consume(name)
    assert deliveries(client, 1) == [(1, False, b"x")]
    client.send(BasicAck(delivery_tag=1), 2)
    assert client.expect_channel_close(2).code == 406
    client.send(BasicAck(delivery_tag=1))
    assert refused(client, BasicAck(delivery_tag=1)) == 406  # It is settled.


@rule("0-9/basic.ack.multiple#01")
def test_a_tag_beyond_what_was_delivered_is_unknown(client: RawClient) -> None:
    assert refused(client, BasicAck(delivery_tag=1, multiple=True)) == 406
    client.send(BasicAck(delivery_tag=0, multiple=True))  # All so far: none.
    client.declare("", exclusive=True)


@rule("0-9/basic#09")
def test_automatic_acknowledgement(client: RawClient, name: str) -> None:
    client.declare(name)
    client.publish(name, b"1", b"2")
    client.consume(name, no_ack=True)
    assert [body for _, _, body in deliveries(client, 2)] == [b"1", b"2"]
    client.call(BasicCancel(consumer_tag="tag"), BasicCancelOk)
    assert client.count(name) == 0


@rule("0-9/basic#06", "0-9/basic#07", "0-9/basic#08")
def test_high_priority_goes_first_and_equals_in_order(client: RawClient, name: str) -> None:
    client.declare(name)
    for n in range(4):
        client.publish(name, b"low %d" % n, priority=n, delivery_mode=1 + n % 2)
    for n in range(3):
        client.publish(name, b"high %d" % n, priority=9 - n, delivery_mode=1 + n % 2)
    client.consume(name, no_ack=True)
    got = [body for _, _, body in deliveries(client, 7)]
    assert got == [*(b"high %d" % n for n in range(3)), *(b"low %d" % n for n in range(4))]


@rule("0-9/basic.qos.prefetch-count#01")
def test_prefetch_count_bounds_a_channel(client: RawClient, name: str) -> None:
    client.declare(name)
    client.publish(name, *(b"%d" % n for n in range(5)))
    client.call(BasicQos(prefetch_count=2), BasicQosOk)
    client.consume(name, "one")
    client.send(BasicConsume(queue=name, consumer_tag="two"))
    got = deliveries(client, 2)  # Of both together: the channel's limit.
    client.expect(BasicConsumeOk)
    assert client.silent()
    client.ack(got[0][0])
    assert deliveries(client, 1)[0][2] == b"2"
    assert client.silent()


@rule("0-9/basic.qos.prefetch-count#01", "0-9/basic.qos.prefetch-size#01")
def test_prefetch_size_bounds_what_is_sent_ahead(client: RawClient, name: str) -> None:
    client.declare(name)
    client.publish(name, b"x" * 100, b"y" * 100)
    client.call(BasicQos(prefetch_size=10, prefetch_count=2), BasicQosOk)
    client.consume(name)
    assert deliveries(client, 1)[0][2] == b"x" * 100  # Larger than the window: sent alone.
    assert client.silent()
    client.ack(1)
    assert deliveries(client, 1)[0][2] == b"y" * 100


@rule("0-9/basic.qos.prefetch-count#01")
def test_prefetch_size_bounds_consumers_that_are_there(client: RawClient, name: str) -> None:
    client.declare(name)
    client.consume(name)
    client.call(BasicQos(prefetch_size=4), BasicQosOk)
    client.publish(name, b"12", b"3", b"45")
    got = deliveries(client, 2)
    assert [body for _, _, body in got] == [b"12", b"3"]
    assert client.silent()
    client.ack(got[0][0])
    assert deliveries(client, 1)[0][2] == b"45"


def test_a_limit_that_is_lifted_leaves_consumers_choosing(client: RawClient, name: str) -> None:
    client.declare(name)
    client.consume(name, no_local=True)
    client.call(BasicQos(prefetch_size=4), BasicQosOk)
    client.call(BasicQos(), BasicQosOk)
    client.publish(name, b"its own")
    assert client.silent()


def test_prefetch_on_the_connection(client: RawClient, name: str) -> None:
    client.channel(2)
    client.declare(name)
    client.publish(name, b"1", b"2", b"3")
    client.call(BasicQos(prefetch_count=2, global_=True), BasicQosOk)
    client.consume(name, "one")
    deliveries(client, 2)
    client.consume(name, "two", 2)
    client.probe = name
    assert client.silent(2)


# -- Exchanges -------------------------------------------------------------------------------------


@rule("0-9/exchange#required-types", "0-9/exchange#recommended-types")
@rule("0-9/exchange#required-instances")
@pytest.mark.parametrize("kind", ["direct", "fanout", "topic", "headers"])
def test_standard_types_and_instances(client: RawClient, name: str, kind: str) -> None:
    exchange(client, name, kind)
    client.declare(name)
    for source in (name, f"amq.{kind}"):
        bind(client, name, source, "key", arguments={"h": 1} if kind == "headers" else {})
        client.publish("key", b"x", exchange=source, headers={"h": 1})
        assert client.get(name) == b"x"
    client.call(ExchangeDelete(exchange=name), ExchangeDeleteOk)


@rule("0-9/exchange#default-exchange", "0-9/basic.publish.exchange#01")
@rule("0-9/queue.declare#default-binding")
def test_the_default_exchange_knows_every_queue(client: RawClient, name: str) -> None:
    client.declare(name)
    client.publish(name, b"x")
    assert client.get(name) == b"x"
    bind(client, name, "", name)
    client.publish(name, b"y")
    assert client.get(name) == b"y"
    assert client.get(name) is None


@rule("0-9/exchange#default-access")
def test_the_default_exchange_has_no_other_use(client: RawClient) -> None:
    assert refused(client, ExchangeDeclare(exchange="", type="direct")) == 403
    assert refused(client, ExchangeDeclare(exchange="", passive=True, type="direct")) == 403
    client.send(ExchangeDelete(exchange=""))
    assert client.expect_channel_close().code == 403
    client.channel(1)
    assert refused(client, ExchangeDeclare(exchange="amq.default", passive=True)) == 404


@rule("0-9/exchange#extensions")
def test_other_types_than_the_standard_ones_may_be_there(client: RawClient, name: str) -> None:
    exchange(client, name, "fanout", arguments={"alternate-exchange": "amq.fanout"})


@rule("0-9/exchange.declare#minimum")
def test_many_exchanges(client: RawClient, name: str) -> None:
    for n in range(40):
        exchange(client, f"{name}-{n}", "fanout", auto_delete=True)


@rule("0-9/exchange.declare.exchange#reserved")
def test_reserved_names_of_exchanges(client: RawClient) -> None:
    method = ExchangeDeclare(exchange="amq.mine", type="direct")
    assert refused(client, method) == 403
    exchange(client, "amq.direct", "direct")  # It is there: nothing is made.


@rule("0-9/exchange.declare.type#typed")
def test_the_type_of_an_exchange_cannot_change(client: RawClient, name: str) -> None:
    exchange(client, name, "fanout")
    assert fatal(client, ExchangeDeclare(exchange=name, type="topic")) == 530


@rule("0-9/exchange.declare.type#support")
def test_unknown_types_are_invalid(client: RawClient, name: str) -> None:
    assert fatal(client, ExchangeDeclare(exchange=name, type="x-nonsense")) == 503


@rule("0-9/exchange.declare.passive#not-found")
def test_a_passive_declare_finds_or_not(client: RawClient, name: str) -> None:
    assert refused(client, ExchangeDeclare(exchange=name, type="direct", passive=True)) == 404
    exchange(client, name)
    exchange(client, name, passive=True)


@rule("0-9/exchange.declare.durable#sticky", "0-9/exchange.declare.auto-delete#sticky")
def test_what_an_exchange_is_does_not_change(
    client: RawClient, talk: Talker, version: Version, name: str
) -> None:
    exchange(client, name, durable=False, auto_delete=False)
    exchange(client, name, durable=True, auto_delete=True)
    late = talk(V0_9_1)
    late.call(ExchangeDeclare(exchange=name, type="direct"), ExchangeDeclareOk)
    late.send(ExchangeDeclare(exchange=name, type="direct", durable=True))
    assert (
        late.expect_channel_close().code == 406
    )  # In 0-9-1 the difference is an error, and it was not changed.


@rule("0-9/exchange.delete.exchange#exists")
def test_deleting_what_is_not_there(client: RawClient, name: str) -> None:
    assert refused(client, ExchangeDelete(exchange=name)) == 404


# -- Queues ----------------------------------------------------------------------------------------


@rule("0-9/queue.declare#minimum-queues")
def test_many_queues(client: RawClient, name: str) -> None:
    for n in range(300):
        client.send(QueueDeclare(queue=f"{name}-{n}", exclusive=True, no_wait=True))
    for n in range(300):
        client.declare(f"{name}-{n}", passive=True)


@rule("0-9/queue.declare.queue#default-name")
def test_names_are_made_up(client: RawClient) -> None:
    names = {client.declare("", exclusive=True).queue for _ in range(3)}
    assert len(names) == 3
    assert all(names)


@rule("0-9/queue.declare.queue#reserved-prefix")
def test_reserved_names_of_queues(client: RawClient, other: RawClient) -> None:
    made = client.declare("").queue
    client.declare(made)
    assert refused(client, QueueDeclare(queue="amq.none", passive=True)) == 404
    assert fatal(other, QueueDeclare(queue="amq.none")) == 530


@rule("0-9/queue.declare.passive#passive")
def test_a_passive_declare_of_a_queue(client: RawClient, name: str) -> None:
    assert refused(client, QueueDeclare(queue=name, passive=True)) == 404
    client.declare(name)
    assert client.declare(name, passive=True).queue == name


@rule("0-9/queue.declare.durable#types", "0-9/queue.declare.durable#pre-existence")
@rule("0-9/queue.declare.auto-delete#pre-existence")
def test_what_a_queue_is_does_not_change(
    client: RawClient, talk: Talker, version: Version, name: str
) -> None:
    late = talk(V0_9_1)
    for n, (durable, auto_delete) in enumerate([(True, False), (False, True), (False, False)]):
        client.declare(f"{name}{n}", durable=durable, auto_delete=auto_delete)
        client.declare(f"{name}{n}", durable=not durable, auto_delete=not auto_delete)
        late.declare(f"{name}{n}", durable=durable, auto_delete=auto_delete)  # Told if it differs.


@rule("0-9/queue.declare.exclusive#types", "0-9/queue.declare.exclusive#02")
def test_an_exclusive_queue_is_one_connections(
    client: RawClient, other: RawClient, name: str
) -> None:
    client.declare(name, exclusive=True)
    client.declare(name, exclusive=True)
    client.declare(f"{name}-shared")
    other.declare(f"{name}-shared")
    assert refused(other, QueueDeclare(queue=name)) == 405
    assert refused(other, QueueDeclare(queue=name, passive=True)) == 405
    assert refused(other, QueueDeclare(queue=f"{name}-shared", exclusive=True)) == 405


@rule("0-9/queue.bind#duplicates")
def test_a_binding_made_twice_is_one(client: RawClient, name: str) -> None:
    client.declare(name)
    bind(client, name, "amq.direct", name)
    bind(client, name, "amq.direct", name)
    client.publish(name, b"x", exchange="amq.direct")
    assert client.get(name) == b"x"
    assert client.get(name) is None


@rule("0-9/queue.bind#failure")
def test_a_bind_that_fails_closes_the_connection(
    client: RawClient, other: RawClient, name: str
) -> None:
    other.declare(name, exclusive=True)
    method = QueueBind(queue=name, exchange="amq.direct", routing_key="k")
    assert fatal(client, method) == 405


@rule("0-9/queue.bind#transient-exchange")
def test_a_durable_queue_is_not_bound_to_a_transient_exchange(
    client: RawClient, talk: Talker, version: Version, name: str
) -> None:
    client.declare(name, durable=True)
    exchange(client, name)
    method = QueueBind(queue=name, exchange=name, routing_key="k")
    late = talk(V0_9_1)  # Where it is allowed.
    late.call(method, QueueBindOk)
    late.call(QueueUnbind(queue=name, exchange=name, routing_key="k"), QueueUnbindOk)
    assert fatal(client, method) == 530


@rule("0-9/queue.bind#internal-exchange")
def test_nothing_is_bound_to_an_internal_exchange(client: RawClient, name: str) -> None:
    client.declare(name)
    exchange(client, name, internal=True)
    assert fatal(client, QueueBind(queue=name, exchange=name)) == 530


@rule("0-9/queue.bind#binding-count")
def test_many_bindings_of_a_queue(client: RawClient, name: str) -> None:
    client.declare(name)
    for n in range(20):
        exchange(client, f"{name}-{n}", "fanout")
        bind(client, name, f"{name}-{n}")
        client.publish("", b"%d" % n, exchange=f"{name}-{n}")
    assert client.count(name) == 20


@rule("0-9/queue.bind.queue#queue-existence", "0-9/queue.bind.exchange#exchange-existence")
def test_only_what_is_there_is_bound(client: RawClient, name: str) -> None:
    assert refused(client, QueueBind(queue=name, exchange="amq.direct")) == 404
    client.declare(name)
    assert refused(client, QueueBind(queue=name, exchange=name)) == 404


@rule("0-9/queue.bind.routing-key#direct-exchange-key-matching")
def test_a_direct_exchange_compares_keys(client: RawClient, name: str) -> None:
    client.declare(name)
    bind(client, name, "amq.direct", f"{name}.k")
    client.publish(f"{name}.k", b"x", exchange="amq.direct")
    client.publish(f"{name}.K", b"y", exchange="amq.direct")
    assert client.count(name) == 1


@rule("0-9/queue.unbind#01")
def test_an_unbind_that_fails_closes_the_connection(client: RawClient, name: str) -> None:
    client.declare(name)
    bind(client, name, "amq.direct", "k")
    method = QueueUnbind(queue=name, exchange="amq.direct", routing_key="k")
    client.call(method, QueueUnbindOk)
    client.publish("k", b"x", exchange="amq.direct")
    assert client.count(name) == 0
    assert fatal(client, method) == 404


@rule("0-9/queue.unbind.queue#02", "0-9/queue.unbind.exchange#03")
def test_unbinding_what_is_not_there(client: RawClient, name: str) -> None:
    assert refused(client, QueueUnbind(queue=name, exchange="amq.direct")) == 404
    client.declare(name)
    assert refused(client, QueueUnbind(queue=name, exchange=name)) == 404


@rule("0-9/queue.purge#01", "0-9/queue.purge.queue#02")
def test_purge(client: RawClient, name: str) -> None:
    client.declare(name)
    client.publish(name, b"1", b"2")
    assert client.call(QueuePurge(queue=name), QueuePurgeOk).message_count == 2
    assert client.count(name) == 0
    assert refused(client, QueuePurge(queue=f"{name}-none")) == 404


@rule("0-9/queue.purge#02")
def test_a_purge_leaves_what_is_with_clients(
    client: RawClient, other: RawClient, name: str
) -> None:
    client.call(TxSelect(), TxSelectOk)
    client.declare(name)
    other.publish(name, b"1", b"2")
    other.count(name)
    client.call(BasicQos(prefetch_count=1), BasicQosOk)
    client.consume(name)
    deliveries(client, 1)
    assert client.call(QueuePurge(queue=name), QueuePurgeOk).message_count == 1
    client.send(ConnectionClose(reply_code=200), 0)
    client.expect(ConnectionCloseOk)
    assert other.get(name) == b"1"


UNNAMED = [
    pytest.param(QueueBind(exchange="amq.direct"), marks=rule("0-9/queue.bind.queue#empty-queue")),
    pytest.param(QueueUnbind(exchange="amq.direct")),
    pytest.param(QueuePurge(), marks=rule("0-9/queue.purge.queue#01")),
    pytest.param(QueueDelete(), marks=rule("0-9/queue.delete.queue#01")),
    pytest.param(BasicConsume(), marks=rule("0-9/basic.consume.queue#01")),
    pytest.param(BasicGet(), marks=rule("0-9/basic.get.queue#01")),
]


@pytest.mark.parametrize("method", UNNAMED, ids=lambda m: m.NAME)
def test_without_a_queue_declared_no_name_is_not_allowed(
    client: RawClient, method: MethodBase
) -> None:
    assert fatal(client, method) == 530


def test_without_a_name_it_is_the_last_queue(client: RawClient, name: str) -> None:
    client.declare(name)
    bind(client, "", "amq.direct")
    client.publish(name, b"1", b"2", b"3", exchange="amq.direct")
    assert client.get("") == b"1"
    client.consume("", no_ack=True)
    assert [body for _, _, body in deliveries(client, 2)] == [b"2", b"3"]
    client.call(QueuePurge(), QueuePurgeOk)
    client.call(QueueDelete(), QueueDeleteOk)


@rule("0-9/queue.delete.queue#02", "0-9/queue.delete.if-unused#01", "0-9/queue.delete.if-empty#01")
def test_delete(client: RawClient, other: RawClient, name: str) -> None:
    client.declare(name)
    client.publish(name, b"x")
    assert refused(client, QueueDelete(queue=name, if_empty=True)) == 406
    other.consume(name, no_ack=True)
    deliveries(other, 1)
    assert refused(client, QueueDelete(queue=name, if_unused=True)) == 406
    client.call(QueueDelete(queue=name, if_empty=True), QueueDeleteOk)
    assert refused(client, QueueDelete(queue=name)) == 404


@rule("0-9/basic.deliver#01")
def test_messages_that_cannot_be_processed_go_to_a_dead_letter_queue(
    client: RawClient, name: str
) -> None:
    client.declare(f"{name}-dead")
    client.declare(
        name,
        arguments={
            "x-dead-letter-exchange": "",
            "x-dead-letter-routing-key": f"{name}-dead",
            "x-delivery-limit": 5,
        },
    )
    client.publish(name, b"poison")
    for n in range(6):
        client.send(BasicGet(queue=name))
        method, _ = client.content(BasicGetOk)
        assert method.redelivered == (n > 0)
        client.send(BasicReject(delivery_tag=method.delivery_tag, requeue=True))
    client.send(BasicGet(queue=name))
    client.expect(BasicGetEmpty)
    assert client.get(f"{name}-dead") == b"poison"


# -- Consumers -------------------------------------------------------------------------------------


@rule("0-9/basic.consume#01")
def test_many_consumers_of_a_queue(client: RawClient, name: str) -> None:
    client.declare(name)
    for n in range(40):
        client.consume(name, f"c{n}")
    assert client.declare(name, passive=True).consumer_count == 40


@rule("0-9/basic.consume.consumer-tag#01")
@pytest.mark.parametrize("channel", [1, 2])
def test_a_consumer_tag_is_of_one_consumer_of_the_connection(
    client: RawClient, other: RawClient, name: str, channel: int
) -> None:
    client.channel(2)
    client.declare(name)
    client.consume(name, "mine")
    other.consume(name, "mine")  # Another client's.
    client.send(BasicConsume(queue=name, consumer_tag="mine"), channel)
    assert client.expect_connection_close().code == 530


@rule("0-9/basic.consume.consumer-tag#02")
def test_a_consumer_tag_of_another_channel_is_not_allowed(client: RawClient, name: str) -> None:
    client.channel(2)
    client.declare(name)
    client.consume(name, "mine")
    client.consume(name, "yours", 2)
    client.send(BasicCancel(consumer_tag="mine"), 2)
    assert client.expect_connection_close().code == 530


@rule("0-9/basic.consume.exclusive#01")
def test_exclusive_consumption_of_a_queue_in_use(
    client: RawClient, other: RawClient, name: str
) -> None:
    client.declare(name)
    client.consume(name)
    assert refused(other, BasicConsume(queue=name, exclusive=True)) == 403


@rule("0-9/basic.cancel#01")
def test_cancelling_when_the_queue_is_gone(client: RawClient, other: RawClient, name: str) -> None:
    client.declare(name)
    client.consume(name, "mine")
    other.call(QueueDelete(queue=name), QueueDeleteOk)
    assert client.call(BasicCancel(consumer_tag="mine"), BasicCancelOk).consumer_tag == "mine"


# -- Publishes -------------------------------------------------------------------------------------


@rule("0-9/basic.publish.exchange#02")
def test_an_internal_exchange_takes_no_publishes(client: RawClient, name: str) -> None:
    exchange(client, name, internal=True)
    client.publish("k", b"x", exchange=name)
    assert client.expect_channel_close().code == 403


@rule("0-9/basic.publish.exchange#03")
@pytest.mark.parametrize("kind", ["direct", "fanout", "topic", "headers"])
def test_no_exchange_refuses_basic_content(client: RawClient, name: str, kind: str) -> None:
    exchange(client, name, kind)
    client.publish("nowhere", b"x", exchange=name, mandatory=True)
    method, body = client.content(BasicReturn)
    assert (method.reply_code, body) == (312, b"x")


@rule("0-9/basic.publish.mandatory#01", "0-9/basic.publish.immediate#01")
def test_mandatory_and_immediate_bring_it_back(client: RawClient, name: str) -> None:
    client.publish(f"{name}-none", b"1", mandatory=True)
    method, body = client.content(BasicReturn)
    assert (method.reply_code, method.routing_key, body) == (312, f"{name}-none", b"1")
    client.declare(name)
    client.publish(name, b"2", immediate=True)
    method, body = client.content(BasicReturn)
    assert (method.reply_code, body) == (313, b"2")
    assert client.count(name) == 0
    client.consume(name, no_ack=True)
    client.publish(name, b"3", immediate=True, mandatory=True)
    assert deliveries(client, 1)[0][2] == b"3"


def test_get(client: RawClient, name: str) -> None:
    client.declare(name)
    client.publish(name, b"1", b"2")
    client.send(BasicGet(queue=name))
    _, got = client.next()
    assert isinstance(got, Content)
    assert isinstance(got.method, BasicGetOk)
    assert (got.method.message_count, got.method.redelivered) == (1, False)
    client.send(BasicReject(delivery_tag=1, requeue=True))
    assert client.get(name) == b"1"
    assert client.get(name) == b"2"
    client.send(BasicGet(queue=name))
    assert isinstance(client.next()[1], BasicGetEmpty)


# -- Reject and recover ----------------------------------------------------------------------------


@rule("0-9/basic.reject#01", "0-9/basic.reject#02", "0-9/basic.reject#03")
def test_a_rejected_message_is_another_clients_or_dropped(
    client: RawClient, other: RawClient, name: str
) -> None:
    client.declare(name)
    client.consume(name)
    client.publish(name, b"x" * 500_000, b"y")
    client.send(BasicReject(delivery_tag=1, requeue=False))  # While the next is being sent.
    client.read(0)
    assert [tag for tag, _, _ in deliveries(client, 2)] == [1, 2]
    client.call(BasicCancel(consumer_tag="tag"), BasicCancelOk)
    other.consume(name)
    client.send(BasicReject(delivery_tag=2, requeue=True))
    assert deliveries(other, 1) == [(1, True, b"y")]
    other.ack(1)
    assert other.count(name) == 0


@rule("0-9/basic.reject.requeue#01", "0-9/basic.reject#03")
def test_a_requeued_message_goes_to_another_consumer(
    client: RawClient, other: RawClient, name: str
) -> None:
    client.declare(name)
    client.consume(name, "one")
    client.consume(name, "two")
    client.publish(name, b"x", b"y")
    tags = {body: tag for tag, _, body in deliveries(client, 2)}
    client.send(BasicReject(delivery_tag=tags[b"x"], requeue=True))
    client.consume(name, "three")
    assert client.silent()  # None of the channel's consumers gets it again,
    assert client.count(name) == 1
    client.publish(name, b"z")
    assert deliveries(client, 1)[0][2] == b"z"  # and it is in the way of nothing.
    other.consume(name)
    assert deliveries(other, 1) == [(1, True, b"x")]
    other.ack(1)


@rule("0-9/basic.recover#01")
def test_recover_redelivers(client: RawClient, name: str) -> None:
    client.declare(name)
    client.publish(name, b"1", b"2")
    client.consume(name)
    deliveries(client, 2)
    client.ack(1)
    client.send(BasicRecover(requeue=False))
    assert deliveries(client, 1) == [(3, True, b"2")]  # And no answer before it.
    client.send(BasicRecover(requeue=True))
    assert deliveries(client, 1) == [(4, True, b"2")]
    assert client.silent()


@rule("0-9/basic.recover#01", "0-9/basic.recover#02")
def test_recover_sync_is_answered(client: RawClient, version: Version, name: str) -> None:
    client.declare(name)
    client.publish(name, b"1")
    client.consume(name)
    deliveries(client, 1)
    if version is V0_9:
        client.send(BasicRecoverSync(requeue=True))
        received = {type(client.next()[1]).__name__ for _ in range(2)}
        assert received == {"Content", BasicRecoverSyncOk.__name__}
    client.call(TxSelect(), TxSelectOk)
    assert refused(client, BasicRecover(requeue=True)) == 406


@rule("0-9/reject-code#01")
@pytest.mark.parametrize("code", [0, 1, 2])
def test_a_message_is_rejected_with_a_code_of_the_standard(
    talk: Talker, version: Version, name: str, code: int
) -> None:
    client = talk(version)
    if version is V0_8:
        with pytest.raises(ValueError, match=r"0-8 has no message\.reject"):
            client.send(MessageReject(code=code))
        return
    client.declare(name)
    client.publish(name, b"x")
    client.call(MessageConsume(queue=name, destination="mine"), MessageOk)
    client.expect(MessageTransfer)
    client.send(MessageReject(code=code))
    if code > 1:
        assert client.expect_connection_close().code == 502
    else:
        assert client.silent()


@rule("0-9/queue#any-content")
@pytest.mark.parametrize("kind", ["direct", "fanout", "topic", "headers"])
def test_every_queue_takes_every_content(
    served: Served, version: Version, name: str, kind: str
) -> None:
    client = FileClient(served.host, served.port, version).open()
    exchange(client, name, kind)
    queues = [f"{name}-{n}" for n in range(3)]
    for queue in queues:
        client.declare(queue)
        bind(client, queue, name, "key")
    for n in range(2):
        client.publish("key", b"basic %d" % n, exchange=name)
        client.publish_packet("key", b"stream %d" % n, exchange=name)
        client.stage(f"{name}{n}", b"file %d" % n)
        publish = FilePublish(exchange=name, routing_key="key", identifier=f"{name}{n}")
        client.send(publish)
    for queue in queues:
        client.declare(queue)
        assert [client.get(queue) for _ in range(3)] == [b"basic 0", b"basic 1", None]
        client.consume_packets(queue, f"packets of {queue}")
        assert [client.content(StreamDeliver)[1] for _ in range(2)] == [b"stream 0", b"stream 1"]
        client.call(FileQos(prefetch_count=1), FileQosOk)
        client.consume_files(queue, f"files of {queue}")
        for n in range(2):
            deliver, staged = client.receive_file()
            assert staged.body == b"file %d" % n
            client.send(FileAck(delivery_tag=deliver.delivery_tag))
    client.drop()


# -- What the field's clients add ------------------------------------------------------------------


def test_bound_tells_what_is_bound(client: RawClient, name: str) -> None:
    client.declare(name)
    client.declare(f"{name}-2")
    exchange(client, name)

    def code(exchange: str, routing_key: str = "", queue: str = "") -> int:
        asked = ExchangeBound(exchange=exchange, routing_key=routing_key, queue=queue)
        return client.call(asked, ExchangeBoundOk).reply_code

    assert code(f"{name}-none") == 1
    assert code(name, queue=f"{name}-none") == 2
    assert code(name) == 3
    bind(client, name, name, "k")
    assert code(name) == 0
    assert code(name, "k") == 0
    assert code(name, "k", name) == 0
    assert code(name, "", name) == 0
    assert code(name, "", f"{name}-2") == 4
    assert code(name, "other") == 5
    assert code(name, "other", name) == 6
    assert code("", name, name) == 0
    assert code("", name) == 0
    assert code("", "k", name) == 6
    assert code("", "k") == 5


def test_consume_with_arguments(client: RawClient, name: str) -> None:
    client.declare(name)
    client.consume(name, "low")
    client.consume(name, "high", arguments={"x-priority": 5})
    client.publish(name, b"x")
    assert client.content(BasicDeliver)[0].consumer_tag == "high"


# -- Restarts and limits ---------------------------------------------------------------------------


@rule("0-9/queue.declare.durable#persistence", "0-9/exchange.declare.durable#support")
@rule("0-9/queue.bind#durable-exchange", "0-9/basic#01")
def test_what_is_durable_is_there_after_a_restart(kept: Served, version: Version) -> None:
    client = RawClient(kept.host, kept.port, version).open()
    exchange(client, "lasting", durable=True)
    exchange(client, "passing")
    client.declare("lasting", durable=True)
    client.declare("passing")
    bind(client, "lasting", "lasting", "k")
    client.publish("k", b"kept", exchange="lasting", delivery_mode=2)
    client.count("lasting")
    client.send(ConnectionClose(reply_code=200), 0)
    client.expect(ConnectionCloseOk)
    kept.restart()
    client = RawClient(kept.host, kept.port, version).open()
    assert client.get("lasting") == b"kept"
    client.publish("k", b"new", exchange="lasting")
    assert client.get("lasting") == b"new"
    assert refused(client, QueueDeclare(queue="passing", passive=True)) == 404
    assert refused(client, ExchangeDeclare(exchange="passing", passive=True)) == 404
    client.drop()


@rule("0-9/basic#02", "0-9/basic#04")
def test_persistent_messages_outlast_an_overflow(
    tmp_path_factory: pytest.TempPathFactory, version: Version
) -> None:
    served = Served(tmp_path_factory.mktemp("full"), "--memory-max", "1MiB").start()
    client = RawClient(served.host, served.port, version).open()
    client.declare("full", durable=True)
    for n in range(64):
        mode = 1 + n % 2
        client.publish("full", b"%d" % n + b"x" * 100_000, delivery_mode=mode)
    assert until(lambda: client.count("full") == 64, "all are queued")
    for n in range(64):
        body = client.get("full")
        assert body is not None
        assert body.startswith(b"%dx" % n)
    client.drop()
    assert served.stop() == 0


@rule("0-9/connection.open.virtual-host#separation", "0-9/connection.open.virtual-host#security")
def test_virtual_hosts_are_separate_and_guarded(hosts: Served, version: Version, name: str) -> None:
    served = hosts

    def opened(vhost: str) -> RawClient | int:
        raw = RawClient(served.host, served.port, version).tune()
        raw.send(ConnectionOpen(virtual_host=vhost))
        received = raw.next_method()
        assert received is not None
        if isinstance(received[1], ConnectionOpenOk):
            return raw
        assert isinstance(received[1], ConnectionClose)
        raw.__exit__(None, None, None)
        return received[1].reply_code

    until(lambda: not isinstance(opened("other"), int), "the new host is open")
    raw = opened("other")
    assert not isinstance(raw, int)
    second = raw.channel(1)
    first = RawClient(served.host, served.port, version).open()
    first.declare(name)
    first.publish(name, b"x")
    assert refused(second, QueueDeclare(queue=name, passive=True)) == 404
    second.publish(name, b"y")
    assert first.count(name) == 1
    assert opened("closed") == 530
    assert opened("none") == 402
    first.drop()
    second.drop()


def test_a_publish_to_a_missing_exchange(client: RawClient, name: str) -> None:
    client.publish("k", b"x", exchange=name)
    closed = client.expect_channel_close()
    assert (closed.code, closed.method) == (404, BasicPublish.INDEX[V0_9])
