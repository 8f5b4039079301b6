# SPDX-License-Identifier: Apache-2.0
"""Header segments of files and stream packets, from and to the content headers of 0-x.

Both families have the same properties of these classes; a queue keeps them in the form of 0-9.
"""

from __future__ import annotations

from typing import TypeAlias

from headrace.gateway.conversion.neutral_values import (
    CannotConvert,
    decode_map_entries,
    decode_table_entries,
    encode_map_entries,
    encode_table_entries,
)
from headrace.protocol import codec_0_10, codec_0_x
from headrace.protocol.errors import AmqpError
from headrace.protocol.errors_0_10 import ExecutionError
from headrace.spec.reply_0_10 import ExecutionCode
from headrace.spec.tables import V0_9
from headrace.wire.errors import MalformedError
from headrace.wire.table import decode_table, encode_table
from headrace.wire.types_0_10 import decode_map, encode_map

ClassPair: TypeAlias = tuple[type[codec_0_10.Struct], type[codec_0_x.PropertiesBase]]

FILE = codec_0_10.FileProperties, codec_0_x.FileProperties
STREAM = codec_0_10.StreamProperties, codec_0_x.StreamProperties


def to_0_x(segment: bytes, classes: ClassPair, body_size: int) -> bytes:
    """Return the 0-9 content header for a header segment; it has no properties if that is empty.

    Raises:
        ExecutionError: the segment is malformed, or 0-9 has no form for a header.
    """
    struct_class, properties_class = classes
    structs = codec_0_10.decode_headers(segment) if segment else []
    struct = next((s for s in structs if isinstance(s, struct_class)), struct_class())
    values = {name: getattr(struct, name) for name in struct.FIELDS}
    try:
        if values["headers"] is not None:
            raw = encode_map(values["headers"])
            table = encode_table_entries(decode_map_entries(raw, 4, len(raw)))
            values["headers"] = decode_table(len(table).to_bytes(4, "big") + table)[0]
        properties = properties_class(**values)
        return codec_0_x.encode_content_header(V0_9, properties.CLASS_ID, body_size, properties)
    except (CannotConvert, MalformedError, ValueError) as error:
        raise ExecutionError(ExecutionCode.ILLEGAL_ARGUMENT, str(error)) from error


def to_0_10(header: bytes, classes: ClassPair) -> bytes:
    """Return the header segment for a content header of 0-x.

    Raises:
        CannotConvert: 0-10 has no form for a header.
    """
    struct_class = classes[0]
    try:
        properties = codec_0_x.decode_content_header(V0_9, header)[2]
        values = {name: getattr(properties, name) for name in properties.FIELDS}
        if values["headers"] is not None:
            table = encode_table(values["headers"])
            raw = encode_map_entries(decode_table_entries(table, 4, len(table)))
            values["headers"] = decode_map(len(raw).to_bytes(4, "big") + raw)[0]
        return codec_0_10.encode_headers([struct_class(**values)])
    except (AmqpError, MalformedError, ValueError) as error:
        raise CannotConvert(str(error)) from error
