# SPDX-License-Identifier: Apache-2.0
"""Message groups: what belongs together is worked on by one consumer at a time, in order.

The group is the value of a header (``qpid.group_header_key``). Two ways, as Qpid's brokers know
them:

exclusive
    A consumer that was given a message of a group gets all of that group while it lives. Messages
    without the header are in no group.
shared (``qpid.shared_msg_group``)
    A group is a consumer's while it holds a message of it unsettled, and free again when it holds
    none. Messages without the header are together in one group (``qpid.default-message-group``).

What is held unsettled binds its group, also when its consumer is gone: nobody else is given the
following message before the earlier one is settled or back.

Every group has a line of its own, by place. Groups stand in heaps by the place of their first
message: the free ones in one, those of each consumer in another. So a blocked group costs nothing
and holds up nobody, and a message costs the logarithm of the number of groups. An exclusive group
that is empty is remembered, ``IDLE_MAX`` of them in a queue; then the one that was idle longest is
forgotten, and free.
"""

from heapq import heapify, heappop, heappush
from typing import Any

import cython

if not cython.compiled:
    from headrace.model.message import PAGED as C_PAGED
    from headrace.model.message import Message
    from headrace.model.queue.dispatch import Consumer
    from headrace.model.queue.ready_list import STALE_MIN
    from headrace.model.queue_kinds.ordered import OrderedQueue

from headrace.model.arguments.canonical import short

NO_GROUP = "qpid.no-group"  # The group of messages without one, where groups are shared.
IDLE_MAX = 16384  # Empty groups that remember whose they are.
PASSED_MAX = 256  # Messages that one drain passes over because their consumers do not take them.


class Group:
    """The messages of one group."""

    def __init__(self, name: Any) -> None:
        self.name = name  # None: no group, but the place of those without one.
        self.line: list[tuple[int, Message]] = []  # Ready ones by seq; a heap.
        self.owner: Consumer | None = None
        self.held = 0  # Messages that are unsettled.
        self.listed = 0  # The seq that it is listed by in its owner's heap, or in that of the free.


