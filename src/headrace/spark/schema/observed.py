# SPDX-License-Identifier: Apache-2.0
"""Observed metrics of a query: the rows that its rules checked, rejected and warned of."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

# The name of an observation is one of these prefixes and the name of a rule. Its metric `checked`
# counts all rows, and its metric `rows` the rows that break the rule.
REJECTED: Final = "headrace.rejected."
WARNED: Final = "headrace.warned."


def rejected_rows(observed: object) -> dict[str, int]:
    """Return the number of rows of a batch that each rule rejected, without zeros."""
    return {rule: rows for rule, rows in _read_metric(observed, REJECTED, "rows").items() if rows}


def warned_rows(observed: object) -> dict[str, int]:
    """Return the number of rows of a batch that each rule warned of, without zeros."""
    return {rule: rows for rule, rows in _read_metric(observed, WARNED, "rows").items() if rows}


def checked_rows(observed: object) -> dict[str, int]:
    """Return the number of rows of a batch that each rule checked."""
    return {
        rule: rows
        for prefix in (REJECTED, WARNED)
        for rule, rows in _read_metric(observed, prefix, "checked").items()
    }


def _read_metric(observed: object, prefix: str, metric: str) -> dict[str, int]:
    """Return one metric of the observations with a prefix, by rule."""
    rows_by_rule: dict[str, int] = {}
    if not isinstance(observed, Mapping):
        return rows_by_rule
    for name, metrics in observed.items():
        if not str(name).startswith(prefix):
            continue
        try:
            rows = metrics[metric]
        except (KeyError, ValueError):  # Spark's Row raises ValueError for an unknown name.
            continue
        if isinstance(rows, int):
            rows_by_rule[str(name).removeprefix(prefix)] = rows
    return rows_by_rule
