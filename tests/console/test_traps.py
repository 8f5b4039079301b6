# SPDX-License-Identifier: Apache-2.0
"""What breaks clients of RabbitMQ's API, one test each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import pytest

from headrace.client import blocking
from headrace.console.api.routes import ROUTES
from headrace.console.http.routes import JSON

if TYPE_CHECKING:
    from collections.abc import Iterator

    from support.console import LocalConsole

HOSTILE = "<script>alert(1)</script>"


@pytest.fixture(scope="module", autouse=True)
def objects(console: LocalConsole) -> Iterator[None]:
    """A queue with messages, a consumer, bindings, and a user."""
    with blocking.connect(console.broker.url) as connection:
        channel = connection.channel()
        channel.declare_queue("orders")
        channel.declare_exchange("sales", "topic")
        channel.bind_queue("orders", "sales", routing_key="eu.# ~/é")
        channel.declare_queue(HOSTILE)
        for _ in range(5):
            channel.publish(b"m", routing_key="orders")
        yield


def values(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield every value in JSON with its path."""
    yield path, value
    if isinstance(value, dict):
        for name, one in value.items():
            yield from values(one, f"{path}.{name}")
    elif isinstance(value, list):
        for one in value:
            yield from values(one, f"{path}[]")


FLOATS = ("rate", "avg", "avg_rate", "consumer_capacity", "consumer_utilisation")


@pytest.mark.parametrize(
    "path", ["overview", "queues", "nodes", "connections", "channels", "vhosts"]
)
def test_numbers_are_whole_but_for_rates(console: LocalConsole, path: str) -> None:
    for where, value in values(console.get(f"/api/{path}")):
        if isinstance(value, float):
            assert where.rpartition(".")[2] in FLOATS, where


@pytest.mark.parametrize("path", ["queues", "exchanges", "channels"])
def test_message_stats_is_always_an_object(console: LocalConsole, path: str) -> None:
    rows = console.get(f"/api/{path}")
    assert rows
    assert all(isinstance(row["message_stats"], dict) for row in rows)


@pytest.mark.parametrize(
    "path",
    [
        "federation-links",
        "federation-links/%2F",
        "shovels",
        "shovels/%2F",
        "stream/connections",
        "stream/publishers/%2F",
        "stream/consumers",
        "parameters",
        "parameters/shovel",
        "parameters/federation-upstream/%2F",
        "extensions",
        "traces",
        "deprecated-features/used",
    ],
)
def test_what_headrace_has_not_is_an_empty_list(console: LocalConsole, path: str) -> None:
    assert console.get(f"/api/{path}") == []


def test_the_node_has_a_name_with_a_host(console: LocalConsole) -> None:
    (node,) = console.get("/api/nodes")
    assert node["name"].count("@") == 1
    found = console.get(f"/api/nodes/{node['name']}?memory=true")
    assert found["memory"]["total"]["rss"] > 1 << 20
    assert found["fd_used"] > 3
    assert found["disk_free"] > 0
    assert (
        console.get(f"/api/nodes/{node['name']}/memory")["memory"].keys() == found["memory"].keys()
    )
    assert console.ask("GET", "/api/nodes/rabbit@elsewhere").status == 404


def test_the_overview_has_what_clients_choose_by(console: LocalConsole) -> None:
    found = console.get("/api/overview")
    for name in ("management_version", "rabbitmq_version", "erlang_version", "cluster_name"):
        assert isinstance(found[name], str)
    assert found["disable_stats"] is False
    assert found["queue_totals"]["messages"] == 5
    assert found["object_totals"]["queues"] == 2
    assert found["object_totals"]["connections"] == 1
    assert found["message_stats"]["publish_details"]["rate"] >= 0


def test_samples_come_with_averages_where_a_window_is_asked_for(console: LocalConsole) -> None:
    path = "/api/queues/%2F/orders?msg_rates_age=60&msg_rates_incr=5&lengths_age=10&lengths_incr=5"
    found = console.get(path)
    details = found["message_stats"]["publish_details"]
    assert set(details) == {"rate", "avg", "avg_rate", "samples"}
    assert len(details["samples"]) == 13
    moments = [one["timestamp"] for one in details["samples"]]
    assert moments == sorted(moments, reverse=True)
    assert len(found["messages_details"]["samples"]) == 3
    without = console.get("/api/queues/%2F/orders")["message_stats"]["publish_details"]
    assert set(without) == {"rate"}


