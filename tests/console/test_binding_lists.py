# SPDX-License-Identifier: Apache-2.0
"""Lists of bindings: those of the default exchange are made for a page only."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from headrace.client.blocking import connect

if TYPE_CHECKING:
    from support.console import LocalConsole


def test_bindings_are_listed_in_order_and_sorted_by_each_column(console: LocalConsole) -> None:
    console.ask("PUT", "/api/queues/%2F/a-queue", {})
    console.ask("PUT", "/api/exchanges/%2F/an-exchange", {"type": "topic"})
    for key, arguments in (("z", {}), ("a b", {"x": 1})):
        body = {"routing_key": key, "arguments": arguments}
        path = "/api/bindings/%2F/e/an-exchange/q/a-queue"
        assert console.ask("POST", path, body).status == 201
    rows = console.get("/api/bindings/%2F")
    order = ("vhost", "source", "destination", "routing_key", "properties_key")
    assert rows == sorted(rows, key=lambda row: [row[name] for name in order])
    assert len(rows) == len(console.get("/api/queues/%2F")) + sum(
        len(console.get(f"/api/exchanges/%2F/{name}/bindings/source"))
        for name in {row["source"] for row in rows if row["source"]}
    )
    for column in (*order, "destination_type"):
        found = console.get(f"/api/bindings?sort={column}&sort_reverse=true")
        values = [row[column] for row in found]
        assert values == sorted(values, reverse=True), column
    last = console.get("/api/bindings?sort=arguments.x&sort_reverse=true")[0]
    assert last["arguments"] == {"x": 1}
    default = console.get("/api/exchanges/%2F/amq.default/bindings/source?page=1&page_size=1")
    assert default["total_count"] == len(console.get("/api/queues/%2F"))
    assert default["items"][0]["source"] == ""
    (one,) = console.get("/api/bindings/%2F/e/amq.default/q/a-queue")
    assert console.get("/api/bindings/%2F/e/amq.default/q/a-queue/a-queue") == one
    assert console.get("/api/bindings/%2F/e/amq.default/e/an-exchange") == []
    bound = console.get("/api/queues/%2F/a-queue/bindings")
    assert [row["source"] for row in bound] == ["", "an-exchange", "an-exchange"]


TYPED: tuple[dict[str, Any], ...] = (
    {"a": datetime(2026, 1, 2, tzinfo=UTC)},
    {"a": "2026-01-02 00:00:00+00:00"},  # The same in JSON as the one before.
    {"a": Decimal("1.50")},
    {"a": "1.50"},
    {"a": b"\xff\x00"},
    {"a": ["x", {"b": Decimal("2.5")}]},
    {"a": 3.5},
)


def test_a_binding_with_any_type_of_argument_is_removed_by_its_key(console: LocalConsole) -> None:
    path = "/api/bindings/%2F/e/amq.headers/q/typed"
    with connect(console.broker.url) as connection, connection.channel() as channel:
        channel.declare_queue("typed", durable=True)
        for arguments in TYPED:
            channel.bind_queue(
                "typed", "amq.headers", "k", arguments={**arguments, "x-match": "all"}
            )
    rows = console.get(path)
    assert len(rows) == len(TYPED)
    for number, row in enumerate(rows, 1):
        one = f"{path}/{row['properties_key']}"
        assert console.get(one) == row
        assert console.ask("DELETE", one).status == 204
        assert console.get(path) == rows[number:]
        assert console.ask("DELETE", one).status == 404
