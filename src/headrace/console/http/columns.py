# SPDX-License-Identifier: Apache-2.0
"""The parameter ``columns``: objects and rows with only the fields that a query names."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headrace.console.http.query import Query
    from headrace.untyped import JsonObject

#: Columns by name, each with the columns of its object; empty: all columns.
Columns = dict[str, "Columns"]


def requested_columns(query: Query) -> Columns:
    """Return the columns that a query names; a dot separates a column from one of its object."""
    columns: Columns = {}
    names = query.get("columns", "").split(",")
    paths = [[key for key in name.split(".") if key] for name in names]
    for path in sorted(filter(None, paths), key=len, reverse=True):
        level = columns
        for key in path[:-1]:
            level = level.setdefault(key, {})
        level[path[-1]] = {}  # The whole column, even if the query also names a part of it.
    return columns


def select_columns(row: JsonObject, columns: Columns) -> JsonObject:
    """Return a row with only some columns; the whole row for no columns.

    As in RabbitMQ, a column that the row lacks is left out, and the columns of a list select from
    the objects in it. A value that has no columns is returned whole.
    """
    if not columns:
        return row
    return {key: select_below(row[key], inner) for key, inner in columns.items() if key in row}


def select_below(value: object, columns: Columns) -> object:
    """Return the value of a column with only some of its own columns."""
    if isinstance(value, dict):
        return select_columns(value, columns)
    if isinstance(value, list) and columns:
        return [select_below(item, columns) for item in value]
    return value
