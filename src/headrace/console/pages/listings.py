# SPDX-License-Identifier: Apache-2.0
"""Pages with one table. The query of the address sets filter, order and page.

The rows come from the function that the API's handler calls, so a page and the API show a user the
same rows. :mod:`.columns` has the columns, :mod:`.exports` the tables as files, and
:mod:`.inner_tables` the tables of pages of one object.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import urlencode

from headrace.console.http.answers import AnyList, Item, LazyList, RowList, Text
from headrace.console.http.name_filter import apply_search
from headrace.console.http.paging import select_rows
from headrace.console.http.query import is_true
from headrace.console.http.routes import Parameter, Route
from headrace.console.http_errors import HttpError
from headrace.console.pages.exports import export_rows
from headrace.console.pages.links import address_for, links_for
from headrace.console.pages.rendering import page
from headrace.user_tags import MANAGEMENT

if TYPE_CHECKING:
    from headrace.console.http.call import HttpCall
    from headrace.console.pages.columns import Column
    from headrace.console.pages.links import Link, RowAddress
    from headrace.untyped import JsonObject, JsonRow

#: Returns the rows of a virtual host; without one those of all that the user sees.
Rows = Callable[["HttpCall", "str | None"], Awaitable[AnyList]]
ROWS_PER_PAGE = 50  # Unless the query sets another number.
NO_MATCH = "No rows match the filter."
ID_DIGITS = 12  # Hexadecimal digits of a row's identifier.
NAME = ("name",)
QUERY = (
    Parameter("name", "Only rows whose name contains this text."),
    Parameter("use_regex", "`name` is a regular expression.", "boolean"),
    Parameter("vhost", "Only objects of this virtual host."),
    Parameter("sort", "The column to sort by."),
    Parameter("sort_reverse", "In descending order.", "boolean"),
    Parameter("page", "The number of the page.", "integer"),
    Parameter("page_size", "Rows of a page.", "integer"),
    Parameter("format", "`csv` or `json`: all rows, as a file."),
)


class Head(NamedTuple):
    """The head of a column for a template."""

    column: Column
    address: str  # Sorts the table by the column; "" if it cannot be sorted.
    order: str  # The present order by the column, as a value of ``aria-sort``.


class Cell(NamedTuple):
    """A cell for a template."""

    column: Column
    value: object
    address: str  # The address of the value's page; "" for none.


class Row(NamedTuple):
    """A row for a template."""

    id: str
    cells: list[Cell]


@dataclass(frozen=True, slots=True, kw_only=True)
class ListPage:
    """A page that shows a list."""

    path: str
    title: str
    rows: Rows
    columns: tuple[Column, ...]
    row_address: RowAddress | None = None  # Returns the address of a row's page.
    actions: tuple[Link, ...] = ()
    tag: str = MANAGEMENT
    about: str = ""
    command: str = ""  # The equivalent command line.
    search_fields: tuple[str, ...] = NAME  # Fields that the search reads.
    is_live: bool = True  # The page refreshes itself. False for logs: a refresh adds lines.
    empty: str = ""  # The text of an empty list; by default "No" with the title.

    @property
    def has_vhost_filter(self) -> bool:
        """True if the rows can be limited to a virtual host."""
        return not isinstance(self.rows, GlobalRows)

    def route(self) -> Route:
        """Return the route of the page."""
        return Route(
            method="GET",
            path=self.path,
            handler=self.show,
            summary=f"{self.title}.",
            tag=self.tag,
            query=QUERY,
            page=True,
        )

    async def show(self, call: HttpCall) -> Text:
        """Return the page, or the rows as a file."""
        listed = await self.rows(call, call.query.get("vhost") or None)
        if isinstance(listed, RowList) and self.search_fields != NAME:
            rows = [{**row, "name": join_fields(row, self.search_fields)} for row in listed.rows]
            listed = RowList(rows, listed.order)
        if file_format := call.query.get("format"):
            return await export_list(self, listed, call.query, file_format)
        return await render_list(call, self, listed)


class GlobalRows:
    """The rows of a list that has no filter by virtual host."""

    def __init__(self, rows: Callable[[HttpCall], Awaitable[AnyList]]) -> None:
        self._rows = rows

    async def __call__(self, call: HttpCall, vhost: str | None) -> AnyList:
        """Return all rows; the virtual host is ignored."""
        return await self._rows(call)


def join_fields(row: JsonRow, fields: tuple[str, ...]) -> str:
    """Return the texts of a row's fields as one text, for a search."""
    return " ".join(str(row.get(name) or "") for name in fields)


