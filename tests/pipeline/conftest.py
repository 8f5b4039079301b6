# SPDX-License-Identifier: Apache-2.0
"""One Spark session and one broker for the pipelines' tests that ask for them."""

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

Make = Callable[..., "Pipeline"]
Complain = Callable[[str], list[str]]


@pytest.fixture
def make(tmp_path: Path) -> Make:
    """A pipeline of a text."""

    def parsed(text: str, **parameters: str) -> Pipeline:
        return parse(text, "pipeline.toml", tmp_path, parameters)

    return parsed


@pytest.fixture
def complain(tmp_path: Path) -> Complain:
    """Return the errors of a text: `line: where: text`."""

    def problems(text: str) -> list[str]:
        with pytest.raises(ConfigError) as caught:
            parse(text, "pipeline.toml", tmp_path)
        return [f"{one.line}: {one}" for one in caught.value.problems]

    return problems


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ChildBroker]:
    """A broker in a process of its own."""
    with ChildBroker(tmp_path_factory.mktemp("broker") / "data") as running:
        yield running


@pytest.fixture(scope="session")
def uri(broker: ChildBroker) -> str:
    """Its address."""
    return broker.url


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """A name that no other test uses."""
    test = re.sub(r"[^a-z0-9]+", "-", request.node.name.lower()).strip("-")
    return f"{test[:40].strip('-')}-{uuid.uuid4().hex[:8]}"


@pytest.fixture(scope="session")
def own_spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OneSpark]:
    """What makes the session of this directory."""
    from headrace.pipeline.run.session import session

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
    with OneSpark(lambda: session(settings, home), environment) as own:
        yield own


@pytest.fixture
def spark(own_spark: OneSpark) -> SparkSession:
    """A session of two cores, as a pipeline makes it."""
    return own_spark.session()


@pytest.fixture
def run(spark: SparkSession) -> Callable[[Pipeline], Status]:
    """Runs a pipeline until it has done what there is."""
    from headrace.pipeline.run.run import Run
    from headrace.pipeline.run.state import State

    def until_done(pipeline: Pipeline) -> Status:
        state = State(pipeline.state)
        with state.held():
            return Run(spark, pipeline.with_trigger("available-now"), state).run()

    return until_done
