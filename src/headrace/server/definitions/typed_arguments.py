# SPDX-License-Identifier: Apache-2.0
"""Arguments of types that JSON lacks: times, decimals, bytes.

An element has its arguments in JSON, as in RabbitMQ's files. If JSON does not preserve them, it
also has them as the base64 of a field table, so that an import restores them exactly.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping

from headrace.model.exchange.binding import arguments_digest
from headrace.server.config.json_values import Json, table_as_json
from headrace.wire.errors import MalformedError
from headrace.wire.table import decode_table, encode_table

ARGUMENTS, TYPED = "arguments", "headrace_arguments"


def argument_fields(arguments: Mapping[str, object] | None) -> dict[str, Json]:
    """Return the fields of an element for its arguments: in JSON, and typed if necessary."""
    if not arguments:
        return {ARGUMENTS: {}}
    plain = table_as_json(arguments)
    if arguments_digest(plain) == arguments_digest(arguments):
        return {ARGUMENTS: plain}
    try:
        data = encode_table(arguments)
    except (ValueError, TypeError):  # A type that only 0-10 has.
        return {ARGUMENTS: plain}
    return {ARGUMENTS: plain, TYPED: base64.b64encode(data).decode()}


def typed_arguments(plain: dict[str, object], text: str) -> dict[str, object]:
    """Return the arguments of an element that has them in JSON and as the base64 ``text``.

    If the two differ, the JSON was edited, so ``plain`` is returned.

    Raises:
        ValueError: the text is not the base64 of a field table.
    """
    try:
        table, _ = decode_table(base64.b64decode(text, validate=True))
    except (binascii.Error, MalformedError, UnicodeDecodeError):
        raise ValueError("this is not the base64 of a field table") from None
    return dict(table) if table_as_json(table) == plain else plain
