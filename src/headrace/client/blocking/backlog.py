# SPDX-License-Identifier: Apache-2.0
"""The unconfirmed publishes of a blocking channel, and the queue of publishes not yet sent.

A publishing thread encodes the message and appends it to a list (`loop_thread.Handover`). The
loop's thread wakes once for all messages of the list and sends them. It notifies the waiting
threads once for all outcomes of one turn of the loop. `Backlog` bounds the unconfirmed publishes.
`ChannelOutbox` keeps the order of publishes and settlements that cannot be sent at once.
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

UNCONFIRMED_BYTES_MAX = 16 << 20  # The maximum bytes of bodies unconfirmed on one channel.
RESUME_FRACTION = 3 / 4  # Blocked publishers resume when the backlog is below this part of a limit.


class Confirmation:
    """The outcome of one publish, which any thread can wait for.

    `ChannelOutbox` sets it on the loop's thread, as it would set a future.
    """

    __slots__ = ("_backlog", "_error", "_is_known", "_size", "_timeout_s")

    def __init__(self, backlog: Backlog, size: int, timeout_s: float | None) -> None:
        self._backlog = backlog
        self._size = size
        self._timeout_s = timeout_s
        self._is_known = False
        self._error: BaseException | None = None

    @property
    def is_known(self) -> bool:
        """True if the publish has an outcome: confirmed, refused, returned or lost."""
        return self._is_known

    def wait(self) -> None:
        """Wait for the broker's confirm; raises the errors of `publish`, and TimeoutError."""
        if not self._is_known:
            self._backlog.wait_for(self, self._timeout_s)
        if self._error is not None:
            raise self._error

    # --- For the loop's thread ----------------------------------------------------------------

    def done(self) -> bool:
        """Return True if the publish has an outcome."""
        return self._is_known

    def abandon(self) -> None:
        """Remove a publish that was not sent from the backlog."""
        if not self._is_known:
            self.set_result(None)

    def set_result(self, result: None, /) -> None:
        """Record that the broker has confirmed the message."""
        self._is_known = True
        self._backlog.remove(self._size)

    def set_exception(self, exception: BaseException, /) -> None:
        """Record that the broker refused or returned the message, or that its confirm is lost."""
        self._error = exception
        self.set_result(None)


class Backlog:
    """The number and bytes of one channel's publishes without an outcome, with a limit for each."""

    def __init__(self, unconfirmed_max: int, bytes_max: int = UNCONFIRMED_BYTES_MAX) -> None:
        self._count_max = unconfirmed_max
        self._bytes_max = bytes_max
        self._lock = threading.Lock()
        self._capacity_waiters: list[Wakeup] = []  # Threads blocked in `add`.
        self._outcome_waiters: list[Wakeup] = []  # Threads blocked in `wait_for`.
        self._count = self._bytes = 0
        # Publishes settled in this turn of the loop, still part of the count and bytes.
        self._settled_count = self._settled_bytes = 0

    def add(self, size: int, timeout_s: float | None) -> None:
        """Add a publish with a body of `size` bytes; wait while the backlog is full.

        A body larger than the limit is added when the backlog is empty. Raises TimeoutError.
        """
        if not self._try_add(size):
            try_add = partial(self._try_add, size)
            self._wait(self._capacity_waiters, try_add, timeout_s)

    def wait_for(self, confirmation: Confirmation, timeout_s: float | None) -> None:
        """Wait until a publish has its outcome; raises TimeoutError."""
        self._wait(self._outcome_waiters, confirmation.done, timeout_s)

    def remove(self, size: int) -> None:
        """Remove a settled publish; threads are notified once in the next turn of the loop."""
        if not self._settled_count:
            asyncio.get_running_loop().call_soon(self._notify_waiters)
        self._settled_count += 1
        self._settled_bytes += size

    def _notify_waiters(self) -> None:
        with self._lock:
            self._count -= self._settled_count
            self._bytes -= self._settled_bytes
            self._settled_count = self._settled_bytes = 0
            has_capacity = self._has_capacity()
        _wake_all(self._outcome_waiters)
        if has_capacity:
            _wake_all(self._capacity_waiters)

    def _has_capacity(self) -> bool:
        return (
            self._count <= self._count_max * RESUME_FRACTION
            and self._bytes <= self._bytes_max * RESUME_FRACTION
        )

    def _try_add(self, size: int) -> bool:
        with self._lock:
            if self._count and (
                self._count >= self._count_max or self._bytes + size > self._bytes_max
            ):
                return False
            self._count += 1
            self._bytes += size
            return True

    def _wait(
        self, waiters: list[Wakeup], condition: Callable[[], bool], timeout_s: float | None
    ) -> None:
        wakeup = Wakeup()
        waiters.append(wakeup)
        try:
            if not wakeup.wait(condition, timeout_s):
                raise TimeoutError(f"no answer within {timeout_s} s")
        finally:
            waiters.remove(wakeup)


def _wake_all(waiters: list[Wakeup]) -> None:
    for wakeup in waiters.copy():
        wakeup.wake()


class ChannelOutbox:
    """Sends the publishes and settlements of one channel in the program's order.

    All calls are on the loop's thread. The backlog and the prefetch bound the pending items.
    """

    def __init__(self, source: Channel) -> None:
        self._source = source
        self._pending: deque[Publication | Settlement] = deque()
        self._sender: asyncio.Task[None] | None = None

    def submit(self, item: Publication | Settlement) -> None:
        """Send an item now, or queue it after earlier ones."""
        if self._pending or not self._send_now(item):
            self._pending.append(item)
            if self._sender is None:
                self._sender = asyncio.get_running_loop().create_task(self._send_pending())

    async def drain(self) -> None:
        """Wait until all items submitted so far are sent."""
        if self._sender is not None:
            await asyncio.shield(self._sender)

    def _send_now(self, item: Publication | Settlement) -> bool:
        if isinstance(item, Publication):
            try:
                return self._source.send_now(item)
            except Exception as error:  # noqa: BLE001 - The confirmation raises it.
                item.settle(error)
                return True
        delivery, ack, multiple, requeue = item
        try:
            self._source.settle_now(delivery, ack=ack, multiple=multiple, requeue=requeue)
        except ClientError as error:
            log.warning("delivery %d was not settled: %s", delivery.delivery_tag, error)
        return True

    async def _send_pending(self) -> None:
        try:
            while self._pending:
                item = self._pending[0]
                if isinstance(item, Publication):
                    try:
                        await self._source.send_publication(item)
                    except Exception as error:  # noqa: BLE001 - The confirmation raises it.
                        item.settle(error)
                else:
                    self._send_now(item)
                self._pending.popleft()
        finally:
            self._sender = None
