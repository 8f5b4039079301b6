# SPDX-License-Identifier: Apache-2.0
"""Queues and what they see of a consumer.

Order. A message's place is its ``seq``. Arrivals are pushed on a ring, so the ring is sorted by
itself; a requeued message waits in the heap ``returned``, and the next to go is the smaller of both
heads. So a message returns to its place whatever came in meanwhile, at a cost that depends on how
many messages are out of place, never on the depth of the queue. Higher priorities have rings of
their own, made when the first such message comes.

Leaving early. A message that expires or is dropped from the middle is flagged GONE and stays in its
ring as an empty shell until it is met there, or until shells outnumber the living. One that is
acquired from the middle has a ``consumer`` and stays listed as well; when it comes back it is
listed twice, which does no harm: whichever entry is met first counts, the other is met as a shell.

Looking. A browser is shown messages where they stand. Its cursor is the last seq that it was shown,
for each level; the next one is found by bisection.

Choosing. A consumer that passes messages over (a selector, no-local) has a cursor as well, and
takes from the middle. It looks at each message once, and once more when that came back.

Cost. Nothing in here looks at more than one message or one consumer with room at a time; consumers
without room are parked outside the round until they report room again. Who chooses looks at
``LOOKS_MAX`` messages in a row, and goes on a moment later.
"""

import logging
from collections.abc import Callable
from heapq import heapify, heappop, heappush
from typing import Any

import cython

if not cython.compiled:
    from headrace.model.message import GONE as C_GONE
    from headrace.model.message import PAGED as C_PAGED
    from headrace.model.message import REDELIVERED as C_REDELIVERED
    from headrace.model.message import SCRATCH as C_SCRATCH
    from headrace.model.message import Message
    from headrace.model.ports import Store
    from headrace.model.ring import Ring
    from headrace.model.tally import MESSAGE_OVERHEAD as C_MESSAGE_OVERHEAD
    from headrace.model.tally import PAGED_WEIGHT as C_PAGED_WEIGHT
    from headrace.model.tally import Tally

from headrace.model.delivery_counts import tell as tell_count

log = logging.getLogger(__name__)

RESIDENT_MIN = 256  # Ready messages at a queue's head that are not paged out,
RESIDENT_OCTETS = 65536  # unless they are larger than this, or there are too many such queues.
RESERVATION = 65536  # How far ahead of the deliveries the journal says "may have been delivered".
EXPIRE_MAX = 16384  # Messages that expire in one go,
DEAD_LETTERS_MAX = 256  # and those that become dead letters, which takes longer.
SHELLS_MIN = 1024  # Below this many shells a ring is not swept.
LOOKS_MAX = 512  # Messages that one cursor passes over in a row,
PAGED_LOOKS = 16  # of which one that has to be fetched from the disk counts for so many,
LOOK_PAUSE_MS = 1  # and how long it is before it goes on.
PACE_ABOVE = 8192  # Ready messages in a queue with consumers, above which its publishers pause.
PACE_BELOW = 2048  # Ready messages below which they go on.
SAMPLES = 64  # Looks at each ring, for each part that a queue is to be cut into.
DEFAULT_HIGH_PRIORITY = 5  # Without x-max-priority: 0..4 are one level, 5..9 another (0-9-1/basic).

OVERFLOW_DROP_HEAD = 0
OVERFLOW_REJECT = 1
OVERFLOW_REJECT_DEAD_LETTER = 2
OVERFLOW_RING_STRICT = 3  # Drop the oldest, but refuse what comes while somebody holds a message.
OVERFLOW_SELF_DESTRUCT = 4  # Delete the queue.
OVERFLOW_TO_DISK = 5  # Have the disk only hold what is too much.


class Consumer:
    """What a queue sees of whoever takes its messages; a gateway fills in the three methods."""

    def __init__(self, queue: "Queue", tag: str, no_ack: bool) -> None:
        self.queue = queue
        self.tag = tag
        self.no_ack = no_ack
        self.exclusive = False
        self.no_local = False
        self.selective = False  # Ask ``accepts`` before each message: prefetch-size, or picky.
        self.picky = False  # May pass messages over, so it has a cursor: no-local, a selector.
        self.selector: Any = None  # The Selector of the messages that it takes.
        self.auto_close = False  # It ends when there is nothing more for it.
        self.cursor: Any = None  # How far it has looked, while it consumes and is picky.
        self.looking = False  # It has not looked at all there is, and goes on in a moment.
        self.priority = 0
        self.family = 0  # The kind of content that its ``put`` wants: see model/message.py.
        self.publisher = 0  # The number of its connection, as in Message.publisher.
        self.parked = False  # Out of the queue's round, waiting for room.
        self.browses = False  # Is shown messages without taking them.
        self.arguments: dict[str, Any] = {}

    def can(self) -> bool:
        """Tell whether one more message may be handed over now."""
        return False

    def accepts(self, message: Message) -> int:
        """Tell whether this message may come: 1 yes, 0 never, 2 not now, for want of room.

        Asked only where ``selective`` is set.
        """
        return 1

    def deliver(self, message: Message) -> None:
        """Take a message. Its data is in memory; unless ``no_ack``, it stays this consumer's."""

    def hold(self, position: int) -> None:
        """Let nothing that is delivered from now on leave before the log is durable up to here.

        So what a client has seen is known to have been delivered, whatever happens to us.
        """

    def put(
        self, d: bytes | bytearray, lo: int, address_len: int, end: int, redelivered: int
    ) -> int:
        """Take a message of class basic straight from a buffer, laid out as in Message.data.

        Only with no_ack.
        """
        return 0

    def pours(self) -> bool:
        """Whether it takes records of a stream where they were read, by ``put_record``."""
        return False

    def put_record(
        self,
        d: bytes | bytearray,
        lo: int,
        address_len: int,
        end: int,
        offset: int,
        arrived_ms: int,
    ) -> int:
        """Take a record of a stream, laid out in ``d[lo:end]`` as in Message.data."""
        return 0

    def cancelled(self) -> None:
        """The queue is gone, or will not serve this consumer any longer."""

    def looked(self) -> None:
        """This consumer, which was ``looking``, has looked at all there is."""

    def ended(self) -> None:
        """This consumer has all that it asked for; it is off its queue."""
        self.cancelled()

    def failed(self, error: Exception) -> None:
        """This consumer cannot have what it asked for; it is off its queue."""
        self.cancelled()


class Cursor:
    """How far a browser, or a consumer that chooses, has looked."""

    def __init__(self, consumer: Consumer, levels: int) -> None:
        self.consumer = consumer
        self.browses = consumer.browses  # What came back behind it is not shown again.
        self.seen = [0] * levels  # The last seq that it was shown, by level.
        self.ahead: Any = None  # Copies of entries of ``returned`` that it may still be shown.
        self.looks = 0  # In a row.


