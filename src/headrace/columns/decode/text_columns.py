# SPDX-License-Identifier: Apache-2.0
"""Conversion of whole columns of text to other types.

The functions convert unambiguous texts only. For any other text they raise InexactValue, and the
module `values` converts the batch row by row.
"""

from __future__ import annotations

from datetime import UTC, tzinfo
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

_YEAR: Final = "(?:[1-9][0-9]{3}|0[1-9][0-9]{2}|00[1-9][0-9]|000[1-9])"
_DAY: Final = f"{_YEAR}-[0-9]{{2}}-[0-9]{{2}}"
_LOCAL: Final = f"{_DAY}[T ][0-9]{{2}}:[0-9]{{2}}:[0-9]{{2}}(?:[.][0-9]{{1,6}})?"
_ZONE: Final = "(?:Z|[+-](?:0[0-9]|1[0-7]):[0-5][0-9])"
_INTEGER: Final = "-?[0-9]{1,18}"
_REAL: Final = "-?[0-9]{1,17}(?:[.][0-9]{1,17})?(?:[eE]-?[0-9]{1,2})?"


class InexactValue(ValueError):  # Codecs catch it, so users never see it.
    """A batch has a text that must be converted row by row."""


def convert_nested(array: pa.Array, kind: pa.DataType, zone: tzinfo) -> pa.Array:
    """Convert dates and times from text to their types, also inside structs and lists."""
    if array.type == kind:
        return array
    if pa.types.is_struct(kind):
        fields = [
            convert_nested(array.field(index), kind[index].type, zone)
            for index in range(kind.num_fields)
        ]
        return pa.StructArray.from_arrays(fields, fields=list(kind), mask=array.is_null())
    if pa.types.is_list(kind):
        values = convert_nested(array.values, kind.value_type, zone)
        return pa.ListArray.from_arrays(array.offsets, values, type=kind, mask=array.is_null())
    return convert_text(array, kind, zone)


def convert_text(array: pa.Array, kind: pa.DataType, zone: tzinfo) -> pa.Array:
    """Convert an array of text to a type other than struct, list and map."""
    types = pa.types
    if types.is_string(kind):
        return array
    if types.is_binary(kind):
        return array.cast(kind)
    if types.is_integer(kind):
        return _require_match(array, _INTEGER).cast(kind)
    if types.is_floating(kind):
        return _require_match(array, _REAL).cast(kind)
    if types.is_boolean(kind):
        return pc.equal(_require_match(array, "true|false"), "true")
    if types.is_decimal(kind):
        return _require_match(array, _decimal_expression(kind)).cast(kind)
    if types.is_date(kind):
        return _require_match(array, _DAY).cast(kind)
    assert types.is_timestamp(kind), kind
    if kind.tz is not None and _all_match(array, _LOCAL + _ZONE):
        return array.cast(kind)
    if kind.tz is not None and zone is not UTC:
        raise InexactValue
    local = _require_match(array, _LOCAL).cast(pa.timestamp("us"))
    return local if kind.tz is None else local.cast(kind)


def _decimal_expression(kind: pa.Decimal128Type) -> str:
    integer_digits = kind.precision - kind.scale
    if integer_digits == 0:
        raise InexactValue
    fraction = f"(?:[.][0-9]{{1,{kind.scale}}})?" if kind.scale else ""
    return f"-?[0-9]{{1,{integer_digits}}}{fraction}"


def _require_match(array: pa.Array, expression: str) -> pa.Array:
    if not _all_match(array, expression):
        raise InexactValue
    return array


def _all_match(array: pa.Array, expression: str) -> bool:
    matches = pc.all(pc.match_substring_regex(array, f"^(?:{expression})$"), min_count=0)
    return bool(matches.as_py())
