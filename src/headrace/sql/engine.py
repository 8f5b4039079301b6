# SPDX-License-Identifier: Apache-2.0
"""Queries in DuckDB's memory, without access to files, the network and DuckDB's settings."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import duckdb
import pyarrow as pa

from headrace.sql.needs import find_needs
from headrace.sql.sources import Messages
from headrace.sql.statement import NAME_PREFIX, QueryError, parse_statement

if TYPE_CHECKING:
    from headrace.sql.sources import Source, SourceCatalog

MEMORY_MAX: Final = 2 << 30  # Bytes, by default.
BATCH_ROWS: Final = 10_000  # Rows of a batch of the result.
_RAISED_ERROR: Final = re.compile(r"^(?:[A-Za-z_]\w*\.)*[A-Z]\w*: (.*)$", re.MULTILINE)
_GENERATED_PREFIX: Final = re.compile(rf"\b{NAME_PREFIX}\d+ AS ")


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of one query."""

    memory: int = MEMORY_MAX  # Bytes for sorts and joins.
    threads: int = 2


@dataclass(frozen=True, slots=True)
class Running:
    """A running query, with the reader of its result."""

    reader: pa.RecordBatchReader
    connection: duckdb.DuckDBPyConnection

    def interrupt(self) -> None:
        """End the query, so that a read of the result raises an error; any thread may call this."""
        self.connection.interrupt()


@contextmanager
def run(catalog: SourceCatalog, sql: str, limits: Limits | None = None) -> Iterator[Running]:
    """Run a query over streams, queues and archives; the `with` block may read the result.

    Raises:
        QueryError: the query is invalid.
        ClientError: the broker is not reachable, or refuses a request.
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
        with _convert_errors():
            statement = parse_statement(connection, sql)
            sources = {
                name: catalog.open(reference) for name, reference in statement.references.items()
            }
            _register(connection, statement.sql, sources)
            connection.execute("SET lock_configuration = true")
            result = connection.sql(statement.sql)
            assert result is not None  # Every SELECT has a result.
            reader = _remove_generated_names(result.to_arrow_reader(BATCH_ROWS))
        yield Running(reader, connection)
    finally:
        connection.close()


def _register(connection: duckdb.DuckDBPyConnection, sql: str, sources: dict[str, Source]) -> None:
    """Register the sources with DuckDB, limited to the columns and rows that the query needs."""
    schemas = {
        name: source.records.schema
        for name, source in sources.items()
        if isinstance(source, Messages)
    }
    for name, source in sources.items():
        if name not in schemas:
            connection.register(name, source.table(None))
    needs_by_name = find_needs(connection, sql, schemas)
    for name in schemas:
        connection.register(name, sources[name].table(needs_by_name.get(name)))


def _remove_generated_names(reader: pa.RecordBatchReader) -> pa.RecordBatchReader:
    """Remove generated table names from the names of columns, where DuckDB puts some of them."""
    names = [_GENERATED_PREFIX.sub("", name) for name in reader.schema.names]
    if names == reader.schema.names:
        return reader
    fields = zip(reader.schema, names, strict=True)
    schema = pa.schema([field.with_name(name) for field, name in fields])
    return pa.RecordBatchReader.from_batches(
        schema, (pa.RecordBatch.from_arrays(batch.columns, schema=schema) for batch in reader)
    )


@contextmanager
def _convert_errors() -> Iterator[None]:
    """Raise DuckDB's errors as QueryError."""
    try:
        yield
    except duckdb.Error as error:
        raise QueryError(describe_error(error)) from None


def describe_error(error: Exception) -> str:
    """Return the text of an error of DuckDB or Arrow in one line.

    If Headrace raises an error while DuckDB reads a source, DuckDB's text has a traceback. The
    result is then the text of Headrace's error.
    """
    text = str(error).partition("\n\nLINE ")[0]  # The quoted line has generated names.
    messages = _RAISED_ERROR.findall(text) if "Traceback" in text else []
    return " ".join((messages[-1] if messages else text).split()) or type(error).__name__