class GroupedQueue(OrderedQueue):
    """A queue whose messages are handed out by groups."""

    def __init__(self, name: str, **options: Any) -> None:
        OrderedQueue.__init__(self, name, **options)
        self.key = ""  # The name of the header.
        self.shared = False
        self.groups: dict[Any, Group] = {}
        self.group_of: dict[int, Group] = {}  # By seq, of each message of the queue.
        self.holding: dict[int, Group] = {}  # By seq, of each message that is unsettled.
        self.free: list[tuple[int, Group]] = []  # Groups that are nobody's, by their first seq.
        self.owned: dict[Consumer, list[tuple[int, Group]]] = {}  # The others, by consumer.
        self.eager: dict[Consumer, None] = {}  # Those of them that may have room.
        self.alive: dict[Consumer, None] = {}
        self.owns: dict[Consumer, dict[Group, None]] = {}  # All groups of each consumer.
        self.idle: dict[Group, None] = {}  # Empty ones that somebody owns.
        self.otherwise: Any = None  # The group of messages without the header.
        self.dirty = False  # There may be dead messages in lines.

    def shape(self, arguments: dict[str, Any]) -> None:
        OrderedQueue.shape(self, arguments)
        self.key = arguments["qpid.group_header_key"]
        self.shared = str(arguments.get("qpid.shared_msg_group", 0)).lower() in ("1", "true")
        default = arguments.get("qpid.default-message-group", NO_GROUP if self.shared else None)
        self.otherwise = short(default)

    def level(self, priority: int) -> int:
        """All go by place, whatever their priority."""
        return 0

    # --- Lines ------------------------------------------------------------------------------

    def find_group(self, message: Message) -> Group:
        """Return the group that a message belongs to."""
        group = self.group_of.get(message.seq)
        if group is None:
            name = short(self.header(message, self.key))
            if name is None:
                name = self.otherwise
            group = self.groups.get(name)
            if group is None:
                group = self.groups[name] = Group(name)
            self.group_of[message.seq] = group
        elif self.groups.get(group.name) is not group:  # It seemed to be at its end.
            group = self.groups.setdefault(group.name, group)
            self.group_of[message.seq] = group
        return group

    def line_up(self, message: Message) -> None:
        group = self.find_group(message)
        if group in self.idle:
            del self.idle[group]
        heappush(group.line, (message.seq, message))
        self.list_group(group)

    def list_group(self, group: Group) -> None:
        """List a group that has ready messages by the first of them."""
        first: int = group.line[0][0]
        if group.listed and group.listed <= first:
            return
        group.listed = first
        owner = group.owner
        if owner is None:
            heappush(self.free, (first, group))
            return
        if owner not in self.alive:
            group.listed = 0  # Nobody gets more of it now.
            return
        heap = self.owned.get(owner)
        if heap is None:
            heap = self.owned[owner] = []
        heappush(heap, (first, group))
        self.eager[owner] = None

    def first_group(self, heap: list[tuple[int, Group]], owner: Consumer | None) -> Group | None:
        """Return the group of a heap whose first message is the oldest; None when it has none."""
        while heap:
            seq, group = heap[0]
            if group.listed == seq and group.owner is owner:
                line = group.line
                while line and not self.is_ready(line[0][1]):
                    heappop(line)
                if line and line[0][0] == seq:
                    return group
                group.listed = 0
                heappop(heap)
                if line:
                    self.list_group(group)
                else:
                    self.end_group(group)
            else:
                heappop(heap)  # It was listed anew.
        return None

    def take_first(self, group: Group) -> Message:
        """Take the first message of a group that :meth:`first_group` returned, out of its line."""
        message: Message = heappop(group.line)[1]
        group.listed = 0
        if group.line:
            self.list_group(group)
        return message

    def next_in_line(self) -> Message | None:
        """Return the next message of the groups that are free."""
        group = self.first_group(self.free, None)
        return None if group is None else self.take_first(group)

    def sweep(self) -> None:
        OrderedQueue.sweep(self)
        if not self.dirty:
            return
        self.dirty = False
        group: Group
        for group in list(self.groups.values()):
            group.line = [entry for entry in group.line if self.is_ready(entry[1])]
            heapify(group.line)
            self.end_group(group)

    def clear_line(self) -> None:
        group: Group
        self.free = []
        self.owned = {}
        self.eager = {}
        for group in list(self.groups.values()):
            group.line = []
            group.listed = 0
            self.end_group(group)

    def end_group(self, group: Group) -> None:
        """Forget a group that is empty and nobody's; one that is somebody's is remembered."""
        if group.line or group.held:
            return
        if group.owner is None:
            if self.groups.get(group.name) is group:
                del self.groups[group.name]
            return
        if group not in self.idle:
            self.idle[group] = None
            if len(self.idle) > IDLE_MAX:
                oldest: Group = next(iter(self.idle))
                del self.idle[oldest]
                self.free_group(oldest)

    # --- Whose they are -----------------------------------------------------------------------

    def bind_group(self, group: Group, consumer: Consumer) -> None:
        """A consumer gets a message of a group, which is its own from now on."""
        owner = group.owner
        if owner is consumer or group.name is None:
            return
        if owner is not None:
            self.disown(group, owner)
        group.owner = consumer
        group.listed = 0
        owns = self.owns.get(consumer)
        if owns is None:
            owns = self.owns[consumer] = {}
        owns[group] = None
        if group.line:
            self.list_group(group)

    def free_group(self, group: Group) -> None:
        """A group is nobody's any more."""
        owner = group.owner
        group.owner = None
        group.listed = 0
        if owner is not None:
            self.disown(group, owner)
        if group.line:
            self.list_group(group)
            self.wake()
        else:
            self.end_group(group)

    def disown(self, group: Group, owner: Consumer) -> None:
        """A group is not this consumer's any longer."""
        owns = self.owns.get(owner)
        if owns is not None:
            owns.pop(group, None)
            if not owns:
                del self.owns[owner]

    def keep(self, message: Message, consumer: Consumer) -> None:
        """A consumer holds a message unsettled."""
        group = self.find_group(message)
        group.held += 1
        self.holding[message.seq] = group
        self.bind_group(group, consumer)

    def let_go(self, message: Message) -> None:
        """A message is not held any longer."""
        group: Group | None = self.holding.pop(message.seq, None)
        if group is None:
            return
        group.held -= 1
        if not group.held:
            owner = group.owner
            if owner is not None and (self.shared or owner not in self.alive):
                self.free_group(group)
            else:
                self.end_group(group)

    def standing(self, message: Message) -> Any:
        """Return the name of a ready message's group and whether that is somebody's; None if it is
        in no group.
        """
        group = self.find_group(message)
        if group.name is None:
            return None
        return group.name, group.owner is not None

    # --- Coming and going -------------------------------------------------------------------

    def enqueue(self, message: Message) -> int:
        if self.guard is not None:
            self.guard.weigh(message)
        if self.later is not None and self.postpone(message, self.counters.now_ms):
            self.published += 1
            return 0
        if self.limited and self.would_reject(message.body_size):
            self.reject_overflow(message)
            return 1
        self.published += 1
        if self.message_ttl_ms >= 0:
            self.set_deadline(message, self.counters.now_ms)
        self.counters.memory_used += self.weight(message)
        self.push(message)
        if message.deadline_ms:
            self.schedule_expiry(message)
        if self.active is not None:
            self.drain()
        if self.limited:
            self.enforce_limits(message)
        return 0

    def restore_unacked(self, message: Message) -> bool:
        if message.consumer is not None:
            self.keep(message, message.consumer)
        return OrderedQueue.restore_unacked(self, message)

    def get(self, getter: Consumer) -> Message | None:
        message = OrderedQueue.get(self, getter)
        if message is not None and not getter.no_ack:
            self.keep(message, getter)
        return message

    def acquire(self, message: Message, consumer: Consumer) -> bool:
        group = self.group_of.get(message.seq)
        if group is None or (group.owner is not None and group.owner is not consumer):
            return False
        return OrderedQueue.acquire(self, message, consumer)

    def acquire_quietly(self, message: Message, holder: Consumer) -> bool:
        """Take a message from its place; its group waits for it, unless it is another's already."""
        group: Group | None = self.group_of.get(message.seq)
        if not OrderedQueue.acquire_quietly(self, message, holder):
            return False
        self.dirty = True
        if group is not None and (group.owner is None or group.owner is holder):
            self.keep(message, holder)
        return True

    def expire(self, now_ms: int) -> int:
        self.dirty = True
        return OrderedQueue.expire(self, now_ms)

    def reinsert(self, message: Message) -> None:
        OrderedQueue.reinsert(self, message)
        self.let_go(message)

    def remove(self, message: Message) -> None:
        self.let_go(message)
        group: Group | None = self.group_of.pop(message.seq, None)
        OrderedQueue.remove(self, message)
        if group is not None:
            self.end_group(group)

    # --- Handing out ------------------------------------------------------------------------

    def drain(self) -> None:
        if self.expiring is not None:
            self.expire(self.counters.now_ms)
        self.waking = False
        if self.active is not None:
            self.hand_out()
            if self.closing and not self.ready_count:
                self.close_all()
        if self.limited:
            self.enforce_limits(None)
        if self.waiters is not None:
            self.release_waiters()
        if self.browsers is not None:
            self.show_all()

    def hand_out(self) -> None:
        """Hand out what is ready, of groups that are free or those of the consumers with room."""
        passed: list[Message] = []
        while self.ready_count and self.active:
            group = self.first_group(self.free, None)
            consumer = self.pick() if group is not None else self.pick_eager()
            if consumer is None:
                break
            heap = self.owned.get(consumer)
            if heap is not None:
                own = self.first_group(heap, consumer)
                if own is None:
                    if not heap:
                        del self.owned[consumer]
                        self.eager.pop(consumer, None)
                elif group is None or own.listed < group.listed:
                    group = own
            if group is None:
                continue
            message = self.take_of(group)
            if message is None:
                continue
            if consumer.selective:
                verdict = self.judge(consumer, message)
                if verdict != 1:
                    if verdict == 2:
                        consumer.parked = True
                        self.active.remove(consumer)
                        OrderedQueue.reinsert(self, message)
                        continue
                    passed.append(message)
                    if len(passed) >= PASSED_MAX:
                        break
                    continue
            if consumer.no_ack:
                if not self.shared:
                    self.bind_group(group, consumer)
            else:
                self.keep(message, consumer)
            self.dispatch(consumer, message)
        for message in passed:
            OrderedQueue.reinsert(self, message)
        if self.stale_count > STALE_MIN and self.stale_count > self.ready_count:
            self.sweep()

    def close_all(self) -> None:
        """End the consumers that wanted what there was."""
        consumer: Consumer
        for consumer in list(self.consumers):
            if consumer.auto_close:
                self.remove_consumer(consumer)
                consumer.ended()

    def take_of(self, group: Group) -> Message | None:
        """Take the first message of a group; None when it is dead."""
        message = self.take_first(group)
        self.ready_count -= 1
        self.ready_bytes -= message.body_size
        self.stale_count += 1
        self.trim(self.ring)
        if message.deadline_ms and message.deadline_ms <= self.counters.now_ms:
            self.dead_letter(message, "expired")
            return None
        if message.flags & C_PAGED and not self.load(message):
            return None
        return message

    def pick_eager(self) -> Consumer | None:
        """Return a consumer with room that has groups of its own with ready messages."""
        consumer: Consumer
        for consumer in list(self.eager):
            del self.eager[consumer]
            if consumer.parked or consumer not in self.alive:
                continue
            if consumer.can():
                self.eager[consumer] = None  # Behind the others.
                return consumer
            consumer.parked = True
            self.active.remove(consumer)
        return None

    def activate(self, consumer: Consumer) -> None:
        OrderedQueue.activate(self, consumer)
        if consumer in self.owned and not consumer.parked:
            self.eager[consumer] = None

    def add_consumer(self, consumer: Consumer) -> None:
        self.alive[consumer] = None
        OrderedQueue.add_consumer(self, consumer)

    def remove_consumer(self, consumer: Consumer) -> None:
        """End a consumer's part; its groups are free when nothing of them is held."""
        OrderedQueue.remove_consumer(self, consumer)
        self.alive.pop(consumer, None)
        self.eager.pop(consumer, None)
        self.owned.pop(consumer, None)
        group: Group
        for group in list(self.owns.get(consumer, ())):
            group.listed = 0
            if not group.held:
                self.idle.pop(group, None)
                self.free_group(group)
