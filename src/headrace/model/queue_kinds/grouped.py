# SPDX-License-Identifier: Apache-2.0
"""Message groups: one consumer at a time works on the messages of a group, in order.

The group is the value of a header (``qpid.group_header_key``). There are two modes, as in Qpid's
brokers:

exclusive
    A consumer that got a message of a group gets all messages of that group until it is cancelled.
    Messages without the header are in no group.
shared (``qpid.shared_msg_group``)
    A consumer owns a group while it has an unacked message of it. Messages without the header are
    together in one group (``qpid.default-message-group``).

An unacked message locks its group, also after its consumer was removed: no other consumer gets the
next message before the earlier one is settled or requeued.
"""

import cython

if not cython.compiled:
    from headrace.model.message import PAGED as C_PAGED
    from headrace.model.message import Message
    from headrace.model.queue.destination import NEVER as C_NEVER
    from headrace.model.queue.destination import NO_ROOM as C_NO_ROOM
    from headrace.model.queue.destination import Consumer
    from headrace.model.queue_kinds.group_list import Group, GroupList
    from headrace.model.queue_kinds.inspecting import InspectingQueue

PASSED_MAX = 256  # Messages that one drain passes over because their consumers reject them.


class GroupedQueue(InspectingQueue):
    """A queue whose messages are delivered by groups."""

    def set_up(self, arguments: dict[str, object]) -> None:
        InspectingQueue.set_up(self, arguments)
        self.group_list = GroupList(self.reader, arguments, self)
        self.ready = self.group_list
        self.is_inspecting = True

    def group_state(self, message: Message) -> tuple[object, bool] | None:
        """Return the result of :meth:`GroupList.group_state`."""
        return self.group_list.group_state(message)

    # --- Arrivals and departures ------------------------------------------------------------

    def enqueue(self, message: Message) -> int:
        if self.check_and_postpone(message):
            return 0
        if self.limits is not None and self.would_reject(message.body_size):
            self.limits.reject(self, message)
            return 1
        self.tally.publish += 1
        if self.message_ttl_ms >= 0:
            self.set_deadline(message, self.counters.now_ms)
        self.counters.memory_used += self.weight(message)
        self.push(message)
        if self.round is not None:
            self.drain_arrival(message)
        elif message.deadline_ms:
            self.schedule_expiry(message)
        if self.limits is not None:
            self.limits.enforce(self, message)
        return 0

    def restore_unacked(self, message: Message) -> bool:
        if message.consumer is not None:
            self.group_list.assign(message, message.consumer)
        return InspectingQueue.restore_unacked(self, message)

    def get(self, getter: Consumer) -> Message | None:
        message = InspectingQueue.get(self, getter)
        if message is not None and not getter.no_ack:
            self.group_list.assign(message, getter)
        return message

    def acquire(self, message: Message, consumer: Consumer) -> bool:
        group = self.group_list.get_group(message)
        if group is None or (group.owner is not None and group.owner is not consumer):
            return False
        return InspectingQueue.acquire(self, message, consumer)

    def acquire_quietly(self, message: Message, consumer: Consumer) -> bool:
        """Acquire a message, and lock its group unless another consumer owns it."""
        group = self.group_list.get_group(message)
        if not InspectingQueue.acquire_quietly(self, message, consumer):
            return False
        if group is not None and (group.owner is None or group.owner is consumer):
            self.group_list.assign(message, consumer)
        return True

    # --- Deliveries -------------------------------------------------------------------------

    def drain(self) -> None:
        if self.expiry is not None:
            self.expire(self.counters.now_ms)
        self.will_drain = False
        if self.round is not None:
            self.deliver_groups()
            if self.browsing is not None and self.browsing.closing and not self.ready.count:
                self.close_all()
        if self.limits is not None:
            self.limits.enforce(self, None)
        if self.waiters is not None:
            self.release_waiters()
        if self.browsing is not None:
            self.browsing.show_all()

    def deliver_groups(self) -> None:
        """Deliver ready messages of groups that are free, or owned by consumers with room."""
        groups = self.group_list
        consumers = self.round
        assert consumers is not None
        passed: list[Message] = []
        while groups.count and consumers.active:
            group = groups.first_group(groups.free_groups, None)
            consumer = consumers.pick() if group is not None else self.pick_eager()
            if consumer is None:
                break
            group = groups.first_for(consumer, group)
            if group is None:
                continue
            message = self.pop_first(group)
            if message is None:
                continue
            if consumer.is_selective:
                verdict = self.browse().evaluate(consumer, message)
                if verdict == C_NO_ROOM:
                    consumers.deactivate(consumer)
                    self.reinsert(message)
                    continue
                if verdict == C_NEVER:
                    passed.append(message)
                    if len(passed) >= PASSED_MAX:
                        break
                    continue
            if not consumer.no_ack:
                groups.assign(message, consumer)
            elif not groups.is_shared:
                groups.bind_group(group, consumer)
            self.dispatch(consumer, message)
        for message in passed:
            self.reinsert(message)
        groups.sweep_if_stale()

    def close_all(self) -> None:
        """End auto-close consumers, which have reached the end of the queue."""
        consumer: Consumer
        for consumer in list(self.consumers or ()):
            if consumer.auto_close:
                self.remove_consumer(consumer)
                consumer.on_queue_end()

    def pop_first(self, group: Group) -> Message | None:
        """Remove the first message of a group; None when it has expired or cannot be read."""
        message = self.group_list.pop_first(group)
        self.group_list.count_departure(message)
        if message.deadline_ms and message.deadline_ms <= self.counters.now_ms:
            self.dead_letter(message, "expired")
            return None
        if message.flags & C_PAGED and not self.load(message):
            return None
        return message

    def pick_eager(self) -> Consumer | None:
        """Return a consumer with room that owns groups with ready messages."""
        consumer: Consumer
        eager_owners = self.group_list.eager_owners
        for consumer in list(eager_owners):
            del eager_owners[consumer]
            if consumer.is_parked or consumer not in self.group_list.registered:
                continue
            if consumer.has_room():
                eager_owners[consumer] = None  # Its next turn comes after those of all others.
                return consumer
            self.deactivate(consumer)
        return None

    def activate(self, consumer: Consumer) -> None:
        InspectingQueue.activate(self, consumer)
        if consumer in self.group_list.owner_heaps and not consumer.is_parked:
            self.group_list.eager_owners[consumer] = None

    def add_consumer(self, consumer: Consumer) -> None:
        self.group_list.add_consumer(consumer)
        InspectingQueue.add_consumer(self, consumer)

    def remove_consumer(self, consumer: Consumer) -> None:
        """Remove a consumer; its groups become free once they have no unacked message."""
        InspectingQueue.remove_consumer(self, consumer)
        self.group_list.remove_consumer(consumer)
