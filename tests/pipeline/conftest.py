# SPDX-License-Identifier: Apache-2.0
"""Fixtures for tests of pipelines: one Spark session and one broker."""

from __future__ import annotations

import re
import sys
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import headrace
from headrace.pipeline.config.errors import ConfigError
from headrace.pipeline.config.load import parse
from headrace.testing.broker import ChildBroker
from support.spark.single_spark import OneSpark
from support.stream_fixtures import connection, publish

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from headrace.pipeline.config.settings import Pipeline
    from headrace.pipeline.run.state import Status

__all__ = ["connection", "publish"]

ParsePipeline = Callable[..., "Pipeline"]
FindProblems = Callable[[str], list[str]]


@pytest.fixture
def parse_pipeline(tmp_path: Path) -> ParsePipeline:
    """Return a function that parses the text of a pipeline's file."""

    def parse_text(text: str, **parameters: str) -> Pipeline:
        return parse(text, "pipeline.toml", tmp_path, parameters)

    return parse_text


@pytest.fixture
def problems_in(tmp_path: Path) -> FindProblems:
    """Return a function that lists the problems of a text as `line: key: fault`."""

    def find_problems(text: str) -> list[str]:
        with pytest.raises(ConfigError) as caught:
            parse(text, "pipeline.toml", tmp_path)
        return [f"{problem.line}: {problem}" for problem in caught.value.problems]

    return find_problems


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ChildBroker]:
    """A broker in a separate process."""
    with ChildBroker(tmp_path_factory.mktemp("broker") / "data") as running:
        yield running


@pytest.fixture(scope="session")
def uri(broker: ChildBroker) -> str:
    """The address of the broker."""
    return broker.url


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """A name that no other test uses."""
    test = re.sub(r"[^a-z0-9]+", "-", request.node.name.lower()).strip("-")
    return f"{test[:40].strip('-')}-{uuid.uuid4().hex[:8]}"


@pytest.fixture(scope="session")
def spark_holder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OneSpark]:
    """The holder of the Spark session of this directory's tests."""
    from headrace.pipeline.run.session import start_session

    home = tmp_path_factory.mktemp("spark")
    package = str(Path(headrace.__file__).parent.parent)
    environment = {
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYTHONPATH": package,
    }
    text = f"""
        [pipeline]
        name = "tests"
        [spark]
        master = "local[2]"
        [spark.conf]
        "spark.driver.memory" = "1g"
        "spark.sql.shuffle.partitions" = 2
        "spark.local.dir" = "{home / "local"}"
        "spark.sql.warehouse.dir" = "{home / "warehouse"}"
        "spark.driver.extraJavaOptions" = "-Dderby.stream.error.file={home / "derby.log"}"
        [tables.one]
        type = "rows"
        ddl = "a INT"
        rows = []
        [sinks.none]
        from = "one"
        type = "console"
    """
    settings = parse(text, "tests.toml", home)
    with OneSpark(lambda: start_session(settings, home), environment) as own:
        yield own


@pytest.fixture
def spark(spark_holder: OneSpark) -> SparkSession:
    """A session with two cores, started like that of a pipeline."""
    return spark_holder.session()


@pytest.fixture
def run(spark: SparkSession) -> Callable[[Pipeline], Status]:
    """Return a function that runs a pipeline until all present records are processed."""
    from headrace.pipeline.run.run import Run
    from headrace.pipeline.run.state import StateDirectory

    def run_available(pipeline: Pipeline) -> Status:
        state = StateDirectory(pipeline.state)
        with state.lock():
            return Run(spark, pipeline.with_trigger("available-now"), state).run()

    return run_available
