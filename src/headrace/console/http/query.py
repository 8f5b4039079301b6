# SPDX-License-Identifier: Apache-2.0
"""Query parameters: booleans and whole numbers."""

from __future__ import annotations

from collections.abc import Mapping

from headrace.console.http_errors import bad_request

Query = Mapping[str, str]


def is_true(text: str | None) -> bool:
    """Return True for the text ``true``."""
    return text == "true"


def whole_number(query: Query, name: str, default: int) -> int:
    """Return a whole number of a query.

    Raises:
        HttpError: the text is not a whole number of at most 9 digits.
    """
    text = query.get(name)
    if not text:
        return default
    if not text.isascii() or not text.isdecimal() or len(text) > 9:
        raise bad_request(f"'{name}' is not a whole number", "invalid_pagination_parameters")
    return int(text)
