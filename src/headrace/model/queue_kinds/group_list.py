# SPDX-License-Identifier: Apache-2.0
"""The ready messages of a queue with message groups: a heap for each group.

Groups stand in heaps by the position of their first message: the free ones in one, those of each
consumer in another. So a blocked group costs nothing and delays no other, and a message costs the
logarithm of the number of groups. An exclusive group that is empty is remembered, ``IDLE_MAX`` of
them in a queue; then the group that was idle longest loses its owner. See
:mod:`headrace.model.queue_kinds.grouped`.
"""

from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING

import cython

if not cython.compiled:
    from headrace.model.message import Message
    from headrace.model.queue.destination import Consumer, Destination
    from headrace.model.queue_kinds.header_reader import HeaderReader
    from headrace.model.queue_kinds.ordered import OrderedList

from headrace.model.arguments.canonical import short

if TYPE_CHECKING:
    from collections.abc import Mapping


NO_GROUP = "qpid.no-group"  # The group of messages without one, where groups are shared.
IDLE_MAX = 16384  # Empty groups whose owner is remembered.


class Group:
    """The messages of one group."""

    def __init__(self, name: object) -> None:
        self.name = name  # None for messages without a group.
        self.ready: list[tuple[int, Message]] = []  # Ready messages by seq; a heap.
        self.owner: Consumer | None = None
        self.unacked = 0
        # The group's seq in its owner's heap, or in the heap of free groups; 0 if in none.
        self.listed = 0


