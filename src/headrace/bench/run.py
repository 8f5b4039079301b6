# SPDX-License-Identifier: Apache-2.0
"""Run a load in two processes, measure it, and check that no message is lost."""

from __future__ import annotations

import multiprocessing
import time
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection as Pipe
from multiprocessing.process import BaseProcess
from typing import TYPE_CHECKING

from headrace.bench.load.generator import (
    Board,
    BoardField,
    ConsumeReport,
    PublishReport,
    consume,
    publish,
)
from headrace.bench.load.link import BenchError, open_link, ready_count
from headrace.bench.load.load import Load, declare, queue_name
from headrace.bench.load.meter import Histogram
from headrace.bench.usage import MIB, Usage

if TYPE_CHECKING:
    from headrace.client.url import Settings

READY_TIMEOUT_S = 120.0
COUNT_TIMEOUT_S = 600.0
POLL_S = 0.02


@dataclass(slots=True)
class LoadOutcome:
    """The results of a run. Rates are messages per second; ``_us`` are microseconds."""

    seconds: float = 0.0
    published_rate: float = 0.0
    delivered_rate: float = 0.0
    confirmed_rate: float = 0.0
    sent: int = 0
    expected: int = 0
    confirmed: int = 0
    nacked: int = 0
    received: int = 0
    lost: int = 0
    repeated: int = 0
    out_of_order: int = 0
    redelivered: int = 0
    ready: int = 0
    publish_s: float = 0.0
    consume_s: float = 0.0
    first_s: float = 0.0  # The time from the start to the first delivery.
    broker_cpu: float = 0.0  # The number of cores in use on average.
    broker_cpu_us: float = 0.0  # Processor time of the broker for a message.
    generator_cpu: float = 0.0  # The number of cores in use on average.
    resident_mib: float = 0.0
    peak_mib: float = 0.0
    # Percentiles of the time from publish to delivery, and from publish to confirm.
    delivery_us: dict[str, float] = field(default_factory=dict)
    confirm_us: dict[str, float] = field(default_factory=dict)

    def problems(self) -> list[str]:
        """Return a text for each violation of the broker's guarantees."""
        problems = []
        if self.lost:
            problems.append(f"{self.lost} messages lost")
        if self.received > self.expected:
            problems.append(f"{self.received - self.expected} deliveries too many")
        if self.repeated > self.redelivered:
            problems.append(
                f"{self.repeated} deliveries repeated, {self.redelivered} marked as redelivered"
            )
        if self.out_of_order:
            problems.append(f"{self.out_of_order} deliveries out of order")
        if self.nacked:
            problems.append(f"{self.nacked} publishes refused")
        return problems


@dataclass(slots=True)
class Counts:
    """The counts of a load at one moment. Times are seconds."""

    time_s: float
    sent: int
    received: int
    confirmed: int
    cpu_s: float
    generator_s: float


