# SPDX-License-Identifier: Apache-2.0
"""Looking at a queue without taking from it, and taking from its middle."""

from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.model.counters import Counters
from headrace.model.message import REDELIVERED, Message, new_message
from headrace.model.ports import Store
from headrace.model.queue.destination import Consumer
from headrace.model.queue.queue import Queue


class Looker(Consumer):
    """A consumer with a fixed room that keeps what it is shown or given."""

    def __init__(self, queue: Queue, room: int = 1000, *, browses: bool = True) -> None:
        super().__init__(queue, "looker", False)
        self.is_browser = browses
        self.room = room
        self.shown: list[Message] = []

    def has_room(self) -> bool:
        return self.room > 0

    def deliver(self, message: Message) -> None:
        self.room -= 1
        self.shown.append(message)

    def seqs(self) -> list[int]:
        return [message.seq for message in self.shown]


def make(max_priority: int = 0) -> Queue:
    queue = Queue("q", store=Store(), counters=Counters(now_ms=1_000_000))
    queue.ready.max_priority = max_priority
    return queue


def enqueue(queue: Queue, priority: int = 0) -> Message:
    message = new_message(b"body", 0, 4)
    message.seq = queue.counters.next_seq
    message.priority = priority
    queue.counters.next_seq += 1
    queue.enqueue(message)
    return message


def attach(queue: Queue, consumer: Looker) -> Looker:
    queue.add_consumer(consumer)
    queue.drain()
    return consumer


def turn(queue: Queue) -> None:
    for waking in queue.counters.to_drain:
        waking.drain()
    queue.counters.to_drain = []


def test_a_browser_sees_what_is_there_and_what_comes_and_takes_nothing() -> None:
    queue = make()
    enqueue(queue)
    enqueue(queue)
    looker = attach(queue, Looker(queue))
    assert looker.seqs() == [1, 2]
    enqueue(queue)
    turn(queue)
    assert looker.seqs() == [1, 2, 3]
    assert queue.ready_count == 3
    assert queue.consumer_count() == 1


def test_a_browser_without_room_goes_on_where_it_stopped() -> None:
    queue = make()
    for _ in range(5):
        enqueue(queue)
    looker = attach(queue, Looker(queue, room=2))
    assert looker.seqs() == [1, 2]
    looker.room = 10
    queue.unpark(looker)
    turn(queue)
    assert looker.seqs() == [1, 2, 3, 4, 5]


def test_a_browser_sees_higher_levels_first_and_each_message_once() -> None:
    queue = make(max_priority=3)
    for priority in (0, 3, 1, 3):
        enqueue(queue, priority)
    looker = attach(queue, Looker(queue))
    assert looker.seqs() == [2, 4, 3, 1]
    enqueue(queue, 2)
    enqueue(queue, 3)
    turn(queue)
    assert looker.seqs() == [2, 4, 3, 1, 6, 5]


def test_a_message_acquired_from_the_middle_is_not_handed_out_and_returns_to_its_place() -> None:
    queue = make()
    for _ in range(4):
        enqueue(queue)
    looker = attach(queue, Looker(queue))
    second = looker.shown[1]
    assert queue.acquire(second, looker)
    assert not queue.acquire(second, looker)
    assert queue.ready_count == 3
    assert queue.unacked_count == 1
    queue.release(second)
    assert not second.flags & REDELIVERED
    taker = attach(queue, Looker(queue, browses=False))
    assert taker.seqs() == [1, 2, 3, 4]
    assert not queue.acquire(second, looker)


def test_settling_an_acquired_message_leaves_no_trace() -> None:
    queue = make()
    for _ in range(3):
        enqueue(queue)
    looker = attach(queue, Looker(queue))
    assert queue.acquire(looker.shown[0], looker)
    queue.settle(looker.shown[0])
    assert queue.ready_count == 2
    assert queue.counters.memory_used == 2 * (4 + 200)
    assert queue.purge() == 2
    assert queue.ready_count == 0
    assert queue.ready.stale_count == 0


def test_a_message_that_returns_before_the_cursor_is_shown_once() -> None:
    queue = make()
    for _ in range(4):
        enqueue(queue)
    taker = attach(queue, Looker(queue, room=3, browses=False))
    looker = attach(queue, Looker(queue, room=0))
    queue.remove_consumer(taker)
    for message in taker.shown:
        queue.requeue(message)
    looker.room = 10
    queue.drain()
    assert looker.seqs() == [1, 2, 3, 4]
    queue.drain()
    assert looker.seqs() == [1, 2, 3, 4]


def test_a_queue_whose_last_browser_left_before_it_was_drained_wakes_the_next_one() -> None:
    queue = make()
    first = attach(queue, Looker(queue))
    enqueue(queue)  # Wakes the queue.
    queue.remove_consumer(first)
    turn(queue)
    second = Looker(queue)
    queue.add_consumer(second)
    queue.wake()
    turn(queue)
    assert second.seqs() == [1]


def test_a_browser_ends_with_the_queue() -> None:
    queue = make()

    class Ending(Looker):
        ended = False  # type: ignore[assignment]

        def on_cancel(self) -> None:
            self.ended = True

    looker = Ending(queue)
    attach(queue, looker)
    enqueue(queue)
    queue.destroy()
    assert looker.ended


@settings(max_examples=150, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["offer", "acquire", "release", "requeue", "settle", "take", "sweep"]),
            st.integers(0, 30),
        ),
        max_size=60,
    )
)
def test_whatever_is_acquired_and_returned_counts_stay_true(
    steps: list[tuple[str, int]],
) -> None:
    queue = make()
    looker = attach(queue, Looker(queue, room=1 << 30))
    holder = Looker(queue, browses=False)
    ready: dict[int, Message] = {}
    held: dict[int, Message] = {}
    for step, number in steps:
        if step == "offer":
            message = enqueue(queue, priority=number % 10)
            ready[message.seq] = message
        elif step == "acquire" and ready:
            message = sorted(ready.items())[number % len(ready)][1]
            assert queue.acquire(message, holder)
            held[message.seq] = ready.pop(message.seq)
        elif step in ("release", "requeue") and held:
            message = sorted(held.items())[number % len(held)][1]
            (queue.release if step == "release" else queue.requeue)(message)
            ready[message.seq] = held.pop(message.seq)
        elif step == "settle" and held:
            queue.settle(held.pop(sorted(held)[number % len(held)]))
        elif step == "take":
            message = queue.get(holder)  # type: ignore[assignment]
            if message is None:
                assert not ready
                continue
            best = min(ready.values(), key=lambda m: (-(m.priority >= 5), m.seq))
            assert message is best
            held[message.seq] = ready.pop(message.seq)
        elif step == "sweep":
            queue.expire(0)
        turn(queue)
        assert queue.ready_count == len(ready)
        assert queue.unacked_count == len(held)
    shown = looker.seqs()
    assert len(shown) == len(set(shown))
    assert set(ready) <= set(shown)
    seqs = []
    while (message := queue.get(holder)) is not None:  # type: ignore[assignment]
        seqs.append(message.seq)
    assert sorted(seqs) == sorted(ready)
