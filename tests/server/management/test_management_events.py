# SPDX-License-Identifier: Apache-2.0
"""The stream of events on the management socket."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from headrace.server.management.resources import events
from support.brokers.broker_process import until
from support.management_socket import ManagementClient, OperationRefused, refusal

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PASSWORD = "secret"


def begin(client: ManagementClient, **fields: object) -> Iterator[dict[str, Any]]:
    """Start the stream; yield its items."""
    client.send("events", **fields)
    assert client.line() == {"busy": True}
    return told(client)


def told(client: ManagementClient) -> Iterator[dict[str, Any]]:
    """Yield the items of a stream that has begun."""
    while True:
        line = client.line()
        if "item" in line:
            yield line["item"]


def listener(operator: ManagementClient, name: str, tags: str) -> ManagementClient:
    """Return the connection of a user with permissions in the virtual host mine."""
    operator.ask("put user", name=name, password=PASSWORD, tags=tags)
    given = {"configure": ".*", "write": ".*", "read": ".*"}
    operator.ask("put permission", user=name, vhost="mine", **given)
    return operator.login(name, PASSWORD)


def test_each_change_is_an_item(operator: ManagementClient, data: Path) -> None:
    client = ManagementClient(data / "management.sock")
    items = begin(client)
    operator.ask("declare queue", name="q")
    item = next(items)
    assert item["kind"] == "queue.created"
    assert (item["facts"]["name"], item["facts"]["vhost"]) == ("q", "/")
    assert item["at_ms"] > 0
    operator.ask("put user", name="ada", password=PASSWORD)
    assert next(items)["kind"] == "user.created"
    client.close()


def test_a_user_is_told_what_it_may_see(operator: ManagementClient) -> None:
    operator.ask("put vhost", name="mine")
    ada, mon = listener(operator, "ada", "management"), listener(operator, "mon", "monitoring")
    root = listener(operator, "root", "administrator")
    streams = [begin(one) for one in (ada, mon, root)]
    operator.ask("put user", name="eve", password=PASSWORD)
    operator.ask("declare queue", name="theirs")
    operator.ask("declare queue", vhost="mine", name="ours")
    seen = [[next(stream) for _ in range(1 + at)] for at, stream in enumerate(streams)]
    assert [[item["facts"]["name"] for item in items] for items in seen] == [
        ["ours"],
        ["theirs", "ours"],
        ["eve", "theirs", "ours"],
    ]
    for client in (ada, mon, root):
        client.close()


def test_kinds_and_virtual_host_choose(operator: ManagementClient, data: Path) -> None:
    operator.ask("put vhost", name="mine")
    client = ManagementClient(data / "management.sock")
    items = begin(client, kinds=["queue.deleted", "exchange"], vhost="mine")
    for vhost in ("/", "mine"):
        operator.ask("declare queue", vhost=vhost, name="q")
        operator.ask("declare exchange", vhost=vhost, name="x")
        operator.ask("delete queue", vhost=vhost, name="q")
    told = [next(items) for _ in range(2)]
    assert [item["kind"] for item in told] == ["exchange.created", "queue.deleted"]
    assert {item["facts"]["vhost"] for item in told} == {"mine"}
    client.close()


@pytest.mark.parametrize("kinds", [[], "queue", [5], [""], ["q" * 256], ["queue"] * 33])
def test_wrong_kinds_are_refused(operator: ManagementClient, kinds: object) -> None:
    assert refusal(operator, "events", kinds=kinds) == "bad-request"
    assert refusal(operator, "events", vhost="none") == "not-found"


def test_a_stream_ends_with_its_ticket(operator: ManagementClient) -> None:
    operator.ask("put vhost", name="mine")
    ada = listener(operator, "ada", "management")
    items = begin(ada)
    operator.ask("put user", name="ada", password="other", tags="management")
    operator.ask("declare queue", vhost="mine", name="q")
    with pytest.raises(OperationRefused, match="the ticket has ended"):
        next(items)
    ada.close()


def test_streams_are_few_and_one_that_ends_makes_room(
    operator: ManagementClient, data: Path
) -> None:
    clients = [ManagementClient(data / "management.sock") for _ in range(events.STREAMS_MAX)]
    for client in clients:
        begin(client)
    assert refusal(operator, "events") == "limit"
    clients[1].end.sendall(b'{"end": true}\n')
    while "done" not in clients[1].line():
        pass
    begin(clients[1])
    clients[0].close()
    until(lambda: begins(data), "a stream is free")
    for client in clients[1:]:
        client.close()


def begins(data: Path) -> bool:
    """Return True if another stream begins."""
    client = ManagementClient(data / "management.sock")
    try:
        begin(client)
    except OperationRefused:
        return False
    finally:
        client.close()
    return True


def test_a_client_that_does_not_read_is_told_how_many_it_lost(
    operator: ManagementClient, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events, "BACKLOG_MAX", 5)
    client = ManagementClient(data / "management.sock")
    items = begin(client)
    count = 3000  # More than the buffers of the two sockets hold.
    names = {f"{number}{'x' * 200}" for number in range(count)}
    for name in names:
        operator.ask("declare queue", name=name, durable=False)
    seen = lost = 0
    while seen + lost < count:
        item = next(items)
        lost += item.get("lost", 0)
        seen += "kind" in item
    assert seen + lost == count
    assert lost > 0
    client.close()
