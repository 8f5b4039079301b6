# SPDX-License-Identifier: Apache-2.0
"""Removes the ledgers of virtual hosts that were deleted.

The catalog of the cluster records the deletion of a virtual host, so any broker can remove its
ledger later. A ledger may have many segments: a thread with its own session removes them, so that
heartbeats go on.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from typing import TYPE_CHECKING

from headrace.server.cluster.assignment import ledger_name
from headrace.server.cluster.heartbeat import BEAT_S, boot_s
from headrace.store.catalog.replica import read_vhost_numbers
from headrace.store.catalog_port import CatalogChangedError
from headrace.store.errors import StoreError
from headrace.store.ledger.postgres_catalog import LedgerRemoval

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Coroutine
    from concurrent.futures import Executor

    from headrace.server.cluster.copies import Copies
    from headrace.store.ledger.postgres_cluster import Cluster

log = logging.getLogger(__name__)

RETRY_S = 5.0  # The wait after ledgers could not be removed.


def read_ledger_names(catalog: bytes) -> set[str]:
    """Return the names of the ledgers that a value of the catalog has.

    Raises:
        StoreError: the value is damaged.
    """
    return {ledger_name(vhost, number) for vhost, number in read_vhost_numbers(catalog).items()}


class Removals:
    """The removals that this broker runs, one at a time.

    Methods are called on the loop, and do not block.
    """

    def __init__(self, cluster: Cluster, copies: Copies) -> None:
        self._cluster = cluster
        self._copies = copies
        self._stopped = threading.Event()
        self._runs = False
        self._retry_at_s = 0.0  # The earliest time of the next removal.

    def are_due(self, now_s: float) -> bool:
        """Return True if a removal may begin."""
        return not self._runs and now_s >= self._retry_at_s

    def remove(
        self, ledgers: list[str], loop: asyncio.AbstractEventLoop, pool: Executor
    ) -> Coroutine[None, None, None]:
        """Return a coroutine that removes the ``ledgers`` that are missing in the catalog.

        It may end early; the next heartbeat continues.
        """
        self._runs = True
        return self._remove(ledgers, loop, pool)

    def stop(self) -> None:
        """End the running removal after its current step."""
        self._stopped.set()

    async def _remove(
        self, ledgers: list[str], loop: asyncio.AbstractEventLoop, pool: Executor
    ) -> None:
        try:
            removed = await loop.run_in_executor(pool, self._remove_now, ledgers)
        except CatalogChangedError:  # The next heartbeat starts again with the new catalog.
            return
        except (OSError, StoreError) as error:
            self._retry_at_s = boot_s() + RETRY_S
            log.warning("ledgers of deleted vhosts are not removed, tried again: %s", error)
            return
        finally:
            self._runs = False
        # A large ledger takes several removals, and this broker's catalog may be outdated.
        if not removed:
            self._retry_at_s = boot_s() + BEAT_S
        for name in removed:
            log.info("ledger %s of a deleted vhost is removed", name)

    def _remove_now(self, ledgers: list[str]) -> list[str]:
        """Remove ledgers step by step; return those removed completely. Blocks."""
        with contextlib.closing(LedgerRemoval(self._cluster, read_ledger_names)) as removal:
            removed = removal.remove(ledgers, self._stopped)
        for name in removed:
            self._copies.forget(name)
        return removed
