# SPDX-License-Identifier: Apache-2.0
"""The parts of `headrace bench-spark`: a function for each, which returns its figures."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Final

from headrace.bench.load.link import BenchError
from headrace.bench.spark.fill import Filler, declare, declare_stream, fill, fill_stream, remove
from headrace.bench.spark.usage import MIB, Meter, ResourceUsage
from headrace.client import blocking

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from headrace.client.url import Settings
    from headrace.untyped import JsonObject

SIZE: Final = 200  # Bytes of each body.
BATCHES_WARM: Final = 2  # Micro-batches before the measured ones.
SINK_BATCHES: Final = 4
QUEUE_BATCH: Final = 500_000  # Rows of a micro-batch of a queue.
LATENCY_ROWS: Final = 100
LATENCY_BATCHES: Final = 30
LATENCY_WARM: Final = 10
QUERY_TIMEOUT_S: Final = 180.0
MEMORY_RATE: Final = 10_000  # Rows per second during the measurement of memory.
MEMORY_EVERY_S: Final = 5.0
MEMORY_GROWTH_MAX: Final = 0.10  # The growth of the median from the second third to the last.
MEMORY_SLACK_MIB: Final = 32.0


@dataclass(slots=True)
class Measurement:
    """A measured figure and its bar, the value that it must reach."""

    name: str
    value: float
    unit: str
    bar: float | None = None
    at_most: bool = False  # The bar is a maximum, not a minimum.
    details: JsonObject = field(default_factory=dict)

    @property
    def holds(self) -> bool:
        """True if the figure reaches its bar or has none."""
        if self.bar is None:
            return True
        return self.value <= self.bar if self.at_most else self.value >= self.bar


@dataclass(slots=True)
class BenchContext:
    """The Spark session, broker and directory of all parts; `report` is called with progress."""

    spark: SparkSession
    settings: Settings
    url: str
    meter: Meter
    scratch: Path
    scale: float
    report: Callable[[str], None]

    def rows(self, count: int) -> int:
        """Return a number of rows times `scale`, at least 1,000."""
        return max(1000, int(count * self.scale))

    def checkpoint(self) -> str:
        """Return the path of a new checkpoint directory."""
        return str(self.scratch / uuid.uuid4().hex)


def stream_rate(context: BenchContext) -> list[Measurement]:
    """Measure reading a stream, with all columns and with offset and body only."""
    count = context.rows(4_000_000)
    declare_stream(context.settings, "bench.stream")
    context.report(f"filling a stream with {count:,} messages")
    fill_stream(context.settings, context.url, "bench.stream", count, SIZE)
    columns = {"stream_rows": None, "stream_rows_body_offset": "offset BIGINT, body BINARY"}
    figures = []
    for name, schema in columns.items():
        context.report(f"{name}: warming up")
        _read(context, {"stream": "bench.stream"}, schema, limit=count // 10, batches=3)
        context.report(f"{name}: reading")
        rate, details = _read(context, {"stream": "bench.stream"}, schema)
        bar = 500_000 if schema is None else None
        figures.append(Measurement(name, rate, "rows/s", bar, details=details))
    remove(context.settings, "bench.stream")
    return figures


def queue_rate(context: BenchContext) -> list[Measurement]:
    """Measure reading a queue by leases."""
    count = context.rows(1_000_000)
    for number, rows in enumerate((count // 5, count)):
        declare(context.settings, "bench.queue")
        context.report(f"queue_rows: filling a queue with {rows:,} messages")
        fill(context.settings, "bench.queue", rows, SIZE)
        context.report("queue_rows: reading" if number else "queue_rows: warming up")
        options = {"queue": "bench.queue", "group": f"bench-{number}"}
        rate, details = _read(context, options, None, limit=QUEUE_BATCH)
        remove(context.settings, "bench.queue")
    return [Measurement("queue_rows", rate, "rows/s", 150_000, details=details)]


def sink_rates(context: BenchContext) -> list[Measurement]:
    """Measure writing generated rows to a durable queue, with both guarantees of the sink."""
    at_least_once, details = _write(context, "at-least-once")
    figures = [Measurement("sink_at_least_once", at_least_once, "rows/s", 100_000, details=details)]
    exactly_once, details = _write(context, "exactly-once")
    figures.append(
        Measurement("sink_exactly_once", exactly_once, "rows/s", 60_000, details=details)
    )
    share = exactly_once / at_least_once if at_least_once else 0.0
    figures.append(Measurement("sink_exactly_once_share", round(share, 3), "of at-least-once", 0.6))
    return figures


def latency(context: BenchContext) -> list[Measurement]:
    """Measure micro-batches of 100 rows, of a stream and of a Python source without a broker."""
    from headrace.bench.spark.rate import RateSource

    context.spark.dataSource.register(RateSource)
    count = LATENCY_ROWS * (LATENCY_WARM + LATENCY_BATCHES) * 2
    declare_stream(context.settings, "bench.latency")
    fill_stream(context.settings, context.url, "bench.latency", count, SIZE)
    rate = context.spark.readStream.format("headrace_rate").option("rows", LATENCY_ROWS)
    amqp = context.spark.readStream.format("amqp").options(
        uri=context.url,
        stream="bench.latency",
        startingOffsets="earliest",
        maxRecordsPerTrigger=LATENCY_ROWS,
    )
    trigger_ms: dict[str, list[float]] = {"rate": [], "amqp": []}
    details: dict[str, dict[str, float]] = {}
    for number in range(2):  # Both in turn, so that other load of the machine affects both.
        for name, reader in (("rate", rate), ("amqp", amqp)):
            context.report(f"latency: {name}, run {number + 1} of 2")
            batches = _batches(context, reader.load(), LATENCY_WARM + LATENCY_BATCHES)
            durations = [batch["durationMs"] for batch in batches[LATENCY_WARM:]]
            trigger_ms[name] += [duration["triggerExecution"] for duration in durations]
            details[name] = {
                phase: median(duration.get(phase, 0) for duration in durations)
                for phase in durations[0]
            }
    remove(context.settings, "bench.latency")
    rate_ms, amqp_ms = median(trigger_ms["rate"]), median(trigger_ms["amqp"])
    return [
        Measurement("latency_rate_source", rate_ms, "ms", details=details["rate"]),
        Measurement("latency_stream_source", amqp_ms, "ms", details=details["amqp"]),
        Measurement("latency_ratio", round(amqp_ms / rate_ms, 2), "times", 1.5, at_most=True),
    ]


def memory(context: BenchContext, minutes: float) -> list[Measurement]:
    """Measure the memory of all processes while a query copies a stream to another."""
    for name in ("bench.from", "bench.to"):
        declare_stream(context.settings, name, 256 * MIB)
    stop = threading.Event()
    filling = threading.Thread(target=_trickle, args=(context.settings, stop), daemon=True)
    filling.start()
    rows = context.spark.readStream.format("amqp").options(
        uri=context.url, stream="bench.from", startingOffsets="earliest"
    )
    query = (
        rows.load()
        .select("body", "properties", "headers")
        .writeStream.format("amqp")
        .options(uri=context.url, exchange="", routingKey="bench.to")
        .option("checkpointLocation", context.checkpoint())
        .start()
    )
    samples: list[tuple[float, ResourceUsage, int]] = []
    resident: dict[int, dict[str, int]] = {}  # Resident memory by minute.
    began = time.monotonic()
    try:
        while (elapsed_s := time.monotonic() - began) < minutes * 60:
            time.sleep(MEMORY_EVERY_S)
            if query.exception() is not None or not query.isActive:
                raise RuntimeError(f"the query failed: {query.exception()}")
            samples.append((elapsed_s, context.meter.measure(), _heap(context)))
            minute = int((time.monotonic() - began) // 60)
            if minute not in resident:
                resident[minute] = samples[-1][1].resident_mib
                figures = ", ".join(
                    f"{process} {mib} MiB" for process, mib in resident[minute].items()
                )
                context.report(f"memory after {minute} of {minutes:g} minutes: {figures}")
    finally:
        stop.set()
        query.stop()
        filling.join()
    with blocking.connect(context.url) as connection:
        row_count = connection.stream("bench.to").last_offset()
    for name in ("bench.from", "bench.to"):
        remove(context.settings, name)
    return [
        _growth("jvm_heap", [heap / MIB for _, _, heap in samples]),
        _growth("workers", [usage.workers_bytes / MIB for _, usage, _ in samples]),
        _growth("driver", [usage.driver_bytes / MIB for _, usage, _ in samples]),
        _growth("broker", [usage.broker_bytes / MIB for _, usage, _ in samples]),
        Measurement("memory_rows", row_count, "rows", details={"resident_mib": resident}),
    ]


def _growth(name: str, series: list[float]) -> Measurement:
    """Return the growth of the median from the second third of a series to the last.

    A growth below `MEMORY_SLACK_MIB` counts as 0.
    """
    third = len(series) // 3
    before, after = median(series[third : 2 * third]), median(series[2 * third :])
    growth = after - before
    share = 0.0 if growth < MEMORY_SLACK_MIB else growth / before
    details = {"second_third_mib": round(before, 1), "last_third_mib": round(after, 1)}
    return Measurement(
        f"memory_growth_{name}",
        round(share, 3),
        "of the second third",
        MEMORY_GROWTH_MAX,
        at_most=True,
        details=details,
    )


def _heap(context: BenchContext) -> int:
    """Return the bytes of Java objects in use after a garbage collection."""
    jvm = context.spark.sparkContext._jvm
    assert jvm is not None
    jvm.java.lang.System.gc()
    runtime = jvm.java.lang.Runtime.getRuntime()
    return int(runtime.totalMemory() - runtime.freeMemory())


def _trickle(settings: Settings, stop: threading.Event) -> None:
    filler = Filler(settings, "bench.from", SIZE)
    began = time.monotonic()
    while not stop.wait(0.1):
        filler.publish(int((time.monotonic() - began) * MEMORY_RATE) - filler.number)
    filler.close()


def _read(
    context: BenchContext,
    options: dict[str, str],
    schema: str | None,
    *,
    limit: int | None = None,
    batches: int | None = None,
) -> tuple[float, JsonObject]:
    """Read all present records to the noop sink; return rows per second and details.

    With `batches` run so many micro-batches only, without figures.
    """
    reader = context.spark.readStream.format("amqp").options(uri=context.url, **options)
    if "stream" in options:
        reader = reader.option("startingOffsets", "earliest")
    if limit is not None:
        reader = reader.option("maxRecordsPerTrigger", limit)
    if schema is not None:
        reader = reader.schema(schema)
    if batches is not None:
        _batches(context, reader.load(), batches)
        return 0.0, {}
    before = context.meter.measure()
    query = (
        reader.load()
        .writeStream.format("noop")
        .option("checkpointLocation", context.checkpoint())
        .trigger(availableNow=True)
        .start()
    )
    if not query.awaitTermination(int(QUERY_TIMEOUT_S)):
        query.stop()
        raise BenchError(f"the query did not end within {QUERY_TIMEOUT_S:g} s")
    after = context.meter.measure()
    progress = [batch for batch in query.recentProgress if batch["numInputRows"]]
    rows = sum(batch["numInputRows"] for batch in progress)
    ms = sum(batch["durationMs"]["triggerExecution"] for batch in progress)
    details = {
        "rows": rows,
        "batches": len(progress),
        "processor_us": after.per_row_us(before, rows),
    }
    return round(rows / ms * 1000), details


def _write(context: BenchContext, guarantee: str) -> tuple[float, JsonObject]:
    """Write generated rows to a durable queue; return rows per second and details."""
    count = context.rows(400_000)
    queue = "bench.sink"
    declare(context.settings, queue)
    context.report(f"sink, {guarantee}: {count:,} rows in each of {SINK_BATCHES} micro-batches")
    rows = (
        context.spark.readStream.format("rate-micro-batch")
        .options(rowsPerBatch=count, numPartitions=2)
        .load()
        .selectExpr(f"CAST(lpad(CAST(value AS STRING), {SIZE}, '0') AS BINARY) AS body")
    )
    writer = rows.writeStream.format("amqp").options(
        uri=context.url, exchange="", routingKey=queue, deliveryGuarantee=guarantee
    )
    usages: list[ResourceUsage] = []
    batches = _run_batches(
        writer.option("checkpointLocation", context.checkpoint()).start(),
        BATCHES_WARM + SINK_BATCHES,
        lambda number: usages.append(context.meter.measure()) if number >= BATCHES_WARM else None,
    )
    remove(context.settings, queue)
    measured = batches[BATCHES_WARM:]
    ms = sum(batch["durationMs"]["triggerExecution"] for batch in measured)
    total = count * len(measured)
    processor = usages[-1].per_row_us(usages[0], count * (len(usages) - 1))
    return round(total / ms * 1000), {"rows": total, "processor_us": processor}


def _batches(context: BenchContext, frame: DataFrame, count: int) -> list[JsonObject]:
    """Return the progress of a number of micro-batches to the noop sink."""
    query = (
        frame.writeStream.format("noop")
        .option("checkpointLocation", context.checkpoint())
        .trigger(processingTime="0 seconds")
        .start()
    )
    return _run_batches(query, count)


def _run_batches(
    query: StreamingQuery,
    count: int,
    on_batch: Callable[[int], object] = lambda _: None,
) -> list[JsonObject]:
    """Run a query for a number of micro-batches, then stop it; return their progress.

    `on_batch` is called with the number of each micro-batch after it.
    """
    deadline = time.monotonic() + QUERY_TIMEOUT_S
    finished = 0
    try:
        while True:
            failure = query.exception()
            if failure is not None:
                raise RuntimeError(f"the query failed: {failure}")
            progress: list[JsonObject] = [
                dict(batch) for batch in query.recentProgress if batch["numInputRows"]
            ]
            for number in range(finished, len(progress)):
                on_batch(number)
            finished = len(progress)
            if finished >= count:
                return progress[:count]
            if time.monotonic() > deadline:
                raise BenchError(
                    f"{finished} of {count} micro-batches within {QUERY_TIMEOUT_S:g} s"
                )
            time.sleep(0.005)
    finally:
        query.stop()
