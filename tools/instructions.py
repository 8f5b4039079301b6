# SPDX-License-Identifier: Apache-2.0
"""Instructions of the broker for one message of W1 to W6, counted by valgrind's callgrind.

W1-0-10 and W1a-0-10 are W1 in AMQP 0-10: without accepts, and with one accept for 100 transfers.

    PYTHONPATH=build/compiled .venv/bin/python tools/instructions.py \\
        [--workload W1,W4] [--runs 3] [--functions 20 | --shares FILE] [BUILD ...]

BUILD is a compiled copy of the code, made by build_ext.py (default: build/compiled). Several builds
are printed in columns, the last with its difference to the first.

Unlike a rate, the figure hardly depends on other load of the machine. A broker runs each load
twice, with N and with 3 N messages; the figure is the difference divided by 2 N, so it excludes
start, login and declarations. The generator is not slowed down, so the broker always has as much
work as it can process. In W6 a message is published once the previous one is delivered and
confirmed.
The kernel's instructions are not counted. The result is the minimum of several runs: the excess of
the others is work of the broker's clocks, which run more often per message if the broker is slow.
The stopwatch that ends turns is slowed down as much as the broker.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from collections import Counter
from dataclasses import replace
from pathlib import Path

from headrace.bench.load.link import open_link
from headrace.bench.load.load import Load, declare, make_publish_buffer, queue_name, remove
from headrace.bench.run import LoadRun, run
from headrace.bench.usage import Usage
from headrace.client.url import Settings, parse_url
from headrace.protocol.codec_0_x import (
    BasicAck,
    BasicConsume,
    BasicConsumeOk,
    BasicDeliver,
    ConfirmSelect,
    ConfirmSelectOk,
)
from headrace.spec.tables import Version

SLOWER = 50  # How many times slower the broker is under valgrind.
IDLE_S = 60.0
SERVE = f"""
import time
real, begun = time.monotonic_ns, time.monotonic_ns()
time.monotonic_ns = lambda: begun + (real() - begun) // {SLOWER}
from headrace.cli import main
main()
"""
DURABLE = Load(size=1024, persistent=True, window=1000, prefetch=1000, ack_every=100, idle_s=IDLE_S)
TOPIC = Load(exchange="topic", queues=100, consumers=10, bindings=10_000, idle_s=IDLE_S)
LOAD_0_10 = Load(
    publish_version=Version.V0_10,
    consume_version=Version.V0_10,
    prefetch=1000,
    ack_every=100,
    idle_s=IDLE_S,
)
LOADS: dict[str, tuple[Load, int]] = {  # The loads of headrace.bench.workload, each with its N.
    "W1": (Load(idle_s=IDLE_S), 100_000),
    "W2": (DURABLE, 20_000),
    "W3 publish": (Load(size=100, consumers=0), 50_000),
    "W3 drain": (Load(size=100, publishes=False, keep=True, idle_s=IDLE_S), 50_000),
    "W4": (Load(exchange="fanout", queues=10, consumers=10, idle_s=IDLE_S), 30_000),
    "W5": (TOPIC, 30_000),
    "W1-0-10": (replace(LOAD_0_10, prefetch=0, ack_every=0), 50_000),
    "W1a-0-10": (LOAD_0_10, 50_000),
    "W6": (Load(size=1024, rate=1), 1000),  # With a rate, whichever: one after the other.
    "W6p": (replace(DURABLE, rate=1, ack_every=1), 500),
}
FUNCTION = re.compile(r"fn=\((\d+)\)(?: (.*))?")
OBJECT = re.compile(r"ob=\((\d+)\)(?: (.*))?")
PART = re.compile(r"_?(\d+)")
COST = re.compile(r"[+*\-\d]\S* (\d+)")


def costs(dump: Path, by_module: bool) -> Counter[str]:
    """Return the instructions of each function, or of each module, without their callees."""
    kind, label = (OBJECT, module) if by_module else (FUNCTION, plain)
    names: dict[str, str] = {}
    found: Counter[str] = Counter()
    name, called = "", False
    for line in dump.read_text().splitlines():
        if match := kind.match(line.removeprefix("c")):
            known = names.setdefault(match[1], label(match[2] or ""))
            if not line.startswith("c"):
                name = known
        elif line.startswith("calls="):
            called = True
        elif match := COST.fullmatch(line):
            if not called:  # Otherwise the line has the cost of the called function.
                found[name] += int(match[1])
            called = False
    return found


def plain(name: str) -> str:
    """Return the name of a compiled function without its path, which differs between builds."""
    at = name.find("__pyx_f_")
    if at < 0:
        return name
    at += len("__pyx_f")
    while match := PART.match(name, at):  # Each part of its path, after the part's length.
        at = match.end() + int(match[1])
    return name[at:].lstrip("_") or name


def module(path: str) -> str:
    """Return the module of a shared object, or the object's name if it is not a module."""
    _, found, inside = path.rpartition("/headrace/")
    return f"headrace/{inside.partition('.')[0]}" if found else Path(path).name


