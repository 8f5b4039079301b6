# SPDX-License-Identifier: Apache-2.0
"""JMS's noLocal: a connection does not receive its own publishes.

Qpid's clients set the argument ``no-local`` of a queue, which applies to all its bindings, or
``x-qpid-no-local`` of one binding. A queue belongs to a connection that is its exclusive owner, or
that has its exclusive or only consumer. A local message is not enqueued, so that it does not appear
after a restart or on the subscriber's next connection.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from headrace.model.arguments.lifetime_policies import lifetime_scope, owning_connection

if TYPE_CHECKING:
    from headrace.model.queue.destination import Consumer

QUEUE_ARGUMENT = "no-local"


@runtime_checkable
class OwnedQueue(Protocol):
    """The attributes of a queue that no-local reads; exchanges have none."""

    exclusive_owner: object
    exclusive_consumer: Consumer | None
    consumers: Collection[Consumer] | None


def owner_connection_number(queue_owner: object) -> int:
    """Return the number of the connection of a queue's owner; 0 if there is none."""
    return int(getattr(owning_connection(lifetime_scope(queue_owner)), "number", 0))


def is_local(destination: object, publisher: int) -> bool:
    """Return True if a queue belongs to the connection with the number ``publisher``."""
    if not publisher or not isinstance(destination, OwnedQueue):
        return False
    queue_owner = destination.exclusive_owner
    if queue_owner is not None and owner_connection_number(queue_owner) == publisher:
        return True
    consumer = destination.exclusive_consumer
    consumers = destination.consumers or ()
    if consumer is None and len(consumers) == 1:
        (consumer,) = consumers
    return consumer is not None and consumer.publisher == publisher


def has_no_local(arguments: Mapping[str, object]) -> bool:
    """Return True if these checked arguments of a queue set no-local."""
    value = arguments.get(QUEUE_ARGUMENT, False)
    return value.lower() == "true" if isinstance(value, str) else value == 1
