# SPDX-License-Identifier: Apache-2.0
"""Rows of an engine about the brokers of a cluster and about its ledgers."""

from typing import NamedTuple

from headrace.store.errors import StoreError

RUNNING = "running"
DRAINING = "draining"  # The broker accepts no further ledger.
LEFT = "left"  # The broker stopped regularly.


class NameTakenError(StoreError):
    """Another broker of the same name runs, or has seized the name."""


class BrokerRow(NamedTuple):
    """A broker of the cluster, from its row in the database."""

    name: str
    seen: int
    host: str
    port: int
    state: str
    lease_s: float = 0.0  # 0 if the broker's version writes no lease.


class LedgerRow(NamedTuple):
    """A ledger of the cluster, from its row in the database."""

    name: str
    owner: str  # The name of a broker; empty after a regular stop.
    owner_token: str  # Names the epoch of this owner.
    epoch: int
    last: int
    front: int
    preferred_owner: str  # The broker that an operator chose as its owner; empty: any.


class SilentBroker(NamedTuple):
    """A broker whose counter is unchanged for its lease.

    Another broker takes over its ledgers only while the counter still equals ``seen``: a broker
    that came back may have confirmed by a heartbeat that it owns them.
    """

    broker: str
    seen: int


class StandbyRow(NamedTuple):
    """A standby of the database, from pg_stat_replication."""

    name: str
    state: str
    sync_state: str
    behind: int  # Bytes; -1 if the role may not see them.


class ClusterRows(NamedTuple):
    """The brokers and the ledgers of a cluster, as a heartbeat read them."""

    brokers: list[BrokerRow]
    ledgers: list[LedgerRow]
    unfit: str  # The reason if the engine would lose confirmed entries; empty otherwise.
    size: int = 0  # Bytes of the database at the last measurement; 0 without a limit.
