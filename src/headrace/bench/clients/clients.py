# SPDX-License-Identifier: Apache-2.0
"""Compare the processor time of clients that do the same work, each in a separate process."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib.util import find_spec
from statistics import median

from headrace.bench.clients.client_work import ONE_BY_ONE, WORK
from headrace.bench.load.link import BenchError

COUNT = 20_000  # Messages of an operation with many unconfirmed messages.
COUNT_ONE_BY_ONE = 2_000  # Messages of an operation that waits for each confirm.
QUEUE = "hb.clients"
TIMEOUT_S = 600.0


@dataclass(slots=True)
class Cost:
    """All runs of an operation by a client."""

    client: str
    operation: str
    cpu_us: list[float] = field(default_factory=list)  # The client's processor time for a message.
    rate: list[float] = field(default_factory=list)  # Messages per second.

    def as_json(self) -> dict[str, str | list[float]]:
        """Return the values of all runs as a JSON object."""
        return {
            "client": self.client,
            "operation": self.operation,
            "cpu_us": self.cpu_us,
            "rate": self.rate,
        }


def find_missing() -> list[str]:
    """Return the clients that are not installed."""
    return [client for client in WORK if find_spec(client) is None]


def measure(url: str, runs: int, scale: float, say: Callable[[str], None]) -> list[Cost]:
    """Measure each operation of each installed client; the runs of an operation follow each other.

    Args:
        url: the URL of the broker.
        runs: the number of runs of each operation.
        scale: a factor for the numbers of messages.
        say: is called with the progress.

    Raises:
        BenchError: an operation failed or took longer than `TIMEOUT_S`.
    """
    missing = find_missing()
    operations = dict.fromkeys(operation for work in WORK.values() for operation in work)
    costs: list[Cost] = []
    for operation in operations:
        count = max(1, round((COUNT_ONE_BY_ONE if operation == ONE_BY_ONE else COUNT) * scale))
        for client, work in WORK.items():
            if client in missing or operation not in work:
                continue
            cost = Cost(client, operation)
            costs.append(cost)
            for number in range(runs):
                say(f"{operation}: {client}, run {number + 1} of {runs}")
                figures = _run(client, operation, url, count)
                cost.cpu_us.append(figures["cpu_us"])
                cost.rate.append(figures["rate"])
    return costs


def format_table(costs: list[Cost]) -> str:
    """Return a Markdown table with a line for each operation and client."""
    lines = [
        "| operation | client | client CPU, us/message: least | median | messages/s |",
        "|---|---|---|---|---|",
    ]
    lines += [
        f"| {cost.operation} | {cost.client} | {min(cost.cpu_us):.1f} | {median(cost.cpu_us):.1f} "
        f"| {median(cost.rate):,.0f} |"
        for cost in costs
    ]
    return "\n".join(lines)


def _run(client: str, operation: str, url: str, count: int) -> dict[str, float]:
    command = [sys.executable, "-m", "headrace.bench.clients.client_work"]
    command += [client, operation, url, QUEUE, str(count)]
    try:
        result = subprocess.run(  # noqa: S603
            command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired:
        raise BenchError(f"{client}: {operation} took more than {TIMEOUT_S} s") from None
    if result.returncode:
        reason = (result.stderr.strip().splitlines() or ["no reason given"])[-1]
        raise BenchError(f"{client}: {operation} failed: {reason}")
    figures: dict[str, float] = json.loads(result.stdout)
    return figures
