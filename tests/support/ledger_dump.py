# SPDX-License-Identifier: Apache-2.0
"""The ledgers of a database, read when no broker runs, beside the files of their last owner."""

from __future__ import annotations

import contextlib
import tempfile
from pathlib import Path

from headrace.store.disk import Disk
from headrace.store.ledger.applied import read_applied
from headrace.store.ledger.port import LedgerLost
from headrace.store.ledger.postgres import PostgresLedger
from headrace.store.ledger.postgres_cluster import Cluster
from headrace.store.ledger.postgres_session import Address
from headrace.store.ledger.replicated_disk import SECRET_FILE, ReplicatedDisk


def differences(url: str, data: Path) -> tuple[int, list[str]]:
    """Return the number of entries, and what is not as it should be, in words.

    Entries have no gap and each names the one before by its hash, or they cannot be read. Replayed,
    they are the files of the owner.

    Args:
        url: of the database.
        data: the data directory of the broker that owned all ledgers; it was stopped.
    """
    cluster = Cluster(Address(url))
    entries, found = 0, []
    with contextlib.closing(cluster.session()) as session:
        names = [
            bytes(row[0] or b"").decode() for row in session.query(b"select name from headrace.log")
        ]
    homes = {path.parent for path in data.rglob("applied") if "aside" not in str(path)}
    for name in names:
        with (
            tempfile.TemporaryDirectory(prefix="headrace-dump-") as empty,
            contextlib.closing(PostgresLedger(cluster, name, "judge")) as ledger,
        ):
            replayed = ReplicatedDisk(Disk(), ledger, empty)
            try:
                replayed.take_over()
            except LedgerLost as error:
                found.append(f"the ledger {name!r} cannot be read: {error}")
                continue
            entries += replayed.applied.number - replayed.front + 1
            chains = {home: read_applied(Disk(), str(home)) for home in homes}
            own = [
                home for home, told in chains.items() if told and told[:2] == replayed.applied[:2]
            ]
            if len(own) != 1:
                found.append(f"the owner's files are not at entry {replayed.applied.number}")
                continue
            for path, told in replayed.applied.files.items():
                if path.endswith(SECRET_FILE):
                    continue
                here, there = (
                    Path(home, path).read_bytes()[: told.size] for home in (empty, own[0])
                )
                if here != there:
                    found.append(f"{path} of the owner differs from the ledger")
    return entries, found
