# SPDX-License-Identifier: Apache-2.0
"""A broker under a load of short lives for an hour: does its memory stay flat?

    PYTHONPATH=build/compiled .venv/bin/python tools/longrun.py [--minutes 60] [--rate 3000]

A `headrace serve` with its console runs on a new directory. Clients of every version use it:
confirmed publishes to durable and transient queues, acks, expiring messages, dead letters, a stream
with retention, direct reply-to, and short-lived connections, channels, queues, exchanges, bindings
and consumers, some of which end without a close. Metrics and the HTTP API are read every 10
seconds, as by Prometheus and an open page.

The process is sampled every 10 seconds; a line is printed each minute. At the end a straight line
is fitted to the resident memory of the second half by least squares. The exit code is 0 if memory
grows by less than `--bound` MiB a minute, else 1.

`--heap` also counts the broker's objects by type and the blocks of its heap, and prints the types
that grew in the second half. The broker answers more slowly while they are counted.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import contextlib
import itertools
import json
import os
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections import Counter
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from headrace.bench.load.link import open_link
from headrace.client import Message, connect, parse_url
from headrace.protocol.codec_0_x import QueueDeclare, QueueDeclareOk

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence

    from headrace.client import Channel, Connection, Delivery
    from headrace.untyped import JsonObject
    from headrace.wire.table import Value

MIB = 1 << 20
LOOK_S = 10.0
TICK_S = 0.05  # The interval at which due messages are published.
BEHIND_S = 1.0  # A driver that is later than this skips the messages that are due.
BOUND = 0.05  # MiB a minute.
BODY = b"x" * 100
VERSIONS = ("0-9-1", "0-8", "0-9", "0-10")
REPLY_TO = "amq.rabbitmq.reply-to"
TOPICS = "longrun.topics"
EXPIRES_MS = 500
STREAM_BYTES = 16 * MIB
DEAD_MAX = 1000
HEAP = """
import collections, ctypes, gc, json, os, sys, threading, time
class Blocks(ctypes.Structure):
    _fields_ = [(name, ctypes.c_size_t) for name in
        "arena ordblks smblks hblks hblkhd usmblks fsmblks used free keepcost".split()]
def count():
    info = ctypes.CDLL(None).mallinfo2
    info.restype = Blocks
    while True:
        time.sleep(60)
        types = collections.Counter(
            f"{type(one).__module__}.{type(one).__qualname__}" for one in gc.get_objects())
        blocks = info()
        look = {"blocks": sys.getallocatedblocks(), "used": blocks.used + blocks.hblkhd,
            "free": blocks.free, "types": types}
        with open(os.environ["HEADRACE_HEAP"], "a") as file:
            print(json.dumps(look), file=file)
threading.Thread(target=count, daemon=True).start()
from headrace.cli import main
main()
"""


class Look(NamedTuple):
    """A sample of the broker; memory in MiB."""

    at_s: float
    resident: float
    proportional: float  # Memory with the broker's proportional part of shared pages.
    counted: float  # Messages, by the broker's own count.
    console: float  # Resident memory of the console's process.
    files: int
    objects: dict[str, int]
    published: int


class Broker:
    """A broker in a separate process, with its console."""

    def __init__(self, place: Path, *, heap: bool) -> None:
        self.heap = place / "heap"
        program = ("-c", HEAP) if heap else ("-m", "headrace.cli")
        self.process = subprocess.Popen(
            [
                *(sys.executable, *program, "serve", "--host", "127.0.0.1", "--port", "0"),
                *("--data", str(place / "data"), "--log-file", str(place / "log")),
                *("--console", "--console-port", "0", "--metrics-port", "0"),
            ],
            env={**os.environ, "HEADRACE_HEAP": str(self.heap)},
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        ready = self.process.stdout.readline()
        if not ready.startswith("headrace ready "):
            raise SystemExit("no broker starts")
        addresses = json.loads(ready.removeprefix("headrace ready "))
        self.url = f"amqp://guest:guest@{addresses['amqp']}/"
        self.api: str = addresses["http"]
        self.metrics: str = addresses["metrics"]
        self.node = ""

    def get(self, address: str) -> bytes:
        """Return the body of the console's answer."""
        request = urllib.request.Request(address)
        request.add_header("Authorization", f"Basic {base64.b64encode(b'guest:guest').decode()}")
        with urllib.request.urlopen(request, timeout=60) as answer:
            return bytes(answer.read())

    def read(self, path: str) -> JsonObject:
        """Return the decoded answer of the HTTP API to a GET."""
        answer: JsonObject = json.loads(self.get(f"{self.api}/api/{path}"))
        return answer

    def look(self, published: int) -> Look:
        """Sample the processes, and read the metrics as Prometheus does."""
        self.get(self.metrics)
        self.get(f"{self.api}/api/queues?page=1&page_size=100")
        overview = self.read("overview")
        memory = self.read(f"nodes/{overview['node']}/memory")["memory"]
        pid = self.process.pid
        return Look(
            time.monotonic(),
            rolled_up(pid, "Rss"),
            rolled_up(pid, "Pss"),
            memory["queue_procs"] / MIB,
            sum(rolled_up(child, "Rss") for child in children(pid)),
            len(os.listdir(f"/proc/{pid}/fd")),  # noqa: PTH208 - numbers, not paths.
            overview["object_totals"],
            published,
        )

    def close(self) -> None:
        """Stop the broker."""
        self.process.terminate()
        self.process.wait()


