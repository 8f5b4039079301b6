# SPDX-License-Identifier: Apache-2.0
"""Alarms, and the publishers that they block.

Only publishing is blocked. Consumers are served, and connections with unacked messages are read,
because acks make room (:meth:`headrace.server.net.transport.Transport.block`). An alarm blocks as
little as it can:

========  =========================  ==========================================================
source    blocks publishers          because
========  =========================  ==========================================================
memory    of every virtual host      queued messages take too much memory, or too much waits to
                                     be written to disk
disk      of one virtual host        its journal has too little room, or cannot be written
operator  of one or of every one     an operator set it, until it is cleared or the broker ends
cluster   of one virtual host        it is frozen, or its database has taken nothing for a while,
                                     or too much waits to be replicated;
                                     or the database lacks what was confirmed
cluster   of every virtual host      the database is larger than its limit
========  =========================  ==========================================================

Clients with the capability get ``connection.blocked``, with the reasons joined by `` & ``. A
stall of the database shorter than ``STALL_SHORT_S``, as in a short failover, sends none: clients
get late confirms, and their input is not read.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from headrace.model.counters import Counters
    from headrace.model.events import Events
    from headrace.model.ports import Store
    from headrace.model.vhost.virtual_host import VirtualHost
    from headrace.server.net.transport import Reactor, Transport

log = logging.getLogger(__name__)

ALARM_S = 0.1  # The interval between checks of memory and disk.
BACKLOG_MAX = 256 << 20  # Bytes that may wait to be written to one journal.
MEMORY, DISK, OPERATOR, CLUSTER = "memory", "disk", "operator", "cluster"
STALL_SHORT_S = 5.0  # A shorter stall of the cluster's database sends no connection.blocked.
STALLED = "the database of the cluster accepts no writes"
LAGGING = "the database of the cluster is slow"
FULL = "the database of the cluster is full"
LOST = "the database of the cluster lacks what was confirmed"
FROZEN = "frozen: the database of the cluster does not answer"
EVERYWHERE = ""  # The key of alarms of all virtual hosts.


class Alarm(NamedTuple):
    """One reason to block publishers."""

    source: str  # MEMORY, DISK, OPERATOR or CLUSTER.
    vhost: str  # Or EVERYWHERE.
    reason: str  # The reason that clients get.


class Alarms:
    """All alarms of one broker."""

    def __init__(
        self,
        reactor: Reactor,
        transports: Collection[Transport],
        stores: Mapping[str, Store],
        events: Events,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``transports`` and ``stores``, by virtual host, change while the broker runs."""
        self.reactor = reactor
        self.transports = transports
        self.stores = stores
        self.events = events
        self.counters: Counters = reactor.counters
        self.by_operator: dict[str, str] = {}  # The reasons that clients get, by virtual host.
        self.active: dict[Alarm, int] = {}  # The begin of each alarm, in Unix milliseconds.
        self.frozen: Collection[VirtualHost] = ()  # Their clients are not served.
        self.lost: Collection[str] = ()  # Virtual hosts that an operator has to decide about.
        self.lag_max = 0  # Bytes of a virtual host that may wait to be replicated; 0: no limit.
        self.database_is_full: Callable[[], bool] = lambda: False  # The cluster's database.
        self._clock = clock
        self._lagging: dict[str, float] = {}  # The start of each lag, by virtual host.
        # In a cluster, by virtual host: the store's synced position, and when it reached that.
        self._waiting: dict[str, tuple[int, float]] = {}
        self._stalled: set[str] = set()
        self._memory = False
        self._database = False  # It is full.
        reactor.alarms = self

    def reason(self, vhost: VirtualHost | None) -> str:
        """Return why publishers of a virtual host are blocked; empty if they are not."""
        name = EVERYWHERE if vhost is None else vhost.name
        if not self._memory and self.counters.crowded():
            self._memory = True
            self.reactor.loop.call_soon(self.check)  # It blocks all publishers.
        reasons = ["low on memory"] if self._memory else []
        store = self.stores.get(name)
        if store is not None and store.full:
            reasons.append("low on disk")
        if self._database:
            reasons.append(FULL)
        if name in self._stalled:
            reasons.append(STALLED)
        elif name in self._lagging:
            reasons.append(LAGGING)
        reasons += [self.by_operator[key] for key in {EVERYWHERE, name} if key in self.by_operator]
        return " & ".join(reasons)

    def is_short_stall(self, vhost: VirtualHost | None) -> bool:
        """Return True if a stall blocks publishers that is too short for connection.blocked."""
        name = EVERYWHERE if vhost is None else vhost.name
        since_s = self._lagging.get(name)
        short = since_s is not None and self._clock() - since_s < STALL_SHORT_S
        return short and self.reason(vhost) == LAGGING

    def check(self) -> None:
        """Check memory and disk; block or unblock publishers."""
        counters = self.counters
        memory = counters.crowded() or (self._memory and counters.memory_used > counters.memory_max)
        backlog_max = BACKLOG_MAX // 2 if self._memory else BACKLOG_MAX
        for store in self.stores.values():  # Records that wait for the disk are in memory.
            memory |= store.appended > store.synced + backlog_max
        self._memory = memory
        now = {Alarm(MEMORY, EVERYWHERE, "low on memory")} if memory else set()
        now |= {Alarm(DISK, name, "low on disk") for name, s in self.stores.items() if s.full}
        for name in [name for name in self.by_operator if name and name not in self.stores]:
            del self.by_operator[name]  # Its virtual host was deleted.
        now |= {Alarm(OPERATOR, name, reason) for name, reason in self.by_operator.items()}
        now |= {Alarm(CLUSTER, vhost.name, FROZEN) for vhost in self.frozen}
        now |= {Alarm(CLUSTER, name, LOST) for name in self.lost}
        self._database = self.database_is_full()
        if self._database:
            now.add(Alarm(CLUSTER, EVERYWHERE, FULL))
        if self.lag_max:
            self._check_ledgers()
        now |= {Alarm(CLUSTER, name, STALLED) for name in self._stalled}
        now |= {Alarm(CLUSTER, name, LAGGING) for name in self._lagging.keys() - self._stalled}
        reactor = self.reactor
        reactor.alarmed = bool(now)
        if now != self.active.keys():
            self._announce(now)
            for transport in list(self.transports):
                if transport.connection.publishes and not transport.connection.blocked:
                    transport.block()
        if reactor.blocked:
            for transport in list(reactor.blocked):
                vhost = transport.connection.vhost
                if not self.reason(vhost):
                    transport.unblock()
                elif not transport.connection.blocked and not self.is_short_stall(vhost):
                    transport.block()
            reactor.turn()

    def _check_ledgers(self) -> None:
        """Note which stores wait for the database of the cluster, and for how long."""
        now_s = self._clock()
        frozen = {vhost.name for vhost in self.frozen}  # Their clients are not read.
        waiting: dict[str, tuple[int, float]] = {}
        for name, store in self.stores.items():
            if store.appended > store.synced:
                synced, since_s = self._waiting.get(name, (-1, 0.0))
                waiting[name] = (store.synced, since_s if synced == store.synced else now_s)
        self._waiting = waiting
        self._stalled = {
            name
            for name, (_, since_s) in waiting.items()
            if now_s - since_s >= STALL_SHORT_S and name not in frozen
        }
        self._lagging = {
            name: self._lagging.get(name, now_s)
            for name, store in self.stores.items()
            if self._lags(name, store)
        }

    def _lags(self, name: str, store: Store) -> bool:
        """Return True above ``lag_max``, and then until half of it is replicated."""
        limit = self.lag_max // 2 if name in self._lagging else self.lag_max
        return self.lag_max > 0 and store.appended > store.synced + limit

    def read_once(self) -> None:
        """Read once from a blocked connection with unacked messages, in round-robin order."""
        blocked = self.reactor.blocked
        for transport in list(blocked):
            if transport.waits and transport.connection.has_unacked():
                blocked[transport] = blocked.pop(transport)
                transport.read_once()
                return

    def set_alarm(self, vhost: str, reason: str) -> None:
        """Block the publishers of a virtual host, or EVERYWHERE, for an operator."""
        self.by_operator[vhost] = reason
        self.check()

    def clear_alarm(self, vhost: str) -> bool:
        """Clear an operator's alarm; return True if there was one."""
        was = self.by_operator.pop(vhost, None) is not None
        self.check()
        return was

    def _announce(self, now: set[Alarm]) -> None:
        """Log the changes, and report them as events."""
        before = set(self.active)
        self.active = {alarm: self.active.get(alarm, self.counters.now_ms) for alarm in sorted(now)}
        for alarm in sorted(now - before):
            where = f" of vhost {alarm.vhost!r}" if alarm.vhost else ""
            log.warning("publishers%s are blocked: %s", where, alarm.reason)
        for alarm in sorted(before - now):
            where = f" of vhost {alarm.vhost!r}" if alarm.vhost else ""
            log.warning("publishers%s are no longer blocked: %s", where, alarm.reason)
        if not self.events.has_listeners:
            return
        for source in (MEMORY, DISK, OPERATOR, CLUSTER):
            was = any(alarm.source == source for alarm in before)
            is_now = any(alarm.source == source for alarm in now)
            if was != is_now:
                self.events.emit("alarm.set" if is_now else "alarm.cleared", source=source)
