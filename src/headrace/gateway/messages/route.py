# SPDX-License-Identifier: Apache-2.0
"""The queues of one exchange and routing key, with the facts about them that a publish needs.

A route is cached until bindings or permissions change, so permissions are not checked for each
message. :mod:`headrace.gateway.v0_x.connection.routing` makes the routes of 0-8 to 0-9-1,
:mod:`headrace.gateway.v0_10.session.transfer` the routes of 0-10.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.model.arguments.values import stores_all
from headrace.model.tallies import ExchangeTally

if TYPE_CHECKING:
    from headrace.model.interceptor.interception import Interception
    from headrace.model.queue.queue import Queue

SERVICES = "amq.headrace."  # The prefix of the names of queues that the broker consumes.


class Route:
    """The queues that get the messages of one address."""

    def __init__(
        self,
        key: bytes,
        queues: tuple[Queue, ...],
        generation: int,
        interception: Interception | None = None,
        tally: ExchangeTally | None = None,
    ) -> None:
        """``tally`` is the exchange's; without it, the counts of the exchange do not change."""
        self.key = key  # The address: exchange and routing key as short strings.
        self.queues = queues
        self.count = len(queues)
        self.interception = interception  # Publishes each message; None without an interceptor.
        self.tally = ExchangeTally() if tally is None else tally
        self.generation = generation  # The generation of bindings and permissions it was made in.
        self.queue_ids = b"".join(
            [queue.id_bytes for queue in queues if queue.durable and not queue.is_stream]
        )
        self.durable = any(queue.durable for queue in queues)
        #: True if the broker itself consumes all queues.
        self.is_served_by_broker = self.count > 0 and all(
            queue.name.startswith(SERVICES) for queue in queues
        )
        #: True if a queue also keeps transient messages over a restart.
        self.keeps_transient = any(stores_all(queue.arguments) for queue in queues)
        self.is_uncommon = self.is_served_by_broker or self.keeps_transient


def survives_crash(queues: tuple[Queue, ...], persistent: bool) -> bool:
    """Return True if a message in one of these queues survives a crash."""
    survives = False
    for queue in queues:
        survives = survives or queue.is_stream or (persistent and queue.durable)
    return survives
