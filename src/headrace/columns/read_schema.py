# SPDX-License-Identifier: Apache-2.0
"""The columns of a read without a schema from the user."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from headrace.columns.options.decode_options import Evolution
from headrace.columns.options.options import OptionError, read_options
from headrace.columns.schema.columns import all_columns
from headrace.columns.schema.types import BinaryType, StringType, StructField, StructType

if TYPE_CHECKING:
    from headrace.columns.options.decode_options import DecodeOptions
    from headrace.columns.options.options import ReadOptions


def read_schema(options: Mapping[str, str]) -> StructType:
    """Return the columns of a read with these options.

    With invalid options these are all columns. The reader reports the errors, because only the
    reader has the use, batch or stream, on which the checks depend.
    """
    parsed_options = _parse_options(options)
    if parsed_options is None:
        return all_columns()
    fields = [
        field for field in all_columns().fields if field.name not in parsed_options.excluded_columns
    ]
    if parsed_options.decoding is not None:
        fields = [*_decoded_fields(parsed_options, parsed_options.decoding), *fields]
    return StructType(fields)


def _parse_options(options: Mapping[str, str]) -> ReadOptions | None:
    for streaming in (False, True):
        try:
            return read_options(options, streaming=streaming)
        except OptionError:
            continue
    return None


def _decoded_fields(parsed_options: ReadOptions, decoding: DecodeOptions) -> list[StructField]:
    # Imported late: it loads Arrow, which a read without decoding does not need.
    from headrace.columns.sample import value_type

    fields = [StructField("value", value_type(parsed_options, decoding))]
    if decoding.evolution is not Evolution.NONE:
        fields.append(StructField(decoding.rescued, StringType()))
    if decoding.mode == "PERMISSIVE" and decoding.format != "binary":
        fields.append(StructField("_corrupt_record", BinaryType()))
        fields.append(StructField("_corrupt_reason", StringType()))
    return fields
