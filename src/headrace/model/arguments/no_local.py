# SPDX-License-Identifier: Apache-2.0
"""JMS's noLocal: what a connection publishes stays out of the subscriptions that are its own.

Qpid's clients ask for it by ``no-local`` of a queue, which holds for all its bindings, or by
``x-qpid-no-local`` of one binding. A queue is a connection's own if that connection is its
exclusive owner, its exclusive consumer or its only consumer. What is kept out was never in the
queue, so it comes neither after a restart nor to the same subscriber's next connection.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from headrace.model.arguments.queue_lifetime import connection_of, key_of

if TYPE_CHECKING:
    from headrace.model.queue.dispatch import Consumer

QUEUE_ARGUMENT = "no-local"


@runtime_checkable
class OwnedQueue(Protocol):
    """A queue as no-local sees it; exchanges have no owner."""

    exclusive_owner: object
    exclusive_consumer: Consumer | None
    consumers: Collection[Consumer] | None


def number_of_owner(holder: object) -> int:
    """Return the number of the connection that a queue's owner is, or is part of; 0 for none."""
    return int(getattr(connection_of(key_of(holder)), "number", 0))


def is_local(destination: object, publisher: int) -> bool:
    """Return True if a queue is its publisher's own; ``publisher`` is a connection's number."""
    if not publisher or not isinstance(destination, OwnedQueue):
        return False
    holder = destination.exclusive_owner
    if holder is not None and number_of_owner(holder) == publisher:
        return True
    consumer = destination.exclusive_consumer
    consumers = destination.consumers or ()
    if consumer is None and len(consumers) == 1:
        (consumer,) = consumers
    return consumer is not None and consumer.publisher == publisher


def is_on(arguments: Mapping[str, object]) -> bool:
    """Return True if a queue with these arguments, which were checked, keeps local messages out."""
    value = arguments.get(QUEUE_ARGUMENT, False)
    return value.lower() == "true" if isinstance(value, str) else value == 1
