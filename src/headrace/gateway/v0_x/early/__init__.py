# SPDX-License-Identifier: Apache-2.0
"""Features that only 0-8 and 0-9 have, as a plug-in of the gateway.

These are access tickets with their realms, channels that can be resumed, and 0-9's message class.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.gateway.v0_x.early import message_methods
from headrace.gateway.v0_x.early.channel_resume import Suspensions, opening, resuming
from headrace.gateway.v0_x.early.tickets import NEEDS, Tickets

if TYPE_CHECKING:
    from headrace.gateway.v0_x.connection.context import V0xContext


def register(context: V0xContext) -> None:
    """Add the handlers of these features; the handlers of all other classes are there already."""
    methods = context.methods
    methods.handlers.update(message_methods.HANDLERS)
    suspensions = Suspensions(lambda: context.offers.resume_ms)
    methods.handlers["channel.open"] = opening(suspensions, methods.handlers["channel.open"])
    methods.handlers["channel.resume"] = resuming(suspensions)
    methods.keep_channel = suspensions.suspend
    tickets = Tickets(lambda: context.offers.realms)
    for kind in ("exchange", "queue"):
        name = f"{kind}.declare"
        methods.handlers[name] = tickets.owning(kind, methods.handlers[name])
    for name in NEEDS:
        if name in methods.handlers:
            methods.handlers[name] = tickets.guard(methods.handlers[name])
        elif name in methods.content_handlers:
            methods.content_handlers[name] = tickets.guard_content(methods.content_handlers[name])
    methods.handlers["access.request"] = tickets.request
    methods.check_publish = tickets.check_publish
