# SPDX-License-Identifier: Apache-2.0
"""Alarms in metrics and in the API: told by what raised them, whatever their reason says."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import pytest
from prometheus_client.parser import text_string_to_metric_families

from headrace.client import blocking
from support.console_alarms import low_on_disk, low_on_memory, on_loop
from support.console_browser import Browser

if TYPE_CHECKING:
    from collections.abc import Iterator

    from support.console import LocalConsole

Told = tuple[bool, bool, float, float, float, set[tuple[str, str]]]


@contextlib.contextmanager
def operators(console: LocalConsole, reason: str, vhost: str | None = None) -> Iterator[None]:
    link = console.console.link  # type: ignore[union-attr]
    console.run(link.ask("set alarm", vhost=vhost, reason=reason))
    try:
        yield
    finally:
        console.run(link.ask("clear alarm", vhost=vhost))


def told(console: LocalConsole) -> Told:
    """What the node and the metrics say: memory, disk, RabbitMQ's three, ours that are 1."""
    (node,) = console.get("/api/nodes")
    text = console.ask("GET", "/metrics", user=None, port=console.metrics_port).body.decode()
    found = {
        (one.name, one.labels.get("source", ""), one.labels.get("vhost", "")): one.value
        for family in text_string_to_metric_families(text)
        for one in family.samples
    }
    names = ("memory_used_watermark", "free_disk_space_watermark", "file_descriptor_limit")
    memory, disk, files = (found[f"rabbitmq_alarms_{name}", "", ""] for name in names)
    ours = {key[1:]: value for key, value in found.items() if key[0] == "headrace_alarms"}
    assert {source for source, _ in ours} == {"memory", "disk", "operator", "cluster"}
    active = {key for key, value in ours.items() if value}
    return node["mem_alarm"], node["disk_free_alarm"], memory, disk, files, active


@pytest.mark.parametrize(
    "reason", ["moving lab to new disk", "low on memory", "descriptor", "maintenance"]
)
def test_an_operators_alarm_is_an_operators_alarm(console: LocalConsole, reason: str) -> None:
    with operators(console, reason):
        assert told(console) == (False, False, 0, 0, 0, {("operator", "")})
    assert told(console) == (False, False, 0, 0, 0, set())


def test_alarms_are_told_by_source_and_virtual_host(console: LocalConsole) -> None:
    with low_on_disk(console.broker), operators(console, "maintenance", "/"):
        assert told(console) == (False, True, 0, 1, 0, {("disk", "/"), ("operator", "/")})
    with low_on_memory(console.broker):
        assert told(console) == (True, False, 1, 0, 0, {("memory", "")})


def test_the_check_names_the_resource(console: LocalConsole) -> None:
    with low_on_disk(console.broker), operators(console, "maintenance"):
        answer = console.ask("GET", "/api/health/checks/alarms")
    assert answer.status == 503
    assert [(row["resource"], row["reason"]) for row in answer.json["alarms"]] == [
        ("disk", "low on disk"),
        ("operator", "maintenance"),
    ]


def test_the_overview_shows_what_blocks_publishers(console: LocalConsole) -> None:
    browser = Browser(console)
    assert 'role="alert"' not in browser.text("/")
    with operators(console, "moving <b>house</b>"), low_on_disk(console.broker):
        html = browser.text("/")
    assert "All publishers are blocked since <time" in html
    assert "moving &lt;b&gt;house&lt;/b&gt;</bdi> (alarm of source <bdi>operator</bdi>)" in html
    assert "Publishers of virtual host <bdi>/</bdi> are blocked since <time" in html
    assert "low on disk</bdi> (alarm of source <bdi>disk</bdi>)" in html
    assert 'role="alert"' not in browser.text("/")


