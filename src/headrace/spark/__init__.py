# SPDX-License-Identifier: Apache-2.0
"""AMQP streams in Apache Spark, as the data source `amqp`.

Spark finds it through the module `pyspark_amqp`, without registration. The options are in
`headrace.columns.options`, the columns in `headrace.columns.schema`; see docs/guides/spark.md.

Spark's workers are the `python3` of the PATH unless PYSPARK_PYTHON names another. That Python may
lack this package, so importing this module names the driver's own, where nothing names one yet.
"""

import os
import shutil
import sys
from pathlib import Path

PYTHON = "PYSPARK_PYTHON"
SUBMITTED = "PYSPARK_SUBMIT_ARGS"  # May set the same by `spark.pyspark.python`.


def name_python() -> None:
    """Make Spark's workers use this Python, unless they do already or another one is set.

    Call it before the first session: Spark's JVM reads the variable when it starts.
    """
    if PYTHON in os.environ or "spark.pyspark.python" in os.environ.get(SUBMITTED, ""):
        return
    usual = shutil.which("python3")
    if sys.executable and (usual is None or not _same(usual, sys.executable)):
        os.environ[PYTHON] = sys.executable


def _same(one: str, other: str) -> bool:
    """Return True if two paths are one Python with one set of packages."""
    here, there = Path(one).absolute(), Path(other).absolute()
    return here.parent == there.parent and here.resolve() == there.resolve()


name_python()
