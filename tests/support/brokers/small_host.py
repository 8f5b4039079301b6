# SPDX-License-Identifier: Apache-2.0
"""A host for tests that need queues and a store, but no exchanges."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.model.counters import Counters
from headrace.model.keyvalue import Facts
from headrace.model.message import copy_message
from headrace.model.ports import Files, Store
from headrace.model.queue.queue import Queue
from headrace.model.scheduler import Scheduler
from headrace.model.transaction.dtx import Branches
from headrace.model.vhost.publishing_ids import PublishingIds

if TYPE_CHECKING:
    from collections.abc import Iterable

    from headrace.model.contents import Contents
    from headrace.model.exchange.exchange import Exchange
    from headrace.model.message import Message


class SmallHost:
    """Implements the ports ``Host`` and ``TransactionHost`` of :mod:`headrace.model.host`."""

    def __init__(self, *queues: str, store: Store | None = None) -> None:
        self.name = "/"
        self.counters = Counters(now_ms=1_000_000)
        self.store = store if store is not None else Store()
        self.scheduler = Scheduler()
        self.facts = Facts(self.store)
        self.contents: Contents | None = None
        self.files = Files()
        self.exchanges: dict[str, Exchange] = {}
        self.queues = {q: Queue(q, store=self.store, counters=self.counters) for q in queues}
        self.publishing_ids = PublishingIds(self.facts, self.counters)
        self.branches = Branches(self)

    def durable_queues(self) -> dict[int, Queue]:
        return {queue.id: queue for queue in self.queues.values() if queue.durable}

    def deliver(
        self, message: Message, queues: Iterable[Queue], persistent: bool, *, promised: bool = False
    ) -> int:
        seq = self.counters.next_seq
        self.counters.next_seq += 1
        for queue in queues:
            twin = copy_message(message)
            twin.seq = seq
            queue.enqueue_in_place(twin, promised)
        return 0
