# SPDX-License-Identifier: Apache-2.0
"""Fields of requests that several resources read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.server.definitions.document import DocumentError
from headrace.server.definitions.elements import Element
from headrace.server.management.call import OperationRefused

if TYPE_CHECKING:
    from headrace.server.management.call import Call

NAME_BYTES_MAX = 255


def read_arguments(call: Call) -> dict[str, object]:
    """Return the ``arguments`` of a request, as a field table can hold them.

    Raises:
        OperationRefused: a field table cannot hold them.
    """
    return read_table(call.request.get("arguments"), "arguments")


def read_table(value: object, field: str) -> dict[str, object]:
    """Return a JSON object that a field table can hold.

    Raises:
        OperationRefused: the value is something else.
    """
    try:
        return Element(field, 0, {"arguments": value}, None).arguments()
    except DocumentError as error:
        raise OperationRefused("bad-request", f"'{field}': {error.text}") from None


def read_name(call: Call, field: str = "name", default: str | None = None) -> str:
    """Return a field that holds a name, at most ``NAME_BYTES_MAX`` bytes long."""
    return call.text(field, default, size_max=NAME_BYTES_MAX)


def read_reason(call: Call, default: str, bytes_max: int) -> str:
    """Return the ``reason`` of a request, at most ``bytes_max`` bytes of printable text.

    Clients receive it, or lists show it.
    """
    reason = call.text("reason", default, size_max=bytes_max)
    if not reason.isprintable():
        call.refuse("bad-request", "'reason' has characters that cannot be printed")
    return reason


def read_fields(call: Call, *names: str) -> dict[str, object]:
    """Return the fields of these names that a request has."""
    return {name: call.request[name] for name in names if call.request.get(name) is not None}
