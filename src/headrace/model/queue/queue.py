# SPDX-License-Identifier: Apache-2.0
"""Queues: their consumers, those that look at messages where they stand, and the whole of them.

A queue is made up of four classes, each on top of the one before: the places of its ready messages
(:mod:`headrace.model.queue.ready_list`), what it takes in and how long it keeps it
(:mod:`headrace.model.queue.retention`), who takes it (:mod:`headrace.model.queue.dispatch`), and
here who looks.

Browsing. A browser is shown messages where they stand. Its cursor is the last seq that it was
shown, for each level; the next one is found by bisection.

Choosing. A consumer that passes messages over (a selector, no-local) has a cursor as well, and
takes from the middle. It looks at each message once, and once more when that came back. It looks at
``LOOKS_MAX`` messages in a row, fewer when they are large, and goes on a moment later.
"""

from heapq import heapify, heappop, heappush
from typing import Any

import cython

if not cython.compiled:
    from headrace.model.counters import MESSAGE_OVERHEAD as C_MESSAGE_OVERHEAD
    from headrace.model.counters import Counters
    from headrace.model.message import GONE as C_GONE
    from headrace.model.message import PAGED as C_PAGED
    from headrace.model.message import Message
    from headrace.model.ports import Store
    from headrace.model.queue.dispatch import Consumer, Cursor, ServedMessages
    from headrace.model.queue.ready_list import STALE_MIN, Places

LOOKS_MAX = 512  # Messages that one cursor passes over in a row,
PAGED_LOOKS = 16  # of which one that has to be fetched from the disk counts for so many,
LOOK_OCTETS = 1024  # and each so many octets of its properties and headers for one more,
LOOK_PAUSE_MS = 1  # and how long it is before it goes on.
NO_SEQ = (1 << 63) - 1  # No message has a place behind this.


