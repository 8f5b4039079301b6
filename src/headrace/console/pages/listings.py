# SPDX-License-Identifier: Apache-2.0
"""Pages with one table: the address sets filter, order and page; the rows are also a file.

The rows are those of the function that the API's handler calls, so a user sees what the API shows.
:mod:`.columns` has the columns, :mod:`.exports` the files, :mod:`.inner_tables` tables in a page.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import urlencode

from headrace.console.http.answers import AnyList, Item, LazyList, RowList, Text
from headrace.console.http.name_filter import apply_search
from headrace.console.http.paging import select_rows
from headrace.console.http.query import is_true
from headrace.console.http.routes import Parameter, Route
from headrace.console.http_errors import HttpError
from headrace.console.pages.exports import file_of
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
ROWS = 50  # Rows of a page, unless the address sets another number.
NO_MATCH = "No rows match the filter."
ID_DIGITS = 12  # Digits of a row's identifier.
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


@dataclass(frozen=True, slots=True)
class Row:
    """A row for a template."""

    id: str
    cells: list[tuple[Column, object, str]]  # Column, value, and address of a link; "" for none.


@dataclass(frozen=True, slots=True, kw_only=True)
class ListPage:
    """A page that shows a list."""

    path: str
    title: str
    rows: Rows
    columns: tuple[Column, ...]
    link: RowAddress | None = None  # The address of a row's page.
    actions: tuple[Link, ...] = ()
    tag: str = MANAGEMENT
    about: str = ""
    command: str = ""  # The equivalent command line.
    search_fields: tuple[str, ...] = NAME  # Fields that the search reads.
    # The page refreshes itself. False for logs, to which a refresh adds lines.
    is_live: bool = True
    empty: str = ""  # The text of an empty list; empty for "No" and the title.

    @property
    def in_vhosts(self) -> bool:
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
            rows = [{**row, "name": search_text(row, self.search_fields)} for row in listed.rows]
            listed = RowList(rows, listed.order)
        if file_format := call.query.get("format"):
            return await list_file(self, listed, call.query, file_format)
        return await table_page(call, self, listed)


class GlobalRows:
    """The rows of a list that no virtual host limits; its page has no filter for one."""

    def __init__(self, rows: Callable[[HttpCall], Awaitable[AnyList]]) -> None:
        self._rows = rows

    async def __call__(self, call: HttpCall, vhost: str | None) -> AnyList:
        """Return the rows, whatever the virtual host."""
        return await self._rows(call)


def search_text(row: JsonRow, fields: tuple[str, ...]) -> str:
    """Return the texts of some fields as one, for a search."""
    return " ".join(str(row.get(name) or "") for name in fields)


async def table_page(call: HttpCall, listing: ListPage, listed: RowList | LazyList[Item]) -> Text:
    """Return the page of a list; a wrong parameter is reported above the first page of the list."""
    query = {"page": "1", "page_size": str(ROWS), **call.query}
    problem = ""
    try:
        listed, fits = await apply_search(listed, query)
        facts, rows = select_rows(listed, query, fits)
    except HttpError as error:
        problem = error.reason
        facts, rows = select_rows(listed, {"page": "1", "page_size": str(ROWS)})
    has_rows = facts is not None and facts["total_count"] > 0
    return page(
        call,
        "list.html",
        listing.title,
        status=400 if problem else 200,
        listing=listing,
        facts=facts,
        rows=[row_of(call, row, listing.columns, listing.link) for row in rows],
        heads=[(column, *head_of(call, column)) for column in listing.columns],
        empty=NO_MATCH if has_rows else listing.empty or no_rows(listing.title),
        query=call.query,
        problem=problem,
        actions=links_for(call, listing.actions),
        to=lambda **changed: address(call, **changed),
        path=call.request.rel_url.raw_path,
    )


def no_rows(title: str) -> str:
    """Return the text of a table without rows."""
    return f"No {title.lower()}."


def row_of(
    call: HttpCall, row: JsonObject, columns: tuple[Column, ...], link: RowAddress | None
) -> Row:
    """Return a row for a template; its identifier is the object's and not the position's."""
    own_page = "" if link is None else link(row)
    key = own_page or json.dumps([column.value(row) for column in columns[:4]], sort_keys=True)
    digest = hashlib.sha256(key.encode(errors="backslashreplace")).hexdigest()[:ID_DIGITS]
    cells = [(column, column.value(row), address_for(call, column.link, row)) for column in columns]
    if columns[0].link is None:
        cells[0] = (*cells[0][:2], address_for(call, link, row))
    return Row(f"row-{digest}", cells)


def head_of(call: HttpCall, column: Column, suffix: str = "") -> tuple[str, str]:
    """Return the address that sorts by a column, and the present order for ``aria-sort``.

    ``suffix`` ends the names of the parameters on a page with several tables.
    """
    if not column.sorts:
        return "", "none"
    is_sorted = call.query.get(f"sort{suffix}") == column.path
    is_descending = is_true(call.query.get(f"sort_reverse{suffix}"))
    order = "none" if not is_sorted else "descending" if is_descending else "ascending"
    next_descending = not is_descending if is_sorted else column.is_numeric
    order_by = {
        f"sort{suffix}": column.path,
        f"sort_reverse{suffix}": "true" if next_descending else "",
    }
    return address(call, **order_by, page=""), order


def address(call: HttpCall, **changed: str) -> str:
    """Return the address of the same page with changed parameters; empty ones are left out."""
    query = {name: value for name, value in {**call.query, **changed}.items() if value}
    path = call.request.rel_url.raw_path
    return f"{path}?{urlencode(query, errors='replace')}" if query else path


async def list_file(
    listing: ListPage, listed: RowList | LazyList[Item], query: Mapping[str, str], file_format: str
) -> Text:
    """Return all rows that match the filter as a file.

    Raises:
        HttpError: the format is unknown, or a parameter is wrong.
    """
    unpaged = {name: value for name, value in query.items() if name not in ("page", "columns")}
    listed, fits = await apply_search(listed, unpaged)
    _, rows = select_rows(listed, unpaged, fits)
    name = listing.path.strip("/").replace("/", "-") or "overview"
    return file_of(name, listing.columns, rows, file_format)
