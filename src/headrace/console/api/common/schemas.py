# SPDX-License-Identifier: Apache-2.0
"""Parts of the JSON Schemas of bodies and answers: types, objects and lists.

A schema of an answer has the fields that the answer always has. For RabbitMQ's paths these are
the fields, with types, that clients with strict decoders require; answers have more.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headrace.untyped import JsonObject

TEXT: JsonObject = {"type": "string"}
WHOLE: JsonObject = {"type": "integer", "minimum": 0}
FLAG: JsonObject = {"type": "boolean"}
OBJECT: JsonObject = {"type": "object"}
TEXTS: JsonObject = {"type": "array", "items": TEXT}
OBJECTS: JsonObject = {"type": "array", "items": OBJECT}
TEXT_OR_NONE: JsonObject = {"type": ["string", "null"]}
WHOLE_OR_NONE: JsonObject = {"type": ["integer", "null"], "minimum": 0}
NUMBER_OR_NONE: JsonObject = {"type": ["number", "null"], "minimum": 0}
UINT32: JsonObject = {"type": "integer", "minimum": 0, "maximum": (1 << 32) - 1}
TIME: JsonObject = {"type": "string", "pattern": r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d"}


def record(**fields: JsonObject) -> JsonObject:
    """Return the schema of an object that has all of the fields."""
    names = {name.rstrip("_").replace("__", "-"): schema for name, schema in fields.items()}
    return {"type": "object", "properties": names, "required": list(names)}


def array(schema: JsonObject) -> JsonObject:
    """Return the schema of a list without pages."""
    return {"type": "array", "items": schema}


NAMED = record(name=TEXT)
