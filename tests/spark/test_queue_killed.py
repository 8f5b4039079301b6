# SPDX-License-Identifier: Apache-2.0
"""A streaming query on a queue whose broker is killed, and stopped, amid its batches."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from headrace.client import Message, blocking
from headrace.client.blocking_pipeline import Lease
from support.timeouts import PATIENCE_S

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from headrace.testing.broker import ChildBroker

pytestmark = pytest.mark.spark

MESSAGES = 240


def wait_for(query: StreamingQuery, happened: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not happened():
        error = query.exception()
        assert error is None, error
        assert time.monotonic() < deadline, "the query stands still"
        time.sleep(0.02)


def test_no_message_is_lost_or_repeated_whenever_the_broker_dies(
    spark: SparkSession, headrace_process: ChildBroker, name: str, tmp_path: Path
) -> None:
    with blocking.connect(headrace_process.url) as connection, connection.channel() as channel:
        channel.declare_queue(name, durable=True)
        numbers = [Message(b"%d" % n, persistent=True) for n in range(MESSAGES)]
        channel.publish_many(numbers, name)
    rows = (
        spark.readStream.format("amqp")
        .options(uri=headrace_process.url, queue=name, maxRecordsPerTrigger="40", minPartitions="2")
        .load()
        .selectExpr("CAST(body AS STRING) AS body")
    )
    query = (
        rows.writeStream.format("parquet")
        .option("path", str(tmp_path / "out"))
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .start()
    )
    try:
        offsets = tmp_path / "checkpoint" / "offsets"
        for batch, end in (
            (1, headrace_process.kill),
            (2, headrace_process.stop),
            (4, headrace_process.kill),
        ):
            logged = offsets / str(batch)  # From then on it is read, or about to be.
            wait_for(query, logged.exists)
            end()
            headrace_process.start()
        with blocking.connect(headrace_process.url) as connection:
            lease = Lease(connection, name, "spark")
            wait_for(query, lambda: lease.info().settled == MESSAGES)
            state = lease.info()
            assert (state.leased, state.ready) == (0, 0)
            lease.close()
    finally:
        query.stop()
    retained = [int(row.body) for row in spark.read.parquet(str(tmp_path / "out")).collect()]
    assert sorted(retained) == list(range(MESSAGES))
