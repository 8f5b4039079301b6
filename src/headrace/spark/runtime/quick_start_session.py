# SPDX-License-Identifier: Apache-2.0
"""A session of Spark that loads the classes of Headrace's queries; `quick_start` runs it.

The session reads a Python data source as a batch and as a stream. The archive of class data then
has the classes that such reads load.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
)

if TYPE_CHECKING:
    from pyspark.sql.streaming.datasource import ReadLimit

ROWS = 10


class BatchReader(DataSourceReader):
    """The reader of a batch of `ROWS` numbers."""

    def read(self, partition: InputPartition) -> Iterator[tuple[int, bytes]]:
        """Return rows of the source's schema."""
        return ((number, b"{}") for number in range(ROWS))


class StreamReader(DataSourceStreamReader):
    """The reader of a stream of `ROWS` numbers."""

    def initialOffset(self) -> dict[str, int]:  # noqa: N802  Spark's name.
        """Return the first offset."""
        return {"offset": 0}

    def latestOffset(  # noqa: N802  Spark's name.
        self, start: dict[str, int], limit: ReadLimit
    ) -> dict[str, int]:
        """Return the last offset, whatever the start."""
        return {"offset": ROWS}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        """Return one range."""
        return [InputPartition((start["offset"], end["offset"]))]

    def read(self, partition: InputPartition) -> Iterator[tuple[int, bytes]]:
        """Return rows of the source's schema."""
        return ((number, b"{}") for number in range(*partition.value))


class NumberSource(DataSource):
    """The data source of the batch and the stream."""

    @classmethod
    def name(cls) -> str:
        """Return the format's name."""
        return "quick_start"

    def schema(self) -> str:
        """Return the columns."""
        return "number bigint, body binary"

    def reader(self, schema: object) -> DataSourceReader:
        """Return the reader of a batch."""
        return BatchReader()

    def streamReader(self, schema: object) -> DataSourceStreamReader:  # noqa: N802  Spark's name.
        """Return the reader of a stream."""
        return StreamReader()


def main(scratch: Path) -> None:
    """Run the queries, with their files in the directory `scratch`."""
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.driver.host", "127.0.0.1")
    builder = builder.config("spark.sql.shuffle.partitions", "2")
    builder = builder.config("spark.local.dir", str(scratch / "local"))
    spark = builder.config("spark.sql.warehouse.dir", str(scratch / "tables")).getOrCreate()
    spark.dataSource.register(NumberSource)
    numbers = spark.read.format("quick_start").load()
    text = numbers.selectExpr("number", "cast(body as string) as text", "current_timestamp() as at")
    parsed = text.withColumn("value", f.from_json("text", "a int, b array<string>"))
    sums = parsed.groupBy("number").agg(f.sum("number").alias("sum"), f.count("*").alias("count"))
    sums.join(text, "number").orderBy("number").collect()
    text.write.partitionBy("number").parquet(str(scratch / "rows"))
    spark.read.parquet(str(scratch / "rows")).count()
    stream = spark.readStream.format("quick_start").load()
    counted = stream.withColumn("at", f.current_timestamp()).withWatermark("at", "1 minute")
    counted = counted.groupBy(f.window("at", "1 minute"), "number").count()

    for output_mode, data_frame in {"append": stream, "update": counted}.items():

        def write_batch(batch: DataFrame, number: int, output_mode: str = output_mode) -> None:
            batch.write.parquet(str(scratch / f"{output_mode}-{number}"))

        writer = data_frame.writeStream.foreachBatch(write_batch).outputMode(output_mode)
        writer = writer.option("checkpointLocation", str(scratch / f"checkpoint-{output_mode}"))
        writer.trigger(availableNow=True).start().awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
