# SPDX-License-Identifier: Apache-2.0
"""The workloads W1 to W8, described in docs/explanation/performance.md."""

from __future__ import annotations

import resource
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import TYPE_CHECKING

from headrace.bench.load.link import VERSION, BenchError, BenchLink, open_link, wait_for_queue
from headrace.bench.load.load import Load, declare, queue_name, remove
from headrace.bench.run import LoadOutcome, run
from headrace.bench.usage import MIB, Usage
from headrace.protocol.codec_0_x import BasicConsume, BasicDeliver, BasicQos, BasicQosOk
from headrace.spec.tables import V0_8, V0_9

if TYPE_CHECKING:
    from headrace.bench.served import Restartable
    from headrace.client.url import Settings
    from headrace.spec.tables import Version

VERSIONS_WITHOUT_CONFIRMS = (V0_8, V0_9)  # A load runs without its confirm window there.
SETTLE_S = 1.0  # The idle time before the memory of the broker is read.
RECOVERY_TIMEOUT_S = 300.0


class Figure(Enum):
    """The measured figures, each with its label, its unit, and True if more is better."""

    PUBLISHED = "published", "/s", True
    DELIVERED = "delivered", "/s", True
    CONFIRMED = "confirmed", "/s", True
    PUBLISH = "publish alone", "/s", True
    DRAIN = "drain alone", "/s", True
    WAY_P50 = "delivery p50", "us", False
    WAY_P99 = "delivery p99", "us", False
    CONFIRM_P50 = "confirm p50", "us", False
    CONFIRM_P99 = "confirm p99", "us", False
    CPU = "broker CPU", "%", False
    CPU_EACH = "broker CPU per message", "us", False
    GENERATOR_CPU = "generator CPU", "%", False
    PEAK = "broker memory, peak", "MiB", False
    RESIDENT = "broker memory", "MiB", False
    PER_CONNECTION = "memory per idle connection", "KiB", False
    PER_QUEUE = "memory per empty queue", "KiB", False
    FIRST = "restart to first message", "s", False
    RECOVERED = "drain after restart", "/s", True

    def __init__(self, label: str, unit: str, more_is_better: bool) -> None:
        self.label = label
        self.unit = unit
        self.more_is_better = more_is_better


@dataclass(slots=True)
class Sample:
    """The figures and problems of a run of a workload."""

    figures: dict[Figure, float] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Bench:
    """A broker under measurement, and the parameters of its loads."""

    settings: Settings
    usage: Usage
    seconds: float = 8.0
    warm_s: float = 1.0
    scale: float = 1.0  # Factor for all counts.
    restartable: Restartable | None = None
    publish_version: Version = VERSION
    consume_version: Version = VERSION

    def run(self, load: Load) -> LoadOutcome:
        """Run a load with this bench's times and versions; then remove its queues."""
        load = replace(
            load,
            seconds=self.seconds,
            warm_s=self.warm_s,
            window=0 if self.publish_version in VERSIONS_WITHOUT_CONFIRMS else load.window,
            publish_version=self.publish_version,
            consume_version=self.consume_version,
        )
        try:
            return run(load, self.settings, self.usage)
        finally:
            remove(load, self.settings)

    def scale_count(self, count: int) -> int:
        """Return a count times `scale`, at least 1."""
        return max(1, round(count * self.scale))


@dataclass(frozen=True, slots=True)
class Workload:
    """A workload with its name and a description."""

    name: str
    text: str
    measure: Callable[[Bench], Sample]


def flow(load: Load) -> Callable[[Bench], Sample]:
    """Return a workload that publishes and consumes at the same time."""

    def measure(bench: Bench) -> Sample:
        bindings = bench.scale_count(load.bindings) if load.bindings else 0
        outcome = bench.run(replace(load, bindings=bindings))
        figures = {
            Figure.PUBLISHED: outcome.published_rate,
            Figure.DELIVERED: outcome.delivered_rate,
        }
        if load.window:
            figures[Figure.CONFIRMED] = outcome.confirmed_rate
        figures |= _durations(outcome, with_delivery=bool(load.rate)) | _costs(bench, outcome)
        return Sample(figures, outcome.problems())

    return measure


def fill_and_drain(bench: Bench) -> Sample:
    """W3: publish without a consumer, then consume without a publisher."""
    count = bench.scale_count(1_000_000)
    load = Load(size=100, count=count, consumers=0)
    try:
        filled = run(load, bench.settings, bench.usage)
        drain = replace(load, consumers=1, publishes=False, keep=True)
        drained = run(drain, bench.settings, bench.usage)
    finally:
        remove(load, bench.settings)
    figures = {Figure.PUBLISH: filled.published_rate, Figure.DRAIN: drained.delivered_rate}
    if bench.usage.pid:
        figures[Figure.PEAK] = max(filled.peak_mib, drained.peak_mib)
    return Sample(figures, filled.problems() + drained.problems())


