# SPDX-License-Identifier: Apache-2.0
"""Tables within a page: the address sets order and filter of each, and each is also a file."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.console.http.paging import sort_rows
from headrace.console.http.query import is_true
from headrace.console.http.routes import Parameter
from headrace.console.http_errors import not_found
from headrace.console.pages.columns import ADDRESS, Column
from headrace.console.pages.exports import FORMATS, file_of
from headrace.console.pages.listings import NO_MATCH, Row, address, head_of, no_rows, row_of
from headrace.console.pages.texts import compact

if TYPE_CHECKING:
    from headrace.console.http.answers import RowList, Text
    from headrace.console.http.call import HttpCall
    from headrace.console.pages.links import RowAddress
    from headrace.untyped import JsonObject

ROWS_MAX = 200  # Rows of a table within a page; its files have all rows.
QUERY = (
    Parameter("sort_1", "The column to sort the first table by; `sort_2` the second."),
    Parameter("sort_reverse_1", "The first table in descending order.", "boolean"),
    Parameter("has_1", "Only rows of the first table with this text in a column."),
    Parameter("format", "`csv` or `json`: all rows of a table, as a file."),
    Parameter("part", "The number of the table that `format` exports.", "integer"),
)


@dataclass(frozen=True, slots=True)
class InnerTable:
    """A table of objects that belong to the object of a page."""

    title: str
    columns: tuple[Column, ...]
    rows: Callable[[HttpCall], Awaitable[RowList]] | None = None  # None: the field has them.
    field: str = ""  # The field of the object that has the rows.
    link: RowAddress | None = None  # The address of a row's page.
    empty: str = ""  # The text of an empty table; empty for "No" and the title.


@dataclass(frozen=True, slots=True)
class TableView:
    """A table for a template."""

    table: InnerTable
    number: int  # The number of the table in the page, from 1.
    heads: list[tuple[Column, str, str]]
    rows: list[Row]
    count: int  # The number of all rows.
    empty: str
    has: str  # The text of the filter.
    files: dict[str, str]  # Addresses of the files, by format.
    hidden: dict[str, str]  # Parameters that the form of the filter sends unchanged.


async def tables_of(
    call: HttpCall, tables: tuple[InnerTable, ...], row: JsonObject
) -> list[TableView]:
    """Return the tables of the object of a page."""
    return [
        table_view(call, table, number, await rows_of(call, table, number, row))
        for number, table in enumerate(tables, 1)
    ]


async def file_of_table(
    call: HttpCall, kind: str, tables: tuple[InnerTable, ...], row: JsonObject
) -> Text | None:
    """Return the file of the table that the query names; None if the query names no format.

    Raises:
        HttpError: the page has no such table, or the format is unknown.
    """
    file_format = call.query.get("format")
    if not file_format:
        return None
    for number, table in enumerate(tables, 1):
        if call.query.get("part") == str(number):
            name = f"{kind}-{table.title}".lower().replace(" ", "-")
            rows = await rows_of(call, table, number, row)
            return file_of(name, table.columns, rows, file_format)
    raise not_found()


async def rows_of(
    call: HttpCall, table: InnerTable, number: int, row: JsonObject
) -> list[JsonObject]:
    """Return the rows of a table that match its filter, in its order."""
    order: tuple[str, ...] = ()
    if table.rows is None:
        rows = list(row[table.field])
    else:
        listed = await table.rows(call)
        rows, order = list(listed.rows), listed.order
    if has := call.query.get(f"has_{number}", "").lower():
        rows = [each for each in rows if has_text(each, table.columns, has)]
    column = call.query.get(f"sort_{number}", "")
    if not column and not order:
        return rows
    backwards = "true" if is_true(call.query.get(f"sort_reverse_{number}")) else ""
    return sort_rows(rows, {"sort": column, "sort_reverse": backwards}, order)


def has_text(row: JsonObject, columns: tuple[Column, ...], text: str) -> bool:
    """Return True if a column of a row contains a text, which is in lower case."""
    visible = (column for column in columns if column.kind != ADDRESS)
    return any(text in compact(column.value(row)).lower() for column in visible)


def table_view(call: HttpCall, table: InnerTable, number: int, rows: list[JsonObject]) -> TableView:
    """Return a table for a template, with its first rows."""
    has = f"has_{number}"
    empty = NO_MATCH if call.query.get(has) else table.empty or no_rows(table.title)
    return TableView(
        table=table,
        number=number,
        heads=[(column, *head_of(call, column, f"_{number}")) for column in table.columns],
        rows=[row_of(call, row, table.columns, table.link) for row in rows[:ROWS_MAX]],
        count=len(rows),
        empty=empty,
        has=call.query.get(has, ""),
        files={form: address(call, format=form, part=str(number)) for form in FORMATS},
        hidden={name: value for name, value in call.query.items() if name != has},
    )
