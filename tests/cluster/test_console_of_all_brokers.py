# SPDX-License-Identifier: Apache-2.0
"""The console of any broker of a cluster shows the virtual hosts of all brokers."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from headrace.node_name import node_name
from support.brokers.broker_process import Served, until
from support.cluster import LEASE, channel_to, command, operator, publish, wait_until_served
from support.console import ConsoleOnThread

if TYPE_CHECKING:
    from collections.abc import Iterator

Make = Callable[..., Served]
SHOP = "%2Fshop"


class Pair:
    """Broker a serves /, broker b /shop; ``console`` is that of b."""

    def __init__(self, a: Served, b: Served, console: ConsoleOnThread) -> None:
        self.a = a
        self.b = b
        self.console = console

    def row(self, vhost: str, queue: str) -> Any:
        """Return a queue of the list."""
        rows = self.console.get("/api/queues")
        return next((row for row in rows if (row["vhost"], row["name"]) == (vhost, queue)), None)


@pytest.fixture(params=[LEASE])
def pair(make: Make, request: pytest.FixtureRequest) -> Iterator[Pair]:
    a, b = (make(name, *request.param).start() for name in ("a", "b"))
    with operator(a) as client:
        client.ask("put vhost", name="/shop")
        client.ask(
            "put permission", user="guest", vhost="/shop", configure=".*", write=".*", read=".*"
        )
    wait_until_served(b, "/shop")
    with ConsoleOnThread(b.home / "data") as console:
        yield Pair(a, b, console)


def depth(row: Any) -> int | None:
    return None if row is None else row["messages_ready"]


def test_lists_and_single_objects_are_those_of_all_brokers(pair: Pair) -> None:
    publish(pair.a, range(3))
    with operator(pair.a) as client:
        client.ask("declare exchange", vhost="/", name="events", type="topic")
        client.ask("bind", vhost="/", source="events", destination="orders", routing_key="a.#")
    with operator(pair.b) as client:
        client.ask("declare queue", vhost="/shop", name="carts")
    get = pair.console.get
    assert [row["name"] for row in get("/api/vhosts")] == ["/", "/shop"]
    assert [(row["vhost"], row["name"]) for row in get("/api/queues")] == [
        ("/", "orders"),
        ("/shop", "carts"),
    ]
    assert [row["name"] for row in get("/api/queues/%2F")] == ["orders"]
    until(lambda: depth(get("/api/queues/%2F/orders")) == 3, "the messages are counted")
    assert get("/api/vhosts/%2F")["messages_ready"] == 3
    assert get("/api/exchanges/%2F/events")["type"] == "topic"
    keys = {(row["vhost"], row["source"], row["destination"]) for row in get("/api/bindings")}
    assert keys == {
        ("/", "", "orders"),
        ("/", "events", "orders"),
        ("/shop", "", "carts"),
    }
    overview = get("/api/overview")
    assert overview["object_totals"]["queues"] == 2
    assert overview["queue_totals"]["messages_ready"] == 3


def test_consumers_at_another_broker_have_no_connection_of_this_one(pair: Pair) -> None:
    """Numbers of connections are those of their broker."""
    publish(pair.a, range(1))
    with operator(pair.b) as client:
        client.ask("declare queue", vhost="/shop", name="carts")
    with channel_to(pair.a) as there, channel_to(pair.b, "/shop") as here:
        there.basic_consume("orders", lambda *_: None)
        here.basic_consume("carts", lambda *_: None)
        (elsewhere,) = pair.console.get("/api/queues/%2F/orders")["consumer_details"]
        (own,) = pair.console.get(f"/api/queues/{SHOP}/carts")["consumer_details"]
    assert elsewhere["channel_details"]["connection_name"] == ""
    assert own["channel_details"]["connection_name"]


def test_metrics_are_those_of_one_broker(pair: Pair) -> None:
    """Prometheus adds up the metrics of all brokers."""
    publish(pair.a, range(3))
    with operator(pair.b) as client:
        client.ask("declare queue", vhost="/shop", name="carts")
    until(lambda: pair.row("/", "orders") is not None, "the queue is listed")
    port = pair.console.metrics_port
    text = pair.console.ask("GET", "/metrics/per-object", port=port).body.decode()
    assert 'queue="carts"' in text
    assert 'queue="orders"' not in text
    total = pair.console.ask("GET", "/metrics", port=port).body.decode()
    assert "headrace_oldest_ready_message_seconds 0" in total


def test_a_queue_is_listed_once_after_its_virtual_host_has_moved(pair: Pair) -> None:
    publish(pair.a, range(3))
    until(lambda: depth(pair.row("/", "orders")) == 3, "the queue of the other broker is listed")
    moved = command(pair.b, "move", "/", "b")
    assert moved.returncode == 0, moved.stderr
    until(lambda: depth(pair.row("/", "orders")) == 3, "the queue is listed by its new broker")
    until(lambda: len(pair.console.get("/api/queues")) == 1, "it is listed once")
    assert pair.console.get("/api/queues/%2F/orders")["node"] == node_name()
    assert [row["name"] for row in pair.console.get("/api/vhosts")] == ["/", "/shop"]


def test_the_objects_of_a_dead_broker_are_those_of_its_successor(pair: Pair) -> None:
    publish(pair.a, range(3))
    until(lambda: depth(pair.row("/", "orders")) == 3, "the queue of the other broker is listed")
    pair.a.kill()
    wait_until_served(pair.b)
    until(lambda: depth(pair.row("/", "orders")) == 3, "the successor lists the queue")
    assert len(pair.console.get("/api/queues")) == 1
    with channel_to(pair.b) as channel:
        channel.queue_delete("orders")
    until(lambda: pair.console.get("/api/queues") == [], "the queue is deleted")


@pytest.mark.parametrize("pair", [("--cluster-lease-s", "60")], indirect=True, ids=["60"])
def test_objects_stay_listed_while_their_broker_does_not_answer(pair: Pair) -> None:
    publish(pair.a, range(3))
    until(lambda: depth(pair.row("/", "orders")) == 3, "the queue of the other broker is listed")
    assert pair.console.console is not None
    others = pair.console.console.state.snapshot.others
    pair.a.process.suspend()
    try:
        until(lambda: pair.console.get("/api/queues") and others.troubles, "the trouble is known")
        assert list(others.troubles) == ["a"]
        assert pair.row("/", "orders") is not None
    finally:
        pair.a.process.resume()
