# SPDX-License-Identifier: Apache-2.0
"""An owner that the database does not answer stands still, and goes on as if nothing had been."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pika
import pika.exceptions
import pytest

from support.brokers.broker_process import Served, until
from support.cluster import (
    LEASE,
    PERSISTENT,
    channel_to,
    drained,
    operator,
    publish,
    put,
    wait_until_served,
)
from support.postgres import Proxy, Servers
from support.timeouts import PATIENCE_S

if TYPE_CHECKING:
    from pika.adapters.blocking_connection import BlockingChannel

    from support.management_socket import ManagementClient

Make = Callable[..., Served]
FROZEN = "the lease of this broker has ended"
THAWED = "clients are served again"
STALLED = "nothing is confirmed until the database of the cluster accepts a write"


@pytest.fixture
def proxied(
    make: Make, database: Servers, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[Served, Proxy]]:
    """A broker that reaches the database through a proxy."""
    with contextlib.closing(Proxy(database.primary.port)) as proxy:
        monkeypatch.setenv("HEADRACE_CLUSTER", database.primary.url(proxy.port))
        broker = make("a", *LEASE).start()
        monkeypatch.setenv("HEADRACE_CLUSTER", database.primary.url())
        yield broker, proxy


def consumed(channel: BlockingChannel, count: int) -> list[int]:
    """Return the next deliveries of orders; each is acknowledged."""
    found = []
    for method, _, body in channel.consume("orders", inactivity_timeout=60):
        if method is None:
            break
        found.append((int(body), method.redelivered))
        channel.basic_ack(method.delivery_tag)
        if len(found) == count:
            break
    assert not any(redelivered for _, redelivered in found)
    return [number for number, _ in found]


def test_a_stall_of_the_database_is_a_pause(proxied: tuple[Served, Proxy]) -> None:
    broker, proxy = proxied
    publish(broker, range(10))
    with channel_to(broker) as publisher, channel_to(broker) as consumer:
        consumer.basic_qos(prefetch_count=1)
        assert consumed(consumer, 5) == list(range(5))
        proxy.hold()
        until(lambda: FROZEN in broker.log(), "the freeze")
        with operator(broker) as client:
            status = client.ask("cluster status")
            assert status["frozen"] is True
        proxy.go_on()
        until(lambda: THAWED in broker.log(), "the thaw")
        put(publisher, range(10, 20))
        assert consumed(consumer, 15) == list(range(5, 20))


def test_a_client_that_opens_a_frozen_virtual_host_waits(proxied: tuple[Served, Proxy]) -> None:
    broker, proxy = proxied
    publish(broker, range(1))
    proxy.hold()
    until(lambda: FROZEN in broker.log(), "the freeze")
    with ThreadPoolExecutor(1) as pool, operator(broker) as client:
        late = pool.submit(publish, broker, range(1, 2))
        until(lambda: len(client.items("list connections")) == 1, "the client")
        assert not late.done()
        proxy.go_on()
        late.result(PATIENCE_S)
    assert drained(broker) == [0, 1]


def test_an_owner_cut_off_delivers_nothing_beside_the_next_one(
    proxied: tuple[Served, Proxy], make: Make
) -> None:
    first, proxy = proxied
    second = make("b", *LEASE).start()
    publish(first, range(10))
    with channel_to(first) as channel:
        channel.basic_qos(prefetch_count=1)
        assert consumed(channel, 5) == list(range(5))
        proxy.hold()
        until(lambda: FROZEN in first.log(), "the freeze")
        wait_until_served(second)
        publish(second, range(10, 15))
        left = drained(second)
        assert left[-10:] == list(range(5, 15))
        proxy.cut()
        until(lambda: "is not served here any more" in first.log(), "the first gives up")
    assert first.running


def test_a_change_waits_for_a_database_that_is_away(
    make: Make, database: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Queues are declared and messages confirmed once it is back; nothing is refused."""
    with contextlib.closing(Proxy(database.primary.port)) as proxy, ThreadPoolExecutor(2) as pool:
        monkeypatch.setenv("HEADRACE_CLUSTER", database.primary.url(proxy.port))
        broker = make("a", "--cluster-lease-s", "20").start()
        publish(broker, range(1))
        with channel_to(broker) as publisher, channel_to(broker) as declarer:
            proxy.target = 1  # No server is there.
            proxy.cut()
            confirmed = pool.submit(put, publisher, range(1, 10))
            until(lambda: STALLED in broker.log(), "a write that is repeated")
            declared = pool.submit(declarer.queue_declare, "late", durable=True)
            with operator(broker) as client:

                def names() -> list[str]:
                    return [row["name"] for row in client.listed("list queues", vhost="/")[0]]

                until(lambda: "late" in names(), "it is made")
                assert alarms(client) == []
            assert not declared.done()
            assert not confirmed.done()
            proxy.target = database.primary.port
            declared.result(PATIENCE_S)
            confirmed.result(PATIENCE_S)
        assert drained(broker) == list(range(10))
        assert "low on disk" not in broker.log()


def test_who_waits_for_a_commit_is_told_that_another_broker_has_the_virtual_host(
    make: Make, database: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answer never comes: the ledger was taken before it."""
    with contextlib.closing(Proxy(database.primary.port)) as proxy, ThreadPoolExecutor(1) as pool:
        monkeypatch.setenv("HEADRACE_CLUSTER", database.primary.url(proxy.port))
        broker = make("a", "--cluster-lease-s", "20").start()
        publish(broker, range(1))
        parameters = pika.ConnectionParameters(broker.host, broker.port, heartbeat=0)
        connection = pika.BlockingConnection(parameters)
        channel = connection.channel()
        channel.tx_select()
        proxy.hold()
        channel.basic_publish("", "orders", b"1", PERSISTENT)
        committed = pool.submit(channel.tx_commit)
        with operator(broker) as client:
            until(lambda: ready(client) == 2, "the commit waits for the database")
        thief = "update headrace.log set epoch = epoch + 1, taken = 'b', owner = 'b'"
        database.primary.execute(thief)
        proxy.go_on()
        with pytest.raises(pika.exceptions.ConnectionClosedByBroker) as caught:
            committed.result(PATIENCE_S)
        assert caught.value.reply_code == 320


def test_publishers_wait_for_a_slow_database(
    make: Make, database: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What waits to be replicated is bounded; consumers and other clients are served."""
    with contextlib.closing(Proxy(database.primary.port)) as proxy:
        monkeypatch.setenv("HEADRACE_CLUSTER", database.primary.url(proxy.port))
        broker = make("a", "--cluster-lag-max", "1MiB", "--cluster-lease-s", "20").start()
        with channel_to(broker) as setting_up:
            setting_up.queue_declare("orders", durable=True)
        parameters = pika.ConnectionParameters(broker.host, broker.port, heartbeat=0)
        with contextlib.closing(pika.BlockingConnection(parameters)) as connection:
            channel = connection.channel()
            proxy.hold()
            for _ in range(40):
                channel.basic_publish("", "orders", bytes(100_000), PERSISTENT)
            with operator(broker) as client:
                until(lambda: alarms(client) == ["the database of the cluster is slow"], "it waits")
                proxy.go_on()
                until(lambda: alarms(client) == [], "it goes on")
                until(lambda: ready(client) == 40, "all are there")


def alarms(client: ManagementClient) -> list[str]:
    return [row["reason"] for row in client.items("list alarms")]


def ready(client: ManagementClient) -> int:
    return int(client.ask("show queue", vhost="/", name="orders")["ready"])
