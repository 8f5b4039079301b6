# SPDX-License-Identifier: Apache-2.0
"""Parsing of Avro schemas of writers, which come from a registry and may be hostile.

fastavro decodes without limits. A record that contains itself could exhaust the stack of the
process, and an array of values without bytes could have any length. The parser refuses both.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, cast

from fastavro import parse_schema

from headrace.columns.decode.avro import DEPTH_MAX, AvroSchemaError, drop_unknown_logical_types
from headrace.columns.decode.codec import format_reason

if TYPE_CHECKING:
    from headrace.untyped import Json, JsonObject


def parse_writer_schema(text: str, references: Sequence[tuple[str, str]] = ()) -> JsonObject:
    """Parse the schema of a writer.

    `references` are the referenced schemas as pairs of name and text, dependencies first.

    Raises:
        AvroSchemaError: the text is not a schema of a record, the schema contains itself, or it has
            an array of values without bytes.
    """
    named_types: dict[str, JsonObject] = {}
    try:
        for _, reference in references:
            parse_schema(drop_unknown_logical_types(json.loads(reference)), named_types)
        parsed = parse_schema(drop_unknown_logical_types(json.loads(text)), named_types)
    except Exception as error:  # noqa: BLE001  # Any error means that it is not a schema.
        raise AvroSchemaError(f"is not an Avro schema: {format_reason(error)}") from None
    if not isinstance(parsed, dict) or parsed.get("type") != "record":
        raise AvroSchemaError("is not an Avro schema of a record")
    _SizeCheck(named_types).has_bytes(parsed, 0)
    return cast("JsonObject", parsed)


class _SizeCheck:
    """A check that no type contains itself, and that all elements of arrays have bytes."""

    def __init__(self, named_types: dict[str, JsonObject]) -> None:
        self._named = named_types
        self._open_names: set[str] = set()
        self._has_bytes_by_name: dict[str, bool] = {}

    def has_bytes(self, schema: Json, depth: int) -> bool:
        """Return True if every encoded value has at least one byte.

        Raises:
            AvroSchemaError: the schema fails the check.
        """
        if depth > DEPTH_MAX:
            raise AvroSchemaError(f"nests types deeper than {DEPTH_MAX}")
        if isinstance(schema, list):  # A union is encoded with the number of its branch.
            for branch in schema:
                self.has_bytes(branch, depth + 1)
            return True
        if isinstance(schema, str):
            if schema in self._named:
                return self._record_has_bytes(self._named[schema], depth)
            return schema != "null"
        kind = schema["type"]
        if kind in ("record", "error"):
            return self._record_has_bytes(schema, depth)
        if kind == "array":
            if not self.has_bytes(schema["items"], depth + 1):
                raise AvroSchemaError("has an array of values without bytes")
            return True
        if kind == "map":
            self.has_bytes(schema["values"], depth + 1)
            return True
        if kind == "fixed":
            return bool(schema["size"])
        return kind == "enum" or self.has_bytes(kind, depth + 1)

    def _record_has_bytes(self, schema: JsonObject, depth: int) -> bool:
        """Return True if a record has a field with bytes; each named type is checked once."""
        if schema["type"] not in ("record", "error"):
            return self.has_bytes({**schema}, depth)
        name = schema["name"]
        if name in self._open_names:
            raise AvroSchemaError(f"has the type {name!r}, which contains itself")
        if name not in self._has_bytes_by_name:
            self._open_names.add(name)
            fields = [self.has_bytes(field["type"], depth + 1) for field in schema["fields"]]
            self._has_bytes_by_name[name] = any(fields)
            self._open_names.discard(name)
        return self._has_bytes_by_name[name]