def rolled_up(pid: int, name: str) -> float:
    """Return a figure of a process's memory, in MiB; 0 for a process that has ended."""
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith(f"{name}:"):
                return int(line.split()[1]) / 1024
    return 0.0


def children(pid: int) -> list[int]:
    """Return the ids of the child processes of a process."""
    found: list[int] = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(OSError):  # The thread has ended.
            found += map(int, (task / "children").read_text().split())
    return found


class Driver:
    """The clients."""

    def __init__(self, url: str, rate: int, lives: float) -> None:
        self.url = url
        self.rate = rate
        self.lives = lives
        self.published = 0
        self.numbers = itertools.count()

    async def run(self) -> None:
        """Publish and consume until cancelled."""
        part = self.rate / 10
        async with self.connection("0-9-1") as connection, connection.channel() as channel:
            await channel.declare_exchange(TOPICS, "topic")
        async with asyncio.TaskGroup() as group:
            for name, share in (("longrun.durable", 4), ("longrun.transient", 3)):
                durable = name == "longrun.durable"
                group.create_task(self.steady(name, part * share, durable=durable))
            for version in VERSIONS[1:]:
                name = f"longrun.{version}"
                group.create_task(self.steady(name, part / 3, version=version, durable=False))
            group.create_task(self.expiring(part))
            group.create_task(self.streaming(part))
            group.create_task(self.replies(self.rate / 100))
            async for due in self.pace(self.lives):
                for _ in range(due):
                    group.create_task(self.life(next(self.numbers)))

    def connection(self, version: str) -> contextlib.AbstractAsyncContextManager[Connection]:
        """Open a connection."""
        return connect(f"{self.url}?version={version}", reconnect=None)

    async def pace(self, rate: float) -> AsyncIterator[int]:
        """Yield the number of messages that are due, at intervals."""
        begun, given = time.monotonic(), 0
        while True:
            await asyncio.sleep(TICK_S)
            due = int((time.monotonic() - begun) * rate) - given
            given += due
            if due:
                yield min(due, max(1, int(rate * BEHIND_S)))

    async def publish(
        self, channel: Channel, rate: float, make: Callable[[], Message], key: str
    ) -> None:
        """Publish at a rate, and wait for confirms."""
        async for due in self.pace(rate):
            await channel.publish_many([make() for _ in range(due)], key)
            self.published += due

    async def steady(
        self, queue: str, rate: float, *, version: str = "0-9-1", durable: bool
    ) -> None:
        """Publish to a queue on one connection, and consume from it on another."""
        async with (
            self.connection(version) as one,
            self.connection(version) as other,
            one.channel() as publishing,
            other.channel() as consuming,
            asyncio.TaskGroup() as group,
        ):
            await consuming.declare_queue(queue, durable=durable)
            group.create_task(self.consume(consuming, queue))
            message = Message(BODY, persistent=durable, headers={"from": version})
            await self.publish(publishing, rate, lambda: message, queue)

    async def consume(
        self, channel: Channel, queue: str, arguments: dict[str, str] | None = None
    ) -> None:
        """Take messages and ack them."""
        async with channel.consume(queue, prefetch=500, arguments=arguments) as consumer:
            while True:
                deliveries: list[Delivery] = await consumer.take(100)
                await deliveries[-1].ack(multiple=True)

    async def expiring(self, rate: float) -> None:
        """Publish to a queue without consumers; half of the messages have an expiration."""
        async with self.connection("0-9-1") as connection, connection.channel() as channel:
            await channel.declare_queue("longrun.dead", arguments={"x-max-length": DEAD_MAX})
            await channel.declare_queue(
                "longrun.expiring",
                arguments={
                    "x-message-ttl": EXPIRES_MS,
                    "x-dead-letter-exchange": "",
                    "x-dead-letter-routing-key": "longrun.dead",
                },
            )
            soon = Message(BODY, expiration=timedelta(milliseconds=EXPIRES_MS // 2))
            turns = itertools.cycle([soon, Message(BODY)])
            await self.publish(channel, rate, lambda: next(turns), "longrun.expiring")

    async def streaming(self, rate: float) -> None:
        """Publish to a stream with retention, and read it."""
        name = "longrun.stream"
        async with (
            self.connection("0-9-1") as connection,
            connection.channel() as publishing,
            connection.channel() as consuming,
            asyncio.TaskGroup() as group,
        ):
            arguments: dict[str, Value] = {
                "x-queue-type": "stream",
                "x-max-length-bytes": STREAM_BYTES,
            }
            await publishing.declare_queue(name, arguments=arguments)
            group.create_task(self.consume(consuming, name, {"x-stream-offset": "next"}))
            message = Message(BODY)
            await self.publish(publishing, rate, lambda: message, name)

    async def replies(self, rate: float) -> None:
        """Send requests and answers by direct reply-to, each request on a new channel."""
        queue = "longrun.questions"
        async with (
            self.connection("0-9-1") as asking,
            self.connection("0-9-1") as answering,
            answering.channel() as expert,
        ):
            await expert.declare_queue(queue, durable=False)
            async with expert.consume(queue) as questions:
                async for due in self.pace(rate):
                    async with (
                        asking.channel() as channel,
                        channel.consume(REPLY_TO, no_ack=True) as answers,
                    ):
                        for _ in range(due):
                            number = str(next(self.numbers))
                            request = Message(BODY, reply_to=REPLY_TO, correlation_id=number)
                            await channel.publish(request, queue)
                            question = await questions.receive()
                            await question.ack()
                            assert question.reply_to is not None
                            answer = Message(BODY, correlation_id=number)
                            await expert.publish(answer, question.reply_to)
                            await answers.receive()
                            self.published += 2

    async def life(self, number: int) -> None:
        """Connect, declare, publish, consume and close; one in four ends without a close."""
        if number % 4 == 3:
            await asyncio.to_thread(self.hang_up, number)
            return
        name = f"longrun.life.{number}"
        version = VERSIONS[number // 4 % len(VERSIONS)]
        async with self.connection(version) as connection, connection.channel() as channel:
            await channel.declare_queue(name, durable=number % 2 == 0, exclusive=number % 2 == 1)
            await channel.declare_exchange(name, "fanout", durable=number % 2 == 0)
            await channel.bind_queue(name, TOPICS, f"{name}.#")
            await channel.bind_queue(name, name)
            for exchange in (TOPICS, name):
                await channel.publish(Message(BODY), f"{name}.key", exchange)
            async with channel.consume(name) as consumer:
                for _ in range(2):
                    await (await consumer.receive()).ack()
            await channel.delete_exchange(name)
            await channel.delete_queue(name)
            self.published += 2

    def hang_up(self, number: int) -> None:
        """End without a close, and leave an exclusive queue and an open connection."""
        link = open_link(parse_url(self.url))
        queue = QueueDeclare(queue=f"longrun.life.{number}", exclusive=True)
        link.call(queue, QueueDeclareOk)
        link.drop()


def slope(looks: Sequence[Look], measure: Callable[[Look], float]) -> float:
    """Return the growth of a measure per minute, by least squares."""
    minutes = [look.at_s / 60 for look in looks]
    values = [measure(look) for look in looks]
    minute, mean = sum(minutes) / len(looks), sum(values) / len(looks)
    spread = sum((at - minute) ** 2 for at in minutes)
    return (
        sum((at - minute) * (value - mean) for at, value in zip(minutes, values, strict=True))
        / spread
    )


def resident(look: Look) -> float:
    """Return the resident memory."""
    return look.resident


async def watch(broker: Broker, driver: Driver, minutes: float) -> list[Look]:
    """Sample the broker while the clients run; print a line each minute."""
    running = asyncio.create_task(driver.run())
    print("minute   RSS     PSS     messages  console  files  objects           published/s")
    begun, looks = time.monotonic(), list[Look]()
    lines = 0
    try:
        while (now := time.monotonic() - begun) < minutes * 60:
            look = await asyncio.to_thread(broker.look, driver.published)
            looks.append(look)
            if now >= 60 * lines:
                print_minute(looks, lines)
                lines += 1
            done, _ = await asyncio.wait([running], timeout=LOOK_S)
            if done:
                running.result()
    finally:
        running.cancel()
        await asyncio.wait([running])
    return looks


def print_minute(looks: list[Look], minute: int) -> None:
    """Print a line about a minute."""
    look = looks[-1]
    before = looks[max(0, len(looks) - 1 - int(60 / LOOK_S))]
    rate = (look.published - before.published) / max(1.0, look.at_s - before.at_s)
    objects = "/".join(
        str(look.objects[name]) for name in ("connections", "channels", "queues", "consumers")
    )
    print(
        f"{minute:6} {look.resident:7.1f} {look.proportional:7.1f} {look.counted:10.1f} "
        f"{look.console:8.1f} {look.files:6}  {objects:16} {rate:12,.0f}",
        flush=True,
    )


def print_heap(path: Path) -> None:
    """Print the heap at half time and at the end, and the types that grew."""
    counts = [json.loads(line) for line in path.read_text().splitlines()]
    if len(counts) < 2:
        print("heap: --minutes is too short")
        return
    half, end = counts[len(counts) // 2], counts[-1]
    for name in ("blocks", "used", "free"):
        print(f"heap: {name} {half[name]:,} at half time, {end[name]:,} at the end")
    grown = Counter(end["types"])
    grown.subtract(half["types"])
    for name, count in grown.most_common(12):
        if count > 0:
            print(f"heap: {count:+,} {name}, now {end['types'][name]:,}")


def main() -> None:
    """Run the load; exit with 1 if memory grows in the second half."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--rate", type=int, default=3000, help="messages per second")
    parser.add_argument("--lives", type=float, default=5, help="new connections per second")
    parser.add_argument("--bound", type=float, default=BOUND, help="MiB a minute")
    parser.add_argument("--heap", action="store_true", help="count objects by type")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="headrace-longrun-") as place:
        broker = Broker(Path(place), heap=options.heap)
        try:
            driver = Driver(broker.url, options.rate, options.lives)
            looks = asyncio.run(watch(broker, driver, options.minutes))
        finally:
            broker.close()
        if options.heap:
            print_heap(broker.heap)
    half = looks[len(looks) // 2 :]
    if len(half) < 2:
        raise SystemExit("too short")
    grows = slope(half, resident)
    flat = grows < options.bound
    print(
        f"RSS {looks[0].resident:.1f} MiB at the start, {half[0].resident:.1f} at half time, "
        f"{looks[-1].resident:.1f} at the end. In the second half it grows by {grows:+.3f} MiB a "
        f"minute: {'flat' if flat else 'not flat'} (bound {options.bound}). "
        f"Console: {slope(half, lambda look: look.console):+.3f} MiB a minute."
    )
    raise SystemExit(0 if flat else 1)


if __name__ == "__main__":
    main()
