# SPDX-License-Identifier: Apache-2.0
"""Unsettled deliveries: what is added is found, taken and listed by its number, in any order."""

import random

import pytest

from headrace.gateway.messages.unsettled import Unsettled
from headrace.model.message import Message, new_message
from headrace.model.queue.destination import Consumer

MASK_32 = 0xFFFFFFFF
RING_SLACK = 65536  # As in the module: compiled, it has no such name.


def message() -> Message:
    return new_message(b"\x00\x00", 2, 0)


@pytest.mark.parametrize("start", [1, MASK_32 - 40])
@pytest.mark.parametrize("seed", range(20))
def test_a_number_of_32_bits_names_its_delivery_until_it_is_taken(start: int, seed: int) -> None:
    choose = random.Random(seed)
    unsettled = Unsettled(32)
    known: dict[int, Message] = {}
    number = start
    for _ in range(200):
        deed = choose.randrange(4)
        if deed < 2 or not known:
            number = (number + choose.choice((1, 1, 1, 2, 7))) & MASK_32
            known[number] = message()
            unsettled.add(number, known[number])
        elif deed == 2:
            one = choose.choice(list(known))
            assert unsettled.pop(one) is known.pop(one)
            assert unsettled.find(one) is None
        else:
            last = choose.choice(list(known))
            for one in list(known):
                assert unsettled.pop_first(last) is known.pop(one)
                if one == last:
                    break
            assert unsettled.pop_first(last) is None
        assert unsettled.count == len(known)
        assert unsettled.entries(number) == list(known.items())
        assert sorted(map(id, unsettled.messages())) == sorted(map(id, known.values()))
        assert unsettled.slot_count() >= len(known)


def test_the_head_is_taken_in_order() -> None:
    unsettled = Unsettled(64)
    messages = [message() for _ in range(10)]
    for number, each in enumerate(messages, 1):
        unsettled.add(number, each)
    assert unsettled.pop(2) is messages[1]
    taken = []
    while (one := unsettled.pop_first(4)) is not None:
        taken.append(one)
    assert taken == [messages[0], messages[2], messages[3]]
    assert [number for number, _ in unsettled.entries(8)] == [5, 6, 7, 8]
    assert unsettled.count == 6


def test_one_that_is_never_settled_is_left_behind() -> None:
    unsettled = Unsettled(64)
    first = message()
    unsettled.add(1, first)
    for number in range(2, 3 * RING_SLACK):
        unsettled.add(number, message())
        assert unsettled.pop(number) is not None
    assert unsettled.spilled == {1: first}
    assert unsettled.spilled_numbers(0, 5) == [1]
    assert unsettled.find(1) is first
    assert unsettled.pop(1) is first
    assert unsettled.count == 0


def test_a_gap_wider_than_the_ring_keeps_costs_no_places() -> None:
    unsettled = Unsettled(64)
    early, late = message(), message()
    unsettled.add(1, early)
    unsettled.add(1 << 40, late)
    assert unsettled.entries(1 << 40) == [(1, early), (1 << 40, late)]
    assert unsettled.find(1) is early
    assert unsettled.pop(1 << 40) is late


def test_a_delivery_put_behind_is_listed_first() -> None:
    unsettled = Unsettled(32)
    unsettled.add(9, message())
    acquired = message()
    unsettled.add_spilled(4, acquired)
    assert [number for number, _ in unsettled.entries(9)] == [4, 9]
    assert unsettled.pop(4) is acquired
    unsettled.clear()
    assert unsettled.entries(9) == []
    assert unsettled.count == 0


@pytest.mark.parametrize("start", [1, MASK_32 - 20])
def test_the_numbers_behind_are_those_of_a_range(start: int) -> None:
    unsettled = Unsettled(32)
    for place in range(40, -1, -2):
        unsettled.add_spilled((start + place) & MASK_32, message())
    for first in range(41):
        for last in range(first, 41):
            expected = [(start + n) & MASK_32 for n in range(first, last + 1) if n % 2 == 0]
            ends = [(start + n) & MASK_32 for n in (first, last)]
            assert unsettled.spilled_numbers(*ends) == expected


def test_the_deliveries_of_one_consumer() -> None:
    unsettled = Unsettled(64)
    mine = Consumer.__new__(Consumer)
    for number in range(1, 7):
        each = message()
        each.consumer = mine if number % 2 else None
        unsettled.add(number, each)
    assert unsettled.delivery_numbers(mine, 4) == [1, 3]
