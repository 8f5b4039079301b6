# SPDX-License-Identifier: Apache-2.0
"""Order, credit, expiry and limits of a queue, without any protocol around it."""

from heapq import heapify
from typing import TYPE_CHECKING, cast

import pytest

from headrace.model.counters import Counters
from headrace.model.message import REDELIVERED, Message, new_message
from headrace.model.ports import Store
from headrace.model.queue.destination import Consumer
from headrace.model.queue.overflow import OVERFLOW_REJECT, Overflow
from headrace.model.queue.queue import Queue
from support.clients.manual_consumer import Taker

if TYPE_CHECKING:
    from headrace.model.queue.queue_host import QueueHost


class DeadLetters:
    """A virtual host that only notes what is dead-lettered."""

    def __init__(self) -> None:
        self.name = "/"
        self.dead: list[tuple[bytes | None, str]] = []

    @property
    def dead_letters(self) -> "DeadLetters":
        return self

    def postpone(self, queue: Queue, message: Message, reason: str) -> bool:
        return False

    def begin(self) -> bool:
        return False

    def join_transaction(self) -> bool:
        return False

    def has_target(self, queue: Queue, reason: str) -> bool:
        return True

    def dead_letter(self, message: Message, queue: Queue, reason: str) -> bool:
        self.dead.append((message.data, reason))
        return True

    def on_consumer_added(self, consumer: Consumer) -> None:
        pass

    def on_consumer_removed(self, consumer: Consumer) -> None:
        pass


@pytest.fixture
def counters() -> Counters:
    return Counters(now_ms=1_000_000)


@pytest.fixture
def letters() -> DeadLetters:
    return DeadLetters()


@pytest.fixture
def queue(counters: Counters, letters: DeadLetters) -> Queue:
    queue = Queue("q", store=Store(), counters=counters, vhost=cast("QueueHost", letters))
    queue.dead_letter_exchange = "dlx"
    return queue


def enqueue(
    queue: Queue, data: bytes, *, priority: int = 0, deadline_ms: int = 0, publisher: int = 0
) -> int:
    message = new_message(data, 0, len(data))
    message.seq = queue.counters.next_seq
    queue.counters.next_seq += 1
    message.priority = priority
    message.deadline_ms = deadline_ms
    message.publisher = publisher
    return queue.enqueue(message)


def attach(queue: Queue, consumer: Consumer) -> None:
    queue.add_consumer(consumer)
    queue.drain()


def bodies_left(queue: Queue) -> list[bytes | None]:
    bodies = []
    while (message := queue.dequeue()) is not None:
        bodies.append(message.data)
        queue.remove(message)
    return bodies


def test_messages_leave_in_the_order_they_came(queue: Queue) -> None:
    for body in (b"a", b"b", b"c"):
        enqueue(queue, body)
    taker = Taker(queue)
    attach(queue, taker)
    enqueue(queue, b"d")
    assert taker.bodies == [b"a", b"b", b"c", b"d"]
    assert (queue.ready_count, queue.unacked_count) == (0, 4)


def test_a_requeued_message_returns_to_its_place(queue: Queue) -> None:
    taker = Taker(queue, room=3)
    attach(queue, taker)
    for body in (b"a", b"b", b"c", b"d", b"e"):
        enqueue(queue, body)
    queue.requeue(taker.taken[1])
    queue.requeue(taker.taken[0])
    queue.settle(taker.taken[2])
    assert bodies_left(queue) == [b"a", b"b", b"d", b"e"]
    assert queue.unacked_count == 0


def test_a_returned_message_says_so(queue: Queue) -> None:
    taker = Taker(queue, room=1)
    attach(queue, taker)
    enqueue(queue, b"a")
    queue.requeue(taker.taken[0])
    message = queue.dequeue()
    assert message is not None
    assert message.flags & REDELIVERED
    assert message.deliveries == 1


def test_two_levels_of_priority_without_an_argument(queue: Queue) -> None:
    for body, priority in ((b"0", 0), (b"4", 4), (b"5", 5), (b"9", 9), (b"1", 1)):
        enqueue(queue, body, priority=priority)
    assert bodies_left(queue) == [b"5", b"9", b"0", b"4", b"1"]


def test_as_many_levels_as_the_argument_asks_for(queue: Queue) -> None:
    queue.ready.max_priority = 10
    for priority in (3, 10, 0, 200, 7):
        enqueue(queue, str(priority).encode(), priority=priority)
    assert bodies_left(queue) == [b"10", b"200", b"7", b"3", b"0"]


