# SPDX-License-Identifier: Apache-2.0
"""The cost of sampling many objects for a broker: processor time, and the longest step.

    PYTHONPATH=build/compiled .venv/bin/python tools/sampler.py [--queues 100000] [--busy 1000]
        [--groups 0] [--segments 1]

A client samples the broker every five seconds, as the console does. Before each sample but the
first it publishes a message to each of the `--busy` queues. The groups have read nothing of one
stream with `--segments` segments, which gets a record before each sample. Steps of the broker's
loop are measured in processor time of its thread, which excludes other load of the machine.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from support.management_socket import ManagementClient

BEGIN_MS = 0.5  # Shorter steps are not recorded.
EVERY_S = 5.0
SEGMENT_BYTES = 64 << 10  # The minimum of the broker.
RECORD = "x" * (SEGMENT_BYTES - 8192)  # One record fills a segment.
KINDS = ("queue", "group")  # Whose rows are counted.
TOGETHER = 200  # Requests that are sent before their answers are read.
TICKS_PER_S = os.sysconf("SC_CLK_TCK")
SERVE = f"""
import asyncio, os, sys, time
steps = open(os.environ["HEADRACE_STEPS"], "a", buffering=1)
run = asyncio.Handle._run
def timed(self):
    begun = time.thread_time()
    run(self)
    took_ms = 1000 * (time.thread_time() - begun)
    if took_ms > {BEGIN_MS}:
        print(took_ms, file=steps)
asyncio.Handle._run = timed
from headrace.cli import main
main()
"""


class Look(NamedTuple):
    """The cost of one sample."""

    rows: int
    wall_s: float
    processor_s: float  # Processor time of the broker.
    longest_ms: float


class Broker:
    """A broker in a separate process that records its steps."""

    def __init__(self, place: Path) -> None:
        self.steps = place / "steps"
        self.steps.touch()
        data = place / "data"
        self.process = subprocess.Popen(
            [
                *(sys.executable, "-c", SERVE, "serve", "--host", "127.0.0.1"),
                *("--port", "0", "--data", str(data)),
            ],
            env={**os.environ, "HEADRACE_STEPS": str(self.steps)},
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        ready = self.process.stdout.readline()
        if not ready.startswith("headrace ready "):
            raise SystemExit("no broker starts")
        json.loads(ready.removeprefix("headrace ready "))
        self.client = ManagementClient(data / "management.sock")
        self.client.end.settimeout(300)

    def ask_many(self, what: str, requests: list[dict[str, object]]) -> None:
        """Send many requests of one operation."""
        for at in range(0, len(requests), TOGETHER):
            some = requests[at : at + TOGETHER]
            for request in some:
                self.client.send(what, **request)
            for _ in some:
                self.client.line()

    def make_groups(self, groups: int, segments: int) -> None:
        """Create groups that have read nothing of a stream with `segments` segments."""
        arguments = {
            "x-queue-type": "stream",
            "x-stream-max-segment-size-bytes": SEGMENT_BYTES,
        }
        self.client.ask("declare queue", name="events", arguments=arguments)
        record: dict[str, object] = {"routing_key": "events", "payload": RECORD}
        self.ask_many("publish", [record] * segments)
        self.ask_many(
            "set group",
            [{"stream": "events", "group": f"g{at}", "position": 0} for at in range(groups)],
        )
        count = self.client.ask("show queue", name="events")["segment_count"]
        print(f"{groups:,} groups, {count:,} segments\n", flush=True)

    def processor_s(self) -> float:
        """Return the processor time of the broker."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / TICKS_PER_S

    def look(self, since: int) -> tuple[Look, int]:
        """Sample the queues; return the cost and the number of the sample."""
        noted = self.steps.stat().st_size
        begun, processor_s = time.monotonic(), self.processor_s()
        items, done = self.client.listed("sample", since=since)
        rows = sum(len(item["ids"]) * 3 // 32 for item in items if item["kind"] in KINDS)
        took_s = time.monotonic() - begun
        steps = self.steps.read_text()[noted:].split()
        longest_ms = max(map(float, steps), default=BEGIN_MS)
        return Look(rows, took_s, self.processor_s() - processor_s, longest_ms), done["epoch"]

    def close(self) -> None:
        """Stop the broker."""
        self.client.close()
        self.process.terminate()
        self.process.wait()


def main() -> None:
    """Take the samples, and print a table of their costs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--queues", type=int, default=100_000)
    parser.add_argument("--busy", type=int, default=1000)
    parser.add_argument("--groups", type=int, default=0)
    parser.add_argument("--segments", type=int, default=1)
    parser.add_argument("--looks", type=int, default=5)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="headrace-sampler-") as place:
        broker = Broker(Path(place))
        try:
            broker.ask_many(
                "declare queue",
                [{"name": f"q{at}", "durable": False} for at in range(options.queues)],
            )
            if options.groups:
                broker.make_groups(options.groups, options.segments)
            print("| Look | Rows | Processor, ms | Of a core, every 5 s | Longest step, ms |")
            print("|---|---|---|---|---|")
            since = 0
            for at in range(options.looks):
                look, since = broker.look(since)
                part = look.processor_s / EVERY_S
                print(
                    f"| {at + 1} | {look.rows:,} | {1000 * look.processor_s:.0f} | {part:.1%} | "
                    f"{look.longest_ms:.1f} |",
                    flush=True,
                )
                if options.groups:
                    broker.ask_many("publish", [{"routing_key": "events", "payload": "x"}])
                broker.ask_many(
                    "publish",
                    [
                        {"exchange": "", "routing_key": f"q{n}", "payload": "x"}
                        for n in range(options.busy)
                    ],
                )
                time.sleep(EVERY_S - min(EVERY_S, look.wall_s))
        finally:
            broker.close()


if __name__ == "__main__":
    main()
