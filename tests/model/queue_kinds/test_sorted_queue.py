# SPDX-License-Identifier: Apache-2.0
"""Queues that are sorted by a header, and queues whose priority levels take turns."""

from random import Random
from sys import getrefcount
from typing import Any

import pytest

from headrace.model.queue.queue import Queue
from headrace.model.selector import compile_selector
from support.brokers.queue_kind_host import Host, Taker, body_of, left


@pytest.fixture
def queue(host: Host) -> Queue:
    return host.queue(**{"qpid.queue_sort_key": "s"})


def test_ready_messages_leave_in_lexical_order_those_without_the_header_first(
    host: Host, queue: Queue
) -> None:
    for body, key in (("1", "b"), ("2", None), ("3", "a"), ("4", "b"), ("5", ""), ("6", "B")):
        host.enqueue(queue, body, **({} if key is None else {"s": key}))
    assert left(queue) == ["2", "5", "6", "3", "1", "4"]
    for body, number in (("1", 10), ("2", 9), ("3", -1)):
        host.enqueue(queue, body, s=number)
    assert left(queue) == ["3", "1", "2"]  # As text.


def test_what_comes_back_goes_to_where_it_sorts(host: Host, queue: Queue) -> None:
    taker = Taker(queue, room=1).start()
    for key in "cab":
        host.enqueue(queue, key, s=key)
    assert taker.got == ["c"]
    taker.room = -1
    taker.give_back("c")
    assert left(queue) == ["a", "b", "c"]


def test_limits_go_by_place(host: Host) -> None:
    queue = host.queue(**{"qpid.queue_sort_key": "s", "x-max-length": 3})
    for key in "dcba":
        host.enqueue(queue, key, 9 if key == "a" else 0, s=key)
    assert left(queue) == ["a", "b", "c"]


def test_a_requeue_drops_the_lowest_place_beyond_the_limit(host: Host) -> None:
    queue = host.queue(**{"qpid.queue_sort_key": "s", "x-max-length": 3})
    taker = Taker(queue, room=1).start()
    for key in "cdba":
        host.enqueue(queue, key, s=key)
    assert taker.got == ["c"]
    queue.remove_consumer(taker)
    taker.give_back("c")
    assert left(queue) == ["a", "b", "d"]


@pytest.mark.parametrize(
    "arguments",
    [
        {"qpid.queue_sort_key": "s"},
        {"qpid.group_header_key": "s"},
        {"qpid.priorities": 2, "qpid.fairshare": 3},
    ],
    ids=["sorted", "groups", "fair share"],
)
def test_messages_beyond_the_limit_leave_few_entries_behind(
    host: Host, arguments: dict[str, Any]
) -> None:
    """The heap of each kind has an entry of every ready message, which refers to it."""
    queue = host.queue(**arguments, **{"x-max-length": 3})
    messages = []
    for n in range(3000):
        messages.append(host.message(str(n), {"s": f"{3000 - n}" if n % 2 else "9"}))
        queue.enqueue(messages[-1])
    assert queue.ready_count == 3
    alone = [getrefcount(message) for message in [host.message("")]]
    references = [getrefcount(message) for message in messages]
    assert sum(count > alone[0] for count in references) <= 1100


def test_a_browser_goes_by_the_header_and_sees_each_once(host: Host, queue: Queue) -> None:
    for key in "dbf":
        host.enqueue(queue, key, s=key)
    browser = Taker(queue, room=2, browses=True).start()
    assert browser.got == ["b", "d"]
    host.enqueue(queue, "a", s="a")  # Behind it,
    host.enqueue(queue, "e", s="e")  # and ahead of it.
    host.turn()
    browser.room = 10
    queue.unpark(browser)
    host.turn()
    assert browser.got == ["b", "d", "a", "e", "f"]
    taker = Taker(queue, room=3).start()
    assert taker.got == ["a", "b", "d"]
    second = Taker(queue, room=1, browses=True).start()
    assert second.got == ["e"]
    taker.room = -10
    taker.give_back("d")  # Behind the second one.
    host.enqueue(queue, "c", s="c")  # New to both.
    second.room = 10
    queue.unpark(second)
    host.turn()
    assert second.got == ["e", "c", "f"]
    assert browser.got == ["b", "d", "a", "e", "f", "c"]
    assert left(queue) == ["c", "d", "e", "f"]


