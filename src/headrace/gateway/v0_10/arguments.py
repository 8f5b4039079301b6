# SPDX-License-Identifier: Apache-2.0
"""Arguments of 0-10 commands, in the types of all versions."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

PLAIN: tuple[type, ...] = (bool, int, float, str, bytes)


def plain(arguments: Mapping[str, object]) -> dict[str, object]:
    """Return a map whose values are of types that do not keep their width on the wire."""
    return {key: _plain_value(value) for key, value in arguments.items()}


def _plain_value(value: object) -> object:
    if isinstance(value, dict):
        return plain(value)
    if isinstance(value, list):
        return [_plain_value(item) for item in value]
    for kind in PLAIN:
        if isinstance(value, kind):
            return kind(value)
    return value
