# SPDX-License-Identifier: Apache-2.0
"""Apply policies to the queues and exchanges of a virtual host.

:func:`configure` sets a queue's attributes from its effective arguments
(:mod:`headrace.model.policy.effective_arguments`), when the queue is made and whenever a policy
changes. The queue may be in use.

Changed rules apply to new queues and exchanges at once. There may be very many existing ones, so
each step of a :class:`RulesChange` handles at most ``SLICE`` of them, for at most ``SLICE_S``, and
the event loop does other work between two steps.
"""

from __future__ import annotations

import logging
from functools import partial
from itertools import chain, islice
from typing import TYPE_CHECKING

from headrace.model.policy.effective_arguments import effective_arguments
from headrace.model.policy.policy import EXCHANGE
from headrace.model.queue import flow_control
from headrace.model.queue.queue import Queue
from headrace.model.queue_kinds.apply_arguments import apply_arguments
from headrace.model.queue_kinds.content_lanes import apply_to_lanes
from headrace.model.stream.stream import TRIM_MIN_MS, Stream

if TYPE_CHECKING:
    from collections.abc import Iterator

    from headrace.model.exchange.exchange import Exchange
    from headrace.model.host import ExchangePolicyHost, PolicyHost
    from headrace.model.policy.rules import Rules

log = logging.getLogger(__name__)

SLICE = 64  # The most exchanges and queues of one step.
SLICE_S = 0.002  # Seconds after which a step ends: patterns of policies may be slow.
STRATEGY = "x-dead-letter-strategy"
LOSS_WARNING = (
    "queue {!r} may lose dead letters: at-least-once needs a dead-letter exchange, and another "
    "overflow than drop-head"
)
TIMEOUT = "x-consumer-timeout"  # Consumers are notified of a change.
TTL_BATCH_BYTES = 1 << 20  # Bytes of messages that get a new TTL at a time.


class RulesChange:
    """A change of rules that is being applied to existing queues and exchanges."""

    def __init__(self, vhost: PolicyHost, former_rules: Rules | None) -> None:
        """``former_rules`` are those of all queues; None if another change was in progress."""
        self.vhost = vhost
        self.former_rules = former_rules
        self._remaining: Iterator[Exchange | Queue] = chain(
            list(vhost.exchanges.values()), iter(vhost.queues_in_order)
        )

    def step(self) -> bool:
        """Apply the rules to the next queues and exchanges; return True if there may be more."""
        vhost = self.vhost
        clock = vhost.counters.clock
        until_s = clock() + SLICE_S
        count, is_late = 0, False
        for target in islice(self._remaining, SLICE):
            count += 1
            if isinstance(target, Queue):
                if vhost.queues.get(target.name) is target and not target.deleted:
                    reconfigure(vhost, target, self.former_rules)
            elif vhost.exchanges.get(target.name) is target:
                configure_exchange(vhost, target)
            is_late = clock() > until_s
            if is_late:
                break
        vhost.counters.generation += 1  # Cached routes may lead elsewhere.
        return is_late or count == SLICE


