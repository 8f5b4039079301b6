# SPDX-License-Identifier: Apache-2.0
"""``/api/queues``: names, pages, order and columns."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from headrace.client import blocking

if TYPE_CHECKING:
    from support.console import LocalConsole

NAMES = ["a/b", "a+b", "50%", "café", "Orders.eu", "orders.us", "x" * 255]


@pytest.fixture(scope="module", autouse=True)
def queues(console: LocalConsole) -> None:
    """Queues with names that paths must encode."""
    with blocking.connect(console.broker.url) as connection:
        channel = connection.channel()
        for name in NAMES:
            channel.declare_queue(name)


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("a%2Fb", "a/b"),
        ("a%2fb", "a/b"),
        ("a+b", "a+b"),
        ("50%25", "50%"),
        ("caf%C3%A9", "café"),
        ("x" * 255, "x" * 255),
    ],
)
def test_names_are_decoded_after_the_path_is_split(console: LocalConsole, path, name) -> None:
    assert console.get(f"/api/queues/%2F/{path}")["name"] == name


def test_lists_of_all_and_of_one_virtual_host(console: LocalConsole) -> None:
    for path in ("/api/queues", "/api/queues/", "/api/queues/%2F", "/api/queues/detailed"):
        assert sorted(row["name"] for row in console.get(path)) == sorted(NAMES)
    for path in ("/api/queues/nowhere", "/api/queues/%2F/nothing"):
        answer = console.ask("GET", path)
        assert (answer.status, answer.json["error"]) == (404, "not_found")


def test_lists_of_one_declarer(console: LocalConsole) -> None:
    assert len(console.get("/api/users/guest/queues")) == len(NAMES)
    assert console.get("/api/users/no-one/queues") == []
    assert console.get("/api/users/guest/queues?page=1&page_size=2")["page_count"] == 4


def test_a_page_has_the_counts(console: LocalConsole) -> None:
    page = console.get("/api/queues?page=2&page_size=3&sort=name")
    items = page.pop("items")
    assert [row["name"] for row in items] == sorted(NAMES)[3:6]
    assert page == {
        "total_count": 7,
        "item_count": 3,
        "filtered_count": 7,
        "page": 2,
        "page_size": 3,
        "page_count": 3,
    }


def test_names_are_filtered_without_case(console: LocalConsole) -> None:
    found = console.get("/api/queues?page=1&name=ORDERS")
    assert {row["name"] for row in found["items"]} == {"Orders.eu", "orders.us"}
    assert found["filtered_count"] == 2
    found = console.get("/api/queues?page=1&name=%5Eorders%5C.u&use_regex=true")
    assert [row["name"] for row in found["items"]] == ["orders.us"]


@pytest.mark.parametrize(
    "query",
    [
        "page=0",
        "page=x",
        "page=1&page_size=501",
        "page=1&page_size=0",
        "page=9&page_size=100",
        "page=1&name=(&use_regex=true",
        "page=1&use_regex=true&name=" + "a" * 1025,
        "page=1&use_regex=true&name=(a{1000}){1000}",
    ],
)
def test_what_cannot_be_paged_is_a_bad_request(console: LocalConsole, query: str) -> None:
    answer = console.ask("GET", f"/api/queues?{query}")
    assert answer.status == 400
    assert answer.json["reason"]


def test_order_and_columns(console: LocalConsole) -> None:
    rows = console.get("/api/queues?sort=name&sort_reverse=true&columns=name,arguments")
    assert [row["name"] for row in rows] == sorted(NAMES, reverse=True)
    assert all(set(row) == {"name", "arguments"} for row in rows)
    assert console.get("/api/queues?sort=&columns=name") == console.get("/api/queues?columns=name")
    assert console.get("/api/queues?sort=no.such&columns=vhost,none") == [{"vhost": "/"}] * 7
    assert console.get("/api/queues/%2F/a%2Fb?columns=name") == {"name": "a/b"}
    assert console.get("/api/queues/%2F/a%2Fb?columns=none,,.,name.x,a.b") == {"name": "a/b"}


def test_columns_lead_into_objects_and_lists(console: LocalConsole) -> None:
    found = console.get("/api/overview?columns=listeners.port,listeners.none,queue_totals.messages")
    assert set(found) == {"listeners", "queue_totals"}
    assert {frozenset(one) for one in found["listeners"]} == {frozenset(["port"])}
    assert set(found["queue_totals"]) == {"messages"}
    found = console.get("/api/overview?columns=queue_totals.messages,queue_totals")
    assert len(found["queue_totals"]) > 1
    assert console.get("/api/overview?columns=none") == {}


def test_an_exchange_tells_its_policy(console: LocalConsole) -> None:
    definition = {"alternate-exchange": "amq.fanout"}
    policy = {"pattern": "^amq.match$", "definition": definition, "apply-to": "exchanges"}
    assert console.get("/api/exchanges/%2F/amq.match")["policy"] is None
    assert console.ask("PUT", "/api/policies/%2F/astray", policy).status == 201
    rows = {row["name"]: row["policy"] for row in console.get("/api/exchanges/%2F")}
    assert (rows["amq.match"], rows["amq.topic"]) == ("astray", None)
    assert console.ask("DELETE", "/api/policies/%2F/astray").status == 204
