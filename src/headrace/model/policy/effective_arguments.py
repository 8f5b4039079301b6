# SPDX-License-Identifier: Apache-2.0
"""The effective arguments of queues: their own, completed and limited by policies.

:mod:`headrace.model.vhost.apply_policies` applies them to new queues, and to existing queues when a
policy changes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.model.arguments.values import queue_type
from headrace.model.events import SERVICES
from headrace.model.policy.policy import QUORUM, STREAM, Policies, complete

if TYPE_CHECKING:
    from headrace.model.policy.rules import Rules
    from headrace.model.queue.queue import Queue

QUORUM_DELIVERY_LIMIT = 20  # Default of quorum queues.
LENGTHS = frozenset({"x-max-length", "x-max-length-bytes"})
# Overflow policies under which an operator policy's length would not be a limit.
UNBOUNDED = ("none", "flow-control", "flow-to-disk")
INSTEAD = "reject-publish"  # Loses no confirmed message.
OWN_PREFIXES = (SERVICES, "amq.rabbitmq.")


def is_own(name: str) -> bool:
    """Return True if the broker itself declared a queue of this name; no policy applies to it."""
    return name.startswith(OWN_PREFIXES)


def effective_arguments(rules: Rules, queue: Queue) -> dict[str, object]:
    """Return the effective arguments of a queue; its own mapping if nothing is added.

    A limit is the smallest of arguments, policy and operator policy. Any other value comes from the
    arguments, then the operator policy, then the policy. For streams, and for the overflow of
    quorum queues, policies override the arguments. Only an operator policy sets the overflow that
    enforces its own length.
    """
    arguments = queue.arguments
    if queue.is_hidden or is_own(queue.name):
        return arguments
    kind = queue_type(arguments)
    settings = rules.policies.settings(kind, queue.name) if rules.policies else {}
    if kind == QUORUM and "x-delivery-limit" not in arguments:
        settings.setdefault("x-delivery-limit", QUORUM_DELIVERY_LIMIT)
    if not settings:
        return arguments
    merged = complete(kind, settings, arguments)
    overflow = imposed_overflow(rules.policies, kind, queue.name, merged.get("x-overflow"))
    if overflow is not None:
        merged["x-overflow"] = overflow
    return merged


def imposed_overflow(policies: Policies, kind: str, name: str, own_overflow: object) -> str | None:
    """Return the overflow that enforces an operator policy's length; None for the queue's own.

    Without an overflow in the operator policy the queue's own counts, unless it would make the
    length no limit.
    """
    operator = policies.matching(kind, name)[1]
    if operator is None or kind == STREAM or not LENGTHS & operator.arguments.keys():
        return None
    overflow = operator.arguments.get("x-overflow")
    if overflow is None:
        return INSTEAD if own_overflow in UNBOUNDED else None
    return str(overflow)
