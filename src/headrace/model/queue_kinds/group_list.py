# SPDX-License-Identifier: Apache-2.0
"""The ready messages of a queue with message groups: a heap for each group.

Free groups are in one heap, by the position of their first message, and the groups of each consumer
in another. So a blocked group costs nothing and delays no other group. Adding or removing a message
takes O(log n) for n groups. An empty exclusive group keeps its owner. Beyond ``IDLE_MAX`` such
groups in a queue, the group that was idle longest loses its owner.
`headrace.model.queue_kinds.grouped` delivers by groups.
"""

from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING

import cython

if not cython.compiled:
    from headrace.model.message import Message
    from headrace.model.queue.destination import Consumer, Destination
    from headrace.model.queue_kinds.header_reader import HeaderReader
    from headrace.model.queue_kinds.ordered import OrderedList

from headrace.model.arguments.canonical import canonical_or_digest

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
        # The seq under which the group is in its owner's heap or the free groups; 0 if in neither.
        self.listed_seq = 0


class GroupList(OrderedList):
    """Ready messages by group; ``pop_heap`` returns the messages of free groups."""

    def __init__(
        self, reader: HeaderReader, arguments: "Mapping[str, object]", queue: Destination
    ) -> None:
        OrderedList.__init__(self)
        self.reader = reader
        self.queue = queue  # Woken when a group with ready messages becomes free.
        self.key = str(arguments["qpid.group_header_key"])  # The name of the header.
        self.is_shared = str(arguments.get("qpid.shared_msg_group", 0)).lower() in ("1", "true")
        default = arguments.get("qpid.default-message-group", NO_GROUP if self.is_shared else None)
        self.default_group = canonical_or_digest(
            default
        )  # The group of messages without the header.
        self.groups: dict[object, Group] = {}
        self.group_by_seq: dict[int, Group] = {}  # The group of each message, by seq.
        self.unacked_groups: dict[int, Group] = {}  # The group of each unacked message, by seq.
        self.free_groups: list[
            tuple[int, Group]
        ] = []  # Groups without an owner, by their first seq.
        # Groups with an owner, by owner.
        self.owner_heaps: dict[Consumer, list[tuple[int, Group]]] = {}
        self.eager_owners: dict[Consumer, None] = {}  # Owners that may have room.
        self.registered: dict[Consumer, None] = {}  # Consumers that may own groups.
        self.groups_by_owner: dict[Consumer, dict[Group, None]] = {}
        self.idle_groups: dict[Group, None] = {}  # Empty groups that have an owner.
        self.may_be_stale = False  # A group may list messages that are not ready.

    def level(self, priority: int) -> int:
        """Return 0: messages leave by position, whatever their priority."""
        return 0

    # --- Groups -----------------------------------------------------------------------------

    def find_group(self, message: Message) -> Group:
        """Return the group that a message belongs to."""
        group = self.group_by_seq.get(message.seq)
        if group is None:
            name = canonical_or_digest(self.reader.read(message, self.key))
            if name is None:
                name = self.default_group
            group = self.groups.get(name)
            if group is None:
                group = self.groups[name] = Group(name)
            self.group_by_seq[message.seq] = group
        elif self.groups.get(group.name) is not group:  # The group was empty, and dropped.
            group = self.groups.setdefault(group.name, group)
            self.group_by_seq[message.seq] = group
        return group

    def push_heap(self, message: Message) -> None:
        group = self.find_group(message)
        if group in self.idle_groups:
            del self.idle_groups[group]
        heappush(group.ready, (message.seq, message))
        self.list_group(group)

    def list_group(self, group: Group) -> None:
        """List a group that has ready messages by the first of them."""
        first: int = group.ready[0][0]
        if group.listed_seq and group.listed_seq <= first:
            return
        group.listed_seq = first
        owner = group.owner
        if owner is None:
            heappush(self.free_groups, (first, group))
            return
        if owner not in self.registered:
            group.listed_seq = 0  # The owner was removed and still has unacked messages.
            return
        heap = self.owner_heaps.get(owner)
        if heap is None:
            heap = self.owner_heaps[owner] = []
        heappush(heap, (first, group))
        self.eager_owners[owner] = None

    def first_group(self, heap: list[tuple[int, Group]], owner: Consumer | None) -> Group | None:
        """Return the group of a heap whose first message is the oldest; None if there is none."""
        while heap:
            seq, group = heap[0]
            if group.listed_seq == seq and group.owner is owner:
                messages = group.ready
                while messages and not self.is_ready(messages[0][1]):
                    heappop(messages)
                if messages and messages[0][0] == seq:
                    return group
                group.listed_seq = 0
                heappop(heap)
                if messages:
                    self.list_group(group)
                else:
                    self.end_group(group)
            else:
                heappop(heap)  # The group has a newer entry.
        return None

    def first_for(self, consumer: Consumer, free: Group | None) -> Group | None:
        """Return the consumer's first group, or ``free`` if its first message is older."""
        heap = self.owner_heaps.get(consumer)
        if heap is None:
            return free
        owned_group = self.first_group(heap, consumer)
        if owned_group is None:
            if not heap:
                del self.owner_heaps[consumer]
                self.eager_owners.pop(consumer, None)
            return free
        if free is None or owned_group.listed_seq < free.listed_seq:
            return owned_group
        return free

    def get_group(self, message: Message) -> Group | None:
        """Return the group of a message; None if the message was never in this list."""
        return self.group_by_seq.get(message.seq)

    def pop_first(self, group: Group) -> Message:
        """Remove and return the first message of a group that :meth:`first_group` returned."""
        message: Message = heappop(group.ready)[1]
        group.listed_seq = 0
        if group.ready:
            self.list_group(group)
        return message

    def pop_heap(self) -> Message | None:
        """Return the next message of the free groups."""
        group = self.first_group(self.free_groups, None)
        return None if group is None else self.pop_first(group)

    def withdraw(self, message: Message) -> None:
        OrderedList.withdraw(self, message)
        self.may_be_stale = True

    def pop_oldest(self) -> Message | None:
        self.may_be_stale = True
        return OrderedList.pop_oldest(self)

    def reinsert(self, message: Message) -> None:
        OrderedList.reinsert(self, message)
        self.unassign(message)

    def on_removal(self, message: Message) -> None:
        self.unassign(message)
        group: Group | None = self.group_by_seq.pop(message.seq, None)
        if group is not None:
            self.end_group(group)

    def sweep(self) -> None:
        OrderedList.sweep(self)
        if not self.may_be_stale:
            return
        self.may_be_stale = False
        group: Group
        for group in list(self.groups.values()):
            group.ready = [entry for entry in group.ready if self.is_ready(entry[1])]
            heapify(group.ready)
            self.end_group(group)

    def clear_heap(self) -> None:
        group: Group
        self.free_groups = []
        self.owner_heaps = {}
        self.eager_owners = {}
        for group in list(self.groups.values()):
            group.ready = []
            group.listed_seq = 0
            self.end_group(group)

    def end_group(self, group: Group) -> None:
        """Drop an empty group without an owner; keep an empty group with an owner as idle."""
        if group.ready or group.unacked:
            return
        if group.owner is None:
            if self.groups.get(group.name) is group:
                del self.groups[group.name]
            return
        if group not in self.idle_groups:
            self.idle_groups[group] = None
            if len(self.idle_groups) > IDLE_MAX:
                oldest: Group = next(iter(self.idle_groups))
                del self.idle_groups[oldest]
                self.free_group(oldest)

    # --- Owners -------------------------------------------------------------------------------

    def bind_group(self, group: Group, consumer: Consumer) -> None:
        """Make a consumer the owner of a group of which it gets a message."""
        owner = group.owner
        if owner is consumer or group.name is None:
            return
        if owner is not None:
            self.disown(group, owner)
        group.owner = consumer
        group.listed_seq = 0
        owned_groups = self.groups_by_owner.get(consumer)
        if owned_groups is None:
            owned_groups = self.groups_by_owner[consumer] = {}
        owned_groups[group] = None
        if group.ready:
            self.list_group(group)

    def free_group(self, group: Group) -> None:
        """End the ownership of a group; wake the queue if the group has ready messages."""
        owner = group.owner
        group.owner = None
        group.listed_seq = 0
        if owner is not None:
            self.disown(group, owner)
        if group.ready:
            self.list_group(group)
            self.queue.wake()
        else:
            self.end_group(group)

    def disown(self, group: Group, owner: Consumer) -> None:
        """Remove a group from the groups of its owner."""
        owned_groups = self.groups_by_owner.get(owner)
        if owned_groups is not None:
            owned_groups.pop(group, None)
            if not owned_groups:
                del self.groups_by_owner[owner]

    def assign(self, message: Message, consumer: Consumer) -> None:
        """Record that a message is delivered and unacked; its consumer then owns the group."""
        group = self.find_group(message)
        group.unacked += 1
        self.unacked_groups[message.seq] = group
        self.bind_group(group, consumer)

    def unassign(self, message: Message) -> None:
        """Record that a message is no longer unacked; free its group with the last one."""
        group: Group | None = self.unacked_groups.pop(message.seq, None)
        if group is None:
            return
        group.unacked -= 1
        if not group.unacked:
            owner = group.owner
            if owner is not None and (self.is_shared or owner not in self.registered):
                self.free_group(group)
            else:
                self.end_group(group)

    def group_state(self, message: Message) -> tuple[object, bool] | None:
        """Return a ready message's group, and True if it is owned; None if it is in no group."""
        group = self.find_group(message)
        if group.name is None:
            return None
        return group.name, group.owner is not None

    def add_consumer(self, consumer: Consumer) -> None:
        """Register a consumer, which may then own groups."""
        self.registered[consumer] = None

    def remove_consumer(self, consumer: Consumer) -> None:
        """End a consumer's ownership; a group is free once it has no unacked message."""
        self.registered.pop(consumer, None)
        self.eager_owners.pop(consumer, None)
        self.owner_heaps.pop(consumer, None)
        group: Group
        for group in list(self.groups_by_owner.get(consumer, ())):
            group.listed_seq = 0
            if not group.unacked:
                self.idle_groups.pop(group, None)
                self.free_group(group)
