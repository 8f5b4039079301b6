# SPDX-License-Identifier: Apache-2.0
"""Brokers and databases of a cluster that fail, stand still, or are not what they should be."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pika
import pika.exceptions
import psutil
import pytest

from headrace.server.cluster.heartbeat import BEAT_S
from support.brokers.broker_process import Served, until
from support.cluster import (
    LEASE,
    channel_to,
    drained,
    operator,
    publish,
    put,
    wait_until_served,
)
from support.management_socket import OperationRefused

if TYPE_CHECKING:
    from support.postgres import Servers

Make = Callable[..., Served]
PATIENCE_S = 60
LEASE_S = float(LEASE[-1])


def refusal(*options: str) -> str:
    """Return what `headrace serve` says that does not start."""
    command = [sys.executable, "-m", "headrace.cli", "serve", "--port", "0", *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S)
    assert done.returncode != 0
    return done.stderr


def test_an_owner_that_stood_still_serves_nothing_of_what_another_has_taken(make: Make) -> None:
    first, second = make("a", *LEASE).start(), make("b", *LEASE).start()
    publish(first, range(20))
    zombie = psutil.Process(int(first.ready["pid"]))
    zombie.suspend()
    wait_until_served(second)
    publish(second, range(20, 30))
    zombie.resume()
    until(lambda: "is not served here any more" in first.log(), "the zombie gives up")
    assert drained(second) == list(range(30))
    assert first.running


def test_a_broker_is_replaced_after_its_own_lease(make: Make, database: Servers) -> None:
    """It stood still for longer than the lease of the other one, and for less than its own."""
    first, second = make("a", "--cluster-lease-s", "40").start(), make("b", *LEASE).start()
    publish(first, range(20))
    with operator(second) as client:

        def warnings() -> list[str]:
            found: list[str] = client.ask("cluster status")["warnings"]
            return found

        different = "the brokers have different leases, 2 s ('b'), 40 s ('a')"
        until(lambda: any(different in text for text in warnings()), "a warning")
        assert client.ask("health", checks=["cluster"])["healthy"]
    zombie = psutil.Process(int(first.ready["pid"]))
    zombie.suspend()
    first_seen = heartbeats(database, "b")
    long = 4 * LEASE_S / BEAT_S
    until(lambda: heartbeats(database, "b") > first_seen + long, "the other one has looked often")
    assert states(second)["a"] == "running"
    zombie.resume()
    assert drained(first) == list(range(20))


def heartbeats(database: Servers, broker: str) -> int:
    """Return how many heartbeats a broker has had."""
    query = "select seen from headrace.broker where name = %s"
    ((seen,),) = database.primary.execute(query, broker)
    assert isinstance(seen, int)
    return seen


def states(broker: Served) -> dict[str, str]:
    """Return the state of each broker, as one of them sees it."""
    with operator(broker) as client:
        return {row["name"]: row["state"] for row in client.items("list brokers")}


def test_a_failover_of_the_database_is_a_stall(make: Make, database: Servers) -> None:
    """The client stays connected; nothing is lost, nothing comes twice."""
    broker = make("a", "--no-cluster-standbys", *LEASE).start()
    with channel_to(broker) as channel:
        channel.queue_declare("orders", durable=True)
        put(channel, range(20))
        database.link.hold()
        failover = threading.Timer(1.0, database.lose_primary)
        failover.start()
        put(channel, range(20, 40))
        failover.join()
        until(lambda: "heartbeats in the cluster succeed again" in broker.log(), "a heartbeat")
    assert drained(broker) == list(range(40))


def test_a_promoted_standby_that_lacks_confirmed_messages(make: Make, database: Servers) -> None:
    """The broker serves nothing until an operator accepts the loss; its own files stay aside."""
    broker = make("a", "--no-cluster-standbys", *LEASE).start()
    publish(broker, range(10))
    database.primary.reload("synchronous_standby_names = ''")
    seen = database.primary.execute("select pg_current_wal_lsn()")
    behind = f"select pg_last_wal_replay_lsn() >= '{seen[0][0]}'"
    until(lambda: database.standby.execute(behind) == [(True,)], "the standby has these")
    database.link.hold()
    publish(broker, range(10, 20))
    database.lose_primary()
    until(lambda: alarms(broker) == ["the database of the cluster lacks what was confirmed"], "it")
    assert "accept the loss with headrace cluster accept /" in broker.log()
    broker.administer("cluster", "accept", "/")
    until(lambda: alarms(broker) == [], "the alarm ends")
    assert drained(broker) == list(range(10))
    (aside,) = (broker.home / "data").glob("**/aside-1")
    assert (aside / "applied").exists()
    refused = "this broker has found no loss that could be accepted"
    with operator(broker) as client, pytest.raises(OperationRefused, match=refused):
        client.ask("accept loss", vhost="/")


def alarms(broker: Served) -> list[str]:
    with operator(broker) as client:
        return [row["reason"] for row in client.items("list alarms")]


def test_two_brokers_of_one_name(make: Make, tmp_path: Path) -> None:
    make("a").start()
    said = refusal("--cluster-name", "a", "--data", str(tmp_path / "other"))
    assert "another broker named 'a' runs in this cluster: set cluster_name" in said


def test_a_broker_that_stood_still_and_lost_its_name_ends(make: Make, database: Servers) -> None:
    """Its clients are let go, and the broker that has the name now notices nothing."""
    first = make("a", *LEASE).start()
    publish(first, range(5))
    parameters = pika.ConnectionParameters(first.host, first.port, heartbeat=0)
    client = pika.BlockingConnection(parameters)
    zombie = psutil.Process(int(first.ready["pid"]))
    zombie.suspend()
    second = make("other", *LEASE, "--cluster-name", "a").start()
    publish(second, range(5, 8))
    zombie.resume()
    with pytest.raises(pika.exceptions.AMQPError):
        client.process_data_events(PATIENCE_S)
    until(lambda: not first.running, "it ends")
    assert first.stop() == 1
    assert "another broker is 'a' in the cluster now" in first.log()
    assert database.primary.execute("select owner, epoch from headrace.log") == [("a", 2)]
    assert drained(second) == list(range(8))


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://broker:s3cr-t@127.0.0.1/x",
        "postgresql://broker:s3/cr-t@127.0.0.1/x",
        "postgresql://broker@127.0.0.1/x?sslpassword=s3cr-t",
        "host=127.0.0.1 password = s3cr-t",
    ],
)
def test_a_password_in_the_command_line(tmp_path: Path, url: str) -> None:
    said = refusal("--cluster", url, "--data", str(tmp_path / "d"))
    assert "every user of this machine can see the password" in said
    assert "cr-t" not in said


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("postgresql://broker@127.0.0.1:1/x", "PostgreSQL at 127.0.0.1/x: connection failed"),
        ("mysql://broker@127.0.0.1/x", "the URL of the cluster is not a PostgreSQL URL"),
    ],
)
def test_a_database_that_cannot_be_used(tmp_path: Path, url: str, why: str) -> None:
    assert why in refusal("--cluster", url, "--data", str(tmp_path / "d"))