class Queue(ServedMessages):
    """One queue: ready messages in order, and who may take them or look at them."""

    def __init__(
        self,
        name: str,
        *,
        store: Store,
        counters: Counters,
        vhost: Any = None,
        id: int = 0,  # noqa: A002 - the field has this name in every definition
        durable: bool = False,
        auto_delete: bool = False,
        exclusive_owner: object = None,
        arguments: dict[str, Any] | None = None,
    ) -> None:
        ServedMessages.__init__(self, name, store, counters, vhost, id, durable)
        self.auto_delete = auto_delete
        self.exclusive_owner = exclusive_owner
        self.arguments = arguments if arguments is not None else {}
        self.realm = ""  # The access realm of the ticket that it was made with.
        self.is_hidden = False  # The broker's own: nobody publishes to it or binds it.
        self.access_name = name  # Who may read the queue of this name may read this one.
        self.expires_ms = -1  # Without consumers; the virtual host sets it from the arguments.
        self.resting: Any = None  # Consumers that have looked at all there is, during a drain.
        self.closing = 0  # Consumers that end when there is nothing more for them.
        self.view: Any = None  # A View, once somebody looked; see model.view.
        self.lanes: Any = None  # {kind: Queue}: file and stream content, see model.lanes.

    def __repr__(self) -> str:
        return f"<Queue {self.name!r} ready={self.ready_count} unacked={self.unacked_count}>"

    # --- Consumers --------------------------------------------------------------------------------

    def add_consumer(self, consumer: Consumer) -> None:
        """Let a consumer take part; the caller drains the queue afterwards."""
        if self.vhost is not None:
            self.vhost.consumer_added(consumer)
        if consumer.browses:
            self.add_browser(consumer)
            return
        self.join(consumer)
        if consumer.filters or consumer.no_local or consumer.selector is not None:
            self.start_filtering(consumer)
        if consumer.auto_close and not self.is_stream:
            self.start_filtering(consumer)
            self.closing += 1

    def remove_consumer(self, consumer: Consumer) -> None:
        """End a consumer's part; what it holds unsettled stays its own."""
        if consumer.browses:
            self.remove_browser(consumer)
            return
        if self.consumers is None or consumer not in self.consumers:
            return
        if self.vhost is not None:
            self.vhost.consumer_removed(consumer)
        if consumer.cursor is not None:
            self.seekers = [c for c in self.seekers if c.consumer is not consumer] or None
            consumer.cursor = None
            if consumer.auto_close:
                self.closing -= 1
        self.part(consumer)

    def start_filtering(self, consumer: Consumer) -> None:
        """Let a consumer choose from now on; it looks at all that is ready."""
        consumer.filters = True
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

    def new_cursor(self, consumer: Consumer) -> Cursor:
        """Return a cursor before all that is ready."""
        cursor = Cursor(consumer, self.max_priority + 1 if self.max_priority else 2)
        if self.returned is not None:
            cursor.ahead = list(self.returned)
        return cursor

    # --- Choosing ---------------------------------------------------------------------------------

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
                    self.stale_count += 1
                    self.dispatch(consumer, message)
                continue
            message = self.dequeue()
            if message is None:
                break
            consumer = self.choose(consumer, message)
            if consumer is None:
                self.reinsert(message)
            else:
                self.dispatch(consumer, message)
        if self.resting is not None:
            for consumer in self.resting:
                if consumer.parked and consumer.cursor is not None and self.active is not None:
                    self.activate(consumer)
            self.resting = None
        if self.closing:
            self.end_closing()
        if self.stale_count > STALE_MIN and self.stale_count > self.ready_count:
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
                self.start_filtering(other)
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
            if message.deadline_ms and message.deadline_ms <= self.counters.now_ms:
                self.pass_over(cursor, message)  # It expires soon.
                continue
            paged = message.flags & C_PAGED
            if paged and not self.load(message):
                self.ready_count -= 1
                self.ready_bytes -= message.body_size
                self.stale_count += 1
                continue
            cursor.looks += self.trouble(message, paged)
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

    def trouble(self, message: Message, paged: int) -> int:
        """How many looks it takes to look at a message."""
        looks = PAGED_LOOKS if paged else 1
        if message.data is not None and len(message.data) > message.body_size:
            looks += (len(message.data) - message.body_size) // LOOK_OCTETS
        return looks

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

    def rest(self, cursor: Cursor, complete: bool) -> None:
        """A cursor has looked at all there is, if it is ``complete``; or enough for this turn."""
        cursor.looks = 0
        consumer = cursor.consumer
        if not complete:
            consumer.looking = True
            if self.vhost is None:
                self.wake()
            else:
                when_ms = self.counters.now_ms + LOOK_PAUSE_MS
                self.vhost.scheduler.put(("look", self), when_ms, self.go_on)
        elif consumer.looking:
            consumer.looking = False
            consumer.looked()

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

    # --- Browsing ---------------------------------------------------------------------------------

    def add_browser(self, consumer: Consumer) -> None:
        """Show a consumer all that is ready and all that comes; the caller drains the queue."""
        if consumer.no_local or consumer.selector is not None:
            consumer.filters = True
        if self.browsers is None:
            self.browsers = []
        self.browsers.append(self.new_cursor(consumer))
        if consumer.exclusive:
            self.exclusive_consumer = consumer

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
        self.used_ms = self.counters.now_ms

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
            if paged and not self.load(message):
                self.ready_count -= 1
                self.ready_bytes -= message.body_size
                self.stale_count += 1
                continue
            verdict = 1
            if consumer.selective or consumer.filters:
                verdict = self.judge(consumer, message)
                if verdict == 2:
                    consumer.parked = True  # Until there is room for it.
                    self.rest(cursor, True)
                    return
            self.pass_over(cursor, message)
            if verdict == 0:
                if paged:
                    self.page_out(message)
                cursor.looks += self.trouble(message, paged)
                if cursor.looks >= LOOKS_MAX:
                    self.rest(cursor, False)
                    return
                continue
            cursor.looks = 0
            self.delivered += 1
            if consumer.queue is self:
                consumer.deliver(message)
            else:
                home = consumer.queue
                home.present(consumer, message)
            if paged and self.counters.memory_used > self.counters.memory_max:
                self.page_out(message)

    def present(self, consumer: Consumer, message: Message) -> None:
        """Show a message of another queue to a consumer of this one."""
        consumer.deliver(message)

    # --- Looking ----------------------------------------------------------------------------------

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

    def coming(self, cursor: Cursor, end: int, octets_max: int) -> list[Message]:
        """Return what would be handed out next of what a cursor has not looked at, in that order.

        Only what has a place before ``end``, and about ``octets_max`` octets of it; at least one
        message if there is one. The cursor has looked at all that then. It is nobody's who takes
        part in the queue, so what returns to its place meanwhile is not sure to be there.
        """
        found: list[Message] = []
        octets = 0
        while octets < octets_max:
            message = self.following(cursor)
            if message is None:
                break
            if message.seq >= end:  # It came later, and so did all behind it.
                cursor.seen[self.level(message.priority)] = NO_SEQ
                continue
            self.pass_over(cursor, message)
            octets += message.body_size + C_MESSAGE_OVERHEAD
            found.append(message)
        return found

    def notify_cursors(self, entry: tuple[int, int, Message]) -> None:
        """A message returned to its place: let those browsers know that are still before it."""
        cursor: Cursor
        if self.seekers is not None:
            for cursor in self.seekers:
                self.add_ahead(cursor, entry)
        if self.browsers is not None:
            for cursor in self.browsers:
                if entry[1] > cursor.seen[-entry[0]]:
                    self.add_ahead(cursor, entry)
            self.wake()

    def add_ahead(self, cursor: Cursor, entry: tuple[Any, int, Message]) -> None:
        """A cursor is to look at a message that returned to its place."""
        if cursor.ahead is None:
            cursor.ahead = []
        elif len(cursor.ahead) > 2 * self.ready_count + STALE_MIN:
            kept = {
                e[1]: e for e in cursor.ahead if not e[2].flags & C_GONE and e[2].consumer is None
            }
            cursor.ahead = list(kept.values())
            heapify(cursor.ahead)
        heappush(cursor.ahead, entry)

    # --- The whole queue --------------------------------------------------------------------------

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

    def redelivered(self) -> list[int]:
        """Return the seqs of the ready messages, of every class, that were handed out before."""
        found = Places.redelivered(self)
        if self.lanes is not None:
            for lane in self.lanes.values():
                found += lane.redelivered()
        return found

    # Keeps 0-9-1/queue.purge#01, 0-9/queue.purge#01, 0-9/queue.purge#02, 0-10/s195, 0-10/s196.
    def purge(self) -> int:
        """Drop every ready message; return how many there were."""
        lane: Queue
        count = self.message_count()
        held = self.unacked_count + self.pending_count
        if self.lanes is not None:
            for lane in self.lanes.values():
                held += lane.unacked_count
        dropped = held == 0 and self.durable and count > 0
        if dropped:
            self.store.drop(self.id, self.counters.next_seq - 1)
        self.forget_ready(not dropped)
        self.release_waiters()
        if self.lanes is not None:
            for lane in self.lanes.values():
                lane.forget_ready(not dropped)
                lane.release_waiters()
        return count

    def retire(self) -> None:
        """Take the queue out of use, with what is in it; :meth:`destroy` is to come."""
        lane: Queue
        self.deleted = True
        self.ending = True
        if self.lanes is not None:
            for lane in self.lanes.values():
                lane.retire()
        self.dismiss()

    def destroy(self) -> int:
        """End the queue: drop all, cancel its consumers; return how many were ready."""
        lane: Queue
        count = self.message_count()
        if self.durable:
            self.store.drop(self.id, self.counters.next_seq - 1)
        self.deleted = True
        self.ending = False
        self.counters.delivered += self.delivered
        self.counters.acknowledged += self.acknowledged
        if self.lanes is not None:
            for lane in self.lanes.values():
                lane.destroy()
        self.forget_ready(True)
        self.dismiss()
        return count

    def dismiss(self) -> None:
        """Cancel the consumers, and whoever looks."""
        if self.view is not None:
            self.view.destroy()
            self.view = None
        consumers = self.consumers or []
        if self.browsers is not None:
            consumers = consumers + [cursor.consumer for cursor in self.browsers]
        self.browsers = None
        self.consumers = None
        self.active = None
        self.exclusive_consumer = None
        self.single_active_consumer = None
        self.seekers = None
        self.release_waiters()
        for consumer in consumers:
            consumer.parked = False
            consumer.cursor = None
            if self.vhost is not None:
                self.vhost.consumer_removed(consumer)
            consumer.cancelled()
