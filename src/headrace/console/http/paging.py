# SPDX-License-Identifier: Apache-2.0
"""Filters, order, pages and columns of lists, as RabbitMQ's query parameters ask for them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, cast

import re2

from headrace.console.http.answers import Described, Item, Listed
from headrace.console.http.errors import HttpError, bad_request

if TYPE_CHECKING:
    from headrace.untyped import JsonObject

PAGE_SIZE = 100
PAGE_SIZE_MAX = 500
PATTERN_MAX = 1024  # Characters of a regular expression,
PATTERN_MEMORY = 1 << 20  # and what its automaton may take.
SLICE_S = 0.005  # Of matching, then other requests are served.
NUMBER, TEXT, OTHER = 0, 1, 2  # The order of types in a column with several.

Query = Mapping[str, str]
Columns = dict[str, "Columns"]
Fits = Callable[[str], bool]  # The test for names.


def paged(listed: Listed | Described[Item], query: Query, fits: Fits | None = None) -> object:
    """Return the rows that a query asks for, with the facts of the page where it asks for one.

    ``fits`` is that of :func:`searched`.

    Raises:
        HttpError: a parameter cannot be used.
    """
    facts, rows = rows_in(listed, query, fits)
    return rows if facts is None else {**facts, "items": rows}


def rows_in(
    listed: Listed | Described[Item], query: Query, fits: Fits | None = None
) -> tuple[JsonObject | None, list[JsonObject]]:
    """Return the facts of the page that a query asks for, None for no page, and the rows.

    Raises:
        HttpError: a parameter cannot be used.
    """
    if isinstance(listed, Described):
        items = chosen_items(listed, query, fits)
        return described(items, len(listed.items), listed.describe, query)
    rows = list(listed.rows)
    if fits is not None:
        rows = [row for row in rows if fits(name_of(row))]
    return described(in_order(rows, query, listed.order), len(listed.rows), itself, query)


def chosen_items(listed: Described[Item], query: Query, fits: Fits | None = None) -> list[Item]:
    """Return the items of a long list that a query asks for, in its order."""
    items = list(listed.items)
    if fits is not None:
        items = [one for one in items if fits(listed.name(one))]
    backwards = is_true(query.get("sort_reverse"))
    if not (column := query.get("sort")):
        return items[::-1] if backwards else items
    return in_order_of(items, listed.key(column), backwards=backwards)


def in_order_of(items: list[Item], key: Callable[[Item], object], *, backwards: bool) -> list[Item]:
    """Return items in the order of a column; values of several types in the order of those."""
    values = [key(one) for one in items]
    types = set(map(type, values))
    order: list[int]
    if types <= {bool, int, float}:
        numbers = cast("list[float]", values)
        order = sorted(range(len(items)), key=numbers.__getitem__, reverse=backwards)
    elif types == {str}:
        texts = cast("list[str]", values)
        order = sorted(range(len(items)), key=texts.__getitem__, reverse=backwards)
    else:
        mixed = [comparable(value) for value in values]
        order = sorted(range(len(items)), key=mixed.__getitem__, reverse=backwards)
    return [items[place] for place in order]


def itself(row: JsonObject) -> JsonObject:
    """Return a row that is described already."""
    return row


def described(
    items: Sequence[Item], total: int, describe: Callable[[Item], JsonObject], query: Query
) -> tuple[JsonObject | None, list[JsonObject]]:
    """Return the facts of a page and its rows, with the columns that a query asks for.

    Raises:
        HttpError: there is no such page.
    """
    columns = columns_of(query)
    facts, some = cut(items, total, query)
    return facts, [chosen(describe(one), columns) for one in some]


def cut(
    items: Sequence[Item], total: int, query: Query
) -> tuple[JsonObject | None, Sequence[Item]]:
    """Return the facts of a page and its items; None and all of them without a page.

    Raises:
        HttpError: there is no such page.
    """
    if "page" not in query:
        return None, items
    page = whole(query, "page", 1)
    size = whole(query, "page_size", PAGE_SIZE)
    if page < 1 or not 1 <= size <= PAGE_SIZE_MAX:
        raise bad_request(
            f"page is 1 or more, page_size 1 to {PAGE_SIZE_MAX}", "invalid_pagination_parameters"
        )
    pages = max(1, -(-len(items) // size))
    if page > pages:
        raise bad_request(f"page out of range, page: {page} page size: {size}", "page_out_of_range")
    some = items[(page - 1) * size : page * size]
    facts = {
        "total_count": total,
        "item_count": len(some),
        "filtered_count": len(items),
        "page": page,
        "page_size": size,
        "page_count": pages,
    }
    return facts, some


def name_of(row: JsonObject) -> str:
    """Return the name of a row, which a search looks at."""
    return str(row.get("name", ""))


async def searched(
    listed: Listed | Described[Item], query: Query
) -> tuple[Listed | Described[Item], Fits | None]:
    """Return a list, and the test for what a query searches for in it; None for everything.

    Other requests are served meanwhile; what ended by then is not in the list any more.

    Raises:
        HttpError: the pattern is none of RE2, or too long.
    """
    if isinstance(listed, Described):
        return await searched_items(listed, query)
    fits = fits_of(query)
    if fits is None or not is_true(query.get("use_regex")):
        return listed, fits
    return listed, (await matching(map(name_of, listed.rows), fits)).__contains__


async def searched_items(
    listed: Described[Item], query: Query
) -> tuple[Described[Item], Fits | None]:
    """Return a long list, and the test for what a query searches for; as :func:`searched`."""
    fits = fits_of(query)
    if fits is None or not is_true(query.get("use_regex")):
        return listed, fits
    items = list(listed.items)
    marks = [listed.mark(one) for one in items]
    names = await matching(map(listed.name, items), fits)
    still = [one for one, mark in zip(items, marks, strict=True) if listed.mark(one) == mark]
    return replace(listed, items=still), names.__contains__


def fits_of(query: Query) -> Fits | None:
    """Return the test for the names that a query searches for; None without one."""
    name = query.get("name")
    return matcher(name, is_true(query.get("use_regex"))) if name else None


async def matching(names: Iterable[str], fits: Fits) -> frozenset[str]:
    """Return the names that fit; others are served after each `SLICE_S`."""
    found = set()
    until_s = time.monotonic() + SLICE_S
    for name in list(names):
        if fits(name):
            found.add(name)
        if time.monotonic() >= until_s:
            await asyncio.sleep(0)
            until_s = time.monotonic() + SLICE_S
    return frozenset(found)


def matcher(
    name: str,
    use_regex: bool,
    *,
    ignore_case: bool = True,
    most: int = PATTERN_MAX,
    parameter: str = "name",
) -> Callable[[str], bool]:
    """Return the test for names that have a text in them, or match a pattern.

    ``parameter`` is what errors call it.

    Raises:
        HttpError: the pattern is none of RE2, or too long.
    """
    if not use_regex:
        wanted = name.lower()
        return lambda text: wanted in text.lower()
    if len(name) > most:
        raise HttpError(400, f"a pattern has {most} characters at most")
    options = re2.Options()
    options.case_sensitive = not ignore_case
    options.log_errors = False
    options.never_capture = True  # Whether it matches is all.
    options.max_mem = PATTERN_MEMORY
    try:
        pattern = re2.compile(name, options)
    except (re2.error, UnicodeError) as error:
        raise bad_request(
            f"'{parameter}' is not a valid regular expression: {said(error)}"
        ) from None
    return lambda text: pattern.search(searchable(text)) is not None


def said(error: Exception) -> str:
    """Return the text of an error of RE2, which gives bytes."""
    text = error.args[0] if error.args else ""
    return text.decode("utf-8", "replace") if isinstance(text, bytes) else str(text)


def searchable(text: str) -> bytes:
    """Return a text that RE2 takes: without lone surrogates, and as bytes, which are faster."""
    return text.encode("utf-8", "replace")


def in_order(rows: list[JsonObject], query: Query, order: Sequence[str]) -> list[JsonObject]:
    """Return rows in the order of a query; without one in that of the list."""
    keys = [query["sort"]] if query.get("sort") else list(order)
    paths = [key.split(".") for key in keys]
    backwards = is_true(query.get("sort_reverse"))
    return sorted(
        rows, key=lambda row: [comparable(found(row, path)) for path in paths], reverse=backwards
    )


def found(row: object, path: Sequence[str]) -> object:
    """Return the value at a path of keys; 0 where the row has none."""
    for key in path:
        if not isinstance(row, Mapping) or key not in row:
            return 0
        row = row[key]
    return row


def comparable(value: object) -> tuple[int, float | str]:
    """Return a key that orders values of different types."""
    if value is None:
        return NUMBER, 0
    if isinstance(value, int | float):
        return NUMBER, value
    return (TEXT, value) if isinstance(value, str) else (OTHER, str(value))


# --- Columns -------------------------------------------------------------------------------------


def columns_of(query: Query) -> Columns:
    """Return the columns of a query, each with those below it; none for all."""
    found: Columns = {}
    asked = [one.split(".") for one in query.get("columns", "").split(",")]
    paths = [[key for key in one if key] for one in asked]
    for path in sorted(filter(None, paths), key=len, reverse=True):
        into = found
        for key in path[:-1]:
            into = into.setdefault(key, {})
        into[path[-1]] = {}  # The whole of it, also where some of it is asked for as well.
    return found


def chosen(row: JsonObject, columns: Columns) -> JsonObject:
    """Return the columns of a row that are asked for; without any the row.

    As RabbitMQ does it: a column that the row does not have is left out, columns of a list are
    those of its objects, and what has no columns is there as it is.
    """
    if not columns:
        return row
    return {key: below(row[key], deeper) for key, deeper in columns.items() if key in row}


def below(value: object, columns: Columns) -> object:
    """Return the columns of what a column has."""
    if isinstance(value, dict):
        return chosen(value, columns)
    if isinstance(value, list) and columns:
        return [below(one, columns) for one in value]
    return value


def is_true(text: str | None) -> bool:
    """Return True for the text of a boolean that is true."""
    return text == "true"


def whole(query: Query, name: str, default: int) -> int:
    """Return a whole number of a query.

    Raises:
        HttpError: it is none.
    """
    text = query.get(name)
    if not text:
        return default
    if not text.isascii() or not text.isdecimal() or len(text) > 9:
        raise bad_request(f"'{name}' is not a whole number", "invalid_pagination_parameters")
    return int(text)
