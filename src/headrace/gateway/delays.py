# SPDX-License-Identifier: Apache-2.0
"""Publishes with the header ``x-delay`` go where they wait: see :mod:`headrace.model.delayed`."""

from __future__ import annotations

from typing import Any

from headrace.gateway.route import Route
from headrace.model.delayed import HEADER, delay_of
from headrace.wire.memory import get32
from headrace.wire.properties import HEADERS, property_range
from headrace.wire.table import decode_table

ENTRY = bytes((len(HEADER),)) + HEADER.encode()  # What a message with the header contains.
_FRAME_HEAD = 7


def delay_in(data: bytes, header: int) -> int:
    """Return the delay of a publish of 0-x in milliseconds; 0 when it has none.

    ``data`` is laid out as in :class:`headrace.model.message.Message`; its header frame starts at
    ``header``.

    Raises:
        PreconditionFailed: it makes no sense.
    """
    start = header + _FRAME_HEAD
    payload = data[start : start + get32(data, header + 3)]
    at, stop = property_range(payload, HEADERS)
    return delay_of(decode_table(payload, at)[0]) if at < stop else 0


def delayed(vhost: Any, route: Route) -> Route:
    """Return where a delayed message waits, instead of its route now.

    What leads nowhere now leads nowhere, and the broker's own queues are not kept waiting.
    """
    if route.count == 0 or route.serves:
        return route
    return Route(route.key, (vhost.delayed.queue(),), 0)
