# SPDX-License-Identifier: Apache-2.0
"""Check that a ledger keeps the appends that it has confirmed."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from support.timeouts import PATIENCE_S

if TYPE_CHECKING:
    from headrace.store.ledger.port import Ledger

T = TypeVar("T")


def insist(call: Callable[[], T]) -> T:
    """Call until there is a result, as long as the call raises OSError."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            return call()
        except OSError:
            if time.monotonic() > deadline:
                raise


class Confirmed(NamedTuple):
    """A confirmed append."""

    epoch: int
    number: int
    entry: bytes


class Judge:
    """Records the confirmed appends of all owners of a ledger, in the order of their answers."""

    def __init__(self) -> None:
        self.confirmed: list[Confirmed] = []

    def append(self, ledger: Ledger, epoch: int, number: int, entry: bytes) -> None:
        """Append an entry; record it once the ledger has confirmed it."""
        ledger.append(number, [entry])
        self.confirmed.append(Confirmed(epoch, number, entry))

    def violations(self, ledger: Ledger) -> list[str]:
        """Open the ledger as the next owner; return a text for each broken guarantee."""
        violations = []
        newest_epoch = 0
        for append in self.confirmed:
            if append.epoch < newest_epoch:
                violations.append(f"{append} was confirmed after an append of epoch {newest_epoch}")
            newest_epoch = max(newest_epoch, append.epoch)
        position = ledger.open()
        entries = dict(ledger.read(position.front - 1))
        violations += [
            f"{append} is lost or changed"
            for append in self.confirmed
            if entries.get(append.number) != append.entry
        ]
        if list(entries) != list(range(position.front, position.last + 1)):
            violations.append(f"the numbers are {list(entries)}, up to {position.last}")
        return violations
