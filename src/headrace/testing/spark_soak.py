# SPDX-License-Identifier: Apache-2.0
"""``headrace soak-spark``: kill the processes of a pipeline, and check that no message is lost.

A publisher writes numbered messages to a stream. A Spark query copies them to a second stream,
exactly once. Driver, Python workers, executors and the broker are killed at random moments. At the
end the second stream must have each number of the first stream exactly once.
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

PATIENT_RECONNECT: Final = Reconnect(delay_s=0.05, delay_max_s=0.5, attempts=2000)
VICTIMS: Final = ("driver", "worker", "broker", "executor")
PROGRESS_TIMEOUT_S: Final = 300.0  # The soak fails if the target does not grow for so long.
PAUSE_S: Final = (0.05, 2.0)  # The range of the random time between progress and the next kill.
PUBLISH_BATCH: Final = 200
EARLY_KILL_RATE: Final = 0.2  # The share of kills that do not wait for the recovery.
BACKLOG_MAX: Final = 6_000  # Messages that are published and not in the target yet.
LOCAL: Final = "local[2,8]"
CLUSTER: Final = "local-cluster[2,1,600]"


class SoakError(AssertionError):
    """Messages were lost or duplicated, or the query makes no progress."""


class Publisher(threading.Thread):
    """Publishes the numbers from 0 to a stream, each at the offset of its value."""

    def __init__(self, url: str, stream: str) -> None:
        super().__init__(daemon=True)
        self.confirmed = 0  # All lower numbers are in the stream.
        self.copied = 0  # The number of messages in the target.
        self.stopping = threading.Event()
        self._url = url
        self._stream = stream

    def run(self) -> None:
        """Publish until `stopping` is set; after a loss, publish unconfirmed messages again."""
        while not self.stopping.is_set():
            try:
                with blocking.connect(self._url, reconnect=None) as connection:
                    self._publish(connection)
            except (ClientError, OSError):
                time.sleep(0.05)

    def _publish(self, connection: blocking.Connection) -> None:
        last = connection.stream(self._stream).last_offset()
        self.confirmed = last  # The next number is the stream's next offset: no duplicates.
        with connection.channel() as channel:
            while not self.stopping.is_set():
                if self.confirmed - self.copied > BACKLOG_MAX:
                    time.sleep(0.02)
                    continue
                numbers = range(self.confirmed, self.confirmed + PUBLISH_BATCH)
                channel.publish_many([b"%d" % number for number in numbers], self._stream)
                self.confirmed += PUBLISH_BATCH


class SparkSoak:
    """A run of the soak on Spark. `say` is called with its progress."""

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
        """The kinds of processes that this master has."""
        return VICTIMS if "cluster" in self.master else VICTIMS[:3]

    def run(self, kills: int, victims: tuple[str, ...] = ()) -> int:
        """Kill processes while messages pass; return the number of copied messages.

        Args:
            kills: the number of kills.
            victims: the kinds of processes to kill in turn; random ones if empty.

        Raises:
            SoakError: messages were lost or duplicated, or the query made no progress.
        """
        with self.broker as broker:
            with blocking.connect(broker.url) as connection, connection.channel() as channel:
                for stream in ("soak.from", "soak.to"):
                    arguments: Json = {"x-queue-type": "stream"}
                    channel.declare_queue(stream, durable=True, arguments=arguments)
            publisher = Publisher(broker.url, "soak.from")
            publisher.start()
            try:
                for kill in range(kills):
                    if victims or kill == 0 or self.random.random() >= EARLY_KILL_RATE:
                        self._wait_for_progress(publisher)
                    self._ensure_query()
                    time.sleep(self.random.uniform(*PAUSE_S))
                    if victims:
                        self._wait_and_kill(victims[kill % len(victims)])
                    else:
                        self._kill(self.random.choice(self.victims))
                publisher.stopping.set()
                publisher.join()
                count = self._source_count()
                self._wait_for_progress(publisher, count)
            finally:
                publisher.stopping.set()
                self._kill_driver()
            self.check(count)
            return count

    def check(self, count: int) -> None:
        """Check that the target has each of the numbers below `count` exactly once."""
        with blocking.connect(self.broker.url) as connection:
            stream = connection.stream("soak.to")
            counts: Counter[int] = Counter()
            for block in stream.read_blocks(0, stream.last_offset()):
                counts.update(int(block.bodies.row(row)) for row in range(block.count))
        lost = [number for number in range(count) if number not in counts]
        repeated = [number for number, times in counts.items() if times > 1]
        if lost or repeated or len(counts) != count:
            raise SoakError(
                f"of {count} messages {len(lost)} are lost ({lost[:5]} …), "
                f"{len(repeated)} are duplicated ({repeated[:5]} …)"
            )

    def _source_count(self) -> int:
        with blocking.connect(self.broker.url, reconnect=PATIENT_RECONNECT) as connection:
            return connection.stream("soak.from").last_offset()

    def _wait_for_progress(self, publisher: Publisher, target_count: int | None = None) -> None:
        """Wait until the target grows, or has `target_count` messages; restart an ended query."""
        deadline = time.monotonic() + PROGRESS_TIMEOUT_S
        before: int | None = None  # The target's message count at the start, once it is known.
        while True:
            self._ensure_query()
            try:
                with blocking.connect(self.broker.url, reconnect=None) as connection:
                    publisher.copied = connection.stream("soak.to").last_offset()
                before = publisher.copied if before is None else before
            except (ClientError, OSError):
                pass  # The broker is restarting.
            moved = before is not None and publisher.copied > before
            if publisher.copied >= target_count if target_count is not None else moved:
                return
            if moved:
                before, deadline = publisher.copied, time.monotonic() + PROGRESS_TIMEOUT_S
            if time.monotonic() > deadline:
                raise SoakError(
                    f"no message was copied for {PROGRESS_TIMEOUT_S:g} s; {publisher.copied} of "
                    f"{publisher.confirmed} messages are copied\n{self.log()}"
                )
            time.sleep(0.1)

    # --- The query's process ------------------------------------------------------------------

    def _ensure_query(self) -> None:
        """Start the query's process if it has ended or was killed."""
        child = self._child
        if child is None or child.poll() is not None:
            if child is not None and child.stdin is not None:
                child.stdin.close()
            self._start()

    def _start(self) -> None:
        arguments = {
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
                [sys.executable, "-m", "headrace.testing.spark_query", json.dumps(arguments)],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                start_new_session=True,
                env={**os.environ, "PYTHONPATH": package},
            )

    def log(self) -> str:
        """Return the last 4,000 characters of Spark's output."""
        path = self.home / "spark.log"
        return path.read_text(errors="replace")[-4000:] if path.exists() else ""

    def _wait_and_kill(self, victim: str) -> None:
        """Kill a process of a kind, as soon as one runs."""
        deadline = time.monotonic() + PROGRESS_TIMEOUT_S
        while not self._kill(victim):
            if time.monotonic() > deadline:
                raise SoakError(f"no {victim} has run for {PROGRESS_TIMEOUT_S:g} s\n{self.log()}")
            self._ensure_query()
            time.sleep(0.1)

    def _kill(self, victim: str) -> bool:
        """Kill a process of a kind; return False if none runs."""
        self.say(f"killing {victim}")
        killed = True
        if victim == "driver":
            self._kill_driver()
        elif victim == "broker":
            self.broker.kill()
            self.broker.start()
        elif victim == "worker":
            killed = self._kill_child(lambda line: "pyspark.daemon" in line)
        else:
            killed = self._kill_child(lambda line: "CoarseGrainedExecutorBackend" in line)
        if killed:
            self.kills[victim] += 1
        else:
            self.say(f"no {victim} runs now")
        return killed

    def _kill_driver(self) -> None:
        """Kill the driver and its child processes, if it runs."""
        child, self._child = self._child, None
        if child is None:
            return
        members = [child.pid]
        try:
            members += [
                process.pid for process in psutil.Process(child.pid).children(recursive=True)
            ]
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

    def _kill_child(self, matches: Callable[[str], bool]) -> bool:
        """Kill a child process with a matching command line; return False if none runs.

        A forked Python worker is preferred to the daemon that forked it.
        """
        if self._child is None:
            return False
        try:
            children = psutil.Process(self._child.pid).children(recursive=True)
        except psutil.Error:
            return False  # The driver has just ended.
        processes: dict[int, tuple[psutil.Process, int]] = {}
        for process in children:
            with contextlib.suppress(psutil.Error):  # Tasks come and go.
                if matches(" ".join(process.cmdline())):
                    processes[process.pid] = process, process.ppid()
        forked = [process for process, parent in processes.values() if parent in processes]
        if not processes:
            return False
        try:
            self.random.choice(forked or [process for process, _ in processes.values()]).kill()
        except psutil.Error:
            return False
        return True
