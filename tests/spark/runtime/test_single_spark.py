# SPDX-License-Identifier: Apache-2.0
"""Sessions of the tests: one at a time, each for as long as the tests that asked for it."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from support.spark.single_spark import OneSpark

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow]


ENVIRONMENT = {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}


@pytest.fixture
def make(tmp_path: Path) -> Callable[[], SparkSession]:
    """Makes the smallest session."""

    def made() -> SparkSession:
        from pyspark.sql import SparkSession

        builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
        return builder.config("spark.local.dir", str(tmp_path)).getOrCreate()

    return made


def test_a_session_begins_after_one_whose_machine_died(make: Callable[[], SparkSession]) -> None:
    from py4j.protocol import Py4JError

    def kill(session: SparkSession) -> None:
        machine = session.sparkContext._gateway.proc  # type: ignore[union-attr]
        machine.kill()
        machine.wait()

    with OneSpark(make, ENVIRONMENT) as own:
        session = own.session()
        assert session.range(3).count() == 3
        kill(session)
        with pytest.raises((Py4JError, OSError)):
            session.range(3).count()
    with OneSpark(make, ENVIRONMENT) as own:
        assert own.session().range(3).count() == 3


def test_a_session_that_another_ended_begins_again(make: Callable[[], SparkSession]) -> None:
    with OneSpark(make, ENVIRONMENT) as first, OneSpark(make, ENVIRONMENT) as second:
        assert first.session() is first.session()
        ended = first.session()
        assert second.session().range(3).count() == 3
        assert first.session() is not ended
        assert first.session().range(3).count() == 3
