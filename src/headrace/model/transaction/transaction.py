# SPDX-License-Identifier: Apache-2.0
"""The work of a transaction: publishes, settlements, facts: they happen together or not at all.

A local transaction is one object that begins anew with each commit and rollback; what its client
settled stays the client's until the commit. The work of a transaction branch *owns* what was
settled in it: no session holds those messages any more, and when the branch is rolled back they
return to their queues.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import cython

from headrace.model.arguments.values import keeps_all
from headrace.model.errors import IllegalState, ResourceError
from headrace.model.queue.dispatch import Consumer
from headrace.model.transaction.publishes import TransactionPublishes

if not cython.compiled:
    from headrace.model.counters import MESSAGE_OVERHEAD as C_MESSAGE_OVERHEAD
    from headrace.model.counters import PAGED_WEIGHT as C_PAGED_WEIGHT
    from headrace.model.message import KIND_FILE as C_KIND_FILE
    from headrace.model.message import KIND_MASK as C_KIND_MASK

if TYPE_CHECKING:
    from collections.abc import Iterable

    from headrace.model.host import TransactionHost
    from headrace.model.interceptor.interception import Interception, Source
    from headrace.model.message import Message
    from headrace.model.queue.queue import Queue
    from headrace.model.vhost.publishing_ids import Number

OCTETS_MAX = 256 << 20  # What the publishes of one transaction may hold.
ITEMS_MAX = 1 << 18  # Publishes and settlements of one transaction.

ACCEPT = 0  # The message is done with.
REQUEUE = 1  # It returns to its place.
DISCARD = 2  # It is rejected for good, and dead-lettered.


class Settle(NamedTuple):
    """A delivery that gets its outcome."""

    queue: Queue
    message: Message
    outcome: int


class Transaction:
    """What a transaction will do, in order."""

    def __init__(self, vhost: TransactionHost, *, owns: bool = False) -> None:
        """With ``owns``, what is settled leaves its session at once."""
        self.vhost = vhost
        self.counters = vhost.counters
        self.owns = owns
        self.dead = False  # It cannot be committed any more: what is still added is undone at once.
        self.publishes = TransactionPublishes()
        self.counts = False  # What went wrong is noted here, instead of closing the channel.
        self.seen = 0  # Publishes that came, where they are counted,
        self.flaw = ""  # what was wrong with the first bad one,
        self.flaw_at = -1  # and which that was, from 0.
        self.settles: list[Settle] = []
        self.facts: dict[bytes, bytes | None] = {}
        self.numbers: dict[int, Number] = {}  # Of publishes that have one, by their place.
        self.interceptions: dict[int, tuple[Interception, Source]] = {}  # Likewise.
        self.octets = 0  # Of all publishes,
        self.held = 0  # and what of it counts as memory in use.
        self._holders: dict[Queue, Consumer] = {}

    def __bool__(self) -> bool:
        return bool(self.publishes or self.settles or self.facts)

    def publish(self, message: Message, queues: Iterable[Queue], persistent: bool) -> None:
        """Add a message for the queues that it was routed to.

        Raises:
            ResourceError: the transaction would become too large.
        """
        if self.dead:
            return
        kind = message.flags & C_KIND_MASK
        octets = C_MESSAGE_OVERHEAD
        if message.data is not None:
            octets += len(message.data)
        if kind >= C_KIND_FILE or message.parts is not None:
            octets += message.body_size
        self._check_room(octets)
        self.octets += octets
        if kind >= C_KIND_FILE:
            if kind == C_KIND_FILE:
                self.vhost.files.hold(message.data or b"")
            queues = [q for q in queues if not q.is_stream]
        targets = tuple(queues)
        for queue in targets:
            persistent = persistent or keeps_all(queue.arguments)
        self.publishes.add(message, targets, persistent)
        counters = self.counters
        crowded = counters.memory_used + octets > counters.memory_max
        # Where memory is short nobody could publish up to the prepare.
        if crowded and self.owns and kind < C_KIND_FILE and self.vhost.store.page_out(message):
            self.publishes.paged += 1
            octets = C_PAGED_WEIGHT
        self.held += octets
        counters.memory_used += octets

    def note(self, flaw: str) -> None:
        """One more publish came, where they are counted; ``flaw`` is what is wrong with it."""
        if flaw and self.flaw_at < 0:
            self.flaw, self.flaw_at = flaw, self.seen
        self.seen += 1

    def number(self, number: Number) -> None:
        """The next publish has a number: it happens unless it was taken before.

        Raises:
            IllegalState: the work is that of a branch, which is prepared without facts.
            ResourceError: there are too many publishers.
        """
        if self.owns:
            raise IllegalState(
                "a message with a publishing id cannot be part of a distributed transaction"
            )
        self.vhost.publishing_ids.check(number[0])
        self.numbers[len(self.publishes)] = number

    def pass_by(self, interception: Interception, source: Source) -> None:
        """The next publish is looked at when it happens."""
        self.interceptions[len(self.publishes)] = interception, source

    def settle(self, queue: Queue, message: Message, outcome: int) -> None:
        """Add the outcome of a delivery: ACCEPT, REQUEUE or DISCARD.

        Raises:
            ResourceError: the transaction would become too large.
        """
        if not self.dead:
            self._check_room(0)
        settle = Settle(queue, message, outcome)
        if self.owns:
            message.consumer = self.holder(queue)
        if not self.dead:
            self.settles.append(settle)
        elif self.owns:
            self._requeue([settle])

    def fact(self, key: bytes, value: bytes | None) -> None:
        """Add the change of a fact (:mod:`headrace.model.keyvalue`); the last one of a key counts.

        Raises:
            IllegalState: the work is that of a branch, which is prepared without facts.
            ResourceError: the fact is beyond the limits, or the transaction would become too large.
        """
        if self.owns:
            raise IllegalState("the work of a transaction branch changes no facts")
        self.vhost.facts.check(key, value)
        if key not in self.facts:
            self._check_room(0)
        self.facts[key] = value

    def require(self, settles: int) -> None:
        """Make sure that so many settlements have room.

        Raises:
            ResourceError: they have not.
        """
        if len(self.publishes) + len(self.settles) + settles > ITEMS_MAX:
            raise ResourceError(f"a transaction holds more than {ITEMS_MAX} publishes and acks")

    def holder(self, queue: Queue) -> Consumer:
        """Return what stands in ``Message.consumer`` of messages of a queue that the work owns."""
        holder = self._holders.get(queue)
        if holder is None:
            holder = self._holders[queue] = Consumer(queue, "", False)
        return holder

    def commit(self) -> int:
        """Make it happen as one transaction of the store, and begin anew.

        It is durable once the store's ``synced`` has reached what ``appended`` is afterwards.
        Return how often a queue refused one of its messages, as its overflow policy has it; of a
        branch none does, as none does once it is prepared.

        Raises:
            ResourceError: the disk is full; nothing was done.
        """
        store = self.vhost.store
        if store.full and self.publishes:
            raise ResourceError("the disk is full; nothing was committed")
        facts, numbers, interceptions = self.facts, self.numbers, self.interceptions
        refused = 0
        publishes, settles = self.take()
        publishes.bring(store)
        store.begin()
        try:
            for place, (message, queues, persistent) in enumerate(publishes):
                number = numbers.get(place) if numbers else None
                if number is not None and self.vhost.publishing_ids.knows(number):
                    continue
                alive = [queue for queue in queues if not queue.deleted]
                watched = interceptions.get(place) if interceptions else None
                if watched is not None:
                    refused += watched[0].take(
                        message, alive, persistent, number=number, source=watched[1], inside=True
                    )
                elif alive:
                    refused += self.vhost.deliver(message, alive, persistent, promised=self.owns)
                    if number is not None:
                        self.vhost.publishing_ids.note(number, True)
            self.vhost.counters.published += len(publishes) - len(
                interceptions
            )  # They count themselves.
            settle_all(settles)
            for key, value in facts.items():
                self.vhost.facts.change(key, value)
        finally:
            store.commit()
        self.let_go(publishes)
        return refused

    def forget(self) -> None:
        """Begin anew; what was settled is still its client's."""
        self.let_go(self.take()[0])

    def undo(self) -> None:
        """Begin anew; what was settled returns to its queues."""
        publishes, settles = self.take()
        publishes.abandon(self.vhost.store)
        self.let_go(publishes)
        self._requeue(settles)

    def let_go(self, publishes: TransactionPublishes) -> None:
        """Publishes that were taken are done with: whoever needs their files holds them."""
        if not publishes.files:
            return
        for message, _, _ in publishes:
            if message.flags & C_KIND_MASK == C_KIND_FILE and message.data is not None:
                self.vhost.files.release(message.data)

    def take(self) -> tuple[TransactionPublishes, list[Settle]]:
        """Begin anew, and return what there was to do."""
        taken = self.publishes, self.settles
        self.counters.memory_used -= self.held
        self.publishes, self.settles = TransactionPublishes(), []
        self.octets = self.held = 0
        self._holders = {}
        self.facts = {}
        self.numbers = {}
        self.interceptions = {}
        return taken

    def _check_room(self, octets: int) -> None:
        if self.octets + octets > OCTETS_MAX:
            raise ResourceError(f"a transaction holds more than {OCTETS_MAX} octets")
        if len(self.publishes) + len(self.settles) + len(self.facts) >= ITEMS_MAX:
            raise ResourceError(f"a transaction holds more than {ITEMS_MAX} publishes and acks")

    def _requeue(self, settles: Iterable[Settle]) -> None:
        settle_all([Settle(queue, message, REQUEUE) for queue, message, _ in settles])


def settle_all(settles: Iterable[Settle]) -> None:
    """Give deliveries their outcomes, then let their queues go on."""
    touched: dict[Queue, None] = {}
    for queue, message, outcome in settles:
        touched[queue] = None
        if outcome == ACCEPT:
            queue.settle(message)
        elif outcome == REQUEUE:
            queue.requeue(message)
        else:
            queue.discard(message)
    for queue in touched:
        queue.drain()
