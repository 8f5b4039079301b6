# SPDX-License-Identifier: Apache-2.0
"""The Spark job: the ready-made pipelines `enrich` and `aggregate`, in one session.

- `enrich` joins each flight with the names of its airline and airports, writes all flights to
  Parquet, a directory for each month, and publishes an alert for each flight that left more than
  three hours late.
- `aggregate` counts and sums the departure delays by origin and day, in windows over event time,
  and merges the windows that a batch changed into a Delta table.

The time of an event is the scheduled departure in local time. All three origins are in New York.
The job reads their local time as UTC, the zone of the session, so a window of a day is a day in New
York, also when summer time begins or ends.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from demo import broker
from demo.flights import data_dir

if TYPE_CHECKING:
    from contextlib import ExitStack

    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

ALERT_MINUTES = 180
RECORDS_PER_TRIGGER_MAX = 60_000


@dataclass(frozen=True)
class Places:
    """The directories of the job."""

    lake: Path  # The results.
    state: Path  # Checkpoints and status of the pipelines.

    @property
    def archive(self) -> Path:
        """The Parquet files of flights, in a directory for each month."""
        return self.lake / "flights"

    @property
    def delays(self) -> Path:
        """The Delta table of windows."""
        return self.lake / "delays"


def start_session(scratch: Path) -> SparkSession:
    """Start a session of Spark with two cores and one gigabyte, whose files are in `scratch`."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    source_folder = str(Path(__file__).parent.parent)
    os.environ["PYTHONPATH"] = os.pathsep.join(
        filter(None, [os.environ.get("PYTHONPATH"), source_folder])
    )
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
        # A Python worker may start slowly on two busy cores.
        .config("spark.python.authenticate.socketTimeout", "120s")
        .config("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")
        .config("spark.local.dir", str(scratch / "spark"))
        .config("spark.sql.warehouse.dir", str(scratch / "warehouse"))
        .config(
            "spark.driver.extraJavaOptions",
            f"-Dlog4j2.configurationFile={_write_log_config(scratch)}",
        )
    )
    return builder.getOrCreate()


def _write_log_config(scratch: Path) -> Path:
    """Write the configuration of Spark's log, a file, because the terminal has progress bars."""
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


def start_queries(
    stack: ExitStack, spark: SparkSession, url: str, places: Places
) -> dict[str, StreamingQuery]:
    """Start the queries of both pipelines, which run until stopped; return them by name."""
    from headrace.pipeline.config.load import load
    from headrace.pipeline.run.run import Run
    from headrace.pipeline.run.state import StateDirectory

    queries: dict[str, StreamingQuery] = {}
    for name in ("enrich", "aggregate"):
        parameters = {
            "URL": url,
            "STREAM": broker.STREAM,
            "PATH_TO": str(places.lake),
            "STATE": str(places.state / name),
            "TRIGGER": "0 seconds",
            "BATCH_RECORDS": str(RECORDS_PER_TRIGGER_MAX),
        }
        if name == "enrich":
            parameters |= {
                "AIRLINES": str(data_dir() / "airlines.csv"),
                "AIRPORTS": str(data_dir() / "airports.csv"),
                "ALERTS": broker.ALERTS,
                "MINUTES": str(ALERT_MINUTES),
            }
        pipeline = load(f"ready:{name}", parameters)
        state = StateDirectory(pipeline.state)
        stack.enter_context(state.lock())
        queries |= Run(spark, pipeline, state).start()
    return queries
