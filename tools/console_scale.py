# SPDX-License-Identifier: Apache-2.0
"""Measure the console's lists over a broker with many queues.

python tools/console_scale.py --queues 100000

Starts `headrace serve --console`, declares the queues, and prints the time of requests in
milliseconds: the median and the longest of several.
"""

from __future__ import annotations

import argparse
import base64
import http.client
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from headrace.client import blocking

PATHS = (
    "/api/overview",
    "/api/queues?page=1&page_size=500",
    "/api/queues?page=1&page_size=500&sort=messages&sort_reverse=true",
    "/api/queues?page=9&page_size=500&sort=name",
    "/api/queues?page=1&page_size=500&name=99",
    "/api/queues?page=1&page_size=500&name=7.7$&use_regex=true",
    "/api/queues?page=1&page_size=500&sort=message_stats.publish_details.rate",
    "/api/vhosts",
)
LOGIN = {"Authorization": "Basic " + base64.b64encode(b"guest:guest").decode()}
TIMEOUT_S = 120.0


def declare(port: int, count: int) -> None:
    """Declare the queues, most of them empty."""
    with blocking.connect(f"amqp://guest:guest@127.0.0.1:{port}/%2F") as connection:
        channel = connection.channel()
        for number in range(count):
            channel.declare_queue(f"orders.{number}", durable=False)
        for number in range(0, count, max(1, count // 100)):
            channel.publish(b"message", routing_key=f"orders.{number}")


def measure(address: str, path: str, runs: int) -> tuple[float, float, int]:
    """Return the median and the longest time in milliseconds, and the bytes of an answer."""
    connection = http.client.HTTPConnection(address, timeout=TIMEOUT_S)
    times = []
    size = 0
    for _ in range(runs):
        began = time.perf_counter()
        connection.request("GET", path, headers=LOGIN)
        answer = connection.getresponse()
        body = answer.read()
        times.append(1000 * (time.perf_counter() - began))
        if answer.status != 200:
            raise SystemExit(f"{path}: {answer.status} {body!r:.200}")
        size = len(body)
    connection.close()
    return statistics.median(times), max(times), size


def known(address: str) -> int:
    """Return how many queues the console knows."""
    connection = http.client.HTTPConnection(address, timeout=TIMEOUT_S)
    connection.request("GET", "/api/queues?page=1&page_size=1&columns=name", headers=LOGIN)
    found: dict[str, int] = json.load(connection.getresponse())
    connection.close()
    return found["total_count"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--queues", type=int, default=100_000)
    parser.add_argument("--runs", type=int, default=11)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        command = [sys.executable, "-m", "headrace.cli", "serve", "--port=0", "--memory"]
        command += ["--console", "--console-port=0", "--metrics-port=0"]
        command += [f"--management-socket={Path(directory) / 'management.sock'}"]
        path = os.pathsep.join(entry for entry in sys.path if entry)
        broker = subprocess.Popen(
            command, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": path}
        )
        try:
            assert broker.stdout is not None
            ready = json.loads(broker.stdout.readline().removeprefix("headrace ready "))
            declare(int(ready["amqp"].rpartition(":")[2]), options.queues)
            address = ready["http"].removeprefix("http://")
            began = time.perf_counter()
            while known(address) < options.queues:
                time.sleep(0.1)
            waited = time.perf_counter() - began
            print(f"{options.queues} queues; the list had them all after {waited:.1f} s")
            for one in PATHS:
                median, longest, size = measure(address, one, options.runs)
                print(f"{median:8.1f} ms, at most {longest:8.1f} ms, {size:9} bytes  {one}")
        finally:
            broker.terminate()
            broker.wait(TIMEOUT_S)


if __name__ == "__main__":
    main()