async def render_list(call: HttpCall, listing: ListPage, listed: RowList | LazyList[Item]) -> Text:
    """Return the page of a list; with a wrong parameter, the first page and the error above it."""
    query = {"page": "1", "page_size": str(ROWS_PER_PAGE), **call.query}
    problem = ""
    try:
        listed, fits = await apply_search(listed, query)
        paging, rows = select_rows(listed, query, fits)
    except HttpError as error:
        problem = error.reason
        paging, rows = select_rows(listed, {"page": "1", "page_size": str(ROWS_PER_PAGE)})
    has_rows = paging is not None and paging["total_count"] > 0
    return page(
        call,
        "list.html",
        listing.title,
        status=400 if problem else 200,
        listing=listing,
        paging=paging,
        rows=[table_row(call, row, listing.columns, listing.row_address) for row in rows],
        heads=[table_head(call, column) for column in listing.columns],
        empty=NO_MATCH if has_rows else listing.empty or empty_text(listing.title),
        query=call.query,
        problem=problem,
        actions=links_for(call, listing.actions),
        address_with=partial(address_with, call),
    )


def empty_text(title: str) -> str:
    """Return the text of a table without rows."""
    return f"No {title.lower()}."


def table_row(
    call: HttpCall, row: JsonObject, columns: tuple[Column, ...], row_address: RowAddress | None
) -> Row:
    """Return a row for a template; its identifier is the object's and not the position's.

    The first cell leads to the row's page, unless its column has an address of its own.
    """
    own_page = "" if row_address is None else row_address(row)
    key = own_page or json.dumps([column.value(row) for column in columns[:4]], sort_keys=True)
    digest = hashlib.sha256(key.encode(errors="backslashreplace")).hexdigest()[:ID_DIGITS]
    addresses = [column.address for column in columns]
    addresses[0] = addresses[0] or row_address
    cells = [
        Cell(column, column.value(row), address_for(call, address, row))
        for column, address in zip(columns, addresses, strict=True)
    ]
    return Row(f"row-{digest}", cells)


def table_head(call: HttpCall, column: Column, suffix: str = "") -> Head:
    """Return the head of a column for a template; it leads to the table in another order.

    ``suffix`` ends the names of the parameters on a page with several tables.
    """
    if not column.is_sortable:
        return Head(column, "", "none")
    is_sorted = call.query.get(f"sort{suffix}") == column.path
    is_descending = is_true(call.query.get(f"sort_reverse{suffix}"))
    order = "none" if not is_sorted else "descending" if is_descending else "ascending"
    next_descending = not is_descending if is_sorted else column.is_numeric
    order_by = {
        f"sort{suffix}": column.path,
        f"sort_reverse{suffix}": "true" if next_descending else "",
    }
    return Head(column, address_with(call, **order_by, page=""), order)


def address_with(call: HttpCall, **changed: str) -> str:
    """Return the address of the request with changed parameters; empty ones are left out."""
    query = {name: value for name, value in {**call.query, **changed}.items() if value}
    path = call.request.rel_url.raw_path
    return f"{path}?{urlencode(query, errors='replace')}" if query else path


async def export_list(
    listing: ListPage, listed: RowList | LazyList[Item], query: Mapping[str, str], file_format: str
) -> Text:
    """Return all rows of a list that match the filter as a file.

    Raises:
        HttpError: the format is unknown, or a parameter is wrong.
    """
    unpaged = {name: value for name, value in query.items() if name not in ("page", "columns")}
    listed, fits = await apply_search(listed, unpaged)
    _, rows = select_rows(listed, unpaged, fits)
    name = listing.path.strip("/").replace("/", "-") or "overview"
    return export_rows(name, listing.columns, rows, file_format)
