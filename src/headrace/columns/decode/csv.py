# SPDX-License-Identifier: Apache-2.0
"""Decoder of CSV: each body is one record, quoted as in RFC 4180.

Arrow's reader parses a whole batch if no body has quotes, all have the right number of columns, and
all values are unambiguous. Otherwise each body is parsed separately.
"""

from __future__ import annotations

import csv
from collections.abc import Sequence
from datetime import UTC, tzinfo
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pv

from headrace.columns.decode.codec import (
    Decoded,
    Policy,
    decode_in_chunks,
    format_reason,
    render_rescued,
)
from headrace.columns.decode.csv_dialect import Dialect
from headrace.columns.decode.infer import grow, infer_text_type
from headrace.columns.decode.text_columns import InexactValue, convert_text
from headrace.columns.decode.values import Misfit, make_text_converter
from headrace.columns.schema.types import StructField, StructType, arrow_type

JOINED_BYTES_MAX: Final = 1 << 30  # The size of a batch for Arrow's reader.
TEXT_LENGTH_MAX: Final = 1 << 30  # Characters of one text.
COLUMNS_NEW_MAX: Final = 1000  # Columns of a record beyond those of the schema.


class CsvCodec:
    """A decoder of CSV to a struct whose columns have no nested types."""

    def __init__(
        self,
        kind: StructType,
        zone: tzinfo = UTC,
        policy: Policy | None = None,
        dialect: Dialect | None = None,
    ) -> None:
        self.kind = kind
        self.policy = policy or Policy()
        self.dialect = dialect or Dialect()
        self.arrow = arrow_type(kind)
        self._zone = zone
        self._names = [field.name for field in kind.fields]
        self._converts = [make_text_converter(field.kind, zone) for field in kind.fields]
        self._special_characters = [
            mark.encode() for mark in (self.dialect.quote, self.dialect.escape, "\r") if mark
        ]

    def decode(self, bodies: Sequence[bytes]) -> Decoded:
        """Decode bodies, whole batches as far as possible, otherwise row by row."""
        return decode_in_chunks(self, bodies)

    def decode_batch(self, bodies: Sequence[bytes]) -> pa.Array | None:
        """Return the values of a batch; None if it must be decoded row by row."""
        try:
            return self._decode_batch(bodies)
        except (InexactValue, pa.ArrowInvalid):
            return None

    def decode_rows(self, bodies: Sequence[bytes]) -> Decoded:
        """Decode row by row; only this method decides that a body is malformed."""
        values: list[object] = []
        decoded = Decoded(pa.nulls(0))
        previous_limit = csv.field_size_limit(TEXT_LENGTH_MAX)
        try:
            for index, body in enumerate(bodies):
                value = None
                try:
                    value = self._convert_row(index, self.dialect.parse(body), decoded)
                except UnicodeDecodeError as error:
                    decoded.faults[index] = format_reason(
                        f"not valid UTF-8: {error.reason} at {error.start}"
                    )
                except (ValueError, csv.Error) as error:
                    decoded.faults[index] = format_reason(f"no record of CSV: {error}")
                values.append(value)
        finally:
            csv.field_size_limit(previous_limit)
        decoded.values = pa.array(values, self.arrow)
        return decoded

    def _convert_row(
        self, index: int, texts: list[str], decoded: Decoded
    ) -> dict[str, object] | None:
        """Return the values of a record by column; None, and a fault in `decoded`, if malformed."""
        count = len(self._names)
        extra_texts = texts[count:]
        if len(texts) < count or (extra_texts and not self.policy.unknown):
            decoded.faults[index] = f"it has {len(texts)} columns instead of {count}"
            return None
        if len(extra_texts) > COLUMNS_NEW_MAX:
            decoded.faults[index] = f"it has more than {COLUMNS_NEW_MAX} columns too many"
            return None
        row: dict[str, object] = {}
        misfits = []
        for name, convert, text in zip(self._names, self._converts, texts, strict=False):
            if text != self.dialect.null:
                row[name] = value = convert(text)
                if value is None:
                    misfits.append(Misfit(name, text, new=False))
        if misfits and not self.policy.rescue:
            decoded.faults[index] = format_reason(misfits[0])
            return None
        new_texts = {
            f"_c{count + extra_index}": text
            for extra_index, text in enumerate(extra_texts)
            if text != self.dialect.null
        }
        if new_texts:
            new_fields = [
                StructField(name, infer_text_type(text)) for name, text in new_texts.items()
            ]
            decoded.grown = grow(decoded.grown or self.kind, StructType(new_fields))
            if decoded.first_new is None:
                decoded.first_new = index
            misfits += [Misfit(name, text, new=True) for name, text in new_texts.items()]
        if misfits:
            decoded.rescued[index] = render_rescued(misfits)
        return row

    def _decode_batch(self, bodies: Sequence[bytes]) -> pa.Array:
        """Return the values of a batch; raise InexactValue if Arrow might parse it differently."""
        data = b"\n".join(bodies)
        if len(data) > JOINED_BYTES_MAX or data.count(b"\n") != len(bodies) - 1:
            raise InexactValue
        if any(mark in data for mark in self._special_characters):
            raise InexactValue
        body_array = pa.array(bodies, pa.binary())
        if pc.min(pc.binary_length(body_array)).as_py() == 0:
            raise InexactValue
        table = pv.read_csv(
            pa.BufferReader(data),
            read_options=pv.ReadOptions(
                use_threads=False, block_size=len(data) + 1, column_names=self._names
            ),
            parse_options=pv.ParseOptions(
                delimiter=self.dialect.separator, quote_char=False, ignore_empty_lines=False
            ),
            convert_options=pv.ConvertOptions(
                column_types=dict.fromkeys(self._names, pa.string()),
                null_values=[self.dialect.null],
                strings_can_be_null=True,
            ),
        )
        if table.num_rows != len(bodies):
            raise InexactValue
        columns = [
            convert_text(column.combine_chunks(), field.type, self._zone)
            for column, field in zip(table.columns, self.arrow, strict=True)
        ]
        return pa.StructArray.from_arrays(columns, fields=list(self.arrow))
