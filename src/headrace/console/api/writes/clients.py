# SPDX-License-Identifier: Apache-2.0
"""Closing connections."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.console.api.reads.clients import OWN, find_connection
from headrace.console.http.errors import bad_request
from headrace.console.http.routes import Route, by_path
from headrace.user_tags import MANAGEMENT

if TYPE_CHECKING:
    from headrace.console.http.call import HttpCall

REASON = "Closed via management plugin"  # RabbitMQ's words.
REASON_MAX = 255  # Bytes of a reply text.


async def close_connection(call: HttpCall, name: str) -> None:
    """Close a connection; header ``X-Reason`` is the text that its client gets."""
    reason = reason_of(call)
    one = await find_connection(call, name)
    await call.ask("close connection", id=one.row["number"], reason=reason)


async def close_connections_of_user(call: HttpCall, username: str) -> None:
    """Close all connections of a user, which are the request's own unless it administers."""
    reason = reason_of(call)
    for one in await call.state.connections.all():
        if one.row["user"] == username and call.identity.sees_user(username):
            await call.ask("close connection", id=one.row["number"], reason=reason)


def reason_of(call: HttpCall) -> str:
    """Return the text for the client.

    Raises:
        HttpError: it is too long.
    """
    reason = call.request.headers.get("X-Reason") or REASON
    if len(reason.encode(errors="replace")) > REASON_MAX:
        raise bad_request(f"X-Reason has more than {REASON_MAX} bytes")
    return reason


ROUTES = (
    Route(
        "DELETE",
        "/api/connections/{name}",
        by_path(close_connection),
        MANAGEMENT,
        OWN,
        "Close a connection; its client gets `X-Reason`.",
    ),
    Route(
        "DELETE",
        "/api/connections/username/{username}",
        by_path(close_connections_of_user),
        MANAGEMENT,
        OWN,
        "Close the connections of a user.",
    ),
)
