# SPDX-License-Identifier: Apache-2.0
"""What commands change in the accounts of a data directory while the broker runs."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from headrace.model.policy.accounts import AccountError
from headrace.server.net.transport import clock_ms
from headrace.server.observe.account_events import Operators, tell_changes
from headrace.store.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from headrace.model.events import Actor
    from headrace.model.policy.accounts import Snapshot
    from headrace.server.broker import Broker
    from headrace.server.net.transport import Transport
    from headrace.store.catalog.change_notes import Act
    from headrace.store.catalog.changes import Changes
    from headrace.store.catalog.users import UserDirectory

log = logging.getLogger(__name__)

USERS_S = 1.0  # How often changes of users and permissions by another process are looked for.
STRANGERS_NS = 5_000_000  # For which connections are looked at in a row when rights have changed.


class Found(NamedTuple):
    """What was read of the users."""

    snapshot: Snapshot | None = None  # When they may be different.
    acts: Sequence[Act] = ()  # Which commands changed something, or were refused to.
    trouble: str = ""  # Why they cannot be read.


def read(users: UserDirectory) -> Found:
    """Read what may be different; on the thread of the users."""
    try:
        snapshot = users.snapshot() if users.changed() else None
    except AccountError as error:
        return Found(trouble=str(error))
    try:
        return Found(snapshot, users.acts.take())
    except sqlite3.Error as error:
        log.error("who changed users cannot be read: %s", error)
        return Found(snapshot)


def write(users: UserDirectory, changes: Changes) -> Found:
    """Change users, and read what there is then; on the thread of the users.

    Raises:
        AccountError: nothing was changed.
    """
    users.change(changes)
    return read(users)


class AccountChanges:
    """Looks for changes of users, permissions, virtual hosts and rules, makes those that are asked
    of the broker, and takes them over.

    The file is read and written on a thread of its own (``Storage.users_thread``), one thing after
    the other. What came of it counts on the loop, in the same order.
    """

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._operators = Operators()
        self._unread = False  # The last look found the file locked, or damaged.
        #: Virtual hosts that could not be brought up, and why; each look tries again.
        self.down: dict[str, str] = {}

    async def look(self) -> None:
        """Take over what was changed since the last look."""
        self._take_over(await self._on_the_thread(read), None)

    async def change(self, changes: Changes, actor: Actor | None) -> None:
        """Change these in one transaction, and let them count; new virtual hosts are there then.

        What is changed and looked for meanwhile counts in the order in which it was asked for.

        Raises:
            AccountError: nothing was changed, or what was changed does not count yet, as it says.
        """
        found = await self._on_the_thread(partial(write, changes=changes))
        self._take_over(found, actor)
        if found.trouble:
            raise AccountError(f"users were changed, but cannot be read again: {found.trouble}")
        for name in changes.vhosts:
            if name in self.down:
                raise AccountError(self.down[name])

    async def _on_the_thread(self, work: Callable[[UserDirectory], Found]) -> Found:
        """Do what waits for the disk where nobody waits for it."""
        storage = self._broker.storage
        assert storage is not None
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(storage.users_thread, work, storage.users)

    def _take_over(self, found: Found, actor: Actor | None) -> None:
        """Let what was found count; ``actor`` changed it, unless a command says that it did."""
        broker = self._broker
        assert broker.access is not None
        if found.trouble and not self._unread:
            log.warning("users cannot be read again: %s", found.trouble)
        self._unread = bool(found.trouble)
        if found.trouble:
            return
        self._operators.note(found.acts, broker.audit, clock_ms())
        before = broker.access.snapshot
        if found.snapshot is None or not broker.access.take(found.snapshot):
            if self.down:
                self._bring_up(broker.access.snapshot)
            return
        broker.counters.generation += 1
        previous, broker.events.actor = broker.events.actor, self._operators.changed(actor)
        try:
            if broker.events.heard:
                tell_changes(broker.events, before, broker.access.snapshot)
            broker.events.actor = actor
            self._take_vhosts(broker.access.snapshot)
            self._drop_strangers(iter(list(broker.transports)))
        finally:
            broker.events.actor = previous

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
        self._bring_up(snapshot)

    def _bring_up(self, snapshot: Snapshot) -> None:
        """Begin the virtual hosts that are not there, as far as the disk allows it."""
        broker = self._broker
        assert broker.storage is not None
        down, self.down = self.down, {}
        for name, number in snapshot.vhosts.items():
            if name in broker.vhosts:
                continue
            try:
                broker.hosts.add(name, number)
            except (StoreError, OSError) as error:
                broker.storage.let_go(name)
                reason = (isinstance(error, OSError) and error.strerror) or str(error)
                self.down[name] = f"virtual host '{name}' cannot be brought up: {reason}"
                if name not in down:
                    log.error("%s; this is tried again", self.down[name])

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
