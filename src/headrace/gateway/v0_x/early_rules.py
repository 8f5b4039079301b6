# SPDX-License-Identifier: Apache-2.0
"""Where the rules of 0-8 and 0-9 differ from those of 0-9-1, for the connections of each.

A later version made many errors milder and some declarations stricter; what a client relies on is
what its own version says. Rules are those of 0-9; 0-8 has them too, in other words.
"""

from __future__ import annotations

from typing import Any

from headrace.model.errors import ModelError, NotAllowed, NotFound
from headrace.protocol.errors import AmqpError
from headrace.spec.reply import ReplyCode, Scope

FATAL = frozenset({"queue.bind", "queue.unbind"})  # They close the connection when they fail,
FATAL_0_9_1 = frozenset({"queue.unbind"})  # (0-9-1/queue.unbind#01)
MILD = ReplyCode.NOT_FOUND  # but for this, which closes the channel.
RESERVED_PREFIX = "amq."
ONLY_0_9_1 = ("exchange_exchange_bindings", "publisher_confirms", "basic.nack")  # Capabilities.


def means_0_9_1(capabilities: dict[str, Any]) -> bool:
    """Tell whether a client that says 0-9 knows what only 0-9-1 has: its header is a mistake.

    RabbitMQ takes the one header for the other, so nobody noticed.
    """
    return any(capabilities.get(name) is True for name in ONLY_0_9_1)


def refusal(context: Any, error: Exception) -> Exception:
    """Return the error that a refusal is of a method that closes the connection when it fails."""
    if isinstance(error, ModelError):
        error = context.translate(error)
    if isinstance(error, AmqpError) and error.code is not MILD and error.scope is Scope.CHANNEL:
        return AmqpError(error.code, error.text, error.method, Scope.CONNECTION)
    return error


def check_new_queue(vhost: Any, name: str) -> None:
    """Refuse to make a queue with a reserved name (0-9/queue.declare.queue#reserved-prefix)."""
    if name.startswith(RESERVED_PREFIX) and name not in vhost.queues:
        raise NotAllowed(f"queue name '{name}' contains reserved prefix 'amq.*'")


def check_binding(vhost: Any, exchange: str, queue: str) -> None:
    """Refuse bindings that 0-9-1 allows (0-9/queue.bind#transient-exchange, #internal-exchange)."""
    source, destination = vhost.exchanges.get(exchange), vhost.queues.get(queue)
    if source is None or destination is None:
        return
    if source.internal:
        raise NotAllowed(f"exchange '{exchange}' in vhost '{vhost.name}' is internal")
    if destination.durable and not source.durable:
        raise NotAllowed(
            f"durable queue '{queue}' may not be bound to transient exchange '{exchange}' in "
            f"vhost '{vhost.name}'"
        )


def check_undone(undone: bool, exchange: str, vhost: str) -> None:
    """Refuse to undo a binding that was not there (0-9/queue.unbind#01)."""
    if not undone:
        raise AmqpError(
            ReplyCode.NOT_FOUND,
            f"no such binding to exchange '{exchange}' in vhost '{vhost}'",
            scope=Scope.CONNECTION,
        )


def check_exists(kind: str, name: str, things: Any, vhost: str) -> None:
    """Refuse to delete what is not there (0-9/queue.delete, 0-9/exchange.delete)."""
    if name not in things:
        raise NotFound(f"no {kind} '{name}' in vhost '{vhost}'")
