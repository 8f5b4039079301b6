# SPDX-License-Identifier: Apache-2.0
"""Applying changed rules to the existing queues and exchanges of a virtual host, slice by slice.

New queues and exchanges follow the new rules at once. There may be very many existing ones, so each
step handles ``SLICE`` of them at most, for ``SLICE_S``, and other work goes on in between.
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

SLICE = 64  # Exchanges and queues of one step,
SLICE_S = 0.002  # or as many as this time allows: patterns of policies take their time.


class RulesChange:
    """A change of rules under way."""

    def __init__(self, vhost: QueueRegistry, before: Rules | None) -> None:
        """``before`` are the former rules of all queues; None if a change was under way."""
        self.vhost = vhost
        self.before = before
        self._left: Iterator[Exchange | Queue] = chain(
            list(vhost.exchanges.values()), list(vhost.queues.values())
        )

    def step(self) -> bool:
        """Apply the rules to the next queues and exchanges; return True if there may be more."""
        vhost = self.vhost
        clock = vhost.counters.clock
        until_s = clock() + SLICE_S
        count, is_late = 0, False
        for one in islice(self._left, SLICE):
            count += 1
            if isinstance(one, Queue):
                if vhost.queues.get(one.name) is one and not one.deleted:
                    reconfigure(vhost, one, self.before)
            elif vhost.exchanges.get(one.name) is one:
                configure_exchange(vhost, one)
            is_late = clock() > until_s
            if is_late:
                break
        vhost.counters.generation += 1  # Cached routes may lead elsewhere.
        return is_late or count == SLICE
