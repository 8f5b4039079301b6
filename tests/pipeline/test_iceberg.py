# SPDX-License-Identifier: Apache-2.0
"""Sinks of type iceberg write each row once, after any kill and beside other writers."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet
import pytest

from headrace.pipeline.config.errors import PipelineError
from headrace.pipeline.iceberg.files import make_layout, write_files
from headrace.pipeline.iceberg.table import IcebergTable, TableChange, TableChanged
from headrace.pipeline.run.state import StateDirectory
from headrace.pipeline.sinks.outputs import Output, make_output
from support.duckdb_reader import rows_by_duckdb
from support.spark.spark_query_log import forget_last

if TYPE_CHECKING:
    from pyiceberg.table import Table
    from pyspark.sql import SparkSession

    from headrace.pipeline.config.settings import Pipeline
    from headrace.pipeline.run.state import Status
    from pipeline.conftest import ParsePipeline

pytestmark = pytest.mark.spark
MakeLake = Callable[..., "Pipeline"]

HEAD = """
[pipeline]
name = "test"
[tables.unknown]
type = "parquet"
path = "never read"
"""
SQL = """
[catalogs.lake]
type = "sql"
uri = "sqlite:///catalog.db"
warehouse = "warehouse"
"""
SINK = """
[sinks.lake]
from = "unknown"
type = "iceberg"
catalog = "lake"
table = "sales.orders"
"""


@pytest.fixture
def make_lake(parse_pipeline: ParsePipeline, request: pytest.FixtureRequest) -> MakeLake:
    """Return a function that makes a pipeline with a sink of a table in an SQLite catalog."""
    return lambda keys="": parse_pipeline(f"{HEAD}{SQL}{SINK}{keys}")


def open_output(pipeline: Pipeline, home: Path) -> Output:
    """Return a new output of the sink, like that of a restarted driver."""
    return make_output(pipeline, "lake", home)


def load_table(pipeline: Pipeline) -> Table:
    return IcebergTable(pipeline, "lake", "sales.orders").load_existing()


def read_numbers(pipeline: Pipeline) -> list[int]:
    """Return the numbers in the table; two readers must agree."""
    table = load_table(pipeline)
    ids = sorted(table.scan().to_arrow().column("id").to_pylist())
    assert sorted(row["id"] for row in rows_by_duckdb(table.metadata_location, "id")) == ids
    return ids


def count_files(pipeline: Pipeline) -> int:
    return len(list(load_table(pipeline).scan().plan_files()))


def test_a_table_has_the_partitions_order_and_types_of_the_file(
    make_lake: MakeLake, spark: SparkSession, tmp_path: Path
) -> None:
    pipeline = make_lake(
        'partition_by = ["bucket(2, id)", "day(moment)", "truncate(1, text)", "kind"]\n'
        'sort_by = ["text"]\noptions = { "write.parquet.compression-codec" = "snappy" }'
    )
    frame = spark.sql("""
        SELECT id, TIMESTAMP'2026-01-01 23:00:00Z' + make_interval(0, 0, 0, 0, id % 2 * 2) moment,
               concat(if(id % 2 = 0, 'a', 'b'), 9 - id) text, CAST(NULL AS STRING) kind,
               named_struct('id', id, 'of', array(named_struct('x', id))) inner, map('k', id) map,
               CAST(id / 2 AS DECIMAL(10,2)) price, DATE'2026-01-01' day, true yes,
               TIMESTAMP_NTZ'2026-01-01 00:00:00' local, CAST('x' AS BINARY) body
        FROM range(8)
    """)
    open_output(pipeline, tmp_path).write(frame.coalesce(1), "w", 0)
    table = load_table(pipeline)
    assert [str(field.transform) for field in table.spec().fields] == [
        "bucket[2]", "day", "truncate[1]", "identity"
    ]  # fmt: skip
    assert [field.source_id for field in table.sort_order().fields] == [3]
    rows = table.scan().to_arrow().sort_by("id").to_pylist()
    expected_rows = [row.asDict(recursive=True) for row in frame.orderBy("id").collect()]
    for row, expected in zip(rows, expected_rows, strict=True):
        row["map"] = dict(row["map"])
        expected["moment"] = datetime(2026, 1, 1, 23, tzinfo=UTC) + timedelta(
            hours=expected["id"] % 2 * 2
        )
        expected["body"] = bytes(expected["body"])
        assert row == expected
    assert read_numbers(pipeline) == list(range(8))
    task = next(
        iter(table.scan(row_filter="id = 5 and moment > '2026-01-02T00:00:00+00:00'").plan_files())
    )
    assert "/moment_day=2026-01-02/text_trunc=b/kind=null/" in task.file.file_path
    texts = [row["text"] for row in rows_by_duckdb(table.metadata_location) if row["id"] % 2]
    assert len(texts) == 4
    for field in table.scan().plan_files():
        with pa.parquet.ParquetFile(field.file.file_path.removeprefix("file://")) as file:
            column = file.read(["text"])["text"].to_pylist()
            meta = file.metadata
        assert column == sorted(column)
        assert meta.row_group(0).column(0).compression == "SNAPPY"


def test_columns_come_and_types_widen_and_others_are_refused(
    make_lake: MakeLake, spark: SparkSession, tmp_path: Path
) -> None:
    """New columns are added, types are widened, and incompatible types are errors."""
    pipeline = make_lake()
    sink = open_output(pipeline, tmp_path)
    sink.write(spark.sql("SELECT 1 id, 'a' text, named_struct('x', 1) part"), "w", 0)
    sink.write(spark.sql("SELECT named_struct('y', 2) part, 1L << 40 id, 2.5D new"), "w", 1)
    rows = load_table(pipeline).scan().to_arrow().sort_by("id").to_pylist()
    assert rows == [
        {"id": 1, "text": "a", "part": {"x": 1, "y": None}, "new": None},
        {"id": 1 << 40, "text": None, "part": {"x": None, "y": 2}, "new": 2.5},
    ]
    assert read_numbers(pipeline) == [1, 1 << 40]
    for columns, about in (
        ("'1' id", "the column 'id' is now string, and the table has int64"),
        ("1 id, interval 1 day new", "no type for the column 'new', interval day: cast it"),
    ):
        with pytest.raises(PipelineError, match=f"sales.orders of catalog 'lake': .*{about}"):
            sink.write(spark.sql(f"SELECT {columns}"), "w", 2)
    sink.write(spark.sql("SELECT 3 id"), "w", 2)  # Narrower is no change.
    assert read_numbers(pipeline) == [1, 3, 1 << 40]


def test_a_batch_is_in_the_table_once_though_snapshots_expire(
    make_lake: MakeLake, spark: SparkSession, tmp_path: Path
) -> None:
    pipeline = make_lake()
    for batch in range(3):
        open_output(pipeline, tmp_path).write(spark.range(batch * 4, batch * 4 + 4), "w", batch)
    table = load_table(pipeline)
    assert table.current_snapshot().summary["headrace-batch"] == "2"
    table.maintenance.expire_snapshots().older_than(datetime.now(UTC) + timedelta(days=1)).commit()
    assert len(load_table(pipeline).snapshots()) == 1
    before = count_files(pipeline)
    for batch in (2, 1):  # A driver that crashed after its commit, and one from long ago.
        open_output(pipeline, tmp_path).write(spark.range(batch * 4, batch * 4 + 4), "w", batch)
    open_output(pipeline, tmp_path).write(spark.range(0), "w", 3)
    assert count_files(pipeline) == before
    open_output(pipeline, tmp_path).write(spark.range(12, 14), "w", 4)
    assert read_numbers(pipeline) == list(range(14))


def test_a_table_that_others_changed_between_batches(
    make_lake: MakeLake, spark: SparkSession, tmp_path: Path
) -> None:
    pipeline = make_lake('partition_by = ["id"]')
    open_output(pipeline, tmp_path).write(spark.range(2), "w", 0)
    iceberg_table = IcebergTable(pipeline, "lake", "sales.orders")
    loaded = iceberg_table.load_existing()
    new = write_files(spark.range(2, 3), make_layout(loaded, "ours"), [])
    with load_table(pipeline).update_schema() as update:
        from pyiceberg.types import StringType

        update.add_column("others", StringType())
    load_table(pipeline).append(pa.table({"id": [100]}))
    with pytest.raises(TableChanged):
        iceberg_table.commit("w", 1, loaded, TableChange(new))
    open_output(pipeline, tmp_path).write(spark.range(2, 3), "w", 1)
    assert read_numbers(pipeline) == [0, 1, 2, 100]
    with load_table(pipeline).update_spec() as spec:
        spec.remove_field("id")
    with pytest.raises(PipelineError, match=r"sales.orders .* is partitioned by \[\], not by"):
        open_output(pipeline, tmp_path).write(spark.range(3, 4), "w", 2)


def test_a_table_that_is_gone_or_made_anew_is_an_error_not_a_hole(
    make_lake: MakeLake, spark: SparkSession, tmp_path: Path
) -> None:
    """A deleted, recreated or rolled-back table is an error, not a gap in its rows."""
    pipeline = make_lake()
    open_output(pipeline, tmp_path).write(spark.range(2), "w", 0)
    catalog = IcebergTable(pipeline, "lake", "sales.orders").catalog
    table = load_table(pipeline)
    with table.transaction() as transaction:
        transaction.remove_properties("headrace-sink.w")
    with pytest.raises(PipelineError, match="rolled back by others: it had batch 0"):
        open_output(pipeline, tmp_path).write(spark.range(2, 4), "w", 1)
    catalog.drop_table("sales.orders")
    with pytest.raises(PipelineError, match=r"sales.orders of catalog 'lake' is missing, so rows"):
        open_output(pipeline, tmp_path).write(spark.range(2, 4), "w", 1)
    catalog.create_table("sales.orders", pa.schema([("id", pa.int64())]))
    with pytest.raises(PipelineError, match="was recreated by others"):
        open_output(pipeline, tmp_path).write(spark.range(2, 4), "w", 1)
    (tmp_path / "table-lake.json").unlink()
    open_output(pipeline, tmp_path).write(spark.range(2, 4), "w", 1)
    assert read_numbers(pipeline) == [2, 3]


def test_a_pipeline_that_loses_its_commits_has_each_message_once(
    parse_pipeline: ParsePipeline,
    run: Callable[[Pipeline], Status], publish: Callable[..., None], uri: str,
    name: str,
) -> None:  # fmt: skip
    pipeline = parse_pipeline(f"""
        [pipeline]
        name = "test"
        [broker]
        uri = "{uri}"
        {SQL}
        [sources.messages]
        type = "stream"
        name = "{name}"
        options = {{ startingOffsets = "earliest", maxRecordsPerTrigger = 10 }}
        [[steps]]
        name = "parsed"
        sql = "SELECT offset AS id, timestamp AS moment, string(body) AS body FROM messages"
        [sinks.lake]
        from = "parsed"
        type = "iceberg"
        catalog = "lake"
        table = "sales.orders"
        partition_by = ["hour(moment)"]
    """)
    publish(name, *map(str, range(25)))
    run(pipeline)
    commits = StateDirectory(pipeline.state).checkpoints / "lake" / "commits"
    assert forget_last(commits) == 2
    publish(name, *map(str, range(25, 45)))
    run(pipeline)
    assert read_numbers(pipeline) == list(range(45))
    summary = load_table(pipeline).current_snapshot().summary
    ends: list[dict[str, Any]] = [
        json.loads(one) for one in json.loads(summary["headrace-offsets"] or "")
    ]
    assert name in json.dumps(ends)
    assert "45" in json.dumps(ends)


def test_a_table_of_a_catalog_is_a_static_side(
    parse_pipeline: ParsePipeline,
    run: Callable[[Pipeline], Status],
    make_lake: MakeLake,
    spark: SparkSession,
    tmp_path: Path,
) -> None:
    """An Iceberg table can be a static table of a pipeline."""
    sink = open_output(make_lake('partition_by = ["bucket(2, id)"]'), tmp_path)
    sink.write(spark.sql("SELECT id, concat('n', id) name FROM range(6)"), "w", 0)
    with load_table(make_lake()).update_schema() as update:
        update.rename_column("name", "label")
    load_table(make_lake()).delete("id = 5")
    pipeline = parse_pipeline(f"""
        [pipeline]
        name = "static"
        {SQL}
        [tables.labels]
        type = "iceberg"
        catalog = "lake"
        table = "sales.orders"
        [tables.wanted]
        type = "rows"
        ddl = "id BIGINT"
        rows = [{{ id = 2 }}, {{ id = 4 }}, {{ id = 5 }}]
        [[steps]]
        name = "joined"
        sql = "SELECT w.id, l.label FROM wanted w LEFT JOIN labels l ON w.id = l.id"
        [sinks.out]
        from = "joined"
        type = "iceberg"
        catalog = "lake"
        table = "sales.joined"
    """)
    for _ in range(2):
        run(pipeline)
    joined = IcebergTable(pipeline, "lake", "sales.joined").load_existing().scan().to_arrow()
    assert joined.sort_by("id").to_pylist() == [
        {"id": 2, "label": "n2"}, {"id": 4, "label": "n4"}, {"id": 5, "label": None}
    ]  # fmt: skip
