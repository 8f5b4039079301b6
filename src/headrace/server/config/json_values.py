# SPDX-License-Identifier: Apache-2.0
"""Values of field tables as JSON values."""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TypeAlias

Json: TypeAlias = "dict[str, Json] | list[Json] | str | int | float | None"  # bool is an int.


def as_json(value: object) -> Json:
    """Return a value of a field table as a JSON value; bytes become text."""
    if isinstance(value, Mapping):
        return {str(key): as_json(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [as_json(item) for item in value]
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value).decode("utf-8", "backslashreplace")
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, str):
        return printable(value)
    if value is None or isinstance(value, int | float | bool):
        return value
    return str(value)


def printable(text: str) -> str:
    """Return a property's text with a Python escape for each byte that is not UTF-8."""
    try:
        return text.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
    except UnicodeEncodeError:  # The text has surrogates that do not stand for bytes.
        return text


def table_as_json(table: Mapping[str, object]) -> dict[str, Json]:
    """Return a field table as a JSON object."""
    return {name: as_json(value) for name, value in table.items()}


def iso_time(ms: int) -> str:
    """Return milliseconds since 1970 as ISO 8601 in UTC, to the second."""
    return datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="seconds")
