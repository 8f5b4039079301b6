# SPDX-License-Identifier: Apache-2.0
"""Direct reply-to before 0-10 (:mod:`headrace.gateway.messages.direct_reply_to`): declares and

bindings.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.gateway.messages.direct_reply_to import REPLY_TO, is_reply_name
from headrace.model.errors import AccessRefused, NotFound
from headrace.protocol.codec_0_x import QueueDeclareOk

if TYPE_CHECKING:
    from headrace.gateway.v0_x.connection.connection import GatewayConnection


def declared(connection: GatewayConnection, name: str) -> QueueDeclareOk:
    """Answer a declare of such a name: it is how one asks whether the client is still there.

    Raises:
        NotFound: no consumer waits for answers under that name.
    """
    if name != REPLY_TO and name not in connection.vhost.queues:
        raise NotFound(f"no queue '{name}' in vhost '{connection.vhost.name}'")
    return QueueDeclareOk(queue=name, message_count=0, consumer_count=1)


def refuse_binding(name: str) -> None:
    """Answers come through the default exchange only."""
    if is_reply_name(name):
        raise AccessRefused(f"queue name '{name}' contains reserved prefix 'amq.*'")
