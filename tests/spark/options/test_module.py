# SPDX-License-Identifier: Apache-2.0
"""The module by which Spark finds the data source."""

from __future__ import annotations

import subprocess
import sys

CODE = """
import sys
import pyspark_amqp
from pyspark.sql.datasource import DataSource

assert issubclass(pyspark_amqp.DefaultSource, DataSource)
assert pyspark_amqp.DefaultSource.name() == "amqp"
print(*sorted(name for name in sys.modules if name.startswith("headrace.")))
"""


def test_the_module_is_light() -> None:
    """Spark imports this module when a program uses a format that is not built in."""
    ran = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=True)
    assert ran.stdout.split() == ["headrace.spark", "headrace.spark.source"]
