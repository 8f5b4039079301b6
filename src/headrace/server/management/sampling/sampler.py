# SPDX-License-Identifier: Apache-2.0
"""What the last look at all objects found, and which of them have changed since when.

All clients share one sampler. A look visits every object in short slices and compares its numbers
with those of the look before; an answer has the rows that changed after the client's last look.
Nothing is kept of a broker that is not sampled for :data:`KEPT_S`.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections import deque
from typing import TYPE_CHECKING, cast

from headrace.gateway.security.client_connection import version_of
from headrace.gateway.v0_10.connection.connection import Connection010
from headrace.gateway.v0_x.channel.channel import Channel
from headrace.model.tallies import DEATH_FIELDS
from headrace.server.management.clients import describe_channel, describe_session
from headrace.server.management.objects import is_ours
from headrace.server.management.sampling import rows
from headrace.server.management.sampling.rows import (
    CHANNEL,
    CHURN,
    CONNECTION,
    EXCHANGE,
    GAUGES,
    LOGINS,
    PROTOCOL,
    QUEUE,
    SHAPES,
    TOTALS,
    VHOST,
)
from headrace.server.management.sampling.sums import NOTHING, Sums, Totals, added
from headrace.spec.tables import V0_10

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator

    from headrace.gateway.security.access import User
    from headrace.gateway.v0_10.session.session import Session010
    from headrace.model.policy.policy import Policies
    from headrace.model.queue.queue import Queue
    from headrace.model.vhost.virtual_host import VirtualHost
    from headrace.server.management.clients import ChannelRow, ClientConnection
    from headrace.server.management.managed_broker import ManagedBroker
    from headrace.server.management.sampling.rows import Static, Values

STEP = 32  # Objects between two looks at the clock.
SLICE_S = 0.001  # Then the loop serves others.
KEPT_S = 60.0
GONE_MAX = 100_000  # A client that missed more gets everything.

UTILISATION_MS = 1000  # Shorter than this no utilisation is told.
WHOLE = 1000  # Per mille.


class Track:
    """An object that was seen, and its numbers."""

    __slots__ = (
        *("born", "changed", "number", "seen", "static", "sums", "told", "user", "values", "vhost"),
        *("head", "looked_ms", "oldest_ms", "utilisation", "summed", "waited_ms"),
    )

    def __init__(self, number: int, static: Static, vhost: str, user: User | None) -> None:
        """``number`` is never given again; 0: the object is the broker's own, and not shown.

        ``vhost`` is empty for the totals; connections and channels have a ``user``.
        """
        self.number = number
        self.static = static
        self.vhost = vhost
        self.user = user
        self.sums: Sums | None = None  # To which a queue adds.
        self.values: Values = ()
        self.summed: Values = ()  # Of these, what is part of the sums.
        self.born = self.changed = self.seen = 0  # In which looks.
        self.head = -1  # Of a queue: what was first when ``oldest_ms`` was found.
        self.oldest_ms = 0
        self.looked_ms = self.waited_ms = 0  # When ``utilisation`` was found.
        self.utilisation = 0  # Per mille.
        self.told = 0  # In which look its static fields were new, at birth and seldom later.


class Sampler:
    """The numbers of all objects as of the last look."""

    def __init__(self, broker: ManagedBroker) -> None:
        self._broker = broker
        self._looking = asyncio.Lock()
        self._last_number = 0
        self._forgetting: asyncio.TimerHandle | None = None
        self.run = secrets.token_hex(8)
        # Later than every look of an earlier run of the broker, whose clients get everything.
        self.epoch = time.time_ns() // 1_000_000
        self.forget()

    def forget(self) -> None:
        """Drop all objects; every client gets everything the next time."""
        self.kinds: dict[str, dict[Hashable, Track]] = {kind: {} for kind in SHAPES}
        self._sums: dict[VirtualHost, Sums] = {}
        self._policies: dict[VirtualHost, Policies] = {}  # Which the static fields are by.
        self._totals = Totals()
        self.gone: deque[tuple[int, str, Track]] = deque()
        self.epoch += 1
        self.first = self.complete = self.epoch  # Of the looks that are known.

    async def look(self) -> None:
        """Look at all objects, unless another look has begun meanwhile and is complete."""
        asked = self.epoch
        async with self._looking:
            if self.complete > asked:
                return
            if self._forgetting is not None:
                self._forgetting.cancel()
            self.epoch += 1
            until_s = time.monotonic() + SLICE_S
            try:
                for _ in self._all():
                    if time.monotonic() > until_s:
                        await asyncio.sleep(0)
                        until_s = time.monotonic() + SLICE_S
                self.complete = self.epoch
            finally:
                loop = asyncio.get_running_loop()
                self._forgetting = loop.call_later(KEPT_S, self.forget)

    def _all(self) -> Iterator[None]:
        """Visit everything; each yield is a step of some microseconds."""
        vhosts = list(self._broker.vhosts.values())
        self._totals.begin(self._broker.counters)
        for vhost in vhosts:
            self._sums.setdefault(vhost, Sums()).begin(vhost)
        for vhost in vhosts:
            yield from self._queues(vhost, self._sums[vhost])
            yield from self._exchanges(vhost)
        yield from self._clients()
        yield from self._ended()
        yield from self._logins()
        for vhost in vhosts:
            self._vhost(vhost)
            yield
        for gone in self._sums.keys() - set(vhosts):
            self._policies.pop(gone, None)
            del self._sums[gone]
            if (track := self.kinds[VHOST].pop(gone, None)) is not None:
                self._end(VHOST, track)
        self._total()
        self._versions()

    def _queues(self, vhost: VirtualHost, sums: Sums) -> Iterator[None]:
        tracks, epoch = self.kinds[QUEUE], self.epoch
        policies = vhost.rules.policies
        ruled_anew = policies is not self._policies.get(vhost, policies)
        self._policies[vhost] = policies
        for at, queue in enumerate(list(vhost.queues.values())):
            if not at % STEP:
                yield
            if queue.deleted:  # Its counts are among those of deleted queues.
                continue
            track = tracks.get(queue)
            if track is None:
                static = () if is_ours(queue) else rows.queue_static(queue, vhost)
                track = self._new(QUEUE, queue, static, vhost.name)
                track.summed, track.sums = NOTHING, sums
                track.waited_ms = 0 if queue.round is None else queue.round.waited()
                track.looked_ms, track.utilisation = queue.counters.now_ms, WHOLE
                sums.queues += track.number > 0
            elif ruled_anew and track.number:
                self._tell_anew(track, rows.queue_static(queue, vhost))
            track.seen = epoch
            if track.number:
                self._queue(queue, track, sums)

    def _queue(self, queue: Queue, track: Track, sums: Sums) -> None:
        values = rows.queue_values(queue)
        if values != track.summed:
            sums.change(track.summed, values)
            track.summed = values
            track.oldest_ms = rows.oldest_ms(queue)
        self._set(track, (*values, track.oldest_ms, self._utilisation(queue, track)))

    def _utilisation(self, queue: Queue, track: Track) -> int:
        """Return for which part of the time since the last look a consumer had room, per mille."""
        now_ms = queue.counters.now_ms
        waited_ms = 0 if queue.round is None else queue.round.waited()
        passed_ms = now_ms - track.looked_ms
        if passed_ms >= UTILISATION_MS:
            waiting_ms = max(0, waited_ms - track.waited_ms)
            track.utilisation = WHOLE - min(WHOLE, WHOLE * waiting_ms // passed_ms)
            track.looked_ms, track.waited_ms = now_ms, waited_ms
        return 0 if queue.round is None else track.utilisation

    def _exchanges(self, vhost: VirtualHost) -> Iterator[None]:
        tracks = self.kinds[EXCHANGE]
        for at, exchange in enumerate(list(vhost.exchanges.values())):
            if not at % STEP:
                yield
            track = tracks.get(exchange)
            if track is None:
                static = rows.exchange_static(exchange, vhost.name)
                track = self._new(EXCHANGE, exchange, static, vhost.name)
            self._set(track, (len(exchange.bindings), *exchange.tally.values()))

    def _vhost(self, vhost: VirtualHost) -> None:
        track, sums = self.kinds[VHOST].get(vhost), self._sums[vhost]
        static = rows.vhost_static(self._broker, vhost)
        if track is None:
            track = self._new(VHOST, vhost, static, vhost.name)
        self._tell_anew(track, static)
        counts = sums.queues, len(vhost.exchanges), sums.connections
        self._set(track, (*sums.gauges(), *sums.counts(), *counts))

    def _total(self) -> None:
        track = self.kinds[TOTALS].get(TOTALS)
        if track is None:
            track = self._new(TOTALS, TOTALS, (TOTALS,), "")
        vhosts = self._sums.values()
        counters = self._broker.counters
        self._set(
            track,
            (
                *added([NOTHING[: len(GAUGES)], *(one.gauges() for one in vhosts)]),
                *self._totals.counts(vhosts),
                *(len(self.kinds[kind]) for kind in (VHOST, EXCHANGE, CONNECTION, CHANNEL)),
                sum(one.queues for one in vhosts),
                sum(one.publishers for one in self._totals.versions.values()),
                *(counters.published, counters.published_bytes),
                *(counters.memory_used, counters.memory_max),
                *(getattr(self._broker.events.churn, name) for name in CHURN),
                *(counters.deaths[name] for name in DEATH_FIELDS),
                *counters.sizes.counts(counters.published),
            ),
        )

    def _versions(self) -> None:
        tracks = self.kinds[PROTOCOL]
        for name, one in self._totals.versions.items():
            track = tracks.get(name)
            if track is None:
                track = self._new(PROTOCOL, name, (name,), "")
            counts = one.connections, one.channels, one.consumers, one.publishers
            self._set(track, (*one.counts(), *counts))

    def _logins(self) -> Iterator[None]:
        tracks, attempts = self.kinds[LOGINS], self._broker.login.attempts
        sources = [*attempts.protocols.items(), *attempts.sources.items()]
        for at, (source, outcomes) in enumerate(sources):
            if not at % STEP:
                yield
            track = tracks.get(source)
            if track is None:
                track = self._new(LOGINS, source, tuple(source), "")
            self._set(track, (outcomes.succeeded, outcomes.failed))
        for gone in tracks.keys() - dict(sources).keys():
            self._end(LOGINS, tracks.pop(gone))

    # --- Clients --------------------------------------------------------------------------------

    def _clients(self) -> Iterator[None]:
        connections: list[ClientConnection] = list(self._broker.context.connections.values())
        for connection in connections:
            yield
            if not rows.is_open(connection):
                continue
            self._connection(connection)
            if isinstance(connection, Connection010):
                attached = cast("dict[int, Session010]", connection.attached)
                for number, session in list(attached.items()):
                    row = describe_session(connection, number, session)
                    self._channel(session, row, session.user, unconfirmed_of(session))
            else:
                for channel in cast("list[Channel]", list(connection.channels.values())):
                    row = describe_channel(connection, channel)
                    unconfirmed = channel.seq - channel.confirmed
                    self._channel(channel, row, connection.user, unconfirmed)
        waiting = cast("list[Session010]", list(self._broker.shared_0_10.sessions.waiting))
        for session in waiting:
            row = describe_session(None, 0, session)
            self._channel(session, row, session.user, unconfirmed_of(session))
            yield

    def _connection(self, connection: ClientConnection) -> None:
        track = self.kinds[CONNECTION].get(connection)
        if track is None:
            static = rows.connection_static(connection)
            vhost, user = connection.vhost.name, connection.user
            track = self._new(CONNECTION, connection, static, vhost, user)
        if connection.vhost in self._sums:
            self._sums[connection.vhost].connections += 1
        self._totals.version(version_of(connection)).connections += 1
        self._set(track, rows.connection_values(connection))

    def _channel(
        self, channel: Channel | Session010, row: ChannelRow, user: User | None, unconfirmed: int
    ) -> None:
        if isinstance(channel, Channel):
            tally, vhost = channel.tallied(), channel.connection.vhost
            version = version_of(channel.connection)
        else:
            tally, vhost, version = channel.tally, channel.vhost, V0_10.label
        self._totals.version(version).add(tally, row["consumers"])
        if vhost in self._sums and not tally.ended:
            self._sums[vhost].channels.add(tally)
        key = channel, row["connection"], row["number"]  # A session may move.
        track = self.kinds[CHANNEL].get(key)
        if track is None:
            track = self._new(CHANNEL, key, rows.channel_static(row), row["vhost"], user)
        self._set(track, rows.channel_values(row, tally, unconfirmed))

    # --- One object -----------------------------------------------------------------------------

    def _new(
        self, kind: str, key: Hashable, static: Static, vhost: str, user: User | None = None
    ) -> Track:
        self._last_number += bool(static)
        track = Track(self._last_number if static else 0, static, vhost, user)
        track.born = track.changed = track.told = self.epoch
        self.kinds[kind][key] = track
        return track

    def _tell_anew(self, track: Track, static: Static) -> None:
        if static != track.static:
            track.static, track.told, track.changed = static, self.epoch, self.epoch

    def _set(self, track: Track, values: Values) -> None:
        track.seen = self.epoch
        if values != track.values:
            track.values, track.changed = values, self.epoch

    def _ended(self) -> Iterator[None]:
        """Forget the objects that this look has not seen."""
        epoch = self.epoch
        for kind in (QUEUE, EXCHANGE, CONNECTION, CHANNEL):
            tracks = self.kinds[kind]
            # A list of pairs would be made in one long step, and have the garbage collector run.
            pairs = zip(list(tracks), list(tracks.values()), strict=True)
            for at, (key, track) in enumerate(pairs):
                if not at % STEP:
                    yield
                if track.seen == epoch:
                    continue
                del tracks[key]
                if track.sums is not None and track.number:
                    track.sums.part(track.summed)
                self._end(kind, track)

    def _end(self, kind: str, track: Track) -> None:
        if not track.number:
            return
        if len(self.gone) == GONE_MAX:
            self.first = self.gone.popleft()[0]
        self.gone.append((self.epoch, kind, track))


def unconfirmed_of(session: Session010) -> int:
    """Return how many transfers of a session wait for their message.accept."""
    completion = session.completion
    waiting = sum(batch.wanted for batch in completion.batches)
    return waiting + (0 if completion.batch is None else completion.batch.wanted)
