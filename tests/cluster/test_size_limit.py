# SPDX-License-Identifier: Apache-2.0
"""Publishers wait while the database of a cluster is larger than its limit."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import TYPE_CHECKING

import pika

from headrace.server.observe.alarms import FULL
from support.brokers.broker_process import Served, until
from support.cluster import PERSISTENT, channel_to, drained, operator, publish

if TYPE_CHECKING:
    from pathlib import Path

    from support.management_socket import ManagementClient
    from support.postgres import Servers

Make = Callable[..., Served]
SIZE = "select pg_database_size(current_database())"
MIB = 1 << 20
ROOM = 16 * MIB  # Above the size of an empty database.


def alarms(client: ManagementClient) -> list[tuple[str, str, str]]:
    rows = client.items("list alarms")
    return [(row["source"], row["vhost"], row["reason"]) for row in rows]


def test_publishers_wait_until_consumers_have_made_room(make: Make, database: Servers) -> None:
    ((empty,),) = database.primary.execute(SIZE)
    assert isinstance(empty, int)
    limit = empty + ROOM
    broker = make("a", "--cluster-size-max", str(limit), "--segment-size", str(MIB)).start()
    told: list[str] = []
    parameters = pika.ConnectionParameters(broker.host, broker.port, heartbeat=0)
    with (
        contextlib.closing(pika.BlockingConnection(parameters)) as connection,
        operator(broker) as client,
    ):
        connection.add_on_connection_blocked_callback(
            lambda _, frame: told.append(frame.method.reason)
        )
        connection.add_on_connection_unblocked_callback(lambda *_: told.append("unblocked"))
        channel = connection.channel()
        channel.queue_declare("orders", durable=True)
        count = 0
        while not told:
            assert count < 4 * ROOM // 100_000
            channel.basic_publish("", "orders", bytes(100_000), PERSISTENT)
            count += 1
            connection.process_data_events(0.02)
        assert told == [FULL]
        assert alarms(client) == [("cluster", "", FULL)]
        status = client.ask("cluster status")
        assert status["size"] > status["size_max"] == limit
        with channel_to(broker) as consumer:
            consumer.basic_qos(prefetch_count=100)
            for method, _, _ in consumer.consume("orders", inactivity_timeout=30):
                assert method is not None, "a message is missing"
                consumer.basic_ack(method.delivery_tag)
                count -= 1
                if not count:
                    break
        until(lambda: alarms(client) == [], "there is room")
        until(lambda: (connection.process_data_events(0.05), told)[1][1:], "the client is told")
        assert told == [FULL, "unblocked"]
        channel.confirm_delivery()
        channel.basic_publish("", "orders", b"more", PERSISTENT)


def test_without_a_limit_the_size_is_not_read(make: Make, database: Servers) -> None:
    with operator(make("a").start()) as client:
        status = client.ask("cluster status")
    assert (status["size"], status["size_max"]) == (0, 0)


def test_an_operator_raises_the_limit_while_publishers_wait(
    make: Make, database: Servers, tmp_path: Path
) -> None:
    """The limit of a database that is full is raised without a restart."""
    config = tmp_path / "headrace.toml"
    config.write_text("cluster_size_max = 1\n")
    broker = make("a", "--config", str(config)).start()
    with operator(broker) as client:
        until(lambda: alarms(client) == [("cluster", "", FULL)], "the database is full")
        config.write_text(f"cluster_size_max = {1 << 40}\ncluster_lag_max = {2 * MIB}\n")
        reloaded = client.ask("reload")
        changed = {row["name"]: row["after"] for row in reloaded["changed"]}
        assert changed == {"cluster_size_max": 1 << 40, "cluster_lag_max": 2 * MIB}
        assert reloaded["restart"] == {}
        until(lambda: alarms(client) == [], "there is room")
        assert client.ask("cluster status")["size_max"] == 1 << 40
    publish(broker, range(3))
    assert drained(broker) == [0, 1, 2]
