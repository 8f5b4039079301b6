# SPDX-License-Identifier: Apache-2.0
"""Start of a pipeline's Spark session: without output, in UTC, and with this process's Python."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

import headrace
from headrace.pipeline.config.check import CONNECT_REFUSAL
from headrace.pipeline.config.errors import PipelineError
from headrace.spark.runtime import quick_start

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from headrace.pipeline.config.settings import Pipeline

T = TypeVar("T")

DEFAULT_SETTINGS: Final = {
    "spark.sql.redaction.options.regex": "(?i)url|uri",  # Hides addresses in plans.
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": "4",
    # A loaded machine may need longer than the default of 15 s to start a Python worker.
    "spark.python.authenticate.socketTimeout": "120s",
}
# These loggers print Spark's errors as JSON with stack traces; a pipeline reports them in one line.
NOISY_LOGGERS: Final = ("DataFrameQueryContextLogger", "SQLQueryContextLogger")
STARTS_MAX: Final = 10  # Attempts to start a query whose Python worker starts too slowly.
# The files of the sinks and the meaning of timestamps depend on these settings.
FIXED_SETTINGS: Final = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
}


def start_session(pipeline: Pipeline, state: Path) -> SparkSession:
    """Start a session with the settings of the file; logs go to `state`/spark.log.

    If this process has a session, return it. Settings that Spark reads at its start then have no
    effect.

    Raises:
        PipelineError: the environment names a server of Spark Connect.
    """
    if "SPARK_REMOTE" in os.environ:
        raise PipelineError(f"SPARK_REMOTE is set: {CONNECT_REFUSAL}")
    from pyspark.logger import PySparkLogger
    from pyspark.sql import SparkSession

    for name in NOISY_LOGGERS:
        PySparkLogger.getLogger(name).setLevel(logging.CRITICAL + 1)
    state.mkdir(parents=True, exist_ok=True)
    python = pipeline.spark.conf.get("spark.pyspark.python", sys.executable)
    os.environ.setdefault("PYSPARK_PYTHON", str(python))
    if pipeline.spark.master.startswith("local"):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        quick_start.use()
    source_folder = str(Path(headrace.__file__).parent.parent)
    paths = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    if source_folder not in paths:
        os.environ["PYTHONPATH"] = os.pathsep.join([source_folder, *filter(None, paths)])
    builder = SparkSession.builder.appName(f"headrace {pipeline.head.name}")
    builder = builder.master(pipeline.spark.master)
    conf = {**DEFAULT_SETTINGS, **_jar_setting(pipeline)}
    options = f"-Dlog4j2.configurationFile={_write_log_config(state)}"
    conf["spark.driver.extraJavaOptions"] = options
    for key, value in pipeline.spark.conf.items():
        text = str(value).lower() if isinstance(value, bool) else str(value)
        is_appended = key == "spark.driver.extraJavaOptions"
        conf[key] = f"{options} {text}" if is_appended else text
    if pipeline.spark.master.startswith("local"):
        conf.setdefault("spark.driver.host", "127.0.0.1")
    for key, value in {**conf, **FIXED_SETTINGS}.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("WARN")
    return spark


def is_slow_start(error: object) -> bool:
    """Return True if a Python worker did not start within Spark's limit.

    The limit is ten seconds, and no setting changes it. A loaded machine may need longer.
    """
    return "Python worker failed to connect back" in str(error)


def retry_slow_start(make: Callable[[], T]) -> T:
    """Return the result of `make`; call it again if a Python worker started too slowly."""
    for _ in range(STARTS_MAX - 1):
        try:
            return make()
        except Exception as error:
            if not is_slow_start(error):
                raise
    return make()


def _jar_setting(pipeline: Pipeline) -> dict[str, str]:
    """Return the setting for the database drivers that tables and sinks name."""
    tables = [*pipeline.tables.values(), *pipeline.sinks.values()]
    jars = sorted(
        {
            pipeline.resolve_path(str(jar))
            for table in tables
            if (jar := getattr(table, "jar", None))
        }
    )
    return {"spark.jars": ",".join(jars)} if jars else {}


def _write_log_config(state: Path) -> Path:
    """Write the configuration of Spark's log, and return its path."""
    path = state / "log4j2.properties"
    path.write_text(
        "rootLogger.level = warn\n"
        "rootLogger.appenderRef.file.ref = file\n"
        "appender.file.type = RollingFile\n"
        "appender.file.name = file\n"
        f"appender.file.fileName = {state / 'spark.log'}\n"
        f"appender.file.filePattern = {state / 'spark.log'}.%i\n"
        "appender.file.policies.type = Policies\n"
        "appender.file.policies.size.type = SizeBasedTriggeringPolicy\n"
        "appender.file.policies.size.size = 10MB\n"
        "appender.file.strategy.type = DefaultRolloverStrategy\n"
        "appender.file.strategy.max = 3\n"
        "appender.file.layout.type = PatternLayout\n"
        "appender.file.layout.pattern = %d{ISO8601} %p %c{1}: %m%n%ex\n"
    )
    return path
