# SPDX-License-Identifier: Apache-2.0
"""Publishes of programs without asyncio: their way to the loop, and the way of their outcomes back.

A publishing thread encodes the message and appends it to a list. The loop's thread wakes once for
all waiting messages and sends them; it reports their outcomes in groups as well. `Backlog` bounds
the unconfirmed publishes; `OutgoingQueue` keeps the order of publishes and settlements that cannot
be sent at once.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import deque
from functools import partial
from typing import TYPE_CHECKING

from headrace.client.blocking.wakeup import Wakeup
from headrace.client.channel.outgoing import Publication
from headrace.client.errors import ClientError

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace.client.channel.channel import Channel
    from headrace.client.channel.delivery import Settlement

log = logging.getLogger(__name__)

UNCONFIRMED_OCTETS_MAX = 16 << 20  # Bodies of unconfirmed publishes of one channel.
ROOM_AGAIN = 3 / 4  # Waiting threads continue when the backlog is below this share of a limit.


class Confirmation:
    """The outcome of a publish in flight."""

    __slots__ = ("_backlog", "_error", "_known", "_octets", "_timeout_s")

    def __init__(self, backlog: Backlog, octets: int, timeout_s: float | None) -> None:
        self._backlog = backlog
        self._octets = octets
        self._timeout_s = timeout_s
        self._known = False
        self._error: BaseException | None = None

    @property
    def is_known(self) -> bool:
        """True if the broker has answered."""
        return self._known

    def wait(self) -> None:
        """Wait for the broker's confirm; raise what `publish` would raise."""
        if not self._known:
            self._backlog.wait_for(self, self._timeout_s)
        if self._error is not None:
            raise self._error

    # --- For the loop's thread ----------------------------------------------------------------

    def done(self) -> bool:
        """Return True if the outcome is known."""
        return self._known

    def abandon(self) -> None:
        """The publish was not sent."""
        if not self._known:
            self.set_result(None)

    def set_result(self, result: None, /) -> None:
        """The broker has confirmed the message."""
        self._known = True
        self._backlog.count_out(self._octets)

    def set_exception(self, exception: BaseException, /) -> None:
        """The broker has not taken the message, or its confirm is lost."""
        self._error = exception
        self.set_result(None)


class Backlog:
    """The publishes of one channel without an outcome, bounded by number and bytes."""

    def __init__(self, unconfirmed_max: int, octets_max: int = UNCONFIRMED_OCTETS_MAX) -> None:
        self._max = unconfirmed_max
        self._octets_max = octets_max
        self._lock = threading.Lock()
        self._for_room: list[Wakeup] = []  # The threads that wait until the backlog has room.
        self._for_outcomes: list[Wakeup] = []  # The threads that wait for an outcome.
        self._count = self._octets = 0
        self._settled = self._settled_octets = 0  # Outcomes not yet reported.

    def add(self, octets: int, timeout_s: float | None) -> None:
        """Count a publish in; wait while the backlog has too many publishes or bytes."""
        if not self._try_count_in(octets):
            counted_in = partial(self._try_count_in, octets)
            self._wait(self._for_room, counted_in, timeout_s)

    def wait_for(self, confirmation: Confirmation, timeout_s: float | None) -> None:
        """Wait until an outcome is known."""
        self._wait(self._for_outcomes, confirmation.done, timeout_s)

    def count_out(self, octets: int) -> None:
        """Count a publish out; threads are notified once in the next turn of the loop."""
        if not self._settled:
            asyncio.get_running_loop().call_soon(self._tell)
        self._settled += 1
        self._settled_octets += octets

    def _tell(self) -> None:
        with self._lock:
            self._count -= self._settled
            self._octets -= self._settled_octets
            self._settled = self._settled_octets = 0
            is_low = self._is_low()
        _wake(self._for_outcomes)
        if is_low:
            _wake(self._for_room)

    def _is_low(self) -> bool:
        return (
            self._count <= self._max * ROOM_AGAIN and self._octets <= self._octets_max * ROOM_AGAIN
        )

    def _try_count_in(self, octets: int) -> bool:
        with self._lock:
            if self._count and (
                self._count >= self._max or self._octets + octets > self._octets_max
            ):
                return False
            self._count += 1
            self._octets += octets
            return True

    def _wait(
        self, waiting: list[Wakeup], met: Callable[[], bool], timeout_s: float | None
    ) -> None:
        wakeup = Wakeup()
        waiting.append(wakeup)
        try:
            if not wakeup.wait(met, timeout_s):
                raise TimeoutError(f"no answer within {timeout_s} s")
        finally:
            waiting.remove(wakeup)


def _wake(waiting: list[Wakeup]) -> None:
    for wakeup in waiting.copy():
        wakeup.wake()


class OutgoingQueue:
    """The publishes and settlements of one channel, in the program's order.

    Used on the loop's thread alone. The backlog and the prefetch bound its length.
    """

    def __init__(self, source: Channel) -> None:
        self._source = source
        self._held: deque[Publication | Settlement] = deque()
        self._sending: asyncio.Task[None] | None = None

    def take(self, outgoing: Publication | Settlement) -> None:
        """Send an item now, or queue it after earlier ones."""
        if self._held or not self._send_now(outgoing):
            self._held.append(outgoing)
            if self._sending is None:
                self._sending = asyncio.get_running_loop().create_task(self._send_held())

    async def drain(self) -> None:
        """Wait until everything taken so far is sent."""
        if self._sending is not None:
            await asyncio.shield(self._sending)

    def _send_now(self, outgoing: Publication | Settlement) -> bool:
        if isinstance(outgoing, Publication):
            try:
                return self._source.send_now(outgoing)
            except Exception as error:  # noqa: BLE001 - The program hears of it.
                outgoing.settle(error)
                return True
        delivery, ack, multiple, requeue = outgoing
        try:
            self._source.settle_now(delivery, ack=ack, multiple=multiple, requeue=requeue)
        except ClientError as error:
            log.warning("delivery %d was not settled: %s", delivery.delivery_tag, error)
        return True

    async def _send_held(self) -> None:
        try:
            while self._held:
                outgoing = self._held[0]
                if isinstance(outgoing, Publication):
                    try:
                        await self._source.send_publication(outgoing)
                    except Exception as error:  # noqa: BLE001 - The program hears of it.
                        outgoing.settle(error)
                else:
                    self._send_now(outgoing)
                self._held.popleft()
        finally:
            self._sending = None
