# SPDX-License-Identifier: Apache-2.0
"""A Python data source without a broker, which shows the cost of a micro-batch itself."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.streaming.datasource import ReadLimit
    from pyspark.sql.types import StructType

    from headrace.untyped import JsonObject


class RateSource(DataSource):
    """A source of rows with a time and a number; the option `rows` is the count per micro-batch."""

    @classmethod
    def name(cls) -> str:
        return "headrace_rate"

    def schema(self) -> str:
        return "timestamp TIMESTAMP, value BIGINT"

    def streamReader(self, schema: StructType) -> RateReader:  # noqa: N802  # Spark's name.
        return RateReader(int(self.options["rows"]))


class RateReader(DataSourceStreamReader):
    """The reader of a `RateSource`, whose next rows are always available."""

    def __init__(self, rows: int) -> None:
        self.rows = rows

    def initialOffset(self) -> JsonObject:  # noqa: N802  # The names of Spark's interface.
        return {"value": 0}

    def latestOffset(self, start: JsonObject, limit: ReadLimit) -> JsonObject:  # noqa: N802
        return {"value": start["value"] + self.rows}

    def partitions(self, start: JsonObject, end: JsonObject) -> list[InputPartition]:
        return [InputPartition((start["value"], end["value"]))]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        first, last = partition.value
        moments = pa.array([0] * (last - first), pa.int64()).cast(pa.timestamp("us", tz="UTC"))
        values = pa.array(range(first, last), pa.int64())
        yield pa.RecordBatch.from_arrays([moments, values], names=["timestamp", "value"])