def test_a_requeued_message_keeps_its_priority(queue: Queue) -> None:
    taker = Taker(queue, room=2)
    attach(queue, taker)
    enqueue(queue, b"low")
    enqueue(queue, b"high", priority=9)
    enqueue(queue, b"low2")
    enqueue(queue, b"high2", priority=9)
    for message in taker.taken:
        queue.requeue(message)
    assert bodies_left(queue) == [b"high", b"high2", b"low", b"low2"]


def test_consumers_take_turns(queue: Queue) -> None:
    first, second = Taker(queue), Taker(queue)
    attach(queue, first)
    attach(queue, second)
    for body in (b"a", b"b", b"c", b"d"):
        enqueue(queue, body)
    assert first.bodies == [b"a", b"c"]
    assert second.bodies == [b"b", b"d"]


def test_who_comes_and_goes_leaves_the_round_to_the_others(queue: Queue) -> None:
    first, second, third = Taker(queue), Taker(queue), Taker(queue)
    attach(queue, first)
    enqueue(queue, b"a")
    attach(queue, second)  # Behind the first, whose turn it is again.
    enqueue(queue, b"b")
    attach(queue, third)  # The second is next, and then the first.
    for body in (b"c", b"d", b"e", b"f"):
        enqueue(queue, body)
    assert first.bodies == [b"a", b"b", b"d"]
    assert second.bodies == [b"c", b"f"]
    assert third.bodies == [b"e"]
    queue.remove_consumer(first)  # The third is next still.
    enqueue(queue, b"g")
    assert third.bodies == [b"e", b"g"]


def test_what_comes_back_is_tried_by_another_consumer(queue: Queue) -> None:
    first, second = Taker(queue), Taker(queue)
    attach(queue, first)
    enqueue(queue, b"a")
    attach(queue, second)
    queue.requeue(first.taken[0])
    queue.drain()
    assert second.bodies == [b"a"]
    queue.requeue(second.taken[0])
    queue.drain()
    assert first.bodies == [b"a", b"a"]


def test_the_higher_priority_goes_first_while_it_has_room(queue: Queue) -> None:
    low, high = Taker(queue), Taker(queue, room=2)
    high.priority = 5
    attach(queue, low)
    attach(queue, high)
    for body in (b"a", b"b", b"c"):
        enqueue(queue, body)
    assert high.bodies == [b"a", b"b"]
    assert low.bodies == [b"c"]
    high.room = 1
    queue.unpark(high)
    enqueue(queue, b"d")
    assert high.bodies == [b"a", b"b", b"d"]


def test_a_consumer_without_room_is_left_alone_until_it_has_some(queue: Queue) -> None:
    taker = Taker(queue, room=1)
    attach(queue, taker)
    enqueue(queue, b"a")
    enqueue(queue, b"b")
    assert taker.bodies == [b"a"]
    assert taker.is_parked
    taker.room = 5
    queue.unpark(taker)
    assert taker.bodies == [b"a", b"b"]


@pytest.mark.parametrize("where", [0, 1, 2])
def test_a_message_expires_on_time_wherever_it_stands(
    queue: Queue, counters: Counters, letters: DeadLetters, where: int
) -> None:
    for i in range(3):
        enqueue(queue, b"%d" % i, deadline_ms=counters.now_ms + 50 if i == where else 0)
    assert queue.expire(counters.now_ms + 49) == counters.now_ms + 50
    assert queue.ready_count == 3
    assert queue.expire(counters.now_ms + 50) == 0
    assert queue.ready_count == 2
    assert letters.dead == [(b"%d" % where, "expired")]
    assert bodies_left(queue) == [b"%d" % i for i in range(3) if i != where]


def test_the_queue_tells_the_clock_about_an_earlier_deadline(
    queue: Queue, counters: Counters
) -> None:
    deadlines: list[int] = []
    queue.on_deadline = lambda _, deadline_ms: deadlines.append(deadline_ms)
    enqueue(queue, b"late", deadline_ms=counters.now_ms + 500)
    enqueue(queue, b"later", deadline_ms=counters.now_ms + 900)
    enqueue(queue, b"soon", deadline_ms=counters.now_ms + 100)
    assert deadlines == [counters.now_ms + 500, counters.now_ms + 100]


