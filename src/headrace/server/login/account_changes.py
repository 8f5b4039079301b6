# SPDX-License-Identifier: Apache-2.0
"""Changes of users, permissions, virtual hosts and rules while the broker runs."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, TypeVar, cast

from headrace.model.policy.accounts import AccountError
from headrace.server.net.transport import clock_ms
from headrace.server.observe.account_events import Operators, emit_changes
from headrace.store.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence

    from headrace.gateway.connection.context import Context
    from headrace.gateway.security.access import Access
    from headrace.gateway.security.audit import Audit
    from headrace.gateway.v0_10.connection.connection import Connection010
    from headrace.gateway.v0_x.connection.connection import GatewayConnection as Connection0x
    from headrace.model.events import Actor
    from headrace.model.policy.accounts import Snapshot
    from headrace.server.data.storage import Storage
    from headrace.server.net.transport import Reactor, Transport
    from headrace.server.vhosts import VirtualHosts
    from headrace.store.catalog.change_notes import ChangeNote
    from headrace.store.catalog.changes import Changes
    from headrace.store.catalog.users import UserDirectory

log = logging.getLogger(__name__)

Result = TypeVar("Result")
USERS_S = 1.0  # The interval of checks for changes that another process made in the file.
RECHECK_NS = 5_000_000  # The maximum time of a recheck in one turn of the loop.


class UsersRead(NamedTuple):
    """The result of reading the file of users, ``definitions.db``."""

    snapshot: Snapshot | None = None  # None if the file is unchanged.
    last_vhost_id: int = 0  # With a snapshot, the highest number that a virtual host ever had.
    notes: Sequence[ChangeNote] = ()  # The notes of commands that made changes or were refused.
    error: str = ""  # The reason why the file cannot be read; "" if it can.


def read(users: UserDirectory) -> UsersRead:
    """Read the file if it has changed; runs on the users thread."""
    try:
        users.refresh()
    except OSError as error:
        log.debug("users of the cluster: %s", error)  # The cluster's heartbeats report the error.
    except AccountError as error:
        return UsersRead(error=str(error))
    last_vhost_id = 0
    try:
        snapshot = users.snapshot() if users.changed() else None
        if snapshot is not None:
            last_vhost_id = users.last_vhost_id()
    except AccountError as error:
        return UsersRead(error=str(error))
    if snapshot is not None:
        users.on_written()
    try:
        return UsersRead(snapshot, last_vhost_id, users.notes.pop_all())
    except sqlite3.Error as error:
        log.error("cannot read who changed users: %s", error)
        return UsersRead(snapshot, last_vhost_id)


def write(
    users: UserDirectory, work: Callable[[UserDirectory], Result]
) -> tuple[Result, UsersRead]:
    """Change the file and read it again; runs on the users thread.

    Raises:
        AccountError: the change is refused, and the file is unchanged.
    """
    result = work(users)
    users.wrote()
    return result, read(users)


class AccountChanges:
    """Changes the file of users, reads the changes of other processes, and applies both.

    One thread reads and writes the file (``Storage.users_thread``), one call after the other.
    Results are applied to the running broker on the loop, in the same order.
    """

    def __init__(
        self,
        access: Access,
        context: Context,
        storage: Storage,
        hosts: VirtualHosts,
        *,
        reactor: Reactor,
        transports: Collection[Transport],
        audit: Audit,
    ) -> None:
        self._access = access
        self._context = context
        self._storage = storage
        self._hosts = hosts
        self._reactor = reactor
        self._transports = transports
        self._audit = audit
        self._operators = Operators()
        #: False in a cluster, whose node starts the virtual hosts that this broker serves.
        self.starts_vhosts = True
        self._unreadable = False  # True if the file was locked or damaged at the last read.
        #: The virtual hosts that failed to start, with the reasons; each poll tries again.
        self.down: dict[str, str] = {}

    async def poll(self) -> None:
        """Apply the changes that other processes made since the last poll."""
        self._apply(await self._on_users_thread(read), None)

    async def change(self, changes: Changes, actor: Actor | None) -> None:
        """Make changes in one transaction and apply them, which starts new virtual hosts.

        Concurrent calls apply in the order in which they were made.

        Raises:
            AccountError: the changes are refused, or are made but cannot be applied yet.
        """
        await self.perform(lambda users: users.change(changes), actor)
        for name in changes.vhosts:
            if name in self.down:
                raise AccountError(self.down[name])

    async def perform(self, work: Callable[[UserDirectory], Result], actor: Actor | None) -> Result:
        """Run ``work``, which changes the file, on the users thread; apply and return its result.

        Raises:
            AccountError: the change is refused, or is made but cannot be applied yet.
        """
        result, users_read = await self._on_users_thread(partial(write, work=work))
        self._apply(users_read, actor)
        if users_read.error:
            raise AccountError(f"users were changed, but cannot be read again: {users_read.error}")
        return result

    async def _on_users_thread(self, work: Callable[[UserDirectory], Result]) -> Result:
        """Run blocking work on the users thread."""
        storage = self._storage
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(storage.users_thread, work, storage.users)

    def _apply(self, users_read: UsersRead, actor: Actor | None) -> None:
        """Apply the result of a read.

        ``actor`` made the change, unless a command's note names another operator.
        """
        if users_read.error and not self._unreadable:
            log.warning("users cannot be read again: %s", users_read.error)
        self._unreadable = bool(users_read.error)
        if users_read.error:
            return
        access, events = self._access, self._context.events
        self._operators.record(users_read.notes, self._audit, clock_ms())
        previous_snapshot = access.snapshot
        if users_read.snapshot is None or not access.use_snapshot(users_read.snapshot):
            if self.down:
                self._start_vhosts(access.snapshot)
            return
        self._context.counters.generation += 1
        previous_actor, events.actor = events.actor, self._operators.take_actor(actor)
        try:
            if events.has_listeners:
                emit_changes(events, previous_snapshot, access.snapshot)
            events.actor = actor
            self._apply_vhosts(previous_snapshot, access.snapshot, users_read.last_vhost_id)
            self._recheck(iter(list(self._transports)))
        finally:
            events.actor = previous_actor

    def _apply_vhosts(self, previous_snapshot: Snapshot, snapshot: Snapshot, last_id: int) -> None:
        """Stop deleted virtual hosts, start new ones, and apply the rules of the others.

        A missing virtual host with a higher number than ``last_id`` was not deleted: the file, or
        the database of the cluster, is an older copy. Its data is kept.
        """
        hosts = self._hosts
        for name in list(hosts.vhosts):
            number = self._storage.vhost_ids[name]
            if number > last_id:
                hosts.leave(name, f"vhost '{name}' is no longer recorded")
            elif snapshot.vhosts.get(name) != number:  # Also if it was deleted and created again.
                hosts.drop(name)
        if any(number > last_id for number in previous_snapshot.vhosts.values()):
            self._storage.set_aside_behind(last_id)
        for name, vhost in hosts.vhosts.items():
            vhost.set_rules(hosts.vhost_rules(name))
        self._context.quotas.apply_changes()
        self._start_vhosts(snapshot)

    def _start_vhosts(self, snapshot: Snapshot) -> None:
        """Start the virtual hosts that do not run; record failures in ``down``."""
        if not self.starts_vhosts:
            return
        previous_failures, self.down = self.down, {}
        for name, number in snapshot.vhosts.items():
            if name in self._hosts.vhosts:
                continue
            try:
                self._hosts.add(name, number)
            except (StoreError, OSError) as error:
                self._storage.abandon(name)
                reason = (isinstance(error, OSError) and error.strerror) or str(error)
                self.down[name] = f"virtual host '{name}' cannot be brought up: {reason}"
                if name not in previous_failures:
                    log.error("%s; this is tried again", self.down[name])

    def _recheck(self, transports: Iterator[Transport]) -> None:
        """Recheck the rights of connections for ``RECHECK_NS``, then continue on a later turn."""
        reactor = self._reactor
        deadline_ns = reactor.stopwatch() + RECHECK_NS
        for transport in transports:
            self._recheck_one(transport)
            if reactor.stopwatch() >= deadline_ns:
                reactor.loop.call_soon(self._recheck, transports)
                break
        reactor.turn()

    def _recheck_one(self, transport: Transport) -> None:
        """Close a connection, or cancel its consumers, if its user has lost the permissions."""
        connection = cast("Connection0x | Connection010", transport.connection)
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
