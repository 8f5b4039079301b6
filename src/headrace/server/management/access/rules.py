# SPDX-License-Identifier: Apache-2.0
"""What a user needs for each operation of the management socket.

:data:`RULES` has every operation. A rule names the tags of which the user has one, and the
permissions on names in the request. The system user, who asks without a ticket, needs nothing.
"""

from __future__ import annotations

from typing import NamedTuple

from headrace.user_tags import ADMINISTER, LOOK, MONITOR, POLICY, USE, Tags


class Need(NamedTuple):
    """A permission on the name in a field of the request."""

    permission: str
    kind: str  # Of the object; empty: the field ``kind`` has it, queue by default.
    field: str


class Rule(NamedTuple):
    """What one operation needs."""

    tags: Tags
    needs: tuple[Need, ...] = ()
    own_vhost: bool = False  # But for administrators the virtual host is one the user may open.


CONFIGURE_QUEUE = Need("configure", "queue", "name")
CONFIGURE_EXCHANGE = Need("configure", "exchange", "name")
READ_QUEUE = Need("read", "queue", "queue")
READ_STREAM = Need("read", "queue", "stream")
READ_FROM = Need("read", "queue", "from")
WRITE_TO = Need("write", "queue", "to")
BINDING = (Need("write", "", "destination"), Need("read", "exchange", "source"))

RULES: dict[str, Rule] = {
    # Logins.
    "login": Rule(LOOK),
    "logout": Rule(LOOK),
    "whoami": Rule(LOOK),
    # Looking.
    "health": Rule(LOOK),
    "list queues": Rule(LOOK),
    "list streams": Rule(LOOK),
    "list exchanges": Rule(LOOK),
    "list bindings": Rule(LOOK),
    "list transactions": Rule(LOOK),
    "list jobs": Rule(LOOK),
    "list leases": Rule(LOOK),
    "list groups": Rule(LOOK),
    "list batches": Rule(LOOK),
    "list deduplication": Rule(LOOK),
    "list vhosts": Rule(LOOK),
    "list policies": Rule(LOOK),
    "list permissions": Rule(LOOK),
    "list connections": Rule(LOOK),
    "list channels": Rule(LOOK),
    "list consumers": Rule(LOOK),
    "show queue": Rule(LOOK),
    "show exchange": Rule(LOOK),
    "show connection": Rule(LOOK),
    "show vhost": Rule(LOOK),
    "list limits": Rule(LOOK),
    "list global parameters": Rule(LOOK),
    "list topic permissions": Rule(LOOK),
    "status": Rule(MONITOR),
    "events": Rule(LOOK),
    "sample": Rule(LOOK),
    "list alarms": Rule(MONITOR),
    "cluster status": Rule(MONITOR),
    "list brokers": Rule(MONITOR),
    "list owners": Rule(MONITOR),
    "list certificates": Rule(MONITOR),
    "route": Rule(LOOK),
    "show topology": Rule(LOOK),
    "list settings": Rule(ADMINISTER),
    "show log": Rule(ADMINISTER),
    "show audit log": Rule(ADMINISTER),
    "list users": Rule(ADMINISTER),
    "show user": Rule(ADMINISTER),
    # Queues, exchanges, bindings.
    "declare queue": Rule(USE, (CONFIGURE_QUEUE,)),
    "delete queue": Rule(USE, (CONFIGURE_QUEUE,)),
    "purge queue": Rule(USE, (Need("read", "queue", "name"),)),
    "declare exchange": Rule(USE, (CONFIGURE_EXCHANGE,)),
    "delete exchange": Rule(USE, (CONFIGURE_EXCHANGE,)),
    "bind": Rule(USE, BINDING),
    "unbind": Rule(USE, BINDING),
    # Messages.
    "peek": Rule(USE, (READ_QUEUE,)),
    "get": Rule(USE, (READ_QUEUE,)),
    "publish": Rule(USE, (Need("write", "exchange", "exchange"),)),
    "move messages": Rule(USE, (READ_FROM, WRITE_TO)),
    "copy messages": Rule(USE, (READ_FROM, WRITE_TO)),
    "requeue messages": Rule(USE, (READ_FROM,)),
    "delete messages": Rule(USE, (READ_FROM,)),
    "show job": Rule(LOOK),
    "cancel job": Rule(USE),
    # Transactions (the operation checks a permission), leases, groups.
    "decide transaction": Rule(USE),
    "release lease": Rule(USE, (READ_QUEUE,)),
    "set group": Rule(USE, (READ_STREAM,)),
    "delete group": Rule(USE, (READ_STREAM,)),
    # Policies of a virtual host of the user's own.
    "put policy": Rule(POLICY, own_vhost=True),
    "delete policy": Rule(POLICY, own_vhost=True),
    "put parameter": Rule(POLICY, own_vhost=True),
    "delete parameter": Rule(POLICY, own_vhost=True),
    # Connections: one's own; those of others are checked by the operation.
    "close connection": Rule(USE),
    "close connections": Rule(ADMINISTER),
    # Accounts, virtual hosts, limits.
    "put user": Rule(ADMINISTER),
    "delete user": Rule(ADMINISTER),
    "put permission": Rule(ADMINISTER),
    "delete permission": Rule(ADMINISTER),
    "put topic permission": Rule(ADMINISTER),
    "delete topic permission": Rule(ADMINISTER),
    "put operator policy": Rule(ADMINISTER),
    "delete operator policy": Rule(ADMINISTER),
    "put limit": Rule(ADMINISTER),
    "delete limit": Rule(ADMINISTER),
    "put global parameter": Rule(ADMINISTER),
    "delete global parameter": Rule(ADMINISTER),
    "put name": Rule(ADMINISTER),
    "put vhost": Rule(ADMINISTER),
    "delete vhost": Rule(ADMINISTER),
    # The broker.
    "trace": Rule(ADMINISTER),
    "export definitions": Rule(ADMINISTER),
    "import definitions": Rule(ADMINISTER),
    "back up": Rule(ADMINISTER),
    "list backups": Rule(ADMINISTER),
    "move vhost": Rule(ADMINISTER),
    "accept loss": Rule(ADMINISTER),
    "set alarm": Rule(ADMINISTER),
    "clear alarm": Rule(ADMINISTER),
    "drain": Rule(ADMINISTER),
    "resume": Rule(ADMINISTER),
    "reload": Rule(ADMINISTER),
    "rotate logs": Rule(ADMINISTER),
    "reopen logs": Rule(ADMINISTER),
}
