# SPDX-License-Identifier: Apache-2.0
"""Resolution of the columns that a query reads and returns, before Spark starts.

Only columns that are certainly missing are reported. The columns of decoded bodies, of directories
of files, and of SQL with unnamed columns are unknown, so they are not checked.
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
class ResolvedColumns:
    """The columns that a query returns, and the columns that it reads and no view has."""

    output: Columns = None
    # Each missing column, with the columns that exist.
    missing: list[tuple[str, tuple[str, ...]]] = field(default_factory=list)


def resolve_columns(query: exp.Expression, views: Mapping[str, Columns]) -> ResolvedColumns:
    """Resolve the columns of a query; `views` has the columns of views by lower-case name."""
    resolved = ResolvedColumns()
    outputs: dict[int, Columns] = {}
    try:
        for scope in traverse_scope(query):
            outputs[id(scope.expression)] = _check_scope(scope, views, outputs, resolved)
    except SqlglotError:
        return ResolvedColumns()
    resolved.output = outputs.get(id(query))
    return resolved


def parse_ddl_columns(ddl: str) -> Columns:
    """Return the columns of a DDL text; None if the text cannot be parsed."""
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
    scope: Scope,
    views: Mapping[str, Columns],
    outputs: Mapping[int, Columns],
    resolved: ResolvedColumns,
) -> Columns:
    """Record the missing columns of a SELECT in `resolved`; return its output columns."""
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
                _check_column(column, sources, readable, aliases, resolved)
    return _output_columns(query, sources, readable)


def _source_columns(
    source: object, views: Mapping[str, Columns], outputs: Mapping[int, Columns]
) -> Columns:
    """Return the columns of a view or a subquery after FROM; None if they are unknown."""
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
    resolved: ResolvedColumns,
) -> None:
    """Record a column as missing if it is neither in `readable` nor an alias."""
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
        resolved.missing.append((name, columns))


def _output_columns(
    query: exp.Select, sources: Mapping[str, Columns], readable: Columns
) -> Columns:
    """Return the names of the columns after SELECT; None if one is unknown."""
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
