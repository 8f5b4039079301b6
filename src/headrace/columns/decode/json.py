# SPDX-License-Identifier: Apache-2.0
"""Decoder of JSON. Arrow's reader decodes a whole batch if every body fits the schema.

The bodies are joined by line feeds. Each body is exactly one record if no body has a line feed, all
begin with `{` and end with `}`, and the reader finds as many records as there are bodies. A record
cannot continue in the next body, because `}` is never followed by `{` in JSON. In other cases, and
if the reader refuses the text, each body is parsed separately to find the malformed bodies. Both
ways return the same values.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from datetime import UTC, tzinfo
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

from headrace.columns.decode.codec import (
    Decoded,
    Policy,
    decode_in_chunks,
    format_reason,
    render_rescued,
)
from headrace.columns.decode.infer import grow, infer_json_type
from headrace.columns.decode.text_columns import InexactValue, convert_nested
from headrace.columns.decode.values import Misfit, TooManyMisfits, loads, make_converter
from headrace.columns.schema.types import (
    ArrayType,
    BinaryType,
    DataType,
    MapType,
    StructType,
    arrow_type,
)

JOINED_BYTES_MAX: Final = 1 << 30  # Arrow's reader counts the bytes of a batch in 32 bits.
# NaN and Infinity, which Arrow's reader and this package treat differently.
_NOT_FINITE: Final = re.compile(rb"[:\[,]\s*-?(?:N|I)")


class JsonCodec:
    """A decoder of JSON to one type: a struct, an array or a map."""

    def __init__(
        self,
        kind: DataType,
        zone: tzinfo = UTC,
        policy: Policy | None = None,
        parse: Callable[[bytes], object] | None = None,
    ) -> None:
        """Make a codec for the type `kind`; `zone` is the time zone of texts without one.

        `parse` parses bodies of another format to values of JSON; None for JSON itself.
        """
        self.kind = kind
        self.policy = policy or Policy()
        self.arrow = arrow_type(kind)
        self._zone = zone
        self._convert = make_converter(kind, zone, unknown=self.policy.unknown)
        self._parse_body = parse
        suits_arrow_reader = (
            parse is None and isinstance(kind, StructType) and _suits_arrow_reader(kind)
        )
        self._reader_options = (
            pj.ParseOptions(
                explicit_schema=pa.schema(list(_reader_type(self.arrow))),
                unexpected_field_behavior="error" if self.policy.unknown else "ignore",
            )
            if suits_arrow_reader
            else None
        )

    def decode(self, bodies: Sequence[bytes]) -> Decoded:
        """Decode bodies, whole batches as far as possible, otherwise row by row."""
        return decode_in_chunks(self, bodies)

    def decode_batch(self, bodies: Sequence[bytes]) -> pa.Array | None:
        """Return the values of a batch; None if it must be decoded row by row."""
        if self._reader_options is None:
            return None
        try:
            return self._decode_batch(bodies)
        except (InexactValue, pa.ArrowInvalid, pa.ArrowNotImplementedError, UnicodeDecodeError):
            return None

    def decode_rows(self, bodies: Sequence[bytes]) -> Decoded:
        """Decode row by row; only this method decides that a body is malformed."""
        values: list[object] = []
        decoded = Decoded(pa.nulls(0))
        for index, body in enumerate(bodies):
            value = None
            try:
                parsed = (
                    loads(body.decode()) if self._parse_body is None else self._parse_body(body)
                )
                misfits: list[Misfit] = []
                value = self._convert(parsed, misfits) if parsed is not None else None
                if value is None:
                    decoded.faults[index] = "the body is of another kind than the schema's"
                elif misfits and not self._accept_misfits(index, parsed, misfits, decoded):
                    value = None
            except UnicodeDecodeError as error:
                decoded.faults[index] = format_reason(
                    f"not valid UTF-8: {error.reason} at {error.start}"
                )
            except TooManyMisfits as error:
                decoded.faults[index] = format_reason(error)
            except ValueError as error:
                decoded.faults[index] = format_reason(
                    f"not valid JSON: {error}" if self._parse_body is None else error
                )
            except RecursionError:
                decoded.faults[index] = "it cannot be read: nested too deep"
            values.append(value)
        decoded.values = pa.array(values, self.arrow)
        return decoded

    def _accept_misfits(
        self, index: int, parsed: object, misfits: list[Misfit], decoded: Decoded
    ) -> bool:
        """Rescue the misfits of a row and return True; return False if the row is malformed."""
        mismatch = next((misfit for misfit in misfits if not misfit.new), None)
        if mismatch is not None and not self.policy.rescue:
            decoded.faults[index] = format_reason(mismatch)
            return False
        if any(misfit.new for misfit in misfits) and isinstance(self.kind, StructType):
            decoded.grown = grow(decoded.grown or self.kind, infer_json_type(parsed))
            if decoded.first_new is None:
                decoded.first_new = index
        decoded.rescued[index] = render_rescued(misfits)
        return True

    def _decode_batch(self, bodies: Sequence[bytes]) -> pa.Array:
        """Return the values of a batch; raise InexactValue if Arrow might parse it differently."""
        data = b"\n".join(bodies)
        if len(data) > JOINED_BYTES_MAX or data.count(b"\n") != len(bodies) - 1:
            raise InexactValue
        body_array = pa.array(bodies, pa.binary())
        if not pc.all(
            pc.and_(pc.starts_with(body_array, b"{"), pc.ends_with(body_array, b"}"))
        ).as_py():
            raise InexactValue
        if _NOT_FINITE.search(data):
            raise InexactValue
        body_array.cast(pa.string())  # Raises ArrowInvalid if a body is not UTF-8.
        table = pj.read_json(
            pa.BufferReader(data),
            read_options=pj.ReadOptions(use_threads=False, block_size=len(data) + 1),
            parse_options=self._reader_options,
        )
        if table.num_rows != len(bodies):
            raise InexactValue
        columns = [
            convert_nested(column.combine_chunks(), field.type, self._zone)
            for column, field in zip(table.columns, self.arrow, strict=True)
        ]
        return pa.StructArray.from_arrays(columns, fields=list(self.arrow))


def _suits_arrow_reader(kind: DataType) -> bool:
    """Return True if Arrow's reader reads values of the type as the module `values` does."""
    if isinstance(kind, StructType):
        return all(_suits_arrow_reader(field.kind) for field in kind.fields)
    if isinstance(kind, ArrayType):
        return _suits_arrow_reader(kind.element)
    return not isinstance(kind, MapType | BinaryType)


def _reader_type(kind: pa.DataType) -> pa.DataType:
    """Return the type for Arrow's reader, which reads dates and times as text."""
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(field.name, _reader_type(field.type)) for field in kind])
    if pa.types.is_list(kind):
        return pa.list_(_reader_type(kind.value_type))
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
        return pa.string()
    return kind