def test_deadlines_of_what_comes_back_cost_the_same_however_many_there_are(
    queue: Queue, counters: Counters, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unacked messages are in no list of deadlines that is scanned for each message."""
    sweeps: list[int] = []

    def counting(listed: list[object]) -> None:
        sweeps.append(len(listed))
        heapify(listed)  # type: ignore[type-var]

    monkeypatch.setattr("headrace.model.queue.expiry.heapify", counting)
    many = 5000
    queue.dead_letter_exchange = None
    for n in range(many):
        enqueue(queue, b"%d" % n, deadline_ms=counters.now_ms + 50 + n % 2)
    taker = Taker(queue, room=many)
    attach(queue, taker)
    queue.remove_consumer(taker)
    for _ in range(3):
        for message in taker.taken:
            queue.requeue(message)
        assert queue.ready_count == many
        again = [queue.get(taker) for _ in range(many)]
        assert again == taker.taken
    for message in taker.taken:
        queue.requeue(message)
    assert sum(sweeps) <= 4 * many
    assert queue.expire(counters.now_ms + 50) == counters.now_ms + 51
    assert queue.ready_count == many // 2
    assert queue.expire(counters.now_ms + 51) == 0
    assert (queue.ready_count, counters.memory_used) == (0, 0)


def test_an_expired_message_is_never_delivered(queue: Queue, counters: Counters) -> None:
    enqueue(queue, b"old", deadline_ms=counters.now_ms + 5)
    enqueue(queue, b"fresh")
    counters.now_ms += 10
    taker = Taker(queue)
    attach(queue, taker)
    assert taker.bodies == [b"fresh"]


def test_the_time_to_live_of_the_queue_limits_that_of_the_message(
    queue: Queue, counters: Counters
) -> None:
    queue.message_ttl_ms = 100
    enqueue(queue, b"a", deadline_ms=counters.now_ms + 1000)
    enqueue(queue, b"b", deadline_ms=counters.now_ms + 10)
    assert queue.expire(counters.now_ms + 10) == counters.now_ms + 100
    assert bodies_left(queue) == [b"a"]


def test_drop_head_drops_the_oldest(queue: Queue, letters: DeadLetters) -> None:
    queue.limits = Overflow(2)
    for body in (b"a", b"b", b"c"):
        assert enqueue(queue, body) == 0
    assert letters.dead == [(b"a", "maxlen")]
    assert bodies_left(queue) == [b"b", b"c"]


def test_reject_publish_refuses_the_newest(queue: Queue) -> None:
    queue.limits = Overflow(-1, 3, OVERFLOW_REJECT)
    assert enqueue(queue, b"aa") == 0
    assert enqueue(queue, b"bb") == 1
    assert enqueue(queue, b"c") == 0
    assert bodies_left(queue) == [b"aa", b"c"]


def test_a_full_queue_still_passes_messages_to_a_waiting_consumer(queue: Queue) -> None:
    queue.limits = Overflow(0, -1, OVERFLOW_REJECT)
    taker = Taker(queue)
    attach(queue, taker)
    assert enqueue(queue, b"a") == 0
    assert taker.bodies == [b"a"]


def test_what_is_counted_as_memory_is_given_back(queue: Queue, counters: Counters) -> None:
    taker = Taker(queue, room=2)
    attach(queue, taker)
    for body in (b"a", b"bb", b"ccc", b"dddd"):
        enqueue(queue, body)
    assert counters.memory_used > 0
    queue.settle(taker.taken[0])
    queue.discard(taker.taken[1])
    queue.purge()
    assert counters.memory_used == 0


def test_purge_leaves_what_consumers_hold(queue: Queue) -> None:
    taker = Taker(queue, room=1)
    attach(queue, taker)
    for body in (b"a", b"b", b"c"):
        enqueue(queue, body)
    assert queue.purge() == 2
    assert (queue.ready_count, queue.unacked_count) == (0, 1)
    queue.requeue(taker.taken[0])
    assert bodies_left(queue) == [b"a"]


def test_a_message_returned_to_a_deleted_queue_is_gone(queue: Queue, counters: Counters) -> None:
    taker = Taker(queue, room=1)
    attach(queue, taker)
    enqueue(queue, b"a")
    enqueue(queue, b"b")
    assert queue.destroy() == 1
    queue.requeue(taker.taken[0])
    assert queue.ready_count == 0
    assert counters.memory_used == 0


def test_a_consumer_may_pass_messages_by(queue: Queue) -> None:
    class Choosy(Taker):
        def evaluate(self, message: Message) -> int:
            return 0 if message.publisher == self.publisher else 1

    own = Choosy(queue)
    own.publisher = 7
    own.is_selective = True
    attach(queue, own)
    enqueue(queue, b"mine", publisher=7)
    enqueue(queue, b"yours", publisher=8)
    assert own.bodies == [b"yours"]
    other = Taker(queue)
    attach(queue, other)
    assert other.bodies == [b"mine"]


class Chooser(Taker):
    """A consumer that accepts only messages of its publisher."""

    def evaluate(self, message: Message) -> int:
        return int(message.publisher == self.publisher)


@pytest.mark.parametrize("in_place", [False, True], ids=["arrival", "in place"])
def test_a_message_without_time_to_live_is_offered_to_consumers_that_choose(
    queue: Queue, counters: Counters, letters: DeadLetters, in_place: bool
) -> None:
    """A time to live of 0 drops a message only if no consumer takes it on arrival."""
    chooser = Chooser(queue)
    chooser.publisher = 7
    chooser.is_selective = True
    attach(queue, chooser)
    for body, publisher in ((b"taken", 7), (b"refused", 8)):
        message = new_message(body, 0, len(body))
        message.seq = counters.next_seq
        counters.next_seq += 1
        message.publisher = publisher
        message.deadline_ms = counters.now_ms
        if in_place:
            queue.enqueue_in_place(message)
        else:
            queue.enqueue(message)
    assert chooser.bodies == [b"taken"]
    queue.expire(counters.now_ms)
    assert letters.dead == [(b"refused", "expired")]
    queue.requeue(chooser.taken[0])
    queue.expire(counters.now_ms)
    assert letters.dead[1:] == [(b"taken", "expired")]
    assert (queue.ready_count, queue.unacked_count) == (0, 0)


def test_many_expired_messages_leave_no_shells(queue: Queue, counters: Counters) -> None:
    queue.dead_letter_exchange = None
    for _ in range(5000):
        enqueue(queue, b"x", deadline_ms=counters.now_ms + 1)
    enqueue(queue, b"last")
    while queue.expire(counters.now_ms + 1):
        pass
    assert queue.ready_count == 1
    assert queue.ready.stale_count == 0
    assert bodies_left(queue) == [b"last"]


def test_one_long_life_does_not_keep_the_shells_of_short_ones(
    queue: Queue, counters: Counters
) -> None:
    queue.dead_letter_exchange = None
    enqueue(queue, b"long", deadline_ms=counters.now_ms + 1_000_000)
    for _ in range(5000):
        enqueue(queue, b"short", deadline_ms=counters.now_ms + 1)
    assert queue.expire(counters.now_ms + 1) == counters.now_ms + 1_000_000
    assert (queue.ready_count, queue.ready.stale_count) == (1, 0)
    assert bodies_left(queue) == [b"long"]


def test_a_publisher_that_waits_again_is_remembered_once_and_not_when_it_is_gone(
    queue: Queue,
) -> None:
    class Publisher:
        released = 0

        def resume_publishing(self) -> None:
            self.released += 1
            queue.remove_waiter(self)

    stays, leaves = Publisher(), Publisher()
    for _ in range(3):
        queue.add_waiter(stays)
        queue.add_waiter(leaves)
    queue.remove_waiter(leaves)
    assert queue.waiters is not None
    assert list(queue.waiters) == [stays]
    queue.release_waiters()
    assert (stays.released, leaves.released) == (1, 0)
    assert not queue.waiters


class Disk(Store):
    """A store that is durable up to where the test says."""

    def record_delivered(self, queue_id: int, seq: int) -> None:
        self.appended += 32

    def settle(self, queue_id: int, seq: int, position: int) -> None:
        pass


class Careful(Taker):
    """Notes up to where it must hold back what it is given."""

    def __init__(self, queue: Queue) -> None:
        super().__init__(queue)
        self.holds: list[int] = []

    def delay_deliveries(self, position: int) -> None:
        self.holds.append(position)


def test_what_is_not_known_to_be_delivered_is_held_back(counters: Counters) -> None:
    disk = Disk()
    queue = Queue("q", store=disk, counters=counters, durable=True)

    def arrive() -> None:
        message = new_message(b"x", 0, 1)
        message.seq = counters.next_seq
        message.position = 1
        counters.next_seq += 1
        queue.enqueue(message)

    first, second = Careful(queue), Careful(queue)
    attach(queue, first)
    attach(queue, second)
    for _ in range(4):
        arrive()
    assert (first.holds, second.holds) == ([32, 32], [32, 32])
    disk.synced = 32
    arrive()
    assert first.holds == [32, 32]
    counters.next_seq += 40_000  # Far into the reserved range: more is reserved, without a wait.
    for _ in range(4):
        arrive()
    assert disk.appended == 64
    counters.next_seq += 25_000
    arrive()
    assert first.holds == second.holds == [32, 32]
    counters.next_seq += 1_000_000  # Other queues took that many.
    arrive()
    arrive()
    assert (first.holds, second.holds) == ([32, 32, 96], [32, 32, 96])
    assert disk.appended == 96
    getter = Careful(queue)
    queue.remove_consumer(first)
    queue.remove_consumer(second)
    arrive()
    assert queue.get(getter) is not None
    assert getter.holds == [96]
