# SPDX-License-Identifier: Apache-2.0
"""What ``sample`` counts, by kind, in every version of AMQP, against a real broker."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

from headrace.client import Message
from headrace.client.blocking import connect
from headrace.client.errors import AuthenticationFailed, Nacked, Returned
from headrace.measures import CHANNEL_COUNTS, SIZES, columns
from headrace.protocol.codec_0_x import BasicReturn, Content, MessageReject, MessageTransfer
from headrace.server.login import attempts
from headrace.spec.tables import V0_9, V0_10, Version
from headrace.testing.raw_client import RawClient
from support.brokers.broker_process import until
from support.clients.command_client_0_10 import Talk
from support.conversations.version_conversations import VERSIONS
from support.management_socket import ManagementClient, Mirror

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace.client.blocking import Channel
    from headrace.testing import LocalBroker

Row = dict[str, int]


def url_of(broker: LocalBroker, version: str) -> str:
    return f"{broker.url}?version={version}"


def only(row: Row, *names: str) -> Row:
    """Return the counts of a row that are not zero, without gauges."""
    return {
        name: row[name] for name in columns(CHANNEL_COUNTS) if row.get(name) and name not in names
    }


def look_until(seen: Mirror, condition: Callable[[], bool], description: str) -> None:
    """Look until the condition holds, and once more.

    A look reads its tables one after the other, while the broker works. Only a look that begins
    after the change has it in every table.
    """
    until(lambda: bool(seen.look()) and condition(), description)
    seen.look()


def publish(channel: Channel, queue: str, *, exchange: str = "", mandatory: bool = False) -> None:
    with suppress(Returned, Nacked):
        channel.publish(b"four", routing_key=queue, exchange=exchange, mandatory=mandatory)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.rule("0-9-1/s106")
def test_publishes_are_counted_where_they_go(
    operator: ManagementClient, broker: LocalBroker, version: str
) -> None:
    for name in ("q", "other"):
        operator.ask("declare queue", name=name)
        operator.ask("bind", source="amq.fanout", destination=name)
    seen = Mirror(operator).look()
    before = seen.named("totals")["totals"]
    with connect(url_of(broker, version)) as connection:
        channel = connection.channel()
        for _ in range(3):
            publish(channel, "q")
        publish(channel, "", exchange="amq.fanout")
        publish(channel, "nowhere", exchange="amq.direct", mandatory=True)
        publish(channel, "nowhere", exchange="amq.direct")
        seen.look()
        (channel_row,) = seen.rows["channel"].values()
        confirms = version in ("0-9-1", "0-10")
        returned, dropped = channel_row["return_unroutable"], channel_row["drop_unroutable"]
        assert (returned, dropped) == (1, 1)
        assert channel_row["publish"] == 6
        assert channel_row["confirm"] == (6 if version == "0-9-1" else 5 if confirms else 0)
        assert channel_row["unconfirmed"] == 0
        assert seen.named("queue")["q"]["publish"] == 4
        assert seen.named("queue")["other"]["publish"] == 1
        exchanges = seen.named("exchange")
        assert exchanges[""] | {"bindings": 0} == {
            "bindings": 0,
            "publish_in": 3,
            "publish_out": 3,
            "return_unroutable": 0,
            "drop_unroutable": 0,
        }
        fanout, direct = exchanges["amq.fanout"], exchanges["amq.direct"]
        assert (fanout["publish_in"], fanout["publish_out"]) == (1, 2)
        assert (direct["publish_in"], direct["publish_out"]) == (2, 0)
        assert (direct["return_unroutable"], direct["drop_unroutable"]) == (1, 1)
        counts = only(channel_row)
        assert only(seen.named("protocol")[version]) == counts
        assert only(seen.named("vhost")["/"]) == counts
        channel.close()
        look_until(seen, lambda: not seen.rows["channel"], "the channel is gone")
        (connection_row,) = seen.rows["connection"].values()
        assert only(connection_row) == counts
    until(lambda: not operator.items("list connections"), "the connection is gone")
    seen.look()  # What ended stays in the sums.
    assert only(seen.named("protocol")[version]) == counts
    assert only(seen.named("vhost")["/"]) == counts
    totals = seen.named("totals")["totals"]
    assert only(totals) == counts
    assert totals["received"] - before["received"] == 6
    assert totals["received_bytes"] - before["received_bytes"] == 24
    assert totals["size_100"] - before["size_100"] == 6


def publish_immediate(broker: LocalBroker, version: Version) -> Callable[[], None]:
    """Publish a message that is returned or rejected; return how to close the connection."""
    if version is V0_10:
        client = Talk(broker.port)
        client.attach("s").publish(b"four", "q", accept_mode=0, immediate=True)
        return client.close
    raw = RawClient(broker.host, broker.port, version).open()
    raw.publish("q", b"four", immediate=True)
    raw.content(BasicReturn)
    return raw.drop


def transfer_immediate(broker: LocalBroker, version: Version) -> Callable[[], None]:
    """Do the same in the message class of 0-9."""
    raw = RawClient(broker.host, broker.port, version).open()
    sent = MessageTransfer(routing_key="q", immediate=True, body=Content(b"four"))
    raw.call(sent, MessageReject)
    return raw.drop


@pytest.mark.parametrize(
    ("version", "send"),
    [*((version, publish_immediate) for version in Version), (V0_9, transfer_immediate)],
)
def test_an_immediate_message_that_comes_back_is_counted_as_an_unroutable_one(
    operator: ManagementClient,
    broker: LocalBroker,
    version: Version,
    send: Callable[[LocalBroker, Version], Callable[[], None]],
) -> None:
    operator.ask("declare queue", name="q")
    seen = Mirror(operator).look()
    before = seen.named("totals")["totals"]
    close = send(broker, version)
    seen.look()
    totals, exchange = seen.named("totals")["totals"], seen.named("exchange")[""]
    assert totals["received"] - before["received"] == 1
    assert totals["received_bytes"] - before["received_bytes"] == 4
    assert totals["return_unroutable"] - before["return_unroutable"] == 1
    assert (exchange["publish_in"], exchange["publish_out"]) == (1, 0)
    assert (exchange["return_unroutable"], exchange["drop_unroutable"]) == (1, 0)
    close()


@pytest.mark.parametrize("version", VERSIONS)
def test_deliveries_are_counted_by_kind(
    operator: ManagementClient, broker: LocalBroker, version: str
) -> None:
    operator.ask("declare queue", name="q")
    seen = Mirror(operator).look()
    with connect(url_of(broker, version)) as connection:
        channel = connection.channel()
        for _ in range(4):
            publish(channel, "q")
        next(channel.consume("q", prefetch=1))
        channel.close()
        channel = connection.channel()
        consumer = channel.consume("q", prefetch=1)
        again = next(consumer)
        assert again.redelivered
        again.ack()
        next(consumer).ack()
        next(consumer)
        channel.close()
        channel = connection.channel()
        with channel.consume("q", no_ack=True) as consumer:
            assert next(consumer).redelivered
            assert not next(consumer).redelivered
        look_until(seen, lambda: seen.named("queue")["q"]["consumers"] == 0, "all are gone")
        wanted = {"deliver": 4, "deliver_no_ack": 2, "redeliver": 2, "ack": 2}
        counts = only(seen.named("protocol")[version], "publish", "publish_confirm", "confirm")
        assert counts == wanted
        queue = seen.named("queue")["q"]
        assert {name: queue[name] for name in wanted} == wanted
        assert queue["publish"] == 4
    until(lambda: not operator.items("list connections"), "the connection is gone")
    operator.ask("delete queue", name="q")
    sums = seen.look().named("vhost")["/"]
    assert {name: sums[name] for name in wanted} == wanted
    assert (sums["delivered"], sums["acknowledged"]) == (6, 2)


@pytest.mark.parametrize("version", [one for one in VERSIONS if one != "0-10"])
def test_gets_are_counted_by_kind(
    operator: ManagementClient, broker: LocalBroker, version: str
) -> None:
    operator.ask("declare queue", name="q")
    seen = Mirror(operator).look()
    with connect(url_of(broker, version)) as connection:
        channel = connection.channel()
        for _ in range(3):
            publish(channel, "q")
        first = channel.get("q")
        assert first is not None
        first.reject(requeue=True)
        until(lambda: operator.ask("show queue", name="q")["ready"] == 3, "it is ready again")
        assert channel.get("q", no_ack=True) is not None
        for _ in range(2):
            found = channel.get("q")
            assert found is not None
            found.ack()
        assert channel.get("q") is None
        look_until(seen, lambda: seen.named("queue")["q"]["ack"] == 2, "both are settled")
        (channel_row,) = seen.rows["channel"].values()
        wanted = {"get": 3, "get_no_ack": 1, "redeliver": 1, "ack": 2, "get_empty": 1}
        assert only(channel_row, "publish", "publish_confirm", "confirm") == wanted
        queue = seen.named("queue")["q"]
        assert {name: queue[name] for name in wanted} == wanted


@pytest.mark.parametrize(
    ("reason", "strategy", "arguments"),
    [
        ("maxlen", "at_most_once", {"x-max-length": 1, "x-dead-letter-exchange": "amq.fanout"}),
        ("maxlen", "disabled", {"x-max-length": 1}),
        ("expired", "at_most_once", {"x-message-ttl": 0, "x-dead-letter-exchange": "amq.fanout"}),
        (
            *("expired", "at_least_once"),
            {
                "x-message-ttl": 0,
                "x-dead-letter-exchange": "amq.fanout",
                "x-queue-type": "quorum",
                "x-overflow": "reject-publish",
                "x-dead-letter-strategy": "at-least-once",
            },
        ),
        ("rejected", "at_most_once", {"x-dead-letter-exchange": "amq.fanout"}),
        (
            *("delivery_limit", "at_most_once"),
            {"x-delivery-limit": 0, "x-dead-letter-exchange": "amq.fanout"},
        ),
    ],
)
def test_dead_letters_are_counted_by_reason_and_strategy(
    operator: ManagementClient,
    broker: LocalBroker,
    reason: str,
    strategy: str,
    arguments: dict[str, object],
) -> None:
    operator.ask("declare queue", name="q", arguments=arguments)
    operator.ask("declare queue", name="dead")
    operator.ask("bind", source="amq.fanout", destination="dead")
    seen = Mirror(operator).look()
    with connect(broker.url) as connection:
        channel = connection.channel()
        publish(channel, "q")
        if reason == "maxlen":
            publish(channel, "q")
        elif reason != "expired":
            found = channel.get("q")
            assert found is not None
            found.reject(requeue=reason == "delivery_limit")
        name = f"dead_{reason}_{strategy}"
        look_until(seen, lambda: seen.named("totals")["totals"][name] == 1, f"{name} is counted")
    assert seen.named("queue")["q"][f"dead_{reason}"] == 1
    assert seen.named("vhost")["/"][f"dead_{reason}"] == 1
    totals = seen.named("totals")["totals"]
    assert sum(value for key, value in totals.items() if key.startswith(f"dead_{reason}_")) == 1
    if strategy == "at_least_once":
        look_until(
            seen, lambda: seen.named("totals")["totals"]["dead_confirmed"] == 1, "it arrived"
        )


def test_messages_of_operators_count_as_those_of_a_channel(operator: ManagementClient) -> None:
    operator.ask("declare queue", name="q")
    seen = Mirror(operator).look()
    for key in ("q", "q", "nowhere"):
        operator.ask("publish", exchange="amq.direct", routing_key=key, payload="four")
        operator.ask("publish", exchange="", routing_key=key, payload="four")
    operator.items("get", queue="q", count=1, ackmode="ack_requeue_true")
    operator.items("get", queue="q", count=2, ackmode="ack_requeue_false")
    operator.items("get", queue="q", count=1)
    wanted = {"publish": 6, "return_unroutable": 4, "get": 1, "get_no_ack": 2, "redeliver": 1}
    wanted |= {"get_empty": 1}
    assert only(seen.look().named("vhost")["/"]) == wanted
    assert only(seen.named("protocol")["0-9-1"]) == wanted
    assert seen.named("exchange")[""]["publish_out"] == 2
    assert seen.named("exchange")["amq.direct"]["return_unroutable"] == 3


def test_sizes_of_bodies_fall_into_buckets(operator: ManagementClient, broker: LocalBroker) -> None:
    operator.ask("declare queue", name="q")
    seen = Mirror(operator, "totals").look()
    before = seen.named("totals")["totals"]
    sizes = (0, 100, 101, 1000, 1001, 10_000, 100_000, 100_001, 1_000_001)
    with connect(broker.url) as connection:
        channel = connection.channel()
        for size in sizes:
            channel.publish(bytes(size), routing_key="q")
        channel.publish(Message(bytes(200), persistent=True), routing_key="q")
    after = seen.look().named("totals")["totals"]
    assert [after[name] - before[name] for name in columns(SIZES)] == [2, 3, 2, 1, 1, 1, 0, 0, 0]
    assert after["received_bytes"] - before["received_bytes"] == sum(sizes) + 200


def test_logins_are_counted_by_protocol_and_source(
    operator: ManagementClient, broker: LocalBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attempts, "SOURCES_MAX", 3)
    seen = Mirror(operator, "logins").look()

    def row(protocol: str, host: str = "", user: str = "") -> tuple[int, int]:
        wanted = {"protocol": protocol, "host": host, "user": user}
        (number,) = [n for n, one in seen.static["logins"].items() if one == wanted]
        return seen.rows["logins"][number]["succeeded"], seen.rows["logins"][number]["failed"]

    for version in VERSIONS:
        with connect(url_of(broker, version)):
            pass
    with pytest.raises(AuthenticationFailed):
        connect(broker.url_of("eve", "wrong", "/"))
    seen.look()
    for version in VERSIONS:
        assert row(version) == (1, int(version == "0-9-1"))
    assert row("0-9-1", "127.0.0.1", "eve") == (0, 1)
    assert len(seen.rows["logins"]) == len(VERSIONS) + 3
    operator.login("guest", "guest")
    seen.look()
    assert row("http") == (1, 0)


def test_the_oldest_ready_message_has_its_time(
    operator: ManagementClient, broker: LocalBroker
) -> None:
    operator.ask("declare queue", name="q")
    seen = Mirror(operator, "queue").look()
    assert seen.named("queue")["q"]["oldest_ms"] == 0
    with connect(broker.url) as connection:
        channel = connection.channel()
        publish(channel, "q")
        first_ms = seen.look().named("queue")["q"]["oldest_ms"]
        assert first_ms > 1_600_000_000_000
        publish(channel, "q")
        assert channel.get("q", no_ack=True) is not None
        assert seen.look().named("queue")["q"]["oldest_ms"] >= first_ms
        assert channel.get("q", no_ack=True) is not None
        assert seen.look().named("queue")["q"]["oldest_ms"] == 0
