# SPDX-License-Identifier: Apache-2.0
"""Rows into a table of a database, each batch in one transaction, once.

Spark writes the batch into a table of its own, `TABLE_headrace_batch`, in parallel. Then one
transaction moves it into the table and notes the batch in `headrace_batches`. A batch that is run
again finds itself noted.
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

NOTES = "headrace_batches"


class Database:
    """One table of a database, reached with the driver that Spark has loaded."""

    def __init__(self, spark: SparkSession, sink: JdbcSink, options: dict[str, str]) -> None:
        self.spark = spark
        self.sink = sink
        self.options = {"url": sink.url, **options}
        if sink.driver is not None:
            self.options["driver"] = sink.driver
        self.staging = f"{sink.table}_headrace_batch"

    def write(self, frame: DataFrame, writer: str, batch: int) -> bool:
        """Add the rows of a batch; False when the table has them already."""
        writer = re.sub(r"[^A-Za-z0-9_-]", "", writer)[:64]
        with self._connect() as connection:
            self._prepare(connection)
            last = self._number(connection, f"SELECT batch FROM {NOTES} WHERE writer = '{writer}'")
            if last is not None and last >= batch:
                return False
            self._load(frame)
            self._make_table(connection, frame)
            columns = ", ".join(self._quote(connection, name) for name in frame.columns)
            statements = [
                f"INSERT INTO {self.sink.table} ({columns}) SELECT {columns} FROM {self.staging}",
                f"INSERT INTO {NOTES} (writer, batch) VALUES ('{writer}', {batch})"
                if last is None
                else f"UPDATE {NOTES} SET batch = {batch} WHERE writer = '{writer}'",
            ]
            self._in_one(connection, statements)
        return True

    def _load(self, frame: DataFrame) -> None:
        """Load the batch into a staging table, by all workers."""
        options = {**self.options, "dbtable": self.staging}
        frame.write.format("jdbc").mode("overwrite").options(**options).save()

    def _make_table(self, connection: Java, frame: DataFrame) -> None:
        if not self._has(connection, self.sink.table):
            options = {**self.options, "dbtable": self.sink.table}
            frame.limit(0).write.format("jdbc").mode("ignore").options(**options).save()

    def _prepare(self, connection: Java) -> None:
        if not self._has(connection, NOTES):
            self._in_one(
                connection,
                [f"CREATE TABLE {NOTES} (writer VARCHAR(64) NOT NULL PRIMARY KEY, batch BIGINT)"],
            )

    def _has(self, connection: Java, table: str) -> bool:
        try:
            self._number(connection, f"SELECT COUNT(*) FROM {table} WHERE 1 = 0")
        except _database_error():
            connection.rollback()
            return False
        return True

    def _number(self, connection: Java, query: str) -> int | None:
        statement = connection.createStatement()
        try:
            rows = statement.executeQuery(query)
            return int(rows.getLong(1)) if rows.next() else None
        finally:
            statement.close()

    def _quote(self, connection: Java, name: str) -> str:
        mark = str(connection.getMetaData().getIdentifierQuoteString()).strip()
        if mark and mark in name:
            raise PipelineError(f"column {name!r} cannot be quoted for this database")
        return f"{mark}{name}{mark}"

    def _in_one(self, connection: Java, statements: list[str]) -> None:
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
        except Exception:  # noqa: BLE001  # Spark Connect says so in its own ways.
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
