# SPDX-License-Identifier: Apache-2.0
"""The query parameters ``name`` and ``use_regex``: the rows of a list whose names match.

:mod:`.paging` orders and pages the rows.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

import re2

from headrace.console.http.answers import Item, LazyList, RowList
from headrace.console.http.query import Query, is_true
from headrace.console.http_errors import HttpError, bad_request

if TYPE_CHECKING:
    from headrace.untyped import JsonRow

PATTERN_MAX = 1024  # Characters of a regular expression.
PATTERN_MEMORY = 1 << 20  # Bytes of its automaton.
SLICE_S = 0.005  # Time of matching after which other requests are served.
NameTest = Callable[[str], bool]  # A test for names.


def row_name(row: JsonRow) -> str:
    """Return the name of a row, which the filter tests."""
    return str(row.get("name", ""))


async def apply_search(
    listed: RowList | LazyList[Item], query: Query
) -> tuple[RowList | LazyList[Item], NameTest | None]:
    """Return a list, and the test of a query for its names; None for no test.

    A regular expression is matched at once, in slices between which other requests are served. The
    list is then without the objects that ended during the matching.

    Raises:
        HttpError: the pattern is not a regular expression of RE2, or is too long.
    """
    if isinstance(listed, LazyList):
        return await apply_search_to_items(listed, query)
    fits = name_test(query)
    if fits is None or not is_true(query.get("use_regex")):
        return listed, fits
    return listed, (await match_names(map(row_name, listed.rows), fits)).__contains__


async def apply_search_to_items(
    listed: LazyList[Item], query: Query
) -> tuple[LazyList[Item], NameTest | None]:
    """Return a long list, and the test of a query for its names; as :func:`apply_search`."""
    fits = name_test(query)
    if fits is None or not is_true(query.get("use_regex")):
        return listed, fits
    items = list(listed.items)
    versions = [listed.version(item) for item in items]
    names = await match_names(map(listed.name, items), fits)
    return listed.with_items(present_items(listed, items, versions)), names.__contains__


def present_items(
    listed: LazyList[Item], items: Sequence[Item], versions: Sequence[int]
) -> list[Item]:
    """Return the items whose versions are unchanged: their objects still exist."""
    pairs = zip(items, versions, strict=True)
    return [item for item, version in pairs if listed.version(item) == version]


def name_test(query: Query) -> NameTest | None:
    """Return the test of a query for names; None without one."""
    name = query.get("name")
    return compile_name_test(name, is_true(query.get("use_regex"))) if name else None


async def match_names(names: Iterable[str], fits: NameTest) -> frozenset[str]:
    """Return the names that fit; other requests are served after each ``SLICE_S``."""
    matches = set()
    until_s = time.monotonic() + SLICE_S
    for name in list(names):
        if fits(name):
            matches.add(name)
        if time.monotonic() >= until_s:
            await asyncio.sleep(0)
            until_s = time.monotonic() + SLICE_S
    return frozenset(matches)


def compile_name_test(
    name: str,
    use_regex: bool,
    *,
    ignore_case: bool = True,
    size_max: int = PATTERN_MAX,
    parameter: str = "name",
) -> Callable[[str], bool]:
    """Return the test for names that contain a text, or match a pattern.

    ``parameter`` is the name of the query parameter, for errors.

    Raises:
        HttpError: the pattern is not a regular expression of RE2, or is too long.
    """
    if not use_regex:
        substring = name.lower()
        return lambda text: substring in text.lower()
    if len(name) > size_max:
        raise HttpError(400, f"a pattern may have at most {size_max} characters")
    options = re2.Options()
    options.case_sensitive = not ignore_case
    options.log_errors = False
    options.never_capture = True  # Only whether it matches is needed.
    options.max_mem = PATTERN_MEMORY
    try:
        pattern = re2.compile(name, options)
    except (re2.error, UnicodeError) as error:
        raise bad_request(
            f"'{parameter}' is not a valid regular expression: {error_text(error)}"
        ) from None
    return lambda text: pattern.search(encode_for_re2(text)) is not None


def error_text(error: Exception) -> str:
    """Return the text of an error of RE2, which has bytes."""
    text = error.args[0] if error.args else ""
    return text.decode("utf-8", "replace") if isinstance(text, bytes) else str(text)


def encode_for_re2(text: str) -> bytes:
    """Return a text for RE2: bytes, which are faster, without lone surrogates."""
    return text.encode("utf-8", "replace")
