# SPDX-License-Identifier: Apache-2.0
"""Operations that show routes, topology, settings and logs."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from headrace.testing import LocalBroker
from support.brokers.broker_process import until
from support.management_socket import ManagementClient, OperationRefused, refusal

if TYPE_CHECKING:
    from pathlib import Path


def bind(
    operator: ManagementClient, source: str, destination: str, key: str = "", **more: object
) -> None:
    operator.ask("bind", source=source, destination=destination, routing_key=key, **more)


@pytest.fixture
def shop(operator: ManagementClient) -> ManagementClient:
    """Exchanges and queues: topic -> fanout -> queue, an alternate, a dead-letter exchange."""
    operator.ask("declare exchange", name="rest", type="fanout")
    arguments = {"alternate-exchange": "rest"}
    operator.ask("declare exchange", name="news", type="topic", arguments=arguments)
    operator.ask("declare exchange", name="all", type="fanout")
    operator.ask("declare exchange", name="by-header", type="headers")
    operator.ask("declare queue", name="a", arguments={"x-dead-letter-exchange": "rest"})
    for name in ("b", "lost"):
        operator.ask("declare queue", name=name)
    bind(operator, "news", "a", "eu.#")
    bind(operator, "news", "all", "*.sport", kind="exchange")
    bind(operator, "all", "b")
    bind(operator, "rest", "lost")
    bind(operator, "by-header", "b", arguments={"x-match": "all", "n": 1})
    return operator


@pytest.mark.parametrize(
    ("exchange", "key", "headers", "queues"),
    [
        ("news", "eu.sport", {}, {"a", "b"}),
        ("news", "us.sport", {}, {"b"}),
        ("news", "us", {}, {"lost"}),
        ("news", "us.sport", {"CC": ["eu"]}, {"a", "b"}),
        ("by-header", "", {"n": 1}, {"b"}),
        ("by-header", "", {"n": 2}, set()),
        ("", "a", {}, {"a"}),
        ("", "none", {}, set()),
    ],
)
def test_a_route_is_that_of_a_message(
    shop: ManagementClient, exchange: str, key: str, headers: dict[str, object], queues: set[str]
) -> None:
    fields = {"exchange": exchange, "routing_key": key}
    answer = shop.ask("route", **fields, headers=headers)
    assert set(answer["queues"]) == queues
    assert answer["count"] == len(queues)
    assert answer["routed"] is bool(queues)
    sent = shop.ask("publish", **fields, properties={"headers": headers}, payload="m")
    assert sent["routed"] is bool(queues)
    ready = {row["name"] for row in shop.items("list queues") if row["ready"]}
    assert ready == queues


def test_a_route_publishes_and_counts_nothing(shop: ManagementClient) -> None:
    shop.ask("route", exchange="news", routing_key="eu.sport")
    assert all(row["published"] == 0 for row in shop.items("list queues"))
    assert shop.ask("status")["published"] == 0


def test_a_wrong_route_is_refused(shop: ManagementClient) -> None:
    assert refusal(shop, "route", exchange="none") == "not-found"
    assert refusal(shop, "route", exchange="news", headers=5) == "bad-request"
    assert refusal(shop, "route", exchange="news", headers={"CC": "eu"}) == "bad-request"
    assert refusal(shop, "route", exchange="news", headers={"CC": ["k"] * 33}) == "limit"
    assert refusal(shop, "route", exchange="news", vhost="none") == "not-found"


def test_a_route_of_a_hidden_virtual_host_is_not_told(shop: ManagementClient) -> None:
    shop.ask("put vhost", name="other")
    shop.ask("put user", name="ada", password="secret", tags="management")
    given = {"configure": "", "write": "", "read": ""}
    shop.ask("put permission", user="ada", vhost="other", **given)
    ada = shop.login("ada", "secret")
    for do in ("route", "show topology"):
        fields = {"exchange": "news", "name": "news"}
        assert refusal(ada, do, **fields, vhost="/") == "not-found"
        assert refusal(ada, do, exchange="amq.topic", name="amq.topic", vhost="other") == ""


def test_the_topology_has_what_is_around_an_object(shop: ManagementClient) -> None:
    found = shop.ask("show topology", name="news")
    names = [node["name"] for node in found["nodes"]]
    assert names[0] == "news"
    assert set(names) == {"news", "all", "a", "b", "rest", "lost", "by-header"}
    assert found["cut"] is False
    edges = {
        (names[one["from"]], names[one["to"]], one["what"], one["routing_key"])
        for one in found["edges"]
    }
    assert len(edges) == len(found["edges"])
    assert edges == {
        ("news", "a", "binding", "eu.#"),
        ("news", "all", "binding", "*.sport"),
        ("news", "rest", "alternate", ""),
        ("all", "b", "binding", ""),
        ("by-header", "b", "binding", ""),
        ("rest", "lost", "binding", ""),
        ("a", "rest", "dead-letter", ""),
    }
    of_queue = shop.ask("show topology", kind="queue", name="lost")
    assert of_queue["nodes"][0]["name"] == "lost"


def test_a_topology_is_bounded(operator: ManagementClient) -> None:
    for at in range(50):
        operator.ask("declare queue", name=f"q{at}")
        bind(operator, "amq.fanout", f"q{at}")
    found = operator.ask("show topology", name="amq.fanout", count=10)
    assert len(found["nodes"]) == 10
    assert len(found["edges"]) == 9
    assert found["cut"] is True
    assert refusal(operator, "show topology", name="amq.fanout", count=201) == "bad-request"
    assert refusal(operator, "show topology", kind="queue", name="none") == "not-found"


def test_every_object_of_a_bounded_topology_has_an_edge(operator: ManagementClient) -> None:
    """Edges end before the objects do: none is told that no edge leads to."""
    for at in range(8):
        operator.ask("declare queue", name=f"q{at}")
        operator.ask("declare exchange", name=f"x{at}")
        bind(operator, "amq.topic", f"x{at}", kind="exchange")
        for key in range(180):
            bind(operator, f"x{at}", f"q{at}", str(key))
    found = operator.ask("show topology", name="amq.topic")
    assert len(found["edges"]) == 1000
    assert found["cut"] is True
    ends = {edge[end] for edge in found["edges"] for end in ("from", "to")}
    assert ends == set(range(len(found["nodes"])))


# --- Settings and logs ----------------------------------------------------------------------------


def test_settings_tell_their_sources(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADRACE_CHANNEL_MAX", "99")
    with LocalBroker(data, channel_max=99):
        operator = ManagementClient(data / "management.sock")
        rows = {row["name"]: row for row in operator.items("list settings")}
        operator.close()
    assert (rows["channel_max"]["value"], rows["channel_max"]["default"]) == (99, 2047)
    assert rows["channel_max"]["source"] == "HEADRACE_CHANNEL_MAX"
    assert rows["memory_max"]["source"] in ("default", "file")
    assert rows["data"]["value"] == str(data)
    assert all(row["help"] for row in rows.values())


def test_the_audit_log_is_shown(data: Path) -> None:
    with LocalBroker(data, audit_log=str(data.parent / "audit.log")):
        operator = ManagementClient(data / "management.sock")
        for name in ("one", "two"):
            operator.ask("declare queue", name=name)

        def declared() -> list[object]:
            rows = [json.loads(row["line"]) for row in operator.items("show log", of="audit")]
            return [row["name"] for row in rows if row["what"] == "queue.created"]

        until(lambda: declared() == ["one", "two"], "both lines")
        assert len(operator.items("show log", of="audit", count=1)) == 1
        operator.close()


def test_a_log_that_is_no_file_is_told(operator: ManagementClient) -> None:
    with pytest.raises(OperationRefused, match="audit_log is empty"):
        operator.ask("show log", of="audit")
    assert refusal(operator, "show log") == "precondition"
    assert refusal(operator, "show log", of="other") == "bad-request"
    assert refusal(operator, "show log", of="audit", count=5000) == "bad-request"
