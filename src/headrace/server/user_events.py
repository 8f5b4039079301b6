# SPDX-License-Identifier: Apache-2.0
"""Events about users, virtual hosts and permissions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headrace.gateway.telling import addresses

if TYPE_CHECKING:
    from headrace.model.events import Events
    from headrace.model.users import Snapshot


def connection_of(connection: Any, mechanism: str) -> dict[str, Any]:
    """Return what is told of a connection that logs in."""
    peer, own = addresses(connection.transport)
    return {
        "connection_type": "network",
        "connection_name": f"{peer[0]}:{peer[1]} -> {own[0]}:{own[1]}",
        "host": own[0],
        "port": own[1],
        "peer_host": peer[0],
        "peer_port": peer[1],
        "auth_mechanism": mechanism,
    }


def tell_changes(events: Events, before: Snapshot, after: Snapshot) -> None:
    """Tell what became different between two moments."""
    for name in before.accounts.keys() - after.accounts.keys():
        events.tell("user.deleted", name=name)
    for name, account in after.accounts.items():
        known = before.accounts.get(name)
        if known is None:
            events.tell("user.created", name=name)
        elif known.password_hash != account.password_hash:
            events.tell("user.password.changed", name=name)
        if account.tags != (known.tags if known is not None else ()):
            events.tell("user.tags.set", name=name, tags=list(account.tags))
    for name in before.vhosts.keys() - after.vhosts.keys():
        events.tell("vhost.deleted", name=name)
    for name in after.vhosts.keys() - before.vhosts.keys():
        events.tell("vhost.created", name=name)
    for user, vhost in before.permissions.keys() - after.permissions.keys():
        events.tell("permission.deleted", user=user, vhost=vhost)
    for (user, vhost), permission in after.permissions.items():
        if before.permissions.get((user, vhost)) != permission:
            events.tell(
                "permission.created",
                user=user,
                vhost=vhost,
                configure=permission.configure,
                write=permission.write,
                read=permission.read,
            )
    for user, vhost, exchange in before.topic_permissions.keys() - after.topic_permissions.keys():
        events.tell("topic.permission.deleted", user=user, vhost=vhost, exchange=exchange)
    for (user, vhost, exchange), topic in after.topic_permissions.items():
        if before.topic_permissions.get((user, vhost, exchange)) != topic:
            events.tell(
                "topic.permission.created",
                user=user,
                vhost=vhost,
                exchange=exchange,
                write=topic.write,
                read=topic.read,
            )
