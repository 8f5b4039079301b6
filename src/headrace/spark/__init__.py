# SPDX-License-Identifier: Apache-2.0
"""AMQP streams in Apache Spark, as the data source `amqp`.

Spark finds the source through the module `pyspark_amqp`, without registration. The options are in
`headrace.columns.options`, the columns in `headrace.columns.schema`; see docs/guides/spark.md.

Spark's workers run the `python3` of the PATH unless PYSPARK_PYTHON names another Python. The Python
of the PATH may lack this package, so importing this module sets the variable to the driver's own
Python. If the user has chosen a Python, the import changes nothing.
"""

import os
import shutil
import sys
from pathlib import Path

PYTHON_VARIABLE = "PYSPARK_PYTHON"
SUBMIT_ARGUMENTS = "PYSPARK_SUBMIT_ARGS"  # May set `spark.pyspark.python` to the same effect.


def name_python() -> None:
    """Make Spark's workers run this process's Python, unless the user has chosen one.

    Call this before the first session, because Spark's JVM reads the variable when it starts.
    """
    if PYTHON_VARIABLE in os.environ or "spark.pyspark.python" in os.environ.get(
        SUBMIT_ARGUMENTS, ""
    ):
        return
    default_python = shutil.which("python3")
    if sys.executable and (
        default_python is None or not _is_same_python(default_python, sys.executable)
    ):
        os.environ[PYTHON_VARIABLE] = sys.executable


def _is_same_python(path: str, other_path: str) -> bool:
    """Return True if two paths are the same Python with the same packages."""
    absolute, other_absolute = Path(path).absolute(), Path(other_path).absolute()
    return (
        absolute.parent == other_absolute.parent and absolute.resolve() == other_absolute.resolve()
    )


name_python()
