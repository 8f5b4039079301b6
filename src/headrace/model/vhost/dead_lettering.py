# SPDX-License-Identifier: Apache-2.0
"""Dead letters, messages that go to a queue's alternate exchange, and delayed retries.

`Queue.discard` and `headrace.model.queue.dead_letter_sender` bring the messages here.

A dead letter may die again on arrival. The length of such a chain is bounded
(`headrace.model.vhost.dead_letter_cycles`), and so is the work of one millisecond: ``LETTERS_MAX``
dead letters are delivered in it, all others in later turns. When very many messages die together
(a consumer rejects all its deliveries, a policy shortens a long queue), as many are dead-lettered
in a millisecond. All others wait in their queues.
"""

from __future__ import annotations

import logging
from collections import deque
from typing import TYPE_CHECKING

from headrace.model.arguments.consumer import RepublishedHeaders
from headrace.model.contents import UnreadableError, copy_routing_keys
from headrace.model.counters import LETTERS_MAX
from headrace.model.dead_letter_headers import (
    DELIVERY_LIMIT,
    ORPHANED,
    REJECTED,
    UNCONVERTIBLE,
    add_death,
)
from headrace.model.message import KIND_MASK, copy_message
from headrace.model.queue import delivery_count
from headrace.model.queue.retry_backoff import DelayedRetries
from headrace.model.queue_kinds.content_lanes import get_lane
from headrace.model.vhost.at_least_once import UndeliveredLetters
from headrace.model.vhost.dead_letter_cycles import SPREAD, count_spread, died_too_often, is_cycle

if TYPE_CHECKING:
    from collections.abc import Iterable

    from headrace.model.contents import Contents
    from headrace.model.exchange.exchange import Exchange, Observer
    from headrace.model.host import RoutingHost
    from headrace.model.message import Message
    from headrace.model.queue.destination import Consumer
    from headrace.model.queue.queue import Queue

log = logging.getLogger(__name__)

CYCLES_MAX = 1024  # Logged cycles, and logged floods; further ones are not logged.
PAUSE_MS = 1  # Pause before more dead letters of dead letters are delivered.
WAITING_MAX = 65536  # Postponed dead letters; beyond that they are delivered at once.


