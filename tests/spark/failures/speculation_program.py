# SPDX-License-Identifier: Apache-2.0
"""The query of `test_speculation`: from a stream to a queue, with a slow partition.

argv: master, uri, stream, queue, directory, records of a batch.

Partition 0 of each batch waits, with half of its rows written, until another attempt at it has
written as much; and again when it has written all of them. So both stage the same rows together.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import SparkSession

WAIT_S = 250.0
POLL_S = 0.01
SPECULATION = {
    "spark.speculation": "true",
    "spark.speculation.interval": "50ms",
    "spark.speculation.multiplier": "1.0",
    "spark.speculation.quantile": "0.1",
    "spark.speculation.minTaskRuntime": "50ms",
    "spark.speculation.efficiency.enabled": "false",
}


def meet(directory: Path, attempt: int) -> None:
    """Wait until both attempts have left a file; a later attempt finds both files."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / str(attempt)).touch()
    deadline = time.monotonic() + WAIT_S
    while len(list(directory.iterdir())) < 2:
        if time.monotonic() > deadline:
            raise TimeoutError(f"no other attempt came to {directory}")
        time.sleep(POLL_S)


def main(master: str, uri: str, stream: str, queue: str, directory: str, records: str) -> None:
    home = Path(directory)

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        assert context is not None
        batch = str(context.getLocalProperty("streaming.sql.batchId"))
        rows = pa.Table.from_batches(batches).combine_chunks().to_batches()
        if context.partitionId() > 0 or not rows:
            yield from rows
            return
        (all_of_it,) = rows
        half = all_of_it.num_rows // 2
        yield all_of_it.slice(0, half)
        meet(home / "half" / batch, context.taskAttemptId())
        yield all_of_it.slice(half)
        meet(home / "whole" / batch, context.taskAttemptId())

    builder = SparkSession.builder.master(master).appName("speculation")
    for key, value in {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": "600m",
        "spark.executor.memory": "600m",
        "spark.cores.max": "2",
        "spark.scheduler.minRegisteredResourcesRatio": "1.0",
        "spark.scheduler.maxRegisteredResourcesWaitingTime": "60s",
        "spark.python.authenticate.socketTimeout": "120s",
        "spark.ui.enabled": "false",
        "spark.eventLog.enabled": "true",
        "spark.eventLog.rolling.enabled": "false",
        "spark.eventLog.compress": "false",
        "spark.eventLog.dir": home.as_uri(),
        **SPECULATION,
    }.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    (
        spark.readStream.format("amqp")
        .option("uri", uri)
        .option("stream", stream)
        .option("startingOffsets", "earliest")
        .option("maxRecordsPerTrigger", records)
        .option("minPartitions", 2)
        .load()
        .select("body")
        .mapInArrow(work, "body BINARY")
        .writeStream.format("amqp")
        .options(uri=uri, exchange="", routingKey=queue, sinkId="speculation")
        .option("checkpointLocation", str(home / "checkpoint"))
        .trigger(availableNow=True)
        .start()
        .awaitTermination()
    )
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
