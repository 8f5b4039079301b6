# SPDX-License-Identifier: Apache-2.0
"""Parsing of a query by DuckDB, and replacement of its table references.

DuckDB returns the tree of a SELECT as JSON, and an error for other statements. A table reference is
a name in FROM, or a call of one of the functions in `FUNCTIONS`. A generated name replaces it,
because names in AMQP are case-sensitive and names in DuckDB are not.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import duckdb

    from headrace.untyped import Json, JsonObject

FUNCTIONS: Final = ("stream", "queue", "archive")
DUCKDB_SCHEMAS: Final = ("information_schema", "pg_catalog", "system")  # DuckDB's own schemas.
NAME_PREFIX: Final = "headrace_"  # A generated name has this prefix and a number.
SQL_LENGTH_MAX: Final = 1 << 20  # Characters.


class QueryError(ValueError):
    """A query cannot be run; the text has the reason."""


@dataclass(frozen=True, slots=True)
class TableReference:
    """A reference to a source that a query reads."""

    kind: str  # One of `FUNCTIONS`; "" for a name without a function.
    name: str
    arguments: tuple[tuple[str, object], ...] = ()


@dataclass(slots=True)
class Statement:
    """A query in which generated names replace the table references."""

    sql: str = ""
    references: dict[str, TableReference] = field(default_factory=dict)  # By generated name.


def parse_statement(connection: duckdb.DuckDBPyConnection, text: str) -> Statement:
    """Parse a query; replace its table references by generated names.

    Raises:
        QueryError: the text is too long, invalid, or not a single SELECT.
    """
    if len(text) > SQL_LENGTH_MAX:
        raise QueryError(f"the query has more than {SQL_LENGTH_MAX} characters")
    tree = _parse_tree(connection, text)
    if len(tree["statements"]) != 1:
        raise QueryError(f"expected one query, not {len(tree['statements'])}")
    statement = Statement()
    names: dict[TableReference, str] = {}
    for node, ctes in _find_tables(tree["statements"][0]["node"], frozenset()):
        reference = _read_reference(connection, node, ctes)
        if reference is None:
            continue
        generated = names.setdefault(reference, f"{NAME_PREFIX}{len(names)}")
        statement.references[generated] = reference
        _rename(node, generated, node["alias"] or reference.name)
    [(statement.sql,)] = connection.execute(
        "SELECT json_deserialize_sql(?)", [json.dumps(tree)]
    ).fetchall()
    return statement


def _parse_tree(connection: duckdb.DuckDBPyConnection, text: str) -> JsonObject:
    [(answer,)] = connection.execute("SELECT json_serialize_sql(?)", [text]).fetchall()
    tree: JsonObject = json.loads(answer)
    if tree["error"]:
        if tree["error_type"] == "not implemented":
            raise QueryError("only SELECT is allowed: a query changes nothing")
        position = f" at character {int(tree['position']) + 1}" if "position" in tree else ""
        raise QueryError(f"{tree['error_message']}{position}")
    return tree


def _find_tables(node: Json, ctes: frozenset[str]) -> Iterator[tuple[JsonObject, frozenset[str]]]:
    """Yield each table of a tree, with the names that WITH defines in its scope."""
    if isinstance(node, list):
        for child in node:
            yield from _find_tables(child, ctes)
        return
    if not isinstance(node, dict):
        return
    if node.get("type") == "RECURSIVE_CTE_NODE":
        ctes |= {node["cte_name"].lower()}
    for entry in node.get("cte_map", {}).get("map", ()):
        yield from _find_tables(entry["value"], ctes)
        ctes |= {entry["key"].lower()}
    if node.get("type") in ("BASE_TABLE", "TABLE_FUNCTION"):
        yield node, ctes
    for key, value in node.items():
        if key != "cte_map":
            yield from _find_tables(value, ctes)


def _read_reference(
    connection: duckdb.DuckDBPyConnection, node: JsonObject, ctes: frozenset[str]
) -> TableReference | None:
    """Return the reference of a table; None for tables of DuckDB and of WITH."""
    if node["type"] == "TABLE_FUNCTION":
        function = node["function"]
        name = function["function_name"].lower()
        if name not in FUNCTIONS:
            return None
        return _read_call(connection, name, function["arguments"])
    name, schema = node["table_name"], node["schema_name"]
    if not schema:
        return None if name.lower() in ctes else TableReference("", name)
    if schema.lower() in DUCKDB_SCHEMAS:
        return None
    raise QueryError(f'the name {schema}.{name} needs quotes: "{schema}.{name}"')


def _read_call(
    connection: duckdb.DuckDBPyConnection, function: str, arguments: list[JsonObject]
) -> TableReference:
    """Return the reference of a call: one name, then arguments by name."""
    values: dict[str, object] = {}
    for index, argument in enumerate(arguments):
        expression = {**argument["expression"], "alias": ""}
        name = argument["name"].lower() or ("name" if index == 0 else "")
        if not name or name in values:
            raise QueryError(
                f"{function}() takes one name, and then arguments by name: "
                f"{function}('orders', first := 5)"
            )
        values[name] = _evaluate(connection, function, name, expression)
    if not isinstance(values.get("name"), str):
        raise QueryError(f"{function}() needs a name in quotes: {function}('orders')")
    name = str(values.pop("name"))
    return TableReference(function, name, tuple(values.items()))


def _evaluate(
    connection: duckdb.DuckDBPyConnection, function: str, name: str, expression: JsonObject
) -> object:
    """Return the value of a constant argument."""
    tree = _parse_tree(connection, "SELECT 1")
    tree["statements"][0]["node"]["select_list"] = [expression]
    [(sql,)] = connection.execute("SELECT json_deserialize_sql(?)", [json.dumps(tree)]).fetchall()
    if next(_find_tables(tree, frozenset()), None) is not None:
        raise QueryError(f"argument {name!r} of {function}() must be a constant")
    import duckdb

    try:
        [(value,)] = connection.execute(sql).fetchall()
    except duckdb.Error as error:
        raise QueryError(f"argument {name!r} of {function}(): {error}") from None
    return tuple(value) if isinstance(value, list) else value


def _rename(node: JsonObject, name: str, alias: str) -> None:
    """Replace a node by a table with a generated name and an alias."""
    common = {key: node[key] for key in ("sample", "query_location", "query_location_length")}
    names = node["column_name_alias"]
    node.clear()
    node.update(
        {
            **common,
            "type": "BASE_TABLE",
            "alias": alias,
            "schema_name": "",
            "catalog_name": "",
            "table_name": name,
            "qualified_name": {"path": [name]},
            "column_name_alias": names,
            "at_clause": None,
        }
    )
