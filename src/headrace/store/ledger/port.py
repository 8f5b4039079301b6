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
    """The ledger accepts no more entries from this owner; a repeated call also fails."""


class Fenced(LedgerLost):
    """Another broker has taken over the ledger."""


class Gap(LedgerLost):
    """The engine lacks entries that it had confirmed, or has other entries in their place."""


class OtherHistory(Gap):
    """The files of this node have entries that differ from the ledger's, or that it lacks."""


class Stalled(OSError):
    """The engine did not accept a write, or the outcome of the write is in doubt: repeat it."""


class Position(NamedTuple):
    """The epoch of a ledger, and the range of its entries."""

    epoch: int  # The epoch of the owner.
    last: int  # The number of the last entry; 0 if there was none.
    front: int  # The number of the first entry; last + 1 if all entries were removed.


class Ledger(Protocol):
    """The ledger of one virtual host.

    A call that fails with OSError may have been carried out: the caller may repeat it.
    """

    def open(self) -> Position:
        """Make this broker the owner of the ledger, and fence the previous owner.

        The entries include all appends of that owner that the engine has; its later appends fail.

        Raises:
            OSError: the engine does not answer, or it is in doubt that this call is durable.
        """

    def read_position(self) -> Position:
        """Return the position of the ledger without becoming its owner.

        Raises:
            OSError: the engine does not answer.
        """

    def append(self, number: int, entry: Sequence[BytesLike]) -> None:
        """Add an entry; return when a majority of the engine's disks has it.

        After an error the call may be repeated: the entry is added once.

        Raises:
            Fenced: another broker owns the ledger.
            Gap: the last entry of the engine is neither this entry nor the previous one.
            OSError: the entry may or may not be durable.
        """

    def read(self, after: int) -> Iterator[tuple[int, bytes]]:
        """Yield the entries after a number, in order.

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

    def second_connection(self) -> "Ledger":
        """Return a ledger of the same epoch with a second connection, for another thread."""

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
        """Return a part of an object, numbered from 0; None if there is no such part.

        Raises:
            OSError: the engine does not answer.
        """

    def put(self, name: str, number: int, data: BytesLike) -> None:
        """Store a part of an object, which readers see once the object is complete.

        Raises:
            Fenced: another broker owns the ledger.
            OSError: the part may or may not be durable.
        """

    def complete(self, name: str, size: int) -> None:
        """Complete an object; return when a majority of the engine's disks has it.

        Raises:
            Fenced, OSError: see put.
        """

    def remove(self, name: str) -> None:
        """Remove an object and its parts; a missing object is not an error.

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
