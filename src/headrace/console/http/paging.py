# SPDX-License-Identifier: Apache-2.0
"""Order and pages of lists, by RabbitMQ's query parameters.

``sort`` and ``sort_reverse`` give the order, ``page`` and ``page_size`` the page.
:mod:`.name_filter` has the filter by name, :mod:`.columns` the selection of columns.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, cast

from headrace.console.http.answers import Item, LazyList, RowList
from headrace.console.http.columns import requested_columns, select_columns
from headrace.console.http.name_filter import NameTest, row_name
from headrace.console.http.query import Query, is_true, whole_number
from headrace.console.http_errors import bad_request

if TYPE_CHECKING:
    from headrace.untyped import JsonObject

PAGE_FACTS = (  # The fields of a page beside its rows, ``items``.
    "total_count",
    "item_count",
    "filtered_count",
    "page",
    "page_size",
    "page_count",
)
PAGE_SIZE = 100
PAGE_SIZE_MAX = 500
NUMBER, TEXT, OTHER = 0, 1, 2  # The order of types in a column with several.


def list_schema(rows: JsonObject) -> JsonObject:
    """Return the JSON Schema of a list, or of a page of it, by the schema of its rows."""
    items: JsonObject = {"type": "array", "items": rows}
    facts: JsonObject = {name: {"type": "integer", "minimum": 0} for name in PAGE_FACTS}
    fields: JsonObject = {**facts, "items": items}
    page = {"type": "object", "properties": fields, "required": list(fields)}
    return {"anyOf": [items, page]}


def page_of_list(
    listed: RowList | LazyList[Item], query: Query, fits: NameTest | None = None
) -> object:
    """Return the rows that a query selects, with the facts of the page if it names one.

    ``fits`` is the test that :func:`.name_filter.name_test` returns.

    Raises:
        HttpError: a parameter is wrong.
    """
    facts, rows = select_rows(listed, query, fits)
    return rows if facts is None else {**facts, "items": rows}


def select_rows(
    listed: RowList | LazyList[Item], query: Query, fits: NameTest | None = None
) -> tuple[JsonObject | None, list[JsonObject]]:
    """Return the facts of the page that a query selects, None for no page, and its rows.

    Raises:
        HttpError: a parameter is wrong.
    """
    if isinstance(listed, LazyList):
        items = select_items(listed, query, fits)
        return make_page(items, len(listed.items), listed.row, query)
    rows = cast("list[JsonObject]", list(listed.rows))  # Nothing changes these rows.
    if fits is not None:
        rows = [row for row in rows if fits(row_name(row))]
    return make_page(sort_rows(rows, query, listed.order), len(listed.rows), unchanged_row, query)


def select_items(listed: LazyList[Item], query: Query, fits: NameTest | None = None) -> list[Item]:
    """Return the items of a long list that a query selects, in its order."""
    items = list(listed.items)
    if fits is not None:
        items = [item for item in items if fits(listed.name(item))]
    backwards = is_true(query.get("sort_reverse"))
    if not (column := query.get("sort")):
        return items[::-1] if backwards else items
    return sort_items(items, listed.sort_key(column), backwards=backwards)


def sort_items(items: list[Item], key: Callable[[Item], object], *, backwards: bool) -> list[Item]:
    """Return items in the order of a column; values of different types are ordered by type."""
    values = [key(item) for item in items]
    types = set(map(type, values))
    order: list[int]
    if types <= {bool, int, float}:
        numbers = cast("list[float]", values)
        order = sorted(range(len(items)), key=numbers.__getitem__, reverse=backwards)
    elif types == {str}:
        texts = cast("list[str]", values)
        order = sorted(range(len(items)), key=texts.__getitem__, reverse=backwards)
    else:
        mixed = [mixed_sort_key(value) for value in values]
        order = sorted(range(len(items)), key=mixed.__getitem__, reverse=backwards)
    return [items[index] for index in order]


def unchanged_row(row: JsonObject) -> JsonObject:
    """Return a row that needs no description."""
    return row


def make_page(
    items: Sequence[Item], total: int, describe: Callable[[Item], JsonObject], query: Query
) -> tuple[JsonObject | None, list[JsonObject]]:
    """Return the facts of a page and its rows, with the columns that a query names.

    Raises:
        HttpError: the page does not exist.
    """
    columns = requested_columns(query)
    facts, shown = cut_page(items, total, query)
    return facts, [select_columns(describe(item), columns) for item in shown]


def cut_page(
    items: Sequence[Item], total: int, query: Query
) -> tuple[JsonObject | None, Sequence[Item]]:
    """Return the facts of a page and its items; None and all items without a page.

    Raises:
        HttpError: the page does not exist.
    """
    if "page" not in query:
        return None, items
    page = whole_number(query, "page", 1)
    size = whole_number(query, "page_size", PAGE_SIZE)
    if page < 1 or not 1 <= size <= PAGE_SIZE_MAX:
        raise bad_request(
            f"page is 1 or more, page_size 1 to {PAGE_SIZE_MAX}", "invalid_pagination_parameters"
        )
    pages = max(1, -(-len(items) // size))
    if page > pages:
        raise bad_request(f"page out of range, page: {page} page size: {size}", "page_out_of_range")
    shown = items[(page - 1) * size : page * size]
    facts = {
        "total_count": total,
        "item_count": len(shown),
        "filtered_count": len(items),
        "page": page,
        "page_size": size,
        "page_count": pages,
    }
    return facts, shown


def sort_rows(rows: list[JsonObject], query: Query, order: Sequence[str]) -> list[JsonObject]:
    """Return rows in the order of a query; without one in the order of the list."""
    keys = [query["sort"]] if query.get("sort") else list(order)
    paths = [key.split(".") for key in keys]
    backwards = is_true(query.get("sort_reverse"))
    return sorted(
        rows,
        key=lambda row: [mixed_sort_key(value_at(row, path)) for path in paths],
        reverse=backwards,
    )


def value_at(row: object, path: Sequence[str]) -> object:
    """Return the value at a path of keys; 0 if the row has none."""
    for key in path:
        if not isinstance(row, Mapping) or key not in row:
            return 0
        row = row[key]
    return row


def mixed_sort_key(value: object) -> tuple[int, float | str]:
    """Return a key that orders values of different types."""
    if value is None:
        return NUMBER, 0
    if isinstance(value, int | float):
        return NUMBER, value
    return (TEXT, value) if isinstance(value, str) else (OTHER, str(value))
