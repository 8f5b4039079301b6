# SPDX-License-Identifier: Apache-2.0
"""Sequence-sets against plain sets of numbers, and what may not be on the wire."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from headrace.wire.errors import MalformedError
from headrace.wire.ranges import (
    RANGES_MAX,
    SERIAL_MASK,
    ByteRanges,
    SequenceSet,
    decode_byte_ranges,
    decode_sequence_set,
    serial_add,
    serial_distance,
    serial_le,
    serial_lt,
)

SERIALS = st.integers(0, SERIAL_MASK)
STEPS = st.integers(0, 40)


def pairs(*numbers: int, width: int = 4) -> bytes:
    raw = b"".join(number.to_bytes(width, "big") for number in numbers)
    return len(raw).to_bytes(2, "big") + raw


@given(SERIALS, st.integers(1, 2**31 - 1))
def test_serial_numbers_wrap_around(number: int, steps: int) -> None:
    later = serial_add(number, steps)
    assert serial_lt(number, later)
    assert not serial_lt(later, number)
    assert serial_le(number, later)
    assert serial_le(number, number)
    assert not serial_lt(number, number)
    assert serial_distance(number, later) == steps
    assert serial_distance(later, number) == -steps
    assert serial_add(later, -steps) == number


def test_half_a_circle_apart_there_is_no_order() -> None:
    assert not serial_lt(0, 2**31)
    assert not serial_lt(2**31, 0)


class SetMachine(RuleBasedStateMachine):
    """A sequence-set near any number, also where the circle closes, beside a plain set."""

    @initialize(base=st.sampled_from([0, 20, 2**31 - 20, 2**31, 2**32 - 20, 2**32 - 1]) | SERIALS)
    def start(self, base: int) -> None:
        self.base = base
        self.have = SequenceSet()
        self.want: set[int] = set()  # Offsets from the base.

    def at(self, offset: int) -> int:
        return serial_add(self.base, offset)

    @rule(offset=STEPS)
    def add(self, offset: int) -> None:
        self.have.add(self.at(offset))
        self.want.add(offset)

    @rule(offset=STEPS, size=STEPS)
    def add_range(self, offset: int, size: int) -> None:
        self.have.add_range(self.at(offset), self.at(offset + size))
        self.want.update(range(offset, offset + size + 1))

    @rule(offset=STEPS)
    def remove(self, offset: int) -> None:
        self.have.remove(self.at(offset))
        self.want.discard(offset)

    @rule(offset=STEPS, size=STEPS)
    def remove_range(self, offset: int, size: int) -> None:
        self.have.remove_range(self.at(offset), self.at(offset + size))
        self.want.difference_update(range(offset, offset + size + 1))

    @rule(offsets=st.sets(STEPS, max_size=8))
    def combine(self, offsets: set[int]) -> None:
        other = SequenceSet((self.at(offset), self.at(offset)) for offset in offsets)
        assert set(self.have.union(other).numbers()) == self.numbers(self.want | offsets)
        assert set(self.have.difference(other).numbers()) == self.numbers(self.want - offsets)
        assert set(self.have.intersection(other).numbers()) == self.numbers(self.want & offsets)

    def numbers(self, offsets: set[int]) -> set[int]:
        return {self.at(offset) for offset in offsets}

    @invariant()
    def same(self) -> None:
        if not hasattr(self, "want"):
            return
        ascending = [self.at(offset) for offset in sorted(self.want)]
        assert list(self.have.numbers()) == ascending
        assert self.have.count() == len(ascending)
        assert bool(self.have) is bool(ascending)
        for offset in range(-2, 84):
            assert (self.at(offset) in self.have) is (offset in self.want)
        if ascending:
            assert (self.have.lowest(), self.have.highest()) == (ascending[0], ascending[-1])
        before = None
        for lo, hi in self.have:
            assert serial_le(lo, hi)
            assert before is None or serial_distance(before, lo) > 1
            before = hi
        again, end = decode_sequence_set(b"x" + self.have.encode(), 1)
        assert again == self.have
        assert end == 3 + 8 * len(self.have)


SetMachine.TestCase.settings = settings(max_examples=30, stateful_step_count=15, deadline=None)
TestSequenceSet = SetMachine.TestCase


def test_the_example_of_the_standard() -> None:
    made = SequenceSet()
    for number in (0, 1, 2, 5, 6, 15):
        made.add(number)
    assert list(made) == [(0, 2), (5, 6), (15, 15)]
    octets = bytes.fromhex("0018000000000000000200000005000000060000000f0000000f")
    assert made.encode() == octets
    assert decode_sequence_set(octets) == (made, len(octets))
    assert repr(made) == "SequenceSet([(0, 2), (5, 6), (15, 15)])"


@pytest.mark.parametrize(
    "octets",
    [
        b"",
        b"\x00",
        b"\x00\x08\x00\x00\x00\x00",  # Cut off.
        b"\x00\x04\x00\x00\x00\x00",  # No pair.
        pairs(5, 4),  # Backwards.
        pairs(0, 2, 3, 4),  # Touching.
        pairs(0, 5, 4, 9),  # Overlapping.
        pairs(10, 11, 0, 1),  # Not ascending.
        pairs(0, 2**31),  # More than half of the circle.
        pairs(0, 1, 2**30, 2**30, 2**31 + 5, 2**31 + 5),
        pairs(0, 1, 2**31 - 2, 2**31 - 2, 2**31, 0),
    ],
)
def test_no_sequence_set(octets: bytes) -> None:
    with pytest.raises(MalformedError):
        decode_sequence_set(octets)


def test_a_sequence_set_is_bounded() -> None:
    made = SequenceSet((2 * n, 2 * n) for n in range(RANGES_MAX))
    assert len(made.encode()) == 2 + 8 * RANGES_MAX
    with pytest.raises(ValueError, match="8191 ranges"):
        made.add(2 * RANGES_MAX)
    made.add(1)  # Joins two.
    made.add(2 * RANGES_MAX)
    made.remove_range(0, 100)
    with pytest.raises(ValueError, match="half of the circle"):
        made.add(2**31 + 110)
    with pytest.raises(ValueError, match="backwards"):
        made.add_range(5, 4)
    with pytest.raises(ValueError, match="backwards"):
        made.remove_range(5, 4)
    full = SequenceSet([*((2 * n, 2 * n) for n in range(RANGES_MAX - 1)), (30000, 30009)])
    with pytest.raises(ValueError, match="8191 ranges"):
        full.remove(30005)
    empty = SequenceSet()
    with pytest.raises(ValueError, match="empty"):
        empty.lowest()
    with pytest.raises(ValueError, match="empty"):
        empty.highest()
    made.clear()
    assert made == empty


@given(st.lists(st.tuples(st.integers(0, 99), st.integers(0, 9)), max_size=12))
def test_byte_ranges(starts: list[tuple[int, int]]) -> None:
    ranges = [(lo, lo + size) for lo, size in starts]
    made = ByteRanges(ranges)
    covered = {offset for lo, hi in ranges for offset in range(lo, hi + 1)}
    assert {offset for lo, hi in made for offset in range(lo, hi + 1)} == covered
    assert all((offset in made) is (offset in covered) for offset in range(120))
    again, end = decode_byte_ranges(made.encode())
    assert (again, end) == (made, 2 + 16 * len(made))
    assert hash(again) == hash(made)


@pytest.mark.rule("0-10/s001")
@pytest.mark.parametrize(
    "octets",
    [
        pairs(0, 2, 3, 4, width=8),  # Touching.
        pairs(0, 5, 4, 9, width=8),  # Overlapping.
        pairs(10, 11, 0, 1, width=8),  # Not ascending.
        pairs(5, 4, width=8),
        pairs(5, width=8),
        b"\x00",
        b"\x00\x10\x00",
    ],
)
def test_no_byte_ranges(octets: bytes) -> None:
    with pytest.raises(MalformedError):
        decode_byte_ranges(octets)


@pytest.mark.rule("0-10/s001")
def test_byte_ranges_are_sent_in_order_and_apart() -> None:
    assert ByteRanges([(8, 9), (0, 3), (4, 5)]).encode() == pairs(0, 5, 8, 9, width=8)
    for bad in ((-1, 0), (2, 1), (0, 2**64)):
        with pytest.raises(ValueError, match="no range"):
            ByteRanges([bad])
    with pytest.raises(ValueError, match="more than 4095"):
        ByteRanges((2 * n, 2 * n) for n in range(4096))
