# SPDX-License-Identifier: Apache-2.0
"""Kills everything that a pipeline is made of, again and again, and counts what came out.

Numbered messages go into a stream; a query reads them and writes them, exactly once, into another.
Driver, Python workers, executors and the broker are killed at random moments. In the end the second
stream must have every number that was confirmed in the first, once.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final

import psutil

import headrace
from headrace.client import Reconnect, blocking
from headrace.client.errors import ClientError
from headrace.testing.broker import ChildBroker

if TYPE_CHECKING:
    from headrace.untyped import Json

PATIENT: Final = Reconnect(delay_s=0.05, delay_max_s=0.5, attempts=2000)
VICTIMS: Final = ("driver", "worker", "broker", "executor")
MOVES_S: Final = 300.0  # How long the target may stand still before that is a failure.
PAUSE_S: Final = (0.05, 2.0)  # Between signs of life and the next kill.
PUBLISHED_AT_ONCE: Final = 200
AMID: Final = 0.2  # So often the next kill does not wait until the last one is got over.
BACKLOG_MAX: Final = 6_000  # Published and not yet seen in the target.
LOCAL: Final = "local[2,8]"
CLUSTER: Final = "local-cluster[2,1,600]"


class SoakError(AssertionError):
    """Messages were lost or duplicated, or the query no longer moves."""


class Publisher(threading.Thread):
    """Publishes numbers to a stream, and records which were confirmed."""

    def __init__(self, url: str, stream: str) -> None:
        super().__init__(daemon=True)
        self.confirmed = 0  # All numbers below are in the stream, perhaps twice.
        self.seen = 0  # In the target.
        self.stopping = threading.Event()
        self._url = url
        self._stream = stream

    def run(self) -> None:
        """Publish until the stop; messages unconfirmed at a loss are published again."""
        while not self.stopping.is_set():
            try:
                with blocking.connect(self._url, reconnect=None) as connection:
                    self._publish(connection)
            except (ClientError, OSError):
                time.sleep(0.05)

    def _publish(self, connection: blocking.Connection) -> None:
        last = connection.stream(self._stream).last_offset()
        self.confirmed = last  # A number is its own offset, so none is duplicated.
        with connection.channel() as channel:
            while not self.stopping.is_set():
                if self.confirmed - self.seen > BACKLOG_MAX:
                    time.sleep(0.02)
                    continue
                numbers = range(self.confirmed, self.confirmed + PUBLISHED_AT_ONCE)
                channel.publish_many([b"%d" % number for number in numbers], self._stream)
                self.confirmed += PUBLISHED_AT_ONCE


class SparkSoak:
    """One run. `say` is called with its progress."""

    def __init__(
        self,
        home: Path,
        *,
        seed: int = 1,
        master: str = LOCAL,
        sink: dict[str, str] | None = None,
        speculation: bool = False,
        say: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.home = home
        self.master = master
        self.random = random.Random(seed)
        self.say = say
        self.kills: Counter[str] = Counter()
        self.starts = 0
        self._sink = sink or {}
        self._speculation = speculation
        self._child: subprocess.Popen[bytes] | None = None
        self.broker = ChildBroker(home / "broker")

    @property
    def victims(self) -> tuple[str, ...]:
        """Return the processes that can be killed with this master."""
        return VICTIMS if "cluster" in self.master else VICTIMS[:3]

    def run(self, kills: int, victims: tuple[str, ...] = ()) -> int:
        """Kill so often, the `victims` in turn or else any; return how many messages passed.

        Raises:
            SoakError: the outcome is wrong; the text has the reason.
        """
        with self.broker as broker:
            with blocking.connect(broker.url) as connection, connection.channel() as channel:
                for stream in ("soak.from", "soak.to"):
                    arguments: Json = {"x-queue-type": "stream"}
                    channel.declare_queue(stream, durable=True, arguments=arguments)
            publisher = Publisher(broker.url, "soak.from")
            publisher.start()
            try:
                for round_ in range(kills):
                    if victims or round_ == 0 or self.random.random() >= AMID:
                        self._wait_until_it_moves(publisher)
                    self._keep_running()
                    time.sleep(self.random.uniform(*PAUSE_S))
                    if victims:
                        self._kill_surely(victims[round_ % len(victims)])
                    else:
                        self._kill(self.random.choice(self.victims))
                publisher.stopping.set()
                publisher.join()
                count = self._end()
                self._wait_until_it_moves(publisher, count)
            finally:
                publisher.stopping.set()
                self._kill_driver()
            self.check(count)
            return count

    def check(self, count: int) -> None:
        """Compare what is in the target with what went in."""
        with blocking.connect(self.broker.url) as connection:
            stream = connection.stream("soak.to")
            counts: Counter[int] = Counter()
            for block in stream.read_blocks(0, stream.last_offset()):
                counts.update(int(block.bodies.row(row)) for row in range(block.count))
        lost = [number for number in range(count) if number not in counts]
        twice = [number for number, times in counts.items() if times > 1]
        if lost or twice or len(counts) != count:
            raise SoakError(
                f"of {count} messages {len(lost)} are lost ({lost[:5]} …), "
                f"{len(twice)} are there more than once ({twice[:5]} …)"
            )

    def _end(self) -> int:
        with blocking.connect(self.broker.url, reconnect=PATIENT) as connection:
            return connection.stream("soak.from").last_offset()

    def _wait_until_it_moves(self, publisher: Publisher, upto: int | None = None) -> None:
        """Until the target has grown from now on, or has `upto` messages; start what has ended."""
        deadline = time.monotonic() + MOVES_S
        before: int | None = None  # What the target has now: not known yet.
        while True:
            self._keep_running()
            try:
                with blocking.connect(self.broker.url, reconnect=None) as connection:
                    publisher.seen = connection.stream("soak.to").last_offset()
                before = publisher.seen if before is None else before
            except (ClientError, OSError):
                pass  # The broker is just coming back.
            moved = before is not None and publisher.seen > before
            if publisher.seen >= upto if upto is not None else moved:
                return
            if moved:
                before, deadline = publisher.seen, time.monotonic() + MOVES_S
            if time.monotonic() > deadline:
                raise SoakError(
                    f"nothing moved for {MOVES_S:g} s; {publisher.seen} messages came through, "
                    f"{publisher.confirmed} went in\n{self.log()}"
                )
            time.sleep(0.1)

    # --- The query's process ------------------------------------------------------------------

    def _keep_running(self) -> None:
        """Start the query if it has ended."""
        child = self._child
        if child is None or child.poll() is not None:
            if child is not None and child.stdin is not None:
                child.stdin.close()
            self._start()

    def _start(self) -> None:
        asked = {
            "uri": self.broker.url,
            "source": {"stream": "soak.from"},
            "target": "soak.to",
            "master": self.master,
            "checkpoint": str(self.home / "checkpoint"),
            "home": str(self.home),
            "records_max": 3000,
            "sink": self._sink,
            "speculation": self._speculation,
        }
        self.starts += 1
        package = str(Path(headrace.__file__).parent.parent)
        with (self.home / "spark.log").open("ab") as log:
            self._child = subprocess.Popen(
                [sys.executable, "-m", "headrace.testing.spark_query", json.dumps(asked)],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                start_new_session=True,
                env={**os.environ, "PYTHONPATH": package},
            )

    def log(self) -> str:
        """Return the end of Spark's output."""
        path = self.home / "spark.log"
        return path.read_text(errors="replace")[-4000:] if path.exists() else ""

    def _kill_surely(self, victim: str) -> None:
        """Kill one, waiting for one to be there."""
        deadline = time.monotonic() + MOVES_S
        while not self._kill(victim):
            if time.monotonic() > deadline:
                raise SoakError(f"there was no {victim} for {MOVES_S:g} s\n{self.log()}")
            self._keep_running()
            time.sleep(0.1)

    def _kill(self, victim: str) -> bool:
        """Kill one; return True if there was one."""
        self.say(f"killing {victim}")
        killed = True
        if victim == "driver":
            self._kill_driver()
        elif victim == "broker":
            self.broker.kill()
            self.broker.start()
        elif victim == "worker":
            killed = self._kill_one(lambda line: "pyspark.daemon" in line)
        else:
            killed = self._kill_one(lambda line: "CoarseGrainedExecutorBackend" in line)
        if killed:
            self.kills[victim] += 1
        else:
            self.say(f"there is no {victim} just now")
        return killed

    def _kill_driver(self) -> None:
        """The driver with all that it started on this machine."""
        child, self._child = self._child, None
        if child is None:
            return
        members = [child.pid]
        try:
            members += [each.pid for each in psutil.Process(child.pid).children(recursive=True)]
        except psutil.Error:
            pass
        for pid in members:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        child.wait()
        if child.stdin is not None:
            child.stdin.close()

    def _kill_one(self, wanted: Callable[[str], bool]) -> bool:
        """One process with such a command line; rather a forked worker than the one it is from.

        Tell whether there was one.
        """
        if self._child is None:
            return False
        try:
            children = psutil.Process(self._child.pid).children(recursive=True)
        except psutil.Error:
            return False  # It ended by itself just now.
        processes: dict[int, tuple[psutil.Process, int]] = {}
        for process in children:
            with contextlib.suppress(psutil.Error):  # Tasks come and go.
                if wanted(" ".join(process.cmdline())):
                    processes[process.pid] = process, process.ppid()
        forked = [process for process, parent in processes.values() if parent in processes]
        if not processes:
            return False
        try:
            self.random.choice(forked or [process for process, _ in processes.values()]).kill()
        except psutil.Error:
            return False
        return True
