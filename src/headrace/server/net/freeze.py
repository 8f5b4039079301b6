# SPDX-License-Identifier: Apache-2.0
"""Frozen virtual hosts: their connections stay open, without reads and writes.

A broker whose lease in a cluster has ended freezes the virtual hosts that it serves, because
another broker may serve them already. If none does, the broker thaws them later. Meanwhile output
waits in the buffers, which stay small, since nothing is read. Heartbeats continue
(:meth:`headrace.server.net.transport.Transport.freeze`).

Virtual hosts share one scheduler, so the timers of all wait while one is frozen. They wait for
``CATCH_UP_S`` longer, so that an ack or a renewed lease that a client sent meanwhile is handled
before its timeout.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection

    from headrace.model.vhost.virtual_host import VirtualHost
    from headrace.server.net.transport import Reactor, Transport

CATCH_UP_S = 1.0  # The time that timers wait after a thaw.


class Freezer:
    """Freezes and thaws virtual hosts with their connections. Methods are called on the loop."""

    def __init__(self, reactor: Reactor, transports: Collection[Transport]) -> None:
        """``transports`` is the live set of the transports of all connections."""
        self._reactor = reactor
        self._transports = transports
        self._timers_s = 0.0  # The time of the loop's clock at which timers may run.
        self.vhosts: set[VirtualHost] = set()

    def freeze(self, vhost: VirtualHost) -> None:
        """Freeze a virtual host; clients that open it from now on wait."""
        self.vhosts.add(vhost)
        vhost.is_frozen = True
        for transport in self._find_transports(vhost):
            transport.freeze()

    def thaw(self, vhost: VirtualHost) -> None:
        """Resume the connections of a virtual host."""
        self._forget(vhost)
        for transport in self._find_transports(vhost):
            transport.thaw()
        self._reactor.turn()

    def drop(self, vhost: VirtualHost) -> None:
        """End the connections of a frozen virtual host that another broker serves now.

        Their pending output is not sent: the other broker may have delivered it.
        """
        if vhost not in self.vhosts:
            return
        self._forget(vhost)
        for transport in self._find_transports(vhost):
            transport.abort()

    def defers_timers(self) -> bool:
        """Return True while the timers of virtual hosts must wait."""
        return bool(self.vhosts) or self._reactor.loop.time() < self._timers_s

    def _forget(self, vhost: VirtualHost) -> None:
        self.vhosts.discard(vhost)
        vhost.is_frozen = False
        self._timers_s = self._reactor.loop.time() + CATCH_UP_S

    def _find_transports(self, vhost: VirtualHost) -> list[Transport]:
        return [transport for transport in self._transports if transport.connection.vhost is vhost]