class Queue:
    """One queue: ready messages in order, and who may take them."""

    def __init__(
        self,
        name: str,
        *,
        store: Store,
        tally: Tally,
        vhost: Any = None,
        id: int = 0,  # noqa: A002 - the field has this name in every definition
        durable: bool = False,
        auto_delete: bool = False,
        exclusive_owner: object = None,
        arguments: dict[str, Any] | None = None,
    ) -> None:
        self.name = name
        self.store = store
        self.tally = tally
        self.vhost = vhost
        self.id = id
        self.id_bytes = id.to_bytes(4, "big")
        self.durable = durable
        self.auto_delete = auto_delete
        self.exclusive_owner = exclusive_owner
        self.arguments = arguments if arguments is not None else {}
        self.deleted = False
        self.realm = ""  # The access realm of the ticket that it was made with.
        self.is_stream = False
        self.is_hidden = False  # The broker's own: nobody publishes to it or binds it.
        self.access_name = name  # Who may read the queue of this name may read this one.
        # Limits; the virtual host fills them in from the arguments.
        self.max_length = -1
        self.max_length_bytes = -1
        self.overflow = OVERFLOW_DROP_HEAD
        self.message_ttl_ms = -1
        self.expires_ms = -1
        self.max_priority = 0
        self.priority_base = 0  # Priorities up to this one share the lowest level.
        self.dead_letter_exchange: str | None = None
        self.dead_letter_routing_key: str | None = None
        self.alternate_exchange: str | None = None  # For what is rejected or orphaned.
        self.insists = False  # Dead letters stay here until they have arrived.
        self.limited = False  # One of max_length and max_length_bytes is set.
        # State.
        self.ready_count = 0
        self.ready_bytes = 0
        self.unacked_count = 0
        self.held_count = 0  # Messages of prepared transactions that are meant for this queue.
        self.published = 0
        self.delivered = 0
        self.acknowledged = 0
        self.used_ms = tally.now_ms  # For x-expires.
        self.reserved = 0  # The journal says that up to here may have been delivered, durably.
        self.reserving = 0  # What it says last,
        self.reserving_at = 0  # and the log position at which that is durable.
        self.shells = 0
        self.ring: Any = None  # The lowest priority, which is all that most queues have.
        self.rings: Any = None  # The higher ones by level; [0] is unused.
        self.returned: Any = None  # (-level, seq, message)
        self.expiring: Any = None  # (deadline_ms, seq, message)
        self.consumers: Any = None
        self.active: Any = None
        self.browsers: Any = None  # Cursors.
        self.seekers: Any = None  # Those of consumers.
        self.resting: Any = None  # Consumers that have looked at all there is, during a drain.
        self.closing = 0  # Consumers that end when there is nothing more for them.
        self.waking = False  # Served at the end of this turn.
        self.turn = 0
        self.ranked = False  # Some consumer has a priority other than 0.
        self.selective = 0  # Consumers that do not take every message.
        self.exclusive_consumer: Consumer | None = None
        self.observed = False  # The virtual host wants to see each delivery.
        self.lone = False  # Every consumer is exclusive.
        self.shown_only = False  # Nobody takes from it: every consumer browses.
        self.single = False  # Only one consumer at a time gets messages (x-single-active-consumer),
        self.chosen: Consumer | None = None  # and this is the one.
        self.delivery_limit = -1  # How often a message may come back; below zero is for ever.
        self.backoff: Any = None  # A Backoff, where what comes back waits; see model.retry.
        self.waiters: Any = None  # Paced publishers.
        self.pace_above = PACE_ABOVE  # Ready messages above which publishers are paced;
        self.stopped = False  # now they are, by flow control, until its guard lets them go on.
        self.guard: Any = None  # A Guard, if there are thresholds; see model.guard.
        self.on_deadline: Callable[[Queue, int], None] | None = None
        self.view: Any = None  # A View, once somebody looked; see model.view.
        self.lanes: Any = None  # {kind: Queue}: file and stream content, see model.lanes.

    def __repr__(self) -> str:
        return f"<Queue {self.name!r} ready={self.ready_count} unacked={self.unacked_count}>"

    # --- Arrivals ---------------------------------------------------------------------------

    def taker(self) -> Consumer | None:
        """Return a consumer that may have the next arrival at once, if nothing waits before it."""
        if self.ready_count or self.active is None or self.selective:
            return None
        return self.pick()

    def takes_at_once(self) -> bool:
        """Tell whether a consumer may have the next arrival at once."""
        return self.taker() is not None

    def refuses(self, body_size: int) -> bool:
        """Tell whether the overflow policy turns the next message away."""
        if (
            not self.limited
            or self.overflow == OVERFLOW_DROP_HEAD
            or self.overflow == OVERFLOW_TO_DISK
        ):
            return False
        if self.overflow == OVERFLOW_RING_STRICT:
            held = self.unacked_count
            if not held or self.max_length < 0:
                return held > 0 and self.too_long(1, body_size)
            return self.ready_count + held >= self.max_length or self.too_long(1, body_size)
        if self.max_length >= 0 and self.ready_count >= self.max_length:
            return True
        return self.max_length_bytes >= 0 and self.ready_bytes + body_size > self.max_length_bytes

    def will_refuse(self, body_size: int) -> bool:
        """Tell whether the next message is turned away: no room, and nobody takes it at once."""
        return self.limited and self.refuses(body_size) and not self.takes_at_once()

    def offer(self, message: Message) -> int:
        """Take a message that was routed here; 1 when the overflow policy refused it, else 0."""
        if self.limited and self.will_refuse(message.body_size):
            self.turn_away(message)
            return 1
        self.published += 1
        if self.message_ttl_ms >= 0:
            self.limit_life(message, self.tally.now_ms)
        self.tally.memory_used += self.weight(message)
        if self.ready_count == 0 and self.active is not None and not self.selective:
            consumer = self.pick()
            if consumer is not None:
                self.hand(consumer, message)
                return 0
        self.push(message)
        if message.deadline_ms:
            self.watch(message)
        if self.limited:
            self.keep_limits(message)
        if self.selective:
            self.drain()
        return 0

    def turn_away(self, message: Message) -> None:
        """Let go of an arrival that the overflow policy refuses."""
        if self.overflow == OVERFLOW_REJECT_DEAD_LETTER:
            self.dead_letter(message, "maxlen")
        elif self.overflow == OVERFLOW_SELF_DESTRUCT and not self.deleted:
            log.warning("queue %r: it is full, and deleted, as its policy has it", self.name)
            self.vhost.destruct(self)
        if message.position and self.deleted:
            self.store.forget(self.id, message.position)
        elif message.position:
            self.store.settle(self.id, message.seq, message.position)

    def admit(self, message: Message, promised: bool = False) -> None:
        """Take an arrival that has a place already, from when its transaction was prepared.

        With ``promised`` there was room for it then, and it is not turned away now.
        """
        if not promised and self.will_refuse(message.body_size):
            self.turn_away(message)
            return
        self.published += 1
        if self.message_ttl_ms >= 0:
            self.limit_life(message, self.tally.now_ms)
        self.tally.memory_used += self.weight(message)
        if self.is_newest(message):
            self.push(message)
        else:
            self.put_back(message)
        if message.deadline_ms:
            self.watch(message)
        self.drain()

    def is_newest(self, message: Message) -> bool:
        """Tell whether a message's place is behind all that wait in the lowest level's ring."""
        if self.level(message.priority) != 0:
            return False
        ring = self.ring
        if ring is None or ring.count == 0:
            return True
        last = ring.at(ring.count - 1)
        return last is not None and last.seq < message.seq

    def give(self, consumer: Consumer, message: Message) -> None:
        """Take a message for the consumer that :meth:`taker` named just now."""
        self.published += 1
        if self.message_ttl_ms >= 0:
            self.limit_life(message, self.tally.now_ms)
        self.tally.memory_used += self.weight(message)
        self.hand(consumer, message)

    def get(self, getter: Consumer) -> Message | None:
        """Take the first message for ``basic.get``; unless ``no_ack`` it is the getter's now.

        With ``no_ack`` the caller calls :meth:`leave` once it has written the message.
        """
        message = self.take()
        if message is None:
            return None
        self.delivered += 1
        if self.observed:
            self.vhost.delivering(self, getter, message)
        if message.position and message.seq + (RESERVATION >> 1) > self.reserved:
            self.reserve_for(getter, message.seq)
        if not getter.no_ack:
            self.unacked_count += 1
            message.consumer = getter
        return message

    def limit_life(self, message: Message, arrived_ms: int) -> None:
        """Apply the queue's time to live to a message that arrived at ``arrived_ms``."""
        deadline = arrived_ms + self.message_ttl_ms
        if not message.deadline_ms or deadline < message.deadline_ms:
            message.deadline_ms = deadline

    def limit_lives(self, first: int, last: int, arrived_ms: int, octets_max: int) -> int:
        """Apply the queue's time to live to ready messages at the positions ``[first, last)``.

        They count as having arrived at ``arrived_ms``. Return the position to go on with when
        there were more than about ``octets_max`` octets of them, else ``last``.
        """
        message: Message
        found = self.peek(first, last, octets_max, [])
        for message in found:
            self.limit_life(message, arrived_ms)
            self.watch(message)
        if not found:
            return last
        message = found[len(found) - 1]
        return message.seq + 1

    def restore(self, message: Message, arrived_ms: int) -> None:
        """Take back a message that the store recovered; in order of seq, before any consumer."""
        if self.message_ttl_ms >= 0:
            self.limit_life(message, arrived_ms)
        self.tally.memory_used += self.weight(message)
        self.push(message)
        if message.deadline_ms:
            self.watch(message)

    def restore_held(self, message: Message) -> bool:
        """Take back a recovered message that ``message.consumer`` holds; false if it is lost."""
        self.tally.memory_used += self.weight(message)
        self.unacked_count += 1
        return True

    def push(self, message: Message) -> None:
        """Append to the ring of the message's level; page it out when memory is short."""
        level = self.level(message.priority)
        if level == 0:
            ring = self.ring
            if ring is None:
                ring = self.ring = Ring()
        else:
            if self.rings is None:
                self.rings = [None] * (self.max_priority + 1 if self.max_priority else 2)
            ring = self.rings[level]
            if ring is None:
                ring = Ring()
                self.rings[level] = ring
        ring.push(message)
        self.ready_count += 1
        self.ready_bytes += message.body_size
        if self.browsers is not None:
            self.wake()
        if self.tally.memory_used > self.tally.memory_max and (
            self.ready_count > RESIDENT_MIN
            or self.ready_bytes > RESIDENT_OCTETS
            or self.tally.memory_used > self.tally.memory_max + (self.tally.memory_max >> 3)
        ):
            self.page_out(message)

    def page_out(self, message: Message) -> None:
        """Move a message's data to the disk, if there is one."""
        if not message.flags & C_PAGED and self.store.page_out(message):
            self.tally.memory_used -= message.body_size + C_MESSAGE_OVERHEAD - C_PAGED_WEIGHT

    def weight(self, message: Message) -> int:
        """Octets of memory that a message is counted with."""
        if message.flags & C_PAGED:
            return C_PAGED_WEIGHT
        return message.body_size + C_MESSAGE_OVERHEAD

    def level(self, priority: int) -> int:
        """Map a priority to the queue's levels."""
        if self.max_priority:
            if priority <= self.priority_base:
                return 0
            return min(self.max_priority, priority - self.priority_base)
        return 1 if priority >= DEFAULT_HIGH_PRIORITY else 0

    def keep_limits(self, message: Message | None) -> None:
        """Do what the limits ask for after ``message`` came, or with None after some came back."""
        if self.overflow == OVERFLOW_TO_DISK:
            if message is not None and message.consumer is None and self.too_long(0, 0):
                self.page_out(message)
        elif (
            message is not None
            or self.overflow == OVERFLOW_DROP_HEAD
            or self.overflow == OVERFLOW_RING_STRICT
        ):
            self.shorten()
        if self.guard is not None:
            self.guard.look()

    def too_long(self, more: int, octets: int) -> bool:
        """Tell whether the limits do not allow so many more ready messages and octets."""
        if self.max_length >= 0 and self.ready_count + more > self.max_length:
            return True
        return self.max_length_bytes >= 0 and self.ready_bytes + octets > self.max_length_bytes

    def shorten(self) -> None:
        """Drop from the head what exceeds the length limits (x-overflow drop-head)."""
        while self.ready_count and self.too_long(0, 0):
            message = self.next_ready()
            if message is None:
                return
            self.die(message, "maxlen")

    # --- Departures -------------------------------------------------------------------------

    def next_ready(self) -> Message | None:
        """Remove and return the first ready message; its data may be paged out."""
        message: Message | None
        while True:
            if self.returned is None and self.rings is None:
                ring = self.ring
                if ring is None or ring.count == 0:
                    return None
                message = ring.pop()
            else:
                message = self.next_by_rank()
                if message is None:
                    return None
            if message.flags & C_GONE or message.consumer is not None:
                self.shells -= 1
                continue
            self.ready_count -= 1
            self.ready_bytes -= message.body_size
            return message

    def next_by_rank(self) -> Message | None:
        """Remove and return the first of all rings and the heap, shells included."""
        message: Message | None
        ring = None
        level = 0
        if self.rings is not None:
            level = len(self.rings) - 1
            while level > 0:
                ring = self.rings[level]
                if ring is not None and ring.count:
                    break
                level -= 1
        if level == 0:
            ring = self.ring
            if ring is not None and ring.count == 0:
                ring = None
        if self.returned is not None:
            back, seq, message = self.returned[0]
            first = None if ring is None else ring.at(0)
            if first is None or -back > level or (-back == level and seq < first.seq):
                heappop(self.returned)
                if not self.returned:
                    self.returned = None
                return message
        if ring is None:
            return None
        message = ring.pop()
        return message

    def take(self) -> Message | None:
        """Remove the first ready message that is still alive and bring its data into memory."""
        while True:
            message = self.next_ready()
            if message is None:
                return None
            if message.deadline_ms and message.deadline_ms <= self.tally.now_ms:
                self.die(message, "expired")
                continue
            if message.flags & C_PAGED and not self.bring(message):
                continue
            return message

    def bring(self, message: Message) -> bool:
        """Load a paged message; a message that cannot be read any more is dropped, and logged."""
        before = self.weight(message)
        try:
            self.store.load(message)
        except OSError as error:
            log.error(
                "queue %r: message %d cannot be read and is dropped: %s",
                self.name,
                message.seq,
                error,
            )
            self.leave(message)
            return False
        self.tally.memory_used += self.weight(message) - before
        if message.deliveries and self.delivery_limit >= 0:
            tell_count(self, message)
        return True

    def pick(self) -> Consumer | None:
        """Return the consumer whose turn it is among those with room; park those without."""
        if self.ranked:
            return self.pick_by_rank()
        consumer: Consumer
        active = self.active
        n = len(active)
        while n:
            if self.turn >= n:
                self.turn = 0
            consumer = active[self.turn]
            if consumer.can():
                self.turn += 1
                return consumer
            consumer.parked = True
            del active[self.turn]
            n -= 1
        return None

    def pick_by_rank(self) -> Consumer | None:
        """Like :meth:`pick`, where a higher x-priority goes first while it has room."""
        consumer: Consumer
        active = self.active
        while active:
            last = 1
            while last < len(active) and active[last].priority == active[0].priority:
                last += 1
            if self.turn >= last:
                self.turn = 0
            consumer = active[self.turn]
            if consumer.can():
                self.turn += 1
                return consumer
            consumer.parked = True
            del active[self.turn]
        return None

    def hand(self, consumer: Consumer, message: Message) -> None:
        """Hand a message to a consumer with room."""
        self.delivered += 1
        if self.observed:
            self.vhost.delivering(self, consumer, message)
        if message.position and message.seq + (RESERVATION >> 1) > self.reserved:
            self.reserve_for(consumer, message.seq)
        if consumer.no_ack:
            consumer.deliver(message)
            self.leave(message)
            return
        self.unacked_count += 1
        message.consumer = consumer
        consumer.deliver(message)
        if self.tally.memory_used > self.tally.memory_max and message.consumer is not None:
            self.page_out(message)

    def reserve(self, seq: int) -> None:
        """Let the journal say, ahead of time, that messages up to beyond ``seq`` were delivered."""
        if self.durable:
            self.reserving = seq + RESERVATION
            self.store.delivered(self.id, self.reserving)
            self.reserving_at = self.store.appended

    def reserve_for(self, consumer: Consumer, seq: int) -> None:
        """Reserve in time, so that mostly what is handed out next is covered durably already.

        Where it is not, the consumer holds it back until it is.
        """
        if not self.durable:
            return
        if self.reserving > self.reserved and self.store.synced >= self.reserving_at:
            self.reserved = self.reserving
        if seq + (RESERVATION >> 1) > self.reserving:
            self.reserve(seq)
        if seq > self.reserved:
            consumer.hold(self.reserving_at)

    def drain(self) -> None:
        """Hand out ready messages while a consumer has room."""
        if self.expiring is not None:
            self.expire(self.tally.now_ms)  # First: dead letters may take room that is here now.
        if self.active is not None:
            if self.selective:
                self.drain_selective()
            else:
                while self.ready_count and self.active:
                    consumer = self.pick()
                    if consumer is None:
                        break
                    message = self.take()
                    if message is None:
                        break
                    self.hand(consumer, message)
        if self.limited:
            self.keep_limits(None)  # What came back may be more than there is room for.
        if self.waiters is not None:
            self.release_waiters()
        if self.browsers is not None:
            self.show_all()

    def drain_selective(self) -> None:
        """Hand out ready messages where some consumers do not take every message."""
        consumer: Consumer | None
        self.resting = None
        while self.ready_count and self.active:
            consumer = self.pick()
            if consumer is None:
                break
            if consumer.cursor is not None:
                message = self.seek(consumer)
                if message is not None:
                    self.ready_count -= 1
                    self.ready_bytes -= message.body_size
                    self.shells += 1
                    self.hand(consumer, message)
                continue
            message = self.take()
            if message is None:
                break
            consumer = self.choose(consumer, message)
            if consumer is None:
                self.put_back(message)
            else:
                self.hand(consumer, message)
        if self.resting is not None:
            for consumer in self.resting:
                if consumer.parked and consumer.cursor is not None and self.active is not None:
                    self.enlist(consumer)
            self.resting = None
        if self.closing:
            self.end_closing()
        if self.shells > SHELLS_MIN and self.shells > self.ready_count:
            self.sweep()

    def choose(self, consumer: Consumer, message: Message) -> Consumer | None:
        """Return the consumer whose turn it is, or another with room, that takes this message.

        A consumer that lacks room for this message is parked: it must not be overtaken by smaller
        ones for ever. Those that choose come for theirs by themselves.
        """
        other: Consumer
        for other in [consumer, *self.active]:
            if other.parked or other.cursor is not None:
                continue
            if not other.selective:
                if other is consumer or other.can():
                    return other
                continue
            verdict = other.accepts(message)
            if verdict == 1 and (other is consumer or other.can()):
                return other
            if verdict == 0:
                self.make_picky(other)
            if verdict == 2:
                other.parked = True
                self.active.remove(other)
        return None

    def seek(self, consumer: Consumer) -> Message | None:
        """Return the next message that a consumer with a cursor takes, in memory, where it stands.

        Without one the consumer leaves the round: parked for want of room, or resting.
        """
        cursor = consumer.cursor
        while True:
            message = self.following(cursor)
            if message is None or cursor.looks >= LOOKS_MAX:
                self.rest(cursor, message is None)
                consumer.parked = True
                self.active.remove(consumer)
                if self.resting is None:
                    self.resting = []
                self.resting.append(consumer)
                return None
            if message.deadline_ms and message.deadline_ms <= self.tally.now_ms:
                self.pass_over(cursor, message)  # It expires soon.
                continue
            paged = message.flags & C_PAGED
            if paged and not self.bring(message):
                self.ready_count -= 1
                self.ready_bytes -= message.body_size
                self.shells += 1
                continue
            cursor.looks += PAGED_LOOKS if paged else 1
            verdict = self.judge(consumer, message)
            if verdict == 1:
                self.pass_over(cursor, message)
                cursor.looks = 0
                return message
            if paged:
                self.page_out(message)
            if verdict == 2:
                self.rest(cursor, True)
                consumer.parked = True
                self.active.remove(consumer)
                return None
            self.pass_over(cursor, message)

    def rest(self, cursor: Cursor, complete: bool) -> None:
        """A cursor has looked at all there is, if it is ``complete``; or enough for this turn."""
        cursor.looks = 0
        consumer = cursor.consumer
        if not complete:
            consumer.looking = True
            if self.vhost is None:
                self.wake()
            else:
                when_ms = self.tally.now_ms + LOOK_PAUSE_MS
                self.vhost.agenda.put(("look", self), when_ms, self.go_on)
        elif consumer.looking:
            consumer.looking = False
            consumer.looked()

    def judge(self, consumer: Consumer, message: Message) -> int:
        """Tell whether a message is one that a consumer wants: as :meth:`Consumer.accepts`."""
        if consumer.no_local and consumer.publisher == message.publisher:
            return 0
        if consumer.selector is not None and not self.selects(consumer.selector, message):
            return 0
        return consumer.accepts(message)

    def selects(self, selector: Any, message: Message) -> bool:
        """Tell whether a selector is true of a message in memory."""
        if self.vhost is None or self.vhost.contents is None:
            return False
        return bool(selector.matches(self.vhost.contents.values(message)))

    def pass_over(self, cursor: Cursor, message: Message) -> None:
        """A cursor has looked at the message that :meth:`following` gave it."""
        level = self.level(message.priority)
        if message.seq > cursor.seen[level]:
            cursor.seen[level] = message.seq
        if cursor.ahead and cursor.ahead[0][2] is message:
            heappop(cursor.ahead)

    def go_on(self, now_ms: int) -> int:
        """Go on looking for what somebody wants."""
        self.drain()
        for cursor in list(self.seekers or ()):
            if cursor.consumer.looking and not cursor.consumer.can():
                self.rest(cursor, True)  # It has all that it has room for.
        return 0

    def end_closing(self) -> None:
        """End the consumers that wanted what there is, and have it."""
        consumer: Consumer
        for consumer in list(self.consumers or ()):
            if consumer.auto_close and self.following(consumer.cursor) is None:
                self.remove_consumer(consumer)
                consumer.ended()

    def settle(self, message: Message) -> None:
        """A consumer accepted the message: it is done with."""
        self.unacked_count -= 1
        self.acknowledged += 1
        self.leave(message)

    def requeue(self, message: Message) -> None:
        """A consumer gives a message back: it returns to its place, marked redelivered.

        The caller drains the queue afterwards, once for all that it returns.
        """
        message.flags |= C_REDELIVERED
        if message.deliveries < 255:
            message.deliveries += 1
        if 0 <= self.delivery_limit < message.deliveries and not self.deleted:
            self.unacked_count -= 1
            message.consumer = None
            self.die(message, "delivery_limit")
            return
        if self.delivery_limit >= 0:
            tell_count(self, message)
        if self.backoff is not None and self.backoff.failed and not self.deleted:
            self.vhost.letters.put_off(self, message)
        else:
            self.come_back(message)

    def release(self, message: Message) -> None:
        """A consumer gives a message back that it has not tried: it returns to its place."""
        if self.backoff is not None and self.backoff.returned and not self.deleted:
            self.vhost.letters.put_off(self, message)
        else:
            self.come_back(message)

    def come_back(self, message: Message) -> None:
        """A message that was held returns to its place, or goes when there is no queue."""
        self.unacked_count -= 1
        message.consumer = None
        if self.deleted:
            if self.alternate_exchange is not None:
                self.dead_letter(message, "orphaned")
            self.leave(message)
            return
        self.put_back(message)
        if message.deadline_ms:
            self.watch(message)

    def redeliver(self, message: Message) -> None:
        """Hand a message once more to the consumer that already holds it (recover, requeue 0)."""
        message.flags |= C_REDELIVERED
        if message.flags & C_PAGED and not self.bring(message):
            self.unacked_count -= 1
            return
        message.consumer.deliver(message)

    def put_back(self, message: Message) -> None:
        """Return a message to its place among the ready ones."""
        if self.returned is None:
            self.returned = []
        entry = (-self.level(message.priority), message.seq, message)
        heappush(self.returned, entry)
        self.ready_count += 1
        self.ready_bytes += message.body_size
        if self.browsers is not None or self.seekers is not None:
            self.look_back(entry)

    def discard(self, message: Message) -> None:
        """A consumer rejected the message for good: dead-letter it, then forget it."""
        self.unacked_count -= 1
        message.consumer = None
        if self.deleted:
            self.leave(message)
        else:
            self.die(message, "rejected")

    def unconvertible(self, message: Message, consumer: Consumer, text: str) -> None:
        """A consumer cannot say a message in its version: dead-letter it with the reason.

        Called from :meth:`Consumer.deliver`; a browser passes such a message over.
        """
        log.warning("queue %r: message %d is not delivered: %s", self.name, message.seq, text)
        if consumer.browses:
            return
        if message.consumer is not None:
            self.unacked_count -= 1
            message.consumer = None
        if self.vhost is not None and not self.deleted:
            self.vhost.letters.dead_letter(message, self, "unconvertible", text)
        self.leave(message)

    def die(self, message: Message, reason: str) -> None:
        """Let go of a message that becomes a dead letter, at once or once that succeeds."""
        if self.dead_letter(message, reason):
            self.leave(message)
        elif not message.flags & C_GONE:
            self.held_count += 1
            message.consumer = self.vhost.letters.keep(self, message, reason)

    def retry_letter(self, message: Message, reason: str) -> bool:
        """Try to deliver a dead letter that was kept; tell whether it is gone."""
        if not self.dead_letter(message, reason):
            return False
        self.leave(message)
        return True

    def dead_letter(self, message: Message, reason: str) -> bool:
        """Pass a message on to the dead-letter or the alternate exchange, if the queue has one.

        False when the queue's dead letters are to arrive, and this one does not yet.
        """
        if self.dead_letter_exchange is None and self.alternate_exchange is None:
            return True
        if self.vhost is None:
            return True
        if message.flags & C_PAGED and not self.bring(message):
            return True
        arrived: bool = self.vhost.letters.dead_letter(message, self, reason)
        return arrived or not self.insists

    def leave(self, message: Message) -> None:
        """Let go of a message for good: in memory, in the journal, in the scratch log."""
        if message.flags & C_GONE:
            return
        self.tally.memory_used -= self.weight(message)
        message.flags |= C_GONE
        if message.position:
            if message.flags & C_SCRATCH:
                self.store.release(message)
            elif self.deleted:
                self.store.forget(self.id, message.position)
            else:
                self.store.settle(self.id, message.seq, message.position)
        message.data = None
        message.parts = None
        message.consumer = None

    # --- Browsers ---------------------------------------------------------------------------

    def add_browser(self, consumer: Consumer) -> None:
        """Show a consumer all that is ready and all that comes; the caller drains the queue."""
        if consumer.no_local or consumer.selector is not None:
            consumer.picky = True
        if self.browsers is None:
            self.browsers = []
        self.browsers.append(self.new_cursor(consumer))
        if consumer.exclusive:
            self.exclusive_consumer = consumer

    def new_cursor(self, consumer: Consumer) -> Cursor:
        """Return a cursor before all that is ready."""
        cursor = Cursor(consumer, self.max_priority + 1 if self.max_priority else 2)
        if self.returned is not None:
            cursor.ahead = list(self.returned)
        return cursor

    def make_picky(self, consumer: Consumer) -> None:
        """Let a consumer choose from now on; it looks at all that is ready."""
        consumer.picky = True
        if consumer.cursor is not None or self.is_stream or consumer.browses:
            return
        if self.consumers is None or consumer not in self.consumers:
            return
        if not consumer.selective:
            consumer.selective = True
            self.selective += 1
        consumer.cursor = self.new_cursor(consumer)
        if self.seekers is None:
            self.seekers = []
        self.seekers.append(consumer.cursor)

    def browse_from(self, consumer: Consumer, position: int) -> None:
        """Show a browser nothing before a position."""
        cursor: Cursor
        for cursor in self.browsers:
            if cursor.consumer is consumer and position > 0:
                cursor.seen = [position - 1] * len(cursor.seen)

    def remove_browser(self, consumer: Consumer) -> None:
        """Show a consumer nothing more."""
        consumer.parked = False
        if self.vhost is not None and consumer.browses:
            self.vhost.consumer_removed(consumer)
        if self.browsers is not None:
            self.browsers = [c for c in self.browsers if c.consumer is not consumer] or None
        if consumer is self.exclusive_consumer:
            self.exclusive_consumer = None
        self.used_ms = self.tally.now_ms

    def wake(self) -> None:
        """Have the queue drained at the end of this turn."""
        if not self.waking:
            self.waking = True
            self.tally.waking.append(self)

    def look_back(self, entry: tuple[int, int, Message]) -> None:
        """A message returned to its place: let those browsers know that are still before it."""
        cursor: Cursor
        if self.seekers is not None:
            for cursor in self.seekers:
                self.foresee(cursor, entry)
        if self.browsers is not None:
            for cursor in self.browsers:
                if entry[1] > cursor.seen[-entry[0]]:
                    self.foresee(cursor, entry)
            self.wake()

    def foresee(self, cursor: Cursor, entry: tuple[int, int, Message]) -> None:
        """A cursor is to look at a message that returned to its place."""
        if cursor.ahead is None:
            cursor.ahead = []
        elif len(cursor.ahead) > 2 * self.ready_count + SHELLS_MIN:
            kept = {
                e[1]: e for e in cursor.ahead if not e[2].flags & C_GONE and e[2].consumer is None
            }
            cursor.ahead = list(kept.values())
            heapify(cursor.ahead)
        heappush(cursor.ahead, entry)

    def show_all(self) -> None:
        """Show every browser with room what it has not seen."""
        self.waking = False
        cursor: Cursor
        for cursor in list(self.browsers):
            self.show(cursor)

    def show(self, cursor: Cursor) -> None:
        """Show one browser what it has not seen, while it has room."""
        consumer = cursor.consumer
        while not self.deleted:
            if not consumer.can():
                consumer.parked = True
                self.rest(cursor, True)
                return
            message = self.following(cursor)
            if message is None:
                self.rest(cursor, True)
                if consumer.auto_close:
                    self.remove_browser(consumer)
                    consumer.ended()
                return
            paged = message.flags & C_PAGED
            if paged and not self.bring(message):
                self.ready_count -= 1
                self.ready_bytes -= message.body_size
                self.shells += 1
                continue
            verdict = 1
            if consumer.selective or consumer.picky:
                verdict = self.judge(consumer, message)
                if verdict == 2:
                    self.rest(cursor, True)
                    return  # There will be room for it.
            self.pass_over(cursor, message)
            if verdict == 0:
                if paged:
                    self.page_out(message)
                cursor.looks += PAGED_LOOKS if paged else 1
                if cursor.looks >= LOOKS_MAX:
                    self.rest(cursor, False)
                    return
                continue
            cursor.looks = 0
            self.delivered += 1
            if consumer.queue is self:
                consumer.deliver(message)
            else:
                consumer.queue.present(consumer, message)
            if self.tally.memory_used > self.tally.memory_max:
                self.page_out(message)

    def present(self, consumer: Consumer, message: Message) -> None:
        """Show a message of another queue to a consumer of this one."""
        consumer.deliver(message)

    def following(self, cursor: Cursor) -> Message | None:
        """Return the next ready message that a browser has not seen."""
        ahead = cursor.ahead
        level = len(cursor.seen)
        while level:
            level -= 1
            seen = cursor.seen[level]
            found: Message | None = None
            ring = self.ring if level == 0 else None
            if level and self.rings is not None:
                ring = self.rings[level]
            if ring is not None and ring.count:
                at = ring.after(seen)
                while at < ring.count:
                    message = ring.at(at)
                    if not message.flags & C_GONE and message.consumer is None:
                        found = message
                        break
                    seen = message.seq  # Not to be passed again.
                    at += 1
            while ahead:
                back, seq, message = ahead[0]
                if -back < level:
                    break
                ready = not message.flags & C_GONE and message.consumer is None
                fresh = not cursor.browses or seq > cursor.seen[level]
                if -back == level and fresh and ready:
                    if found is None or seq < found.seq:
                        found = message
                    break
                heappop(ahead)
            if found is not None:
                return found
            cursor.seen[level] = seen
        return None

    def peek(
        self, first: int, last: int, octets_max: int, returned: list[Message]
    ) -> list[Message]:
        """Return ready messages at the positions ``[first, last)``, in order of these.

        At least one, if there is one, and about ``octets_max`` octets at most. ``returned`` are
        those of the messages that came back, in order, which are looked at as well.
        """
        found: list[Message] = []
        limit = last
        level = 0
        while (self.rings is not None and level < len(self.rings)) or level == 0:
            ring = self.ring if level == 0 else self.rings[level]
            level += 1
            if ring is None or not ring.count:
                continue
            octets = 0
            at = ring.after(first - 1) if first else 0
            while at < ring.count:
                message = ring.at(at)
                at += 1
                if message.seq >= limit:
                    break
                if message.flags & C_GONE or message.consumer is not None:
                    continue
                if octets >= octets_max:
                    limit = message.seq
                    break
                octets += message.body_size + C_MESSAGE_OVERHEAD
                found.append(message)
        for message in returned:
            if message.seq >= limit:
                break
            if message.seq >= first and not message.flags & C_GONE and message.consumer is None:
                found.append(message)
        if level == 1 and not returned:
            return found
        by_seq = {message.seq: message for message in found if message.seq < limit}
        return [by_seq[seq] for seq in sorted(by_seq)]

    def returned_within(self, first: int, last: int) -> list[Message]:
        """Return the messages that came back and wait at ``[first, last)``, in order."""
        returned = [entry for entry in self.returned or () if first <= entry[1] < last]
        by_seq = {entry[1]: entry[2] for entry in returned}  # Some are listed twice.
        return [by_seq[seq] for seq in sorted(by_seq)]

    def position_of_first(self) -> int:
        """Return the lowest position at which a message may be ready; the next one of all when
        there is none.
        """
        first = self.tally.next_seq
        for ring in [self.ring, *(self.rings or ())]:
            if ring is not None and ring.count and ring.at(0).seq < first:
                first = ring.at(0).seq
        for _, seq, _ in self.returned or ():
            if seq < first:
                first = seq
        return first

    def positions(self, parts: int) -> list[int]:
        """Return positions that cut what is ready into about equal parts: the inner bounds."""
        samples: list[tuple[int, int]] = []
        for ring in [self.ring, *(self.rings or ())]:
            if ring is None or not ring.count:
                continue
            step = max(1, ring.count // (parts * SAMPLES))
            samples += [(ring.at(at).seq, step) for at in range(0, ring.count, step)]
        samples += [(entry[1], 1) for entry in self.returned or ()]
        samples.sort()
        total = sum([weight for _, weight in samples])
        bounds: list[int] = []
        passed = 0
        for seq, weight in samples:
            if passed * parts >= total * (len(bounds) + 1):
                bounds.append(seq)
                if len(bounds) == parts - 1:
                    break
            passed += weight
        return bounds

    def acquire(self, message: Message, consumer: Consumer) -> bool:
        """Take a ready message from wherever it stands; False when another was faster."""
        if self.deleted or message.flags & C_GONE or message.consumer is not None:
            return False
        if self.shown_only:
            return False
        if message.deadline_ms and message.deadline_ms <= self.tally.now_ms:
            return False
        if message.position and message.seq + (RESERVATION >> 1) > self.reserved:
            self.reserve_for(consumer, message.seq)
        return self.withdraw(message, consumer)

    def withdraw(self, message: Message, holder: Consumer) -> bool:
        """As :meth:`acquire`, for one who settles or releases it before anybody sees it."""
        if self.deleted or message.flags & C_GONE or message.consumer is not None:
            return False
        message.consumer = holder
        self.ready_count -= 1
        self.ready_bytes -= message.body_size
        self.shells += 1
        self.unacked_count += 1
        return True

    # --- Time -------------------------------------------------------------------------------

    def watch(self, message: Message) -> None:
        """Have the message expire on time wherever it stands in the queue."""
        if self.expiring is None:
            self.expiring = []
        elif len(self.expiring) > 2 * self.ready_count + SHELLS_MIN:
            self.expiring = [entry for entry in self.expiring if not entry[2].flags & C_GONE]
            heapify(self.expiring)
        heappush(self.expiring, (message.deadline_ms, message.seq, message))
        if self.on_deadline is not None and self.expiring[0][2] is message:
            self.on_deadline(self, message.deadline_ms)

    def expire(self, now_ms: int) -> int:
        """Drop and dead-letter what is due; return the next deadline, 0 when there is none.

        So that nobody else has to wait long, some of what is due may be left for the next call.
        """
        deadline: int
        following = 0
        budget = EXPIRE_MAX if self.dead_letter_exchange is None else DEAD_LETTERS_MAX
        while self.expiring:
            deadline, _, message = self.expiring[0]
            gone = message.flags & C_GONE or message.consumer is not None
            if not gone and (deadline > now_ms or budget == 0):
                following = deadline
                break
            heappop(self.expiring)
            if gone:
                continue
            budget -= 1
            self.ready_count -= 1
            self.ready_bytes -= message.body_size
            self.shells += 1
            self.die(message, "expired")
        if following == 0:
            self.expiring = None
        if self.shells > SHELLS_MIN and self.shells > self.ready_count:
            self.sweep()
        return following

    def sweep(self) -> None:
        """Rebuild the rings without shells."""
        self.ring = self.swept(self.ring)
        if self.rings is not None:
            self.rings = [self.swept(ring) for ring in self.rings]
        if self.returned is not None:
            kept = {e[1]: e for e in self.returned if not self.is_shell(e[2])}
            self.returned = list(kept.values()) or None
            if self.returned is not None:
                heapify(self.returned)
        self.shells = 0

    def is_shell(self, message: Message) -> bool:
        """Tell whether an entry of ``returned`` stands for nothing."""
        if message.flags & C_GONE or message.consumer is not None:
            return True
        level = self.level(message.priority)
        ring = self.ring if level == 0 else None
        if level and self.rings is not None:
            ring = self.rings[level]
        if ring is None or not ring.count:
            return False
        at = ring.after(message.seq - 1)
        return at < ring.count and ring.at(at) is message

    def swept(self, ring: Any) -> Any:
        """Return a ring with the living messages of another."""
        if ring is None:
            return None
        fresh = Ring()
        while ring.count:
            message = ring.pop()
            if not message.flags & C_GONE and message.consumer is None:
                fresh.push(message)
        return fresh

    # --- Consumers --------------------------------------------------------------------------

    def message_count(self) -> int:
        """How many messages a declare reports: the ready ones, of every class."""
        if self.lanes is not None:
            return self.ready_count + self.lanes_ready()
        return self.ready_count

    def lanes_ready(self) -> int:
        """How many ready messages of the classes file and stream there are."""
        lane: Queue
        count = 0
        if self.lanes is not None:
            for lane in self.lanes.values():
                count += lane.ready_count
        return count

    def consumer_count(self) -> int:
        """How many consumers there are, of every class."""
        lane: Queue
        count = 0 if self.consumers is None else len(self.consumers)
        if self.lanes is not None:
            for lane in self.lanes.values():
                count += lane.consumer_count()
        return count if self.browsers is None else count + len(self.browsers)

    def add_consumer(self, consumer: Consumer) -> None:
        """Let a consumer take part; the caller drains the queue afterwards."""
        if self.vhost is not None:
            self.vhost.consumer_added(consumer)
        if consumer.browses:
            self.add_browser(consumer)
            return
        if self.consumers is None:
            self.consumers = []
            self.active = []
        self.consumers.append(consumer)
        if consumer.exclusive or self.lone:
            self.exclusive_consumer = consumer
        if consumer.selective:
            self.selective += 1
        if consumer.picky or consumer.no_local or consumer.selector is not None:
            self.make_picky(consumer)
        if consumer.auto_close and not self.is_stream:
            self.make_picky(consumer)
            self.closing += 1
        if consumer.priority:
            self.ranked = True
        if self.single and self.chosen is None:
            self.chosen = consumer
        self.enlist(consumer)
        if self.durable and not self.reserving:
            self.reserve(self.tally.next_seq)

    def enlist(self, consumer: Consumer) -> None:
        """Put a consumer in the round, behind its equals."""
        if self.single and consumer is not self.chosen:
            consumer.parked = True
            return
        consumer.parked = False
        if not self.ranked:
            self.active.append(consumer)
            return
        at = len(self.active)
        while at and self.active[at - 1].priority < consumer.priority:
            at -= 1
        self.active.insert(at, consumer)

    def unpark(self, consumer: Consumer) -> None:
        """A consumer has room again: put it back in the round and hand out what waits."""
        if consumer.browses:
            consumer.parked = False
            self.wake()
        elif consumer.parked:
            self.enlist(consumer)
        if self.ready_count or self.waiters is not None:
            self.drain()

    def remove_consumer(self, consumer: Consumer) -> None:
        """End a consumer's part; what it holds unsettled stays its own."""
        if consumer.browses:
            self.remove_browser(consumer)
            return
        if self.consumers is None or consumer not in self.consumers:
            return
        if self.vhost is not None:
            self.vhost.consumer_removed(consumer)
        self.consumers.remove(consumer)
        if not consumer.parked:
            self.active.remove(consumer)
        consumer.parked = False  # Room that it gains by settling no longer matters.
        if consumer.cursor is not None:
            self.seekers = [c for c in self.seekers if c.consumer is not consumer] or None
            consumer.cursor = None
            if consumer.auto_close:
                self.closing -= 1
        if consumer is self.exclusive_consumer:
            self.exclusive_consumer = None
        if consumer.selective:
            self.selective -= 1
        if consumer is self.chosen:
            self.chosen = self.consumers[0] if self.consumers else None
            if self.chosen is not None:
                self.enlist(self.chosen)
        if not self.consumers:
            self.consumers = None
            self.active = None
            self.ranked = False
            self.release_waiters()
        self.used_ms = self.tally.now_ms

    def add_waiter(self, publisher: Any) -> None:
        """Remember a publisher that stopped reading until the queue is shorter."""
        if self.waiters is None:
            self.waiters = {}
        self.waiters[publisher] = None

    def drop_waiter(self, publisher: Any) -> None:
        """Forget a publisher that waits no longer."""
        if self.waiters is not None:
            self.waiters.pop(publisher, None)

    def release_waiters(self) -> None:
        """Let paced publishers read again when the queue is short enough."""
        if self.stopped and not self.deleted:
            return
        if self.waiters is not None and (
            self.ready_count < PACE_BELOW or self.active is None or self.guard is not None
        ):
            waiters = self.waiters
            self.waiters = None
            for publisher in waiters:
                publisher.unpace()

    # --- The whole queue --------------------------------------------------------------------

    def purge(self) -> int:
        """Drop every ready message; return how many there were."""
        lane: Queue
        count = self.message_count()
        held = self.unacked_count + self.held_count
        if self.lanes is not None:
            for lane in self.lanes.values():
                held += lane.unacked_count
        dropped = held == 0 and self.durable and count > 0
        if dropped:
            self.store.drop(self.id, self.tally.next_seq - 1)
        self.forget_ready(not dropped)
        self.release_waiters()
        if self.lanes is not None:
            for lane in self.lanes.values():
                lane.forget_ready(not dropped)
                lane.release_waiters()
        return count

    def forget_ready(self, settle: bool) -> None:
        """Empty the rings; ``settle`` tells the store of each message."""
        while True:
            message = self.next_ready()
            if message is None:
                break
            if not settle and message.position and not message.flags & C_SCRATCH:
                self.store.forget(self.id, message.position)
                message.position = 0
            self.leave(message)
        self.ring = None
        self.rings = None
        self.returned = None
        self.expiring = None
        self.shells = 0

    def orphan_ready(self) -> None:
        """Pass every ready message on to the alternate exchange."""
        while True:
            message = self.take()
            if message is None:
                return
            self.dead_letter(message, "orphaned")
            self.leave(message)

    def redelivered(self) -> list[int]:
        """Return the seqs of the ready messages that were handed out before."""
        found = []
        message: Message | None
        if self.lanes is not None:
            for lane in self.lanes.values():
                found += lane.redelivered()
        for ring in [self.ring, *(self.rings or ())]:
            for i in range(0 if ring is None else ring.count):
                message = ring.at(i)
                if message.flags & C_REDELIVERED and not message.flags & C_GONE:
                    found.append(message.seq)
        for _, _, message in self.returned or ():
            if not message.flags & C_GONE:
                found.append(message.seq)
        return found

    def counts(self) -> list[tuple[int, int]]:
        """Return seq and count of the ready messages that came back."""
        found: list[tuple[int, int]] = []
        message: Message | None
        for ring in [self.ring, *(self.rings or ())]:
            for i in range(0 if ring is None else ring.count):
                message = ring.at(i)
                if message.deliveries and not message.flags & C_GONE:
                    found.append((message.seq, message.deliveries))
        for _, _, message in self.returned or ():
            if message.deliveries and not message.flags & C_GONE:
                found.append((message.seq, message.deliveries))
        return found

    def destroy(self) -> int:
        """End the queue: drop all, cancel its consumers; return how many were ready."""
        lane: Queue
        count = self.message_count()
        if self.alternate_exchange is not None:
            self.orphan_ready()
        if self.durable:
            self.store.drop(self.id, self.tally.next_seq - 1)
        self.deleted = True
        if self.lanes is not None:
            for lane in self.lanes.values():
                lane.destroy()
        self.forget_ready(True)
        if self.view is not None:
            self.view.destroy()
        consumers = self.consumers or []
        if self.browsers is not None:
            consumers = consumers + [cursor.consumer for cursor in self.browsers]
        self.browsers = None
        self.consumers = None
        self.active = None
        self.exclusive_consumer = None
        self.chosen = None
        self.seekers = None
        self.release_waiters()
        for consumer in consumers:
            consumer.parked = False
            consumer.cursor = None
            if self.vhost is not None:
                self.vhost.consumer_removed(consumer)
            consumer.cancelled()
        return count