def test_a_browser_of_a_sorted_queue_from_a_position(host: Host, queue: Queue) -> None:
    for key in "dbfac":
        host.enqueue(queue, key, s=key)
    browser = Taker(queue, room=0, browses=True)
    queue.add_browser(browser)
    queue.browse_from(browser, 3)
    browser.room = 10
    queue.unpark(browser)
    host.turn()
    assert browser.got == ["a", "c", "f"]


def test_a_consumer_with_a_selector_goes_by_the_header(host: Host, queue: Queue) -> None:
    for n, key in enumerate("dbfac"):
        host.enqueue(queue, key, s=key, n=n)
    chooser = Taker(queue, room=2)
    chooser.selector = compile_selector("n <> 3")
    chooser.start()
    assert chooser.got == ["b", "c"]
    chooser.give_back("b")  # Comes again: it is the first.
    assert chooser.got == ["b", "c", "b"]
    chooser.settle("c")
    host.enqueue(queue, "aa", s="aa", n=9)
    chooser.settle("b")
    assert chooser.got == ["b", "c", "b", "d", "aa"]
    assert left(queue) == ["a", "f"]


def test_a_sorted_queue_against_a_model(host: Host, queue: Queue) -> None:
    random = Random(3)
    ready: list[tuple[str, int, str]] = []
    held: dict[str, tuple[str, int, str]] = {}
    taker = Taker(queue, room=0).start()
    for i in range(4000):
        draw = random.random()
        if draw < 0.45:
            key = str(random.randrange(40))
            ready.append((key, host.counters.next_seq, f"{i}"))
            host.enqueue(queue, f"{i}", s=key)
        elif draw < 0.75 and ready:
            taker.room = 1
            queue.unpark(taker)
            queue.drain()
            ready.sort()
            first = ready.pop(0)
            assert taker.got[-1] == first[2]
            held[first[2]] = first
        elif held:
            body = random.choice(list(held))
            message = next(m for m in taker.held if body_of(m) == body)
            taker.held.remove(message)
            if random.random() < 0.5:
                queue.settle(message)
                del held[body]
            else:
                queue.requeue(message)
                ready.append(held.pop(body))
        assert queue.ready_count == len(ready)
    assert left(queue) == [body for _, _, body in sorted(ready)]
    assert queue.ready_bytes == 0


# --- Levels and fair share -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("levels", "bounds"), [(1, []), (2, [5]), (4, [4, 5, 6]), (10, [1, 2, 3, 4, 5, 6, 7, 8, 9])]
)
def test_priorities_map_to_levels_as_the_0_10_standard_says(
    host: Host, levels: int, bounds: list[int]
) -> None:
    queue = host.queue(**{"qpid.priorities": levels})
    for priority in range(10):
        host.enqueue(queue, str(priority), priority)
    expected = sorted(range(10), key=lambda p: (-sum(p >= bound for bound in bounds), p))
    assert left(queue) == [str(priority) for priority in expected]


def shares(host: Host, **arguments: Any) -> list[str]:
    queue = host.queue(str(arguments), **{"qpid.priorities": 10}, **arguments)
    for priority in (9, 9, 9, 9, 9, 5, 5, 5, 1, 1, 1, 1):
        host.enqueue(queue, str(priority), priority)
    return left(queue)


def test_levels_take_turns_by_their_share(host: Host) -> None:
    assert "".join(shares(host, **{"qpid.fairshare": 2})) == "995511995119"
    assert "".join(shares(host)) == "999995551111"


def test_a_level_has_a_share_of_its_own(host: Host) -> None:
    levels = "".join(shares(host, **{"qpid.fairshare": 1, "qpid.fairshare-9": 3}))
    assert levels == "999519951511"  # Three of nine, then one of each of the others.


def test_a_level_without_a_limit_keeps_its_turn(host: Host) -> None:
    levels = "".join(shares(host, **{"qpid.fairshare": 0, "qpid.fairshare-9": 2}))
    assert levels == "995551111999"


