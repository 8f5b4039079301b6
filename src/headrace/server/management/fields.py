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


def arguments_of(call: Call) -> dict[str, object]:
    """Return the arguments of a request, checked for a field table."""
    return table_of(call.request.get("arguments"), "arguments")


def table_of(value: object, field: str) -> dict[str, object]:
    """Return a JSON object that a field table can hold.

    Raises:
        OperationRefused: the value is something else.
    """
    try:
        return Element(field, 0, {"arguments": value}, None).arguments()
    except DocumentError as error:
        raise OperationRefused("bad-request", f"'{field}': {error.text}") from None


def name_of(call: Call, field: str = "name", default: str | None = None) -> str:
    """Return a field that holds a name, at most ``NAME_BYTES_MAX`` bytes long."""
    return call.text(field, default, size_max=NAME_BYTES_MAX)


def reason_of(call: Call, default: str, bytes_max: int) -> str:
    """Return the reason in a request, which is shown to clients or in lists."""
    reason = call.text("reason", default, size_max=bytes_max)
    if not reason.isprintable():
        call.refuse("bad-request", "'reason' has characters that cannot be printed")
    return reason


def fields_of(call: Call, *names: str) -> dict[str, object]:
    """Return those fields of a request that it has."""
    return {name: call.request[name] for name in names if call.request.get(name) is not None}
