# SPDX-License-Identifier: Apache-2.0
"""Computation of the rows of a batch without writing them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def compute_rows(rows: DataFrame) -> None:
    """Compute all rows and discard them, because the state of the query depends on every row."""
    rows.write.format("noop").mode("overwrite").save()
