# SPDX-License-Identifier: Apache-2.0
"""The program of `test_connect`: reads and writes over Spark Connect.

argv: the server's address, uri, stream, queue, directory.
"""

from __future__ import annotations

import sys
from threading import Event

from pyspark.sql import DataFrame, SparkSession

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

    # The function runs in another process with a clone of the session. It has the views.
    spark.createDataFrame([(3, "three")], "n INT, word STRING").createOrReplaceTempView("words")

    def batch(rows: DataFrame, number: int) -> None:
        rows.createOrReplaceTempView("numbers")
        named = rows.sparkSession.sql("SELECT word AS body FROM numbers JOIN words USING (n)")
        to = named.write.format("amqp").options(uri=uri, exchange="", routingKey=queue)
        to.options(sinkId=f"{queue}.words", batchId=number).mode("append").save()

    numbers = spark.readStream.format("amqp").options(**options).load().select("value.n")
    writer = numbers.writeStream.foreachBatch(batch).trigger(availableNow=True)
    query = writer.option("checkpointLocation", f"{directory}-words").start()
    assert query.awaitTermination(WAIT_S)  # type: ignore[arg-type]

    frame.selectExpr("concat('w', value.n) AS body").write.format("amqp").options(
        uri=uri, exchange="", routingKey=queue
    ).mode("append").save()
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