class DeadLetters:
    """Dead-lettering of one virtual host."""

    def __init__(self, vhost: RoutingHost) -> None:
        self.vhost = vhost
        self._reported_cycles: set[tuple[str, str]] = set()  # Logged cycles.
        self._reported_floods: set[tuple[str, str]] = set()  # Logged chains that were cut.
        self._undelivered: dict[Queue, UndeliveredLetters] = {}
        self._retries: dict[Queue, DelayedRetries] = {}
        # Dead letters of messages that died during a delivery.
        self._new_letters: deque[tuple[Queue, Message]] = deque()
        # Dead letters that wait for the next turn, with their seq assigned.
        self._postponed: deque[tuple[Queue, Message]] = deque()
        self._delivering = False
        # True until :meth:`end`: dead letters join one transaction.
        self._joining_transaction = False
        self._transaction_open = False  # True while a transaction of :meth:`begin` is open.
        self._deaths_ms = 0  # The millisecond in which ``_deaths`` is counted.
        self._deaths = 0  # Messages that were dead-lettered at once.

    def deliver(
        self, queue_messages: Iterable[tuple[Queue, Message]], *, promised: bool = False
    ) -> int:
        """Enqueue messages, then the dead letters of the messages that die on arrival.

        Return the number of refused messages; with ``promised`` no queue refuses for its length.
        """
        if self._delivering:
            self._new_letters.extend(queue_messages)  # The outer call delivers them.
            return 0
        self._delivering = True
        refused = 0
        try:
            for queue, queue_message in queue_messages:
                refused += self._enqueue(queue, queue_message, promised=promised)
            counters = self.vhost.counters
            counters.begin_letters(counters.now_ms)
            while self._new_letters and (
                counters.letters_left > 0
                or len(self._postponed) + len(self._new_letters) > WAITING_MAX
            ):
                counters.letters_left -= 1
                self._enqueue(*self._new_letters.popleft())
        finally:
            self._delivering = False
            self._postpone_new()
        return refused

    def _enqueue(
        self, queue: Queue, queue_message: Message, *, late: bool = False, promised: bool = False
    ) -> int:
        if queue.deleted:
            if queue_message.position:
                self.vhost.store.forget(queue.id, queue_message.position)
            return 0
        lane = get_lane(queue, queue_message.flags & KIND_MASK)
        if (late or promised) and not lane.is_stream:
            lane.enqueue_in_place(queue_message, promised)  # Later messages may precede it.
            return 0
        return lane.enqueue(queue_message)

    def _postpone_new(self) -> None:
        if self._new_letters:
            self._postponed.extend(self._new_letters)
            self._new_letters.clear()
            scheduler = self.vhost.scheduler
            scheduler.put(
                ("letters", self), self.vhost.counters.now_ms + PAUSE_MS, self._deliver_postponed
            )

    def _deliver_postponed(self, now_ms: int) -> int:
        """Deliver some postponed dead letters; return the time of the next call, 0 if none."""
        self._delivering = True
        try:
            counters = self.vhost.counters
            counters.begin_letters(counters.now_ms)
            while self._postponed and counters.letters_left > 0:
                counters.letters_left -= 1
                self._enqueue(*self._postponed.popleft(), late=True)
        finally:
            self._delivering = False
            self._postpone_new()
        return now_ms + PAUSE_MS if self._postponed else 0

    def on_queue_deletion(self, queue: Queue) -> None:
        """Drop the undelivered dead letters and delayed retries of a deleted queue."""
        undelivered = self._undelivered.pop(queue, None)
        if undelivered is not None:
            undelivered.drop_all()
        retries = self._retries.pop(queue, None)
        if retries is not None:
            retries.requeue_all()

    # --- One transaction --------------------------------------------------------------------------

    def join_transaction(self) -> bool:
        """Join the dead letters up to :meth:`end` into one store transaction.

        Return True if the caller has to call :meth:`end`; False inside a transaction.
        """
        if self._joining_transaction or self._in_transaction():
            return False
        self._joining_transaction = True
        return True

    def begin(self) -> bool:
        """Open a store transaction for a dead letter and the settlement of its original.

        Return True if the caller has to call :meth:`end`; False inside a transaction.
        """
        store = self.vhost.store
        if not store.durable or self._in_transaction():
            return False
        store.begin()
        self._transaction_open = True
        return not self._joining_transaction

    def end(self) -> None:
        """Commit the transaction of :meth:`join_transaction` or :meth:`begin`."""
        self._joining_transaction = False
        if self._transaction_open:
            self._transaction_open = False
            self.vhost.store.commit()

    def _in_transaction(self) -> bool:
        return bool(getattr(self.vhost.store, "transaction", 0))

    # --- Dead letters -----------------------------------------------------------------------------

    def has_target(self, queue: Queue, reason: str) -> bool:
        """Return True if messages that die in a queue for this reason go to an existing exchange.

        Otherwise the message need not be loaded.
        """
        name = queue.dead_letter_exchange
        if queue.alternate_exchange is not None and self._goes_to_alternate(queue, reason):
            name = queue.alternate_exchange
        elif reason == ORPHANED:
            return False
        return name is not None and name in self.vhost.exchanges

    # Keeps 0-10/s080, 0-10/s081.
    def dead_letter(self, message: Message, queue: Queue, reason: str, detail: str = "") -> bool:
        """Publish a dead letter to its queue's dead-letter or alternate exchange.

        ``detail`` is the reason of a failed conversion. Return False if the queue dead-letters
        at least once and the letter has not arrived yet.
        """
        if self.vhost.contents is None:
            return True
        if queue.alternate_exchange is not None and self._goes_to_alternate(queue, reason):
            self._reroute(message, queue, queue.alternate_exchange, self.vhost.contents)
            return True
        name, key = queue.dead_letter_exchange, queue.dead_letter_routing_key
        if name is None and reason == UNCONVERTIBLE:
            name = queue.alternate_exchange
        if name is None or reason == ORPHANED:
            return True
        exchange = self.vhost.exchanges.get(name)
        if exchange is None:
            return not queue.dead_letter_at_least_once
        try:
            return self._dead_letter(
                message, queue, reason, exchange, key, self.vhost.contents, detail
            )
        except UnreadableError as error:
            log.warning(
                "vhost %r: a dead letter of queue %r is dropped: %s",
                self.vhost.name,
                queue.name,
                error,
            )
            return True

    # Keeps 0-10/s080, 0-10/s179.
    @staticmethod
    def _goes_to_alternate(queue: Queue, reason: str) -> bool:
        """Return True if a message goes to the alternate exchange (0-10/queue.declare)."""
        if reason == DELIVERY_LIMIT:
            return queue.dead_letter_exchange is None
        return reason in (REJECTED, ORPHANED)

    # Keeps 0-10/s151, 0-10/s152.
    def _reroute(self, message: Message, queue: Queue, alternate: str, contents: Contents) -> None:
        """Publish a message unchanged to the alternate exchange.

        If it routes to no queue, the exchange's own alternate is tried, and no further one, as
        Qpid's clients expect. The queue that it comes from does not get it again.
        """
        exchange = self.vhost.exchanges.get(alternate)
        if exchange is None:
            return
        try:
            content = contents.read(message)
        except UnreadableError as error:
            log.warning("vhost %r: a message of %r is dropped: %s", self.vhost.name, queue, error)
            return
        targets: dict[Queue, None] = {}
        observers: dict[Observer, None] = {}
        headers = RepublishedHeaders(content.headers, message, contents)
        self.vhost.follow(
            exchange,
            content.routing_key,
            headers,
            targets,
            1,
            observers,
            publisher=message.publisher,
        )
        targets.pop(queue, None)
        self.vhost.send(
            copy_message(message), targets, observers, content.headers, content.persistent
        )

    def _dead_letter(
        self,
        message: Message,
        queue: Queue,
        reason: str,
        exchange: Exchange,
        key: str | None,
        contents: Contents,
        detail: str,
    ) -> bool:
        content = contents.read(message)
        headers = add_death(
            content,
            queue.name,
            reason,
            self.vhost.counters.now_ms,
            rerouted=key is not None,
            detail=detail,
        )
        if key is None:
            keys = [content.routing_key, *copy_routing_keys(content.headers)]
        else:
            keys = [key]
        targets: dict[Queue, None] = {}
        observers: dict[Observer, None] = {}
        republished = RepublishedHeaders(headers, message, contents)
        self.vhost.follow(
            exchange,
            keys[0],
            republished,
            targets,
            observers=observers,
            copies=keys[1:],
            # A dead letter that must arrive is not dropped for no-local.
            publisher=0 if queue.dead_letter_at_least_once else message.publisher,
        )
        is_dropped = False
        if reason != REJECTED:
            for target in list(targets):
                if is_cycle(target.name, headers):
                    del targets[target]
                    self._report_cycle(queue.name, target.name)
            if targets and died_too_often(headers):
                targets.clear()
                self._report_flood(queue.name, "died in too many places")
                is_dropped = True
        arrived = True
        undelivered = self._undelivered.get(queue)
        if not is_dropped and (
            queue.dead_letter_at_least_once
            or (undelivered is not None and message in undelivered.delivered_to)
        ):
            arrived = self._require_targets(queue, message, targets, observers)
        count = len(targets) + len(observers)
        if count and self.record_spread(queue.name, headers, reason, count):
            letter = contents.rewrite(message, exchange.name, keys[0], headers)
            self.vhost.send(letter, targets, observers, headers, content.persistent)
        return arrived

    def _require_targets(
        self,
        queue: Queue,
        message: Message,
        targets: dict[Queue, None],
        observers: dict[Observer, None],
    ) -> bool:
        """Remove the full queues from ``targets``; return True if there was none.

        Full queues get the dead letter later. Queues that already have it are also removed.
        """
        if not targets and not observers:
            undelivered = self._undelivered.get(queue)
            return (
                undelivered is not None and undelivered.delivered_to.pop(message, None) is not None
            )
        undelivered = self._get_undelivered(queue)
        delivered = undelivered.delivered_to.pop(message, None)
        if delivered is not None:
            observers.clear()
        has_full = False
        for target in list(targets):
            if delivered is not None and target.name in delivered:
                del targets[target]
            elif target.would_reject(message.body_size):
                del targets[target]
                has_full = True
        if has_full:
            if not targets and delivered is None:
                observers.clear()
            else:
                names = [target.name for target in targets]
                undelivered.delivered_to[message] = (delivered or set()).union(names)
        return not has_full

    def record_spread(
        self, source: str, headers: dict[str, object], reason: str, count: int
    ) -> bool:
        """Record ``count`` more dead letters of one publish in its header x-death-spread.

        Return False, and log it once, if they would be too many.
        """
        letter_count = count_spread(headers, reason, count)
        if not letter_count:
            self._report_flood(source, "became too many")
            return False
        headers.pop(SPREAD, None)
        if letter_count > 1:
            headers[SPREAD] = letter_count
        return True

    def postpone(self, queue: Queue, message: Message, reason: str) -> bool:
        """Postpone a death if too many occurred in this millisecond; return True if postponed.

        Deaths inside a store transaction are postponed only if it has nothing but dead letters.
        """
        if self._in_transaction() and not self._transaction_open:
            return False
        undelivered = self._undelivered.get(queue)
        if undelivered is None or not undelivered.postponed:
            now_ms = self.vhost.counters.now_ms
            if self._deaths_ms != now_ms:
                self._deaths_ms, self._deaths = now_ms, 0
            if self._deaths < LETTERS_MAX:
                self._deaths += 1
                return False
            if undelivered is None:
                undelivered = self._get_undelivered(queue)
        queue.pending_count += 1
        message.consumer = undelivered
        undelivered.postpone(message, reason)
        return True

    def keep_undelivered(self, queue: Queue, message: Message, reason: str) -> Consumer:
        """Add an undelivered dead letter for retries; return the consumer that owns it."""
        if reason in delivery_count.DEATHS:
            queue.record_count(message, message.deliveries, 1 + delivery_count.DEATHS.index(reason))
        undelivered = self._get_undelivered(queue)
        undelivered.add(message, reason)
        return undelivered

    def restore_undelivered(self, queue: Queue, message: Message, reason: str) -> None:
        """Restore a dead letter that was undelivered when the broker stopped."""
        undelivered = self._get_undelivered(queue)
        message.consumer = undelivered
        if queue.restore_unacked(message):
            queue.unacked_count -= 1  # The message is pending instead of unacked.
            queue.unacked_bytes -= message.body_size
            queue.pending_count += 1
            undelivered.add(message, reason)

    def _get_undelivered(self, queue: Queue) -> UndeliveredLetters:
        undelivered = self._undelivered.get(queue)
        if undelivered is None:
            undelivered = self._undelivered[queue] = UndeliveredLetters(queue, self.vhost.scheduler)
        return undelivered

    def delay_retry(self, queue: Queue, message: Message) -> None:
        """Delay the next delivery of a message by its queue's retry backoff."""
        assert queue.backoff is not None
        due_ms = self.vhost.counters.now_ms + queue.backoff.delay_ms(message.deliveries)
        queue.record_count(message, message.deliveries, due_ms)
        retries = self._get_retries(queue)
        message.consumer = retries
        retries.add(message, due_ms)

    def restore_retry(self, queue: Queue, message: Message, due_ms: int) -> None:
        """Restore a delayed retry after a restart."""
        retries = self._get_retries(queue)
        message.consumer = retries
        if queue.restore_unacked(message):
            retries.add(message, due_ms)

    def _get_retries(self, queue: Queue) -> DelayedRetries:
        retries = self._retries.get(queue)
        if retries is None:
            retries = self._retries[queue] = DelayedRetries(queue, self.vhost.scheduler)
        return retries

    def _report_flood(self, source: str, cause: str) -> None:
        if (source, cause) not in self._reported_floods and len(self._reported_floods) < CYCLES_MAX:
            self._reported_floods.add((source, cause))
            log.warning(
                "vhost %r: a dead letter of queue %r is dropped because it %s; this is reported "
                "once for each queue",
                self.vhost.name,
                source,
                cause,
            )

    def _report_cycle(self, source: str, queue: str) -> None:
        if (source, queue) not in self._reported_cycles and len(self._reported_cycles) < CYCLES_MAX:
            self._reported_cycles.add((source, queue))
            log.warning(
                "vhost %r: a dead letter of queue %r returned to queue %r and is dropped; this "
                "cycle is not reported again",
                self.vhost.name,
                source,
                queue,
            )