class GroupList(OrderedList):
    """Ready messages by group; the heap is that of the groups that are free."""

    def __init__(
        self, reader: HeaderReader, arguments: "Mapping[str, object]", queue: Destination
    ) -> None:
        OrderedList.__init__(self)
        self.reader = reader
        self.queue = queue  # Woken when a group with ready messages becomes free.
        self.key = str(arguments["qpid.group_header_key"])  # The name of the header.
        self.shared = str(arguments.get("qpid.shared_msg_group", 0)).lower() in ("1", "true")
        default = arguments.get("qpid.default-message-group", NO_GROUP if self.shared else None)
        self.default_group = short(default)  # The group of messages without the header.
        self.groups: dict[object, Group] = {}
        self.group_of: dict[int, Group] = {}  # The group of each message, by seq.
        self.unacked: dict[int, Group] = {}  # The group of each unacked message, by seq.
        self.free: list[tuple[int, Group]] = []  # Groups without an owner, by their first seq.
        self.owned: dict[Consumer, list[tuple[int, Group]]] = {}  # Groups with an owner, by owner.
        self.eager: dict[Consumer, None] = {}  # Owners that may have room.
        self.alive: dict[Consumer, None] = {}
        self.owns: dict[Consumer, dict[Group, None]] = {}  # All groups of each consumer.
        self.idle: dict[Group, None] = {}  # Empty groups that have an owner.
        self.dirty = False  # A group may list messages that are not ready.

    def level(self, priority: int) -> int:
        """Return 0: messages leave by position, whatever their priority."""
        return 0

    # --- Groups -----------------------------------------------------------------------------

    def find_group(self, message: Message) -> Group:
        """Return the group that a message belongs to."""
        group = self.group_of.get(message.seq)
        if group is None:
            name = short(self.reader.read(message, self.key))
            if name is None:
                name = self.default_group
            group = self.groups.get(name)
            if group is None:
                group = self.groups[name] = Group(name)
            self.group_of[message.seq] = group
        elif self.groups.get(group.name) is not group:  # The group was empty, and dropped.
            group = self.groups.setdefault(group.name, group)
            self.group_of[message.seq] = group
        return group

    def push_heap(self, message: Message) -> None:
        group = self.find_group(message)
        if group in self.idle:
            del self.idle[group]
        heappush(group.ready, (message.seq, message))
        self.list_group(group)

    def list_group(self, group: Group) -> None:
        """List a group that has ready messages by the first of them."""
        first: int = group.ready[0][0]
        if group.listed and group.listed <= first:
            return
        group.listed = first
        owner = group.owner
        if owner is None:
            heappush(self.free, (first, group))
            return
        if owner not in self.alive:
            group.listed = 0  # The owner was removed and still has unacked messages.
            return
        heap = self.owned.get(owner)
        if heap is None:
            heap = self.owned[owner] = []
        heappush(heap, (first, group))
        self.eager[owner] = None

    def first_group(self, heap: list[tuple[int, Group]], owner: Consumer | None) -> Group | None:
        """Return the group of a heap whose first message is the oldest; None if there is none."""
        while heap:
            seq, group = heap[0]
            if group.listed == seq and group.owner is owner:
                messages = group.ready
                while messages and not self.is_ready(messages[0][1]):
                    heappop(messages)
                if messages and messages[0][0] == seq:
                    return group
                group.listed = 0
                heappop(heap)
                if messages:
                    self.list_group(group)
                else:
                    self.end_group(group)
            else:
                heappop(heap)  # The group has a newer entry.
        return None

    def first_for(self, consumer: Consumer, free: Group | None) -> Group | None:
        """Return the consumer's first group, or a free one whose first message is older."""
        heap = self.owned.get(consumer)
        if heap is None:
            return free
        own = self.first_group(heap, consumer)
        if own is None:
            if not heap:
                del self.owned[consumer]
                self.eager.pop(consumer, None)
            return free
        if free is None or own.listed < free.listed:
            return own
        return free

    def known_group(self, message: Message) -> Group | None:
        """Return the group of a message of the queue."""
        return self.group_of.get(message.seq)

    def pop_first(self, group: Group) -> Message:
        """Remove and return the first message of a group that :meth:`first_group` returned."""
        message: Message = heappop(group.ready)[1]
        group.listed = 0
        if group.ready:
            self.list_group(group)
        return message

    def pop_heap(self) -> Message | None:
        """Return the next message of the free groups."""
        group = self.first_group(self.free, None)
        return None if group is None else self.pop_first(group)

    def withdraw(self, message: Message) -> None:
        OrderedList.withdraw(self, message)
        self.dirty = True

    def reinsert(self, message: Message) -> None:
        OrderedList.reinsert(self, message)
        self.unassign(message)

    def forget(self, message: Message) -> None:
        self.unassign(message)
        group: Group | None = self.group_of.pop(message.seq, None)
        if group is not None:
            self.end_group(group)

    def sweep(self) -> None:
        OrderedList.sweep(self)
        if not self.dirty:
            return
        self.dirty = False
        group: Group
        for group in list(self.groups.values()):
            group.ready = [entry for entry in group.ready if self.is_ready(entry[1])]
            heapify(group.ready)
            self.end_group(group)

    def clear_heap(self) -> None:
        group: Group
        self.free = []
        self.owned = {}
        self.eager = {}
        for group in list(self.groups.values()):
            group.ready = []
            group.listed = 0
            self.end_group(group)

    def end_group(self, group: Group) -> None:
        """Drop an empty group without an owner; keep an empty group with an owner as idle."""
        if group.ready or group.unacked:
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

    # --- Owners -------------------------------------------------------------------------------

    def bind_group(self, group: Group, consumer: Consumer) -> None:
        """Make a consumer the owner of a group, since it gets a message of it."""
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
        if group.ready:
            self.list_group(group)

    def free_group(self, group: Group) -> None:
        """Take a group from its owner."""
        owner = group.owner
        group.owner = None
        group.listed = 0
        if owner is not None:
            self.disown(group, owner)
        if group.ready:
            self.list_group(group)
            self.queue.wake()
        else:
            self.end_group(group)

    def disown(self, group: Group, owner: Consumer) -> None:
        """Take a group off its owner's list."""
        owns = self.owns.get(owner)
        if owns is not None:
            owns.pop(group, None)
            if not owns:
                del self.owns[owner]

    def assign(self, message: Message, consumer: Consumer) -> None:
        """Note that a consumer has a message unacked."""
        group = self.find_group(message)
        group.unacked += 1
        self.unacked[message.seq] = group
        self.bind_group(group, consumer)

    def unassign(self, message: Message) -> None:
        """Note that a message is no longer unacked."""
        group: Group | None = self.unacked.pop(message.seq, None)
        if group is None:
            return
        group.unacked -= 1
        if not group.unacked:
            owner = group.owner
            if owner is not None and (self.shared or owner not in self.alive):
                self.free_group(group)
            else:
                self.end_group(group)

    def group_state(self, message: Message) -> tuple[object, bool] | None:
        """Return a ready message's group, and whether that has an owner; None without a group."""
        group = self.find_group(message)
        if group.name is None:
            return None
        return group.name, group.owner is not None

    def add_consumer(self, consumer: Consumer) -> None:
        """Register a consumer, which may then own groups."""
        self.alive[consumer] = None

    def remove_consumer(self, consumer: Consumer) -> None:
        """End a consumer's ownership; a group is free once it has no unacked message."""
        self.alive.pop(consumer, None)
        self.eager.pop(consumer, None)
        self.owned.pop(consumer, None)
        group: Group
        for group in list(self.owns.get(consumer, ())):
            group.listed = 0
            if not group.unacked:
                self.idle.pop(group, None)
                self.free_group(group)
