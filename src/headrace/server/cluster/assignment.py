# SPDX-License-Identifier: Apache-2.0
"""The assignment of virtual hosts to the brokers of a cluster.

Every broker computes it from the same rows of the database. If two brokers briefly have different
rows, both may try to take a ledger; the database gives it to the first.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from headrace.server.cluster.census import Census
from headrace.store.ledger.members import LedgerRow


class Assignment(NamedTuple):
    """The names of the ledgers that a broker should take, and give to other brokers."""

    take: list[str]
    give: list[str]


def ledger_name(vhost: str, number: int) -> str:
    """Return the name of the ledger of a virtual host.

    A virtual host that is deleted and created again has another number, so another ledger.
    """
    return f"{number} {vhost}"


def assign(
    me: str, names: Iterable[str], ledgers: Mapping[str, LedgerRow], census: Census
) -> Assignment:
    """Return the ledgers that broker ``me`` should take and give.

    Args:
        me: the name of this broker.
        names: the names of the ledgers of all virtual hosts.
        ledgers: the ledgers that the database has, by name.
        census: the brokers that are alive.
    """
    available = census.available_brokers()
    serves = dict.fromkeys(available, 0)
    free: list[tuple[str, LedgerRow | None]] = []
    give = []
    for name in sorted(names):
        row = ledgers.get(name)
        owner = "" if row is None or not census.is_alive(row.owner) else row.owner
        if not owner:
            free.append((name, row))
            continue
        if owner in serves:
            serves[owner] += 1
        if owner == me and row is not None and must_give(me, row, available):
            give.append(name)
    take = []
    for name, row in free:
        taker = choose_taker(row, serves)
        if taker:
            serves[taker] += 1
        if taker == me:
            take.append(name)
    return Assignment(take, give)


def removable(
    me: str, names: Collection[str], ledgers: Mapping[str, LedgerRow], census: Census
) -> list[str]:
    """Return the ledgers of deleted virtual hosts that broker ``me`` should remove.

    An owner removes its own ledgers. The first living broker removes those of dead owners.
    ``names`` are the ledgers of all existing virtual hosts.
    """
    living = census.alive()
    is_first = bool(living) and living[0].name == me
    return [
        name
        for name, row in sorted(ledgers.items())
        if name not in names and (row.owner == me or (is_first and not census.is_alive(row.owner)))
    ]


def must_give(me: str, row: LedgerRow, available: Collection[str]) -> bool:
    """Return True if broker ``me`` should give its ledger to one of the available brokers."""
    if row.preferred_owner in available:
        return row.preferred_owner != me
    return me not in available and len(available) > 0


def choose_taker(row: LedgerRow | None, serves: Mapping[str, int]) -> str:
    """Return the broker that should take a free ledger; empty if no broker is available.

    It is the broker that an operator chose, or else the one that serves the fewest virtual hosts.
    """
    if row is not None and row.preferred_owner in serves:
        return row.preferred_owner
    return min(serves, key=lambda name: (serves[name], name), default="")
