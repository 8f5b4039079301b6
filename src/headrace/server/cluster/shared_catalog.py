# SPDX-License-Identifier: Apache-2.0
"""Joins a data directory to a cluster: it gets the cluster's identity, secret and users.

The first broker of a cluster contributes its own instead, with its queues and messages.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from headrace.server.cluster.assignment import ledger_name
from headrace.store.catalog.replica import CatalogReplica
from headrace.store.disk import Disk
from headrace.store.errors import StoreError
from headrace.store.ledger.port import LedgerLost
from headrace.store.ledger.postgres import PostgresLedger
from headrace.store.ledger.postgres_catalog import PostgresCatalog
from headrace.store.ledger.replicated_disk import ReplicatedDisk

if TYPE_CHECKING:
    from headrace.server.cluster.membership import Joined
    from headrace.store.catalog.users import UserDirectory
    from headrace.store.data_directory import DataDirectory

log = logging.getLogger(__name__)


class SharedCatalog:
    """The catalog of the cluster that this broker joins, and its local replica.

    It is used once, at the start of the broker; calls block.
    """

    def __init__(self, joined: Joined) -> None:
        assert joined.cluster.id is not None
        self.joined = joined
        self.id = joined.cluster.id
        self.replica = CatalogReplica(PostgresCatalog(joined.cluster))
        self.is_new = False  # True if no broker has contributed its users yet.

    def prepare(self, data: DataDirectory) -> None:
        """Give a data directory the identity and the secret of the cluster.

        Raises:
            StoreError: the directory has data of its own, or the database does not answer.
        """
        try:
            catalog = self.replica.load()
        except OSError as error:
            raise StoreError(str(error)) from None
        self.is_new = catalog is None
        if catalog is None:
            self.replica.identity, self.replica.secret = data.identity, data.secret
            return
        if data.identity != catalog.identity and data.has_journals():
            raise StoreError(
                f"data directory {data.path} has queues of its own, and the cluster has others: "
                "begin with an empty directory, import its definitions, and move its messages "
                "with headrace migrate"
            )
        data.adopt_identity(catalog.identity, catalog.secret)

    def share(self, data: DataDirectory, users: UserDirectory) -> None:
        """Replicate the users with the cluster; the first broker contributes its data.

        Raises:
            StoreError, AccountError: the users cannot be replicated; the cluster is unchanged.
        """
        if self.is_new and data.has_journals():
            for name, number in users.snapshot().vhosts.items():
                self._bring(name, number, str(data.vhost(number)))
        users.replicate(self.replica)
        data.record_cluster(self.id)

    def _bring(self, vhost: str, number: int, home: str) -> None:
        """Fill the ledger of a virtual host from the files in the data directory."""
        name = ledger_name(vhost, number)
        engine = PostgresLedger(self.joined.cluster, name, self.joined.members.name)
        disk = ReplicatedDisk(Disk(), engine, home)
        try:
            self.joined.members.delete_ledger(name)  # The ledger of an earlier try.
            disk.take_over()
            disk.mark()
        except (OSError, LedgerLost) as error:
            raise StoreError(
                f"vhost '{vhost}' cannot be brought into the cluster: {error}"
            ) from None
        finally:
            engine.close()
        log.warning("vhost '%s' is in the cluster now: %d entries", vhost, disk.applied.number)
