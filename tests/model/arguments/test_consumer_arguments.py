# SPDX-License-Identifier: Apache-2.0
"""Consumers that choose: each message is looked at once, whatever the queue's depth."""

from random import Random
from types import SimpleNamespace

import pytest

from headrace.model.arguments.consumer import ConsumerFilter
from headrace.model.counters import Counters
from headrace.model.errors import InvalidArgument
from headrace.model.message import REDELIVERED, Message, new_message
from headrace.model.ports import Store
from headrace.model.queue.destination import Consumer
from headrace.model.queue.queue import Queue
from headrace.model.scheduler import Scheduler
from headrace.model.selector import compile_selector

LOOKS_MAX = 512  # As in headrace.model.queue.queue.


class Contents:
    """A message whose selector fields are its number; it counts how often it is read."""

    def __init__(self) -> None:
        self.looks = 0

    def values(self, message: Message) -> dict[str, int]:
        self.looks += 1
        return {"n": int(message.data or b"0")}


class Taker(Consumer):
    def __init__(
        self, queue: Queue, selector: str = "", room: int = 1 << 30, no_ack: bool = False
    ) -> None:
        Consumer.__init__(self, queue, "taker", no_ack)
        self.selector = compile_selector(selector) if selector else None
        self.room = room
        self.taken: list[Message] = []
        self.numbers: list[int] = []
        self.end = ""

    def has_room(self) -> bool:
        return self.room > 0

    def deliver(self, message: Message) -> None:
        self.room -= 1
        self.taken.append(message)
        self.numbers.append(int(message.data or b"0"))

    def on_queue_end(self) -> None:
        self.end = "ended"


def attach(queue: Queue, consumer: Taker) -> Taker:
    queue.add_consumer(consumer)
    queue.drain()
    return consumer


class Scene:
    def __init__(self) -> None:
        self.counters = Counters(now_ms=1_000_000)
        self.contents = Contents()
        self.scheduler = Scheduler()
        vhost = SimpleNamespace(
            name="/",
            contents=self.contents,
            scheduler=self.scheduler,
            on_consumer_added=lambda _: None,
            on_consumer_removed=lambda _: None,
        )
        self.queue = Queue("q", store=Store(), counters=self.counters, vhost=vhost)

    def enqueue(self, *numbers: int, priority: int = 0, publisher: int = 0) -> None:
        for n in numbers:
            message = new_message(b"%d" % n, 0, 4)
            message.seq = self.counters.next_seq
            message.priority = priority
            message.publisher = publisher
            self.counters.next_seq += 1
            self.queue.enqueue(message)

    def later(self) -> None:
        while self.scheduler.next_ms:
            self.counters.now_ms = self.scheduler.next_ms
            self.scheduler.run(self.counters.now_ms)

    def left(self) -> list[int]:
        bodies = []
        while (message := self.queue.dequeue()) is not None:
            bodies.append(int(message.data or b"0"))
            self.queue.remove(message)
        return bodies


@pytest.fixture
def scene() -> Scene:
    return Scene()


def test_a_selecting_consumer_takes_from_the_middle(scene: Scene) -> None:
    scene.enqueue(*range(10))
    even = attach(scene.queue, Taker(scene.queue, "n % 2 = 0"))
    assert even.numbers == [0, 2, 4, 6, 8]
    scene.enqueue(10, 11)
    assert even.numbers[5:] == [10]
    assert (scene.queue.ready_count, scene.queue.unacked_count) == (6, 6)
    assert scene.left() == [1, 3, 5, 7, 9, 11]


def test_each_message_is_looked_at_once(scene: Scene) -> None:
    scene.enqueue(*range(300))
    none = attach(scene.queue, Taker(scene.queue, "n < 0"))
    for n in range(300):
        scene.enqueue(n)
        scene.queue.drain()
        scene.queue.drain()
    assert none.numbers == []
    assert scene.contents.looks == 600


