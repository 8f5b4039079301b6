# SPDX-License-Identifier: Apache-2.0
"""Runs one query: DuckDB in memory, without files, network and settings."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import duckdb
import pyarrow as pa

from headrace.sql.needs import query_needs
from headrace.sql.sources import Messages
from headrace.sql.statement import OURS, QueryError, parse_statement

if TYPE_CHECKING:
    from headrace.sql.sources import Source, SourceCatalog

MEMORY: Final = 2 << 30
BATCH_ROWS: Final = 10_000
_RAISED: Final = re.compile(r"^(?:[A-Za-z_]\w*\.)*[A-Z]\w*: (.*)$", re.MULTILINE)
_OURS: Final = re.compile(rf"\b{OURS}\d+ AS ")


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of one query: bytes of memory for sorts and joins, and threads."""

    memory: int = MEMORY
    threads: int = 2


@dataclass(frozen=True, slots=True)
class Running:
    """A query under way: its result, batch by batch, and how to end it."""

    reader: pa.RecordBatchReader
    connection: duckdb.DuckDBPyConnection

    def interrupt(self) -> None:
        """End the query; a read of the result raises an error then. Any thread may call it."""
        self.connection.interrupt()


@contextmanager
def run(places: SourceCatalog, sql: str, limits: Limits | None = None) -> Iterator[Running]:
    """Run a query over streams, queues and archives; its result is read within the `with`.

    QueryError has the fault of the query; errors of the broker are the client's.
    """
    limits = limits or Limits()
    config: dict[str, str | bool | int | float | list[str]] = {
        "enable_external_access": "false",
        "autoinstall_known_extensions": "false",
        "autoload_known_extensions": "false",
        "memory_limit": f"{limits.memory}B",
        "threads": str(limits.threads),
    }
    connection = duckdb.connect(":memory:", config=config)
    try:
        connection.execute("SET python_enable_replacements = false")
        connection.execute("SET TimeZone = 'UTC'")
        with _query_errors():
            statement = parse_statement(connection, sql)
            sources = {name: places.open(place) for name, place in statement.places.items()}
            _register(connection, statement.sql, sources)
            connection.execute("SET lock_configuration = true")
            result = connection.sql(statement.sql)
            assert result is not None  # It is a SELECT.
            reader = _without_generated_names(result.to_arrow_reader(BATCH_ROWS))
        yield Running(reader, connection)
    finally:
        connection.close()


def _register(connection: duckdb.DuckDBPyConnection, sql: str, sources: dict[str, Source]) -> None:
    """Register the sources with DuckDB, each with only the columns and rows the query needs."""
    schemas = {
        name: source.records.schema
        for name, source in sources.items()
        if isinstance(source, Messages)
    }
    for name, source in sources.items():
        if name not in schemas:
            connection.register(name, source.table(None))
    needed = query_needs(connection, sql, schemas)
    for name in schemas:
        connection.register(name, sources[name].table(needed.get(name)))


def _without_generated_names(reader: pa.RecordBatchReader) -> pa.RecordBatchReader:
    """Remove Headrace's table names from column names, into which DuckDB puts some of them."""
    names = [_OURS.sub("", name) for name in reader.schema.names]
    if names == reader.schema.names:
        return reader
    fields = zip(reader.schema, names, strict=True)
    schema = pa.schema([field.with_name(name) for field, name in fields])
    return pa.RecordBatchReader.from_batches(
        schema, (pa.RecordBatch.from_arrays(batch.columns, schema=schema) for batch in reader)
    )


@contextmanager
def _query_errors() -> Iterator[None]:
    """Raise DuckDB's errors as QueryError."""
    try:
        yield
    except duckdb.Error as error:
        raise QueryError(sentence(error)) from None


def sentence(error: Exception) -> str:
    """Return the text of an error of DuckDB or Arrow in one line.

    An error of our own, from a read within the query, has passed through both with its traceback.
    """
    text = str(error).partition("\n\nLINE ")[0]  # The line shows names of ours.
    ours = _RAISED.findall(text) if "Traceback" in text else []
    return " ".join((ours[-1] if ours else text).split()) or type(error).__name__
