# SPDX-License-Identifier: Apache-2.0
"""Targets of imports and sources of exports: a running broker, or a data directory without one."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, Unpack

from headrace.model.arguments.memory_estimate import DEFAULT_BYTES_MAX
from headrace.model.counters import Counters
from headrace.model.errors import ResourceError
from headrace.model.lease.lease import Lease
from headrace.model.lease.log import LeaseLog
from headrace.model.lease.registry import ARGUMENT
from headrace.model.policy.rules import read_rules
from headrace.model.ports import Store
from headrace.model.stream.log import StreamLog
from headrace.model.stream.stream import Stream
from headrace.model.vhost.virtual_host import VirtualHost
from headrace.store.catalog.definitions import JournalDefinitions
from headrace.store.catalog.earlier_definitions import EarlierDefinitions
from headrace.store.catalog.users import UserDirectory
from headrace.store.data_directory import DataDirectory
from headrace.store.journal.journal import Journal

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace.gateway.security.access import Access
    from headrace.model.policy.accounts import Snapshot
    from headrace.model.queue.queue import Queue
    from headrace.server.data.storage import QueueOptions, Storage
    from headrace.store.catalog.changes import Changes


class Target(Protocol):
    """Port of an import: the existing objects, and the commit of new ones."""

    keeps_transient: bool  # False if objects that are not durable are left out.
    default_queue_type: str  # The type for virtual hosts without one; "" if unknown.

    @property
    def definitions_size_max(self) -> int:
        """The default limit of a virtual host's definitions, in bytes."""

    @property
    def vhosts(self) -> Mapping[str, VirtualHost]:
        """The virtual hosts by name."""

    def vhost(self, name: str) -> VirtualHost:
        """Return the virtual host of that name.

        Raises:
            ResourceError: the virtual host does not exist; the text is the reason, if known.
        """

    def snapshot(self) -> Snapshot:
        """Return users, permissions and parameters."""

    def commit(self) -> None:
        """Make the declarations so far durable, and send the messages that they caused."""


class RunningTarget:
    """The broker that runs in this process, as a target."""

    keeps_transient = True

    def __init__(
        self,
        vhosts: Mapping[str, VirtualHost],
        access: Access,
        storage: Storage,
        *,
        down: Mapping[str, str],
        turn: Callable[[], None],
    ) -> None:
        """``down`` has the reasons why virtual hosts did not start; ``turn`` ends a turn."""
        self._vhosts = vhosts
        self._access = access
        self.default_queue_type = storage.settings.default_queue_type
        self._storage = storage
        self._down = down
        self._turn = turn

    @property
    def definitions_size_max(self) -> int:
        """The default limit of a virtual host's definitions, in bytes."""
        return self._storage.settings.definitions_size_max

    @property
    def vhosts(self) -> Mapping[str, VirtualHost]:
        """The virtual hosts by name."""
        return self._vhosts

    def vhost(self, name: str) -> VirtualHost:
        """Return the virtual host of that name.

        Raises:
            ResourceError: the virtual host was deleted or could not be started, or another broker
                of the cluster serves it.
        """
        vhost = self._vhosts.get(name)
        if vhost is None:
            exists = name in self._access.snapshot.vhosts
            reason = "is not served by this broker" if exists else "no longer exists"
            raise ResourceError(self._down.get(name, f"virtual host '{name}' {reason}"))
        return vhost

    def snapshot(self) -> Snapshot:
        """Return users, permissions and parameters.

        They are as of the last :meth:`~headrace.server.login.account_changes.AccountChanges.poll`.
        """
        return self._access.snapshot

    def commit(self) -> None:
        """End a turn of the loop."""
        self._turn()


class DirectoryTarget:
    """A data directory that no broker uses, as a target; it is locked until :meth:`close`."""

    keeps_transient = False
    default_queue_type = ""  # Unknown, as it is a setting of the broker.
    definitions_size_max = DEFAULT_BYTES_MAX

    def __init__(self, data: Path, command: str = "") -> None:
        """Lock the directory, and create it if it is missing.

        ``command`` is the command line that makes the changes, for the audit log.

        Raises:
            StoreError, AccountError: the directory cannot be used, or a broker uses it.
        """
        self._directory = DataDirectory(data)
        self.vhosts: dict[str, VirtualHost] = {}
        self._counters = Counters()
        self._journals: dict[str, Journal] = {}  # The journals by virtual host.
        try:
            self._users = UserDirectory(data, command)
            self._earlier = EarlierDefinitions(data)
            self._load()
        except BaseException:
            for journal in self._journals.values():
                journal.abandon()
            self._directory.close()
            raise

    def _load(self) -> None:
        """Load the virtual hosts that are not loaded yet, with their definitions."""
        for name, number in self._users.snapshot().vhosts.items():
            if name not in self.vhosts:
                place = str(self._directory.vhost(number) / "journal")
                journal = self._journals[name] = Journal(place, threaded=False, name=name)
                journal.read()
                definitions = JournalDefinitions(
                    journal, self._earlier.load(name), self._earlier.ids_used()
                )
                vhost = VirtualHost(
                    name,
                    store=Store(),
                    counters=self._counters,
                    definitions=definitions,
                    make_stream=make_stream,
                )
                vhost.rules = read_rules(
                    self._users.snapshot().parameters,
                    name,
                    definitions_size=self.definitions_size_max,
                )
                vhost.load()
                journal.recover()
                journal.begin()
                definitions.take_over()
                self.vhosts[name] = vhost

    def vhost(self, name: str) -> VirtualHost:
        """Return the virtual host of that name."""
        return self.vhosts[name]

    def snapshot(self) -> Snapshot:
        """Return users, permissions and parameters."""
        return self._users.snapshot()

    def change(self, changes: Changes) -> None:
        """Make changes in one transaction and load the virtual hosts that they add.

        Raises:
            AccountError: nothing was changed.
        """
        self._users.change(changes)
        self._load()

    def commit(self) -> None:
        """Do nothing, since :meth:`finish` writes all declarations together."""

    def finish(self) -> None:
        """Write all declarations durably.

        Raises:
            OSError: the disk fails.
            AccountError: the audit note of this change cannot be written.
        """
        self._users.begin()
        for name, journal in self._journals.items():
            if journal.defined_position:
                journal.commit()
                journal.finish()
                if journal.synced < journal.defined_position:
                    raise OSError(f"{journal.directory} cannot be written")
                self._earlier.delete(name)

    def close(self) -> None:
        """Unlock the directory; declarations that were not written are lost."""
        for journal in self._journals.values():
            journal.abandon()
        self._earlier.close()
        self._users.close()
        self._directory.close()


def make_stream(name: str, **options: Unpack[QueueOptions]) -> Queue:
    """Make a stream without records, for its definition alone."""
    if ARGUMENT in options["arguments"]:
        return Lease(name, LeaseLog(), **options)
    return Stream(name, StreamLog(-1, -1), **options)
