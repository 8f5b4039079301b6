# SPDX-License-Identifier: Apache-2.0
"""The operation ``sample``: what changed since the last look, against a real broker."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING, Any

import pytest

from headrace.client import connect as connect_async
from headrace.client.blocking import connect
from headrace.client.blocking_pipeline import Groups, Requests
from headrace.client.lease import Lease
from headrace.model.events import Churn
from headrace.model.vhost.queue_registry import DELETIONS_PER_STEP
from headrace.server.management.sampling import sampler
from support.brokers.broker_process import until
from support.management_socket import Mirror, refusal

if TYPE_CHECKING:
    from headrace.testing import LocalBroker
    from support.management_socket import ManagementClient

PASSWORD = "a-long-word"


def add_user(operator: ManagementClient, name: str, tags: str, vhost: str) -> ManagementClient:
    operator.ask("put user", name=name, password=PASSWORD, tags=tags)
    operator.ask("put permission", vhost=vhost, user=name, configure=".*", write=".*", read=".*")
    return operator.login(name, PASSWORD)


def publish(operator: ManagementClient, queue: str, vhost: str = "/") -> None:
    operator.ask("publish", vhost=vhost, exchange="", routing_key=queue, payload="four")


def test_rows_have_the_numbers_of_real_clients(
    operator: ManagementClient, broker: LocalBroker
) -> None:
    operator.ask("declare queue", name="q", arguments={"x-max-length": 9})
    operator.ask("bind", source="amq.topic", destination="q", routing_key="#")
    with connect(broker.url) as connection:
        channel = connection.channel()
        for _ in range(3):
            channel.publish(b"four", routing_key="q", exchange="")
        first = channel.get("q")
        assert first is not None
        assert first.ack()
        assert channel.get("q") is not None
        seen = Mirror(operator).look()
        queue = seen.named("queue")["q"]
        wanted = {"ready": 1, "unacked": 1, "unacked_bytes": 4, "ready_bytes": 4, "held": 0}
        wanted |= {"publish": 3, "get": 2, "ack": 1, "consumers": 0}
        assert queue.items() >= wanted.items()
        assert seen.static["queue"][seen.number("queue", "q")] == {
            "name": "q",
            "vhost": "/",
            "type": "classic",
            "durable": True,
            "auto_delete": False,
            "exclusive": False,
            "arguments": {"x-max-length": 9},
            "owner": 0,
            "single": False,
            "user": f"system user {os.getuid()}",
            "policy": "",
            "operator_policy": "",
        }
        counts = {"queues": 1, "connections": 1}
        assert seen.named("vhost")["/"].items() >= {**wanted, **counts}.items()
        (totals,) = seen.rows["totals"].values()
        assert totals.items() >= {**wanted, **counts, "vhosts": 1, "channels": 1}.items()
        assert totals["memory_used"] > 0
        assert seen.named("exchange")["amq.topic"]["bindings"] == 1
        (row,) = operator.items("list connections")
        ((number, static),) = seen.static["connection"].items()
        assert {name: row[name] for name in ("vhost", "user", "host", "port")}.items() <= (
            static.items()
        )
        assert static["number"] == row["id"]
        assert seen.rows["connection"][number]["bytes_received"] > 12
        (channel_row,) = seen.rows["channel"].values()
        assert channel_row["unacked"] == 1


def test_only_what_changed_is_told(operator: ManagementClient) -> None:
    for name in ("idle", "busy"):
        operator.ask("declare queue", name=name)
    seen = Mirror(operator).look()
    assert seen.done["everything"]
    run, epoch = seen.done["run"], seen.since
    assert {name for kind, name in seen.changed if kind == "queue"} == {"idle", "busy"}
    publish(operator, "busy")
    assert ("queue", "busy") in seen.look().changed
    assert not {("queue", "idle"), ("exchange", "amq.topic")} & seen.changed
    assert not seen.done["everything"]
    assert seen.done["run"] == run
    assert seen.since > epoch
    assert seen.named("queue")["busy"]["ready"] == 1
    assert seen.look().changed == set()
    other = Mirror(operator, "queue").look()  # Another client's look hides nothing from the first.
    publish(operator, "idle")
    other.look()
    seen.look()
    assert seen.named("queue") == other.named("queue")
    assert seen.named("queue")["idle"]["ready"] == 1


def test_new_and_gone_objects_with_numbers_that_no_other_had(operator: ManagementClient) -> None:
    seen = Mirror(operator).look()
    operator.ask("declare queue", name="q")
    publish(operator, "q")
    number = seen.look().number("queue", "q")
    operator.ask("delete queue", name="q")
    operator.ask("declare queue", name="q")
    seen.look()
    assert seen.gone == {("queue", "q")}
    assert seen.number("queue", "q") > number
    assert seen.named("queue")["q"]["publish"] == 0
    # What a deleted queue has counted stays in the sums; what was in it does not.
    sums = seen.named("vhost")["/"]
    assert (sums["published"], sums["ready"], sums["queues"]) == (1, 0, 1)
    operator.ask("put vhost", name="shop")
    operator.ask("declare queue", vhost="shop", name="s")
    publish(operator, "s", vhost="shop")
    assert seen.look().named("vhost")["shop"]["ready"] == 1
    operator.ask("delete vhost", name="shop")
    assert {("vhost", "shop"), ("queue", "s")} <= seen.look().gone
    (totals,) = seen.rows["totals"].values()
    assert (totals["published"], totals["vhosts"], totals["queues"]) == (2, 1, 1)


def test_what_was_counted_between_two_looks_stays_in_the_sums(operator: ManagementClient) -> None:
    operator.ask("declare queue", name="old")
    operator.ask("put vhost", name="shop")
    seen = Mirror(operator).look()
    before = seen.named("totals")["totals"]["published"]
    publish(operator, "old")
    operator.ask("delete queue", name="old")
    operator.ask("declare queue", name="short")  # No look sees it.
    publish(operator, "short")
    operator.ask("delete queue", name="short")
    seen.look()
    assert seen.named("vhost")["/"]["published"] == 2
    assert seen.named("totals")["totals"]["published"] == before + 2
    operator.ask("declare queue", vhost="shop", name="s")
    publish(operator, "s", vhost="shop")
    operator.ask("delete vhost", name="shop")
    assert seen.look().named("totals")["totals"]["published"] == before + 3


def test_many_exclusive_queues_of_a_deleted_virtual_host_stay_in_the_sums(
    operator: ManagementClient, broker: LocalBroker
) -> None:
    operator.ask("put vhost", name="shop")
    permission = {"configure": ".*", "write": ".*", "read": ".*"}
    operator.ask("put permission", vhost="shop", user="guest", **permission)
    seen = Mirror(operator).look()
    before = seen.named("totals")["totals"]["published"]
    count = DELETIONS_PER_STEP + 44
    with connect(broker.url_of(vhost="shop")) as connection:
        channel = connection.channel()
        for number in range(count):
            channel.declare_queue(f"q{number}", exclusive=True)
        for number in range(count):
            channel.publish(b"four", routing_key=f"q{number}", exchange="")
        operator.ask("delete vhost", name="shop")
    seen.look()
    assert seen.named("totals")["totals"]["published"] == before + count


def test_an_exchange_is_told_again_when_its_policies_change(operator: ManagementClient) -> None:
    operator.ask("declare exchange", name="orders")
    seen = Mirror(operator, "exchange").look()
    number = seen.number("exchange", "orders")
    assert seen.static["exchange"][number]["policy"] == ""
    definition = {"alternate-exchange": "amq.fanout"}
    given = {"pattern": "^orders$", "definition": definition, "apply-to": "exchanges"}
    operator.ask("put policy", vhost="/", name="astray", **given)
    seen.look()
    assert seen.changed == {("exchange", "orders")}
    assert seen.static["exchange"][number]["policy"] == "astray"
    operator.ask("delete policy", vhost="/", name="astray")
    assert seen.look().static["exchange"][number]["policy"] == ""
    operator.ask("declare exchange", name="orders.new")
    assert seen.look().changed == {("exchange", "orders.new")}


def test_a_queue_is_told_again_when_its_policies_change(operator: ManagementClient) -> None:
    operator.ask("declare queue", name="orders")
    operator.ask("declare queue", name="other")
    seen = Mirror(operator, "queue").look()
    policy = {"name": "short", "pattern": "^orders$", "definition": {"max-length": 5}}
    operator.ask("put policy", vhost="/", **policy)
    assert seen.look().changed == {("queue", "orders")}
    assert seen.static["queue"][seen.number("queue", "orders")]["policy"] == "short"
    operator.ask("delete policy", vhost="/", name="short")
    assert seen.look().changed == {("queue", "orders")}
    assert seen.static["queue"][seen.number("queue", "orders")]["policy"] == ""


def test_connections_and_channels_come_and_go(
    operator: ManagementClient, broker: LocalBroker
) -> None:
    seen = Mirror(operator, "connection", "channel").look()
    assert seen.rows == {}
    with connect(broker.url) as connection:
        connection.channel()
        connection.channel()
        seen.look()
        assert (len(seen.rows["connection"]), len(seen.rows["channel"])) == (1, 2)
    until(lambda: not seen.look().rows["connection"], "the connection is gone")
    assert seen.rows["channel"] == {}
    with connect(f"{broker.url}?version=0-10") as connection, connection.session("own"):
        seen.look()
        (row,) = operator.items("list channels")
        (static,) = seen.static["channel"].values()
        assert (static["name"], static["connection"]) == (row["name"], row["connection"])
        (static,) = seen.static["connection"].values()
        assert static["protocol"] == "0-10"


def only(seen: Mirror, kind: str) -> tuple[dict[str, Any], dict[str, int]]:
    """Return what stays the same and the numbers of the one object of a kind."""
    ((number, static),) = seen.static[kind].items()
    return static, seen.rows[kind][number]


def test_a_group_has_its_lag_and_what_it_committed(
    operator: ManagementClient, broker: LocalBroker
) -> None:
    operator.ask("declare queue", name="events", arguments={"x-queue-type": "stream"})
    for _ in range(5):
        publish(operator, "events")
    with connect(broker.url) as connection, Requests(connection) as requests:
        group = Groups(requests, "etl")
        group.begin({"events": 1})
        seen = Mirror(operator).look()
        static, row = only(seen, "group")
        assert static == {"vhost": "/", "stream": "events", "group": "etl"}
        (listed,) = operator.items("list groups")
        assert row == {
            "lag": 4,
            "lag_bytes": listed["lag_bytes"],
            "durable_offset": 5,
            "committed_records": 0,
            "committed_ms": 0,
            "claimed": 0,
        }
        group.claim(["events"], "reader")
        group.commit({"events": 3}, owner="reader")
        _, row = only(seen.look(), "group")
        assert (row["lag"], row["committed_records"], row["claimed"]) == (2, 2, 1)
        assert 0 < row["lag_bytes"] < listed["lag_bytes"]
        assert row["committed_ms"] == group.get(["events"])["events"].committed_ms
        operator.ask("set group", stream="events", group="etl", position=5)
        operator.ask("set group", stream="events", group="etl", position=0)
        _, row = only(seen.look(), "group")
        assert (row["lag"], row["committed_records"]) == (5, 2), "an operator commits nothing"
        assert seen.look().changed.isdisjoint({("group", "None")})
    operator.ask("delete group", stream="events", group="etl", force=True)
    assert seen.look().static["group"] == {}


def test_a_lease_has_what_is_taken_and_settled(
    operator: ManagementClient, broker: LocalBroker
) -> None:
    operator.ask("declare queue", name="orders")
    for _ in range(5):
        publish(operator, "orders")

    async def take() -> None:
        async with connect_async(broker.url) as connection:
            async with Lease(connection, "orders", group="etl") as lease:
                await lease.claim()
                await lease.take(messages=3)
                await lease.settle(1)

    asyncio.run(take())
    seen = Mirror(operator).look()
    static, row = only(seen, "lease")
    assert static == {"vhost": "/", "queue": "orders", "group": "etl"}
    assert row.pop("leased_bytes") > 0
    assert row == {"leased": 2, "ready": 2, "taken": 3, "settled": 1, "owned": 1}
    operator.ask("release lease", queue="orders", group="etl", force=True)
    _, row = only(seen.look(), "lease")
    assert (row["leased"], row["leased_bytes"], row["ready"]) == (0, 0, 4)
    operator.ask("delete queue", name="orders")
    assert seen.look().static["lease"] == {}


def test_what_came_and_went_is_counted(operator: ManagementClient, broker: LocalBroker) -> None:
    seen = Mirror(operator, "totals").look()
    before = seen.named("totals")["totals"]
    with connect(broker.url) as connection:
        for _ in range(2):
            connection.channel()
        for _ in range(3):
            operator.ask("declare queue", name="q")
        operator.ask("declare queue", name="other")
        operator.ask("delete queue", name="q")
    until(lambda: not operator.items("list connections"), "the connection is gone")
    after = seen.look().named("totals")["totals"]
    assert {name: after[name] - before[name] for name in Churn.__slots__} == {
        "connections_opened": 1,
        "connections_closed": 1,
        "channels_opened": 2,
        "channels_closed": 2,
        "queues_declared": 4,
        "queues_created": 2,
        "queues_deleted": 1,
    }


def test_a_user_has_what_its_lists_have(operator: ManagementClient, broker: LocalBroker) -> None:
    for vhost in ("shop", "bank"):
        operator.ask("put vhost", name=vhost)
        operator.ask("declare queue", vhost=vhost, name=f"of {vhost}")
        stream = {"name": "events", "arguments": {"x-queue-type": "stream"}}
        operator.ask("declare queue", vhost=vhost, **stream)
        operator.ask("set group", vhost=vhost, stream="events", group="etl", position=0)
    ada = Mirror(add_user(operator, "ada", "management", "shop")).look()
    eve = Mirror(add_user(operator, "eve", "monitoring", "shop")).look()
    assert set(ada.named("queue")) == {"of shop", "events"}
    assert set(ada.named("vhost")) == {"shop"}
    assert {one["vhost"] for one in ada.static["exchange"].values()} == {"shop"}
    assert {one["vhost"] for one in ada.static["group"].values()} == {"shop"}
    assert {one["vhost"] for one in eve.static["group"].values()} == {"shop", "bank"}
    assert "totals" not in ada.rows
    assert set(eve.named("queue")) == {"of shop", "of bank", "events"}
    assert "totals" in eve.rows
    with connect(broker.url_of("ada", PASSWORD, "shop")) as own, connect(broker.url) as other:
        own.channel()
        other.channel()
        ada.look()
        eve.look()
        assert [one["user"] for one in ada.static["connection"].values()] == ["ada"]
        assert [one["user"] for one in ada.static["channel"].values()] == ["ada"]
        assert len(eve.static["connection"]) == len(eve.static["channel"]) == 2
    for vhost in ("shop", "bank"):
        operator.ask("delete queue", vhost=vhost, name=f"of {vhost}")
    assert ("queue", "of shop") in ada.look().gone
    assert ("queue", "of bank") not in ada.gone
    assert ("queue", "of bank") in eve.look().gone


def test_a_client_that_missed_too_much_gets_everything(
    operator: ManagementClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sampler, "GONE_MAX", 3)
    slow, quick = Mirror(operator, "queue").look(), Mirror(operator, "queue").look()
    for at in range(5):
        operator.ask("declare queue", name=f"q{at}")
        quick.look()
        operator.ask("delete queue", name=f"q{at}")
        assert quick.look().gone == {("queue", f"q{at}")}
        assert not quick.done["everything"]
    assert slow.look().done["everything"]
    assert Mirror(operator).look().done["everything"]
    slow.since = slow.done["epoch"] + 1_000_000  # Of no look.
    assert slow.look().done["everything"]


def test_what_has_gone_is_kept_for_a_time(
    operator: ManagementClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sampler, "GONE_KEPT_S", 0)
    slow, quick = Mirror(operator, "queue").look(), Mirror(operator, "queue").look()
    for at in range(3):
        operator.ask("declare queue", name=f"q{at}")
        quick.look()
        operator.ask("delete queue", name=f"q{at}")
        assert quick.look().gone == {("queue", f"q{at}")}
        assert not quick.done["everything"]
    assert slow.look().done["everything"]


def test_many_queues_come_in_bounded_lines(operator: ManagementClient) -> None:
    names = {f"q{at}" for at in range(150)}
    for name in names:
        operator.ask("declare queue", name=name, durable=False)
    items = operator.items("sample", kinds=["queue"])
    assert [len(item["new"]) for item in items] == [64, 64, 22]
    assert {row[1] for item in items for row in item["new"]} == names


@pytest.mark.parametrize(
    "fields",
    [
        *({"since": value} for value in (-1, "5", True, 1.5, 1 << 63)),
        *({"kinds": value} for value in ("queue", ["queues"], [1], [["queue"]], {}, {"queue": 1})),
    ],
)
def test_wrong_fields_are_refused(operator: ManagementClient, fields: dict[str, Any]) -> None:
    assert refusal(operator, "sample", **fields) == "bad-request"
    assert operator.items("sample", kinds=[]) == []
