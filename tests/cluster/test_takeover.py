# SPDX-License-Identifier: Apache-2.0
"""A virtual host goes from one broker to another, and nothing that was confirmed is lost."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from support.brokers.broker_process import Served, json_lines, until
from support.cluster import LEASE, drained, operator, owners, publish, wait_until_served
from support.management_socket import OperationRefused

Make = Callable[..., Served]
TAKEOVER_S = 8.0  # After the owner was killed.
GIVEN_S = 4.0  # After it stopped.


def test_the_other_broker_serves_what_was_confirmed(make: Make) -> None:
    first, second = make("a").start(), make("b").start()
    publish(first, range(50))
    first.kill()
    killed_s = time.monotonic()
    assert drained(second) == list(range(50))  # Its client waits in connection.open.
    assert time.monotonic() - killed_s < TAKEOVER_S


def test_a_broker_that_comes_back_serves_what_it_has_kept(make: Make) -> None:
    first = make("a").start()
    publish(first, range(20))
    first.kill()
    first.start()
    assert drained(first) == list(range(20))


def test_a_machine_without_files_begins_with_the_database_alone(make: Make) -> None:
    first = make("a").start()
    publish(first, range(20))
    first.stop()
    assert drained(make("b").start()) == list(range(20))


def test_a_stop_gives_everything_to_the_others(make: Make) -> None:
    first, second = make("a").start(), make("b").start()
    publish(first, range(20))
    first.stop()
    wait_until_served(second, timeout_s=GIVEN_S)
    assert drained(second) == list(range(20))


def serves(broker: Served) -> tuple[bool, str]:
    """Return what a load balancer is told that wants the owner."""
    with operator(broker) as client:
        told = client.ask("health", checks=["ready"], vhost="/")
    return told["healthy"], told["checks"]["vhost"]


def test_an_operator_moves_a_virtual_host(make: Make) -> None:
    first, second = make("a").start(), make("b").start()
    publish(first, range(20))
    with operator(second) as client:
        assert client.ask("move vhost", vhost="/", broker="b")["took_s"] < 2.0
    assert owners(second) == {"/": "b"}
    assert serves(second) == (True, "")
    until(lambda: serves(first) == (False, "'/' is served by broker 'b'"), "the first one knows")
    publish(second, range(20, 30))
    assert drained(second) == list(range(30))
    with operator(first) as client:
        client.ask("move vhost", vhost="/", broker="a")
    assert owners(first) == {"/": "a"}


def test_where_a_virtual_host_goes_is_in_the_audit_log(make: Make, tmp_path: Path) -> None:
    """Taken at the start, given by a move, lost in a takeover."""
    logs = [tmp_path / "a.audit", tmp_path / "b.audit"]
    first, second = (
        make(name, *LEASE, "--audit-log", str(log)).start()
        for name, log in zip("ab", logs, strict=True)
    )
    with operator(first) as client:
        client.ask("move vhost", vhost="/", broker="b")
    until(lambda: told(logs[1]) == [("taken", 2)], "the other one serves it")
    zombie = psutil.Process(int(second.ready["pid"]))
    zombie.suspend()
    wait_until_served(first)
    until(lambda: told(logs[0]) == [("taken", 1), ("given", None), ("taken", 3)], "its events")
    zombie.resume()
    until(lambda: told(logs[1]) == [("taken", 2), ("lost", None)], "the other one gave up")


def told(log: Path) -> list[tuple[str, object]]:
    """Return what an audit log has of the virtual host, and the epochs."""
    words = "cluster.vhost."
    found = [line for line in json_lines(log) if line["what"].startswith(words)]
    return [(line["what"].removeprefix(words), line.get("epoch")) for line in found]


def test_a_virtual_host_cannot_be_moved_to_a_broker_that_is_gone(make: Make) -> None:
    first, second = make("a").start(), make("b").start()
    second.stop()
    with operator(first) as client:
        until(lambda: states(client) == {"a": "running", "b": "down"}, "b has left")
        for broker, why in (("b", "down"), ("c", "no broker has this name")):
            with pytest.raises(OperationRefused, match=why):
                client.ask("move vhost", vhost="/", broker=broker)
    publish(first, range(3))
    assert drained(first) == [0, 1, 2]


def states(client: object) -> dict[str, str]:
    """Return the state of each broker."""
    rows = client.items("list brokers")  # type: ignore[attr-defined]
    for row in rows:
        assert list(row) == ["name", "address", "state", "vhosts", "own"]  # docs/reference/lists.md
    return {row["name"]: row["state"] for row in rows}


def test_draining_moves_everything_away_first(make: Make) -> None:
    first, second = make("a", *LEASE).start(), make("b", *LEASE).start()
    publish(first, range(20))
    with operator(first) as client:
        client.ask("drain")
    wait_until_served(second)
    until(lambda: owners(second) == {"/": "b"}, "b knows")
    assert drained(second) == list(range(20))
