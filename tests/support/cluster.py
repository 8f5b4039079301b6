# SPDX-License-Identifier: Apache-2.0
"""What tests do with brokers of a cluster."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pika
import pika.exceptions

from support.brokers.broker_process import until
from support.management_socket import ManagementClient

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pika.adapters.blocking_connection import BlockingChannel

    from support.brokers.broker_process import Served

PERSISTENT = pika.BasicProperties(delivery_mode=2)
SERVES = "is served here from now on"
LEASE = ("--cluster-lease-s", "2")


@contextlib.contextmanager
def channel_to(broker: Served, vhost: str = "/") -> Iterator[BlockingChannel]:
    """Open a channel with confirms."""
    parameters = pika.ConnectionParameters(broker.host, broker.port, vhost, heartbeat=0)
    connection = pika.BlockingConnection(parameters)
    try:
        channel = connection.channel()
        channel.confirm_delivery()
        yield channel
    finally:
        with contextlib.suppress(pika.exceptions.AMQPError):  # It may have lost its broker.
            connection.close()


def put(channel: BlockingChannel, numbers: Iterable[int]) -> None:
    """Publish numbers to the queue orders; each is confirmed."""
    for number in numbers:
        channel.basic_publish("", "orders", str(number).encode(), PERSISTENT)


def publish(broker: Served, numbers: Iterable[int], vhost: str = "/") -> None:
    """Declare the queue orders, and publish numbers to it; each is confirmed."""
    with channel_to(broker, vhost) as channel:
        channel.queue_declare("orders", durable=True)
        put(channel, numbers)


def drained(broker: Served, vhost: str = "/") -> list[int]:
    """Return the numbers in the queue orders, which is empty afterwards."""
    found = []
    with channel_to(broker, vhost) as channel:
        while (got := channel.basic_get("orders", auto_ack=True))[0] is not None:
            found.append(int(got[2]))
    return found


@contextlib.contextmanager
def operator(served: Served) -> Iterator[ManagementClient]:
    """Open the management socket of a broker."""
    client = ManagementClient(served.home / "data" / "management.sock")
    try:
        yield client
    finally:
        client.close()


def owners(served: Served) -> dict[str, str]:
    """Return who serves each virtual host, as a broker knows it."""
    with operator(served) as client:
        found: dict[str, str] = client.ask("cluster status")["vhosts"]
        return found


def wait_until_served(broker: Served, vhost: str = "/", timeout_s: float = 30.0) -> None:
    """Wait until a broker serves a virtual host."""
    told = f"vhost '{vhost}' {SERVES}"
    before = broker.log().count("is not served here any more")
    until(lambda: broker.log().count(told) > before, f"{told} at {broker.home.name}", timeout_s)


def command(broker: Served, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a command of `headrace` on the data directory of a broker."""
    return subprocess.run(
        [sys.executable, "-m", "headrace.cli", *words, "--data", str(broker.home / "data")],
        capture_output=True,
        text=True,
        env={**os.environ, **environment},
    )
