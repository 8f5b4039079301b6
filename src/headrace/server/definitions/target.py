# SPDX-License-Identifier: Apache-2.0
"""Where definitions go and come from: a running broker, or a data directory on which none runs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from headrace.model.arguments.memory_estimate import DEFAULT_OCTETS_MAX
from headrace.model.counters import Counters
from headrace.model.errors import ResourceError
from headrace.model.lease.lease import Lease
from headrace.model.lease.log import LeaseLog
from headrace.model.lease.registry import ARGUMENT
from headrace.model.policy.rules import rules_of
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
    from headrace.model.policy.accounts import Snapshot
    from headrace.model.queue.queue import Queue
    from headrace.server.broker import Broker
    from headrace.store.catalog.changes import Changes


class Target(Protocol):
    """What plans are made for."""

    keeps_transient: bool  # What is not durable is worth making.

    @property
    def definitions_size_max(self) -> int:
        """What definitions may hold in a virtual host without a limit of its own."""

    @property
    def vhosts(self) -> Mapping[str, VirtualHost]:
        """The virtual hosts by name."""

    def vhost(self, name: str) -> VirtualHost:
        """Return the virtual host of that name.

        Raises:
            ResourceError: it is not there; the text says why, where that is known.
        """

    def snapshot(self) -> Snapshot:
        """Users, permissions and parameters."""

    def commit(self) -> None:
        """Make what was declared so far durable, and let out what it caused for others."""


class Running:
    """A broker that runs in this process."""

    keeps_transient = True

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    @property
    def definitions_size_max(self) -> int:
        """What definitions may hold in a virtual host without a limit of its own."""
        return self._broker.settings.definitions_size_max

    @property
    def vhosts(self) -> Mapping[str, VirtualHost]:
        """The virtual hosts by name."""
        return self._broker.vhosts

    def vhost(self, name: str) -> VirtualHost:
        """Return the virtual host of that name.

        Raises:
            ResourceError: it was deleted meanwhile, or the disk did not let it be brought up.
        """
        found = self._broker.vhosts.get(name)
        if found is None:
            down = self._broker.accounts.down
            raise ResourceError(down.get(name, f"there is no virtual host '{name}' any more"))
        return found

    def snapshot(self) -> Snapshot:
        """Users, permissions and parameters; commands may have changed them since the last look
        (:meth:`AccountChanges.look`).
        """
        assert self._broker.access is not None
        return self._broker.access.snapshot

    def commit(self) -> None:
        """End a turn of the loop."""
        assert self._broker.reactor is not None
        self._broker.reactor.turn()


class Stopped:
    """A data directory that no broker has; it is locked until :meth:`close`."""

    keeps_transient = False
    definitions_size_max = DEFAULT_OCTETS_MAX

    def __init__(self, data: Path, command: str = "") -> None:
        """Take the directory, which is made if need be; ``command`` is noted beside a change.

        Raises:
            StoreError, AccountError: it cannot be used, or a broker has it.
        """
        self._directory = DataDirectory(data)
        self.vhosts: dict[str, VirtualHost] = {}
        self._counters = Counters()
        self._journals: dict[str, Journal] = {}  # By virtual host.
        try:
            self._users = UserDirectory(data, command)
            self._earlier = EarlierDefinitions(data)
            self._take()
        except BaseException:
            for journal in self._journals.values():
                journal.abandon()
            self._directory.close()
            raise

    def _take(self) -> None:
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
                vhost.rules = rules_of(
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
        """Users, permissions and parameters."""
        return self._users.snapshot()

    def change(self, changes: Changes) -> None:
        """Change these in one transaction, and let them count; new virtual hosts are there then.

        Raises:
            AccountError: nothing was changed.
        """
        self._users.change(changes)
        self._take()

    def commit(self) -> None:
        """Nothing is written before the end: all, or nothing of it."""

    def finish(self) -> None:
        """Write what was declared.

        Raises:
            OSError: the disk does not take it.
            AccountError: it cannot be noted who does it.
        """
        self._users.begin()
        for name, journal in self._journals.items():
            if journal.defined:
                journal.commit()
                journal.finish()
                if journal.synced < journal.defined:
                    raise OSError(f"{journal.directory} cannot be written")
                self._earlier.taken(name)

    def close(self) -> None:
        """Let go of the directory; what was not finished is forgotten."""
        for journal in self._journals.values():
            journal.abandon()
        self._earlier.close()
        self._users.close()
        self._directory.close()


def make_stream(name: str, **options: Any) -> Queue:
    """Make a stream without its records: its definition is all that matters here."""
    if ARGUMENT in options["arguments"]:
        return Lease(name, LeaseLog(), **options)
    return Stream(name, StreamLog(-1, -1), **options)
