# SPDX-License-Identifier: Apache-2.0
"""Which broker should serve a virtual host.

Every broker computes this by itself from the same rows. Where two differ for a moment, the engine
gives the ledger to the first.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from headrace.server.cluster.census import Census
from headrace.store.ledger.members import LedgerRow


class Assignment(NamedTuple):
    """The ledgers that a broker should take and give."""

    take: list[str]  # Names of ledgers.
    give: list[str]  # To the brokers that operators want, or to any.


def ledger_name(vhost: str, number: int) -> str:
    """Return the name of the ledger of a virtual host; one made anew has another number."""
    return f"{number} {vhost}"


def assign(
    me: str, wanted: Iterable[str], ledgers: Mapping[str, LedgerRow], census: Census
) -> Assignment:
    """Return the ledgers that broker ``me`` should take and give.

    Args:
        me: the name of this broker.
        wanted: the names of the ledgers of all virtual hosts.
        ledgers: those that the engine has, by name.
        census: the brokers that are alive.
    """
    available = census.available_brokers()
    serves = dict.fromkeys(available, 0)
    free: list[tuple[str, LedgerRow | None]] = []
    give = []
    for name in sorted(wanted):
        row = ledgers.get(name)
        owner = "" if row is None or not census.is_alive(row.owner) else row.owner
        if not owner:
            free.append((name, row))
            continue
        if owner in serves:
            serves[owner] += 1
        if owner == me and row is not None and is_to_go(me, row, available):
            give.append(name)
    take = []
    for name, row in free:
        taker = taker_of(row, serves)
        if taker:
            serves[taker] += 1
        if taker == me:
            take.append(name)
    return Assignment(take, give)


def removable(
    me: str, wanted: Collection[str], ledgers: Mapping[str, LedgerRow], census: Census
) -> list[str]:
    """Return the ledgers that broker ``me`` should remove: their virtual hosts were deleted.

    An owner removes its own ledgers. The first living broker removes those of dead owners.
    """
    living = census.alive()
    is_first = bool(living) and living[0].name == me
    return [
        name
        for name, row in sorted(ledgers.items())
        if name not in wanted and (row.owner == me or (is_first and not census.is_alive(row.owner)))
    ]


def is_to_go(me: str, row: LedgerRow, available: Collection[str]) -> bool:
    """Return True if broker ``me`` should give its ledger to one of the available brokers."""
    if row.wanted in available:
        return row.wanted != me
    return me not in available and len(available) > 0


def taker_of(row: LedgerRow | None, serves: Mapping[str, int]) -> str:
    """Return the taker of a free ledger: the broker an operator wants, or that serves least."""
    if row is not None and row.wanted in serves:
        return row.wanted
    return min(serves, key=lambda name: (serves[name], name), default="")
