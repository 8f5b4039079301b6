# SPDX-License-Identifier: Apache-2.0
"""A strict reader of JSON, for all documents from outside.

It refuses an object with a repeated name, which RFC 8259 leaves undefined, so that readers differ.
It also refuses Infinity and NaN, which are not JSON, and numbers with a fraction or an exponent
that are larger than a double can be.
"""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from headrace.untyped import Json

NAME_SHOWN_MAX = 64  # Characters of a name in an error.
NUMBER_SHOWN_MAX = 24  # Characters of a number in an error.


class UnfitValue(ValueError):
    """A text that is JSON by the grammar, but that readers would decode to different values."""


class RepeatedName(UnfitValue):
    """An object with a repeated name."""


def read_json(text: str | bytes) -> Json:
    """Return the value of a JSON text.

    Raises:
        RepeatedName: an object has a repeated name.
        UnfitValue: a number with a fraction or an exponent is larger than a double can be.
        ValueError: the text is not JSON, or is nested too deeply.
    """
    try:
        return json.loads(
            text,
            object_pairs_hook=build_object,
            parse_constant=refuse_constant,
            parse_float=parse_float,
        )
    except RecursionError:
        raise ValueError("lists and objects are nested too deeply") from None


def build_object(pairs: list[tuple[str, object]]) -> dict[str, object]:
    """Return an object with these names and values.

    Raises:
        RepeatedName: a name is repeated.
    """
    members = dict(pairs)
    if len(members) < len(pairs):
        name = repeated_name(pairs)
        raise RepeatedName(f"the name {json.dumps(name[:NAME_SHOWN_MAX])} occurs twice")
    return members


def repeated_name(pairs: list[tuple[str, object]]) -> str:
    """Return the first repeated name; empty if no name is repeated."""
    seen: set[str] = set()
    for name, _ in pairs:
        if name in seen:
            return name
        seen.add(name)
    return ""


def parse_float(text: str) -> float:
    """Return the value of a number with a fraction or an exponent.

    Raises:
        UnfitValue: the number is larger than a double can be.
    """
    value = float(text)
    if math.isinf(value):
        raise UnfitValue(f"the number {text[:NUMBER_SHOWN_MAX]} is larger than a double can be")
    return value


def refuse_constant(name: str) -> NoReturn:
    """Refuse Infinity and NaN."""
    raise ValueError(f"{name} is not a JSON number")
