# SPDX-License-Identifier: Apache-2.0
"""Events about users, virtual hosts and permissions."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, NamedTuple

from headrace.gateway.connection.connection_events import addresses, tls_facts
from headrace.model.policy import policy
from headrace.model.policy.rules import LIMITS_NAME, USER_LIMITS, VHOST_LIMITS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.gateway.security.audit import Audit
    from headrace.gateway.security.client_connection import ClientConnection
    from headrace.model.events import Actor, Events
    from headrace.model.policy.accounts import Snapshot
    from headrace.model.policy.parameters import Key
    from headrace.store.catalog.change_notes import ChangeNote

AT_WORK_MS_MAX = 60_000  # Longest time from a command's note to its change.


class Operator(NamedTuple):
    """An actor of `headrace.model.events`: the system user of a command."""

    name: str  # The system user.
    peer: str  # The process.


class Operators:
    """The operators whose commands make changes.

    A command writes a note before its first change, so one poll may read the note, and the next one
    the change.
    """

    def __init__(self) -> None:
        self._noted: set[Operator] = set()  # Operators with a note at the last poll.
        # The times of notes whose change was not read yet, in Unix milliseconds.
        self._at_work: dict[Operator, int] = {}

    def record(self, notes: Sequence[ChangeNote], audit: Audit, now_ms: int) -> None:
        """Audit the notes that a poll has read, and remember their operators."""
        self._at_work = {
            actor: at_ms
            for actor, at_ms in self._at_work.items()
            if now_ms - at_ms < AT_WORK_MS_MAX
        }
        self._noted = set()
        for note in notes:
            actor = Operator(note.who, note.place)
            self._noted.add(actor)
            self._at_work[actor] = note.at_ms
            if note.reason:
                del self._at_work[actor]  # The command was refused, so no change follows.
            if audit.active:
                audit.record(
                    "command",
                    user=note.who,
                    peer=note.place,
                    allowed=not note.reason,
                    reason=note.reason,
                    command=note.what,
                    at=datetime.fromtimestamp(note.at_ms / 1000, UTC).isoformat(timespec="seconds"),
                )

    def take_actor(self, otherwise: Actor | None) -> Actor | None:
        """Return the actor of a change that a poll has read; None if it is ambiguous.

        It is the operator of a note of the same poll, else ``otherwise``, else the operator of an
        earlier note without a change.
        """
        actors = self._noted
        if not actors and otherwise is None:
            actors = set(self._at_work)
        for actor in actors:
            self._at_work.pop(actor, None)
        return next(iter(actors)) if len(actors) == 1 else otherwise


def connection_facts(connection: ClientConnection, mechanism: str) -> dict[str, object]:
    """Return the facts of a connection for login events."""
    peer, own = addresses(connection.transport)
    return {
        "connection_type": "network",
        "connection_name": f"{peer[0]}:{peer[1]} -> {own[0]}:{own[1]}",
        "host": own[0],
        "port": own[1],
        "peer_host": peer[0],
        "peer_port": peer[1],
        "auth_mechanism": mechanism,
        **tls_facts(connection.transport),
    }


# Parameters with events of their own, for setting and clearing.
SUBJECTS = {
    policy.COMPONENT: ("policy.set", "policy.cleared"),
    policy.OPERATOR_COMPONENT: ("policy.set", "policy.cleared"),
    VHOST_LIMITS: ("vhost.limits.set", "vhost.limits.cleared"),
    USER_LIMITS: ("user.limits.set", "user.limits.cleared"),
}
NOT_PARAMETERS = (policy.COMPONENT, USER_LIMITS)  # RabbitMQ does not report these as parameters.


def emit_parameters(events: Events, before: Snapshot, after: Snapshot) -> None:
    """Report changes of policies, limits and other parameters.

    As in RabbitMQ, limits of virtual hosts and operator policies are reported as parameters, too.
    """
    parameters = before.parameters
    for key in parameters.keys() - after.parameters.keys():
        if key.component in SUBJECTS:
            events.emit(SUBJECTS[key.component][1], **subject_facts(key))
        if key.component not in NOT_PARAMETERS:
            events.emit("parameter.cleared", **parameter_facts(key))
    for key, value in after.parameters.items():
        if parameters.get(key) == value:
            continue
        if key.component in SUBJECTS:
            parts = value if isinstance(value, dict) else {}
            headers = {name: as_header(part) for name, part in parts.items()}
            events.emit(SUBJECTS[key.component][0], **{**headers, **subject_facts(key)})
        if key.component not in NOT_PARAMETERS:
            events.emit("parameter.set", **parameter_facts(key), value=as_header(value))


def subject_facts(key: Key) -> dict[str, object]:
    """Return the facts that identify a policy, or the limits of a user or virtual host."""
    if key.component == USER_LIMITS:
        return {"name": LIMITS_NAME, "username": key.name}
    operators = key.component == policy.OPERATOR_COMPONENT
    return {
        "name": key.name,
        "vhost": key.vhost,
        "component": policy.OPERATOR_COMPONENT if operators else None,
    }


def parameter_facts(key: Key) -> dict[str, object]:
    """Return the facts that identify a parameter; a global one has no virtual host."""
    return {"vhost": key.vhost or None, "component": key.component, "name": key.name}


def as_header(value: object) -> object:
    """Return a JSON value if a field table can hold it, or else its JSON text."""
    return value if is_header(value) else json.dumps(value)


def is_header(value: object) -> bool:
    """Return True if a field table can hold a JSON value."""
    if isinstance(value, dict):
        return all(len(name.encode()) < 256 and is_header(item) for name, item in value.items())
    if isinstance(value, list):
        return all(is_header(item) for item in value)
    if isinstance(value, int):
        return -(1 << 63) <= value < 1 << 63
    return value is None or isinstance(value, str | float)


def emit_changes(events: Events, before: Snapshot, after: Snapshot) -> None:
    """Report the differences of two snapshots of accounts as events."""
    emit_parameters(events, before, after)
    for name in before.accounts.keys() - after.accounts.keys():
        events.emit("user.deleted", name=name)
    for name, account in after.accounts.items():
        former = before.accounts.get(name)
        if former is None:
            events.emit("user.created", name=name)
        elif former.password_hash != account.password_hash:
            events.emit("user.password.changed", name=name)
        if account.tags != (former.tags if former is not None else ()):
            events.emit("user.tags.set", name=name, tags=list(account.tags))
    for name in before.vhosts.keys() - after.vhosts.keys():
        events.emit("vhost.deleted", name=name)
    for name in after.vhosts.keys() - before.vhosts.keys():
        events.emit("vhost.created", name=name)
    for user, vhost in before.permissions.keys() - after.permissions.keys():
        events.emit("permission.deleted", user=user, vhost=vhost)
    for (user, vhost), permission in after.permissions.items():
        if before.permissions.get((user, vhost)) != permission:
            events.emit(
                "permission.created",
                user=user,
                vhost=vhost,
                configure=permission.configure,
                write=permission.write,
                read=permission.read,
            )
    for user, vhost, exchange in before.topic_permissions.keys() - after.topic_permissions.keys():
        events.emit("topic.permission.deleted", user=user, vhost=vhost, exchange=exchange)
    for (user, vhost, exchange), topic in after.topic_permissions.items():
        if before.topic_permissions.get((user, vhost, exchange)) != topic:
            events.emit(
                "topic.permission.created",
                user=user,
                vhost=vhost,
                exchange=exchange,
                write=topic.write,
                read=topic.read,
            )
