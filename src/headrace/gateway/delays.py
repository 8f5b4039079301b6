# SPDX-License-Identifier: Apache-2.0
"""Publishes with the header ``x-delay`` go where they wait: see :mod:`headrace.model.delayed`."""

from __future__ import annotations

from typing import Any

from headrace.gateway.conversion.headers import header_at, table_in
from headrace.gateway.route import Route
from headrace.model.delayed import HEADER, delay_of

ENTRY = bytes((len(HEADER),)) + HEADER.encode()  # What a message with the header contains.


def delay_in(data: bytes, header: int) -> int:
    """Return the delay of a publish of 0-x in milliseconds; 0 when it has none.

    ``data`` is laid out as in :class:`headrace.model.message.Message`; its header frame starts at
    ``header``.

    Raises:
        PreconditionFailed: it makes no sense.
    """
    return delay_of(table_in(header_at(data, header)[0]))


def delayed(vhost: Any, route: Route) -> Route:
    """Return where a delayed message waits, instead of its route now.

    What leads nowhere now leads nowhere, and the broker's own queues are not kept waiting.
    """
    if route.count == 0 or route.serves:
        return route
    return Route(route.key, (vhost.delayed.queue(),), 0)
