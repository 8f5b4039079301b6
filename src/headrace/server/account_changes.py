# SPDX-License-Identifier: Apache-2.0
"""What commands change in the accounts of a data directory while the broker runs."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from headrace.model.users import AccountError
from headrace.server.transport import clock_ms
from headrace.server.user_events import Operators, tell_changes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from headrace.model.users import Snapshot
    from headrace.server.broker import Broker
    from headrace.server.transport import Transport

log = logging.getLogger(__name__)

USERS_S = 1.0  # How often changes of users and permissions by another process are looked for.
STRANGERS_NS = 5_000_000  # For which connections are looked at in a row when rights have changed.


class AccountChanges:
    """Looks for changes of users, permissions, virtual hosts and rules, and takes them over."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._operators = Operators()
        self._unread = False  # The last look found the file locked, or damaged.

    def look(self) -> None:
        """Take over what was changed since the last look."""
        broker = self._broker
        assert broker.access is not None
        assert broker.storage is not None
        before = broker.access.snapshot
        try:
            changed = broker.access.refresh()
        except AccountError as error:
            if not self._unread:
                log.warning("users cannot be read again: %s", error)
            self._unread = True
            return
        self._unread = False
        self._operators.note(broker.storage.users.acts, broker.audit, clock_ms())
        if not changed:
            return
        actor = self._operators.changed(broker.events.actor)
        broker.tally.generation += 1
        if broker.events.heard:
            previous = broker.events.actor
            broker.events.actor = actor
            try:
                tell_changes(broker.events, before, broker.access.snapshot)
            finally:
                broker.events.actor = previous
        self._take_vhosts(broker.access.snapshot)
        self._drop_strangers(iter(list(broker.transports)))

    def _take_vhosts(self, snapshot: Snapshot) -> None:
        """End the virtual hosts that are gone, bring up those that are new."""
        broker = self._broker
        assert broker.storage is not None
        assert broker.context is not None
        for name in list(broker.vhosts):
            if snapshot.vhosts.get(name) != broker.storage.vhost_ids[name]:  # Perhaps another.
                broker.hosts.drop(name)
        for name, vhost in broker.vhosts.items():
            vhost.take_rules(broker.hosts.rules_of(name))
        broker.context.quotas.changed()
        for name, number in snapshot.vhosts.items():
            if name not in broker.vhosts:
                broker.hosts.add(name, number)

    def _drop_strangers(self, left: Iterator[Transport]) -> None:
        """End the connections of users who may not be here any more, those that a turn has time
        for; go on with those that are left when others had theirs.
        """
        reactor = self._broker.reactor
        assert reactor is not None
        until = reactor.stopwatch() + STRANGERS_NS
        for transport in left:
            self._admit_again(transport)
            if reactor.stopwatch() >= until:
                reactor.loop.call_soon(self._drop_strangers, left)
                break
        reactor.turn()

    def _admit_again(self, transport: Transport) -> None:
        """End a connection, or what it does, where its user has no right to it any more."""
        connection: Any = transport.connection
        user, vhost = connection.user, connection.vhost
        if user is None or vhost is None or transport.closing or transport.closed:
            return
        if not user.is_known():
            connection.force_close(f"user '{user.name}' was deleted")
        elif not user.may_open(vhost.name):
            reason = f"access to vhost '{vhost.name}' refused for user '{user.name}'"
            connection.force_close(reason)
        else:
            connection.recheck()
