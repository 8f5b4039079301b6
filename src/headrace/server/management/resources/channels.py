# SPDX-License-Identifier: Apache-2.0
"""Channels of 0-8 to 0-9-1, and sessions of 0-10."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from headrace.gateway.v0_10.connection.connection import Connection010
from headrace.server.management.operation_table import OperationTable
from headrace.server.management.resources.connections import (
    selected_connections,
    user_name,
    vhost_name,
)
from headrace.user_tags import LOOK

if TYPE_CHECKING:
    from headrace.gateway.v0_10.session.session import Session010
    from headrace.gateway.v0_x.channel.channel import Channel
    from headrace.gateway.v0_x.connection.connection import GatewayConnection as Connection0x
    from headrace.management_rows import ChannelRow
    from headrace.server.management.call import Call, Steps
    from headrace.server.management.resources.connections import ClientConnection

operation = OperationTable()


@operation("list channels", LOOK, reads=True, fields="`vhost`, `user`")
def list_channels(call: Call) -> Steps:
    """List the channels of 0-8 to 0-9-1, and the sessions of 0-10, attached or detached."""
    vhost, user = call.vhost_filter(), call.text("user", "")
    count = 0
    for connection in selected_connections(call):
        for row in () if connection is None else describe_channels(connection):
            count += 1
            yield row
        yield None
    for session in cast("list[Session010]", list(call.broker.shared_0_10.sessions.waiting)):
        if not call.sees_user(session.user):
            continue
        if (vhost is None or session.vhost is vhost) and user in ("", session.user.name):
            count += 1
            yield describe_session(None, 0, session)
    return {"items": count}


def describe_channels(connection: ClientConnection) -> list[ChannelRow]:
    """Return the channels or sessions of a connection."""
    if isinstance(connection, Connection010):
        attached = cast("dict[int, Session010]", connection.attached)
        return [
            describe_session(connection, number, session) for number, session in attached.items()
        ]
    channels = cast("dict[int, Channel]", connection.channels)
    return [describe_channel(connection, channel) for channel in channels.values()]


def describe_channel(connection: Connection0x, channel: Channel) -> ChannelRow:
    """Return a channel of 0-8 to 0-9-1 as a row of a list."""
    return {
        "connection": connection.number,
        "number": channel.number,
        "name": "",
        "user": user_name(connection),
        "vhost": vhost_name(connection),
        "consumers": len(channel.consumers or ()),
        "unacked": channel.unacked,
        "prefetch": channel.prefetch,
        "consumer_prefetch": channel.consumer_prefetch,
        "confirms": bool(channel.confirms),
        "transactional": bool(channel.tx or channel.dtx),
        "flow": bool(channel.flow),
    }


def describe_session(
    connection: Connection010 | None, number: int, session: Session010
) -> ChannelRow:
    """Return a session of 0-10, which may be detached, as a row of a list."""
    return {
        "connection": 0 if connection is None else connection.number,
        "number": number,
        "name": session_name(session),
        "user": session.user.name,
        "vhost": session.vhost.name,
        "consumers": len(session.subscriptions),
        "unacked": session.deliveries.unsettled.count,
        "prefetch": 0,
        "consumer_prefetch": 0,
        "confirms": True,
        "transactional": bool(session.selected_tx or session.selected_dtx),
        "flow": True,
    }


def attached_channel_number(session: Session010, connection: ClientConnection | None) -> int:
    """Return the number of the channel that a session is attached to; 0 while it is detached."""
    if not isinstance(connection, Connection010):
        return 0
    return next(
        (number for number, attached in connection.attached.items() if attached is session), 0
    )


def session_name(session: Session010) -> str:
    """Return the name of a session of 0-10 as text."""
    return bytes(session.name).decode("utf-8", "backslashreplace")
