# SPDX-License-Identifier: Apache-2.0
"""The pipeline of `test_cluster`: a stream into files, by whatever master it is given.

argv: master, uri, stream, directory, and how many records the first batch has. The first task with
others says on which worker it is in `claimed/who`, and stays until that worker is killed.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
from pyspark.sql import SparkSession

COLUMNS = "offset BIGINT, body STRING, worker STRING, executor STRING"
STAY_S = 300.0


def main(master: str, uri: str, stream: str, directory: str, records: str) -> None:
    home, first_batch = Path(directory), int(records)

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        executor = Path.cwd()  # DIRECTORY OF THE WORKER/app-1-1/0
        for batch in batches:
            if batch.column("offset")[0].as_py() >= first_batch:
                try:
                    (home / "claimed").mkdir()
                except FileExistsError:
                    pass
                else:
                    (home / "claimed" / "draft").write_text(executor.parent.parent.name)
                    (home / "claimed" / "draft").rename(home / "claimed" / "who")
                    time.sleep(STAY_S)
            who = [executor.parent.parent.name] * batch.num_rows
            where = [executor.name] * batch.num_rows
            yield pa.RecordBatch.from_arrays(
                [batch.column("offset"), batch.column("body"), pa.array(who), pa.array(where)],
                names=["offset", "body", "worker", "executor"],
            )

    spark = (
        SparkSession.builder.master(master)
        .appName("cluster")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.memory", "600m")
        .config("spark.executor.memory", "600m")
        .config("spark.cores.max", "2")
        .config("spark.scheduler.minRegisteredResourcesRatio", "1.0")
        .config("spark.scheduler.maxRegisteredResourcesWaitingTime", "60s")
        .config("spark.python.authenticate.socketTimeout", "120s")
        .config("spark.ui.enabled", "false")
        .getOrCreate()
    )
    (
        spark.readStream.format("amqp")
        .option("uri", uri)
        .option("stream", stream)
        .option("startingOffsets", "earliest")
        .option("maxRecordsPerTrigger", first_batch)
        .option("minPartitions", 6)
        .load()
        .selectExpr("offset", "CAST(body AS STRING) body")
        .mapInArrow(work, COLUMNS)
        .writeStream.format("parquet")
        .option("path", str(home / "out"))
        .option("checkpointLocation", str(home / "checkpoint"))
        .trigger(availableNow=True)
        .start()
        .awaitTermination()
    )
    rows = spark.read.parquet(str(home / "out")).collect()
    lines = [f"{row.offset} {row.body} {row.worker} {row.executor}\n" for row in rows]
    (home / "rows").write_text("".join(lines))  # The output has lines of logs between its own.
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
