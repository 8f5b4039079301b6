# SPDX-License-Identifier: Apache-2.0
"""The notebooks of the manual run from their first cell to their last."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark
NOTEBOOKS = sorted((Path(__file__).parents[2] / "docs" / "examples").glob("*.py"))


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=[path.stem for path in NOTEBOOKS])
def test_a_notebook_runs(notebook: Path, spark: SparkSession) -> None:
    namespace = runpy.run_path(str(notebook), run_name="notebook")
    assert namespace["reports"]


def test_there_are_notebooks() -> None:
    assert NOTEBOOKS