@pytest.mark.parametrize("query", ["age=99999999999&incr=1", "age=600&incr=1", "age=x&incr=5"])
def test_too_many_samples_are_refused(console: LocalConsole, query: str) -> None:
    query = query.replace("age", "lengths_age").replace("incr", "lengths_incr")
    assert console.ask("GET", f"/api/queues?{query}").status == 400


def test_bindings_have_a_key_that_leads_to_them(console: LocalConsole) -> None:
    rows = console.get("/api/bindings/%2F/e/sales/q/orders")
    (row,) = rows
    assert row["routing_key"] == "eu.# ~/é"
    assert row["properties_key"] == "eu.%23%20%7E%2F%C3%A9"
    for key in (row["properties_key"], row["properties_key"].replace("%", "%25")):
        assert console.get(f"/api/bindings/%2F/e/sales/q/orders/{key}") == row
    assert console.ask("GET", "/api/bindings/%2F/e/sales/q/orders/none").status == 404
    assert console.get("/api/exchanges/%2F/sales/bindings/source") == rows
    to_queue = console.get("/api/queues/%2F/orders/bindings")
    assert [one["source"] for one in to_queue] == ["", "sales"]
    default = console.get("/api/exchanges/%2F/amq.default")
    assert (default["name"], default["type"]) == ("", "direct")


def test_names_of_peers_are_data(console: LocalConsole) -> None:
    answer = console.ask("GET", "/api/queues?columns=name")
    assert answer.headers["Content-Type"].startswith("application/json")
    assert {row["name"] for row in answer.json} == {"orders", HOSTILE}


def test_no_successful_answer_has_a_key_error(console: LocalConsole) -> None:
    """A client of amqpstorm raises at any object with that key."""
    for route in ROUTES:
        if route.method == "GET" and "{" not in route.path and route.media == JSON:
            answer = console.ask("GET", route.path)
            assert answer.status == 200, route.path
            assert "error" not in answer.json


def test_every_list_can_be_paged(console: LocalConsole) -> None:
    for route in ROUTES:
        if route.paged and "{" not in route.path:
            found = console.get(f"{route.path}?page=1&page_size=2&sort=name")
            assert found["page_count"] >= 1
            assert len(found["items"]) == found["item_count"] <= 2


def test_users_have_tags_as_a_list_and_no_password(console: LocalConsole) -> None:
    (user,) = console.get("/api/users")
    assert user["tags"] == ["administrator"]
    assert user["hashing_algorithm"]
    assert "password" not in user
    assert console.get("/api/users/guest") == user
    assert console.ask("GET", "/api/users/none").status == 404


@pytest.mark.parametrize(
    "path",
    [
        "vhosts/none/connections",
        "vhosts/none/channels",
        "vhost-limits/none",
        "parameters/shovel/none",
        "parameters/shovel/none/mine",
        "queues/none",
        "bindings/none",
        "consumers/none",
        "health/checks/quorum-queues-without-elected-leaders/vhost/none",
        "health/checks/quorum-queues-without-elected-leaders/vhost/none/pattern/.*",
        "healthchecks/node/none@here",
    ],
)
def test_a_virtual_host_or_node_that_does_not_exist(console: LocalConsole, path: str) -> None:
    answer = console.ask("GET", f"/api/{path}")
    assert (answer.status, answer.json["reason"]) == (404, "Object Not Found")


def test_definitions_are_a_document(console: LocalConsole) -> None:
    found = console.get("/api/definitions")
    assert {row["name"] for row in found["queues"]} == {"orders", HOSTILE}
    assert [row["name"] for row in found["users"]] == ["guest"]
    answer = console.ask("GET", "/api/definitions/%2F?download=all.json")
    assert answer.headers["Content-Disposition"] == 'attachment; filename="all.json"'
    assert "users" not in answer.json
    assert console.ask("GET", "/api/definitions?download=a%22%0d%0ab").status == 400


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("alarms", 200),
        ("local-alarms", 200),
        ("port-listener/1", 503),
        ("port-listener/x", 400),
        ("port-listener/" + "9" * 5000, 400),
        ("protocol-listener/amqp091", 200),
        ("protocol-listener/amqp,http", 200),
        ("protocol-listener/http%2Fprometheus", 200),
        ("protocol-listener/https", 503),
        ("protocol-listener/mqtt", 503),
        ("virtual-hosts", 200),
        ("certificate-expiration/1/months", 200),
        ("certificate-expiration/1/fortnights", 400),
        ("node-is-quorum-critical", 200),
        ("quorum-queues-without-elected-leaders/all-vhosts/pattern/%5Eorders", 200),
        ("quorum-queues-without-elected-leaders/vhost/%2F", 200),
        ("quorum-queues-without-elected-leaders/vhost/%2F/pattern/%5Eorders", 200),
    ],
)
def test_health_checks(console: LocalConsole, path: str, status: int) -> None:
    answer = console.ask("GET", f"/api/health/checks/{path}")
    assert answer.status == status
    if status == 200:
        assert answer.json["status"] == "ok"
    if status == 503:
        assert answer.json["status"] == "failed"
        assert answer.json["reason"]
    assert console.ask("GET", f"/api/health/checks/{path}", user=None).status == 401


