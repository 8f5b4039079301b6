# SPDX-License-Identifier: Apache-2.0
"""The numbers of all objects as of the last scan, and the scan of their last change.

All clients share one sampler. A scan visits every object, in short slices, and compares its numbers
with those of the previous scan. Scans are numbered by epochs. An answer has the rows that changed
after the client's last scan. The numbers are dropped after :data:`KEPT_S` without a scan.
"""

from __future__ import annotations

import asyncio
import itertools
import secrets
import time
from collections import deque
from typing import TYPE_CHECKING, TypeAlias, cast

from headrace.gateway.security.client_connection import client_version
from headrace.gateway.v0_10.connection.connection import Connection010
from headrace.gateway.v0_x.channel.channel import Channel
from headrace.measures import (
    CHANNEL,
    CHANNEL_COUNTS,
    CHURN,
    CONNECTION,
    EXCHANGE,
    GROUP,
    LEASE,
    LOGINS,
    PROTOCOL,
    QUEUE,
    QUEUE_GAUGES,
    QUEUE_SUMS,
    SIZES,
    TOTALS,
    VHOST,
    Measure,
    columns,
)
from headrace.model.tallies import ChannelTally
from headrace.server.config.process import freeze_objects
from headrace.server.management.call import SLICE_S
from headrace.server.management.resources.channels import describe_channel, describe_session
from headrace.server.management.resources.connections import client_connections
from headrace.server.management.sampling import rows
from headrace.server.management.sampling.queue_changes import QueueChanges
from headrace.server.management.sampling.rows import ROW_FIELDS
from headrace.server.management.sampling.sums import NO_GAUGES, Totals, VhostSums, add_columns
from headrace.spec.tables import V0_10

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator, Sequence

    from headrace.gateway.security.user import User
    from headrace.gateway.v0_10.session.session import Session010
    from headrace.management_rows import ChannelRow
    from headrace.model.policy.policy import Policies
    from headrace.model.vhost.virtual_host import VirtualHost
    from headrace.server.management.managed_broker import ManagedBroker
    from headrace.server.management.resources.connections import ClientConnection
    from headrace.server.management.sampling.queue_row import QueueRow
    from headrace.server.management.sampling.rows import Static, Values

STEP = 32  # Objects between two reads of the clock.
KEPT_S = 60.0  # The time after the last scan for which the numbers are kept.
# The number of ended objects that are remembered, and for how long. A client whose last scan is
# older gets all rows.
GONE_MAX = 100_000
GONE_KEPT_S = 60.0

NO_TALLY = ChannelTally()


class SampledObject:
    """An object that a scan has visited, and its numbers."""

    __slots__ = (
        *("born", "changed", "number", "seen", "static", "static_changed", "user", "values"),
        "vhost",
    )

    def __init__(self, number: int, static: Static, vhost: str, user: User | None) -> None:
        """Make a row of an object, without numbers.

        Args:
            number: the id of the object in samples, which is never used again.
            static: the values of the object's static fields.
            vhost: the name of its virtual host; empty for the totals.
            user: the user of a connection or channel; None for other objects.
        """
        self.number = number
        self.static = static
        self.vhost = vhost
        self.user = user
        self.values: Values = ()
        # The epochs of the first scan, of the last change, of the last scan that saw the object,
        # and of the last change of its static fields.
        self.born = self.changed = self.seen = self.static_changed = 0


# An object that has ended: the epoch of the first scan without it, its kind, and its row.
EndedObject: TypeAlias = "tuple[int, str, SampledObject | QueueRow]"


