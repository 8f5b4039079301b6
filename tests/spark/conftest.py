# SPDX-License-Identifier: Apache-2.0
"""One Spark session and one broker for all tests of this directory that ask for them.

The broker's user has a password that occurs nowhere else, so that a test can look for it wherever
Spark writes something down.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import headrace
from headrace.testing.broker import ChildBroker
from support.spark.single_spark import OneSpark
from support.stream_fixtures import connection, publish

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import DataFrame, SparkSession

__all__ = ["connection", "publish"]

USER = "spark"
VHOST = "pipelines"
PASSWORD = "hunter2-wanders-off"


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ChildBroker]:
    """A broker with the user of these tests."""
    data = tmp_path_factory.mktemp("broker") / "data"
    headrace_cli = [sys.executable, "-m", "headrace.cli"]
    environment = {**os.environ, "PYTHONPATH": str(Path(headrace.__file__).parent.parent)}
    for command in (
        ["user", "add", "--data", str(data), USER],
        ["vhost", "add", "--data", str(data), VHOST],
        ["permission", "set", "--data", str(data), "--vhost", VHOST, USER, ".*", ".*", ".*"],
    ):
        subprocess.run(
            headrace_cli + command, input=PASSWORD + "\n", text=True, check=True, env=environment
        )
    with ChildBroker(data) as running:
        yield running


@pytest.fixture(scope="session")
def uri(broker: ChildBroker) -> str:
    """The URL of the broker, with the password."""
    return broker.url_of(USER, PASSWORD, VHOST)


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """A name that no other test uses, made of the name of the test."""
    test = re.sub(r"[^a-z0-9]+", "-", request.node.name.lower()).strip("-")
    return f"{test[:80]}.{uuid.uuid4().hex[:8]}"


@pytest.fixture(scope="session")
def spark_log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file of Spark's log."""
    return tmp_path_factory.mktemp("spark") / "spark.log"


@pytest.fixture(scope="session")
def own_spark(spark_log: Path) -> Iterator[OneSpark]:
    """The factory of the Spark session of this directory."""
    from pyspark.sql import SparkSession

    scratch = spark_log.parent
    config = scratch / "log4j2.properties"
    config.write_text(
        "rootLogger.level = warn\n"
        "rootLogger.appenderRef.file.ref = file\n"
        "appender.file.type = File\n"
        "appender.file.name = file\n"
        f"appender.file.fileName = {spark_log}\n"
        "appender.file.layout.type = PatternLayout\n"
        "appender.file.layout.pattern = %d{HH:mm:ss} %p %c{1}: %m%n%ex\n"
    )
    environment = {
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYTHONPATH": str(Path(headrace.__file__).parent.parent),
    }
    builder = (
        SparkSession.builder.master("local[2]")
        .appName("headrace tests")
        .config("spark.driver.memory", "1g")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.extraJavaOptions", f"-Dlog4j2.configurationFile={config}")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.python.authenticate.socketTimeout", "120s")
        .config("spark.local.dir", str(scratch / "local"))
        .config("spark.sql.warehouse.dir", str(scratch / "warehouse"))
    )
    with OneSpark(builder.getOrCreate, environment) as own:
        yield own


@pytest.fixture
def spark(own_spark: OneSpark) -> SparkSession:
    """A session with two cores, which finds the data source without registration."""
    return own_spark.session()


@pytest.fixture
def read(spark: SparkSession, uri: str) -> Callable[..., DataFrame]:
    """Return a function that reads a stream as a batch."""

    def load(stream: str, **options: Any) -> DataFrame:
        reader = spark.read.format("amqp").option("uri", uri).option("stream", stream)
        return reader.options(**options).load()

    return load


@pytest.fixture
def follow(spark: SparkSession, uri: str) -> Callable[..., DataFrame]:
    """Return a function that reads a stream as a streaming query, by default from its beginning."""

    def load(stream: str, **options: Any) -> DataFrame:
        reader = spark.readStream.format("amqp").option("uri", uri).option("stream", stream)
        return reader.options(**{"startingOffsets": "earliest", **options}).load()

    return load
