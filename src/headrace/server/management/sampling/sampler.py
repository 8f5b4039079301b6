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

from headrace.gateway.v0_10.connection.connection import Connection010
from headrace.model.events import Churn
from headrace.server.management.clients import describe_channel, describe_session
from headrace.server.management.objects import is_ours
from headrace.server.management.sampling import rows
from headrace.server.management.sampling.rows import (
    CHANNEL,
    CONNECTION,
    COUNTED,
    EXCHANGE,
    GROWING,
    QUEUE,
    SHAPES,
    TOTALS,
    VHOST,
)

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator

    from headrace.gateway.security.access import User
    from headrace.gateway.v0_10.session.session import Session010
    from headrace.gateway.v0_x.channel.channel import Channel
    from headrace.model.policy.policy import Policies
    from headrace.model.vhost.virtual_host import VirtualHost
    from headrace.server.management.clients import ChannelRow, ClientConnection
    from headrace.server.management.managed_broker import ManagedBroker
    from headrace.server.management.sampling.rows import Static, Values

STEP = 32  # Objects between two looks at the clock.
SLICE_S = 0.001  # Then the loop serves others.
KEPT_S = 60.0
GONE_MAX = 100_000  # A client that missed more gets everything.

NOTHING = (0,) * len(COUNTED)


class Track:
    """An object that was seen, and its numbers."""

    __slots__ = (
        *("born", "changed", "number", "seen", "static", "sums", "told", "user", "values", "vhost"),
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
        self.born = self.changed = self.seen = 0  # In which looks.
        self.told = 0  # In which look its static fields were new, at birth and seldom later.


class Sums:
    """The numbers of the queues of a virtual host, added up."""

    __slots__ = ("connections", "queues", "values")

    def __init__(self) -> None:
        self.values = [0] * len(COUNTED)
        self.queues = 0
        self.connections = 0

    def change(self, before: Values, after: Values) -> None:
        """Put the numbers of a queue into the place of those before."""
        self.values = [
            total + new - old for total, new, old in zip(self.values, after, before, strict=True)
        ]

    def part(self, last: Values) -> None:
        """Take out a deleted queue, but for what it has counted."""
        self.queues -= 1
        self.change(last, (*[0] * (len(last) - GROWING), *last[-GROWING:]))


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
        self._past = Sums()  # What was counted in deleted virtual hosts.
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
        for vhost in vhosts:
            sums = self._sums.setdefault(vhost, Sums())
            sums.connections = 0
            yield from self._queues(vhost, sums)
            yield from self._exchanges(vhost)
        yield from self._clients()
        yield from self._ended()
        for vhost in vhosts:
            self._vhost(vhost)
            yield
        for gone in self._sums.keys() - set(vhosts):
            self._policies.pop(gone, None)
            self._past.change(NOTHING, tuple(self._sums.pop(gone).values))
            if (track := self.kinds[VHOST].pop(gone, None)) is not None:
                self._end(VHOST, track)
        self._total()

    def _queues(self, vhost: VirtualHost, sums: Sums) -> Iterator[None]:
        tracks, epoch = self.kinds[QUEUE], self.epoch
        policies = vhost.rules.policies
        ruled_anew = policies is not self._policies.get(vhost, policies)
        self._policies[vhost] = policies
        for at, queue in enumerate(list(vhost.queues.values())):
            if not at % STEP:
                yield
            track = tracks.get(queue)
            if track is None:
                static = () if is_ours(queue) else rows.queue_static(queue, vhost)
                track = self._new(QUEUE, queue, static, vhost.name)
                track.values, track.sums = NOTHING, sums
                sums.queues += track.number > 0
            elif ruled_anew and track.number:
                self._tell_anew(track, rows.queue_static(queue, vhost))
            track.seen = epoch
            values = rows.queue_values(queue)
            if values != track.values and track.number:
                sums.change(track.values, values)
                track.values, track.changed = values, epoch

    def _exchanges(self, vhost: VirtualHost) -> Iterator[None]:
        tracks = self.kinds[EXCHANGE]
        for at, exchange in enumerate(list(vhost.exchanges.values())):
            if not at % STEP:
                yield
            track = tracks.get(exchange)
            if track is None:
                static = rows.exchange_static(exchange, vhost.name)
                track = self._new(EXCHANGE, exchange, static, vhost.name)
            self._set(track, (len(exchange.bindings),))

    def _vhost(self, vhost: VirtualHost) -> None:
        track, sums = self.kinds[VHOST].get(vhost), self._sums[vhost]
        static = rows.vhost_static(self._broker, vhost)
        if track is None:
            track = self._new(VHOST, vhost, static, vhost.name)
        self._tell_anew(track, static)
        counts = sums.queues, len(vhost.exchanges), sums.connections
        self._set(track, (*sums.values, *counts))

    def _total(self) -> None:
        track = self.kinds[TOTALS].get(TOTALS)
        if track is None:
            track = self._new(TOTALS, TOTALS, (TOTALS,), "")
        sums = [one.values for one in (self._past, *self._sums.values())]
        counters = self._broker.counters
        counts = (
            counters.published,
            *(len(self.kinds[kind]) for kind in (VHOST, EXCHANGE, CONNECTION, CHANNEL)),
            sum(one.queues for one in self._sums.values()),
            counters.memory_used,
            counters.memory_max,
            *(getattr(self._broker.events.churn, name) for name in Churn.__slots__),
        )
        self._set(track, (*map(sum, zip(*sums, strict=True)), *counts))

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
                    self._channel(session, row, session.user)
            else:
                for channel in cast("list[Channel]", list(connection.channels.values())):
                    self._channel(channel, describe_channel(connection, channel), connection.user)
        waiting = cast("list[Session010]", list(self._broker.shared_0_10.sessions.waiting))
        for session in waiting:
            self._channel(session, describe_session(None, 0, session), session.user)
            yield

    def _connection(self, connection: ClientConnection) -> None:
        track = self.kinds[CONNECTION].get(connection)
        if track is None:
            static = rows.connection_static(connection)
            vhost, user = connection.vhost.name, connection.user
            track = self._new(CONNECTION, connection, static, vhost, user)
        if connection.vhost in self._sums:
            self._sums[connection.vhost].connections += 1
        self._set(track, rows.connection_values(connection))

    def _channel(self, channel: Hashable, row: ChannelRow, user: User | None) -> None:
        key = channel, row["connection"], row["number"]  # A session may move.
        track = self.kinds[CHANNEL].get(key)
        if track is None:
            track = self._new(CHANNEL, key, rows.channel_static(row), row["vhost"], user)
        self._set(track, rows.channel_values(row))

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
                    track.sums.part(track.values)
                self._end(kind, track)

    def _end(self, kind: str, track: Track) -> None:
        if not track.number:
            return
        if len(self.gone) == GONE_MAX:
            self.first = self.gone.popleft()[0]
        self.gone.append((self.epoch, kind, track))
