# SPDX-License-Identifier: Apache-2.0
"""Metrics that a query observes of its rows: the numbers that its rules checked and refused."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

# Prefixes of the names of rules. Metrics: `checked` rows, and the `rows` that did not hold.
REJECTED: Final = "headrace.rejected."
WARNED: Final = "headrace.warned."  # Rows that went on.


def rejected_rows(observed: object) -> dict[str, int]:
    """Return the rows that each rule rejected in a batch, of its progress's observed metrics."""
    return {rule: rows for rule, rows in _metrics(observed, REJECTED, "rows").items() if rows}


def warned_rows(observed: object) -> dict[str, int]:
    """Return the rows of a batch that each rule with the action `warn` let through."""
    return {rule: rows for rule, rows in _metrics(observed, WARNED, "rows").items() if rows}


def checked_rows(observed: object) -> dict[str, int]:
    """Return the rows of a batch that each rule was asked about."""
    return {
        rule: rows
        for prefix in (REJECTED, WARNED)
        for rule, rows in _metrics(observed, prefix, "checked").items()
    }


def _metrics(observed: object, prefix: str, metric: str) -> dict[str, int]:
    rows_by_rule: dict[str, int] = {}
    if not isinstance(observed, Mapping):
        return rows_by_rule
    for name, metrics in observed.items():
        if not str(name).startswith(prefix):
            continue
        try:
            rows = metrics[metric]
        except (KeyError, ValueError):  # A row of Spark raises ValueError for a name it lacks.
            continue
        if isinstance(rows, int):
            rows_by_rule[str(name).removeprefix(prefix)] = rows
    return rows_by_rule
