# SPDX-License-Identifier: Apache-2.0
"""Bodies of JSON. A whole batch goes through Arrow's reader when every body fits the schema.

Joined by line feeds the bodies are one text of lines. When no body holds a line feed, all begin
with `{` and end with `}`, and the reader finds as many records as there are bodies, each body was
exactly one record: no record can reach from one body into the next, since `}` and `{` never meet in
JSON. Otherwise, and when the reader refuses the text, each body is parsed by itself, which finds
the malformed ones. Both decoders give the same values.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from datetime import UTC, tzinfo
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

from headrace.columns.decode.codec import Decoded, Policy, decode_in_pieces, reason, rescued_json
from headrace.columns.decode.infer import grow, type_of_json
from headrace.columns.decode.text_columns import InexactValue, convert_nested
from headrace.columns.decode.values import Misfit, TooManyMisfits, converter, loads
from headrace.columns.schema.types import (
    ArrayType,
    BinaryType,
    DataType,
    MapType,
    StructType,
    arrow_type,
)

JOINED_BYTES_MAX: Final = 1 << 30  # Arrow's reader counts the bytes of a batch in 32 bits.
_NOT_FINITE: Final = re.compile(rb"[:\[,]\s*-?(?:N|I)")


class JsonCodec:
    """Decodes JSON into one type: a struct, an array or a map."""

    def __init__(
        self,
        kind: DataType,
        zone: tzinfo = UTC,
        policy: Policy | None = None,
        parse: Callable[[bytes], object] | None = None,
    ) -> None:
        """`parse` makes such values as JSON has of bodies of another format."""
        self.kind = kind
        self.policy = policy or Policy()
        self.arrow = arrow_type(kind)
        self._zone = zone
        self._convert = converter(kind, zone, unknown=self.policy.unknown)
        self._loads = parse
        fast = parse is None and isinstance(kind, StructType) and _fast(kind)
        self._parse = (
            pj.ParseOptions(
                explicit_schema=pa.schema(list(_as_read(self.arrow))),
                unexpected_field_behavior="error" if self.policy.unknown else "ignore",
            )
            if fast
            else None
        )

    def decode(self, bodies: Sequence[bytes]) -> Decoded:
        """Decode bodies, together as far as possible, otherwise one by one."""
        return decode_in_pieces(self, bodies)

    def decode_together(self, bodies: Sequence[bytes]) -> pa.Array | None:
        """Return the values of a batch; None if it must be decoded row by row."""
        if self._parse is None:
            return None
        try:
            return self._decode_together(bodies)
        except (InexactValue, pa.ArrowInvalid, pa.ArrowNotImplementedError, UnicodeDecodeError):
            return None

    def decode_each(self, bodies: Sequence[bytes]) -> Decoded:
        """Decode row by row; this decides whether a body is malformed."""
        values: list[object] = []
        decoded = Decoded(pa.nulls(0))
        for index, body in enumerate(bodies):
            value = None
            try:
                parsed = loads(body.decode()) if self._loads is None else self._loads(body)
                misfits: list[Misfit] = []
                value = self._convert(parsed, misfits) if parsed is not None else None
                if value is None:
                    decoded.faults[index] = "the body is of another kind than the schema's"
                elif misfits and not self._settle(index, parsed, misfits, decoded):
                    value = None
            except UnicodeDecodeError as error:
                decoded.faults[index] = reason(f"no UTF-8: {error.reason} at {error.start}")
            except TooManyMisfits as error:
                decoded.faults[index] = reason(error)
            except ValueError as error:
                decoded.faults[index] = reason(
                    f"no JSON: {error}" if self._loads is None else error
                )
            except RecursionError:
                decoded.faults[index] = "it cannot be read: nested too deep"
            values.append(value)
        decoded.values = pa.array(values, self.arrow)
        return decoded

    def _settle(self, index: int, parsed: object, misfits: list[Misfit], decoded: Decoded) -> bool:
        """Rescue the misfits and return True; False if they make the row malformed."""
        mismatch = next((misfit for misfit in misfits if not misfit.new), None)
        if mismatch is not None and not self.policy.rescue:
            decoded.faults[index] = reason(mismatch)
            return False
        if any(misfit.new for misfit in misfits) and isinstance(self.kind, StructType):
            decoded.grown = grow(decoded.grown or self.kind, type_of_json(parsed))
            if decoded.first_new is None:
                decoded.first_new = index
        decoded.rescued[index] = rescued_json(misfits)
        return True

    def _decode_together(self, bodies: Sequence[bytes]) -> pa.Array:
        data = b"\n".join(bodies)
        if len(data) > JOINED_BYTES_MAX or data.count(b"\n") != len(bodies) - 1:
            raise InexactValue
        octets = pa.array(bodies, pa.binary())
        if not pc.all(pc.and_(pc.starts_with(octets, b"{"), pc.ends_with(octets, b"}"))).as_py():
            raise InexactValue
        if _NOT_FINITE.search(data):
            raise InexactValue
        octets.cast(pa.string())  # Checks that it is UTF-8.
        table = pj.read_json(
            pa.BufferReader(data),
            read_options=pj.ReadOptions(use_threads=False, block_size=len(data) + 1),
            parse_options=self._parse,
        )
        if table.num_rows != len(bodies):
            raise InexactValue
        columns = [
            convert_nested(column.combine_chunks(), field.type, self._zone)
            for column, field in zip(table.columns, self.arrow, strict=True)
        ]
        return pa.StructArray.from_arrays(columns, fields=list(self.arrow))


def _fast(kind: DataType) -> bool:
    """Return True if Arrow's reader has the type and reads it as we do."""
    if isinstance(kind, StructType):
        return all(_fast(field.kind) for field in kind.fields)
    if isinstance(kind, ArrayType):
        return _fast(kind.element)
    return not isinstance(kind, MapType | BinaryType)


def _as_read(kind: pa.DataType) -> pa.DataType:
    """The type that Arrow's reader is asked for: dates and times stay text at first."""
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(field.name, _as_read(field.type)) for field in kind])
    if pa.types.is_list(kind):
        return pa.list_(_as_read(kind.value_type))
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
        return pa.string()
    return kind
