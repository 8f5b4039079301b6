# SPDX-License-Identifier: Apache-2.0
"""Sums over the journals of all virtual hosts: groups, copied bytes, paged messages, sizes."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from headrace.store.journal.journal import Journal

if TYPE_CHECKING:
    from collections.abc import Iterable

    from headrace.model.ports import Store


class JournalCounts(NamedTuple):
    """Counters, which only grow."""

    groups: int = 0  # Written and synced at once.
    copied_bytes: int = 0  # The bytes that compaction copied.
    paged_out: int = 0  # Messages whose bodies left the memory.
    paged_in: int = 0  # Messages whose bodies were loaded again.


class JournalSizes(NamedTuple):
    """Gauges, which grow and shrink."""

    bytes: int = 0  # The bytes of records in segment files.
    segments: int = 0


class JournalSums:
    """Sums of counts over the existing and the deleted virtual hosts."""

    def __init__(self) -> None:
        self._past = JournalCounts()

    def end(self, store: Store) -> None:
        """Keep the counts of a deleted virtual host's store."""
        self._past = self.counts([store])

    def counts(self, stores: Iterable[Store]) -> JournalCounts:
        """Return the sums of the counts of open and of closed stores."""
        open_counts = [
            JournalCounts(
                store.group_number, store.compactor.copied_bytes, store.paged_out, store.paged_in
            )
            for store in stores
            if isinstance(store, Journal)
        ]
        return JournalCounts(*map(sum, zip(self._past, *open_counts, strict=True)))


def sizes(stores: Iterable[Store]) -> JournalSizes:
    """Return how large the journals are now."""
    segments = [part for store in stores if isinstance(store, Journal) for part in store.order]
    return JournalSizes(sum(part.end for part in segments), len(segments))