def test_messages_that_no_selector_matches_are_read_in_slices(scene: Scene) -> None:
    scene.enqueue(*range(3 * LOOKS_MAX))
    last = attach(scene.queue, Taker(scene.queue, f"n = {3 * LOOKS_MAX - 1}"))
    assert scene.contents.looks <= LOOKS_MAX
    assert last.numbers == []
    assert last.is_scanning
    scene.later()
    assert last.numbers == [3 * LOOKS_MAX - 1]
    assert not last.is_scanning
    assert scene.contents.looks == 3 * LOOKS_MAX


def test_selecting_and_other_consumers_share_a_queue(scene: Scene) -> None:
    even = attach(scene.queue, Taker(scene.queue, "n % 2 = 0"))
    other = attach(scene.queue, Taker(scene.queue))
    scene.enqueue(*range(8))
    assert sorted(even.numbers + other.numbers) == list(range(8))
    assert all(n % 2 == 0 for n in even.numbers)
    assert len(even.numbers) >= 2
    assert other.numbers[0] <= 1
    scene.queue.remove_consumer(other)
    scene.enqueue(8, 9)
    assert scene.queue.ready_count == 1
    assert even.numbers[-1] == 8


def test_what_comes_back_is_looked_at_again_by_all(scene: Scene) -> None:
    low = attach(scene.queue, Taker(scene.queue, "n < 5", room=3))
    high = attach(scene.queue, Taker(scene.queue, "n >= 5"))
    scene.enqueue(*range(8))
    assert (low.numbers, high.numbers) == ([0, 1, 2], [5, 6, 7])
    two = attach(scene.queue, Taker(scene.queue, "n = 1 OR n = 6"))
    for message in (low.taken[1], high.taken[1]):
        scene.queue.requeue(message)
    low.room = 0
    high.room = 0
    scene.queue.drain()
    assert two.numbers == [1, 6]
    assert all(message.flags & REDELIVERED for message in two.taken)
    for message in two.taken:
        scene.queue.requeue(message)
    scene.queue.remove_consumer(two)
    scene.queue.remove_consumer(low)
    scene.queue.remove_consumer(high)
    assert scene.left() == [1, 3, 4, 6]


def test_higher_priorities_are_chosen_first(scene: Scene) -> None:
    scene.queue.ready.max_priority = 9
    for n in range(12):
        scene.enqueue(n, priority=n % 3)
    taker = attach(scene.queue, Taker(scene.queue, "n > 2"))
    assert taker.numbers == [5, 8, 11, 4, 7, 10, 3, 6, 9]


def test_no_local_takes_a_cursor_not_the_queue(scene: Scene) -> None:
    taker = Taker(scene.queue)
    taker.no_local = True
    taker.publisher = 7
    attach(scene.queue, taker)
    scene.enqueue(*range(100), publisher=7)
    scene.enqueue(100, publisher=8)
    assert taker.numbers == [100]
    assert scene.queue.ready.requeued_between(0, 1 << 40) == []
    assert scene.left() == list(range(100))


def test_a_browser_with_a_selector(scene: Scene) -> None:
    scene.enqueue(*range(2 * LOOKS_MAX))
    browser = Taker(scene.queue, f"n >= {2 * LOOKS_MAX - 2}")
    browser.is_browser = True
    attach(scene.queue, browser)
    scene.later()
    assert browser.numbers == [2 * LOOKS_MAX - 2, 2 * LOOKS_MAX - 1]
    assert not any(message.flags & REDELIVERED for message in browser.taken)
    assert scene.contents.looks == 2 * LOOKS_MAX
    assert scene.left() == list(range(2 * LOOKS_MAX))


@pytest.mark.parametrize("browses", [False, True])
def test_auto_close_ends_when_there_is_no_more(scene: Scene, browses: bool) -> None:
    scene.enqueue(*range(6))
    taker = Taker(scene.queue, "n < 4", room=2, no_ack=browses)
    taker.auto_close = True
    taker.is_browser = browses
    attach(scene.queue, taker)
    assert (taker.numbers, taker.end) == ([0, 1], "")
    taker.room = 2
    scene.queue.unpark(taker)
    scene.queue.drain()
    taker.room = 1
    scene.queue.unpark(taker)
    scene.queue.drain()
    assert (taker.numbers, taker.end) == ([0, 1, 2, 3], "ended")
    assert scene.queue.consumer_count() == 0
    empty = Taker(scene.queue, "n > 100")
    empty.auto_close = True
    assert attach(scene.queue, empty).end == "ended"


