# SPDX-License-Identifier: Apache-2.0
"""Events about users, virtual hosts and permissions."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from headrace.gateway.telling import addresses
from headrace.model import policy
from headrace.model.rules import USER_LIMITS, VHOST_LIMITS

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


_SUBJECTS = {  # What events about a component are called; else parameter.set and parameter.cleared.
    policy.COMPONENT: "policy",
    policy.OPERATOR_COMPONENT: "policy",
    VHOST_LIMITS: "vhost.limits",
    USER_LIMITS: "user.limits",
}


def tell_parameters(events: Events, before: Snapshot, after: Snapshot) -> None:
    """Tell which policies, limits and other parameters became different."""
    known = before.parameters
    changed = [key for key, value in after.parameters.items() if known.get(key) != value]
    for key in known.keys() - after.parameters.keys():
        events.tell(f"{_SUBJECTS.get(key.component, 'parameter')}.cleared", **key._asdict())
    for key in changed:
        value = json.dumps(after.parameters[key])
        kind = f"{_SUBJECTS.get(key.component, 'parameter')}.set"
        events.tell(kind, **key._asdict(), value=value)


def tell_changes(events: Events, before: Snapshot, after: Snapshot) -> None:
    """Tell what became different between two moments."""
    tell_parameters(events, before, after)
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
