# SPDX-License-Identifier: Apache-2.0
"""JMS's noLocal: what a connection publishes stays out of the subscriptions that are its own.

Qpid's clients ask for it by ``no-local`` of a queue, which holds for all its bindings, or by
``x-qpid-no-local`` of one binding. A queue is a connection's own if that connection is its
exclusive owner, its exclusive consumer or its only consumer. What is kept out was never in the
queue, so it comes neither after a restart nor to the same subscriber's next connection.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headrace.model.arguments.queue_lifetime import connection_of, key_of

QUEUE_ARGUMENT = "no-local"


def number_of_owner(holder: Any) -> int:
    """Return the number of the connection that a queue's owner is, or is part of; 0 for none."""
    return int(getattr(connection_of(key_of(holder)), "number", 0))


def is_local(destination: Any, publisher: int) -> bool:
    """Return True if a queue is its publisher's own; ``publisher`` is a connection's number."""
    if not publisher or not hasattr(destination, "exclusive_owner"):  # Nobody, or an exchange.
        return False
    holder = destination.exclusive_owner
    if holder is not None and number_of_owner(holder) == publisher:
        return True
    consumer = destination.exclusive_consumer
    if consumer is None and len(destination.consumers or ()) == 1:
        (consumer,) = destination.consumers
    return consumer is not None and consumer.publisher == publisher


def is_on(arguments: Mapping[str, Any]) -> bool:
    """Return True if a queue with these arguments, which were checked, keeps local messages out."""
    value = arguments.get(QUEUE_ARGUMENT, False)
    return value.lower() == "true" if isinstance(value, str) else value == 1
