# SPDX-License-Identifier: Apache-2.0
"""Where the rules of 0-8 and 0-9 differ from those of 0-9-1, for the connections of each.

A later version made many errors milder and some declarations stricter; what a client relies on is
what its own version says. Rules are those of 0-9; 0-8 has them too, in other words.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.gateway.v0_x.errors import translate
from headrace.model.errors import ModelError
from headrace.protocol.errors import AmqpError
from headrace.spec.reply import ReplyCode, Scope

if TYPE_CHECKING:
    from collections.abc import Mapping


FATAL = frozenset({"queue.bind", "queue.unbind"})  # They close the connection when they fail,
FATAL_0_9_1 = frozenset({"queue.unbind"})  # (0-9-1/queue.unbind#01)
MILD = ReplyCode.NOT_FOUND  # but for this, which closes the channel.
ONLY_0_9_1 = ("exchange_exchange_bindings", "publisher_confirms", "basic.nack")  # Capabilities.


def means_0_9_1(capabilities: Mapping[str, object]) -> bool:
    """Return True if a client that announces 0-9 uses methods of 0-9-1: its header is wrong.

    RabbitMQ takes the one header for the other, so the mistake has no effect there.
    """
    return any(capabilities.get(name) is True for name in ONLY_0_9_1)


def refusal(error: Exception) -> Exception:
    """Return the error that a refusal is of a method that closes the connection when it fails."""
    if isinstance(error, ModelError):
        error = translate(error)
    if isinstance(error, AmqpError) and error.code is not MILD and error.scope is Scope.CHANNEL:
        return AmqpError(error.code, error.text, error.method, Scope.CONNECTION)
    return error


def check_undone(undone: bool, exchange: str, vhost: str) -> None:
    """Refuse to undo a binding that was not there (0-9/queue.unbind#01)."""
    if not undone:
        raise AmqpError(
            ReplyCode.NOT_FOUND,
            f"no such binding to exchange '{exchange}' in vhost '{vhost}'",
            scope=Scope.CONNECTION,
        )
