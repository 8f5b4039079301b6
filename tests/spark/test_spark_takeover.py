# SPDX-License-Identifier: Apache-2.0
"""A streaming query whose broker is killed, and whose virtual host another broker takes over."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from headrace.client import blocking
from support.brokers.broker_pair import BrokerPair
from support.timeouts import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

pytestmark = pytest.mark.spark

MESSAGES = 240


def wait_for(query: StreamingQuery, happened: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not happened():
        error = query.exception()
        assert error is None, str(error)[:3000]
        assert time.monotonic() < deadline, "the query stands still"
        time.sleep(0.02)


@pytest.mark.parametrize("kind", ["stream", "queue"])
def test_a_query_passes_each_message_once_while_brokers_take_over(
    spark: SparkSession, tmp_path: Path, kind: str
) -> None:
    """A query copies a stream or a queue to another stream exactly once, across three kills."""
    with BrokerPair(tmp_path / "data", processes=True) as pair:
        with blocking.connect(pair.url) as connection, connection.channel() as channel:
            channel.declare_queue(
                "in", arguments={"x-queue-type": "stream"} if kind == "stream" else {}
            )
            channel.declare_queue("out", arguments={"x-queue-type": "stream"})
            channel.publish_many((b"%d" % n for n in range(MESSAGES)), "in")
        texts = {"uri": pair.url, kind: "in", "maxRecordsPerTrigger": "40", "minPartitions": "2"}
        if kind == "stream":
            texts["startingOffsets"] = "earliest"
        query = (
            spark.readStream.format("amqp")
            .options(**texts)
            .load()
            .selectExpr("body AS value")
            .writeStream.format("amqp")
            .options(uri=pair.url, exchange="", routingKey="out")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .start()
        )
        try:
            for batch in (1, 2, 4):
                wait_for(query, (tmp_path / "checkpoint" / "offsets" / str(batch)).exists)
                pair.move()
            with blocking.connect(pair.url) as connection:
                stream = connection.stream("out")
                wait_for(query, lambda: stream.last_offset() == MESSAGES)
                records = [one.body for batch in stream.read(0, MESSAGES) for one in batch]
            assert query.exception() is None
        finally:
            query.stop()
    assert sorted(map(int, records)) == list(range(MESSAGES))
