# SPDX-License-Identifier: Apache-2.0
"""Queues that are sorted by a header, and queues whose priority levels take turns."""

from random import Random
from typing import Any

import pytest
from kinds import Host, Taker, body_of, left

from headrace.model.queue import Queue


@pytest.fixture
def host() -> Host:
    return Host()


@pytest.fixture
def queue(host: Host) -> Queue:
    return host.queue(**{"qpid.queue_sort_key": "s"})


def test_ready_messages_leave_in_lexical_order_those_without_the_header_first(
    host: Host, queue: Queue
) -> None:
    for body, key in (("1", "b"), ("2", None), ("3", "a"), ("4", "b"), ("5", ""), ("6", "B")):
        host.offer(queue, body, **({} if key is None else {"s": key}))
    assert left(queue) == ["2", "5", "6", "3", "1", "4"]
    for body, number in (("1", 10), ("2", 9), ("3", -1)):
        host.offer(queue, body, s=number)
    assert left(queue) == ["3", "1", "2"]  # As text.


def test_what_comes_back_goes_to_where_it_sorts(host: Host, queue: Queue) -> None:
    taker = Taker(queue, room=1).start()
    for key in "cab":
        host.offer(queue, key, s=key)
    assert taker.got == ["c"]
    taker.room = -1
    taker.give_back("c")
    assert left(queue) == ["a", "b", "c"]


def test_browsers_and_limits_go_by_place(host: Host) -> None:
    queue = host.queue(**{"qpid.queue_sort_key": "s", "x-max-length": 3})
    for key in "dcba":
        host.offer(queue, key, s=key)
    assert Taker(queue, browses=True).start().got == ["c", "b", "a"]
    assert left(queue) == ["a", "b", "c"]


def test_a_sorted_queue_against_a_model(host: Host, queue: Queue) -> None:
    random = Random(3)
    ready: list[tuple[str, int, str]] = []
    held: dict[str, tuple[str, int, str]] = {}
    taker = Taker(queue, room=0).start()
    for i in range(4000):
        what = random.random()
        if what < 0.45:
            key = str(random.randrange(40))
            ready.append((key, host.tally.next_seq, f"{i}"))
            host.offer(queue, f"{i}", s=key)
        elif what < 0.75 and ready:
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
        host.offer(queue, str(priority), priority)
    expected = sorted(range(10), key=lambda p: (-sum(p >= bound for bound in bounds), p))
    assert left(queue) == [str(priority) for priority in expected]


def shares(host: Host, **arguments: Any) -> list[str]:
    queue = host.queue(str(arguments), **{"qpid.priorities": 10}, **arguments)
    for priority in (9, 9, 9, 9, 9, 5, 5, 5, 1, 1, 1, 1):
        host.offer(queue, str(priority), priority)
    return left(queue)


def test_levels_take_turns_by_their_share(host: Host) -> None:
    assert "".join(shares(host, **{"qpid.fairshare": 2})) == "995511995119"
    assert "".join(shares(host)) == "999995551111"


def test_a_level_has_a_share_of_its_own(host: Host) -> None:
    found = "".join(shares(host, **{"qpid.fairshare": 1, "qpid.fairshare-9": 3}))
    assert found == "999519951511"  # Three of nine, then one of each of the others.


def test_a_level_without_a_limit_keeps_its_turn(host: Host) -> None:
    found = "".join(shares(host, **{"qpid.fairshare": 0, "qpid.fairshare-9": 2}))
    assert found == "995551111999"


def test_what_comes_back_goes_to_its_level(host: Host) -> None:
    queue = host.queue(**{"qpid.priorities": 10, "qpid.fairshare": 1})
    taker = Taker(queue, room=1).start()
    for priority in (9, 9, 1):
        host.offer(queue, str(priority), priority)
    taker.room = -1
    taker.give_back("9")
    assert sorted(left(queue)) == ["1", "9", "9"]
    assert queue.ready_bytes == 0
