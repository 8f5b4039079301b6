# SPDX-License-Identifier: Apache-2.0
"""Workloads that show how the cost of a message grows with queues, connections and messages."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from headrace.bench.load.link import BenchLink, open_link
from headrace.bench.load.load import Load, declare, queue_name, remove
from headrace.bench.run import LoadOutcome, LoadRun, run
from headrace.bench.workload import Bench, Figure, Sample, Workload, allow_files
from headrace.protocol.codec_0_x import BasicConsume, BasicConsumeOk, QueuePurge, QueuePurgeOk

READY = 5_000_000
PROBE = 500_000  # Messages that are published to, or drained from, a queue with ready messages.
CONNECTIONS = 1000
QUEUES = 100_000

_BASE = Load(size=100, prefetch=1000, ack_every=100)


def queues(count: int) -> Callable[[Bench], Sample]:
    """Return a workload: a publisher and a consumer that serve a number of queues in turn."""

    def measure(bench: Bench) -> Sample:
        return _sample(
            bench.run(replace(_BASE, queues=bench.scale_count(count) if count > 1 else 1))
        )

    return measure


def idle_connections(bench: Bench) -> Sample:
    """Measure the base load beside 1,000 connections that consume from idle queues."""
    idle = bench.scale_count(CONNECTIONS)
    allow_files(idle + 100)
    load = replace(_BASE, seconds=bench.seconds, warm_s=bench.warm_s, keep=True)
    all_queues = Load(queues=1 + idle)
    links: list[BenchLink] = []
    try:
        declare(all_queues, bench.settings)
        for number in range(1, 1 + idle):
            link = open_link(bench.settings)
            links.append(link)
            link.call(BasicConsume(queue=queue_name(number)), BasicConsumeOk)
        outcome = LoadRun(replace(load, keep=False), bench.settings, bench.usage).measure()
    finally:
        for link in links:
            link.close()
        remove(all_queues, bench.settings)
    return _sample(outcome)


def idle_queues(bench: Bench) -> Sample:
    """Measure the base load beside 100,000 idle queues."""
    idle = bench.scale_count(QUEUES)
    load = replace(_BASE, seconds=bench.seconds, warm_s=bench.warm_s, keep=True)
    all_queues = Load(queues=1 + idle)
    before = bench.usage.resident() if bench.usage.pid else 0
    try:
        declare(all_queues, bench.settings)
        after = bench.usage.resident() if bench.usage.pid else 0
        sample = _sample(LoadRun(replace(load, keep=False), bench.settings, bench.usage).measure())
    finally:
        remove(all_queues, bench.settings)
    if bench.usage.pid:
        sample.figures[Figure.PER_QUEUE] = (after - before) / 1024 / idle
    return sample


def busy_connections(bench: Bench) -> Sample:
    """Measure 500 publishers and 500 consumers, each pair on a separate queue."""
    pairs = bench.scale_count(CONNECTIONS // 2)
    allow_files(2 * pairs + 100)
    load = replace(_BASE, publishers=pairs, consumers=pairs, queues=pairs, own_queue=True)
    return _sample(bench.run(load))


def publish_onto(ready: int) -> Callable[[Bench], Sample]:
    """Return a workload: publish without a consumer to a queue with a number of ready messages.

    Before it, the broker stores and removes as many messages between others that stay. Therefore it
    already has the memory, and the measurement excludes the system's cost of new pages.
    """

    def measure(bench: Bench) -> Sample:
        depth, probe = bench.scale_count(ready) if ready else 0, bench.scale_count(PROBE)
        two_queues = replace(_BASE, queues=2, consumers=0, keep=True)
        # Publisher 0 publishes to the first queue only, and publisher 1 to the second.
        deep_queue = replace(two_queues, own_queue=True)
        spare_queue = replace(deep_queue, first_publisher=1)
        try:
            declare(two_queues, bench.settings)
            run(replace(two_queues, count=2 * probe), bench.settings, bench.usage)
            if depth > probe:
                run(replace(deep_queue, count=depth - probe), bench.settings, bench.usage)
            link = open_link(bench.settings)
            link.call(QueuePurge(queue=queue_name(1)), QueuePurgeOk)
            link.close()
            target = deep_queue if depth else spare_queue
            load = replace(target, count=probe, backlog=max(depth, probe))
            outcome = run(load, bench.settings, bench.usage)
        finally:
            remove(two_queues, bench.settings)
        return _sample(outcome, Figure.PUBLISH, outcome.published_rate)

    return measure


def drain_from(ready: int) -> Callable[[Bench], Sample]:
    """Return a workload: consume the first messages of a queue, without a publisher."""

    def measure(bench: Bench) -> Sample:
        depth, probe = bench.scale_count(ready), bench.scale_count(PROBE)
        try:
            run(replace(_BASE, consumers=0, count=depth), bench.settings, bench.usage)
            load = replace(_BASE, publishes=False, count=probe, keep=True, backlog=depth)
            outcome = run(load, bench.settings, bench.usage)
        finally:
            remove(_BASE, bench.settings)
        return _sample(outcome, Figure.DRAIN, outcome.delivered_rate)

    return measure


def _sample(
    outcome: LoadOutcome, name: Figure = Figure.DELIVERED, rate: float | None = None
) -> Sample:
    figures = {
        name: outcome.delivered_rate if rate is None else rate,
        Figure.CPU_EACH: outcome.broker_cpu_us,
        Figure.PEAK: outcome.peak_mib,
    }
    return Sample(figures, outcome.problems())


GROWTH: dict[str, Workload] = {
    workload.name: workload
    for workload in (
        Workload("Q1", "1 queue, 1 connection each way", queues(1)),
        Workload("Q10", "10 queues", queues(10)),
        Workload("Q1000", "1,000 queues", queues(1000)),
        Workload("I100k", "100,000 idle queues beside it", idle_queues),
        Workload("C1000", "1,000 idle connections beside it", idle_connections),
        Workload("C1000b", "500 publishers, 500 consumers, 500 queues", busy_connections),
        Workload("P0", "publish 500,000 onto an empty queue", publish_onto(0)),
        Workload("P5M", "publish 500,000 onto 5 M ready", publish_onto(READY)),
        Workload("D0", "drain 500,000 of 500,000", drain_from(PROBE)),
        Workload("D5M", "drain 500,000 of 5 M", drain_from(READY)),
    )
}
