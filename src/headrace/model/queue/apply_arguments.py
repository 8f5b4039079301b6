# SPDX-License-Identifier: Apache-2.0
"""What a queue's arguments mean for its life: time to live, length, overflow, dead letters."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headrace.model.arguments.values import number
from headrace.model.queue.flow_control import MAXIMA
from headrace.model.queue.retention import (
    OVERFLOW_DROP_HEAD,
    OVERFLOW_REJECT,
    OVERFLOW_REJECT_DEAD_LETTER,
    OVERFLOW_RING_STRICT,
    OVERFLOW_SELF_DESTRUCT,
    OVERFLOW_TO_DISK,
)
from headrace.model.queue.retry_backoff import backoff

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headrace.model.queue.queue import Queue

DELIVERIES_MAX = 254  # What a message can count, less one.
OVERFLOWS = {
    "drop-head": OVERFLOW_DROP_HEAD,
    "reject-publish": OVERFLOW_REJECT,
    "reject-publish-dlx": OVERFLOW_REJECT_DEAD_LETTER,
    "ring-strict": OVERFLOW_RING_STRICT,
    "self-destruct": OVERFLOW_SELF_DESTRUCT,
    "flow-to-disk": OVERFLOW_TO_DISK,
    "flow-control": OVERFLOW_DROP_HEAD,  # Not that it would come to that.
    "none": OVERFLOW_DROP_HEAD,
}
SHOWN_ONLY = ("qpid.browse-only", "qpid.ensure_nondestructive_consumers")
UNLIMITED = ("flow-control", "none")  # Of these publishers are stopped (model.guard), or nobody is.


def apply_arguments(queue: Queue, arguments: Mapping[str, Any]) -> None:
    """Set a queue's limits from its arguments, which were checked before."""
    queue.message_ttl_ms = arguments.get("x-message-ttl", -1)
    queue.expires_ms = arguments.get("x-expires", -1)
    queue.max_length = arguments.get("x-max-length", -1)
    queue.max_length_bytes = arguments.get("x-max-length-bytes", -1)
    overflow = arguments.get("x-overflow", "drop-head")
    if overflow in UNLIMITED:
        queue.max_length = queue.max_length_bytes = -1
    queue.limited = queue.max_length >= 0 or queue.max_length_bytes >= 0
    queue.overflow = OVERFLOWS[overflow]
    queue.counts_unacked = any(number(arguments.get(name, 0)) for name in MAXIMA)
    queue.max_priority = arguments.get("x-max-priority", 0)
    queue.priority_base = 0
    levels = number(arguments.get("qpid.priorities", 0))
    if levels:  # Of the ten priorities the lowest ones share the first level.
        queue.max_priority = max(levels - 1, 1)
        queue.priority_base = 5 - min(5, (levels + 1) // 2) if levels > 1 else 255
    queue.browse_only = any(number(arguments.get(name, 0)) for name in SHOWN_ONLY)
    queue.single_active = bool(arguments.get("x-single-active-consumer", False))
    queue.delivery_limit = min(arguments.get("x-delivery-limit", -1), DELIVERIES_MAX)
    if queue.delivery_limit >= 0:
        queue.reserved = 0  # Each delivery is noted.
    queue.dead_letter_exchange = arguments.get("x-dead-letter-exchange")
    queue.alternate_exchange = arguments.get("alternate-exchange")
    queue.dead_letter_routing_key = arguments.get("x-dead-letter-routing-key")
    queue.backoff = backoff(arguments)
    queue.dead_letter_at_least_once = (
        queue.dead_letter_exchange is not None
        and arguments.get("x-dead-letter-strategy") == "at-least-once"
        and not (queue.limited and queue.overflow == OVERFLOW_DROP_HEAD)
    )