class LoadRun:
    """A run of a load. Its constructor starts the processes of publishers and consumers."""

    def __init__(self, load: Load, settings: Settings, usage: Usage) -> None:
        self.load = load
        self.settings = settings
        self.usage = usage
        context = multiprocessing.get_context("spawn")
        self.board: Board = context.RawArray("q", int(BoardField.SIZE))
        self.pipes: dict[str, Pipe] = {}
        self.processes: list[BaseProcess] = []
        self.generator_usages: list[Usage] = []
        for name, work, count in (
            ("consumers", consume, load.consumers),
            ("publishers", publish, load.publishers if load.publishes else 0),
        ):
            if count:
                pipe, child_pipe = context.Pipe()
                process = context.Process(
                    target=work, args=(load, settings, self.board, child_pipe), daemon=True
                )
                process.start()
                child_pipe.close()
                self.pipes[name] = pipe
                self.processes.append(process)
                self.generator_usages.append(Usage(process.pid or 0))

    def measure(self) -> LoadOutcome:
        """Run the load to its end and return the results.

        Raises:
            BenchError: a process failed or does not answer.
        """
        try:
            for name in self.pipes:
                self.receive_message(name, READY_TIMEOUT_S)
            self.usage.forget_peak()
            begin = self.read_counts()
            for pipe in self.pipes.values():
                pipe.send("go")
            if self.load.is_counted:
                self.board[BoardField.MEASURING] = 1
                self.wait_for_count()
            else:
                self.sleep(self.load.warm_s)
                self.board[BoardField.MEASURING] = 1
                begin = self.read_counts()
                self.sleep(self.load.seconds)
            end = self.read_counts()
            self.board[BoardField.MEASURING] = 0
            self.board[BoardField.STOP] = 1
            self.wait_for_deliveries()
            self.board[BoardField.END] = 1
            reports: dict[str, object] = {
                name: self.receive_message(name, 60.0) for name in self.pipes
            }
            return self.make_outcome(begin, end, reports)
        finally:
            for pipe in self.pipes.values():
                with suppress(OSError):
                    pipe.send("bye")
            for process in self.processes:
                process.join(5.0)
                if process.is_alive():
                    process.terminate()

    def receive_message(self, name: str, timeout_s: float) -> object:
        """Return the next message of a process.

        Raises:
            BenchError: the process failed, ended, or sent no message in time.
        """
        if not self.pipes[name].poll(timeout_s):
            raise BenchError(f"the {name} have not answered within {timeout_s:g} s")
        try:
            answer: object = self.pipes[name].recv()
        except EOFError:
            raise BenchError(f"the process of the {name} ended without a report") from None
        if isinstance(answer, BenchError):
            raise BenchError(f"{name}: {answer}")
        return answer

    def read_counts(self) -> Counts:
        """Return the current counts."""
        board = self.board
        return Counts(
            time.monotonic(),
            board[BoardField.SENT],
            board[BoardField.RECEIVED],
            board[BoardField.CONFIRMED],
            self.usage.cpu_s(),
            sum(usage.cpu_s() for usage in self.generator_usages),
        )

    def sleep(self, seconds: float) -> None:
        """Wait while the load runs.

        Raises:
            BenchError: a process failed meanwhile.
        """
        end = time.monotonic() + seconds
        while (remaining_s := end - time.monotonic()) > 0:
            time.sleep(min(remaining_s, POLL_S * 5))
            self.usage.resident()
            self.check()

    def check(self) -> None:
        """Raise BenchError if a process has failed or ended early."""
        for name, pipe in self.pipes.items():
            if (
                pipe.poll()
                and not self.board[BoardField.STOP]
                and not self.board[BoardField.PUBLISHED]
            ):
                self.receive_message(name, 0)
                raise BenchError(f"the {name} ended early")

    def wait_for_count(self) -> None:
        """Wait until a counted load is complete, or makes no progress for `Load.idle_s`."""
        board, load = self.board, self.load
        deadline = time.monotonic() + COUNT_TIMEOUT_S
        progress_s, received = time.monotonic(), -1
        while time.monotonic() < deadline:
            time.sleep(POLL_S)
            self.usage.resident()
            self.check()
            if board[BoardField.RECEIVED] != received or not self.is_published:
                progress_s, received = time.monotonic(), board[BoardField.RECEIVED]
            target = board[BoardField.EXPECTED] if load.publishes else load.count
            if self.is_published and (not load.consumers or received >= target):
                return
            if time.monotonic() - progress_s > load.idle_s:
                return

    @property
    def is_published(self) -> bool:
        """True if the broker has received all publishes of the load."""
        return not self.load.publishes or bool(self.board[BoardField.PUBLISHED])

    def wait_for_deliveries(self) -> None:
        """Wait until all published messages are delivered, or none arrives for `Load.idle_s`."""
        board, load = self.board, self.load
        progress_s, received = time.monotonic(), -1
        while not self.is_published:
            time.sleep(POLL_S)
            if "publishers" in self.pipes and self.pipes["publishers"].poll():
                break  # The publishers have sent their report or an error.
        while load.consumers and load.publishes and not self.load.keep:
            if board[BoardField.RECEIVED] >= board[BoardField.EXPECTED] + load.backlog:
                time.sleep(POLL_S)  # Give surplus deliveries the time to arrive.
                return
            if board[BoardField.RECEIVED] != received:
                progress_s, received = time.monotonic(), board[BoardField.RECEIVED]
            if time.monotonic() - progress_s > load.idle_s:
                return
            time.sleep(POLL_S)

    def make_outcome(self, begin: Counts, end: Counts, reports: dict[str, object]) -> LoadOutcome:
        """Return the results of this run, from the board and the reports of the processes."""
        board, load = self.board, self.load
        published, consumed = reports.get("publishers"), reports.get("consumers")
        assert published is None or isinstance(published, PublishReport)
        assert consumed is None or isinstance(consumed, ConsumeReport)
        seconds = end.time_s - begin.time_s
        result = LoadOutcome(
            seconds=seconds,
            sent=board[BoardField.SENT],
            expected=board[BoardField.EXPECTED] + load.backlog if load.publishes else load.count,
            confirmed=board[BoardField.CONFIRMED],
            received=board[BoardField.RECEIVED],
            resident_mib=self.usage.resident() / MIB,
            peak_mib=self.usage.peak() / MIB,
        )
        started = board[BoardField.STARTED_NS] or board[BoardField.FIRST_NS]
        if load.is_counted:
            result.publish_s = max(0, board[BoardField.SENT_NS] - started) / 1e9
            result.consume_s = max(0, board[BoardField.LAST_NS] - board[BoardField.FIRST_NS]) / 1e9
            result.first_s = max(0, board[BoardField.FIRST_NS] - int(begin.time_s * 1e9)) / 1e9
            result.published_rate = _rate(result.sent, result.publish_s)
            result.confirmed_rate = _rate(result.confirmed, result.publish_s)
            result.delivered_rate = _rate(result.received, result.consume_s)
        else:
            result.published_rate = _rate(end.sent - begin.sent, seconds)
            result.confirmed_rate = _rate(end.confirmed - begin.confirmed, seconds)
            result.delivered_rate = _rate(end.received - begin.received, seconds)
        result.broker_cpu = _rate(end.cpu_s - begin.cpu_s, seconds)
        result.generator_cpu = _rate(end.generator_s - begin.generator_s, seconds)
        count = end.received - begin.received if load.consumers else end.sent - begin.sent
        result.broker_cpu_us = 1e6 * (end.cpu_s - begin.cpu_s) / max(1, count)
        if published is not None:
            result.nacked = published.nacked
            result.confirm_us = _percentiles(published.confirm_times, published.confirm_time_max)
        if consumed is not None:
            result.repeated = consumed.repeated
            result.out_of_order = consumed.out_of_order
            result.redelivered = consumed.redelivered
            if not load.is_ordered:
                result.repeated = result.out_of_order = consumed.skipped = 0
            result.delivery_us = _percentiles(consumed.delivery_times, consumed.delivery_time_max)
            distinct = result.received - result.repeated
            result.lost = max(consumed.skipped, result.expected - distinct, 0)
            if load.backlog and not load.publishes:  # The load ends before the backlog is empty.
                result.expected, result.lost = result.received, consumed.skipped
        else:
            result.ready = self.count_ready()
            result.lost = max(0, result.expected - result.ready)
        return result

    def count_ready(self) -> int:
        """Return the number of ready messages in the load's queues."""
        link = open_link(self.settings)
        try:
            return sum(ready_count(link, queue_name(i)) for i in range(self.load.queues))
        finally:
            link.close()


def run(load: Load, settings: Settings, usage: Usage) -> LoadOutcome:
    """Run a load on new queues, or with `Load.keep` on those of an earlier load."""
    if not load.keep:
        declare(load, settings)
    return LoadRun(load, settings, usage).measure()


def _rate(amount: float, seconds: float) -> float:
    return amount / seconds if seconds > 0 else 0.0


def _percentiles(counts: list[int], largest: int) -> dict[str, float]:
    histogram = Histogram()
    histogram.merge(counts, largest)
    if not histogram.total:
        return {}
    shares = {"p50": 0.5, "p99": 0.99, "p999": 0.999, "max": 1.0}
    return {name: histogram.percentile(share) / 1e3 for name, share in shares.items()}
