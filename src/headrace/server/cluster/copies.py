# SPDX-License-Identifier: Apache-2.0
"""Local copies of the virtual hosts that other brokers serve, kept up to date for a takeover.

A copy is a directory with the files of a virtual host. It lacks about the last second of its
owner's writes, which a takeover reads from the ledger.
"""

from __future__ import annotations

import logging
import threading
from pathlib import Path
from typing import TYPE_CHECKING

from headrace.store.disk import Disk
from headrace.store.ledger.applied import NAME
from headrace.store.ledger.port import Gap
from headrace.store.ledger.postgres import PostgresLedger
from headrace.store.ledger.replicated_disk import BODIES, JOURNAL, STREAMS, ReplicatedDisk

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

    from headrace.store.ledger.members import LedgerRow, SilentBroker
    from headrace.store.ledger.postgres_cluster import Cluster

log = logging.getLogger(__name__)

FOLLOW_S = 1.0  # The interval between updates of the copies.


class Copies:
    """The copies that this broker keeps, and the thread that updates them.

    Methods block; they may be called from any thread.
    """

    def __init__(self, cluster: Cluster, owner: str, home_of: Callable[[str], str]) -> None:
        """``home_of`` returns the directory of a ledger's virtual host."""
        self._cluster = cluster
        self._owner = owner
        self._home_of = home_of
        self._disks: dict[str, ReplicatedDisk] = {}  # Copies by the name of the ledger.
        self._locks: dict[str, threading.Lock] = {}
        self._guard = threading.Lock()
        self._followed: dict[str, LedgerRow] = {}
        self._existing: Collection[str] = ()  # Ledgers of virtual hosts that exist.
        self._changed = threading.Event()
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="headrace-follower", daemon=True)
        self._lags: dict[str, int] = {}  # Entries that a copy lacks, by ledger.
        self.broken: dict[str, Gap] = {}  # Why a copy cannot follow.

    def start(self) -> None:
        """Start the thread that updates the copies."""
        self._thread.start()

    def follow(self, ledgers: Iterable[LedgerRow], existing: Collection[str]) -> None:
        """Set the ledgers whose copies are kept up to date from now on; does not block.

        Args:
            ledgers: the rows of the ledgers to copy.
            existing: the ledgers of all virtual hosts; copies of other ledgers are forgotten.
        """
        self._followed = {row.name: row for row in ledgers}
        self._existing = existing

    def lags(self) -> dict[str, int]:
        """Return the number of entries that each copy lacks, by ledger."""
        followed = self._followed
        return {name: lag for name, lag in list(self._lags.items()) if name in followed}

    def take(self, ledger: str, taken: str, silent: SilentBroker | None) -> ReplicatedDisk:
        """Become the owner of a ledger; return its files, which are up to date.

        Args:
            ledger: the name of the ledger.
            taken: the id of the epoch that ends; empty for a new ledger.
            silent: the owner, which must have no heartbeats; None without an owner, or if this
                broker owns the ledger.

        Raises:
            Fenced: another broker has taken the ledger, or the owner has heartbeats again.
            Gap: this broker has entries that the ledger lacks.
            OSError: the engine does not answer; try again.
        """
        with self._ledger_lock(ledger):
            disk = self._disks.pop(ledger, None) or self._open(ledger)
            engine = disk.ledger
            assert isinstance(engine, PostgresLedger)
            engine.token_to_end, engine.silent_owner = taken, silent
            try:
                disk.take_over()
            except BaseException:
                engine.close()
                raise
            return disk

    def forget(self, ledger: str) -> None:
        """Forget the copy of a ledger whose virtual host was deleted; its files stay."""
        with self._ledger_lock(ledger):
            self._disks.pop(ledger, None)
        self._locks.pop(ledger, None)
        self._lags.pop(ledger, None)
        self.broken.pop(ledger, None)

    def set_aside(self, ledger: str) -> str:
        """Move the files of a copy aside, so that the next takeover reads the whole ledger.

        Return the directory that has them.

        Raises:
            OSError: a file cannot be moved; those moved before it are in the directory.
        """
        with self._ledger_lock(ledger):
            self._disks.pop(ledger, None)
            home = Path(self._home_of(ledger))
            aside = home / f"aside-{len(list(home.glob('aside-*'))) + 1}"
            aside.mkdir(parents=True)
            # The first file goes first: a copy without it counts as empty.
            for name in (NAME, JOURNAL, STREAMS, BODIES):
                if (home / name).exists():
                    (home / name).rename(aside / name)
            self.broken.pop(ledger, None)
            return str(aside)

    def stop(self) -> None:
        """End the thread that updates the copies."""
        self._stopped.set()
        self._changed.set()
        self._thread.join()

    def _open(self, ledger: str) -> ReplicatedDisk:
        """Open the files of a copy, without reading the ledger."""
        engine = PostgresLedger(self._cluster, ledger, self._owner)
        return ReplicatedDisk(Disk(), engine, self._home_of(ledger))

    def _ledger_lock(self, ledger: str) -> threading.Lock:
        with self._guard:
            return self._locks.setdefault(ledger, threading.Lock())

    def _run(self) -> None:
        """Update the copies every ``FOLLOW_S``; runs on the thread."""
        while not self._stopped.is_set():
            self._forget_deleted()
            for row in list(self._followed.values()):
                if self._stopped.is_set():
                    return
                try:
                    self._follow_one(row)
                except OSError as error:
                    log.debug("copy of %s: %s", row.name, error)
                except Gap as error:
                    self.broken[row.name] = error
                    log.error("copy of %s: %s", row.name, error)
                except Exception:
                    log.exception("copy of %s", row.name)
            self._changed.wait(FOLLOW_S)

    def _forget_deleted(self) -> None:
        """Forget the copies of deleted virtual hosts."""
        existing = self._existing
        for ledger in {*self._disks, *self._lags, *self.broken} - self._followed.keys():
            if ledger not in existing:
                self.forget(ledger)

    def _follow_one(self, row: LedgerRow) -> None:
        """Read the entries that a copy lacks, and apply them to its files."""
        with self._ledger_lock(row.name):
            if row.name not in self._followed or row.name in self.broken:
                return  # This broker took the ledger during the wait, or the copy cannot follow.
            disk = self._disks.get(row.name)
            if disk is None:
                disk = self._disks[row.name] = self._open(row.name)
            lacks = row.last - 1 - disk.applied.number
            if lacks > 0:
                try:
                    disk.follow()
                finally:
                    disk.ledger.close()
            self._lags[row.name] = max(0, row.last - disk.applied.number)
