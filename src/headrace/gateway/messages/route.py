# SPDX-License-Identifier: Apache-2.0
"""The queues of one exchange and routing key, with all that a publish needs of them.

A route is looked up once and remembered until bindings or permissions change; so the permission
check costs nothing per message. Routes are made in
:mod:`headrace.gateway.v0_x.connection.routing`; those of 0-10 in
:mod:`headrace.gateway.v0_10.session.transfer`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.model.arguments.values import keeps_all
from headrace.model.tallies import ExchangeTally

if TYPE_CHECKING:
    from headrace.model.interceptor.interception import Interception
    from headrace.model.queue.queue import Queue

SERVICES = "amq.headrace."  # The prefix of the names of queues that the broker consumes.


class Route:
    """The queues that a message of this address goes to."""

    def __init__(
        self,
        key: bytes,
        queues: tuple[Queue, ...],
        generation: int,
        interception: Interception | None = None,
        tally: ExchangeTally | None = None,
    ) -> None:
        """``tally`` is that of the exchange; without it nothing is counted there."""
        self.key = key  # Exchange and routing key, both as short strings.
        self.queues = queues
        self.count = len(queues)
        self.interception = interception  # Publishes each message, if there is one.
        self.tally = ExchangeTally() if tally is None else tally
        self.generation = generation  # Of the bindings and permissions that it was made under.
        self.queue_ids = b"".join(
            [queue.id_bytes for queue in queues if queue.durable and not queue.is_stream]
        )
        self.durable = any(queue.durable for queue in queues)
        #: All queues are consumed by the broker itself.
        self.serves = self.count > 0 and all(queue.name.startswith(SERVICES) for queue in queues)
        self.keeps = any(keeps_all(queue.arguments) for queue in queues)  # Transient messages, too.
        self.uncommon = self.serves or self.keeps


def will_last(queues: tuple[Queue, ...], persistent: bool) -> bool:
    """Return True if a message in one of these queues survives a crash."""
    lasts = False
    for queue in queues:
        lasts = lasts or queue.is_stream or (persistent and queue.durable)
    return lasts
