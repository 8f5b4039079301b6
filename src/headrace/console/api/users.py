# SPDX-License-Identifier: Apache-2.0
"""``/api/whoami`` and ``/api/users``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.console.http.routes import MANAGEMENT, Route

if TYPE_CHECKING:
    from headrace.console.http.call import HttpCall


async def whoami(call: HttpCall) -> object:
    """Return the user of the request."""
    identity = call.identity
    return {"name": identity.name, "tags": list(identity.tags), "is_internal_user": True}


ROUTES = (
    Route("GET", "/api/whoami", whoami, MANAGEMENT, "", "The user of the request, with its tags."),
)
