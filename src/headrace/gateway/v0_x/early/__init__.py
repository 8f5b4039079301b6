# SPDX-License-Identifier: Apache-2.0
"""Features that only 0-8 and 0-9 have, as a plug-in of the gateway.

- `access_tickets`: the access class, and the tickets that methods of all classes carry
- `channel_resume`: channel.resume
- `message`: the message class of 0-9, its methods
- `message_transfers`: transfers to a client, its consumers, and the order of answers
- `references`: bodies that arrive in several methods, and checkpoints
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.gateway.v0_x.early import message
from headrace.gateway.v0_x.early.access_tickets import REQUIRED_RIGHTS, Tickets
from headrace.gateway.v0_x.early.channel_resume import (
    SuspendedChannels,
    make_open_handler,
    make_resume_handler,
)

if TYPE_CHECKING:
    from headrace.gateway.v0_x.connection.context import V0xContext


def register(context: V0xContext) -> None:
    """Add the handlers of these features, after the handlers of all other classes."""
    methods = context.methods
    methods.handlers.update(message.HANDLERS)
    suspended_channels = SuspendedChannels(lambda: context.offers.resume_ms)
    methods.handlers["channel.open"] = make_open_handler(
        suspended_channels, methods.handlers["channel.open"]
    )
    methods.handlers["channel.resume"] = make_resume_handler(suspended_channels)
    methods.keep_channel = suspended_channels.suspend
    tickets = Tickets(lambda: context.offers.realms)
    for resource_type in ("exchange", "queue"):
        name = f"{resource_type}.declare"
        methods.handlers[name] = tickets.extend_realm(resource_type, methods.handlers[name])
    for name in REQUIRED_RIGHTS:
        if name in methods.handlers:
            methods.handlers[name] = tickets.guard(methods.handlers[name])
        elif name in methods.content_handlers:
            methods.content_handlers[name] = tickets.guard_content(methods.content_handlers[name])
    methods.handlers["access.request"] = tickets.request
    methods.check_publish = tickets.check_publish
