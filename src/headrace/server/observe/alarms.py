# SPDX-License-Identifier: Apache-2.0
"""Alarms: when publishers are blocked, and which.

Only publishing is blocked. Consumers are served, and connections with unacked messages are read,
because acks make room (:meth:`headrace.server.net.transport.Transport.bar`). An alarm blocks as
little as it can:

========  =========================  ==========================================================
source    blocks publishers          because
========  =========================  ==========================================================
memory    of every virtual host      queued messages take too much memory, or too much waits to
                                     be written to disk
disk      of one virtual host        its journal has too little room, or cannot be written
operator  of one or of every one     an operator wants it, until it is cleared or the broker ends
========  =========================  ==========================================================

Clients that can hear it are told by ``connection.blocked``, with the reasons joined by `` & ``.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from headrace.model.counters import Counters
    from headrace.model.events import Events
    from headrace.model.ports import Store
    from headrace.model.vhost.virtual_host import VirtualHost
    from headrace.server.net.transport import Reactor, Transport

log = logging.getLogger(__name__)

ALARM_S = 0.1  # How often memory and disk are checked.
BACKLOG_MAX = 256 << 20  # Octets that may wait to be written to one journal.
MEMORY, DISK, OPERATOR = "memory", "disk", "operator"
EVERYWHERE = ""  # In place of the name of a virtual host.


class Alarm(NamedTuple):
    """One reason to block publishers."""

    source: str  # MEMORY, DISK or OPERATOR.
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
    ) -> None:
        """``transports`` and ``stores``, by virtual host, change while the broker runs."""
        self.reactor = reactor
        self.transports = transports
        self.stores = stores
        self.events = events
        self.counters: Counters = reactor.counters
        self.by_operator: dict[str, str] = {}  # The reasons that clients get, by virtual host.
        self.active: dict[Alarm, int] = {}  # Since when, in milliseconds of the wall clock.
        self._memory = False
        reactor.alarms = self

    def reason(self, vhost: VirtualHost | None) -> str:
        """Return why publishers of a virtual host are blocked; empty if they are not."""
        name = EVERYWHERE if vhost is None else vhost.name
        if not self._memory and self.counters.crowded():
            self._memory = True
            self.reactor.loop.call_soon(self.look)  # It blocks all publishers.
        reasons = ["low on memory"] if self._memory else []
        store = self.stores.get(name)
        if store is not None and store.full:
            reasons.append("low on disk")
        reasons += [self.by_operator[at] for at in {EVERYWHERE, name} if at in self.by_operator]
        return " & ".join(reasons)

    def look(self) -> None:
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
        reactor = self.reactor
        reactor.alarmed = bool(now)
        if now != self.active.keys():
            self._announce(now)
            for transport in list(self.transports):
                if transport.connection.publishes and not transport.connection.blocked:
                    transport.bar()
        if reactor.blocked:
            for transport in list(reactor.blocked):
                if not self.reason(transport.connection.vhost):
                    transport.unblock()
            reactor.turn()

    def sip(self) -> None:
        """Read once from a blocked connection with unacked messages, in round-robin order."""
        blocked = self.reactor.blocked
        for transport in list(blocked):
            if transport.barred and transport.connection.owes():
                blocked[transport] = blocked.pop(transport)
                transport.sip()
                return

    def hold(self, vhost: str, reason: str) -> None:
        """Block the publishers of a virtual host, or EVERYWHERE, for an operator."""
        self.by_operator[vhost] = reason
        self.look()

    def release(self, vhost: str) -> bool:
        """Clear an operator's alarm; return True if there was one."""
        was = self.by_operator.pop(vhost, None) is not None
        self.look()
        return was

    def _announce(self, now: set[Alarm]) -> None:
        """Log the changes, and report them as events."""
        before = set(self.active)
        self.active = {alarm: self.active.get(alarm, self.counters.now_ms) for alarm in sorted(now)}
        for alarm in sorted(now - before):
            where = f" of vhost '{alarm.vhost}'" if alarm.vhost else ""
            log.warning("publishers%s are blocked: %s", where, alarm.reason)
        for alarm in sorted(before - now):
            where = f" of vhost '{alarm.vhost}'" if alarm.vhost else ""
            log.warning("publishers%s are no longer blocked: %s", where, alarm.reason)
        if not self.events.has_listeners:
            return
        for source in (MEMORY, DISK, OPERATOR):
            was = any(alarm.source == source for alarm in before)
            is_now = any(alarm.source == source for alarm in now)
            if was != is_now:
                self.events.emit("alarm.set" if is_now else "alarm.cleared", source=source)
