# SPDX-License-Identifier: Apache-2.0
"""Runs one load and checks its results."""

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
COUNTED_TIMEOUT_S = 600.0
STEP_S = 0.02


@dataclass(slots=True)
class Outcome:
    """The results of one run of a load. Rates are per second; durations in microseconds."""

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
    first_s: float = 0.0  # From start to the first delivery.
    broker_cpu: float = 0.0  # Cores.
    broker_cpu_us: float = 0.0  # Per message through the broker.
    generator_cpu: float = 0.0  # Cores.
    resident_mib: float = 0.0
    peak_mib: float = 0.0
    way_us: dict[str, float] = field(default_factory=dict)  # From publish to delivery.
    confirm_us: dict[str, float] = field(default_factory=dict)  # From publish to confirm.

    def problems(self) -> list[str]:
        """Return the faults that a correct broker would not show."""
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
    """The counts at one moment."""

    time_s: float
    sent: int
    received: int
    confirmed: int
    cpu_s: float
    generator_s: float


class Run:
    """One run of one load: two processes, and this one, which watches them."""

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
                ours, theirs = context.Pipe()
                process = context.Process(
                    target=work, args=(load, settings, self.board, theirs), daemon=True
                )
                process.start()
                theirs.close()
                self.pipes[name] = ours
                self.processes.append(process)
                self.generator_usages.append(Usage(process.pid or 0))

    def go(self) -> Outcome:
        """Run it to its end."""
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
            return self.outcome(begin, end, reports)
        finally:
            for pipe in self.pipes.values():
                with suppress(OSError):
                    pipe.send("bye")
            for process in self.processes:
                process.join(5.0)
                if process.is_alive():
                    process.terminate()

    def receive_message(self, name: str, timeout_s: float) -> object:
        """Return the next message of a process; raise its error if it failed."""
        if not self.pipes[name].poll(timeout_s):
            raise BenchError(f"the {name} do not answer")
        try:
            answer: object = self.pipes[name].recv()
        except EOFError:
            raise BenchError(f"the {name} died") from None
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
        """Wait while the load runs; stop waiting when a process fails."""
        end = time.monotonic() + seconds
        while (remaining_s := end - time.monotonic()) > 0:
            time.sleep(min(remaining_s, STEP_S * 5))
            self.usage.resident()
            self.check()

    def check(self) -> None:
        """Raise when a process has failed."""
        for name, pipe in self.pipes.items():
            if (
                pipe.poll()
                and not self.board[BoardField.STOP]
                and not self.board[BoardField.PUBLISHED]
            ):
                self.receive_message(name, 0)
                raise BenchError(f"the {name} ended early")

    def wait_for_count(self) -> None:
        """Wait until a counted load is complete, or makes no progress."""
        board, load = self.board, self.load
        deadline = time.monotonic() + COUNTED_TIMEOUT_S
        moved_at, received = time.monotonic(), -1
        while time.monotonic() < deadline:
            time.sleep(STEP_S)
            self.usage.resident()
            self.check()
            if board[BoardField.RECEIVED] != received or not self.is_published:
                moved_at, received = time.monotonic(), board[BoardField.RECEIVED]
            target = board[BoardField.EXPECTED] if load.publishes else load.count
            if self.is_published and (not load.consumers or received >= target):
                return
            if time.monotonic() - moved_at > load.idle_s:
                return

    @property
    def is_published(self) -> bool:
        """Return True if no more messages will be published."""
        return not self.load.publishes or bool(self.board[BoardField.PUBLISHED])

    def wait_for_deliveries(self) -> None:
        """Wait until all published messages are delivered, or no more arrive."""
        board, load = self.board, self.load
        moved_at, received = time.monotonic(), -1
        while not self.is_published:
            time.sleep(STEP_S)
            if "publishers" in self.pipes and self.pipes["publishers"].poll():
                break  # Its figures, or its failure.
        while load.consumers and load.publishes and not self.load.keep:
            if board[BoardField.RECEIVED] >= board[BoardField.EXPECTED] + load.backlog:
                time.sleep(STEP_S)  # Surplus deliveries may follow.
                return
            if board[BoardField.RECEIVED] != received:
                moved_at, received = time.monotonic(), board[BoardField.RECEIVED]
            if time.monotonic() - moved_at > load.idle_s:
                return
            time.sleep(STEP_S)

    def outcome(self, begin: Counts, end: Counts, reports: dict[str, object]) -> Outcome:
        """Return the figures of this run."""
        board, load = self.board, self.load
        sent, received = reports.get("publishers"), reports.get("consumers")
        assert sent is None or isinstance(sent, PublishReport)
        assert received is None or isinstance(received, ConsumeReport)
        seconds = end.time_s - begin.time_s
        result = Outcome(
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
        through = end.received - begin.received if load.consumers else end.sent - begin.sent
        result.broker_cpu_us = 1e6 * (end.cpu_s - begin.cpu_s) / max(1, through)
        if sent is not None:
            result.nacked = sent.nacked
            result.confirm_us = _percentiles(sent.confirms, sent.confirms_largest)
        if received is not None:
            result.repeated = received.repeated
            result.out_of_order = received.out_of_order
            result.redelivered = received.redelivered
            if not load.is_ordered:
                result.repeated = result.out_of_order = received.skipped = 0
            result.way_us = _percentiles(received.ways, received.ways_largest)
            distinct = result.received - result.repeated
            result.lost = max(received.skipped, result.expected - distinct, 0)
            if load.backlog and not load.publishes:  # It ends before the backlog does.
                result.expected, result.lost = result.received, received.skipped
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


def run(load: Load, settings: Settings, usage: Usage) -> Outcome:
    """Run a load, on new queues unless it keeps those of an earlier one."""
    if not load.keep:
        declare(load, settings)
    return Run(load, settings, usage).go()


def _rate(amount: float, seconds: float) -> float:
    return amount / seconds if seconds > 0 else 0.0


def _percentiles(counts: list[int], largest: int) -> dict[str, float]:
    histogram = Histogram()
    histogram.merge(counts, largest)
    if not histogram.total:
        return {}
    shares = {"p50": 0.5, "p99": 0.99, "p999": 0.999, "max": 1.0}
    return {name: histogram.percentile(share) / 1e3 for name, share in shares.items()}
