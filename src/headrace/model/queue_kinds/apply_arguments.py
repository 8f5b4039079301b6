# SPDX-License-Identifier: Apache-2.0
"""Applies a queue's arguments: time to live, length limits, overflow, dead letters, priorities."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.model.arguments.backoff import read_backoff
from headrace.model.arguments.values import number
from headrace.model.queue.flow_control import LENGTH_LIMITS
from headrace.model.queue.overflow import (
    OVERFLOW_DROP_HEAD,
    OVERFLOW_REJECT,
    OVERFLOW_REJECT_DEAD_LETTER,
    OVERFLOW_RING_STRICT,
    OVERFLOW_SELF_DESTRUCT,
    OVERFLOW_TO_DISK,
    Overflow,
)
from headrace.model.queue_kinds.priority import set_levels

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headrace.model.queue.queue import Queue

DELIVERY_LIMIT_MAX = 254  # One less than the highest count of redeliveries.
OVERFLOWS = {
    "drop-head": OVERFLOW_DROP_HEAD,
    "reject-publish": OVERFLOW_REJECT,
    "reject-publish-dlx": OVERFLOW_REJECT_DEAD_LETTER,
    "ring-strict": OVERFLOW_RING_STRICT,
    "self-destruct": OVERFLOW_SELF_DESTRUCT,
    "flow-to-disk": OVERFLOW_TO_DISK,
    # These two have no limits (`UNLIMITED`), so their value has no effect.
    "flow-control": OVERFLOW_DROP_HEAD,
    "none": OVERFLOW_DROP_HEAD,
}
BROWSE_ONLY = ("qpid.browse-only", "qpid.ensure_nondestructive_consumers")
# Overflow policies without a length limit; with "flow-control" publishers wait instead.
UNLIMITED = ("flow-control", "none")


def apply_arguments(queue: Queue, arguments: Mapping[str, object]) -> None:
    """Set a queue's attributes from its checked arguments."""
    queue.message_ttl_ms = number(arguments.get("x-message-ttl", -1))
    queue.expires_ms = number(arguments.get("x-expires", -1))
    queue.limits = length_limits(arguments)
    set_levels(queue.ready, arguments)
    queue.browse_only = any(number(arguments.get(name, 0)) for name in BROWSE_ONLY)
    queue.single_active = bool(arguments.get("x-single-active-consumer", False))
    queue.delivery_limit = min(number(arguments.get("x-delivery-limit", -1)), DELIVERY_LIMIT_MAX)
    if queue.delivery_mark is not None:
        queue.delivery_mark.set_records_each(queue.delivery_limit >= 0)
    queue.dead_letter_exchange = _text(arguments, "x-dead-letter-exchange")
    queue.alternate_exchange = _text(arguments, "alternate-exchange")
    queue.dead_letter_routing_key = _text(arguments, "x-dead-letter-routing-key")
    queue.backoff = read_backoff(arguments)
    queue.dead_letter_at_least_once = (
        queue.dead_letter_exchange is not None
        and arguments.get("x-dead-letter-strategy") == "at-least-once"
        and not (queue.limits is not None and queue.limits.policy == OVERFLOW_DROP_HEAD)
    )


def length_limits(arguments: Mapping[str, object]) -> Overflow | None:
    """Return the length limits in the arguments; None if there are none."""
    overflow = str(arguments.get("x-overflow", "drop-head"))
    max_length = number(arguments.get("x-max-length", -1))
    max_length_bytes = number(arguments.get("x-max-length-bytes", -1))
    if overflow in UNLIMITED or (max_length < 0 and max_length_bytes < 0):
        return None
    counts_unacked = any(number(arguments.get(name, 0)) for name in LENGTH_LIMITS)
    return Overflow(max_length, max_length_bytes, OVERFLOWS[overflow], counts_unacked)


def _text(arguments: Mapping[str, object], name: str) -> str | None:
    value = arguments.get(name)
    return value if isinstance(value, str) else None