def test_the_node_is_healthy_by_its_name(console: LocalConsole) -> None:
    (node,) = console.get("/api/nodes")
    assert console.get(f"/api/healthchecks/node/{node['name']}") == {"status": "ok"}


@pytest.mark.parametrize("path", ["is-in-service", "ready-to-serve-clients"])
def test_probes_need_no_login(console: LocalConsole, path: str) -> None:
    answer = console.ask("GET", f"/api/health/checks/{path}", user=None)
    assert (answer.status, answer.json) == (200, {"status": "ok"})


def test_each_open_port_is_found(console: LocalConsole) -> None:
    for port in (console.broker.port, console.port, console.metrics_port):
        found = console.get(f"/api/health/checks/port-listener/{port}")
        assert found == {"status": "ok", "port": port}
    missing = console.ask("GET", "/api/health/checks/protocol-listener/mqtt").json
    assert missing["protocols"] == ["amqp", "http", "http/prometheus"]
    assert console.get("/api/aliveness-test/%2F") == {"status": "ok"}
    assert console.ask("GET", "/api/aliveness-test/none").status == 404


def test_connections_channels_and_consumers_name_each_other(console: LocalConsole) -> None:
    (connection,) = console.get("/api/connections")
    name = connection["name"]
    assert connection["state"] == "running"
    quoted = name.replace(" ", "%20").replace(">", "%3E")
    assert console.get(f"/api/connections/{quoted}")["client_properties"]["product"]
    channels = console.get(f"/api/connections/{quoted}/channels")
    assert channels
    assert all(row["connection_details"]["name"] == name for row in channels)
    first = channels[0]["name"].replace(" ", "%20").replace(">", "%3E")
    assert console.get(f"/api/channels/{first}")["name"] == channels[0]["name"]
    for path in ("/api/vhosts/%2F/connections", "/api/connections/username/guest"):
        assert [row["name"] for row in console.get(path)] == [name]  # Numbers may have moved.
    assert console.get("/api/connections/username/other") == []


def test_settings_are_told_without_secrets(console: LocalConsole) -> None:
    found = console.get("/api/config/effective")
    assert found["default_vhost"] == "/"
    assert found["default_pass"] == "…"
    assert "guest" not in [value for name, value in found.items() if name != "default_user"]


def test_no_sessions_of_amqp_1_0(console: LocalConsole) -> None:
    with blocking.connect(console.broker.url):
        row = console.get("/api/connections")[0]
        path = f"/api/connections/{quote(row['name'], safe='')}/sessions"
        answer = console.ask("GET", path)
        assert (answer.status, answer.json["reason"]) == (
            400,
            "connection does not use AMQP 1.0",
        )
    assert console.ask("GET", "/api/connections/none/sessions").status == 404


def test_a_channel_has_its_consumers(console: LocalConsole) -> None:
    with blocking.connect(console.broker.url) as connection:
        idle, channel = connection.channel(), connection.channel()
        channel.declare_queue("taken", exclusive=True)
        with channel.consume("taken", tag="taker"):
            consumers = [
                row for row in console.get("/api/consumers") if row["consumer_tag"] == "taker"
            ]
            name = quote(consumers[0]["channel_details"]["name"], safe="")
            assert console.get(f"/api/channels/{name}")["consumer_details"] == consumers
            other = name.replace(f"%28{channel.number}%29", f"%28{idle.number}%29")
            assert console.get(f"/api/channels/{other}")["consumer_details"] == []
