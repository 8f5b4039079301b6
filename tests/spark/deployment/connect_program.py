# SPDX-License-Identifier: Apache-2.0
"""The program of `test_connect`: reads and writes over Spark Connect.

argv: the server's address, uri, stream, queue, directory.
"""

from __future__ import annotations

import sys
from threading import Event

from pyspark.sql import SparkSession

from headrace.spark.listener import QueryListener, Report

WAIT_S = 250.0


def main(remote: str, uri: str, stream: str, queue: str, directory: str) -> None:
    spark = SparkSession.builder.remote(remote).getOrCreate()
    options = {"uri": uri, "stream": stream, "startingOffsets": "earliest"}
    options |= {"value": "json", "valueSchema": "n INT"}

    frame = spark.read.format("amqp").options(**options).load()
    print("BATCH", sorted(row.n for row in frame.select("value.n").collect()))

    over = Event()
    rows = []

    def report(report: Report) -> None:
        rows.append(report.rows)
        if report.event == "terminated":
            over.set()

    spark.streams.addListener(QueryListener(report))
    query = (
        spark.readStream.format("amqp")
        .options(**options)
        .load()
        .selectExpr("CAST(value.n AS STRING) AS body")
        .writeStream.format("amqp")
        .options(uri=uri, exchange="", routingKey=queue, checkpointLocation=directory)
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(WAIT_S)  # type: ignore[arg-type]
    assert over.wait(WAIT_S)
    print("STREAM", sum(rows))

    frame.selectExpr("concat('w', value.n) AS body").write.format("amqp").options(
        uri=uri, exchange="", routingKey=queue
    ).mode("append").save()
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
