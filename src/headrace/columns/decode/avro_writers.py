# SPDX-License-Identifier: Apache-2.0
"""Writers' schemas of Avro that others have registered, and which may be anything.

fastavro reads what a schema says with no bound of its own: a record that contains itself could
exhaust the stack of the process, and an array of values without bytes never ends. Both are refused.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, cast

from fastavro import parse_schema

from headrace.columns.decode.avro import DEPTH_MAX, AvroSchemaError, plain
from headrace.columns.decode.codec import reason

if TYPE_CHECKING:
    from headrace.untyped import Json, JsonObject

SIZES: Final = {"null": False, "boolean": True, "int": True, "long": True, "float": True}


def read_writer(text: str, references: Sequence[tuple[str, str]] = ()) -> JsonObject:
    """Parse the schema of a writer; its references are given dependencies first.

    AvroSchemaError if the text is not a schema of a record, if the schema contains itself, or if
    it has an array of values without bytes.
    """
    named: dict[str, JsonObject] = {}
    try:
        for _, other in references:
            parse_schema(plain(json.loads(other)), named)
        parsed = parse_schema(plain(json.loads(text)), named)
    except Exception as error:  # noqa: BLE001  # Any error means that it is not a schema.
        raise AvroSchemaError(f"is not an Avro schema: {reason(error)}") from None
    if not isinstance(parsed, dict) or parsed.get("type") != "record":
        raise AvroSchemaError("is not an Avro schema of a record")
    _Walk(named).has_bytes(parsed, 0)
    return cast("JsonObject", parsed)


class _Walk:
    """Whether an encoded value of each type has at least one byte."""

    def __init__(self, named: dict[str, JsonObject]) -> None:
        self._named = named
        self._open: set[str] = set()
        self._done: dict[str, bool] = {}

    def has_bytes(self, schema: Json, depth: int) -> bool:
        if depth > DEPTH_MAX:
            raise AvroSchemaError(f"nests types deeper than {DEPTH_MAX}")
        if isinstance(schema, list):  # A union has the number of its branch.
            for branch in schema:
                self.has_bytes(branch, depth + 1)
            return True
        if isinstance(schema, str):
            if schema in self._named:
                return self._record(self._named[schema], depth)
            return schema != "null"
        kind = schema["type"]
        if kind in ("record", "error"):
            return self._record(schema, depth)
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

    def _record(self, schema: JsonObject, depth: int) -> bool:
        if schema["type"] not in ("record", "error"):
            return self.has_bytes({**schema}, depth)
        name = schema["name"]
        if name in self._open:
            raise AvroSchemaError(f"has the type {name!r}, which contains itself")
        if name not in self._done:
            self._open.add(name)
            fields = [self.has_bytes(field["type"], depth + 1) for field in schema["fields"]]
            self._done[name] = any(fields)
            self._open.discard(name)
        return self._done[name]
