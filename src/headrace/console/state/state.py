# SPDX-License-Identifier: Apache-2.0
"""All that the console keeps of the broker."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from typing import TYPE_CHECKING

from headrace.console.broker.errors import BrokerGone, OperationRefused
from headrace.console.state.feed import Feed
from headrace.console.state.rings import SAMPLE_S, Ring

if TYPE_CHECKING:
    from headrace.console.broker.link import BrokerLink
    from headrace.untyped import JsonObject

log = logging.getLogger(__name__)

COST = 50.0  # Reading lists takes one part in so many of the broker's time.
TOTALS = ("ready", "unacked", "published", "delivered", "acknowledged")


class State:
    """The shared lists, and the samples of their sums."""

    def __init__(self, link: BrokerLink) -> None:
        self._link = link
        self.queues = Feed(link, "list queues", ("vhost", "name"), TOTALS)
        self.connections = Feed(link, "list connections", ("id",), ("bytes_received", "bytes_sent"))
        self.channels = Feed(link, "list channels", ("connection", "number", "name"))
        self.vhosts = Feed(link, "list vhosts", ("name",), size=self._queue_count)
        self.sums: dict[str, Ring] = {}  # Of the queues of a virtual host,
        self._added_ms = 0  # as of this reading.
        self._status: JsonObject = {}
        self._status_s = 0.0

    def _queue_count(self) -> int:
        return len(self.queues.objects)

    async def status(self) -> JsonObject:
        """Return the broker's status, a second old at most.

        Raises:
            BrokerGone: the broker does not answer.
        """
        now_s = time.monotonic()
        if not self._status or now_s - self._status_s > 1.0:
            self._status = await self._link.ask("status")
            self._status_s = now_s
        return self._status

    async def keep(self) -> None:
        """Read the lists every few seconds, so that there are samples; runs until cancelled."""
        while True:
            began_s = time.monotonic()
            with contextlib.suppress(BrokerGone, OperationRefused):
                await self.queues.read()
                await self.connections.read()
                self.add_up()
            took_s = time.monotonic() - began_s
            await asyncio.sleep(max(SAMPLE_S - took_s, COST * took_s))

    def sum_of(self, vhosts: list[str]) -> Ring:
        """Return the samples of the queues of some virtual hosts together."""
        rings = [self.sums[name] for name in vhosts if name in self.sums]
        if len(rings) == 1:
            return rings[0]
        total = Ring()
        for at_ms in sorted({at_ms for ring in rings for at_ms in ring.moments()}):
            values = zip(*(ring.values(at_ms) for ring in rings), strict=True)
            total.add(at_ms, tuple(map(sum, values)))
        if not rings:
            total.add(self.queues.now_ms, (0,) * len(TOTALS))
        return total

    def forget(self) -> None:
        """Have the next request read the lists: something was changed."""
        for feed in (self.queues, self.connections, self.channels, self.vhosts):
            feed.forget()

    def add_up(self) -> None:
        """Add the sums of each virtual host to their samples."""
        if self._added_ms == self.queues.now_ms:
            return
        self._added_ms = self.queues.now_ms
        sums: dict[str, list[int]] = {}
        for one in self.queues.objects.values():
            total = sums.setdefault(one.row["vhost"], [0] * len(TOTALS))
            for place, field in enumerate(TOTALS):
                total[place] += one.row[field]
        for vhost, values in sums.items():
            self.sums.setdefault(vhost, Ring()).add(self.queues.now_ms, tuple(values))
