# SPDX-License-Identifier: Apache-2.0
"""Arguments of 0-10 commands, in the types of all versions."""

from __future__ import annotations

from typing import Any

PLAIN: tuple[Any, ...] = (bool, int, float, str, bytes)


def plain(value: Any) -> Any:
    """Return a map's value in types that do not tell how wide it was on the wire."""
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [plain(item) for item in value]
    for kind in PLAIN:
        if isinstance(value, kind):
            return kind(value)
    return value