def test_what_comes_back_goes_to_its_level(host: Host) -> None:
    queue = host.queue(**{"qpid.priorities": 10, "qpid.fairshare": 1})
    taker = Taker(queue, room=1).start()
    for priority in (9, 9, 1):
        host.enqueue(queue, str(priority), priority)
    taker.room = -1
    taker.give_back("9")
    assert sorted(left(queue)) == ["1", "9", "9"]
    assert queue.ready_bytes == 0


FAIR: dict[str, Any] = {"qpid.priorities": 3, "qpid.fairshare": 2}


def test_peek_at_a_fair_queue_goes_by_shares(host: Host) -> None:
    queue = host.queue(**FAIR)
    for body, priority in (("l1", 1), ("l2", 1), ("h1", 9), ("h2", 9), ("h3", 9), ("m1", 4)):
        host.enqueue(queue, body, priority)
    order = ["h1", "h2", "m1", "l1", "l2", "h3"]
    browser = Taker(queue, room=3, browses=True).start()
    assert browser.got == order[:3]
    taker = Taker(queue, room=1).start()
    assert taker.got == ["h1"]
    second = Taker(queue, browses=True).start()
    assert second.got == order[1:]
    taker.room = -10
    taker.give_back("h1")  # Behind both.
    host.enqueue(queue, "h4", 9)
    browser.room = 10
    queue.unpark(browser)
    host.turn()
    assert browser.got == ["h1", "h2", "m1", "l1", "l2", "h3", "h4"]
    assert second.got == [*order[1:], "h4"]
    chooser = Taker(queue, room=3)
    chooser.selector = compile_selector("JMSPriority < 10")
    assert chooser.start().got == ["h1", "m1", "l1"]  # The taker had one of the first turn.
    assert left(queue) == ["h2", "l2", "h3", "h4"]


@pytest.mark.parametrize(
    "arguments",
    [
        {"qpid.queue_sort_key": "s"},
        FAIR,
        {"qpid.group_header_key": "s"},
        {"qpid.group_header_key": "s", "qpid.shared_msg_group": 1},
        {"qpid.last_value_queue_key": "s"},
        {"x-max-priority": 4},
        {"holdOnPublishEnabled": True},
    ],
    ids=["sorted", "fair", "groups", "shared", "last value", "priority", "hold"],
)
def test_whatever_comes_and_goes_each_is_shown_once(host: Host, arguments: dict[str, Any]) -> None:
    """A browser, one that has room at times, and a consumer that chooses, among takers."""
    random = Random(7)
    queue = host.queue(**arguments)
    watcher = Taker(queue, room=1 << 30, browses=True).start()
    visitor = Taker(queue, room=0, browses=True).start()
    chooser = Taker(queue, room=0)
    chooser.selector = compile_selector("n % 3 = 0")
    chooser.start()
    getter = Taker(queue, room=0)
    held: list[Any] = []
    for n in range(1000):
        draw = random.random()
        if draw < 0.5:
            key = str(random.randrange(30))
            host.enqueue(queue, str(n), random.randrange(10), s=key, n=n)
        elif draw < 0.65:
            message = queue.get(getter)
            held += [] if message is None else [message]
        elif draw < 0.75:
            chooser.room += 1
            queue.unpark(chooser)
        elif draw < 0.85:
            visitor.room += random.randrange(4)
            queue.unpark(visitor)
        elif held:
            message = held.pop(random.randrange(len(held)))
            random.choice([queue.settle, queue.requeue, queue.release])(message)
        queue.drain()
        host.turn()
        if n % 100 == 0:
            queue.expire(0)
    visitor.room = 1 << 30
    queue.unpark(visitor)
    host.turn()
    assert all(int(body) % 3 == 0 for body in chooser.got)
    assert len(chooser.got) > 50
    for looker in (watcher, visitor):
        assert len(looker.got) == len(set(looker.got))
    queue.remove_consumer(chooser)
    for message in [*held, *chooser.held]:
        queue.release(message)
    bodies = left(queue)
    assert set(bodies) - set(chooser.got) <= set(watcher.got)  # It may have had them at once.
    assert len(bodies) == len(set(bodies))
    assert (queue.ready_count, queue.unacked_count) == (0, 0)
