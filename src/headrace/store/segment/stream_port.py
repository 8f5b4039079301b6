# SPDX-License-Identifier: Apache-2.0
"""Ports of a journal to the logs of streams, whose records are written with its groups."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterator

    from headrace.store.disk import Change, Disk


class StreamRecords(Protocol):
    """The records of one stream in one group of the journal."""

    @property
    def files(self) -> object:
        """The files of the stream, which identify the stream."""

    def run(self, disk: Disk) -> None:
        """Write and sync on the writer's thread, skipping durable writes."""

    def changes(self) -> list[Change]:
        """Return the writes of the group, in order, for a disk that replicates them."""

    def finish(self) -> None:
        """Record that the group is durable; on the loop's thread."""


class JournaledStream(Protocol):
    """The log of a stream that is open."""

    def announce(self, ahead: int) -> None:
        """Record the durable offset in the journal, and a bound that is ``ahead`` higher."""

    def hand_over(self) -> StreamRecords:
        """Pass the appended records to the journal's next group."""

    def needs_commit(self, number: int) -> bool:
        """Return True if a recovery would need the COMMIT of a transaction."""

    def resolve(self, committed: set[int] | None, clean: bool) -> None:
        """Cut off an uncommitted transaction and all records after it.

        Args:
            committed: the numbers of committed transactions; None if the journal is damaged.
            clean: True if the journal was closed regularly.
        """

    def unfinished_files(self) -> Iterator[tuple[str, int]]:
        """Yield the files that are appended to, with their durable bytes."""

    def delete_objects(self) -> None:
        """Delete the stream's objects in the object store."""

    def close(self) -> None:
        """Close the files."""
