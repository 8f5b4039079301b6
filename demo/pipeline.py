# SPDX-License-Identifier: Apache-2.0
"""The Spark job: three streaming queries over one stream.

- `archive` joins each flight with the names of its airline and airports, and writes all of them to
  Parquet, a directory per month. The file sink and the offsets in the checkpoint make that
  exactly-once.
- `delays` counts and sums the departure delays per origin and day, in windows over event time.
- `alerts` publishes a message for each flight that left more than three hours late.

The time of an event is the scheduled departure on the clock of the airport. All three origins are
in New York; their clock is read as if it were UTC, which is the session's zone, so that a window of
a day is a day in New York through the changes to and from summer time.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from demo import broker
from demo.flights import airlines, airports

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

ALERT_MINUTES = 180
RECORDS_PER_TRIGGER_MAX = 60_000
SCHEMA = (
    "year INT, month INT, day INT, dep_time INT, sched_dep_time INT, dep_delay INT, arr_time INT, "
    "sched_arr_time INT, arr_delay INT, carrier STRING, flight INT, tailnum STRING, "
    "origin STRING, dest STRING, air_time INT, distance INT, hour INT, minute INT, "
    "time_hour STRING"
)


@dataclass(frozen=True)
class Places:
    """Where the job writes."""

    archive: Path
    delays: Path
    checkpoints: Path


def session(scratch: Path) -> SparkSession:
    """A Spark of two cores and one gigabyte in this process's child."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    here = str(Path(__file__).parent.parent)
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH"), here]))
    from pyspark.sql import SparkSession

    builder = (
        SparkSession.builder.master("local[2]")
        .appName("headrace demo")
        .config("spark.driver.memory", "1g")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.shuffle.partitions", "2")
        # Two busy cores may take long to start a Python worker.
        .config("spark.python.authenticate.socketTimeout", "120s")
        .config("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")
        .config("spark.local.dir", str(scratch / "spark"))
        .config("spark.sql.warehouse.dir", str(scratch / "warehouse"))
        .config(
            "spark.driver.extraJavaOptions", f"-Dlog4j2.configurationFile={_log_config(scratch)}"
        )
    )
    return builder.getOrCreate()


def _log_config(scratch: Path) -> Path:
    """Have Spark log to a file: the terminal belongs to the progress bars."""
    path = scratch / "log4j2.properties"
    path.write_text(
        "rootLogger.level = warn\n"
        "rootLogger.appenderRef.file.ref = file\n"
        "appender.file.type = File\n"
        "appender.file.name = file\n"
        f"appender.file.fileName = {scratch / 'spark.log'}\n"
        "appender.file.layout.type = PatternLayout\n"
        "appender.file.layout.pattern = %d{HH:mm:ss} %p %c{1}: %m%n%ex\n"
    )
    return path


def start(spark: SparkSession, url: str, places: Places) -> dict[str, StreamingQuery]:
    """Start the three queries; they run until they are stopped."""
    flights = _flights(spark, url)
    named = _named(spark, flights)
    return {
        "archive": (
            named.writeStream.queryName("archive")
            .format("parquet")
            .partitionBy("month")
            .option("path", str(places.archive))
            .option("checkpointLocation", str(places.checkpoints / "archive"))
            .start()
        ),
        "delays": (
            _delays(flights)
            .writeStream.queryName("delays")
            .outputMode("update")
            .option("checkpointLocation", str(places.checkpoints / "delays"))
            .foreachBatch(lambda changed, batch: _keep(changed, batch, places.delays))
            .start()
        ),
        "alerts": (
            _alerts(named)
            .writeStream.queryName("alerts")
            .format("amqp")
            .option("uri", url)
            .option("exchange", broker.ALERTS)
            .option("checkpointLocation", str(places.checkpoints / "alerts"))
            .start()
        ),
    }


def _flights(spark: SparkSession, url: str) -> DataFrame:
    from pyspark.sql import functions as f

    records = (
        spark.readStream.format("amqp")
        .option("uri", url)
        .option("stream", broker.STREAM)
        .option("startingOffsets", "earliest")
        .option("maxRecordsPerTrigger", RECORDS_PER_TRIGGER_MAX)
        .schema("body BINARY, routing_key STRING, stream STRING, offset BIGINT")
        .load()
    )
    flight = f.from_json(f.col("body").cast("string"), SCHEMA, {"mode": "FAILFAST"})
    return records.select("offset", "stream", "routing_key", flight.alias("flight")).select(
        "offset",
        "stream",
        "routing_key",
        "flight.*",
        f.expr(
            "make_timestamp(flight.year, flight.month, flight.day, flight.hour, flight.minute, 0)"
        ).alias("departure"),
    )


def _named(spark: SparkSession, flights: DataFrame) -> DataFrame:
    """The flights with the names of airlines and airports; unknown ones stay without a name."""
    from pyspark.sql import functions as f

    carriers = spark.createDataFrame(airlines()).toDF("carrier", "airline")
    places = spark.createDataFrame(airports()[["faa", "name", "lat", "lon"]])
    origins = places.toDF("origin", "origin_name", "origin_lat", "origin_lon")
    destinations = places.toDF("dest", "dest_name", "dest_lat", "dest_lon")
    return (
        flights.join(f.broadcast(carriers), "carrier", "left")
        .join(f.broadcast(origins), "origin", "left")
        .join(f.broadcast(destinations), "dest", "left")
    )


def _delays(flights: DataFrame) -> DataFrame:
    from pyspark.sql import functions as f

    return (
        flights.withWatermark("departure", "2 days")
        .groupBy(f.window("departure", "1 day"), "origin")
        .agg(
            f.count("*").alias("flights"),
            f.count("dep_delay").alias("departed"),
            f.sum("dep_delay").alias("minutes"),
            f.max("dep_delay").alias("worst"),
        )
        .select(
            f.col("window.start").alias("day"), "origin", "flights", "departed", "minutes", "worst"
        )
    )


def _keep(changed: DataFrame, batch: int, path: Path) -> None:
    """Write the windows that a batch changed; the same batch again overwrites itself."""
    changed.coalesce(1).write.mode("overwrite").parquet(str(path / f"batch={batch}"))


def _alerts(named: DataFrame) -> DataFrame:
    from pyspark.sql import functions as f

    said = ["carrier", "flight", "airline", "origin", "origin_name", "dest", "dest_name"]
    said += ["departure", "dep_delay"]
    return named.where(f.col("dep_delay") > ALERT_MINUTES).select(
        f.to_json(f.struct(*said)).alias("value"),
        f.concat_ws(".", f.lit("alerts"), "origin", "carrier").alias("routing_key"),
        f.struct(
            f.lit("application/json").alias("content_type"),
            # The same for the same flight, however often Spark runs a batch.
            f.concat_ws(":", "stream", "offset").alias("message_id"),
        ).alias("properties"),
    )