def test_users_see_the_alarms_of_their_virtual_hosts(console: LocalConsole) -> None:
    link: Any = console.console.link  # type: ignore[union-attr]
    console.run(link.ask("put vhost", name="lab"))
    console.run(link.ask("put user", name="ada", password="secret", tags=["management"]))
    everything = {"configure": ".*", "write": ".*", "read": ".*"}
    console.run(link.ask("put permission", user="ada", vhost="/", **everything))
    ada, guest = Browser(console, "ada", "secret"), Browser(console)
    with operators(console, "moving", "lab"):
        assert "moving" not in ada.text("/")
        assert "Publishers of virtual host <bdi>lab</bdi> are blocked" in guest.text("/")
    with operators(console, "moving"):
        assert "moving" in ada.text("/")
    console.run(link.ask("delete user", name="ada"))
    console.run(link.ask("delete vhost", name="lab"))


def test_the_overview_shows_that_the_broker_drains(console: LocalConsole) -> None:
    link: Any = console.console.link  # type: ignore[union-attr]
    browser = Browser(console)
    console.run(link.ask("drain"))
    console.console.state.invalidate()  # type: ignore[union-attr]
    assert "The broker is draining" in browser.text("/")
    console.run(link.ask("resume"))
    console.console.state.invalidate()  # type: ignore[union-attr]
    assert "The broker is draining" not in browser.text("/")


def test_closed_ports_are_not_listed_and_fail_the_checks_of_listeners(
    console: LocalConsole,
) -> None:
    link: Any = console.console.link  # type: ignore[union-attr]
    checks = [
        f"/api/health/checks/{check}"
        for check in (f"port-listener/{console.broker.port}", "protocol-listener/amqp")
    ]

    def listeners() -> list[str]:
        console.console.state.invalidate()  # type: ignore[union-attr]
        return [listener["protocol"] for listener in console.get("/api/overview")["listeners"]]

    assert [console.ask("GET", check).status for check in checks] == [200, 200]
    assert "amqp" in listeners()
    console.run(link.ask("drain"))
    assert [console.ask("GET", check).status for check in checks] == [503, 503]
    assert console.run(link.ask("status", counts=False))["listens"] == {}
    assert "amqp" not in listeners()
    told = console.run(link.ask("resume"))["listens"]
    assert told == {"amqp": f"127.0.0.1:{console.broker.port}"}
    assert [console.ask("GET", check).status for check in checks] == [200, 200]
    assert "amqp" in listeners()


def test_a_connection_has_its_name_while_the_broker_drains(console: LocalConsole) -> None:
    link: Any = console.console.link  # type: ignore[union-attr]
    drain: Any = console.broker._broker.drain

    def names() -> list[str]:
        console.console.state.invalidate()  # type: ignore[union-attr]
        return [connection["name"] for connection in console.get("/api/connections")]

    with blocking.connect(console.broker.url):
        (name,) = names()
        assert name.endswith(f" -> 127.0.0.1:{console.broker.port}")
        on_loop(console.broker, drain.begin)
        assert names() == [name]
        quoted = name.replace(" ", "%20").replace(">", "%3E")
        assert console.get(f"/api/connections/{quoted}")["name"] == name
        console.run(link.ask("resume"))
        assert names() == [name]


def test_a_connection_says_why_it_is_blocked(console: LocalConsole) -> None:
    browser = Browser(console)
    with blocking.connect(f"{console.broker.url}?name=held") as connection:
        channel = connection.channel()
        channel.declare_queue("held")
        channel.publish(b"m", routing_key="held")
        (row,) = [r for r in console.get("/api/connections") if r["user_provided_name"] == "held"]
        path = f"connections/{quote(row['name'], safe='')}"
        assert (row["state"], row["blocked_by"]) == ("running", "")
        with operators(console, "moving house"):
            row = console.get(f"/api/{path}")
            assert (row["state"], row["blocked_by"]) == ("blocked", "moving house")
            assert "moving house" in browser.text(f"/{path}")
        row = console.get(f"/api/{path}")
        assert (row["state"], row["blocked_by"]) == ("running", "")
        channel.delete_queue("held")