def test_one_without_room_for_this_message_is_not_overtaken(scene: Scene) -> None:
    class Small(Taker):
        full = True

        def evaluate(self, message: Message) -> int:
            return 2 if self.full else 1

    small = attach(scene.queue, Small(scene.queue, "n > 1"))
    scene.enqueue(*range(4))
    assert small.numbers == []
    assert small.is_parked
    small.full = False  # type: ignore[attr-defined]
    scene.queue.unpark(small)
    assert small.numbers == [2, 3]


@pytest.mark.parametrize("seed", range(20))
def test_nothing_is_lost_or_had_twice(scene: Scene, seed: int) -> None:
    """Random publishes, takers, returns and priorities: what is settled or left is what came."""
    chance = Random(seed)
    scene.queue.ready.max_priority = chance.choice([0, 3])
    takers: list[Taker] = []
    settled: list[int] = []
    offered = 0
    for _ in range(200):
        step = chance.random()
        if step < 0.4:
            scene.enqueue(offered, priority=chance.randrange(4))
            offered += 1
        elif step < 0.5:
            text = chance.choice(["", "n % 2 = 0", "n % 3 = 1", "n > 20", "n < 0"])
            no_ack = chance.random() < 0.2
            takers.append(
                attach(scene.queue, Taker(scene.queue, text, chance.randrange(1, 6), no_ack))
            )
        elif step < 0.6 and takers:
            taker = takers.pop(chance.randrange(len(takers)))
            scene.queue.remove_consumer(taker)
            for message in taker.taken:
                if taker.no_ack:
                    continue
                scene.queue.requeue(message)
            if taker.no_ack:
                settled += taker.numbers
            scene.queue.drain()
        elif takers:
            taker = chance.choice(takers)
            if taker.taken and not taker.no_ack:
                message = taker.taken.pop(chance.randrange(len(taker.taken)))
                if chance.random() < 0.5:
                    settled.append(int(message.data or b""))
                    scene.queue.settle(message)
                else:
                    scene.queue.requeue(message)
            taker.room = chance.randrange(4)
            scene.queue.unpark(taker)
            scene.queue.drain()
    for taker in takers:
        scene.queue.remove_consumer(taker)
        settled += (
            taker.numbers if taker.no_ack else [int(message.data or b"") for message in taker.taken]
        )
        for message in taker.taken:
            if not taker.no_ack:
                scene.queue.settle(message)
    assert sorted(settled + scene.left()) == list(range(offered))
    assert (scene.queue.ready_count, scene.queue.unacked_count) == (0, 0)


def test_arguments() -> None:
    choice = ConsumerFilter({"x-filter-jms-selector": " ", "x-qpid-no-local": "TRUE"}, "queue 'q'")
    assert (choice.selector, choice.no_local, choice.is_browser) == (None, True, False)
    choice = ConsumerFilter({"x-apache-selector": b"a = 1", "x-filter-auto-close": 1}, "queue 'q'")
    assert choice.selector is not None
    assert (choice.selector.text, choice.auto_close) == ("a = 1", True)
    for arguments, why in (
        ({"x-filter-jms-selector": 5}, "'x-filter-jms-selector' for queue 'q': expected a string"),
        ({"x-filter-jms-selector": "a =", "x-apache-selector": "b = 1"}, "a different selector"),
        ({"x-apache-selector": "a ="}, "too early at position 4"),
        ({"x-filter-no-consume": "perhaps"}, "'x-filter-no-consume' for queue 'q': expected a b"),
    ):
        with pytest.raises(InvalidArgument, match=why):
            ConsumerFilter(arguments, "queue 'q'")
