# SPDX-License-Identifier: Apache-2.0
"""Numbers 1, 7 and 15 of the abuses: conditions that explode, values that are kept for good."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from headrace.client import Message
from headrace.client.blocking import Connection, connect
from headrace.client.session.subscription import UNLIMITED
from headrace.spec.tables import V0_10
from support.brokers.broker_process import Served
from support.timeouts import PATIENCE_S

LONG = 60_000  # Octets of a header.
MIB = 1 << 20


def select(connection: Connection, queue: str, selector: str) -> None:
    """Consume what a selector is true of, in the words of the version."""
    if connection.version is V0_10:
        wanted = {"x-apache-selector": selector}
        connection.session().subscribe(queue, arguments=wanted).flow(UNLIMITED)
    else:
        connection.channel().consume(queue, arguments={"x-selector": selector}).__enter__()


@pytest.mark.parametrize("version", ["0-8", "0-9", "0-9-1", "0-10"])
@pytest.mark.parametrize(
    "pattern", ["%a" + "_" * 3900, "%" + "a_" * 1900 + "b%"], ids=["states", "places"]
)
def test_a_hard_selector_delays_no_other_client(served: Served, version: str, pattern: str) -> None:
    """Patterns that cost an automaton seconds a message do not delay other clients."""
    queue = f"hard-{version}"
    with connect(served.url) as guest, guest.channel() as channel:
        channel.declare_queue(queue, durable=False)
        before = served.cpu_s()
        with connect(f"{served.url}?version={version}", reconnect=None) as connection:
            select(connection, queue, f"h LIKE '{pattern}'")
            hard = Message(b"x", headers={"h": "a" * LONG + "c"})
            longest_s = 0.0
            for _ in range(20):
                channel.publish(hard, queue)
                began = served.cpu_s()
                channel.declare_queue(queue, durable=False, passive=True)
                longest_s = max(longest_s, served.cpu_s() - began)
        assert served.cpu_s() - before < 2.0
        assert longest_s < 1.0
        channel.delete_queue(queue)


@pytest.mark.parametrize(
    "arguments",
    [
        {"qpid.group_header_key": "h"},
        {"x-message-deduplication": True, "x-deduplication-header": "h"},
    ],
    ids=["groups", "ids"],
)
def test_of_a_long_value_little_is_kept(served: Served, arguments: dict[str, Any]) -> None:
    """CVE-2026-67238: groups and ids are remembered when their messages are gone, not as texts."""
    with connect(served.url) as connection, connection.channel() as channel:
        queue = channel.declare_queue("keys", durable=False, arguments=arguments).name
        consumer = channel.consume(queue)
        before = served.memory_bytes()
        for n in range(500):
            channel.publish(Message(b"x", headers={"h": f"{n:0{LONG}}"}), queue)
            consumer.receive(PATIENCE_S).ack()
        assert served.memory_bytes() - before < 15 * MIB
        channel.delete_queue(queue)


def test_long_values_are_told_apart_all_the_same(served: Served) -> None:
    """The last value of each, of values that begin alike; sorted, what begins alike is alike."""
    with connect(served.url) as connection, connection.channel() as channel:
        last = channel.declare_queue(
            "last", exclusive=True, durable=False, arguments={"qpid.last_value_queue_key": "h"}
        ).name
        row = channel.declare_queue(
            "row", exclusive=True, durable=False, arguments={"qpid.queue_sort_key": "h"}
        ).name
        for end in "cabac":
            message = Message(end.encode(), headers={"h": "x" * LONG + end})
            channel.publish(message, last)
            channel.publish(message, row)
        for queue, bodies in ((last, b"bac"), (row, b"cabac")):
            got = [channel.get(queue, no_ack=True) for _ in bodies]
            assert b"".join(one.body for one in got if one is not None) == bodies


def test_headers_count_as_bodies_do(tmp_path: Path) -> None:
    """60 MB of headers with no body are paged out, or stop their publisher."""
    broker = Served(tmp_path, "--memory-max", "8MiB").start()
    try:
        with connect(broker.url) as connection, connection.channel() as channel:
            before = broker.memory_bytes()
            queue = channel.declare_queue("headers", durable=False).name
            message = Message(b"", headers={"h": "y" * LONG}, persistent=False)
            for _ in range(1000):
                channel.publish(message, queue)
            assert channel.declare_queue(queue, durable=False, passive=True).message_count == 1000
            assert broker.memory_bytes() - before < 40 * MIB
    finally:
        assert broker.stop() == 0
