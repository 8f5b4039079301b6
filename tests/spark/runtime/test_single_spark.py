# SPDX-License-Identifier: Apache-2.0
"""Sessions of the tests: one at a time, each for as long as the tests that asked for it."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from support.spark.single_spark import OneSpark

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow]


ENVIRONMENT = {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}


def test_a_session_begins_after_one_that_ended_or_died(tmp_path: Path) -> None:
    from py4j.protocol import Py4JError

    def make() -> SparkSession:
        from pyspark.sql import SparkSession

        builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
        return builder.config("spark.local.dir", str(tmp_path)).getOrCreate()

    def answers(session: SparkSession) -> bool:
        return session.sparkContext.statusTracker().getActiveJobsIds() == []

    with OneSpark(make, ENVIRONMENT) as first, OneSpark(make, ENVIRONMENT) as second:
        ended = first.session()
        assert first.session() is ended
        assert answers(ended)
        killed = second.session()
        assert answers(killed)
        machine = killed.sparkContext._gateway.proc  # type: ignore[union-attr]
        machine.kill()
        machine.wait()
        with pytest.raises((Py4JError, OSError)):
            answers(killed)
        assert first.session() is not ended
        assert first.session().range(3).count() == 3
