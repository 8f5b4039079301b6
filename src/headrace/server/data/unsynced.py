# SPDX-License-Identifier: Apache-2.0
"""Changes of definitions that wait for the disk. If the disk fails, they are refused."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headrace.gateway.connection.context import Context
    from headrace.model.ports import Store

FAILING_TICKS = 4  # Ticks of a failing store after which changes are refused.


class SyncWaiter:
    """An entry in the queue of pending confirms, which waits until a change is durable."""

    def __init__(self) -> None:
        self.synced = asyncio.Event()

    def on_released(self, token: int) -> None:
        """End the wait, as the change is durable; called by the queue of pending confirms."""
        self.synced.set()


class UnsyncedChanges:
    """Changes of definitions that are not durable yet, in all stores of a broker."""

    def __init__(self, context: Context, stores: Mapping[str, Store], *, tick_s: float) -> None:
        """``stores`` are the live stores by virtual host; ``tick_s`` is the interval of ticks."""
        self._context = context
        self._stores = stores
        self._tick_s = tick_s
        self._failing: dict[str, int] = {}  # The number of ticks for which each store has failed.

    def tick(self) -> None:
        """Refuse clients' changes in stores that have failed for ``FAILING_TICKS`` ticks."""
        for name, store in self._stores.items():
            if not store.is_failing():
                self._failing.pop(name, None)
                continue
            ticks = self._failing.get(name, 0) + 1
            self._failing[name] = ticks
            if ticks >= FAILING_TICKS:
                for connection in list(self._context.connections.values()):
                    connection.fail_changes(store)

    async def wait(self) -> bool:
        """Wait until all changes are durable; return False if a store fails meanwhile."""
        for name, store in list(self._stores.items()):
            if store.defined_position > store.synced and not await self.wait_for(name):
                return False
        return True

    async def wait_for(self, name: str) -> bool:
        """Wait until all records of a virtual host are durable; return False if its store fails."""
        waiter = SyncWaiter()
        self._context.pending_confirms(name).join(waiter, 0)
        while not waiter.synced.is_set():
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(waiter.synced.wait(), self._tick_s)
            if waiter.synced.is_set():
                break
            if self._failing.get(name, 0) >= FAILING_TICKS or name not in self._stores:
                return False
        return True
