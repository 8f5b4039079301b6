# SPDX-License-Identifier: Apache-2.0
"""Draining for maintenance: the ports are closed, and the connected clients disconnected.

A load balancer that probes the closed ports sends clients to other brokers. Connected clients get a
grace period to disconnect. Then the broker stops reading from the remaining connections, confirms
their publishes, and closes them with code 320. No accepted message stays unconfirmed. The operation
``drain`` (:mod:`headrace.server.management.resources.maintenance`) has the order of these steps.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from headrace.server.net.listener import TICK_S

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from headrace.model.events import Events
    from headrace.model.ports import Store
    from headrace.server.net.ports import Ports
    from headrace.server.net.transport import Transport

log = logging.getLogger(__name__)

POLL_S = 0.02  # The interval between polls of connections and stores.
CONFIRM_S = 10.0  # The time that the disk has until the last confirms must be sent.
CLOSE_S = 5.0  # The time that clients have to answer a close.
CLOSES_PER_STEP = 100  # Connections that are closed before the loop gets a turn.


class Drain:
    """Takes a broker out of service, and back."""

    def __init__(
        self,
        ports: Ports,
        transports: Collection[Transport],
        stores: Mapping[str, Store],
        *,
        events: Events,
        turn: Callable[[], None],
    ) -> None:
        """Be ready to drain; :meth:`begin` starts it.

        Args:
            ports: the listeners of the broker.
            transports: the live set of the transports of all connections.
            stores: the live stores of the virtual hosts, by name.
            events: the broker's events.
            turn: sends pending output.
        """
        self._ports = ports
        self._transports = transports
        self._stores = stores
        self._events = events
        self._turn = turn
        self.active = False

    def begin(self) -> None:
        """Close the ports; connections stay open."""
        if not self.active:
            self.active = True
            log.warning("draining: the ports are closed")
            if self._events.has_listeners:
                self._events.emit("maintenance.draining")
            for listener in self._ports.listeners.values():
                listener.close()
            self._ports.update_addresses()

    def end(self) -> None:
        """Open the ports again.

        Raises:
            OSError: another process has taken one of the ports.
        """
        if not self.active:
            return
        try:
            for listener in self._ports.listeners.values():
                listener.reopen()
        finally:
            self._ports.update_addresses()
        self.active = False
        log.warning("draining is over: the ports are open")
        if self._events.has_listeners:
            self._events.emit("maintenance.revived")

    def open_transports(self) -> list[Transport]:
        """Return the connections that are not closed."""
        return [transport for transport in self._transports if not transport.closed]

    async def wait_for_none(self, timeout_s: float) -> bool:
        """Wait until all connections are closed; return False after ``timeout_s`` seconds."""
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + timeout_s
        while self.open_transports():
            if not self.active or loop.time() >= deadline_s:
                return False
            await asyncio.sleep(min(POLL_S, TICK_S))
        return True

    async def close_clients(self, reason: str) -> int:
        """Confirm published messages, then close all connections; return their number."""
        transports = self.open_transports()
        for transport in transports:
            if not transport.closing:
                transport.hold()
        self._turn()
        await self.wait_for_disk()
        closed = 0
        for transport in transports:
            if transport.closing:
                continue
            if transport.handshake_ticks:
                transport.abort()
            else:
                transport.connection.force_close(reason)
            closed += 1
            if closed % CLOSES_PER_STEP == 0:
                self._turn()
                await asyncio.sleep(0)
        self._turn()
        return closed

    async def wait_for_disk(self) -> bool:
        """Wait until all records appended so far are durable.

        Return False if they are not within ``CONFIRM_S``, as when the disk fails.
        """
        marks = [(store, store.appended) for store in self._stores.values()]
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + CONFIRM_S
        while any(store.durable and store.synced < mark for store, mark in marks):
            if loop.time() >= deadline_s:
                return False
            self._turn()
            await asyncio.sleep(POLL_S / 4)
        return True
