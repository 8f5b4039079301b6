# SPDX-License-Identifier: Apache-2.0
"""A broker of our own for the time of the demo, and what is declared in it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pika

FLIGHTS = "flights"  # The topic exchange; routing keys are flights.<origin>.<carrier>.
STREAM = "flights.stream"
QUEUE = "flights.queue"
ALERTS = "alerts"  # A topic exchange again; routing keys are alerts.<origin>.<carrier>.
ALERT_QUEUE = "alerts.queue"


@contextmanager
def serving(home: Path) -> Iterator[tuple[str, str]]:
    """`headrace serve` with its data under `home`, on free ports; gives both URLs."""
    log_path = home / "broker.log"
    command = [sys.executable, "-m", "headrace.cli", "serve"]
    command += ["--host", "127.0.0.1", "--port", "0", "--data", str(home / "data")]
    command += ["--console", "--console-port", "0", "--metrics-port", "0"]
    with log_path.open("wb") as log:
        child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
    try:
        assert child.stdout is not None
        words = child.stdout.readline().split(" ", 2)
        if words[:2] != ["headrace", "ready"]:
            child.wait()
            raise SystemExit(f"the broker did not start:\n{log_path.read_text()}")
        addresses = json.loads(words[2])
        yield f"amqp://guest:guest@{addresses['amqp']}/%2F", addresses.get("http", "")
    finally:
        child.terminate()
        child.communicate()  # Waits for its end, and closes the pipe.


def declare(url: str) -> None:
    """A topic exchange for flights with a stream and a queue, and one for alerts with a queue."""
    with pika.BlockingConnection(pika.URLParameters(url)) as connection:
        channel = connection.channel()
        channel.exchange_declare(FLIGHTS, "topic", durable=True)
        channel.queue_declare(STREAM, durable=True, arguments={"x-queue-type": "stream"})
        channel.queue_declare(QUEUE, durable=True)
        channel.exchange_declare(ALERTS, "topic", durable=True)
        channel.queue_declare(ALERT_QUEUE, durable=True)
        channel.queue_bind(STREAM, FLIGHTS, "flights.#")
        channel.queue_bind(QUEUE, FLIGHTS, "flights.#")
        channel.queue_bind(ALERT_QUEUE, ALERTS, "alerts.#")


def delete(url: str) -> None:
    """Take back what `declare` made, in somebody else's broker."""
    with pika.BlockingConnection(pika.URLParameters(url)) as connection:
        channel = connection.channel()
        for queue in (STREAM, QUEUE, ALERT_QUEUE):
            channel.queue_delete(queue)
        for exchange in (FLIGHTS, ALERTS):
            channel.exchange_delete(exchange)


def depth(url: str, queue: str) -> int:
    """How many messages a queue has ready."""
    with pika.BlockingConnection(pika.URLParameters(url)) as connection:
        count: int = connection.channel().queue_declare(queue, passive=True).method.message_count
        return count
