# SPDX-License-Identifier: Apache-2.0
"""Alarms hold publishers, and only those that they must; consumers always drain."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pika
import pytest

from headrace.client import blocking
from headrace.testing import LocalBroker
from support.brokers.broker_process import until
from support.command_line import as_json, refused, works
from support.timeouts import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

VERSIONS = ("0-8", "0-9", "0-9-1", "0-10")


def test_an_operators_alarm_is_listed_told_and_cleared(broker: LocalBroker, data: Path) -> None:
    where = ("--data", data)
    said: list[str] = []
    parameters = pika.URLParameters(broker.url)
    parameters.heartbeat = 0
    connection = pika.BlockingConnection(parameters)
    connection.add_on_connection_blocked_callback(lambda _, frame: said.append(frame.method.reason))
    connection.add_on_connection_unblocked_callback(lambda _, __: said.append("unblocked"))
    channel = connection.channel()
    channel.queue_declare("q")
    assert as_json("alarm", "list", *where) == []
    works("alarm", "set", "--reason", "moving house", *where)
    works("alarm", "set", "--vhost", "/", "--reason", "moving in", *where)
    alarms = as_json("alarm", "list", *where)
    assert [(one["source"], one["vhost"], one["reason"]) for one in alarms] == [
        ("operator", "", "moving house"),
        ("operator", "/", "moving in"),
    ]
    channel.basic_publish("", "q", b"x")
    until(lambda: connection.process_data_events(0) or said, "the publisher is told")
    assert set(said[0].split(" & ")) == {"moving house", "moving in"}
    (told,) = as_json("list", "connections", *where)
    assert told["state"] == "blocked"
    works("alarm", "clear", *where)
    works("alarm", "clear", "--vhost", "/", *where)
    until(lambda: connection.process_data_events(0) or said[1:], "the publisher goes on")
    assert said[1:] == ["unblocked"]
    assert "no operator set an alarm" in refused("alarm", "clear", *where)
    assert "there is no virtual host 'x'" in refused("alarm", "set", "--vhost", "x", *where)
    connection.close()


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[LocalBroker, Path]]:
    """A broker with another virtual host, and its data directory."""
    data = tmp_path_factory.mktemp("lab") / "data"
    with LocalBroker(data) as broker:
        works("vhost", "add", "lab", "--data", data)
        works("permission", "set", "guest", ".*", ".*", ".*", "--vhost", "lab", "--data", data)
        until(lambda: "lab" in works("list", "vhosts", "--data", data), "it is there")
        yield broker, data


@pytest.mark.parametrize("version", VERSIONS)
def test_an_alarm_of_one_virtual_host_holds_its_publishers_only(
    lab: tuple[LocalBroker, Path], version: str
) -> None:
    broker, data = lab
    where = ("--data", data)
    works("alarm", "set", "--vhost", "lab", *where)
    with (
        blocking.connect(f"{broker.url}?version={version}") as free,
        blocking.connect(f"{broker.url_of(vhost='lab')}?version={version}") as held,
        free.channel() as freely,
        held.channel() as waiting,
    ):
        freely.declare_queue("q", durable=True)
        waiting.declare_queue("q", durable=True)
        freely.publish(b"passes", "q")
        done = threading.Event()

        def publish_when_allowed() -> None:
            waiting.publish(b"first", "q")  # It was on its way when the publisher was stopped.
            waiting.publish(b"second", "q")
            done.set()

        thread = threading.Thread(target=publish_when_allowed)
        thread.start()
        until(
            lambda: any(
                one["state"] == "blocked" for one in as_json("list", "connections", *where)
            ),
            "the publisher is stopped",
        )
        freely.publish(b"passes still", "q")
        assert not done.is_set()
        works("alarm", "clear", "--vhost", "lab", *where)
        assert done.wait(PATIENCE_S)
        thread.join()


@pytest.mark.parametrize("version", VERSIONS)
def test_who_publishes_and_consumes_drains_while_publishers_wait(
    broker: LocalBroker, data: Path, version: str
) -> None:
    """Acks make room: they are read from a connection that has to wait with its publishes."""
    where = ("--data", data)
    url = f"{broker.url}?version={version}"
    with blocking.connect(url) as connection, connection.channel() as channel:
        channel.declare_queue("work", durable=True)
        channel.publish_many([b"%d" % n for n in range(200)], "work")
        with channel.consume("work", prefetch=5) as deliveries:
            first = deliveries.receive(PATIENCE_S)
            works("alarm", "set", *where)
            first.ack()
            for n in range(1, 200):
                delivery = deliveries.receive(PATIENCE_S)
                assert delivery.body == b"%d" % n
                delivery.ack()
        until(lambda: as_json("list", "queues", *where)[0]["unacked"] == 0, "all are settled")
        assert as_json("list", "queues", *where)[0]["ready"] == 0
        works("alarm", "clear", *where)
        channel.publish(b"on", "work")


def test_a_client_that_publishes_on_is_stopped_and_settles_all_the_same(
    broker: LocalBroker, data: Path
) -> None:
    """One that does not hear is read now and then: little enters, what it settles arrives."""
    where = ("--data", data)
    url = f"{broker.url}?version=0-9"
    with blocking.connect(url) as connection, connection.channel(confirm=False) as channel:
        channel.declare_queue("work", durable=True)
        channel.declare_queue("out", durable=True)
        channel.publish_many([b"%d" % n for n in range(3)], "work")
        with channel.consume("work") as deliveries:
            taken = [deliveries.receive(PATIENCE_S) for _ in range(3)]
            works("alarm", "set", *where)
            flooded = threading.Event()

            def flood() -> None:
                for _ in range(150):
                    channel.publish(bytes(16384), "out")
                for one in taken:
                    one.ack()
                flooded.set()

            thread = threading.Thread(target=flood)
            thread.start()
            until(
                lambda: as_json("list", "connections", *where)[0]["state"] == "blocked",
                "the publisher is stopped",
            )
            queues = {}

            def settled() -> bool:
                nonlocal queues
                queues = {row["name"]: row for row in as_json("list", "queues", *where)}
                return bool(flooded.is_set() and queues["work"]["unacked"] == 0)

            until(settled, "what came behind the publishes is settled")
            thread.join()
            works("alarm", "clear", *where)
