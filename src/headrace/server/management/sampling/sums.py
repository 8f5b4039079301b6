# SPDX-License-Identifier: Apache-2.0
"""Sums of the numbers of queues and channels: by virtual host, by version of AMQP, and in all.

The counts of ended objects are read at the beginning of a scan. Objects that end during the scan
count in the next one, so nothing is counted twice. A sum of counters that would decrease keeps its
value.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.measures import CHANNEL_COUNTS, QUEUE_COUNTS, QUEUE_GAUGES, QUEUE_SUMS
from headrace.model.tallies import ChannelTally
from headrace.server.management.sampling.queue_row import QueueNumbers

if TYPE_CHECKING:
    from collections.abc import Iterable

    from headrace.model.counters import Counters
    from headrace.model.vhost.virtual_host import VirtualHost
    from headrace.server.management.sampling.rows import Values

# The positions in QueueNumbers of gauges and counts.
GAUGES = len(QUEUE_GAUGES)
SUMMED = GAUGES + len(QUEUE_COUNTS)
NO_GAUGES = (0,) * GAUGES
NO_COUNTS = (0,) * (len(CHANNEL_COUNTS) + len(QUEUE_SUMS))
# The positions in a queue's tally of the counters that each of QUEUE_SUMS adds up.
POSITIONS = tuple(
    tuple(
        position for position, measure in enumerate(QUEUE_COUNTS) if measure.total == total.column
    )
    for total in QUEUE_SUMS
)


class VhostSums:
    """The numbers of one virtual host."""

    __slots__ = ("_counts", "_ended", "channels", "connections", "number", "numbers")

    def __init__(self, number: int) -> None:
        """``number`` is never used again."""
        self.number = number
        self.numbers = QueueNumbers()  # The sums of the existing queues.
        self.connections = 0
        self.channels = ChannelTally()
        self._ended: Values = ()  # The counts of deleted queues.
        self._counts = NO_COUNTS  # The counters, as last returned.

    def begin(self, vhost: VirtualHost) -> None:
        """Begin a scan."""
        self.connections = 0
        self.channels = ChannelTally()
        self.channels.add(vhost.channels_ended)
        self._ended = vhost.queues_ended.values()

    def gauges(self) -> Values:
        """Return the sums of the gauges, in the order of QUEUE_GAUGES."""
        return self.numbers.values_between(0, GAUGES)

    def counts(self) -> Values:
        """Return the counters: those of channels, and QUEUE_SUMS."""
        living = self.numbers.values_between(GAUGES, SUMMED)
        queue_counts = add_columns([living, self._ended])
        counts = (*self.channels.values(), *queue_sums(queue_counts))
        self._counts = tuple(map(max, self._counts, counts))
        return self._counts

    def queue_counts(self) -> Values:
        """Return QUEUE_SUMS, as they were last returned."""
        return self._counts[len(CHANNEL_COUNTS) :]


class VersionSums:
    """The numbers of one version of AMQP."""

    __slots__ = ("_counts", "channels", "connections", "consumers", "publishers", "tally")

    def __init__(self) -> None:
        self.tally = ChannelTally()
        self.connections = self.channels = self.consumers = self.publishers = 0
        self._counts: Values = ()

    def begin(self, ended: ChannelTally | None) -> None:
        """Begin a scan; ``ended`` has the counts of ended channels."""
        self.tally = ChannelTally()
        self.connections = self.channels = self.consumers = self.publishers = 0
        if ended is not None:
            self.tally.add(ended)

    def add(self, tally: ChannelTally, consumers: int) -> None:
        """Add a channel."""
        self.channels += 1
        self.consumers += consumers
        self.publishers += tally.publish > 0
        if not tally.ended:
            self.tally.add(tally)

    def counts(self) -> Values:
        """Return the counters, in the order of CHANNEL_COUNTS."""
        counts = self.tally.values()
        self._counts = tuple(map(max, self._counts or counts, counts))
        return self._counts


class Totals:
    """The numbers of all virtual hosts and versions."""

    def __init__(self) -> None:
        self.versions: dict[str, VersionSums] = {}
        self._past: Values = (0,) * len(QUEUE_SUMS)  # Sums of deleted virtual hosts.
        self._counts = self._past

    def begin(self, counters: Counters) -> None:
        """Begin a scan."""
        self._past = queue_sums(counters.queues_ended.values())
        for name in counters.channels_ended.keys() - self.versions.keys():
            self.versions[name] = VersionSums()
        for name, version in self.versions.items():
            version.begin(counters.channels_ended.get(name))

    def version(self, name: str) -> VersionSums:
        """Return the numbers of a version; the first call for a version creates them."""
        if name not in self.versions:
            self.versions[name] = VersionSums()
        return self.versions[name]

    def counts(self, vhosts: Iterable[VhostSums]) -> Values:
        """Return the counters: those of channels, and QUEUE_SUMS."""
        counts = add_columns([self._past, *(sums.queue_counts() for sums in vhosts)])
        self._counts = tuple(map(max, self._counts, counts))
        zeros = (0,) * len(CHANNEL_COUNTS)
        channel_counts = add_columns(
            [zeros, *(version.counts() for version in self.versions.values())]
        )
        return *channel_counts, *self._counts


def add_columns(rows: list[Values]) -> Values:
    """Return the sum of each column of rows."""
    return tuple(map(sum, zip(*rows, strict=True)))


def queue_sums(counts: Values) -> Values:
    """Return the values of QUEUE_SUMS, from counts in the order of QUEUE_COUNTS."""
    return tuple(sum([counts[position] for position in positions]) for positions in POSITIONS)
