# SPDX-License-Identifier: Apache-2.0
"""A list that others change while it is iterated: what was there and stays comes once, in order."""

from __future__ import annotations

from itertools import islice

from hypothesis import given
from hypothesis import strategies as st

from headrace.model.counters import Counters
from headrace.model.ports import Store
from headrace.model.vhost.chunked_list import CHUNK, ChunkedList
from headrace.model.vhost.virtual_host import VirtualHost

MANY = 3 * CHUNK + 5


class Numbers:
    """Numbers in a list, and the chunk of each."""

    def __init__(self, count: int) -> None:
        self.list: ChunkedList[int] = ChunkedList()
        self.chunk_of: dict[int, list[int]] = {}
        for number in range(count):
            self.append(number)

    def append(self, number: int) -> None:
        self.chunk_of[number] = self.list.append(number)

    def remove(self, number: int) -> None:
        self.list.remove(number, self.chunk_of.pop(number))


@given(removed=st.sets(st.integers(0, MANY - 1)), added=st.integers(0, 2 * CHUNK))
def test_items_come_in_the_order_of_their_addition(removed: set[int], added: int) -> None:
    numbers = Numbers(MANY)
    for number in removed:
        numbers.remove(number)
    for number in range(MANY, MANY + added):
        numbers.append(number)
    assert list(numbers.list) == [n for n in range(MANY + added) if n not in removed]
    assert all(0 < len(chunk) <= CHUNK for chunk in list(numbers.list.chunks())[:-1])


@given(
    before=st.integers(0, MANY),
    removed=st.sets(st.integers(0, MANY - 1)),
    added=st.integers(0, 2 * CHUNK),
)
def test_a_change_meanwhile_hides_no_item_and_repeats_none(
    before: int, removed: set[int], added: int
) -> None:
    numbers = Numbers(MANY)
    iterator = iter(numbers.list)
    seen = list(islice(iterator, before))
    for number in removed:
        numbers.remove(number)
    for number in range(MANY, MANY + added):
        numbers.append(number)
    seen += iterator
    assert seen == sorted(set(seen))
    assert set(range(MANY)) - removed <= set(seen) <= set(range(MANY))


def test_chunks_that_are_empty_are_dropped() -> None:
    numbers = Numbers(MANY)
    for number in range(MANY):
        numbers.remove(number)
    assert len(list(numbers.list.chunks())) <= 1


def test_a_virtual_host_lists_the_queues_that_it_has() -> None:
    vhost = VirtualHost("/", store=Store(), counters=Counters(now_ms=1_000_000))
    for number in range(CHUNK + 2):
        vhost.declare_queue(f"q{number}")
    vhost.delete_queue("q1")
    vhost.declare_queue("q1")
    assert list(vhost.queues_in_order) == list(vhost.queues.values())
    assert [queue.name for queue in vhost.queues_in_order][-2:] == [f"q{CHUNK + 1}", "q1"]
    queue = vhost.queues["q0"]
    vhost.delete_queue("q0")
    assert queue.chunk is None
    assert list(vhost.queues_in_order) == list(vhost.queues.values())
