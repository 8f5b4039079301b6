# SPDX-License-Identifier: Apache-2.0
"""A driver that runs by a virtual environment's path, where `python3` is another Python."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Callable
from pathlib import Path

import pytest

import headrace
from support.timeouts import PATIENCE_S

DRIVER = """
import sys
{first}
from pyspark.sql import SparkSession

spark = SparkSession.builder.master("local[1]").config("spark.driver.host", "127.0.0.1")
spark = spark.config("spark.ui.enabled", "false").getOrCreate()
rows = spark.read.format("amqp").option("uri", sys.argv[1]).option("stream", sys.argv[2]).load()
print("rows:", rows.select("body").count(), sorted(bytes(row.body) for row in rows.collect()))
"""


@pytest.fixture
def pythons(tmp_path: Path) -> tuple[Path, Path]:
    """Return the Python of a virtual environment with Headrace and Spark, and of an empty one."""
    full, bare = tmp_path / "full", tmp_path / "bare"
    for home in (full, bare):
        venv.create(home, symlinks=True)
    places = [str(Path(headrace.__file__).parent.parent), sysconfig.get_paths()["purelib"]]
    (packages,) = (full / "lib").glob("python*/site-packages")
    (packages / "places.pth").write_text("\n".join(places) + "\n")
    return full / "bin" / "python", bare / "bin"


def run(
    pythons: tuple[Path, Path], uri: str, stream: str, first: str, **more: str
) -> subprocess.CompletedProcess[str]:
    python, path = pythons
    named = ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON", "PYTHONPATH", "VIRTUAL_ENV")
    environment = {key: value for key, value in os.environ.items() if key not in named}
    return subprocess.run(
        [str(python), "-c", DRIVER.format(first=first), uri, stream],
        env={
            **environment,
            "PATH": f"{path}:{os.environ['PATH']}",
            "SPARK_LOCAL_IP": "127.0.0.1",
            **more,
        },
        cwd=path,
        capture_output=True,
        text=True,
        timeout=10 * PATIENCE_S,
        check=False,
    )


def test_importing_the_package_first_makes_spark_find_it(
    pythons: tuple[Path, Path], uri: str, name: str, publish: Callable[..., None]
) -> None:
    publish(name, "a", "b")
    ran = run(pythons, uri, name, "import headrace.spark")
    assert "rows: 2 [b'a', b'b']" in ran.stdout, ran.stderr[-3000:]


NAMED: list[tuple[dict[str, str], bool, str | None]] = [
    ({}, False, sys.executable),
    ({}, True, None),
    ({"PYSPARK_PYTHON": "python3.9"}, False, "python3.9"),
    ({"PYSPARK_SUBMIT_ARGS": "--conf spark.pyspark.python=/p pyspark-shell"}, False, None),
]


@pytest.mark.parametrize(("environment", "usual", "named"), NAMED)
def test_a_python_is_named_where_nothing_names_one(
    environment: dict[str, str],
    usual: bool,
    named: str | None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With ``usual`` the driver runs the `python3` of the PATH."""
    from headrace.spark import name_python

    python_link = tmp_path / "python3"
    python_link.symlink_to(sys.executable)
    for key in ("PYSPARK_PYTHON", "PYSPARK_SUBMIT_ARGS"):
        monkeypatch.delenv(key, raising=False)
    for key, value in environment.items():
        monkeypatch.setenv(key, value)
    monkeypatch.setenv("PATH", str(tmp_path))
    if usual:
        monkeypatch.setattr(sys, "executable", str(python_link))
    name_python()
    assert os.environ.get("PYSPARK_PYTHON") == named