class Broker:
    """A broker of one build under callgrind."""

    def __init__(self, build: Path, by_module: bool) -> None:
        self.directory = tempfile.TemporaryDirectory(prefix="headrace-instructions-")
        place = Path(self.directory.name)
        self.out = place / "out"
        self.dumps = 0
        self.by_module = by_module
        self.process = subprocess.Popen(
            [
                *("valgrind", "--tool=callgrind", "--instr-atstart=no"),
                f"--callgrind-out-file={self.out}",
                *(sys.executable, "-c", SERVE, "serve", "--host", "127.0.0.1"),
                *("--port", "0", "--data", str(place / "data")),
            ],
            env={**os.environ, "PYTHONPATH": str(build), "PYTHONHASHSEED": "0"},
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        assert self.process.stdout is not None
        ready = self.process.stdout.readline().removeprefix("headrace ready ")
        if not ready:
            raise SystemExit(f"no broker starts from {build}")
        self.settings = parse_url(f"amqp://{json.loads(ready)['amqp']}/")
        self.control("--instr=on")

    def control(self, what: str) -> None:
        """Send a command to callgrind."""
        command = ["callgrind_control", what, str(self.process.pid)]
        subprocess.run(command, check=True, capture_output=True)

    def take(self, load: Load) -> Counter[str]:
        """Serve a load; return the instructions of each function."""
        if load.keep:
            run(replace(load, publishes=True, consumers=0, keep=False), self.settings, Usage(0))
        else:
            declare(load, self.settings)
        start = Start(self)
        if load.rate:
            one_by_one(load, self.settings, start)
        elif problems := LoadRun(load, self.settings, start).measure().problems():
            raise SystemExit(f"{load}: {problems}")
        self.control("--dump")
        self.dumps += 1
        remove(load, self.settings)
        return costs(self.out.with_name(f"out.{self.dumps}"), self.by_module)

    def close(self) -> None:
        """Stop the broker and remove its files."""
        self.process.terminate()
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()
        self.directory.cleanup()


class Start(Usage):
    """Begins the count when a run is ready: all clients are connected, and none has published."""

    def __init__(self, broker: Broker) -> None:
        Usage.__init__(self, 0)
        self.broker = broker

    def forget_peak(self) -> None:
        """Begin the count; the run calls this when it is ready."""
        self.broker.control("--zero")


def one_by_one(load: Load, settings: Settings, start: Start) -> None:
    """Publish messages one by one; wait for the delivery and the confirm of each."""
    publisher, consumer = open_link(settings), open_link(settings)
    if load.window:
        publisher.call(ConfirmSelect(), ConfirmSelectOk)
    consumer.call(BasicConsume(queue=queue_name(0), no_ack=not load.ack_every), BasicConsumeOk)
    buffer = make_publish_buffer(load, 0, publisher.frame_max)
    publish = buffer.data[: buffer.ends[0]]
    start.forget_peak()
    for _ in range(load.count):
        publisher.socket.sendall(publish)
        delivery = consumer.expect(BasicDeliver)
        if load.window:
            publisher.expect(BasicAck)
        if load.ack_every:
            consumer.send(BasicAck(delivery_tag=delivery.delivery_tag))
    publisher.close()
    consumer.close()


def measure(build: Path, names: list[str], runs: int, by_module: bool) -> dict[str, Counter[str]]:
    """Return the instructions for 2 N messages of each workload, by function or by module."""
    found: dict[str, Counter[str]] = {}
    broker = Broker(build, by_module)
    try:
        broker.take(replace(LOADS["W1"][0], count=1000))  # Warm up: exclude one-time work.
        for name in names:
            load, count = LOADS[name]
            for _ in range(runs):
                less = broker.take(replace(load, count=count))
                more = broker.take(replace(load, count=3 * count))
                more.subtract(less)
                if name not in found or more.total() < found[name].total():
                    found[name] = more
            print(f"{build} {name}: {each(name, found[name].total()):,.1f}", file=sys.stderr)
    finally:
        broker.close()
    return found


def each(name: str, instructions: int) -> float:
    """Return the instructions for one message."""
    return instructions / (2 * LOADS[name][1])


def table(names: list[str], builds: list[Path], results: list[dict[str, Counter[str]]]) -> None:
    """Print the figures."""
    several = len(builds) > 1
    print("| |" + "".join(f" {build} |" for build in builds) + " |" * several)
    print("|---" * (1 + len(builds) + several) + "|")
    for name in names:
        figures = [each(name, result[name].total()) for result in results]
        row = [name, *(f"{figure:,.0f}" for figure in figures)]
        if several:
            row.append(f"{100 * (figures[-1] / figures[0] - 1):+.1f}%")
        print("| " + " | ".join(row) + " |")


def parts(name: str, results: list[Counter[str]], most: int) -> None:
    """Print the most expensive functions, or with several builds the ones that differ most."""
    first, last = results[0], results[-1]
    several = len(results) > 1
    size = {one: abs(last[one] - first[one] * several) for one in last | first}
    print(f"\n{name}")
    for one in sorted(size, key=lambda one: -size[one])[:most]:
        print(*(f"{each(name, result[one]):10,.1f}" for result in results), f" {one}")


def shares(result: dict[str, Counter[str]]) -> dict[str, dict[str, float]]:
    """Return the percentage of each workload's instructions in each module."""
    return {
        name: {one: round(100 * taken / found.total(), 2) for one, taken in found.items()}
        for name, found in result.items()
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("builds", nargs="*", type=Path, metavar="BUILD")
    parser.add_argument("--workload", default="W1,W2,W3,W4,W5,W6,W6p")
    parser.add_argument("--runs", type=int, default=1)
    parser.add_argument("--functions", type=int, default=0, help="so many of each workload")
    parser.add_argument(
        "--shares", type=Path, help="write each module's share of each workload in percent, as JSON"
    )
    options = parser.parse_args()
    builds = [one.resolve() for one in options.builds or [Path("build/compiled")]]
    wanted = options.workload.split(",")
    names = [name for name in LOADS if name.split()[0] in wanted]
    by_module = options.shares is not None
    results = [measure(build, names, options.runs, by_module) for build in builds]
    table(names, builds, results)
    if options.shares:
        options.shares.write_text(json.dumps(shares(results[-1]), indent=1) + "\n")
    elif options.functions:
        for name in names:
            parts(name, [result[name] for result in results], options.functions)


if __name__ == "__main__":
    main()
