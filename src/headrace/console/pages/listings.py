# SPDX-License-Identifier: Apache-2.0
"""Pages with one table: filter, order and pages by the address, and the same rows as CSV and JSON.

The rows are those of the function that the API's handler calls, so a user sees what the API shows.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import urlencode

from headrace.console.http.answers import AnyList, Described, Item, Listed, Text
from headrace.console.http.errors import HttpError
from headrace.console.http.paging import is_true, rows_in, searched
from headrace.console.http.routes import ALLOWED, Parameter, Route
from headrace.console.pages.rendering import NUMERIC, page
from headrace.console.pages.texts import ack_mode, compact, plain
from headrace.user_tags import MANAGEMENT, VIEWER

if TYPE_CHECKING:
    from headrace.console.http.call import HttpCall
    from headrace.untyped import JsonObject

#: The rows of a virtual host, or of all that the user sees.
Rows = Callable[["HttpCall", "str | None"], Awaitable[AnyList]]
ROWS = 50  # Of a page, unless the address says otherwise.
DIGITS = 12  # Of a row's identity.
CSV, JSON = "csv", "json"
NOTHING: tuple[object, ...] = (None, "", {}, [])
QUIET: Mapping[str, tuple[object, ...]] = {  # By the kind of a column; a count of 0 says much.
    **dict.fromkeys(("number", "bytes", "duration"), (None,)),
    **dict.fromkeys(("rate", "flag"), (None, 0)),
}
NAME = ("name",)
ADDRESS = "address"  # The kind of a column of links, each with the column's title.
FORMULA = ("=", "+", "-", "@", "\t", "\r")  # What a spreadsheet would compute.
QUERY = (
    Parameter("name", "Only rows whose name has this text."),
    Parameter("use_regex", "`name` is a regular expression.", "boolean"),
    Parameter("vhost", "Only what is in this virtual host."),
    Parameter("sort", "The column to sort by."),
    Parameter("sort_reverse", "The largest first.", "boolean"),
    Parameter("page", "The page.", "integer"),
    Parameter("page_size", "Rows of a page.", "integer"),
    Parameter("format", "`csv` or `json`: all rows, as a file."),
)


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table."""

    title: str
    path: str  # Of the value in a row; dots lead into objects.
    kind: str = "text"  # A key of rendering.CELLS.
    sorts: bool = True
    leads: Callable[[JsonObject], str] | None = None  # To the page of what it names; "" for none.

    @property
    def is_numeric(self) -> bool:
        """True where the values are set to the right."""
        return self.kind in NUMERIC

    def looks(self, value: object) -> str:
        """Return the classes of a cell: phones do not show what says nothing."""
        says_nothing = value in QUIET.get(self.kind, NOTHING)
        return " ".join(["number"] * self.is_numeric + ["nil"] * says_nothing)

    def exported(self, row: Mapping[str, object]) -> object:
        """Return the value of a row for CSV."""
        value = self.value(row)
        return ack_mode(value) if self.kind == "ack" and value is not None else value

    def value(self, row: Mapping[str, object]) -> object:
        """Return the value of a row; None where it has none."""
        found: object = row
        for key in self.path.split("."):
            if not isinstance(found, Mapping):
                return None
            found = found.get(key)
        return found


@dataclass(frozen=True, slots=True)
class Link:
    """An action of a page: where it leads, and who may take it."""

    title: str
    address: str
    tag: str = MANAGEMENT
    danger: bool = False
    changes: bool = True

    def is_for(self, tags: tuple[str, ...]) -> bool:
        """Return True if a user with these tags may take it; viewers change nothing."""
        held = set(tags) - ({VIEWER} if self.changes else set())
        return not ALLOWED[self.tag].isdisjoint(held)


@dataclass(frozen=True, slots=True)
class Row:
    """A row as the template has it."""

    id: str
    cells: list[tuple[Column, object, str]]  # With where the value leads; "" for nowhere.


@dataclass(frozen=True, slots=True)
class ListPage:
    """A page that shows a list."""

    path: str
    title: str
    rows: Rows
    columns: tuple[Column, ...]
    link: Callable[[JsonObject], str] | None = None
    actions: tuple[Link, ...] = ()
    tag: str = MANAGEMENT
    about: str = ""
    command: str = ""  # The command line that shows the same.
    searched: tuple[str, ...] = NAME  # Fields that a search for a name looks at.
    is_live: bool = True  # False for what the look itself would change, such as the audit log.
    empty: str = "None."

    @property
    def in_vhosts(self) -> bool:
        """True if the rows can be limited to a virtual host."""
        return not isinstance(self.rows, Everywhere)

    def route(self) -> Route:
        """Return the route of the page."""
        return Route("GET", self.path, self.show, self.tag, "", f"{self.title}.", QUERY, page=True)

    async def show(self, call: HttpCall) -> object:
        """Return the page, or the rows as a file."""
        listed = await self.rows(call, call.query.get("vhost") or None)
        if isinstance(listed, Listed) and self.searched != NAME:
            rows = [{**row, "name": joined(row, self.searched)} for row in listed.rows]
            listed = Listed(rows, listed.order)
        if form := call.query.get("format"):
            return await exported(self, listed, call.query, form)
        return await table_page(call, self, listed)


