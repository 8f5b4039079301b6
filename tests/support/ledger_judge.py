# SPDX-License-Identifier: Apache-2.0
"""What a ledger promised, and whether it kept it."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from support.timeouts import PATIENCE_S

if TYPE_CHECKING:
    from headrace.store.ledger.port import Ledger

T = TypeVar("T")


def insist(call: Callable[[], T]) -> T:
    """Call again and again while it is in doubt, or there is no answer."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            return call()
        except OSError:
            if time.monotonic() > deadline:
                raise


class Confirmed(NamedTuple):
    """An append that was answered."""

    epoch: int
    number: int
    octets: bytes


class Judge:
    """Notes what owners were told, in the order in which they were told."""

    def __init__(self) -> None:
        self.confirmed: list[Confirmed] = []

    def append(self, ledger: Ledger, epoch: int, number: int, octets: bytes) -> None:
        """Append; note the answer if it comes."""
        ledger.append(number, [octets])
        self.confirmed.append(Confirmed(epoch, number, octets))

    def violations(self, ledger: Ledger) -> list[str]:
        """Return what was broken, as the next owner sees it."""
        found = []
        newest = 0
        for one in self.confirmed:
            if one.epoch < newest:
                found.append(f"{one} was confirmed after epoch {newest} had confirmed")
            newest = max(newest, one.epoch)
        position = ledger.open()
        entries = dict(ledger.read(position.front - 1))
        found += [
            f"{one} is lost or changed"
            for one in self.confirmed
            if entries.get(one.number) != one.octets
        ]
        if list(entries) != list(range(position.front, position.last + 1)):
            found.append(f"the numbers are {list(entries)}, up to {position.last}")
        return found
