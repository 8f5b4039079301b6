# SPDX-License-Identifier: Apache-2.0
"""``headrace sql``: a query over streams, queues and archives."""

from __future__ import annotations

import base64
import csv
import json
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import date, time
from pathlib import Path
from typing import TYPE_CHECKING, Final, TextIO

import click

from headrace.cli.broker_url import broker_option, reason
from headrace.cli.output import choose_format, json_flag, print_tables

if TYPE_CHECKING:
    import pyarrow as pa

MEMORY_MIN: Final = 64  # MiB.
QUERY_STDIN: Final = "-"


@click.command(short_help="Query streams, queues and archives with SQL.")
@broker_option
@click.option(
    "--archive",
    "archives",
    multiple=True,
    metavar="NAME=DIR",
    help="A name for a directory of Parquet files or a Delta table. May be repeated.",
)
@click.option(
    "--format",
    "form",
    type=click.Choice(["table", "csv", "json", "parquet"]),
    help="A table, CSV, one JSON object per line, or a Parquet file, which needs --output. "
    "[table on a terminal, csv elsewhere; by the name of --output]",
)
@json_flag
@click.option(
    "--output",
    "-o",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write to this file, which must not exist.",
)
@click.option(
    "--memory",
    type=click.IntRange(MEMORY_MIN),
    default=2048,
    show_default=True,
    metavar="MIB",
    help="Maximum memory for sorts, joins and groups.",
)
@click.argument("query")
def sql(
    url: str,
    archives: tuple[str, ...],
    form: str | None,
    as_json: bool,
    output: Path | None,
    memory: int,
    query: str,
) -> None:
    """Query streams, queues and archives with SQL, by DuckDB. Nothing is consumed or changed.

    \b
    headrace sql "SELECT count(*) FROM orders"
    headrace sql "SELECT value.id FROM stream('orders', value := 'json', since := INTERVAL 1 HOUR)"
    headrace sql "SELECT * FROM queue('invoices') LIMIT 5"
    headrace sql "SELECT count(*) FROM archive('lake/orders')"

    A name in FROM is a stream or a queue, and one with a slash a directory. QUERY is read from
    standard input if it is -.
    """
    from headrace import sql as engine
    from headrace.client.errors import ClientError

    form = _choose_format(choose_format(form, as_json), output)
    catalog = engine.SourceCatalog(url, _parse_archives(archives), files=True)
    text = sys.stdin.read() if query == QUERY_STDIN else query
    try:
        with (
            engine.run(catalog, text, engine.Limits(memory << 20)) as running,
            _one_sentence_errors(),
        ):
            _write(running.reader, form, output)
    except engine.QueryError as error:
        raise click.ClickException(str(error)) from None
    except ClientError as error:
        raise click.ClickException(reason(error)) from None


def _choose_format(form: str | None, output: Path | None) -> str:
    suffix = "" if output is None else output.suffix.lower()
    form = form or {".csv": "csv", ".json": "json", ".jsonl": "json", ".parquet": "parquet"}.get(
        suffix
    )
    if form is None:
        form = "table" if output is None and sys.stdout.isatty() else "csv"
    if form == "parquet" and output is None:
        raise click.UsageError("--format parquet needs --output FILE")
    if output is not None and output.exists():
        raise click.UsageError(f"--output: {output} exists")
    return form


def _parse_archives(texts: Iterable[str]) -> dict[str, Path]:
    archives = {}
    for text in texts:
        name, equals, path = text.partition("=")
        if not (name and equals and path):
            raise click.UsageError(f"--archive must be NAME=DIR; got {text!r}")
        archives[name] = Path(path)
    return archives


@contextmanager
def _one_sentence_errors() -> Iterator[None]:
    """Report an error while rows are read as one sentence; earlier rows may be written already."""
    import duckdb
    import pyarrow as pa

    from headrace.sql import describe_error

    try:
        yield
    except (duckdb.Error, pa.ArrowException, RuntimeError) as error:
        raise click.ClickException(describe_error(error)) from None


def _write(reader: pa.RecordBatchReader, form: str, output: Path | None) -> None:
    """Write the rows as they arrive; remove the output file if an error occurs."""
    if output is None:
        _print(reader, form, sys.stdout)
        return
    try:
        if form == "parquet":
            import pyarrow.parquet as pq

            with pq.ParquetWriter(output, reader.schema) as writer:
                for batch in reader:
                    writer.write_batch(batch)
        else:
            with output.open("x", encoding="utf-8", newline="") as file:
                _print(reader, form, file)
    except BaseException:
        output.unlink(missing_ok=True)
        raise


def _print(reader: pa.RecordBatchReader, form: str, file: TextIO) -> None:
    names = reader.schema.names
    if form == "csv":
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(names)
        writer.writerows(map(_to_csv_value, row) for row in _rows(reader))
        return
    if len(set(names)) < len(names):
        raise click.ClickException("two columns have the same name: rename one with AS")
    rows = (dict(zip(names, row, strict=True)) for row in _rows(reader))
    if form == "json":
        file.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    else:
        print_tables(rows, names)


def _rows(reader: pa.RecordBatchReader) -> Iterator[list[object]]:
    """Yield the rows, with values that JSON can represent."""
    for batch in reader:
        columns = [column.to_pylist(maps_as_pydicts="lossy") for column in batch.columns]
        for row in zip(*columns, strict=True):
            yield [_to_json_value(value) for value in row]


def _to_json_value(value: object) -> object:
    """Return a value for JSON: bytes as text, or base64 if not UTF-8; times in ISO 8601."""
    if value is None or isinstance(value, str | int | float | bool):
        return value
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return base64.b64encode(value).decode()
    if isinstance(value, dict):
        return {str(key): _to_json_value(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_to_json_value(item) for item in value]
    if isinstance(value, date | time):
        return value.isoformat()
    return str(value)


def _to_csv_value(value: object) -> object:
    """Return a value for CSV; objects, lists and booleans are JSON."""
    if isinstance(value, dict | list | bool):
        return json.dumps(value, ensure_ascii=False)
    return value
