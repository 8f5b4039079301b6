# SPDX-License-Identifier: Apache-2.0
"""The columns of a read to which the user gives no schema."""

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
    """Return the columns of a read with these options; all columns if the options are invalid.

    The reader reports invalid options, because the checks depend on whether it is a batch or a
    streaming read, which is not known here.
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
    """Return the options of a batch or streaming read; None if they are invalid for both."""
    for streaming in (False, True):
        try:
            return read_options(options, streaming=streaming)
        except OptionError:
            continue
    return None


def _decoded_fields(parsed_options: ReadOptions, decoding: DecodeOptions) -> list[StructField]:
    """Return the columns that result from decoding bodies."""
    # The import loads Arrow, which a read without decoding does not need yet.
    from headrace.columns.sample import find_value_type

    fields = [StructField("value", find_value_type(parsed_options, decoding))]
    if decoding.evolution is not Evolution.NONE:
        fields.append(StructField(decoding.rescued, StringType()))
    if decoding.mode == "PERMISSIVE" and decoding.format != "binary":
        fields.append(StructField("_corrupt_record", BinaryType()))
        fields.append(StructField("_corrupt_reason", StringType()))
    return fields
