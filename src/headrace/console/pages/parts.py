# SPDX-License-Identifier: Apache-2.0
"""Tables within a page: each has an order and a filter in the address, and is a file too."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.console.http.errors import not_found
from headrace.console.http.paging import in_order, is_true
from headrace.console.http.routes import Parameter
from headrace.console.pages.listings import (
    ADDRESS,
    CSV,
    JSON,
    Column,
    Row,
    address,
    file_of,
    head_of,
    row_of,
)
from headrace.console.pages.texts import compact

if TYPE_CHECKING:
    from headrace.console.http.answers import Listed, Text
    from headrace.console.http.call import HttpCall
    from headrace.untyped import JsonObject

PART_ROWS = 200  # Of a table within a page; its file, and the list itself, have all.
QUERY = (
    Parameter("sort_1", "The column to sort the first table by; `sort_2` the second."),
    Parameter("sort_reverse_1", "The largest of the first table first.", "boolean"),
    Parameter("has_1", "Only rows of the first table with this text in a column."),
    Parameter("format", "`csv` or `json`: all rows of a table, as a file."),
    Parameter("part", "The number of the table of which `format` is asked.", "integer"),
)


@dataclass(frozen=True, slots=True)
class Part:
    """A table of what belongs to an object."""

    title: str
    columns: tuple[Column, ...]
    rows: Callable[[HttpCall], Awaitable[Listed]] | None = None  # Of the object in the path; or:
    field: str = ""  # the field of the object that has the rows.
    link: Callable[[JsonObject], str] | None = None
    empty: str = "None."
    more: Callable[[HttpCall], str] | None = None  # The address of the whole list.


@dataclass(frozen=True, slots=True)
class PartTable:
    """A table within a page, as the template has it."""

    part: Part
    number: int
    heads: list[tuple[Column, str, str]]
    rows: list[Row]
    count: int
    more: str
    has: str  # The text that its rows have.
    files: dict[str, str]  # The addresses of its rows as files, by format.
    kept: dict[str, str]  # Of the query, what a filter keeps.


async def tables_of(call: HttpCall, parts: tuple[Part, ...], found: JsonObject) -> list[PartTable]:
    """Return the tables of an object's parts."""
    return [
        table_of(call, part, number, await rows_of(call, part, number, found))
        for number, part in enumerate(parts, 1)
    ]


async def file_of_part(
    call: HttpCall, kind: str, parts: tuple[Part, ...], found: JsonObject
) -> Text | None:
    """Return the rows of the table that the query wants as a file; None if it wants the page.

    Raises:
        HttpError: the page has no such table, or the format is none of ours.
    """
    form = call.query.get("format")
    if not form:
        return None
    for number, part in enumerate(parts, 1):
        if call.query.get("part") == str(number):
            name = f"{kind}-{part.title}".lower().replace(" ", "-")
            return file_of(name, part.columns, await rows_of(call, part, number, found), form)
    raise not_found()


async def rows_of(call: HttpCall, part: Part, number: int, found: JsonObject) -> list[JsonObject]:
    """Return the rows of a part that its filter leaves, in the order asked for."""
    order: tuple[str, ...] = ()
    if part.rows is None:
        rows = list(found[part.field])
    else:
        listed = await part.rows(call)
        rows, order = list(listed.rows), listed.order
    if has := call.query.get(f"has_{number}", "").lower():
        rows = [row for row in rows if has_text(row, part.columns, has)]
    column = call.query.get(f"sort_{number}", "")
    if not column and not order:
        return rows
    backwards = "true" if is_true(call.query.get(f"sort_reverse_{number}")) else ""
    return in_order(rows, {"sort": column, "sort_reverse": backwards}, order)


def has_text(row: JsonObject, columns: tuple[Column, ...], text: str) -> bool:
    """Return True if a column of a row has a text, given in small letters."""
    shown = (column for column in columns if column.kind != ADDRESS)
    return any(text in compact(column.value(row)).lower() for column in shown)


def table_of(call: HttpCall, part: Part, number: int, rows: list[JsonObject]) -> PartTable:
    """Return the table of a part, of its first rows."""
    has = f"has_{number}"
    return PartTable(
        part,
        number,
        [(column, *head_of(call, column, f"_{number}")) for column in part.columns],
        [row_of(row, part.columns, part.link) for row in rows[:PART_ROWS]],
        len(rows),
        "" if part.more is None else part.more(call),
        call.query.get(has, ""),
        {form: address(call, format=form, part=str(number)) for form in (CSV, JSON)},
        {name: value for name, value in call.query.items() if name != has},
    )
