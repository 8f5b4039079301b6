# SPDX-License-Identifier: Apache-2.0
"""Tables of the events that the audit log records and leaves out, each with its meaning or reason.

An event in neither table is audited, so that no new event is missed; a test compares the tables
with the code. :func:`is_audited` decides for the commands of operators.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

LOST = "lines.lost"

# Audited events of the broker (:mod:`headrace.model.events`): changes.
EVENTS = {
    "queue.created": "a queue was declared",
    "queue.deleted": "a queue was deleted, or expired",
    "queue.purged": "the ready messages of a queue were dropped",
    "exchange.created": "an exchange was declared",
    "exchange.deleted": "an exchange was deleted",
    "binding.created": "a queue or an exchange was bound",
    "binding.deleted": "a binding was undone",
    "connection.created": "a connection opened its virtual host",
    "connection.closed": "a connection has ended",
    "user.created": "a user was added",
    "user.deleted": "a user was deleted",
    "user.password.changed": "a password was set",
    "user.tags.set": "a user's tags were changed",
    "user.limits.set": "limits of a user were set",
    "user.limits.cleared": "limits of a user were cleared",
    "vhost.created": "a virtual host was added",
    "vhost.deleted": "a virtual host was deleted",
    "vhost.limits.set": "limits of a virtual host were set",
    "vhost.limits.cleared": "limits of a virtual host were cleared",
    "permission.created": "permissions were given, or changed",
    "permission.deleted": "permissions were taken away",
    "topic.permission.created": "permissions on topics were given, or changed",
    "topic.permission.deleted": "permissions on topics were taken away",
    "policy.set": "a policy, or an operator policy, was set",
    "policy.cleared": "a policy, or an operator policy, was cleared",
    "parameter.set": "a parameter was set",
    "parameter.cleared": "a parameter was cleared",
    "alarm.set": "publishers must wait",
    "alarm.cleared": "publishers continue",
    "maintenance.draining": "the broker goes out of service",
    "maintenance.revived": "the broker is in service again",
    "cluster.vhost.taken": "the broker serves a virtual host of its cluster from now on",
    "cluster.vhost.given": "the broker has given a virtual host to another broker",
    "cluster.vhost.lost": "another broker has taken a virtual host, or its ledger is damaged",
    "cluster.loss.accepted": "an operator accepted what the database of the cluster lost",
    "cluster.warning.set": "a lease is nearly lost, a copy far behind, or the database unfit",
    "cluster.warning.cleared": "the cause of a warning has ended",
    "cluster.frozen": "the database does not answer: the broker's clients wait",
    "cluster.thawed": "the database answers: the clients continue",
}

# Events of the audit log alone.
OWN = {
    "broker.started": "the broker takes clients",
    "broker.stopped": "the broker ends",
    "login": "a login, allowed or refused, or a renewed secret",
    "permission": "access was refused: of a name, a topic, a virtual host, another client's queue",
    "command": "a command of an operator, on the management socket or the data directory",
    "request": "a request by AMQP that operators make: messages moved, transactions decided",
    "credentials.expired": "a connection's token expired",
    "credentials.withdrawn": "tokens of a connection's issuer are no longer taken",
    "authority.withdrawn": "an authority of a connection's certificate is no longer trusted",
    "settings.reloaded": "settings were read again: those that changed, or why they are refused",
    LOST: "the number of lines that are missing here: the disk was full, or too slow",
    "certificate.revoked": "a connection's certificate was revoked",
    "certificate.expired": "a connection's certificate expired",
    "certificates.reloaded": "certificates, keys and revocation lists were read again",
    "connection.refused": "a socket was closed at once: too many connections, or no TLS session",
}

# Events that are left out.
LEFT_OUT = {
    "channel.created": "its connection is audited",
    "channel.closed": "its connection is audited",
    "consumer.created": "a use of what was permitted, as publishing is",
    "consumer.deleted": "a use of what was permitted, as publishing is",
    "queue.alert": "no user caused it",
    "user.authentication.success": "recorded as login",
    "user.authentication.failure": "recorded as login",
}

# Commands that are audited only when they are refused: they change nothing, and programs repeat
# them every few seconds.
QUIET_COMMANDS = frozenset(("health", "status", "sample"))

# Of the reads by a ticket and of the console's own, only these are audited: they show payloads,
# password hashes or a log, or are logins. Open pages of the console and scrapes of its metrics
# repeat other reads every few seconds. `list users` is audited if it shows hashes.
AUDITED_READS = frozenset(
    ("peek", "export definitions", "show user", "show log", "login", "logout")
)
LISTED_USERS, WITH_HASHES = "list users", "hashes"


def is_audited(request: Mapping[str, object], *, reads: bool, by_console: bool) -> bool:
    """Return True if a request is audited even if it is allowed.

    Args:
        request: the request.
        reads: its operation only reads.
        by_console: it has a ticket, or the console sends it for no user.
    """
    command = request.get("do")
    if command in QUIET_COMMANDS:
        return False
    if not reads or not by_console:
        return True
    return command in AUDITED_READS or (command == LISTED_USERS and bool(request.get(WITH_HASHES)))


# Commands that are served while a strict audit log cannot be written, because they can repair it.
REPAIRS = frozenset(("reload", "rotate logs", "reopen logs"))
