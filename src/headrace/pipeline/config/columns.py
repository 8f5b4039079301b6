# SPDX-License-Identifier: Apache-2.0
"""The columns that a query reads and returns, found before Spark starts.

Only columns that are certainly missing are reported. The columns of a decoded body, of a directory
of files, and of SQL with unnamed columns are unknown, and not checked.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError
from sqlglot.optimizer.scope import Scope, traverse_scope

Columns = tuple[str, ...] | None  # Names in lower case, as Spark ignores case; None if unknown.

# Names that are not columns of a view: Spark's own columns, and units of time in arguments.
SPARK_COLUMNS = frozenset(("window", "session_window", "_metadata", "_corrupt_record", "all"))
TIME_UNITS = frozenset(("year", "quarter", "month", "week", "day", "hour", "minute", "second"))


@dataclass
class QueryColumns:
    """The columns that a query returns, and the missing columns that it reads."""

    output: Columns = None
    # Each missing column, with the existing ones.
    missing: list[tuple[str, tuple[str, ...]]] = field(default_factory=list)


def query_columns(query: exp.Expression, views: Mapping[str, Columns]) -> QueryColumns:
    """Return the columns of a query; the keys of `views` are in lower case."""
    result = QueryColumns()
    outputs: dict[int, Columns] = {}
    try:
        for scope in traverse_scope(query):
            outputs[id(scope.expression)] = _check_scope(scope, views, outputs, result)
    except SqlglotError:
        return QueryColumns()
    result.output = outputs.get(id(query))
    return result


def parse_ddl_columns(ddl: str) -> Columns:
    """Return the columns of a DDL text; None when it cannot be parsed."""
    try:
        table = sqlglot.parse_one(f"CREATE TABLE t ({ddl})", dialect="spark")
    except SqlglotError:
        return None
    return tuple(
        definition.name.lower()
        for definition in table.find_all(exp.ColumnDef)
        if _is_outermost(definition)
    )


def _is_outermost(column: exp.Expression) -> bool:
    return column.find_ancestor(exp.DataType) is None


def _check_scope(
    scope: Scope, views: Mapping[str, Columns], outputs: Mapping[int, Columns], result: QueryColumns
) -> Columns:
    """Record the missing columns of a SELECT in the result; return its output columns."""
    query = scope.expression
    if not isinstance(query, exp.Select):
        return outputs.get(id(query.this)) if isinstance(query, exp.SetOperation) else None
    sources = {
        name.lower(): _source_columns(source, views, outputs)
        for name, source in scope.sources.items()
    }
    if query.args.get("laterals") or any(query.find_all(exp.Pivot)):
        sources[""] = None
    readable: Columns = ()
    for columns in sources.values():
        readable = None if readable is None or columns is None else (*readable, *columns)
    if not scope.is_subquery:
        aliases = {projection.alias.lower() for projection in query.selects if projection.alias}
        for column in scope.columns:
            if column.parent_select is query:  # An inner query may name columns of an outer one.
                _check_column(column, sources, readable, aliases, result)
    return _output_columns(query, sources, readable)


def _source_columns(
    source: object, views: Mapping[str, Columns], outputs: Mapping[int, Columns]
) -> Columns:
    if isinstance(source, Scope):
        return outputs.get(id(source.expression))
    if isinstance(source, exp.Table) and not source.db and isinstance(source.this, exp.Identifier):
        alias = source.args.get("alias")
        return None if alias is not None and alias.columns else views.get(source.name.lower())
    return None


def _check_column(
    column: exp.Column,
    sources: Mapping[str, Columns],
    readable: Columns,
    aliases: Collection[str],
    result: QueryColumns,
) -> None:
    parts = [part.name for part in column.parts]
    if column.find_ancestor(exp.Hint, exp.Lambda, exp.Kwarg) is not None:
        return
    if len(parts) > 1 and parts[0].lower() in sources:
        name, columns = parts[1], sources[parts[0].lower()]
    else:
        name, columns = parts[0], readable
        if name.lower() in aliases or name.lower() in SPARK_COLUMNS | TIME_UNITS:
            return
    if columns is not None and name != "*" and name.lower() not in columns:
        result.missing.append((name, columns))


def _output_columns(
    query: exp.Select, sources: Mapping[str, Columns], readable: Columns
) -> Columns:
    names: list[str] = []
    for projection in query.selects:
        columns: Columns
        if isinstance(projection, exp.Star):
            columns = None if any(projection.args.values()) else readable
        elif isinstance(projection, exp.Column) and isinstance(projection.this, exp.Star):
            columns = (
                None
                if any(projection.this.args.values())
                else sources.get(projection.table.lower())
            )
        else:
            name = projection.alias or (
                projection.name if isinstance(projection, exp.Column | exp.Dot) else ""
            )
            columns = (name.lower(),) if name else None  # Spark chooses the name of this column.
        if columns is None or isinstance(projection, exp.Aliases):
            return None
        names += columns
    return tuple(names)
