# SPDX-License-Identifier: Apache-2.0
"""Parts of JSON Schemas: types, objects, lists and pages."""

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


def record(**fields: JsonObject) -> JsonObject:
    """Return the schema of an object that has all of the fields."""
    names = {name.rstrip("_").replace("__", "-"): schema for name, schema in fields.items()}
    return {"type": "object", "properties": names, "required": list(names)}


def every(schema: JsonObject) -> JsonObject:
    """Return the schema of a list without pages."""
    return {"type": "array", "items": schema}


def rows(schema: JsonObject) -> JsonObject:
    """Return the schema of a list, or of a page of it."""
    page = record(
        total_count=WHOLE,
        item_count=WHOLE,
        filtered_count=WHOLE,
        page=WHOLE,
        page_size=WHOLE,
        page_count=WHOLE,
        items=every(schema),
    )
    return {"anyOf": [every(schema), page]}
