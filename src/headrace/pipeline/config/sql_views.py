# SPDX-License-Identifier: Apache-2.0
"""Parsing of the SQL of steps and rules before Spark starts, to find the views that it reads.

The parser finds missing views and texts that are not a query. Spark checks the rest of the SQL when
it starts. A step with `reads` is not parsed.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import sqlglot
from sqlglot import exp
from sqlglot.errors import ParseError, SqlglotError

_WINDOW = re.compile(r"\bwindow\s*\(", re.IGNORECASE)
FILE_FORMATS = frozenset({"parquet", "json", "csv", "orc", "text"})


@dataclass(frozen=True, slots=True)
class SqlError(ValueError):
    """A fault in an SQL text; `line` counts from 1 within the text."""

    line: int
    text: str


def find_views(sql: str) -> list[tuple[str, int]]:
    """Return the views that a query reads, each with the line, from 1, of its first mention.

    Files that the query reads directly are not views.

    Raises:
        SqlError: the text is not a query.
    """
    first_lines: dict[str, int] = {}
    query = parse_query(sql)
    if not isinstance(query, exp.Query):
        raise SqlError(1, f"a step is one query, such as SELECT; this is {query.key.upper()}")
    cte_names = {cte.alias_or_name.lower() for cte in query.find_all(exp.CTE)}
    for table in query.find_all(exp.Table):
        name = table.name
        if not name or name.lower() in cte_names or table.db.lower() in FILE_FORMATS:
            continue
        if isinstance(table.this, exp.Func) or table.find_ancestor(exp.Hint) is not None:
            continue  # A table function, or a name in a hint.
        first_lines.setdefault(name, find_line(sql, name))
    return list(first_lines.items())


def check_condition(text: str) -> None:
    """Raise SqlError unless the text is a single expression."""
    parse_query(f"SELECT ({text})", condition=text)


def condition_query(view: str, text: str) -> exp.Expression:
    """Return a parsed query that evaluates a condition on the rows of a view."""
    query = parse_query(f"SELECT ({text}) AS holds", condition=text)
    assert isinstance(query, exp.Select)
    return query.from_(exp.Table(this=exp.to_identifier(view, quoted=True)))


def parse_query(sql: str, *, condition: str | None = None) -> exp.Expression:
    """Parse an SQL text that is one query.

    `condition` is the condition of a rule for which the query was made. Then errors do not show the
    text near the fault, which may not be in the condition.

    Raises:
        SqlError: the text is not one query.
    """
    text = _WINDOW.sub("window_(", sql)  # sqlglot reserves the word `window`.
    try:
        statements = [
            statement for statement in sqlglot.parse(text, dialect="spark") if statement is not None
        ]
    except ParseError as error:
        first = error.errors[0] if error.errors else {}
        line = int(first.get("line") or 1)
        mistake = str(first.get("description") or error).rstrip(".")
        highlight = str(first.get("highlight") or "").strip()
        raise SqlError(
            line, f"{mistake}{f', at {highlight!r}' if highlight and condition is None else ''}"
        ) from None
    except SqlglotError as error:  # The text has no tokens of SQL.
        raise SqlError(1, str(error).splitlines()[0]) from None
    if len(statements) != 1:
        raise SqlError(1, f"a step is one query, not {len(statements)}")
    query = statements[0]
    assert isinstance(query, exp.Expression)
    return query


def find_line(sql: str, name: str) -> int:
    """Return the line, from 1, of the first occurrence of a name."""
    match = re.search(rf"(?<![\w.]){re.escape(name)}(?!\w)", sql)
    return sql.count("\n", 0, match.start()) + 1 if match else 1
