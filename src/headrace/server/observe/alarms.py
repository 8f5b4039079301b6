# SPDX-License-Identifier: Apache-2.0
"""Alarms, and the publishers that they block.

Only publishing is blocked. Consumers are served, and connections with unacked messages are read,
because acks free memory (:meth:`headrace.server.net.transport.Transport.block`). The scope of an
alarm is as small as its cause allows:

========  =========================  ==========================================================
source    blocks publishers          because
========  =========================  ==========================================================
memory    of every virtual host      queued messages take too much memory, or too much waits to
                                     be written to disk
disk      of one virtual host        its journal has too little room, or cannot be written
operator  of one or of every one     an operator set it, until it is cleared or the broker ends
cluster   of one virtual host        it is frozen, its database has accepted no write for a while,
                                     too much waits to be replicated, or the database lacks
                                     confirmed entries
cluster   of every virtual host      the database is larger than its limit
========  =========================  ==========================================================

Clients with the capability get ``connection.blocked``, with the reasons joined by `` & ``. A stall
of the database shorter than ``STALL_SHORT_S``, such as a short failover, sends none: confirms are
late, and the publishers' input is not read meanwhile.
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
    vhost: str  # The name of the virtual host, or EVERYWHERE.
    reason: str  # The reason in connection.blocked.


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
        """Begin without alarms; :meth:`check` finds them.

        Args:
            reactor: the loop and its transports, which ask this object why they are blocked.
            transports: the live set of the transports of all connections.
            stores: the live stores of the virtual hosts, by name.
            events: the broker's events.
            clock: returns seconds of a monotonic clock.
        """
        self.reactor = reactor
        self.transports = transports
        self.stores = stores
        self.events = events
        self.counters: Counters = reactor.counters
        self.by_operator: dict[str, str] = {}  # The reasons of operators' alarms, by virtual host.
        self.active: dict[Alarm, int] = {}  # The start of each alarm, in Unix milliseconds.
        # The broker sets the following attributes in a cluster.
        self.frozen: Collection[VirtualHost] = ()  # The frozen virtual hosts.
        self.lost: Collection[str] = ()  # Virtual hosts of which the database lost entries.
        self.lag_max = 0  # Bytes of a virtual host that may wait to be replicated; 0: no limit.
        self.database_is_full: Callable[[], bool] = lambda: False
        self._clock = clock
        self._lagging: dict[str, float] = {}  # The start of each lag, by virtual host.
        # The synced positions of stores with unsynced records, and when they reached them.
        self._waiting: dict[str, tuple[int, float]] = {}
        self._stalled: set[str] = set()  # Virtual hosts whose database accepts no writes.
        self._is_memory_low = False
        self._is_database_full = False
        reactor.alarms = self

    def reason(self, vhost: VirtualHost | None) -> str:
        """Return why publishers of a virtual host are blocked; empty if they are not."""
        name = EVERYWHERE if vhost is None else vhost.name
        if not self._is_memory_low and self.counters.is_memory_short():
            self._is_memory_low = True
            self.reactor.loop.call_soon(self.check)  # The check blocks all other publishers.
        reasons = ["low on memory"] if self._is_memory_low else []
        store = self.stores.get(name)
        if store is not None and store.full:
            reasons.append("low on disk")
        if self._is_database_full:
            reasons.append(FULL)
        if name in self._stalled:
            reasons.append(STALLED)
        elif name in self._lagging:
            reasons.append(LAGGING)
        reasons += [self.by_operator[key] for key in {EVERYWHERE, name} if key in self.by_operator]
        return " & ".join(reasons)

    def is_short_stall(self, vhost: VirtualHost | None) -> bool:
        """Return True if only a stall blocks publishers that is too short to tell clients."""
        name = EVERYWHERE if vhost is None else vhost.name
        since_s = self._lagging.get(name)
        is_short = since_s is not None and self._clock() - since_s < STALL_SHORT_S
        return is_short and self.reason(vhost) == LAGGING

    def check(self) -> None:
        """Find the present alarms, and block or unblock publishers accordingly."""
        self._check_memory()
        alarms = self._find_alarms()
        reactor = self.reactor
        reactor.alarmed = bool(alarms)
        if alarms != self.active.keys():
            self._announce(alarms)
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

    def _check_memory(self) -> None:
        """Compare the used memory with its limits; an alarm ends at lower ones than it began."""
        counters, is_low = self.counters, self._is_memory_low
        backlog_max = BACKLOG_MAX // 2 if is_low else BACKLOG_MAX
        is_low = counters.is_memory_short() or (
            is_low and counters.memory_used > counters.memory_max
        )
        for store in self.stores.values():  # Records that wait for the disk take memory, too.
            is_low |= store.appended > store.synced + backlog_max
        self._is_memory_low = is_low

    def _find_alarms(self) -> set[Alarm]:
        """Return the present alarms."""
        alarms = {Alarm(MEMORY, EVERYWHERE, "low on memory")} if self._is_memory_low else set()
        alarms |= {Alarm(DISK, name, "low on disk") for name, s in self.stores.items() if s.full}
        for name in [name for name in self.by_operator if name and name not in self.stores]:
            del self.by_operator[name]  # The virtual host was deleted.
        alarms |= {Alarm(OPERATOR, name, reason) for name, reason in self.by_operator.items()}
        alarms |= {Alarm(CLUSTER, vhost.name, FROZEN) for vhost in self.frozen}
        alarms |= {Alarm(CLUSTER, name, LOST) for name in self.lost}
        self._is_database_full = self.database_is_full()
        if self._is_database_full:
            alarms.add(Alarm(CLUSTER, EVERYWHERE, FULL))
        if self.lag_max:
            self._check_ledgers()
        alarms |= {Alarm(CLUSTER, name, STALLED) for name in self._stalled}
        alarms |= {Alarm(CLUSTER, name, LAGGING) for name in self._lagging.keys() - self._stalled}
        return alarms

    def _check_ledgers(self) -> None:
        """Find the virtual hosts whose stores wait for the database of the cluster."""
        now_s = self._clock()
        frozen = {vhost.name for vhost in self.frozen}  # These have an alarm of their own.
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
        """Return True if more than ``lag_max`` waits to be replicated.

        An earlier lag lasts until no more than half of that waits.
        """
        limit = self.lag_max // 2 if name in self._lagging else self.lag_max
        return self.lag_max > 0 and store.appended > store.synced + limit

    def read_once(self) -> None:
        """Read once from the next blocked connection with unacked messages, in turn."""
        blocked = self.reactor.blocked
        for transport in list(blocked):
            if transport.waits and transport.connection.has_unacked():
                blocked[transport] = blocked.pop(transport)
                transport.read_once()
                return

    def set_alarm(self, vhost: str, reason: str) -> None:
        """Set an operator's alarm: block the publishers of a virtual host, or EVERYWHERE."""
        self.by_operator[vhost] = reason
        self.check()

    def clear_alarm(self, vhost: str) -> bool:
        """Clear an operator's alarm; return True if there was one."""
        was_set = self.by_operator.pop(vhost, None) is not None
        self.check()
        return was_set

    def _announce(self, alarms: set[Alarm]) -> None:
        """Make these alarms the active ones; log the changes, and report them as events."""
        previous, now_ms = set(self.active), self.counters.now_ms
        self.active = {alarm: self.active.get(alarm, now_ms) for alarm in sorted(alarms)}
        for alarm in sorted(alarms - previous):
            where = f" of vhost {alarm.vhost!r}" if alarm.vhost else ""
            log.warning("publishers%s are blocked: %s", where, alarm.reason)
        for alarm in sorted(previous - alarms):
            where = f" of vhost {alarm.vhost!r}" if alarm.vhost else ""
            log.warning("publishers%s are no longer blocked: %s", where, alarm.reason)
        if not self.events.has_listeners:
            return
        for source in (MEMORY, DISK, OPERATOR, CLUSTER):
            was_set = any(alarm.source == source for alarm in previous)
            is_set = any(alarm.source == source for alarm in alarms)
            if was_set != is_set:
                self.events.emit("alarm.set" if is_set else "alarm.cleared", source=source)
