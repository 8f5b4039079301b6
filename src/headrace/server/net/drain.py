# SPDX-License-Identifier: Apache-2.0
"""Draining for maintenance: nobody new comes in, and who is here is asked to go.

The ports are closed, so a load balancer that tries them sends clients elsewhere. Clients have some
time to go by themselves. Then no more is read from those who are left, what they published is
confirmed, and they are told to go with code 320; nothing that was taken is left unconfirmed.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from headrace.server.net.listener import TICK_S

if TYPE_CHECKING:
    from headrace.server.broker import Broker
    from headrace.server.net.transport import Transport

log = logging.getLogger(__name__)

LOOK_S = 0.02  # How often it is looked whether something has come to pass.
CONFIRM_S = 10.0  # How long the disk may take to let the last confirms out.
CLOSE_S = 5.0  # How long clients may take to answer a close.
CLOSES_AT_ONCE = 100  # Clients told to go before others have their turn.


class Drain:
    """A broker's way out of service, and back."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.active = False

    def begin(self) -> None:
        """Close the ports; who is connected stays for now."""
        if not self.active:
            self.active = True
            log.warning("draining: the ports are closed")
            if self.broker.events.heard:
                self.broker.events.tell("maintenance.draining")
            for listener in self.broker.listeners:
                listener.close()

    def end(self) -> None:
        """Open the ports again.

        Raises:
            OSError: somebody else has one of them now.
        """
        if not self.active:
            return
        for listener in self.broker.listeners:
            listener.reopen()
        self.active = False
        log.warning("draining is over: the ports are open")
        if self.broker.events.heard:
            self.broker.events.tell("maintenance.revived")

    def left(self) -> list[Transport]:
        """Return the connections that are not closed."""
        return [transport for transport in self.broker.transports if not transport.closed]

    async def wait_for_none(self, most_s: float) -> bool:
        """Wait until all connections are closed; false if some are not in that time."""
        loop = asyncio.get_running_loop()
        until = loop.time() + most_s
        while self.left():
            if not self.active or loop.time() >= until:
                return False
            await asyncio.sleep(min(LOOK_S, TICK_S))
        return True

    async def send_away(self, reason: str) -> int:
        """Confirm what was taken, then have all clients go; return how many were told."""
        broker = self.broker
        assert broker.reactor is not None
        transports = self.left()
        for transport in transports:
            if not transport.closing:
                transport.hold()
        broker.reactor.turn()
        await self.wait_for_disk()
        told = 0
        for transport in transports:
            if transport.closing:
                continue
            if transport.handshake_ticks:
                transport.lost()
            else:
                transport.connection.force_close(reason)
            told += 1
            if told % CLOSES_AT_ONCE == 0:
                broker.reactor.turn()
                await asyncio.sleep(0)
        broker.reactor.turn()
        return told

    async def wait_for_disk(self) -> bool:
        """Wait until all that was appended by now is durable; false when the disk fails."""
        assert self.broker.storage is not None
        assert self.broker.reactor is not None
        marks = [(store, store.appended) for store in self.broker.storage.stores.values()]
        loop = asyncio.get_running_loop()
        until = loop.time() + CONFIRM_S
        while any(store.durable and store.synced < mark for store, mark in marks):
            if loop.time() >= until:
                return False
            self.broker.reactor.turn()
            await asyncio.sleep(LOOK_S / 4)
        return True
