# SPDX-License-Identifier: Apache-2.0
"""The data source `amqp`, which creates the reader or writer of a query."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from headrace.spark.driver.batch import StreamBatchReader
    from headrace.spark.driver.micro_batch import MicroBatchReader
    from headrace.spark.queue.snapshot import SnapshotReader
    from headrace.spark.write.writer import BatchWriter, StreamWriter


class AmqpSource(DataSource):
    """The data source that reads streams and queues, and publishes rows to exchanges.

    Spark calls the methods in the driver. Each one parses the options of its query, and an invalid
    option raises OptionError before any connection opens.
    """

    @classmethod
    def name(cls) -> str:
        """Return the name of the format, as in `spark.read.format("amqp")`."""
        return "amqp"

    def schema(self) -> StructType:
        """Return the columns of a read, if the user gives no schema."""
        from headrace.columns.read_schema import read_schema
        from headrace.spark.schema.types import struct_to_spark

        return struct_to_spark(read_schema(self.options))

    def reader(self, schema: StructType) -> StreamBatchReader | SnapshotReader:
        """Return the reader of a batch query."""
        from headrace.columns.options.options import read_options
        from headrace.columns.schema.columns import parse_columns
        from headrace.spark.driver.batch import StreamBatchReader
        from headrace.spark.schema.types import struct_from_spark

        options = read_options(self.options, streaming=False)
        columns = parse_columns(struct_from_spark(schema), options.decoding)
        if options.queue:
            from headrace.spark.queue.snapshot import SnapshotReader

            return SnapshotReader(options, columns)
        return StreamBatchReader(options, columns)

    def streamReader(self, schema: StructType) -> MicroBatchReader:  # noqa: N802  # Spark's name.
        """Return the reader of a streaming query."""
        from headrace.columns.options.options import read_options
        from headrace.columns.schema.columns import parse_columns
        from headrace.spark.driver.micro_batch import StreamReader
        from headrace.spark.schema.types import struct_from_spark

        options = read_options(self.options, streaming=True)
        columns = parse_columns(struct_from_spark(schema), options.decoding)
        if options.queue:
            from headrace.spark.queue.micro_batch import QueueReader

            return QueueReader(options, columns)
        return StreamReader(options, columns)

    def writer(self, schema: StructType, overwrite: bool) -> BatchWriter:
        """Return the writer of a batch query."""
        from headrace.spark.write.writer import BatchWriter

        return BatchWriter(self.options, schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamWriter:  # noqa: N802
        """Return the writer of a streaming query."""
        from headrace.spark.write.writer import StreamWriter

        return StreamWriter(self.options, schema, overwrite)
