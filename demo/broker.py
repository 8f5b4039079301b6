# SPDX-License-Identifier: Apache-2.0
"""The broker of the demo, and the exchanges and queues that the demo declares in it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pika

FLIGHTS = "flights"  # A topic exchange; routing keys are flights.<origin>.<carrier>.
STREAM = "flights.stream"
QUEUE = "flights.queue"
ALERTS = "alerts"  # A topic exchange; routing keys are alerts.<origin>.<carrier>.
ALERT_QUEUE = "alerts.queue"


@contextmanager
def run_broker(home: Path) -> Iterator[tuple[str, str]]:
    """Run `headrace serve` with its data in `home`, on free ports; yield its URL and the console's.

    The URL of the console is "" if the console is not ready yet.
    """
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
        child.communicate()  # Waits for the end of the process, and closes the pipe.


def declare(url: str) -> None:
    """Declare the exchange, stream and queue of flights, and the exchange and queue of alerts."""
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
    """Delete what `declare` declares, in a broker that outlives the demo."""
    with pika.BlockingConnection(pika.URLParameters(url)) as connection:
        channel = connection.channel()
        for queue in (STREAM, QUEUE, ALERT_QUEUE):
            channel.queue_delete(queue)
        for exchange in (FLIGHTS, ALERTS):
            channel.exchange_delete(exchange)


def count_ready(url: str, queue: str) -> int:
    """Return the number of ready messages in a queue."""
    with pika.BlockingConnection(pika.URLParameters(url)) as connection:
        count: int = connection.channel().queue_declare(queue, passive=True).method.message_count
        return count
