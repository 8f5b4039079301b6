# SPDX-License-Identifier: Apache-2.0
"""JSON that comes from outside, read in one way wherever it comes in.

RFC 8259 leaves open what an object with a repeated name means, and readers differ: such an object
is refused, and so are Infinity and NaN, which are not JSON.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from headrace.untyped import Json

NAME_SHOWN_MAX = 64  # Characters of a name in an error.


class RepeatedName(ValueError):
    """An object has a name twice."""


def read_json(text: str | bytes) -> Json:
    """Return the value of a text.

    Raises:
        RepeatedName: an object has a name twice.
        ValueError: it is not JSON, or is nested too deeply.
    """
    try:
        return json.loads(text, object_pairs_hook=unrepeated, parse_constant=refuse_constant)
    except RecursionError:
        raise ValueError("lists and objects are nested too deeply") from None


def unrepeated(pairs: list[tuple[str, object]]) -> dict[str, object]:
    """Return an object of names and values.

    Raises:
        RepeatedName: a name is repeated.
    """
    members = dict(pairs)
    if len(members) < len(pairs):
        name = repeated_name(pairs)
        raise RepeatedName(f"the name {json.dumps(name[:NAME_SHOWN_MAX])} is there twice")
    return members


def repeated_name(pairs: list[tuple[str, object]]) -> str:
    """Return the first name that is there before; "" without one."""
    seen: set[str] = set()
    for name, _ in pairs:
        if name in seen:
            return name
        seen.add(name)
    return ""


def refuse_constant(name: str) -> NoReturn:
    """Refuse Infinity and NaN."""
    raise ValueError(f"{name} is no number of JSON")
