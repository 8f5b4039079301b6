# SPDX-License-Identifier: Apache-2.0
"""Other people's libraries read a stream in one line each, and all find the same rows."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import datafusion
import deltalake
import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog

from headrace.arrow import Records, stream
from headrace.client.message import Message

if TYPE_CHECKING:
    from pathlib import Path

    from headrace.client import blocking
    from headrace.testing.broker import ChildBroker

ROWS = 2500
TOTAL = sum(range(ROWS))


@pytest.fixture
def orders(connection: blocking.Connection, broker: ChildBroker, name: str) -> Records:
    """A stream of several batches, decoded."""
    with connection.channel() as channel:
        channel.declare_queue(name, durable=True, arguments={"x-queue-type": "stream"})
        channel.publish_many(
            [
                Message(json.dumps({"id": number}).encode(), headers={"n": number % 7})
                for number in range(ROWS)
            ],
            name,
        )
    return stream(broker.url, name, value="json", value_schema="id BIGINT", batch_rows=1000)


def test_duckdb(orders: Records) -> None:
    found = duckdb.sql("SELECT count(*), sum(value.id)::BIGINT, max(headers['n']) FROM orders")
    assert found.fetchall() == [(ROWS, TOTAL, "6")]
    both = duckdb.sql("SELECT count(*) FROM orders a JOIN orders b ON a.offset = b.offset + 1")
    assert both.fetchall() == [(ROWS - 1,)]
    assert len(duckdb.sql("SELECT value.id FROM orders LIMIT 3").fetchall()) == 3


def test_polars(orders: Records) -> None:
    frame = pl.DataFrame(orders)
    assert frame.height == ROWS
    assert frame["value"].struct.field("id").sum() == TOTAL
    assert frame.schema["timestamp"] == pl.Datetime("us", "UTC")


def test_pandas(orders: Records) -> None:
    frame = pa.table(orders.select("offset", "value")).to_pandas()
    assert isinstance(frame, pd.DataFrame)
    assert frame["value"].map(lambda value: value["id"]).sum() == TOTAL
    assert frame["offset"].tolist() == list(range(ROWS))


def test_datafusion(orders: Records) -> None:
    context = datafusion.SessionContext()
    context.from_arrow(orders, "orders")
    found = context.sql("SELECT count(*) AS n, sum(value['id']) AS total FROM orders")
    assert pa.table(found).to_pylist() == [{"n": ROWS, "total": TOTAL}]


def test_delta(orders: Records, tmp_path: Path) -> None:
    deltalake.write_deltalake(tmp_path, orders)
    found: Any = deltalake.DeltaTable(tmp_path).to_pyarrow_table()
    assert _plain(found) == _plain(pa.table(orders))


def test_iceberg(orders: Records, tmp_path: Path) -> None:
    catalog = SqlCatalog("test", uri=f"sqlite:///{tmp_path}/c.db", warehouse=f"file://{tmp_path}")
    try:
        catalog.create_namespace("lake")
        table = catalog.create_table("lake.orders", schema=orders.schema)
        table.append(orders.reader())
        assert _plain(table.scan().to_arrow()) == _plain(pa.table(orders))
    finally:
        catalog.close()


def _plain(table: pa.Table) -> list[dict[str, Any]]:
    """The rows in order; `large_string` and `string` are alike."""
    names = ["offset", "value", "headers", "properties", "timestamp", "routing_key"]
    return table.select(names).sort_by("offset").to_pylist()
