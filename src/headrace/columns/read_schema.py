# SPDX-License-Identifier: Apache-2.0
"""The columns of a read for which the user gives no schema."""

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
    """Return the columns of a read with these options, when the user gives no schema.

    The reader reports errors in the options, because it knows whether the read is a stream.
    """
    read = _understood(options)
    if read is None:
        return all_columns()
    fields = [field for field in all_columns().fields if field.name not in read.left_out]
    if read.decoding is not None:
        fields = [*_decoded_fields(read, read.decoding), *fields]
    return StructType(fields)


def _understood(options: Mapping[str, str]) -> ReadOptions | None:
    for streaming in (False, True):
        try:
            return read_options(options, streaming=streaming)
        except OptionError:
            continue
    return None


def _decoded_fields(read: ReadOptions, decoding: DecodeOptions) -> list[StructField]:
    # Imported late: it loads Arrow, which a read without decoding does not need.
    from headrace.columns.sample import value_type

    fields = [StructField("value", value_type(read, decoding))]
    if decoding.evolution is not Evolution.NONE:
        fields.append(StructField(decoding.rescued, StringType()))
    if decoding.mode == "PERMISSIVE" and decoding.format != "binary":
        fields.append(StructField("_corrupt_record", BinaryType()))
        fields.append(StructField("_corrupt_reason", StringType()))
    return fields
