# SPDX-License-Identifier: Apache-2.0
"""The access class: clients of 0-8 and 0-9 ask for tickets.

See :mod:`headrace.gateway.v0_x.tickets`.
"""

from __future__ import annotations

from typing import Any

from headrace.protocol.codec_0_x import AccessRequest, AccessRequestOk, MethodBase

NO_TICKET = 1  # What clients of 0-9-1 get that still ask: it has no tickets.


def request(connection: Any, channel: Any, method: AccessRequest) -> MethodBase:
    """Grant a ticket."""
    if not connection.early:
        return AccessRequestOk(ticket=NO_TICKET)
    ticket = connection.context.tickets.request(connection, channel, method)
    return AccessRequestOk(ticket=ticket.number)


HANDLERS: dict[str, Any] = {"access.request": request}
