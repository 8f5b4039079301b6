# SPDX-License-Identifier: Apache-2.0
"""Other rules for a virtual host: they are applied to what is there a little at a time.

A new queue or exchange goes by the new rules at once. What is there already does so when its turn
has come, and others are served meanwhile, for there may be very many.
"""

from __future__ import annotations

from itertools import chain, islice
from typing import TYPE_CHECKING

from headrace.model.queue.queue import Queue
from headrace.model.vhost.effective_arguments import configure_exchange, reconfigure

if TYPE_CHECKING:
    from collections.abc import Iterator

    from headrace.model.exchange.exchange import Exchange
    from headrace.model.policy.rules import Rules
    from headrace.model.vhost.queue_registry import QueueRegistry

SLICE = 64  # Exchanges and queues in a row.


class RulesChange:
    """Takes the queues and exchanges of a virtual host from the rules of before to its own."""

    def __init__(self, vhost: QueueRegistry, before: Rules | None) -> None:
        """``before`` is what all of them go by; ``None`` where a change was under way."""
        self.vhost = vhost
        self.before = before
        self._left: Iterator[Exchange | Queue] = chain(
            list(vhost.exchanges.values()), list(vhost.queues.values())
        )

    def step(self) -> bool:
        """Apply the rules to some of what is there; tell whether there may be more."""
        vhost = self.vhost
        some = list(islice(self._left, SLICE))
        for one in some:
            if isinstance(one, Queue):
                if vhost.queues.get(one.name) is one and not one.deleted:
                    reconfigure(vhost, one, self.before)
            elif vhost.exchanges.get(one.name) is one:
                configure_exchange(vhost, one)
        vhost.counters.generation += 1  # Routes that are remembered may lead elsewhere now.
        return len(some) == SLICE
