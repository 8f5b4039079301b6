# SPDX-License-Identifier: Apache-2.0
"""The port to an engine that replicates the journal of a virtual host: a ledger.

A ledger is a list of entries, numbered from 1 without gaps, and some objects by name. One broker
owns it at a time. Each time a broker takes it, its epoch grows by one; appends of an earlier epoch
fail from then on. So no clock and no lease decides who may write.

Calls block, and come from one thread at a time.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol

BytesLike = bytes | bytearray | memoryview


class LedgerLost(Exception):
    """The ledger takes nothing more from this owner; a repeated call fails, too."""


class Fenced(LedgerLost):
    """Another broker has taken the ledger since."""


class Gap(LedgerLost):
    """The engine lacks entries that it had confirmed, or has others in their place."""


class OtherHistory(Gap):
    """The files of this node have entries that the ledger lacks, or has others in their place."""


class Stalled(OSError):
    """The engine did not take a write, or it is in doubt whether it did: repeat it."""


class Position(NamedTuple):
    """The epoch of a ledger, and the range of its entries that are kept."""

    epoch: int  # The epoch of the owner.
    last: int  # The number of the last entry; 0 without entries.
    front: int  # The number of the first entry that is kept, or that would be the next.


class Ledger(Protocol):
    """The ledger of one virtual host.

    A call that fails with OSError may have been carried out: the caller may repeat it.
    """

    def open(self) -> Position:
        """Take the ledger for this broker, and shut out the owner before.

        An append of that owner that the engine has is among the entries; a later one fails.

        Raises:
            OSError: the engine does not answer, or it is in doubt that this call is durable.
        """

    def read_position(self) -> Position:
        """Return the position of the ledger, without taking it.

        Raises:
            OSError: the engine does not answer.
        """

    def append(self, number: int, entry: Sequence[BytesLike]) -> None:
        """Add an entry; return when a majority of the engine's disks has it.

        The same call again, after an error, adds nothing twice.

        Raises:
            Fenced: another broker owns the ledger.
            Gap: the last entry of the engine is neither this one nor the one before.
            OSError: the entry may or may not be durable.
        """

    def read(self, after: int) -> Iterator[tuple[int, bytes]]:
        """Yield the entries behind a number, in order.

        Raises:
            Gap: an entry is missing.
            OSError: the engine does not answer.
        """

    def trim(self, before: int) -> None:
        """Let the engine remove the entries below a number.

        Raises:
            Fenced, OSError: nothing was removed.
        """

    def objects(self) -> "Objects":
        """Return the objects of this ledger, for the thread that uses the ledger."""

    def beside(self) -> "Ledger":
        """Return another connection of the same epoch, for another thread and its objects."""

    def close(self) -> None:
        """Release the connection."""


class Objects(Protocol):
    """The objects of a ledger: bytes by name, which are put part by part and never change.

    Calls that change them need the owner. A call that fails with OSError may be repeated.
    """

    def sizes(self) -> dict[str, int]:
        """Return the sizes of all complete objects, by name.

        Raises:
            OSError: the engine does not answer.
        """

    def part(self, name: str, number: int) -> bytes | None:
        """Return a part of an object, numbered from 0; None behind the last.

        Raises:
            OSError: the engine does not answer.
        """

    def put(self, name: str, number: int, data: BytesLike) -> None:
        """Add a part; the object has it once it is complete.

        Raises:
            Fenced: another broker owns the ledger.
            OSError: the part may or may not be durable.
        """

    def complete(self, name: str, size: int) -> None:
        """Make an object of all its parts; return when a majority of the engine's disks has it.

        Raises:
            Fenced, OSError: see put.
        """

    def remove(self, name: str) -> None:
        """Remove an object and its parts, if there is one.

        Raises:
            Fenced, OSError: see put.
        """

    def sweep(self) -> None:
        """Remove the parts of objects that were never complete.

        Raises:
            Fenced, OSError: see put.
        """

    def close(self) -> None:
        """Release the connection."""
