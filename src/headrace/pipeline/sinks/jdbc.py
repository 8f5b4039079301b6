# SPDX-License-Identifier: Apache-2.0
"""Writing of batches to a table of a database, each exactly once in one transaction.

Spark writes the batch in parallel to a staging table, `TABLE_headrace_batch`. Then one transaction
copies its rows to the table and records the batch's number in `headrace_batches`. A batch that runs
again finds its number there.
"""

from __future__ import annotations

import re
from contextlib import contextmanager
from typing import TYPE_CHECKING

from headrace.pipeline.config.errors import PipelineError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame, SparkSession

    from headrace.pipeline.config.settings import JdbcSink
    from headrace.untyped import Java

BATCHES_TABLE = "headrace_batches"


class DatabaseTable:
    """One table of a database, through the JDBC driver that Spark has loaded."""

    def __init__(self, spark: SparkSession, sink: JdbcSink, options: dict[str, str]) -> None:
        self.spark = spark
        self.sink = sink
        self.options = {"url": sink.url, **options}
        if sink.driver is not None:
            self.options["driver"] = sink.driver
        self.staging = f"{sink.table}_headrace_batch"

    def write(self, rows: DataFrame, writer: str, batch: int) -> bool:
        """Add the rows of a batch; return False if the table has the batch already."""
        writer = re.sub(r"[^A-Za-z0-9_-]", "", writer)[:64]
        with self._connect() as connection:
            self._create_batches_table(connection)
            last = self._query_number(
                connection, f"SELECT batch FROM {BATCHES_TABLE} WHERE writer = '{writer}'"
            )
            if last is not None and last >= batch:
                return False
            self._load(rows)
            self._create_table(connection, rows)
            columns = ", ".join(self._quote(connection, name) for name in rows.columns)
            statements = [
                f"INSERT INTO {self.sink.table} ({columns}) SELECT {columns} FROM {self.staging}",
                f"INSERT INTO {BATCHES_TABLE} (writer, batch) VALUES ('{writer}', {batch})"
                if last is None
                else f"UPDATE {BATCHES_TABLE} SET batch = {batch} WHERE writer = '{writer}'",
            ]
            self._execute_in_transaction(connection, statements)
        return True

    def _load(self, rows: DataFrame) -> None:
        """Write the batch to the staging table, on all workers."""
        options = {**self.options, "dbtable": self.staging}
        rows.write.format("jdbc").mode("overwrite").options(**options).save()

    def _create_table(self, connection: Java, rows: DataFrame) -> None:
        """Create the table with the columns of the rows, unless it exists."""
        if not self._table_exists(connection, self.sink.table):
            options = {**self.options, "dbtable": self.sink.table}
            rows.limit(0).write.format("jdbc").mode("ignore").options(**options).save()

    def _create_batches_table(self, connection: Java) -> None:
        """Create the table of the last batch of each writer, unless it exists."""
        if not self._table_exists(connection, BATCHES_TABLE):
            self._execute_in_transaction(
                connection,
                [
                    (
                        f"CREATE TABLE {BATCHES_TABLE} "
                        "(writer VARCHAR(64) NOT NULL PRIMARY KEY, batch BIGINT)"
                    )
                ],
            )

    def _table_exists(self, connection: Java, table: str) -> bool:
        try:
            self._query_number(connection, f"SELECT COUNT(*) FROM {table} WHERE 1 = 0")
        except _database_error():
            connection.rollback()
            return False
        return True

    def _query_number(self, connection: Java, query: str) -> int | None:
        """Return the number in the first row of a query; None without rows."""
        statement = connection.createStatement()
        try:
            rows = statement.executeQuery(query)
            return int(rows.getLong(1)) if rows.next() else None
        finally:
            statement.close()

    def _quote(self, connection: Java, name: str) -> str:
        quote = str(connection.getMetaData().getIdentifierQuoteString()).strip()
        if quote and quote in name:
            raise PipelineError(f"column {name!r} cannot be quoted for this database")
        return f"{quote}{name}{quote}"

    def _execute_in_transaction(self, connection: Java, statements: list[str]) -> None:
        statement = connection.createStatement()
        try:
            for text in statements:
                statement.executeUpdate(text)
            connection.commit()
        except _database_error():
            connection.rollback()
            raise
        finally:
            statement.close()

    @contextmanager
    def _connect(self) -> Iterator[Java]:
        """Open a connection in the driver's JVM, with transactions."""
        try:
            jvm: Java = self.spark._jvm
        except Exception:  # noqa: BLE001  # Spark Connect raises errors of several types.
            jvm = None
        if jvm is None:
            raise PipelineError("a sink of type 'jdbc' does not work over Spark Connect")
        if self.sink.driver is not None:
            registry = jvm.org.apache.spark.sql.execution.datasources.jdbc.DriverRegistry
            registry.register(self.sink.driver)
        properties = jvm.java.util.Properties()
        for name in ("user", "password"):
            if name in self.options:
                properties.setProperty(name, self.options[name])
        connection = jvm.java.sql.DriverManager.getConnection(self.sink.url, properties)
        try:
            connection.setAutoCommit(False)
            yield connection
        finally:
            connection.rollback()
            connection.close()


def _database_error() -> type[Exception]:
    from py4j.protocol import Py4JJavaError

    error: type[Exception] = Py4JJavaError
    return error