class Sampler:
    """The numbers of all objects as of the last scan."""

    def __init__(self, broker: ManagedBroker) -> None:
        self._broker = broker
        self._scanning = asyncio.Lock()
        freeze_objects()  # The collector would walk all existing queues during the first scan.
        self._numbers = itertools.count(1)
        self.queues: QueueChanges | None = None
        self._forgetting: asyncio.TimerHandle | None = None
        self.run = secrets.token_hex(8)
        # An epoch later than those of an earlier run of the broker, so that its clients get all
        # rows.
        self.epoch = time.time_ns() // 1_000_000
        self.forget()

    def forget(self) -> None:
        """Drop all objects, so that every client gets all rows in its next sample."""
        self.kinds: dict[str, dict[Hashable, SampledObject]] = {kind: {} for kind in ROW_FIELDS}
        self._sums: dict[VirtualHost, VhostSums] = {}
        self._policies: dict[VirtualHost, Policies] = {}  # The policies in the rows of exchanges.
        self._totals = Totals()
        self.ended_objects: deque[EndedObject] = deque()
        self._scans: deque[tuple[float, int]] = deque()  # The times and epochs of recent scans.
        if self.queues is not None:
            self.queues.close()
        self.queues = None
        self.epoch += 1
        # The epoch after which all changes are known, and that of the last complete scan.
        self.first = self.complete = self.epoch

    async def scan(self) -> None:
        """Scan all objects, or wait for a scan that begins meanwhile for another client."""
        epoch = self.epoch
        async with self._scanning:
            if self.complete > epoch:
                return
            if self._forgetting is not None:
                self._forgetting.cancel()
            self.epoch += 1
            slice_end_s = time.monotonic() + SLICE_S
            try:
                for _ in self._scan_all():
                    if time.monotonic() > slice_end_s:
                        await asyncio.sleep(0)
                        slice_end_s = time.monotonic() + SLICE_S
                self.complete = self.epoch
            finally:
                loop = asyncio.get_running_loop()
                self._forgetting = loop.call_later(KEPT_S, self.forget)

    def _scan_all(self) -> Iterator[None]:
        """Visit all objects; each yield ends a step of some microseconds."""
        vhosts = list(self._broker.vhosts.values())
        self._totals.begin(self._broker.counters)
        for vhost in vhosts:
            if vhost not in self._sums:
                self._sums[vhost] = VhostSums(next(self._numbers))
            self._sums[vhost].begin(vhost)
        if self.queues is None:
            self.queues = QueueChanges(self._broker.counters)
        self.queues.begin(self.epoch)
        for vhost in vhosts:
            yield from self.queues.scan_vhost(vhost, self._sums[vhost], self._numbers, self.epoch)
            yield from self._scan_exchanges(vhost)
            yield from self._scan_groups(vhost)
            yield from self._scan_leases(vhost)
        yield from self._scan_clients()
        self._forget_old_ends()
        yield from self._end_missing()
        yield from self._scan_logins()
        for vhost in vhosts:
            self._update_vhost(vhost)
            yield
        for deleted in self._sums.keys() - set(vhosts):
            del self._sums[deleted]
            self._policies.pop(deleted, None)
            self.queues.forget_vhost(deleted)
            if (sampled := self.kinds[VHOST].pop(deleted, None)) is not None:
                self._end(VHOST, sampled)
        self._update_totals()
        self._update_versions()

    def _scan_exchanges(self, vhost: VirtualHost) -> Iterator[None]:
        objects, policies = self.kinds[EXCHANGE], vhost.rules.policies
        policies_changed = self._policies.get(vhost) is not policies
        for index, exchange in enumerate(list(vhost.exchanges.values())):
            sampled = objects.get(exchange)
            # Finding the policies of an exchange may take long, so it is a step of its own.
            if sampled is None or policies_changed or not index % STEP:
                yield
            if sampled is None:
                static = rows.exchange_static(exchange, vhost)
                sampled = self._new(EXCHANGE, exchange, static, vhost.name)
            elif policies_changed:
                self._set_static(sampled, rows.exchange_static(exchange, vhost))
            self._set(sampled, (len(exchange.bindings), *exchange.tally.values()))
        self._policies[vhost] = policies

    def _scan_groups(self, vhost: VirtualHost) -> Iterator[None]:
        objects = self.kinds[GROUP]
        for groups in vhost.groups.by_stream():
            for group in groups:
                yield  # The bytes of a lag are a sum over segments, which may be many.
                sampled = objects.get(group)
                if sampled is None:
                    static = rows.group_static(group, vhost)
                    sampled = self._new(GROUP, group, static, vhost.name)
                self._set(sampled, rows.group_values(group, vhost))

    def _scan_leases(self, vhost: VirtualHost) -> Iterator[None]:
        objects = self.kinds[LEASE]
        for lease in list(vhost.leases):
            yield
            sampled = objects.get(lease)
            if sampled is None:
                static = rows.lease_static(lease, vhost)
                sampled = self._new(LEASE, lease, static, vhost.name)
            self._set(sampled, rows.lease_values(lease, vhost))

    def _update_vhost(self, vhost: VirtualHost) -> None:
        sampled, sums = self.kinds[VHOST].get(vhost), self._sums[vhost]
        static = rows.vhost_static(self._broker, vhost)
        if sampled is None:
            sampled = self._new(VHOST, vhost, static, vhost.name)
        self._set_static(sampled, static)
        counts = sums.numbers.queues, len(vhost.exchanges), sums.connections
        self._set(sampled, (*sums.gauges(), *sums.counts(), *counts))

    def _update_totals(self) -> None:
        """Update the row with the sums over the broker; the scan of all objects is complete."""
        sampled = self.kinds[TOTALS].get(TOTALS)
        if sampled is None:
            sampled = self._new(TOTALS, TOTALS, (TOTALS,), "")
        vhosts = self._sums.values()
        counters, churn = self._broker.counters, self._broker.events.churn
        numbers = {
            **by_column(
                QUEUE_GAUGES, add_columns([NO_GAUGES, *(sums.gauges() for sums in vhosts)])
            ),
            **by_column((*CHANNEL_COUNTS, *QUEUE_SUMS), self._totals.counts(vhosts)),
            "vhosts": len(self.kinds[VHOST]),
            "exchanges": len(self.kinds[EXCHANGE]),
            "connections": len(self.kinds[CONNECTION]),
            "channels": len(self.kinds[CHANNEL]),
            "queues": sum(sums.numbers.queues for sums in vhosts),
            "publishers": sum(version.publishers for version in self._totals.versions.values()),
            "received": counters.published,
            "received_bytes": counters.published_bytes,
            "memory_used": counters.memory_used,
            "memory_max": counters.memory_max,
            **{name: getattr(churn, name) for name in columns(CHURN)},
            **counters.deaths,
            **by_column(SIZES, counters.sizes.counts(counters.published)),
        }
        self._set(sampled, tuple([numbers[name] for name in ROW_FIELDS[TOTALS].columns]))

    def _update_versions(self) -> None:
        objects = self.kinds[PROTOCOL]
        for name, version in self._totals.versions.items():
            sampled = objects.get(name)
            if sampled is None:
                sampled = self._new(PROTOCOL, name, (name,), "")
            counts = version.connections, version.channels, version.consumers, version.publishers
            self._set(sampled, (*version.counts(), *counts))

    def _scan_logins(self) -> Iterator[None]:
        objects, attempts = self.kinds[LOGINS], self._broker.login.attempts
        sources = [*attempts.protocols.items(), *attempts.sources.items()]
        for index, (source, counts) in enumerate(sources):
            if not index % STEP:
                yield
            sampled = objects.get(source)
            if sampled is None:
                sampled = self._new(LOGINS, source, tuple(source), "")
            self._set(sampled, (counts.succeeded, counts.failed))
        for forgotten in objects.keys() - dict(sources).keys():
            self._end(LOGINS, objects.pop(forgotten))

    # --- Clients --------------------------------------------------------------------------------

    def _scan_clients(self) -> Iterator[None]:
        """Visit the open connections with their channels, and the detached sessions."""
        context = self._broker.context
        for connection in list(client_connections(context).values()):
            yield
            if not rows.is_open(connection):
                continue
            sums = ChannelTally()
            sums.add(context.channels_ended.get(connection.number, sums))
            if isinstance(connection, Connection010):
                attached = cast("dict[int, Session010]", connection.attached)
                for number, session in list(attached.items()):
                    yield
                    row = describe_session(connection, number, session)
                    unconfirmed = count_unconfirmed(session)
                    sums.add(self._update_channel(session, row, session.user, unconfirmed))
            else:
                for channel in cast("list[Channel]", list(connection.channels.values())):
                    yield
                    row = describe_channel(connection, channel)
                    unconfirmed = channel.publish_seq - channel.confirmed_seq
                    sums.add(self._update_channel(channel, row, connection.user, unconfirmed))
            self._update_connection(connection, sums)
        waiting = cast("list[Session010]", list(self._broker.shared_0_10.sessions.waiting))
        for session in waiting:
            row = describe_session(None, 0, session)
            self._update_channel(session, row, session.user, count_unconfirmed(session))
            yield

    def _update_connection(self, connection: ClientConnection, sums: ChannelTally) -> None:
        """Update the row of a connection; ``sums`` has the counts of its channels."""
        sampled = self.kinds[CONNECTION].get(connection)
        if sampled is None:
            static = rows.connection_static(connection)
            vhost, user = connection.vhost.name, connection.user
            sampled = self._new(CONNECTION, connection, static, vhost, user)
        if connection.vhost in self._sums:
            self._sums[connection.vhost].connections += 1
        self._totals.version(client_version(connection)).connections += 1
        self._set(sampled, (*rows.connection_values(connection), *sums.values()))

    def _update_channel(
        self, channel: Channel | Session010, row: ChannelRow, user: User | None, unconfirmed: int
    ) -> ChannelTally:
        """Update the row of a channel or session; return its counts for those of its connection."""
        if isinstance(channel, Channel):
            tally, vhost = channel.update_tally(), channel.connection.vhost
            version = client_version(channel.connection)
        else:
            tally, vhost, version = channel.tally, channel.vhost, V0_10.label
        self._totals.version(version).add(tally, row["consumers"])
        if vhost in self._sums and not tally.ended:
            self._sums[vhost].channels.add(tally)
        # A session may move to another connection, where it gets a new row.
        key = channel, row["connection"], row["number"]
        sampled = self.kinds[CHANNEL].get(key)
        if sampled is None:
            sampled = self._new(CHANNEL, key, rows.channel_static(row), row["vhost"], user)
        self._set(sampled, rows.channel_values(row, tally, unconfirmed))
        return NO_TALLY if tally.ended else tally

    # --- One object -----------------------------------------------------------------------------

    def _new(
        self, kind: str, key: Hashable, static: Static, vhost: str, user: User | None = None
    ) -> SampledObject:
        """Add a new row."""
        sampled = SampledObject(next(self._numbers), static, vhost, user)
        sampled.born = sampled.changed = sampled.static_changed = self.epoch
        self.kinds[kind][key] = sampled
        return sampled

    def _set_static(self, sampled: SampledObject, static: Static) -> None:
        if static != sampled.static:
            sampled.static, sampled.static_changed, sampled.changed = static, self.epoch, self.epoch

    def _set(self, sampled: SampledObject, values: Values) -> None:
        sampled.seen = self.epoch
        if values != sampled.values:
            sampled.values, sampled.changed = values, self.epoch

    def _end_missing(self) -> Iterator[None]:
        """End the rows of the objects that this scan has not seen."""
        epoch = self.epoch
        assert self.queues is not None
        sums = {host.number: host.numbers for host in self._sums.values()}
        deleted_rows = self.queues.take_deleted()
        yield from self.queues.drop_deleted(deleted_rows)
        for index, row in enumerate(deleted_rows):
            if row.host in sums:
                row.leave(sums[row.host])
            self._end(QUEUE, row)
            if not index % STEP:
                yield
        for kind in (EXCHANGE, GROUP, LEASE, CONNECTION, CHANNEL):
            objects = self.kinds[kind]
            # A list of pairs would be created in one long step, and start the garbage collector.
            pairs = zip(list(objects), list(objects.values()), strict=True)
            for index, (key, sampled) in enumerate(pairs):
                if not index % STEP:
                    yield
                if sampled.seen == epoch:
                    continue
                del objects[key]
                self._end(kind, sampled)

    def _forget_old_ends(self) -> None:
        """Forget the objects that ended longer than ``GONE_KEPT_S`` ago."""
        now_s = time.monotonic()
        while self._scans and self._scans[0][0] <= now_s - GONE_KEPT_S:
            self.first = max(self.first, self._scans.popleft()[1])
        self._scans.append((now_s, self.epoch))
        while self.ended_objects and self.ended_objects[0][0] <= self.first:
            self.ended_objects.popleft()

    def _end(self, kind: str, sampled: SampledObject | QueueRow) -> None:
        """Record that an object has ended."""
        if len(self.ended_objects) == GONE_MAX:
            self.first = self.ended_objects.popleft()[0]
        self.ended_objects.append((self.epoch, kind, sampled))


def by_column(measures: Sequence[Measure], values: Values) -> dict[str, int]:
    """Return the values of measures by the names of their columns."""
    return dict(zip(columns(measures), values, strict=True))


def count_unconfirmed(session: Session010) -> int:
    """Return the number of transfers of a session that wait for their message.accept."""
    completion = session.completion
    waiting = sum(batch.accept_count for batch in completion.batches)
    return waiting + (0 if completion.batch is None else completion.batch.accept_count)