def idle(bench: Bench) -> Sample:
    """W7: the memory of idle connections and queues."""
    connections, queues = bench.scale_count(1000), bench.scale_count(10_000)
    usage = bench.usage
    if not usage.pid:
        raise BenchError("W7 reads the broker's memory: the broker must run on this machine")
    allow_files(connections + 100)
    links: list[BenchLink] = []
    time.sleep(SETTLE_S)
    start = usage.resident()
    try:
        links.extend(open_link(bench.settings) for _ in range(connections))
        time.sleep(SETTLE_S)
        connected = usage.resident()
    finally:
        for link in links:
            link.close()
    time.sleep(SETTLE_S)
    load = Load(queues=queues)
    before = usage.resident()
    try:
        declare(load, bench.settings)
        time.sleep(SETTLE_S)
        declared = usage.resident()
    finally:
        remove(load, bench.settings)
    return Sample(
        {
            Figure.RESIDENT: start / MIB,
            Figure.PER_CONNECTION: (connected - start) / 1024 / connections,
            Figure.PER_QUEUE: (declared - before) / 1024 / queues,
        }
    )


def recover(bench: Bench) -> Sample:
    """W8: publish persistent messages, kill -9, restart, and drain."""
    if bench.restartable is None:
        raise BenchError("W8 kills the broker: it needs --serve or --restart COMMAND")
    count = bench.scale_count(500_000)
    load = Load(size=1024, persistent=True, window=1000, count=count, consumers=0)
    try:
        filled = run(load, bench.settings, bench.usage)
        pid, began = bench.restartable.kill_and_start()
        bench.usage = Usage(pid)
        ready = wait_for_queue(bench.settings, queue_name(0), RECOVERY_TIMEOUT_S)
        first = _first_message(bench.settings, began)
        drain = replace(
            load, window=0, consumers=1, prefetch=1000, ack_every=100, publishes=False, keep=True
        )
        drained = run(drain, bench.settings, bench.usage)
    finally:
        remove(load, bench.settings)
    problems = filled.problems() + drained.problems()
    if ready != count:
        problems.append(f"{ready} of {count} messages ready after the restart")
    return Sample(
        {
            Figure.PUBLISH: filled.published_rate,
            Figure.FIRST: first,
            Figure.RECOVERED: drained.delivered_rate,
            Figure.PEAK: drained.peak_mib,
        },
        problems,
    )


def _first_message(settings: Settings, began: float) -> float:
    """Return the seconds from `began` to the first delivery, which is then requeued."""
    link = open_link(settings)
    try:
        link.call(BasicQos(prefetch_count=1), BasicQosOk)
        link.send(BasicConsume(queue=queue_name(0)))
        link.expect(BasicDeliver)
        return time.monotonic() - began
    finally:
        link.close()


def allow_files(count: int) -> None:
    """Raise this process's limit of open files, as far as the system allows."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < count and (hard == resource.RLIM_INFINITY or count <= hard):
        resource.setrlimit(resource.RLIMIT_NOFILE, (count, hard))


def _durations(outcome: LoadOutcome, with_delivery: bool) -> dict[Figure, float]:
    figures = {}
    if with_delivery and outcome.delivery_us:
        figures[Figure.WAY_P50] = outcome.delivery_us["p50"]
        figures[Figure.WAY_P99] = outcome.delivery_us["p99"]
    if outcome.confirm_us:
        figures[Figure.CONFIRM_P50] = outcome.confirm_us["p50"]
        figures[Figure.CONFIRM_P99] = outcome.confirm_us["p99"]
    return figures


def _costs(bench: Bench, outcome: LoadOutcome) -> dict[Figure, float]:
    if not bench.usage.pid:
        return {}
    return {
        Figure.CPU: 100 * outcome.broker_cpu,
        Figure.GENERATOR_CPU: 100 * outcome.generator_cpu,
        Figure.PEAK: outcome.peak_mib,
    }


_CONFIRMED = Load(size=1024, persistent=True, window=1000, prefetch=1000, ack_every=100)

# W7 is the first, as a broker keeps memory of earlier loads and could reuse it for idle objects.
WORKLOADS: dict[str, Workload] = {
    workload.name: workload
    for workload in (
        Workload("W7", "idle: 1,000 connections, then 10,000 queues", idle),
        Workload("W1", "transient, 16 octets, no acks", flow(Load())),
        Workload("W1k", "transient, 1 KiB, no acks", flow(Load(size=1024))),
        Workload("W2", "durable, 1 KiB, confirms and acks", flow(_CONFIRMED)),
        Workload("W2t", "transient, 16 octets, acks", flow(Load(prefetch=1000, ack_every=100))),
        Workload("W3", "a million of 100 octets: publish, then drain", fill_and_drain),
        Workload(
            "W4",
            "fanout to 10 queues",
            flow(Load(exchange="fanout", queues=10, consumers=10)),
        ),
        Workload(
            "W5",
            "topic exchange, 10,000 bindings, 100 queues",
            flow(Load(exchange="topic", queues=100, consumers=10, bindings=10_000)),
        ),
        Workload("W6", "latency at 2,000/s, 1 KiB, transient", flow(Load(size=1024, rate=2000))),
        Workload(
            "W6p",
            "latency at 2,000/s, 1 KiB, durable and confirmed",
            flow(replace(_CONFIRMED, rate=2000, ack_every=1)),
        ),
        Workload("W8", "500,000 durable of 1 KiB, kill -9, restart, drain", recover),
    )
}
