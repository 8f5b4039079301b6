# SPDX-License-Identifier: Apache-2.0
"""The counters in answers: what clients did is told by every object that it concerns."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest

from headrace.client import Message, blocking
from support.brokers.broker_process import until
from support.timeouts import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import Iterator

    from support.console import LocalConsole

WRONG = ("guest", "wrong")


@pytest.fixture(scope="module", autouse=True)
def client(console: LocalConsole) -> Iterator[blocking.Connection]:
    """A client that has published five messages, got two and acknowledged one."""
    console.get("/api/queues")  # What is there before the first sample has no rate.
    with blocking.connect(console.broker.url) as connection:
        channel = connection.channel()
        channel.declare_queue("counted")
        channel.declare_exchange("sales", "topic")
        channel.bind_queue("counted", "sales", routing_key="#")
        for _ in range(5):
            channel.publish(Message(b"four"), exchange="sales", routing_key="eu")
        first = channel.get("counted")
        assert first is not None
        first.ack()
        assert channel.get("counted") is not None
        until(lambda: stats(console, "queues/%2F/counted").get("ack"), "the ack is counted")
        yield connection


def stats(console: LocalConsole, path: str) -> dict[str, Any]:
    """Return the counters of an object."""
    found: dict[str, Any] = console.get(f"/api/{path}")["message_stats"]
    return found


def test_a_queue_tells_deliveries_by_kind(console: LocalConsole) -> None:
    found = stats(console, "queues/%2F/counted")
    counts = {name: value for name, value in found.items() if not name.endswith("_details")}
    assert counts == {
        "publish": 5,
        "deliver": 0,
        "deliver_no_ack": 0,
        "get": 2,
        "get_no_ack": 0,
        "deliver_get": 2,
        "redeliver": 0,
        "ack": 1,
        "get_empty": 0,
    }
    assert found["publish_details"]["rate"] > 0
    (row,) = [one for one in console.get("/api/queues") if one["name"] == "counted"]
    assert (row["messages_ready"], row["messages_unacknowledged"]) == (3, 1)
    assert row["message_bytes"] == 16
    assert row["memory"] > row["message_bytes"]
    assert row["head_message_timestamp"] > 1_700_000_000
    assert row["idle_since"] is None


def test_exchanges_channels_virtual_hosts_and_the_broker_count(console: LocalConsole) -> None:
    exchange = stats(console, "exchanges/%2F/sales")
    assert (exchange["publish_in"], exchange["publish_out"]) == (5, 5)
    (channel,) = console.get("/api/channels")
    for found in (
        channel["message_stats"],
        stats(console, "vhosts/%2F"),
        stats(console, "overview"),
    ):
        counted = {name: found[name] for name in ("publish", "confirm", "get", "ack")}
        assert counted == {"publish": 5, "confirm": 5, "get": 2, "ack": 1}
        assert found["deliver_get"] == 2


def test_what_came_and_went_is_told_with_rates(console: LocalConsole) -> None:
    churn = console.get("/api/overview")["churn_rates"]
    assert churn["queue_created"] >= 1
    assert churn["connection_created"] >= 1
    assert {"rate"} <= churn["channel_created_details"].keys()
    (node,) = console.get("/api/nodes?node_stats_age=60&node_stats_incr=5")
    assert node["connection_created"] == churn["connection_created"]
    assert len(node["connection_created_details"]["samples"]) == 13
    until(lambda: "samples" in mem_used(console), "the node is sampled")


def mem_used(console: LocalConsole) -> dict[str, Any]:
    (node,) = console.get("/api/nodes?node_stats_age=60&node_stats_incr=5")
    found: dict[str, Any] = node["mem_used_details"]
    return found


def test_a_virtual_host_has_the_bytes_of_its_connections(console: LocalConsole) -> None:
    vhost = console.get("/api/vhosts/%2F")
    (connection,) = console.get("/api/connections")
    assert vhost["recv_oct"] >= connection["recv_oct"] > 0
    assert vhost["send_oct"] >= connection["send_oct"] > 0
    assert vhost["recv_oct_details"].keys() == {"rate"}


def test_logins_are_told_by_protocol_and_source(console: LocalConsole) -> None:
    assert console.ask("GET", "/api/whoami", user=WRONG).status == 401
    node = console.get("/api/nodes")[0]["name"]
    rows = {one["protocol"]: one for one in console.get(f"/api/auth/attempts/{node}")}
    assert rows["amqp091"]["auth_attempts_succeeded"] == 1
    assert rows["http"]["auth_attempts_failed"] == 1
    sources = console.get(f"/api/auth/attempts/{node}/source")
    (wrong,) = [one for one in sources if one["auth_attempts_failed"]]
    assert (wrong["remote_address"], wrong["username"]) == ("127.0.0.1", "guest")
    assert console.ask("GET", "/api/auth/attempts/other").status == 404


def test_dead_letters_are_told_by_reason_and_strategy(console: LocalConsole) -> None:
    """Of the queue where they died, of its virtual host and of the broker."""
    with blocking.connect(console.broker.url) as connection:
        channel = connection.channel()
        short: dict[str, Any] = {"x-max-length": 1, "x-dead-letter-exchange": "amq.fanout"}
        channel.declare_queue("dying", arguments=short)
        channel.declare_queue("dropping", arguments={"x-message-ttl": 0})
        for _ in range(3):
            channel.publish(b"m", routing_key="dying")
        first = channel.get("dying")
        assert first is not None
        first.reject()
        channel.publish(b"m", routing_key="dropping")
        until(lambda: own(console, "vhosts/%2F")["dead_lettered"]["expired"], "it is counted")
        none = {"expired": 0, "rejected": 0, "maxlen": 0, "delivery_limit": 0}
        died = {**none, "rejected": 1, "maxlen": 2}
        assert own(console, "queues/%2F/dying")["dead_lettered"] == died
        assert own(console, "queues/%2F/dropping")["dead_lettered"] == {**none, "expired": 1}
        assert own(console, "vhosts/%2F")["dead_lettered"] == {**died, "expired": 1}
        found = own(console, "overview")
        assert found["dead_lettered"] == {**died, "expired": 1}
        ways = {"disabled": 0, "at_most_once": 0, "at_least_once": 0}
        assert found["dead_letter_strategies"] == {
            "expired": {**ways, "disabled": 1},
            "rejected": {**ways, "at_most_once": 1},
            "maxlen": {**ways, "at_most_once": 2},
            "delivery_limit": ways,
        }
        worst = console.get("/api/queues?sort=headrace.dead_lettered.maxlen&sort_reverse=true")
        assert worst[0]["name"] == "dying"
        for name in ("dying", "dropping"):
            channel.delete_queue(name)


def own(console: LocalConsole, path: str) -> dict[str, Any]:
    """Return the numbers of an object that RabbitMQ does not have."""
    found: dict[str, Any] = console.get(f"/api/{path}")["headrace"]
    return found


def test_a_queue_tells_when_its_oldest_message_came(console: LocalConsole) -> None:
    queue = console.get("/api/queues/%2F/counted")
    oldest_ms = queue["headrace"]["oldest_ready_ms"]
    assert 0 < time.time() * 1000 - oldest_ms < PATIENCE_S * 1000
    assert queue["head_message_timestamp"] == oldest_ms // 1000


def test_the_sizes_of_what_was_published_are_told(console: LocalConsole) -> None:
    found = own(console, "overview")
    assert sum(found["received_sizes"].values()) == found["received"] >= 5
    assert found["received_sizes"]["100"] == found["received"]
    assert found["received_bytes"] >= 20


def test_who_sees_some_virtual_hosts_gets_their_dead_letters_only(console: LocalConsole) -> None:
    link: Any = console.console.link  # type: ignore[union-attr]
    tags = ["management"]
    console.run(link.ask("put user", name="some", password="sees-little", tags=tags))
    answer = console.ask("GET", "/api/overview", user=("some", "sees-little"))
    none = {"expired": 0, "rejected": 0, "maxlen": 0, "delivery_limit": 0}
    assert answer.json["headrace"] == {"dead_lettered": none}
    console.run(link.ask("delete user", name="some"))


def test_a_connection_counts_its_messages(console: LocalConsole) -> None:
    (connection,) = console.get("/api/connections")
    found = connection["message_stats"]
    counted = {name: found[name] for name in ("publish", "confirm", "get", "ack")}
    assert counted == {"publish": 5, "confirm": 5, "get": 2, "ack": 1}
    assert found["publish_details"].keys() == {"rate"}


def test_a_queue_tells_its_policies(console: LocalConsole) -> None:
    short = {"pattern": "^counted$", "definition": {"max-length": 9, "expires": 3_600_000}}
    shorter = {"pattern": "^counted$", "definition": {"max-length": 7}}
    assert console.ask("PUT", "/api/policies/%2F/short", short).status == 201
    assert console.ask("PUT", "/api/operator-policies/%2F/shorter", shorter).status == 201
    queue = console.get("/api/queues/%2F/counted")
    assert (queue["policy"], queue["operator_policy"]) == ("short", "shorter")
    assert queue["effective_policy_definition"] == {"max-length": 7, "expires": 3_600_000}
    assert console.ask("DELETE", "/api/policies/%2F/short").status == 204
    path = "effective_policy_definition.max-length"
    one = console.get("/api/queues/%2F/counted")
    (first, *_) = console.get(f"/api/queues?sort={path}&sort_reverse=true")
    for queue in (one, first):  # An operator policy applies without another, too.
        assert (queue["name"], queue["policy"]) == ("counted", None)
        assert queue["operator_policy"] == "shorter"
        assert queue["effective_policy_definition"] == {"max-length": 7}
    assert console.ask("DELETE", "/api/operator-policies/%2F/shorter").status == 204
    queue = console.get("/api/queues/%2F/counted")
    assert (queue["policy"], queue["effective_policy_definition"]) == (None, {})


def test_every_column_of_a_queue_orders_the_list(console: LocalConsole) -> None:
    """The order by a column, which is found without rows, is that of the rows."""
    for column in columns(console.get("/api/queues/%2F/counted")):
        rows = console.get(f"/api/queues?sort={column}")
        values = [at(row, column) for row in rows]
        assert values == sorted(values, key=lambda value: (isinstance(value, str), value)), column


def columns(row: dict[str, Any], before: str = "") -> Iterator[str]:
    for name, value in row.items():
        if isinstance(value, dict) and value:
            yield from columns(value, f"{before}{name}.")
        elif not isinstance(value, list):
            yield f"{before}{name}"


def at(row: Any, column: str) -> Any:
    for name in column.split("."):
        row = row.get(name, 0) if isinstance(row, dict) else 0
    return str(row) if isinstance(row, dict) else row or 0


def test_a_long_list_is_whole_and_in_order(console: LocalConsole) -> None:
    names = [f"many.{number:04}" for number in range(1500)]
    with blocking.connect(console.broker.url) as connection:
        channel = connection.channel()
        for name in names:
            channel.declare_queue(name, durable=False)
        answer = console.ask("GET", "/api/queues?columns=name&sort=name&name=many.")
        assert answer.headers["Transfer-Encoding"] == "chunked"
        assert [row["name"] for row in answer.json] == names
        assert answer.headers["Content-Security-Policy"]
        assert console.ask("HEAD", "/api/queues").body == b""
        rows = console.get("/api/queues?sort=messages&sort_reverse=true")
        assert rows[0]["name"] == "counted"
        assert len(rows) == len({row["name"] for row in rows}) >= 1500
        assert console.get("/api/queues?name=none") == []
        page = console.get("/api/queues?page=2&page_size=100&lengths_age=60&lengths_incr=5")
        assert (page["item_count"], page["page"], len(page["items"])) == (100, 2, 100)
        assert len(page["items"][0]["messages_details"]["samples"]) == 13
        wrong = "/api/queues?page=99&page_size=500&lengths_age=60&lengths_incr=5"
        assert console.ask("GET", wrong).json["error"] == "page_out_of_range"
