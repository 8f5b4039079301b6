# SPDX-License-Identifier: Apache-2.0
"""A session of the tests after one whose Java machine died: a second try needs it."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from support.spark.single_spark import only_spark

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def test_a_session_begins_after_one_whose_machine_died(tmp_path: Path) -> None:
    from py4j.protocol import Py4JError
    from pyspark.sql import SparkSession

    environment = {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}

    def make() -> SparkSession:
        builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
        return builder.config("spark.local.dir", str(tmp_path)).getOrCreate()

    def kill(session: SparkSession) -> None:
        machine = session.sparkContext._gateway.proc  # type: ignore[union-attr]
        machine.kill()
        machine.wait()

    with only_spark(make, environment) as session:
        assert session.range(3).count() == 3
        kill(session)
        with pytest.raises((Py4JError, OSError)):
            session.range(3).count()
    with only_spark(make, environment) as session:
        assert session.range(3).count() == 3
