# SPDX-License-Identifier: Apache-2.0
"""Sums over the journals of all virtual hosts: counters and sizes."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from headrace.store.journal.journal import Journal

if TYPE_CHECKING:
    from collections.abc import Iterable

    from headrace.model.ports import Store


class JournalCounts(NamedTuple):
    """Counters of journals, which only grow."""

    groups: int = 0  # Groups of records, each written and synced at once.
    copied_bytes: int = 0  # Bytes that compaction has copied.
    paged_out: int = 0  # Messages whose bodies were dropped from memory.
    paged_in: int = 0  # Messages whose bodies were loaded again.


class JournalSizes(NamedTuple):
    """Present sizes of journals."""

    bytes: int = 0  # Bytes of records in segment files.
    segments: int = 0


class JournalSums:
    """Sums of counters over the existing and the stopped virtual hosts."""

    def __init__(self) -> None:
        self._past = JournalCounts()

    def end(self, store: Store) -> None:
        """Keep the counters of a store that is closed."""
        self._past = self.counts([store])

    def counts(self, stores: Iterable[Store]) -> JournalCounts:
        """Return the sums of the counters of open and closed stores."""
        open_counts = [
            JournalCounts(
                store.group_number, store.compactor.copied_bytes, store.paged_out, store.paged_in
            )
            for store in stores
            if isinstance(store, Journal)
        ]
        return JournalCounts(*map(sum, zip(self._past, *open_counts, strict=True)))


def sum_sizes(stores: Iterable[Store]) -> JournalSizes:
    """Return the sums of the present sizes of the journals."""
    journals = [store for store in stores if isinstance(store, Journal)]
    segments = [segment for journal in journals for segment in journal.order]
    return JournalSizes(sum(segment.end for segment in segments), len(segments))