def configure(vhost: PolicyHost, queue: Queue) -> None:
    """Set a queue's attributes from its effective arguments.

    The queue may be in use, or not yet be registered.
    """
    arguments = vhost.effective_arguments(queue)
    is_registered = vhost.queues.get(queue.name) is queue
    former_alternate, former_expires_ms = queue.alternate_exchange, queue.expires_ms
    former_ttl_ms = queue.message_ttl_ms
    apply_arguments(queue, arguments)
    if (
        queue.limits is not None
        and not queue.dead_letter_at_least_once
        and arguments.get(STRATEGY) == "at-least-once"
    ):
        log.warning("vhost %r: %s", vhost.name, LOSS_WARNING.format(queue.name))
    if arguments or queue.guard is not None:
        flow_control.set_guard(queue, arguments)
    apply_to_lanes(queue, arguments)
    if is_registered:
        if former_alternate != queue.alternate_exchange:
            vhost.count_alternate(former_alternate, -1)
            vhost.count_alternate(queue.alternate_exchange, 1)
        if former_expires_ms != queue.expires_ms:
            vhost.scheduler.remove((queue,))
            schedule_queue_expiry(vhost, queue)
        if queue.message_ttl_ms >= 0 and not 0 <= former_ttl_ms <= queue.message_ttl_ms:
            shorten_ttl(vhost, queue)
    # A new stream's log was made with the stream's own arguments.
    changed = is_registered or arguments is not queue.arguments
    if isinstance(queue, Stream) and not queue.is_hidden and changed:
        former_max_age_ms = queue.log.max_age_ms
        queue.limit(arguments)
        if is_registered and former_max_age_ms != queue.log.max_age_ms:
            vhost.scheduler.remove(("age", queue))
            schedule_retention(vhost, queue)


def reconfigure(vhost: PolicyHost, queue: Queue, former_rules: Rules | None) -> None:
    """Apply changed rules to a queue; ``former_rules`` is None if they are unknown."""
    former = None if former_rules is None else effective_arguments(former_rules, queue)
    current = vhost.effective_arguments(queue)
    if former == current:
        return
    configure(vhost, queue)
    if (
        former is None or former.get(TIMEOUT) != current.get(TIMEOUT)
    ) and vhost.on_timeout_changed is not None:
        vhost.on_timeout_changed(queue)
    if not isinstance(queue, Stream):
        queue.drain()
        for lane in (queue.lanes or {}).values():
            lane.drain()


def configure_exchange(vhost: ExchangePolicyHost, exchange: Exchange) -> None:
    """Set the alternate of an exchange from arguments and policies; it may be in use."""
    alternate = exchange.own_alternate
    policies = vhost.rules.policies
    if alternate is None and policies and exchange.name:
        name = policies.settings(EXCHANGE, exchange.name).get("alternate-exchange")
        alternate = name if isinstance(name, str) else None
    if alternate == exchange.alternate:
        return
    if vhost.exchanges.get(exchange.name) is exchange:
        vhost.count_alternate(exchange.alternate, -1)
        vhost.count_alternate(alternate, 1)
    exchange.alternate = alternate


def shorten_ttl(vhost: PolicyHost, queue: Queue) -> None:
    """Apply a new or shorter message TTL to the messages in a queue, counted from now."""
    position = queue.ready.first_position(queue.counters.next_seq)
    end = vhost.counters.next_seq
    start_ms = vhost.counters.now_ms

    def set_next_deadlines(now_ms: int) -> int:
        nonlocal position
        if queue.deleted or queue.message_ttl_ms < 0:
            return 0
        position = queue.set_deadlines(position, end, start_ms, TTL_BATCH_BYTES)
        return now_ms + 1 if position < end else 0

    for message in queue.ready.requeued_between(0, end):
        queue.set_deadline(message, start_ms)
        queue.schedule_expiry(message)
    if set_next_deadlines(start_ms):
        vhost.scheduler.put(("lives", queue), start_ms + 1, set_next_deadlines)


def schedule_queue_expiry(vhost: PolicyHost, queue: Queue) -> None:
    """Schedule the deletion of a queue with x-expires."""
    if queue.expires_ms >= 0:
        due_ms = queue.used_ms + queue.expires_ms
        vhost.scheduler.put((queue,), due_ms, partial(vhost.expire_queue, queue))


def schedule_retention(vhost: PolicyHost, queue: Queue) -> None:
    """Schedule the retention of a stream with x-max-age or x-local-max-age."""
    if not isinstance(queue, Stream):
        return
    if queue.log.max_age_ms >= 0 or queue.log.local_max_age_ms >= 0:
        vhost.scheduler.put(("age", queue), vhost.counters.now_ms + TRIM_MIN_MS, queue.trim)
