# SPDX-License-Identifier: Apache-2.0
"""Rules of 0-8 and 0-9 that differ from 0-9-1.

0-9-1 made many errors milder and some declarations stricter; a client relies on the rules of its
own version. The cited rules are 0-9's; 0-8 has them too, in other words.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.gateway.v0_x.errors import translate
from headrace.model.errors import ModelError
from headrace.protocol.errors import AmqpError
from headrace.spec.reply import ReplyCode, Scope

if TYPE_CHECKING:
    from collections.abc import Mapping


# Methods whose errors close the connection, except for a missing queue or exchange.
# Keeps 0-9-1/queue.unbind#01, 0-9/queue.bind#failure, 0-9/queue.unbind#01.
FATAL = frozenset({"queue.bind", "queue.unbind"})
FATAL_0_9_1 = frozenset({"queue.unbind"})
CLOSES_CHANNEL = ReplyCode.NOT_FOUND  # Closes the channel only.
ONLY_0_9_1 = ("exchange_exchange_bindings", "publisher_confirms", "basic.nack")  # Capabilities.


def uses_0_9_1(capabilities: Mapping[str, object]) -> bool:
    """Return True if a client with the protocol header of 0-9 uses methods of 0-9-1.

    RabbitMQ treats both headers alike, so the mistake has no effect there.
    """
    return any(capabilities.get(name) is True for name in ONLY_0_9_1)


# Keeps 0-9-1/queue.unbind#01, 0-9/queue.bind#failure, 0-9/queue.unbind#01.
def fatal_error(error: Exception) -> Exception:
    """Return the error to raise for a method of ``FATAL``: it closes the connection.

    A missing queue or exchange closes the channel only.
    """
    if isinstance(error, ModelError):
        error = translate(error)
    if (
        isinstance(error, AmqpError)
        and error.code is not CLOSES_CHANNEL
        and error.scope is Scope.CHANNEL
    ):
        return AmqpError(error.code, error.text, error.method, Scope.CONNECTION)
    return error


# Keeps 0-9/queue.unbind#01.
def check_unbound(was_bound: bool, exchange: str, vhost: str) -> None:
    """Refuse to remove a binding that did not exist; the error closes the connection."""
    if not was_bound:
        raise AmqpError(
            ReplyCode.NOT_FOUND,
            f"no such binding to exchange '{exchange}' in vhost '{vhost}'",
            scope=Scope.CONNECTION,
        )