class Everywhere:
    """The rows of a list that no virtual host limits."""

    def __init__(self, rows: Callable[[HttpCall], Awaitable[AnyList]]) -> None:
        self._rows = rows

    async def __call__(self, call: HttpCall, vhost: str | None) -> AnyList:
        """Return the rows, whatever the virtual host."""
        return await self._rows(call)


def everywhere(rows: Callable[[HttpCall], Awaitable[AnyList]]) -> Rows:
    """Return the rows of a list that no virtual host limits; its page has no filter for one."""
    return Everywhere(rows)


def joined(row: JsonObject, fields: tuple[str, ...]) -> str:
    """Return the texts of fields, which a search looks at together."""
    return " ".join(str(row.get(name) or "") for name in fields)


async def table_page(call: HttpCall, listing: ListPage, listed: Listed | Described[Item]) -> Text:
    """Return the page of a list."""
    query = {"page": "1", "page_size": str(ROWS), **call.query}
    said = ""
    try:
        listed, fits = await searched(listed, query)
        found, rows = rows_in(listed, query, fits)
    except HttpError as error:  # A pattern that is none, or a page that is gone.
        said = error.reason
        found, rows = rows_in(listed, {"page": "1", "page_size": str(ROWS)})
    return page(
        call,
        "list.html",
        listing.title,
        status=400 if said else 200,
        listing=listing,
        found=found,
        rows=[row_of(row, listing.columns, listing.link) for row in rows],
        heads=[(column, *head_of(call, column)) for column in listing.columns],
        query=call.query,
        said=said,
        actions=[one for one in listing.actions if one.is_for(call.identity.tags)],
        to=lambda **changed: address(call, **changed),
        path=call.request.rel_url.raw_path,
    )


def row_of(
    row: JsonObject, columns: tuple[Column, ...], link: Callable[[JsonObject], str] | None
) -> Row:
    """Return a row for a template; its identity is that of the object, not of its place."""
    leads = "" if link is None else link(row)
    known = leads or json.dumps([column.value(row) for column in columns[:4]], sort_keys=True)
    mark = hashlib.sha256(known.encode(errors="backslashreplace")).hexdigest()[:DIGITS]
    cells = [
        (column, column.value(row), "" if column.leads is None else column.leads(row))
        for column in columns
    ]
    if leads and columns[0].leads is None:
        cells[0] = (*cells[0][:2], leads)
    return Row(f"row-{mark}", cells)


def head_of(call: HttpCall, column: Column, of: str = "") -> tuple[str, str]:
    """Return where the head of a column leads, and the order it has now, for aria-sort.

    ``of`` ends the names of the parameters, where a page has several tables.
    """
    if not column.sorts:
        return "", "none"
    is_it = call.query.get(f"sort{of}") == column.path
    backwards = is_true(call.query.get(f"sort_reverse{of}"))
    order = "none" if not is_it else "descending" if backwards else "ascending"
    turned = not backwards if is_it else column.is_numeric
    order_by = {f"sort{of}": column.path, f"sort_reverse{of}": "true" if turned else ""}
    return address(call, **order_by, page=""), order


def address(call: HttpCall, **changed: str) -> str:
    """Return the address of the same page with other parameters; empty ones are left out."""
    query = {name: value for name, value in {**call.query, **changed}.items() if value}
    path = call.request.rel_url.raw_path
    return f"{path}?{urlencode(query, errors='replace')}" if query else path


async def exported(
    listing: ListPage, listed: Listed | Described[Item], query: Mapping[str, str], form: str
) -> Text:
    """Return all rows that the filter leaves as a file.

    Raises:
        HttpError: the format is none of ours.
    """
    wanted = {name: value for name, value in query.items() if name not in ("page", "columns")}
    listed, fits = await searched(listed, wanted)
    _, rows = rows_in(listed, wanted, fits)
    name = listing.path.strip("/").replace("/", "-") or "overview"
    return file_of(name, listing.columns, rows, form)


def file_of(name: str, columns: tuple[Column, ...], rows: list[JsonObject], form: str) -> Text:
    """Return rows as a file.

    Raises:
        HttpError: the format is none of ours.
    """
    if form not in (CSV, JSON):
        raise HttpError(400, f"'format' must be {CSV} or {JSON}")
    headers = {"Content-Disposition": f'attachment; filename="{name}.{form}"'}
    if form == JSON:
        return Text(json.dumps(rows, indent=1).encode(), "application/json", headers=headers)
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow([column.title for column in columns])
    for row in rows:
        writer.writerow([field_of(column.exported(row)) for column in columns])
    body = text.getvalue().encode(errors="backslashreplace")
    return Text(body, "text/csv; charset=utf-8", headers=headers)


def field_of(value: object) -> object:
    """Return a value for CSV: no text begins a formula."""
    if value is None or isinstance(value, int | float):
        return value
    text = plain(compact(value))
    return f"'{text}" if text.startswith(FORMULA) else text
