# SPDX-License-Identifier: Apache-2.0
"""Login steps of 0-8 to 0-9-1 that answer no method, and the end of consumers without permission.

These steps follow the protocol header, or the result of a check of credentials.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from headrace.gateway.messages import direct_reply_to
from headrace.gateway.v0_x.quirks import PREFIX
from headrace.model.errors import AccessRefused
from headrace.model.queue_kinds.multi_queue import pooled_queues
from headrace.protocol.codec_0_x import (
    ConnectionSecure,
    ConnectionStart,
    ConnectionTune,
    ConnectionUpdateSecret,
    ConnectionUpdateSecretOk,
)
from headrace.protocol.errors import AmqpError
from headrace.protocol.v0_x.handshake import STATE_CLOSED
from headrace.spec.reply import ReplyCode, Scope
from headrace.spec.tables import V0_8, V0_9, V0_9_1

if TYPE_CHECKING:
    from headrace.gateway.security.permissions import Rights
    from headrace.gateway.security.user import User
    from headrace.gateway.v0_x.connection.connection import GatewayConnection
    from headrace.wire.table import Table

VERSION_NUMBERS = {V0_8: (8, 0), V0_9: (0, 9), V0_9_1: (0, 9)}  # The fields of connection.start.


# Keeps 0-9-1/s011, 0-9/connection.start.locales#required-support.
def send_start(connection: GatewayConnection) -> None:
    """Send connection.start."""
    context = connection.context
    major, minor = VERSION_NUMBERS[connection.version]
    properties = context.pop_server_properties(connection)
    if connection.is_early:  # These clients read strings only, and no capabilities.
        properties = {
            name: value
            for name, value in properties.items()
            # With such a property, older releases of Headrace's client mistake the broker for Qpid.
            if isinstance(value, str) and not name.startswith(PREFIX)
        }
    connection.send_method(
        0,
        ConnectionStart(
            version_major=major,
            version_minor=minor,
            server_properties=cast("Table", properties),
            mechanisms=" ".join(context.offered(connection.number)).encode(),
            locales=b"en_US",
        ),
    )


def challenge(connection: GatewayConnection, data: bytes) -> None:
    """Send a challenge of the SASL mechanism."""
    if not connection.ended:
        connection.send_method(0, ConnectionSecure(challenge=data))


def accept(connection: GatewayConnection, user: User) -> None:
    """Accept a login: send connection.tune."""
    if connection.ended:
        return
    connection.user = user
    context = connection.context
    connection.send_method(
        0,
        ConnectionTune(
            channel_max=context.channel_max,
            frame_max=context.frame_max,
            heartbeat=context.heartbeat_s,
        ),
    )


def refuse(connection: GatewayConnection) -> None:
    """Refuse a login; the exact reason is only logged."""
    if connection.ended:
        return
    if connection.capabilities.get("authentication_failure_close"):
        connection.fail(
            AmqpError(
                ReplyCode.ACCESS_REFUSED,
                "Login was refused using authentication mechanism "
                f"{connection.mechanism}. For details see the broker logfile.",
                scope=Scope.CONNECTION,
            )
        )
        return
    if connection.quirks.closes_refused_login:
        text = f"Login was refused using authentication mechanism {connection.mechanism}"
        connection.fail(AmqpError(ReplyCode.NOT_ALLOWED, text, scope=Scope.CONNECTION))
        return
    connection.state_number = STATE_CLOSED
    connection.owner.on_closed()


def accept_secret(connection: GatewayConnection, user: User) -> None:
    """Accept renewed credentials; end consumers that they no longer allow."""
    if connection.ended:
        return
    connection.user = user
    connection.counters.generation += 1  # Routes were made with the old permissions.
    connection.reply(0, ConnectionUpdateSecretOk())
    recheck(connection)


def refuse_secret(connection: GatewayConnection) -> None:
    """Refuse renewed credentials; the exact reason is only logged."""
    if connection.ended:
        return
    index = ConnectionUpdateSecret.INDEX[connection.version]
    connection.fail(
        AmqpError(ReplyCode.NOT_ALLOWED, "New secret was refused by one of the backends", index)
    )


def recheck(connection: GatewayConnection) -> None:
    """End the channels of consumers whose user may no longer read what they consume from."""
    access: Rights = connection.context.access
    user, vhost = connection.user, connection.vhost.name
    for channel in list(connection.channels.values()):
        consumers = getattr(channel, "consumers", None) or {}
        for consumer in list(consumers.values()):
            queue = consumer.queue
            if direct_reply_to.is_reply_name(queue.name):
                continue
            try:
                for queue_part in pooled_queues(queue):
                    access.check(user, vhost, "read", "queue", queue_part.access_name)
            except AccessRefused as error:
                queue.remove_consumer(consumer)
                consumers.pop(consumer.tag, None)
                connection.on_consumer_failed(channel, error)
                break
