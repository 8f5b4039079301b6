# SPDX-License-Identifier: Apache-2.0
"""Values of tables as JSON has them, for operators and for definitions."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any


def described(value: Any) -> Any:
    """Return a value of a table in a form that JSON has."""
    if isinstance(value, Mapping):
        return {str(key): described(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [described(item) for item in value]
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value).decode("utf-8", "backslashreplace")
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if value is None or isinstance(value, str | int | float | bool):
        return value
    return str(value)
