# SPDX-License-Identifier: Apache-2.0
"""Tables of a page: the query sets the order and the filter of each, and each is also a file."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.console.http.paging import sort_rows
from headrace.console.http.query import is_true
from headrace.console.http.routes import Parameter
from headrace.console.http_errors import not_found
from headrace.console.pages.columns import ADDRESS, Column
from headrace.console.pages.exports import FORMATS, export_rows
from headrace.console.pages.listings import (
    NO_MATCH,
    address_with,
    empty_text,
    table_head,
    table_row,
)
from headrace.console.pages.texts import compact

if TYPE_CHECKING:
    from headrace.console.http.answers import RowList, Text
    from headrace.console.http.call import HttpCall
    from headrace.console.pages.links import RowAddress
    from headrace.console.pages.listings import Head, Row
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
    rows: Callable[[HttpCall], Awaitable[RowList]] | None = None  # None: ``field`` has the rows.
    field: str = ""  # The field of the object that has the rows.
    row_address: RowAddress | None = None  # Returns the address of a row's page.
    empty: str = ""  # The text of an empty table; by default "No" with the title.


@dataclass(frozen=True, slots=True)
class TableView:
    """A table for a template."""

    table: InnerTable
    number: int  # The number of the table in the page, from 1.
    heads: list[Head]
    rows: list[Row]  # The first :data:`ROWS_MAX` rows.
    count: int  # The number of all rows that match the filter.
    empty: str
    filter_text: str
    files: dict[str, str]  # Addresses of the files, by format.
    other_parameters: dict[str, str]  # The form of the filter sends them unchanged.


async def table_views(
    call: HttpCall, tables: tuple[InnerTable, ...], row: JsonObject
) -> list[TableView]:
    """Return the tables of an object for a template."""
    return [
        table_view(call, table, number, await select_rows(call, table, number, row))
        for number, table in enumerate(tables, 1)
    ]


async def export_table(
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
            rows = await select_rows(call, table, number, row)
            return export_rows(name, table.columns, rows, file_format)
    raise not_found()


async def select_rows(
    call: HttpCall, table: InnerTable, number: int, row: JsonObject
) -> list[JsonObject]:
    """Return the rows of a table that match its filter, in its order."""
    order: tuple[str, ...] = ()
    if table.rows is None:
        rows = list(row[table.field])
    else:
        row_list = await table.rows(call)
        rows, order = list(row_list.rows), row_list.order
    if filter_text := call.query.get(f"has_{number}", "").lower():
        rows = [each for each in rows if contains_text(each, table.columns, filter_text)]
    column = call.query.get(f"sort_{number}", "")
    if not column and not order:
        return rows
    backwards = "true" if is_true(call.query.get(f"sort_reverse_{number}")) else ""
    return sort_rows(rows, {"sort": column, "sort_reverse": backwards}, order)


def contains_text(row: JsonObject, columns: tuple[Column, ...], text: str) -> bool:
    """Return True if a column of a row contains a text in lower case; addresses do not count."""
    shown = (column for column in columns if column.kind != ADDRESS)
    return any(text in compact(column.value(row)).lower() for column in shown)


def table_view(call: HttpCall, table: InnerTable, number: int, rows: list[JsonObject]) -> TableView:
    """Return a table for a template, with its first rows."""
    parameter = f"has_{number}"
    filter_text = call.query.get(parameter, "")
    return TableView(
        table=table,
        number=number,
        heads=[table_head(call, column, f"_{number}") for column in table.columns],
        rows=[table_row(call, row, table.columns, table.row_address) for row in rows[:ROWS_MAX]],
        count=len(rows),
        empty=NO_MATCH if filter_text else table.empty or empty_text(table.title),
        filter_text=filter_text,
        files={
            file_format: address_with(call, format=file_format, part=str(number))
            for file_format in FORMATS
        },
        other_parameters={name: value for name, value in call.query.items() if name != parameter},
    )
