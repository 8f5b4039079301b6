# SPDX-License-Identifier: Apache-2.0
"""Fields of request bodies, with the loose types that RabbitMQ accepts.

Booleans and numbers may be strings; an empty list may stand for an empty object. Unknown fields
are ignored.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NoReturn

from headrace.console.http_errors import bad_request

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headrace.console.http.call import HttpCall
    from headrace.untyped import JsonObject

BOOLEANS = {True: True, False: False, "true": True, "false": False}
NUMBER = re.compile(r"-?[0-9]{1,18}")
BOOLEAN: JsonObject = {"type": ["boolean", "string"]}
INTEGER: JsonObject = {"type": ["integer", "string"]}
TABLE: JsonObject = {"type": ["object", "array"], "maxItems": 0}


def schema(required: tuple[str, ...] = (), **fields: JsonObject) -> JsonObject:
    """Return the JSON Schema of a body."""
    body: JsonObject = {"type": "object", "properties": fields}
    if required:
        body["required"] = list(required)
    return body


class Body:
    """The fields of a JSON body, or of a form. Methods raise HttpError for a wrong type."""

    def __init__(self, values: Mapping[str, object]) -> None:
        self.values = values

    @classmethod
    async def read(cls, call: HttpCall) -> Body:
        """Read the JSON body of a request.

        Raises:
            HttpError: the body is not a JSON object, or lacks a field that its route requires.
        """
        values = await call.body.json_object()
        for name in call.required_fields:
            if values.get(name) is None:
                raise bad_request(f"'{name}' is missing")
        return cls(values)

    def text(self, name: str, default: str = "") -> str:
        """Return a text."""
        value = self.values.get(name)
        if value is None:
            return default
        return value if isinstance(value, str) else self._refuse(name, "a string")

    def flag(self, name: str) -> bool | None:
        """Return a boolean; None without the field."""
        value = self.values.get(name)
        if value is None or value == "":
            return None
        if isinstance(value, str | bool):
            flag = BOOLEANS.get(value)
            if flag is not None:
                return flag
        return self._refuse(name, "true or false")

    def number(self, name: str) -> int | None:
        """Return a whole number; None without the field."""
        value = self.values.get(name)
        if value is None or value == "":
            return None
        if isinstance(value, int) and not isinstance(value, bool):
            return value
        if isinstance(value, float) and value.is_integer():
            return int(value)
        if isinstance(value, str) and NUMBER.fullmatch(value):
            return int(value)
        return self._refuse(name, "a whole number")

    def table(self, name: str) -> JsonObject:
        """Return an object; an empty list of clients in PHP and pyrabbit is an empty object."""
        value = self.values.get(name)
        if value is None or value == [] or value == "":
            return {}
        return value if isinstance(value, dict) else self._refuse(name, "an object")

    def texts(self, name: str) -> list[str] | None:
        """Return a list of texts, from a list or a text with commas; None without the field."""
        value = self.values.get(name)
        if value is None:
            return None
        if isinstance(value, str):
            value = value.split(",")
        if not isinstance(value, list) or not all(isinstance(text, str) for text in value):
            self._refuse(name, "a list of strings, or a string with commas")
        return [text.strip() for text in value if text.strip()]

    def names(self, name: str) -> list[str]:
        """Return a list of names, unchanged; a string is refused."""
        value = self.values.get(name)
        if not isinstance(value, list) or not all(isinstance(text, str) for text in value):
            self._refuse(name, "a list of strings")
        return value

    def _refuse(self, name: str, expected: str) -> NoReturn:
        raise bad_request(f"'{name}' is not {expected}")


def query_flag(call: HttpCall, name: str) -> bool:
    """Return True if a flag of the query is true.

    Raises:
        HttpError: the flag is neither true nor false.
    """
    value = call.query.get(name, "false").lower()  # Clients in Python send True.
    if value not in ("true", "false"):
        raise bad_request(f"'{name}' is not true or false")
    return value == "true"
