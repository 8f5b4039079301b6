# SPDX-License-Identifier: Apache-2.0
"""Dead letters of a queue by reason, queue and time."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import urlencode

from headrace.console.api.own.dead_letters import groups_of
from headrace.console.http.routes import MANAGEMENT, Route
from headrace.console.pages.commands import line
from headrace.console.pages.rendering import page
from headrace.console.pages.texts import segment

if TYPE_CHECKING:
    from headrace.console.http.call import HttpCall


async def show(call: HttpCall) -> object:
    """Return the page."""
    found = await groups_of(call)
    at = f"/queues/{segment(call.path['vhost'])}/{segment(call.path['queue'])}"
    most = max((one["count"] for one in found["hours"]), default=1)
    return page(
        call,
        "dead_letters.html",
        f"Dead letters in {call.path['queue']}",
        queue=call.path["queue"],
        at=at,
        found=found,
        groups=[
            (
                one,
                f"{at}/messages?{urlencode({'selector': one['selector']})}",
                f"{at}/errand?{urlencode({'do': 'requeue', 'selector': one['selector']})}",
            )
            for one in found["groups"]
        ],
        hours=[(one["hour"], one["count"], most) for one in found["hours"]],
        command=line("pipeline", "dead-letters", "list", call.path["queue"]),
    )


ROUTES = (
    Route(
        "GET",
        "/queues/{vhost}/{queue}/dead-letters",
        show,
        MANAGEMENT,
        "read on the queue",
        "Dead letters of a queue.",
        payloads=True,
        page=True,
    ),
)
